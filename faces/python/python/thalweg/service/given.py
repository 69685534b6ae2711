"""What is given to be served, looked at before anything listens: a handler is no service, though it is easily given for one."""

import inspect
from functools import partial
from typing import Final

from ..calls import SyncService

_NEEDED: Final = ("dispatch", "schema", "error")


def ensure_service(service: object, maker: str) -> None:
    """Raises `TypeError` unless it has what the generated `maker(handler)` returns."""
    if not all(hasattr(service, name) for name in _NEEDED):
        raise TypeError(f"{service!r} is no service: give what the generated {maker}(handler) returns")


def ensure_answers_at_once(service: object) -> None:
    """Raises `TypeError` for a service whose answers would have to be awaited, where nothing awaits."""
    if inspect.iscoroutinefunction(getattr(service, "dispatch", None)):
        raise TypeError("serve() awaits nothing: give what the generated service_sync(handler) returns, or serve this by Server")


def ensure_awaits(service: object) -> None:
    """Raises `TypeError` for a service of plain functions, where answers are awaited: items of its streams would be lost without a
    word, since sending one has to be awaited.
    """
    dispatch = getattr(service, "dispatch", None)
    while isinstance(dispatch, partial):
        dispatch = dispatch.func
    # Generated code that carries its own runtime has another `SyncService`, and is known by its function.
    # Nothing is asked of any other: whatever returns an awaitable may serve.
    is_generated = inspect.isfunction(dispatch) and dispatch.__name__ == "dispatch_unordered_sync"
    if isinstance(service, SyncService) or (is_generated and not inspect.iscoroutinefunction(dispatch)):
        raise TypeError("Server awaits: give what service(handler) returns, or serve this by serve()")
