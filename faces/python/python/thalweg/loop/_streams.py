"""Connections: the native transport, with what is done once per connection."""

import asyncio
import contextlib
import inspect
import socket
import warnings
from asyncio import base_events, constants, transports, trsock
from collections.abc import Callable
from functools import partial
from typing import Any

from .. import _native

# What asyncio's classes call among themselves has no types.
_base: Any = base_events

# Since 3.13 a server knows its connections, before it only counted them.
_SERVER_KNOWS = len(inspect.signature(_base.Server._attach).parameters) > 1


class _AsTransport(transports._FlowControlMixin, asyncio.Transport):
    """What a connection passes for: asyncio's classes have a layout that ours cannot share."""


class StreamTransport(_native.StreamTransport):
    """The transport of a stream socket, TCP or Unix."""

    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.TRY_NATIVE
    max_size = 256 * 1024

    def __new__(
        cls,
        loop: Any,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None,
        extra: dict[str, Any] | None,
        server: Any,
    ) -> "StreamTransport":
        known = {} if extra is None else dict(extra)
        known["socket"] = trsock.TransportSocket(sock)
        try:
            known["sockname"] = sock.getsockname()
        except OSError:
            known["sockname"] = None
        if "peername" not in known:
            try:
                known["peername"] = sock.getpeername()
            except OSError:
                known["peername"] = None
        return super().__new__(cls, loop, sock, known)

    def __init__(
        self,
        loop: Any,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None,
        extra: dict[str, Any] | None,
        server: Any,
    ) -> None:
        self.set_protocol(protocol)
        self._server = server
        if server is not None:
            peer = (self,) if _SERVER_KNOWS else ()
            server._attach(*peer)
            self._leave(partial(self._left, server))
        loop._transports[self._sock_fd] = self
        _base._set_nodelay(sock)
        self._begin(waiter)

    @property  # type: ignore[misc]
    def __class__(self) -> type[_AsTransport]:  # type: ignore[override]
        return _AsTransport

    def _left(self, server: Any) -> None:
        self._server = None
        server._detach(*((self,) if _SERVER_KNOWS else ()))

    def __repr__(self) -> str:
        words = [type(self).__name__]
        if self._sock is None:
            words.append("closed")
        elif self.is_closing():
            words.append("closing")
        words.append(f"fd={self._sock_fd}")
        if self._loop is not None and not self._loop.is_closed():
            # The collector may ask in another thread, while the loop waits: then it is not known.
            with contextlib.suppress(RuntimeError):
                reads, writes = self._loop._watched(self._sock_fd) or (False, False)
                words.append(f"read={'polling' if reads else 'idle'}")
                words.append(f"write=<{'polling' if writes else 'idle'}, bufsize={self.get_write_buffer_size()}>")
        return f"<{' '.join(words)}>"

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if self._sock is not None:
            _warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
            self._abandon()
