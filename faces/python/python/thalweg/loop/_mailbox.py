"""Every event of a loop by number: for callers that are no coroutines.

The table of kinds, with what comes with each and who says so, is in `docs/loop.md`.
"""

import enum
import os
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import ExitStack
from fcntl import ioctl
from functools import partial
from typing import Any

from .. import _native
from ._processes import Process

_READ_BYTES_MAX = 64 * 1024

Told = Callable[[int, Any], object]
"""Called as `callback(kind, payload)`."""


class Kind(enum.IntEnum):
    """What an event is. The numbers are for good."""

    READABLE = 1
    WRITABLE = 2
    TIMER = 3
    CALL_RESULT = 10
    CALL_ERROR = 11
    ASYNC_RESULT = 12
    ASYNC_ERROR = 13
    PROCESS_EXIT = 20
    PROCESS_OUTPUT = 21
    PROCESS_ERRORS = 22
    SOCKET_DATA = 30
    SOCKET_CLOSED = 31
    SOCKET_ERROR = 32


class Mailbox(_native.Mailbox):
    """A loop's events by number. Got by `EventLoop.mailbox`."""

    def process(self, callback: Told, *args: str | bytes | os.PathLike[str], **words: Any) -> int:
        """Starts a program without standard input and tells `callback` what it writes and how it ended.

        Takes the words of `subprocess.Popen`. In the loop's thread only. A number that is let go of leaves the program
        running and collects its end.
        """
        words.setdefault("stdin", subprocess.DEVNULL)
        self._ensure_may_watch()
        number = self.register(callback)
        try:
            self._start(number, args, words)
        except BaseException:
            self.unregister(number)
            raise
        return number

    def _start(self, number: int, args: Any, words: dict[str, Any]) -> None:
        """Starts a program and listens to it; one that cannot be listened to is ended."""
        process = Process(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, **words)
        pipes = {process.stdout: Kind.PROCESS_OUTPUT, process.stderr: Kind.PROCESS_ERRORS}
        read = partial(self._read, number)
        try:
            for pipe, kind in pipes.items():
                os.set_blocking(pipe.fileno(), False)
                self.loop.add_reader(pipe.fileno(), read, pipe, kind)
            self.loop.add_reader(process.end, self._ended, number, process, pipes)
        except BaseException:
            process.kill()
            process.wait()
            process.close_end()
            for pipe in pipes:
                self._finish(pipe)
            raise

    def call(self, client: Any, request: bytes, callback: Told, *, deadline: float | None = None) -> int:
        """Calls a service through a `thalweg.service.Client` of this loop and tells `callback` once: of the frame that
        answers, or why there is none. In the loop's thread only. A number that is let go of leaves the call to end unheard.
        """
        number = self.register(callback)
        try:
            client._begin(request, _Answer(self, number), deadline)
        except BaseException:
            self.unregister(number)
            raise
        return number

    @property
    def loop(self) -> Any:
        """The loop whose mailbox it is."""
        return self._owner

    def _read(self, number: int, pipe: Any, kind: Kind, count_max: int = _READ_BYTES_MAX) -> int:
        """Reads once; how many bytes."""
        try:
            data = os.read(pipe.fileno(), min(count_max, _READ_BYTES_MAX))
        except BlockingIOError:
            return 0
        if data:
            self._tell(number, kind, data)
        else:
            self._finish(pipe)
        return len(data)

    def _finish(self, pipe: Any) -> None:
        if not pipe.closed:
            self.loop.remove_reader(pipe.fileno())
            pipe.close()

    def _ended(self, number: int, process: Process, pipes: dict[Any, Kind]) -> None:
        """What the program wrote before its end is told before its end. What it left running may write on, unheard.

        A callback may raise what ends this process (`SystemExit`): the events behind it are delivered all the same.
        """
        self.loop.remove_reader(process.end)
        with ExitStack() as then:
            # The last comes first.
            then.callback(self.unregister, number)
            then.callback(self._tell, number, Kind.PROCESS_EXIT, process.ended())
            for pipe, kind in reversed(pipes.items()):
                then.callback(self._finish, pipe)
                then.callback(self._read_rest, number, pipe, kind)

    def _read_rest(self, number: int, pipe: Any, kind: Kind) -> None:
        """Reads what waits in a pipe now, and no more, even if it is written to meanwhile."""
        left = 0 if pipe.closed else _waiting_bytes(pipe)
        while left > 0 and (count := self._read(number, pipe, kind, left)):
            left -= count


def _waiting_bytes(pipe: Any) -> int:
    """How much waits to be read of a pipe now."""
    return int.from_bytes(ioctl(pipe.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


class _Answer:
    """Passes for the future of a call and posts how it ended."""

    __slots__ = ("_mailbox", "_number")

    def __init__(self, mailbox: Mailbox, number: int) -> None:
        self._mailbox = mailbox
        self._number = number

    def done(self) -> bool:
        return False

    def set_result(self, frame: bytes) -> None:
        self._end(Kind.CALL_RESULT, frame)

    def set_exception(self, error: Exception) -> None:
        self._end(Kind.CALL_ERROR, error)

    def _end(self, kind: Kind, payload: object) -> None:
        try:
            self._mailbox._tell(self._number, kind, payload)
        finally:
            self._mailbox.unregister(self._number)
