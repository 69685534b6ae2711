"""Sessions against `thalweg serve`: the same over a Unix socket, shared memory and JSON-RPC."""

import asyncio
import contextlib
import os
import re
import socket
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from served import Served
from service_support import descriptors
from thalweg import faults, rpc
from thalweg.state import (
    BadLease,
    Conflict,
    Foreign,
    NoFork,
    NoSnapshot,
    NotTaken,
    RootMismatch,
    Session,
    SessionExpired,
    SessionLost,
    StateRefused,
    SyncSession,
    Unreadable,
)


class Refusing:
    """A connection at whose other end everything is refused, in these words or with this error."""

    def __init__(self, why: str | rpc.RemoteError) -> None:
        self._error = faults.Refused(why) if isinstance(why, str) else why

    def call(self, method: str, params: rpc.Params = None) -> None:
        raise self._error

    def close(self) -> None:
        pass


class RefusalCodes(unittest.TestCase):
    def test_what_rarely_happens_to_a_session_has_a_class_too(self) -> None:
        classes = {"not_taken": NotTaken, "root_mismatch": RootMismatch, "foreign": Foreign, "unreadable": Unreadable}
        for code, expected in classes.items():
            session = SyncSession(Refusing(f"{code}: and why"), "token", "main", 30.0)
            with self.subTest(code), self.assertRaises(expected) as caught:
                session.commit()
            self.assertEqual((caught.exception.refusal_code, str(caught.exception)), (code, f"{code}: and why"))

    def test_a_code_without_a_class_is_said(self) -> None:
        with self.assertRaises(StateRefused) as caught:
            SyncSession(Refusing("no_state: and why"), "token", "main", 30.0).commit()
        self.assertIs(type(caught.exception), StateRefused)
        self.assertEqual(caught.exception.refusal_code, "no_state")

    def test_whether_to_try_again_is_said_of_each_refusal_as_the_page_of_the_state_does(self) -> None:
        page = (Path(__file__).parents[3] / "docs/state.md").read_text()
        table = page.partition("## Refusals")[2].partition("## In a program of your own")[0]
        rows = re.findall(r"^\| `(\w+)` \|.*\| (\w+) \|$", table, re.MULTILINE)
        self.assertEqual(len(rows), 19)
        for code, again in rows:
            with self.subTest(code), self.assertRaises(StateRefused) as caught:
                SyncSession(Refusing(f"{code}: and why"), "token", "main", 30.0).commit()
            self.assertEqual((caught.exception.refusal_code, caught.exception.retry), (code, again))

    def test_what_is_no_refusal_has_the_class_of_its_fault(self) -> None:
        for fault in faults.Fault:
            if fault is not faults.Fault.REFUSED:
                line = Refusing(rpc.RemoteError(fault.rpc_code, "and why", {"fault": fault.name.lower()}))
                with self.subTest(fault), self.assertRaises(faults.BY_FAULT[fault]) as caught:
                    SyncSession(line, "token", "main", 30.0).commit()
                self.assertEqual((caught.exception.detail, caught.exception.retry), ("and why", fault.retry))

    def test_an_error_of_no_fault_comes_as_it_is(self) -> None:
        error = rpc.RemoteError(-32700, "no JSON")
        with self.assertRaises(rpc.RemoteError) as caught:
            SyncSession(Refusing(error), "token", "main", 30.0).commit()
        self.assertIs(caught.exception, error)

    def test_where_there_can_be_no_state_what_there_can_be_is_said(self) -> None:
        for at in ("https://127.0.0.1:1/rpc/state", "data", ""):
            with self.subTest(at), self.assertRaisesRegex(faults.BadArgument, r"a path ending in \.sock .* http://host:port"):
                SyncSession.open(at)

    def test_where_it_is_may_be_said_as_a_path(self) -> None:
        # One that cannot be is refused at once.
        for kind in ("sock", "shm"):
            at = Path(f"{'x' * 200}.{kind}")
            with self.subTest(kind), self.assertRaisesRegex(faults.BadArgument, f"{at}.*at most 107 bytes"):
                SyncSession.rejoin(at, "token")
            with self.subTest(kind), self.assertRaisesRegex(faults.BadArgument, f"{at}.*at most 107 bytes"):
                asyncio.run(Session.open(at))


