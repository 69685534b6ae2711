"""A process of Erlang's that runs Python: `python -m thalweg.worker ENDPOINT`.

One thread, one event loop: plain functions run in it one after the other, what they return to be awaited runs as a task. It
ends with the process that started it. Everything that is called for every function lies in machine code (`_native.Desk`);
here is what happens less often.
"""

import asyncio
import builtins
import contextlib
import fcntl
import functools
import inspect
import itertools
import logging
import math
import os
import signal
import socket
import stat
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import Any, Final, TypeVar

from . import erlang
from ._native import Desk, Job
from .erlang import Atom, ErlangError, Interrupted
from .errors import Overloaded
from .loop import Kind, new_event_loop

_SAY_CALLBACK: Final = 1
_SAY_LOG: Final = 3
_SAY_UNWANTED: Final = 4
_WAIT: Final = 1
_GONE: Final = 2
_END: Final = 3
_LEVEL_MAX: Final = logging.CRITICAL
"""What is beyond that says no more to Erlang."""
_SLICE: Final = 500e-6
"""So many seconds a generator goes on before what it brought leaves, and others have their turn."""
_LOOK_FIRST: Final = 1e-3
"""A thread leaves an answer so many seconds to the event loop before it looks for it itself,"""
_LOOK_LAST: Final = 20e-3
"""and so many in the end."""

_T = TypeVar("_T")

_EXCEPTION: Final = Atom("exception")
_ERLANG: Final = Atom("erlang")


