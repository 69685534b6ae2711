"""The end of a store: closed, closed by somebody else, forked, held."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings

import thalweg
from support import StoreCase, python, read


class Close(StoreCase):
    def test_everything_says_that_it_is_closed(self):
        self.fill(10)
        entries, scan, cursor = self.log.query(), self.log.scan(), self.log.cursor()
        transaction = self.store.transaction()
        next(entries), cursor.next()
        self.assertFalse(self.store.closed)
        self.store.close()
        self.assertTrue(self.store.closed)
        calls = {
            "log": lambda: self.store.log("log"),
            "logs": self.store.logs,
            "transaction": self.store.transaction,
            "stats": self.store.stats,
            "verify": self.store.verify,
            "flush": self.store.flush,
            "maintain": self.store.maintain,
            "damage": self.store.damage,
            "append": lambda: self.log.append(b"x"),
            "append_many": lambda: self.log.append_many([b"x"]),
            "query": self.log.query,
            "scan": self.log.scan,
            "cursor": self.log.cursor,
            "next entry": lambda: next(entries),
            "next batch": lambda: next(scan),
            "next of a cursor": cursor.next,
            "seek": lambda: cursor.seek(start=1),
            "find": lambda: cursor.find(1),
            "wait": lambda: cursor.wait(1),
            "commit": transaction.commit,
            "transaction append": lambda: transaction.append(self.log, b"x"),
        }
        for name, call in calls.items():
            with self.subTest(name), self.assertRaises(thalweg.Closed) as raised:
                call()
            self.assertEqual(raised.exception.code, "CLOSED")
        self.store.close()

    def test_the_directory_is_free_at_once_whoever_holds_what(self):
        for durability in ("os", "sync"):
            self.durability = durability
            entries = self.fill(100)
            held = [self.log.query(), self.log.scan(), self.log.cursor(), self.store.transaction(), self.log]
            next(held[0]), next(held[1]), held[2].next(), held[3].append(self.log, b"never")
            view = next(self.log.query()).data
            self.store.close()
            store = self.open()
            self.assertEqual(read(store.log("log").query())[-100:], entries)
            self.assertEqual(bytes(view), b"entry 0;")
            self.assertEqual(len(held), 5)
            self.store, self.log = store, store.log("log")

    def test_nobody_sits_down_in_a_store_that_is_being_closed(self):
        for number in range(2_000):
            self.store.log(f"log {number}")
        for _ in range(20):
            got = []

            def ask() -> None:
                try:
                    got.append(self.store.new_logs(existing=True))
                except BaseException as error:
                    got.append(error)

            asks = threading.Thread(target=ask)
            asks.start()
            self.store.close()
            asks.join()
            self.assertIsInstance(got[0], (thalweg.NewLogs, thalweg.Closed))
            # At once, whatever handles are held.
            self.store = self.open()

    def test_a_store_stays_where_it_was_opened(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.path.parent)
        with thalweg.open("relative", durability="os", segment_bytes_max=64 << 10) as store:
            os.chdir("/")
            for number in range(10):
                store.log("log").append(b"%d" % number)
                store.rotate()
            self.assertEqual(store.verify().damage, [])
        self.path = self.path.parent / "relative"
        with self.open() as store:
            self.assertEqual([bytes(entry) for entry in store.log("log").query()], [b"%d" % number for number in range(10)])

    def test_a_store_that_was_moved_stays_in_its_directory(self):
        copy = self.path.with_name("copy")
        self.store.backup(copy)
        self.path.rename(self.path.with_name("elsewhere"))
        copy.rename(self.path)
        others = sorted(os.listdir(self.path))
        self.store.log("late").append(b"entry")
        self.store.rotate()
        self.assertEqual(self.store.verify().logs, 2)
        self.store.close()
        self.assertEqual(sorted(os.listdir(self.path)), others)
        with self.open() as store:
            self.assertEqual(store.logs(), ["log"])

    def test_those_who_wait_are_woken(self):
        raised = []

        def wait():
            cursor = self.log.cursor()
            cursor.next()
            begun.release()
            try:
                cursor.wait()
            except thalweg.Closed as closed:
                raised.append(closed)

        begun = threading.Semaphore(0)
        threads = [threading.Thread(target=wait) for _ in range(4)]
        [thread.start() for thread in threads]
        [begun.acquire() for _ in threads]
        self.store.close()
        # Nobody who waited has the directory any more.
        self.open().close()
        [thread.join(60) for thread in threads]
        self.assertEqual(len(raised), 4)

    def test_who_closes_what_another_is_closing_waits_until_it_is_closed(self):
        for _ in range(5):
            for number in range(200):
                self.store.log(f"log {number}").append(b"x" * 5000)
            first = threading.Thread(target=self.store.close)
            first.start()
            while not self.store.closed:
                pass
            self.store.close()
            self.store = self.open()
            first.join()

    def test_garbage_that_closes_it_while_a_refusal_is_made_waits_for_nobody(self):
        said = python(
            """if True:
                import gc, sys, thalweg

                class Closes:
                    def __init__(self, store):
                        self.itself, self.store = self, store

                    def __del__(self):
                        self.store.close()

                def over(store):
                    transaction = store.transaction()
                    transaction.abort()
                    return transaction.commit

                own, attached = {"durability": "os"}, {"read_only": True}
                refusals = (own, lambda store: lambda: store.log("")), (own, over), (attached, lambda store: store.flush)
                for words, refusal in refusals:
                    # In Python 3.11 it is collected while an object is made: by each of them in its turn.
                    for threshold in range(1, 30):
                        store = thalweg.open(sys.argv[1], **words)
                        refused = refusal(store)
                        gc.collect()
                        Closes(store)
                        gc.set_threshold(threshold)
                        try:
                            refused()
                        except thalweg.Error as error:
                            said = error.code
                        gc.set_threshold(700)
                        store.close()
                    print(said)
            """,
            str(self.path.with_name("another")),
        )
        self.assertEqual(said.split(), ["BAD_NAME", "TRANSACTION_OVER", "READ_ONLY"])

    def test_threads_that_read_and_append_meanwhile_are_told(self):
        self.fill(1000)
        outcomes = []

        def work(task):
            try:
                while True:
                    task()
            except thalweg.Closed:
                outcomes.append("closed")

        tasks = [
            lambda: self.log.append(b"x"),
            lambda: self.log.append_many([b"x"] * 100),
            lambda: list(self.log.query(offset=100)),
            lambda: [len(batch) for batch in self.log.scan(limit=100)],
        ]
        threads = [threading.Thread(target=work, args=(task,)) for task in tasks]
        [thread.start() for thread in threads]
        while len(list(self.log.query())) < 2000:
            pass
        self.store.close()
        [thread.join(60) for thread in threads]
        self.assertEqual(outcomes, ["closed"] * 4)
        store = self.open()
        self.assertEqual(store.verify().damage, [])
        store.close()

    def test_a_store_is_closed_behind_its_block(self):
        self.store.close()
        with self.assertRaises(LookupError), self.open() as store:
            store.log("log").append(b"kept")
            raise LookupError
        self.assertTrue(store.closed)
        with self.open() as store:
            self.assertEqual([bytes(entry) for entry in store.log("log").query()], [b"kept"])

    def test_others_run_while_one_that_was_never_closed_ends(self):
        self.store.close()
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        # Nobody is made to give the interpreter's lock away.
        sys.setswitchinterval(1000)
        ticks, over = [], threading.Event()

        def tick():
            while not over.is_set():
                ticks.append(None)
                time.sleep(0)

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            for number in range(200):
                stores = [thalweg.open(self.path / str(number))]
                stores[0].log("log").append(bytes(100_000), wait=False)
                before = len(ticks)
                stores.clear()
                if len(ticks) > before:
                    break
            else:
                self.fail("no other thread ran")
        finally:
            over.set()
            thread.join()

    def test_one_that_was_never_closed_keeps_what_was_appended(self):
        self.store.close()
        code = """
