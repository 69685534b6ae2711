"""A server in Python under `thalweg fork-server`: copied while it serves, moved, ended, let go."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path

from thalweg import fork_server
from thalweg.rpc import Schema
from thalweg.service import Refused, SyncClient

TESTS = Path(__file__).parent
FORKS = (TESTS.parents[2] / "schemas/forks.jsonc").read_text()
PATIENCE = 60


def until(what: str, wanted) -> None:
    since = time.monotonic()
    while not wanted():
        if time.monotonic() - since > PATIENCE:
            raise TimeoutError(what)
        time.sleep(0.005)


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


class Connection:
    """To a server, by lines."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self.lines = self.socket.makefile("rb")

    def ask(self, line: object) -> list[int]:
        self.socket.sendall(f"{line}\n".encode())
        return [int(word) for word in self.lines.readline().split()]

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


class Supervised(unittest.TestCase):
    words = "refuse"

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        control = Path(directory.name) / "forks.sock"
        command = [os.environ["THALWEG_PROGRAM"], "fork-server", "--control", str(control), "--patience-ms", "60000"]
        command += ["--", sys.executable, str(TESTS / "forked_sum.py"), self.words]
        self.supervisor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        words = self.supervisor.stdout.readline().split()
        self.address = words[words.index("at") + 1].rstrip(",")
        self.schema = Schema(FORKS, "forks.jsonc")
        self.control = SyncClient(control, schema=self.schema.hash)
        self.addCleanup(self.control.close)

    def end(self) -> None:
        self.supervisor.terminate()
        self.supervisor.wait()
        self.supervisor.stdout.close()

    def tell(self, method: str, *params: object) -> dict:
        frame = self.control.call(self.schema.request(method, json.dumps(params)))
        return json.loads(self.schema.result(method, frame))

    def connect(self, address: str) -> Connection:
        connection = Connection(address)
        self.addCleanup(connection.close)
        return connection


class Forgetting(unittest.TestCase):
    def test_what_had_not_begun_when_it_was_copied_is_forgotten_without_a_word(self) -> None:
        async def answer() -> None:
            pass

        loop = asyncio.new_event_loop()
        loop.create_task(answer())
        left = [loop]
        del loop
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            fork_server._forget(left, None)
        self.assertEqual([str(warning.message) for warning in said], [])


