"""A server in Python that can be forked while it serves, under `thalweg fork-server`.

    import asyncio
    from thalweg.fork_server import serve

    counts = {}

    async def answer(reader, writer): ...

    serve(lambda listener: asyncio.start_server(answer, sock=listener))

Everything that Python holds in memory is copied: `counts` goes its own ways in a copy. What is no memory is not: a copy has none of
its parent's connections, files and event loops. It begins with a new loop; what the old one had under way goes on in the parent,
and ends here as in a loop that is closed. A process that forks must have one thread: nothing here, nor before, may have started another.

`Program` is the same for a program that has a loop of its own. What is said between the two is in `docs/forks.md`.
"""

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import struct
import sys
import threading
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

__all__ = ["End", "Fork", "Listen", "ListeningServer", "Order", "Program", "serve"]

_LINE_BYTES_MAX: Final = 4096


class ListeningServer(Protocol):
    """What listens: an `asyncio.Server`, or anything that ends as one does."""

    def close(self) -> None:
        """Listens no longer."""

    async def wait_closed(self) -> None:
        """Waits until what was begun is over."""


@dataclass(frozen=True)
class Listen:
    """Serve there, and no longer where it did. To be confirmed (`Program.done`) or refused (`Program.failed`)."""

    listener: socket.socket


@dataclass(frozen=True)
class Fork:
    """Go on twice (`Program.fork`)."""

    line: socket.socket


@dataclass(frozen=True)
class End:
    """Answer what was begun, and end. To be confirmed; comes as well when the supervisor is gone."""


Order = Listen | Fork | End


