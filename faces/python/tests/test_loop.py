"""The event loop, where CPython's own tests of asyncio do not look: its promises beyond asyncio's contract."""

import asyncio
import contextvars
import functools
import gc
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
import unittest
import warnings
import weakref
from typing import Any
from unittest import mock

import thalweg
from support import status_of_child
from thalweg import _native
from thalweg.loop import EventLoop, Kind, _processes


class Scheduling(unittest.TestCase):
    def setUp(self) -> None:
        self.loop = thalweg.new_event_loop()
        self.addCleanup(self.loop.close)

    def run_for(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def test_a_timer_is_never_early_on_the_loops_own_clock(self) -> None:
        early = []
        for step in range(300):
            when = self.loop.time() + step * 61e-6
            self.loop.call_at(when, lambda when=when: early.append(when) if self.loop.time() < when else None)
        self.run_for(0.03)
        self.assertEqual(early, [])

    def test_timers_of_one_instant_come_in_the_order_they_were_made(self) -> None:
        when, seen = self.loop.time() + 0.005, []
        for number in range(50):
            self.loop.call_at(when, seen.append, number)
        self.run_for(0.01)
        self.assertEqual(seen, list(range(50)))

    def test_cancelled_timers_are_swept_and_the_others_stay(self) -> None:
        seen: list[int] = []
        timers = [self.loop.call_later(0.001, seen.append, number) for number in range(1000)]
        for number, timer in enumerate(timers):
            if number % 3:
                timer.cancel()
        self.run_for(0.01)
        self.assertEqual(sorted(seen), list(range(0, 1000, 3)))

    def test_timers_come_in_the_order_of_their_times_however_they_were_made(self) -> None:
        chance = random.Random(7)
        now, seen, wanted = self.loop.time(), [], []
        for number in range(3000):
            when = now + chance.choice([0.0, 0.001, chance.random() / 50, -chance.random()])
            timer = self.loop.call_at(when, seen.append, (when, number))
            if chance.random() < 0.3:
                timer.cancel()
            else:
                wanted.append((when, number))
        self.run_for(0.03)
        self.assertEqual(seen, sorted(wanted))

    def test_a_timer_comes_in_time_when_turns_grow_slow_all_at_once(self) -> None:
        self.loop.set_debug(False)

        def slow_turns(quick: int) -> int:
            """How many slow turns a timer of three of them takes, after so many quick ones."""
            slow, due = 0, []

            def turn(left: int) -> None:
                nonlocal slow
                if due:
                    self.loop.stop()
                    return
                if left == 0:
                    self.loop.call_later(0.03, due.append, 0)
                if left <= 0:
                    time.sleep(0.01)
                    slow += 1
                self.loop.call_soon(turn, left - 1)

            self.loop.call_soon(turn, quick)
            self.loop.run_forever()
            return slow

        counts = [slow_turns(quick) for quick in range(1000, 1017)]
        self.assertLess(max(counts), 7, counts)

    def test_handles_pass_for_those_of_asyncio(self) -> None:
        before = self.loop.time()
        soon, later = self.loop.call_soon(print), self.loop.call_later(1, print)
        after = self.loop.time()
        self.assertIsInstance(soon, asyncio.Handle)
        self.assertNotIsInstance(soon, asyncio.TimerHandle)
        self.assertIsInstance(later, asyncio.TimerHandle)
        self.assertTrue(before + 1 <= later.when() <= after + 1)
        self.assertIn("print", repr(soon))
        # What asyncio asks a handle for since 3.13, to show it.
        self.assertEqual(soon._loop.get_debug(), self.loop.get_debug())
        soon.cancel()
        self.assertTrue(soon.cancelled())
        self.assertIn("cancelled", repr(soon))
        later.cancel()

    def test_a_callback_is_let_go_of_when_it_was_called_or_cancelled(self) -> None:
        class Callback:
            def __call__(self) -> None:
                pass

        self.loop.set_debug(False)
        called, cancelled = Callback(), Callback()
        references = [weakref.ref(called), weakref.ref(cancelled)]
        self.loop.call_soon(called)
        handle = self.loop.call_later(60, cancelled)
        del called, cancelled
        handle.cancel()
        self.run_for(0)
        self.assertEqual([reference() for reference in references], [None, None])

    def test_a_handle_that_somebody_knows_shows_what_it_called_as_asyncios_do(self) -> None:
        def shown(loop: asyncio.AbstractEventLoop, debug: bool) -> list[tuple[str, ...]]:
            loop.set_debug(debug)
            handles = [
                loop.call_soon(int, "1"),
                loop.call_soon_threadsafe(int, "2"),
                loop.call_later(0, int, "3"),
                loop.call_at(loop.time(), int),
            ]
            loop.run_until_complete(asyncio.sleep(0.001))
            equal = handles[2] == handles[3]
            words = [(repr(each).split(" created at")[0], repr(each._callback), repr(each._args)) for each in handles]
            handles[0].cancel()
            return [*words, (repr(equal), repr(handles[0]._callback), repr(handles[0]._args))]

        def without_times(words: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
            # From Python 3.14 on asyncio has a class of its own for what other threads schedule.
            shown = (re.sub("when=[0-9.]+", "when", shows).replace("_ThreadSafeHandle", "Handle") for shows, *_ in words)
            return [(shows, *more) for shows, (_, *more) in zip(shown, words, strict=True)]

        theirs = asyncio.SelectorEventLoop()
        self.addCleanup(theirs.close)
        for debug in False, True:
            with self.subTest(debug=debug):
                self.assertEqual(without_times(shown(self.loop, debug)), without_times(shown(theirs, debug)))

    def test_a_known_handle_and_what_it_called_are_collected(self) -> None:
        class Callback:
            handle: asyncio.Handle

            def __call__(self) -> None:
                pass

        self.loop.set_debug(False)
        references = []
        for schedule in self.loop.call_soon, functools.partial(self.loop.call_later, 0):
            callback = Callback()
            callback.handle = schedule(callback)
            references.append(weakref.ref(callback))
        del callback, schedule
        self.run_for(0.001)
        gc.collect()
        self.assertEqual([reference() for reference in references], [None, None])

    def test_callbacks_run_in_the_context_they_were_scheduled_in(self) -> None:
        word = contextvars.ContextVar("word", default="none")
        seen = []
        context = contextvars.copy_context()
        context.run(word.set, "given")
        self.loop.call_soon(lambda: seen.append(word.get()), context=context)
        word.set("here")
        self.loop.call_soon(lambda: seen.append(word.get()))
        word.set("later")
        self.run_for(0)
        self.assertEqual(seen, ["given", "here"])

    def test_each_callback_has_a_context_of_its_own_even_if_there_is_nothing_in_it(self) -> None:
        word = contextvars.ContextVar("word", default="none")
        seen = []

        def say(mine: str) -> None:
            seen.append(word.get())
            word.set(mine)

        def schedule() -> list[asyncio.Handle]:
            return [self.loop.call_soon(say, "a"), self.loop.call_soon(say, "b"), self.loop.call_later(0, say, "c")]

        handles = contextvars.Context().run(schedule)
        self.run_for(0.001)
        self.assertEqual(seen, ["none"] * 3)
        self.assertEqual([handle.get_context()[word] for handle in handles], ["a", "b", "c"])
        self.assertIs(handles[0].get_context(), handles[0].get_context())

    def test_a_handle_that_somebody_knows_is_never_anothers(self) -> None:
        seen: list[str] = []
        known = self.loop.call_soon(seen.append, "known")
        watched = weakref.ref(self.loop.call_soon(seen.append, "watched"))
        self.loop.call_soon(seen.append, "cancelled").cancel()
        self.run_for(0)
        self.assertIsNone(watched())
        for _ in range(3):
            others = [self.loop.call_soon(seen.append, "another") for _ in range(10)]
            self.assertFalse(any(other is known or other.cancelled() for other in others))
            known.cancel()
            del others
            self.run_for(0)
        self.assertEqual(seen, ["known", "watched"] + ["another"] * 30)

    def test_nothing_is_left_of_a_callback_in_the_next_ones_context(self) -> None:
        word = contextvars.ContextVar("word", default="none")
        seen: list[str] = []
        tokens: list[contextvars.Token[str]] = []

        def say(mine: str, resets: bool) -> None:
            seen.append(word.get())
            token = word.set(mine)
            if resets:
                word.reset(token)
                tokens.append(token)

        def schedule() -> None:
            self.loop.call_soon(say, "a", False)
            self.loop.call_soon(say, "b", True)
            self.loop.call_soon(say, "c", False)

        for _ in range(3):
            contextvars.Context().run(schedule)
            self.run_for(0)
        self.assertEqual(seen, ["none"] * 9)

    def test_what_a_callback_held_ends_with_it(self) -> None:
        class Held:
            """Something that can be looked for."""

        held = [Held() for _ in range(4)]
        references = [weakref.ref(one) for one in held]

        def fail(_: Held) -> None:
            raise ValueError

        self.loop.set_exception_handler(lambda *_: None)
        self.loop.call_soon(lambda _: None, held[0])
        self.loop.call_soon(fail, held[1])
        self.loop.call_soon(lambda _: None, held[2]).cancel()
        context = contextvars.Context()
        context.run(contextvars.ContextVar[Held]("held").set, held[3])
        self.loop.call_soon(lambda: None, context=context)
        del held, context
        self.run_for(0)
        self.assertEqual([reference() for reference in references], [None] * 4)

    def test_a_reader_keeps_its_context_from_call_to_call(self) -> None:
        word = contextvars.ContextVar("word", default=0)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.send(b"x")

            def count() -> None:
                word.set(word.get() + 1)
                if word.get() == 3:
                    self.loop.stop()

            contextvars.Context().run(self.loop.add_reader, ours, count)
            self.loop.run_forever()
            self.loop.remove_reader(ours)

    def test_an_exception_goes_to_the_handler_and_the_loop_goes_on(self) -> None:
        told = []
        self.loop.set_exception_handler(lambda _, context: told.append(context))
        self.loop.call_soon(lambda: 1 / 0)
        self.run_for(0)
        self.assertIsInstance(told[0]["exception"], ZeroDivisionError)
        self.assertIn("test_loop.py", told[0]["message"])

    def test_what_is_closed_says_so(self) -> None:
        self.loop.close()
        for call in (self.loop.call_soon, self.loop.call_soon_threadsafe):
            self.assertRaisesRegex(RuntimeError, "closed", call, print)
        self.assertRaisesRegex(RuntimeError, "closed", self.loop.call_later, 1, print)
        self.assertRaisesRegex(RuntimeError, "closed", self.loop.run_forever)

    def test_a_running_loop_is_not_closed(self) -> None:
        async def main() -> None:
            self.assertRaisesRegex(RuntimeError, "running", self.loop.close)

        self.loop.run_until_complete(main())

    def test_nothing_scheduled_keeps_a_closed_loop_alive(self) -> None:
        loop = thalweg.new_event_loop()
        loop.call_soon(loop.stop)
        loop.call_later(60, loop.stop)
        loop.close()
        reference = weakref.ref(loop)
        del loop
        gc.collect()
        self.assertIsNone(reference())


class Threads(unittest.TestCase):
    def test_a_sleeping_loop_hears_every_call_of_every_thread_in_its_order(self) -> None:
        loop = thalweg.new_event_loop()
        seen: list[tuple[int, int]] = []

        def heard(thread: int, number: int) -> None:
            seen.append((thread, number))
            if len(seen) == 3000:
                loop.stop()

        def call(thread: int) -> None:
            for number in range(1000):
                loop.call_soon_threadsafe(heard, thread, number)
                if number % 100 == 0:
                    time.sleep(0.001)

        threads = [threading.Thread(target=call, args=(thread,)) for thread in range(3)]
        for thread in threads:
            thread.start()
        loop.run_forever()
        for thread in threads:
            thread.join()
        loop.close()
        for thread in range(3):
            self.assertEqual([n for t, n in seen if t == thread], list(range(1000)))

    def test_a_loop_that_does_not_keep_up_says_so(self) -> None:
        loop = thalweg.new_event_loop()
        loop.set_debug(False)
        for _ in range(1 << 20):
            loop.call_soon(int)
        number = loop.mailbox.register(lambda *_: None)
        self.assertRaises(thalweg.Overloaded, loop.mailbox.post, number, Kind.CALL_RESULT)
        loop.call_soon(loop.stop)
        loop.run_forever()
        self.assertTrue(loop.mailbox.post(number, Kind.CALL_RESULT))
        loop.close()

    def test_a_loop_that_does_not_keep_up_refuses_no_call_and_no_result_of_another_thread(self) -> None:
        loop = thalweg.new_event_loop()
        self.addCleanup(loop.close)
        loop.mailbox.capacity = 0

        async def inner() -> str:
            return await loop.run_in_executor(None, str, "result")

        async def main() -> list[object]:
            there = asyncio.run_coroutine_threadsafe(inner(), loop)
            return await asyncio.gather(
                loop.run_in_executor(None, str, "executor's"),
                asyncio.to_thread(str, "thread's"),
                loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM),
                asyncio.wrap_future(there),
            )

        came = loop.run_until_complete(asyncio.wait_for(main(), 60))
        self.assertEqual((came[0], came[1], came[3]), ("executor's", "thread's", "result"))
        self.assertEqual(came[2][0][4], ("127.0.0.1", 80))
        self.assertEqual(loop.mailbox.refused, 0)


class Descriptors(unittest.TestCase):
    def setUp(self) -> None:
        self.loop = thalweg.new_event_loop()
        self.addCleanup(self.loop.close)
        self.ours, self.theirs = socket.socketpair()
        self.addCleanup(self.ours.close)
        self.addCleanup(self.theirs.close)

    def test_a_descriptor_closed_under_its_reader_is_watched_anew_under_its_number(self) -> None:
        seen: list[bytes] = []
        self.loop.add_reader(self.ours, seen.append, b"")
        number = self.ours.fileno()
        self.ours.close()
        other, peer = socket.socketpair()
        with peer, other:
            if other.fileno() != number:
                os.dup2(other.fileno(), number)
                self.addCleanup(os.close, number)
            self.loop.add_writer(number, self.loop.stop)
            self.loop.run_forever()
            self.loop.remove_writer(number)
            self.loop.remove_reader(number)

    def test_a_number_that_is_used_again_is_watched_for_what_it_is_now(self) -> None:
        number = self.ours.fileno()
        self.loop.add_reader(number, lambda: None)
        self.ours.close()
        other, peer = socket.socketpair()
        with peer, other:
            if other.fileno() != number:
                os.dup2(other.fileno(), number)
                self.addCleanup(os.close, number)
            self.loop.add_reader(number, self.loop.stop)
            peer.send(b"x")
            self.loop.run_forever()
            self.loop.remove_reader(number)

    def test_what_was_closed_is_taken_off_by_its_object_alone(self) -> None:
        self.loop.add_reader(self.ours, print)
        self.loop.add_writer(self.ours, print)
        self.ours.close()
        self.assertTrue(self.loop.remove_reader(self.ours))
        self.assertTrue(self.loop.remove_writer(self.ours))
        self.assertRaises(ValueError, self.loop.remove_reader, self.ours)
        self.loop.add_reader(self.theirs, print)
        self.assertRaises(ValueError, self.loop.remove_reader, self.ours)
        self.assertTrue(self.loop.remove_reader(self.theirs))

    def test_a_reader_removed_in_the_same_turn_is_not_called(self) -> None:
        seen = []
        first, second = socket.socketpair()
        with first, second:
            self.theirs.send(b"x")
            second.send(b"x")

            def ready(other: socket.socket) -> None:
                seen.append(other)
                self.loop.remove_reader(other)
                self.loop.stop()

            self.loop.add_reader(self.ours, ready, first)
            self.loop.add_reader(first, ready, self.ours)
            self.loop.run_forever()
            self.assertEqual(len(seen), 1)

    def test_a_reader_hears_of_nothing_that_was_found_before_it_was_added(self) -> None:
        called: list[str] = []
        first, second = socket.socketpair()
        with first, second:
            self.theirs.send(b"x")
            second.send(b"x")

            def ready(mine: socket.socket, other: socket.socket) -> None:
                other.recv(1)
                self.loop.remove_reader(other)
                # A read of its own would wait now.
                self.loop.add_reader(other, called.append, "called")
                self.loop.remove_reader(mine)
                self.loop.stop()

            for mine, other in ((self.ours, first), (first, self.ours)):
                self.loop.add_reader(mine, ready, mine, other)
                # The descriptor is watched all the while.
                self.loop.add_writer(mine, int)
            self.loop.run_forever()
            self.assertEqual(called, [])
            second.send(b"x")
            self.theirs.send(b"x")
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
            self.assertEqual(called, ["called"])

    def test_closing_the_loop_closes_no_descriptor_of_others(self) -> None:
        loop = thalweg.new_event_loop()
        loop.add_reader(self.ours, print)
        loop.close()
        self.theirs.send(b"still there")
        self.assertEqual(self.ours.recv(20), b"still there")

    def test_what_is_no_descriptor_is_refused(self) -> None:
        self.assertRaises(ValueError, self.loop.add_reader, -1, print)
        self.assertRaises(ValueError, self.loop.add_reader, object(), print)
        with open(__file__) as file:
            self.assertRaises(PermissionError, self.loop.add_reader, file, print)


class Forks(unittest.TestCase):
    def test_a_child_makes_a_loop_of_its_own_and_leaves_the_parents_alone(self) -> None:
        async def main() -> bytes:
            loop = asyncio.get_running_loop()
            ours, theirs = socket.socketpair()
            with ours, theirs:
                ours.setblocking(False)
                reads = asyncio.ensure_future(loop.sock_recv(ours, 10))
                await asyncio.sleep(0)

                def run_another() -> None:
                    asyncio._set_running_loop(None)
                    loop._let_go()
                    self.assertEqual(thalweg.run(asyncio.sleep(0, result=7)), 7)

                self.assertEqual(status_of_child(run_another), 0)
                theirs.send(b"heard")
                return await asyncio.wait_for(reads, 60)

        self.assertEqual(thalweg.run(main()), b"heard")


class Programs(unittest.TestCase):
    def test_a_program_is_started_without_a_fork_and_its_end_is_heard(self) -> None:
        async def main() -> tuple[int, bytes, int | None]:
            script = "cat; echo $WORD; pwd; exit 5"
            process = await asyncio.create_subprocess_shell(
                script, stdin=-1, stdout=-1, env={"WORD": "given", "PATH": os.defpath}, cwd="/"
            )
            output, _ = await process.communicate(b"said\n")
            return process.pid, output, process.returncode

        started: list[int] = []

        def spawn(popen: Any, *words: Any) -> None:
            _native._spawn(popen, *words)
            started.append(popen.pid)

        # All that `subprocess` itself starts goes through here, by whatever call.
        theirs = mock.patch.object(subprocess.Popen, "_execute_child", side_effect=AssertionError("by a fork"))
        with theirs, mock.patch.object(_processes, "_spawn", spawn):
            process, output, status = thalweg.run(main())
        self.assertEqual((output, status), (b"said\ngiven\n/\n", 5))
        self.assertEqual(started, [process])

    def test_the_first_three_descriptors_come_to_each_others_places_without_a_fork(self) -> None:
        code = """
import asyncio, subprocess, thalweg.loop
thalweg.new_event_loop().close()
del subprocess.Popen._execute_child
async def main():
    process = await asyncio.create_subprocess_shell("echo out; echo error >&2", stdout=2, stderr=1)
    assert await process.wait() == 0
thalweg.run(main())
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
        self.assertEqual((done.stdout, done.stderr, done.returncode), (b"error\n", b"out\n", 0))

    def test_what_only_a_fork_gives_is_there_too(self) -> None:
        async def main() -> bytes:
            reads, writes = os.pipe()
            os.write(writes, b"passed on")
            os.close(writes)
            process = await asyncio.create_subprocess_exec(
                "cat", f"/proc/self/fd/{reads}", stdout=-1, pass_fds=[reads]
            )
            output, _ = await process.communicate()
            os.close(reads)
            return output

        self.assertEqual(thalweg.run(main()), b"passed on")

    def test_what_is_said_of_a_switch_is_asked_whether_it_is_true(self) -> None:
        async def main() -> int:
            process = await asyncio.create_subprocess_exec(
                "sleep", "60", close_fds=1, restore_signals=1, start_new_session=1
            )
            session = os.getsid(process.pid)
            process.kill()
            await process.wait()
            return session - process.pid

        self.assertEqual(thalweg.run(main()), 0)

    def test_what_cannot_be_started_is_named(self) -> None:
        async def start(*words: str, **more: str) -> None:
            await asyncio.create_subprocess_exec(*words, **more)

        for words, more, name, why in (
            (("/nowhere/at/all",), {}, "/nowhere/at/all", FileNotFoundError),
            (("no-such-program-anywhere",), {}, "no-such-program-anywhere", FileNotFoundError),
            (("true",), {"cwd": "/nowhere"}, "/nowhere", FileNotFoundError),
            (("/etc/passwd/x",), {}, "/etc/passwd/x", NotADirectoryError),
            (("/etc/passwd",), {}, "/etc/passwd", PermissionError),
        ):
            with self.assertRaises(why) as raised:
                thalweg.run(start(*words, **more))
            self.assertEqual(raised.exception.filename, name)

    def test_what_has_no_name_is_told_in_words(self) -> None:
        async def start(**more: int) -> None:
            await asyncio.create_subprocess_exec("true", **more)

        group = (1 << 31) - 1
        for more, words, why in (
            ({"process_group": group}, f"process group {group}", PermissionError),
            ({"stdin": 1 << 20}, "stdin, stdout or stderr", OSError),
        ):
            with self.subTest(words), self.assertRaisesRegex(why, f": {words}$") as raised:
                thalweg.run(start(**more))
            self.assertIsNone(raised.exception.filename)

    def test_a_signal_that_ends_a_start_leaves_no_descriptor_and_no_dead_program(self) -> None:
        def interrupt(_frame: object, event: str, called: Any) -> None:
            # As by Ctrl-C during the system call: what is raised takes its answer from the caller.
            if event == "c_return" and getattr(called, "__name__", "") == "_spawn":
                raise KeyboardInterrupt

        started: list[int] = []

        def spawn(popen: Any, *words: Any) -> None:
            try:
                _native._spawn(popen, *words)
            finally:
                started.append(popen.pid)

        def start() -> None:
            sys.setprofile(interrupt)
            try:
                _processes.Process(["true"])
            finally:
                sys.setprofile(None)

        gc.collect()
        before = os.listdir("/proc/self/fd")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            with mock.patch.object(_processes, "_spawn", spawn):
                self.assertRaises(KeyboardInterrupt, start)
            gc.collect()
        self.assertEqual(len(os.listdir("/proc/self/fd")), len(before))
        # What `subprocess` knows of is collected sooner or later; the next start looks for it.
        ended = time.monotonic() + 60
        while subprocess._active and time.monotonic() < ended:  # type: ignore[attr-defined]
            subprocess._cleanup()  # type: ignore[attr-defined]
        (program,) = started
        self.assertRaises(ChildProcessError, os.waitpid, program, os.WNOHANG)

    def test_an_end_is_told_once_and_as_it_was_wherever_an_interrupt_comes(self) -> None:
        class Ends(asyncio.SubprocessProtocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def process_exited(self) -> None:
                told.append(self.transport.get_returncode())

        def interrupt(frame: Any, _event: str, _of: object) -> None:
            nonlocal left
            if frame.f_code.co_filename == _processes.__file__:
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt

        async def over() -> None:
            async with asyncio.timeout(60):
                while not told or loop._watched_descriptors() != watched:
                    await asyncio.sleep(0)

        steps, is_interrupted = 0, True
        while is_interrupted:
            steps += 1
            left, told, is_interrupted = steps, [], False
            loop = thalweg.new_event_loop()
            self.addCleanup(loop.close)
            loop.run_until_complete(asyncio.sleep(0))
            watched = loop._watched_descriptors()
            starts = loop.subprocess_exec(Ends, "/bin/sh", "-c", "read line; exit 7", stdout=None, stderr=None)
            program, _ = loop.run_until_complete(starts)
            waits = loop.create_task(over())
            sys.setprofile(interrupt)
            try:
                program.get_pipe_transport(0).close()
                loop.run_until_complete(waits)
            except KeyboardInterrupt:
                is_interrupted = True
                loop.run_until_complete(waits)
            finally:
                sys.setprofile(None)
            program.close()
            self.assertEqual((told, steps), ([7], steps))
        self.assertGreater(steps, 10)

    def test_no_descriptor_is_left_over(self) -> None:
        async def main() -> None:
            for _ in range(5):
                process = await asyncio.create_subprocess_exec("true")
                await process.wait()

        thalweg.run(main())
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        thalweg.run(main())
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)


class Ways(unittest.TestCase):
    """The ways to a loop."""

    async def which(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def test_run(self) -> None:
        self.assertIsInstance(thalweg.run(self.which()), EventLoop)

    def test_debug_mode_is_whatever_is_true(self) -> None:
        async def debug() -> bool:
            return asyncio.get_running_loop().get_debug()

        for asked in (1, "yes", 0, "", None, [0]):
            with self.subTest(asked=asked), asyncio.Runner(loop_factory=thalweg.new_event_loop) as runner:
                runner.get_loop().set_debug(asked)
                self.assertIs(runner.run(debug()), bool(asked))
        self.assertIs(thalweg.run(debug(), debug="yes"), True)
        self.assertIs(thalweg.run(debug(), debug=0), False)

    def test_run_where_a_loop_runs_is_refused_before_another_is_made(self) -> None:
        async def main() -> None:
            inner = self.which()
            with mock.patch.object(thalweg.loop, "new_event_loop") as made:
                with self.assertRaisesRegex(RuntimeError, r"thalweg\.run\(\) cannot be called"):
                    thalweg.run(inner)
            made.assert_not_called()
            # It belongs to its maker, as with `asyncio.run`.
            self.assertIs(await inner, asyncio.get_running_loop())

        for run in (thalweg.run, asyncio.run):
            run(main())

    def test_a_runner(self) -> None:
        with asyncio.Runner(loop_factory=thalweg.new_event_loop) as runner:
            self.assertIsInstance(runner.run(self.which()), EventLoop)

    def test_nobody_who_does_not_ask_for_a_policy_needs_one(self) -> None:
        # Python 3.14 warns of them, and a later one has none.
        program = (
            "import asyncio\n"
            "for name in 'DefaultEventLoopPolicy', '__getattr__':\n"
            "    vars(asyncio).pop(name, None)\n"
            "import thalweg\n"
            "from thalweg import *\n"
            "from thalweg.loop import *\n"
            "thalweg.new_event_loop().close()"
        )
        ended = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_a_policy(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.addCleanup(asyncio.set_event_loop_policy, None)
            asyncio.set_event_loop_policy(thalweg.EventLoopPolicy())
            self.assertIsInstance(asyncio.run(self.which()), EventLoop)


if __name__ == "__main__":
    unittest.main()