class Forking(Supervised):
    def test_a_copy_goes_its_own_ways(self) -> None:
        parent = self.connect(self.address)
        process = parent.ask(5)[1]
        made = self.tell("Fork", "1", None)
        copy = self.connect(made["address"])
        self.assertEqual(copy.ask(10), [15, made["process"]])
        # The connections that there were are still the parent's, and only the parent's.
        self.assertEqual(parent.ask(1), [6, process])
        again = self.connect(self.tell("Fork", made["server"], None)["address"])
        self.tell("Shutdown", "1")
        self.assertEqual(parent.lines.readline(), b"")
        self.assertEqual(copy.ask(0)[0], 15)
        self.assertEqual(again.ask(1)[0], 16)
        self.assertFalse(is_there(process))

    def test_many_generations_use_nothing_up(self) -> None:
        server, address, used = "1", self.address, []
        for _ in range(12):
            connection = self.connect(address)
            connection.ask(1)
            used.append(connection.ask("descriptors"))
            made = self.tell("Fork", server, None)
            self.tell("Shutdown", server)
            server, address = made["server"], made["address"]
        self.assertEqual(self.connect(address).ask(0)[0], 12)
        # The first has what it was started with; from then on a copy has as many as the one before.
        self.assertEqual(len({tuple(counts) for counts in used[2:]}), 1, used)

    def test_a_server_moves_and_what_cannot_be_is_refused(self) -> None:
        connection = self.connect(self.address)
        connection.ask(1)
        moved = self.tell("Rebind", "1", "127.0.0.1:0")["address"]
        self.assertNotEqual(moved, self.address)
        self.assertEqual(self.connect(moved).ask(1)[0], 2)
        with self.assertRaises(OSError):
            Connection(self.address)
        # What begins to serve there fails: it serves where it did.
        with self.assertRaisesRegex(Refused, "^not_moved: .*not there"):
            self.tell("Rebind", "1", "127.0.0.2:0")
        self.assertEqual(self.connect(moved).ask(1)[0], 3)
        # Of other threads there would be nothing in a copy but their locks.
        connection = self.connect(moved)
        connection.ask("thread")
        with self.assertRaisesRegex(Refused, "^not_forked: .*2 threads"):
            self.tell("Fork", "1", None)
        self.assertEqual(connection.ask(1)[0], 4)

    def test_a_server_that_is_out_of_descriptors_refuses_and_goes_on(self) -> None:
        connection = self.connect(self.address)
        connection.ask(5)
        for room in (1, 0):
            connection.ask(f"full {room}")
            with self.assertRaisesRegex(Refused, "not_forked: fork: "):
                self.tell("Fork", "1", None)
            self.assertEqual(connection.ask(0)[0], 5)
        with self.assertRaisesRegex(Refused, "not_moved: listen: out of descriptors"):
            self.tell("Rebind", "1", "127.0.0.3:0")
        self.assertEqual(connection.ask(1)[0], 6)

    def test_a_program_that_ignores_the_ends_of_its_children_is_copied(self) -> None:
        parent = self.connect(self.address)
        parent.ask(5)
        parent.ask("ignore")
        copy = self.connect(self.tell("Fork", "1", None)["address"])
        self.assertEqual((parent.ask("ignores")[0], copy.ask("ignores")[0]), (6, 6))

    def test_whoever_is_emancipated_outlives_its_supervisor_and_nobody_else(self) -> None:
        free = self.tell("Fork", "1", None)
        process = self.connect(self.address).ask(0)[1]
        self.tell("Emancipate", free["server"])
        connection = self.connect(free["address"])
        self.supervisor.kill()
        self.supervisor.wait()
        try:
            until("the server is gone", lambda: not is_there(process))
            self.assertEqual(connection.ask(7), [7, free["process"]])
            self.assertEqual(self.connect(free["address"]).ask(1)[0], 8)
        finally:
            os.kill(free["process"], signal.SIGKILL)

    def test_a_server_without_a_supervisor_says_what_is_missing(self) -> None:
        command = [sys.executable, str(TESTS / "forked_sum.py")]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("thalweg fork-server", ended.stderr)


class Ending(Supervised):
    words = "patient"

    def test_what_was_begun_is_answered(self) -> None:
        connection = self.connect(self.address)
        connection.ask(5)
        _, process = connection.ask(1)
        self.assertEqual(connection.ask("late"), [0])
        self.tell("Shutdown", "1")
        self.assertEqual(connection.lines.read(), b"6 %d\n" % process)

    def test_what_was_begun_where_it_is_no_longer_is_answered(self) -> None:
        connection = self.connect(self.address)
        _, process = connection.ask(5)
        self.assertEqual(connection.ask("moved"), [0])
        moved = self.connect(self.tell("Rebind", "1", "127.0.0.1:0")["address"])
        moved.ask(2)
        moved.close()
        self.tell("Shutdown", "1")
        self.assertEqual(connection.lines.read(), b"7 %d\n" % process)

    def test_a_server_that_is_signalled_answers_what_was_begun(self) -> None:
        copy = self.tell("Fork", "1", None)["address"]
        for address, number in ((self.address, signal.SIGTERM), (copy, signal.SIGINT)):
            connection = self.connect(address)
            _, process = connection.ask(6)
            self.assertEqual(connection.ask("late"), [0])
            os.kill(process, number)
            self.assertEqual(connection.lines.read(), b"6 %d\n" % process)
            until("the server is gone", lambda process=process: not is_there(process))


class Leaving(Supervised):
    words = "leaving"

    def test_a_copy_leaves_to_its_parent_what_is_to_be_done_behind_serving(self) -> None:
        process = self.connect(self.address).ask(1)[1]
        kept = Path(tempfile.gettempdir()) / f"thalweg-forked-sum-{process}"
        self.addCleanup(kept.unlink, missing_ok=True)
        self.assertTrue(kept.exists())
        copy = self.tell("Fork", "1", None)
        failing = self.connect(self.tell("Fork", "1", None)["address"])
        self.tell("Shutdown", copy["server"])
        self.assertTrue(kept.exists())
        # What ends by an exception leaves it, too.
        process = failing.ask(0)[1]
        failing.ask("fail")
        until("the copy is gone", lambda: not is_there(process))
        self.assertTrue(kept.exists())
        self.tell("Shutdown", "1")
        self.assertFalse(kept.exists())
