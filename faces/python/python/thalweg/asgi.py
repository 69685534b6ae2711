"""ASGI applications: served in a loop of ours, or asked one request at a time by a server that read it, such as Erlang's.

`serve` runs an application under a server, uvicorn unless another runner is given. `respond` is what `thalweg_asgi` in
Erlang calls by default; another function of the same shape may stand in its place, and reads a request's body by `Body`.
`shut_down` tells what it started that the process ends, as a worker of Erlang's does by itself.
"""

import asyncio
import importlib
import logging
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, TypeAlias

from . import erlang
from ._native import named
from .loop import run as run_in_loop

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]
Runner: TypeAlias = Callable[..., Awaitable[None]]
"""Called as `runner(application, **options)`; serves until it returns."""

_AHEAD = 16
"""Messages that an application may be ahead of their reader."""

_PART_BYTES_MAX = 1 << 16
"""A longer part of an answer leaves in pieces: what carries it bounds a message, and how many of them wait there."""

_LEAVE_WITHIN = 5.0
"""Seconds that an application has that heard that its client is gone."""

_started: dict[str, "_Life"] = {}
_background: set[asyncio.Task[None]] = set()
"""What goes on by itself: what applications do behind their answers."""
_left: set[asyncio.Task[None]] = set()
"""Applications whose answers nobody reads any more, and that see to their end."""


def serve(app: Application | str, *, runner: Runner | str = "thalweg.asgi:with_uvicorn", **options: Any) -> None:
    """Serves an application in a loop of ours until the runner, which is given the options, ends.

    Application and runner may be named: `module:attribute`. Who interrupts it (SIGINT, Ctrl-C) and is heard by the runner, as
    by uvicorn, which shuts down then, ends it as ordinarily as the runner ends.
    """
    application = _named(app) if isinstance(app, str) else app
    serves: Runner = _named(runner) if isinstance(runner, str) else runner

    has_ended = False

    async def main() -> None:
        nonlocal has_ended
        await serves(application, **options)
        has_ended = True

    try:
        run_in_loop(main())
    except KeyboardInterrupt:
        # A runner that was interrupted and has ended by itself may say so once more, behind its end.
        if not has_ended:
            raise


async def with_uvicorn(app: Application, **options: Any) -> None:
    """The runner where none is given: uvicorn, which has to be installed. Takes the words of `uvicorn.Config`, but for those that
    are about other processes than this one: `workers` and `reload`.
    """
    if options.get("reload") or (options.get("workers") or 1) > 1:
        raise ValueError(
            "asgi.serve serves in this process alone: for `workers` or `reload` run"
            " `uvicorn --loop thalweg:new_event_loop module:attribute`"
        )
    try:
        uvicorn: Any = importlib.import_module("uvicorn")
    except ModuleNotFoundError as missing:
        if missing.name != "uvicorn":
            raise
        words = "asgi.serve needs uvicorn, which is not installed: `pip install uvicorn`, or give it another `runner`"
        raise ModuleNotFoundError(words, name="uvicorn") from None
    await uvicorn.Server(uvicorn.Config(app, loop="none", **options)).serve()


async def run(app: Application, scope: Message, body: bytes = b"") -> tuple[int, list[Header], bytes]:
    """The whole answer of an application to one request: status, headers, body."""
    status, headers, parts = 500, [], []
    async for part in _answer(app, scope, body):
        if isinstance(part, tuple):
            status, headers = part
        else:
            parts.append(part)
    return status, headers, b"".join(parts)


async def respond(name: str, scope: Message, body: bytes | str | erlang.Pid) -> AsyncIterator[Any]:
    """The answer of the application that is called so, `module:attribute`: `(status, headers)`, then its body in parts.

    A request's body is there, or is read from a process of Erlang's as the application asks for it.
    """
    app: Application = _named(name)
    await _start(name, app)
    async with aclosing(_answer(app, _whole(scope), body)) as answer:
        async for part in answer:
            yield part


