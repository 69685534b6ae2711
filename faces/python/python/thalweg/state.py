"""Sessions of the state: writes that no other session sees until they are committed, and that can be taken back.

    from thalweg.state import SyncSession

    with SyncSession.open("data/state.shm", "main") as session:      # or http://127.0.0.1:4437/rpc/state
        session.snapshot()
        session.put("ann", b"10")
        session.rollback()

The same over a Unix socket, shared memory and JSON-RPC. A session is its token's: `rejoin` goes on with it over another
connection. What the state refuses is a `StateRefused`, with a class of its own for each refusal code that a session can receive.
"""

import asyncio
import base64
import json
import os
from collections.abc import Iterable
from typing import Any, Final, Protocol, Self

from . import rpc, service
from ._native import Schema
from .errors import Error
from .faults import BY_FAULT, BadArgument, Fault, NotSent, Refused, Retry
from .scope import AsyncScope, Scope

__all__ = [
    "BadKey",
    "BadLease",
    "BadPlace",
    "Conflict",
    "Foreign",
    "NoFork",
    "NoSnapshot",
    "NotTaken",
    "OutcomeUnknown",
    "RootMismatch",
    "Session",
    "SessionExpired",
    "SessionLost",
    "SessionsFull",
    "StateRefused",
    "SyncSession",
    "TooMuch",
    "Unreadable",
]


_AGAIN: Final[dict[str, Retry]] = {
    "too_many_forks": "safe",
    "sessions_full": "safe",
    "not_taken": "safe",
    "unknown": "unknown",
}
"""Refusal codes after which the same call may be made again (docs/state.md); after every other one it would fail again."""


class StateRefused(Refused):
    """The state did not do what it was asked. But for `OutcomeUnknown`, nothing was changed."""

    refusal_code: str = ""
    """The code that its message begins with, such as `no_fork`."""

    @property
    def retry(self) -> Retry:
        """Whether the same call may be made again."""
        return _AGAIN.get(self.refusal_code, "never")


class NoFork(StateRefused):
    """No such fork: dropped, or never made."""

    refusal_code = "no_fork"


class BadPlace(StateRefused):
    """Neither a fork nor a session; or a session where a fork is asked for."""

    refusal_code = "bad_place"


class BadKey(StateRefused):
    """A key that cannot be."""

    refusal_code = "bad_key"


class BadLease(StateRefused):
    """A lease that cannot be."""

    refusal_code = "bad_lease"


class NoSnapshot(StateRefused):
    """There is nothing to roll back."""

    refusal_code = "no_snapshot"


class Conflict(StateRefused):
    """Others committed to the fork since the snapshot: roll back, and do it again."""

    refusal_code = "conflict"


class SessionLost(StateRefused):
    """The server that gave the token has ended, and what was not committed is gone."""

    refusal_code = "session_lost"


class SessionExpired(StateRefused):
    """The lease ended, or the session was closed; what was not committed is gone."""

    refusal_code = "session_expired"


class SessionsFull(StateRefused):
    """As many sessions are open as may be, or they hold as much as they may."""

    refusal_code = "sessions_full"


class TooMuch(StateRefused):
    """More than a session may hold beside its snapshot."""

    refusal_code = "too_much"


class NotTaken(StateRefused):
    """The log does not take the commit."""

    refusal_code = "not_taken"


class RootMismatch(StateRefused):
    """The image that the state would be rebuilt from is not what it was."""

    refusal_code = "root_mismatch"


class Foreign(StateRefused):
    """A log of the state's names holds something else."""

    refusal_code = "foreign"


class Unreadable(StateRefused):
    """The log cannot be read."""

    refusal_code = "unreadable"


class OutcomeUnknown(StateRefused):
    """The disk failed, and whether the commit lasts is not known."""

    refusal_code = "unknown"


_BY_REFUSAL_CODE: Final = {row.refusal_code: row for row in StateRefused.__subclasses__()}


def _refused(message: str) -> StateRefused:
    code = message.partition(": ")[0]
    error = _BY_REFUSAL_CODE.get(code, StateRefused)(message)
    if type(error) is StateRefused:
        error.refusal_code = code
    return error


def _typed(error: Error) -> Error:
    """A refusal by its code, and any other fault by its class, whichever way it came."""
    if isinstance(error, Refused):
        return _refused(error.detail)
    if isinstance(error, rpc.RemoteError) and error.fault is not None:
        return _refused(error.message) if error.fault is Fault.REFUSED else BY_FAULT[error.fault](error.message)
    return error


_RECONNECT: Final = (0.002, 0.1)
"""A session is its token's: over another connection it goes on, or is told what became of it."""


