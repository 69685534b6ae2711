"""What has a close and was not closed says so once nothing refers to it any more, and is let go of."""

import asyncio
import copy
import gc
import os
import pickle
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import thalweg
from served import Served
from service_support import ENDLESS, FIELDS_FRAME, Background, Place, descriptors, echo_server, types
from support import StoreCase, python
from thalweg import rpc, state
from thalweg.service import NoServer, Server, SyncClient


def let_go(known: list[Any], meanwhile: Callable[[], object] = lambda: None) -> list[str]:
    """Forgets what is known, and says what was unclosed. Keeps the words alone: a warning that is kept keeps what it is of."""
    said: list[str] = []

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        if category is ResourceWarning:
            said.append(" ".join(str(message).split()[:2]))

    # What tests before this one left is none of what is known here.
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        known.clear()
        gc.collect()
        meanwhile()
    return said


class Stores(StoreCase):
    def test_a_store_says_so_once_its_last_handle_is_gone(self) -> None:
        other = self.path.parent / "other"
        known: list[Any] = [thalweg.open(other, durability="os")]
        known.append(known[0].log("log"))
        known[1].append(b"kept")
        entry = next(known[1].query())
        self.assertEqual(let_go(known), ["unclosed store"])
        self.assertEqual(bytes(entry), b"kept")
        with thalweg.open(other, durability="os") as again:
            self.assertEqual(len(list(again.log("log").query())), 1)

    def test_the_log_alone_keeps_it_and_says_nothing(self) -> None:
        store = thalweg.open(self.path.parent / "other", durability="os")
        log = store.log("log")
        known = [store]
        del store
        self.assertEqual(let_go(known), [])
        log.append(b"a")
        known.append(log)
        del log
        self.assertEqual(let_go(known), ["unclosed store"])

    def test_what_was_raised_stays_raised_a_panic_of_the_native_half_too(self) -> None:
        # The class of a panic has no name in any module, and is there once the native half looked at an exception.
        self.assertRaises(TypeError, thalweg.open, 1)
        [panic] = [known for known in BaseException.__subclasses__() if known.__name__ == "PanicException"]

        def stores(raised: type[BaseException]) -> Iterator[thalweg.Store]:
            yield thalweg.open(self.path.parent / "other", durability="os")
            raise raised("raised")

        def forget(raised: type[BaseException]) -> None:
            # The list goes, with the store in it, because of what is raised.
            with self.assertRaisesRegex(raised, "^raised$"):
                list(stores(raised))

        for raised in (ZeroDivisionError, KeyboardInterrupt, panic):
            with self.subTest(raised.__name__):
                self.assertEqual(let_go([], partial(forget, raised)), ["unclosed store"])

    def test_one_that_is_only_read_says_so_and_one_without_files_does_not(self) -> None:
        self.assertEqual(let_go([thalweg.open(self.path, read_only=True)]), ["unclosed store"])
        self.assertEqual(let_go([thalweg.open(durability="memory")]), [])

    def test_one_that_was_closed_says_nothing(self) -> None:
        with thalweg.open(self.path.parent / "other", durability="os") as store:
            known = [store, store.log("log"), store.log("log").cursor()]
        del store
        self.assertEqual(let_go(known), [])

    def test_it_is_closed_where_the_warning_is_an_error_and_something_else_was_raised(self) -> None:
        raised: list[Any] = []
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda unraisable: raised.append(unraisable.exc_type)
        other = self.path.parent / "other"

        def fails() -> None:
            store = thalweg.open(other, durability="os")
            raise ZeroDivisionError(store.closed)

        with warnings.catch_warnings(), self.assertRaises(ZeroDivisionError):
            warnings.simplefilter("error")
            fails()
        self.assertEqual(raised, [ResourceWarning])
        thalweg.open(other, durability="os").close()

    def test_a_child_says_nothing_of_its_parents(self) -> None:
        code = """
import gc, os, sys, thalweg, warnings
warnings.simplefilter("error", ResourceWarning)
sys.unraisablehook = lambda _: os._exit(1)
store = thalweg.open(sys.argv[1], durability="os")
child = os.fork()
if child == 0:
    del store
    gc.collect()
    os._exit(0)
print(os.waitpid(child, 0)[1])
store.close()
"""
        self.assertEqual(python(code, str(self.path.parent / "other")), "0\n")


