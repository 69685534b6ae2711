"""JSON-RPC, waiting and in an event loop, against `thalweg serve`."""

import asyncio
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref
from collections import UserDict, UserList, UserString, deque
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

from served import Served
from thalweg import rpc
from thalweg._native import RpcCaller
from thalweg.faults import BY_FAULT
from thalweg.rpc import Client, RemoteError, Schema, SyncClient
from thalweg.service import BadAnswer, BadArgument, Closed, DeadlineExceeded, Disconnected, Fault, NoServer, Overloaded
from thalweg.service import SchemaMismatch
from thalweg.service import SyncClient as ServiceClient
from thalweg.state import Session, SyncSession

NOTE = {"name": "notes", "contentType": "text/plain", "closed": False}

LOOKS_UP = """
import os, sys, threading
from thalweg.rpc import SyncClient
from thalweg.service import ServiceError

def read_from():
    with open(sys.argv[1], "w"):
        os.write(1, b"another thread runs\\n")
        os._exit(0)

threading.Thread(target=read_from, daemon=True).start()
with SyncClient("http://127.0.0.1:1/rpc/log") as client:
    try:
        client.call("Head", url="http://somewhere:1/rpc/state")
    except ServiceError:
        os.write(1, b"not asked\\n")
        os._exit(0)
"""


def right(number: str) -> str:
    return f'{{"jsonrpc":"2.0","result":"right","id":{number}}}'


