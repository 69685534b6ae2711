"""Bad input, other people's stores, and damage."""

import copy
import pickle
import shutil
import unittest

import thalweg
import thalweg.service
import thalweg.state
from support import StoreCase, python, read
from thalweg.faults import BY_FAULT, Fault, ServiceError
from thalweg.messagepack import DecodeError, EncodeError
from thalweg.rpc import RemoteError


def out_of_range(word, value, most=(1 << 64) - 1):
    """What is said of a number that an argument cannot be."""
    return f"^{word} is {value}: give a whole number from 0 to {most}$"


class Table(unittest.TestCase):
    def test_each_code_has_one_class_that_says_what_it_means(self):
        # What goes wrong with services has a table of its own, and servers of others say what they like.
        rows = set(thalweg.Error.__subclasses__()) - {ServiceError, RemoteError}
        self.assertEqual(set(thalweg.errors.BY_CODE.values()), rows)
        for code, row in thalweg.errors.BY_CODE.items():
            self.assertEqual(row.code, code)
            self.assertTrue(row.__doc__)
            self.assertIs(getattr(thalweg, row.__name__), row)
            self.assertIn(row.__name__, thalweg.__all__)

    def test_each_fault_has_one_class_that_says_what_it_means(self):
        self.assertEqual(set(BY_FAULT), set(Fault))
        for fault, row in BY_FAULT.items():
            error = row("here")
            self.assertIs(error.fault, fault)
            self.assertEqual((error.code, error.retry), (fault.name, fault.retry))
            self.assertEqual(str(error), "here" if fault is Fault.REFUSED else f"{fault.says}: here")
            self.assertIsInstance(error, thalweg.Error)
            self.assertEqual(str(pickle.loads(pickle.dumps(error))), str(error))
            self.assertIs(getattr(thalweg.service, row.__name__), row)

    def test_every_one_goes_to_another_process_and_back(self):
        made = {
            thalweg.Damaged: lambda: thalweg.Damaged("here", log=None, file="1.seg", begin=4, resumes=None),
            RemoteError: lambda: RemoteError(-32000, "refused", {"fault": "refused", "more": [1]}),
            DecodeError: lambda: DecodeError("EchoFields.count", "no integer", 7),
        }
        classes = [DecodeError, EncodeError, thalweg.Error]
        for row in classes:
            classes += row.__subclasses__()
        self.assertGreater(len(classes), 60)
        for row in classes:
            error = made.get(row, lambda row=row: row("here"))()
            for same in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
                with self.subTest(row):
                    self.assertEqual((type(same), str(same), vars(same)), (row, str(error), vars(error)))

    def test_everything_says_what_it_is_for(self):
        for name in thalweg.__all__:
            thing = getattr(thalweg, name)
            self.assertTrue(thing.__doc__, name)
            for attribute, value in vars(thing).items() if isinstance(thing, type) else ():
                if not attribute.startswith("_") and callable(value):
                    self.assertTrue(value.__doc__, f"{name}.{attribute}")


