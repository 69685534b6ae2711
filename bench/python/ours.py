"""Ours: the package `thalweg`. It reads entry by entry (an object each), in batches (arrays, no object per entry), and
with a cursor that follows. Each append is a transaction of its own."""

from collections.abc import Iterable

import numpy
import thalweg
from workload import TICK_ENTRIES, Sum, payload, time


class Ours:
    """A store with one log."""

    def __init__(self, directory: str) -> None:
        self.store = thalweg.open(directory, durability="os")
        self.log = self.store.log("bench")

    def fill(self, count: int) -> None:
        """Entries `0 .. count`."""
        for number in range(count):
            self.append(number)

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
        entries = times = places = lengths = firsts = 0
        for entry in self.log.query():
            data = entry.data
            entries += 1
            times += entry.time
            places += entry.offset
            lengths += len(data)
            firsts += data[0]
        return Sum(entries, times, places, lengths, firsts)

    def batches(self) -> Sum:
        """Everything there is, in arrays."""
        entries = times = places = lengths = firsts = 0
        for batch in self.log.scan():
            entries += len(batch)
            times += int(batch.times.sum())
            places += int(batch.offsets.sum())
            lengths += int(batch.lengths.sum())
            firsts += int(numpy.frombuffer(batch.map, numpy.uint8)[batch.places].sum())
        return Sum(entries, times, places, lengths, firsts)

    def ranges(self, starts: Iterable[int], count: int) -> Sum:
        """A fresh query for each start."""
        entries = times = places = lengths = firsts = 0
        query = self.log.query
        for start in starts:
            for entry in query(start=time(start), end=time(start + count)):
                data = entry.data
                entries += 1
                times += entry.time
                places += entry.offset
                lengths += len(data)
                firsts += data[0]
        return Sum(entries, times, places, lengths, firsts)

    def seeks(self, starts: Iterable[int], _count: int) -> Sum:
        """The first entry at or after a time just before each start."""
        entries = times = places = lengths = firsts = 0
        cursor = self.cursor
        for start in starts:
            cursor.seek(start=time(start) - 500)
            entry = cursor.next()
            data = entry.data
            entries += 1
            times += entry.time
            places += entry.offset
            lengths += len(data)
            firsts += data[0]
        return Sum(entries, times, places, lengths, firsts)

    def follow(self) -> None:
        """Stands behind the newest entry."""
        self.cursor = self.log.cursor(tail=True)

    def poll(self) -> Sum:
        """Everything that came since the last call."""
        entries = times = places = lengths = firsts = 0
        following = self.cursor.next
        while (entry := following()) is not None:
            data = entry.data
            entries += 1
            times += entry.time
            places += entry.offset
            lengths += len(data)
            firsts += data[0]
        return Sum(entries, times, places, lengths, firsts)
