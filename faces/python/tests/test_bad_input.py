"""What must not be done is refused, by name and whole: nothing of it is there, and the store is as good as before."""

import os
import shutil
import subprocess
import sys
import threading
import time

import thalweg
from support import StoreCase, python, read


def payloads(log) -> list[bytes]:
    return [bytes(entry) for entry in log.query()]


class Refused(StoreCase):
    def test_an_append_on_a_closing_store_says_so_and_opens_no_other(self):
        appended = []

        def work():
            try:
                while True:
                    self.log.append(b"x")
                    appended.append(1)
            except thalweg.Closed:
                pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        while len(appended) < 1000:
            pass
        self.store.close()
        [thread.join() for thread in threads]
        again = self.open()
        with self.assertRaises(thalweg.Closed):
            self.log.append(b"late")
        self.assertEqual(len(payloads(again.log("log"))), len(appended))
        again.close()

    def test_a_reader_whose_store_is_closed_says_so(self):
        self.fill(10)
        readers = [self.log.query(), self.log.scan(), self.log.cursor()]
        [next(iter(reader)) for reader in readers]
        self.store.close()
        for reader in readers:
            with self.assertRaises(thalweg.Closed):
                next(iter(reader))

    def test_a_log_that_nobody_made_is_unknown(self):
        with self.assertRaises(thalweg.NoLog):
            self.store.purge("other")
        with self.assertRaises(thalweg.NoLog):
            self.store.purge("other", destroy=True)
        with thalweg.open(self.path, read_only=True) as neighbour, self.assertRaises(thalweg.NoLog):
            neighbour.log("other")
        self.assertEqual(self.store.logs(), ["log"])

    def test_names_with_separators_or_control_characters_are_refused(self):
        for name in ("", ".", "..", "a/b", "/", "a\\b", "a\nb", "a\0b", "\x7f", "x" * 70_000):
            with self.assertRaises(thalweg.BadName, msg=repr(name[:10])):
                self.store.log(name)
        self.assertEqual(self.store.logs(), ["log"])

    def test_an_entry_over_the_limit_is_refused_alone_and_in_a_transaction(self):
        self.log.append(b"before")
        with self.assertRaises(thalweg.TooLarge):
            self.log.append(bytes(1 << 20))
        with self.assertRaises(thalweg.TooLarge), self.store.transaction() as transaction:
            transaction.append(self.log, b"small")
            transaction.append(self.log, bytes(1 << 20))
        self.log.append(b"behind")
        self.assertEqual(payloads(self.log), [b"before", b"behind"])

    def test_a_transaction_over_more_logs_than_a_commit_may_be_to_is_refused_whole(self):
        with thalweg.open(durability="memory") as store:
            logs = [store.log(f"log {number}") for number in range(65_536)]
            with self.assertRaisesRegex(thalweg.TooLarge, "65536 logs"), store.transaction() as transaction:
                for log in logs:
                    transaction.append(log, b"x")
            self.assertEqual(payloads(logs[0]), [])

    def test_no_log_is_destroyed_under_a_transaction_that_is_pending_on_it(self):
        transaction = self.store.transaction()
        transaction.append(self.log, b"x")
        for words in (["log"], []):
            with self.assertRaises(thalweg.Pending):
                self.store.purge(*words, destroy=True)
        transaction.commit()
        self.assertEqual(payloads(self.log), [b"x"])
        self.assertTrue(self.store.purge("log", destroy=True)[0].destroyed)

    def test_a_second_writer_is_refused_and_told_who_has_the_store_open(self):
        code = """
import sys, thalweg
try:
    thalweg.open(sys.argv[1])
except thalweg.Held as held:
    print(held)
"""
        self.assertRegex(python(code, str(self.path)), rf"\b{os.getpid()}\b")
        self.log.append(b"x")
        self.assertEqual(payloads(self.log), [b"x"])

    def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(self):
        self.store.close()
        control = bytearray((self.path / "control").read_bytes())
        control[8] = 99
        (self.path / "control").write_bytes(control)
        before = self.files()
        for read_only in (False, True):
            with self.assertRaises(thalweg.Newer):
                thalweg.open(self.path, durability="os", read_only=read_only)
        self.assertEqual(self.files(), before)

    def test_a_directory_that_may_only_be_read_is_refused_to_writers_left_as_it_is_and_read(self):
        self.log.append(b"kept")
        self.store.close()
        nobody = 65534
        places = [*self.path.iterdir(), self.path]
        for place in places:
            if os.getuid() == 0:
                shutil.chown(place, nobody, nobody)
            place.chmod(0o555 if place == self.path else 0o444)
        self.path.parent.chmod(0o755)
        before = self.files()
        code = f"""
import os, sys, thalweg
if os.getuid() == 0:
    os.seteuid({nobody})
for path in (sys.argv[1], sys.argv[1] + "/new"):
    try:
        thalweg.open(path, durability="os")
    except thalweg.Io as refused:
        print(refused.code)
with thalweg.open(sys.argv[1], read_only=True) as store:
    print([bytes(entry) for entry in store.log("log").query()])
"""
        said = python(code, str(self.path))
        self.path.chmod(0o755)
        self.assertEqual(said, "IO\nIO\n[b'kept']\n")
        self.assertEqual(self.files(), before)

    def test_who_may_not_write_anything_reads_waits_and_hears_of_what_comes(self):
        self.log.append(b"there")
        for place in [*self.path.iterdir(), self.path, self.path.parent]:
            place.chmod(0o755)
        if os.getuid() != 0:
            (self.path / "signal").chmod(0o444)
        code = """
import asyncio, os, sys, thalweg
if os.getuid() == 0:
    os.seteuid(65534)
with thalweg.open(sys.argv[1], read_only=True) as store:
    log = store.log("log")
    cursor = log.cursor()
    print([bytes(entry) for entry in cursor], cursor.wait(0.02), flush=True)
    print(cursor.wait(), bytes(next(cursor)), flush=True)

    async def follow():
        entries = log.tail()
        print(bytes(await anext(entries)), flush=True)
        await entries.aclose()

    asyncio.run(follow())
"""
        reader = subprocess.Popen([sys.executable, "-c", code, self.path], stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (reader.kill(), reader.communicate()))
        self.assertEqual(reader.stdout.readline(), "[b'there'] False\n")
        self.log.append(b"comes")
        self.assertEqual(reader.stdout.readline(), "True b'comes'\n")
        # A tail yields what is appended from then on.
        for _ in range(6000):
            if reader.poll() is not None:
                break
            self.log.append(b"later")
            time.sleep(0.01)
        self.assertEqual((reader.stdout.read(), reader.returncode), ("b'later'\n", 0))

    def files(self) -> dict[str, bytes]:
        return {place.name: place.read_bytes() for place in self.path.iterdir()}


