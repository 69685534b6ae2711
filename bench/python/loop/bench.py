"""One event loop, one work, one figure: `python bench.py LOOP WORK SECONDS`.

LOOP is one of `LOOPS`, WORK one of `WORKS`. Prints one line of JSON: how many operations per second, and how many
processor microseconds of this process each took. A comparison runs the loops in turn.
"""

import asyncio
import json
import os
import queue
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator


def _ours() -> asyncio.AbstractEventLoop:
    import thalweg

    return thalweg.new_event_loop()


def _uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _rloop() -> asyncio.AbstractEventLoop:
    import rloop

    return rloop.new_event_loop()


LOOPS = {"ours": _ours, "asyncio": asyncio.SelectorEventLoop, "uvloop": _uvloop, "rloop": _rloop}

BATCH = 10_000
Round = Callable[[], int]
"""Does a piece of work and says how many operations it was."""


def soon_batched(loop: asyncio.AbstractEventLoop) -> Iterator[Round]:
    """Callbacks scheduled many at a time, then called."""

    def callback() -> None:
        pass

    def work() -> int:
        for _ in range(BATCH):
            loop.call_soon(callback)
        loop.call_soon(loop.stop)
        loop.run_forever()
        return BATCH

    yield work


def soon_chained(loop: asyncio.AbstractEventLoop) -> Iterator[Round]:
    """Each callback schedules the next."""
    left = 0

    def callback() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(callback)
        else:
            loop.stop()

    def work() -> int:
        nonlocal left
        left = BATCH
        loop.call_soon(callback)
        loop.run_forever()
        return BATCH

    yield work


def later_now(loop: asyncio.AbstractEventLoop) -> Iterator[Round]:
    """Timers of no delay, inserted and fired."""

    def callback() -> None:
        pass

    def work() -> int:
        for _ in range(BATCH):
            loop.call_later(0, callback)
        loop.call_later(0.0001, loop.stop)
        loop.run_forever()
        return BATCH

    yield work


def later_spread(loop: asyncio.AbstractEventLoop) -> Iterator[Round]:
    """200,000 timers over 50 ms, inserted and fired."""
    count, done = 200_000, 0

    def callback() -> None:
        nonlocal done
        done += 1
        if done == count:
            loop.stop()

    delays = [(n * 7919 % count) / count * 0.05 for n in range(count)]

    def work() -> int:
        nonlocal done
        done = 0
        for delay in delays:
            loop.call_later(delay, callback)
        loop.run_forever()
        return count

    yield work


def later_cancel(loop: asyncio.AbstractEventLoop) -> Iterator[Round]:
    """Timers inserted and cancelled."""

    def callback() -> None:
        pass

    def work() -> int:
        for _ in range(BATCH):
            loop.call_later(30, callback).cancel()
        loop.call_soon(loop.stop)
        loop.run_forever()
        return BATCH

    yield work


def threads(loop: asyncio.AbstractEventLoop) -> Iterator[Round]:
    """A thread and the loop, each waiting for the other's word."""
    words: queue.SimpleQueue[int] = queue.SimpleQueue()
    rounds = 2_000

    def other() -> None:
        while (left := words.get()) >= 0:
            loop.call_soon_threadsafe(heard, left)

    def heard(left: int) -> None:
        if left:
            words.put(left - 1)
        else:
            loop.stop()

    thread = threading.Thread(target=other)
    thread.start()

    def work() -> int:
        words.put(rounds)
        loop.run_forever()
        return rounds

    yield work
    words.put(-1)
    thread.join()


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


def _echo(loop: asyncio.AbstractEventLoop, unix: bool, connections: int) -> Iterator[Round]:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "echo")
        if unix:
            server = loop.run_until_complete(loop.create_unix_server(Echo, path))
            address = path
        else:
            server = loop.run_until_complete(loop.create_server(Echo, "127.0.0.1", 0))
            address = str(server.sockets[0].getsockname()[1])
        yield from _driven(loop, address, connections)
        server.close()
        loop.run_until_complete(server.wait_closed())


