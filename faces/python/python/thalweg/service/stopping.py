"""What the signals that ask a process to end stop: every server that runs, in an event loop or in a program that only serves.

Owns those signals while there is such a server. What the process or its loop did about them before is put back behind the
last one, unless it was changed meanwhile. Signals are heard in the main thread alone; elsewhere nothing is touched.
"""

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""That which may interrupt this very code comes first, and goes last."""

_hearing: dict[asyncio.AbstractEventLoop | None, "_Process | _Loop"] = {}
"""The handlers of each loop; under None, those of servers without a loop."""


@contextmanager
def stopped_by_signals(stop: Callable[[], None], loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
    """Has `stop` called by a signal: in that loop, which runs in this thread, or where the program is interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    hearing = _hearing.get(loop)
    if hearing is None:
        hearing = _hearing[loop] = _Process(stop) if loop is None else _Loop(loop, stop)
    else:
        hearing.stops.append(stop)
    try:
        yield
    finally:
        hearing.stops.remove(stop)
        if not hearing.stops:
            del _hearing[loop]
            hearing.put_back()


class _Process:
    """The process's own handlers."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.stops = [stop]
        self._heard = self._hear
        self._before = {number: signal.signal(number, self._heard) for number in _SIGNALS}

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        for stop in list(self.stops):
            stop()

    def put_back(self) -> None:
        for number, before in reversed(self._before.items()):
            if signal.getsignal(number) == self._heard and before is not None:
                signal.signal(number, before)


class _Loop:
    """A loop's handlers, and behind them the process's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        self.stops = [stop]
        self._loop = loop
        # asyncio has no public function for the handler of a signal; on a loop that hides it (uvloop) it is not put back.
        self._handlers: dict[int, Any] = getattr(loop, "_signal_handlers", {})
        self._before = {number: (signal.getsignal(number), self._handlers.get(number)) for number in _SIGNALS}
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._hear)
        self._ours = {number: self._handlers.get(number) for number in _SIGNALS}

    def _hear(self) -> None:
        for stop in list(self.stops):
            stop()

    def put_back(self) -> None:
        for number, (process, handle) in reversed(self._before.items()):
            if self._handlers.get(number) is not self._ours[number]:
                continue
            if handle is not None:
                self._handlers[number] = handle
                continue
            self._loop.remove_signal_handler(number)
            if process is not None and getattr(process, "__self__", None) is not self._loop:
                signal.signal(number, _to_put_back(process))


def _to_put_back(handler: Any) -> Any:
    """That handler, or what stood behind it where it is a runner's, for a task that has ended meanwhile.

    `asyncio.Runner` hears Ctrl-C for the task that it runs, in the place of the default handler, and does not take back what it
    does not find there: put back behind that task, it would keep every later runner from hearing for its own.
    """
    task = handler.keywords.get("main_task") if isinstance(handler, functools.partial) else None
    ended = isinstance(task, asyncio.Future) and task.done()
    return signal.default_int_handler if ended else handler
