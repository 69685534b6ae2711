"""Appending: what is taken, what is refused, and what is written together."""

import array
import threading
import unittest

import thalweg
from support import SMALL, StoreCase, read


class Append(StoreCase):
    def test_anything_bytes_like_is_taken(self):
        numbers = array.array("I", [1, 2, 3])
        for data in (b"a", bytearray(b"bc"), memoryview(b"defg")[1:3], numbers, memoryview(numbers)):
            self.log.append(data)
        expected = [b"a", b"bc", b"ef", numbers.tobytes(), numbers.tobytes()]
        self.assertEqual([bytes(entry) for entry in self.log.query()], expected)
        # An entry is bytes-like too.
        self.log.append(next(self.log.query(offset=1)))
        self.assertEqual(bytes(list(self.log.query())[-1]), b"bc")

    def test_what_is_no_run_of_bytes_is_refused(self):
        for data in ("text", 5, None, [1]):
            with self.assertRaises(TypeError):
                self.log.append(data)
        with self.assertRaises(BufferError):
            self.log.append(memoryview(b"abcdef")[::2])
        with self.assertRaises(thalweg.EmptyEntry):
            self.log.append(b"")
        with self.assertRaisesRegex(ValueError, "^time is -1: give a whole number from 0 to"):
            self.log.append(b"x", -1)
        self.assertEqual(read(self.log.query()), [])

    def test_a_buffer_is_let_go_of(self):
        data = bytearray(b"abc")
        self.log.append(data)
        self.log.append_many([data, data])
        data.extend(b"longer now")
        self.assertEqual([bytes(entry) for entry in self.log.query()], [b"abc"] * 3)

    def test_a_buffer_that_is_used_again_is_taken_as_it_was_when_it_was_yielded(self):
        lines, again = [b"%d " % number * (number % 9 + 1) for number in range(3000)], bytearray(64)

        def reused():
            for line in lines:
                again[: len(line)] = line
                yield memoryview(again)[: len(line)]

        self.assertEqual(self.log.append_many(reused()), 3000)
        self.assertEqual(self.log.append_timed((7, data) for data in reused()), 3000)
        self.assertEqual([bytes(entry) for entry in self.log.query()], lines * 2)

    def test_the_time_is_now_unless_it_is_given(self):
        before = thalweg.now()
        self.log.append(b"now")
        self.log.append(b"then", 17)
        times = [entry.time for entry in self.log.query()]
        self.assertTrue(before <= times[0] <= thalweg.now())
        self.assertEqual(times[1], 17)

    def test_one_larger_than_a_segment_is_refused_and_nothing_of_it_is_there(self):
        with self.assertRaises(thalweg.TooLarge) as raised:
            self.log.append(bytes(1 << 20))
        self.assertEqual(raised.exception.code, "TOO_LARGE")
        self.log.append(b"fits")
        self.assertEqual([bytes(entry) for entry in self.log.query()], [b"fits"])

    def test_many_are_appended_in_order(self):
        self.assertEqual(self.log.append_many(b"%d" % number for number in range(5000)), 5000)
        self.assertEqual([int(bytes(entry)) for entry in self.log.query()], list(range(5000)))
        self.assertTrue(all(entry.last for entry in self.log.query()))
        self.assertEqual(self.log.append_many([]), 0)

    def test_each_of_many_can_have_a_time_of_its_own(self):
        pairs = [(number * 7 % 5000, b"%d" % number) for number in range(3000)]
        self.assertEqual(self.log.append_timed(iter(pairs)), 3000)
        self.assertEqual([(entry.time, bytes(entry)) for entry in self.log.query()], pairs)
        self.assertTrue(all(entry.last for entry in self.log.query()))
        self.assertEqual(self.log.append_timed([]), 0)
        for wrong in ([5], [(5,)], [(5, b"a", b"b")], [("5", b"a")], [(5, "a")]):
            with self.assertRaises((TypeError, ValueError)):
                self.log.append_timed(wrong)
        with self.assertRaisesRegex(ValueError, "^time is -1: give a whole number from 0 to"):
            self.log.append_timed([(-1, b"a")])
        with self.assertRaises(thalweg.EmptyEntry):
            self.log.append_timed([(1, b"a"), (2, b"")])
        self.assertEqual(len(list(self.log.query())), 3000)

    def test_many_that_fit_each_for_itself_are_appended_whatever_they_come_to_together(self):
        words = {"segment_bytes_min": 4096, "segment_bytes_max": SMALL}
        for sizes in ([100] * 1000, [1] * 5000, [16_000] * 50, [1000, SMALL - 200] * 20, [SMALL - 200, 1] * 20):
            with thalweg.open(durability="memory", **words) as store:
                many, timed = store.log("many"), store.log("timed")
                self.assertEqual(many.append_many(bytes(size) for size in sizes), len(sizes))
                self.assertEqual(timed.append_timed((time, bytes(size)) for time, size in enumerate(sizes)), len(sizes))
                self.assertEqual([len(entry) for entry in many.query()], sizes)
                self.assertEqual([(entry.time, len(entry)) for entry in timed.query()], list(enumerate(sizes)))

    def test_one_that_fits_alone_fits_behind_others_and_one_that_does_not_takes_none_with_it(self):
        with thalweg.open(durability="memory") as store:
            log, large = store.log("log"), bytes((64 << 20) - 2000)
            self.assertEqual(log.append_many([bytes(1000)] * 1000 + [large] + [b"x"]), 1002)
            self.assertEqual(store.stats().entries, 1002)
        with self.assertRaises(thalweg.TooLarge):
            self.log.append_many([b"x"] * 7 + [bytes(SMALL)])
        self.assertEqual([bytes(entry) for entry in self.log.query()], [b"x"] * 7)

    def test_what_an_iterable_raises_comes_out(self):
        def breaks():
            yield from [b"x"] * 2000
            raise LookupError("the source broke")

        with thalweg.open(durability="memory") as roomy:
            log = roomy.log("log")
            with self.assertRaisesRegex(LookupError, "broke"):
                log.append_many(breaks())
            # Whole groups are there, and not the one that broke.
            self.assertEqual(len(list(log.query())), 1024)
        with self.assertRaises(TypeError):
            self.log.append_many(5)
        with self.assertRaises(thalweg.EmptyEntry):
            self.log.append_many([b"a", b""])

    def test_threads_append_at_once(self):
        def work(number):
            for index in range(500):
                self.log.append(b"%d %d" % (number, index))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        seen = [tuple(map(int, bytes(entry).split())) for entry in self.log.query()]
        for number in range(4):
            self.assertEqual([index for who, index in seen if who == number], list(range(500)))


