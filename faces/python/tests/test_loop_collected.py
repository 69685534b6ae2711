"""What the garbage collector finds of a loop: whatever nobody knows any more goes, and what was open is closed."""

import asyncio
import contextvars
import gc
import os
import socket
import threading
import unittest
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import thalweg


UNCLOSED = "transport <StreamTransport"


class Keeps(asyncio.Protocol):
    """A protocol that knows its transport, as most do: neither goes before the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport


class Messages(Keeps, asyncio.DatagramProtocol):
    """The same for datagrams."""


class Raises:
    """An owner whose callback fails."""

    def called(self) -> None:
        raise ValueError


class Case(unittest.TestCase):
    def setUp(self) -> None:
        # What others left is not ours to find.
        self.collected()

    def collected(self) -> list[str]:
        """Collects, and says what was unclosed. Of sockets the collector warns too, if it comes to them first."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            gc.collect()
        unclosed = [str(warning.message) for warning in said if warning.category is ResourceWarning]
        return [" ".join(words.split()[1:3]) for words in unclosed if "<socket.socket" not in words]

    def pair(self, kind: int = socket.SOCK_STREAM) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        theirs.setblocking(False)
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        return ours, theirs

    def connect(self, loop: asyncio.AbstractEventLoop, ours: socket.socket) -> Keeps:
        _, protocol = loop.run_until_complete(loop.create_connection(Keeps, sock=ours.dup()))
        return protocol


class Transports(Case):
    def test_an_open_connection_goes_with_its_closed_loop_and_its_peer_is_told(self) -> None:
        loop, (ours, theirs) = thalweg.new_event_loop(), self.pair()
        protocol = weakref.ref(self.connect(loop, ours))
        ours.close()
        loop.close()
        reference = weakref.ref(loop)
        del loop
        self.assertEqual(self.collected(), [UNCLOSED])
        self.assertEqual((protocol(), reference()), (None, None))
        self.assertEqual(theirs.recv(1), b"")

    def test_one_that_has_something_to_send_goes_too(self) -> None:
        loop, (ours, theirs) = thalweg.new_event_loop(), self.pair()
        known = self.connect(loop, ours)
        known.transport.write(bytes(1 << 20))
        protocol = weakref.ref(known)
        ours.close()
        loop.close()
        del known, loop
        self.assertEqual(self.collected(), [UNCLOSED])
        self.assertIsNone(protocol())
        while theirs.recv(1 << 20):
            pass

    def test_an_endpoint_of_datagrams_goes_with_its_closed_loop(self) -> None:
        loop, (ours, theirs) = thalweg.new_event_loop(), self.pair(socket.SOCK_DGRAM)
        _, known = loop.run_until_complete(loop.create_datagram_endpoint(Messages, sock=ours.dup()))
        protocol = weakref.ref(known)
        ours.close()
        loop.close()
        del known, loop, _
        self.assertEqual(self.collected(), ["transport <DatagramTransport"])
        self.assertIsNone(protocol())
        self.assertRaises(ConnectionRefusedError, theirs.send, b"nobody is there")

    def test_a_connection_that_nobody_reads_goes_while_its_loop_goes_on(self) -> None:
        loop, (ours, theirs) = thalweg.new_event_loop(), self.pair()
        self.addCleanup(loop.close)
        known = self.connect(loop, ours)
        known.transport.pause_reading()
        protocol = weakref.ref(known)
        ours.close()
        del known
        self.assertEqual(self.collected(), [UNCLOSED])
        self.assertIsNone(protocol())
        self.assertEqual(theirs.recv(1), b"")

    def test_one_that_is_collected_in_another_thread_while_its_loop_waits_is_closed(self) -> None:
        loop, (ours, theirs) = thalweg.new_event_loop(), self.pair()
        self.addCleanup(loop.close)
        known = self.connect(loop, ours)
        known.transport.pause_reading()
        protocol = weakref.ref(known)
        ours.close()
        del known
        said: list[str] = []

        def collect() -> None:
            said.extend(self.collected())
            loop.call_soon_threadsafe(loop.stop)

        thread = threading.Timer(0.05, collect)
        thread.start()
        loop.run_forever()
        thread.join()
        self.assertEqual((said, protocol()), ([UNCLOSED], None))
        self.assertEqual(theirs.recv(1), b"")

    def test_whoever_writes_to_one_that_is_collected_with_it_reaches_nobody_else(self) -> None:
        loop, (ours, _) = thalweg.new_event_loop(), self.pair()
        self.addCleanup(loop.close)
        transport = self.connect(loop, ours).transport
        number = transport.get_extra_info("socket").fileno()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            transport.__del__()
        other, theirs = self.pair()
        if other.fileno() != number:
            os.dup2(other.fileno(), number)
            self.addCleanup(os.close, number)
        transport.write(b"for somebody else")
        self.assertRaises(BlockingIOError, theirs.recv, 1)

    def test_a_server_does_not_wait_for_a_connection_that_was_collected(self) -> None:
        loop = thalweg.new_event_loop()
        self.addCleanup(loop.close)
        made: list[Keeps] = []

        async def main() -> None:
            server = await loop.create_server(lambda: made.append(Keeps()) or made[-1], "127.0.0.1", 0)
            with socket.create_connection(server.sockets[0].getsockname()):
                while not made or not hasattr(made[0], "transport"):
                    await asyncio.sleep(0.001)
                made[0].transport.pause_reading()
                made.clear()
                self.assertEqual(self.collected(), [UNCLOSED])
                server.close()
                await asyncio.wait_for(server.wait_closed(), 60)

        loop.run_until_complete(main())