class Refusals(StoreCase):
    def test_two_cannot_write_one_store(self):
        with self.assertRaises(thalweg.Held) as raised:
            self.open()
        self.assertIn("process", str(raised.exception))
        code = "import sys, thalweg\ntry: thalweg.open(sys.argv[1])\nexcept thalweg.Held as held: print(held.code)"
        self.assertEqual(python(code, str(self.path)), "HELD\n")

    def test_a_directory_with_something_else_in_it_is_left_alone(self):
        other = self.path.parent / "other"
        other.mkdir()
        (other / "control").write_bytes(b"something else" * 400)
        with self.assertRaises(thalweg.NotAStore):
            thalweg.open(other)
        self.assertEqual((other / "control").read_bytes(), b"something else" * 400)
        with self.assertRaises(thalweg.NotAStore):
            thalweg.open(self.path.parent / "nothing", read_only=True)
        with self.assertRaises(thalweg.Io):
            thalweg.open("/proc/thalweg")

    def test_an_empty_path_is_called_empty(self):
        calls = [
            thalweg.open,
            lambda path: thalweg.open(path, read_only=True),
            thalweg.verify,
            thalweg.parse,
            self.store.backup,
            lambda path: thalweg.backup(path, self.path.parent / "to"),
            lambda path: thalweg.backup(self.path, path),
            lambda path: thalweg.restore(path, self.path.parent / "to"),
            lambda path: thalweg.restore(self.path, path),
        ]
        for call in calls:
            with self.assertRaisesRegex(ValueError, "^the path is empty$"):
                call("")
            for path in (b"bytes", b""):
                with self.assertRaisesRegex(TypeError, "^a path is a str or os.PathLike, not bytes"):
                    call(path)

    def test_names_that_no_log_can_have(self):
        for name in ("", ".", "..", "a/b", "a\\b", "a\nb", "a\0b", "x" * 70_000):
            with self.assertRaises(thalweg.BadName, msg=repr(name[:10])) as raised:
                self.store.log(name)
            self.assertIsInstance(raised.exception, ValueError)
        with self.assertRaises(TypeError):
            self.store.log(b"bytes")
        self.assertEqual(self.store.logs(), ["log"])
        self.assertEqual(self.store.log("übrig").name, "übrig")
        self.assertEqual(self.store.logs(), ["log", "übrig"])

    def test_words_that_make_no_sense(self):
        for words in ({"durability": "maybe"}, {"durability": "memory", "path": "x"}, {"path": None}):
            with self.assertRaises(ValueError):
                thalweg.open(**words)

    def test_sizes_that_no_segment_can_have_are_refused_with_their_bounds(self):
        path = self.path.parent / "other"
        says = r"^segment_bytes_max is \d+; it must be a multiple of 4096 from 8192 to 1073741824$"
        for size in (0, 8, 4096, 1_000_001, (1 << 30) + 4096, (1 << 32) - 1):
            with self.assertRaisesRegex(ValueError, says):
                thalweg.open(path, segment_bytes_max=size)
        for word in ("segment_bytes_min", "segment_bytes_max"):
            for size in (-1, 1 << 32):
                with self.assertRaisesRegex(ValueError, out_of_range(word, size, (1 << 32) - 1)):
                    thalweg.open(path, **{word: size})
            with self.assertRaises(TypeError):
                thalweg.open(path, **{word: 4096.0})
        self.assertFalse(path.exists())
        says = r"^segment_bytes_min is \d+; it must be a multiple of 4096 from 4096 to 65536, which is segment_bytes_max$"
        for size in (0, 8, 4097, 1 << 20):
            with self.assertRaisesRegex(ValueError, says):
                thalweg.open(path, segment_bytes_min=size, segment_bytes_max=65536)
        self.assertFalse(path.exists())
        # The first is no larger than the largest, unless somebody says so.
        with thalweg.open(path, segment_bytes_max=8192) as store:
            self.assertEqual(store.stats().segment_bytes, 8192)

        for size in (4096, 16384, 65536):
            with thalweg.open(durability="memory", segment_bytes_min=size, segment_bytes_max=65536) as store:
                self.assertEqual(store.stats().segment_bytes, size)

    def test_bounds_that_no_number_has_are_refused_by_name(self):
        path = self.path.parent / "other"
        for word in ("retain_us", "retain_bytes", "rotate_after_us"):
            for value in (-1, 1 << 64):
                with self.assertRaisesRegex(ValueError, out_of_range(word, value)):
                    thalweg.open(path, **{word: value})
        self.assertFalse(path.exists())
        for value in (-1, 1 << 64):
            with self.assertRaisesRegex(ValueError, out_of_range("limit", value)):
                self.log.scan(limit=value)
        for follower in (self.log.cursor(), self.store.new_logs()):
            with self.assertRaisesRegex(ValueError, "^timeout is -1000+: give seconds, 0 or more$"):
                follower.wait(-(10**400))
            with self.assertRaisesRegex(ValueError, "^timeout is -.very many digits.: give seconds, 0 or more$"):
                follower.wait(-(10**5000))

    def test_queries_that_make_no_sense(self):
        self.fill(3)
        reads = [self.log.query, self.log.scan, self.log.cursor, self.log.tail, self.log.cursor().seek]
        for read_it in reads:
            for words in ({"start": 1, "offset": 0}, {"start": 1, "after": 1}, {"exact": 1, "tail": True}):
                with self.assertRaisesRegex(ValueError, "begins in one place"):
                    read_it(**words)
            for word in ("start", "after", "exact", "offset", "end"):
                for value in (-1, 1 << 64):
                    with self.assertRaisesRegex(ValueError, out_of_range(word, value), msg=f"{read_it}"):
                        read_it(**{word: value})
                for value in (0.5, "1"):
                    with self.assertRaises(TypeError, msg=f"{read_it} {word} {value}"):
                        read_it(**{word: value})
            for words in ({"begin": 1}, {"tail": 1}, {"uncommitted": "yes"}):
                with self.assertRaises(TypeError, msg=f"{read_it} {words}"):
                    read_it(**words)
        self.assertEqual(read(self.log.query(after=(1 << 64) - 1)), [])

    def test_times_and_names_that_make_no_sense(self):
        calls = {
            lambda time: self.log.append(b"x", time): "time",
            lambda time: self.log.append_many([b"x"], time): "time",
            lambda time: self.log.append_timed([(time, b"x")]): "time",
            self.store.transaction: "time",
            lambda time: self.store.purge(before=time): "before",
        }
        for call, word in calls.items():
            for value in (-1, 1 << 64):
                with self.assertRaisesRegex(ValueError, out_of_range(word, value)):
                    call(value)
            for value in (0.5, "1"):
                with self.assertRaises(TypeError, msg=f"{value}"):
                    call(value)
        for call in (self.store.log, self.store.purge):
            with self.assertRaises(UnicodeEncodeError):
                call("a\ud800b")
        self.assertEqual(read(self.log.query()), [])

    def test_a_log_is_the_same_by_its_name(self):
        again = self.store.log("log")
        again.append(b"x", 1)
        self.assertEqual((again.id, again.name), (self.log.id, "log"))
        self.assertEqual(read(self.log.query()), [(1, b"x")])
        self.assertEqual(repr(again), '<thalweg.Log "log">')

    def test_an_id_is_not_given_out_again_in_the_same_place(self):
        self.store.close()
        shutil.rmtree(self.path)
        self.store = self.open()
        self.assertGreater(self.store.log("log").id, self.log.id)


