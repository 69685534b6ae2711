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
import importlib
import inspect
import itertools
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import Any, Final

from . import erlang
from ._native import Desk, Job
from .erlang import Atom, ErlangError, Interrupted
from .faults import Overloaded
from .loop import Kind, new_event_loop

_SAY_CALLBACK: Final = 1
_SAY_LOG: Final = 3
_WAIT: Final = 1
_GONE: Final = 2
_END: Final = 3
_SLICE: Final = 64
"""Values that a generator brings before others have their turn."""

_EXCEPTION: Final = Atom("exception")


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

    def run(self) -> None:
        """Runs until Erlang is gone."""
        asyncio.set_event_loop(self.loop)
        self._hear_interrupts()
        logging.getLogger().addHandler(_Forward(self))
        self.loop.add_reader(self.desk.fileno(), self._turn)
        self.loop.call_soon(self._turn)
        while True:
            try:
                return self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # What a call raises ends that call, which hears of it in the next turn.
                if not any(task.done() for task, _ in self._jobs.values()):
                    raise

    def _turn(self) -> None:
        if self.desk.turn(not self._jobs):
            self._owe_turn()

    def _owe_turn(self) -> None:
        if not self._owes_turn:
            self._owes_turn = True
            self.loop.call_soon(self._another)

    def _another(self) -> None:
        self._owes_turn = False
        self._turn()

    # What the desk calls.

    def orphaned(self) -> None:
        """Erlang is gone."""
        with contextlib.suppress(OSError):
            os.unlink(self._endpoint)
        # Nobody is left who could want anything, least of all what destructors and threads may still have in mind.
        os._exit(0)

    def attended(self) -> None:
        """Erlang hears what this worker says by itself."""
        self.desk.say(0, os.getpid(), sys.version)

    def describe(self, raised: BaseException) -> Any:
        """An exception in words: its kind, what it says, and where it was raised. Erlang's own reasons go back as they came."""
        if isinstance(raised, ErlangError):
            return raised.reason
        kind = type(raised)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        try:
            words = str(raised)
        except Exception:  # an exception's own words may fail as well
            words = ""
        lines = traceback.format_exception(raised)
        return (_EXCEPTION, name, _text(words), [_text(line) for line in lines])

    async def awaiting(self, awaitable: Any) -> Any:
        """A coroutine of anything that can be awaited."""
        return await awaitable

    def suspended(self, job: Job, task: asyncio.Task[Any]) -> None:
        """A task goes on after its first step, and the job ends with its outcome."""
        self._jobs[job.number] = (task, job)
        task.add_done_callback(functools.partial(self._ended, job))

    def generate(
        self, job: Job, module: str, name: str, positional: tuple[Any, ...], named: dict[str, Any], batch: int
    ) -> None:
        """Has a generator bring one value after the other."""
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        self._begin(job, self._generate(job, function(*positional, **named), batch))

    def changed(self, numbers: list[int]) -> None:
        """Nobody waits for these jobs any more, or there is credit again."""
        for number in numbers:
            waiter = self._credit.pop(number, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
            found = self._jobs.get(number)
            if found is not None and found[1].is_cancelled:
                found[0].cancel()

    def evaluate(self, source: str, variables: dict[str, Any], scope: bytes) -> Any:
        """The value of an expression."""
        names = self._scope(scope)
        return eval(compile(source, "<erlang>", "eval"), names, {**names, **variables} if variables else names)

    def execute(self, source: str, variables: dict[str, Any], scope: bytes) -> None:
        """Runs statements."""
        names = self._scope(scope)
        names.update(variables)
        exec(compile(source, "<erlang>", "exec"), names)

    def forget(self, scope: bytes) -> None:
        """Lets a namespace go."""
        self._scopes.pop(scope, None)

    def answered(self, number: int, ok: bool, value: Any) -> None:
        """A callback that nobody stands and waits for has an answer."""
        waiter = self._callbacks.pop(number, None)
        if waiter is None or waiter.done():
            return
        if ok:
            waiter.set_result(value)
        else:
            waiter.set_exception(ErlangError(value))

    def post(self, kind: int, number: int, value: Any) -> None:
        """An event for the loop's mailbox: one that nobody registered for, or that there is no room for, is dropped."""
        with contextlib.suppress(Overloaded, ValueError):
            known = Kind(kind)
            payload = OSError(value) if known is Kind.SOCKET_ERROR else value
            self.loop.mailbox.post(number, known, payload)

    # What `thalweg.erlang` calls.

    def call_and_wait(self, name: str, arguments: tuple[Any, ...], timeout: float | None) -> Any:
        """Calls back, and waits in this thread."""
        number = next(self._numbers)
        self.desk.say(_SAY_CALLBACK, number, (name, list(arguments)))
        ok, value = self.desk.wait(number, timeout)
        if ok:
            return value
        raise ErlangError(value)

    def begin(self, name: str, arguments: tuple[Any, ...], waiter: Future[Any] | asyncio.Future[Any]) -> None:
        """Calls back, and has a future hear of it."""
        number = next(self._numbers)
        self._callbacks[number] = waiter
        try:
            self.desk.say(_SAY_CALLBACK, number, (name, list(arguments)))
        except BaseException:
            del self._callbacks[number]
            raise

    # Jobs.

    def _begin(self, job: Job, work: Coroutine[Any, Any, None]) -> None:
        task = self.desk.begin(work)
        if not task.done():
            self._jobs[job.number] = (task, job)

    def _ended(self, job: Job, task: asyncio.Task[Any]) -> None:
        del self._jobs[job.number]
        try:
            job.end(task.result())
        except BaseException as raised:
            job.fail(self.describe(raised))
        self._owe_turn()

    async def _generate(self, job: Job, values: Any, batch: int) -> None:
        try:
            if isinstance(values, AsyncIterator):
                await self._bring_awaited(job, values, batch > 0)
            elif batch > 0:
                await self._bring_together(job, iter(values), batch)
            else:
                await self._bring(job, iter(values))
            job.end(None)
        except asyncio.CancelledError:
            raise
        except BaseException as raised:
            job.fail(self.describe(raised))
        finally:
            self._jobs.pop(job.number, None)

    async def _bring(self, job: Job, values: Iterator[Any]) -> None:
        try:
            for count, value in enumerate(values, 1):
                if not await self._item(job, value):
                    break
                if count % _SLICE == 0:
                    await asyncio.sleep(0)
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                close()

    async def _bring_together(self, job: Job, values: Iterator[Any], batch: int) -> None:
        try:
            while (flow := job.bring(values, batch)) != _END and await self._may_go_on(job, flow):
                await asyncio.sleep(0)
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
        """Waits for credit; False says that nobody wants more."""
        if flow == _WAIT:
            waiter = self.loop.create_future()
            self._credit[job.number] = waiter
            job.watch()
            self._turn()
            await waiter
            return not job.is_cancelled
        return flow != _GONE

    def _scope(self, scope: bytes) -> dict[str, Any]:
        names = self._scopes.get(scope)
        if names is None:
            names = self._scopes[scope] = {"__name__": "__erlang__", "__builtins__": builtins}
        return names

    # Interrupts.

    def _hear_interrupts(self) -> None:
        """A byte on standard input asks to look whether the function that runs is still wanted; its end is ours."""
        signal.signal(signal.SIGIO, self._interrupt)
        signal.siginterrupt(signal.SIGIO, False)
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(0, fcntl.F_GETFL)
        fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_NONBLOCK | os.O_ASYNC)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        try:
            while chunk := os.read(0, 256):
                pass
        except BlockingIOError:
            chunk = b"."
        if not chunk:
            self.orphaned()
        unwanted = self.desk.is_unwanted()
        # That took in what had come, so that nothing else says that it is there.
        self.loop.call_soon_threadsafe(self._turn)
        if unwanted:
            raise Interrupted


class _Forward(logging.Handler):
    """Hands what is logged to Erlang's logger."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        """Hands one over; a line that there is no room for is dropped."""
        with contextlib.suppress(RuntimeError, BlockingIOError):
            words = _text(self.format(record))
            self._worker.desk.say(_SAY_LOG, record.levelno, (record.name, words))


def _text(words: str) -> str:
    """Without what no UTF-8 holds."""
    return words.encode(errors="replace").decode()


def main() -> None:
    """Runs a worker at the endpoint that the first argument names."""
    worker = Worker(sys.argv[1])
    erlang._worker = worker
    # Whoever imports this module by its name means the one that runs.
    sys.modules.setdefault("thalweg.worker", sys.modules["__main__"])
    sys.path.insert(0, os.getcwd())
    worker.run()


if __name__ == "__main__":
    main()
