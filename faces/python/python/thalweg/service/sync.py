"""Calling a service and waiting for it."""

import os
from typing import Self, Unpack

from .._native import Connection, Program
from ..faults import ServiceError
from ..scope import Scope, Unique
from .options import ClientOptions


class SyncClient(Scope):
    """Calls a service and waits for the answers, other threads running meanwhile.

    Any number of calls may be under way: `send` them, then `receive` each. A wait in shared memory looks for the answer for
    some microseconds before it sleeps. For one thread at a time.

    On a `plain` connection answers come in the order of the calls, and streams know no credit. A wait keeps what comes before
    it, of streams 4 MiB at most. Then it raises `Overrun`: read those streams, or close them, and wait again.
    """

    _what = "client"

    def __init__(self, endpoint: str | os.PathLike[str], **options: Unpack[ClientOptions]) -> None:
        """Connects, trying again while that may help.

        Raises `NoServer`, `ConnectTimeout`, `PermissionDenied`, `NoSharedMemory`, `SchemaMismatch`, `VersionMismatch` or
        `BadArgument`, each with the path and what to do.
        """
        self._begin(os.fspath(endpoint), options)

    @classmethod
    def _of(cls, program: Program, options: ClientOptions) -> Self:
        """Of a program that was started here."""
        client = cls.__new__(cls)
        client._begin(program, options)
        return client

    def _begin(self, peer: str | Program, options: ClientOptions) -> None:
        connection = Connection(peer, **options)
        connection.await_connected()
        self._connection = connection

    def call(self, request: bytes, *, deadline: float | None = None) -> bytes:
        """Sends a request and returns the frame that answers it, within so many seconds.

        Whatever it raises, nothing more is heard of the call, which may have been carried out. Who wants to wait again after
        `Overrun` uses `send` and `receive`.
        """
        return self._connection.ask(request, deadline)

    def stream(self, request: bytes, *, deadline: float | None = None, credit: int | None = None) -> "SyncStream":
        """Sends a request that a stream answers; yields its frames, the one that ends it included.

        At most `credit` items, 1 or more, may be sent before they are taken; without it the server says how many. A stream that is
        closed, or let go of, before its end is cancelled.
        """
        call = self._connection.stream(request, deadline, credit)
        return SyncStream(self._connection, call, credit)

    def send(self, request: bytes, *, deadline: float | None = None) -> int:
        """Queues a request and names its call. It leaves with the next `flush` or with whatever waits next."""
        return self._connection.call(request, deadline)

    def flush(self) -> None:
        """Writes what is queued, as far as it can be now."""
        self._connection.flush()

    def receive(self, call: int) -> bytes:
        """Waits for the answer of a call that was sent. What comes of others meanwhile is kept for them.

        `Overrun` of a plain connection ends the wait alone, and not the call.
        """
        return self._connection.wait(call)[1]

    def cancel(self, call: int) -> None:
        """Cancels a call. It still ends: with its answer if that was faster, else `Cancelled`."""
        self._connection.cancel(call)

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

    def close(self) -> None:
        """Ends the connection; every call fails with `Closed`, and so does every further one."""
        self._connection.close()

    def _is_open(self) -> bool:
        return hasattr(self, "_connection") and self._connection.is_open

    def _abandon(self) -> None:
        self.close()


class SyncStream(Unique):
    """The frames of a call that a stream answers, for `for`. After `Overrun` it goes on where it was.

    One that is over has no call in flight: what comes of it would not be taken, and on a plain connection all others wait
    behind that.
    """

    __slots__ = ("_connection", "_call", "_window", "_taken", "_over")

    def __init__(self, connection: Connection, call: int, credit: int | None) -> None:
        """For `SyncClient.stream`."""
        self._connection = connection
        self._call = call
        self._window = credit or 0
        self._taken = 0
        self._over = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        if self._over:
            raise StopIteration
        try:
            self._over, frame = self._connection.wait(self._call)
        except ServiceError:
            # It may be the wait alone that failed.
            self._over = not self._connection.knows(self._call)
            raise
        if not self._over:
            self._take()
        return frame

    def close(self) -> None:
        """Cancels the call, unless it has ended."""
        if not self._over:
            self._over = True
            self._connection.leave(self._call)

    def _take(self) -> None:
        """Gives credit back half a window at a time, so that the producer seldom waits for its reader."""
        self._taken += 1
        if not self._window:
            # A call may be made before there is a connection, whose server then says what a stream begins with.
            self._window = self._connection.credit
        if self._window and self._taken * 2 >= self._window:
            self._connection.grant(self._call, self._taken)
            self._taken = 0

    def __del__(self) -> None:
        self.close()
