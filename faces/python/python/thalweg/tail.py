"""Following a log, or which logs there are, in an event loop.

Whoever commits rings a bell: in a loop of ours it posts to the loop's mailbox, for any other one a descriptor becomes
readable. No polling, and no Python in the path of a commit. In the process that writes the store no thread is needed for
it, and in any other one for all tails together.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from ._native import Bell, Entry, Log, Loop

_TURN_ENTRIES = 256
"""Entries after which other tasks have their turn."""


def _hang(loop: Any, ring: Callable[[], None]) -> tuple[Bell, Callable[[], object]]:
    """A bell at which the loop calls `ring`, and what takes it down again."""
    if isinstance(loop, Loop):
        mailbox = loop.mailbox  # type: ignore[attr-defined]
        number = mailbox.register(lambda *_: ring())
        return mailbox.bell(number), lambda: mailbox.unregister(number)
    bell = Bell()

    def rung() -> None:
        bell.clear()
        ring()

    loop.add_reader(bell.fileno(), rung)
    return bell, lambda: loop.remove_reader(bell.fileno())


def tail(log: Log, **words: Any) -> AsyncGenerator[Entry, None]:
    """Entries as they are committed, for `async for`; by default, those from now on.

    Takes the words of `Log.query`. Ends when the log is closed and everything in it was seen; cancelling the task, or
    closing the generator, lets go of everything.
    """
    if words.keys() <= {"end", "uncommitted"}:
        words["tail"] = True
    return follow(log.cursor(**words))


async def follow(source: Any) -> AsyncGenerator[Any, None]:
    """What a cursor, or who hears of new logs, comes to, as it comes."""
    loop = asyncio.get_running_loop()
    waits = loop.create_future()

    def ring() -> None:
        if not waits.done():
            waits.set_result(None)

    bell, take_down = _hang(loop, ring)
    try:
        while True:
            for _ in range(_TURN_ENTRIES):
                item = source.next()
                if item is None:
                    break
                yield item
            if item is not None:
                await asyncio.sleep(0)
                continue
            # Whoever looks again is told that the log is over, even if nothing came that could end it.
            item = source.next()
            if item is not None:
                yield item
            elif source.ended is not None:
                return
            else:
                waits = loop.create_future()
                if not source.arm(bell):
                    await waits
    finally:
        take_down()
