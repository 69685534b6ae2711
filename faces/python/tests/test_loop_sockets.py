"""Bare sockets and those that a server listens at, in a loop of ours."""

import array
import asyncio
import contextlib
import contextvars
import errno
import functools
import gc
import os
import resource
import socket
import ssl
import tempfile
import time
import unittest
from asyncio import constants
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from unittest import mock

import thalweg
from support import bind_to_the_brim


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.loop = thalweg.new_event_loop()
        self.addCleanup(self.loop.close)
        self.problems: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.problems.append(context))

    def run_it(self, main: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(main, 60))

    def pair(self, kind: int = socket.SOCK_STREAM) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        for each in (ours, theirs):
            each.setblocking(False)
            self.addCleanup(each.close)
        return ours, theirs

    def watched(self, sock: socket.socket) -> object:
        return self.loop._watched(sock.fileno())


class Waits(Case):
    def test_what_is_not_there_yet_is_waited_for_and_then_nothing_is_watched(self) -> None:
        ours, theirs = self.pair()
        into = bytearray(8)

        async def main() -> None:
            for receive in (
                self.loop.sock_recv(ours, 8),
                self.loop.sock_recv_into(ours, into),
                self.loop.sock_recvfrom(ours, 8),
                self.loop.sock_recvfrom_into(ours, into),
            ):
                waits = asyncio.ensure_future(receive)
                await asyncio.sleep(0)
                self.assertEqual(self.watched(ours), (True, False))
                theirs.send(b"bytes")
                self.assertIn(await waits, (b"bytes", 5, (b"bytes", None), (5, None)))
                self.assertIsNone(self.watched(ours))
            theirs.close()
            self.assertEqual(await self.loop.sock_recv(ours, 8), b"")

        self.run_it(main())
        self.assertEqual(into[:5], b"bytes")

    def test_all_bytes_are_sent_however_small_the_bites(self) -> None:
        ours, theirs = self.pair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        numbers = array.array("I", range(100_000))
        payload = numbers.tobytes()

        async def main() -> None:
            for data in (payload, bytearray(payload), memoryview(numbers), b""):
                sends = asyncio.ensure_future(self.loop.sock_sendall(ours, data))
                came = bytearray()
                while len(came) < memoryview(data).nbytes:
                    came += await self.loop.sock_recv(theirs, 1 << 16)
                self.assertIsNone(await sends)
                self.assertEqual(came, bytes(data))
                self.assertIsNone(self.watched(ours))

        self.run_it(main())

    def test_a_wait_that_is_cancelled_watches_nothing(self) -> None:
        ours, theirs = self.pair()

        async def main() -> None:
            waits = asyncio.ensure_future(self.loop.sock_recv(ours, 1))
            await asyncio.sleep(0)
            waits.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waits
            self.assertIsNone(self.watched(ours))
            theirs.send(b"x")
            self.assertEqual(await self.loop.sock_recv(ours, 1), b"x")

        self.run_it(main())
        self.assertEqual(self.problems, [])

    async def is_cancelled_as_it_came(self, wait: Coroutine[Any, Any, Any], come: Callable[[], object]) -> bool:
        """Has a wait cancelled in the very turn in which what it waits for came; whether it was."""
        waits = asyncio.ensure_future(wait)
        await asyncio.sleep(0.001)
        come()
        self.loop.call_soon(waits.cancel)
        # So long that the kernel is asked in the turn in which it is cancelled.
        time.sleep(0.0005)
        await asyncio.wait([waits])
        return waits.cancelled()

    def test_a_wait_that_is_cancelled_as_bytes_come_leaves_them_to_the_next(self) -> None:
        ours, theirs = self.pair()
        into = bytearray(8)

        async def main() -> None:
            for receive in (
                lambda: self.loop.sock_recv(ours, 8),
                lambda: self.loop.sock_recv_into(ours, into),
                lambda: self.loop.sock_recvfrom(ours, 8),
                lambda: self.loop.sock_recvfrom_into(ours, into),
            ):
                for _ in range(20):
                    if await self.is_cancelled_as_it_came(receive(), lambda: theirs.send(b"bytes")):
                        self.assertEqual(ours.recv(8), b"bytes")
                    self.assertIsNone(self.watched(ours))

        self.run_it(main())
        self.assertEqual(self.problems, [])

    def test_a_wait_that_is_cancelled_as_somebody_connects_leaves_the_connection_to_the_next(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)

            async def main() -> None:
                for _ in range(20):
                    with socket.socket() as near:
                        connect = functools.partial(near.connect, listener.getsockname())
                        if await self.is_cancelled_as_it_came(self.loop.sock_accept(listener), connect):
                            connection, _ = await asyncio.wait_for(self.loop.sock_accept(listener), 60)
                            connection.close()

            self.run_it(main())

    async def is_cancelled_as_it_is_told(self, wait: Awaitable[Any], come: Callable[[], object]) -> bool:
        """Has a wait cancelled once the loop has told it that something came, and before it goes on; whether it was."""
        waits = asyncio.ensure_future(wait)
        await asyncio.sleep(0.001)
        # Timers are called behind what descriptors brought in the same turn.
        self.loop.call_later(0.0002, waits.cancel)
        come()
        time.sleep(0.0005)
        await asyncio.wait([waits])
        return waits.cancelled()

    def test_a_wait_that_is_cancelled_after_bytes_came_leaves_them_to_the_next(self) -> None:
        ours, theirs = self.pair()
        into = bytearray(8)
        cancelled = 0

        async def main() -> None:
            nonlocal cancelled
            for receive in (
                lambda: self.loop.sock_recv(ours, 8),
                lambda: self.loop.sock_recv_into(ours, into),
                lambda: self.loop.sock_recvfrom(ours, 8),
                lambda: self.loop.sock_recvfrom_into(ours, into),
            ):
                for _ in range(20):
                    if await self.is_cancelled_as_it_is_told(receive(), lambda: theirs.send(b"bytes")):
                        cancelled += 1
                        self.assertEqual(ours.recv(8), b"bytes")
                    self.assertIsNone(self.watched(ours))

        self.run_it(main())
        self.assertGreater(cancelled, 0)
        self.assertEqual(self.problems, [])

    def test_a_wait_that_is_cancelled_after_somebody_connected_leaves_the_connection_to_the_next(self) -> None:
        cancelled = 0
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)

            async def main() -> None:
                nonlocal cancelled
                for _ in range(20):
                    with socket.socket() as near:
                        connect = functools.partial(near.connect, listener.getsockname())
                        accepts = asyncio.ensure_future(self.loop.sock_accept(listener))
                        if await self.is_cancelled_as_it_is_told(accepts, connect):
                            cancelled += 1
                            accepts = asyncio.ensure_future(self.loop.sock_accept(listener))
                        connection, _ = await asyncio.wait_for(accepts, 60)
                        connection.close()

            self.run_it(main())
        self.assertGreater(cancelled, 0)
        self.assertEqual(self.problems, [])

    def test_a_send_that_is_cancelled_as_there_is_room_sends_no_more(self) -> None:
        ours, theirs = self.pair()

        async def main() -> None:
            sent = 0
            for _ in range(20):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        sent += ours.send(bytes(1 << 16))
                taken = 0

                def take() -> None:
                    nonlocal taken
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            taken += len(theirs.recv(1 << 16))

                if await self.is_cancelled_as_it_came(self.loop.sock_sendall(ours, b"x" * 100), take):
                    self.assertEqual(taken, sent)
                    self.assertRaises(BlockingIOError, theirs.recv, 1)
                take()
                sent = 0

        self.run_it(main())

    def test_a_unix_listener_whose_queue_is_full_is_waited_for(self) -> None:
        async def main(place: str) -> None:
            with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as near:
                listener.bind(place)
                listener.listen(0)
                listener.setblocking(False)

                async def connect() -> socket.socket:
                    sock = near.enter_context(socket.socket(socket.AF_UNIX))
                    sock.setblocking(False)
                    await self.loop.sock_connect(sock, place)
                    return sock

                self.assertEqual((await connect()).getpeername(), place)
                waits = [asyncio.ensure_future(connect()) for _ in range(3)]
                await asyncio.wait(waits, timeout=0.05)
                self.assertFalse(all(each.done() for each in waits))
                # A waiter that is cancelled leaves nothing behind.
                waits.pop().cancel()
                for _ in range(len(waits) + 1):
                    (await self.loop.sock_accept(listener))[0].close()
                for each in await asyncio.gather(*waits):
                    self.assertEqual(each.recv(1), b"")

        with tempfile.TemporaryDirectory() as directory:
            self.run_it(main(os.path.join(directory, "full")))

    def test_who_takes_anothers_place_keeps_it_when_the_other_is_cancelled(self) -> None:
        ours, theirs = self.pair()

        async def main() -> None:
            first = asyncio.ensure_future(self.loop.sock_recv(ours, 1))
            await asyncio.sleep(0)
            second = asyncio.ensure_future(self.loop.sock_recv(ours, 1))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            theirs.send(b"x")
            self.assertEqual(await second, b"x")

        self.run_it(main())

    def test_connections_are_made_and_taken_and_a_refusal_says_where(self) -> None:
        async def main() -> None:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                listener.setblocking(False)
                address = listener.getsockname()
                takes = asyncio.ensure_future(self.loop.sock_accept(listener))
                await asyncio.sleep(0)
                with socket.socket() as near:
                    near.setblocking(False)
                    await self.loop.sock_connect(near, ("localhost", address[1]))
                    far, peer = await takes
                    with far:
                        self.assertEqual((peer, far.gettimeout()), (near.getsockname(), 0.0))
            with socket.socket() as near:
                near.setblocking(False)
                with self.assertRaisesRegex(ConnectionRefusedError, f"Connect call failed .*{address[1]}") as refused:
                    await self.loop.sock_connect(near, address)
                self.assertEqual(refused.exception.errno, errno.ECONNREFUSED)
                self.assertIsNone(self.watched(near))

        self.run_it(main())

    def test_who_keeps_a_refusal_keeps_no_cycle(self) -> None:
        async def main() -> None:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                address = listener.getsockname()
            with socket.socket() as near:
                near.setblocking(False)
                try:
                    await self.loop.sock_connect(near, address)
                except ConnectionRefusedError as refused:
                    # The turn that brings it knows the future itself.
                    await asyncio.sleep(0)
                    keepers = [each for each in gc.get_referrers(refused) if isinstance(each, asyncio.Future)]
                    self.assertEqual(keepers, [])
                else:
                    self.fail("nobody listens there")

        self.run_it(main())

    def test_a_socket_has_one_transport(self) -> None:
        ours, _ = self.pair()
        datagrams, _ = self.pair(socket.SOCK_DGRAM)

        async def main() -> None:
            transport, _ = await self.loop.connect_accepted_socket(asyncio.Protocol, ours)
            with self.assertRaisesRegex(RuntimeError, "is used by transport"):
                await self.loop.connect_accepted_socket(asyncio.Protocol, ours)
            with self.assertRaisesRegex(RuntimeError, "is used by transport"):
                await self.loop.create_connection(asyncio.Protocol, sock=ours, ssl=True, server_hostname="")
            self.assertEqual(self.watched(ours), (True, False))
            other, _ = await self.loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=datagrams)
            with self.assertRaisesRegex(RuntimeError, "is used by transport"):
                await self.loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=datagrams)
            for each in transport, other:
                each.abort()
            await asyncio.sleep(0)

        self.run_it(main())

    def test_datagrams_go_to_whom_they_are_for(self) -> None:
        async def main() -> None:
            with socket.socket(type=socket.SOCK_DGRAM) as one, socket.socket(type=socket.SOCK_DGRAM) as other:
                for each in (one, other):
                    each.bind(("127.0.0.1", 0))
                    each.setblocking(False)
                self.assertEqual(await self.loop.sock_sendto(one, b"said", other.getsockname()), 4)
                self.assertEqual(await self.loop.sock_recvfrom(other, 10), (b"said", one.getsockname()))

        self.run_it(main())

    def test_what_cannot_be_awaited_is_refused(self) -> None:
        ours, theirs = self.pair()

        async def main() -> None:
            transport, _ = await self.loop.connect_accepted_socket(asyncio.Protocol, ours)
            with self.assertRaisesRegex(RuntimeError, "is used by transport"):
                await self.loop.sock_recv(ours, 1)
            transport.abort()
            self.loop.set_debug(True)
            theirs.setblocking(True)
            with self.assertRaisesRegex(ValueError, "non-blocking"):
                await self.loop.sock_recv(theirs, 1)
            self.loop.set_debug(False)
            theirs.close()
            for operation in (
                self.loop.sock_recv(theirs, 1),
                self.loop.sock_sendall(theirs, b"x"),
                self.loop.sock_sendall(theirs, b""),
                self.loop.sock_accept(theirs),
            ):
                with self.assertRaises(OSError) as closed:
                    await operation
                self.assertEqual(closed.exception.errno, errno.EBADF)

        self.run_it(main())


