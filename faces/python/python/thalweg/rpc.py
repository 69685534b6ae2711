"""Calling services by JSON-RPC, over connections that are kept.

    from thalweg.rpc import SyncClient

    with SyncClient("http://127.0.0.1:4437/rpc/log") as log:
        log.call("Create", {"name": "notes", "contentType": "text/plain", "closed": False})

Parameters and results are what `json` makes of them; integers are exact, and bytes go as base64. What the server answers with is
a `RemoteError`; why there is no answer is a `thalweg.service.ServiceError` with a class per fault.
"""

import asyncio
import base64
import json
import math
from collections import UserString
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NotRequired, TypeAlias, TypedDict, Unpack, cast

from ._native import RpcCaller, Schema
from .errors import Error
from .faults import BadArgument, Fault, Retry, SchemaMismatch
from .scope import Scope
from .watched import Event, Watched

__all__ = ["Call", "CallOptions", "Client", "ClientOptions", "Params", "RemoteError", "Schema", "Statistics", "SyncClient"]

Params: TypeAlias = Mapping[str, Any] | Sequence[Any] | None
"""Parameters by their names or in their order; None for none."""

Call: TypeAlias = tuple[str, Params]
"""A method and its parameters."""


class ClientOptions(TypedDict):
    """The keywords of `Client` and `SyncClient`."""

    deadline: NotRequired[float | None]
    """Seconds that an answer is waited for, connecting included, where a call says nothing else. 60 unless said."""
    connections_max: NotRequired[int]
    """Connections to one address; further calls wait for one to be free. 8 unless said."""
    idle_max: NotRequired[int]
    """Connections that are kept while nothing goes over them, of all addresses together. 2 unless said."""
    idle_for: NotRequired[float]
    """Seconds that they are kept. 30 unless said."""
    in_flight_max: NotRequired[int]
    """Requests that have not ended; one more is `Overloaded`. 1024 unless said."""
    answer_bytes_max: NotRequired[int]
    """The longest answer; a longer one is `FrameTooLarge`. 64 MiB unless said."""
    spin: NotRequired[bool]
    """May look for some microseconds for an answer before sleeping, as long as that finds any. True unless said."""
    token: NotRequired[str | None]
    """What lets it in where a server has tokens: it goes with every request. None unless said."""


class CallOptions(TypedDict):
    """The keywords of what is asked."""

    deadline: NotRequired[float | None]
    """Another time than the client's, in seconds."""
    idempotent: NotRequired[bool]
    """Twice is as good as once: may be sent again when a connection ends before the answer comes."""
    url: NotRequired[str]
    """Another service than the client's, over the same connections."""


class Statistics(TypedDict):
    """What a client has done so far."""

    opened: int
    closed: int
    reused: int
    waits: int
    retried: int
    idle: int
    connections: int
    in_flight: int


_BY_WORD: Final[dict[str, Fault]] = {fault.name.lower(): fault for fault in Fault}


# No JSON, and no request.
_NOT_BEGUN: Final = frozenset({-32700, -32600})


class RemoteError(Error):
    """The server answered a call with an error."""

    code = "REMOTE_ERROR"

    number: int
    """Its number in JSON-RPC."""
    message: str
    """In words."""
    data: Any
    """What else is said."""
    fault: Fault | None
    """Of a server of ours: the row of the table of faults."""

    def __init__(self, number: int, message: str, data: Any = None) -> None:
        # All of them, so that it can be copied and sent to another process.
        super().__init__(number, message, data)
        self.number = number
        self.message = message
        self.data = data
        word = data.get("fault") if isinstance(data, dict) else None
        # Another server's may be anything.
        self.fault = _BY_WORD.get(word) if isinstance(word, str) else None

    def __str__(self) -> str:
        return f"{self.message} ({self.number})"

    @property
    def retry(self) -> Retry:
        """Whether the same call may be made again. Where no fault is named, any server did not carry out what it took for no
        JSON or no request; another number says nothing about that."""
        if self.fault is not None:
            return self.fault.retry
        return "safe" if self.number in _NOT_BEGUN else "unknown"


_BYTES: Final = (bytes, bytearray, memoryview)
# What is a sequence, and goes as one string.
_TEXTS: Final = (str, UserString, *_BYTES)


def dump(params: Params) -> str:
    """Parameters as text."""
    if params is None:
        return ""
    if isinstance(params, _TEXTS) or not isinstance(params, (Mapping, Sequence)):
        raise BadArgument("parameters are a mapping or a sequence, or None")
    text = _json(params)
    # json writes words without quotes for floats that JSON has no number for.
    return _json(_worded(params)) if "NaN" in text or "Infinity" in text else text


