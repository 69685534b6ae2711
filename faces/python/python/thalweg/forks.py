"""Calls that touch one fork, in their turn."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable


class Forks:
    """Orders calls that touch one fork, in the order they came.

    A read waits behind the writes that came before it, a write is alone, and reads of
    what is committed wait for nobody. Nothing is kept for a fork that nobody uses.
    """

    def __init__(self) -> None:
        self._forks: dict[object, _Fork] = {}

    async def order(
        self, access: tuple[str, object] | None, job: Callable[[], Awaitable[None]]
    ) -> None:
        """Runs a job when its turn has come."""
        if access is None or access[0] == "read committed":
            return await job()
        writes, key = access[0] == "write", _key(access[1])
        fork = self._forks.setdefault(key, _Fork())
        try:
            await fork.enter(writes)
            try:
                await job()
            finally:
                fork.leave(writes)
        finally:
            if fork.is_idle():
                self._forks.pop(key, None)


def _key(fork: object) -> object:
    """What tells forks apart in every language: bytes, as text is too, or 64 bits."""
    if isinstance(fork, str):
        return fork.encode()
    if isinstance(fork, int):
        return fork & 0xFFFF_FFFF_FFFF_FFFF
    return fork


class _Fork:
    """Who is at one fork, and who waits for it."""

    def __init__(self) -> None:
        self._writing = False
        self._reads = 0
        self._waiting: deque[tuple[bool, Future[None]]] = deque()

    def is_idle(self) -> bool:
        return not (self._writing or self._reads or self._waiting)

    async def enter(self, writes: bool) -> None:
        if not self._waiting and self._may(writes):
            return self._begin(writes)
        turn: Future[None] = get_running_loop().create_future()
        self._waiting.append((writes, turn))
        try:
            await turn
        except BaseException:
            # Cancelled, or the coroutine was closed before it was over.
            if turn.done() and not turn.cancelled():
                self.leave(writes)
            else:
                self._waiting.remove((writes, turn))
                self._advance()
            raise

    def leave(self, writes: bool) -> None:
        if writes:
            self._writing = False
        else:
            self._reads -= 1
        self._advance()

    def _may(self, writes: bool) -> bool:
        return not self._writing and not (writes and self._reads)

    def _begin(self, writes: bool) -> None:
        if writes:
            self._writing = True
        else:
            self._reads += 1

    def _advance(self) -> None:
        while self._waiting:
            writes, turn = self._waiting[0]
            # One that was cancelled leaves by itself.
            if turn.cancelled() or not self._may(writes):
                return
            self._waiting.popleft()
            self._begin(writes)
            turn.set_result(None)
