"""What stands between generated code and the transport that carries its frames.

A transport under a client, a reply under a server: generated code speaks these words,
transports execute them, neither sees the other.
"""

from __future__ import annotations

import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
)
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, cast

from .faults import Refused
from .forks import Forks
from .messagepack import DecodeError, Reader, write_string

T = TypeVar("T")

_BAD_REQUEST: Final = 2
_UNKNOWN_COMMAND: Final = 3


class Transport(Protocol):
    """Carries requests and lets others run meanwhile."""

    async def call(self, request: bytes, *, deadline: float | None = None) -> bytes:
        """Sends a request; returns the frame that answers it, within so many seconds."""
        ...

    def stream(
        self,
        request: bytes,
        *,
        deadline: float | None = None,
        credit: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Sends a request that a stream answers; yields its frames.

        At most ``credit`` items are on their way at a time.
        """
        ...


class SyncTransport(Protocol):
    """Carries one request at a time and waits."""

    def call(self, request: bytes, *, deadline: float | None = None) -> bytes:
        """Sends a request; returns the frame that answers it, within so many seconds."""
        ...

    def stream(
        self,
        request: bytes,
        *,
        deadline: float | None = None,
        credit: int | None = None,
    ) -> Iterator[bytes]:
        """Sends a request that a stream answers; yields its frames.

        At most ``credit`` items are on their way at a time.
        """
        ...


class Reply(Protocol):
    """Where a server's frames for one request go."""

    async def item(self, frame: bytes) -> bool:
        """Sends one item of a stream. False says that nobody waits for more."""
        ...

    def end(self, frame: bytes) -> None:
        """Sends the frame that ends the call. Called once."""
        ...


class SyncReply(Protocol):
    """The same where waiting keeps nobody else from running."""

    def item(self, frame: bytes) -> bool:
        """Sends one item of a stream. False says that nobody waits for more."""
        ...

    def end(self, frame: bytes) -> None:
        """Sends the frame that ends the call. Called once."""
        ...


@dataclass(frozen=True)
class Service:
    """A handler, and what a server has to know to serve it."""

    dispatch: Callable[[bytes, Reply], Awaitable[None]]
    schema: bytes
    error: str
    """The tag of its error."""


@dataclass(frozen=True)
class SyncService:
    """The same for a handler of plain functions."""

    dispatch: Callable[[bytes, SyncReply], None]
    schema: bytes
    error: str
    """The tag of its error."""


def error_frame(tag: str, error: BaseException) -> bytes:
    """An error's frame."""
    out = bytearray(b"\x92")
    write_string(out, tag)
    out += b"\x81\xa7message"
    # What no UTF-8 holds must not keep the error from being told.
    words = str(error) or type(error).__name__
    write_string(out, words.encode(errors="replace").decode())
    return bytes(out)


class _ReaderGone(ConnectionError):
    """Nobody waits for the rest of a stream."""

    def __init__(self) -> None:
        super().__init__("the reader went away")


def failed(reply: object, tag: str, request: object, error: Exception) -> None:
    """Answers with the error that a handler raised, and logs what is no refusal."""
    log_mistake(type(request).__name__, error)
    cast(Reply, reply).end(error_frame(tag, error))


def log_mistake(of: str, error: Exception) -> None:
    """Tells the logger ``thalweg.service`` what a handler raised, unless it refused."""
    if not isinstance(error, (Refused, _ReaderGone)):
        logging.getLogger("thalweg.service").error("%s failed", of, exc_info=error)


def refuse(reply: object, tag: str, error: BaseException) -> None:
    """Says why a frame is no request: by its fault where a reply has faults."""
    if isinstance(error, DecodeError) and hasattr(reply, "fail"):
        is_unknown = error.reason == "a message nobody declared"
        reply.fail(_UNKNOWN_COMMAND if is_unknown else _BAD_REQUEST, str(error))
    else:
        cast(Reply, reply).end(error_frame(tag, error))


async def send_items(
    items: AsyncGenerator[T, None],
    reply: Reply,
    encode: Callable[[T], bytes],
    end: type[object],
) -> None:
    """Sends what a handler yields; its response, of the type ``end``, ends the call."""
    try:
        async for value in items:
            frame = encode(value)
            if isinstance(value, end):
                break
            if not await reply.item(frame):
                raise _ReaderGone
        else:
            raise RuntimeError("the stream ended without its response")
    finally:
        # What a handler cleans up belongs to its turn, however the stream ended. What is no generator has nothing to.
        if hasattr(items, "aclose"):
            await items.aclose()
    reply.end(frame)


def send_items_sync(
    items: Generator[T, None, None],
    reply: SyncReply,
    encode: Callable[[T], bytes],
    end: type[object],
    *,
    in_turn: bool = False,
) -> None:
    """The same for a plain generator.

    A reply that has a method ``stream`` is given the frames to send and whose they are, and
    may serve others while there is no credit; not if the stream is to be over ``in_turn``.
    """
    frames = _frames_sync(items, encode, end)
    stream = None if in_turn else getattr(reply, "stream", None)
    if stream is not None:
        stream(frames, getattr(items, "__qualname__", type(items).__qualname__))
        return
    while True:
        try:
            frame = next(frames)
        except StopIteration as ended:
            reply.end(ended.value)
            return
        if not reply.item(frame):
            frames.close()
            raise _ReaderGone


def _frames_sync(
    items: Generator[T, None, None],
    encode: Callable[[T], bytes],
    end: type[object],
) -> Generator[bytes, None, bytes]:
    """The frames of what a handler yields. That of its response is returned."""
    try:
        for value in items:
            frame = encode(value)
            if isinstance(value, end):
                return frame
            yield frame
        raise RuntimeError("the stream ended without its response")
    finally:
        # What a handler cleans up belongs to its turn here, too.
        if hasattr(items, "close"):
            items.close()


def answer(frame: bytes, error: str, reads: dict[str, Callable[[Reader], T]]) -> T:
    """Reads a frame by its tag; raises Refused when it is the service's error."""
    reader = Reader(frame)
    tag = reader.response()
    read = reads.get(tag)
    if read is not None:
        value = read(reader)
        reader.finish()
        return value
    if tag != error:
        raise reader.refuse("a message nobody declared", "frame")
    fields = reader.struct(error, {b"message": ("message", True, Reader.string)})
    reader.finish()
    raise Refused(fields["message"])


def unended() -> DecodeError:
    """What is raised of a stream whose frames are over and whose response never came."""
    return DecodeError("frame", "the stream ended without its response", 0)


__all__ = [
    "DecodeError",
    "Forks",
    "Refused",
    "Reply",
    "Service",
    "SyncReply",
    "SyncService",
    "SyncTransport",
    "Transport",
    "answer",
    "error_frame",
    "failed",
    "log_mistake",
    "refuse",
    "send_items",
    "send_items_sync",
    "unended",
]
