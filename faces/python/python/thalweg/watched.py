"""Clients whose descriptor an event loop watches: what they begin leaves once a turn, and what comes is told one by one.

Knows neither what is asked nor what waits for it. What was brought waits here until it is told, so that a hearer that raises
(`KeyboardInterrupt`, `SystemExit`) takes nothing from the others. The loop knows a client by a weak reference alone, so that
one that was forgotten is collected: it says that it was not closed, and closes.
"""

import asyncio
import contextlib
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

from .faults import Closed
from .scope import AsyncScope

Event = tuple[int, Any, Any]
"""A call's number, what came of it, and with what."""


class Watched(AsyncScope):
    """A client of one event loop, in whose thread it is used."""

    _what = "client"
    _descriptor = -1
    """What the loop watches; -1 for nothing any more."""
    _is_leaving = False
    """Whether it was forgotten and the loop is to close it. A loop that is closed instead lets go of it all the same, and whoever
    forgot it has said so already."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._came: deque[Event] = deque()
        self._stirred = False

    @abstractmethod
    def _bring(self) -> Iterable[Event]:
        """Sends what was begun and takes in what came. What it raises fails every call."""

    @abstractmethod
    def _tell(self, call: int, what: Any, value: Any) -> None:
        """Tells the waiter of the call, if there is one."""

    @abstractmethod
    def _failures(self, error: Exception) -> Iterable[Event]:
        """What every call that has not ended is told of an error."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Closes what is watched."""

    def close(self) -> None:
        """Ends every connection; every call fails with `Closed`, and so does every further one."""
        if self._descriptor < 0:
            return
        self._loop.remove_reader(self._descriptor)
        self._descriptor = -1
        self._disconnect()
        self._fail(Closed("this client was closed"))
        self._tell_all()

    def _is_open(self) -> bool:
        return self._descriptor >= 0 and not self._is_leaving

    def _abandon(self) -> None:
        # Only the loop's thread may take it off the loop, which knows it until then.
        self._is_leaving = True
        try:
            self._loop.call_soon_threadsafe(self.close)
        except RuntimeError:
            # The loop is closed and watches nothing.
            self._descriptor = -1
            self._disconnect()

    def _soon(self, give_up: Callable[..., object], *of: Any) -> None:
        """Has the loop give up what nobody waits for any more: any thread may close or collect a coroutine, and only the loop's may
        touch the client. Of a loop that is closed nothing waits.
        """
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(give_up, *of)

    def _watch(self, descriptor: int) -> None:
        """Has the loop watch what is there."""
        self._descriptor = descriptor
        known = weakref.ref(self)

        def turn() -> None:
            client = known()
            if client is not None:
                client._turn()

        self._loop.add_reader(descriptor, turn)

    def _stir(self) -> None:
        """Has what was begun sent before the loop sleeps, once for all of it."""
        if not self._stirred and self._descriptor >= 0:
            self._loop.call_soon(self._turn)
            self._stirred = True

    def _turn(self) -> None:
        self._stirred = False
        if self._descriptor < 0:
            return
        try:
            self._came.extend(self._bring())
        except Exception as error:
            self._fail(error)
        self._tell_all()

    def _fail(self, error: Exception) -> None:
        """Every call that has not ended fails, each with an error of its own: one that several tasks raise has the traceback, and
        the notes, of all of them.
        """
        self._came.extend((call, what, copy(value)) for call, what, value in self._failures(error))

    def _tell_all(self) -> None:
        came = self._came
        try:
            while came:
                self._tell(*came.popleft())
        finally:
            if came:
                self._loop.call_soon(self._tell_all)
