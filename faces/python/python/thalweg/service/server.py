"""Being a service in an event loop.

The loop watches one descriptor; no thread is started. One native call per turn brings every request that came, each request
is a task, and what the tasks of a turn answer at once leaves together.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, Self, Unpack

from .._native import Listener
from .._native import Reply as NativeReply
from ..calls import Reply, error_frame, log_mistake
from ..faults import Fault
from ..scope import AsyncScope
from .given import ensure_awaits, ensure_service
from .options import ServerOptions
from .stopping import stopped_by_signals

_WAIT: Final = 1
_GONE: Final = 2


class ServiceLike(Protocol):
    """A handler and what has to be known to serve it: what the generated `service(handler)` returns."""

    @property
    def dispatch(self) -> Callable[[bytes, Reply], Awaitable[None]]:
        """Answers one request's frame."""

    @property
    def schema(self) -> bytes:
        """SHA-256 of the schema."""

    @property
    def error(self) -> str:
        """The tag of the service's error."""


class Server(AsyncScope):
    """Serves at endpoints, one task for each request.

    Listens from the moment it is made, and serves once it is entered: `async with`, or `run`. A call that is cancelled, by
    its client or because the client is gone, cancels its task. Leaving the block takes no new requests, and waits for calls that were
    begun.
    """

    _what = "server"

    def __init__(self, service: ServiceLike, *endpoints: str | os.PathLike[str], **options: Unpack[ServerOptions]) -> None:
        """Listens: a path that a dead server left behind is taken over, a live one's never.

        Raises `AddressInUse`, `PermissionDenied` or `BadArgument`.
        """
        ensure_service(service, "service")
        ensure_awaits(service)
        paths = [os.fspath(endpoint) for endpoint in endpoints]
        self._listener = Listener(paths, schema=service.schema, error_tag=service.error, **options)
        self._grace = options.get("drain_grace", 5.0)
        self._dispatch = service.dispatch
        self._error = service.error
        self._calls: dict[int, tuple[asyncio.Task[None], _Reply]] = {}
        self._closing: set[asyncio.Task[object] | None] = set()
        """Tasks that close it, handlers among them. None waits for another."""
        self._owing: dict[asyncio.Task[object], asyncio.Future[None]] = {}
        """Handlers that close it before they answer. Each goes on once no other handler owes an answer."""
        self._ending: asyncio.Task[None] | None = None
        """Closes it behind the answers of these handlers."""
        self._descriptor = -1
        self._stopped: asyncio.Future[None] | None = None
        """Done once it was stopped, and everything that was begun is answered."""
        self._owes_finish = False
        self._is_late = False
        """Its grace is over: requests that an interrupt took from their handlers are not waited for."""
        self._is_loop_ending: bool | None = None
        """Whether all tasks of the loop are asked to end, once that was looked for in this turn."""

    def start(self) -> None:
        """Serves from here on, in the event loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._stopped = self._loop.create_future()
        self._descriptor = self._listener.fileno()
        self._loop.add_reader(self._descriptor, self._turn)
        self._turn()

    def stop(self) -> None:
        """Takes no new requests from here on. Paths are free at once; calls that were begun are still answered."""
        self._listener.stop()
        if self._descriptor >= 0:
            self._turn()
            # Clients that do not take their answers in time are disconnected.
            self._loop.call_later(self._grace, self._late)

    async def wait(self) -> None:
        """Waits until it was stopped and everything that was begun is answered. Raises `RuntimeError` where it was never started."""
        if self._stopped is None:
            raise RuntimeError("this server was never started: use `async with`, `start` or `run`")
        await asyncio.shield(self._stopped)

    async def close(self) -> None:
        """Stops, and waits for calls that were begun. Handlers that still run then are cancelled: those that have answered, and those
        whose calls `drain_grace` has ended. None runs any more when this returns.

        A handler may close its own server if it awaits this directly, in the task that it was started as. One that has not
        answered yet waits here for the answers of all others, and the server closes once this handler has answered too. It has
        `drain_grace` for that, as every call has. Behind `create_task` or `gather`, and in Python 3.11 behind `wait_for`, another
        task closes and waits for this handler's answer: a handler that waits for that task is cancelled once `drain_grace` is over.
        """
        caller = asyncio.current_task()
        if caller is None or self._descriptor < 0 or not self._owes_answer(caller):
            return await self._close()
        self.stop()
        if self._ending is None:
            self._ending = self._loop.create_task(self._close())
        self._owing[caller] = self._loop.create_future()
        try:
            self._release_owing()
            await self._owing[caller]
        finally:
            del self._owing[caller]

    async def _close(self) -> None:
        closer = asyncio.current_task()
        self._closing.add(closer)
        if self._descriptor >= 0:
            self.stop()
        try:
            if self._descriptor >= 0:
                await self.wait()
        finally:
            try:
                await self._leave()
            finally:
                self._closing.discard(closer)
                self._listener.close()

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serves until the process is asked to end, by SIGTERM or SIGINT, or `stop` is called; then closes.

        `ready` is called once clients are served and signals are heard. A signal stops every server that runs in the loop.
        Signals are only heard in the main thread; elsewhere `run` ends by `stop` alone.
        """
        async with self:
            with stopped_by_signals(self.stop, asyncio.get_running_loop()):
                if ready is not None:
                    ready()
                await self.wait()

    def statistics(self) -> dict[str, int]:
        """Clients, shared clients, calls in flight, requests and answers so far."""
        return self._listener.statistics()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    def _is_open(self) -> bool:
        return hasattr(self, "_listener") and self._listener.is_open

    def _abandon(self) -> None:
        # A loop that goes on keeps what it serves, so its loop is closed, or it was never started.
        self._listener.close()

    def _turn(self) -> None:
        self._begin(self._listener.turn())
        self._tell(self._listener.changed())

    def _finish(self) -> None:
        """After the first step of every task that a turn began: what they answered leaves, and the loop may sleep."""
        self._owes_finish = False
        if self._descriptor >= 0:
            self._begin(self._listener.finish())
            self._tell(self._listener.changed())

    def _begin(self, requests: list[tuple[NativeReply, bytes]]) -> None:
        for native, frame in requests:
            reply = _Reply(native, self._loop)
            task = self._loop.create_task(self._answer(frame, reply))
            self._calls[native.number] = (task, reply)
            task.add_done_callback(partial(self._over, native))
            if not native.watch_cancel():
                self._loop.call_soon(self._tell, [native.number])
        if requests and not self._owes_finish:
            self._owes_finish = True
            self._loop.call_soon(self._finish)
        if self._owing:
            self._release_owing()
        is_over = self._listener.is_stopped or (self._is_late and not self._calls)
        if is_over and self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    def _owes_answer(self, handler: asyncio.Task[object]) -> bool:
        return any(task is handler and not reply.has_ended for task, reply in self._calls.values())

    def _release_owing(self) -> None:
        """Lets the handlers that close it go on, if they are the only ones that have not answered."""
        if self._listener.statistics()["in_flight"] <= len(self._owing):
            for turn in self._owing.values():
                if not turn.done():
                    turn.set_result(None)

    async def _answer(self, frame: bytes, reply: "_Reply") -> None:
        try:
            await self._dispatch(frame, reply)
        except Exception as error:
            log_mistake("dispatch", error)
            reply.end(error_frame(self._error, error))

    def _over(self, native: NativeReply, task: asyncio.Task[None]) -> None:
        """A call that its handler did not answer ends now, even if the reply is still referred to."""
        del self._calls[native.number]
        # Neither answered, nor given up by its client, nor ended by this server or with its loop.
        if not (native.has_ended or native.is_cancelled or self._descriptor < 0 or self._has_ended_with_loop(task)):
            _log_unanswered(task)
        native.fail(Fault.ABANDONED, "the handler gave no answer")

    def _has_ended_with_loop(self, task: asyncio.Task[None]) -> bool:
        """Whether it was cancelled together with all tasks of the loop, as `asyncio.run` cancels them when its main one is over."""
        if not (task.cancelled() and task.cancelling()):
            return False
        if self._is_loop_ending is None:
            # Once for all that end in this turn.
            self._is_loop_ending = all(other.cancelling() for other in asyncio.all_tasks(self._loop))
            self._loop.call_soon(setattr, self, "_is_loop_ending", None)
        return self._is_loop_ending

    def _tell(self, numbers: list[int]) -> None:
        """Something changed for these calls: there is credit again, or the answer is not awaited any more."""
        for number in numbers:
            found = self._calls.get(number)
            if found is not None:
                task, reply = found
                if not reply.is_cancelled:
                    reply.go_on()
                elif not reply.is_told:
                    reply.is_told = True
                    task.cancel()

    def _late(self) -> None:
        self._is_late = True
        if self._descriptor >= 0:
            self._turn()

    async def _leave(self) -> None:
        tasks = {task for task, _ in self._calls.values()} - self._closing
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = -1
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _log_unanswered(task: asyncio.Task[None]) -> None:
    """Tells the logger `thalweg.service` of a handler whose mistake no error says: the client alone would see that there is no answer."""
    raised = None if task.cancelled() else task.exception()
    if isinstance(raised, SystemExit | KeyboardInterrupt):
        # The loop has raised it, too.
        return
    if task.cancelled():
        why = "was cancelled, and not by its client: what it awaited was, or it cancelled itself"
    else:
        why = "returned without one" if raised is None else f"raised {type(raised).__name__}, which is no Exception"
    logging.getLogger("thalweg.service").error("a call has no answer: its handler %s", why, exc_info=raised)


class _Reply:
    """Where the frames that answer one request go."""

    __slots__ = ("_native", "_loop", "_waiter", "number", "end", "is_told")

    def __init__(self, native: NativeReply, loop: asyncio.AbstractEventLoop) -> None:
        self._native = native
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self.number = native.number
        self.end = native.end
        self.is_told = False

    @property
    def is_cancelled(self) -> bool:
        return self._native.is_cancelled

    @property
    def has_ended(self) -> bool:
        return self._native.has_ended

    async def item(self, frame: bytes) -> bool:
        flow = self._native.item(frame)
        if flow == _WAIT:
            self._waiter = self._loop.create_future()
            if self._native.watch():
                await self._waiter
            return not self._native.is_cancelled
        return flow != _GONE

    def fail(self, fault: Fault, message: str) -> None:
        self._native.fail(fault, message)

    def go_on(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