class Body:
    """A request's body, as a runner is given it: whole, or by the process in Erlang that reads it from the client."""

    def __init__(self, body: bytes | str | erlang.Pid) -> None:
        """One that nothing was read of."""
        self._reader = body if isinstance(body, erlang.Pid) else None
        self._rest = b"" if isinstance(body, erlang.Pid) else body.encode() if isinstance(body, str) else body
        self._asked: asyncio.Future[Any] | None = None
        self._turn = asyncio.Lock()
        self.is_read = False
        """All of it was."""

    async def read(self) -> tuple[bytes, bool]:
        """The next piece, and whether more may follow. A client that is gone, or sends nothing for too long, is `EOFError`.

        A piece that was not waited for to its end is the next one, and of several who wait each has another.
        """
        if self._reader is None:
            self.is_read, rest, self._rest = True, self._rest, b""
            return rest, False
        async with self._turn:
            if self._asked is None:
                self._asked = asyncio.ensure_future(erlang.acall("thalweg:body", self._reader))
            told = await asyncio.shield(self._asked)
            self._asked = None
        if not isinstance(told, tuple):
            raise EOFError("the client is gone")
        piece, is_more = told
        self.is_read = not is_more
        return piece, is_more


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return named(module, attribute or "app")


def _bytes(value: bytes | str) -> bytes:
    return value.encode("latin-1") if isinstance(value, str) else value


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def _whole(scope: Message) -> Message:
    """With what applications may rely on, and bytes where they expect them."""
    path = _text(scope.get("path", "/"))
    headers = [(_bytes(name).lower(), _bytes(value)) for name, value in scope.get("headers", [])]
    whole = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "root_path": "",
        "client": None,
        "server": None,
        **scope,
        "path": path,
        "raw_path": _bytes(scope.get("raw_path", path.encode())),
        "query_string": _bytes(scope.get("query_string", b"")),
        "headers": headers,
    }
    return whole


async def _answer(app: Application, scope: Message, body: bytes | str | erlang.Pid) -> AsyncGenerator[Any, None]:
    messages: asyncio.Queue[Message | None] = asyncio.Queue(_AHEAD)
    is_begun = is_whole = left = False
    hears = 0
    gone = asyncio.Event()
    request = Body(body)

    async def receive() -> Message:
        nonlocal hears
        if not request.is_read and not gone.is_set():
            try:
                piece, is_more = await request.read()
            except EOFError:
                gone.set()
            else:
                return {"type": "http.request", "body": piece, "more_body": is_more}
        hears += 1
        try:
            await gone.wait()
        finally:
            hears -= 1
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal is_begun, is_whole
        if left:
            raise OSError("the client is gone")
        if is_whole:
            raise RuntimeError(f"{message['type']} behind the last part of an answer")
        expected = "http.response.body" if is_begun else "http.response.start"
        if message["type"] != expected:
            raise RuntimeError(f"{message['type']} where {expected} is expected")
        is_whole = is_begun and not message.get("more_body", False)
        is_begun = True
        await messages.put(message)

    async def work() -> None:
        try:
            await app(scope, receive, send)
        finally:
            if not left:
                await messages.put(None)

    task = asyncio.create_task(work())
    is_over = False
    try:
        while (message := await messages.get()) is not None:
            if message["type"] == "http.response.start":
                yield message["status"], [(bytes(name), bytes(value)) for name, value in message.get("headers", [])]
            else:
                part = bytes(message.get("body", b""))
                for at in range(0, len(part), _PART_BYTES_MAX):
                    yield part[at : at + _PART_BYTES_MAX]
                if not message.get("more_body", False):
                    is_over = True
                    break
        was_gone = gone.is_set()
        gone.set()
        if not is_over:
            # What it raised amid its answer is the caller's, and so is an answer without an end: no client may take it for whole.
            await task
            if is_begun:
                raise RuntimeError("the application returned before the last part of its answer")
            # A client that is gone is owed none.
            if not was_gone:
                logging.getLogger("thalweg.asgi").error("an application returned without an answer: %r", app)
        else:
            # What an application does behind its answer it may do, and what it raises there is no part of that.
            _background.add(task)
            task.add_done_callback(_behind)
        is_over = True
    finally:
        if not is_over:
            # What it may still send is not read. One that waits for the disconnect sees to its end by itself.
            left = True
            if not task.done():
                _left.add(task)
                task.add_done_callback(_behind)
            if hears > 0:
                gone.set()
                asyncio.get_running_loop().call_later(_LEAVE_WITHIN, task.cancel)
            else:
                task.cancel()


