"""Calls everything that an echo server answers: `python client.py ENDPOINT`; or takes single steps: `python client.py ENDPOINT
MILLISECONDS STEP...`. What is expected of it: conformance/matrix/README.md.
"""

import asyncio
import sys
import traceback
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from thalweg.service import Client, DeadlineExceeded, Refused, ServiceError, SyncClient, UnknownCommand

ROOT = Path(__file__).parents[3]
# The generated code lies in a folder named after its language.
sys.path.insert(0, str(ROOT / "schemas/generated"))
import probe
from python import echo_client, echo_types as types

GOLDEN = {path.stem: path.read_bytes() for path in sorted((ROOT / "schemas/golden").glob("*.bin"))}
ENDLESS = types.EchoCount(first=0, last=0xFFFF_FFFF)
UNKNOWN = b"\x91\x92\xafEchoNoSuchThing\x80"
OTHERS = (types.EchoCount, types.EchoFail, types.EchoPut, types.EchoPeek, types.EchoPeekCommitted)
"""What is not answered with what it asks."""

T = TypeVar("T")

passed = 0


def equal(found: object, expected: object) -> None:
    """Counts one call whose outcome was as expected."""
    global passed
    if found != expected:
        raise AssertionError(f"{found!r} where {expected!r} was expected")
    passed += 1


def golden(kind: type[T]) -> T:
    """The golden request of a command."""
    name = type_name(kind)
    request = types.decode_request(GOLDEN[f"echo_{name}_request"])
    assert isinstance(request, kind)
    return request


def requests() -> list[types.EchoRequest]:
    every = [types.decode_request(frame) for frame in GOLDEN.values() if frame[:1] == b"\x91"]
    return [request for request in every if not isinstance(request, OTHERS)]


def type_name(kind: type[object]) -> str:
    return kind.__name__.removeprefix("Echo").lower()


def method(echo: object, request: types.EchoRequest) -> Any:
    return getattr(echo, type_name(type(request)))


def echoed(request: types.EchoRequest, response: types.EchoResponse) -> None:
    """The response has the request's fields, NaNs included."""
    frame = types.encode_request(request)
    behind = frame[frame.index(b"Echo") + len(type(request).__name__) :]
    equal(types.encode_response(response)[-len(behind) :], behind)


async def echoes(echo: echo_client.EchoClient, request: types.EchoRequest) -> None:
    echoed(request, await method(echo, request)(request))


async def forks(echo: echo_client.EchoClient) -> None:
    fork, value = str(uuid.uuid4()), golden(types.EchoPut).value
    equal(await echo.peek(types.EchoPeek(fork=fork)), types.EchoPeekResponse())
    equal(await echo.put(types.EchoPut(fork=fork, value=value)), types.EchoPutResponse(version=1))
    equal(await echo.put(types.EchoPut(fork=fork, value=value)), types.EchoPutResponse(version=2))
    equal(await echo.peek(types.EchoPeek(fork=fork)), types.EchoPeekResponse(value=value))
    equal(await echo.peek_committed(types.EchoPeekCommitted(fork=fork)), types.EchoPeekResponse(value=value))


async def stream(echo: echo_client.EchoClient) -> None:
    values = [value async for value in echo.count(golden(types.EchoCount), credit=16)]
    counted(values)


def counted(values: Sequence[object]) -> None:
    items = [types.EchoCountItem(value=value) for value in range(1, 1001)]
    equal(list(values), [*items, types.EchoCountResponse(count=1000)])


async def refused(echo: echo_client.EchoClient) -> None:
    request = golden(types.EchoFail)
    try:
        await echo.fail(request)
    except Refused as error:
        return equal(error.detail, request.reason)
    raise AssertionError("nobody refused")


async def unknown(transport: Client) -> None:
    """A request that no service knows: an error frame, or the fault."""
    try:
        response = types.decode_response(await transport.call(UNKNOWN))
    except UnknownCommand:
        return equal(1, 1)
    equal(type(response), types.EchoErrorResponse)


async def cancelled(transport: Client, echo: echo_client.EchoClient) -> None:
    items = echo.count(ENDLESS, credit=4)
    equal(await anext(items), types.EchoCountItem(value=0))
    waits = asyncio.create_task(drain(items))
    await asyncio.sleep(0.01)
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    equal(waits.cancelled(), True)
    # Stopping early cancels too.
    async for item in echo.count(ENDLESS):
        if item == types.EchoCountItem(value=3):
            break
    await gone(transport)


async def drain(items: AsyncIterator[object]) -> None:
    async for _ in items:
        pass


async def gone(transport: Client) -> None:
    """Calls that were cancelled end."""
    while transport.in_flight:
        await asyncio.sleep(0.001)
    equal(transport.in_flight, 0)


async def overdue(transport: Client) -> None:
    frames = transport.stream(types.encode_request(ENDLESS), deadline=0.05, credit=1)
    await anext(frames)
    # Taking an item lets more come; none is taken before the deadline has passed.
    await asyncio.sleep(0.1)
    try:
        await drain(frames)
    except DeadlineExceeded as error:
        return equal(error.retry, "unknown")
    raise AssertionError("the deadline did not pass")


async def calls(endpoint: str) -> None:
    """Everything, from an event loop."""
    every = requests()
    async with await Client.connect(endpoint, schema=types.SCHEMA_HASH) as transport:
        equal(transport.is_shared, endpoint.endswith(".shm"))
        echo = echo_client.EchoClient(transport)
        for request in every:
            await echoes(echo, request)
        await forks(echo)
        await asyncio.gather(*(echoes(echo, every[number % len(every)]) for number in range(64)))
        await stream(echo)
        await refused(echo)
        await unknown(transport)
        await cancelled(transport, echo)
        await overdue(transport)
        await echoes(echo, every[0])


def waits(endpoint: str) -> None:
    """The same, waiting for each."""
    every = requests()
    with SyncClient(endpoint, schema=types.SCHEMA_HASH) as transport:
        echo = echo_client.EchoSyncClient(transport)
        for request in every:
            echoed(request, method(echo, request)(request))
        sent = [(request, transport.send(types.encode_request(request))) for request in every * 4]
        for request, call in reversed(sent):
            echoed(request, types.decode_response(transport.receive(call)))
        counted(list(echo.count(golden(types.EchoCount), credit=16)))
        try:
            echo.fail(golden(types.EchoFail))
        except Refused as error:
            equal(error.detail, golden(types.EchoFail).reason)
        else:
            raise AssertionError("nobody refused")
        left = echo.count(ENDLESS, credit=4)
        equal(next(left), types.EchoCountItem(value=0))
        del left
        echoed(every[0], method(echo, every[0])(every[0]))


def main(endpoint: str) -> int:
    try:
        asyncio.run(calls(endpoint))
        waits(endpoint)
    except (AssertionError, ServiceError):
        traceback.print_exc()
        return 1
    print(f"ok {passed}")
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case [endpoint]:
            sys.exit(main(endpoint))
        case [endpoint, within_ms, *steps]:
            asyncio.run(probe.run(endpoint, int(within_ms), steps))
