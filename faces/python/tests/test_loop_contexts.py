"""What a connection tells its protocol, it tells in the context in which the connection was made."""

import asyncio
import contextvars
import gc
import socket
import unittest
from typing import Any

import thalweg

whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")


class Notes(asyncio.Protocol, asyncio.DatagramProtocol):
    """Notes in whose context it is told of what."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self.lost = asyncio.get_running_loop().create_future()

    def note(self, what: str) -> None:
        self.seen[what] = whose.get()

    def connection_made(self, transport: Any) -> None:
        self.note("made")

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def data_received(self, data: bytes) -> None:
        self.note("data")

    def eof_received(self) -> bool:
        self.note("eof")
        return True

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.note("data")

    def error_received(self, error: Exception) -> None:
        self.note("error")

    def connection_lost(self, error: Exception | None) -> None:
        self.note("lost")
        self.lost.set_result(error)


class Buffered(Notes, asyncio.BufferedProtocol):
    """The same for a protocol that lends a buffer."""

    def get_buffer(self, size: int) -> bytearray:
        self.note("buffer")
        return bytearray(10)

    def buffer_updated(self, count: int) -> None:
        self.note("updated")


class Contexts(unittest.TestCase):
    def setUp(self) -> None:
        self.loop = thalweg.new_event_loop()
        self.addCleanup(self.loop.close)
        self.heard: list[str] = []
        self.loop.set_exception_handler(lambda *_: self.heard.append(whose.get()))

    def pair(self, kind: int = socket.SOCK_STREAM) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        theirs.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.addCleanup(theirs.close)
        return ours, theirs

    async def take_all(self, theirs: socket.socket, until: "asyncio.Future[Any]") -> None:
        while not until.done():
            try:
                theirs.recv(1 << 20)
            except BlockingIOError:
                pass
            await asyncio.sleep(0.001)

    def run_it(self, main: Any) -> None:
        self.loop.run_until_complete(asyncio.wait_for(main, 60))

    def test_room_and_the_end_are_told_in_the_connections_own(self) -> None:
        async def main() -> None:
            ours, theirs = self.pair()
            whose.set("the connection's")
            transport, notes = await self.loop.create_connection(Notes, sock=ours)
            whose.set("the writer's")
            transport.write(bytes(1 << 20))
            transport.close()
            await self.take_all(theirs, notes.lost)
            mine = dict.fromkeys(("made", "resume", "lost"), "the connection's")
            self.assertEqual(notes.seen, {**mine, "pause": "the writer's"})

        self.run_it(main())

    def test_room_and_the_end_of_datagrams_are_told_in_the_endpoints_own(self) -> None:
        async def main() -> None:
            ours, theirs = self.pair(socket.SOCK_DGRAM)
            whose.set("the endpoint's")
            transport, notes = await self.loop.create_datagram_endpoint(Notes, sock=ours)
            whose.set("the writer's")
            transport.set_write_buffer_limits(high=1000)
            for _ in range(100):
                transport.sendto(bytes(1000))
            transport.close()
            await self.take_all(theirs, notes.lost)
            mine = dict.fromkeys(("made", "resume", "lost"), "the endpoint's")
            self.assertEqual(notes.seen, {**mine, "pause": "the writer's"})

        self.run_it(main())

    def test_what_the_system_says_of_a_datagram_is_told_in_the_endpoints_own(self) -> None:
        async def main() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
                nobody.bind(("127.0.0.1", 0))
                address = nobody.getsockname()
            whose.set("the endpoint's")
            transport, notes = await self.loop.create_datagram_endpoint(Notes, remote_addr=address)
            whose.set("the writer's")
            transport.sendto(b"x")
            while "error" not in notes.seen:
                await asyncio.sleep(0.001)
            self.assertEqual(notes.seen["error"], "the endpoint's")
            transport.close()
            await notes.lost

        self.run_it(main())

    def test_bytes_and_their_end_are_told_in_the_connections_own(self) -> None:
        async def main(factory: type[Notes], told: set[str]) -> None:
            ours, theirs = self.pair()
            whose.set("the connection's")
            transport, notes = await self.loop.create_connection(factory, sock=ours)
            whose.set("the reader's")
            theirs.send(b"bytes")
            theirs.shutdown(socket.SHUT_WR)
            while "eof" not in notes.seen:
                await asyncio.sleep(0.001)
            transport.close()
            await notes.lost
            self.assertEqual(notes.seen, dict.fromkeys({"made", "eof", "lost"} | told, "the connection's"))

        self.run_it(main(Notes, {"data"}))
        self.run_it(main(Buffered, {"buffer", "updated"}))

    def test_what_a_protocol_raises_is_reported_in_the_connections_own(self) -> None:
        class Fails(Notes):
            def data_received(self, data: bytes) -> None:
                raise ValueError

        async def main() -> None:
            ours, theirs = self.pair()
            whose.set("the connection's")
            _, notes = await self.loop.create_connection(Fails, sock=ours)
            whose.set("the reader's")
            theirs.send(b"bytes")
            await notes.lost
            self.assertEqual((self.heard, notes.seen["lost"]), (["the connection's"], "the connection's"))

        self.run_it(main())

    def test_room_found_when_many_write_in_a_turn_is_told_in_each_connections_own(self) -> None:
        async def main() -> None:
            pairs = [self.pair() for _ in range(20)]
            made = []
            for number, (ours, _) in enumerate(pairs):
                whose.set(f"number {number}")
                made.append(await self.loop.create_connection(Notes, sock=ours))
            whose.set("the writer's")

            def write(transport: Any) -> None:
                transport.set_write_buffer_limits(high=10)
                transport.write(bytes(8))
                transport.write(bytes(8))
                transport.close()

            # That many are ready in one turn has what they write sent at its end.
            wakes = [socket.socketpair() for _ in pairs]
            for (near, far), (transport, _) in zip(wakes, made, strict=True):
                self.loop.add_reader(near, lambda n=near, t=transport: (self.loop.remove_reader(n), write(t)))
                far.send(b"x")
            for number, (_, notes) in enumerate(made):
                await notes.lost
                self.assertEqual({notes.seen[what] for what in notes.seen if what != "pause"}, {f"number {number}"})
            for near, far in wakes:
                near.close()
                far.close()

        self.run_it(main())


def tearDownModule() -> None:
    # What is left open is closed now, and not while others count what is.
    gc.collect()


if __name__ == "__main__":
    unittest.main()
