"""A transaction log inside your process, read at the speed of memory.

    import thalweg

    with thalweg.open("data") as store:
        orders = store.log("orders")
        orders.append(b"one espresso")
        for entry in orders.query():
            print(entry.time, bytes(entry))

A *store* is a directory of *logs* in one commit order. A log holds *entries*: bytes, with a time in microseconds since
the epoch and an offset, which with the log is their identity. Any number of processes read a store while one
writes it.
"""

import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from . import errors
from ._native import (
    Backup,
    Batch,
    BatchPiece,
    Cursor,
    Damage,
    EndPiece,
    Entries,
    Entry,
    FramePiece,
    Log,
    NewLogs,
    Parse,
    Purged,
    Recovery,
    Report,
    Scan,
    SegmentPiece,
    Stats,
    Store,
    Transaction,
    __version__,
    _forked,
    backup,
    now,
    open,
    parse,
    restore,
    verify,
)
from .errors import (
    BadName,
    Closed,
    Conflict,
    Damaged,
    Deleted,
    EmptyEntry,
    Error,
    Failed,
    Forked,
    Full,
    Held,
    InMemory,
    Io,
    LogClosed,
    Newer,
    NoLog,
    NotAStore,
    NotClosed,
    Occupied,
    Overloaded,
    Pending,
    ReadOnly,
    TooLarge,
    TransactionOver,
)

if _TYPE_CHECKING:
    from .loop import EventLoopPolicy as EventLoopPolicy, new_event_loop, run
else:

    def __getattr__(name: str) -> _Any:
        """What needs asyncio comes with it when it is asked for: importing the log stays cheap."""
        if name not in {"EventLoopPolicy", "new_event_loop", "run"}:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import loop

        return getattr(loop, name)


__all__ = [
    "Backup",
    "BadName",
    "Batch",
    "BatchPiece",
    "Closed",
    "Conflict",
    "Cursor",
    "Damage",
    "Damaged",
    "Deleted",
    "EmptyEntry",
    "EndPiece",
    "Entries",
    "Entry",
    "Error",
    "Failed",
    "Forked",
    "FramePiece",
    "Full",
    "Held",
    "InMemory",
    "Io",
    "Log",
    "NewLogs",
    "LogClosed",
    "Newer",
    "NoLog",
    "NotAStore",
    "NotClosed",
    "Occupied",
    "Overloaded",
    "Parse",
    "Pending",
    "Purged",
    "ReadOnly",
    "Recovery",
    "Report",
    "Scan",
    "SegmentPiece",
    "Stats",
    "Store",
    "TooLarge",
    "Transaction",
    "TransactionOver",
    "__version__",
    "backup",
    "errors",
    "new_event_loop",
    "now",
    "open",
    "parse",
    "restore",
    "run",
    "verify",
]

# A store belongs to the process that opened it: its threads do not follow into a child.
_os.register_at_fork(after_in_child=_forked)
