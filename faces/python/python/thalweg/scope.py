"""What ends with its block: `with` and `async with`, once for everything that is to be closed."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from types import TracebackType
from typing import Self


class Scope(ABC):
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


class AsyncScope(ABC):
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
