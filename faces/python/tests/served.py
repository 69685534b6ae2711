"""`thalweg serve` for tests: the program that is given by THALWEG_PROGRAM, in a directory of its own."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path


class Served(unittest.TestCase):
    """A test with a server, whose state is called at each of `ways`."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.data = Path(directory.name) / "data"
        self.serve()

    def serve(self) -> None:
        command = [os.environ["THALWEG_PROGRAM"], "serve", "--listen", "127.0.0.1:0", "--rpc", "on"]
        command += ["--durability", "os", "--log-level", "error", "--data", str(self.data)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        said = ""
        while "limits: " not in said:
            line = self.process.stdout.readline()
            self.assertTrue(line, f"the server ended: {said}")
            said += line
        self.url = next(word for word in said.split() if word.startswith("http://"))
        self.ways = [str(self.data / "state.sock"), str(self.data / "state.shm"), f"{self.url}/rpc/state"]

    def crash(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self.process.stdout.close()