class _Line(Protocol):
    async def call(self, method: str, params: rpc.Params = None) -> Any: ...
    def close(self) -> None: ...
    def _abandon(self) -> None: ...


class _SyncLine(Protocol):
    def call(self, method: str, params: rpc.Params = None) -> Any: ...
    def close(self) -> None: ...


class _Framed:
    """A service's client, called as one of JSON-RPC is; what was not sent when the connection ended goes over the next one."""

    def __init__(self, client: service.Client, schema: Schema) -> None:
        self._client = client
        self._schema = schema

    async def call(self, method: str, params: rpc.Params = None) -> Any:
        request = self._schema.request(method, rpc.dump(params))
        try:
            frame = await self._client.call(request)
        except NotSent:
            frame = await self._client.call(request)
        return json.loads(self._schema.result(method, frame))

    def close(self) -> None:
        self._client.close()

    def _abandon(self) -> None:
        self._client._abandon()


class _SyncFramed:
    """The same where waiting is fine."""

    def __init__(self, client: service.SyncClient, schema: Schema) -> None:
        self._client = client
        self._schema = schema

    def call(self, method: str, params: rpc.Params = None) -> Any:
        request = self._schema.request(method, rpc.dump(params))
        try:
            frame = self._client.call(request)
        except NotSent:
            frame = self._client.call(request)
        return json.loads(self._schema.result(method, frame))

    def close(self) -> None:
        self._client.close()


class _Posted:
    """A client of JSON-RPC. What is no request is refused here, in the words that say so over a socket, and not sent."""

    def __init__(self, client: rpc.SyncClient, schema: Schema) -> None:
        self._client = client
        self._schema = schema

    def call(self, method: str, params: rpc.Params = None) -> Any:
        self._schema.request(method, rpc.dump(params))
        return self._client.call(method, params)

    def close(self) -> None:
        self._client.close()


class _Turns:
    """The same for an event loop, and one call at a time, in the order in which they were begun: requests over several
    connections overtake each other. A call that is cancelled before its turn is not made. One that was sent may be
    carried out all the same, so that the next one waits until it has ended.
    """

    def __init__(self, client: rpc.Client, schema: Schema) -> None:
        self._client = client
        self._schema = schema
        self._turn = asyncio.Lock()

    async def call(self, method: str, params: rpc.Params = None) -> Any:
        self._schema.request(method, rpc.dump(params))
        await self._turn.acquire()
        call = asyncio.ensure_future(self._client.call(method, params))
        call.add_done_callback(self._over)
        # Unlike awaiting the call, this does not cancel it.
        await asyncio.wait((call,))
        return call.result()

    def _over(self, call: asyncio.Future[Any]) -> None:
        if not call.cancelled():
            # The caller may have gone, and an error that is never retrieved would be logged.
            call.exception()
        self._turn.release()

    def close(self) -> None:
        self._client.close()

    def _abandon(self) -> None:
        self._client._abandon()


