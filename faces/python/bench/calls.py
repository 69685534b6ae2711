"""Typed calls of an echo server that runs already: `python calls.py ENDPOINT [--side asynchronous|synchronous] [--depth N]
[--milliseconds N | --turns N] [--work NAME] [--pair N]`. Prints a line of JSON, as the other languages' programs do. A turn
is one call on each of so many chains under way at once; the time before the clock starts is as long as what is measured.
Processor time is this process's.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from thalweg.service import Client, SyncClient

# The generated code lies in a folder named after its language.
sys.path.insert(0, str(Path(__file__).parents[3] / "schemas/generated"))
from python import echo_client, echo_types as types

REQUEST = types.EchoFields(count=7, total=70_000, name="a name of some length")


def check(answer: types.EchoFieldsResponse) -> None:
    if answer.total != REQUEST.total or answer.name != REQUEST.name:
        raise AssertionError("another's answer")


def turns(options: argparse.Namespace) -> Iterator[int]:
    """Counts turns until there were enough, or the time is over."""
    until = time.perf_counter() + options.milliseconds / 1e3
    taken = 0
    while taken < options.turns if options.turns else time.perf_counter() < until:
        yield taken
        taken += 1


async def awaited(echo: echo_client.EchoClient, options: argparse.Namespace) -> int:
    """So many chains of calls, each of which awaits its answer before it calls again; how many calls there were."""

    async def chain() -> int:
        calls = 0
        for _ in turns(options):
            check(await echo.fields(REQUEST))
            calls += 1
        return calls

    return sum(await asyncio.gather(*(chain() for _ in range(options.depth))))


def waited(echo: echo_client.EchoSyncClient, options: argparse.Namespace) -> int:
    """One call after the other."""
    calls = 0
    for _ in turns(options):
        check(echo.fields(REQUEST))
        calls += 1
    return calls


class Clock:
    """What passes while calls are made."""

    def __init__(self) -> None:
        self.began, self.used = time.perf_counter(), time.process_time()

    def figures(self, calls: int) -> dict[str, float]:
        """Of so many calls."""
        took, used = time.perf_counter() - self.began, time.process_time() - self.used
        return {"operations": calls, "per_second": calls / took, "processor_us": used / calls * 1e6}


async def asynchronous(options: argparse.Namespace) -> dict[str, float]:
    async with await Client.connect(options.endpoint, schema=types.SCHEMA_HASH) as transport:
        echo = echo_client.EchoClient(transport)
        await awaited(echo, options)
        clock = Clock()
        return clock.figures(await awaited(echo, options))


def synchronous(options: argparse.Namespace) -> dict[str, float]:
    with SyncClient(options.endpoint, schema=types.SCHEMA_HASH) as transport:
        echo = echo_client.EchoSyncClient(transport)
        waited(echo, options)
        clock = Clock()
        return clock.figures(waited(echo, options))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("--side", choices=["asynchronous", "synchronous"], default="synchronous")
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--milliseconds", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--work", default="calls")
    parser.add_argument("--pair", type=int, default=0)
    options = parser.parse_args()
    is_synchronous = options.side == "synchronous"
    figures = synchronous(options) if is_synchronous else asyncio.run(asynchronous(options))
    told = {"work": options.work, "side": options.side, "pair": options.pair}
    counted = {"entries": figures["operations"], "digest": 0, "fixed": options.turns > 0}
    print(json.dumps({**told, **figures, **counted}))


if __name__ == "__main__":
    main()
