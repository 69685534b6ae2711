"""anyio: what it builds on a loop, on ours."""

import signal
import sys

import anyio
import pytest
from anyio import from_thread, to_process, to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

pytestmark = pytest.mark.anyio


async def test_tcp_and_unix_streams_carry_bytes_both_ways(directory, payload):
    async def echo(stream) -> None:
        async with stream:
            async for data in stream:
                await stream.send(data)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as tcp,
        await anyio.create_unix_listener(directory / "unix") as unix,
        anyio.create_task_group() as tasks,
    ):
        for listener in (tcp, unix):
            tasks.start_soon(listener.serve, echo)
        port = tcp.extra(anyio.abc.SocketAttribute.local_port)
        connections = [await anyio.connect_tcp("127.0.0.1", port), await anyio.connect_unix(directory / "unix")]
        for connection in connections:
            async with connection:
                tasks.start_soon(connection.send, payload)
                assert await BufferedByteReceiveStream(connection).receive_exactly(len(payload)) == payload
        tasks.cancel_scope.cancel()


async def test_datagrams_find_their_way():
    async with (
        await anyio.create_udp_socket(local_host="127.0.0.1") as one,
        await anyio.create_udp_socket(local_host="127.0.0.1") as other,
    ):
        to = other.extra(anyio.abc.SocketAttribute.local_address)
        for number in range(50):
            await one.sendto(b"%d" % number, *to)
            data, sender = await other.receive()
            assert data == b"%d" % number
            assert sender == one.extra(anyio.abc.SocketAttribute.local_address)


async def test_a_task_that_fails_cancels_its_group():
    cancelled = 0

    async def sleep() -> None:
        nonlocal cancelled
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled += 1
            raise

    async def fail() -> None:
        await anyio.sleep(0.01)
        raise LookupError

    with pytest.raises(BaseExceptionGroup) as raised:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(sleep)
            tasks.start_soon(fail)
    assert cancelled == 10
    assert [type(error) for error in raised.value.exceptions] == [LookupError]


async def test_timeouts_cancel_and_shields_hold():
    with anyio.move_on_after(0.01) as scope:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.02)
            shielded = True
        await anyio.sleep_forever()
    assert scope.cancelled_caught and shielded
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.01):
            await anyio.sleep_forever()


async def test_threads_call_and_are_called():
    def work(number: int) -> int:
        return from_thread.run_sync(lambda: number * 2) + from_thread.run(double, number)

    async def double(number: int) -> int:
        await anyio.sleep(0)
        return number * 2

    results: list[int] = []

    async def one(number: int) -> None:
        results.append(await to_thread.run_sync(work, number))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(one, number)
    assert sorted(results) == [number * 4 for number in range(50)]


async def test_programs_and_worker_processes_run():
    done = await anyio.run_process([sys.executable, "-c", "print(input()[::-1])"], input=b"abc\n")
    assert done.stdout == b"cba\n"
    assert await to_process.run_sync(pow, 2, 100) == 2**100
    async with await anyio.open_process(["sleep", "3600"]) as process:
        process.terminate()
        assert await process.wait() == -signal.SIGTERM


async def test_signals_are_received():
    with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
        signal.raise_signal(signal.SIGUSR1)
        async for number in signals:
            assert number == signal.SIGUSR1
            break
