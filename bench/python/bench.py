"""The embedded log beside LMDB through Python: `python bench.py --directory PATH [--entries N] [--pairs N]
[--milliseconds N | --turns N] [--only GROUP,GROUP] [--sides SIDE,SIDE]`. Prints a line of JSON for each measurement, as
the other languages' programs do. Within a pair every side has its turn before the next pair begins."""

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import patterns
from patterns import ALL, COLUMNS, LENGTHS, PLAIN, Measured, Subject, Until
from workload import expected


class Side(NamedTuple):
    """A store, by one of its ways to read."""

    name: str
    store: str
    way: str
    takes: tuple[str, ...] = ALL


class Group(NamedTuple):
    """A pattern and the sides it compares. The names are those of the report (xtask/src/bench/log/works.rs)."""

    name: str
    pattern: Callable[[Any, str, tuple[str, ...], Until], Measured]
    sides: tuple[Side, ...]
    fresh: bool = False
    """Whether every measurement has a store of its own, which then goes."""
    filled: bool = True
    """Whether there is something in it before."""
    closed: bool = False
    """Whether it was closed, and each turn opens it anew."""


GROUPS = (
    Group("cold", patterns.cold, (Side("ours", "ours", "iterate"), Side("peer", "peer", "scan")), closed=True),
    Group(
        "scan",
        patterns.scan,
        (
            Side("batch", "ours", "batches", COLUMNS),
            Side("peer-plain", "peer", "plain", COLUMNS),
            Side("payloads", "ours", "payloads"),
            Side("iterator", "ours", "iterate"),
            Side("peer", "peer", "scan"),
        ),
    ),
    Group("ranges", patterns.ranges, (Side("ours", "ours", "ranges"), Side("peer", "peer", "ranges"))),
    Group("seek", patterns.seeks, (Side("ours", "ours", "seeks"), Side("peer", "peer", "seeks"))),
    Group(
        "scan-writer",
        patterns.scan_writer,
        (Side("batch", "ours", "batches", LENGTHS), Side("peer-plain", "peer", "plain", LENGTHS)),
        fresh=True,
    ),
    Group("polls", patterns.polls, (Side("ours", "ours", "poll", PLAIN), Side("peer", "peer", "poll", PLAIN))),
    Group(
        "delivered",
        patterns.delivered,
        (Side("ours", "ours", "poll"), Side("peer", "peer", "poll")),
        fresh=True,
        filled=False,
    ),
    Group(
        "delivered-together",
        patterns.delivered_together,
        (Side("ours", "ours", "poll", PLAIN), Side("peer", "peer", "poll", PLAIN)),
        fresh=True,
        filled=False,
    ),
    Group(
        "append",
        patterns.append,
        (Side("ours", "ours", "append"), Side("peer", "peer", "append")),
        fresh=True,
        filled=False,
    ),
)


def options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--milliseconds", type=int, default=250)
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--sides", default="")
    return parser.parse_args()


def opened(store: str, directory: Path, read_only: bool = False) -> Any:
    """A new store, or one that is there, to be read."""
    directory.mkdir(parents=True, exist_ok=read_only)
    if store == "ours":
        from ours import Ours

        return Ours(str(directory), read_only)
    from peer import Peer

    return Peer(str(directory), read_only)


class Closed:
    """A store that was filled and closed."""

    def __init__(self, store: str, directory: Path, entries: int) -> None:
        filled(store, directory, entries).side.close()
        self.opened = lambda: opened(store, directory, read_only=True)
        self.entries = entries


def tell(group: Group, side: Side, pair: int, measured: Measured, fixed: bool) -> None:
    """Prints what was measured."""
    line = {
        "work": f"{group.name}/1",
        "side": side.name,
        "pair": pair,
        "operations": measured.operations,
        "per_second": measured.per_second,
        "processor_us": measured.processor_us,
        "entries": measured.sum.entries,
        "digest": measured.sum.times % 2**64,
        "fixed": fixed,
    }
    print(json.dumps(line), flush=True)


def filled(store: str, directory: Path, entries: int) -> Subject:
    """A new store with so many entries."""
    subject = Subject(opened(store, directory), entries)
    subject.side.fill(entries)
    return subject


def apart(group: Group, side: Side, directory: Path, entries: int, until: Until) -> Measured:
    """Measures a store made for it, sees that everything is there, and removes it."""
    subject = filled(side.store, directory, entries if group.filled else 0)
    measured = group.pattern(subject, side.way, side.takes, until)
    everything = getattr(subject.side.reader(), "iterate" if side.store == "ours" else "scan")()
    everything.check(expected(0, subject.entries), PLAIN, side.name)
    subject.side.close()
    shutil.rmtree(directory)
    return measured


def main() -> None:
    """Measures what was asked for."""
    chosen = options()
    until = Until(chosen.milliseconds / 1000, chosen.turns)
    listed = lambda names, name: not names or name in names.split(",")  # noqa: E731
    kept: dict[str, Any] = {}
    for group in GROUPS:
        if not listed(chosen.only, group.name):
            continue
        sides = [side for side in group.sides if listed(chosen.sides, side.name)]
        for pair in range(chosen.pairs):
            for side in sides:
                if group.fresh:
                    measured = apart(group, side, chosen.directory / "apart", chosen.entries, until)
                else:
                    name = f"closed-{side.store}" if group.closed else side.store
                    if name not in kept:
                        make = Closed if group.closed else filled
                        kept[name] = make(side.store, chosen.directory / name, chosen.entries)
                    measured = group.pattern(kept[name], side.way, side.takes, until)
                tell(group, side, pair, measured, until.turns > 0)


if __name__ == "__main__":
    main()
