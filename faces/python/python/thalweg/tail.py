"""Following a log, or which logs there are, in an event loop.

A commit rings a bell, of which each loop has one for everything that is followed there. In a loop of ours it posts to the loop's
mailbox, for any other one a descriptor becomes readable. No polling, and no Python in the path of a commit. In the process
that writes the store no thread is needed for it, and in any other one for all tails together.
"""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any, Generic, TypeVar

from ._native import Bell, Cursor, Entry, Loop
from .errors import Overloaded
from .scope import Unique

_T = TypeVar("_T")

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


class _Hearing:
    """The bell of one loop, and what waits for it: one for everything that is followed there, as long as anything is.

    It rings once for whatever was committed since it was armed. One native call then says which waiters have something to be told,
    and arms it again; no other waiter is woken.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._members = 0
        self._waiting: dict[asyncio.Future[None], Any] = {}
        self._bell, self._take_down = _hang(loop, self._ring)

    @staticmethod
    def join() -> "_Hearing":
        """That of the running loop. The caller has to leave it again."""
        loop = asyncio.get_running_loop()
        hearing = _hearings.get(id(loop))
        if hearing is None:
            hearing = _hearings[id(loop)] = _Hearing(loop)
        hearing._members += 1
        return hearing

    def leave(self) -> None:
        """In the loop's thread, or when the loop is closed."""
        self._members -= 1
        if self._members == 0:
            del _hearings[id(self.loop)]
            if not self.loop.is_closed():
                self._take_down()

    def wait(self, source: Any) -> asyncio.Future[None] | None:
        """What ends when there is something to be told of the source, to be forgotten then; None where there is already."""
        if self._bell.which([source]):
            return None
        until = self.loop.create_future()
        self._waiting[until] = source
        return until

    def forget(self, until: asyncio.Future[None]) -> None:
        """That wait is over."""
        del self._waiting[until]

    def _ring(self) -> None:
        # At once: between two looks a waiter may be collected that nobody awaits.
        waiting = list(self._waiting.items())
        try:
            told = self._bell.which([source for _, source in waiting])
        except Exception as error:
            # It rings no more: every waiting tail raises why, an error of its own, and may try again.
            for until, _ in waiting:
                if not until.done():
                    until.set_exception(type(error)(*error.args))
            return
        for place in told:
            _end(waiting[place][0])


def _end(until: asyncio.Future[None] | None) -> None:
    if until is not None and not until.done():
        until.set_result(None)


_hearings: weakref.WeakValueDictionary[int, _Hearing] = weakref.WeakValueDictionary()
"""By their loops. A follower keeps its bell, and the bell keeps its loop."""


class Following(Unique, AsyncGenerator[_T, None], Generic[_T]):
    """What a cursor, or a listener for new logs, comes to, as it comes.

    Unlike a generator's function it outlives a wait that is cancelled, by a timeout say: nothing was taken then, and the next
    one goes on there.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._hearing: _Hearing | None = None
        self._until: asyncio.Future[None] | None = None
        self._turn = _TURN_ENTRIES
        self._waits = False
        self._is_over = False

    async def asend(self, _value: None) -> _T:
        if self._waits:
            raise RuntimeError("another task waits for what comes here already")
        if self._is_over:
            raise StopAsyncIteration
        self._waits = True
        try:
            return await self._next()
        except (asyncio.CancelledError, Overloaded):
            # Nothing was taken.
            self._let_go()
            raise
        except BaseException:
            self._is_over = True
            self._let_go()
            raise
        finally:
            self._waits = False

    async def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        await self.aclose()
        raise typ if val is None else val

    async def aclose(self) -> None:
        self._is_over = True
        _end(self._until)
        self._let_go()

    def __del__(self) -> None:
        hearing = self._hearing
        if hearing is not None and not hearing.loop.is_closed():
            # Whichever thread collects it.
            with contextlib.suppress(RuntimeError):
                hearing.loop.call_soon_threadsafe(hearing.leave)

    async def _next(self) -> _T:
        if self._turn == 0:
            self._turn = _TURN_ENTRIES
            await asyncio.sleep(0)
        source = self._source
        while not self._is_over:
            item: _T | None = source.next()
            if item is not None:
                self._turn -= 1
                return item
            if source.ended is not None:
                break
            hearing = self._hear()
            self._until = hearing.wait(source)
            if self._until is not None:
                self._turn = _TURN_ENTRIES
                try:
                    await self._until
                finally:
                    hearing.forget(self._until)
                    self._until = None
        raise StopAsyncIteration

    def _hear(self) -> _Hearing:
        if self._hearing is None or self._hearing.loop is not asyncio.get_running_loop():
            self._let_go()
            self._hearing = _Hearing.join()
        return self._hearing

    def _let_go(self) -> None:
        hearing, self._hearing = self._hearing, None
        if hearing is not None:
            hearing.leave()


class Tail(Following[Entry]):
    """The entries of a log as they come. Made by `Log.tail`.

    In front of damage it raises `Damaged` and has ended. After `resume()` it goes on behind the damage.
    """

    _source: Cursor

    def __init__(self, cursor: Cursor) -> None:
        super().__init__(cursor)
        self._is_closed = False

    async def aclose(self) -> None:
        self._is_closed = True
        await super().aclose()

    def resume(self) -> None:
        """Goes on behind damage; one that was closed does not."""
        self._source.resume()
        self._is_over = self._is_closed

    @property
    def skipped_bytes(self) -> int:
        """Payload bytes that had been purged before the tail came to them."""
        return self._source.skipped_bytes
