"""Cursors: polling, seeking, and waiting without polling."""

import signal
import threading

import thalweg
from support import StoreCase, read


class Cursor(StoreCase):
    def test_it_goes_on_with_what_comes(self):
        entries = self.fill(3)
        cursor = self.log.cursor()
        self.assertEqual(read(cursor), entries)
        self.assertIsNone(cursor.next())
        self.assertIsNone(cursor.next())
        later = self.fill(2000, first=3)
        self.assertEqual(read(cursor), later)
        self.assertIsNone(cursor.ended)

    def test_a_tail_sees_only_what_comes(self):
        self.fill(3)
        cursor = self.log.cursor(tail=True)
        self.assertIsNone(cursor.next())
        self.log.append(b"new", 99)
        self.assertEqual(read(cursor), [(99, b"new")])

    def test_it_seeks(self):
        entries = self.fill(1000)
        cursor = self.log.cursor()
        for number in (500, 3, 999, 0):
            cursor.seek(start=number * 10 - 5 if number else 0)
            self.assertEqual(read([cursor.next()]), [entries[number]])
        cursor.seek(start=20, end=40)
        self.assertEqual([entry.time for entry in cursor], [20, 30])
        cursor.seek(tail=True)
        self.assertIsNone(cursor.next())
        with self.assertRaises(ValueError):
            cursor.seek(start=1, tail=True)

    def test_it_finds_and_goes_on_from_there(self):
        entries = self.fill(1000)
        cursor = self.log.cursor()
        for number in (500, 3, 999, 0):
            self.assertEqual(read([cursor.find(number * 10 - 5 if number else 0)]), [entries[number]])
        self.assertEqual(cursor.next().time, 10)
        # Whatever it was to take before.
        cursor.seek(20, 40)
        self.assertEqual(cursor.find(30).time, 30)
        self.assertEqual(read(cursor), entries[4:])
        self.assertIsNone(cursor.find(10_000))
        self.log.append(b"new", 10_000)
        self.assertEqual(read(cursor), [(10_000, b"new")])
        for start in (-1, 1 << 64):
            with self.assertRaises(ValueError):
                cursor.find(start)

    def test_waiting_ends_with_an_entry(self):
        cursor = self.log.cursor()
        self.assertIsNone(cursor.next())
        waits = threading.Event()

        def write():
            waits.wait()
            self.log.append(b"awaited")

        writer = threading.Thread(target=write)
        writer.start()
        waits.set()
        self.assertTrue(cursor.wait(60))
        writer.join()
        self.assertEqual(bytes(cursor.next()), b"awaited")

    def test_waiting_ends_with_its_time(self):
        cursor = self.log.cursor()
        self.assertIsNone(cursor.next())
        self.assertFalse(cursor.wait(0))
        self.assertFalse(cursor.wait(0.01))
        self.log.append(b"x")
        self.assertTrue(cursor.wait(0))
        for nonsense in (-1, -1e30, float("nan"), float("-inf")):
            with self.assertRaisesRegex(ValueError, "^timeout is .*: give seconds, 0 or more$"):
                cursor.wait(nonsense)

    def test_a_time_that_no_clock_comes_to_is_no_end_of_a_wait(self):
        cursor = self.log.cursor()
        for longest in (float("inf"), 1e30, 1e18):
            self.assertIsNone(cursor.next())
            writer = threading.Timer(0.01, self.log.append, (b"awaited",))
            writer.start()
            with self.subTest(longest):
                self.assertTrue(cursor.wait(longest))
            writer.join()
            self.assertEqual(bytes(cursor.next()), b"awaited")

    def test_a_signal_ends_a_wait_for_ever(self):
        def handle(number, frame):
            raise InterruptedError

        before = signal.signal(signal.SIGALRM, handle)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        cursor = self.log.cursor()
        cursor.next()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with self.assertRaises(InterruptedError):
            cursor.wait()

    def test_a_signal_handler_may_close_the_store(self):
        before = signal.signal(signal.SIGALRM, lambda number, frame: self.store.close())
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        cursor = self.log.cursor()
        cursor.next()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with self.assertRaises(thalweg.Closed):
            cursor.wait()

    def test_threads_run_while_one_waits(self):
        cursor = self.log.cursor()
        cursor.next()
        ran = []

        def run():
            ran.append(True)
            self.log.append(b"x")

        threading.Timer(0, run).start()
        self.assertTrue(cursor.wait(60))
        self.assertEqual(ran, [True])
