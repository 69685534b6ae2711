"""Sockets without a protocol, and those that a server listens at: what is awaited of them, and the peers that connected."""

import asyncio
import errno
import socket
from asyncio import base_events, constants, trsock
from typing import Any

from .._native import Loop, Operation
from ._streams import StreamTransport

# What asyncio's classes call among themselves has no types.
_base: Any = base_events

_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
# A Unix listener whose queue is full says nothing when there is room again.
_CONNECT_RETRY_SECONDS = 0.01
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def is_known(sock: socket.socket) -> bool:
    """Whether addresses of its family are known natively."""
    return sock.family in _FAMILIES


class Sockets(Loop):
    """What is awaited of a bare socket. A wait that is cancelled takes nothing from it: what came is there for the next.
    `sock_sendfile` is asyncio's own.
    """

    async def sock_recv(self, sock: socket.socket, nbytes: int) -> bytes:
        """Up to so many bytes; none at the end."""
        data: bytes = await self._operate(sock, Operation.reading(sock, "recv", nbytes))
        return data

    async def sock_recv_into(self, sock: socket.socket, buf: Any) -> int:
        """Reads into a buffer: how many bytes."""
        count: int = await self._operate(sock, Operation.reading(sock, "recv_into", buf))
        return count

    async def sock_recvfrom(self, sock: socket.socket, bufsize: int) -> tuple[bytes, Any]:
        """One datagram, and its sender's address."""
        came: tuple[bytes, Any] = await self._operate(sock, Operation.reading(sock, "recvfrom", bufsize))
        return came

    async def sock_recvfrom_into(self, sock: socket.socket, buf: Any, nbytes: int = 0) -> tuple[int, Any]:
        """Reads one datagram into a buffer: how many bytes, and its sender's address."""
        operation = Operation.reading(sock, "recvfrom_into", buf, nbytes or len(buf))
        came: tuple[int, Any] = await self._operate(sock, operation)
        return came

    async def sock_sendall(self, sock: socket.socket, data: Any) -> None:
        """Sends all bytes, however often the peer has to be waited for."""
        view = data if isinstance(data, bytes) else memoryview(data).cast("B")
        await self._operate(sock, Operation.sending(sock, view))

    async def sock_sendto(self, sock: socket.socket, data: Any, address: Any) -> int:
        """Sends one datagram: how many bytes."""
        count: int = await self._operate(sock, Operation.writing(sock, "sendto", data, address))
        return count

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connects; names are looked up without blocking. Waits while a Unix listener's queue is full."""
        _base._check_ssl_socket(sock)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            found = await self._ensure_resolved(  # type: ignore[attr-defined]
                address, family=sock.family, type=sock.type, proto=sock.proto, loop=self
            )
            address = found[0][4]
        while True:
            try:
                await self._operate(sock, Operation.connecting(sock, address))
                return
            except BlockingIOError:
                if sock.family != socket.AF_UNIX:
                    raise
            await asyncio.sleep(_CONNECT_RETRY_SECONDS)

    async def sock_accept(self, sock: socket.socket) -> tuple[socket.socket, Any]:
        """The next connection, and its peer's address."""
        accepted: tuple[socket.socket, Any] = await self._operate(sock, Operation.accepting(sock))
        return accepted

    async def _operate(self, sock: socket.socket, operation: Operation) -> Any:
        _base._check_ssl_socket(sock)
        if self._debug and sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")
        try:
            while (waiter := operation.advance(self)) is not None:
                try:
                    await waiter
                finally:
                    operation.end(self)
            return operation.result()
        finally:
            # The exception keeps this frame, and the waiter would keep the exception: a cycle.
            waiter = None
            del operation


class Listener:
    """Makes a transport of each connection that a server's socket takes."""

    def __init__(self, loop: Any, factory: Any, sock: socket.socket, tls: Any, server: Any, *limits: Any) -> None:
        self._loop = loop
        self._factory = factory
        self._sock = sock
        self._kind = (sock.family, sock.type | socket.SOCK_NONBLOCK, sock.proto)
        self._tls = tls
        self._server = server
        self._limits = limits

    def start(self, backlog: int) -> None:
        """Begins to take connections."""
        self._backlog = backlog
        self._loop._accept(self._sock, self._connected, self._refused, max(backlog, 1))

    def _connected(self, descriptor: int, address: Any) -> None:
        # That it does not block is part of its type: nothing has to be set.
        sock = socket.socket(*self._kind, fileno=descriptor)
        if self._loop._debug:
            _base.logger.debug("%r got a new connection from %r: %r", self._server, address, sock)
        extra = {"peername": address}
        protocol: Any = None
        try:
            if not self._is_closed():
                protocol = self._factory()
            if self._is_closed():
                # By the factory, or meanwhile in another thread.
                sock.close()
                return
            if self._tls is None:
                StreamTransport(self._loop, sock, protocol, None, extra, self._server)
                return
            shakes = self._loop._accept_connection2(
                lambda: protocol, sock, extra, self._tls, self._server, *self._limits
            )
            self._loop.create_task(shakes)
        except BaseException as error:
            sock.close()
            if isinstance(error, SystemExit | KeyboardInterrupt):
                raise
            message = "Error on transport creation for incoming connection"
            self._loop.call_exception_handler({"message": message, "exception": error, "protocol": protocol})

    def _is_closed(self) -> bool:
        return self._sock.fileno() < 0 or (self._server is not None and self._server._sockets is None)

    def _refused(self, error: OSError) -> None:
        if error.errno not in _OUT_OF_RESOURCES:
            raise error
        # The connection goes on waiting, and the socket readable: look again in a while.
        message = "socket.accept() out of system resource"
        context = {"message": message, "exception": error, "socket": trsock.TransportSocket(self._sock)}
        self._loop.call_exception_handler(context)
        self._loop._remove_reader(self._sock.fileno())
        self._loop.call_later(constants.ACCEPT_RETRY_DELAY, self._again)

    def _again(self) -> None:
        if self._sock.fileno() >= 0:
            self.start(self._backlog)
