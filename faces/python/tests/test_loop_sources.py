"""Service calls and log tails in our loop: resolved there, with no thread, beside everything else a loop does."""

import asyncio
import contextlib
import os
import signal
import tempfile
import threading
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import thalweg
from service_support import END, FIELDS, Background, Hand, Peer, Place, echo_client, header, types, waiting
from support import SMALL
from thalweg.loop import Kind
from thalweg.service import Client, Closed, NoServer


def threads() -> set[str]:
    """The threads of this process, those of which Python knows nothing included."""
    return set(os.listdir("/proc/self/task"))


async def within(waits):
    return await asyncio.wait_for(waits, 60)


class Rooms(Place):
    def setUp(self) -> None:
        super().setUp()
        self.loop = thalweg.new_event_loop()
        self.addCleanup(self.loop.close)
        store = thalweg.open(self.directory / "store", durability="os", segment_bytes_max=SMALL)
        self.addCleanup(store.close)
        self.log = store.log("log")

    def later(self, call: Callable[[], object]) -> None:
        """Has a thread call something when the loop has gone to sleep."""
        thread = threading.Timer(0.05, call)
        thread.start()
        self.addCleanup(thread.join)

    def test_other_threads_wake_a_loop_whose_mailbox_has_no_room(self) -> None:
        cursor, bells = self.log.cursor(tail=True), []
        with self.assertRaises(thalweg.Overloaded):
            while True:
                bells.append(self.loop.mailbox.bell(self.loop.mailbox.register(print)))
                cursor.arm(bells[-1])
        late: list[int] = []
        lost = self.loop.call_later(10, lambda: (late.append(1), self.loop.stop()))
        self.later(lambda: self.loop.call_soon_threadsafe(self.loop.stop))
        self.loop.run_forever()
        lost.cancel()
        self.assertEqual(late, [])

    def test_what_comes_with_an_answer_whose_hearer_ends_the_program_is_told_in_the_next_run(self) -> None:
        def answer_together(hand: Hand) -> None:
            calls = [hand.frame()[1] for _ in range(3)]
            hand.send(b"".join(header(END, call, 3) + b"yes" for call in calls))
            with self.assertRaises(EOFError):
                hand.frame()

        told: list[tuple[int, object]] = []

        def interrupt(kind: int, payload: object) -> None:
            raise KeyboardInterrupt

        async def begin() -> tuple[Client, asyncio.Task[bytes]]:
            client = await Client.connect(self.endpoint())
            self.loop.mailbox.call(client, b"first", interrupt)
            self.loop.mailbox.call(client, b"second", lambda kind, payload: told.append((kind, payload)))
            return client, self.loop.create_task(client.call(b"third"))

        with Peer(self.endpoint(), answer_together):
            client, third = self.loop.run_until_complete(begin())
            try:
                with self.assertRaises(KeyboardInterrupt):
                    self.loop.run_until_complete(third)
                self.assertEqual(self.loop.run_until_complete(asyncio.wait_for(third, 10)), b"yes")
                self.assertEqual(told, [(Kind.CALL_RESULT, b"yes")])
                self.assertEqual((client.in_flight, len(self.loop.mailbox)), (0, 0))
            finally:
                client.close()

    def test_who_ends_the_program_when_told_of_a_closed_client_takes_nothing_from_others(self) -> None:
        told: list[int] = []

        def interrupt(kind: int, payload: object) -> None:
            raise KeyboardInterrupt

        async def begin() -> Client:
            client = await Client.connect(self.endpoint())
            self.loop.mailbox.call(client, b"first", interrupt)
            self.loop.mailbox.call(client, b"second", lambda kind, payload: told.append(kind))
            return client

        def wait_for_end(hand: Hand) -> None:
            with self.assertRaises(EOFError):
                while True:
                    hand.frame()

        with Peer(self.endpoint(), wait_for_end):
            client = self.loop.run_until_complete(begin())
            with self.assertRaises(KeyboardInterrupt):
                client.close()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.assertEqual((told, len(self.loop.mailbox)), ([Kind.CALL_ERROR], 0))

    def test_what_comes_with_a_signal_whose_handler_raises_is_told_in_the_next_run(self) -> None:
        def refuse(*_: object) -> None:
            raise LookupError

        def both() -> None:
            # Noted for the main thread, which it does not wake.
            signal.raise_signal(signal.SIGUSR1)
            self.log.append(b"entry")

        told: list[int] = []
        number = self.loop.mailbox.register(lambda kind, _: told.append(kind))
        bell = self.loop.mailbox.bell(number)
        cursor = self.log.cursor(tail=True)
        self.assertIsNone(cursor.next())
        self.assertFalse(cursor.arm(bell))
        before = signal.signal(signal.SIGUSR1, refuse)
        try:
            self.later(both)
            self.assertRaises(LookupError, self.loop.run_forever)
        finally:
            signal.signal(signal.SIGUSR1, before)
        self.loop.run_until_complete(asyncio.sleep(0.01))
        self.assertEqual(told, [Kind.ASYNC_RESULT])


