"""Ours: the package `thalweg`. It reads entry by entry (an object each), in batches (arrays, no object per entry), and
with a cursor that follows. Each append is a transaction of its own."""

from collections.abc import Iterable

import numpy
import thalweg
from workload import TICK_ENTRIES, Sum, payload, time

CALL_ENTRIES = 100
"""Entries that are appended by one call where there are many."""


class Ours:
    """A store with one log."""

    def __init__(self, directory: str, read_only: bool = False) -> None:
        self.store = thalweg.open(directory, durability="os", read_only=read_only)
        self.log = self.store.log("bench")

    def fill(self, count: int) -> None:
        """Entries `0 .. count`."""
        self.append_each(0, count)

    def append_each(self, first: int, count: int) -> None:
        """Entries `first .. first + count`, each a transaction of its own, a hundred in a call."""
        for start in range(first, first + count, CALL_ENTRIES):
            numbers = range(start, min(start + CALL_ENTRIES, first + count))
            self.log.append_timed((time(number), payload(number)) for number in numbers)

    def append(self, number: int) -> None:
        """One entry."""
        self.log.append(payload(number), time=time(number))

    def tick(self, first: int) -> None:
        """One tick of a writer: one transaction, whose entries share a time."""
        with self.store.transaction(time=time(first)) as transaction:
            for number in range(first, first + TICK_ENTRIES):
                transaction.append(self.log, payload(number))

    def close(self) -> None:
        """Gives the files up."""
        self.store.close()

    def reader(self) -> "OursReader":
        """A reader."""
        return OursReader(self.log)


class OursReader:
    """Reads one log."""

    def __init__(self, log: "thalweg.Log") -> None:
        self.log = log
        self.cursor = log.cursor()

    def iterate(self) -> Sum:
        """Everything there is, entry by entry."""
        entries = times = lengths = firsts = 0
        for entry in self.log.query():
            entries += 1
            times += entry.time
            lengths += len(entry)
            firsts += entry[0]
        return Sum(entries, times, 0, lengths, firsts)

    def batches(self) -> Sum:
        """Times and lengths of everything there is, in arrays."""
        entries = times = lengths = 0
        for batch in self.log.scan():
            entries += len(batch)
            times += int(batch.times.sum())
            lengths += int(batch.lengths.sum())
        return Sum(entries, times, 0, lengths)

    def payloads(self) -> Sum:
        """The same, and a byte of each payload, picked out of the map."""
        entries = times = lengths = firsts = 0
        for batch in self.log.scan():
            entries += len(batch)
            times += int(batch.times.sum())
            lengths += int(batch.lengths.sum())
            firsts += int(numpy.frombuffer(batch.map, numpy.uint8)[batch.places].sum())
        return Sum(entries, times, 0, lengths, firsts)

    def ranges(self, starts: Iterable[int], count: int) -> Sum:
        """A fresh query for each start."""
        entries = times = lengths = firsts = 0
        query = self.log.query
        for start in starts:
            for entry in query(time(start), time(start + count)):
                entries += 1
                times += entry.time
                lengths += len(entry)
                firsts += entry[0]
        return Sum(entries, times, 0, lengths, firsts)

    def seeks(self, starts: Iterable[int], _count: int) -> Sum:
        """The first entry at or after a time just before each start."""
        entries = times = lengths = firsts = 0
        cursor = self.cursor
        for start in starts:
            entry = cursor.find(time(start) - 500)
            entries += 1
            times += entry.time
            lengths += len(entry)
            firsts += entry[0]
        return Sum(entries, times, 0, lengths, firsts)

    def follow(self) -> None:
        """Stands behind the newest entry."""
        self.cursor = self.log.cursor(tail=True)

    def poll(self) -> Sum:
        """Everything that came since the last call."""
        entries = times = lengths = firsts = 0
        following = self.cursor.next
        while (entry := following()) is not None:
            entries += 1
            times += entry.time
            lengths += len(entry)
            firsts += entry[0]
        return Sum(entries, times, 0, lengths, firsts)