ASKED: dict[str, Callable[[Any], Any]] = {
    "put": lambda session: session.put(5, b""),
    "get": lambda session: session.get(None),
    "remove": lambda session: session.remove(5),
    "write": lambda session: session.write([("a", b"1"), (5, None)]),
    "scan": lambda session: session.scan(limit=-1),
    "scan of a part": lambda session: session.scan(limit=1.5),
    "scan of too many": lambda session: session.scan(limit=1 << 32),
    "scan from no text": lambda session: session.scan(start=5),
}
"""What no session can be asked."""


class Waiting(Served):
    def test_what_cannot_be_said_is_refused_before_it_is_sent_whichever_way_it_would_go(self) -> None:
        said = []
        for way in self.ways:
            with SyncSession.open(way) as session:
                opened = {
                    "fork": lambda _, way=way: SyncSession.open(way, 5),
                    "token": lambda _, way=way: SyncSession.rejoin(way, 5),
                }
                said.append([])
                for name, ask in (ASKED | opened).items():
                    with self.subTest(name, way=way), self.assertRaises(faults.BadArgument) as caught:
                        ask(session)
                    said[-1].append((str(caught.exception), caught.exception.retry))
                self.assertEqual(session.scan(), ([], None))
        self.assertEqual({retry for _, retry in said[0]}, {"never"})
        self.assertEqual(said, [said[0]] * len(self.ways))

    def test_what_was_not_committed_is_taken_back(self) -> None:
        for way in self.ways:
            with self.subTest(way), SyncSession.open(way) as session, SyncSession.open(way) as other:
                self.assertEqual((session.fork, session.lease), ("main", 30.0))
                with self.assertRaises(NoSnapshot) as caught:
                    session.rollback()
                self.assertIsInstance(caught.exception, StateRefused)
                session.put("a", b"before")
                root = session.root()
                at = session.snapshot()
                session.put("a", b"\xff\x00")
                session.write([("b", b"1"), ("c", None)])
                self.assertEqual((session.get("a"), other.get("a")), (b"\xff\x00", b"before"))
                session.rollback()
                self.assertEqual(session.root(), root)
                session.snapshot()
                session.put("a", b"kept")
                # A snapshot while one is pending commits that one.
                self.assertGreater(session.snapshot(), at)
                self.assertEqual(other.get("a"), b"kept")
                session.remove("a")
                self.assertEqual(session.commit(), session.commit())
                self.assertIsNone(other.get("a"))
                self.assertEqual(session.scan(), ([], None))
                session.snapshot()
                other.put("d", b"theirs")
                session.put("d", b"mine")
                with self.assertRaises(Conflict):
                    session.commit()
                session.rollback()
                self.assertEqual(session.scan(limit=1), ([("d", b"theirs")], None))
                session.remove("d")

    def test_a_token_is_good_on_every_way_in_until_the_server_ends(self) -> None:
        tokens = []
        for way, again in zip(self.ways, self.ways[1:] + self.ways[:1], strict=True):
            session = SyncSession.open(way, lease=600)
            session.snapshot()
            session.put("volatile", b"1")
            session.leave()
            session, pending = SyncSession.rejoin(again, session.token)
            self.assertTrue(pending)
            self.assertEqual((session.get("volatile"), session.lease), (b"1", 600.0))
            session.leave()
            tokens.append(session.token)
        ended = SyncSession.open(self.ways[0])
        ended.close()
        with self.assertRaises(SessionExpired):
            SyncSession.rejoin(self.ways[2], ended.token)
        with self.assertRaises(NoFork):
            SyncSession.open(self.ways[1], "99")
        self.end()
        self.serve()
        for way, token in zip(self.ways, tokens, strict=True):
            with self.assertRaises(SessionLost):
                SyncSession.rejoin(way, token)
            with SyncSession.open(way) as session:
                self.assertIsNone(session.get("volatile"))

    def test_what_a_block_raises_is_heard_of_although_its_session_cannot_be_closed(self) -> None:
        for way in self.ways:
            with self.subTest(way), self.assertRaises(KeyError) as caught:
                with SyncSession.open(way, lease=0.05):
                    time.sleep(0.2)
                    raise KeyError("my own")
            self.assertRegex(caught.exception.__notes__[0], "session_expired: ")
            with self.subTest(way), self.assertRaises(SessionExpired):
                with SyncSession.open(way, lease=0.05):
                    time.sleep(0.2)

    def test_what_is_over_is_closed_without_a_word(self) -> None:
        for way in self.ways:
            with self.subTest(way):
                with SyncSession.open(way) as left:
                    left.leave()
                left.leave()
                with SyncSession.rejoin(way, left.token)[0] as session:
                    session.close()
                session.close()
                session.leave()
                with self.assertRaises(faults.Closed):
                    session.get("a")
                with self.assertRaises(SessionExpired):
                    SyncSession.rejoin(way, session.token)

    def test_a_value_is_bytes_and_text_is_none(self) -> None:
        for way in self.ways:
            with self.subTest(way), SyncSession.open(way) as session:
                session.snapshot()
                for value in ("anna", 5, None):
                    with self.assertRaisesRegex(TypeError, "a value is bytes, .*: encode text first"):
                        session.put("name", value)
                with self.assertRaisesRegex(TypeError, "this is str"):
                    session.write([("a", b"1"), ("name", "anna")])
                for value in (b"anna", bytearray(b"anna"), memoryview(b"anna")):
                    session.put("name", value)
                    self.assertEqual(session.scan(), ([("name", b"anna")], None))

    def test_a_lease_that_cannot_be_is_refused_with_what_was_given(self) -> None:
        for lease in (-1, 0, 0.0001, 3601, 1e9, float("nan"), float("inf")):
            with self.subTest(lease), self.assertRaises(BadLease) as caught:
                SyncSession.open(self.ways[0], lease=lease)
            self.assertEqual(str(caught.exception).split()[-1], str(lease))
        for lease in (0.001, 3600):
            session = SyncSession.open(self.ways[0], lease=lease)
            session.leave()
            self.assertEqual(session.lease, lease)

    def test_a_session_is_told_of_its_servers_crash_and_of_nothing_else(self) -> None:
        for way in self.ways[:2]:
            with self.subTest(way):
                session = SyncSession.open(way)
                session.snapshot()
                self.crash()
                self.serve()
                # In shared memory it was sent, and nobody knows what became of it.
                with contextlib.suppress(faults.Disconnected) if way.endswith(".shm") else contextlib.nullcontext():
                    self.assertRaises(SessionLost, session.commit)
                for call in (session.commit, session.root, lambda: session.put("a", b"1"), session.close):
                    self.assertRaises(SessionLost, call)
                self.assertRaises(faults.Closed, session.root)

    def test_a_session_whose_connection_alone_ended_goes_on(self) -> None:
        before = descriptors()
        with SyncSession.open(self.ways[0]) as session:
            session.snapshot()
            session.put("a", b"1")
            number = next(name.split()[0] for name in descriptors() - before if " socket:" in name)
            with socket.socket(fileno=os.dup(int(number))) as connection:
                connection.shutdown(socket.SHUT_RDWR)
            self.assertEqual(session.get("a"), b"1")
            session.rollback()


