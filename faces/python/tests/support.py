"""What the tests share: a store in a directory of its own, small enough that segments end."""

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path

import thalweg

SMALL = 64 << 10
"""Bytes of a segment that is soon full."""


class StoreCase(unittest.TestCase):
    """A test with an open store in `self.path`, and a log."""

    durability = "os"

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name) / "store"
        self.store = self.open()
        self.addCleanup(lambda: self.store.close())
        self.log = self.store.log("log")

    def open(self, **words):
        return thalweg.open(self.path, durability=self.durability, segment_bytes_max=SMALL, **words)

    def fill(self, count: int, first: int = 0) -> list[tuple[int, bytes]]:
        """Appends entries of rising times and several lengths; what must come back."""
        entries = [(number * 10, f"entry {number};".encode() * (number % 7 + 1)) for number in range(first, first + count)]
        for time, data in entries:
            self.log.append(data, time)
        return entries


def read(entries) -> list[tuple[int, bytes]]:
    """Times and payloads of what is iterated over."""
    return [(entry.time, bytes(entry)) for entry in entries]


def bind_to_the_brim(sock: socket.socket, directory: str) -> str:
    """Binds a Unix socket to a path that leaves no room for a zero byte behind it, which Python itself does not."""
    path = os.path.join(directory, "brim").ljust(108, "m")
    address = struct.pack("H108s", socket.AF_UNIX, path.encode())
    if ctypes.CDLL(None).bind(sock.fileno(), address, len(address)) != 0:
        raise AssertionError(f"{path} was not bound")
    return path


def python(code: str, *arguments: str, timeout: float = 60) -> str:
    """Runs a program in another process; what it printed."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise AssertionError(f"the other process failed with {done.returncode}: {done.stderr}")
    return done.stdout


def status_of_child(work: Callable[[], object]) -> int:
    """How a child ends in which `work` runs: by force if it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(30)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
