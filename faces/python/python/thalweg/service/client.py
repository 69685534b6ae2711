"""Calling a service from an event loop.

The loop watches one descriptor; no thread is started. Calls that are made in one turn of the loop leave together, and what
came is brought by one native call per turn, whatever it was.

Items that came and were not taken lie in an inbox of their stream. While no task waits for anything and these hold
`BACKLOG_BYTES` or more, nothing is read, so that the server's streams wait too. While a task waits reading goes on, because what
it waits for may come behind items of other streams: these are bounded by their credit alone.
"""

import asyncio
import os
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol, Self, Unpack

from .._native import BACKLOG_BYTES, Connection, Program
from ..scope import Unique
from ..watched import Event, Watched
from .options import ClientOptions

_ITEM: Final = 0
_END: Final = 1
_FAILED: Final = 2


class _Waiter(Protocol):
    """Waits for a call's end: a future, or an object with the same methods."""

    def done(self) -> bool: ...
    def set_result(self, result: bytes, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class Client(Watched):
    """Calls a service, any number of calls at a time.

    A task that is cancelled while it awaits a call cancels the call, and so does a coroutine that is closed. The server is told so
    behind its answer too, if nobody took that: it may name what only its reader would give back. Belongs to the event loop that it
    was connected in.
    """

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        """For `connect`."""
        super().__init__(loop)
        self._connection = connection
        self._calls: dict[int, _Waiter] = {}
        self._streams: dict[int, _Inbox] = {}
        self._kept_bytes = 0
        """Of frames of streams that were not taken."""
        self._holds_back = False
        """Nothing is read."""
        self._descriptor = connection.fileno()

    @classmethod
    async def connect(cls, endpoint: str | os.PathLike[str], **options: Unpack[ClientOptions]) -> Self:
        """Connects, trying again while that may help.

        Raises `NoServer`, `ConnectTimeout`, `PermissionDenied`, `NoSharedMemory`, `SchemaMismatch`, `VersionMismatch` or
        `BadArgument`, each with the path and what to do.
        """
        return await cls._of(os.fspath(endpoint), options)

    @classmethod
    async def _of(cls, peer: str | Program, options: ClientOptions) -> Self:
        """Of an endpoint, or of a program that was started here."""
        loop = asyncio.get_running_loop()
        client = cls(Connection(peer, **options), loop)
        connected: asyncio.Future[None] = loop.create_future()

        def look() -> None:
            try:
                if client._connection.is_up() and not connected.done():
                    connected.set_result(None)
            except Exception as error:
                if not connected.done():
                    connected.set_exception(error)

        loop.add_reader(client._descriptor, look)
        try:
            look()
            await connected
        except BaseException:
            client.close()
            raise
        client._watch(client._descriptor)
        client._turn()
        return client

    async def call(self, request: bytes, *, deadline: float | None = None) -> bytes:
        """Sends a request and returns the frame that answers it, within so many seconds."""
        waiter: asyncio.Future[bytes] = self._loop.create_future()
        call = self._begin(request, waiter, deadline)
        try:
            return await waiter
        except asyncio.CancelledError:
            self._give_up(call, waiter)
            raise
        except GeneratorExit:
            self._soon(self._give_up, call, waiter)
            raise

    def stream(self, request: bytes, *, deadline: float | None = None, credit: int | None = None) -> "Stream":
        """Sends a request that a stream answers; yields its frames, the one that ends it included.

        At most `credit` items, 1 or more, may be sent before they are taken; without it the server says how many. A stream that is
        closed, or let go of, before its end is cancelled.
        """
        call = self._connection.stream(request, deadline, credit)
        inbox = self._streams[call] = _Inbox()
        if not self._stirred:
            self._stir()
        return Stream(self, call, inbox, credit)

    @property
    def in_flight(self) -> int:
        """Calls that have not ended."""
        return self._connection.in_flight

    @property
    def is_shared(self) -> bool:
        """Whether frames go through shared memory."""
        return self._connection.is_shared

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection.is_connected

    def _begin(self, request: bytes, waiter: _Waiter, deadline: float | None) -> int:
        """Sends a request. The waiter gets the frame that answers it, or the error."""
        call = self._connection.call(request, deadline)
        self._calls[call] = waiter
        if not self._stirred:
            self._stir()
        return call

    def _give_up(self, call: int, waiter: asyncio.Future[bytes]) -> None:
        """Nobody waits for the call any more."""
        if self._calls.pop(call, None) is not None:
            self._forget(call)
        elif not waiter.cancelled() and waiter.exception() is None:
            # It was answered in the turn in which it was given up.
            self._leave_unread(call)

    def _forget(self, call: int) -> None:
        self._streams.pop(call, None)
        self._connection.forget(call)
        self._stir()

    def _leave_unread(self, call: int) -> None:
        """Tells the server that nobody takes the frame that ended the call."""
        self._connection.leave_unread(call)
        self._stir()

    def _cancel(self, call: int, inbox: "_Inbox") -> None:
        """Drops what was not taken of a stream, and cancels it unless the frame that ended it was taken."""
        has_end = bool(inbox.came) and inbox.came[-1][0] == _END
        self._kept_bytes -= sum(len(value) for kind, value in inbox.came if kind != _FAILED)
        inbox.came.clear()
        if self._holds_back:
            self._stir()
        if self._streams.get(call) is inbox:
            self._forget(call)
        elif has_end:
            self._leave_unread(call)

    def _grant(self, call: int, items: int) -> None:
        self._connection.grant(call, items)
        self._stir()

    def _take(self, frame: bytes) -> None:
        """A stream's frame was taken."""
        self._kept_bytes -= len(frame)
        if self._holds_back:
            self._stir()

    def _bring(self) -> Iterable[Event]:
        self._holds_back = self._kept_bytes >= BACKLOG_BYTES and not self._is_awaited()
        return self._connection.turn(self._holds_back)

    def _is_awaited(self) -> bool:
        return bool(self._calls) or any(inbox.waiter is not None for inbox in self._streams.values())

    def _tell(self, call: int, kind: int, value: Any) -> None:
        waiter = self._calls.pop(call, None)
        if waiter is None:
            inbox = self._streams.get(call)
            if inbox is not None:
                if kind != _ITEM:
                    del self._streams[call]
                if kind != _FAILED:
                    self._kept_bytes += len(value)
                inbox.put(kind, value)
            elif kind == _END:
                # Given up after it was brought.
                self._leave_unread(call)
        elif not waiter.done():
            if kind == _FAILED:
                waiter.set_exception(value)
            else:
                waiter.set_result(value)
        elif kind == _END:
            # Its task was cancelled, and has not run since.
            self._leave_unread(call)

    def _failures(self, error: Exception) -> Iterable[Event]:
        return [(call, _FAILED, error) for call in (*self._calls, *self._streams)]

    def _disconnect(self) -> None:
        self._connection.close()


class _Inbox:
    """What came of a stream and was not taken."""

    __slots__ = ("came", "waiter")

    def __init__(self) -> None:
        self.came: deque[tuple[int, Any]] = deque()
        self.waiter: asyncio.Future[None] | None = None

    def put(self, kind: int, value: Any) -> None:
        self.came.append((kind, value))
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Stream(Unique):
    """The frames of a call that a stream answers, for `async for`. A task that is cancelled, or a coroutine that is closed, while
    it waits for one cancels the call.
    """

    __slots__ = ("_client", "_call", "_inbox", "_window", "_taken", "_over")

    def __init__(self, client: Client, call: int, inbox: _Inbox, credit: int | None) -> None:
        """For `Client.stream`."""
        self._client = client
        self._call = call
        self._inbox = inbox
        self._window = credit or 0
        self._taken = 0
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        inbox = self._inbox
        while not inbox.came:
            if self._over:
                raise StopAsyncIteration
            if inbox.waiter is not None:
                raise RuntimeError("another task waits for this stream")
            inbox.waiter = self._client._loop.create_future()
            if self._client._holds_back:
                self._client._stir()
            try:
                await inbox.waiter
            except asyncio.CancelledError:
                self._leave()
                raise
            except GeneratorExit:
                self._leave_soon()
                raise
            finally:
                inbox.waiter = None
        kind, value = inbox.came.popleft()
        if kind == _FAILED:
            self._over = True
            raise value
        frame: bytes = value
        self._client._take(frame)
        if kind == _ITEM:
            self._take()
        else:
            self._over = True
        return frame

    async def aclose(self) -> None:
        """Cancels the call, unless it has ended."""
        self._leave()

    def _take(self) -> None:
        """Gives credit back half a window at a time, so that the producer seldom waits for its reader."""
        self._taken += 1
        if not self._window:
            # A call may be made before there is a connection, whose server then says what a stream begins with.
            self._window = self._client._connection.credit
        if self._window and self._taken * 2 >= self._window:
            self._client._grant(self._call, self._taken)
            self._taken = 0

    def _leave(self) -> None:
        if not self._over:
            self._over = True
            self._client._cancel(self._call, self._inbox)

    def _leave_soon(self) -> None:
        if not self._over:
            self._over = True
            self._client._soon(self._client._cancel, self._call, self._inbox)

    def __del__(self) -> None:
        self._leave_soon()
