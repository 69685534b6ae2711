"""Calling services from an event loop."""

import asyncio
import contextlib
import gc
import os
import threading
import unittest
import warnings
from unittest import mock

from service_support import (
    CANCEL,
    END,
    ENDLESS,
    FIELDS,
    FIELDS_FRAME,
    ITEM,
    REQUEST,
    Background,
    Patient,
    Peer,
    Place,
    descriptors,
    echo_client,
    echo_server,
    header,
    types,
    waiting,
)
from thalweg._native import BACKLOG_BYTES
from thalweg.service import (
    BadAnswer,
    BadArgument,
    BadFrame,
    BadRequest,
    Client,
    Closed,
    DeadlineExceeded,
    Disconnected,
    FrameTooLarge,
    NotSent,
    Overloaded,
    Refused,
    Server,
    ServiceError,
    UnknownCommand,
)


class EventLoop(Place, unittest.IsolatedAsyncioTestCase):
    kind = "sock"

    async def test_an_item_answers_no_call(self):
        with self.assertRaises(BadAnswer):
            await self.transport.call(types.encode_request(ENDLESS))
        await self.echo.cancelled.wait()
        await self.still_serves()
        self.assertEqual(self.transport.in_flight, 0)

    async def asyncSetUp(self) -> None:
        self.echo = Patient()
        self.server = Server(echo_server.service(self.echo), self.endpoint(self.kind))
        await self.server.__aenter__()
        self.transport = await Client.connect(self.endpoint(self.kind), schema=types.SCHEMA_HASH)
        self.client = echo_client.EchoClient(self.transport)

    async def asyncTearDown(self) -> None:
        self.transport.close()
        await self.server.close()

    async def still_serves(self) -> None:
        answer = await self.client.fields(FIELDS)
        self.assertEqual((answer.count, answer.total, answer.name), (1, 2, "three"))

    async def nothing_left(self) -> None:
        while self.transport.in_flight or self.server.statistics()["in_flight"]:
            await asyncio.sleep(0.001)

    async def test_each_call_has_its_own_answer_in_whatever_order_they_come(self):
        ended = []
        # The last call is answered first, and each other one behind the one that followed it.
        turns = [asyncio.Event() for _ in range(4)]
        turns[-1].set()

        async def in_turn(request):
            await turns[request.count].wait()
            return types.EchoFieldsResponse(count=request.count, total=request.total, name=request.name)

        async def call(number):
            answer = await self.client.fields(types.EchoFields(count=number, total=0, name=""))
            ended.append(answer.count)
            if number > 0:
                turns[number - 1].set()
            return answer.count

        with mock.patch.object(self.echo, "fields", in_turn):
            async with asyncio.timeout(60):
                self.assertEqual(await asyncio.gather(*map(call, range(4))), [0, 1, 2, 3])
        self.assertEqual(ended, [3, 2, 1, 0])
        names = [f"name {number}" for number in range(500)]
        answers = await asyncio.gather(
            *(self.client.fields(types.EchoFields(count=0, total=0, name=name)) for name in names)
        )
        self.assertEqual([answer.name for answer in answers], names)

    async def test_clients_hear_only_of_their_own(self):
        others = [await Client.connect(self.endpoint(self.kind)) for _ in range(4)]
        try:
            calls = [
                echo_client.EchoClient(other).bytes(types.EchoBytes(data=b"%d %d" % (number, turn)))
                for turn in range(32)
                for number, other in enumerate(others)
            ]
            answers = [answer.data for answer in await asyncio.gather(*calls)]
            self.assertEqual(answers, [b"%d %d" % (number, turn) for turn in range(32) for number in range(4)])
        finally:
            for other in others:
                other.close()

    async def test_large_frames_pass(self):
        data = bytes(range(256)) * (20 << 10)
        answers = await asyncio.gather(*(self.client.bytes(types.EchoBytes(data=data)) for _ in range(3)))
        self.assertTrue(all(answer.data == data for answer in answers))

    async def test_a_task_that_is_cancelled_cancels_its_call(self):
        call = asyncio.create_task(self.client.fields(waiting(Patient.FOR_GOOD)))
        await self.echo.began.wait()
        call.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await call
        await self.echo.cancelled.wait()
        await self.nothing_left()
        await self.still_serves()

    async def test_a_coroutine_that_is_closed_in_whichever_thread_cancels_its_call(self):
        async def here(close):
            close()

        for where in (here, asyncio.to_thread):
            with self.subTest(where.__name__):
                self.echo.began.clear()
                self.echo.cancelled.clear()
                call = self.client.fields(waiting(Patient.FOR_GOOD))
                call.send(None)
                await self.echo.began.wait()
                await where(call.close)
                async with asyncio.timeout(60):
                    await self.echo.cancelled.wait()
                    await self.nothing_left()
        await self.still_serves()

    async def test_a_wait_for_an_item_that_is_closed_cancels_the_call(self):
        stream = self.transport.stream(types.encode_request(ENDLESS), credit=1)
        await anext(stream)
        item = anext(stream)
        item.send(None)
        item.close()
        async with asyncio.timeout(60):
            await self.echo.cancelled.wait()
            await self.nothing_left()
        self.assertEqual([frame async for frame in stream], [])

    async def test_each_call_of_a_client_that_goes_has_an_error_of_its_own(self):
        other = await Client.connect(self.endpoint(self.kind))
        calls = [asyncio.create_task(echo_client.EchoClient(other).fields(waiting(Patient.FOR_GOOD))) for _ in range(3)]
        await self.echo.began.wait()
        other.close()
        errors = await asyncio.gather(*calls, return_exceptions=True)
        self.assertEqual([type(error) for error in errors], [Closed] * 3)
        self.assertEqual(len({id(error) for error in errors}), 3)

    async def test_a_client_that_goes_cancels_its_calls(self):
        other = await Client.connect(self.endpoint(self.kind))
        call = asyncio.create_task(echo_client.EchoClient(other).fields(waiting(Patient.FOR_GOOD)))
        await self.echo.began.wait()
        other.close()
        with self.assertRaises(Closed) as closed:
            await call
        self.assertEqual(closed.exception.retry, "never")
        await self.echo.cancelled.wait()
        with self.assertRaises(Closed):
            await other.call(FIELDS_FRAME)
        await self.still_serves()

    async def test_a_deadline_passes(self):
        with self.assertRaises(DeadlineExceeded) as late:
            await self.client.fields(waiting(Patient.FOR_GOOD), deadline=2)
        self.assertIsInstance(late.exception, TimeoutError)
        self.assertEqual((late.exception.retry, late.exception.code), ("unknown", "DEADLINE_EXCEEDED"))
        await self.echo.cancelled.wait()
        await self.still_serves()

    async def test_a_stream_is_made_as_fast_as_it_is_taken(self):
        items = self.transport.stream(types.encode_request(ENDLESS), credit=4)
        first = types.decode_response(await anext(items))
        self.assertEqual(first, types.EchoCountItem(value=0))
        # Calls made behind it are answered, so whatever the stream may send has been sent.
        for _ in range(3):
            await self.still_serves()
        self.assertLessEqual(self.echo.made, 5)
        for expected in range(1, 200):
            self.assertEqual(types.decode_response(await anext(items)), types.EchoCountItem(value=expected))
        await items.aclose()
        await self.echo.cancelled.wait()
        await self.nothing_left()
        await self.still_serves()

    async def test_a_stream_of_no_credit_is_refused(self):
        with self.assertRaisesRegex(BadArgument, "credit is 0"):
            self.transport.stream(types.encode_request(ENDLESS), credit=0)
        await self.still_serves()
        await self.nothing_left()

    async def test_a_stream_that_is_left_is_cancelled(self):
        async for item in self.client.count(ENDLESS, credit=8):
            if item.value == 20:
                break
        await self.echo.cancelled.wait()
        await self.nothing_left()
        await self.still_serves()

    async def test_a_stream_that_nobody_reads_holds_nobody_up(self):
        streams = [self.transport.stream(types.encode_request(ENDLESS)) for _ in range(20)]
        await asyncio.gather(*(self.still_serves() for _ in range(50)))
        self.assertLessEqual(self.echo.made, 20 * 65)
        for items in streams:
            await items.aclose()
        await self.nothing_left()

    async def test_the_service_refuses_in_its_own_words(self):
        with self.assertRaises(Refused) as refused:
            await self.client.fail(types.EchoFail(reason="not today"))
        self.assertEqual((str(refused.exception), refused.exception.retry), ("not today", "never"))
        self.assertIsInstance(refused.exception, ServiceError)

    async def test_bad_requests_are_refused_and_the_connection_goes_on(self):
        wrong = {
            "nothing": b"",
            "no MessagePack": b"\xc1\xc1\xc1",
            "cut short": FIELDS_FRAME[:-3],
            "bytes behind": FIELDS_FRAME + b"\0",
            "unknown command": b"\x91\x92\xafEchoNoSuchThing\x80",
            "wrong type": FIELDS_FRAME.replace(b"\xa5count\x01", b"\xa5count\xc3"),
            "field missing": b"\x91\x92\xaaEchoFields\x82\xa5count\x01\xa5total\x02",
            "field too many": b"\x91\x92\xaaEchoFields\x84" + FIELDS_FRAME[14:] + b"\xa4more\x01",
        }
        for name, frame in wrong.items():
            with self.subTest(name):
                with self.assertRaises(UnknownCommand if name == "unknown command" else BadRequest) as refused:
                    await self.transport.call(frame)
                self.assertEqual(refused.exception.retry, "never")
                self.assertNotEqual(refused.exception.detail, "")
                await self.still_serves()

    async def test_what_is_too_long_is_refused_before_it_is_sent(self):
        with self.assertRaises(FrameTooLarge):
            await self.transport.call(bytes((16 << 20) + 1))
        await self.still_serves()

    async def test_more_calls_than_are_allowed_are_refused(self):
        few = await Client.connect(self.endpoint(self.kind), in_flight_max=2)
        calls = [asyncio.create_task(few.call(types.encode_request(waiting(Patient.FOR_GOOD)))) for _ in range(2)]
        await self.echo.began.wait()
        with self.assertRaises(Overloaded) as overloaded:
            await few.call(FIELDS_FRAME)
        self.assertEqual(overloaded.exception.retry, "safe")
        few.close()
        await asyncio.gather(*calls, return_exceptions=True)

    async def test_no_thread_is_started_and_nothing_stays_open(self):
        threads, before = threading.active_count(), descriptors()
        tasks = len(asyncio.all_tasks())
        for _ in range(20):
            async with await Client.connect(self.endpoint(self.kind)) as other:
                client = echo_client.EchoClient(other)
                await client.fields(FIELDS)
                async for _ in client.count(types.EchoCount(first=1, last=3)):
                    pass
                self.assertEqual(threading.active_count(), threads)
        while self.server.statistics()["clients"] > 1:
            await asyncio.sleep(0.001)
        self.assertEqual(len(descriptors()), len(before))
        self.assertEqual(len(asyncio.all_tasks()), tasks)

    async def test_the_loop_is_not_held_up(self):
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.create_task(count())
        await self.client.fields(waiting(20))
        self.assertGreater(turns, 3)
        counter.cancel()