def _behind(task: asyncio.Task[None]) -> None:
    """What an application did behind its answer is done."""
    _background.discard(task)
    _left.discard(task)
    if not task.cancelled() and (raised := task.exception()) is not None:
        logging.getLogger("thalweg.asgi").error("an application failed behind its answer", exc_info=raised)


async def see_out(within: float) -> int:
    """Waits, so many seconds at most, for applications whose answers were given up. How many of them go on all the same."""
    if not _left:
        return 0
    _, late = await asyncio.wait(set(_left), timeout=within)
    return len(late)


async def shut_down(within: float | None = None) -> list[str]:
    """Has the applications that `respond` started shut down, and waits so many seconds at most. What went wrong, in words.

    One that is asked afterwards starts anew.
    """
    lives = dict(_started)
    _started.clear()
    for life in lives.values():
        life.leave()
    if lives:
        await asyncio.wait([life.over for life in lives.values()], timeout=within)
    wrong = []
    for name, life in lives.items():
        if not life.over.done():
            life.task.cancel()
            wrong.append(f"{name} has not shut down within {within} s")
        elif words := life.over.result() or life.refusal():
            wrong.append(f"{name}: {words}")
    return wrong


async def _start(name: str, app: Application) -> None:
    """Has an application start up, once in this process. One that knows no lifespan goes without; one that could not start
    tries again with the next who asks for it.
    """
    life = _started.get(name)
    if life is None:
        life = _started[name] = _Life(app)
        if erlang._worker is not None:
            # So that it hears of the end of this process beforehand.
            await erlang.acall("thalweg:lifespan")
    try:
        await asyncio.shield(life.ready)
    except Exception:
        if _started.get(name) is life:
            del _started[name]
            # What it still does ends by itself.
            life.leave()
            _background.add(life.task)
            life.task.add_done_callback(_behind)
        raise


class _Life:
    """An application from its start to its end."""

    def __init__(self, app: Application) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        """It has started, or could not."""
        self.over: asyncio.Future[str] = loop.create_future()
        """It has shut down: what went wrong."""
        self._leaving = asyncio.Event()
        self._is_told = False
        self.task = asyncio.create_task(self._live(app))

    def leave(self) -> None:
        """It is to shut down."""
        self._leaving.set()

    def refusal(self) -> str:
        """Why it did not start; nothing where it did."""
        raised = self.ready.exception()
        return f"it did not start: {raised}" if raised is not None else ""

    async def _live(self, app: Application) -> None:
        words = ""
        try:
            await app(
                {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.3"}}, self._receive, self._send
            )
        except Exception as raised:
            # Before it has started that says that it knows no lifespan.
            if self.ready.done() and not self.ready.exception():
                words = "".join(traceback.format_exception_only(raised)).strip()
        finally:
            self._begin(None)
            self._end(words)

    async def _receive(self) -> Message:
        if not self._is_told:
            self._is_told = True
            return {"type": "lifespan.startup"}
        await self._leaving.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Message) -> None:
        match message["type"]:
            case "lifespan.startup.failed":
                self._begin(RuntimeError(message.get("message", "the application did not start")))
            case "lifespan.shutdown.failed":
                self._end(message.get("message") or "it could not shut down")
            case "lifespan.shutdown.complete":
                self._end("")
            case _:
                self._begin(None)

    def _begin(self, wrong: Exception | None) -> None:
        if self.ready.done():
            return
        if wrong is None:
            self.ready.set_result(None)
        else:
            self.ready.set_exception(wrong)

    def _end(self, words: str) -> None:
        if not self.over.done():
            self.over.set_result(words)