class Scripted:
    """A server that does with each request what `says` does: it is given the request's id and how many there were."""

    def __init__(self, says: Callable[[str, int], str | None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.says = says
        self.asked = 0
        self.peers: set[int] = set()
        """The ports that connections came from."""
        self.heads: list[str] = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def close(self) -> None:
        """Once every client is gone."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def serve(self) -> None:
        while True:
            try:
                peer, (_, port) = self.listener.accept()
            except OSError:
                return
            self.peers.add(port)
            with peer:
                while (body := self.request(peer)) is not None:
                    self.asked += 1
                    found = re.search(r'"id":(\d+)', body)
                    text = self.says(found[1] if found else "0", self.asked)
                    if text is None:
                        break
                    peer.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())

    def waiting(self) -> set[int]:
        """Where connections came from that wait until their addresses may be used again. The port may be one that somebody
        else had a moment ago, whose connections are none of these."""
        found = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            ports = {int(end.rpartition(":")[2], 16) for end in (local, remote)}
            # 06 is TIME_WAIT.
            if self.port in ports and state == "06":
                found |= ports & self.peers
        return found

    def request(self, peer: socket.socket) -> str | None:
        came = b""
        while True:
            head, ended, body = came.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            if ended and length and len(body) >= int(length[1]):
                self.heads.append(head.decode())
                return body.decode()
            try:
                chunk = peer.recv(4096)
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            came += chunk


class Parameters(unittest.TestCase):
    def test_floats_that_json_has_no_number_for_go_as_words(self):
        text = rpc.dump({"a": math.nan, "b": [math.inf, (-math.inf, 1.5)], "c": "NaN"})
        self.assertEqual(text, '{"a":"NaN","b":["Infinity",["-Infinity",1.5]],"c":"NaN"}')
        self.assertEqual(rpc.dump(["Infinity"]), '["Infinity"]')

    def test_mappings_and_sequences_of_any_class_are_parameters_at_every_depth(self) -> None:
        for given, text in [
            (MappingProxyType({"a": 1}), '{"a":1}'),
            (UserDict(a=UserList([range(2), deque([b"\xff"])])), '{"a":[[0,1],["/w=="]]}'),
            (range(3), "[0,1,2]"),
            ({"a": [MappingProxyType({"b": UserString("c")})]}, '{"a":[{"b":"c"}]}'),
            ([MappingProxyType({"a": (math.nan, UserList([math.inf, UserString("NaN")]))})], '[{"a":["NaN",["Infinity","NaN"]]}]'),
        ]:
            with self.subTest(given):
                self.assertEqual(rpc.dump(given), text)
        wrong: list[Any] = ["ab", b"ab", bytearray(b"ab"), memoryview(b"ab"), UserString("ab"), 7, {1}]
        for given in wrong:
            with self.subTest(given), self.assertRaises(BadArgument):
                rpc.dump(given)
        with self.assertRaisesRegex(TypeError, "set is nothing that JSON has"):
            rpc.dump([{1}])


class Faulty(unittest.TestCase):
    """Against servers that do what they should not."""

    def start(self, says: Callable[[str, int], str | None], *, idle_max: int = 2) -> tuple[Scripted, SyncClient]:
        server = Scripted(says)
        self.addCleanup(server.close)
        client = SyncClient(server.url, idle_max=idle_max)
        self.addCleanup(client.close)
        return server, client

    def test_a_call_in_the_middle_of_another_is_refused_as_that_whichever_service_it_is_for(self) -> None:
        server, _ = self.start(lambda number, _: right(number))
        caller = RpcCaller(server.url, in_flight_max=1)
        self.addCleanup(caller.close)

        def meddles(detail: str) -> Overloaded:
            """Runs while the caller is in use, as a finalizer may."""
            for url in (None, server.url):
                with self.assertRaisesRegex(RuntimeError, "in the middle of another call"):
                    caller.begin([("Head", "{}")], False, url=url)
            return Overloaded(detail)

        caller.begin([("Head", "{}")], False)
        with mock.patch.dict(BY_FAULT, {Fault.OVERLOADED: meddles}), self.assertRaises(Overloaded):
            caller.begin([("Head", "{}")], False)
        caller.close()
        with self.assertRaises(Closed):
            caller.begin([("Head", "{}")], False, url=server.url)

    def test_a_token_goes_with_every_request_and_one_that_would_end_a_line_is_refused(self) -> None:
        server, _ = self.start(lambda number, asked: right(number) if asked == 1 else None)
        with SyncClient(server.url, token="tw_4fPq") as client:
            client.call("Any")
        self.assertIn("Authorization: Bearer tw_4fPq", server.heads[0].split("\r\n"))
        with self.assertRaises(Disconnected):
            SyncSession.open(server.url, http={"token": "tw_5"})
        self.assertIn("Authorization: Bearer tw_5", server.heads[1].split("\r\n"))
        for wrong in ("", "a b", "a\r\nX: y"):
            with self.assertRaises(BadArgument):
                SyncClient(server.url, token=wrong)

    def test_a_time_that_no_clock_tells_is_refused_with_what_can_be(self) -> None:
        for wrong in (-1.0, math.inf, math.nan):
            with self.subTest(wrong), self.assertRaisesRegex(BadArgument, "give seconds, 0 or more and finite"):
                SyncClient("http://127.0.0.1:1/", deadline=wrong)

    def test_a_number_that_no_option_can_be_is_named(self) -> None:
        whole = ("connections_max", "idle_max", "in_flight_max", "answer_bytes_max")
        for name, wrong in [*((name, -1) for name in whole), ("idle_for", -1), ("deadline", 10**400)]:
            with self.subTest(name), self.assertRaisesRegex(BadArgument, f"{name} is {wrong}: give "):
                SyncClient("http://127.0.0.1:1/", **{name: wrong})

    def test_other_threads_run_while_the_host_of_another_service_is_looked_up(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            # The resolver opens this file first, and waits for what is to be read of it.
            aliases = os.path.join(directory, "aliases")
            os.mkfifo(aliases)
            told = {"HOSTALIASES": aliases, "RES_OPTIONS": "timeout:1 attempts:1"}
            looks_up = [sys.executable, "-c", LOOKS_UP, aliases]
            said = subprocess.run(looks_up, env={**os.environ, **told}, stdout=subprocess.PIPE, text=True, timeout=60)
        if said.stdout == "not asked\n":
            self.skipTest("this system's resolver knows no aliases")
        self.assertEqual(said.stdout, "another thread runs\n")

    def test_an_answer_with_another_id_is_not_taken_and_its_connection_closed(self) -> None:
        ids = ["99", "null", '"{}"', "{}.0", "{}"]
        _, client = self.start(lambda number, asked: right(ids[asked - 1].format(number)))
        for closed in range(1, len(ids)):
            with self.assertRaises(BadAnswer):
                client.call("Any")
            self.assertEqual(client.statistics["closed"], closed)
        self.assertEqual(client.call("Any"), "right")

    def test_a_fault_that_is_no_word_is_none_and_takes_nothing_from_other_answers(self) -> None:
        def says(number: str, asked: int) -> str:
            data = {1: '{"fault":["overloaded"]}', 2: '{"fault": "overloaded"}', 3: '{"cause":{"fault":"overloaded"}}'}[min(asked, 3)]
            return f'{{"jsonrpc":"2.0","error":{{"code":1,"message":"no","data":{data}}},"id":{number}}}'

        _, client = self.start(says)
        for fault in (None, Fault.OVERLOADED, None):
            with self.assertRaises(RemoteError) as caught:
                client.call("Any")
            self.assertEqual((caught.exception.number, caught.exception.fault), (1, fault))

        def batch(number: str, _: int) -> str:
            refused = f'{{"jsonrpc":"2.0","error":{{"code":1,"message":"no","data":{{"fault":{{}}}}}},"id":{number}}}'
            return f"[{refused},{right(str(int(number) + 1))}]"

        _, client = self.start(batch)
        refused, answer = client.batch([("Any", None), ("Any", None)])
        self.assertEqual((str(refused), refused.fault, answer), ("no (1)", None, "right"))

    def test_where_a_kept_connection_ends_only_what_may_be_repeated_is_repeated_and_once(self) -> None:
        server, client = self.start(lambda number, asked: right(number) if asked in (1, 3, 5) else None)
        self.assertEqual(client.call("Pay"), "right")
        with self.assertRaises(Disconnected) as caught:
            client.call("Pay")
        self.assertEqual((caught.exception.retry, server.asked, client.statistics["retried"]), ("unknown", 2, 0))
        self.assertEqual(client.call("Pay"), "right")
        self.assertEqual(client.call("Look", idempotent=True), "right")
        self.assertEqual((server.asked, client.statistics["retried"]), (5, 1))
        with self.assertRaises(Disconnected):
            client.call("Look", idempotent=True)
        self.assertEqual((server.asked, client.statistics["retried"]), (7, 2))

    def test_a_thousand_connections_leave_no_address_that_cannot_be_used_again(self) -> None:
        server, client = self.start(lambda number, _: right(number), idle_max=0)
        for _ in range(1_000):
            self.assertEqual(client.call("Any"), "right")
        statistics = client.statistics
        self.assertEqual((statistics["opened"], statistics["closed"], statistics["reused"]), (1_000, 1_000, 0))
        # One that ends as usual does leave one, and is found.
        with socket.create_connection(("127.0.0.1", server.port)) as usual:
            port = usual.getsockname()[1]
            usual.shutdown(socket.SHUT_WR)
            self.assertEqual(usual.recv(1), b"")
        self.assertEqual(server.waiting(), {port})


class Waiting(Served):
    def setUp(self) -> None:
        super().setUp()
        self.client = SyncClient(f"{self.url}/rpc/state")
        self.addCleanup(self.client.close)

    def test_calls_go_over_one_connection(self) -> None:
        for number in range(20):
            self.client.call("Put", {"place": "main", "key": f"{number}", "value": bytes([number, 255])})
        self.assertEqual(self.client.call("Get", ["main", "7", None]), {"value": "B/8="})
        statistics = self.client.statistics
        self.assertEqual((statistics["opened"], statistics["reused"], statistics["in_flight"]), (1, 20, 0))

    def test_what_the_server_says_is_told_from_what_went_wrong(self) -> None:
        with self.assertRaises(RemoteError) as caught:
            self.client.call("Drop", {"fork": "main"})
        self.assertEqual((caught.exception.number, caught.exception.fault), (-32000, Fault.REFUSED))
        self.assertEqual(caught.exception.retry, "never")
        self.assertIn("main_line: ", caught.exception.message)
        with self.assertRaises(RemoteError) as caught:
            self.client.call("Get", {"place": "main", "kez": "a"})
        self.assertEqual(caught.exception.number, -32602)
        self.assertEqual(caught.exception.data, {"fault": "bad_request", "retry": "never", "field": "kez"})
        with self.assertRaises(BadArgument):
            self.client.call("Get", "main")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with self.assertRaises(NoServer):
            self.client.call("Get", url=f"http://127.0.0.1:{port}/rpc/state")
        self.client.close()
        with self.assertRaises(Closed):
            self.client.call("Forks")

    def test_a_batch_that_is_refused_as_a_whole_may_be_made_again(self) -> None:
        answers = self.client.batch([("Count", ["main"])] * 1001)
        self.assertEqual(len(answers), 1001)
        for answer in answers:
            assert isinstance(answer, RemoteError)
            self.assertEqual((answer.number, answer.fault, answer.retry), (-32600, None, "safe"))
        self.assertEqual(RemoteError(-32603, "").retry, "unknown")

    def test_batches_come_in_order_and_notifications_have_no_answer(self) -> None:
        put = [("Put", {"place": "main", "key": key, "value": b""}) for key in "ab"]
        answers = self.client.batch([*put, ("Nothing", None), ("Count", ["main"])])
        self.assertEqual([type(answer) for answer in answers], [dict, dict, RemoteError, dict])
        self.assertEqual((answers[2].number, answers[3]), (-32601, {"count": 2}))
        self.client.notify("Remove", ["main", "a"])
        self.assertEqual(self.client.call("Count", ["main"]), {"count": 1})

    def test_integers_are_exact_and_other_services_share_connections(self) -> None:
        most = 2**64 - 1
        with self.assertRaises(RemoteError) as caught:
            self.client.call("Fork", {"parent": "main", "offset": most})
        self.assertIn(str(most), caught.exception.message)
        log = f"{self.url}/rpc/log"
        self.assertTrue(self.client.call("Create", NOTE, url=log)["created"])
        self.assertEqual(self.client.statistics["opened"], 1)

    def test_a_deadline_ends_a_wait(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            with self.assertRaises(DeadlineExceeded):
                self.client.call("Any", url=url, deadline=2)

    def test_a_schema_calls_over_a_socket_without_generated_code(self) -> None:
        state = Schema.state()
        with ServiceClient(self.ways[1], schema=state.hash) as client:
            frame = client.call(state.request("Count", '{"place": "main"}'))
            self.assertEqual(state.result("Count", frame), '{"count":0}')
        with self.assertRaises(BadArgument):
            state.request("Count", "{}")
        with self.assertRaises(BadArgument):
            Schema("{}")

    def test_a_server_of_another_schema_is_no_server_of_a_session(self) -> None:
        state, other = Schema.state().hash, f"{self.url}/rpc/log"
        with SyncClient(f"{self.url}/rpc/state") as client:
            client.expect_schema(state)
            with self.assertRaises(SchemaMismatch):
                client.expect_schema(state, url=other)
        with self.assertRaises(SchemaMismatch):
            SyncSession.open(other)
        with self.assertRaises(SchemaMismatch):
            SyncSession.rejoin(other, "0")


class EventLoop(Served, unittest.IsolatedAsyncioTestCase):
    async def test_a_server_of_another_schema_is_no_server_of_a_session(self) -> None:
        state, other = Schema.state().hash, f"{self.url}/rpc/log"
        async with Client(f"{self.url}/rpc/state") as client:
            await client.expect_schema(state)
            with self.assertRaises(SchemaMismatch):
                await client.expect_schema(state, url=other)
        with self.assertRaises(SchemaMismatch):
            await Session.open(other)
        with self.assertRaises(SchemaMismatch):
            await Session.rejoin(other, "0")

    async def test_calls_beside_each_other(self) -> None:
        async with Client(f"{self.url}/rpc/state", connections_max=2) as client:
            puts = [client.call("Put", ["main", f"{number}", b"x"]) for number in range(50)]
            self.assertEqual(len(await asyncio.gather(*puts)), 50)
            self.assertEqual(await client.call("Count", ["main"]), {"count": 50})
            answers = await client.batch([("Count", ["main"]), ("Nothing", None)])
            self.assertEqual((answers[0], answers[1].number), ({"count": 50}, -32601))
            await client.notify("Remove", ["main", "0"])
            self.assertEqual(await client.call("Count", ["main"]), {"count": 49})
            self.assertEqual(client.statistics["opened"], 2)
            with self.assertRaises(RemoteError):
                await client.call("Drop", ["main"])

    async def test_one_that_nobody_knows_says_so_and_closes(self) -> None:
        client = Client(f"{self.url}/rpc/state")
        await client.call("rpc.version")
        descriptor, known = client._descriptor, weakref.ref(client)
        with self.assertWarnsRegex(ResourceWarning, "unclosed client"):
            del client
        await asyncio.sleep(0)
        self.assertIsNone(known())
        with self.assertRaises(OSError):
            os.fstat(descriptor)

    async def test_what_is_cancelled_or_closed_ends(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            silent = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            client = Client(silent, in_flight_max=1)
            waiting = asyncio.ensure_future(client.call("Any"))
            await asyncio.sleep(0)
            with self.assertRaises(Overloaded):
                await client.call("Any")
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            self.assertEqual(client.statistics["in_flight"], 0)
            abandoned = client.call("Any")
            abandoned.send(None)
            abandoned.close()
            await asyncio.sleep(0)
            self.assertEqual(client.statistics["in_flight"], 0)
            with self.assertRaises(DeadlineExceeded):
                await client.call("Any", deadline=2)
            waiting = asyncio.ensure_future(client.call("Any"))
            await asyncio.sleep(0)
            client.close()
            with self.assertRaises(Closed):
                await waiting
            client.close()
