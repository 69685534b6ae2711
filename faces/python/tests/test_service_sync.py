"""Calling services and waiting, and connecting to what is not there."""

import asyncio
import contextlib
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
from test import support

from service_support import (
    CANCEL,
    END,
    ENDLESS,
    FIELDS,
    FIELDS_FRAME,
    NEWER,
    Background,
    Patient,
    Peer,
    Place,
    descriptors,
    echo_client,
    header,
    types,
    waiting,
)
from support import status_of_child
from thalweg._native import BACKLOG_BYTES
from thalweg.service import (
    BadAnswer,
    BadArgument,
    Cancelled,
    Client,
    Closed,
    ConnectTimeout,
    DeadlineExceeded,
    DecodeError,
    Disconnected,
    NoServer,
    NoSharedMemory,
    Overrun,
    PermissionDenied,
    Refused,
    SchemaMismatch,
    SyncClient,
    VersionMismatch,
)

INTERRUPTED = """
import sys
from thalweg.service import SyncClient
client = SyncClient(sys.argv[1])
print("waiting", flush=True)
try:
    client.call(bytes.fromhex(sys.argv[2]))
except KeyboardInterrupt:
    print("interrupted", client.call(bytes.fromhex(sys.argv[3]))[:3].hex())
"""


class Waiting(Place):
    kind = "sock"

    def setUp(self) -> None:
        super().setUp()
        self.server = Background(self.endpoint(self.kind))
        self.enterContext(self.server)
        self.transport = self.enterContext(SyncClient(self.endpoint(self.kind), schema=types.SCHEMA_HASH))
        self.client = echo_client.EchoSyncClient(self.transport)

    def still_serves(self) -> None:
        self.assertEqual(self.client.fields(FIELDS).name, "three")

    def alone(self) -> None:
        """The server has noticed that every other client is gone."""
        while self.server.server.statistics()["clients"] > 1:
            self.still_serves()

    def test_a_call_returns_its_answer(self):
        self.assertEqual(self.transport.is_shared, self.kind == "shm")
        for number in range(300):
            answer = self.client.fields(types.EchoFields(count=number, total=0, name="x" * number))
            self.assertEqual((answer.count, answer.name), (number, "x" * number))

    def test_requests_are_taken_from_any_buffer(self):
        for request in (FIELDS_FRAME, bytearray(FIELDS_FRAME), memoryview(b" " + FIELDS_FRAME)[1:]):
            self.assertIn(b"EchoFieldsResponse", self.transport.call(request))
        with self.assertRaises(BufferError):
            self.transport.call(memoryview(FIELDS_FRAME)[::2])
        with self.assertRaises(TypeError):
            self.transport.call("text")
        self.still_serves()

    def test_many_calls_are_under_way_at_once(self):
        frames = [types.encode_request(types.EchoBytes(data=b"%d" % number)) for number in range(200)]
        calls = [self.transport.send(frame) for frame in frames]
        for number, call in reversed(list(enumerate(calls))):
            self.assertEqual(types.decode_response(self.transport.receive(call)).data, b"%d" % number)
        self.assertEqual(self.transport.in_flight, 0)
        with self.assertRaises(BadArgument):
            self.transport.receive(calls[0])

    def test_answers_come_in_whatever_order(self):
        slow = self.transport.send(types.encode_request(waiting(50)))
        quick = self.transport.send(types.encode_request(waiting(0)))
        self.assertEqual(types.decode_response(self.transport.receive(quick)).total, 0)
        self.assertEqual(self.transport.in_flight, 1)
        self.assertEqual(types.decode_response(self.transport.receive(slow)).total, 50)

    def test_a_call_is_cancelled(self):
        call = self.transport.send(types.encode_request(waiting(Patient.FOR_GOOD)))
        self.transport.flush()
        self.transport.cancel(call)
        with self.assertRaises(Cancelled):
            self.transport.receive(call)
        self.still_serves()

    def test_a_deadline_passes(self):
        with self.assertRaises(DeadlineExceeded):
            self.client.fields(waiting(Patient.FOR_GOOD), deadline=0.02)
        self.still_serves()
        with self.assertRaises(BadArgument):
            self.client.fields(FIELDS, deadline=-1)

    def test_a_stream_is_read_to_its_end(self):
        items = [types.EchoCountItem(value=value) for value in range(1, 1001)]
        # Without any the server's welcome says.
        for credit in (3, None):
            values = list(self.client.count(types.EchoCount(first=1, last=1000), credit=credit))
            self.assertEqual(values, [*items, types.EchoCountResponse(count=1000)])

    def test_a_stream_of_no_credit_is_refused(self):
        with self.assertRaisesRegex(BadArgument, "credit is 0"):
            self.transport.stream(types.encode_request(ENDLESS), credit=0)
        self.still_serves()
        self.assertEqual(self.transport.in_flight, 0)

    def test_a_stream_that_is_left_is_cancelled(self):
        for item in self.client.count(ENDLESS, credit=4):
            if item.value == 50:
                break
        del item
        # The end of what was cancelled comes before this answer or with it.
        self.still_serves()
        while self.transport.in_flight:
            self.still_serves()

    def test_an_item_answers_no_call(self):
        frame = types.encode_request(ENDLESS)
        for _ in range(3):
            with self.assertRaises(BadAnswer):
                self.transport.call(frame)
            with self.assertRaises(BadAnswer):
                self.transport.receive(self.transport.send(frame))
        self.still_serves()
        self.assertEqual(self.transport.in_flight, 0)
        # The producers heard that nobody wants more.
        while self.server.server.statistics()["in_flight"] > 0:
            self.still_serves()

    def test_a_stream_that_is_let_go_of_is_silent_whatever_became_of_its_client(self):
        with support.catch_unraisable_exception() as caught:
            stream = self.transport.stream(types.encode_request(ENDLESS), credit=1)
            next(stream)
            kept = [stream]
            del stream

            def let_go():
                kept.clear()
                self.assertIsNone(caught.unraisable)

            self.assertEqual(status_of_child(let_go), 0)
            self.transport.close()
            let_go()

    def test_a_stream_that_ends_without_its_response_says_so(self):
        class Short:
            def stream(self, request, **_):
                yield b"\x92\xadEchoCountItem\x81\xa5value\x07"

        items = echo_client.EchoSyncClient(Short()).count(ENDLESS)
        self.assertEqual(next(items), types.EchoCountItem(value=7))
        with self.assertRaisesRegex(DecodeError, "ended without its response"):
            next(items)

    def test_what_is_wrong_is_placed_by_its_name_on_the_wire(self):
        head = b"\x92\xb3EchoAliasesResponse"
        whole = types.encode_response(types.EchoPutResponse(version=1))
        for frame, place in (
            (head + b"\x80", "EchoAliasesResponse.sequenceNumber"),
            (head + b"\x81\xaesequenceNumber\xc0", "EchoAliasesResponse.sequenceNumber"),
            (whole + b"\0", "frame"),
        ):
            with self.subTest(frame=frame), self.assertRaises(DecodeError) as caught:
                types.decode_response(frame)
            self.assertEqual(caught.exception.place, place)

    def test_two_threads_may_use_one_client(self):
        wrong = []

        def call(name):
            for number in range(100):
                answer = self.client.fields(types.EchoFields(count=number, total=0, name=name))
                if (answer.count, answer.name) != (number, name):
                    wrong.append(answer)

        threads = [threading.Thread(target=call, args=(f"thread {n}",)) for n in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(wrong, [])

    def test_refused(self):
        with self.assertRaisesRegex(Refused, "^because$"):
            self.client.fail(types.EchoFail(reason="because"))
        self.still_serves()

    def test_closed(self):
        call = self.transport.send(FIELDS_FRAME)
        self.transport.close()
        with self.assertRaises(Closed):
            self.transport.receive(call)
        with self.assertRaises(Closed):
            self.client.fields(FIELDS)
        self.assertEqual((self.transport.is_connected, self.transport.in_flight), (False, 0))
        self.transport.close()

    def test_what_came_of_others_ends_no_wait(self):
        other = self.transport.send(FIELDS_FRAME)
        slow = self.transport.send(types.encode_request(waiting(Patient.FOR_GOOD)), deadline=0.2)
        # The other's answer comes, and is kept, long before this ends.
        with self.assertRaises(DeadlineExceeded):
            self.transport.receive(slow)
        self.assertIn(b"EchoFieldsResponse", self.transport.receive(other))

    def test_nothing_stays_open(self):
        SyncClient(self.endpoint(self.kind)).close()
        self.alone()
        before = descriptors()
        for _ in range(20):
            with SyncClient(self.endpoint(self.kind)) as client:
                client.call(FIELDS_FRAME)
        self.alone()
        self.assertEqual(len(descriptors()), len(before))

    def test_a_wait_can_be_interrupted(self):
        frames = [types.encode_request(request).hex() for request in (waiting(Patient.FOR_GOOD), FIELDS)]
        command = [sys.executable, "-c", INTERRUPTED, self.endpoint(self.kind), *frames]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        with child:
            self.assertEqual(child.stdout.readline(), "waiting\n")
            while self.server.server.statistics()["in_flight"] == 0:
                self.still_serves()
            child.send_signal(signal.SIGINT)
            self.assertEqual(child.stdout.readline(), "interrupted 92b245\n")
        self.assertEqual(child.returncode, 0)


class WaitingOnSharedMemory(Waiting):
    kind = "shm"


def times_given_away():
    """How often this thread has waited for something, and did not merely lose the processor."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def is_asleep(thread):
    """Whether it does not run, whatever it waits for."""
    with open(f"/proc/self/task/{thread.native_id}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "S"


def nothing(hand):
    """What a peer does that has said everything with its welcome."""


class Connecting(Place, unittest.IsolatedAsyncioTestCase):
    async def refused(self, fault, endpoint, **options):
        """Both clients raise the same, and leave nothing open."""
        before = descriptors()
        with self.assertRaises(fault) as waited:
            SyncClient(endpoint, **options)
        with self.assertRaises(fault) as awaited:
            await Client.connect(endpoint, **options)
        self.assertEqual(str(waited.exception), str(awaited.exception))
        message = str(waited.exception)
        del waited, awaited
        # Whom they met is in this process, too, and lets go of its ends a moment later.
        patience = time.monotonic() + 60
        while len(descriptors()) > len(before) and time.monotonic() < patience:
            await asyncio.sleep(0.001)
        self.assertEqual(len(descriptors()), len(before))
        return message

    async def test_nobody_is_there(self):
        message = await self.refused(NoServer, self.endpoint(), connect_within=0)
        self.assertIn(self.endpoint(), message)

    async def test_the_server_died(self):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.endpoint())
        await self.refused(NoServer, self.endpoint(), connect_within=0.03)

    async def test_the_server_is_late(self):
        late = threading.Timer(0.1, lambda: self.enterContext(Background(self.endpoint())))
        late.start()
        with SyncClient(self.endpoint()) as client:
            self.assertIn(b"EchoFieldsResponse", client.call(FIELDS_FRAME))
        late.join()

    async def test_nobody_accepts(self):
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.bind(self.endpoint())
            deaf.listen(0)
            waiting = []
            for _ in range(3):
                client = socket.socket(socket.AF_UNIX)
                client.setblocking(False)
                try:
                    client.connect(self.endpoint())
                except BlockingIOError:
                    client.close()
                else:
                    waiting.append(client)
            await self.refused(ConnectTimeout, self.endpoint(), connect_within=0.05)
            [client.close() for client in waiting]

    async def test_another_schema(self):
        # Who serves in a loop opens a timer with its first client.
        with Background(self.endpoint()), SyncClient(self.endpoint()):
            await self.refused(SchemaMismatch, self.endpoint(), schema=bytes(31) + b"\1")

    async def test_another_version(self):
        with Peer(self.endpoint(), nothing, nothing, welcome=NEWER):
            await self.refused(VersionMismatch, self.endpoint())

    async def test_shared_memory_or_nothing(self):
        path = self.endpoint("shm")
        with Peer(path, nothing, nothing):
            await self.refused(NoSharedMemory, path)

    async def test_what_is_no_endpoint(self):
        for endpoint in ("echo", "", "/"):
            await self.refused(BadArgument, endpoint)
        await self.refused(BadArgument, self.endpoint(), in_flight_max=0)
        await self.refused(BadArgument, self.endpoint(), schema=b"short")
        await self.refused(BadArgument, self.endpoint(), connect_within=float("nan"))

    async def test_numbers_that_no_option_can_be_are_named(self):
        whole = ("in_flight_max", "unsent_bytes_max", "frame_bytes_max", "ring_bytes")
        words = [(name, wrong) for name in whole for wrong in (-1, 1 << 64, 10**5000)]
        words += [("connect_within", 10**400), ("deadline", 10**400), ("deadline", -1), ("reconnect", (1.0, 10**400))]
        for name, wrong in words:
            with self.subTest(name):
                for connect in (SyncClient, Client.connect):
                    with self.assertRaisesRegex(BadArgument, f"{name} is .*: give "):
                        await connect(self.endpoint(), **{name: wrong})
        with Background(self.endpoint()), SyncClient(self.endpoint()) as client:
            for wrong in (-1, 1 << 32):
                with self.assertRaisesRegex(BadArgument, f"credit is {wrong}: give "):
                    client.stream(FIELDS_FRAME, credit=wrong)
            for ask in (client.receive, client.cancel):
                with self.assertRaisesRegex(BadArgument, "call is -1: give "):
                    ask(-1)
            with self.assertRaisesRegex(TypeError, "str"):
                client.stream(FIELDS_FRAME, credit="1")

    def test_another_user(self):
        with Background(self.endpoint()):
            os.chmod(self.directory, 0o755)
            os.chmod(self.endpoint(), 0o600 if os.geteuid() == 0 else 0)
            child = os.fork()
            if child == 0:
                try:
                    if os.geteuid() == 0:
                        os.setuid(65534)
                    SyncClient(self.endpoint(), connect_within=0)
                except PermissionDenied as error:
                    os._exit(7 if isinstance(error, PermissionError) else 2)
                except BaseException:
                    os._exit(3)
                os._exit(4)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)

    def test_a_stream_that_is_collected_waits_for_no_other_thread(self):
        was_in_use = False
        for attempt in range(1000):
            given_away, was_in_use = self.collects_streams(f"{attempt}.sock")
            self.assertEqual(given_away, 0)
            if was_in_use:
                break
        self.assertTrue(was_in_use, "no other thread ever slept in the client")

    def collects_streams(self, kind):
        """Collects streams while another thread waits for an answer: how often this thread waited for something meanwhile, and
        whether the other one slept in the client. Then the calls were cancelled only after it had its answer.
        """
        asked, gone, frames, cancelled_early = threading.Event(), threading.Event(), [], []

        def slow(hand):
            frames.extend(hand.frame()[:2] for _ in range(6))
            asked.set()
            gone.wait()
            cancelled_early.extend(select.select([hand.connection], [], [], 0)[0])
            hand.send(header(END, frames[-1][1]))
            frames.extend(hand.frame()[:2] for _ in range(5))

        with Peer(self.endpoint(kind), slow), SyncClient(self.endpoint(kind)) as client:
            streams = [client.stream(b"a stream", credit=1) for _ in range(5)]
            waits = threading.Thread(target=client.call, args=(b"slow",))
            waits.start()
            asked.wait()
            # It needs the interpreter's lock before it sleeps.
            while not is_asleep(waits):
                pass
            # A thread that waits gives the processor away. Nothing else makes this one do so while none may ask for the
            # interpreter's lock.
            interval = sys.getswitchinterval()
            sys.setswitchinterval(3600)
            before = times_given_away()
            streams.clear()
            given_away = times_given_away() - before
            sys.setswitchinterval(interval)
            gone.set()
            waits.join()
            client.flush()
        calls = [call for _, call in frames[:5]]
        self.assertEqual(sorted(frames[6:]), [(CANCEL, call) for call in calls])
        return given_away, not cancelled_early

    def test_a_server_that_dies_in_the_middle_of_an_answer(self):
        def half(hand):
            _, call, _, _ = hand.frame()
            hand.send(header(END, call, 100), b"half")

        with Peer(self.endpoint(), half), SyncClient(self.endpoint()) as client, self.assertRaises(Disconnected):
            client.call(FIELDS_FRAME)


class BehindStreams(Place):
    """A plain connection, on which answers come in the order of the calls: a wait meets what comes before."""

    ITEM = b"\x92\xadEchoCountItem\xc5\xff\xf0" + bytes(65_520)
    END = types.encode_response(types.EchoCountResponse(count=1))
    ANSWER = types.encode_response(types.EchoPutResponse(version=1))
    # Twice as much as a wait keeps of others.
    MANY = 2 * BACKLOG_BYTES // len(ITEM)

    def setUp(self) -> None:
        super().setUp()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.settimeout(60)
        self.listener.bind(self.endpoint())
        self.listener.listen()
        serving = threading.Thread(target=self.serve)
        serving.start()
        self.addCleanup(self.listener.close)
        self.addCleanup(serving.join)
        self.transport = self.enterContext(SyncClient(self.endpoint(), plain=True))
        # Sent before anything is read, so that all answers come in this order.
        self.first = self.transport.stream(b"stream")
        self.second = self.transport.stream(b"stream")

    def serve(self):
        """Answers `stream` with many items and an end, and anything else at once."""
        connection = self.listener.accept()[0]

        def frame(payload):
            return struct.pack("<I", len(payload)) + payload

        stream = frame(self.ITEM) * self.MANY + frame(self.END)
        # A test that fails leaves in the middle.
        with connection, connection.makefile("rb") as asked, contextlib.suppress(ConnectionError):
            while length := asked.read(4):
                request = asked.read(*struct.unpack("<I", length))
                connection.sendall(stream if request == b"stream" else frame(self.ANSWER))

    def items(self, stream):
        *items, end = stream
        self.assertEqual((set(items), end), ({self.ITEM}, self.END))
        return len(items)

    def test_a_stream_goes_on_once_those_before_it_were_read(self):
        with self.assertRaises(Overrun):
            next(self.second)
        self.assertEqual(self.transport.in_flight, 2)
        self.assertEqual(self.items(self.first), self.MANY)
        self.assertEqual(self.items(self.second), self.MANY)
        self.assertEqual(self.transport.call(b"call"), self.ANSWER)
        self.assertEqual(self.transport.in_flight, 0)

    def test_a_stream_that_did_not_get_its_turn_can_be_left(self):
        with self.assertRaises(Overrun):
            next(self.second)
        self.second.close()
        self.assertEqual(list(self.second), [])
        self.assertEqual(self.items(self.first), self.MANY)
        self.assertEqual(self.transport.call(b"call"), self.ANSWER)
        self.assertEqual(self.transport.in_flight, 0)

    def test_a_generated_stream_that_did_not_get_its_turn_is_left(self):
        class Second:
            def stream(_, request, **options):
                return self.transport.stream(b"stream", **options)

        values = echo_client.EchoSyncClient(Second()).count(ENDLESS)
        with self.assertRaises(Overrun):
            next(values)
        self.assertEqual(list(values), [])
        self.assertEqual(self.transport.in_flight, 2)
        self.assertEqual(self.items(self.first), self.MANY)
        self.assertEqual(self.items(self.second), self.MANY)
        self.assertEqual(self.transport.call(b"call"), self.ANSWER)

    def test_what_was_sent_is_received_once_the_streams_were_read(self):
        sent = self.transport.send(b"sent")
        for stream in (self.first, self.second):
            with self.assertRaises(Overrun):
                self.transport.receive(sent)
            self.assertEqual(self.items(stream), self.MANY)
        self.assertEqual(self.transport.receive(sent), self.ANSWER)
        self.assertEqual(self.transport.in_flight, 0)

    def test_a_call_is_made_again_once_the_streams_were_read(self):
        for stream in (self.first, self.second):
            with self.assertRaises(Overrun):
                self.transport.call(b"call")
            # Nobody waits for what nobody has the name of.
            self.assertEqual(self.transport.in_flight, 2 if stream is self.first else 1)
            self.assertEqual(self.items(stream), self.MANY)
        self.assertEqual(self.transport.call(b"call"), self.ANSWER)
        self.assertEqual(self.transport.in_flight, 0)


class Package(unittest.TestCase):
    def test_whoever_reads_the_log_does_not_load_services(self):
        alone = "import thalweg, sys; print(sorted(name for name in sys.modules if name.startswith('thalweg.service')))"
        said = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=True)
        self.assertEqual(said.stdout, "[]\n")