class Neighbour(StoreCase):
    def test_another_process_reads_what_this_one_writes(self):
        entries = self.fill(3000)
        code = """
import sys, thalweg
with thalweg.open(sys.argv[1], read_only=True) as store:
    log = store.log("log")
    print(store.logs(), sum(1 for _ in log.query()), sum(len(batch) for batch in log.scan()))
    cursor = log.cursor(tail=True)
    print(cursor.next(), cursor.wait(0))
"""
        self.assertEqual(python(code, str(self.path)), "['log'] 3000 3000\nNone False\n")
        with thalweg.open(self.path, read_only=True) as store:
            log = store.log("log")
            self.assertEqual(read(log.query()), entries)
            cursor = log.cursor(tail=True)
            self.log.append(b"new", 7)
            self.assertTrue(cursor.wait(60))
            self.assertEqual(read(cursor), [(7, b"new")])

    def test_who_only_reads_cannot_write(self):
        with thalweg.open(self.path, read_only=True) as store:
            log = store.log("log")
            calls = [
                lambda: log.append(b"x"),
                lambda: log.append_many([b"x"]),
                store.transaction,
                store.flush,
                store.maintain,
            ]
            for call in calls:
                with self.assertRaises(thalweg.ReadOnly):
                    call()
            with self.assertRaises(thalweg.NoLog):
                store.log("nobody made it")
            self.assertEqual(store.logs(), ["log"])


