"""What goes wrong, by code. Each class is a row of the table that all languages share; `except thalweg.Error` catches
them all, and `error.code` says which it is."""

from functools import partial
from typing import Any, ClassVar


class Error(Exception):
    """Anything that a store refuses or cannot do."""

    code: ClassVar[str] = "ERROR"


class Closed(Error):
    """The store is closed, and so is whatever came from it."""

    code = "CLOSED"


class Forked(Error):
    """The store was opened before this process was forked: it is the parent's. Open it again in the child."""

    code = "FORKED"


class Held(Error):
    """Another process, or another handle in this one, writes the store. The message names the holder."""

    code = "HELD"


class Newer(Error):
    """A newer program wrote the store; nothing in it was touched."""

    code = "NEWER"


class NotAStore(Error):
    """The directory holds something else, or what says otherwise is beyond reading."""

    code = "NOT_A_STORE"


class Io(Error):
    """The operating system refused."""

    code = "IO"


class Full(Error):
    """The disk is full. Nothing of what was to be written is there; reads go on, and so do appends once there is room."""

    code = "FULL"


class Failed(Error):
    """A sync failed: what it covered may or may not last. Open the store again to go on."""

    code = "FAILED"


class Occupied(Error):
    """A store was to be written to a directory that is not empty."""

    code = "OCCUPIED"


class NotClosed(Error):
    """What was to be put back is in use, or was opened and never closed."""

    code = "NOT_CLOSED"


class InMemory(Error):
    """A store in memory has no files that could be backed up."""

    code = "IN_MEMORY"


class ReadOnly(Error):
    """The store was opened for reading only."""

    code = "READ_ONLY"


class NoLog(Error):
    """A store that is only read has no such log."""

    code = "NO_LOG"


class BadName(Error, ValueError):
    """No log can have that name."""

    code = "BAD_NAME"


class LogClosed(Error):
    """The log is closed and takes no more entries."""

    code = "LOG_CLOSED"


class Deleted(Error):
    """The log is deleted."""

    code = "DELETED"


class Conflict(Error):
    """Something else came first; nothing was applied."""

    code = "CONFLICT"


class TransactionOver(Error):
    """The transaction was committed or aborted."""

    code = "TRANSACTION_OVER"


class Pending(Error):
    """A transaction is going to append to the log; commit or abort it first."""

    code = "PENDING"


class EmptyEntry(Error, ValueError):
    """An entry holds at least one byte."""

    code = "EMPTY_ENTRY"


class TooLarge(Error, ValueError):
    """More than one commit may hold; nothing was applied."""

    code = "TOO_LARGE"


class Damaged(Error):
    """Bytes that do not match their checksum are in the way."""

    code = "DAMAGED"

    log: str | None
    """Name of the log that was read or appended to."""
    file: str
    """File within the store's directory."""
    begin: int
    """Position of the first damaged byte: the segment's number in the high 32 bits, the byte in the low ones."""
    resumes: int | None
    """Position where reading goes on, by `resume()`; `None` when nothing behind it stands."""

    def __init__(self, message: str, *, log: str | None, file: str, begin: int, resumes: int | None) -> None:
        super().__init__(message)
        self.log = log
        self.file = file
        self.begin = begin
        self.resumes = resumes

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(type(self), log=self.log, file=self.file, begin=self.begin, resumes=self.resumes)
        return made, self.args, self.__dict__


class Overloaded(Error):
    """An event loop does not keep up with what other threads bring. The call was not scheduled; try again later."""

    code = "OVERLOADED"


BY_CODE: dict[str, type[Error]] = {row.code: row for row in Error.__subclasses__()}
"""The classes by their codes."""
