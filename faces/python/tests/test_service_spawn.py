"""Starting a service's program."""

import os
import signal
import stat
import sys
import unittest
from pathlib import Path

from service_support import FIELDS_FRAME, ROOT, Place
from thalweg.service import BadArgument, Closed, ConnectTimeout, NoServer, PermissionDenied, Spawned, SyncClient

SERVER = str(ROOT / "faces/python/echo/server.py")


class Starting(Place):
    def start(self, *arguments: str, **options) -> Spawned:
        options.setdefault("log", self.directory / "log")
        spawned = Spawned(sys.executable, self.endpoint(), arguments=arguments, ready_within=60, **options)
        self.addCleanup(spawned.stop)
        return spawned

    def serves(self) -> None:
        with SyncClient(self.endpoint()) as client:
            self.assertIn(b"EchoFieldsResponse", client.call(FIELDS_FRAME))

    def test_it_is_ready_when_it_answers_and_ends_when_it_is_asked_to(self):
        with self.start(SERVER, self.endpoint()) as spawned:
            self.assertIsNone(spawned.tend())
            os.kill(spawned.process, 0)
            self.serves()
        self.assertEqual((spawned.exit, spawned.process), (0, None))
        self.assertFalse(os.path.exists(self.endpoint()))
        with self.assertRaises(Closed):
            spawned.tend()

    def test_one_that_dies_at_once_is_quoted(self):
        log = self.directory / "log"
        with self.assertRaises(NoServer) as died:
            self.start("-c", "import sys; print('no such thing', file=sys.stderr); sys.exit(3)", log=log)
        self.assertIn("no such thing", str(died.exception))
        self.assertIn("3", str(died.exception))
        self.assertIn("no such thing", log.read_text())

    def test_one_that_never_answers_is_ended(self):
        with self.assertRaises(ConnectTimeout):
            Spawned(sys.executable, self.endpoint(), arguments=["-c", "import time; time.sleep(3600)"], ready_within=0.2)

    def test_one_that_is_wedged_is_killed(self):
        deaf = f"import signal, sys; sys.argv[0] = {SERVER!r}; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
        run = f"sys.path.insert(0, {str(Path(SERVER).parent)!r}); import asyncio, server; asyncio.run(server.main(sys.argv[1]))"
        spawned = self.start("-c", deaf + run, self.endpoint(), end_within=0.1)
        self.assertEqual(spawned.stop(), -signal.SIGKILL)

    def test_one_that_died_is_started_anew_so_many_times(self):
        spawned = self.start(SERVER, self.endpoint(), respawn=(1, 3600))
        os.kill(spawned.process, signal.SIGKILL)
        ended = None
        while ended is None:
            ended = spawned.tend()
        self.assertEqual(ended, -signal.SIGKILL)
        self.serves()
        os.kill(spawned.process, signal.SIGKILL)
        with self.assertRaises(NoServer):
            while True:
                spawned.tend()
        spawned.restart()
        self.serves()

    def test_what_is_no_program(self):
        with self.assertRaises(BadArgument):
            Spawned(self.directory / "missing", self.endpoint())
        plain = self.directory / "plain"
        plain.write_text("text")
        plain.chmod(stat.S_IRUSR)
        with self.assertRaises(PermissionDenied):
            Spawned(plain, self.endpoint())
        for name, wrong in (("respawn", (-1, 1.0)), ("respawn", (1, -1.0)), ("ready_within", -1), ("end_within", 10**400)):
            with self.subTest(name), self.assertRaisesRegex(BadArgument, f"{name} is -?1.*: give "):
                Spawned("/bin/true", self.endpoint(), **{name: wrong})
