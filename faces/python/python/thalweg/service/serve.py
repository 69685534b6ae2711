"""Being a service in a program that does nothing else."""

import os
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, Protocol, Unpack

from .._native import Listener
from .._native import Reply as NativeReply
from ..calls import SyncReply, error_frame, log_mistake
from ..faults import Fault
from .given import ensure_answers_at_once, ensure_service
from .options import ServerOptions
from .stopping import stopped_by_signals

_WAIT: Final = 1
_GONE: Final = 2


class SyncServiceLike(Protocol):
    """A handler and what has to be known to serve it: what the generated `service_sync(handler)` returns."""

    @property
    def dispatch(self) -> Callable[[bytes, SyncReply], None]:
        """Answers one request's frame."""

    @property
    def schema(self) -> bytes:
        """SHA-256 of the schema."""

    @property
    def error(self) -> str:
        """The tag of the service's error."""


def serve(
    service: SyncServiceLike,
    *endpoints: str | os.PathLike[str],
    ready: Callable[[], None] | None = None,
    **options: Unpack[ServerOptions],
) -> None:
    """Serves one request after the other until the process is asked to end, by SIGTERM or SIGINT; then answers what was begun.

    While a stream has no credit for another item, its handler stands still at its `yield` and other requests are served. The
    exception is a stream whose command reads or writes a fork: every other request waits until it has ended, because this server
    does not know which of them touch the same fork. Serve such a service by `Server`, which does.

    `ready` is called once clients can connect and signals are heard. Signals are only heard in the main thread; elsewhere
    `serve` ends by what `ready` or a handler raises.
    """
    ensure_service(service, "service_sync")
    ensure_answers_at_once(service)
    paths = [os.fspath(endpoint) for endpoint in endpoints]
    listener = Listener(paths, schema=service.schema, error_tag=service.error, **options)
    try:
        with stopped_by_signals(listener.stop):
            if ready is not None:
                ready()
            _Loop(listener, service).run()
    finally:
        listener.close()


_Frames = Generator[bytes, None, bytes]
"""A stream's items, and what it returns: the frame that ends the call."""


class _Loop:
    def __init__(self, listener: Listener, service: SyncServiceLike) -> None:
        self._listener = listener
        self._service = service
        self._waiting: deque[tuple[NativeReply, bytes]] = deque()
        self._streams: dict[int, tuple[_Reply, _Frames]] = {}
        """Those that wait until there is credit, by their numbers."""

    def run(self) -> None:
        try:
            while not self._listener.is_stopped:
                self.turn()
                while self._waiting:
                    self._answer(*self._waiting.popleft())
                for number in self._listener.changed():
                    if number in self._streams:
                        self._go_on(*self._streams.pop(number))
        finally:
            for reply, frames in self._streams.values():
                self._leave(reply, frames)

    def turn(self) -> None:
        """Sends what was answered, waits, and takes in what comes. Requests that were cancelled meanwhile, or whose client is gone,
        are dropped.
        """
        came = self._listener.wait()
        self._waiting = deque(request for request in self._waiting if not request[0].is_cancelled)
        self._waiting.extend(came)

    def _answer(self, native: NativeReply, frame: bytes) -> None:
        reply = _Reply(native, self)
        try:
            self._service.dispatch(frame, reply)
        except Exception as error:
            self._fail(reply, error)
        else:
            if reply.frames is not None:
                self._go_on(reply, reply.frames)

    def _go_on(self, reply: "_Reply", frames: _Frames) -> None:
        """Sends a stream's items until it ends or there is no credit. Then it waits, and others are served."""
        native = reply.native
        try:
            while not native.is_cancelled:
                flow = native.item(next(frames))
                if flow == _WAIT and native.watch():
                    self._streams[native.number] = reply, frames
                    return
        except StopIteration as ended:
            native.end(ended.value)
        except Exception as error:
            self._fail(reply, error)
        else:
            self._leave(reply, frames)

    def _leave(self, reply: "_Reply", frames: _Frames) -> None:
        """Ends a stream that is not awaited any more."""
        try:
            frames.close()
        except Exception as error:
            self._fail(reply, error)
        reply.fail(Fault.ABANDONED, "the reader went away")

    def _fail(self, reply: "_Reply", error: Exception) -> None:
        log_mistake(reply.name, error)
        reply.end(error_frame(self._service.error, error))


class _Reply:
    """Where the frames that answer one request go."""

    __slots__ = ("native", "end", "fail", "frames", "name", "_loop")

    def __init__(self, native: NativeReply, loop: _Loop) -> None:
        self.native = native
        self.end = native.end
        self.fail = native.fail
        self.frames: _Frames | None = None
        self.name = "dispatch"
        self._loop = loop

    def stream(self, frames: _Frames, name: str) -> None:
        """Takes a stream to send once its handler was called."""
        self.frames, self.name = frames, name

    def item(self, frame: bytes) -> bool:
        """Sends an item of a stream that keeps its turn until it ends."""
        flow = self.native.item(frame)
        # What others ask meanwhile is taken in, and answered after this; it is no credit.
        while flow == _WAIT and self.native.watch():
            self._loop.turn()
        return flow != _GONE and not self.native.is_cancelled
