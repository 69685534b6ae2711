"""Datagram endpoints of the loop, where CPython's own tests of asyncio do not look."""

import asyncio
import gc
import os
import socket
import tempfile
import unittest
import warnings
from asyncio import selector_events

import thalweg
from support import bind_to_the_brim
from thalweg.loop._datagrams import DatagramTransport
from thalweg.loop._streams import StreamTransport


class Notes(asyncio.DatagramProtocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.came: list[tuple[bytes, object]] = []
        self.errors: list[Exception] = []
        self.calls: list[str] = []
        self.lost: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.calls.append("made")

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.came.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.came) + len(self.errors) < count:
                await asyncio.sleep(0.001)


async def endpoint(protocol=Notes, **words) -> Notes:
    if not words:
        words["local_addr"] = ("127.0.0.1", 0)
    _, protocol = await asyncio.get_running_loop().create_datagram_endpoint(protocol, **words)
    return protocol


def name(notes: Notes) -> object:
    return notes.transport.get_extra_info("sockname")


class Case(unittest.IsolatedAsyncioTestCase):
    if hasattr(unittest.IsolatedAsyncioTestCase, "loop_factory"):
        loop_factory = staticmethod(thalweg.new_event_loop)
    else:

        def _setupAsyncioRunner(self) -> None:
            self._asyncioRunner = asyncio.Runner(debug=True, loop_factory=thalweg.new_event_loop)

    async def asyncSetUp(self) -> None:
        self.assertIsInstance(asyncio.get_running_loop(), thalweg.loop.EventLoop)
        self.problems: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.problems.append(context))
        self.opened: list[Notes] = []

    async def asyncTearDown(self) -> None:
        for notes in self.opened:
            notes.transport.abort()
            await notes.lost

    async def open(self, *words, **more) -> Notes:
        notes = await endpoint(*words, **more)
        self.opened.append(notes)
        return notes