class Disk(StoreCase):
    def test_one_that_fills_in_the_middle_of_a_transaction_leaves_nothing_of_it(self):
        code = """
import resource, sys, thalweg
log, other = (lambda store: (store.log("a"), store.log("b")))(store := thalweg.open(
    sys.argv[1], durability=sys.argv[2], segment_bytes_max=16 << 20))
store.rotate()
log.append(b"kept")
# No file may be larger than this, for now; the segment that is being written is there already.
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))

def large():
    with store.transaction() as transaction:
        for to in (log, other, log):
            transaction.append(to, bytes(4 << 20))

def lengths():
    return [[len(entry.data) for entry in log.query()] for log in (log, other)]

for _ in range(2):
    try:
        large()
    except thalweg.Full as full:
        print(full.code, lengths(), store.stats().failures > 0)
log.append(b"small")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
large()
print(lengths())
store.close()
with thalweg.open(sys.argv[1], durability=sys.argv[2]) as store:
    log, other = store.log("a"), store.log("b")
    print(lengths())
"""
        large = 4 << 20
        taken = f"{[[4, 5, large, large], [large]]}\n"
        for durability in ("os", "sync"):
            said = python(code, str(self.path.parent / durability), durability)
            self.assertEqual(said, "FULL [[4], []] True\n" * 2 + taken * 2)

    def test_a_sync_that_fails_fails_what_waits_for_it_until_the_store_is_opened_again(self):
        code = """
import os, sys, thalweg
store = thalweg.open(sys.argv[1])
log, other = store.log("a"), store.log("b")
log.append(b"kept")
# In the place of the segments that are open, something that cannot be synced.
null = os.open("/dev/null", os.O_RDWR)
for name in os.listdir("/proc/self/fd"):
    try:
        target = os.readlink("/proc/self/fd/" + name)
    except OSError:
        continue
    if os.path.basename(target).startswith("segment-"):
        os.dup2(null, int(name))

def refused(call):
    try:
        call()
    except thalweg.Failed as failed:
        print(failed.code, [bytes(entry) for entry in log.query()], list(other.query()))

def both():
    with store.transaction() as transaction:
        transaction.append(log, b"x")
        transaction.append(other, b"y")

refused(both)
refused(lambda: log.append(b"more"))
try:
    store.close()
except thalweg.Io as failed:
    print(failed.code)
with thalweg.open(sys.argv[1]) as store:
    log, other = store.log("a"), store.log("b")
    found = [bytes(entry) for entry in log.query()]
    # Whether it lasts is unknown, but not by halves.
    print(found[0], (b"x" in found) == (len(list(other.query())) == 1))
    log.append(b"after")
    print(bytes(list(log.query())[-1]))
"""
        said = python(code, str(self.path.parent / "failing"))
        self.assertEqual(said, "FAILED [b'kept'] []\n" * 2 + "IO\nb'kept' True\nb'after'\n")


class Freed(StoreCase):
    def test_a_purge_gives_files_back_by_the_time_it_answers(self):
        self.fill(5000)
        before = self.store.stats()
        self.assertGreater(before.segments, 2)
        self.store.purge("log", before=45_000)
        partly = self.store.stats()
        self.assertTrue(0 < partly.freed_bytes and partly.segment_bytes < before.segment_bytes)
        self.assertTrue(0 < partly.live_bytes < before.live_bytes)
        self.store.purge()
        after = self.store.stats()
        self.assertEqual((after.segments, after.live_bytes), (1, 0))
        files = [place for place in self.path.iterdir() if place.name.startswith("segment-")]
        self.assertEqual(sum(place.stat().st_size for place in files), after.segment_bytes)
        entries = self.fill(5)
        self.assertEqual(read(self.log.query()), entries)