class Sync(StoreCase):
    durability = "sync"

    def test_an_append_returns_when_it_is_durable(self):
        for number in range(5):
            self.log.append(b"%d" % number)
            stats = self.store.stats()
            self.assertGreaterEqual(stats.durable, stats.staged_end)
            self.assertEqual(len(list(self.log.query())), number + 1)
        self.log.append_many([b"x"] * 3)
        self.assertEqual(len(list(self.log.query())), 8)

    def test_threads_share_the_waits_for_the_disk(self):
        threads = [threading.Thread(target=self.log.append, args=(b"x",)) for _ in range(16)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(len(list(self.log.query())), 16)


class Transaction(StoreCase):
    def test_entries_are_written_together(self):
        other = self.store.log("other")
        with self.store.transaction(time=42) as transaction:
            transaction.append(self.log, b"a")
            transaction.append(other, b"b")
            transaction.append(self.log, b"c")
            self.assertEqual(len(transaction), 3)
            self.assertEqual(read(self.log.query()), [])
        self.assertEqual(read(self.log.query()), [(42, b"a"), (42, b"c")])
        self.assertEqual(read(other.query()), [(42, b"b")])
        self.assertEqual([entry.last for entry in self.log.query()], [False, True])

    def test_an_exception_aborts(self):
        with self.assertRaises(LookupError):
            with self.store.transaction() as transaction:
                transaction.append(self.log, b"a")
                raise LookupError
        self.assertEqual(read(self.log.query()), [])

    def test_what_is_over_takes_nothing_more(self):
        transaction = self.store.transaction()
        transaction.append(self.log, b"a")
        transaction.commit()
        for late in (transaction.commit, transaction.abort, lambda: transaction.append(self.log, b"b")):
            with self.assertRaises(thalweg.TransactionOver):
                late()
        self.assertEqual(len(list(self.log.query())), 1)

    def test_one_that_was_ended_by_hand_is_not_ended_again_with_its_block(self):
        with self.store.transaction() as transaction:
            transaction.append(self.log, b"kept")
            transaction.commit()
        with self.store.transaction() as transaction:
            transaction.append(self.log, b"never")
            transaction.abort()
        with self.store.transaction() as transaction:
            transaction.append(self.log, bytes(1 << 20))
            with self.assertRaises(thalweg.TooLarge):
                transaction.commit()
        for transaction in (self.store.transaction(), self.store.transaction()):
            with self.assertRaises(LookupError), transaction:
                transaction.commit()
                raise LookupError
        self.assertEqual([bytes(entry) for entry in self.log.query()], [b"kept"])

    def test_one_whose_store_was_closed_says_so_at_its_end_unless_it_was_ended_before(self):
        with self.assertRaises(thalweg.Closed), self.store.transaction() as transaction:
            transaction.append(self.log, b"never")
            self.store.close()
        self.store = self.open()
        log = self.store.log("log")
        with self.store.transaction() as transaction:
            transaction.append(log, b"kept")
            transaction.commit()
            self.store.close()
        self.store = self.open()
        self.assertEqual([bytes(entry) for entry in self.store.log("log").query()], [b"kept"])

    def test_one_that_is_dropped_is_aborted(self):
        transaction = self.store.transaction()
        transaction.append(self.log, b"a")
        del transaction
        self.assertEqual(read(self.log.query()), [])

    def test_what_it_takes_is_copied(self):
        data = bytearray(b"before")
        with self.store.transaction() as transaction:
            transaction.append(self.log, data)
            data[:] = b"behind"
        self.assertEqual([bytes(entry) for entry in self.log.query()], [b"before"])

    def test_a_log_of_another_store_is_refused(self):
        with thalweg.open(durability="memory") as other, self.store.transaction() as transaction:
            with self.assertRaisesRegex(ValueError, "another store"):
                transaction.append(other.log("log"), b"a")

    def test_an_empty_one_writes_nothing(self):
        written = self.store.stats().staged_end
        with self.store.transaction():
            pass
        self.assertEqual(self.store.stats().staged_end, written)


class Memory(unittest.TestCase):
    def test_a_store_in_memory_has_everything_but_files(self):
        with thalweg.open(durability="memory") as store:
            log = store.log("log")
            log.append(b"x", 1)
            self.assertEqual(read(log.query()), [(1, b"x")])
            self.assertEqual(store.verify().damage, [])
            self.assertEqual(repr(store), "<thalweg.Store in memory>")