class Handles(Case):
    def forgotten(self, schedule: Callable[[Any], asyncio.Handle], owner: Any) -> "weakref.ref[Any]":
        """Has an owner know its handle, and forgets the owner."""
        owner.handle = schedule(owner)
        return weakref.ref(owner)

    def test_what_still_waits_when_a_loop_is_closed_holds_its_owner_no_longer(self) -> None:
        ours, _ = self.pair()
        for schedule in (
            lambda loop, owner: loop.call_later(3600, owner.called),
            lambda loop, owner: loop.call_soon(owner.called),
            lambda loop, owner: loop._add_reader(ours.fileno(), owner.called),
        ):
            loop = thalweg.new_event_loop()
            owner = self.forgotten(lambda owner, loop=loop, schedule=schedule: schedule(loop, owner), Raises())
            loop.close()
            gc.collect()
            self.assertIsNone(owner())

    def test_a_callback_that_raised_holds_its_owner_no_longer(self) -> None:
        for debug in (False, True):
            loop = thalweg.new_event_loop()
            self.addCleanup(loop.close)
            loop.set_debug(debug)
            loop.set_exception_handler(lambda *_: None)
            owners = [
                self.forgotten(lambda owner, loop=loop: loop.call_soon(owner.called), Raises()),
                self.forgotten(lambda owner, loop=loop: loop.call_later(0, owner.called), Raises()),
            ]
            loop.run_until_complete(asyncio.sleep(0.01))
            gc.collect()
            self.assertEqual([owner() for owner in owners], [None, None])

    def test_a_callback_that_ended_the_program_holds_its_owner_no_longer(self) -> None:
        class Ends(Raises):
            def called(self) -> None:
                raise SystemExit

        loop = thalweg.new_event_loop()
        self.addCleanup(loop.close)
        owner = self.forgotten(lambda owner: loop.call_soon(owner.called), Ends())
        self.assertRaises(SystemExit, loop.run_forever)
        gc.collect()
        self.assertIsNone(owner())

    def test_a_context_that_leads_to_its_own_handle_goes_with_it(self) -> None:
        request: contextvars.ContextVar[Any] = contextvars.ContextVar("request")
        loop = thalweg.new_event_loop()
        self.addCleanup(loop.close)

        def schedule(owner: Any, cancels: bool) -> asyncio.Handle:
            def within() -> asyncio.Handle:
                request.set(owner)
                return loop.call_later(0, int) if not cancels else loop.call_later(3600, int)

            handle = contextvars.copy_context().run(within)
            if cancels:
                handle.cancel()
            return handle

        owners = [self.forgotten(lambda owner, c=cancels: schedule(owner, c), Raises()) for cancels in (False, True)]
        loop.run_until_complete(asyncio.sleep(0.01))
        gc.collect()
        self.assertEqual([owner() for owner in owners], [None, None])

    def test_a_closed_loop_has_no_descriptor_whoever_refers_to_it(self) -> None:
        before = set(os.listdir("/proc/self/fd"))
        loop = thalweg.new_event_loop()
        self.assertNotEqual(set(os.listdir("/proc/self/fd")), before)
        loop.close()
        self.assertEqual(set(os.listdir("/proc/self/fd")), before)
        self.assertTrue(loop.is_closed())

    def test_a_loop_that_was_never_closed_goes_with_all_that_waits_in_it(self) -> None:
        loop, (ours, theirs) = thalweg.new_event_loop(), self.pair()
        protocol = weakref.ref(self.connect(loop, ours))
        ours.close()
        loop.call_later(3600, loop.stop)
        loop.call_soon(loop.stop)
        reference = weakref.ref(loop)
        waits = loop.create_task(loop.sock_recv(theirs, 1))
        waits._log_destroy_pending = False  # type: ignore[attr-defined]
        del loop, waits
        self.assertIn("event loop", self.collected())
        self.collected()
        self.assertEqual((reference(), protocol()), (None, None))
        self.assertEqual(theirs.recv(1), b"")

    def test_a_loop_that_was_never_closed_goes_with_what_its_mailbox_would_tell(self) -> None:
        ours, theirs = self.pair()
        for name, listen in (
            ("register", lambda loop, told: loop.mailbox.register(told)),
            ("timer", lambda loop, told: loop.mailbox.timer(3600, told)),
            ("watch", lambda loop, told: loop.mailbox.watch(ours, told)),
            ("socket", lambda loop, told: loop.mailbox.socket(theirs, told)),
            ("future", lambda loop, _: loop.mailbox.future()),
        ):
            loop = thalweg.new_event_loop()
            loop.mailbox.register(print)
            listen(loop, lambda _kind, _payload, loop=loop: loop.stop())
            reference = weakref.ref(loop)
            del loop
            self.assertIn("event loop", self.collected(), msg=name)
            self.collected()
            self.assertIsNone(reference(), msg=name)

    def test_a_timer_of_a_mailbox_is_still_told_however_often_somebody_collects(self) -> None:
        loop = thalweg.new_event_loop()
        self.addCleanup(loop.close)
        seen: list[int] = []
        for number in range(100):
            loop.mailbox.timer(0.001, lambda *_, number=number: (gc.collect(), seen.append(number)))
        gc.collect()
        loop.run_until_complete(asyncio.sleep(0.05))
        self.assertEqual(seen, list(range(100)))

    def test_what_waits_is_still_called_however_often_somebody_collects(self) -> None:
        loop = thalweg.new_event_loop()
        self.addCleanup(loop.close)
        seen: list[int] = []
        for number in range(100):
            loop.call_later(0.001, lambda number=number: (gc.collect(0), seen.append(number)))
            loop.call_soon(gc.collect, 0)
        gc.collect()
        loop.run_until_complete(asyncio.sleep(0.05))
        self.assertEqual(seen, list(range(100)))


def tearDownModule() -> None:
    # What is left open is closed now, and not while others count what is.
    gc.collect()


if __name__ == "__main__":
    unittest.main()