class SharedMemory(EventLoop):
    kind = "shm"

    async def test_frames_go_through_it(self):
        self.assertTrue(self.transport.is_shared)
        self.assertEqual(self.server.statistics()["shared_clients"], 1)


class Trouble(Place, unittest.IsolatedAsyncioTestCase):
    async def test_a_server_that_goes_fails_what_was_sent(self):
        def take_and_go(hand):
            self.assertEqual(hand.frame()[0], REQUEST)

        with Peer(self.endpoint(), take_and_go):
            async with await Client.connect(self.endpoint()) as transport:
                with self.assertRaises(Disconnected) as gone:
                    await transport.call(FIELDS_FRAME)
                self.assertEqual(gone.exception.retry, "unknown")
                self.assertIsInstance(gone.exception, ConnectionError)
                self.assertIn(self.endpoint(), str(gone.exception))
                with self.assertRaises(NotSent) as later:
                    await transport.call(FIELDS_FRAME)
                self.assertEqual(later.exception.retry, "safe")
                self.assertFalse(transport.is_connected)

    async def test_bytes_that_are_no_frame_fail_the_calls(self):
        def babble(hand):
            hand.frame()
            hand.send(b"\xff" * 64)

        with Peer(self.endpoint(), babble):
            async with await Client.connect(self.endpoint()) as transport:
                with self.assertRaises((BadFrame, FrameTooLarge)):
                    await transport.call(FIELDS_FRAME)

    async def test_an_answer_to_a_call_that_was_cancelled_is_dropped(self):
        def answer_late(hand):
            _, first, _, _ = hand.frame()
            self.assertEqual(hand.frame()[:2], (CANCEL, first))
            hand.send(header(END, first, 4), b"late")
            kind, second, _, _ = hand.frame()
            self.assertEqual(kind, REQUEST)
            self.assertNotEqual(second, first)
            hand.send(header(END, first, 5), b"twice", header(END, second, 3), b"yes")

        with Peer(self.endpoint(), answer_late):
            async with await Client.connect(self.endpoint()) as transport:
                call = asyncio.create_task(transport.call(b"first"))
                await asyncio.sleep(0.02)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                self.assertEqual(await transport.call(b"second"), b"yes")

    async def test_an_answer_that_came_and_was_not_taken_is_given_up_to_the_server(self):
        def answer_and_hear(hand):
            _, first, _, _ = hand.frame()
            hand.send(header(END, first, 10), b"a resource")
            self.assertEqual(hand.frame()[:2], (CANCEL, first))
            kind, second, _, _ = hand.frame()
            self.assertEqual(kind, REQUEST)
            hand.send(header(END, second, 3), b"yes")
            # What was taken is not given up, nor what failed.
            kind, third, _, _ = hand.frame()
            self.assertEqual(kind, REQUEST)
            hand.send(header(END, third, fault=Overloaded.fault))
            kind, fourth, _, _ = hand.frame()
            self.assertEqual(kind, REQUEST)
            hand.send(header(END, fourth, 3), b"yes")

        for is_told_first in (True, False):
            with self.subTest(is_told_first=is_told_first), Peer(self.endpoint(), answer_and_hear):
                async with await Client.connect(self.endpoint()) as transport:
                    tell = transport._tell

                    def tell_and_cancel(*event):
                        transport._tell = tell
                        for step in (lambda: tell(*event), call.cancel)[:: 1 if is_told_first else -1]:
                            step()

                    transport._tell = tell_and_cancel
                    call = asyncio.create_task(transport.call(b"first"))
                    with self.assertRaises(asyncio.CancelledError):
                        await call
                    self.assertEqual(await transport.call(b"second"), b"yes")
                    call = asyncio.create_task(transport.call(b"third"))
                    transport._tell = tell_and_cancel
                    with self.assertRaises(asyncio.CancelledError):
                        await call
                    self.assertEqual(await transport.call(b"fourth"), b"yes")
            os.unlink(self.endpoint())

    async def test_an_answer_of_a_call_that_was_given_up_after_it_was_brought_is_given_up_too(self):
        def answer_both(hand):
            _, first, _, _ = hand.frame()
            _, second, _, _ = hand.frame()
            hand.send(header(END, first, 5), b"first", header(END, second, 6), b"second")
            self.assertEqual(hand.frame()[:2], (CANCEL, second))
            kind, third, _, _ = hand.frame()
            self.assertEqual(kind, REQUEST)
            hand.send(header(END, third, 3), b"yes")

        with Peer(self.endpoint(), answer_both):
            async with await Client.connect(self.endpoint()) as transport:
                tell, wrong = transport._tell, []
                asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context["exception"]))
                first, second = [asyncio.create_task(transport.call(name)) for name in (b"first", b"second")]

                def tell_one(*event):
                    # As `KeyboardInterrupt` out of a hearer: the others are told in the next turn.
                    transport._tell = tell
                    tell(*event)
                    second.cancel()
                    raise ZeroDivisionError

                transport._tell = tell_one
                self.assertEqual(await first, b"first")
                with self.assertRaises(asyncio.CancelledError):
                    await second
                self.assertEqual(await transport.call(b"third"), b"yes")
                self.assertEqual([type(error) for error in wrong], [ZeroDivisionError])

    async def test_the_end_of_a_stream_that_was_not_taken_is_given_up_to_the_server(self):
        def stream_and_hear(hand):
            _, taken, _, _ = hand.frame()
            hand.send(header(ITEM, taken, 4), b"item", header(END, taken, 3), b"end")
            _, left, _, _ = hand.frame()
            hand.send(header(ITEM, left, 4), b"item", header(END, left, 3), b"end")
            self.assertEqual(hand.frame()[:2], (CANCEL, left))
            # One that failed has no end that anybody could have taken.
            kind, failed, _, _ = hand.frame()
            self.assertEqual(kind, REQUEST)
            hand.send(header(ITEM, failed, 4), b"item", header(END, failed, fault=Overloaded.fault))
            kind, after, _, _ = hand.frame()
            self.assertEqual(kind, REQUEST)
            hand.send(header(END, after, 3), b"yes")

        with Peer(self.endpoint(), stream_and_hear):
            async with await Client.connect(self.endpoint()) as transport:
                taken = transport.stream(b"taken", credit=8)
                self.assertEqual([frame async for frame in taken], [b"item", b"end"])
                await taken.aclose()
                tell = transport._tell

                def told(call, kind, value):
                    tell(call, kind, value)
                    if value != b"item":
                        ended.set()

                transport._tell = told
                for name in (b"left", b"failed"):
                    ended = asyncio.Event()
                    left = transport.stream(name, credit=8)
                    self.assertEqual(await anext(left), b"item")
                    await ended.wait()
                    await left.aclose()
                    await left.aclose()
                self.assertEqual(await transport.call(b"after"), b"yes")

    async def test_a_stream_that_another_thread_collects_is_cancelled_and_calls_go_on(self):
        cancelled = threading.Event()

        def stream_and_answer(hand):
            _, stream, _, _ = hand.frame()
            hand.send(header(ITEM, stream, 4), b"item")
            self.assertEqual(hand.frame()[:2], (CANCEL, stream))
            cancelled.set()
            _, call, _, _ = hand.frame()
            hand.send(header(END, call, 3), b"yes")

        with Peer(self.endpoint(), stream_and_answer):
            async with await Client.connect(self.endpoint()) as transport:
                known = [transport.stream(b"stream", credit=8)]
                self.assertEqual(await anext(known[0]), b"item")

                def collect() -> bool:
                    known.clear()
                    # Sooner than whatever else wakes the loop.
                    return cancelled.wait(4)

                self.assertTrue(await asyncio.to_thread(collect))
                self.assertEqual(await transport.call(b"call"), b"yes")

    async def test_items_that_nobody_takes_stop_the_server_and_come_once_they_are_taken(self):
        items = [bytes([number]) * (64 << 10) for number in range(200)]
        sent = threading.Event()

        def flood(hand):
            _, stream, _, _ = hand.frame()
            with contextlib.suppress(ConnectionError):
                for item in items:
                    hand.send(header(ITEM, stream, len(item)), item)
            sent.set()
            with contextlib.suppress(ConnectionError, EOFError):
                kind, call = None, 0
                while kind != REQUEST:
                    kind, call, _, _ = hand.frame()
                hand.send(header(END, stream, 3), b"end", header(END, call, 3), b"yes")
                hand.frame()

        async def take(transport, stream):
            for item in items:
                self.assertEqual(await anext(stream), item)

        async def call(transport, stream):
            self.assertEqual(await transport.call(b"behind them"), b"yes")
            self.assertEqual([frame async for frame in stream], [*items, b"end"])

        async def leave(transport, stream):
            await stream.aclose()
            self.assertEqual(await transport.call(b"behind them"), b"yes")

        async def forget(transport, stream):
            del stream
            self.assertEqual(await transport.call(b"behind them"), b"yes")

        for number, goes_on in enumerate((take, call, leave, forget)):
            sent.clear()
            endpoint = self.endpoint(f"{number}.sock")
            with self.subTest(goes_on.__name__), Peer(endpoint, flood):
                async with await Client.connect(endpoint) as transport:
                    streams = [transport.stream(b"all", credit=len(items))]
                    while not transport._holds_back:
                        self.assertFalse(sent.is_set(), "all of it is kept")
                        await asyncio.sleep(0)
                    self.assertLess(transport._kept_bytes, 2 * BACKLOG_BYTES)
                    await goes_on(transport, streams.pop())
                    self.assertEqual((transport._kept_bytes, transport._holds_back), (0, False))

    async def test_a_client_that_nobody_knows_says_so_and_closes(self):
        gone = threading.Event()

        def wait_for_end(hand):
            with self.assertRaises(EOFError):
                while True:
                    hand.frame()
            gone.set()

        for thread in (False, True):
            gone.clear()
            os.path.exists(self.endpoint()) and os.unlink(self.endpoint())
            with self.subTest(thread=thread), Peer(self.endpoint(), wait_for_end):
                known = [await Client.connect(self.endpoint())]

                def forget() -> list[str]:
                    with warnings.catch_warnings(record=True) as said:
                        warnings.simplefilter("always")
                        known.clear()
                        gc.collect()
                    return [str(warning.message) for warning in said if "unclosed client" in str(warning.message)]

                said = await asyncio.to_thread(forget) if thread else forget()
                self.assertEqual(len(said), 1)
                self.assertTrue(await asyncio.to_thread(gone.wait, 20))

    async def test_a_client_that_may_connects_anew(self):
        path = self.endpoint()
        with Background(path):
            transport = await Client.connect(path, reconnect=(0.01, 0.1))
            await transport.call(FIELDS_FRAME)
        for _ in range(100):
            if not transport.is_connected:
                break
            await asyncio.sleep(0.01)
        with Background(path):
            self.assertIn(b"EchoFieldsResponse", await transport.call(FIELDS_FRAME))
            transport.close()

    async def test_a_stream_that_connects_anew_goes_by_that_servers_credit(self):
        path = self.endpoint()
        with Background(path):
            transport = await Client.connect(path, reconnect=(0.01, 0.1))
            await transport.call(FIELDS_FRAME)
        while transport.is_connected:
            await asyncio.sleep(0.01)
        request = types.encode_request(types.EchoCount(first=0, last=100))
        with Background(path, stream_credit=2):
            frames = [frame async for frame in transport.stream(request, deadline=60)]
            self.assertEqual(len(frames), 102)
            transport.close()
