"""The peer: LMDB through `lmdb`, the package by which Python programs use it, set up as favourably as it allows.

Keys are the times as native integers (`integerkey`), put in order (`append`). `sync` and `metasync` are off, `writemap` is
off as by default. Values come as `bytes`, which for 100 bytes is faster than as buffers. One read transaction covers a
pattern's turn.
"""

from collections.abc import Iterable

import lmdb

from workload import TICK_ENTRIES, Sum, payload, time


def _key(number: int) -> bytes:
    return time(number).to_bytes(8, "little")


class Peer:
    """An environment with one table."""

    def __init__(self, directory: str, read_only: bool = False) -> None:
        options = {"sync": False, "metasync": False, "meminit": False, "readahead": False, "max_dbs": 1}
        self.env = lmdb.open(directory, map_size=16 << 30, readonly=read_only, **options)
        self.table = self.env.open_db(b"bench", integerkey=True, create=not read_only)

    def fill(self, count: int) -> None:
        """Entries `0 .. count`."""
        self.put(0, count)

    def put(self, first: int, count: int) -> None:
        """Entries `first .. first + count`, as one transaction."""
        with self.env.begin(write=True, db=self.table) as transaction:
            for number in range(first, first + count):
                transaction.put(_key(number), payload(number), append=True)

    def append(self, number: int) -> None:
        """One entry."""
        self.put(number, 1)

    def append_each(self, first: int, count: int) -> None:
        """Entries `first .. first + count`, each a transaction of its own."""
        for number in range(first, first + count):
            self.put(number, 1)

    def tick(self, first: int) -> None:
        """One tick of a writer."""
        self.put(first, TICK_ENTRIES)

    def close(self) -> None:
        """Gives the files up."""
        self.env.close()

    def reader(self) -> "PeerReader":
        """A reader."""
        return PeerReader(self)


class PeerReader:
    """Reads with one transaction per turn."""

    def __init__(self, peer: Peer) -> None:
        self.env = peer.env
        self.table = peer.table
        self.last = b""

    def scan(self) -> Sum:
        """Everything there is."""
        entries = times = lengths = firsts = 0
        number = int.from_bytes
        with self.env.begin(db=self.table) as transaction:
            for key, value in transaction.cursor():
                entries += 1
                times += number(key, "little")
                lengths += len(value)
                firsts += value[0]
        return Sum(entries, times, times, lengths, firsts)

    def plain(self) -> Sum:
        """Times and lengths of everything there is."""
        entries = times = lengths = 0
        number = int.from_bytes
        with self.env.begin(db=self.table) as transaction:
            for key, value in transaction.cursor():
                entries += 1
                times += number(key, "little")
                lengths += len(value)
        return Sum(entries, times, times, lengths)

    def ranges(self, starts: Iterable[int], count: int) -> Sum:
        """A fresh query for each start."""
        entries = times = lengths = firsts = 0
        number = int.from_bytes
        with self.env.begin(db=self.table) as transaction:
            cursor = transaction.cursor()
            for start in starts:
                end = time(start + count)
                if not cursor.set_range(_key(start)):
                    continue
                for key, value in cursor:
                    at = number(key, "little")
                    if at >= end:
                        break
                    entries += 1
                    times += at
                    lengths += len(value)
                    firsts += value[0]
        return Sum(entries, times, times, lengths, firsts)

    def seeks(self, starts: Iterable[int], _count: int) -> Sum:
        """The first entry at or after a time just before each start."""
        entries = times = lengths = firsts = 0
        number = int.from_bytes
        with self.env.begin(db=self.table) as transaction:
            cursor = transaction.cursor()
            for start in starts:
                if cursor.set_range((time(start) - 500).to_bytes(8, "little")):
                    key, value = cursor.item()
                    entries += 1
                    times += number(key, "little")
                    lengths += len(value)
                    firsts += value[0]
        return Sum(entries, times, times, lengths, firsts)

    def follow(self) -> None:
        """Stands behind the newest entry."""
        with self.env.begin(db=self.table) as transaction:
            cursor = transaction.cursor()
            self.last = cursor.key() if cursor.last() else bytes(8)

    def poll(self) -> Sum:
        """Everything that came since the last call."""
        entries = times = lengths = firsts = 0
        number = int.from_bytes
        with self.env.begin(db=self.table) as transaction:
            cursor = transaction.cursor()
            if cursor.set_range(self.last) and (cursor.key() != self.last or cursor.next()):
                for key, value in cursor:
                    entries += 1
                    times += number(key, "little")
                    lengths += len(value)
                    firsts += value[0]
                    self.last = key
        return Sum(entries, times, times, lengths, firsts)
