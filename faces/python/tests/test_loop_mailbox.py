"""Every event of the loop by number: what the table says, and what it promises beyond."""

import asyncio
import contextlib
import errno
import gc
import os
import select
import socket
import subprocess
import sys
import threading
import time
import unittest
import weakref
from collections.abc import Callable
from functools import partial
from unittest import mock

import thalweg
from support import status_of_child
from thalweg import _native
from thalweg.loop import Kind, _mailbox


class MailboxCase(unittest.TestCase):
    def setUp(self) -> None:
        self.loop = thalweg.new_event_loop()
        self.addCleanup(self.loop.close)
        self.mailbox = self.loop.mailbox
        self.told: list[tuple[int, object]] = []
        self.problems: list[dict[str, object]] = []
        self.loop.set_exception_handler(lambda _, context: self.problems.append(context))

    def tell(self, kind: int, payload: object) -> None:
        self.told.append((kind, payload))

    def run_for(self, seconds: float = 0) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def run_until(self, told: int) -> None:
        """Runs until so many events were told."""

        async def wait() -> None:
            while len(self.told) < told:
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(wait(), 60))


class Posts(MailboxCase):
    def test_the_kinds_are_those_of_the_table(self) -> None:
        self.assertEqual([(kind.name, kind.value) for kind in Kind], _native._event_kinds())

    def test_every_kind_is_told_with_its_payload_in_the_order_of_posting(self) -> None:
        number = self.mailbox.register(self.tell)
        posted = [(int(kind), object()) for kind in Kind]
        for kind, payload in posted:
            self.assertTrue(self.mailbox.post(number, kind, payload))
        self.assertEqual(self.told, [])
        self.run_for()
        self.assertEqual(self.told, posted)

    def test_what_is_posted_keeps_its_place_among_callbacks(self) -> None:
        seen: list[object] = []
        number = self.mailbox.register(lambda _, payload: seen.append(payload))
        self.loop.call_soon(seen.append, 1)
        self.mailbox.post(number, Kind.ASYNC_RESULT, 2)
        self.loop.call_soon(seen.append, 3)
        self.run_for()
        self.assertEqual(seen, [1, 2, 3])

    def test_what_cannot_be_called_or_watches_nothing_is_refused_at_once(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for nobody in (None, 5, "tell"):
                for begin in (
                    self.mailbox.register,
                    partial(self.mailbox.watch, ours),
                    partial(self.mailbox.socket, ours),
                    partial(self.mailbox.timer, 0),
                    lambda nobody: self.mailbox.process(nobody, "true"),
                ):
                    self.assertRaisesRegex(TypeError, repr(nobody), begin, nobody)
            self.assertRaises(ValueError, self.mailbox.watch, ours, self.tell, read=False)
            self.assertEqual((len(self.mailbox), self.loop._watched(ours.fileno())), (0, None))

    def test_numbers_grow_and_are_never_used_again(self) -> None:
        first = self.mailbox.register(self.tell)
        self.assertTrue(self.mailbox.unregister(first))
        self.assertFalse(self.mailbox.unregister(first))
        second = self.mailbox.register(self.tell)
        self.assertGreater(second, first)
        self.assertFalse(self.mailbox.post(first, Kind.ASYNC_RESULT))
        self.run_for()
        self.assertEqual((self.told, len(self.mailbox)), ([], 1))

    def test_what_waits_for_a_callback_that_goes_is_dropped(self) -> None:
        number = self.mailbox.register(self.tell)
        self.mailbox.post(number, Kind.ASYNC_RESULT)
        self.mailbox.unregister(number)
        self.run_for()
        self.assertEqual(self.told, [])

    def test_a_ready_descriptor_waits_once_however_often_it_is_posted(self) -> None:
        number = self.mailbox.register(self.tell)
        for _ in range(5):
            self.assertTrue(self.mailbox.post(number, Kind.READABLE, 9))
            self.mailbox.post(number, Kind.WRITABLE, 9)
            self.mailbox.post(number, Kind.SOCKET_DATA, b"x")
        self.assertEqual(self.mailbox.waiting, 7)
        self.run_for()
        self.assertEqual(self.told.count((Kind.READABLE, 9)), 1)
        self.assertEqual(self.told.count((Kind.WRITABLE, 9)), 1)
        self.assertEqual(self.told.count((Kind.SOCKET_DATA, b"x")), 5)
        self.mailbox.post(number, Kind.READABLE, 9)
        self.run_for()
        self.assertEqual(self.told.count((Kind.READABLE, 9)), 2)

    def test_each_of_several_descriptors_of_one_number_waits_once(self) -> None:
        number = self.mailbox.register(self.tell)
        for _ in range(3):
            for kind in (Kind.READABLE, Kind.WRITABLE):
                for descriptor in (5, 6, 7, None):
                    self.assertTrue(self.mailbox.post(number, kind, descriptor))
        self.assertEqual(self.mailbox.waiting, 8)
        self.run_for()
        self.assertEqual(
            self.told, [(kind, of) for kind in (Kind.READABLE, Kind.WRITABLE) for of in (5, 6, 7, None)]
        )
        # Nothing of that is left: each of them waits anew, and once.
        self.told.clear()
        for descriptor in (6, 7, 6, 5, 7):
            self.mailbox.post(number, Kind.READABLE, descriptor)
        self.run_for()
        self.assertEqual(self.told, [(Kind.READABLE, 6), (Kind.READABLE, 7), (Kind.READABLE, 5)])

    def test_what_is_no_descriptor_is_told_as_often_as_it_is_posted(self) -> None:
        number = self.mailbox.register(self.tell)
        payloads: list[object] = ["a", "a", 1.0, 1.0, 1 << 70, 1 << 70, True, True]
        for payload in payloads:
            self.assertTrue(self.mailbox.post(number, Kind.READABLE, payload))
        self.run_for()
        self.assertEqual(self.told, [(Kind.READABLE, payload) for payload in payloads])

    def test_a_full_mailbox_says_so_and_what_it_took_is_told(self) -> None:
        number = self.mailbox.register(self.tell)
        self.mailbox.capacity = 10
        for _ in range(10):
            self.mailbox.post(number, Kind.CALL_RESULT)
        self.assertRaises(thalweg.Overloaded, self.mailbox.post, number, Kind.CALL_RESULT)
        self.assertRaises(thalweg.Overloaded, self.mailbox.post, number, Kind.CALL_ERROR)
        self.loop.call_soon_threadsafe(int)
        self.assertEqual(self.mailbox.refused, 2)
        self.run_for()
        self.assertEqual(len(self.told), 10)
        self.assertTrue(self.mailbox.post(number, Kind.CALL_RESULT))

    def test_what_is_no_kind_is_refused(self) -> None:
        number = self.mailbox.register(self.tell)
        for kind in (0, 4, 255, 256, -1):
            self.assertRaisesRegex(ValueError, f"^{kind} is no kind of event$", self.mailbox.post, number, kind)

    def test_a_number_that_nothing_has_is_refused_by_name(self) -> None:
        calls: list[Callable[[int], object]] = [
            lambda number: self.mailbox.post(number, Kind.CALL_RESULT),
            self.mailbox.unregister,
            self.mailbox.bell,
        ]
        for call in calls:
            for number in (-1, 1 << 64):
                self.assertRaisesRegex(ValueError, f"^id is {number}: give a whole number from 0 to", call, number)
        self.assertFalse(self.mailbox.unregister((1 << 64) - 1))

    def test_a_capacity_that_nothing_has_is_refused_by_name(self) -> None:
        for events in (-1, 1 << 64):
            with self.assertRaisesRegex(ValueError, f"^capacity is {events}: give a whole number from 0 to"):
                self.mailbox.capacity = events

    def test_a_callback_that_raises_is_reported_and_goes_on(self) -> None:
        def fail(kind: int, payload: object) -> None:
            self.tell(kind, payload)
            raise ZeroDivisionError(payload)

        number = self.mailbox.register(fail)
        self.mailbox.post(number, Kind.CALL_RESULT, 1)
        self.mailbox.post(number, Kind.CALL_RESULT, 2)
        self.run_for()
        self.assertEqual([type(problem["exception"]) for problem in self.problems], [ZeroDivisionError] * 2)
        self.assertIn("CALL_RESULT", self.problems[0]["message"])
        self.assertEqual(len(self.told), 2)

    def test_threads_wake_a_loop_that_sleeps_and_keep_their_order(self) -> None:
        number = self.mailbox.register(self.tell)

        def post(thread: int) -> None:
            for step in range(500):
                self.mailbox.post(number, Kind.ASYNC_RESULT, (thread, step))

        threads = [threading.Thread(target=post, args=(thread,)) for thread in range(3)]
        for thread in threads:
            thread.start()
        self.run_until(1500)
        for thread in threads:
            thread.join()
        for thread in range(3):
            steps = [payload[1] for _, payload in self.told if payload[0] == thread]
            self.assertEqual(steps, list(range(500)))

    def test_a_closed_loop_lets_go_of_callbacks_and_refuses(self) -> None:
        class Callback:
            def __call__(self, kind: int, payload: object) -> None:
                pass

        callback = Callback()
        number = self.mailbox.register(callback)
        reference = weakref.ref(callback)
        del callback
        self.loop.close()
        gc.collect()
        self.assertIsNone(reference())
        self.assertRaisesRegex(RuntimeError, "closed", self.mailbox.post, number, Kind.TIMER)
        self.assertRaisesRegex(RuntimeError, "closed", self.mailbox.register, self.tell)
        self.assertRaisesRegex(RuntimeError, "closed", self.mailbox.bell, number)


class Futures(MailboxCase):
    def test_the_first_answer_resolves_it_and_its_number_is_gone(self) -> None:
        number, future = self.mailbox.future()
        thread = threading.Thread(target=self.mailbox.post, args=(number, Kind.ASYNC_RESULT, "done"))
        thread.start()
        self.assertEqual(self.loop.run_until_complete(asyncio.wait_for(future, 60)), "done")
        thread.join()
        self.assertFalse(self.mailbox.post(number, Kind.ASYNC_RESULT, "late"))

    def test_whatever_comes_behind_the_first_answer_reaches_nobody(self) -> None:
        for first, then in ((Kind.CALL_RESULT, Kind.CALL_RESULT), (Kind.ASYNC_RESULT, Kind.ASYNC_ERROR)):
            with self.subTest(then=then.name):
                number, future = self.mailbox.future()
                posted = [self.mailbox.post(number, first, "first")]
                posted += [self.mailbox.post(number, then, RuntimeError("late")) for _ in range(3)]
                self.assertEqual((posted, self.mailbox.waiting), ([True, False, False, False], 1))
                self.assertEqual(self.loop.run_until_complete(future), "first")

    def test_of_many_threads_that_answer_one_is_heard(self) -> None:
        number, future = self.mailbox.future()
        heard: list[int] = []

        def answer(thread: int) -> None:
            if self.mailbox.post(number, Kind.ASYNC_RESULT, thread):
                heard.append(thread)

        threads = [threading.Thread(target=answer, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([self.loop.run_until_complete(future)], heard)

    def test_an_answer_that_found_no_room_leaves_its_place_to_the_next(self) -> None:
        number, future = self.mailbox.future()
        self.mailbox.capacity = 0
        self.assertRaises(thalweg.Overloaded, self.mailbox.post, number, Kind.ASYNC_RESULT, "no room")
        self.mailbox.capacity = 100
        self.assertTrue(self.mailbox.post(number, Kind.ASYNC_RESULT, "room"))
        self.assertEqual(self.loop.run_until_complete(future), "room")

    def test_one_that_is_let_go_of_is_cancelled(self) -> None:
        number, future = self.mailbox.future()
        self.mailbox.post(number, Kind.ASYNC_RESULT, "dropped")
        self.assertTrue(self.mailbox.unregister(number))
        self.assertTrue(future.cancelled())
        self.run_for()
        self.assertEqual((self.problems, len(self.mailbox)), ([], 0))

    def test_one_that_another_thread_lets_go_of_is_cancelled_by_the_loop(self) -> None:
        for debug in (False, True):
            self.loop.set_debug(debug)
            number, future = self.mailbox.future()
            thread = threading.Timer(0.02, self.mailbox.unregister, (number,))
            thread.start()
            with self.subTest(debug=debug), self.assertRaises(asyncio.CancelledError):
                self.loop.run_until_complete(asyncio.wait_for(future, 60))
            thread.join()
        self.assertEqual((self.problems, len(self.mailbox)), ([], 0))

    def test_an_error_raises(self) -> None:
        for kind in (Kind.CALL_ERROR, Kind.ASYNC_ERROR, Kind.SOCKET_ERROR):
            number, future = self.mailbox.future()
            self.mailbox.post(number, kind, KeyError("no such word"))
            self.assertRaises(KeyError, self.loop.run_until_complete, future)

    def test_what_is_neither_an_answer_nor_an_error_reaches_nobody(self) -> None:
        number, future = self.mailbox.future()
        answers = {Kind.CALL_RESULT, Kind.CALL_ERROR, Kind.ASYNC_RESULT, Kind.ASYNC_ERROR, Kind.SOCKET_ERROR}
        for kind in set(Kind) - answers:
            with self.subTest(kind=kind.name):
                self.assertFalse(self.mailbox.post(number, kind, b"no answer"))
                self.mailbox._tell(number, kind, b"no answer")
        self.run_for()
        self.assertFalse(future.done())
        self.mailbox.post(number, Kind.ASYNC_RESULT, "done")
        self.assertEqual(self.loop.run_until_complete(future), "done")

    def test_an_answer_to_one_that_was_cancelled_reaches_nobody(self) -> None:
        number, future = self.mailbox.future()
        future.cancel()
        self.mailbox.post(number, Kind.CALL_RESULT, 1)
        self.run_for()
        self.assertTrue(future.cancelled())
        self.assertEqual((self.problems, len(self.mailbox)), ([], 0))

    def test_one_that_is_done_is_told_of_nothing_and_its_number_goes(self) -> None:
        numbers = []

        async def give_up() -> None:
            for _ in range(100):
                number, future = self.mailbox.future()
                numbers.append(number)
                with self.assertRaises(TimeoutError):
                    await asyncio.wait_for(future, 0)
            number, future = self.mailbox.future()
            future.set_result("by somebody else")
            self.assertFalse(self.mailbox.post(number, Kind.ASYNC_RESULT, "late"))

        self.loop.run_until_complete(give_up())
        self.run_for()
        self.assertEqual([self.mailbox.post(number, Kind.ASYNC_RESULT, 1) for number in numbers], [False] * 100)
        self.assertEqual((len(self.mailbox), self.mailbox.waiting), (0, 0))

    def test_a_future_that_waits_goes_with_its_closed_loop(self) -> None:
        _, future = self.mailbox.future()
        known = weakref.ref(future)
        del future
        self.loop.close()
        gc.collect()
        self.assertIsNone(known())

    def test_an_error_that_is_none_is_reported_to_the_one_who_waits(self) -> None:
        number, future = self.mailbox.future()
        self.mailbox.post(number, Kind.CALL_ERROR, "not an exception")
        self.assertRaises(TypeError, self.loop.run_until_complete, asyncio.wait_for(future, 60))


class Sources(MailboxCase):
    def setUp(self) -> None:
        super().setUp()
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.addCleanup(self.ours.close)
        self.addCleanup(self.theirs.close)

    def test_a_descriptor_is_told_as_long_as_it_is_ready(self) -> None:
        number = self.mailbox.watch(self.ours, self.tell)
        self.run_for()
        self.assertEqual(self.told, [])
        self.theirs.send(b"x")
        self.run_until(2)
        self.assertEqual(set(self.told), {(Kind.READABLE, self.ours.fileno())})
        self.mailbox.unregister(number)
        del self.told[:]
        self.run_for(0.01)
        self.assertEqual(self.told, [])

    def test_both_sides_of_a_descriptor_are_told(self) -> None:
        number = self.mailbox.watch(self.ours, self.tell, write=True)
        self.theirs.send(b"x")
        self.run_until(2)
        self.mailbox.unregister(number)
        self.assertEqual({kind for kind, _ in self.told}, {Kind.READABLE, Kind.WRITABLE})

    def test_a_side_is_watched_if_what_is_said_of_it_is_true(self) -> None:
        for read, write in ((1, 0), ("", "yes"), ([0], object())):
            with self.subTest(read=read, write=write):
                number = self.mailbox.watch(self.ours, self.tell, read=read, write=write)
                self.assertEqual(self.loop._watched(self.ours.fileno()), (bool(read), bool(write)))
                self.mailbox.unregister(number)
        self.assertRaises(ValueError, self.mailbox.watch, self.ours, self.tell, read=0, write=None)

    def test_a_number_that_goes_leaves_a_descriptor_to_whoever_has_it_since(self) -> None:
        for begin in (self.mailbox.watch, self.mailbox.socket):
            for again in (self.mailbox.watch, self.mailbox.socket):
                with self.subTest(begin=begin.__name__, again=again.__name__):
                    gone, peer = socket.socketpair()
                    peer.close()
                    first = begin(gone, lambda *_: self.fail("the connection is closed"))
                    descriptor = gone.detach()
                    near, far = socket.socketpair()
                    os.dup2(near.fileno(), descriptor)
                    near.close()
                    with socket.socket(fileno=descriptor) as reused, far:
                        reused.setblocking(False)
                        second = again(reused, self.tell)
                        self.assertTrue(self.mailbox.unregister(first))
                        far.send(b"x")
                        self.run_until(1)
                        self.assertTrue(self.mailbox.unregister(second))
                        self.assertIsNone(self.loop._watched(descriptor))
                    del self.told[:]
        self.assertEqual((self.problems, len(self.mailbox)), ([], 0))

    def test_a_descriptor_that_cannot_be_watched_leaves_nothing_behind(self) -> None:
        with open(__file__) as file:
            self.assertRaises(PermissionError, self.mailbox.watch, file, self.tell)
        self.assertEqual(len(self.mailbox), 0)

    def test_a_socket_brings_its_bytes_and_its_end(self) -> None:
        self.mailbox.socket(self.ours, self.tell)
        self.theirs.send(b"one")
        self.run_until(1)
        self.theirs.send(b"two")
        self.theirs.close()
        self.run_until(3)
        self.run_for(0.01)
        self.assertEqual(
            self.told, [(Kind.SOCKET_DATA, b"one"), (Kind.SOCKET_DATA, b"two"), (Kind.SOCKET_CLOSED, None)]
        )

    def test_a_connection_that_breaks_says_why(self) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        with server, client, peer:
            client.setblocking(False)
            self.mailbox.socket(client, self.tell)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            self.run_until(1)
            [(kind, error)] = self.told
            self.assertEqual((kind, error.errno), (Kind.SOCKET_ERROR, errno.ECONNRESET))

    def test_a_timer_is_told_once_and_one_let_go_of_never(self) -> None:
        when = self.loop.time() + 0.005
        self.mailbox.timer(0.005, lambda kind, _: self.tell(kind, self.loop.time()))
        gone = self.mailbox.timer(0.001, self.tell)
        self.mailbox.unregister(gone)
        self.run_for(0.02)
        [(kind, at)] = self.told
        self.assertEqual(kind, Kind.TIMER)
        self.assertGreaterEqual(at, when)
        self.assertEqual(len(self.mailbox), 0)

    def test_a_program_says_what_it_writes_and_then_how_it_ended(self) -> None:
        script = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        self.mailbox.process(self.tell, sys.executable, "-I", "-c", script)
        self.run_until(3)
        self.assertCountEqual(self.told[:2], [(Kind.PROCESS_OUTPUT, b"out\n"), (Kind.PROCESS_ERRORS, b"err\n")])
        self.assertEqual(self.told[2:], [(Kind.PROCESS_EXIT, 3)])
        self.assertEqual(len(self.mailbox), 0)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_everything_that_a_program_wrote_comes_before_its_end(self) -> None:
        count = 300_000
        self.mailbox.process(self.tell, "head", "-c", str(count), "/dev/zero")

        async def ended() -> None:
            while not self.told or self.told[-1][0] != Kind.PROCESS_EXIT:
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(ended(), 60))
        self.assertEqual(sum(len(payload) for _, payload in self.told[:-1]), count)

    def test_a_program_ends_though_what_it_left_running_writes_on(self) -> None:
        pieces = 0

        def tell(kind: int, payload: object) -> None:
            nonlocal pieces
            if kind == Kind.PROCESS_OUTPUT:
                pieces += 1
                if pieces == 300:
                    raise KeyboardInterrupt
                # Slower than the writer of the pipe.
                time.sleep(0.01)
            else:
                self.tell(kind, payload)

        self.mailbox.process(tell, "sh", "-c", "yes & exit 3")
        self.run_until(1)
        self.assertEqual(self.told, [(Kind.PROCESS_EXIT, 3)])

    def test_what_cannot_be_done_for_a_program_is_refused_before_it_is_started(self) -> None:
        before = len(os.listdir("/proc/self/fd"))
        for error, said, words in (
            (ValueError, "stdin", {"stdin": subprocess.PIPE}),
            (TypeError, "stdout", {"stdout": subprocess.DEVNULL}),
            (TypeError, "bufsize, stderr", {"stderr": subprocess.STDOUT, "bufsize": -1}),
            (TypeError, "text", {"text": True}),
            (TypeError, "encoding, errors", {"encoding": "utf-8", "errors": "ignore"}),
            (TypeError, "universal_newlines", {"universal_newlines": 1}),
            (TypeError, "args", {"args": ["true"]}),
        ):
            with self.subTest(words=words), mock.patch.object(_mailbox, "Process") as started:
                self.assertRaisesRegex(error, said, self.mailbox.process, self.tell, "cat", **words)
                started.assert_not_called()
        self.assertRaisesRegex(TypeError, "'program'", self.mailbox.process, self.tell)
        self.assertEqual((len(self.mailbox), len(os.listdir("/proc/self/fd"))), (0, before))

    def test_a_program_reads_the_file_that_it_is_given(self) -> None:
        with open(__file__, "rb") as given:
            self.mailbox.process(self.tell, "head", "-n1", stdin=given, text=False, encoding=None)
            self.run_until(2)
            given.seek(0)
            told = [(Kind.PROCESS_OUTPUT, given.readline()), (Kind.PROCESS_EXIT, 0)]
        self.assertEqual(self.told, told)

    def no_program_runs(self) -> None:
        self.assertRaises(ChildProcessError, os.waitid, os.P_ALL, 0, os.WEXITED | os.WNOHANG)

    def test_a_program_that_could_not_be_listened_to_is_not_started(self) -> None:
        def refused() -> None:
            with mock.patch.object(_mailbox, "Process") as started, self.assertRaises(RuntimeError):
                self.mailbox.process(self.tell, "sleep", "60")
            started.assert_not_called()
            self.assertEqual(len(self.mailbox), 0)

        self.assertEqual(status_of_child(refused), 0)
        self.loop.close()
        refused()

    def test_a_program_that_cannot_be_listened_to_does_not_stay(self) -> None:
        watch, before = self.loop.add_reader, self.loop._watched_descriptors()
        for room in range(3):

            def watch_so_many(*words: object) -> None:
                nonlocal room
                room -= 1
                if room < 0:
                    raise OSError("no room")
                watch(*words)

            with self.subTest(room=room), mock.patch.object(self.loop, "add_reader", watch_so_many):
                self.assertRaises(OSError, self.mailbox.process, self.tell, "sleep", "60")
                self.no_program_runs()
                self.assertEqual((len(self.mailbox), self.loop._watched_descriptors()), (0, before))

    def test_a_program_whose_end_nobody_would_hear_of_does_not_stay(self) -> None:
        with mock.patch.object(os, "pidfd_open", side_effect=OSError(errno.EMFILE, "no descriptor")):
            # By a fork: what is started natively comes with the descriptor.
            self.assertRaises(OSError, self.mailbox.process, self.tell, "sleep", "60", umask=0o77)
        self.no_program_runs()
        self.assertEqual(len(self.mailbox), 0)

    def test_who_ends_the_program_when_told_of_another_leaves_nothing_behind(self) -> None:
        for ends in (Kind.PROCESS_OUTPUT, Kind.PROCESS_EXIT):

            def tell(kind: int, payload: object) -> None:
                self.tell(kind, payload)
                if kind == ends:
                    raise SystemExit

            with self.subTest(ends=ends.name):
                before = len(os.listdir("/proc/self/fd"))
                number = self.mailbox.process(tell, "sh", "-c", "echo out; echo err >&2; exit 3")
                with self.assertRaises(SystemExit):
                    self.run_until(3)
                self.run_until(3)
                self.run_for()
                self.assertFalse(self.mailbox.post(number, Kind.PROCESS_EXIT))
                rest = [(Kind.PROCESS_OUTPUT, b"out\n"), (Kind.PROCESS_ERRORS, b"err\n"), (Kind.PROCESS_EXIT, 3)]
                self.assertCountEqual(self.told, rest)
                self.assertEqual(len(os.listdir("/proc/self/fd")), before)
            del self.told[:]
        self.assertEqual(len(self.mailbox), 0)

    def test_what_comes_with_the_end_of_a_program_is_told_though_who_is_told_ends_ours(self) -> None:
        def tell(kind: int, payload: object) -> None:
            self.tell(kind, payload)
            raise SystemExit

        number = self.mailbox.register(tell)
        process = _mailbox.Process("echo out; echo err >&2; exit 3", shell=True, stdout=-1, stderr=-1, bufsize=0)
        self.assertTrue(select.select([process.end], [], [], 60)[0])
        pipes = {process.stdout: Kind.PROCESS_OUTPUT, process.stderr: Kind.PROCESS_ERRORS}
        self.assertRaises(SystemExit, self.mailbox._ended, number, process, pipes)
        rest = [(Kind.PROCESS_OUTPUT, b"out\n"), (Kind.PROCESS_ERRORS, b"err\n"), (Kind.PROCESS_EXIT, 3)]
        self.assertEqual(self.told, rest)
        self.assertTrue(all(pipe.closed for pipe in pipes))
        self.assertEqual((len(self.mailbox), process.end), (0, None))

    def holders(self) -> dict[str, Callable[[], Callable[[], object]]]:
        """Everything that can hold `ours`: begins it, and returns what lets go of it."""

        def by_number(begin: Callable[..., int]) -> Callable[[], object]:
            number = begin(self.ours, self.tell)
            return lambda: self.assertTrue(self.mailbox.unregister(number))

        def read() -> Callable[[], object]:
            self.loop.add_reader(self.ours, self.tell, Kind.READABLE, None)
            return lambda: self.assertTrue(self.loop.remove_reader(self.ours))

        def awaited() -> Callable[[], object]:
            reads = self.loop.create_task(self.loop.sock_recv(self.ours, 10))
            reads.add_done_callback(lambda done: done.cancelled() or self.tell(0, done.result()))
            self.run_for()
            return lambda: (reads.cancel(), self.run_for())

        return {
            "watch": lambda: by_number(self.mailbox.watch),
            "socket": lambda: by_number(self.mailbox.socket),
            "add_reader": read,
            "sock_recv": awaited,
        }

    def test_nobody_takes_the_place_of_one_who_is_told_by_number_nor_the_other_way(self) -> None:
        holders = self.holders()
        for name, begin in holders.items():
            takers = {
                "watch": lambda: self.mailbox.watch(self.ours, self.tell),
                "both sides": lambda: self.mailbox.watch(self.ours, self.tell, write=True),
                "socket": lambda: self.mailbox.socket(self.ours, self.tell),
            }
            if name in ("watch", "socket"):
                takers["add_reader"] = lambda: self.loop.add_reader(self.ours, self.tell)
                takers["sock_recv"] = lambda: self.loop.run_until_complete(self.loop.sock_recv(self.ours, 10))
                takers["transport"] = lambda: self.loop.run_until_complete(
                    self.loop.create_connection(asyncio.Protocol, sock=self.ours)
                )
            for taker, take in takers.items():
                with self.subTest(holder=name, taker=taker):
                    let_go = begin()
                    known = len(self.mailbox)
                    with self.assertRaisesRegex(RuntimeError, "watched already"):
                        take()
                    if name in ("watch", "socket"):
                        self.assertFalse(self.loop.remove_reader(self.ours))
                    self.assertEqual(len(self.mailbox), known)
                    self.assertEqual(self.loop._watched(self.ours.fileno()), (True, False))
                    self.theirs.send(b"x")
                    self.run_until(1)
                    let_go()
                    self.assertIsNone(self.loop._watched(self.ours.fileno()))
                    with contextlib.suppress(BlockingIOError):
                        self.ours.recv(10)
                    del self.told[:]
        self.assertEqual((self.problems, len(self.mailbox)), ([], 0))

    def test_one_closed_under_a_number_is_silent_and_its_number_is_let_go_of_as_ever(self) -> None:
        for begin in (self.mailbox.watch, self.mailbox.socket):
            with self.subTest(begin=begin.__name__):
                ours, theirs = socket.socketpair()
                ours.setblocking(False)
                number = begin(ours, self.tell)
                ours.close()
                theirs.close()
                self.run_for(0.01)
                self.assertTrue(self.mailbox.unregister(number))
        self.assertEqual((self.told, self.problems, len(self.mailbox)), ([], [], 0))

    def test_the_sides_of_a_descriptor_may_be_two_numbers(self) -> None:
        reads = self.mailbox.watch(self.ours, self.tell)
        writes = self.mailbox.watch(self.ours, self.tell, read=False, write=True)
        self.theirs.send(b"x")
        self.run_until(2)
        self.assertEqual({kind for kind, _ in self.told}, {Kind.READABLE, Kind.WRITABLE})
        self.mailbox.unregister(writes)
        del self.told[:]
        self.run_until(1)
        self.assertEqual({kind for kind, _ in self.told}, {Kind.READABLE})
        self.mailbox.unregister(reads)

    def test_a_transport_keeps_its_descriptor(self) -> None:
        async def main() -> None:
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=ours)
            with theirs:
                for take in (self.mailbox.watch, self.mailbox.socket):
                    with self.assertRaisesRegex(RuntimeError, "is used by transport"):
                        take(writer.get_extra_info("socket"), self.tell)
                self.assertEqual(len(self.mailbox), 0)
                theirs.send(b"heard")
                self.assertEqual(await reader.read(5), b"heard")
                writer.close()

        self.loop.run_until_complete(main())

    def test_an_empty_datagram_is_no_end(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with ours, theirs:
            ours.setblocking(False)
            number = self.mailbox.socket(ours, self.tell)
            theirs.send(b"")
            theirs.send(b"more")
            self.run_until(2)
            self.mailbox.unregister(number)
        self.assertEqual(self.told, [(Kind.SOCKET_DATA, b""), (Kind.SOCKET_DATA, b"more")])

    def test_a_datagram_that_nobody_took_is_told_and_ends_nothing(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as ours, socket.socket(type=socket.SOCK_DGRAM) as theirs:
            theirs.bind(("127.0.0.1", 0))
            ours.setblocking(False)
            ours.connect(theirs.getsockname())
            number = self.mailbox.socket(ours, self.tell)
            address = theirs.getsockname()
            theirs.close()
            ours.send(b"nobody is there")
            self.run_until(1)
            [(kind, error)] = self.told
            self.assertEqual((kind, error.errno), (Kind.SOCKET_ERROR, errno.ECONNREFUSED))
            with socket.socket(type=socket.SOCK_DGRAM) as again:
                again.bind(address)
                for data in (b"", b"back"):
                    again.sendto(data, ours.getsockname())
                self.run_until(3)
            self.assertTrue(self.mailbox.unregister(number))
        self.assertEqual(self.told[1:], [(Kind.SOCKET_DATA, b""), (Kind.SOCKET_DATA, b"back")])

    def test_what_comes_while_another_is_being_refused_is_told(self) -> None:
        number = self.mailbox.register(self.tell)
        room = self.mailbox.capacity
        posted: list[bool] = []

        def overloaded(*words: object, **more: object) -> Exception:
            # As another thread might, while this one is at its words.
            self.mailbox.capacity = room
            posted.append(self.mailbox.post(number, Kind.READABLE))
            return thalweg.Overloaded(*words, **more)

        self.mailbox.capacity = 0
        with mock.patch.dict(thalweg.errors.BY_CODE, OVERLOADED=overloaded):
            self.assertRaises(thalweg.Overloaded, self.mailbox.post, number, Kind.READABLE)
        self.assertEqual(posted, [True])
        self.run_until(1)
        self.assertEqual(self.told, [(Kind.READABLE, None)])

    def test_what_would_not_wait_is_not_refused(self) -> None:
        number = self.mailbox.register(self.tell)
        self.assertTrue(self.mailbox.post(number, Kind.READABLE))
        self.mailbox.capacity = 0
        self.assertTrue(self.mailbox.post(number, Kind.READABLE))
        self.assertFalse(self.mailbox.post(number + 1_000_000, Kind.READABLE))
        self.assertRaises(thalweg.Overloaded, self.mailbox.post, number, Kind.WRITABLE)
        self.mailbox.capacity = 100
        # Nor is what was refused taken for something that waits.
        self.assertTrue(self.mailbox.post(number, Kind.WRITABLE))
        self.run_until(2)
        self.assertEqual(self.told, [(Kind.READABLE, None), (Kind.WRITABLE, None)])

    def test_a_timer_of_no_number_of_seconds_is_refused_by_name(self) -> None:
        for delay, named in ((float("nan"), "NaN"), (10**400, str(10**400))):
            with self.assertRaisesRegex(ValueError, f"^delay is {named}: give seconds$"):
                self.mailbox.timer(delay, self.tell)
        self.assertEqual(len(self.mailbox), 0)

    def test_a_timer_that_is_refused_leaves_no_number(self) -> None:
        with self.assertRaises(TypeError):
            self.mailbox.timer("soon", self.tell)
        with mock.patch.object(thalweg.loop.EventLoop, "call_later", side_effect=RuntimeError, create=True):
            self.assertRaises(RuntimeError, self.mailbox.timer, 0.1, self.tell)
        self.assertEqual(len(self.mailbox), 0)

    def test_a_timer_of_the_wrong_thread_is_refused_in_debug_mode_and_leaves_no_number(self) -> None:
        self.loop.set_debug(True)

        async def main() -> None:
            with self.assertRaisesRegex(RuntimeError, "Non-thread-safe"):
                await asyncio.to_thread(self.mailbox.timer, 0.1, self.tell)
            self.assertEqual(len(self.mailbox), 0)

        self.loop.run_until_complete(main())

    def test_a_timer_that_ends_the_program_leaves_no_number(self) -> None:
        def end(kind: int, payload: object) -> None:
            raise SystemExit

        self.mailbox.timer(0.001, end)
        with self.assertRaises(SystemExit):
            self.run_for(60)
        self.assertEqual(len(self.mailbox), 0)

    def test_an_answer_whose_hearer_ends_the_program_leaves_no_number(self) -> None:
        def end(kind: int, payload: object) -> None:
            raise SystemExit

        for say in (_mailbox._Answer.set_result, _mailbox._Answer.set_exception):
            answer = _mailbox._Answer(self.mailbox, self.mailbox.register(end))
            self.assertRaises(SystemExit, say, answer, None)
        self.assertEqual(len(self.mailbox), 0)

    def test_a_program_that_is_not_there_is_named(self) -> None:
        self.assertRaisesRegex(FileNotFoundError, "nowhere", self.mailbox.process, self.tell, "/nowhere/at/all")
        self.assertEqual(len(self.mailbox), 0)


def tearDownModule() -> None:
    # What is left open is closed now, and not while others count what is.
    gc.collect()


if __name__ == "__main__":
    unittest.main()
