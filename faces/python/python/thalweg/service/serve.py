"""Being a service in a program that does nothing else."""

import os
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, Unpack

from .._native import Listener
from .._native import Reply as NativeReply
from ..calls import SyncReply, error_frame
from .options import ServerOptions
from .stopping import stopped_by_signals

_WAIT: Final = 1
_GONE: Final = 2


class SyncServed(Protocol):
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
    service: SyncServed,
    *endpoints: str | os.PathLike[str],
    ready: Callable[[], None] | None = None,
    **options: Unpack[ServerOptions],
) -> None:
    """Serves one request after the other until the process is asked to end, by SIGTERM or SIGINT; then answers what was begun.

    `ready` is called once clients can connect and signals are heard. Signals are only heard in the main thread; elsewhere `serve` ends by what
    `ready` or a handler raises.
    """
    paths = [os.fspath(endpoint) for endpoint in endpoints]
    listener = Listener(paths, schema=service.schema, error_tag=service.error, **options)
    try:
        with stopped_by_signals(listener.stop):
            if ready is not None:
                ready()
            _Loop(listener, service).run()
    finally:
        listener.close()


class _Loop:
    def __init__(self, listener: Listener, service: SyncServed) -> None:
        self._listener = listener
        self._service = service
        self._waiting: deque[tuple[NativeReply, bytes]] = deque()

    def run(self) -> None:
        while not self._listener.is_stopped:
            self.turn()
            while self._waiting:
                native, frame = self._waiting.popleft()
                self._answer(native, frame)

    def turn(self) -> None:
        """Sends what was answered, waits, and takes in what comes."""
        self._waiting.extend(self._listener.wait())

    def _answer(self, native: NativeReply, frame: bytes) -> None:
        try:
            self._service.dispatch(frame, _Reply(native, self))
        except Exception as error:
            native.end(error_frame(self._service.error, error))


class _Reply:
    """Where the frames that answer one request go."""

    __slots__ = ("_native", "_loop", "end", "fail")

    def __init__(self, native: NativeReply, loop: _Loop) -> None:
        self._native = native
        self._loop = loop
        self.end = native.end
        self.fail = native.fail

    def item(self, frame: bytes) -> bool:
        flow = self._native.item(frame)
        # What others ask meanwhile is taken in, and answered after this; it is no credit.
        while flow == _WAIT and self._native.watch():
            self._loop.turn()
        return flow != _GONE and not self._native.is_cancelled