class Services(Place):
    def test_a_client_says_so_and_hangs_up(self) -> None:
        with Background(self.endpoint()):
            client = SyncClient(self.endpoint())
            client.call(FIELDS_FRAME)
            descriptor, known = client._connection.fileno(), [client]
            del client
            self.assertEqual(let_go(known), ["unclosed client"])
            self.assertRaises(OSError, os.fstat, descriptor)

    def test_one_that_was_closed_or_never_was_says_nothing(self) -> None:
        with Background(self.endpoint()):
            with SyncClient(self.endpoint()) as client:
                client.call(FIELDS_FRAME)
            known = [client]
            del client
            self.assertEqual(let_go(known), [])

        def fail() -> None:
            with self.assertRaises(NoServer):
                SyncClient(str(self.directory / "nobody.sock"), connect_within=0)
            with self.assertRaises(TypeError):
                SyncClient(5)  # type: ignore[arg-type]
            with self.assertRaises(TypeError):
                Server()  # type: ignore[call-arg]

        self.assertEqual(let_go([], fail), [])

    def test_what_is_there_once_is_not_copied_and_stays_open(self) -> None:
        with Background(self.endpoint()), SyncClient(self.endpoint()) as client:
            stream = client.stream(types.encode_request(ENDLESS), credit=1)
            for one in (client, stream):
                for doubles in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.subTest(type(one).__name__, by=doubles.__name__):
                        with self.assertRaisesRegex(TypeError, f"cannot copy or pickle '{type(one).__name__}'"):
                            doubles(one)
            gc.collect()
            self.assertTrue(next(stream))
            stream.close()
            self.assertTrue(client.call(FIELDS_FRAME))

    def test_a_server_says_so_and_frees_its_path(self) -> None:
        known = [Server(echo_server.service(None), self.endpoint())]
        self.assertEqual(let_go(known), ["unclosed server"])
        self.assertFalse(os.path.exists(self.endpoint()))

        async def start() -> None:
            known.append(Server(echo_server.service(None), self.endpoint()))
            known[0].start()

        asyncio.run(start())
        self.assertEqual(let_go(known), ["unclosed server"])
        self.assertFalse(os.path.exists(self.endpoint()))

        async def serve() -> None:
            async with Server(echo_server.service(None), self.endpoint()) as server:
                known.append(server)

        asyncio.run(serve())
        self.assertEqual(let_go(known), [])

    def test_a_client_of_json_rpc_says_so(self) -> None:
        known = [rpc.SyncClient("http://127.0.0.1:1/rpc/any")]
        self.assertEqual(let_go(known), ["unclosed client"])
        with rpc.SyncClient("http://127.0.0.1:1/rpc/any") as client:
            known.append(client)
        del client
        self.assertEqual(let_go(known), [])

        def fail() -> None:
            with self.assertRaises(thalweg.Error):
                rpc.SyncClient("no address")

        self.assertEqual(let_go([], fail), [])

    def test_one_that_a_signal_ends_before_it_is_anybodys_says_nothing(self) -> None:
        raised: list[Any] = []
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda unraisable: raised.append(unraisable.exc_value)

        def interrupt() -> None:
            # As by Ctrl-C while it is asked which process this is.
            with mock.patch.object(os, "getpid", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                rpc.SyncClient("http://127.0.0.1:1/rpc/any")

        self.assertEqual(let_go([], interrupt), [])
        gc.collect()
        self.assertEqual(raised, [])


class Sessions(Served):
    def test_a_session_says_so_once_and_stays_to_be_rejoined(self) -> None:
        for way in self.ways:
            with self.subTest(way):
                session = state.SyncSession.open(way)
                session.put("a", b"1")
                token, known = session.token, [session]
                del session
                self.assertEqual(let_go(known), ["unclosed session"])
                session, _ = state.SyncSession.rejoin(way, token)
                session.close()
                known = [session]
                del session
                self.assertEqual(let_go(known), [])

    def test_one_of_an_event_loop_does_so_too(self) -> None:
        async def main(way: str) -> None:
            session = await state.Session.open(way)
            token, known = session.token, [session]
            del session
            self.assertEqual(let_go(known), ["unclosed session"])
            before = len(descriptors())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self.assertLess(len(descriptors()), before)
            session, _ = await state.Session.rejoin(way, token)
            session.leave()
            known = [session]
            del session
            self.assertEqual(let_go(known), [])

        for way in self.ways:
            with self.subTest(way):
                asyncio.run(main(way))

    def test_one_whose_loop_was_closed_says_so_once_and_hangs_up(self) -> None:
        raised: list[Any] = []
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda unraisable: raised.append(unraisable.exc_value)
        for way in self.ways:
            with self.subTest(way):
                before = len(descriptors())
                known = [asyncio.run(state.Session.open(way))]
                self.assertEqual(let_go(known), ["unclosed session"])
                self.assertEqual(len(descriptors()), before)
        self.assertEqual(raised, [])

    def test_one_whose_loop_is_closed_before_its_next_turn_says_so_once_and_hangs_up(self) -> None:
        def forget(way: str, loop: asyncio.AbstractEventLoop) -> None:
            session = loop.run_until_complete(state.Session.open(way))
            del session
            gc.collect()
            loop.close()

        def begin_and_forget(way: str, make: Callable[[], asyncio.AbstractEventLoop]) -> None:
            forget(way, make())
            gc.collect()

        for make in (asyncio.new_event_loop, thalweg.new_event_loop):
            for way in self.ways:
                with self.subTest(way, loop=make.__module__):
                    before = len(descriptors())
                    self.assertEqual(let_go([], partial(begin_and_forget, way, make)), ["unclosed session"])
                    self.assertEqual(len(descriptors()), before)

    def test_a_child_says_nothing_of_its_parents(self) -> None:
        code = """
import asyncio, gc, os, sys, warnings
from thalweg import state
warnings.simplefilter("error", ResourceWarning)
sys.unraisablehook = lambda _: os._exit(1)
async def main():
    sessions = [await state.Session.open(sys.argv[1]), state.SyncSession.open(sys.argv[1])]
    child = os.fork()
    if child == 0:
        sessions.clear()
        gc.collect()
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    await sessions[0].close()
    sessions[1].close()
asyncio.run(main())
"""
        for way in self.ways:
            with self.subTest(way):
                self.assertEqual(python(code, way), "0\n")


if __name__ == "__main__":
    unittest.main()