class Recovered(StoreCase):
    def test_what_opening_found_is_told(self):
        new = self.store.recovery
        self.assertEqual((new.logs, new.checkpoint, new.batches, new.clean, new.discarded_bytes), (0, None, 0, False, 0))
        self.assertEqual((new.damage, new.unnamed), ([], None))
        self.fill(1500)
        self.store.close()
        self.store = self.open()
        found = self.store.recovery
        self.assertEqual((found.logs, found.clean, found.damage), (1, True, []))
        self.assertGreater(found.checkpoint, 0)
        self.store.close()
        sorted(self.path.glob("segment-*"))[1].unlink()
        with thalweg.open(self.path, read_only=True) as reader:
            self.assertIsNone(reader.recovery)
            spans = reader.damage()
        self.store = self.open()
        self.assertEqual(self.store.recovery.damage, spans)
        self.assertEqual([span.file for span in spans], ["segment-0000000002"])
        with thalweg.open(durability="memory") as memory:
            self.assertIsNone(memory.recovery)

    def test_purges_and_mapped_bytes_are_counted(self):
        self.fill(1500)
        before = self.store.stats()
        self.assertEqual((before.purges, before.mapped_bytes), (0, before.segment_bytes))
        self.store.purge(before=5_000)
        self.store.purge()
        after = self.store.stats()
        self.assertEqual(after.purges, 2)
        self.assertLess(after.mapped_bytes, before.mapped_bytes)


class Damaged(StoreCase):
    def test_damage_is_named_and_passed_over_only_on_demand(self):
        entries = self.fill(1500)
        self.store.close()
        segment = sorted(self.path.glob("segment-*"))[0]
        content = bytearray(segment.read_bytes())
        at = content.index(b"entry 20;") + 3
        content[at] ^= 1
        segment.write_bytes(content)
        report = thalweg.verify(self.path)
        self.assertEqual([damage.file for damage in report.damage], [segment.name])
        self.store = self.open()
        log = self.store.log("log")
        entries_back = log.query()
        seen = []
        with self.assertRaises(thalweg.Damaged) as raised:
            for entry in entries_back:
                seen.append((entry.time, bytes(entry)))
        error = raised.exception
        self.assertEqual((error.code, error.log, error.file), ("DAMAGED", "log", segment.name))
        self.assertLessEqual(error.begin & 0xFFFFFFFF, at)
        # It goes to another process and back.
        for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            self.assertEqual((type(same), str(same), vars(same)), (thalweg.Damaged, str(error), vars(error)))
        self.assertGreater(error.resumes & 0xFFFFFFFF, at)
        self.assertEqual(seen, entries[: len(seen)])
        self.assertLessEqual(len(seen), 20)
        self.assertEqual(list(entries_back), [], "it has ended")
        entries_back.resume()
        rest = read(entries_back)
        self.assertEqual(rest, entries[-len(rest) :])
        self.assertGreaterEqual(len(rest), 1400)
        # A scan gives what it gathered first.
        scan, gathered = log.scan(limit=7), 0
        with self.assertRaises(thalweg.Damaged):
            for batch in scan:
                gathered += len(batch)
        self.assertEqual(gathered, len(seen))
        scan.resume()
        self.assertEqual(sum(len(batch) for batch in scan), len(rest))

    def test_a_whole_store_has_none(self):
        self.fill(100)
        report = self.store.verify()
        self.assertEqual((report.damage, report.torn_bytes, self.store.damage()), ([], 0, []))
        self.assertEqual((report.checkpoints, report.end), (0, self.store.stats().staged_end))
        self.assertGreaterEqual(report.batches, 100)
        self.assertIn("batches", repr(report))
        stats = self.store.stats()
        self.assertEqual((stats.logs, stats.segments >= 1, stats == self.store.stats()), (1, True, True))
        self.assertIs(stats.failed, False)
