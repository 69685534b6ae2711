"""Stores as files: backed up while they are written, put back, taken apart."""

import ctypes
import operator
import signal
import threading
import unittest
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import thalweg
from support import SMALL, StoreCase, read


class Backups(StoreCase):
    def at(self, name: str):
        return self.path.parent / name

    def reopened(self, name: str) -> list[tuple[int, bytes]]:
        with thalweg.open(self.at(name), durability="os", segment_bytes_max=SMALL) as store:
            self.assertEqual(store.damage(), [])
            return read(store.log("log").query())

    def test_a_backup_is_put_back_and_neither_is_changed_by_what_becomes_of_the_other(self):
        entries = self.fill(2000)
        taken = self.store.backup(self.at("backup"))
        self.assertEqual((taken.end, taken.attempts, taken.copied), (self.store.stats().staged_end, 1, 1))
        self.assertGreater(taken.linked, 1)
        self.assertIn("copied_bytes", repr(taken))
        self.fill(500, 2000)
        self.assertEqual(thalweg.restore(str(self.at("backup")), self.at("again")).end, taken.end)
        with thalweg.open(self.at("again"), durability="os", segment_bytes_max=SMALL) as again:
            again.log("log").append(b"other", 5)
        self.assertEqual(self.reopened("again"), [*entries, (5, b"other")])
        thalweg.restore(self.at("backup"), self.at("third"))
        self.assertEqual(self.reopened("third"), entries)
        self.assertEqual(len(read(self.log.query())), 2500)

    def test_backups_are_taken_while_somebody_writes(self):
        stopped = threading.Event()

        def write() -> None:
            for number in range(20_000):
                if stopped.is_set():
                    return
                self.log.append(number.to_bytes(8), number)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for round in range(6):
                name = f"backup {round}"
                before = len(read(self.log.query()))
                if round % 2:
                    self.store.backup(self.at(name))
                else:
                    thalweg.backup(self.path, self.at(name))
                times = [time for time, _ in self.reopened(name)]
                self.assertEqual(times, list(range(len(times))))
                self.assertGreaterEqual(len(times), before)
        finally:
            stopped.set()
            writer.join()
        with thalweg.open(self.path, read_only=True) as reader:
            self.assertEqual(reader.backup(self.at("attached")).end, self.store.stats().staged_end)

    def test_nothing_is_written_over_and_nothing_damaged_is_put_back(self):
        self.fill(1500)
        full = self.at("full")
        full.mkdir()
        (full / "mine").write_text("precious")
        for to in (full, self.path):
            with self.assertRaises(thalweg.Occupied):
                self.store.backup(to)
        self.assertEqual([file.name for file in full.iterdir()], ["mine"])
        with self.assertRaises(thalweg.NotAStore):
            thalweg.backup(full, self.at("empty"))
        with self.assertRaises(thalweg.NotClosed):
            thalweg.restore(self.path, self.at("empty"))
        with self.assertRaises(thalweg.Io):
            self.store.backup("/proc/thalweg")
        with thalweg.open(durability="memory") as memory, self.assertRaises(thalweg.InMemory):
            memory.backup(self.at("empty"))
        with self.assertRaises(TypeError):
            self.store.backup(7)
        self.store.backup(self.at("backup"))
        segment = sorted(self.at("backup").glob("segment-*"))[0]
        content = bytearray(segment.read_bytes())
        content[1000] ^= 1
        # Another file: this one is a link of the store's.
        segment.unlink()
        segment.write_bytes(content)
        with self.assertRaises(thalweg.Damaged) as raised:
            thalweg.restore(self.at("backup"), self.at("empty"))
        error = raised.exception
        self.assertEqual((error.file, error.log), (segment.name, None))
        self.assertLessEqual(error.begin & 0xFFFFFFFF, 1000)
        self.assertFalse(self.at("empty").exists(), "what was made for a copy that failed is left behind")
        self.store.close()
        with self.assertRaises(thalweg.Closed):
            self.store.backup(self.at("late"))
        self.assertFalse(self.at("late").exists())