class Serving(Case):
    def test_many_connections_at_once_each_have_a_protocol_and_a_context_of_their_own(self) -> None:
        which: contextvars.ContextVar[str] = contextvars.ContextVar("which", default="nobody's")
        which.set("the server's")
        made: list[tuple[str, Any]] = []

        class Named(asyncio.Protocol):
            def __init__(self) -> None:
                self.found = which.get()
                which.set(f"number {len(made)}")

            def connection_made(self, transport: Any) -> None:
                made.append((self.found, transport.get_extra_info("peername")))
                transport.write(which.get().encode())
                transport.close()

        async def main() -> None:
            server = await self.loop.create_server(Named, "127.0.0.1", 0)
            near = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(20)]
            said = []
            for each in near:
                each.setblocking(False)
                said.append(await self.loop.sock_recv(each, 100))
                self.assertIn(("the server's", each.getsockname()), made)
                each.close()
            self.assertTrue(all(word.startswith(b"number ") for word in said), said)
            server.close()
            await server.wait_closed()

        self.run_it(main())
        self.assertEqual((len(made), which.get(), self.problems), (20, "the server's", []))

    def test_unix_peers_have_their_names(self) -> None:
        peers: list[object] = []

        class Peer(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                peers.append(transport.get_extra_info("peername"))
                transport.close()

        async def main() -> None:
            with tempfile.TemporaryDirectory() as directory:
                path, named = os.path.join(directory, "server"), os.path.join(directory, "client")
                server = await self.loop.create_unix_server(Peer, path)
                for name in (None, named):
                    with socket.socket(socket.AF_UNIX) as near:
                        near.setblocking(False)
                        if name is not None:
                            near.bind(name)
                        await self.loop.sock_connect(near, path)
                        self.assertEqual(await self.loop.sock_recv(near, 1), b"")
                server.close()
                self.assertEqual(peers, ["", named])

        self.run_it(main())

    def test_a_unix_peer_whose_path_fills_its_room_is_named_whole(self) -> None:
        peers: list[object] = []

        class Peer(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                peers.append(transport.get_extra_info("peername"))
                transport.close()

        async def main() -> None:
            with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as near:
                path = os.path.join(directory, "server")
                server = await self.loop.create_unix_server(Peer, path)
                near.setblocking(False)
                named = bind_to_the_brim(near, directory)
                await self.loop.sock_connect(near, path)
                self.assertEqual(await self.loop.sock_recv(near, 1), b"")
                server.close()
                self.assertEqual(peers, [named])

        self.run_it(main())
        self.assertEqual(self.problems, [])

    def test_one_behind_tls_that_raises_is_reported_too(self) -> None:
        def factory() -> asyncio.Protocol:
            raise ZeroDivisionError("by request")

        async def main() -> None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server = await self.loop.create_server(factory, "127.0.0.1", 0, ssl=tls)
            with socket.create_connection(server.sockets[0].getsockname()) as lost:
                lost.setblocking(False)
                self.assertEqual(await self.loop.sock_recv(lost, 1), b"")
            server.close()

        self.loop.set_debug(False)
        self.run_it(main())
        self.assertEqual([type(problem["exception"]) for problem in self.problems], [ZeroDivisionError])

    def test_a_factory_that_raises_loses_its_connection_and_no_other(self) -> None:
        fails = [True, False]

        def factory() -> asyncio.Protocol:
            if fails.pop(0):
                raise ZeroDivisionError("by request")
            return asyncio.Protocol()

        async def main() -> None:
            server = await self.loop.create_server(factory, "127.0.0.1", 0)
            lost, kept = (socket.create_connection(server.sockets[0].getsockname()) for _ in range(2))
            with lost, kept:
                lost.setblocking(False)
                self.assertEqual(await self.loop.sock_recv(lost, 1), b"")
                while fails:
                    await asyncio.sleep(0)
            server.close()

        self.run_it(main())
        self.assertEqual([type(problem["exception"]) for problem in self.problems], [ZeroDivisionError])

    def test_a_server_that_a_connection_closes_takes_no_more(self) -> None:
        made: list[object] = []

        async def main() -> None:
            def factory() -> asyncio.Protocol:
                made.append(None)
                server.close()
                return asyncio.Protocol()

            server = await self.loop.create_server(factory, "127.0.0.1", 0)
            near = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(3)]
            while not made:
                await asyncio.sleep(0)
            for each in near:
                each.close()
            await asyncio.sleep(0)

        self.run_it(main())
        self.assertEqual((len(made), self.problems), (1, []))

    def test_without_descriptors_it_says_so_and_serves_again_when_there_are_some(self) -> None:
        class Greeting(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                transport.write(b"hello")
                transport.close()

        async def main() -> None:
            server = await self.loop.create_server(Greeting, "127.0.0.1", 0)
            with socket.create_connection(server.sockets[0].getsockname()) as near:
                near.setblocking(False)
                before = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.setrlimit(resource.RLIMIT_NOFILE, (near.fileno() + 1, before[1]))
                spare = []
                try:
                    while True:
                        spare.append(os.dup(near.fileno()))
                except OSError:
                    pass
                try:
                    while not self.problems:
                        await asyncio.sleep(0)
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, before)
                    for each in spare:
                        os.close(each)
                self.assertEqual(await self.loop.sock_recv(near, 10), b"hello")
            server.close()
            await server.wait_closed()

        with mock.patch.object(constants, "ACCEPT_RETRY_DELAY", 0.01):
            self.run_it(main())
        self.assertEqual(self.problems[0]["exception"].errno, errno.EMFILE)


def tearDownModule() -> None:
    # What is left open is closed now, and not while others count what is.
    gc.collect()


if __name__ == "__main__":
    unittest.main()
