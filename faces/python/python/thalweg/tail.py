"""Following a log, or which logs there are, in an event loop.

Whoever commits rings a bell: in a loop of ours it posts to the loop's mailbox, for any other one a descriptor becomes
readable. No polling, and no Python in the path of a commit. In the process that writes the store no thread is needed for
it, and in any other one for all tails together.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from ._native import Bell, Entry, Log, Loop

_PLACES = ("start", "after", "exact", "offset")
"""Words that say where to begin once they have a value."""

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
    closing the generator, lets go of everything. Who was cancelled may go on: nothing is missed.
    """
    # A word that is there may say nothing, as it does where it is left out.
    begins = words.get("checkpoint") or any(words.get(name) is not None for name in _PLACES)
    if not begins and words.get("tail", False) is False:
        words["tail"] = True
    return Following(log.cursor(**words))


class _Hung:
    """A bell that is hung up in a loop, and who waits for it. It knows nobody else, or nobody would ever be collected."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.waits = loop.create_future()
        self.bell, self.take_down = _hang(loop, self.ring)

    def ring(self) -> None:
        if not self.waits.done():
            self.waits.set_result(None)


class Following(AsyncGenerator[Any, None]):
    """What a cursor, or who hears of new logs, comes to, as it comes.

    Unlike a generator's function it outlives a wait that is cancelled, by a timeout say: nothing was taken then, and the next
    one goes on there.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._hung: _Hung | None = None
        self._turn = _TURN_ENTRIES
        self._waits = False
        self._is_over = False

    async def asend(self, _value: None) -> Any:
        if self._waits:
            raise RuntimeError("another task waits for what comes here already")
        if self._is_over:
            raise StopAsyncIteration
        self._waits = True
        try:
            return await self._next()
        except asyncio.CancelledError:
            self._let_go()
            raise
        except BaseException:
            await self.aclose()
            raise
        finally:
            self._waits = False

    async def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        await self.aclose()
        raise typ if val is None else val

    async def aclose(self) -> None:
        self._is_over = True
        if self._hung is not None:
            self._hung.ring()
        self._let_go()

    def __del__(self) -> None:
        hung = self._hung
        if hung is not None and not hung.loop.is_closed():
            # Whichever thread collects it.
            with contextlib.suppress(RuntimeError):
                hung.loop.call_soon_threadsafe(hung.take_down)

    async def _next(self) -> Any:
        if self._turn == 0:
            self._turn = _TURN_ENTRIES
            await asyncio.sleep(0)
        source = self._source
        while not self._is_over:
            item = source.next()
            if item is None:
                # Whoever looks again is told that the log is over, even if nothing came that could end it.
                item = source.next()
            if item is not None:
                self._turn -= 1
                return item
            if source.ended is not None:
                break
            hung = self._hang_up()
            if not source.arm(hung.bell):
                self._turn = _TURN_ENTRIES
                await hung.waits
        raise StopAsyncIteration

    def _hang_up(self) -> _Hung:
        loop = asyncio.get_running_loop()
        if self._hung is None or self._hung.loop is not loop:
            self._let_go()
            self._hung = _Hung(loop)
        elif self._hung.waits.done():
            self._hung.waits = loop.create_future()
        return self._hung

    def _let_go(self) -> None:
        hung, self._hung = self._hung, None
        if hung is not None and not hung.loop.is_closed():
            hung.take_down()