def _value(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def _held(value: bytes) -> bytes:
    """What a key is to hold. Of text it would be the base64 that is stored."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"a value is bytes, and this is {type(value).__name__}: encode text first")
    return value


def _changes(changes: Iterable[tuple[str, bytes | None]]) -> list[dict[str, Any]]:
    return [{"key": key, "value": None if value is None else _held(value)} for key, value in changes]


def _lease(lease: float | None) -> int | None:
    if lease is None:
        return None
    if not 0.001 <= lease <= 3600:
        raise BadLease(f"bad_lease: a lease lasts from 0.001 to 3600 s; this one would last {lease}")
    return round(lease * 1000)


class SyncSession(Scope):
    """A session, whose calls wait. It owns its connection; closing it ends the session, and leaving it does not."""

    token: str
    """Names the session, on any connection. Every holder of the token can use the session."""
    fork: str
    """The fork it is on."""
    lease: float
    """Seconds that it stays without being used."""

    _what = "session"
    _is_over = True

    def __init__(self, line: _SyncLine, token: str, fork: str, lease: float) -> None:
        """For `open` and `rejoin`."""
        self._line = line
        self.token = token
        self.fork = fork
        self.lease = lease
        self._is_over = False

    @classmethod
    def open(
        cls,
        at: str | os.PathLike[str],
        fork: str = "main",
        *,
        lease: float | None = None,
        http: rpc.ClientOptions | None = None,
    ) -> Self:
        """Begins a session at an endpoint or a URL, whose lease lasts so many seconds; 30 unless it is said. `http` is for the
        client that calls at a URL: a token where the server has some."""
        line = _sync_line(at, http)
        try:
            told = _ask(line, "Open", {"fork": fork, "leaseMs": _lease(lease)})
        except BaseException:
            line.close()
            raise
        return cls(line, told["session"], fork, told["leaseMs"] / 1000)

    @classmethod
    def rejoin(
        cls, at: str | os.PathLike[str], token: str, *, http: rpc.ClientOptions | None = None
    ) -> tuple[Self, bool]:
        """Comes back to a session, and says whether a snapshot is pending. Raises `SessionLost` or `SessionExpired`."""
        line = _sync_line(at, http)
        try:
            told = _ask(line, "Rejoin", {"session": token})
        except BaseException:
            line.close()
            raise
        return cls(line, token, told["fork"], told["leaseMs"] / 1000), told["pending"]

    def snapshot(self) -> int:
        """Holds the fork as it is: what is written from here on lies beside it. One that is pending is committed first,
        unless nothing was written since. Returns where the fork ends."""
        return _offset(self._ask("Snapshot", {"session": self.token}))

    def commit(self) -> int:
        """Commits what was written since the snapshot, all or nothing, and returns where the fork ends with it. Raises `Conflict`
        when others committed meanwhile. Without a snapshot it does nothing, and returns where the fork ended when the session last
        committed, wrote, took a snapshot or began."""
        return _offset(self._ask("Commit", {"session": self.token}))

    def rollback(self) -> None:
        """Forgets what was written since the snapshot, and the snapshot. Raises `NoSnapshot` without one."""
        self._ask("Rollback", {"session": self.token})

    def get(self, key: str) -> bytes | None:
        """What a key holds, as this session sees it."""
        return _value(self._ask("Get", {"place": self.token, "key": key})["value"])

    def put(self, key: str, value: bytes) -> None:
        """A key holds a value from here on."""
        self._ask("Put", {"place": self.token, "key": key, "value": _held(value)})

    def remove(self, key: str) -> None:
        """A key holds nothing from here on."""
        self._ask("Remove", {"place": self.token, "key": key})

    def write(self, changes: Iterable[tuple[str, bytes | None]]) -> None:
        """Makes many changes, all or none of them: a key holds a value from here on, or nothing."""
        self._ask("Batch", {"place": self.token, "changes": _changes(changes)})

    def scan(self, start: str | None = None, limit: int | None = None) -> tuple[list[tuple[str, bytes]], str | None]:
        """Entries in the order of their keys, from one on, and where to go on if there is more."""
        return _page(self._ask("Scan", {"place": self.token, "start": start, "limit": limit}))

    def root(self) -> bytes:
        """A digest of all that this session sees."""
        return base64.b64decode(self._ask("Root", {"place": self.token})["root"])

    def close(self) -> None:
        """Ends the session, and forgets what it did not commit; of one that was closed or left there is nothing to end."""
        if self._is_over:
            return
        self._is_over = True
        try:
            self._ask("Close", {"session": self.token})
        finally:
            self._line.close()

    def leave(self) -> None:
        """Hangs up. The session stays for its lease, to be rejoined."""
        self._is_over = True
        self._line.close()

    def _is_open(self) -> bool:
        return not self._is_over

    def _abandon(self) -> None:
        # To end the session would be to wait for the server.
        self.leave()

    def _ask(self, method: str, params: rpc.Params) -> Any:
        return _ask(self._line, method, params)


class Session(AsyncScope):
    """A session, for an event loop. It owns its connection; closing it ends the session, and leaving it does not."""

    token: str
    """Names the session, on any connection. Every holder of the token can use the session."""
    fork: str
    """The fork it is on."""
    lease: float
    """Seconds that it stays without being used."""

    _what = "session"
    _is_over = True

    def __init__(self, line: _Line, token: str, fork: str, lease: float) -> None:
        """For `open` and `rejoin`."""
        self._line = line
        self.token = token
        self.fork = fork
        self.lease = lease
        self._is_over = False

    @classmethod
    async def open(
        cls,
        at: str | os.PathLike[str],
        fork: str = "main",
        *,
        lease: float | None = None,
        http: rpc.ClientOptions | None = None,
    ) -> Self:
        """Begins a session at an endpoint or a URL, whose lease lasts so many seconds; 30 unless it is said. `http` is for the
        client that calls at a URL: a token where the server has some."""
        line = await _line(at, http)
        try:
            told = await _aask(line, "Open", {"fork": fork, "leaseMs": _lease(lease)})
        except BaseException:
            line.close()
            raise
        return cls(line, told["session"], fork, told["leaseMs"] / 1000)

    @classmethod
    async def rejoin(
        cls, at: str | os.PathLike[str], token: str, *, http: rpc.ClientOptions | None = None
    ) -> tuple[Self, bool]:
        """Comes back to a session, and says whether a snapshot is pending. Raises `SessionLost` or `SessionExpired`."""
        line = await _line(at, http)
        try:
            told = await _aask(line, "Rejoin", {"session": token})
        except BaseException:
            line.close()
            raise
        return cls(line, token, told["fork"], told["leaseMs"] / 1000), told["pending"]

    async def snapshot(self) -> int:
        """Holds the fork as it is: what is written from here on lies beside it. One that is pending is committed first,
        unless nothing was written since. Returns where the fork ends."""
        return _offset(await self._ask("Snapshot", {"session": self.token}))

    async def commit(self) -> int:
        """Commits what was written since the snapshot, all or nothing, and returns where the fork ends with it. Raises `Conflict`
        when others committed meanwhile. Without a snapshot it does nothing, and returns where the fork ended when the session last
        committed, wrote, took a snapshot or began."""
        return _offset(await self._ask("Commit", {"session": self.token}))

    async def rollback(self) -> None:
        """Forgets what was written since the snapshot, and the snapshot. Raises `NoSnapshot` without one."""
        await self._ask("Rollback", {"session": self.token})

    async def get(self, key: str) -> bytes | None:
        """What a key holds, as this session sees it."""
        return _value((await self._ask("Get", {"place": self.token, "key": key}))["value"])

    async def put(self, key: str, value: bytes) -> None:
        """A key holds a value from here on."""
        await self._ask("Put", {"place": self.token, "key": key, "value": _held(value)})

    async def remove(self, key: str) -> None:
        """A key holds nothing from here on."""
        await self._ask("Remove", {"place": self.token, "key": key})

    async def write(self, changes: Iterable[tuple[str, bytes | None]]) -> None:
        """Makes many changes, all or none of them: a key holds a value from here on, or nothing."""
        await self._ask("Batch", {"place": self.token, "changes": _changes(changes)})

    async def scan(
        self, start: str | None = None, limit: int | None = None
    ) -> tuple[list[tuple[str, bytes]], str | None]:
        """Entries in the order of their keys, from one on, and where to go on if there is more."""
        return _page(await self._ask("Scan", {"place": self.token, "start": start, "limit": limit}))

    async def root(self) -> bytes:
        """A digest of all that this session sees."""
        return base64.b64decode((await self._ask("Root", {"place": self.token}))["root"])

    async def close(self) -> None:
        """Ends the session, and forgets what it did not commit; of one that was closed or left there is nothing to end."""
        if self._is_over:
            return
        self._is_over = True
        try:
            await self._ask("Close", {"session": self.token})
        finally:
            self._line.close()

    def leave(self) -> None:
        """Hangs up. The session stays for its lease, to be rejoined."""
        self._is_over = True
        self._line.close()

    def _is_open(self) -> bool:
        return not self._is_over

    def _abandon(self) -> None:
        # It leaves, in whichever thread; and of the line, which goes with it, nothing more is said.
        self._is_over = True
        self._line._abandon()

    async def _ask(self, method: str, params: rpc.Params) -> Any:
        return await _aask(self._line, method, params)


def _endpoint(at: str) -> str:
    if not at.endswith((".sock", ".shm")):
        raise BadArgument(f"{at!r}: give a path ending in .sock or .shm, or a URL, http://host:port/rpc/state")
    return at


def _sync_line(at: str | os.PathLike[str], http: rpc.ClientOptions | None) -> _SyncLine:
    at, schema = os.fspath(at), Schema.state()
    if at.startswith("http://"):
        client = rpc.SyncClient(at, **(http or {}))
        try:
            client.expect_schema(schema.hash)
        except BaseException:
            client.close()
            raise
        return _Posted(client, schema)
    return _SyncFramed(service.SyncClient(_endpoint(at), schema=schema.hash, reconnect=_RECONNECT), schema)


async def _line(at: str | os.PathLike[str], http: rpc.ClientOptions | None) -> _Line:
    at, schema = os.fspath(at), Schema.state()
    if at.startswith("http://"):
        client = rpc.Client(at, **(http or {}))
        try:
            await client.expect_schema(schema.hash)
        except BaseException:
            client.close()
            raise
        return _Turns(client, schema)
    return _Framed(await service.Client.connect(_endpoint(at), schema=schema.hash, reconnect=_RECONNECT), schema)


def _ask(line: _SyncLine, method: str, params: rpc.Params) -> Any:
    try:
        return line.call(method, params)
    except Error as error:
        raise _typed(error) from None


async def _aask(line: _Line, method: str, params: rpc.Params) -> Any:
    try:
        return await line.call(method, params)
    except Error as error:
        raise _typed(error) from None


def _offset(told: Any) -> int:
    offset: int = told["offset"]
    return offset


def _page(told: Any) -> tuple[list[tuple[str, bytes]], str | None]:
    entries = [(entry["key"], base64.b64decode(entry["value"])) for entry in told["entries"]]
    return entries, told["next"]
