"""An asyncio event loop on Thalweg's reactor.

    import thalweg

    thalweg.run(main())

`EventLoop` is an `asyncio.SelectorEventLoop` whose scheduling, timers, descriptors and connections are native; what is
not hot (name lookups, executors, TLS, signals) is asyncio's own. It is used like any other loop:
`asyncio.Runner(loop_factory=thalweg.new_event_loop)`, and from Python 3.12 on `asyncio.run(main(), loop_factory=…)`.
`asyncio.set_event_loop_policy(thalweg.EventLoopPolicy())` makes it every program's loop; Python 3.14 warns of that.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ._event_loop import EventLoop
from ._mailbox import Kind, Mailbox

if TYPE_CHECKING:
    from ._policy import EventLoopPolicy as EventLoopPolicy

__all__ = ["EventLoop", "Kind", "Mailbox", "new_event_loop", "run"]

_T = TypeVar("_T")


def new_event_loop() -> EventLoop:
    """A new loop: what `asyncio.Runner(loop_factory=...)` wants."""
    return EventLoop()


def run(main: Coroutine[Any, Any, _T], *, debug: bool | None = None) -> _T:
    """Runs a coroutine in a loop of its own and returns its result, as `asyncio.run` does."""
    if asyncio._get_running_loop() is not None:
        # Before anything is made that would have to be taken back.
        raise RuntimeError("thalweg.run() cannot be called from a running event loop")
    with asyncio.Runner(debug=debug, loop_factory=new_event_loop) as runner:
        return runner.run(main)


def __getattr__(name: str) -> Any:
    """The policy, made when it is asked for by name: asyncio warns of policies from Python 3.14 on, and will drop them."""
    if name != "EventLoopPolicy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._policy import EventLoopPolicy

    return EventLoopPolicy
