"""Batches, against the iterator."""

import threading
import unittest.mock

import numpy
import thalweg
from support import StoreCase, read


class Scan(StoreCase):
    def rows(self, batches):
        """Entries out of batches, by way of the map."""
        for batch in batches:
            data = numpy.frombuffer(batch.map, "uint8")
            for time, offset, length, place in zip(
                batch.times, batch.offsets, batch.lengths, batch.places, strict=True
            ):
                yield int(time), int(offset), data[place : place + length].tobytes()

    def test_batches_hold_what_the_iterator_gives(self):
        self.fill(5000)
        expected = [(entry.time, entry.offset, bytes(entry)) for entry in self.log.query()]
        for limit in (1, 7, 1000, 65536):
            self.assertEqual(list(self.rows(self.log.scan(limit=limit))), expected, limit)
        self.assertEqual(list(self.rows(self.log.scan(start=500, end=900))), expected[50:90])
        self.assertEqual(list(self.log.scan(tail=True)), [])

    def test_threads_may_share_one(self):
        self.log.append_many([b"payload"] * 300_000)
        scan, offsets, errors = self.log.scan(limit=1000), [], []

        def take():
            try:
                for batch in scan:
                    offsets.extend(batch.offsets.tolist())
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(sorted(offsets), list(range(0, 300_000 * 7, 7)))

    def test_batches_that_are_kept_stay_as_they_are(self):
        entries = self.fill(5000)
        batches = list(self.log.scan(limit=100))
        arrays = [batch.times for batch in self.log.scan(limit=100)]
        maps = [(batch.map, batch.columns()) for batch in self.log.scan(limit=100)]
        self.assertEqual([data for _, _, data in self.rows(batches)], [data for _, data in entries])
        self.assertEqual(numpy.concatenate(arrays).tolist(), [time for time, _ in entries])
        payloads = [
            bytes(view[place : place + length])
            for view, (_, _, lengths, places) in maps
            for length, place in zip(lengths, places, strict=True)
        ]
        self.assertEqual(payloads, [data for _, data in entries])

    def test_memory_of_batches_that_are_gone_is_used_again_and_never_that_of_one_that_is_held(self):
        self.fill(5000)
        times = [time for time, _ in read(self.log.query())]
        for held in range(5):
            batches = []
            for limit in (3, 4096, 50, 70_000):
                scan = self.log.scan(limit=limit)
                batches += [next(scan) for _ in range(held)]
                found = [int(time) for batch in batches[-held:] if held for time in batch.times]
                found += [int(time) for batch in scan for time in batch.times]
                self.assertEqual(found, times[: len(found)])
                self.assertEqual(found[-1], times[-1])
            columns = [batch.times.tolist() for batch in batches]
            list(self.log.scan(limit=5))
            self.assertEqual([batch.times.tolist() for batch in batches], columns)

    def test_a_batch_lies_in_one_segment_and_is_never_longer_than_asked(self):
        self.fill(5000)
        lengths = [len(batch) for batch in self.log.scan(limit=300)]
        self.assertEqual(sum(lengths), 5000)
        self.assertLessEqual(max(lengths), 300)
        self.assertGreaterEqual(len(lengths), self.store.stats().segments)

    def test_columns_need_no_numpy(self):
        self.fill(3)
        with unittest.mock.patch.dict("sys.modules", {"numpy": None}):
            batch = next(self.log.scan())
            times, offsets, lengths, places = batch.columns()
            with self.assertRaises(ImportError):
                batch.times
        self.assertEqual((times.tolist(), offsets.tolist(), lengths.tolist()), ([0, 10, 20], [0, 8, 24], [8, 16, 24]))
        self.assertEqual((times.format, lengths.format, times.readonly), ("Q", "I", True))
        self.assertEqual(bytes(batch.map[places[1] : places[1] + 16]), b"entry 1;entry 1;")

    def test_numbers_have_their_types_and_nobody_writes_to_them(self):
        self.fill(3)
        batch = next(self.log.scan())
        self.assertEqual([str(a.dtype) for a in (batch.times, batch.offsets, batch.lengths, batch.places)], ["uint64"] * 2 + ["uint32"] * 2)
        with self.assertRaises(ValueError):
            batch.times[0] = 1
        self.assertTrue(batch.map.readonly)

    def test_a_payload_by_its_number(self):
        entries = self.fill(10)
        batch = next(self.log.scan())
        self.assertEqual([bytes(batch.data(n)) for n in range(10)], [data for _, data in entries])
        self.assertEqual(bytes(batch.data(-1)), entries[-1][1])
        for outside in (10, -11, 1 << 64, -1 << 64):
            with self.assertRaises(IndexError):
                batch.data(outside)

    def test_arrays_outlive_the_store(self):
        entries = self.fill(10)
        batch = next(self.log.scan())
        times, view = batch.times, batch.data(9)
        del batch
        self.store.close()
        self.assertEqual(times.tolist(), [time for time, _ in entries])
        self.assertEqual(bytes(view), entries[9][1])

    def test_a_limit_is_checked(self):
        for limit in (0, 1 << 30):
            with self.assertRaises(ValueError):
                self.log.scan(limit=limit)
        self.assertEqual(read(self.log.query()), [])
        self.assertIsInstance(self.log.scan(limit=1), thalweg.Scan)
