"""Being a service."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from functools import partial
from importlib import import_module
from pathlib import Path
from unittest import mock

import thalweg
import thalweg.calls
import thalweg.forks
import thalweg.service
from service_support import (
    CREDIT,
    END,
    ENDLESS,
    FIELDS,
    FIELDS_FRAME,
    GOODBYE,
    ITEM,
    REQUEST,
    ROOT,
    Hand,
    Patient,
    Place,
    echo_client,
    echo_server,
    header,
    types,
    waiting,
)
from support import status_of_child
from thalweg import _native
from thalweg.service import (
    Abandoned,
    AddressInUse,
    BadArgument,
    Client,
    Draining,
    Fault,
    FrameTooLarge,
    NoServer,
    NotSent,
    Refused,
    Server,
    Service,
    ServiceError,
    SyncClient,
    SyncService,
    serve,
)
from thalweg.service.stopping import stopped_by_signals

PLAIN = """
import sys
sys.path[:0] = sys.argv[2:]
from python import echo_server, echo_types as types
from thalweg.service import Refused, serve

class Echo:
    def fields(self, request):
        return types.EchoFieldsResponse(count=request.count, total=request.total, name=request.name)
    def fail(self, request):
        raise Refused(request.reason)
    def count(self, request):
        for value in range(request.first, request.last + 1):
            yield types.EchoCountItem(value=value)
        yield types.EchoCountResponse(count=request.last - request.first + 1)