class Program:
    """A program that a supervisor looks after: standard input is where it is told what to do."""

    def __init__(self) -> None:
        try:
            self._line = socket.socket(fileno=0)
        except OSError as error:
            raise RuntimeError(
                "standard input is no supervisor's: start this with thalweg fork-server"
            ) from error
        self.is_copy = False
        """Whether this is a copy: what called this is not its to go on with."""
        self._begin()

    def _begin(self) -> None:
        self._input = bytearray()
        self._beside: socket.socket | None = None
        self.is_emancipated = False
        """Whether it outlives its supervisor."""
        self.is_alone = False
        """Its supervisor is gone, and it goes on: nothing is to be heard any more."""

    def fileno(self) -> int:
        """Readable when there may be an order."""
        return self._line.fileno()

    def order(self) -> Order | None:
        """What it is to do, if anything; never waits. Raises `ValueError` for what a supervisor never says."""
        while not self.is_alone:
            words = self._hear()
            if words is None:
                return None
            beside, self._beside = self._beside, None
            match words, beside:
                case "listen", socket.socket() as listener:
                    listener.setblocking(False)
                    return Listen(listener)
                case "fork", socket.socket() as line:
                    return Fork(line)
                case "listen" | "fork", None:
                    # The kernel drops a descriptor for which there is no room here, and what is said beside it comes alone.
                    self.failed("out of descriptors")
                case "shutdown", None:
                    return End()
                case "emancipate", None:
                    self.is_emancipated = True
                    self.done()
                case "", None if self.is_emancipated:
                    self.is_alone = True
                case "", None:
                    return End()
                case _:
                    raise ValueError(f"an order {words!r}")
        return None

    def done(self) -> None:
        """Says that an order was carried out, to a supervisor that may be gone."""
        self._say("ok")

    def failed(self, why: object) -> None:
        """Says that an order cannot be carried out; everything is as it was."""
        self._say(f"error {why}")

    def fork(self, order: Fork) -> bool:
        """Goes on twice: `True` in the copy, which has no descriptor but input, output and errors, and is told first where to
        listen, and leads a session of its own; `False` here, where the order is confirmed or refused.

        In the copy a descriptor that something of the parent's stands for leads nowhere: it can be closed, and nothing else."""
        try:
            threads = len(os.listdir("/proc/self/task"))
            if threads != 1:
                raise OSError(f"{threads} threads run in this process, and only one would in its copy")
            # Both before there is a copy, which without them could not be made whole: they take room for descriptors.
            descriptors, nowhere = _descriptors(), os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            order.line.close()
            self.failed(error)
            return False
        # What is not written yet would be written twice.
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            is_copy = _branch()
        except OSError as error:
            os.close(nowhere)
            order.line.close()
            self.failed(error)
            return False
        if not is_copy:
            os.close(nowhere)
            order.line.close()
            self.done()
            return False
        self.is_copy = True
        # So that no terminal stops it. Never fails for what was just forked.
        os.setsid()
        os.dup2(order.line.fileno(), 0)
        _leave_descriptors(descriptors, nowhere)
        order.line.close()
        self._begin()
        self._say(f"ok {os.getpid()}")
        return True

    def _say(self, words: str) -> None:
        line = words.replace("\n", " ").encode(errors="replace")[:_LINE_BYTES_MAX] + b"\n"
        try:
            self._line.send(line, socket.MSG_NOSIGNAL)
        except (BrokenPipeError, ConnectionResetError):
            # Its end is heard of with the next order.
            pass

    def _hear(self) -> str | None:
        """A line; an empty one at the end; `None` when there is none yet."""
        while b"\n" not in self._input:
            if len(self._input) >= _LINE_BYTES_MAX:
                raise ValueError("a line without an end")
            try:
                # Not by `recv_fds`, which leaves the flags out in some versions.
                data, beside, _, _ = self._line.recvmsg(
                    _LINE_BYTES_MAX, socket.CMSG_SPACE(4), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return None
            except ConnectionResetError:
                return ""
            for level, kind, descriptors in beside:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    (descriptor,) = struct.unpack("i", descriptors)
                    self._beside = socket.socket(fileno=descriptor)
            if not data:
                return ""
            self._input += data
        line, _, rest = self._input.partition(b"\n")
        self._input = rest
        return line.decode(errors="replace")


def _branch() -> bool:
    """Forks by a process in between, so that the copy is an orphan, whose end is the supervisor's to hear of. Whether this is the
    copy."""
    with _heard():
        between = os.fork()
        if between == 0:
            try:
                copy = os.fork()
            except OSError as error:
                os._exit(error.errno or errno.EAGAIN)
            if copy == 0:
                return True
            os._exit(0)
        _, status = os.waitpid(between, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise OSError(code if code > 0 else errno.EAGAIN, "the copy was not made")
    return False


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """Has the ends of children be waited for meanwhile where this process ignores them, which leaves none to wait for; in a copy, too."""
    before = signal.getsignal(signal.SIGCHLD)
    if before is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def _descriptors() -> list[int]:
    """Those that are open here, and one that was for a moment."""
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _leave_descriptors(descriptors: list[int], nowhere: int) -> None:
    """Lets go of everything that these descriptors stand for, but for input, output and errors: they stand for `nowhere` then. Their
    numbers stay taken until their owners close them: an owner would otherwise close a number that was used again."""
    for descriptor in descriptors:
        if descriptor > 2 and descriptor != nowhere and _is_open(descriptor):
            os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def serve(
    start: Callable[[socket.socket], Awaitable[ListeningServer]],
    *,
    forked: Callable[[], None] | None = None,
    grace: float = 5.0,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> None:
    """Serves under a supervisor until it is to end.

    `start` is called with each listening socket, and answers with what listens there. `forked` is called in each copy before it
    listens: it forgets what only the parent has, connections say. When the server is to end, what `wait_closed` waits for has `grace`
    seconds, where it moved from as well: with an `asyncio.Server` every connection, whether something is under way there or not. What
    is left then is cancelled. Raises `RuntimeError` where there is no supervisor.

    `SIGTERM` and `SIGINT` have it end as well, unless something else handles them, or this is not the main thread.

    It returns in the process that was started. A copy ends with what it serves, with 0, or 1 after an exception: neither what called
    this nor what was registered to be done at the end (`finally`, `atexit`, `weakref.finalize`) is its to go on with, for it is about
    what its parent has."""
    program = Program()
    try:
        while True:
            left = [_live(program, start, grace, loop_factory)]
            if left[0] is None:
                break
            _forget(left, forked)
    except BaseException:
        if not program.is_copy:
            raise
        try:
            traceback.print_exc()
        finally:
            _leave_process(1)
    if program.is_copy:
        _leave_process(0)


def _leave_process(code: int) -> NoReturn:
    """Ends this process, and does nothing but write what is not written yet."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _live(
    program: Program,
    start: Callable[[socket.socket], Awaitable[ListeningServer]],
    grace: float,
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> asyncio.AbstractEventLoop | None:
    """One process's life, until it is over; or until it is copied, in the copy: then the loop that is left behind."""
    loop = loop_factory()
    asyncio.set_event_loop(loop)
    heard = asyncio.Event()
    signals: list[int] = []
    _hear_signals(loop, heard, signals)
    serving: ListeningServer | None = None
    moved: set[asyncio.Task[None]] = set()
    while True:
        match loop.run_until_complete(_order(program, heard, signals)):
            case Listen(listener):
                begun = loop.run_until_complete(_listen(program, start, listener))
                if begun is not None:
                    loop.run_until_complete(_leave(serving, moved))
                    serving = begun
                    program.done()
            case Fork() as order:
                if program.fork(order):
                    return loop
            case End() | None as ending:
                if ending is not None:
                    program.done()
                loop.run_until_complete(_end(serving, moved, grace))
                asyncio.set_event_loop(None)
                loop.close()
                return None


def _forget(left: list[asyncio.AbstractEventLoop | None], forked: Callable[[], None] | None) -> None:
    """Lets go of a loop and of what it had under way, as a loop that is closed does, but without a word: none of that is lost, for it is
    the parent's."""
    asyncio.set_event_loop(None)
    loop, hook = left.pop(), sys.unraisablehook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        # Of a connection that was accepted and not looked after yet.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        sys.unraisablehook = lambda _: None
        try:
            if loop is not None:
                loop.set_exception_handler(lambda *_: None)
                loop.close()
            del loop
            if forked is not None:
                forked()
            gc.collect()
        finally:
            sys.unraisablehook = hook


def _hear_signals(loop: asyncio.AbstractEventLoop, heard: asyncio.Event, signals: list[int]) -> None:
    """Collects the signals that say it is to end, but for those that have a handler already."""
    if threading.current_thread() is not threading.main_thread():
        return

    def hear(number: int) -> None:
        signals.append(number)
        heard.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.default_int_handler):
            continue
        try:
            loop.add_signal_handler(number, hear, number)
        except NotImplementedError:
            # A loop that has none: the signal does what it did.
            return
        # `thalweg fork-server` starts programs that hear of none unless they want to.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))


async def _order(program: Program, heard: asyncio.Event, signals: list[int]) -> Order | None:
    """Waits for the next command; for ever once its parent is gone. `None` when a signal says that it is to end."""
    loop = asyncio.get_running_loop()
    loop.add_reader(program.fileno(), heard.set)
    try:
        while True:
            if signals:
                return None
            order = program.order()
            if order is not None:
                return order
            if program.is_alone:
                loop.remove_reader(program.fileno())
            heard.clear()
            await heard.wait()
    finally:
        loop.remove_reader(program.fileno())


async def _listen(
    program: Program, start: Callable[[socket.socket], Awaitable[ListeningServer]], listener: socket.socket
) -> ListeningServer | None:
    try:
        return await start(listener)
    except Exception as error:
        program.failed(f"{type(error).__name__}: {error}")
        listener.close()
        return None


async def _leave(serving: ListeningServer | None, moved: set[asyncio.Task[None]]) -> None:
    """Has it listen no longer. What was begun there goes on, and is among what has moved until it is over."""
    if serving is None:
        return
    # Asked before: of one that is closed already Python 3.11 says at once that it is over, whatever is under way.
    over = asyncio.create_task(_over(serving))
    moved.add(over)
    over.add_done_callback(moved.discard)
    await asyncio.sleep(0)
    serving.close()


async def _over(serving: ListeningServer) -> None:
    await serving.wait_closed()


async def _end(serving: ListeningServer | None, moved: set[asyncio.Task[None]], grace: float) -> None:
    """Listens no longer, gives what was begun its time, and then ends it."""
    await _leave(serving, moved)
    if moved:
        await asyncio.wait(moved, timeout=grace)
    # Python 3.11 calls it an error of a connection that its task was cancelled.
    asyncio.get_running_loop().set_exception_handler(_except_cancelled)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _except_cancelled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)
