"""Erlang as a worker's Python sees it.

A worker is started by the Erlang application `thalweg`; everywhere else what needs Erlang raises `NotAWorker`.
"""

import asyncio
import math
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ._native import Atom, Pid, Reference

if TYPE_CHECKING:
    from .worker import Worker

__all__ = [
    "Atom",
    "Channel",
    "ErlangError",
    "Interrupted",
    "NotAWorker",
    "Pid",
    "Reference",
    "Shared",
    "acall",
    "call",
    "send",
    "shared",
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


def _spelled(name: str | Atom) -> str:
    """Names are sent as text, since an atom that Erlang does not know cannot be sent as one."""
    return name.name if isinstance(name, Atom) else name


def _seconds(timeout: float | None) -> float | None:
    """How long a call waits: without a bound for None, and not at all for a negative timeout."""
    if timeout is None:
        return None
    if math.isnan(timeout):
        raise ValueError("a timeout is a number of seconds, or None, not nan")
    return max(0.0, timeout)


def call(name: str | Atom, *arguments: Any, timeout: float | None = None) -> Any:
    """Calls a function that Erlang registered under a name, and waits for what it returns.

    In the worker's own thread, calls that Erlang makes in the course of it run meanwhile; the event loop does not. In any other
    thread it waits for its answer alone, so that a function may wait for threads that call. Raises `ErlangError` when there is
    no such function, or it failed, `TimeoutError`, and `ValueError` for arguments of more than 16 MiB. Nobody waits for a timeout of
    0 or less.
    """
    worker = _owner()
    patience = _seconds(timeout)
    if threading.get_ident() == worker.thread:
        return worker.call_and_wait(_spelled(name), arguments, patience)
    waiter: Future[Any] = Future()
    number = worker.begin(_spelled(name), arguments, waiter)
    try:
        return worker.wait_apart(waiter, patience)
    except TimeoutError:
        worker.abandon(number)
        raise


async def acall(name: str | Atom, *arguments: Any) -> Any:
    """As `call`, for coroutines: others run meanwhile."""
    worker = _owner()
    waiter: asyncio.Future[Any] = worker.loop.create_future()
    number = worker.begin(_spelled(name), arguments, waiter)
    try:
        return await waiter
    except (asyncio.CancelledError, GeneratorExit):
        worker.abandon(number)
        raise


def send(pid: Pid, message: Any, *, checked: bool = False) -> None:
    """Sends a process a message.

    As in Erlang nobody is told when there is no such process; `checked` asks, waits for the answer, and raises
    `ProcessLookupError`. Raises `TypeError` for what is no process and for a message of a kind that Erlang has no terms for,
    `ValueError` for one of more than 16 MiB, and `BlockingIOError` while too much is unread. What only Erlang knows to have
    no term, an atom that nobody knows there say, is lost, with a warning in Erlang's log; `checked` raises `ErlangError`.
    """
    worker = _owner()
    if not isinstance(pid, Pid):
        raise TypeError(f"a message goes to a Pid, not to {type(pid).__name__}")
    if not checked:
        worker.desk.say(2, 0, (pid, message))
    elif not call("thalweg:send", pid, message):
        raise ProcessLookupError("there is no such process")


class Channel:
    """A channel of Erlang's, by the number that it has there. The other end is Erlang, or another worker."""

    def __init__(self, number: int) -> None:
        """A channel that Erlang opened."""
        self.number = number

    def send(self, value: Any) -> None:
        """Writes a value; raises `BlockingIOError` while the channel is full, and `BrokenPipeError` once it is closed."""
        self._sent(call("thalweg:channel", "write", self.number, value))

    async def asend(self, value: Any) -> None:
        """As `send`, for coroutines."""
        self._sent(await acall("thalweg:channel", "write", self.number, value))

    def receive(self, timeout: float | None = None) -> Any:
        """Waits for the next value; raises `TimeoutError`, and `EOFError` once the channel is closed and read.

        Of a channel of bytes that is all that are there, as `bytes`.
        """
        return self._received(call("thalweg:channel", "read", self.number, _seconds(timeout)))

    async def areceive(self, timeout: float | None = None) -> Any:
        """As `receive`, for coroutines."""
        return self._received(await acall("thalweg:channel", "read", self.number, _seconds(timeout)))

    def close(self) -> None:
        """Writes no more; what is there may still be read."""
        call("thalweg:channel", "close", self.number)

    def _sent(self, outcome: Any) -> None:
        if outcome == Atom("busy"):
            raise BlockingIOError(f"channel {self.number} is full")
        if outcome != Atom("ok"):
            raise BrokenPipeError(f"channel {self.number} is closed")

    def _received(self, outcome: Any) -> Any:
        word, value = outcome
        if word == Atom("ok"):
            return value
        if value == Atom("timeout"):
            raise TimeoutError(f"nothing came through channel {self.number}")
        raise EOFError(f"channel {self.number} is closed")


class Shared:
    """Values that Erlang and all workers share, by name."""

    def get(self, name: Any, otherwise: Any = None) -> Any:
        """A value, or what else to say."""
        return call("thalweg:shared", "get", name, otherwise)

    def put(self, name: Any, value: Any) -> None:
        """Sets a value."""
        call("thalweg:shared", "put", name, value)

    def delete(self, name: Any) -> None:
        """Takes a value away."""
        call("thalweg:shared", "delete", name)

    def add(self, name: Any, amount: int = 1) -> int:
        """Adds to a number, 0 to begin with; what it is now. Nobody comes in between."""
        total: int = call("thalweg:shared", "add", name, amount)
        return total

    def names(self) -> list[Any]:
        """What there is."""
        names: list[Any] = call("thalweg:shared", "names")
        return names


shared = Shared()
