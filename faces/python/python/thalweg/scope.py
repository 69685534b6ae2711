"""What ends with its block: `with` and `async with`, once for everything that is to be closed. What was not closed says so once
nothing refers to it any more, as files and sockets do.
"""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, ClassVar, Self


class Unique:
    """What is there once: a copy would let go of what the other still uses. So it is neither copied nor pickled, as files and sockets
    are not.
    """

    __slots__ = ()

    def __getstate__(self) -> object:
        raise TypeError(f"cannot copy or pickle {type(self).__name__!r} object: make another one")


class Closable(Unique, ABC):
    """One that is still open once nothing refers to it issues a `ResourceWarning`, and is let go of whatever comes of that."""

    _what: ClassVar[str]
    """What it is called then."""
    _process: int = 0
    """Whose it is: what a child holds after a fork is its parent's. Nobody's, where a signal came before it was known."""

    def __new__(cls, *_arguments: Any, **_named: Any) -> Self:
        made = super().__new__(cls)
        made._process = os.getpid()
        return made

    @abstractmethod
    def _is_open(self) -> bool:
        """Whether it holds something. Asked of what could not be made, too."""

    @abstractmethod
    def _abandon(self) -> None:
        """Lets go of what it holds, in whichever thread it is collected."""

    def __del__(self, _warn: Callable[..., None] = warnings.warn, _process: Callable[[], int] = os.getpid) -> None:
        if self._process == _process() and self._is_open():
            try:
                _warn(f"unclosed {self._what} {self!r}", ResourceWarning, source=self)
            finally:
                self._abandon()


class Scope(Closable):
    """`with` closes it, whatever the block raised, and it is what the block raised that is heard of."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as error:
            if value is None:
                raise
            value.add_note(f"closing failed as well: {error}")


class AsyncScope(Closable):
    """`async with` closes it, whatever the block raised, and waits for that if it takes a while. It is what the block raised
    that is heard of."""

    @abstractmethod
    def close(self) -> Awaitable[None] | None:
        """Lets go of what it holds."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            closed = self.close()
            if closed is not None:
                await closed
        except Exception as error:
            if value is None:
                raise
            value.add_note(f"closing failed as well: {error}")
