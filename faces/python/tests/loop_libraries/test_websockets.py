"""websockets: servers and clients in one loop of ours."""

import asyncio

import pytest
import websockets

pytestmark = pytest.mark.anyio


async def echo(connection: websockets.ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def serve(handler=echo, **words):
    return await websockets.serve(handler, "127.0.0.1", 0, **words)


def address(server: websockets.Server) -> str:
    return "ws://127.0.0.1:%d/" % server.sockets[0].getsockname()[1]


async def test_messages_of_every_size_come_back(payload):
    async with await serve(max_size=None) as server:
        async with websockets.connect(address(server), max_size=None) as connection:
            for message in ("", "text", b"\0bytes", payload, "ä" * 70_000):
                await connection.send(message)
                assert await connection.recv() == message


async def test_many_clients_hear_what_is_told_to_all():
    connected: set[websockets.ServerConnection] = set()

    async def keep(connection: websockets.ServerConnection) -> None:
        connected.add(connection)
        await connection.wait_closed()

    async with await serve(keep) as server:

        async def listen() -> list[str]:
            async with websockets.connect(address(server)) as connection:
                return [await connection.recv() for _ in range(20)]

        listeners = [asyncio.ensure_future(listen()) for _ in range(50)]
        while len(connected) < 50:
            await asyncio.sleep(0.001)
        for number in range(20):
            websockets.broadcast(connected, str(number))
            await asyncio.sleep(0)
        for heard in await asyncio.gather(*listeners):
            assert heard == [str(number) for number in range(20)]


async def test_pings_are_answered_and_a_reason_to_close_arrives():
    async def leave(connection: websockets.ServerConnection) -> None:
        await connection.recv()
        await connection.close(4001, "enough")

    async with await serve(leave) as server:
        async with websockets.connect(address(server)) as connection:
            assert await (await connection.ping()) >= 0
            await connection.send("go")
            with pytest.raises(websockets.ConnectionClosedError) as closed:
                await connection.recv()
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "enough")


async def test_a_slow_reader_holds_its_writer_back(payload):
    sent = 0

    async def pour(connection: websockets.ServerConnection) -> None:
        nonlocal sent
        for _ in range(20):
            await connection.send(payload)
            sent += 1

    async with await serve(pour) as server:
        async with websockets.connect(address(server), max_size=None, max_queue=1) as connection:
            await asyncio.sleep(0.2)
            assert sent < 20
            for _ in range(20):
                assert await connection.recv() == payload


async def test_a_connection_cut_off_is_an_error_at_both_ends():
    over = asyncio.get_running_loop().create_future()

    async def wait(connection: websockets.ServerConnection) -> None:
        try:
            await connection.recv()
        except websockets.ConnectionClosed as closed:
            over.set_result(type(closed))

    async with await serve(wait) as server:
        async with websockets.connect(address(server)) as connection:
            connection.transport.abort()
            with pytest.raises(websockets.ConnectionClosedError):
                await connection.recv()
        assert await asyncio.wait_for(over, 60) is websockets.ConnectionClosedError