class Datagrams(Case):
    async def test_it_has_what_asyncios_has(self) -> None:
        for ours, theirs in (
            (DatagramTransport, selector_events._SelectorDatagramTransport),
            (StreamTransport, selector_events._SelectorSocketTransport),
        ):
            classes = [each for each in theirs.__mro__ if each.__module__ == selector_events.__name__]
            wanted = {name for each in classes for name in vars(each) if not name.startswith("_")}
            self.assertEqual(wanted - set(dir(ours)), set(), ours)
            self.assertEqual(ours.max_size, theirs.max_size)

    async def test_each_comes_whole_in_order_and_with_its_sender(self) -> None:
        one, other = await self.open(), await self.open()
        said = [b"", b"x", os.urandom(60_000), b"last"]
        for data in said:
            one.transport.sendto(data, name(other))
        await other.until(len(said))
        self.assertEqual(other.came, [(data, name(one)) for data in said])
        other.transport.sendto(bytearray(b"back"), other.came[0][1])
        other.transport.sendto(memoryview(b"again"), other.came[0][1])
        await one.until(2)
        self.assertEqual([data for data, _ in one.came], [b"back", b"again"])

    async def test_many_at_once_arrive_over_several_turns_while_others_run(self) -> None:
        receiver, count = await self.open(), 400
        receiver.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sender:
            for number in range(count):
                sender.sendto(b"%d" % number, name(receiver))
            turns = 0
            while len(receiver.came) < count:
                turns += 1
                await asyncio.sleep(0)
        self.assertGreater(turns, 2)
        self.assertEqual([data for data, _ in receiver.came], [b"%d" % number for number in range(count)])

    async def test_reading_is_paused_and_goes_on_as_with_asyncios(self) -> None:
        class PausesAtOnce(Notes):
            def connection_made(self, transport) -> None:
                super().connection_made(transport)
                transport.pause_reading()

        class PausesAtEach(Notes):
            def datagram_received(self, data: bytes, addr: object) -> None:
                super().datagram_received(data, addr)
                self.transport.pause_reading()

        for kind in (PausesAtOnce, PausesAtEach):
            with self.subTest(kind), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                receiver = await self.open(kind)
                reads = kind is PausesAtEach
                self.assertEqual(receiver.transport.is_reading(), reads)
                for number in range(3):
                    sender.sendto(b"%d" % number, name(receiver))
                for count in range(reads, 4):
                    await receiver.until(count)
                    await asyncio.sleep(0.01)
                    self.assertEqual(len(receiver.came), count)
                    self.assertFalse(receiver.transport.is_reading())
                    if not reads:
                        break
                    receiver.transport.resume_reading()
                receiver.transport.resume_reading()
                receiver.transport.resume_reading()
                self.assertTrue(receiver.transport.is_reading())
                await receiver.until(3)
                self.assertEqual([data for data, _ in receiver.came], [b"0", b"1", b"2"])
                receiver.transport.close()
                self.assertFalse(receiver.transport.is_reading())
                receiver.transport.resume_reading()

    async def test_one_that_is_connected_sends_to_its_peer_alone(self) -> None:
        receiver = await self.open()
        sender = await self.open(remote_addr=name(receiver))
        self.assertEqual(sender.transport.get_extra_info("peername"), name(receiver))
        sender.transport.sendto(b"to the peer")
        sender.transport.sendto(b"by its name", name(receiver))
        self.assertRaisesRegex(ValueError, "Invalid address", sender.transport.sendto, b"x", ("127.0.0.1", 9))
        await receiver.until(2)
        self.assertEqual(receiver.came, [(b"to the peer", name(sender)), (b"by its name", name(sender))])

    async def test_nobody_there_is_an_error_told_and_the_endpoint_goes_on(self) -> None:
        gone = await self.open()
        address = name(gone)
        gone.transport.close()
        await gone.lost
        sender = await self.open(remote_addr=address)
        sender.transport.sendto(b"to nobody")
        await sender.until(1)
        self.assertIsInstance(sender.errors[0], ConnectionRefusedError)
        self.assertFalse(sender.transport.is_closing())

    async def test_a_name_is_looked_up_and_what_is_no_address_is_told(self) -> None:
        one, other = await self.open(), await self.open()
        one.transport.sendto(b"by name", ("localhost", name(other)[1]))
        await other.until(1)
        self.assertEqual(other.came, [(b"by name", name(one))])
        one.transport.sendto(b"x" * 70_000, name(other))
        self.assertEqual(len(one.errors), 1)
        self.assertRaises(TypeError, one.transport.sendto, "text", name(other))

    async def test_no_address_at_all_ends_it_as_an_error_of_the_program(self) -> None:
        one = await self.open()
        one.transport.sendto(b"to whom?")
        self.assertIsInstance(await one.lost, TypeError)
        self.assertIn("Fatal write error", self.problems[0]["message"])

    async def test_a_protocol_that_raises_is_reported_and_hears_the_next(self) -> None:
        class Fails(Notes):
            def datagram_received(self, data: bytes, addr: object) -> None:
                super().datagram_received(data, addr)
                raise ZeroDivisionError(data)

        one, other = await self.open(), await self.open(Fails)
        one.transport.sendto(b"1", name(other))
        one.transport.sendto(b"2", name(other))
        await other.until(2)
        self.assertEqual([type(problem["exception"]) for problem in self.problems], [ZeroDivisionError] * 2)
        self.assertFalse(other.transport.is_closing())

    async def test_unix_endpoints_have_paths_and_names_and_none(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            to = os.path.join(directory, "to")
            receiver = await self.open(local_addr=to, family=socket.AF_UNIX)
            names = [None, os.path.join(directory, "from"), b"\0thalweg-%d" % os.getpid()]
            for address in names:
                sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                with sender:
                    if address is not None:
                        sender.bind(address)
                    sender.sendto(b"said", to)
            await receiver.until(3)
            self.assertEqual(receiver.came, [(b"said", address) for address in names])
            answer = await self.open(local_addr=names[1] + "-2", family=socket.AF_UNIX)
            answer.transport.sendto(b"answered", to)
            await receiver.until(4)
            self.assertEqual(receiver.came[-1], (b"answered", names[1] + "-2"))

    async def test_a_unix_sender_whose_path_fills_its_room_is_named_whole(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            to = os.path.join(directory, "to")
            receiver = await self.open(local_addr=to, family=socket.AF_UNIX)
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                named = bind_to_the_brim(sender, directory)
                sender.sendto(b"said", to)
            await receiver.until(1)
            self.assertEqual(receiver.came, [(b"said", named)])

    async def test_messages_of_other_families_come_with_their_senders(self) -> None:
        for_programs = 2  # NETLINK_USERSOCK
        near, far = (socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, for_programs) for _ in range(2))
        with far:
            near.setblocking(False)
            for each in (near, far):
                each.bind((0, 0))
            receiver = await self.open(sock=near)
            far.sendto(b"said", near.getsockname())
            await receiver.until(1)
            self.assertEqual((receiver.came, receiver.errors), ([(b"said", far.getsockname())], []))


class Flow(Case):
    async def pour(self) -> tuple[Notes, socket.socket, int]:
        """An endpoint whose peer takes nothing, with more queued than it wants; how many it was given."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setblocking(False)
        theirs.setblocking(False)
        notes, count = await self.open(sock=ours), 0
        notes.transport.set_write_buffer_limits(high=10_000, low=1_000)
        while "pause" not in notes.calls:
            self.assertFalse(notes.transport.is_closing(), self.problems)
            notes.transport.sendto(b"%06d" % count)
            count += 1
        return notes, theirs, count

    async def test_a_peer_that_takes_nothing_pauses_and_then_resumes_without_a_loss(self) -> None:
        notes, theirs, count = await self.pour()
        self.assertGreater(notes.transport.get_write_buffer_size(), 10_000)
        came: list[bytes] = []
        with theirs:
            while len(came) < count:
                try:
                    came.append(theirs.recv(100))
                except BlockingIOError:
                    await asyncio.sleep(0)
        self.assertEqual(came, [b"%06d" % number for number in range(count)])
        self.assertEqual(notes.transport.get_write_buffer_size(), 0)
        self.assertEqual(notes.calls, ["made", "pause", "resume"])

    async def test_close_sends_what_waits_and_abort_drops_it(self) -> None:
        notes, theirs, count = await self.pour()
        notes.transport.close()
        self.assertTrue(notes.transport.is_closing())
        came = 0
        with theirs:
            while not notes.lost.done() or came < count:
                try:
                    theirs.recv(100)
                    came += 1
                except BlockingIOError:
                    await asyncio.sleep(0)
        self.assertEqual((came, notes.lost.result(), notes.calls[-1]), (count, None, "lost"))
        notes, theirs, _ = await self.pour()
        with theirs:
            notes.transport.abort()
            self.assertIsNone(await notes.lost)
            self.assertEqual(notes.transport.get_write_buffer_size(), 0)

    async def test_what_is_sent_after_the_end_goes_nowhere_and_says_nothing(self) -> None:
        one = await self.open()
        one.transport.close()
        await one.lost
        one.transport.sendto(b"late", ("127.0.0.1", 9))
        one.transport.close()
        self.assertEqual((one.errors, one.calls), ([], ["made", "lost"]))

    async def test_one_that_is_forgotten_says_so_and_closes_its_socket(self) -> None:
        notes = await endpoint()
        number = notes.transport.get_extra_info("socket").fileno()
        transport = notes.transport
        self.assertIsInstance(transport, asyncio.DatagramTransport)
        self.assertIn(f"fd={number}", repr(transport))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            transport.__del__()
        self.assertEqual([warning.category for warning in said], [ResourceWarning])
        transport.abort()
        await notes.lost


def tearDownModule() -> None:
    # What is left open is closed now, and not while others count what is.
    gc.collect()


if __name__ == "__main__":
    unittest.main()
