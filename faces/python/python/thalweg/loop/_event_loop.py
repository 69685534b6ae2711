"""The loop as asyncio's own classes see it: what they ask for by private names is answered natively."""

import asyncio
import contextlib
import os
import selectors
import socket
import threading
from asyncio import constants, sslproto
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from .._native import Loop
from . import _signals
from ._datagrams import DatagramTransport
from ._mailbox import Mailbox
from ._pipes import ReadPipe, WritePipe
from ._processes import ProcessTransport
from ._sockets import Listener, Sockets, is_known
from ._streams import StreamTransport


class _Watched(selectors.BaseSelector):
    """What the loop watches, for code that looks it up in a selector."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """What is watched of a descriptor; `KeyError` if nothing is."""
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        sides = self._loop._watched(descriptor)
        if sides is None:
            raise KeyError(f"{fileobj!r} is not watched")
        reads, writes = sides
        events = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)
        return selectors.SelectorKey(fileobj, descriptor, events, None)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Everything that is watched, by descriptor."""
        return {descriptor: self.get_key(descriptor) for descriptor in self._loop._watched_descriptors()}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Refused: descriptors are watched through the loop."""
        raise NotImplementedError("use the loop's add_reader() and add_writer()")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Refused, as `register` is."""
        raise NotImplementedError("use the loop's remove_reader() and remove_writer()")

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Refused: the loop itself waits."""
        raise NotImplementedError("the loop waits natively")

    def close(self) -> None:
        """Lets go of everything that is scheduled or watched."""
        self._loop._let_go()


class EventLoop(Sockets, asyncio.SelectorEventLoop):
    """An event loop. Made by `thalweg.new_event_loop`."""

    _hears_at: int | None = None
    """Where signals wake it, whichever way they are handled. Kept, since a close takes the pipe from the loop."""
    _csock: Any
    _signal_handlers: dict[int, Any]
    _thread_id: int | None
    """The thread that it runs in, while it does."""
    _transports: Mapping[int, Any]
    """The last one that was made for each descriptor, while something refers to it."""

    def __init__(self) -> None:
        super().__init__(_Watched(self))
        self._handed: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._process: int | None = None

    def run_forever(self) -> None:
        """Runs until `stop()`."""
        # Before asyncio's own is asked: what refuses there cleans up behind a run all the same (CPython 3.13.0), and the
        # loop that runs would pass for one that does not.
        self._check_closed()  # type: ignore[attr-defined]
        self._check_running()  # type: ignore[attr-defined]
        try:
            self._process = os.getpid()
            self._hear_signals()
            super().run_forever()
        finally:
            if not self.is_running():
                try:
                    self._do_all_handed()
                finally:
                    self._leave_signals()

    def _hear_signals(self) -> None:
        if self._csock is None:
            return
        # Noted first: an interrupt may come in between, and signals would go on being written where the pipe was.
        self._hears_at = self._csock.fileno()
        if not _signals.hear(self._hears_at):
            self._hears_at = None

    def _leave_signals(self) -> None:
        hears_at, self._hears_at = self._hears_at, None
        if hears_at is not None and not self._signal_handlers:
            _signals.leave(hears_at)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Has a signal handled in the loop."""
        try:
            super().add_signal_handler(sig, callback, *args)
        finally:
            self._go_on_hearing()

    def remove_signal_handler(self, sig: int) -> bool:
        """Handles a signal no more; whether it did."""
        removed = super().remove_signal_handler(sig)
        self._go_on_hearing()
        return removed

    def _go_on_hearing(self) -> None:
        if self.is_running() and not self._signal_handlers:
            # asyncio has just stopped to hear of any.
            self._hear_signals()

    @property
    def mailbox(self) -> Mailbox:
        """Every event by number: for callers that are no coroutines."""
        return Mailbox(self)

    def _add_callback(self, handle: asyncio.Handle) -> None:
        """Queues a handle that asyncio made itself: that of a signal."""
        if not handle._cancelled:
            self.call_soon(handle._run)

    def _runs_elsewhere(self) -> bool:
        return self._thread_id not in (None, threading.get_ident())

    def _hands_over(self, call: Callable[..., object], *args: Any) -> bool:
        """While it runs in another thread, has it call that in its next turn: whether it does.

        Whether it sleeps there is no use to know: a caller may give the interpreter's lock away before it acts on
        the answer.
        """
        if not self._runs_elsewhere():
            return False
        self._handed.append((call, args))
        with contextlib.suppress(RuntimeError):
            self.call_soon_threadsafe(self._do_handed)
        if self._thread_id is None:
            # It had its last turn meanwhile.
            self._do_all_handed()
        return True

    def _do_handed(self) -> None:
        try:
            call, args = self._handed.popleft()
        except IndexError:
            # Another thread took it, and does it.
            return
        call(*args)

    def _do_all_handed(self) -> None:
        """What was handed over in its last turn, and no turn will do."""
        while self._handed:
            try:
                self._do_handed()
            except Exception as error:
                self.call_exception_handler({"message": "ending what another thread closed failed", "exception": error})

    def _stop_serving(self, sock: socket.socket) -> None:
        # A server may be closed in any thread: it has let go of its sockets already.
        if self._runs_elsewhere() and self._process != os.getpid():
            # A child that another thread forked: its parent's loop runs, and perhaps waits, in a thread that is not here.
            sock.close()
        elif not self._hands_over(self._stop_serving, sock):
            super()._stop_serving(sock)  # type: ignore[misc]

    def _start_serving(
        self,
        protocol_factory: Any,
        sock: socket.socket,
        sslcontext: Any = None,
        server: Any = None,
        backlog: int = 100,
        ssl_handshake_timeout: Any = constants.SSL_HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: Any = constants.SSL_SHUTDOWN_TIMEOUT,
    ) -> None:
        limits = (ssl_handshake_timeout, ssl_shutdown_timeout)
        if is_known(sock):
            Listener(self, protocol_factory, sock, sslcontext, server, *limits).start(backlog)
        else:
            super()._start_serving(protocol_factory, sock, sslcontext, server, backlog, *limits)  # type: ignore[misc]

    def _ensure_no_transport(self, sock: socket.socket) -> None:
        """Refuses a socket that a transport has already. One whose number it only inherited belongs to none: the socket of
        the transport that had it was closed behind its back.
        """
        descriptor = sock.fileno()
        other = self._transports.get(descriptor)
        if other is None or other.is_closing():
            return
        theirs = other.get_extra_info("socket")
        if theirs is not None and theirs.fileno() == descriptor:
            raise RuntimeError(f"File descriptor {sock!r} is used by transport {other!r}")

    def _make_socket_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        *,
        extra: dict[str, Any] | None = None,
        server: Any = None,
    ) -> StreamTransport:
        self._ensure_no_transport(sock)
        return StreamTransport(self, sock, protocol, waiter, extra, server)

    def _make_datagram_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.DatagramProtocol,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> asyncio.DatagramTransport | DatagramTransport:
        self._ensure_no_transport(sock)
        if is_known(sock):
            return DatagramTransport(self, sock, protocol, address, waiter, extra)
        theirs: asyncio.DatagramTransport = super()._make_datagram_transport(  # type: ignore[misc]
            sock, protocol, address, waiter, extra
        )
        return theirs

    def _make_read_pipe_transport(
        self, pipe: Any, protocol: asyncio.BaseProtocol, waiter: Any = None, extra: dict[str, Any] | None = None
    ) -> ReadPipe:
        return ReadPipe(self, pipe, protocol, waiter, extra)

    def _make_write_pipe_transport(
        self, pipe: Any, protocol: asyncio.BaseProtocol, waiter: Any = None, extra: dict[str, Any] | None = None
    ) -> WritePipe:
        return WritePipe(self, pipe, protocol, waiter, extra)

    def _make_ssl_transport(
        self,
        rawsock: socket.socket,
        protocol: asyncio.BaseProtocol,
        sslcontext: Any,
        waiter: Any = None,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        ssl_handshake_timeout: Any = constants.SSL_HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: Any = constants.SSL_SHUTDOWN_TIMEOUT,
    ) -> asyncio.Transport:
        self._ensure_no_transport(rawsock)
        tls = sslproto.SSLProtocol(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )
        StreamTransport(self, rawsock, tls, None, extra, server)
        return tls._app_transport

    async def _make_subprocess_transport(
        self,
        protocol: asyncio.SubprocessProtocol,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        extra: Any = None,
        **kwargs: Any,
    ) -> ProcessTransport:
        waiter = self.create_future()
        transport = ProcessTransport(
            self, protocol, args, shell, stdin, stdout, stderr, bufsize, waiter=waiter, extra=extra, **kwargs
        )
        try:
            await waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            transport.close()
            await transport._wait()
            raise
        return transport
