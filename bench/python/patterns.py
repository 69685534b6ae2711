"""The patterns: what one turn does, how many operations that is, and what it must have read. They are those of
bench/src/log/patterns.rs. A writer beside a reader is a second thread of this process."""

import random
import threading
from collections.abc import Callable
from time import monotonic, sleep, thread_time
from typing import Any, NamedTuple

from workload import TICK_ENTRIES, Sum, expected

TICKS = 16
TICK_QUERIES = 1_000
RANGE_ENTRIES = 10
POLLS = 64
PATIENCE_S = 20.0

ALL = ("times", "lengths", "firsts")
"""Everything a reader may take up of an entry."""
PLAIN = ("lengths", "firsts")
"""The same where entries of one transaction share a time."""
COLUMNS = ("times", "lengths")
"""What columns hold."""
LENGTHS = ("lengths",)
"""The same where entries of one transaction share a time."""


class Until(NamedTuple):
    """When enough was measured: after so many turns if there are any, or after a time."""

    seconds: float
    turns: int


class Measured(NamedTuple):
    """What was done between the beginning and the end."""

    operations: int
    per_second: float
    processor_us: float
    sum: Sum


Turn = Callable[[], tuple[int, Sum]]


def repeat(turn: Turn, until: Until) -> Measured:
    """Repeats a turn until enough was measured."""
    total, operations, turns = Sum(), 0, 0
    since, before = monotonic(), thread_time()
    while turns < until.turns if until.turns else monotonic() - since < until.seconds:
        more, read = turn()
        operations += more
        total.add(read)
        turns += 1
    elapsed, used = monotonic() - since, thread_time() - before
    return Measured(operations, operations / elapsed, used * 1e6 / max(operations, 1), total)


class Subject:
    """A store and how many entries it holds by now."""

    def __init__(self, side: Any, entries: int) -> None:
        self.side = side
        self.entries = entries

    def beside(self, paced: bool, reading: Callable[[], Measured], apart: bool = False) -> Measured:
        """Reads while a thread writes 50 entries each millisecond, or 50 again and again: in one transaction, or
        each apart from the others."""
        over = threading.Event()
        problems: list[BaseException] = []

        def write() -> None:
            due = monotonic()
            try:
                while not over.is_set():
                    if apart:
                        self.side.append_each(self.entries, TICK_ENTRIES)
                    else:
                        self.side.tick(self.entries)
                    self.entries += TICK_ENTRIES
                    due += 0.001
                    if paced:
                        sleep(max(0.0, due - monotonic()))
            except BaseException as problem:
                problems.append(problem)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            return reading()
        finally:
            over.set()
            writer.join()
            if problems:
                raise problems[0]


def scan(subject: Subject, way: str, takes: tuple[str, ...], until: Until) -> Measured:
    """Reads everything. An operation is an entry."""
    read, least = getattr(subject.side.reader(), way), subject.entries

    def turn() -> tuple[int, Sum]:
        total = read()
        total.check(expected(0, max(least, total.entries)), takes, way)
        return total.entries, total

    turn()
    return repeat(turn, until)


def cold(closed: Any, way: str, takes: tuple[str, ...], until: Until) -> Measured:
    """Opens a store that was closed, reads everything, and closes it. An operation is an entry."""

    def turn() -> tuple[int, Sum]:
        side = closed.opened()
        total = getattr(side.reader(), way)()
        total.check(expected(0, closed.entries), takes, way)
        side.close()
        return total.entries, total

    return repeat(turn, until)


def scan_writer(subject: Subject, way: str, takes: tuple[str, ...], until: Until) -> Measured:
    """The same beside a paced writer."""
    return subject.beside(True, lambda: scan(subject, way, takes, until))


def _ticks(entries: int, width: int) -> list[tuple[list[int], Sum]]:
    chosen = random.Random(entries)
    ticks = []
    for _ in range(TICKS):
        asked = [chosen.randrange(entries - width) for _ in range(TICK_QUERIES)]
        wanted = Sum()
        for start in asked:
            wanted.add(expected(start, width))
        ticks.append((asked, wanted))
    return ticks


def _queries(subject: Subject, way: str, takes: tuple[str, ...], until: Until, width: int) -> Measured:
    read, ticks, turns = getattr(subject.side.reader(), way), _ticks(subject.entries, width), 0

    def turn() -> tuple[int, Sum]:
        nonlocal turns
        asked, wanted = ticks[turns % TICKS]
        turns += 1
        total = read(asked, width)
        total.check(wanted, takes, way)
        return TICK_QUERIES, total

    turn()
    turns = 0
    return repeat(turn, until)


def ranges(subject: Subject, way: str, takes: tuple[str, ...], until: Until) -> Measured:
    """1,000 fresh queries over the times of 10 entries each. An operation is a query."""
    return _queries(subject, way, takes, until, RANGE_ENTRIES)


def seeks(subject: Subject, way: str, takes: tuple[str, ...], until: Until) -> Measured:
    """1,000 reads of the first entry after a random time. An operation is a read."""
    return _queries(subject, way, takes, until, 1)


def _follower(subject: Subject, takes: tuple[str, ...], way: str) -> Callable[[], int]:
    reader, total, start = subject.side.reader(), Sum(), subject.entries
    reader.follow()

    def poll() -> int:
        came = reader.poll()
        if came.entries:
            total.add(came)
            total.check(expected(start, total.entries), takes, way)
        return int(came.entries)

    return poll


def polls(subject: Subject, way: str, takes: tuple[str, ...], until: Until) -> Measured:
    """Polls for what a paced writer wrote. An operation is a poll."""
    poll = _follower(subject, takes, way)

    def turn() -> tuple[int, Sum]:
        return POLLS, Sum(entries=sum(poll() for _ in range(POLLS)))

    return subject.beside(True, lambda: repeat(turn, until))


def delivered(subject: Subject, way: str, takes: tuple[str, ...], until: Until) -> Measured:
    """Polls for what a writer wrote that never pauses, each entry a transaction of its own. An operation is an entry
    that came."""
    return _delivered(subject, way, takes, until, True)


def delivered_together(subject: Subject, way: str, takes: tuple[str, ...], until: Until) -> Measured:
    """The same with 50 entries in a transaction."""
    return _delivered(subject, way, takes, until, False)


def _delivered(subject: Subject, way: str, takes: tuple[str, ...], until: Until, apart: bool) -> Measured:
    poll = _follower(subject, takes, way)

    def turn() -> tuple[int, Sum]:
        came, since = 0, monotonic()
        while came < 10 * TICK_ENTRIES:
            came += poll()
            if not came and monotonic() - since > PATIENCE_S:
                raise TimeoutError("nothing came")
        return came, Sum(entries=came)

    return subject.beside(False, lambda: repeat(turn, until), apart)


def append(subject: Subject, _way: str, takes: tuple[str, ...], until: Until) -> Measured:
    """Appends one by one. An operation is an entry."""
    one, number = subject.side.append, subject.entries

    def turn() -> tuple[int, Sum]:
        nonlocal number
        for _ in range(64):
            one(number)
            number += 1
        return 64, expected(number - 64, 64)

    measured = repeat(turn, until)
    subject.entries = number
    return measured
