"""What the loop does with programs that are wrong: each time something specified, and the loop lives on."""

import asyncio
import errno
import gc
import logging
import math
import os
import re
import signal
import socket
import sys
import threading
import time
import unittest
import warnings
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from unittest import mock

import thalweg
from support import status_of_child


class LoopCase(unittest.TestCase):
    def setUp(self) -> None:
        self.loop = thalweg.new_event_loop()
        self.addCleanup(self.loop.close)
        self.problems: list[dict[str, object]] = []
        self.loop.set_exception_handler(lambda _, context: self.problems.append(context))

    def run_for(self, seconds: float = 0) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def still_runs(self) -> None:
        self.assertEqual(self.loop.run_until_complete(asyncio.sleep(0, "runs")), "runs")


def fail(*_: object) -> None:
    raise ZeroDivisionError("by request")


class Raising(LoopCase):
    def test_whatever_raises_is_reported_and_the_loop_goes_on(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:

            def read() -> None:
                ours.recv(1)
                fail()

            theirs.send(b"x")
            self.loop.add_reader(ours, read)
            self.loop.call_soon(fail)
            self.loop.call_later(0.001, fail)
            threading.Thread(target=self.loop.call_soon_threadsafe, args=(fail,)).start()
            self.run_for(0.02)
            self.loop.remove_reader(ours)
        self.assertEqual([type(problem["exception"]) for problem in self.problems], [ZeroDivisionError] * 4)
        self.assertTrue(all("handle" in problem for problem in self.problems))
        self.still_runs()

    def test_an_exception_handler_that_raises_is_logged_and_the_loop_goes_on(self) -> None:
        self.loop.set_exception_handler(fail)
        self.loop.call_soon(fail)
        with self.assertLogs("asyncio", logging.ERROR) as logged:
            self.run_for()
        self.assertIn("Unhandled error in exception handler", logged.output[0])
        self.still_runs()

    def test_an_exception_handler_that_raises_loses_no_traceback(self) -> None:
        def breaks(*_: object) -> None:
            raise KeyError("in the handler")

        self.loop.set_exception_handler(breaks)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.send(b"x")
            self.loop.mailbox.watch(ours, fail)
            for told in (partial(self.loop.call_soon, fail), int):
                told()
                with self.assertLogs("asyncio", logging.ERROR) as logged:
                    self.run_for(0.001)
                raised = logged.records[0].exc_info[1]
                self.assertIsInstance(raised, KeyError)
                self.assertIsInstance(raised.__context__, ZeroDivisionError)
                self.assertIn("by request", logged.output[0])
        self.assertIsNone(sys.exc_info()[0])
        self.still_runs()

    def test_what_is_meant_to_end_the_program_does_and_the_rest_is_called_later(self) -> None:
        for end in (SystemExit, KeyboardInterrupt):
            seen: list[str] = []

            def leave(end: type[BaseException] = end) -> None:
                raise end

            self.loop.call_soon(leave)
            self.loop.call_soon(seen.append, "after")
            self.assertRaises(end, self.loop.run_forever)
            self.assertFalse(self.loop.is_running())
            self.run_for()
            self.assertEqual((seen, self.problems), (["after"], []))

    def test_recursion_without_end_is_an_error_of_its_callback(self) -> None:
        def deeper() -> None:
            deeper()

        self.loop.call_soon(deeper)
        self.run_for()
        self.assertIsInstance(self.problems[0]["exception"], RecursionError)
        self.still_runs()

    def test_a_protocol_that_raises_loses_its_connection_and_no_other(self) -> None:
        class Fails(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                fail()

        async def main() -> bytes:
            server = await asyncio.start_server(lambda reader, writer: writer.write(b"fine"), "127.0.0.1", 0)
            broken = await self.loop.create_server(Fails, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            other, cut = await asyncio.open_connection(*broken.sockets[0].getsockname())
            cut.write(b"x")
            self.assertEqual(await other.read(), b"")
            answer = await reader.readexactly(4)
            for each in (writer, cut, server, broken):
                each.close()
            return answer

        self.assertEqual(self.loop.run_until_complete(asyncio.wait_for(main(), 60)), b"fine")
        self.assertIsInstance(self.problems[0]["exception"], ZeroDivisionError)
        gc.collect()


class Traced(LoopCase):
    """What debug mode knows of what failed: where it was scheduled."""

    def setUp(self) -> None:
        super().setUp()
        self.loop.set_debug(True)

    def is_traced_to(self, function: str) -> None:
        [problem] = self.problems
        self.assertIsInstance(problem["exception"], ZeroDivisionError)
        self.assertIn(function, [frame.name for frame in problem["source_traceback"]])

    def test_a_protocol_that_fails_when_it_is_told_of_its_connection(self) -> None:
        class Fails(asyncio.DatagramProtocol, asyncio.Protocol):
            connection_made = fail

        for family in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            ours, theirs = socket.socketpair(type=family)
            is_stream = family == socket.SOCK_STREAM
            make = self.loop.create_connection if is_stream else self.loop.create_datagram_endpoint

            async def begin(make: Callable[..., Any] = make, ours: socket.socket = ours) -> None:
                transport, _ = await make(Fails, sock=ours)
                transport.abort()

            with self.subTest(family=family.name), theirs:
                self.loop.run_until_complete(begin())
                self.is_traced_to("begin")
                self.run_for()
            del self.problems[:]

    def test_a_transport_refuses_in_asyncios_words(self) -> None:
        async def words(of_lines: str) -> list[str]:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
                said = []
                for refused in (
                    lambda: transport.write("text"),  # type: ignore[arg-type]
                    lambda: transport.write(None),  # type: ignore[arg-type]
                    lambda: transport.set_write_buffer_limits(high=-1),
                    lambda: transport.set_write_buffer_limits(high=3, low=5),
                    lambda: transport.set_write_buffer_limits(low=-1),
                ):
                    with self.assertRaises((TypeError, ValueError)) as raised:
                        refused()
                    # 3.14 says which classes it takes for bytes-like; ours takes any.
                    said.append(repr(raised.exception).replace("bytes, bytearray, or memoryview", "bytes-like"))
                transport.write_eof()
                with self.assertRaisesRegex(RuntimeError, r"^Cannot call write\(\) after write_eof\(\)$"):
                    transport.write(b"")
                with self.assertRaisesRegex(RuntimeError, rf"^Cannot call {of_lines}\(\) after write_eof\(\)$"):
                    transport.writelines([])
                transport.abort()
                return said

        with asyncio.Runner() as runner:
            # Before 3.12 lines are joined, and written.
            expected = runner.run(words("writelines" if sys.version_info >= (3, 12) else "write"))
        self.assertEqual(self.loop.run_until_complete(words("writelines")), expected)

    def test_a_transport_takes_any_number_for_a_mark_as_asyncios_do(self) -> None:
        async def marks() -> None:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                ours, theirs = socket.socketpair(type=kind)
                make = self.loop.create_connection if kind == socket.SOCK_STREAM else self.loop.create_datagram_endpoint
                transport, _ = await make(Hears, sock=ours)
                for given, marks in (
                    ({"high": 1e6}, (250_000, 1_000_000)),
                    ({"low": 2.0}, (2, 8)),
                    ({"high": math.inf, "low": 1}, (1, sys.maxsize)),
                    ({"high": 1 << 70, "low": True}, (1, sys.maxsize)),
                ):
                    with self.subTest(given):
                        transport.set_write_buffer_limits(**given)
                        self.assertEqual(transport.get_write_buffer_limits(), marks)
                for wrong in (math.nan, -math.inf, -(1 << 70), -(10**400)):
                    self.assertRaises(ValueError, transport.set_write_buffer_limits, high=wrong)
                self.assertRaises(TypeError, transport.set_write_buffer_limits, high="1")
                transport.abort()
                theirs.close()

        self.loop.run_until_complete(marks())

    def test_a_reader_that_fails(self) -> None:
        def begin(ours: socket.socket) -> None:
            self.loop.add_reader(ours, lambda: (self.loop.remove_reader(ours), fail()))

        ours, theirs = socket.socketpair()
        with ours, theirs:
            begin(ours)
            theirs.send(b"x")
            self.run_for(0.01)
        self.is_traced_to("begin")


class Coroutines(LoopCase):
    def test_one_that_is_never_awaited_says_so_and_where_it_was_made(self) -> None:
        async def forgotten() -> None:
            pass

        async def main() -> None:
            forgotten()

        self.loop.set_debug(True)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.loop.run_until_complete(main())
            gc.collect()
        words = [str(warning.message) for warning in said]
        self.assertTrue(any("was never awaited" in word and "created at" in word for word in words), words)
        self.still_runs()

    def test_one_given_for_a_callback_is_refused_in_debug_mode(self) -> None:
        async def coroutine() -> None:
            pass

        self.loop.set_debug(True)
        self.assertRaisesRegex(TypeError, "coroutines cannot be used", self.loop.call_soon, coroutine)
        made = coroutine()
        self.assertRaises(TypeError, self.loop.call_later, 0, made)
        made.close()

    def test_a_task_that_fails_unseen_is_reported(self) -> None:
        async def broken() -> None:
            fail()

        self.loop.create_task(broken())
        self.run_for(0.001)
        gc.collect()
        self.assertIn("never retrieved", self.problems[0]["message"])


    def test_a_generator_that_raises_midway_raises_there_and_one_left_is_closed_with_the_loop(self) -> None:
        closed: list[str] = []

        async def items(name: str, last: int) -> AsyncIterator[int]:
            try:
                for number in range(last):
                    await asyncio.sleep(0)
                    yield number
                fail()
            finally:
                closed.append(name)

        async def main() -> AsyncIterator[int]:
            seen: list[int] = []
            with self.assertRaises(ZeroDivisionError):
                async for item in items("raised", 3):
                    seen.append(item)
            self.assertEqual((seen, closed), ([0, 1, 2], ["raised"]))
            left = items("left", 3)
            await anext(left)
            return left

        left = self.loop.run_until_complete(main())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.assertEqual(closed, ["raised", "left"])
        del left
        self.still_runs()


class Programs(LoopCase):
    def test_one_that_ended_is_no_target_any_more(self) -> None:
        async def main() -> None:
            program = await asyncio.create_subprocess_exec("true")
            self.assertEqual(await program.wait(), 0)
            for call in (program.kill, program.terminate, partial(program.send_signal, signal.SIGUSR1)):
                self.assertRaises(ProcessLookupError, call)

        self.loop.run_until_complete(main())
        self.still_runs()

    def test_one_whose_status_somebody_else_collects_is_told_as_gone(self) -> None:
        async def main() -> int:
            program = await asyncio.create_subprocess_exec("sleep", "600")
            # It ends while the loop does not look.
            program.kill()
            os.waitpid(program.pid, 0)
            return await program.wait()

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.assertEqual(self.loop.run_until_complete(asyncio.wait_for(main(), 60)), 255)
        self.assertTrue(any("was collected elsewhere" in str(warning.message) for warning in said))
        self.still_runs()


class Running(LoopCase):
    def from_inside(self, call: Callable[[], object], words: str) -> None:
        """A call that a running loop refuses, and goes on running."""

        async def main() -> None:
            with self.assertRaisesRegex(RuntimeError, words):
                call()
            await asyncio.sleep(0)

        self.loop.run_until_complete(main())

    def test_a_loop_that_runs_is_neither_closed_nor_run_again(self) -> None:
        other = thalweg.new_event_loop()
        self.addCleanup(other.close)
        self.from_inside(self.loop.close, "running")
        self.from_inside(self.loop.run_forever, "running")
        self.from_inside(other.run_forever, "while another loop is running")
        self.still_runs()

    def test_a_run_within_a_run_is_refused_before_asyncio_is_asked(self) -> None:
        def cleans_up(loop: asyncio.BaseEventLoop) -> None:
            # As CPython 3.13.0 does, also behind a run that it has refused.
            loop._thread_id = None
            asyncio._set_running_loop(None)
            raise RuntimeError("running, said asyncio")

        other = thalweg.new_event_loop()
        self.addCleanup(other.close)

        async def main() -> None:
            with mock.patch.object(asyncio.BaseEventLoop, "run_forever", cleans_up):
                self.assertRaisesRegex(RuntimeError, "already running", self.loop.run_forever)
                self.assertRaisesRegex(RuntimeError, "another loop is running", other.run_forever)
            self.assertTrue(self.loop.is_running())
            self.assertIs(asyncio.get_running_loop(), self.loop)
            self.assertRaisesRegex(RuntimeError, "running", self.loop.close)

        self.loop.run_until_complete(main())

    def test_a_run_whose_loop_is_closed_under_it_ends(self) -> None:
        def close() -> None:
            self.loop._thread_id = None
            self.loop.close()

        def run() -> None:
            self.loop.call_soon(close)
            with self.assertRaisesRegex(RuntimeError, "closed"):
                self.loop.run_forever()

        # In a child, which is ended if it sleeps for ever.
        self.assertEqual(status_of_child(lambda: (self.loop.close(), self.setUp(), run())), 0)

    def test_a_loop_that_sleeps_refuses_other_threads_what_is_not_theirs(self) -> None:
        refused: list[BaseException] = []

        def meddle() -> None:
            try:
                self.loop.add_reader(0, print)
            except RuntimeError as error:
                refused.append(error)
            self.loop.call_soon_threadsafe(self.loop.stop)

        thread = threading.Timer(0.05, meddle)
        thread.start()
        self.loop.run_forever()
        thread.join()
        self.assertIn("call_soon_threadsafe", str(refused[0]))

    def test_a_number_that_another_thread_may_not_let_go_of_stays_whole(self) -> None:
        mailbox, told = self.loop.mailbox, []

        def tell(kind: int, payload: object) -> None:
            told.append(kind)
            self.loop.stop()

        for begin in (mailbox.watch, mailbox.socket):
            ours, theirs = socket.socketpair()
            with self.subTest(begin=begin.__name__), ours, theirs:
                ours.setblocking(False)
                number = begin(ours, tell)
                refused: list[str] = []

                def meddle() -> None:
                    for call in (partial(mailbox.unregister, number), partial(begin, theirs, tell)):
                        try:
                            call()
                        except RuntimeError as error:
                            refused.append(str(error))
                    self.loop.call_soon_threadsafe(self.loop.stop)

                thread = threading.Timer(0.05, meddle)
                thread.start()
                self.loop.run_forever()
                thread.join()
                self.assertEqual(len(refused), 2)
                self.assertTrue(all("call_soon_threadsafe" in words for words in refused))
                self.assertEqual((len(mailbox), told), (1, []))
                theirs.send(b"x")
                self.loop.run_forever()
                self.assertEqual(len(told), 1)
                self.assertTrue(mailbox.unregister(number))
                self.assertEqual((len(mailbox), self.loop._watched(ours.fileno())), (0, None))
            del told[:]

    def test_closing_twice_is_closing_once(self) -> None:
        self.loop.close()
        self.loop.close()
        self.assertTrue(self.loop.is_closed())


class Hears(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: list[Exception | None] = []
        self.then: Callable[[], object] = int

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.then()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Slow(LoopCase):
    def setUp(self) -> None:
        super().setUp()
        self.loop.set_debug(True)
        self.loop.slow_callback_duration = 0.01

    def named(self, pattern: str) -> int:
        """How often the log names somebody for having taken long, until the loop is stopped."""
        with self.assertLogs("asyncio", logging.WARNING) as logged:
            self.loop.run_forever()
        said = [record.getMessage() for record in logged.records]
        return sum(re.match(f"Executing <{pattern}.* took \\d", line) is not None for line in said)

    def pause(self, *_: object) -> None:
        time.sleep(0.02)
        self.loop.stop()

    def test_debug_mode_names_what_a_descriptor_brought(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.send(b"x")
            self.loop.add_reader(ours, self.pause)
            self.assertEqual(self.named("Handle .*pause"), 1)
            self.loop.remove_reader(ours)

    def test_debug_mode_names_a_connection_whose_protocol_is_slow(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            _, protocol = self.loop.run_until_complete(self.loop.create_connection(Hears, sock=ours))
            protocol.then = self.pause
            theirs.send(b"x")
            self.assertEqual(self.named("StreamTransport "), 1)
            protocol.transport.abort()
            self.run_for()

    def test_debug_mode_names_a_callback_that_was_told_by_number(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.send(b"x")
            watched = self.loop.mailbox.watch(ours, self.pause)
            self.loop.mailbox.post(self.loop.mailbox.register(self.pause), 12)
            self.assertEqual(self.named("bound method Slow.pause "), 2)
            self.loop.mailbox.unregister(watched)


class Descriptors(LoopCase):
    def test_one_closed_under_its_reader_is_silent_and_harms_nobody(self) -> None:
        gone, peer = socket.socketpair()
        ours, theirs = socket.socketpair()
        seen: list[str] = []
        with ours, theirs:
            self.loop.add_reader(gone, seen.append, "gone")
            self.loop.add_reader(ours, seen.append, "ours")
            gone.close()
            peer.close()
            theirs.send(b"x")
            self.run_for()
            self.assertEqual(set(seen), {"ours"})
            self.loop.remove_reader(ours)
            self.assertTrue(self.loop.remove_reader(gone))
        self.still_runs()

    def used_again(self, descriptor: int, near: socket.socket) -> None:
        """Gives a closed descriptor's number to another connection, which is told that it can write."""
        os.dup2(near.fileno(), descriptor)
        with socket.socket(fileno=descriptor):
            self.loop.add_writer(descriptor, self.loop.stop)
            late = self.loop.call_later(60, self.late)
            self.loop.run_forever()
            late.cancel()
            self.loop.remove_reader(descriptor)
            self.loop.remove_writer(descriptor)
        self.still_runs()

    def late(self) -> None:
        self.loop.stop()
        self.problems.append({"message": "nobody was told of the new connection"})

    def test_a_number_that_could_not_be_watched_again_can_be_once_it_is_open(self) -> None:
        gone, peer = socket.socketpair()
        near, far = socket.socketpair()
        with peer, near, far:
            self.loop.add_reader(gone, fail)
            descriptor = gone.detach()
            os.close(descriptor)
            with self.assertRaises(OSError) as refused:
                self.loop.add_reader(descriptor, fail)
            self.assertEqual(refused.exception.errno, errno.EBADF)
            self.used_again(descriptor, near)
        self.assertEqual(self.problems, [])

    def test_a_number_half_let_go_of_when_it_was_closed_can_be_watched_once_it_is_open(self) -> None:
        gone, peer = socket.socketpair()
        near, far = socket.socketpair()
        with peer, near, far:
            self.loop.add_reader(gone, fail)
            self.loop.add_writer(gone, fail)
            descriptor = gone.detach()
            os.close(descriptor)
            self.assertTrue(self.loop.remove_writer(descriptor))
            self.used_again(descriptor, near)
        self.assertEqual(self.problems, [])

    def used_by_another(self, gone: socket.socket, near: socket.socket) -> "Hears":
        """Closes a connection's socket behind its back, and gives its number to another connection."""
        descriptor = gone.fileno()
        gone.close()
        os.dup2(near.fileno(), descriptor)
        return self.connect(socket.socket(fileno=descriptor))

    def connect(self, sock: socket.socket) -> "Hears":
        _, protocol = self.loop.run_until_complete(self.loop.create_connection(Hears, sock=sock))
        return protocol

    def hears(self, protocol: "Hears", far: socket.socket) -> None:
        """Sees to it that a connection is told what its peer says."""
        far.send(b"heard")
        late = self.loop.call_later(10, self.late)
        protocol.then = self.loop.stop
        self.loop.run_forever()
        late.cancel()
        self.assertEqual((protocol.data, self.problems), (b"heard", []))
        protocol.transport.abort()
        self.run_for()

    def test_a_connection_whose_number_is_anothers_now_is_told_and_sends_that_one_nothing(self) -> None:
        (gone, peer), (near, far) = socket.socketpair(), socket.socketpair()
        with peer, near, far:
            robbed = self.connect(gone)
            owner = self.used_by_another(gone, near)
            robbed.transport.write(b"for somebody else")
            self.run_for()
            self.assertEqual([error.errno for error in robbed.lost], [errno.EBADF])
            far.setblocking(False)
            self.assertRaises(BlockingIOError, far.recv, 100)
            self.hears(owner, far)

    def test_a_connection_that_ends_leaves_its_number_to_whoever_has_it_since(self) -> None:
        (gone, peer), (near, far) = socket.socketpair(), socket.socketpair()
        with peer, near, far:
            robbed = self.connect(gone)
            robbed.transport.pause_reading()
            owner = self.used_by_another(gone, near)
            robbed.transport.abort()
            self.run_for()
            self.assertEqual(robbed.lost, [None])
            self.hears(owner, far)

    def test_a_number_that_no_descriptor_has_is_refused_whatever_it_is(self) -> None:
        for descriptor in (10**9, 2**31 - 1):
            with self.assertRaises(OSError) as refused:
                self.loop.add_reader(descriptor, fail)
            self.assertEqual(refused.exception.errno, errno.EBADF)
        self.still_runs()

    def test_one_closed_under_a_receive_leaves_a_wait_that_can_be_cancelled(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)

        async def main() -> None:
            waits = asyncio.ensure_future(self.loop.sock_recv(ours, 10))
            await asyncio.sleep(0)
            ours.close()
            await asyncio.sleep(0)
            waits.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waits

        with theirs:
            self.loop.run_until_complete(main())
        self.assertEqual(self.problems, [])
        self.still_runs()


class Forks(LoopCase):
    def child(self, work: Callable[[], int]) -> int:
        """What a child says in which `work` runs."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            status = 99
            try:
                status = work()
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def test_a_child_is_told_that_the_loop_is_its_parents_and_makes_its_own(self) -> None:
        def work() -> int:
            try:
                self.loop.run_until_complete(asyncio.sleep(0.01))
            except RuntimeError as error:
                if "after a fork" not in str(error):
                    return 1
            else:
                return 2
            return thalweg.run(asyncio.sleep(0.001, 7))

        self.assertEqual(self.child(work), 7)
        self.still_runs()

    def test_a_child_that_watches_in_its_parents_loop_is_refused(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:

            def work() -> int:
                try:
                    self.loop.add_reader(ours, fail)
                except RuntimeError as error:
                    return 7 if "after a fork" in str(error) else 1
                return 2

            self.assertEqual(self.child(work), 7)
            theirs.send(b"x")
            self.run_for()
            self.loop.add_reader(ours, self.loop.stop)
            self.loop.run_forever()
            self.loop.remove_reader(ours)
        self.assertEqual(self.problems, [])

    def test_a_child_that_closes_its_parents_loop_does_not(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self.loop.add_reader(ours, self.loop.stop)

            def work() -> int:
                self.loop.close()
                return 5

            self.assertEqual(self.child(work), 5)
            theirs.send(b"x")
            self.loop.run_forever()
            self.loop.remove_reader(ours)

    def test_a_child_that_closes_its_parents_loop_leaves_it_its_signals(self) -> None:
        self.loop.add_signal_handler(signal.SIGUSR1, self.loop.stop)

        def work() -> int:
            self.loop.close()
            return 5

        self.assertEqual(self.child(work), 5)
        # A loop that sleeps is woken by what the handler writes.
        sender = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        was_late: list[bool] = []

        def give_up() -> None:
            was_late.append(True)
            self.loop.call_soon_threadsafe(self.loop.stop)

        late = threading.Timer(60, give_up)
        sender.start()
        late.start()
        self.loop.run_forever()
        late.cancel()
        self.assertEqual(was_late, [])
        self.loop.remove_signal_handler(signal.SIGUSR1)

    def test_a_child_that_ends_its_parents_connection_does_not(self) -> None:
        ours, theirs = socket.socketpair()
        received: asyncio.Future[bytes] = self.loop.create_future()

        class Hears(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                received.set_result(data)

        connect = self.loop.create_connection(Hears, sock=ours)
        transport, _ = self.loop.run_until_complete(connect)

        def work() -> int:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                transport.__del__()
            transport.abort()
            return 5

        with theirs:
            self.assertEqual(self.child(work), 5)
            theirs.send(b"heard")
            self.assertEqual(self.loop.run_until_complete(asyncio.wait_for(received, 60)), b"heard")
            transport.close()
            self.loop.run_until_complete(asyncio.sleep(0))


def tearDownModule() -> None:
    # What is left open is closed now, and not while others count what is.
    gc.collect()


if __name__ == "__main__":
    unittest.main()
