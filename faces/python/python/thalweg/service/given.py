"""What is given to be served, looked at before anything listens: a handler is no service, though it is easily given for one."""

import inspect
from typing import Final

_NEEDED: Final = ("dispatch", "schema", "error")


def ensure_service(service: object, maker: str) -> None:
    """Raises `TypeError` unless it has what the generated `maker(handler)` returns."""
    if not all(hasattr(service, name) for name in _NEEDED):
        raise TypeError(f"{service!r} is no service: give what the generated {maker}(handler) returns")


def ensure_answers_at_once(service: object) -> None:
    """Raises `TypeError` for a service whose answers would have to be awaited, where nothing awaits."""
    if inspect.iscoroutinefunction(getattr(service, "dispatch", None)):
        raise TypeError("serve() awaits nothing: give what the generated service_sync(handler) returns, or serve this by Server")