serve(echo_server.service_sync(Echo()), sys.argv[1], ready=lambda: print("ready", flush=True))
print("ended")
"""


class Slow:
    """Writes and reads that take as long as the test says, and what was going on when each began."""

    def __init__(self):
        self.began = []
        self.at = []
        self.gates = {}

    async def take(self, name):
        self.began.append((name, sorted(self.at)))
        self.at.append(name)
        await self.gates.setdefault(name, asyncio.Event()).wait()
        self.at.remove(name)

    async def put(self, request):
        await self.take(request.value.decode())
        return types.EchoPutResponse(version=1)

    async def peek(self, request):
        await self.take("read")
        return types.EchoPeekResponse(value=None)

    async def peek_committed(self, request):
        await self.take("committed")
        return types.EchoPeekResponse(value=None)

    def end(self, name):
        self.gates.setdefault(name, asyncio.Event()).set()


class Ordered(Place, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.slow = Slow()
        self.server = Server(echo_server.service(self.slow), self.endpoint())
        serving = asyncio.create_task(self.server.run())
        self.addAsyncCleanup(asyncio.wait_for, serving, 60)
        self.addCleanup(self.server.stop)
        self.client = await Client.connect(self.endpoint(), schema=types.SCHEMA_HASH)
        self.echo = echo_client.EchoClient(self.client)

    def put(self, name, fork="a"):
        return asyncio.create_task(self.echo.put(types.EchoPut(fork=fork, value=name.encode())))

    def read(self, fork="a"):
        return asyncio.create_task(self.echo.peek(types.EchoPeek(fork=fork)))

    async def begun(self, *expected):
        async with asyncio.timeout(60):
            while len(self.slow.began) < len(expected):
                await asyncio.sleep(0)
        self.assertEqual(self.slow.began, list(expected))

    async def settled(self):
        """Everything that was asked has come: a call of another fork is answered."""
        self.slow.end("beside")
        await self.put("beside", "b")
        self.slow.began = [began for began in self.slow.began if began[0] != "beside"]

    async def test_calls_of_a_fork_take_turns(self):
        first = self.put("first")
        await self.begun(("first", []))
        second, read = self.put("second"), self.read()
        committed = asyncio.create_task(self.echo.peek_committed(types.EchoPeekCommitted(fork="a")))
        await self.begun(("first", []), ("committed", ["first"]))
        await self.settled()
        self.slow.end("first")
        await first
        await self.begun(("first", []), ("committed", ["first"]), ("second", ["committed"]))
        self.slow.end("second")
        await second
        self.slow.end("read")
        self.slow.end("committed")
        await asyncio.gather(read, committed)
        self.assertEqual(self.slow.began[-1], ("read", ["committed"]))

    def test_generated_code_that_brings_its_own_words_brings_the_same(self):
        for module, copy in ((thalweg.forks, "forks.py"), (thalweg.calls, "service.py")):
            ours = Path(module.__file__).read_text()
            self.assertEqual(ours, (ROOT / "crates/codegen/runtime/python" / copy).read_text())

    async def test_a_stream_has_cleaned_up_before_its_call_is_over(self):
        told = []

        class Heard:
            async def item(self, frame):
                return True

            def end(self, frame):
                told.append("answered")

        async def items(*values):
            try:
                for value in values:
                    yield value
            finally:
                await asyncio.sleep(0)
                told.append("cleaned up")

        def encode(value):
            return bytes([value])

        await thalweg.service.send_items(items(1, True), Heard(), encode, bool)
        self.assertEqual(told, ["cleaned up", "answered"])
        told.clear()
        with self.assertRaises(ValueError):
            await thalweg.service.send_items(items(-1, True), Heard(), encode, bool)
        self.assertEqual(told, ["cleaned up"])
        told.clear()

        class Iterates:
            """No generator: there is nothing to clean up."""

            def __init__(self, *values):
                self.values = iter(values)

            def __aiter__(self):
                return self

            async def __anext__(self):
                return next(self.values)

        await thalweg.service.send_items(Iterates(1, True), Heard(), encode, bool)
        self.assertEqual(told, ["answered"])
        told.clear()

        class HeardSync(Heard):
            def item(self, frame):
                return True

        thalweg.service.send_items_sync(iter([1, True]), HeardSync(), encode, bool)
        self.assertEqual(told, ["answered"])

    async def test_who_waits_and_is_cancelled_lets_the_next_begin_in_its_turn(self):
        first = self.put("first")
        await self.begun(("first", []))
        second, third = self.put("second"), self.put("third")
        await self.settled()
        second.cancel()
        await asyncio.wait([second])
        await self.settled()
        self.assertEqual(self.slow.began, [("first", [])])
        self.slow.end("first")
        await first
        await self.begun(("first", []), ("third", []))
        self.slow.end("third")
        await third


class Serving(Place, unittest.IsolatedAsyncioTestCase):
    def serve(self, dispatch=None, **options):
        self.echo = Patient()
        service = echo_server.service(self.echo)
        if dispatch is not None:
            service = Service(dispatch, service.schema, service.error)
        return Server(service, self.endpoint(), self.endpoint("shm"), **options)

    async def test_what_was_begun_is_answered_before_the_end(self):
        server = self.serve()
        server.start()
        async with await Client.connect(self.endpoint()) as transport:
            client = echo_client.EchoClient(transport)
            call = asyncio.create_task(client.fields(waiting(50)))
            await self.echo.began.wait()
            closing = asyncio.create_task(server.close())
            await asyncio.sleep(0)
            self.assertFalse(os.path.exists(self.endpoint()))
            with self.assertRaises((Draining, NotSent)) as refused:
                await client.fields(FIELDS)
            self.assertEqual(refused.exception.retry, "safe")
            self.assertEqual((await call).total, 50)
        await closing
        await server.close()
        with self.assertRaises(NoServer):
            await Client.connect(self.endpoint(), connect_within=0)

    async def test_a_request_that_comes_with_the_stop_does_not_hold_up_the_end(self):
        async def at_once(frame, reply):
            reply.end(frame)

        server = self.serve(at_once, drain_grace=3600)
        server.start()
        hand = await asyncio.to_thread(Hand.to, self.endpoint())
        # One turn brings both.
        hand.send(header(REQUEST, 1, len(FIELDS_FRAME)), FIELDS_FRAME)
        server.stop()
        await asyncio.wait_for(server.wait(), 60)
        await server.close()
        self.assertEqual([hand.frame()[:2] for _ in range(2)], [(GOODBYE, 0), (END, 1)])
        hand.close()

    async def test_a_child_leaves_the_server_to_its_parent(self):
        def close(server):
            server._listener.close()

        def let_go(server):
            del server._listener
            gc.collect()

        async with self.serve() as server:
            for kind in ("sock", "shm"):
                async with await Client.connect(self.endpoint(kind)) as transport:
                    client = echo_client.EchoClient(transport)
                    await client.fields(FIELDS)
                    for leave in (close, let_go):
                        with self.subTest(kind=kind, leave=leave.__name__):
                            self.assertEqual(status_of_child(partial(leave, server)), 0)
                            answer = await asyncio.wait_for(client.fields(FIELDS), 60)
                            self.assertEqual(answer.name, FIELDS.name)
                            async with await Client.connect(self.endpoint(kind)) as other:
                                await echo_client.EchoClient(other).fields(FIELDS)

    async def test_a_child_is_told_that_the_server_is_its_parents(self):
        def ask(listener):
            for call in ("turn", "finish", "wait", "stop", "fileno", "statistics"):
                with self.assertRaisesRegex(RuntimeError, "after a fork"):
                    getattr(listener, call)()
            self.assertTrue(listener.is_stopped)

        async with self.serve() as server, await Client.connect(self.endpoint()) as transport:
            self.assertEqual(status_of_child(partial(ask, server._listener)), 0)
            await asyncio.wait_for(echo_client.EchoClient(transport).fields(FIELDS), 60)

    async def test_a_child_leaves_the_clients_to_its_parent(self):
        def leave(transport):
            with self.assertRaisesRegex(RuntimeError, "after a fork"):
                transport._connection.turn()
            transport._connection.close()
            gc.collect()

        async with self.serve():
            for kind in ("sock", "shm"):
                with self.subTest(kind=kind):
                    async with await Client.connect(self.endpoint(kind)) as transport:
                        client = echo_client.EchoClient(transport)
                        await client.fields(FIELDS)
                        self.assertEqual(status_of_child(partial(leave, transport)), 0)
                        answer = await asyncio.wait_for(client.fields(FIELDS), 60)
                        self.assertEqual(answer.name, FIELDS.name)

    async def test_a_child_leaves_the_answers_to_its_parent(self):
        def answer():
            reply = held[0]
            for call in (
                lambda: reply.end(b"the child's"),
                lambda: reply.item(b"the child's"),
                lambda: reply.fail(Fault.ABANDONED, "the child's"),
                reply.watch,
                reply.watch_cancel,
                lambda: reply.is_cancelled,
            ):
                with self.assertRaisesRegex(RuntimeError, "after a fork"):
                    call()

        def let_go():
            held.clear()
            gc.collect()

        held, status = [], []

        async def forks(_frame, reply):
            held.append(reply._native)
            reply._native = None
            status.extend(status_of_child(work) for work in (answer, let_go))
            held.pop().end(b"the parent's")

        async with self.serve(forks):
            for kind in ("sock", "shm"):
                async with await Client.connect(self.endpoint(kind)) as transport:
                    answered = await transport.call(FIELDS_FRAME, deadline=60)
                    self.assertEqual((answered, status), (b"the parent's", [0, 0]))
                status.clear()

    def test_a_child_closes_a_server_that_a_thread_of_its_parent_waits_in(self):
        listener = _native.Listener([self.endpoint()])
        waits = threading.Thread(target=listener.wait)
        waits.start()
        # However far the thread is, the child ends.
        time.sleep(0.05)
        self.assertEqual(status_of_child(listener.close), 0)
        listener.stop()
        waits.join()
        listener.close()

    async def test_after_its_grace_whoever_does_not_read_is_left(self):
        server = self.serve(drain_grace=0.05)
        server.start()
        async with await Client.connect(self.endpoint()) as transport:
            call = asyncio.create_task(echo_client.EchoClient(transport).fields(waiting(Patient.FOR_GOOD)))
            await self.echo.began.wait()
            await server.close()
            self.assertTrue(self.echo.cancelled.is_set())
            with self.assertRaises(ServiceError):
                await call

    async def test_after_its_grace_what_an_interrupt_took_from_its_handlers_is_not_waited_for(self):
        server = self.serve(drain_grace=0.05)
        server.start()
        async with await Client.connect(self.endpoint()) as transport:
            # As the traceback of an interrupt does.
            kept = []
            with mock.patch.object(server, "_begin", kept.extend):
                call = asyncio.create_task(echo_client.EchoClient(transport).fields(FIELDS))
                while not kept:
                    await asyncio.sleep(0.001)
            await asyncio.wait_for(server.close(), 20)
            with self.assertRaises(ServiceError):
                await call

    async def test_handlers_have_cleaned_up_when_it_is_closed(self):
        began, ended = asyncio.Semaphore(0), []

        async def slow(frame, reply):
            if frame == b"answered":
                reply.end(frame)
            began.release()
            try:
                await asyncio.sleep(3600)
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
                ended.append(frame)

        async def impatient(server):
            closing = asyncio.create_task(server.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])

        async def twice(server):
            await asyncio.gather(server.close(), server.close())

        # A call that is answered holds no server up that is stopped, and neither does any when its grace is over.
        for close, grace, frames in (
            (Server.close, 0, [b"answered", b"answered"]),
            (twice, 0, [b"answered", b"in flight"]),
            (impatient, 3600, [b"in flight", b"in flight"]),
        ):
            server = self.serve(slow, drain_grace=grace)
            server.start()
            async with await Client.connect(self.endpoint()) as transport:
                calls = [asyncio.ensure_future(transport.call(frame)) for frame in frames]
                for _ in frames:
                    await began.acquire()
                with self.subTest(close=close.__name__):
                    await close(server)
                    self.assertEqual(sorted(ended), frames)
                ended.clear()
                await asyncio.gather(*calls, return_exceptions=True)

    async def test_a_handler_that_has_answered_may_close_its_server(self):
        closed = asyncio.Event()

        async def last(_frame, reply):
            reply.end(FIELDS_FRAME)
            await server.close()
            closed.set()

        server = self.serve(last, drain_grace=0)
        server.start()
        async with await Client.connect(self.endpoint()) as transport:
            self.assertEqual(await transport.call(FIELDS_FRAME), FIELDS_FRAME)
            await asyncio.wait_for(closed.wait(), 60)

    async def test_two_handlers_may_close_their_server_and_none_waits_for_the_other(self):
        both, closed = asyncio.Barrier(2), asyncio.Semaphore(0)

        async def last(frame, reply):
            await both.wait()
            reply.end(frame)
            try:
                await server.close()
            finally:
                closed.release()

        server = self.serve(last)
        server.start()
        async with await Client.connect(self.endpoint()) as transport:
            calls = [transport.call(FIELDS_FRAME) for _ in range(2)]
            self.assertEqual(await asyncio.gather(*calls), [FIELDS_FRAME] * 2)
            for _ in calls:
                await asyncio.wait_for(closed.acquire(), 60)
        await server.close()

    async def test_a_handler_that_closes_its_server_can_still_answer(self):
        asked, may_answer, told = asyncio.Semaphore(0), asyncio.Event(), []

        async def answer(frame, reply):
            asked.release()
            if frame == b"closes":
                await server.close()
            else:
                await may_answer.wait()
            told.append(frame)
            reply.end(frame)

        server = self.serve(answer)
        server.start()
        async with await Client.connect(self.endpoint()) as transport:
            calls = [asyncio.ensure_future(transport.call(frame)) for frame in (b"closes", b"closes", b"other")]
            for _ in calls:
                await asked.acquire()
            # It does not end with one that is cancelled while it closes it.
            calls.pop(0).cancel()
            self.assertEqual(told, [])
            may_answer.set()
            self.assertEqual(await asyncio.gather(*calls), [b"closes", b"other"])
        await asyncio.wait_for(server.wait(), 60)
        self.assertEqual(told, [b"other", b"closes"])
        with self.assertRaises(NoServer):
            await Client.connect(self.endpoint(), connect_within=0)

    async def test_a_handler_that_gives_no_answer_has_abandoned_its_call(self):
        async def silent(_frame, _reply):
            pass

        async with self.serve(silent), await Client.connect(self.endpoint()) as transport:
            with self.assertRaises(Abandoned) as abandoned:
                await transport.call(FIELDS_FRAME)
            self.assertEqual(abandoned.exception.retry, "unknown")

    async def test_one_that_was_never_started_is_not_waited_for(self):
        server = self.serve()
        with self.assertRaisesRegex(RuntimeError, "never started"):
            await server.wait()
        server.stop()
        await server.close()

    async def test_a_handler_that_ends_without_an_answer_leaves_a_trace(self):
        async def silent(_frame, _reply):
            pass

        async def cancels_itself(_frame, _reply):
            asyncio.current_task().cancel()
            await asyncio.sleep(60)

        async def awaits_what_was_cancelled(_frame, _reply):
            apart = asyncio.create_task(asyncio.sleep(60))
            asyncio.get_running_loop().call_soon(apart.cancel)
            await apart

        class Left(BaseException):
            pass

        async def leaves(_frame, _reply):
            raise Left

        for handler, words in (
            (silent, "returned without one"),
            (cancels_itself, "was cancelled"),
            (awaits_what_was_cancelled, "was cancelled"),
            (leaves, "raised Left"),
        ):
            async with self.serve(handler), await Client.connect(self.endpoint()) as transport:
                with self.assertLogs("thalweg.service", "ERROR") as logged, self.assertRaises(Abandoned):
                    await transport.call(FIELDS_FRAME)
            self.assertIn(words, logged.output[0])

    async def test_a_handler_that_is_cancelled_by_its_client_or_by_the_end_of_its_server_leaves_none(self):
        begun = asyncio.Queue()

        async def slow(_frame, _reply):
            begun.put_nowait(None)
            await asyncio.sleep(60)

        with self.assertNoLogs("thalweg.service"):
            async with self.serve(slow, drain_grace=0.0), await Client.connect(self.endpoint()) as transport:
                call = asyncio.create_task(transport.call(FIELDS_FRAME))
                await begun.get()
                call.cancel()
                other = asyncio.create_task(transport.call(FIELDS_FRAME))
                await begun.get()
            await asyncio.wait([call, other])

    async def test_a_handler_that_raises_answers_with_the_error(self):
        async def broken(_frame, _reply):
            raise KeyError("missing")

        async with self.serve(broken), await Client.connect(self.endpoint()) as transport:
            with self.assertLogs("thalweg.service", "ERROR") as logged:
                answer = types.decode_response(await transport.call(FIELDS_FRAME))
            self.assertEqual(answer, types.EchoErrorResponse(message="'missing'"))
        self.assertIn("in broken", logged.output[0])

    async def test_a_mistake_of_a_handler_is_logged_and_a_refusal_is_not(self):
        async def mistake(_request):
            raise KeyError("missing")

        async def ends_early(_request):
            yield types.EchoCountItem(value=1)
            raise KeyError("missing")

        async with self.serve(), await Client.connect(self.endpoint()) as transport:
            echo = echo_client.EchoClient(transport)
            with self.assertNoLogs(), self.assertRaisesRegex(Refused, "^no$"):
                await echo.fail(types.EchoFail(reason="no"))
            with self.assertNoLogs():
                async for _ in echo.count(ENDLESS, credit=1):
                    break
                await asyncio.wait_for(self.echo.cancelled.wait(), 60)
                await echo.bytes(types.EchoBytes(data=b""))
            self.echo.bytes, self.echo.count = mistake, ends_early
            with self.assertLogs("thalweg.service", "ERROR") as logged:
                with self.assertRaisesRegex(Refused, "^'missing'$"):
                    await echo.bytes(types.EchoBytes(data=b""))
                with self.assertRaisesRegex(Refused, "^'missing'$"):
                    [item async for item in echo.count(ENDLESS)]
        names = "EchoBytes", "EchoCount"
        for name, method, words in zip(names, (mistake, ends_early), logged.output, strict=True):
            self.assertIn(f"{name} failed", words)
            self.assertIn(f"in {method.__name__}\n", words)
            self.assertIn("KeyError: 'missing'", words)

    async def test_a_handler_may_fail_with_any_fault_and_answers_once(self):
        async def busy(frame, reply):
            reply.fail(Fault.OVERLOADED, "come back later")
            reply.end(b"too late")

        async with self.serve(busy), await Client.connect(self.endpoint()) as transport:
            with self.assertRaises(ServiceError) as overloaded:
                await transport.call(FIELDS_FRAME)
            self.assertEqual((overloaded.exception.code, overloaded.exception.retry), ("OVERLOADED", "safe"))
            self.assertIn("come back later", str(overloaded.exception))

    async def test_a_long_request_is_refused_and_the_connection_goes_on(self):
        async with self.serve(frame_bytes_max=1000), await Client.connect(self.endpoint()) as transport:
            with self.assertRaises(FrameTooLarge):
                await transport.call(bytes(1001))
            self.assertIn(b"EchoFieldsResponse", await transport.call(FIELDS_FRAME))

    async def test_an_id_in_use_is_refused_and_the_connection_goes_on(self):
        async with self.serve():
            hand = await asyncio.to_thread(Hand.to, self.endpoint())
            slow = types.encode_request(waiting(30))
            hand.send(header(REQUEST, 9, len(slow)), slow, header(REQUEST, 9, len(FIELDS_FRAME)), FIELDS_FRAME)
            heard = [await asyncio.to_thread(hand.frame) for _ in range(2)]
            self.assertEqual(sorted(frame[:3] for frame in heard), [(END, 9, 0), (END, 9, Fault.DUPLICATE_ID)])
            hand.send(header(REQUEST, 9, len(FIELDS_FRAME)), FIELDS_FRAME)
            self.assertEqual((await asyncio.to_thread(hand.frame))[:3], (END, 9, 0))
            hand.close()

    async def test_credit_is_counted(self):
        async with self.serve():
            hand = await asyncio.to_thread(Hand.to, self.endpoint())
            request = types.encode_request(types.EchoCount(first=1, last=5))
            hand.send(header(REQUEST, 1, len(request), credit=2), request)
            self.assertEqual([(await asyncio.to_thread(hand.frame))[0] for _ in range(2)], [ITEM, ITEM])
            hand.send(header(REQUEST, 2, len(FIELDS_FRAME)), FIELDS_FRAME)
            self.assertEqual((await asyncio.to_thread(hand.frame))[:2], (END, 2))
            hand.send(header(CREDIT, 1, credit=10))
            kinds = [(await asyncio.to_thread(hand.frame))[:2] for _ in range(4)]
            self.assertEqual(kinds, [(ITEM, 1)] * 3 + [(END, 1)])
            hand.close()

    async def test_half_a_frame_and_garbage_hold_nobody_up(self):
        async with self.serve() as server, await Client.connect(self.endpoint()) as transport:
            half = await asyncio.to_thread(Hand.to, self.endpoint())
            half.send(header(REQUEST, 1, 100), b"half")
            garbage = await asyncio.to_thread(Hand.to, self.endpoint())
            garbage.send(b"\xff" * 100)
            for _ in range(10):
                await echo_client.EchoClient(transport).fields(FIELDS)
            kind, _, fault, _ = await asyncio.to_thread(garbage.frame)
            self.assertIn(fault, (Fault.BAD_FRAME, Fault.FRAME_TOO_LARGE))
            with self.assertRaises(EOFError):
                await asyncio.to_thread(garbage.frame)
            half.close()
            garbage.close()
            while server.statistics()["clients"] > 1:
                await asyncio.sleep(0.001)

    async def test_plain_frames_are_answered_in_their_order(self):
        async with self.serve():
            client = await Client.connect(self.endpoint(), plain=True)
            echo = echo_client.EchoClient(client)
            ended = []

            async def call(milliseconds):
                ended.append((await echo.fields(waiting(milliseconds))).total)

            await asyncio.gather(*map(call, (30, 0, 15)))
            self.assertEqual(ended, [30, 0, 15])
            client.close()

    async def test_one_server_at_an_endpoint(self):
        async with self.serve():
            with self.assertRaises(AddressInUse):
                self.serve()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.endpoint())
        async with self.serve(), await Client.connect(self.endpoint()) as transport:
            await echo_client.EchoClient(transport).fields(FIELDS)
        whole = ("frame_bytes_max", "ring_bytes_max", "clients_max", "in_flight_max", "in_flight_bytes_max", "unsent_bytes_max")
        for name in (*whole, "stream_credit", "drain_grace", "hello_within"):
            for wrong in (-1, 10**400):
                with self.assertRaisesRegex(BadArgument, f"{name} is {wrong}: give "):
                    self.serve(**{name: wrong})
        for wrong in ({"clients_max": 0}, {"in_flight_max": 0}, {"drain_grace": -1.0}, {"hello_within": -1.0}):
            with self.assertRaises(BadArgument):
                self.serve(**wrong)

    async def test_both_kinds_of_endpoint_at_once(self):
        async with self.serve() as server:
            for kind in ("sock", "shm"):
                async with await Client.connect(self.endpoint(kind)) as transport:
                    self.assertEqual(transport.is_shared, kind == "shm")
                    await echo_client.EchoClient(transport).fields(FIELDS)
            self.assertEqual((server.statistics()["requests"], server.statistics()["answers"]), (2, 2))

    async def test_a_handler_given_for_its_service_is_refused_before_anything_listens(self):
        async def served(request):
            return types.EchoFieldsResponse(count=1, total=1, name="")

        awaited, plain = echo_server.service(Patient()), echo_server.service_sync(Plain())
        # Of generated code that has a runtime of its own, and of what has this one's.
        self.assertNotIsInstance(plain, SyncService)
        ours = SyncService(lambda frame, reply: None, plain.schema, plain.error)
        for call, says in (
            (lambda: Server(Patient(), self.endpoint()), r"is no service: give what the generated service\(handler\)"),
            (lambda: Server(None), "^None is no service"),
            (lambda: Server(served, self.endpoint()), "is no service"),
            (lambda: serve(Patient(), self.endpoint()), r"is no service: give what the generated service_sync\(handler\)"),
            (lambda: serve(awaited, self.endpoint()), r"^serve\(\) awaits nothing: give what the generated service_sync"),
            (lambda: Server(plain, self.endpoint()), r"^Server awaits: give what service\(handler\) returns, or serve this by serve"),
            (lambda: Server(ours, self.endpoint()), "^Server awaits"),
        ):
            with self.assertRaisesRegex(TypeError, says):
                call()
        self.assertEqual(os.listdir(self.directory), [])

    async def test_what_returns_an_awaitable_is_served_whatever_kind_of_function_it_is(self):
        whole = echo_server.service(Patient())
        async with Server(Service(lambda *given: whole.dispatch(*given), whole.schema, whole.error), self.endpoint()):
            async with await Client.connect(self.endpoint()) as transport:
                self.assertEqual((await echo_client.EchoClient(transport).fields(FIELDS)).name, FIELDS.name)


class Plain:
    """Counts, says fields back, and ends the thread that serves it when it is asked for bytes."""

    def __init__(self):
        self.left = threading.Event()

    def fields(self, request):
        return types.EchoFieldsResponse(count=request.count, total=request.total, name=request.name)

    def count(self, request):
        try:
            for value in range(request.first, request.last + 1):
                yield types.EchoCountItem(value=value)
            yield types.EchoCountResponse(count=request.last - request.first + 1)
        finally:
            self.left.set()

    def bytes(self, request):
        raise SystemExit


class PlainPlace(Place):
    """A handler of plain functions that is served in a thread, and two who call it."""

    def setUp(self) -> None:
        super().setUp()
        path, ready, module = self.endpoint(), threading.Event(), import_module("thalweg.service.serve")
        self.turned, turn = threading.Semaphore(0), module._Loop.turn

        def counted(loop):
            turn(loop)
            self.turned.release()

        self.enterContext(mock.patch.object(module._Loop, "turn", counted))
        self.plain = Plain()
        service = self.service()
        self.thread = threading.Thread(target=lambda: module.serve(service, path, ready=ready.set))
        self.thread.start()
        self.addCleanup(self.thread.join)
        ready.wait()
        # A server that waits for one of them alone fails the test and does not hold it up.
        self.transport = self.enterContext(SyncClient(path, deadline=60))
        self.other = self.enterContext(SyncClient(path, deadline=60))
        self.echo = echo_client.EchoSyncClient(self.transport)
        self.addCleanup(self.end)

    def service(self):
        return echo_server.service_sync(self.plain)

    def end(self):
        if self.thread.is_alive():
            with SyncClient(self.endpoint()) as last:
                last.send(types.encode_request(types.EchoBytes(data=b"")))
                last.flush()

    def values(self, items):
        return [item.value for item in items if hasattr(item, "value")]


class PlainFunctions(PlainPlace):
    def test_others_are_served_while_a_stream_waits_for_credit(self):
        streams = [self.echo.count(types.EchoCount(first=1, last=300), credit=2) for _ in range(2)]
        for items in streams:
            self.assertEqual(next(items), types.EchoCountItem(value=1))
        # By the same connection and by another, more often than items are kept for which there is no credit.
        for _ in range(64):
            self.assertEqual(self.echo.fields(FIELDS).name, "three")
            self.assertIn(b"EchoFieldsResponse", self.other.call(FIELDS_FRAME))
        # Neither needs the other's end.
        for items in streams:
            self.assertEqual(self.values(items), list(range(2, 301)))

    def test_a_mistake_of_a_handler_is_logged_and_a_refusal_is_not(self):
        def mistake(_request):
            raise KeyError("missing")

        def refuses(_request):
            raise Refused("no")

        def ends_early(_request):
            yield from [types.EchoCountItem(value=value) for value in range(5)]
            raise KeyError("missing")

        self.plain.peek, self.plain.fields, self.plain.count = mistake, refuses, ends_early
        with self.assertLogs("thalweg.service", "ERROR") as logged:
            with self.assertRaisesRegex(Refused, "^no$"):
                self.echo.fields(FIELDS)
            with self.assertRaisesRegex(Refused, "^'missing'$"):
                self.echo.peek(types.EchoPeek(fork="a"))
            with self.assertRaisesRegex(Refused, "^'missing'$"):
                list(self.echo.count(ENDLESS, credit=2))
        names = "EchoPeek", ends_early.__qualname__
        for name, method, words in zip(names, (mistake, ends_early), logged.output, strict=True):
            self.assertIn(f"{name} failed", words)
            self.assertIn(f"in {method.__name__}\n", words)

    def test_a_stream_that_is_left_while_it_waits_has_cleaned_up(self):
        items = self.echo.count(ENDLESS, credit=2)
        next(items)
        items.close()
        self.transport.flush()
        self.assertTrue(self.plain.left.wait(60))
        self.assertIn(b"EchoFieldsResponse", self.other.call(FIELDS_FRAME))

    def test_a_stream_that_waits_when_the_server_ends_has_cleaned_up(self):
        items = self.echo.count(ENDLESS, credit=2)
        next(items)
        self.end()
        self.thread.join()
        self.assertTrue(self.plain.left.is_set())


class PlainFunctionsInTurn(PlainPlace):
    """As generated for a stream whose command is ordered by a fork."""

    def service(self):
        whole = super().service()

        def dispatch(frame, reply):
            request = types.decode_request(frame)
            if not isinstance(request, types.EchoCount):
                return whole.dispatch(frame, reply)
            rest = types.encode_response, types.EchoCountResponse
            thalweg.calls.send_items_sync(self.plain.count(request), reply, *rest, in_turn=True)

        return SyncService(dispatch, whole.schema, whole.error)

    def test_what_others_ask_is_taken_in_and_is_no_credit(self):
        items = self.echo.count(types.EchoCount(first=1, last=300), credit=2)
        self.assertEqual(next(items), types.EchoCountItem(value=1))
        calls = []
        # More turns than it holds back of items for which there is no credit.
        for _ in range(64):
            calls.append(self.other.send(FIELDS_FRAME))
            self.other.flush()
            self.assertTrue(self.turned.acquire(timeout=60))
        self.assertEqual(self.values(items), list(range(2, 301)))
        for call in calls:
            self.assertIn(b"EchoFieldsResponse", self.other.receive(call))

    def test_requests_of_a_client_that_is_gone_are_dropped(self):
        items = self.echo.count(types.EchoCount(first=1, last=300), credit=2)
        next(items)
        served, self.plain.fields = [], lambda request: served.append(request)
        for _ in range(8):
            self.other.send(FIELDS_FRAME)
        self.other.flush()
        self.assertTrue(self.turned.acquire(timeout=60))
        # The last turn before the client is gone has ended, and one that saw that it is.
        while self.turned.acquire(blocking=False):
            pass
        self.other.close()
        for _ in range(2):
            self.assertTrue(self.turned.acquire(timeout=60))
        self.assertEqual(self.values(items), list(range(2, 301)))
        self.assertEqual(served, [])


class Signals(Place):
    """What asks a process to end stops what runs in it, and is whose it was afterwards."""

    def setUp(self) -> None:
        super().setUp()
        self.count = 0

    def server(self) -> Server:
        self.count += 1
        return Server(echo_server.service(Patient()), str(self.directory / f"{self.count}.sock"))

    def run_it(self, main) -> None:
        """In every kind of loop."""
        for run in (asyncio.run, thalweg.run):
            with self.subTest(run=run.__module__):
                run(main())

    def test_one_stops_every_server_of_the_loop(self):
        async def main() -> None:
            first, second = asyncio.Event(), asyncio.Event()
            running = [
                asyncio.create_task(self.server().run(first.set)),
                asyncio.create_task(self.server().run(second.set)),
            ]
            await first.wait()
            await second.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(asyncio.gather(*running), 20)

        self.run_it(main)

    def test_an_interrupt_while_it_begins_to_hear_stops_it(self):
        def interrupt(_frame: object, event: str, called: object) -> None:
            if event == "c_return" and getattr(called, "__name__", "") == "signal":
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

        stops, before = [], [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        sys.setprofile(interrupt)
        try:
            with stopped_by_signals(lambda: stops.append(True)):
                pass
        finally:
            sys.setprofile(None)
        self.assertEqual(stops, [True])
        self.assertEqual([signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)], before)

    def test_handlers_that_were_there_are_there_again(self):
        async def main() -> None:
            loop, heard = asyncio.get_running_loop(), []
            before = signal.getsignal(signal.SIGINT)
            loop.add_signal_handler(signal.SIGTERM, heard.append, "own")
            for _ in range(2):
                server = self.server()
                other = self.server()
                ran = [asyncio.create_task(server.run(other.stop)), asyncio.create_task(other.run(server.stop))]
                await asyncio.gather(*ran)
            self.assertEqual(signal.getsignal(signal.SIGINT), before)
            os.kill(os.getpid(), signal.SIGTERM)
            while not heard:
                await asyncio.sleep(0)
            loop.remove_signal_handler(signal.SIGTERM)

        self.run_it(main)

    def test_a_handler_that_is_set_meanwhile_stays(self):
        async def main() -> None:
            loop, heard = asyncio.get_running_loop(), []
            server = self.server()

            def ready() -> None:
                loop.add_signal_handler(signal.SIGTERM, heard.append, "own")
                server.stop()

            await server.run(ready)
            os.kill(os.getpid(), signal.SIGTERM)
            while not heard:
                await asyncio.sleep(0)
            loop.remove_signal_handler(signal.SIGTERM)

        self.run_it(main)

    def test_the_handler_of_a_task_that_has_ended_is_not_put_back(self):
        async def starts() -> tuple[Server, asyncio.Task[None]]:
            server, serves = self.server(), asyncio.Event()
            running = asyncio.create_task(server.run(serves.set))
            await serves.wait()
            return server, running

        async def ends(server: Server, running: asyncio.Task[None]) -> None:
            server.stop()
            await running

        before = signal.getsignal(signal.SIGINT)
        for factory in (asyncio.new_event_loop, thalweg.new_event_loop):
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(ends(*runner.run(starts())))
            self.assertEqual(signal.getsignal(signal.SIGINT), before)

    def test_a_handler_that_is_cancelled_with_all_tasks_of_the_loop_leaves_no_trace(self):
        def run_until_it_fails(run) -> None:
            async def main() -> None:
                begun = asyncio.Semaphore(0)

                async def slow(_frame, _reply):
                    begun.release()
                    await asyncio.sleep(60)

                of = echo_server.service(Patient())
                self.count += 1
                path = str(self.directory / f"{self.count}.sock")
                server = Server(Service(slow, of.schema, of.error), path)
                server.start()

                async def asks():
                    async with await Client.connect(path) as transport:
                        await asyncio.gather(*(transport.call(FIELDS_FRAME) for _ in range(3)))

                asking = asyncio.create_task(asks())
                for _ in range(3):
                    await begun.acquire()
                self.assertFalse(asking.done())
                raise ZeroDivisionError

            with self.assertRaises(ZeroDivisionError):
                run(main())

        for run in (asyncio.run, thalweg.run):
            with self.subTest(run=run.__module__), self.assertNoLogs("thalweg.service"):
                run_until_it_fails(run)

    def test_in_another_thread_it_ends_by_being_stopped(self):
        before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        ended = []

        async def main() -> None:
            server = self.server()
            await server.run(server.stop)
            ended.append(True)

        for run in (asyncio.run, thalweg.run):
            thread = threading.Thread(target=lambda: run(main()))
            thread.start()
            thread.join()
        self.assertEqual(ended, [True, True])
        self.assertEqual([signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)], before)


class Programs(Place):
    """Servers and clients as programs, as the matrix runs them."""

    def program(self, *command: str) -> subprocess.Popen:
        child = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def ends(self, server: subprocess.Popen, number: int, path: str) -> None:
        server.send_signal(number)
        self.assertEqual(server.wait(60), 0)
        self.assertFalse(os.path.exists(path))

    def test_every_call_over_both_kinds_of_endpoint(self):
        programs = ROOT / "faces/python/echo"
        for kind, number in (("sock", signal.SIGTERM), ("shm", signal.SIGINT)):
            with self.subTest(kind):
                path = self.endpoint(kind)
                server = self.program(str(programs / "server.py"), path)
                self.assertEqual(server.stdout.readline(), "ready\n")
                client = self.program(str(programs / "client.py"), path)
                self.assertRegex(client.stdout.read(), r"\Aok \d+\n\Z")
                self.assertEqual(client.wait(60), 0)
                self.ends(server, number, path)

    def test_plain_functions(self):
        for kind, number in (("sock", signal.SIGINT), ("shm", signal.SIGTERM)):
            with self.subTest(kind):
                path = self.endpoint(kind)
                server = self.program("-c", PLAIN, path, str(ROOT / "schemas/generated"))
                self.assertEqual(server.stdout.readline(), "ready\n")
                with SyncClient(path) as transport:
                    self.calls_plain_functions(transport)
                self.ends(server, number, path)
                self.assertEqual(server.stdout.read(), "ended\n")

    def calls_plain_functions(self, transport: SyncClient) -> None:
        client = echo_client.EchoSyncClient(transport)
        for number in range(100):
            self.assertEqual(client.fields(types.EchoFields(count=number, total=0, name="")).count, number)
        values = list(client.count(types.EchoCount(first=1, last=300), credit=2))
        self.assertEqual(values[-1], types.EchoCountResponse(count=300))
        self.assertEqual(len(values), 301)
        with self.assertRaisesRegex(Refused, "^no$"):
            client.fail(types.EchoFail(reason="no"))
        # A method that the handler lacks.
        with self.assertRaises(Refused):
            client.bytes(types.EchoBytes(data=b""))
        # A stream that waits for its reader keeps nobody else from being answered.
        items = client.count(ENDLESS, credit=2)
        self.assertEqual(next(items), types.EchoCountItem(value=0))
        self.assertEqual(client.fields(FIELDS).name, "three")
        del items
        self.assertEqual(client.fields(FIELDS).name, "three")
