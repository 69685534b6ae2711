"""redis, against the real server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis.asyncio as redis

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(directory) -> AsyncIterator[redis.Redis]:
    path = str(directory / "redis")
    words = ["--port", "0", "--unixsocket", path, "--save", "", "--dir", str(directory)]
    server = await asyncio.create_subprocess_exec("redis-server", *words, stdout=asyncio.subprocess.PIPE)
    while b"ready to accept connections" not in (line := await server.stdout.readline()).lower():
        assert line, "the server ended"
    async with redis.Redis(unix_socket_path=path) as client:
        yield client
    server.terminate()
    await server.communicate()


async def test_values_large_and_small_come_back(client, payload):
    for value in (b"", b"x", payload):
        assert await client.set("key", value)
        assert await client.get("key") == value


async def test_many_tasks_count_together(client):
    async def count() -> None:
        for _ in range(20):
            await client.incr("counter")

    await asyncio.gather(*(count() for _ in range(50)))
    assert await client.get("counter") == b"1000"


async def test_a_pipeline_is_one_transaction(client):
    async with client.pipeline(transaction=True) as pipeline:
        for number in range(500):
            pipeline.rpush("list", number)
        pipeline.lrange("list", 0, -1)
        *_, listed = await pipeline.execute()
    assert listed == [b"%d" % number for number in range(500)]


async def test_what_is_published_reaches_those_who_listen(client):
    async with client.pubsub() as listener:
        await listener.subscribe("news")
        assert (await listener.get_message(timeout=60))["type"] == "subscribe"
        for number in range(100):
            assert await client.publish("news", number) == 1
        for number in range(100):
            message = await listener.get_message(ignore_subscribe_messages=True, timeout=60)
            assert message["data"] == b"%d" % number


async def until_blocked(client) -> None:
    """Waits until the server knows that somebody waits: a command that is cancelled on its way there leaves the client, on any
    loop, with a connection that answers nothing.
    """
    while not (await client.info("clients"))["blocked_clients"]:
        await asyncio.sleep(0.001)


async def test_a_wait_is_ended_by_a_push_and_by_cancelling(client):
    waits = asyncio.ensure_future(client.blpop("queue", timeout=0))
    await asyncio.wait_for(until_blocked(client), 60)
    await client.rpush("queue", "pushed")
    assert await asyncio.wait_for(waits, 60) == (b"queue", b"pushed")
    waits = asyncio.ensure_future(client.blpop("queue", timeout=0))
    await asyncio.wait_for(until_blocked(client), 60)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert await client.ping()