import os, sys, thalweg
store = thalweg.open(sys.argv[1], durability="os")
store.log("log").append(b"kept")
if sys.argv[2] == "crash":
    os.kill(os.getpid(), 9)
"""
        python(code, str(self.path), "leave")
        with self.assertRaises(AssertionError):
            python(code, str(self.path), "crash")
        with self.open() as store:
            self.assertEqual([bytes(entry) for entry in store.log("log").query()], [b"kept", b"kept"])


class Fork(StoreCase):
    durability = "sync"

    def in_child(self, check) -> None:
        """Forks, has the child do something, and expects it to leave the way programs do."""
        with warnings.catch_warnings():
            # The committer is a thread: that nothing of it is used in the child is what is tested here.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                check()
                os._exit(0)
            except BaseException as error:
                print(f"in the child: {error!r}", flush=True)
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_what_was_opened_before_a_fork_says_so_in_the_child(self):
        self.fill(5)
        entries, cursor, transaction = self.log.query(), self.log.cursor(), self.store.transaction()
        held = next(entries)
        calls = [
            lambda: self.log.append(b"x"),
            self.log.query,
            lambda: next(entries),
            cursor.next,
            lambda: cursor.wait(1),
            transaction.commit,
            self.store.logs,
        ]

        def check():
            for call in calls:
                try:
                    call()
                except thalweg.Forked as error:
                    assert error.code == "FORKED"
                else:
                    raise AssertionError(call)
            # What was read is there all the same.
            assert bytes(held) == b"entry 0;"
            self.store.close()
            with thalweg.open(self.path, read_only=True) as store:
                assert len(list(store.log("log").query())) == 5

        self.in_child(check)
        self.log.append(b"the parent goes on", 1000)
        self.assertEqual(len(list(self.log.query())), 6)

    def test_who_reads_along_is_told_that_another_store_is_at_the_path_and_reads_nothing_of_it(self):
        self.fill(2000)
        reader = thalweg.open(self.path, read_only=True)
        self.addCleanup(reader.close)
        log = reader.log("log")
        cursor, held = log.cursor(start=19_900), list(log.query(start=19_900))
        self.assertEqual(len(list(cursor)), 10)
        self.fill(2000, first=2000)
        self.store.close()
        shutil.rmtree(self.path)
        reads = (lambda: list(log.query(start=19_900)), lambda: list(log.scan()), cursor.next, lambda: reader.log("log"))
        for read in reads:
            with self.assertRaisesRegex(thalweg.Io, "the store was moved or removed"):
                read()
        self.store = self.open()
        self.log = self.store.log("log")
        self.fill(5000)
        for read in reads:
            with self.assertRaisesRegex(thalweg.Io, "another store is at .* by now"):
                read()
        self.assertEqual([entry.time for entry in held], list(range(19_900, 20_000, 10)))

    def test_a_child_that_ends_leaves_the_parents_store_alone(self):
        code = """
