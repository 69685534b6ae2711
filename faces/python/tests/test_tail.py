"""Following a log in an event loop."""

import asyncio
import contextlib
import copy
import errno
import gc
import os
import pickle
import sys
import tempfile
import threading
import unittest
from unittest import mock

import thalweg
from support import StoreCase, python

WRITER = """
import sys, thalweg
with thalweg.open(sys.argv[1], durability="os") as store:
    log = store.log("log")
    print("open", flush=True)
    for line in sys.stdin:
        log.append(line.encode())
"""


def descriptors() -> int:
    """How many are open, but for what is kept by a cycle that nobody has."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def keeps_no_descriptor(case: unittest.TestCase, follow) -> None:
    """While nothing is committed that would ring what waits."""
    entries = follow()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(anext(entries), 0.001)
    before = descriptors()
    for _ in range(50):
        with case.assertRaises(TimeoutError):
            await asyncio.wait_for(anext(entries), 0.001)
    case.assertLessEqual(descriptors(), before)
    await entries.aclose()


async def leaves_no_descriptor(case: unittest.TestCase, follow, write) -> None:
    """When tails are dropped that waited, and heard of what they waited for: nothing was taken down since."""
    # What was closed just now goes in the next turn.
    await asyncio.sleep(0.01)
    before = descriptors()
    tails = [follow() for _ in range(50)]
    waits = [asyncio.create_task(anext(tail)) for tail in tails]
    await asyncio.sleep(0.001)
    await write()
    await asyncio.wait_for(asyncio.gather(*waits), 60)
    case.assertGreater(descriptors(), before)
    del tails, waits
    gc.collect()
    await asyncio.sleep(0.01)
    case.assertLessEqual(descriptors(), before)


class Tail(StoreCase, unittest.IsolatedAsyncioTestCase):
    async def test_it_is_not_copied_and_goes_on(self):
        tail, other = self.log.tail(), self.log.tail()
        entries = [asyncio.create_task(anext(each)) for each in (tail, other)]
        await asyncio.sleep(0)
        for doubles in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.subTest(doubles.__name__), self.assertRaisesRegex(TypeError, "cannot copy or pickle 'Tail'"):
                doubles(tail)
        gc.collect()
        await asyncio.sleep(0)
        self.log.append(b"entry")
        async with asyncio.timeout(60):
            self.assertEqual([bytes(entry) for entry in await asyncio.gather(*entries)], [b"entry"] * 2)

    async def test_entries_of_the_loop_and_of_threads_arrive(self):
        seen = []

        async def follow():
            async for entry in self.log.tail():
                seen.append(bytes(entry))
                if entry.time == 99:
                    return

        self.log.append(b"before", 1)
        follower = asyncio.create_task(follow())
        await asyncio.sleep(0)
        for number in range(5):
            self.log.append(b"loop %d" % number)
            await asyncio.sleep(0.001)
        thread = threading.Thread(target=lambda: [self.log.append(b"thread %d" % n) for n in range(100)])
        thread.start()
        await asyncio.to_thread(thread.join)
        self.log.append(b"end", 99)
        await asyncio.wait_for(follower, 60)
        expected = [b"loop %d" % n for n in range(5)] + [b"thread %d" % n for n in range(100)] + [b"end"]
        self.assertEqual(seen, expected)

    async def test_no_thread_is_started(self):
        threads = threading.active_count()
        follower = asyncio.create_task(anext(self.log.tail()))
        await asyncio.sleep(0.01)
        self.assertEqual(threading.active_count(), threads)
        self.log.append(b"x")
        self.assertEqual(bytes(await asyncio.wait_for(follower, 60)), b"x")

    async def test_history_comes_first_for_those_who_ask(self):
        self.fill(1000)
        times = []
        async for entry in self.log.tail(start=9000):
            times.append(entry.time)
            if entry.time == 9990:
                self.log.append(b"new", 20_000)
            if entry.time == 20_000:
                break
        self.assertEqual(times, [*range(9000, 10_000, 10), 20_000])

    async def test_each_that_waits_has_an_error_of_its_own_when_the_bell_fails(self):
        class Broken:
            def which(self, sources: list) -> list[int]:
                raise OSError(errno.EAGAIN, "no thread")

        tails = [self.log.tail() for _ in range(3)]
        waits = [asyncio.create_task(anext(tail)) for tail in tails]
        await asyncio.sleep(0)
        hearing = tails[0]._hearing
        with mock.patch.object(hearing, "_bell", Broken()):
            hearing._ring()
        errors = await asyncio.gather(*waits, return_exceptions=True)
        self.assertEqual([(type(error), str(error)) for error in errors], [(BlockingIOError, "[Errno 11] no thread")] * 3)
        self.assertEqual(len({id(error) for error in errors}), 3)

    async def test_a_word_that_it_does_not_know_is_said_of_it(self):
        with self.assertRaisesRegex(TypeError, r"Log\.tail\(\) got an unexpected keyword argument 'bogus'"):
            self.log.tail(bogus=1)

    async def test_words_that_say_nothing_are_as_good_as_none(self):
        self.log.append(b"before", 1)
        nothing = {"start": None, "after": None, "exact": None, "offset": None, "tail": False, "checkpoint": False}
        for words in (nothing, {"start": None}, {"tail": False, "end": None}, {"tail": True}):
            entries = self.log.tail(**words)
            follower = asyncio.create_task(anext(entries))
            await asyncio.sleep(0)
            self.log.append(b"now", 2)
            self.assertEqual(bytes(await asyncio.wait_for(follower, 60)), b"now")
            await entries.aclose()
        self.assertEqual(bytes(await asyncio.wait_for(anext(self.log.tail(checkpoint=True)), 60)), b"before")

    async def test_other_tasks_have_their_turn(self):
        self.fill(2000)
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.create_task(count())
        async for entry in self.log.tail(start=0):
            if entry.time == 19_990:
                break
        counter.cancel()
        self.assertGreaterEqual(turns, 5)

    async def test_a_cancelled_one_lets_go(self):
        async def follow():
            async with contextlib.aclosing(self.log.tail()) as entries:
                async for _ in entries:
                    pass

        for _ in range(3):
            follower = asyncio.create_task(follow())
            await asyncio.sleep(0.001)
            follower.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await follower
        # A bell that is still watched would ring here, in a loop that has no use for it.
        self.log.append(b"x")
        selector = asyncio.get_running_loop()._selector
        self.assertEqual(len(selector.get_map()), 1)

    async def test_a_wait_that_is_cancelled_takes_nothing_and_the_next_goes_on(self):
        for entries in (self.log.tail(), self.log.tail(start=0)):
            for number in range(3):
                with self.assertRaises(TimeoutError):
                    await asyncio.wait_for(anext(entries), 0.001)
                self.assertEqual(len(asyncio.get_running_loop()._selector.get_map()), 1, "it lets go of the bell")
                self.log.append(b"%d" % number)
                self.log.append(b"and %d" % number)
                taken = [bytes(await asyncio.wait_for(anext(entries), 60)) for _ in range(2)]
                self.assertEqual(taken, [b"%d" % number, b"and %d" % number])
            await entries.aclose()
            with self.assertRaises(StopAsyncIteration):
                await anext(entries)
            self.store.purge("log")

    async def test_waits_that_are_cancelled_keep_no_descriptor(self):
        await keeps_no_descriptor(self, self.log.tail)
        await keeps_no_descriptor(self, lambda: aiter(self.store.new_logs()))

    async def test_tails_that_are_dropped_leave_no_descriptor(self):
        async def write():
            self.log.append(b"for all")

        await leaves_no_descriptor(self, self.log.tail, write)

    async def test_a_second_task_is_refused_and_closing_ends_the_first_one_s_wait(self):
        entries = self.log.tail()
        first = asyncio.create_task(anext(entries, None))
        await asyncio.sleep(0)
        with self.assertRaises(RuntimeError):
            await anext(entries)
        await entries.aclose()
        self.assertIsNone(await asyncio.wait_for(first, 60))

    async def test_one_that_is_dropped_lets_go(self):
        entries = self.log.tail()
        with self.assertRaises(TimeoutError):
            await asyncio.wait_for(anext(entries), 0.001)
        self.log.append(b"x")
        self.assertEqual(bytes(await anext(entries)), b"x")
        waits = asyncio.create_task(anext(entries))
        await asyncio.sleep(0.001)
        self.log.append(b"y")
        self.assertEqual(bytes(await waits), b"y")
        del entries, waits
        gc.collect()
        await asyncio.sleep(0)
        self.assertEqual(len(asyncio.get_running_loop()._selector.get_map()), 1)

    async def test_closing_the_store_ends_it(self):
        followers = [asyncio.create_task(anext(self.log.tail())) for _ in range(3)]
        await asyncio.sleep(0.001)
        self.store.close()
        for follower in followers:
            with self.assertRaises(thalweg.Closed):
                await asyncio.wait_for(follower, 60)

    async def test_many_follow_at_once(self):
        followers = [asyncio.create_task(anext(self.log.tail())) for _ in range(100)]
        await asyncio.sleep(0.001)
        self.log.append(b"for all")
        entries = await asyncio.wait_for(asyncio.gather(*followers), 60)
        self.assertEqual({bytes(entry) for entry in entries}, {b"for all"})

    async def test_a_wait_that_is_collected_while_others_are_told_takes_nobodys_news(self):
        class Collects(dict):
            def items(self):
                gc.collect()
                return super().items()

            def values(self):
                gc.collect()
                return super().values()

        gc.disable()
        self.addCleanup(gc.enable)
        # Nobody awaits it, and only itself refers to it.
        waits = [self.store.log("other").tail().asend(None)]
        waits[0].send(None)
        waits.append(waits)
        del waits
        tail = self.log.tail()
        follower = asyncio.create_task(anext(tail))
        await asyncio.sleep(0)
        hearing = tail._hearing
        hearing._waiting = Collects(hearing._waiting)
        self.log.append(b"for one")
        self.assertEqual(bytes(await asyncio.wait_for(follower, 10)), b"for one")
        self.assertEqual(hearing._waiting, {})

    async def test_a_commit_wakes_none_who_follow_other_logs(self):
        loop, other = asyncio.get_running_loop(), self.store.log("other")
        tails = [self.log.tail() for _ in range(20)]
        followers = [asyncio.create_task(anext(tail)) for tail in tails]
        last = asyncio.create_task(anext(other.tail()))
        await asyncio.sleep(0.001)
        waits, create_future = [], loop.create_future

        def create() -> asyncio.Future:
            waits.append(create_future())
            return waits[-1]

        with mock.patch.object(loop, "create_future", create):
            for _ in range(5):
                other.append(b"busy")
                self.assertEqual(bytes(await asyncio.wait_for(last, 60)), b"busy")
                last = asyncio.create_task(anext(other.tail()))
                await asyncio.sleep(0)
        # Those of the other log's followers, and one of each `wait_for` and `sleep`.
        self.assertLessEqual(len(waits), 15)
        self.assertFalse(any(follower.done() for follower in followers))
        self.log.append(b"for all")
        entries = await asyncio.wait_for(asyncio.gather(*followers), 60)
        self.assertEqual({bytes(entry) for entry in entries}, {b"for all"})
        last.cancel()

    async def test_what_is_committed_to_another_log_is_nothing_to_be_told(self):
        other, new_logs = self.store.log("other"), self.store.new_logs()
        cursor, behind = self.log.cursor(), other.cursor(tail=True)
        sources, bell = [cursor, new_logs, behind], thalweg._native.Bell()
        self.assertEqual(bell.which(sources), [])
        other.append(b"x")
        self.assertEqual(bell.which(sources), [2])
        self.assertEqual(bell.which(sources), [2], "it is kept until it is taken")
        self.assertEqual(bytes(behind.next()), b"x")
        self.assertEqual(bell.which(sources), [])
        self.log.append(b"one", 1)
        self.log.append(b"two", 2)
        self.store.log("another")
        self.assertEqual(bell.which(sources), [0, 1])
        self.assertEqual([bytes(cursor.next()), bytes(cursor.next()), cursor.next()], [b"one", b"two", None])
        self.assertEqual([new_logs.next(), new_logs.next()], ["another", None])
        self.log.append(b"three", 3)
        self.assertEqual(bell.which(sources), [0])
        cursor.seek(2)
        self.assertEqual(bytes(cursor.next()), b"two")
        self.assertEqual([cursor.next() is None, cursor.next()], [False, None])
        self.store.purge("log", destroy=True)
        self.assertEqual(bell.which([behind, cursor]), [1])
        with self.assertRaises(thalweg.Deleted):
            cursor.next()
        self.store.close()
        self.assertEqual(bell.which(sources), [0, 1, 2])
        with self.assertRaises(thalweg.Closed):
            cursor.next()

    async def test_one_that_only_waits_for_what_comes_late_lets_others_run(self):
        other = self.store.log("other")
        self.log.append(b"before", 1)
        for words, late, time in (({"end": 100}, 99, 1000), ({"exact": 50}, 50, 1_000_000)):
            async with contextlib.aclosing(self.log.tail(**words)) as entries:
                follower = asyncio.create_task(anext(entries))
                for log in (self.log, other, self.log, other):
                    await asyncio.sleep(0.001)
                    log.append(b"x", time)
                await asyncio.sleep(0.001)
                self.assertFalse(follower.done())
                self.log.append(b"late", late)
                self.assertEqual(bytes(await asyncio.wait_for(follower, 60)), b"late")

    async def test_one_that_only_waits_for_what_comes_late_hears_that_the_log_is_gone(self):
        self.log.append(b"x", 1000)
        follower = asyncio.create_task(anext(self.log.tail(start=0, end=100)))
        await asyncio.sleep(0.001)
        self.store.purge("log", destroy=True)
        with self.assertRaises(thalweg.Deleted):
            await asyncio.wait_for(follower, 60)

    async def test_it_goes_on_behind_damage_on_demand(self):
        entries = self.fill(1500)
        self.store.close()
        segment = min(self.path.glob("segment-*"))
        content = bytearray(segment.read_bytes())
        content[content.index(b"entry 20;") + 3] ^= 1
        segment.write_bytes(content)
        self.store = self.open()
        tail, seen = self.store.log("log").tail(start=0), []
        with self.assertRaises(thalweg.Damaged):
            async for entry in tail:
                seen.append((entry.time, bytes(entry)))
        self.assertEqual(seen, entries[: len(seen)])
        self.assertEqual([entry async for entry in tail], [], "it has ended")
        tail.resume()
        rest = []
        async for entry in tail:
            rest.append((entry.time, bytes(entry)))
            if rest[-1] == entries[-1]:
                break
        self.assertEqual(rest, entries[-len(rest) :])
        self.assertGreaterEqual(len(rest), 1400)
        await tail.aclose()
        tail.resume()
        self.assertEqual([entry async for entry in tail], [], "it was closed")

    async def test_it_says_how_much_was_purged_in_front_of_it(self):
        self.store.close()
        self.store = self.open(retain_bytes=100_000)
        self.log = self.store.log("log")
        tail, cursor = self.log.tail(start=0), self.log.cursor(start=0)
        self.fill(1)
        await anext(tail)
        cursor.next()
        self.assertEqual(tail.skipped_bytes, 0)
        # Files go once two checkpoints stand behind them.
        for first in range(1, 20_000, 5000):
            self.fill(5000, first=first)
            self.store.maintain()
        self.assertEqual((await anext(tail)).offset, cursor.next().offset)
        self.assertGreater(tail.skipped_bytes, 0)
        self.assertEqual(tail.skipped_bytes, cursor.skipped_bytes)
        await tail.aclose()

    async def test_a_query_has_one_beginning_here_too(self):
        with self.assertRaises(ValueError):
            await anext(self.log.tail(start=1, offset=2))


class NewLogs(StoreCase, unittest.IsolatedAsyncioTestCase):
    async def take(self, new_logs, count):
        names = []
        async for name in new_logs:
            names.append(name)
            if len(names) == count:
                return names

    async def test_every_new_log_is_heard_of_once(self):
        fresh = asyncio.create_task(self.take(self.store.new_logs(), 40))
        every = asyncio.create_task(self.take(self.store.new_logs(existing=True), 41))
        await asyncio.sleep(0)
        for number in range(20):
            self.store.log(f"log {number}")
            self.log.append(b"no log")
        thread = threading.Thread(target=lambda: [self.store.log(f"log {n}") for n in range(20, 40)])
        thread.start()
        await asyncio.to_thread(thread.join)
        made = [f"log {number}" for number in range(40)]
        self.assertEqual(await asyncio.wait_for(fresh, 60), made)
        self.assertEqual(await asyncio.wait_for(every, 60), ["log", *made])

    async def test_two_tasks_share_what_comes(self):
        new_logs = self.store.new_logs()
        tasks = [asyncio.create_task(anext(aiter(new_logs))) for _ in range(2)]
        await asyncio.sleep(0)
        self.store.log("one")
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.store.log("two")
        self.assertEqual(sorted(await asyncio.wait_for(asyncio.gather(*tasks), 60)), ["one", "two"])

    async def test_closing_the_store_ends_it(self):
        new_logs = self.store.new_logs()
        follower = asyncio.create_task(anext(aiter(new_logs)))
        await asyncio.sleep(0)
        self.store.close()
        with self.assertRaises(thalweg.Closed):
            await asyncio.wait_for(follower, 60)
        for refused in (new_logs.next, lambda: new_logs.wait(0), self.store.new_logs):
            with self.assertRaises(thalweg.Closed):
                refused()

    def test_they_can_be_polled_and_waited_for(self):
        new_logs = self.store.new_logs()
        self.assertIsNone(new_logs.next())
        self.assertFalse(new_logs.wait(0))
        thread = threading.Thread(target=lambda: self.store.log("from a thread"))
        thread.start()
        self.assertTrue(new_logs.wait(60))
        thread.join()
        self.assertEqual(list(new_logs), ["from a thread"])
        self.store.purge("from a thread", destroy=True)
        self.store.log("from a thread")
        self.assertEqual(list(new_logs), ["from a thread"], "another log of that name")

    async def test_another_process_hears_of_them(self):
        with thalweg.open(self.path, read_only=True) as reader:
            new_logs = asyncio.create_task(self.take(reader.new_logs(), 2))
            await asyncio.sleep(0)
            self.store.log("b")
            self.store.log("c")
            self.assertEqual(await asyncio.wait_for(new_logs, 60), ["b", "c"])


class Sync(StoreCase, unittest.IsolatedAsyncioTestCase):
    durability = "sync"

    async def test_the_committer_rings(self):
        follower = asyncio.create_task(anext(self.log.tail()))
        await asyncio.sleep(0.001)
        self.log.append(b"x", wait=False)
        self.assertEqual(bytes(await asyncio.wait_for(follower, 60)), b"x")


class Neighbour(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        command = [sys.executable, "-c", WRITER, directory.name]
        self.writer = await asyncio.create_subprocess_exec(*command, **pipes)
        self.assertEqual(await self.writer.stdout.readline(), b"open\n")
        self.store = thalweg.open(directory.name, read_only=True)
        self.addCleanup(self.store.close)
        self.log = self.store.log("log")

    async def asyncTearDown(self):
        self.writer.stdin.close()
        self.assertEqual(await self.writer.wait(), 0)

    async def write(self, line: bytes) -> None:
        self.writer.stdin.write(line)
        await self.writer.stdin.drain()

    async def test_entries_of_another_process_arrive(self):
        async with contextlib.aclosing(self.log.tail()) as entries:
            for word in (b"one\n", b"two\n", b"three\n"):
                follower = asyncio.create_task(anext(entries))
                await asyncio.sleep(0.001)
                await self.write(word)
                self.assertEqual(bytes(await asyncio.wait_for(follower, 60)), word)

    async def test_waits_that_are_cancelled_and_tails_that_are_dropped_keep_no_descriptor(self):
        await keeps_no_descriptor(self, self.log.tail)
        await leaves_no_descriptor(self, self.log.tail, lambda: self.write(b"for all\n"))
        await self.write(b"still heard\n")

    async def test_any_number_of_tails_takes_one_thread(self):
        threads = len(os.listdir("/proc/self/task"))
        followers = [asyncio.create_task(anext(self.log.tail())) for _ in range(50)]
        await asyncio.sleep(0.001)
        self.assertEqual(len(os.listdir("/proc/self/task")), threads + 1)
        await self.write(b"for all\n")
        entries = await asyncio.wait_for(asyncio.gather(*followers), 60)
        self.assertEqual({bytes(entry) for entry in entries}, {b"for all\n"})

    async def test_closing_the_store_ends_them(self):
        follower = asyncio.create_task(anext(self.log.tail()))
        await asyncio.sleep(0.001)
        self.store.close()
        with self.assertRaises(thalweg.Closed):
            await asyncio.wait_for(follower, 60)


class Uses(unittest.TestCase):
    def test_a_loop_that_ends_with_a_tail_open_ends_well(self):
        code = """
import asyncio, thalweg
async def main():
    store = thalweg.open(durability="memory")
    log = store.log("log")
    asyncio.get_running_loop().call_later(0.01, log.append, b"x")
    async for entry in log.tail():
        print(bytes(entry))
        break
asyncio.run(main())
"""
        self.assertEqual(python(code), "b'x'\n")