class Parsed(StoreCase):
    def closed(self, count: int) -> list[tuple[int, bytes]]:
        entries = self.fill(count)
        self.store.close()
        return entries

    def test_every_piece_of_a_store_or_of_one_segment_comes_in_order(self):
        entries = self.closed(2000)
        pieces = list(thalweg.parse(self.path))
        of = lambda kind: [piece for piece in pieces if isinstance(piece, kind)]
        frames = of(thalweg.FramePiece)
        data = [frame for frame in frames if frame.kind == "data"]
        self.assertEqual([(frame.time, frame.payload) for frame in data], entries)
        self.assertEqual({(frame.name, frame.last) for frame in data}, {("log", True)})
        self.assertEqual([frame.name for frame in frames if frame.kind == "create"], ["log"])
        offsets = [sum(len(payload) for _, payload in entries[:number]) for number in (0, 1, 700)]
        self.assertEqual([data[number].offset for number in (0, 1, 700)], offsets)
        report = thalweg.verify(self.path)
        batches, segments = of(thalweg.BatchPiece), of(thalweg.SegmentPiece)
        self.assertEqual((len(batches), len(segments)), (report.batches, report.segments))
        self.assertEqual(sum(batch.bytes for batch in batches), report.bytes)
        self.assertTrue(all(batch.linked and batch.whole and len(batch.touched) >= 1 for batch in batches))
        self.assertEqual(len({segment.store_id for segment in segments}), 1)
        self.assertEqual(of(thalweg.Damage), [])
        self.assertIsInstance(pieces[-1], thalweg.EndPiece)
        for piece in pieces[:3]:
            self.assertIn("Piece", repr(piece))
        alone = list(thalweg.parse(self.path / segments[0].file))
        self.assertEqual(alone, pieces[: len(alone)])
        self.assertEqual(pieces[len(alone)], segments[1])

    def test_what_is_damaged_is_named_and_so_is_a_file_that_is_no_use(self):
        entries = self.closed(2000)
        segments = sorted(self.path.glob("segment-*"))
        content = bytearray(segments[0].read_bytes())
        content[content.index(b"entry 20;") + 3] ^= 1
        segments[0].write_bytes(content)
        pieces = list(thalweg.parse(self.path))
        damage = [piece for piece in pieces if isinstance(piece, thalweg.Damage)]
        self.assertEqual([span.file for span in damage], [segments[0].name])
        self.assertGreater(damage[0].resumes, damage[0].begin)
        shown = [piece.time for piece in pieces if isinstance(piece, thalweg.FramePiece) and piece.kind == "data"]
        self.assertEqual(shown, [time for time, _ in entries if time != 200])

        segments[1].unlink()
        segments[1].mkdir()
        parse, raised, pieces = thalweg.parse(self.path), 0, []
        while True:
            try:
                pieces.append(next(parse))
            except thalweg.Io:
                raised += 1
            except StopIteration:
                break
        self.assertEqual(raised, 1)
        names = [piece.file for piece in pieces if isinstance(piece, thalweg.SegmentPiece)]
        self.assertEqual(names, [segment.name for segment in segments if segment != segments[1]])

    def test_what_is_no_store_is_refused(self):
        empty = self.path.parent / "empty"
        empty.mkdir()
        (empty / "other").write_text("")
        with self.assertRaises(thalweg.NotAStore):
            thalweg.parse(empty)
        with self.assertRaises(thalweg.Io):
            thalweg.parse(self.path.parent / "nowhere")


class Counts(StoreCase):
    def test_batches_and_the_memory_of_indexes_are_counted(self):
        before = self.store.stats()
        self.fill(100)
        after = self.store.stats()
        self.assertEqual((after.batches - before.batches, after.entries - before.entries), (100, 100))
        self.assertGreater(after.batch_bytes - before.batch_bytes, 100 * 10)
        self.assertEqual(len(read(self.log.query(start=500))), 50)
        stats = self.store.stats()
        self.assertGreater(stats.index_bytes, 0)
        self.assertLessEqual(stats.index_bytes * 100, stats.segment_bytes)



class Interrupted(StoreCase):
    """A signal that is heard of once work on a store's files has begun."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(signal.signal, signal.SIGALRM, signal.getsignal(signal.SIGALRM))
        self.fill(2000)
        self.backup = self.path.parent / "backup"

    def meanwhile(self, handler: Callable[[], object], work: Callable[[], Any]) -> Any:
        """What work answers that begins with the signal noted and its handler not called yet: the interpreter handles signals
        between instructions, and there is none here. (To take a `Path` for a path is some.)
        """
        signal.signal(signal.SIGALRM, lambda *_: handler())
        note = partial(ctypes.pythonapi.PyErr_SetInterruptEx, int(signal.SIGALRM))
        return list(map(operator.call, (note, work)))[1]

    def is_interrupted(self, work: Callable[[], object], to: Path) -> None:
        """Does what writes a store to a directory. Its last file is not there when the handler is called, and nothing is after."""
        found = []

        def interrupt() -> None:
            found.append((to / "control").exists())
            raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, self.meanwhile, interrupt, work)
        self.assertEqual((found, to.exists()), ([False], False))

    def test_a_backup_and_a_restore_leave_nothing_behind(self):
        self.is_interrupted(partial(thalweg.backup, str(self.path), str(self.backup)), self.backup)
        self.is_interrupted(partial(self.store.backup, str(self.backup)), self.backup)
        self.assertFalse(self.store.closed)
        thalweg.backup(self.path, self.backup)
        again = self.path.parent / "again"
        self.is_interrupted(partial(thalweg.restore, str(self.backup), str(again)), again)
        self.assertEqual(thalweg.verify(self.backup).damage, [])

    def test_verification_handles_signals(self):
        self.store.close()
        segment = min(self.path.glob("segment-*"))

        def damage() -> None:
            with segment.open("r+b") as file:
                file.seek(SMALL // 2)
                file.write(b"damaged")

        self.assertEqual(thalweg.verify(self.path).damage, [])
        self.assertNotEqual(self.meanwhile(damage, partial(thalweg.verify, str(self.path))).damage, [])

        def interrupt() -> None:
            raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, self.meanwhile, interrupt, partial(thalweg.verify, str(self.path)))

    def test_a_handler_may_close_and_open_the_store_that_is_looked_at(self):
        found = []

        def close() -> None:
            self.store.close()
            with self.open() as again:
                found.append(((self.backup / "control").exists(), len(again.logs())))

        self.assertGreater(self.meanwhile(close, partial(self.store.backup, str(self.backup))).linked, 1)
        self.store = self.open()
        self.assertEqual(self.meanwhile(close, self.store.verify).damage, [])
        self.assertEqual(found, [(False, 1), (True, 1)])
        self.assertRaises(thalweg.Closed, self.store.verify)
        self.assertEqual(thalweg.verify(self.backup).damage, [])


if __name__ == "__main__":
    unittest.main()
