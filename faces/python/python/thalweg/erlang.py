"""Erlang as a worker's Python sees it.

A worker is started by the Erlang application `thalweg`; everywhere else what needs Erlang raises `NotAWorker`.
"""

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ._native import Atom, Pid, Reference

if TYPE_CHECKING:
    import asyncio

    from .worker import Worker

__all__ = [
    "Atom",
    "Channel",
    "ErlangError",
    "Interrupted",
    "NotAWorker",
    "Pid",
    "Reference",
    "acall",
    "call",
    "send",
]

_worker: "Worker | None" = None


class NotAWorker(RuntimeError):
    """This process was not started by Erlang."""


class ErlangError(RuntimeError):
    """What a callback in Erlang came to when it did not come to a value."""

    def __init__(self, reason: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        """The reason, as a value."""


class Interrupted(BaseException):
    """Raised in a function whose caller gave up. Like `KeyboardInterrupt` it is no `Exception`, so that it comes through."""


def _owner() -> "Worker":
    if _worker is None:
        raise NotAWorker("this process is no worker of an Erlang system")
    return _worker


def call(name: str, *arguments: Any, timeout: float | None = None) -> Any:
    """Calls a function that Erlang registered under a name, and waits for what it returns.

    In the worker's own thread, calls that Erlang makes in the course of it run meanwhile; the event loop does not. Raises
    `ErlangError` when there is no such function, or it failed, and `TimeoutError`.
    """
    worker = _owner()
    if threading.get_ident() == worker.thread:
        return worker.call_and_wait(name, arguments, timeout)
    waiter: Future[Any] = Future()
    worker.begin(name, arguments, waiter)
    return waiter.result(timeout)


async def acall(name: str, *arguments: Any) -> Any:
    """As `call`, for coroutines: others run meanwhile."""
    worker = _owner()
    waiter: asyncio.Future[Any] = worker.loop.create_future()
    worker.begin(name, arguments, waiter)
    return await waiter


def send(pid: Pid, message: Any) -> None:
    """Sends a process a message. One that is no more gets nothing, and nobody is told."""
    _owner().desk.say(2, 0, (pid, message))


class Channel:
    """The writing end of a channel to Erlang, by the number that Erlang gave it.

    `send` raises `BlockingIOError` while the channel is full, and `BrokenPipeError` once Erlang has closed it.
    """

    def __init__(self, number: int) -> None:
        """A channel that Erlang opened."""
        self.number = number

    def send(self, value: Any) -> None:
        """Sends a value."""
        outcome = call("thalweg:channel", self.number, value)
        if outcome == Atom("busy"):
            raise BlockingIOError(f"channel {self.number} is full")
        if outcome != Atom("ok"):
            raise BrokenPipeError(f"channel {self.number} is closed")
