"""What other threads ask of a loop that sleeps: refused before anything has changed, or done by the loop; never half of it."""

import asyncio
import gc
import os
import socket
import sys
import tempfile
import threading
import time
import unittest
import warnings
from collections.abc import Callable
from typing import Any

import thalweg

MANY = 3_000_000
"""Bytes that no socket takes at once."""


class Hears(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.data = b""
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def datagram_received(self, data: bytes, sender: Any) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


async def elsewhere(call: Callable[[], object]) -> BaseException | None:
    """Calls something in another thread while the loop sleeps, and waits for nothing else: what it raised."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[BaseException | None] = loop.create_future()

    def ask() -> None:
        time.sleep(0.02)
        raised: BaseException | None = None
        try:
            call()
        except BaseException as error:
            raised = error
        # The loop sleeps until then, however long this thread takes.
        loop.call_soon_threadsafe(asked.set_result, raised)

    thread = threading.Thread(target=ask)
    thread.start()
    raised = await asked
    thread.join()
    return raised


class Threads(unittest.IsolatedAsyncioTestCase):
    if hasattr(unittest.IsolatedAsyncioTestCase, "loop_factory"):
        loop_factory = staticmethod(thalweg.new_event_loop)
    else:

        def _setupAsyncioRunner(self) -> None:
            self._asyncioRunner = asyncio.Runner(debug=True, loop_factory=thalweg.new_event_loop)

    async def asyncSetUp(self) -> None:
        self.assertIsInstance(asyncio.get_running_loop(), thalweg.loop.EventLoop)
        self.transports: list[Any] = []

    async def asyncTearDown(self) -> None:
        for transport in self.transports:
            transport.abort()
        await asyncio.sleep(0)

    async def connection(self) -> tuple[Any, Hears, socket.socket]:
        ours, theirs = socket.socketpair()
        self.addCleanup(theirs.close)
        theirs.setblocking(False)
        transport, protocol = await asyncio.get_running_loop().create_connection(Hears, sock=ours)
        self.transports.append(transport)
        return transport, protocol, theirs

    async def received(self, sock: socket.socket) -> bytes:
        """All until the end."""
        data = b""
        while piece := await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
            data += piece
        return data

    async def test_a_connection_that_another_thread_closes_ends(self) -> None:
        for end in ("close", "abort"):
            transport, protocol, theirs = await self.connection()
            # The thread wakes the loop, which has nothing else to wait for.
            timer = threading.Timer(0.02, getattr(transport, end))
            timer.start()
            await asyncio.wait_for(protocol.lost.wait(), 60)
            self.assertEqual(await asyncio.wait_for(self.received(theirs), 60), b"")
            self.assertTrue(transport.is_closing())
            transport.close()
            transport.abort()

    async def test_what_waits_is_sent_before_another_thread_has_closed(self) -> None:
        transport, protocol, theirs = await self.connection()
        transport.write(bytes(MANY))
        self.assertIsNone(await elsewhere(transport.close))
        self.assertEqual(len(await asyncio.wait_for(self.received(theirs), 60)), MANY)
        await asyncio.wait_for(protocol.lost.wait(), 60)

    async def test_reading_that_another_thread_may_not_pause_goes_on(self) -> None:
        transport, protocol, theirs = await self.connection()
        self.assertIsInstance(await elsewhere(transport.pause_reading), RuntimeError)
        self.assertTrue(transport.is_reading())
        theirs.send(b"x")
        await asyncio.sleep(0.02)
        transport.pause_reading()
        theirs.send(b"y")
        await asyncio.sleep(0.02)
        self.assertEqual(protocol.data, b"x")
        self.assertIsInstance(await elsewhere(transport.resume_reading), RuntimeError)
        self.assertFalse(transport.is_reading())
        transport.resume_reading()
        await asyncio.sleep(0.02)
        self.assertEqual(protocol.data, b"xy")

    async def test_what_another_thread_writes_is_sent_whole_and_in_order(self) -> None:
        transport, _, theirs = await self.connection()
        self.assertIsNone(await elsewhere(lambda: transport.write(b"w" * MANY)))
        self.assertGreater(transport.get_write_buffer_size(), 0)
        transport.write(b"end")
        transport.close()
        data = await asyncio.wait_for(self.received(theirs), 60)
        self.assertEqual((len(data), data[-4:]), (MANY + 3, b"wend"))

    async def test_an_endpoint_of_datagrams_does_the_same(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(theirs.close)
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_datagram_endpoint(Hears, sock=ours)
        self.assertIsNone(await elsewhere(lambda: [transport.sendto(b"%d" % number) for number in range(1000)]))
        theirs.setblocking(False)
        told = [await asyncio.wait_for(loop.sock_recv(theirs, 10), 60) for _ in range(1000)]
        self.assertEqual(told, [b"%d" % number for number in range(1000)])
        self.assertIsNone(await elsewhere(transport.close))
        await asyncio.wait_for(protocol.lost.wait(), 60)

    async def test_a_server_that_another_thread_closes_takes_nobody(self) -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        self.assertIsNone(await elsewhere(server.close))
        with self.assertRaises(ConnectionRefusedError):
            await asyncio.open_connection(*address)

    async def test_what_another_thread_closes_is_closed_by_a_loop_that_is_awake_too(self) -> None:
        loop: Any = asyncio.get_running_loop()
        path = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "socket")
        server = await asyncio.start_unix_server(lambda _, writer: writer.close(), path)
        listener = server.sockets[0].fileno()
        source, sink = os.pipe()
        self.addCleanup(os.close, sink)
        reading, protocol = await loop.connect_read_pipe(Hears, os.fdopen(source, "rb", 0))
        await asyncio.sleep(0)
        watched = [loop._watched(each) for each in (listener, source)]
        self.assertEqual(watched, [(True, False), (True, False)])
        for close in server.close, reading.close:
            thread = threading.Thread(target=close)
            thread.start()
            thread.join()
        # It could have gone to sleep at any moment meanwhile.
        self.assertEqual([loop._watched(each) for each in (listener, source)], watched)
        await asyncio.wait_for(protocol.lost.wait(), 60)
        self.assertEqual([loop._watched(each) for each in (listener, source)], [None, None])
        # From Python 3.13 on the path goes with its server.
        with self.assertRaises((ConnectionRefusedError, FileNotFoundError)):
            await asyncio.open_unix_connection(path)

    async def test_a_peer_is_told_when_the_collector_runs_in_another_thread(self) -> None:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            ended.set()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        gc.disable()
        self.addCleanup(gc.enable)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            cycle: list[Any] = [*await asyncio.open_connection(*server.sockets[0].getsockname())]
            cycle.append(cycle)
            del cycle
            raised: list[object] = []
            before, sys.unraisablehook = sys.unraisablehook, raised.append
            self.addCleanup(setattr, sys, "unraisablehook", before)
            timer = threading.Timer(0.02, gc.collect)
            timer.start()
            await asyncio.wait_for(ended.wait(), 60)
        self.assertEqual(raised, [])
        server.close()

    async def test_a_pipe_that_another_thread_closes_ends(self) -> None:
        loop = asyncio.get_running_loop()
        for end in ("close", "abort"):
            source, sink = os.pipe()
            writing, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(sink, "wb", 0))
            reading, protocol = await loop.connect_read_pipe(Hears, os.fdopen(source, "rb", 0))
            timer = threading.Timer(0.02, getattr(writing, end))
            timer.start()
            await asyncio.wait_for(protocol.lost.wait(), 60)
            await asyncio.sleep(0)
            for pipe in (writing, reading):
                pipe.close()
        source, sink = os.pipe()
        reading, protocol = await loop.connect_read_pipe(Hears, os.fdopen(source, "rb", 0))
        timer = threading.Timer(0.02, reading.close)
        timer.start()
        await asyncio.wait_for(protocol.lost.wait(), 60)
        os.close(sink)


class Turns(unittest.TestCase):
    def test_what_another_thread_closes_in_the_last_turn_is_closed(self) -> None:
        loop: Any = thalweg.new_event_loop()
        self.addCleanup(loop.close)

        async def start() -> asyncio.Server:
            return await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)

        server = loop.run_until_complete(start())
        address = server.sockets[0].getsockname()

        def close_elsewhere() -> None:
            thread = threading.Thread(target=server.close)
            thread.start()
            thread.join()

        loop.call_soon(loop.stop)
        loop.call_soon(close_elsewhere)
        loop.run_forever()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(address).close()

    def test_who_connected_before_another_thread_closed_the_server_is_turned_away_without_a_word(self) -> None:
        loop: Any = thalweg.new_event_loop()
        self.addCleanup(loop.close)
        problems: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: problems.append(context))
        made: list[Hears] = []

        def make() -> Hears:
            made.append(Hears())
            return made[-1]

        server = loop.run_until_complete(loop.create_server(make, "127.0.0.1", 0))
        ours, theirs = socket.socketpair()
        with ours, theirs:

            def close_elsewhere() -> None:
                loop.remove_reader(ours)
                thread = threading.Thread(target=server.close)
                thread.start()
                thread.join()
                loop.stop()

            # One turn finds both, and this one first.
            loop.add_reader(ours, close_elsewhere)
            theirs.send(b"x")
            with socket.create_connection(server.sockets[0].getsockname()) as peer:
                peer.settimeout(60)
                loop.run_forever()
                if not made:
                    self.assertEqual(peer.recv(1), b"")
        self.assertEqual(problems, [])

    def test_a_child_that_another_thread_forked_closes_what_it_has_itself(self) -> None:
        loop: Any = thalweg.new_event_loop()
        self.addCleanup(loop.close)

        async def main() -> int:
            server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
            listener = server.sockets[0].fileno()

            def fork() -> int:
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        server.close()
                        os.fstat(listener)
                    except OSError:
                        code = 0
                    finally:
                        os._exit(code)
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

            code = await asyncio.to_thread(fork)
            server.close()
            return code

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.assertEqual(loop.run_until_complete(main()), 0)


if __name__ == "__main__":
    unittest.main()
