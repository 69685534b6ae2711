"""aiohttp: server and client in one loop of ours."""

import asyncio
import io
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

pytestmark = pytest.mark.anyio

SLOW = web.AppKey("slow", asyncio.Event)
CANCELLED = web.AppKey("cancelled", asyncio.Event)


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read(), headers={"X-Method": request.method})


async def chunks(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for number in range(int(request.query["count"])):
        await response.write(b"%d\n" % number)
        if number % 10 == 0:
            await asyncio.sleep(0)
    await response.write_eof()
    return response


async def talk(request: web.Request) -> web.WebSocketResponse:
    connection = web.WebSocketResponse()
    await connection.prepare(request)
    async for message in connection:
        if message.data == "leave":
            await connection.close(code=4000)
        else:
            await connection.send_str(message.data[::-1])
    return connection


async def slow(request: web.Request) -> web.Response:
    request.app[SLOW].set()
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        request.app[CANCELLED].set()
        raise
    return web.Response()


async def fail(request: web.Request) -> web.Response:
    raise ValueError("by request")


@pytest.fixture
async def application() -> web.Application:
    application = web.Application(client_max_size=1 << 24)
    application[SLOW], application[CANCELLED] = asyncio.Event(), asyncio.Event()
    application.add_routes(
        [
            web.route("*", "/echo", echo),
            web.get("/chunks", chunks),
            web.get("/talk", talk),
            web.get("/slow", slow),
            web.get("/fail", fail),
        ]
    )
    return application


@pytest.fixture(params=["tcp", "unix"])
async def client(request, application, directory) -> AsyncIterator[aiohttp.ClientSession]:
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    if request.param == "tcp":
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        connector, base = None, "http://127.0.0.1:%d" % runner.addresses[0][1]
    else:
        path = str(directory / "http")
        await web.UnixSite(runner, path).start()
        connector, base = aiohttp.UnixConnector(path), "http://unix"
    async with aiohttp.ClientSession(base, connector=connector) as session:
        yield session
    await runner.cleanup()


async def test_bodies_large_and_small_come_back(client, payload):
    for body in (b"", b"x", payload):
        async with client.post("/echo", data=io.BytesIO(body)) as response:
            assert response.status == 200
            assert await response.read() == body


async def test_many_requests_at_once_get_each_its_own(client):
    async def one(number: int) -> bytes:
        async with client.put("/echo", data=b"%d" % number) as response:
            assert response.headers["X-Method"] == "PUT"
            return await response.read()

    answers = await asyncio.gather(*(one(number) for number in range(300)))
    assert answers == [b"%d" % number for number in range(300)]


async def test_a_response_in_chunks_is_read_as_it_comes(client):
    async with client.get("/chunks", params={"count": 500}) as response:
        lines = [line async for line in response.content]
    assert lines == [b"%d\n" % number for number in range(500)]


async def test_a_body_that_is_made_on_the_way_arrives(client):
    async def body():
        for number in range(200):
            yield b"%d," % number
            await asyncio.sleep(0)

    async with client.post("/echo", data=body()) as response:
        assert await response.read() == b"".join(b"%d," % number for number in range(200))


async def test_websockets_talk_and_say_why_they_end(client):
    async with client.ws_connect("/talk") as connection:
        for word in ("one", "two", "x" * 70_000):
            await connection.send_str(word)
            assert await connection.receive_str() == word[::-1]
        await connection.send_str("leave")
        assert (await connection.receive()).type is aiohttp.WSMsgType.CLOSE
    assert connection.close_code == 4000


async def test_a_client_that_leaves_cancels_the_handler(client, application):
    request = asyncio.ensure_future(client.get("/slow"))
    await application[SLOW].wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await asyncio.wait_for(application[CANCELLED].wait(), 60)


async def test_a_timeout_is_a_timeout(client):
    with pytest.raises(asyncio.TimeoutError):
        await client.get("/slow", timeout=aiohttp.ClientTimeout(total=0.05))


async def test_a_handler_that_raises_is_a_status_and_the_server_goes_on(client):
    async with client.get("/fail") as response:
        assert response.status == 500
    async with client.get("/echo") as response:
        assert response.status == 200
