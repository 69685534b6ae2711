"""A server that adds up: a line is a number, its answer the sum so far and the process. Started by test_fork_server.py."""

import asyncio
import contextlib
import os
import resource
import signal
import sys
import tempfile
import threading
from pathlib import Path

from thalweg.fork_server import serve

total = 0
full: list[int] = []
writers: set[asyncio.StreamWriter] = set()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global total
    writers.add(writer)
    try:
        while line := await reader.readline():
            if line == b"thread\n":
                threading.Thread(target=threading.Event().wait, daemon=True).start()
                line = b"0"
            if line == b"fail\n":
                asyncio.get_running_loop().call_soon(sys.exit, "as asked")
                line = b"0"
            if line == b"descriptors\n":
                numbers = [int(name) for name in os.listdir("/proc/self/fd")]
                writer.write(b"%d %d\n" % (len(numbers), max(numbers)))
                continue
            if line == b"ignore\n":
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
                line = b"0"
            if line == b"ignores\n":
                line = b"%d" % (signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN)
            if line.startswith(b"full "):
                # No room for another descriptor, or for so many.
                resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
                with contextlib.suppress(OSError):
                    while True:
                        full.append(os.open(os.devnull, os.O_RDONLY))
                for _ in range(int(line.split()[1])):
                    os.close(full.pop())
                line = b"0"
            if line in (b"late\n", b"moved\n"):
                before = total
                writer.write(b"0\n")
                while line == b"moved\n" and total == before:
                    await asyncio.sleep(0.005)
                await asyncio.sleep(1)
                writer.write(b"%d %d\n" % (total, os.getpid()))
                break
            total += int(line)
            writer.write(b"%d %d\n" % (total, os.getpid()))
    finally:
        writers.discard(writer)
        writer.close()


async def listen(listener):
    if "refuse" in sys.argv and listener.getsockname()[0] == "127.0.0.2":
        raise RuntimeError("not there")
    return await asyncio.start_server(answer, sock=listener)


kept: Path | None = None
if "leaving" in sys.argv:
    kept = Path(tempfile.gettempdir()) / f"thalweg-forked-sum-{os.getpid()}"
    kept.touch()
try:
    serve(listen, forked=writers.clear, grace=60.0 if "patient" in sys.argv else 0.5)
finally:
    if kept is not None:
        kept.unlink()
