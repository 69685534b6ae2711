"""What the tests of services share: the echo service, a place to serve it, and a peer that is moved by hand."""

import asyncio
import contextlib
import os
import socket
import struct
import sys
import tempfile
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "schemas/generated"), str(ROOT / "faces/python/echo")]

from python import echo_client, echo_server, echo_types as types  # noqa: E402,F401
from server import Echo  # noqa: E402

from thalweg.service import Server, VersionMismatch  # noqa: E402

FIELDS = types.EchoFields(count=1, total=2, name="three")
FIELDS_FRAME = types.encode_request(FIELDS)
ENDLESS = types.EchoCount(first=0, last=0xFFFF_FFFF)

REQUEST, ITEM, END, CANCEL, CREDIT, GOODBYE = range(1, 7)
HEADER = struct.Struct("<IBBHQII")


class Patient(Echo):
    """The echo service, and what became of its handlers. A call of `fields` waits so many milliseconds as its total says,
    or for good.
    """

    FOR_GOOD = 1 << 40

    def __init__(self) -> None:
        super().__init__()
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.made = 0

    async def fields(self, request):
        self.began.set()
        try:
            await asyncio.sleep(3600 if request.total == self.FOR_GOOD else request.total / 1000)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await super().fields(request)

    async def count(self, request):
        try:
            async for item in super().count(request):
                self.made += 1
                yield item
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise


def waiting(milliseconds):
    return types.EchoFields(count=7, total=milliseconds, name="waited")


class Place(unittest.TestCase):
    """A test with a directory of its own for endpoints."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def endpoint(self, kind: str = "sock") -> str:
        return str(self.directory / f"echo.{kind}")


class Background:
    """The echo service in a thread: a caller that waited with the interpreter's lock held would wait for ever."""

    def __init__(self, *endpoints: str, **options) -> None:
        self.endpoints = endpoints
        self.options = options
        self.ready = threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.thread.start()
        self.ready.wait()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.server.stop)
        self.thread.join()

    async def _serve(self):
        self.loop = asyncio.get_running_loop()
        self.server = Server(echo_server.service(Patient()), *self.endpoints, **self.options)
        async with self.server:
            self.ready.set()
            await self.server.wait()


def descriptors() -> set[str]:
    """What this process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found


def header(kind, call, length=0, *, fault=0, deadline_ms=0, credit=0) -> bytes:
    return HEADER.pack(length, kind, 0, fault, call, deadline_ms, credit)


HELLO = b"TwSv" + struct.pack("<HHII", 1, 0, 0, 0) + bytes(32)
WELCOME = b"TwSv" + struct.pack("<HHII", 1, 0, 0, 64) + bytes(32)
NEWER = b"TwSv" + struct.pack("<HHII", 2, VersionMismatch.fault, 0, 0) + bytes(32)


class Hand:
    """One end of a connection, frame by frame, for what no program of ours would do."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(60)

    @classmethod
    def to(cls, path: str) -> "Hand":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        hand = cls(connection)
        hand.send(HELLO)
        assert hand.exactly(48)[:4] == b"TwSv"
        return hand

    def send(self, *pieces: bytes) -> None:
        self.connection.sendall(b"".join(pieces))

    def exactly(self, count: int) -> bytes:
        taken = b""
        while len(taken) < count:
            piece = self.connection.recv(count - len(taken))
            if not piece:
                raise EOFError
            taken += piece
        return taken

    def frame(self) -> tuple[int, int, int, bytes]:
        """Kind, call, fault and payload of the next frame."""
        length, kind, _, fault, call, _, _ = HEADER.unpack(self.exactly(24))
        return kind, call, fault, self.exactly(length)

    def close(self) -> None:
        self.connection.close()


class Peer:
    """A server moved by hand: `script` is called with each connection in turn, its hello already answered."""

    def __init__(self, path: str, *scripts, welcome: bytes = WELCOME) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.settimeout(60)
        self.listener.bind(path)
        self.listener.listen()
        self.scripts = scripts
        self.welcome = welcome
        self.wrong: list[BaseException] = []

    def _run(self) -> None:
        try:
            for script in self.scripts:
                hand = Hand(self.listener.accept()[0])
                try:
                    assert hand.exactly(48)[:4] == b"TwSv"
                    hand.send(self.welcome)
                    script(hand)
                finally:
                    hand.close()
        except BaseException as error:
            self.wrong.append(error)

    def __enter__(self):
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join()
        self.listener.close()
        if self.wrong:
            raise self.wrong[0]