class EventLoop(Served, unittest.IsolatedAsyncioTestCase):
    async def test_calls_that_are_made_together_keep_their_order(self) -> None:
        for way in self.ways:
            with self.subTest(way):
                async with await Session.open(way) as session, await Session.open(way) as other:
                    for turn in range(60):
                        await asyncio.gather(session.snapshot(), session.put("k", b"%d" % turn), session.rollback())
                        self.assertIsNone(await other.get("k"))

    async def test_a_call_that_is_cancelled_keeps_its_place(self) -> None:
        for way in self.ways:
            with self.subTest(way):
                async with await Session.open(way) as session, await Session.open(way) as other:
                    for turn in range(60):
                        snapshot = asyncio.create_task(session.snapshot())
                        # As far as its request leaves.
                        await asyncio.sleep(0)
                        await asyncio.sleep(0)
                        put = asyncio.create_task(session.put("k", b"%d" % turn))
                        await asyncio.sleep(0)
                        snapshot.cancel()
                        await asyncio.gather(snapshot, put, return_exceptions=True)
                        with contextlib.suppress(NoSnapshot):
                            await session.rollback()
                            self.assertIsNone(await other.get("k"))
                        await other.remove("k")

    async def test_a_call_that_is_cancelled_before_its_turn_is_not_made(self) -> None:
        async with await Session.open(self.ways[2]) as session:
            first = asyncio.create_task(session.put("a", b"1"))
            second = asyncio.create_task(session.put("b", b"2"))
            await asyncio.sleep(0)
            second.cancel()
            await first
            self.assertEqual(await session.scan(), ([("a", b"1")], None))

    async def test_the_same_in_an_event_loop(self) -> None:
        for way in self.ways:
            with self.subTest(way):
                session = await Session.open(way)
                await session.put("a", b"1")
                await session.snapshot()
                await session.write([("a", None), ("b", b"2")])
                self.assertEqual(await session.scan(), ([("b", b"2")], None))
                await session.rollback()
                self.assertEqual(await session.get("a"), b"1")
                with self.assertRaises(NoSnapshot):
                    await session.rollback()
                await session.snapshot()
                root = await session.root()
                await session.remove("a")
                session.leave()
                session, pending = await Session.rejoin(way, session.token)
                self.assertTrue(pending)
                async with session:
                    await session.commit()
                    self.assertIsNone(await session.get("a"))
                    self.assertNotEqual(await session.root(), root)
                with self.assertRaises(SessionExpired):
                    await Session.rejoin(way, session.token)
                with self.assertRaises(SessionLost):
                    await Session.rejoin(way, "0" * 32)

    async def test_what_a_block_raises_is_heard_of_although_its_session_cannot_be_closed(self) -> None:
        for way in self.ways:
            with self.subTest(way), self.assertRaises(KeyError) as caught:
                async with await Session.open(way, lease=0.05):
                    await asyncio.sleep(0.2)
                    raise KeyError("my own")
            self.assertRegex(caught.exception.__notes__[0], "session_expired: ")
            with self.subTest(way), self.assertRaises(SessionExpired):
                async with await Session.open(way, lease=0.05):
                    await asyncio.sleep(0.2)

    async def test_what_is_over_is_closed_without_a_word(self) -> None:
        for way in self.ways:
            with self.subTest(way):
                async with await Session.open(way) as left:
                    left.leave()
                left.leave()
                async with (await Session.rejoin(way, left.token))[0] as session:
                    await session.close()
                await session.close()
                session.leave()
                with self.assertRaises(faults.Closed):
                    await session.get("a")
                with self.assertRaises(SessionExpired):
                    await Session.rejoin(way, session.token)

    async def test_what_cannot_be_said_is_refused_before_it_is_sent_whichever_way_it_would_go(self) -> None:
        for way in self.ways:
            async with await Session.open(way) as session:
                for name, ask in ASKED.items():
                    with self.subTest(name, way=way), self.assertRaises(faults.BadArgument):
                        await ask(session)
                self.assertEqual(await session.scan(), ([], None))

    async def test_a_value_is_bytes_and_text_is_none(self) -> None:
        for way in self.ways:
            with self.subTest(way):
                async with await Session.open(way) as session:
                    with self.assertRaisesRegex(TypeError, "encode text first"):
                        await session.put("name", "anna")
                    with self.assertRaisesRegex(TypeError, "encode text first"):
                        await session.write([("name", "anna")])
                    self.assertEqual(await session.scan(), ([], None))

    async def test_a_session_is_told_of_its_servers_crash_and_of_nothing_else(self) -> None:
        for way in self.ways[:2]:
            with self.subTest(way):
                session = await Session.open(way)
                await session.snapshot()
                self.crash()
                self.serve()
                told = await asyncio.gather(*(session.commit() for _ in range(3)), return_exceptions=True)
                # In shared memory they were sent, and nobody knows what became of them.
                heard = (SessionLost, faults.Disconnected) if way.endswith(".shm") else SessionLost
                for error in told:
                    self.assertIsInstance(error, heard)
                for call in (session.commit, session.root, session.close):
                    with self.assertRaises(SessionLost):
                        await call()
                with self.assertRaises(faults.Closed):
                    await session.root()
