"""Endpoints of datagrams: the native transport, with what is done once per endpoint."""

import asyncio
import socket
import warnings
from asyncio import transports, trsock
from collections.abc import Callable
from typing import Any

from .. import _native


class _AsTransport(transports._FlowControlMixin, asyncio.DatagramTransport):
    """What an endpoint passes for: asyncio's classes have a layout that ours cannot share."""


class DatagramTransport(_native.DatagramTransport):
    """The transport of a datagram socket, UDP or Unix."""

    # The longest datagram that is taken whole.
    max_size = 256 * 1024

    def __new__(
        cls,
        loop: Any,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        address: Any,
        waiter: asyncio.Future[None] | None,
        extra: dict[str, Any] | None,
    ) -> "DatagramTransport":
        known = {} if extra is None else dict(extra)
        known["socket"] = trsock.TransportSocket(sock)
        for name, ask in (("sockname", sock.getsockname), ("peername", sock.getpeername)):
            if name not in known:
                try:
                    known[name] = ask()
                except OSError:
                    known[name] = None
        return super().__new__(cls, loop, sock, known, address)

    def __init__(
        self,
        loop: Any,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        address: Any,
        waiter: asyncio.Future[None] | None,
        extra: dict[str, Any] | None,
    ) -> None:
        self.set_protocol(protocol)
        loop._transports[self._sock_fd] = self
        self._begin(waiter)

    @property  # type: ignore[misc]
    def __class__(self) -> type[_AsTransport]:  # type: ignore[override]
        return _AsTransport

    def __repr__(self) -> str:
        state = "closed" if self._sock is None else "closing" if self.is_closing() else "open"
        return f"<{type(self).__name__} {state} fd={self._sock_fd} bufsize={self.get_write_buffer_size()}>"

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if self._sock is not None:
            _warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
            self._abandon()
