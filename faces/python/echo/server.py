"""The echo service on an event loop: `python server.py ENDPOINT`. What is expected of it: conformance/matrix/README.md."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from thalweg.service import Refused, Server

# The generated code lies in a folder named after its language.
sys.path.insert(0, str(Path(__file__).parents[3] / "schemas/generated"))
from python import echo_server, echo_types as types


class Echo:
    """Says back what it was asked."""

    def __init__(self) -> None:
        self._forks: dict[str, tuple[int, bytes]] = {}
        self._held: dict[str, asyncio.Event] = {}

    async def bytes(self, request: types.EchoBytes) -> types.EchoBytesResponse:
        return types.EchoBytesResponse(data=request.data)

    async def fields(self, request: types.EchoFields) -> types.EchoFieldsResponse:
        return types.EchoFieldsResponse(count=request.count, total=request.total, name=request.name)

    async def nested(self, request: types.EchoNested) -> types.EchoNestedResponse:
        return types.EchoNestedResponse(inner=request.inner)

    async def aliases(self, request: types.EchoAliases) -> types.EchoAliasesResponse:
        return types.EchoAliasesResponse(
            sequence_number=request.sequence_number, digest=request.digest, parent=request.parent, chain=request.chain
        )

    async def blobs(self, request: types.EchoBlobs) -> types.EchoBlobsResponse:
        return types.EchoBlobsResponse(extra=request.extra, parts=request.parts)

    async def fail(self, request: types.EchoFail) -> types.EchoFailResponse:
        raise Refused(request.reason)

    async def numbers(self, request: types.EchoNumbers) -> types.EchoNumbersResponse:
        return types.EchoNumbersResponse(
            tiny=request.tiny,
            small=request.small,
            medium=request.medium,
            large=request.large,
            signed_tiny=request.signed_tiny,
            signed_small=request.signed_small,
            signed_medium=request.signed_medium,
            signed_large=request.signed_large,
            single=request.single,
            precise=request.precise,
        )

    async def places(self, request: types.EchoPlaces) -> types.EchoPlacesResponse:
        return types.EchoPlacesResponse(
            places=request.places, counts=request.counts, grid=request.grid, mood=request.mood, named=request.named
        )

    async def count(
        self, request: types.EchoCount
    ) -> AsyncGenerator[types.EchoCountItem | types.EchoCountResponse, None]:
        for value in range(request.first, request.last + 1):
            yield types.EchoCountItem(value=value)
        yield types.EchoCountResponse(count=max(0, request.last - request.first + 1))

    async def put(self, request: types.EchoPut) -> types.EchoPutResponse:
        if request.value == b"hold":
            await self._held.setdefault(request.fork, asyncio.Event()).wait()
        version = self._forks.get(request.fork, (0, b""))[0] + 1
        self._forks[request.fork] = (version, request.value)
        return types.EchoPutResponse(version=version)

    async def peek(self, request: types.EchoPeek) -> types.EchoPeekResponse:
        return self._last(request.fork)

    async def peek_committed(self, request: types.EchoPeekCommitted) -> types.EchoPeekResponse:
        response = self._last(request.fork)
        if held := self._held.pop(request.fork, None):
            held.set()
        return response

    def _last(self, fork: str) -> types.EchoPeekResponse:
        found = self._forks.get(fork)
        return types.EchoPeekResponse(value=found and found[1])


async def main(endpoint: str) -> None:
    server = Server(echo_server.service(Echo()), endpoint)
    await server.run(ready=lambda: print("ready", flush=True))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
