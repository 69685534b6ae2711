"""JSON-RPC, waiting and in an event loop, against `thalweg serve`."""

import asyncio
import socket
import unittest

from served import Served
from thalweg.rpc import Client, RemoteError, Schema, SyncClient
from thalweg.service import BadArgument, Closed, DeadlineExceeded, Fault, NoServer, Overloaded
from thalweg.service import SyncClient as ServiceClient

NOTE = {"name": "notes", "contentType": "text/plain", "closed": False}


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
        self.assertEqual((caught.exception.number, caught.exception.data), (-32602, {"field": "kez"}))
        with self.assertRaises(BadArgument):
            self.client.call("Get", "main")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with self.assertRaises(NoServer):
            self.client.call("Get", url=f"http://127.0.0.1:{port}/rpc/state")
        self.client.close()
        with self.assertRaises(Closed):
            self.client.call("Forks")

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
                self.client.call("Any", url=url, deadline=0.05)

    def test_a_schema_calls_over_a_socket_without_generated_code(self) -> None:
        state = Schema.state()
        with ServiceClient(self.ways[1], schema=state.hash) as client:
            frame = client.call(state.request("Count", '{"place": "main"}'))
            self.assertEqual(state.result("Count", frame), '{"count":0}')
        with self.assertRaises(BadArgument):
            state.request("Count", "{}")
        with self.assertRaises(BadArgument):
            Schema("{}")


class EventLoop(Served, unittest.IsolatedAsyncioTestCase):
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
            with self.assertRaises(DeadlineExceeded):
                await client.call("Any", deadline=0.05)
            waiting = asyncio.ensure_future(client.call("Any"))
            await asyncio.sleep(0)
            client.close()
            with self.assertRaises(Closed):
                await waiting
            client.close()
