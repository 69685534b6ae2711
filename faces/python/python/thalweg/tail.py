"""Following a log in an event loop.

Whoever commits rings a bell, a descriptor that the loop watches: no polling, and no Python in the path of a commit. In
the process that writes the store no thread is needed for it, and in any other one for all tails together.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from ._native import Bell, Entry, Log

_TURN_ENTRIES = 256
"""Entries after which other tasks have their turn."""


async def tail(log: Log, **words: Any) -> AsyncGenerator[Entry, None]:
    """Entries as they are committed, for `async for`; by default, those from now on.

    Takes the words of `Log.query`. Ends when the log is closed and everything in it was seen; cancelling the task, or
    closing the generator, lets go of everything.
    """
    if words.keys() <= {"end", "uncommitted"}:
        words["tail"] = True
    cursor = log.cursor(**words)
    bell = Bell()
    loop = asyncio.get_running_loop()
    waits = loop.create_future()

    def ring() -> None:
        bell.clear()
        if not waits.done():
            waits.set_result(None)

    loop.add_reader(bell.fileno(), ring)
    try:
        while True:
            for _ in range(_TURN_ENTRIES):
                entry = cursor.next()
                if entry is None:
                    break
                yield entry
            if entry is not None:
                await asyncio.sleep(0)
            elif cursor.ended is not None:
                return
            else:
                waits = loop.create_future()
                if not cursor.arm(bell):
                    await waits
    finally:
        loop.remove_reader(bell.fileno())
