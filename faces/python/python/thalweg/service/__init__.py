"""Typed services over Unix sockets and shared memory: calling them and being one.

    from thalweg.service import Client
    from echo import echo_client, echo_types       # as written by thalweg codegen --lang python

    async with await Client.connect("run/echo.sock", schema=echo_types.SCHEMA_HASH) as transport:
        client = echo_client.EchoClient(transport)
        print(await client.fields(echo_types.EchoFields(count=1, total=2, name="three")))

A path that ends in `.sock` is a Unix socket, one that ends in `.shm` goes through shared memory. What goes wrong is a
`ServiceError` with a class per fault, whose `retry` says whether the same call may be made again.
"""

from ..calls import (
    Reply,
    Service,
    SyncReply,
    SyncService,
    SyncTransport,
    Transport,
    answer,
    error_frame,
    failed,
    log_mistake,
    refuse,
    send_items,
    send_items_sync,
    unended,
)
from ..faults import (
    Abandoned,
    AddressInUse,
    BY_FAULT,
    BadAnswer,
    BadArgument,
    BadFrame,
    BadRequest,
    BrokenPeer,
    Cancelled,
    Closed,
    ConnectTimeout,
    DeadlineExceeded,
    Disconnected,
    Draining,
    DuplicateId,
    Fault,
    FrameTooLarge,
    NoServer,
    NoSharedMemory,
    NotSent,
    Overloaded,
    Overrun,
    PermissionDenied,
    Refused,
    Retry,
    SchemaMismatch,
    ServiceError,
    System,
    UnknownCommand,
    VersionMismatch,
)
from ..forks import Forks
from ..messagepack import DecodeError, EncodeError
from .client import Client, Stream
from .options import ClientOptions, ServerOptions
from .serve import serve
from .server import Server
from .spawn import Spawned
from .sync import SyncClient, SyncStream

__all__ = [
    "Abandoned",
    "AddressInUse",
    "BY_FAULT",
    "BadAnswer",
    "BadArgument",
    "BadFrame",
    "BadRequest",
    "BrokenPeer",
    "Cancelled",
    "Client",
    "ClientOptions",
    "Closed",
    "ConnectTimeout",
    "DeadlineExceeded",
    "DecodeError",
    "Disconnected",
    "Draining",
    "DuplicateId",
    "EncodeError",
    "Fault",
    "Forks",
    "FrameTooLarge",
    "NoServer",
    "NoSharedMemory",
    "NotSent",
    "Overloaded",
    "Overrun",
    "PermissionDenied",
    "Refused",
    "Reply",
    "Retry",
    "SchemaMismatch",
    "Server",
    "ServerOptions",
    "Service",
    "ServiceError",
    "Spawned",
    "Stream",
    "SyncClient",
    "SyncReply",
    "SyncService",
    "SyncStream",
    "SyncTransport",
    "System",
    "Transport",
    "UnknownCommand",
    "VersionMismatch",
    "answer",
    "error_frame",
    "failed",
    "log_mistake",
    "refuse",
    "send_items",
    "send_items_sync",
    "serve",
    "unended",
]