def _driven(loop: asyncio.AbstractEventLoop, address: str, connections: int) -> Iterator[Round]:
    """Has a program apart bring messages of 1 KiB, one at a time on each connection, for a second."""
    client = [os.environ["THALWEG_ECHO"], "client", address, str(connections), "1024", "1"]

    def work() -> int:
        def drive() -> int:
            return int(subprocess.run(client, stdout=subprocess.PIPE, check=True).stdout)

        return loop.run_until_complete(loop.run_in_executor(None, drive))

    yield work


class Told:
    """An event of every kind, posted by number, and how many were told."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        from thalweg.loop import Kind

        self.count = 0
        self.mailbox = loop.mailbox  # type: ignore[attr-defined]
        self.posted = [(self.mailbox.register(self.told), kind, object()) for kind in Kind]

    def told(self, kind: int, payload: object) -> None:
        self.count += 1

    def post(self, rounds: int) -> None:
        post = self.mailbox.post
        for _ in range(rounds):
            for number, kind, payload in self.posted:
                post(number, kind, payload)


def events(loop: asyncio.AbstractEventLoop) -> Iterator[Round]:
    """Events of every kind, posted by number and told."""
    told = Told(loop)

    def work() -> int:
        before = told.count
        told.post(BATCH // len(told.posted))
        loop.call_soon(loop.stop)
        loop.run_forever()
        return told.count - before

    yield work


def events_of_a_thread(loop: asyncio.AbstractEventLoop) -> Iterator[Round]:
    """The same, posted by another thread while the loop tells of them: both need the interpreter's lock."""
    words: queue.SimpleQueue[int] = queue.SimpleQueue()
    told = Told(loop)

    def other() -> None:
        while (rounds := words.get()) > 0:
            told.post(rounds)
            loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=other)
    thread.start()

    def work() -> int:
        before = told.count
        words.put(BATCH // len(told.posted))
        loop.run_forever()
        return told.count - before

    yield work
    words.put(0)
    thread.join()


def spawn(loop: asyncio.AbstractEventLoop) -> Iterator[Round]:
    """Processes that end at once, one after the other."""

    async def one() -> None:
        process = await asyncio.create_subprocess_exec("/bin/true")
        await process.wait()

    def work() -> int:
        async def some() -> None:
            for _ in range(50):
                await one()

        loop.run_until_complete(some())
        return 50

    asyncio.set_event_loop(loop)
    if not isinstance(loop, asyncio.SelectorEventLoop):
        asyncio.set_child_watcher(asyncio.ThreadedChildWatcher())
    yield work


WORKS: dict[str, Callable[[asyncio.AbstractEventLoop], Iterator[Round]]] = {
    "call_soon, batched": soon_batched,
    "call_soon, chained": soon_chained,
    "call_later(0)": later_now,
    "200k timers over 50 ms": later_spread,
    "call_later and cancel": later_cancel,
    "thread ping-pong": threads,
    "TCP echo, 1 connection": lambda loop: _echo(loop, False, 1),
    "TCP echo, 50 connections": lambda loop: _echo(loop, False, 50),
    "Unix echo, 1 connection": lambda loop: _echo(loop, True, 1),
    "Unix echo, 50 connections": lambda loop: _echo(loop, True, 50),
    "events, to a Python callback": events,
    "events of another thread, to a Python callback": events_of_a_thread,
    "spawn": spawn,
}


def main(name: str, work: str, seconds: str) -> None:
    """Measures one work on one loop."""
    loop = LOOPS[name]()
    rounds = WORKS[work](loop)
    one = next(rounds)
    one()
    used, began, done = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter(), 0
    while True:
        done += one()
        took = time.perf_counter() - began
        if took >= float(seconds):
            break
    after = resource.getrusage(resource.RUSAGE_SELF)
    cost = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    for _ in rounds:
        pass
    loop.close()
    print(json.dumps({"per_second": done / took, "cost_us": cost / done * 1e6}))


if __name__ == "__main__":
    main(*sys.argv[1:])
