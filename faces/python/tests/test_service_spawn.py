"""Starting a service's program."""

import asyncio
import os
import signal
import stat
import sys
import unittest
import warnings
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

    def test_one_whose_end_nobody_knows_has_ended_all_the_same(self):
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGCHLD, before)
        spawned = Spawned("cat", "-")
        self.assertEqual((spawned.stop(), spawned.exit), (255, 255))

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

    def test_it_is_connected_to_over_its_endpoint_as_often_as_asked(self):
        with self.start(SERVER, self.endpoint()) as spawned:
            for _ in range(2):
                with spawned.connect(shared=True) as client:
                    self.assertIn(b"EchoFieldsResponse", client.call(FIELDS_FRAME))

            async def call() -> bytes:
                async with await spawned.connect_async() as client:
                    return await client.call(FIELDS_FRAME)

            self.assertIn(b"EchoFieldsResponse", asyncio.run(call()))
        self.assertRaises(Closed, spawned.connect)

    def test_it_is_spoken_to_over_its_standard_input_and_output_once(self):
        for pipes in (False, True):
            with self.subTest(pipes=pipes), Spawned("cat", "-", plain=True, pipes=pipes) as spawned:
                with spawned.connect(plain=True) as client:
                    self.assertEqual(client.call(b"said"), b"said")
                    self.assertRaisesRegex(NoServer, "connected already", spawned.connect, plain=True)
                spawned.restart()

                async def call(spawned=spawned) -> bytes:
                    async with await spawned.connect_async(plain=True) as client:
                        return await client.call(b"again")

                self.assertEqual(asyncio.run(call()), b"again")

    def test_one_that_nothing_refers_to_any_more_is_ended_and_said(self):
        spawned = Spawned(sys.executable, self.endpoint(), arguments=[SERVER, self.endpoint()], ready_within=60)
        process = spawned.process
        with self.assertWarnsRegex(ResourceWarning, "unclosed program"):
            del spawned
        self.assertRaises(ProcessLookupError, os.kill, process, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Spawned(sys.executable, self.endpoint(), arguments=[SERVER, self.endpoint()], ready_within=60).stop()

    def test_it_is_ended_where_the_warning_is_an_error_too(self):
        spawned = Spawned(sys.executable, self.endpoint(), arguments=[SERVER, self.endpoint()], ready_within=60)
        process = spawned.process
        raised = []
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda unraisable: raised.append(unraisable.exc_type)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del spawned
        self.assertEqual(raised, [ResourceWarning])
        self.assertRaises(ProcessLookupError, os.kill, process, 0)

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


class Heard(Exception):
    """What the handler of a signal raises."""


class Hearing(Place):
    """Whatever waits for a program hears signals: each test would otherwise take as long as it lets the program take."""

    PATIENCE = 60.0

    def setUp(self) -> None:
        super().setUp()

        def heard(*_):
            raise Heard

        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, heard))
        self.pid = self.directory / "pid"

    def mute(self) -> list[str]:
        """Writes down its number, signals its parent, and answers nobody."""
        said = f"import os, signal, time; open({str(self.pid)!r}, 'w').write(str(os.getpid())); "
        return ["-c", said + "os.kill(os.getppid(), signal.SIGUSR1); time.sleep(3600)"]

    def deaf(self) -> list[str]:
        """Serves, signals its parent when it is asked to end, and ends by another signal."""
        told = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])\n"
        told += "def tell():\n    signal.sigwait([signal.SIGTERM])\n    os.kill(os.getppid(), signal.SIGUSR1)\n"
        told += "    signal.sigwait([signal.SIGUSR2])\n    os._exit(7)\n"
        told += "threading.Thread(target=tell, daemon=True).start()\n"
        run = f"sys.path.insert(0, {str(Path(SERVER).parent)!r})\nimport asyncio, server\nasyncio.run(server.main(sys.argv[1]))"
        return ["-c", "import os, signal, sys, threading\n" + told + run, self.endpoint()]

    def start(self, arguments: list[str], **options) -> Spawned:
        options = {"ready_within": self.PATIENCE, "end_within": self.PATIENCE, **options}
        return Spawned(sys.executable, self.endpoint(), arguments=arguments, log=self.directory / "log", **options)

    def assert_gone(self) -> None:
        self.assertRaises(ProcessLookupError, os.kill, int(self.pid.read_text()), 0)

    def test_a_start_is_over_when_a_handler_raises_and_the_program_is_gone(self):
        with self.assertRaises(Heard):
            self.start(self.mute())
        self.assert_gone()

    def test_so_is_a_stop(self):
        spawned = self.start(self.deaf())
        self.assertRaises(Heard, spawned.stop)
        self.assertEqual((spawned.exit, spawned.process, spawned.stop()), (-signal.SIGKILL, None, -signal.SIGKILL))

    def test_so_is_a_restart_and_none_runs_then(self):
        spawned = self.start(self.deaf())
        self.assertRaises(Heard, spawned.restart)
        self.assertEqual((spawned.exit, spawned.process), (-signal.SIGKILL, None))

    def test_a_handler_is_refused_what_is_waited_for(self):
        spawned = self.start(self.deaf())
        signal.signal(signal.SIGUSR1, lambda *_: spawned.stop())
        self.assertRaisesRegex(RuntimeError, "in the middle of another call", spawned.stop)
        self.assertEqual(spawned.exit, -signal.SIGKILL)

    def test_a_handler_that_raises_nothing_ends_no_wait_and_runs_meanwhile(self):
        signal.signal(signal.SIGUSR1, lambda *_: self.pid.touch())
        says = "import os, signal, sys, time\nos.kill(os.getppid(), signal.SIGUSR1)\n"
        says += f"while not os.path.exists({str(self.pid)!r}):\n    time.sleep(0.01)\nsys.exit(3)"
        self.assertRaisesRegex(NoServer, "code 3", self.start, ["-c", says])

        spawned = self.start(self.deaf())
        process = spawned.process
        signal.signal(signal.SIGUSR1, lambda *_: os.kill(process, signal.SIGUSR2))
        self.assertEqual(spawned.stop(), 7)