def _json(params: Any) -> str:
    return json.dumps(params, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _worded(value: Any) -> Any:
    """The same with the words that services take for such floats."""
    match value:
        case float() if value != value:
            return "NaN"
        case float() if value in (math.inf, -math.inf):
            return "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {_worded(key): _worded(item) for key, item in value.items()}
        case Sequence() if not isinstance(value, _TEXTS):
            return [_worded(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """What json does not know, as what it does."""
    match value:
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case UserString():
            return str(value)
        case Mapping():
            return dict(value)
        case Sequence():
            return list(value)
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def _read(answer: str | tuple[int, str, str]) -> Any:
    if isinstance(answer, str):
        return json.loads(answer)
    number, message, data = answer
    return RemoteError(number, message, json.loads(data) if data else None)


def _one(answers: list[Any]) -> Any:
    """The only answer; None of a notification."""
    if not answers:
        return None
    value = _read(answers[0])
    if isinstance(value, RemoteError):
        raise value
    return value


def _expect(version: Any, schema: bytes) -> None:
    """Of what `rpc.version` answers."""
    if not isinstance(version, dict) or version.get("schema") != schema.hex():
        raise SchemaMismatch(f"the server is {version}, and {schema.hex()} is expected")


class SyncClient(Scope):
    """Calls services and waits for the answers, other threads running meanwhile. For one thread at a time."""

    _what = "client"

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        """Of the service at `http://host:port/rpc/name`. Connects with the first call."""
        self._caller = RpcCaller(url, **options)

    def call(self, method: str, params: Params = None, **options: Unpack[CallOptions]) -> Any:
        """Makes one call and returns its result."""
        return _one(self._caller.wait(self._caller.begin([(method, dump(params))], False, **options)))

    def notify(self, method: str, params: Params = None, **options: Unpack[CallOptions]) -> None:
        """Has something done that has no answer; waits until the server has it."""
        self._caller.wait(self._caller.begin([(method, dump(params))], False, True, **options))

    def batch(self, calls: Sequence[Call], **options: Unpack[CallOptions]) -> list[Any]:
        """Makes calls together. Results come in the order of the calls, a `RemoteError` where one is an error."""
        texts = [(method, dump(params)) for method, params in calls]
        return [_read(answer) for answer in self._caller.wait(self._caller.begin(texts, True, **options))]

    def expect_schema(self, schema: bytes, **options: Unpack[CallOptions]) -> None:
        """Asks whether the service was made from the schema with this hash, a `Schema`'s. Raises `SchemaMismatch` where it was not."""
        _expect(self.call("rpc.version", **options), schema)

    @property
    def statistics(self) -> Statistics:
        """What it has done so far."""
        return cast(Statistics, self._caller.statistics())

    def close(self) -> None:
        """Closes every connection; every further call fails with `Closed`."""
        self._caller.close()

    def _is_open(self) -> bool:
        return hasattr(self, "_caller") and self._caller.is_open

    def _abandon(self) -> None:
        self.close()


class Client(Watched):
    """Calls services from an event loop, any number of calls at a time.

    The loop watches one descriptor; no thread is started. A task that is cancelled while it awaits a call cancels the call, and so
    does a coroutine that is closed. Belongs to the event loop that it was made in.
    """

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        """Of the service at `http://host:port/rpc/name`. Connects with the first call; a name that is no address is looked
        up here and now."""
        super().__init__(asyncio.get_running_loop())
        self._caller = RpcCaller(url, **options)
        self._waiters: dict[int, asyncio.Future[list[Any]]] = {}
        self._watch(self._caller.fileno())

    async def call(self, method: str, params: Params = None, **options: Unpack[CallOptions]) -> Any:
        """Makes one call and returns its result."""
        return _one(await self._ask([(method, dump(params))], False, False, options))

    async def notify(self, method: str, params: Params = None, **options: Unpack[CallOptions]) -> None:
        """Has something done that has no answer; waits until the server has it."""
        await self._ask([(method, dump(params))], False, True, options)

    async def batch(self, calls: Sequence[Call], **options: Unpack[CallOptions]) -> list[Any]:
        """Makes calls together. Results come in the order of the calls, a `RemoteError` where one is an error."""
        texts = [(method, dump(params)) for method, params in calls]
        return [_read(answer) for answer in await self._ask(texts, True, False, options)]

    async def expect_schema(self, schema: bytes, **options: Unpack[CallOptions]) -> None:
        """Asks whether the service was made from the schema with this hash, a `Schema`'s. Raises `SchemaMismatch` where it was not."""
        _expect(await self.call("rpc.version", **options), schema)

    @property
    def statistics(self) -> Statistics:
        """What it has done so far."""
        return cast(Statistics, self._caller.statistics())

    async def _ask(
        self, calls: list[tuple[str, str]], batch: bool, notifies: bool, options: CallOptions
    ) -> list[Any]:
        call = self._caller.begin(calls, batch, notifies, **options)
        waiter: asyncio.Future[list[Any]] = self._loop.create_future()
        self._waiters[call] = waiter
        self._stir()
        try:
            return await waiter
        except asyncio.CancelledError:
            self._give_up(call)
            raise
        except GeneratorExit:
            self._soon(self._give_up, call)
            raise

    def _give_up(self, call: int) -> None:
        """Nobody waits for the call any more."""
        if self._waiters.pop(call, None) is not None:
            self._caller.cancel(call)
            self._stir()

    def _bring(self) -> Iterable[Event]:
        return self._caller.turn()

    def _tell(self, call: int, answered: bool, value: Any) -> None:
        waiter = self._waiters.pop(call, None)
        if waiter is None or waiter.done():
            return
        if answered:
            waiter.set_result(value)
        else:
            waiter.set_exception(value)

    def _failures(self, error: Exception) -> Iterable[Event]:
        return [(call, False, error) for call in self._waiters]

    def _disconnect(self) -> None:
        self._caller.close()