class Threads(Place):
    def run_alone(self, main) -> None:
        """Runs in our loop and sees to it that no thread was started meanwhile."""
        before = threads()
        during: set[str] = set()

        async def watched() -> None:
            await main()
            during.update(threads())

        thalweg.run(watched())
        self.assertEqual(during, before)
        self.assertEqual(threads(), before)

    def test_calls_and_streams_of_a_service_start_none(self) -> None:
        for kind in ("sock", "shm"):
            with Background(self.endpoint(kind)):

                async def main() -> None:
                    async with await Client.connect(self.endpoint(kind), schema=types.SCHEMA_HASH) as transport:
                        client = echo_client.EchoClient(transport)
                        self.assertEqual((await client.fields(FIELDS)).name, FIELDS.name)
                        answers = await asyncio.gather(*(client.fields(waiting(n % 5)) for n in range(100)))
                        self.assertEqual(len(answers), 100)
                        *items, end = [item async for item in client.count(types.EchoCount(first=0, last=50))]
                        self.assertEqual([item.value for item in items], list(range(end.count)))
                        self.assertGreater(end.count, 40)

                with self.subTest(kind=kind):
                    self.run_alone(main)

    def test_tails_start_none_whoever_appends(self) -> None:
        with thalweg.open(self.directory / "store", durability="os", segment_bytes_max=SMALL) as store:
            logs = [store.log(f"log-{number}") for number in range(20)]
            stranger = threading.Thread(target=lambda: (go.wait(), [log.append(b"thread") for log in logs]))
            go = threading.Event()
            # Or it waits for ever, and the interpreter for it.
            self.addCleanup(go.set)
            stranger.start()

            async def follow(log) -> list[bytes]:
                seen = []
                async for entry in log.tail():
                    seen.append(bytes(entry))
                    if seen[-1] == b"end":
                        return seen
                raise AssertionError("the log ended")

            async def main() -> None:
                followers = [asyncio.ensure_future(follow(log)) for log in logs]
                await asyncio.sleep(0)
                mailbox = asyncio.get_running_loop().mailbox
                self.assertEqual(len(mailbox), 1, "one bell for all of them")
                for log in logs:
                    log.append(b"loop")
                await asyncio.sleep(0.01)
                during.update(threads())
                go.set()
                while stranger.is_alive():
                    await asyncio.sleep(0.001)
                for log in logs:
                    log.append(b"end")
                for seen in await within(asyncio.gather(*followers)):
                    self.assertEqual(seen, [b"loop", b"thread", b"end"])
                self.assertEqual(len(mailbox), 0)

            before, during = threads(), set[str]()
            thalweg.run(main())
            stranger.join()
            self.assertEqual(during, before)

    def test_calls_by_number_are_told_once_of_their_answer_or_their_error(self) -> None:
        class Recorder:
            async def call(self, request: bytes, *, deadline: float | None = None) -> bytes:
                self.request = request
                raise InterruptedError

        with Background(self.endpoint()):

            async def main() -> None:
                recorder = Recorder()
                with self.assertRaises(InterruptedError):
                    await echo_client.EchoClient(recorder).fields(FIELDS)
                loop = asyncio.get_running_loop()
                told: list[tuple[int, object]] = []
                answered = loop.create_future()

                def tell(kind: int, payload: object) -> None:
                    told.append((kind, payload))
                    answered.done() or answered.set_result(None)

                async with await Client.connect(self.endpoint(), schema=types.SCHEMA_HASH) as transport:
                    with contextlib.closing(thalweg.new_event_loop()) as another:
                        for mailbox, client in ((loop.mailbox, None), (another.mailbox, transport)):
                            with self.assertRaisesRegex(ValueError, "a thalweg.service.Client of this loop: .* is none$"):
                                mailbox.call(client, recorder.request, tell)
                            self.assertEqual(len(mailbox), 0)
                    self.assertGreater(loop.mailbox.call(transport, recorder.request, tell), 0)
                    unheard = loop.mailbox.call(transport, recorder.request, tell)
                    self.assertTrue(loop.mailbox.unregister(unheard))
                    await within(answered)
                    await within(transport.call(recorder.request))
                    self.assertEqual([kind for kind, _ in told], [Kind.CALL_RESULT])
                    self.assertEqual(told[0][1], await within(transport.call(recorder.request)))
                    loop.mailbox.call(transport, recorder.request, tell)
                self.assertEqual([kind for kind, _ in told], [Kind.CALL_RESULT, Kind.CALL_ERROR])
                self.assertIsInstance(told[1][1], Closed)
                self.assertEqual(len(loop.mailbox), 0)
                with self.assertRaises(Closed):
                    loop.mailbox.call(transport, recorder.request, tell)
                self.assertEqual(len(loop.mailbox), 0)

            self.run_alone(main)

    def test_a_call_a_tail_a_timer_a_program_and_a_socket_wait_in_one_loop(self) -> None:
        with (
            Background(self.endpoint()),
            thalweg.open(self.directory / "store", durability="os", segment_bytes_max=SMALL) as store,
        ):
            log = store.log("log")

            async def main() -> None:
                async with await Client.connect(self.endpoint(), schema=types.SCHEMA_HASH) as transport:
                    client = echo_client.EchoClient(transport)
                    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
                    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                    program = await asyncio.create_subprocess_exec("true")
                    tail = asyncio.ensure_future(anext(log.tail()))
                    asyncio.get_running_loop().call_later(0.002, log.append, b"timed")
                    answer, entry, code, end = await within(
                        asyncio.gather(client.fields(waiting(3)), tail, program.wait(), reader.read())
                    )
                    self.assertEqual((answer.count, bytes(entry), code, end), (7, b"timed", 0, b""))
                    writer.close()
                    server.close()
                    await server.wait_closed()

            self.run_alone(main)


