"""The client that takes single steps and says how each ended: what is wrong is at the other end, and is for the program
that started this to report. The steps stand in conformance/matrix/README.md.
"""

import asyncio
from collections.abc import Awaitable

from python import echo_client, echo_types as types
from thalweg.messagepack import DecodeError
from thalweg.service import Client, ServiceError

REQUEST = types.EchoFields(count=7, total=9, name="step")
LARGE_BYTES = (16 << 20) + 1
"""More than a frame may have unless said otherwise."""


async def run(endpoint: str, within_ms: int, steps: list[str]) -> None:
    """Takes the steps."""
    try:
        client = await Client.connect(endpoint, schema=types.SCHEMA_HASH, connect_within=within_ms / 1000)
    except ServiceError as error:
        return said(error)
    async with client:
        for step in steps:
            await take(client, step)


async def take(client: Client, step: str) -> None:
    echo = echo_client.EchoClient(client)
    match step:
        case "echo":
            await outcome(echo.fields(REQUEST))
        case "late":
            await outcome(echo.fields(REQUEST, deadline=0.05))
        case "cancel":
            await cancelled(echo)
        case "large":
            await outcome(client.call(bytes(LARGE_BYTES)))
        case frame:
            await outcome(client.call(bytes.fromhex(frame.removeprefix("x"))))


async def outcome(call: Awaitable[object]) -> None:
    try:
        response = await call
    except DecodeError:
        print("decode")
    except ServiceError as error:
        said(error)
    else:
        expected = types.EchoFieldsResponse(count=7, total=9, name="step")
        print("ok" if isinstance(response, bytes) or response == expected else response)


async def cancelled(echo: echo_client.EchoClient) -> None:
    """Begins a call and gives it up."""
    call = asyncio.create_task(echo.fields(REQUEST))
    # So that the request has left.
    for _ in range(3):
        await asyncio.sleep(0)
    call.cancel()
    try:
        await outcome(call)
    except asyncio.CancelledError:
        print("cancelled unknown")


def said(error: ServiceError) -> None:
    print(type(error).__name__, error.retry)