class Worker:
    """Runs what Erlang asks for."""

    def __init__(self, endpoint: str) -> None:
        """Listens."""
        self.loop = new_event_loop()
        self.thread = threading.get_ident()
        self.desk = Desk(endpoint, self)
        self._endpoint = os.path.abspath(endpoint)
        self._jobs: dict[int, tuple[asyncio.Task[None], Job]] = {}
        self._credit: dict[int, asyncio.Future[None]] = {}
        self._numbers = itertools.count(1)
        self._callbacks: dict[int, Future[Any] | asyncio.Future[Any]] = {}
        self._scopes: dict[bytes, dict[str, Any]] = {}
        self._owes_turn = False
        self._looks_for_room = False
        self._input = 0

    def run(self) -> None:
        """Runs until Erlang is gone."""
        asyncio.set_event_loop(self.loop)
        self._hear_interrupts()
        logging.getLogger().addHandler(_Forward(self))
        os.register_at_fork(after_in_child=self._let_go)
        self.loop.add_reader(self.desk.fileno(), self._turn)
        self.loop.call_soon(self._turn)
        while True:
            try:
                # Code that stops the loop ends neither the jobs that wait there nor this worker.
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # What a call raises ends that call, which hears of it in the next turn.
                if not any(task.done() for task, _ in self._jobs.values()):
                    raise

    def _turn(self) -> None:
        if self.desk.turn(not self._jobs):
            self._owe_turn()

    def _owe_turn(self) -> None:
        # In this order: an interrupt may come in between, and a turn too many does no harm.
        if not self._owes_turn:
            self.loop.call_soon(self._another)
            self._owes_turn = True

    def _another(self) -> None:
        self._owes_turn = False
        self._turn()

    def _look_for_room(self) -> None:
        self._looks_for_room = False
        self._turn()

    # What the desk calls.

    def orphaned(self) -> None:
        """Erlang is gone."""
        with contextlib.suppress(OSError):
            os.unlink(self._endpoint)
            # Erlang makes a directory for each worker; any other is not empty, or is left where it is.
            if os.path.basename(os.path.dirname(self._endpoint)).startswith("thalweg-"):
                os.rmdir(os.path.dirname(self._endpoint))
        # Nothing is left that could need destructors or threads to run.
        os._exit(0)

    def attended(self) -> None:
        """Erlang hears what this worker says by itself."""
        self.desk.say(0, os.getpid(), sys.version)

    def _let_go(self) -> None:
        """In a child after a fork: the connection is to end with this worker, whatever becomes of its children. The numbers stay taken,
        because what is left here of the desk still has them.
        """
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(number).st_mode) and _listens_at(number, self._endpoint):
                    os.dup2(nothing, number, inheritable=False)
        os.close(nothing)

    def left(self) -> None:
        """What came while something was said, in whatever thread, is left to a turn, which the descriptor does not ask for."""
        self.loop.call_soon_threadsafe(self._turn)

    def describe(self, raised: BaseException) -> Any:
        """An exception in words: its kind, what it says, and where it was raised. Erlang's own reasons go back by that name, so that
        none is taken for what became of the call; what is an exception there stays one.
        """
        kind = type(raised)
        if issubclass(kind, ErlangError):
            reason = _said(lambda: raised.reason, None)  # type: ignore[attr-defined]
            is_exception = isinstance(reason, tuple) and len(reason) == 4 and reason[0] == _EXCEPTION
            return reason if is_exception else (_ERLANG, reason)
        name = _said(lambda: _name(kind), type.__repr__(kind))
        words = _said(lambda: _text(str(raised)), "")
        lines = _said(lambda: [_text(line) for line in traceback.format_exception(raised)], [f"{name}: {words}\n"])
        return (_EXCEPTION, name, words, lines)

    async def awaiting(self, awaitable: Any) -> Any:
        """A coroutine of anything that can be awaited."""
        return await awaitable

    def suspended(self, job: Job, task: asyncio.Task[Any]) -> None:
        """A task goes on after its first step, and the job ends with its outcome."""
        # In this order: what is raised in between leaves nothing behind that nobody takes out again.
        task.add_done_callback(functools.partial(self._is_back, job))
        self._jobs[job.number] = (task, job)

    def generate(
        self, job: Job, function: Callable[..., Any], positional: tuple[Any, ...], named: dict[str, Any], batch: int
    ) -> Coroutine[Any, Any, None]:
        """What has a generator bring one value after the other."""
        return self._generate(job, function(*positional, **named), batch)

    def ended(self, job: Job, task: asyncio.Task[Any]) -> None:
        """A job ends with its task's outcome."""
        try:
            try:
                job.end(task.result())
            except BaseException as raised:
                job.fail(self.describe(raised))
        except Exception as wrong:  # a reason of Erlang's may hold what has no value there
            job.fail(self.describe(wrong))

    def changed(self, numbers: list[int]) -> None:
        """These jobs are cancelled, or there is credit again."""
        for number in numbers:
            waiter = self._credit.pop(number, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
            found = self._jobs.get(number)
            if found is not None:
                self._give_up(*found)

    def _give_up(self, task: asyncio.Task[None], job: Job) -> None:
        """Cancels a task, once, if its job is not awaited any more. It may go on all the same."""
        if job.give_up():
            task.cancel()

    async def see_out(self, within: float) -> int:
        """Waits, so many seconds at most, for the calls that are in flight and were given up. How many of them go on all the same."""
        tasks = {task for task, _ in self._jobs.values() if task is not asyncio.current_task()}
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=within)
        return len(late)

    def evaluate(self, source: str, variables: dict[str, Any], scope: bytes) -> Any:
        """The value of an expression."""
        names = self._scope(scope)
        # One scope, or what is nested in the expression would not see the variables.
        return eval(compile(source, "<erlang>", "eval"), {**names, **variables} if variables else names)

    def execute(self, source: str, variables: dict[str, Any], scope: bytes) -> None:
        """Runs statements."""
        names = self._scope(scope)
        names.update(variables)
        exec(compile(source, "<erlang>", "exec"), names)

    def forget(self, scope: bytes) -> None:
        """Lets a namespace go."""
        self._scopes.pop(scope, None)

    def answered(self, number: int, ok: bool, value: Any) -> None:
        """A callback that no thread blocks on has an answer."""
        waiter = self._callbacks.pop(number, None)
        if waiter is None:
            return
        if isinstance(waiter, Future) or threading.get_ident() == self.thread:
            self._answer(waiter, ok, value)
        else:
            self.loop.call_soon_threadsafe(self._answer, waiter, ok, value)

    def _answer(self, waiter: Future[Any] | asyncio.Future[Any], ok: bool, value: Any) -> None:
        if waiter.done():
            return
        if ok:
            waiter.set_result(value)
        else:
            waiter.set_exception(ErlangError(value))

    def post(self, kind: int, number: int, value: Any) -> bool:
        """An event for the loop's mailbox; one without a registration is dropped. False: there is no room now, and another
        turn is to ask again. A kind that there is not raises `ValueError`, and the event is lost.
        """
        mailbox = self.loop.mailbox
        known = Kind(kind)
        payload = OSError(value) if known is Kind.SOCKET_ERROR else value
        try:
            mailbox.post(number, known, payload)
        except Overloaded:
            # Calls that wait make room when they run. Where none wait, room was asked for.
            if mailbox.waiting:
                self._owe_turn()
            elif not self._looks_for_room:
                self.loop.call_later(_LOOK_FIRST, self._look_for_room)
                self._looks_for_room = True
            return False
        return True

    def lost(self, kind: int, number: int, raised: BaseException) -> None:
        """An event was not posted. Its sender does not wait for it."""
        words = traceback.format_exception_only(raised)[-1].strip()
        logging.getLogger("thalweg.worker").warning("an event (kind %d, number %d) is lost: %s", kind, number, words)

    # What `thalweg.erlang` calls.

    def call_and_wait(self, name: str, arguments: tuple[Any, ...], timeout: float | None) -> Any:
        """Calls back, and waits in this thread."""
        number = next(self._numbers)
        try:
            ok, value = self.desk.call_and_wait(number, (name, list(arguments)), timeout)
        except BaseException:
            self.abandon(number)
            raise
        finally:
            # Where this is a step of a coroutine, no turn is under way that takes in what came meanwhile.
            self._owe_turn()
        if ok:
            return value
        raise ErlangError(value)

    def wait_apart(self, waiter: Future[Any], timeout: float | None) -> Any:
        """Waits in another thread. The event loop takes answers in; where it stands still the thread does, since what the
        loop stands still for may be this very thread.
        """
        until = None if timeout is None else time.monotonic() + timeout
        pause = _LOOK_FIRST
        while True:
            try:
                return waiter.result(pause if until is None else max(0.0, min(pause, until - time.monotonic())))
            except TimeoutError:
                if until is not None and time.monotonic() >= until:
                    raise
            if self.desk.take_in():
                self.loop.call_soon_threadsafe(self._turn)
            pause = min(2 * pause, _LOOK_LAST)

    def begin(self, name: str, arguments: tuple[Any, ...], waiter: Future[Any] | asyncio.Future[Any]) -> int:
        """Calls back, and has a future hear of it. Returns the callback's number."""
        number = next(self._numbers)
        self._callbacks[number] = waiter
        try:
            self.desk.say(_SAY_CALLBACK, number, (name, list(arguments)))
        except BaseException:
            # It may be on its way: an interrupt is raised behind what was said.
            self.abandon(number)
            raise
        return number

    def abandon(self, number: int) -> None:
        """Nobody waits for a callback any more: one that waits for a value over there is to leave it to others."""
        self._callbacks.pop(number, None)
        # Where Erlang reads nothing at all, it hears of this worker's end.
        with contextlib.suppress(BlockingIOError, RuntimeError):
            self.desk.say(_SAY_UNWANTED, number, None)

    # Jobs.

    def _is_back(self, job: Job, task: asyncio.Task[Any]) -> None:
        self._jobs.pop(job.number, None)
        self.ended(job, task)
        self._owe_turn()

    async def _generate(self, job: Job, values: Any, batch: int) -> None:
        if isinstance(values, AsyncIterable):
            await self._bring_awaited(job, aiter(values), batch > 0)
        elif batch > 0:
            await self._bring_together(job, iter(values), batch)
        else:
            await self._bring(job, iter(values))

    async def _bring(self, job: Job, values: Iterator[Any]) -> None:
        # The first value leaves at once: the next one may take any time.
        began = -math.inf
        try:
            for value in values:
                if not await self._item(job, value):
                    break
                if time.perf_counter() - began >= _SLICE:
                    if not await self._others(job):
                        break
                    began = time.perf_counter()
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                close()

    async def _bring_together(self, job: Job, values: Iterator[Any], batch: int) -> None:
        try:
            while (flow := job.bring(values, batch)) != _END and await self._may_go_on(job, flow):
                if not await self._others(job):
                    break
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                close()

    async def _bring_awaited(self, job: Job, values: AsyncIterator[Any], in_lists: bool) -> None:
        try:
            async for value in values:
                if not await self._item(job, [value] if in_lists else value):
                    break
        finally:
            close = getattr(values, "aclose", None)
            if close is not None:
                await close()

    async def _item(self, job: Job, value: Any) -> bool:
        return await self._may_go_on(job, job.item(value))

    async def _may_go_on(self, job: Job, flow: int) -> bool:
        """Waits for credit; False says that no more is wanted."""
        if flow == _WAIT:
            waiter = self.loop.create_future()
            self._credit[job.number] = waiter
            job.watch()
            # A task must not take the turn itself: other tasks take their first steps in it.
            self._owe_turn()
            await waiter
        elif flow != _GONE:
            return True
        return not self._is_over(job)

    async def _others(self, job: Job) -> bool:
        """What was brought leaves, and others have their turn; False says that no more is wanted.

        An interrupt that comes between two steps of the job's finds nothing to interrupt, so the next one asks.
        """
        self._owe_turn()
        await asyncio.sleep(0)
        return not self._is_over(job)

    def _is_over(self, job: Job) -> bool:
        """Whether no more is wanted. A generator learns of that by being closed, and by no interrupt."""
        if not job.is_cancelled:
            return False
        job.give_up()
        return True

    def _scope(self, scope: bytes) -> dict[str, Any]:
        names = self._scopes.get(scope)
        if names is None:
            names = self._scopes[scope] = {"__name__": "__erlang__", "__builtins__": builtins}
        return names

    # Interrupts.

    def _hear_interrupts(self) -> None:
        """A byte on standard input asks to look whether the function that runs is still wanted; its end is ours.

        What functions and the programs that they start read instead is empty.
        """
        self._input = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        signal.signal(signal.SIGIO, self._interrupt)
        fcntl.fcntl(self._input, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(self._input, fcntl.F_GETFL)
        fcntl.fcntl(self._input, fcntl.F_SETFL, flags | os.O_NONBLOCK | os.O_ASYNC)
        # No signal tells of what came before.
        self._interrupt(0, None)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        try:
            while chunk := os.read(self._input, 256):
                pass
        except BlockingIOError:
            chunk = b"."
        if not chunk:
            self.orphaned()
        current = self._current()
        unwanted = self.desk.interrupts(current)
        # That took in what had come, so that nothing else says that it is there.
        self.loop.call_soon_threadsafe(self._turn)
        # A task between two steps may have the next one before that turn, and nothing to interrupt it. One that waits for a future
        # has it behind that turn, and the future is not cancelled here: what this interrupts may be about to resolve it.
        for task, job in list(self._jobs.values()):
            if job is not current and not _waits(task):
                self._give_up(task, job)
        if unwanted:
            raise Interrupted

    def look_again(self) -> None:
        """What ran on top of a function that waits is done: an interrupt that came meanwhile may have been meant for this one."""
        if self.desk.interrupts(self._current()):
            raise Interrupted

    def _current(self) -> Job | None:
        """The job whose task takes a step."""
        current = asyncio.current_task(self.loop)
        return next((job for task, job in self._jobs.values() if task is current), None)


class _Forward(logging.Handler):
    """Hands what is logged to Erlang's logger."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Hands one over. A line that there is no room for, ever or now, is dropped, and how many were is said before the next;
        one that is no line is complained of.
        """
        try:
            level = min(max(record.levelno, 0), _LEVEL_MAX)
            line = (_text(record.name), _text(self.format(record)))
        except Exception:
            self.handleError(record)
            return
        with contextlib.suppress(RuntimeError):
            try:
                if self._dropped:
                    lost = f"{self._dropped} lines of a log that found no room are lost"
                    self._worker.desk.say(_SAY_LOG, logging.WARNING, (__name__, lost))
                    self._dropped = 0
                self._worker.desk.say(_SAY_LOG, level, line)
            except (BlockingIOError, ValueError):
                self._dropped += 1


async def leave(within: float) -> list[str]:
    """Has what is in flight and was given up come to its end, then the applications that were started here, both within so many
    seconds. What went wrong, in words.
    """
    until = time.monotonic() + within

    def left() -> float:
        return max(0.0, round(until - time.monotonic(), 2))

    late = await erlang._owner().see_out(within)
    asgi = sys.modules.get("thalweg.asgi")
    if asgi is not None:
        late += await asgi.see_out(left())
    wrong = [f"calls that were given up have not ended within {within} s: {late}"] if late else []
    if asgi is not None:
        wrong += await asgi.shut_down(left())
    return wrong


def _waits(task: asyncio.Task[Any]) -> bool:
    """Whether a task's next step is not even scheduled: it waits for a future that nothing has resolved."""
    waiter: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return waiter is not None and not waiter.done()


def _listens_at(number: int, path: str) -> bool:
    """Whether a socket listens at a path, or came of one that does."""
    with socket.socket(fileno=os.dup(number)) as copy:
        return copy.family == socket.AF_UNIX and os.path.abspath(copy.getsockname() or "/") == path


def _text(words: str) -> str:
    """Without what no UTF-8 holds."""
    return str.encode(words, errors="replace").decode()


def _name(kind: type) -> str:
    """What a kind of exception is called."""
    return _text(kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}")


def _said(say: Callable[[], _T], otherwise: _T) -> _T:
    """The text of an exception. Its `__str__` is arbitrary code that may fail in any way; the call has failed all the same."""
    try:
        return say()
    except BaseException:
        return otherwise


def main() -> None:
    """Runs a worker at the endpoint that the first argument names."""
    worker = Worker(sys.argv[1])
    erlang._worker = worker
    # An import of this module by its name means the one that runs.
    sys.modules.setdefault("thalweg.worker", sys.modules["__main__"])
    sys.path.insert(0, os.getcwd())
    try:
        worker.run()
    except BaseException as raised:
        status = raised.code if isinstance(raised, SystemExit) else 1
        if not isinstance(raised, SystemExit) or isinstance(status, str):
            traceback.print_exception(raised)
        sys.stdout.flush()
        # Waiting callers are told by the end of this process, which waits for no threads that are left.
        os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    main()
