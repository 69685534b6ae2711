"""Many connections that are ready in one turn: what is written to them leaves together, and nothing else changes."""

import asyncio
import ctypes
import gc
import mmap
import os
import socket
import time
import unittest
from collections.abc import Callable
from typing import Any

import thalweg
from support import status_of_child

CONNECTIONS = 24
# Of x86-64 and of the generic table alike.
IO_URING_SETUP = 425

Does = Callable[["Echo", bytes], None]


def has_ring() -> bool:
    """Whether the kernel lets this process have a ring of submissions."""
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(IO_URING_SETUP, 8, ctypes.create_string_buffer(120))
    if ring >= 0:
        os.close(ring)
    return bool(ring >= 0)


def work() -> None:
    """Takes the processor for longer than an answer is to wait."""
    until = time.monotonic() + 0.001
    while time.monotonic() < until:
        pass


class Echo(asyncio.Protocol):
    """Does with what arrives as it is told."""

    transport: asyncio.Transport

    def __init__(self, does: Does) -> None:
        self.does = does
        self.told: list[str] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.does(self, data)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


class Together(unittest.TestCase):
    def setUp(self) -> None:
        self.loop = thalweg.new_event_loop()
        self.addCleanup(self.loop.close)
        self.problems: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.problems.append(context))

    def tearDown(self) -> None:
        self.assertEqual(self.problems, [])

    async def connected(self, does: Does, count: int = CONNECTIONS) -> tuple[list[Echo], list[socket.socket]]:
        echoes, peers = [], []
        for _ in range(count):
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            self.addCleanup(theirs.close)
            _, echo = await self.loop.create_connection(lambda: Echo(does), sock=ours)
            echoes.append(echo)
            peers.append(theirs)
        return echoes, peers

    def run_it(self, main: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(main, 60))

    async def receive(self, peer: socket.socket, length: int) -> bytes:
        got = b""
        while len(got) < length and (part := await self.loop.sock_recv(peer, length - len(got))):
            got += part
        return got

    def count_together(self, count: int) -> None:
        self.assertEqual(self.loop._sent_together, count if has_ring() else 0)

    def test_what_many_write_in_a_turn_shares_a_call(self) -> None:
        async def main() -> None:
            _, peers = await self.connected(lambda echo, data: echo.transport.write(data))
            for n in range(5):
                for place, peer in enumerate(peers):
                    peer.send(b"%d of %d" % (n, place))
                await asyncio.sleep(0.01)
                for place, peer in enumerate(peers):
                    self.assertEqual(peer.recv(100), b"%d of %d" % (n, place))
            self.count_together(5 * CONNECTIONS)

        self.run_it(main())

    def test_who_was_first_does_not_wait_for_all_others(self) -> None:
        arrived: list[int] = []

        async def main() -> None:
            def answer(echo: Echo, data: bytes) -> None:
                echo.transport.write(data)
                arrived.append(sum(self.has_bytes(peer) for peer in peers))

            _, peers = await self.connected(answer, count=200)
            for peer in peers:
                peer.send(b"here")
            for peer in peers:
                self.assertEqual(await self.receive(peer, 4), b"here")
            self.count_together(200)

        self.run_it(main())
        self.assertTrue(any(0 < count < 200 for count in arrived), arrived)

    def test_an_answer_does_not_wait_for_slow_callbacks_behind_it(self) -> None:
        held: list[int] = []

        async def main() -> None:
            def answer(echo: Echo, data: bytes) -> None:
                # Every answer before this one has left: the callback that gave it took a while.
                held.append(len(held) - sum(self.has_bytes(peer) for peer in peers))
                echo.transport.write(data)
                work()

            _, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"here")
            while len(held) < CONNECTIONS:
                await asyncio.sleep(0)

        self.run_it(main())
        self.assertEqual(held, [0] * CONNECTIONS)

    def test_an_answer_does_not_wait_for_slow_calls_behind_it(self) -> None:
        arrived: list[int] = []

        async def main() -> None:
            _, peers = await self.connected(lambda echo, data: echo.transport.write(data))

            def slow() -> None:
                arrived.append(sum(self.has_bytes(peer) for peer in peers))
                work()

            for peer in peers:
                peer.send(b"here")
            due = [self.loop.call_later(0, slow) for _ in range(3)][-1].when()
            while self.loop.time() <= due:
                pass
            for peer in peers:
                self.assertEqual(await self.receive(peer, 4), b"here")

        self.run_it(main())
        # They come in the turn of the descriptors, behind them.
        self.assertEqual(arrived[1:], [CONNECTIONS] * 2)

    def has_bytes(self, peer: socket.socket) -> bool:
        try:
            return bool(peer.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False

    def test_what_few_write_is_sent_at_once(self) -> None:
        def answer(echo: Echo, data: bytes) -> None:
            echo.transport.write(data)
            self.assertEqual(echo.transport.get_write_buffer_size(), 0)

        async def main() -> None:
            _, peers = await self.connected(answer, count=3)
            for peer in peers:
                peer.send(b"few")
            self.assertEqual([await self.receive(peer, 3) for peer in peers], [b"few"] * 3)

        self.run_it(main())
        self.count_together(0)

    def test_several_pieces_stay_in_order(self) -> None:
        def answer(echo: Echo, data: bytes) -> None:
            for n in range(100):
                echo.transport.write(b"%02d" % n)
            echo.transport.writelines([data, b"!"])

        async def main() -> None:
            _, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"end")
            whole = b"".join(b"%02d" % n for n in range(100)) + b"end!"
            for peer in peers:
                self.assertEqual(await self.receive(peer, len(whole)), whole)

        self.run_it(main())

    def test_more_than_a_peer_takes_arrives_whole(self) -> None:
        large = bytes(range(256)) * 32

        def answer(echo: Echo, data: bytes) -> None:
            for _ in range(64):
                echo.transport.write(large)

        async def main() -> None:
            echoes, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"more")
            await asyncio.sleep(0.05)
            self.assertTrue(all(echo.transport.get_write_buffer_size() > 0 for echo in echoes))
            for peer in peers:
                self.assertEqual(await self.receive(peer, 64 * len(large)), 64 * large)
            for echo in echoes:
                self.assertEqual(echo.told, ["pause", "resume"])
                self.assertEqual(echo.transport.get_write_buffer_size(), 0)

        self.run_it(main())

    def test_closing_sends_first_and_is_told_in_a_later_turn(self) -> None:
        order: list[str] = []

        def answer(echo: Echo, data: bytes) -> None:
            echo.transport.write(b"last words")
            self.loop.call_soon(lambda: order.append("lost" if echo.lost.done() else "soon"))
            echo.transport.close()

        async def main() -> None:
            echoes, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"close")
            self.assertEqual([await echo.lost for echo in echoes], [None] * CONNECTIONS)
            for peer in peers:
                self.assertEqual(await self.receive(peer, 100), b"last words")

        self.run_it(main())
        self.assertEqual(order, ["soon"] * CONNECTIONS)

    def test_the_end_of_writing_comes_behind_what_was_written(self) -> None:
        def answer(echo: Echo, data: bytes) -> None:
            echo.transport.write(b"all")
            echo.transport.write_eof()

        async def main() -> None:
            echoes, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"eof")
            for peer in peers:
                self.assertEqual(await self.receive(peer, 100), b"all")
            self.assertFalse(any(echo.transport.is_closing() for echo in echoes))

        self.run_it(main())

    def test_what_is_written_behind_a_close_is_lost_as_it_is_where_few_are_ready(self) -> None:
        def answer(echo: Echo, data: bytes) -> None:
            echo.transport.write(data)
            echo.transport.close()
            echo.transport.write(b"never")

        async def main() -> None:
            for count in (1, CONNECTIONS):
                echoes, peers = await self.connected(answer, count)
                for peer in peers:
                    peer.send(b"last")
                self.assertEqual([await echo.lost for echo in echoes], [None] * count)
                self.assertEqual([await self.receive(peer, 1000) for peer in peers], [b"last"] * count)

        self.run_it(main())

    def test_what_was_written_before_an_abort_leaves_as_it_does_where_few_are_ready(self) -> None:
        def answer(echo: Echo, data: bytes) -> None:
            for _ in range(100):
                echo.transport.write(b"why")
            echo.transport.abort()
            echo.transport.write(b"never")

        async def main() -> None:
            echoes, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"abort")
            self.assertEqual([await echo.lost for echo in echoes], [None] * CONNECTIONS)
            self.assertEqual([await self.receive(peer, 1000) for peer in peers], [b"why" * 100] * CONNECTIONS)

        self.run_it(main())

    def test_what_was_written_before_a_mistake_leaves_too(self) -> None:
        def answer(echo: Echo, data: bytes) -> None:
            echo.transport.write(b"why")
            raise ZeroDivisionError

        async def main() -> None:
            echoes, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"abort")
            lost = [await echo.lost for echo in echoes]
            self.assertTrue(all(isinstance(exc, ZeroDivisionError) for exc in lost), lost)
            self.assertEqual([await self.receive(peer, 1000) for peer in peers], [b"why"] * CONNECTIONS)

        self.run_it(main())
        self.assertEqual(len(self.problems), CONNECTIONS)
        self.problems.clear()

    def test_a_peer_that_is_gone_fails_alone(self) -> None:
        async def main() -> None:
            def answer(echo: Echo, data: bytes) -> None:
                peers[0].close()
                echo.transport.write(data)

            echoes, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"here")
            lost = await echoes[0].lost
            self.assertIsInstance(lost, ConnectionError)
            for peer in peers[1:]:
                self.assertEqual(await self.receive(peer, 4), b"here")
            self.assertFalse(any(echo.transport.is_closing() for echo in echoes[1:]))

        self.run_it(main())

    def test_whoever_is_told_of_one_may_end_another(self) -> None:
        async def main() -> None:
            def answer(echo: Echo, data: bytes) -> None:
                echo.transport.set_write_buffer_limits(high=8)
                for _ in range(4):
                    echo.transport.write(b"four")

            def resume() -> None:
                for echo in echoes[1:]:
                    echo.transport.abort()
                echoes[0].transport.write(b", and on")

            echoes, peers = await self.connected(answer)
            echoes[0].resume_writing = resume  # type: ignore[method-assign]
            for peer in peers:
                peer.send(b"go")
            self.assertEqual(await self.receive(peers[0], 24), b"four" * 4 + b", and on")
            self.assertEqual([await echo.lost for echo in echoes[1:]], [None] * (CONNECTIONS - 1))

        self.run_it(main())

    def test_a_peer_that_went_before_the_end_of_writing_ends_its_connection_alone(self) -> None:
        def answer(echo: Echo, data: bytes) -> None:
            echo.transport.write(data)
            echo.transport.write_eof()

        async def main() -> None:
            served: list[Echo] = []

            def made() -> Echo:
                served.append(Echo(answer))
                return served[-1]

            server = await self.loop.create_server(made, "127.0.0.1", 0)
            peers = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(CONNECTIONS)]
            while len(served) < CONNECTIONS:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            for peer in peers:
                peer.send(b"and gone")
                peer.close()
            for echo in served:
                self.assertIsInstance(await echo.lost, OSError | None)
            server.close()

        self.run_it(main())

    async def told_of_room(self, does: Callable[[Echo], None]) -> tuple[Echo, socket.socket, bytes]:
        """One with a queue, whose peer makes room in a turn in which many others are ready, and what was written to it."""
        echoes, peers = await self.connected(lambda echo, data: echo.transport.write(data))
        echo, peer, queued = echoes[0], peers[0], bytes(600_000)
        echo.resume_writing = lambda: does(echo)  # type: ignore[method-assign]
        echo.transport.set_write_buffer_limits(high=1)
        got = 0
        echo.transport.write(queued)
        self.assertTrue(echo.transport.get_write_buffer_size() > 0)
        while got < len(queued):
            try:
                while part := peer.recv(1 << 20):
                    got += len(part)
            except BlockingIOError:
                pass
            for other in peers[1:]:
                other.send(b"ready")
            await asyncio.sleep(0.01)
            for other in peers[1:]:
                self.assertEqual(other.recv(100), b"ready")
        return echo, peer, queued

    def test_what_is_written_when_there_is_room_again_leaves_nothing_watched(self) -> None:
        def write(echo: Echo) -> None:
            echo.transport.write(b"")
            echo.transport.write(b"!")

        async def main() -> None:
            echo, peer, queued = await self.told_of_room(write)
            self.assertEqual(self.loop._watched(echo.transport._sock_fd), (True, False))  # type: ignore[attr-defined]
            peer.send(b"still")
            await asyncio.sleep(0.01)
            self.assertIn(b"still", peer.recv(100))

        self.run_it(main())

    def test_closing_when_there_is_room_again_leaves_nothing_watched(self) -> None:
        def write_and_close(echo: Echo) -> None:
            echo.transport.write(b"!")
            echo.transport.close()

        async def main() -> None:
            echo, _, _ = await self.told_of_room(write_and_close)
            number = echo.transport._sock_fd  # type: ignore[attr-defined]
            self.assertIsNone(await echo.lost)
            self.assertIsNone(self.loop._watched(number))

        self.run_it(main())

    def test_the_end_of_writing_when_there_is_room_again_ends_only_that(self) -> None:
        heard: list[bytes] = []

        def write_and_end(echo: Echo) -> None:
            echo.does = lambda _, data: heard.append(data)
            echo.transport.write(b"!")
            echo.transport.write_eof()

        async def main() -> None:
            echo, peer, _ = await self.told_of_room(write_and_end)
            self.assertIn(await self.receive(peer, 100), (b"", b"!"))
            peer.send(b"still heard")
            await asyncio.sleep(0.01)
            self.assertFalse(echo.lost.done())

        self.run_it(main())
        self.assertEqual(heard, [b"still heard"])

    def test_whoever_no_longer_waits_until_all_is_sent_hurts_nobody(self) -> None:
        def answer(echo: Echo, data: bytes) -> None:
            echo.transport.write(data)
            echo.transport._make_empty_waiter().cancel()  # type: ignore[attr-defined]

        async def main() -> None:
            echoes, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"here")
            for peer in peers:
                self.assertEqual(await self.receive(peer, 4), b"here")
            self.assertFalse(any(echo.lost.done() for echo in echoes))

        self.run_it(main())

    def test_a_child_does_not_send_what_its_parent_does(self) -> None:
        class Forked(SystemExit):
            """In the child."""

        async def main() -> None:
            count = 0

            def answer(echo: Echo, data: bytes) -> None:
                nonlocal count
                count += 1
                echo.transport.write(data)
                if count < CONNECTIONS:
                    return
                child = os.fork()
                if child == 0:
                    raise Forked
                os.waitpid(child, 0)

            _, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"once")
            await asyncio.sleep(0.05)
            self.assertEqual([peer.recv(100) for peer in peers], [b"once"] * CONNECTIONS)

        try:
            self.run_it(main())
        except Forked:
            os._exit(0)

    def test_what_was_written_leaves_though_a_callback_ends_the_program(self) -> None:
        async def main() -> list[socket.socket]:
            def answer(echo: Echo, data: bytes) -> None:
                echo.transport.write(b"written")
                if echo is echoes[-1]:
                    raise SystemExit

            echoes, peers = await self.connected(answer)
            for peer in peers:
                peer.send(b"stop")
            self.kept = peers
            await asyncio.sleep(60)
            return peers

        with self.assertRaises(SystemExit):
            self.run_it(main())
        self.assertEqual([peer.recv(100) for peer in self.kept], [b"written"] * CONNECTIONS)

    def test_what_is_left_is_sent_though_whoever_is_told_of_room_ends_the_program(self) -> None:
        pieces = 70  # More than one call takes, so that some are left when there is room.

        async def main() -> None:
            def answer(echo: Echo, data: bytes) -> None:
                echo.transport.set_write_buffer_limits(high=100, low=50)
                for _ in range(pieces):
                    echo.transport.write(b"four")
                echo.transport.close()

            def resume() -> None:
                raise SystemExit

            echoes, self.kept = await self.connected(answer)
            echoes[0].resume_writing = resume  # type: ignore[method-assign]
            for peer in self.kept:
                peer.send(b"go")
            await asyncio.sleep(60)

        with self.assertRaises(SystemExit):
            self.run_it(main())
        for peer in self.kept:
            self.assertEqual(self.run_it(self.receive(peer, pieces * 4 + 1)), b"four" * pieces)

    def test_a_child_that_forks_lets_go_of_the_loop_and_hurts_nobody(self) -> None:
        async def main() -> None:
            _, peers = await self.connected(lambda echo, data: echo.transport.write(data))
            for n in range(2):
                for peer in peers:
                    peer.send(b"%d" % n)
                for peer in peers:
                    self.assertEqual(await self.receive(peer, 1), b"%d" % n)
                if n == 0:
                    self.assertEqual(status_of_child(self.fill_and_let_go), 0)

        self.run_it(main())
        self.count_together(2 * CONNECTIONS)

    def fill_and_let_go(self) -> None:
        """Fills whatever place is free, lets go of the loop, and looks at what it filled."""
        maps = [mmap.mmap(-1, 1 << 16) for _ in range(64)]
        for place in maps:
            place.write(b"ours" * (1 << 14))
        self.loop._let_go()
        self.assertTrue(all(place[:] == b"ours" * (1 << 14) for place in maps))

    def test_a_closed_loop_gives_its_ring_back(self) -> None:
        def rings() -> int:
            links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
            return sum("io_uring" in os.readlink(link) for link in links if os.path.lexists(link))

        gc.collect()
        before = rings()

        async def main() -> None:
            _, peers = await self.connected(lambda echo, data: echo.transport.write(data))
            for peer in peers:
                peer.send(b"echo")
            for peer in peers:
                self.assertEqual(await self.receive(peer, 4), b"echo")

        self.run_it(main())
        self.assertEqual(rings() - before, int(has_ring()))
        self.loop.close()
        self.assertEqual(rings(), before)


def tearDownModule() -> None:
    # What is left open is closed now, and not while others count what is.
    gc.collect()


if __name__ == "__main__":
    unittest.main()
