"""Letting go of entries, and who reads them meanwhile."""

import asyncio
from pathlib import Path

import thalweg
from support import StoreCase, read


def deleted_maps() -> int:
    """Files that are gone and that this process has mapped."""
    return sum("(deleted)" in line for line in Path("/proc/self/maps").read_text().splitlines())


class Purge(StoreCase):
    def test_what_lies_in_front_of_a_time_goes(self):
        entries = self.fill(1000)
        begun = self.log.query()
        first = next(begun)
        purged = self.store.purge("log", before=5000, count_entries=True)
        bytes_gone = sum(len(data) for _, data in entries[:500])
        self.assertEqual(len(purged), 1)
        self.assertEqual((purged[0].name, purged[0].entries, purged[0].bytes), ("log", 500, bytes_gone))
        self.assertEqual((purged[0].first, purged[0].destroyed), (bytes_gone, False))
        self.assertEqual(read(self.log.query()), entries[500:])
        # A batch of which something is left is not let go of yet.
        self.assertTrue(0 < self.store.stats().purged_bytes <= bytes_gone)
        # Who holds an entry or is on the way holds it still.
        self.assertEqual(bytes(first), entries[0][1])
        self.assertLessEqual(set(read(begun)), set(entries))
        self.assertEqual(self.store.purge("log", before=5000), [])

    def test_a_word_that_is_none_is_refused_since_more_would_go_without_it(self):
        entries = self.fill(10)
        for words in ({"log": None}, {"log": None, "destroy": True}, {"log": "log", "before": None}, {"destroy": None}):
            with self.assertRaises(TypeError, msg=f"{words}"):
                self.store.purge(**words)
        with self.assertRaises(TypeError):
            self.store.purge(None)
        self.assertEqual((self.store.logs(), read(self.log.query())), (["log"], entries))
        self.assertEqual([gone.name for gone in self.store.purge()], ["log"])
        self.assertEqual(read(self.log.query()), [])

    def test_before_and_destroy_contradict_each_other(self):
        entries = self.fill(10)
        for words in ({"log": "log"}, {}):
            with self.assertRaisesRegex(ValueError, "one of before, destroy"):
                self.store.purge(before=50, destroy=True, **words)
        self.assertEqual((self.store.logs(), read(self.log.query())), (["log"], entries))

    def test_a_query_that_is_over_keeps_nothing_of_what_goes(self):
        self.store.close()
        self.store = self.open(retain_bytes=100_000)
        self.log = self.store.log("log")
        # Files go once two checkpoints stand behind them.
        for first, held in ((0, False), (5000, False), (10_000, True)):
            entries = self.fill(5000, first=first)
            begun = self.log.query()
            next(begun)
            self.assertEqual(read(self.log.query())[-5000:], entries)
            if not held:
                del begun
            self.store.maintain()
            self.assertEqual(deleted_maps() > 0, held)
        self.assertEqual(next(self.log.query()).offset, next(self.log.cursor()).offset)

    def test_what_waits_at_the_end_of_a_log_keeps_nothing_of_what_goes(self):
        self.store.close()
        self.store = self.open(retain_bytes=100_000)
        self.log, quiet = self.store.log("log"), self.store.log("quiet")
        cursor, tail, waiting = quiet.cursor(), quiet.tail(), None

        async def follow():
            nonlocal waiting
            if waiting is not None:
                self.assertEqual(bytes(await waiting), b"rare")
            waiting = asyncio.ensure_future(anext(tail))
            await asyncio.sleep(0)

        with asyncio.Runner() as runner:
            runner.run(follow())
            for turn in range(4):
                quiet.append(b"rare")
                runner.run(follow())
                self.assertEqual([bytes(entry) for entry in cursor], [b"rare"])
                self.fill(5000, first=5000 * turn)
                while self.store.maintain():
                    pass
                self.assertIsNone(cursor.next())
            runner.run(asyncio.sleep(0))
            self.assertEqual(deleted_maps(), 0)

    def compact(self, goes: str) -> list[tuple[int, bytes]]:
        """Lets go of a log, and appends to the other until what is left of the first file lies in another."""
        file = min(self.path.glob("segment-*"))
        before, appended = file.stat().st_ino, []
        self.store.purge(goes)
        for time in range(100_000, 100_010):
            appended += self.fill(1, first=time)
            self.store.rotate()
            self.store.maintain()
            if file.stat().st_ino != before:
                return appended
        self.fail("nothing was compacted")

    def test_what_is_compacted_is_read_by_whoever_read_it_before(self):
        entries, goes = self.fill(5), self.store.log("goes")
        for time in range(10):
            goes.append(bytes(15_000), time)
        cursor, begun = self.log.cursor(), self.log.query()
        self.assertEqual(read(cursor), entries)
        self.assertEqual(next(begun).offset, 0)
        entries += self.compact("goes")
        del begun
        cursor.seek()
        self.assertEqual(read(cursor), entries)
        self.assertEqual(read(self.log.query()), entries)
        self.assertEqual(sum(len(batch) for batch in self.log.scan()), len(entries))

    def test_a_batch_holds_what_was_there_when_its_scan_began(self):
        self.fill(5)
        goes = self.store.log("goes")
        for time in range(2):
            goes.append(b"gone" * 5000, time)
        scan = goes.scan()
        for time in range(10):
            goes.append(bytes(15_000), time)
        self.compact("goes")
        batch = next(scan)
        self.assertEqual([bytes(batch.data(entry)) for entry in range(len(batch))], [b"gone" * 5000] * 2)

    def test_a_log_can_be_destroyed_but_not_under_a_transaction(self):
        self.fill(10)
        self.store.log("other").append(b"stays", 1)
        cursor = self.log.cursor()
        entry = cursor.next()
        with self.store.transaction() as transaction:
            transaction.append(self.log, b"x")
            self.assertEqual(self.store.stats().transactions, 1)
            with self.assertRaises(thalweg.Pending):
                self.store.purge("log", destroy=True)
        self.assertEqual([gone.destroyed for gone in self.store.purge("log", destroy=True)], [True])
        self.assertEqual(self.store.logs(), ["other"])
        with self.assertRaises(thalweg.Deleted):
            self.log.append(b"x")
        with self.assertRaises(thalweg.Deleted):
            for _ in cursor:
                pass
        self.assertEqual(cursor.ended, "deleted")
        self.assertEqual(bytes(entry), b"entry 0;")

    def test_what_is_beyond_its_size_or_age_goes_with_maintenance(self):
        self.store.close()
        self.store = self.open(retain_bytes=100_000)
        self.log = self.store.log("log")
        entries = self.fill(5000)
        self.store.maintain()
        left = read(self.log.query())
        self.assertLess(len(left), 5000)
        self.assertEqual(left, entries[-len(left) :])

    def test_maintenance_says_that_there_is_no_more_to_do(self):
        self.assertIs(self.store.maintain(), False)
        self.fill(1000)
        self.store.purge(before=5000)
        self.assertEqual([self.store.maintain(), self.store.maintain()], [False, False])
        with thalweg.open(durability="memory") as memory:
            self.assertIs(memory.maintain(), False)

    def test_a_segment_can_be_ended_by_hand(self):
        self.fill(3)
        before = self.store.stats()
        self.store.rotate()
        self.fill(3, first=3)
        after = self.store.stats()
        self.assertEqual((after.rotations - before.rotations, after.entries - before.entries), (1, 3))
        self.assertEqual(len(read(self.log.query())), 6)


class Durable(StoreCase):
    durability = "sync"

    def test_what_was_appended_before_goes_whether_or_not_it_is_durable_yet(self):
        for number in range(20):
            self.log.append(b"secret", wait=False)
            self.store.purge()
            self.assertEqual(read(self.log.query()), [])
            self.store.log(f"new {number}")
            self.assertTrue(self.store.purge(f"new {number}", destroy=True)[0].destroyed)
