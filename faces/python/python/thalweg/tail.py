"""Following a log in an event loop.

Whoever commits rings a bell, a descriptor that the loop watches: no thread, no polling, and no Python in the path of a
commit. Where another process writes the store there is nobody to ring it, and a thread of the loop's pool sleeps
instead, on a word that the writer moves.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from ._native import Bell, Cursor, Entry, Log

_TURN_ENTRIES = 256
"""Entries after which other tasks have their turn."""
_SLEEP_SECONDS = 0.5
"""Longest sleep of a thread, so that one whose task was cancelled ends soon."""


async def tail(log: Log, **words: Any) -> AsyncGenerator[Entry, None]:
    """Entries as they are committed, for `async for`; by default, those from now on.

    Takes the words of `Log.query`. Ends when the log is closed and everything in it was seen; cancelling the task, or
    leaving the loop and closing the generator, lets go of everything.
    """
    if words.keys() <= {"end", "uncommitted"}:
        words["tail"] = True
    cursor = log.cursor(**words)
    news = _Rung() if cursor.local else _Slept()
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
                await news.come(cursor)
    finally:
        news.close()


class _Rung:
    """Waits for this process's own commits."""

    def __init__(self) -> None:
        self._bell = Bell()
        self._loop = asyncio.get_running_loop()
        self._waits: asyncio.Future[None] | None = None
        self._loop.add_reader(self._bell.fileno(), self._ring)

    def _ring(self) -> None:
        self._bell.clear()
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    async def come(self, cursor: Cursor) -> None:
        self._waits = self._loop.create_future()
        if not cursor.arm(self._bell):
            await self._waits

    def close(self) -> None:
        self._loop.remove_reader(self._bell.fileno())


class _Slept:
    """Waits for another process's commits."""

    async def come(self, cursor: Cursor) -> None:
        await asyncio.get_running_loop().run_in_executor(None, cursor.wait, _SLEEP_SECONDS)

    def close(self) -> None:
        pass