class Tails(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name)

    def test_a_tail_that_is_cancelled_leaves_no_callback(self) -> None:
        async def main() -> None:
            mailbox = asyncio.get_running_loop().mailbox
            with thalweg.open(self.path / "store") as store:
                follower = asyncio.ensure_future(anext(store.log("log").tail()))
                await asyncio.sleep(0.01)
                self.assertEqual(len(mailbox), 1)
                follower.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await follower
                self.assertEqual(len(mailbox), 0)
                store.log("log").append(b"nobody hears")
                await asyncio.sleep(0.01)

        thalweg.run(main())

    def test_a_bell_that_is_dropped_keeps_no_room(self) -> None:
        async def main() -> None:
            mailbox = asyncio.get_running_loop().mailbox
            with thalweg.open(durability="memory") as store:
                cursor = store.log("log").cursor()
                self.assertIsNone(cursor.next())
                # More than there is room for in a mailbox.
                for _ in range((1 << 16) + 10):
                    self.assertFalse(cursor.arm(mailbox.bell(1)))

        thalweg.run(main())

    def test_any_number_of_tails_keeps_the_room_of_one_and_one_that_finds_none_goes_on(self) -> None:
        async def main() -> None:
            mailbox = asyncio.get_running_loop().mailbox
            with thalweg.open(durability="memory") as store:
                log = store.log("log")
                tails = [log.tail() for _ in range(10)]
                cursor = log.cursor()
                self.assertIsNone(cursor.next())
                bells: list[Any] = []
                with self.assertRaisesRegex(thalweg.Overloaded, "room"):
                    while True:
                        bells.append(mailbox.bell(1))
                        cursor.arm(bells[-1])
                waits = asyncio.ensure_future(anext(tails[0]))
                with self.assertRaises(thalweg.Overloaded):
                    await waits
                del bells[-2:]
                followers = [asyncio.ensure_future(anext(tail)) for tail in tails]
                await asyncio.sleep(0.01)
                self.assertFalse(any(follower.done() for follower in followers))
                log.append(b"for all")
                entries = await within(asyncio.gather(*followers))
                self.assertEqual({bytes(entry) for entry in entries}, {b"for all"})

        thalweg.run(main())

    def test_a_commit_after_the_loop_is_closed_rings_nobody(self) -> None:
        with thalweg.open(self.path / "store") as store:
            log = store.log("log")
            loop = thalweg.new_event_loop()
            tail = log.tail()
            follower = loop.create_task(anext(tail))
            loop.run_until_complete(asyncio.sleep(0.01))
            follower.cancel()
            loop.run_until_complete(asyncio.gather(follower, return_exceptions=True))
            loop.close()
            for _ in range(10):
                log.append(b"after")


class NoService(Place):
    def test_a_service_that_is_not_there_is_said_in_the_loop(self) -> None:
        with self.assertRaises(NoServer):
            thalweg.run(Client.connect(self.endpoint(), connect_within=0.01))


if __name__ == "__main__":
    unittest.main()
