"""Every event of a loop by number: for callers that are no coroutines.

The table of kinds, with what comes with each and who says so, is in `docs/loop.md`.
"""

import enum
import os
import subprocess
import sys
import termios
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from fcntl import ioctl
from functools import partial
from typing import IO, Any, TypedDict, Unpack

from .. import _native
from ._processes import Process

_READ_BYTES_MAX = 64 * 1024
# What a program writes comes by number, as bytes, as soon as it is there.
_OURS = frozenset({"args", "bufsize", "stderr", "stdout"})
_TEXT = frozenset({"text", "universal_newlines", "encoding", "errors"})

_Path = str | bytes | os.PathLike[str]
EventCallback = Callable[[int, Any], object]
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


class _ProgramOptions(TypedDict, total=False):
    """What of `subprocess.Popen` a program is started with."""

    stdin: int | IO[Any]
    executable: _Path | None
    shell: bool
    cwd: _Path | None
    env: Mapping[str, str] | Mapping[bytes, bytes] | None
    preexec_fn: Callable[[], object] | None
    close_fds: bool
    pass_fds: Collection[int]
    restore_signals: bool
    start_new_session: bool
    process_group: int | None
    user: str | int | None
    group: str | int | None
    extra_groups: Iterable[str | int] | None
    umask: int
    pipesize: int


class Mailbox(_native.Mailbox):
    """A loop's events by number. Got by `EventLoop.mailbox`."""

    def process(self, callback: EventCallback, program: _Path, /, *args: _Path, **words: Unpack[_ProgramOptions]) -> int:
        """Starts a program and tells `callback` what it writes and how it ended. Its standard input is empty, unless `stdin`
        names a file.

        Takes the words of `subprocess.Popen`, but for those that the mailbox sets (`stdout`, `stderr`, `bufsize`), ask for
        text, or ask for a pipe to write to (`stdin=PIPE`): these are refused. In the loop's thread only. A number that is
        let go of leaves the program running and collects its end.
        """
        _refuse(words)
        words.setdefault("stdin", subprocess.DEVNULL)
        self._ensure_may_watch()
        number = self.register(callback)
        try:
            self._start(number, (program, *args), words)
        except BaseException:
            self.unregister(number)
            raise
        return number

    def _start(self, number: int, args: Any, words: _ProgramOptions) -> None:
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

    def call(self, client: Any, request: bytes, callback: EventCallback, *, deadline: float | None = None) -> int:
        """Calls a service through a `thalweg.service.Client` of this loop and tells `callback` once: of the frame that
        answers, or why there is none. In the loop's thread only. A number that is let go of leaves the call to end unheard.
        """
        if getattr(client, "_loop", None) is not self.loop:
            raise ValueError(f"a call is made through a thalweg.service.Client of this loop: {client!r} is none")
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
        status = process.ended()
        process.close_end()
        with ExitStack() as then:
            # The last comes first.
            then.callback(self.unregister, number)
            then.callback(self._tell, number, Kind.PROCESS_EXIT, status)
            for pipe, kind in reversed(pipes.items()):
                then.callback(self._finish, pipe)
                then.callback(self._read_rest, number, pipe, kind)

    def _read_rest(self, number: int, pipe: Any, kind: Kind) -> None:
        """Reads what waits in a pipe now, and no more, even if it is written to meanwhile."""
        left = 0 if pipe.closed else _waiting_bytes(pipe)
        while left > 0 and (count := self._read(number, pipe, kind, left)):
            left -= count


def _refuse(words: Mapping[str, object]) -> None:
    """Refuses words that could not be kept, before anything is started."""
    refused = {word for word, given in words.items() if word in _OURS or (word in _TEXT and given)}
    if refused:
        named = ", ".join(sorted(refused))
        raise TypeError(f"process() tells what a program writes by number, as bytes: leave out {named}")
    if words.get("stdin") == subprocess.PIPE:
        raise ValueError(
            "process() gives the program's input to nobody: let stdin be a file or the end of a pipe of your own, "
            "or use asyncio.create_subprocess_exec"
        )


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
