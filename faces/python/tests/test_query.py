"""Queries, against a list."""

import ctypes
import random
import sys
import threading
import unittest

import thalweg
from support import StoreCase, read


class Query(StoreCase):
    def test_everything_comes_back_in_order_and_across_segments(self):
        entries = self.fill(5000)
        self.assertGreater(self.store.stats().segments, 3)
        self.assertEqual(read(self.log.query()), entries)
        offset = 0
        for entry, (_, data) in zip(self.log.query(), entries, strict=True):
            self.assertEqual((entry.offset, len(entry), entry.last), (offset, len(data), True))
            offset += len(data)

    def test_times_are_inclusive_at_the_start_and_exclusive_at_the_end(self):
        self.fill(100)
        times = lambda **words: [entry.time for entry in self.log.query(**words)]
        self.assertEqual(times(start=30, end=60), [30, 40, 50])
        self.assertEqual(times(start=31, end=61), [40, 50, 60])
        self.assertEqual(times(after=30, end=60), [40, 50])
        self.assertEqual(times(exact=970), [970, 980, 990])
        self.assertEqual(times(exact=971), [])
        self.assertEqual(times(start=60, end=30), [])
        self.assertEqual(times(start=10_000), [])

    def test_times_that_repeat_and_go_back_match_a_list(self):
        chance = random.Random(7)
        model = []
        for number in range(3000):
            time, data = max(0, number // 3 + chance.randint(-40, 40)), b"%d" % number * chance.randint(1, 9)
            self.log.append(data, time)
            model.append((time, data))
        for _ in range(200):
            start, end = chance.randint(0, 1100), chance.randint(0, 1100)
            expected = [(time, data) for time, data in model if start <= time < end]
            self.assertEqual(read(self.log.query(start=start, end=end)), expected, (start, end))
            first = next((n for n, (time, _) in enumerate(model) if time == start), len(model))
            self.assertEqual(read(self.log.query(exact=start)), model[first:], start)

    def test_an_offset_begins_inside_the_entry_that_holds_it(self):
        self.log.append(b"abc")
        second = self.log.append(b"defgh")
        self.assertEqual(second, 3)
        self.assertEqual([bytes(e) for e in self.log.query(offset=3)], [b"defgh"])
        self.assertEqual([bytes(e) for e in self.log.query(offset=5)], [b"fgh"])
        self.assertEqual([bytes(e) for e in self.log.query(offset=8)], [])

    def test_an_iteration_ends_where_the_log_ended_when_it_began(self):
        entries = self.fill(10)
        iteration = self.log.query()
        self.fill(10, first=10)
        self.assertEqual(read(iteration), entries)
        self.assertEqual(read(self.log.query(tail=True)), [])

    def test_what_becomes_of_the_log_meanwhile_does_not_matter_to_an_iteration(self):
        entries = self.fill(1500)
        for begun in (0, 1, len(entries)):
            log = self.store.log(f"log {begun}")
            self.assertEqual(log.append_timed(entries), len(entries))
            query, ranged, scan = log.query(), log.query(start=0, end=1 << 40), log.scan(limit=100)
            taken = [next(query) for _ in range(begun)]
            self.store.purge(f"log {begun}", destroy=True)
            self.assertEqual(read(taken) + read(query), entries)
            self.assertEqual(read(ranged), entries)
            self.assertEqual(sum(len(batch) for batch in scan), len(entries))
            with self.assertRaises(thalweg.Deleted):
                list(log.query())

    def test_queries_that_are_left_and_nested_do_not_disturb_each_other(self):
        entries = self.fill(3000)
        times = [time for time, _ in entries]
        kept = []
        for round in range(50):
            first = round * 59
            # Short for `start` and `end`.
            left = self.log.query(first * 10, (first + 9) * 10)
            kept.append(next(left))
            del left
            pairs = [
                (outer.time, [inner.time for inner in self.log.query(outer.time, outer.time + 30)])
                for outer in self.log.query(start=first * 10, end=first * 10 + 50)
            ]
            expected = [(time, times[n : n + 3]) for n, time in enumerate(times[first : first + 5], first)]
            self.assertEqual(pairs, expected)
            self.assertEqual(next(self.log.query()).time, 0)
        self.assertEqual([(e.time, bytes(e)) for e in kept], [entries[n * 59] for n in range(50)])
        self.log.append(b"late", 30_000)
        self.assertEqual(read(self.log.query(start=30_000)), [(30_000, b"late")])

    def test_logs_do_not_see_each_other(self):
        other = self.store.log("other")
        self.fill(50)
        other.append(b"theirs", 5)
        self.fill(50, first=50)
        self.assertEqual(read(other.query()), [(5, b"theirs")])
        self.assertEqual(len(read(self.log.query())), 100)

    def test_a_query_begins_in_one_place(self):
        with self.assertRaisesRegex(ValueError, "one of start"):
            self.log.query(start=1, offset=2)
        with self.assertRaisesRegex(ValueError, "^start is -1: give a whole number from 0 to"):
            self.log.query(start=-1)
        with self.assertRaises(TypeError):
            self.log.query(start="now")
        with self.assertRaises(TypeError):
            self.log.query(begin=1)


class Uncommitted(StoreCase):
    durability = "sync"

    def test_what_is_not_durable_yet_is_seen_by_those_who_ask(self):
        self.log.append(b"durable", 1)
        self.assertEqual(read(self.log.query()), [(1, b"durable")])
        self.log.append(b"soon", 2, wait=False)
        self.assertEqual(read(self.log.query(uncommitted=True)), [(1, b"durable"), (2, b"soon")])
        self.store.flush()
        self.assertEqual(read(self.log.query()), [(1, b"durable"), (2, b"soon")])

    def test_a_checkpoint_is_a_place_to_begin_at(self):
        self.fill(20)
        self.store.close()
        self.store = self.open()
        self.log = self.store.log("log")
        later = self.fill(3, first=20)
        self.assertEqual(read(self.log.query(checkpoint=True))[-3:], later)
        self.assertEqual(len(read(self.log.query())), 23)


class Entries(StoreCase):
    def test_what_somebody_holds_is_never_used_again(self):
        entries = self.fill(3000)
        kept, views, every_third = [], [], []
        for number, entry in enumerate(self.log.query()):
            kept.append(entry)
            views.append(entry.data)
            if number % 3 == 0:
                every_third.append(entry)
        self.assertEqual(read(kept), entries)
        self.assertEqual([bytes(view) for view in views], [data for _, data in entries])
        self.assertEqual(read(every_third), entries[::3])

    def test_a_view_alone_keeps_its_bytes(self):
        entries = self.fill(3000)
        views = [entry.data for entry in self.log.query()]
        self.assertEqual([bytes(view) for view in views], [data for _, data in entries])

    def test_a_view_outlives_everything(self):
        self.fill(10)
        view = next(iter(self.log.query())).data
        entry = next(iter(self.log.query()))
        self.store.close()
        del self.log
        self.assertEqual((bytes(view), bytes(entry), entry.time), (b"entry 0;", b"entry 0;", 0))

    def test_nobody_writes_to_the_log_through_a_view(self):
        self.fill(1)
        view = next(self.log.query()).data
        self.assertTrue(view.readonly)
        self.assertEqual((view.format, view.itemsize, view.nbytes), ("B", 1, 8))
        with self.assertRaises(TypeError):
            view[0] = 1
        with self.assertRaises(TypeError):
            ctypes.c_char.from_buffer(next(self.log.query()))

    def test_an_entry_says_what_it_is(self):
        self.fill(1)
        entry = next(self.log.query())
        self.assertEqual(repr(entry), "<thalweg.Entry offset=0 time=0 length=8>")
        self.assertEqual((entry[0], entry[-1], bytes(entry[2:5])), (ord("e"), ord(";"), b"try"))
        for outside in (8, -9, 1 << 64, -1 << 64):
            with self.assertRaises(IndexError):
                entry[outside]
        with self.assertRaises(TypeError):
            entry["x"]
        with self.assertRaises(AttributeError):
            entry.time = 5
        with self.assertRaises(TypeError):
            thalweg.Entry()


class Searches(unittest.TestCase):
    """A search that has to index much first lets other threads run meanwhile; no other does."""

    ENTRIES = 65_536

    def setUp(self) -> None:
        self.store = self.enterContext(thalweg.open(durability="memory", segment_bytes_max=4 << 20))
        self.log = self.store.log("steps")
        self.time = 0
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())

    def fill(self) -> None:
        """More than a segment, in which nobody has searched."""
        self.log.append_timed((self.time + number, b"x" * 40) for number in range(self.ENTRIES))
        self.time += self.ENTRIES

    def runs_meanwhile(self, search, times: int) -> bool:
        """Whether another thread that is ready runs while one of so many searches goes on."""
        ready, ran = threading.Event(), []
        other = threading.Thread(target=lambda: (ready.wait(), ran.append(True)))
        other.start()
        # It does only where the interpreter's lock is given away.
        sys.setswitchinterval(3600)
        ready.set()
        is_meanwhile = False
        for _ in range(times):
            self.fill()
            before = len(ran)
            search(self.time - 10)
            is_meanwhile = len(ran) > before
            if is_meanwhile:
                break
        sys.setswitchinterval(0.005)
        other.join()
        return is_meanwhile

    def test_an_index_is_made_while_other_threads_run(self):
        cursor, first = self.log.cursor(), self.log.query()
        del first
        for search in (
            lambda time: next(self.log.query(time)),
            lambda time: self.log.scan(time),
            lambda time: self.log.cursor(time).next(),
            lambda time: self.assertEqual(cursor.seek(time), None),
            lambda time: self.assertEqual(cursor.find(time).time, time),
        ):
            self.assertTrue(self.runs_meanwhile(search, 40))
            found = [entry.time for entry in self.log.query(self.time - 3)]
            self.assertEqual(found, [self.time - 3, self.time - 2, self.time - 1])
        cursor.seek(exact=self.time - 1)
        self.assertEqual(cursor.next().time, self.time - 1)

    def test_a_search_in_an_index_keeps_the_interpreters_lock(self):
        self.fill()
        next(self.log.query(5))
        self.assertFalse(self.runs_meanwhile(lambda _time: next(self.log.query(5)), 3))
