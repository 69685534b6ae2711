"""Pipes: asyncio's own transports, ended by the loop whichever thread asks for it. The garbage collector may ask in any thread: it
closes the transport of a `StreamWriter` that nothing refers to any more.
"""

from asyncio import unix_events
from collections.abc import Callable
from typing import Any

# What asyncio's classes call among themselves has no types.
_unix: Any = unix_events


def _hands_over(loop: Any, call: Callable[[], object]) -> bool:
    """Whether the loop does it; one that has ended knows its loop no more."""
    return loop is not None and loop._hands_over(call)


class ReadPipe(_unix._UnixReadPipeTransport):  # type: ignore[misc]
    """A pipe that is read from."""

    def close(self) -> None:
        """Ends it."""
        if not _hands_over(self._loop, self.close):
            super().close()


class WritePipe(_unix._UnixWritePipeTransport):  # type: ignore[misc]
    """A pipe that is written to."""

    def close(self) -> None:
        """Ends it once what waits is written."""
        if not _hands_over(self._loop, self.close):
            super().close()

    def abort(self) -> None:
        """Ends it at once."""
        if not _hands_over(self._loop, self.abort):
            super().abort()