import os, sys, warnings, thalweg
warnings.simplefilter("ignore")
store = thalweg.open(sys.argv[1], durability="sync")
log = store.log("forked")
entries = log.query()
transaction = store.transaction()
transaction.append(log, b"never")
child = os.fork()
if child == 0:
    del entries, transaction, log, store
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
log.append(b"kept")
try:
    thalweg.open(sys.argv[1])
except thalweg.Held:
    print(len(list(log.query())))
"""
        self.store.close()
        self.assertEqual(python(code, str(self.path)), "1\n")
        with self.open() as store:
            self.assertEqual([bytes(entry) for entry in store.log("forked").query()], [b"kept"])

    def test_a_child_that_lives_on_does_not_hold_what_its_parent_has_closed_or_died_with(self):
        code = """
import os, signal, sys, warnings, thalweg
warnings.simplefilter("ignore")
store = thalweg.open(sys.argv[1], durability="sync")
store.log("forked").append(b"kept")
child = os.fork()
if child == 0:
    os.write(1, b"%d\\n" % os.getpid())
    signal.pause()
    os._exit(0)
store.close()
with thalweg.open(sys.argv[1]) as store:
    assert len(list(store.log("forked").query())) == 1
store = thalweg.open(sys.argv[1])
second = os.fork()
if second == 0:
    os.write(1, b"%d\\n" % os.getpid())
    signal.pause()
    os._exit(0)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""
        self.store.close()
        command = [sys.executable, "-c", code, str(self.path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
            children = [int(parent.stdout.readline()) for _ in range(2)]
            with self.assertRaises(thalweg.Held):
                thalweg.open(self.path)
            parent.stdin.write("\n")
            parent.stdin.flush()
            self.assertEqual(parent.wait(10), -signal.SIGKILL)
            with self.open() as store:
                self.assertEqual([bytes(entry) for entry in store.log("forked").query()], [b"kept"])
            # They were there all the time.
            for child in children:
                os.kill(child, signal.SIGKILL)
