"""What can go wrong with a call, by name, by number and as exceptions. Written by `cargo xtask faults` from crates/wire/src/fault.rs. Do not edit."""

from enum import IntEnum, unique
from typing import ClassVar, Final, Literal, TypeAlias

from .errors import Error

Retry: TypeAlias = Literal["never", "safe", "unknown"]
"""Whether the same call may be made again: it would go wrong again, it was not carried out, it may have been."""


@unique
class Fault(IntEnum):
    """What went wrong. Numbers are never reused; a newer library may know more of them."""

    REFUSED = 1
    """The service refused, in its own words."""
    BAD_REQUEST = 2
    """The frame is no request of this service: not MessagePack, or fields that are wrong, missing or too many."""
    UNKNOWN_COMMAND = 3
    """No command has this name."""
    BAD_FRAME = 4
    """The bytes are no frames of the protocol; the connection ends."""
    FRAME_TOO_LARGE = 5
    """The frame is longer than its reader allows."""
    DUPLICATE_ID = 6
    """A call was begun under the id of one that has not ended."""
    SCHEMA_MISMATCH = 7
    """The two ends were generated from different schemas."""
    VERSION_MISMATCH = 8
    """The two ends speak different versions of the protocol."""
    NO_SHARED_MEMORY = 9
    """The endpoint offers shared memory only, or none, or has none left."""
    CANCELLED = 10
    """The call was cancelled."""
    DEADLINE_EXCEEDED = 11
    """The call's deadline passed."""
    ABANDONED = 12
    """The handler ended without an answer."""
    OVERLOADED = 13
    """A bound was reached before any work was done."""
    DRAINING = 14
    """The server is ending and takes nothing new."""
    OVERRUN = 15
    """A stream's producer went on although nobody took what it made."""
    DISCONNECTED = 16
    """The connection ended before the answer came."""
    NOT_SENT = 17
    """The request was not sent: the connection ended before, or its deadline passed."""
    NO_SERVER = 18
    """Nobody listens at the endpoint."""
    CONNECT_TIMEOUT = 19
    """The endpoint did not take the connection in time."""
    PERMISSION_DENIED = 20
    """The endpoint may not be used by this user."""
    ADDRESS_IN_USE = 21
    """Another server has the endpoint."""
    CLOSED = 22
    """This end was closed."""
    BAD_ANSWER = 23
    """The answer does not fit the schema."""
    BROKEN_PEER = 24
    """The peer wrote what no peer may write into shared memory."""
    BAD_ARGUMENT = 25
    """An argument that can never be right."""
    SYSTEM = 26
    """The operating system failed."""

    @property
    def retry(self) -> Retry:
        """Whether the same call may be made again."""
        return _ROWS[self][0]

    @property
    def http_status(self) -> int:
        """The HTTP status that says the same."""
        return _ROWS[self][1]

    @property
    def rpc_code(self) -> int:
        """The JSON-RPC code that says the same."""
        return _ROWS[self][2]

    @property
    def says(self) -> str:
        """One sentence for people."""
        return _ROWS[self][3]


_ROWS: Final[dict[Fault, tuple[Retry, int, int, str]]] = {
    Fault.REFUSED: ("never", 422, -32000, "the service refused"),
    Fault.BAD_REQUEST: ("never", 400, -32602, "the request does not fit the schema"),
    Fault.UNKNOWN_COMMAND: ("never", 404, -32601, "the service has no such command"),
    Fault.BAD_FRAME: ("never", 400, -32019, "the bytes are no frame"),
    Fault.FRAME_TOO_LARGE: ("never", 413, -32020, "the frame is longer than is allowed"),
    Fault.DUPLICATE_ID: ("never", 400, -32021, "a call with this id has not ended yet"),
    Fault.SCHEMA_MISMATCH: ("never", 409, -32001, "client and server were made from different schemas"),
    Fault.VERSION_MISMATCH: ("never", 505, -32002, "client and server speak different versions"),
    Fault.NO_SHARED_MEMORY: ("never", 503, -32003, "shared memory was not agreed on"),
    Fault.CANCELLED: ("unknown", 499, -32004, "the call was cancelled"),
    Fault.DEADLINE_EXCEEDED: ("unknown", 504, -32005, "the deadline passed"),
    Fault.ABANDONED: ("unknown", 500, -32006, "the handler gave no answer"),
    Fault.OVERLOADED: ("safe", 503, -32007, "a limit was reached: try again later"),
    Fault.DRAINING: ("safe", 503, -32008, "the server is ending"),
    Fault.OVERRUN: ("unknown", 500, -32009, "the stream ran ahead of its reader"),
    Fault.DISCONNECTED: ("unknown", 502, -32010, "the connection ended before the answer came"),
    Fault.NOT_SENT: ("safe", 502, -32011, "the request was not sent"),
    Fault.NO_SERVER: ("safe", 502, -32012, "nobody listens there"),
    Fault.CONNECT_TIMEOUT: ("safe", 504, -32013, "the server did not take the connection in time"),
    Fault.PERMISSION_DENIED: ("never", 403, -32014, "this user may not use the endpoint"),
    Fault.ADDRESS_IN_USE: ("never", 409, -32015, "another server has the endpoint"),
    Fault.CLOSED: ("never", 410, -32016, "this end was closed"),
    Fault.BAD_ANSWER: ("unknown", 502, -32017, "the answer does not fit the schema"),
    Fault.BROKEN_PEER: ("unknown", 502, -32018, "the peer broke the rules of shared memory"),
    Fault.BAD_ARGUMENT: ("never", 400, -32602, "an argument cannot be right"),
    Fault.SYSTEM: ("unknown", 500, -32603, "the operating system failed"),
}


class ServiceError(Error):
    """Anything that goes wrong with a service: each fault has a class of its own below."""

    fault: ClassVar[Fault] = Fault.SYSTEM

    detail: str
    """What, where, and what to do about it."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        if self.detail and self.fault is Fault.REFUSED:
            return self.detail
        return f"{self.fault.says}: {self.detail}" if self.detail else self.fault.says

    @property
    def retry(self) -> Retry:
        """Whether the same call may be made again."""
        return self.fault.retry


class Refused(ServiceError):
    """The service refused, in its own words."""

    fault = Fault.REFUSED
    code = "REFUSED"


class BadRequest(ServiceError):
    """The frame is no request of this service: not MessagePack, or fields that are wrong, missing or too many."""

    fault = Fault.BAD_REQUEST
    code = "BAD_REQUEST"


class UnknownCommand(ServiceError):
    """No command has this name."""

    fault = Fault.UNKNOWN_COMMAND
    code = "UNKNOWN_COMMAND"


class BadFrame(ServiceError):
    """The bytes are no frames of the protocol; the connection ends."""

    fault = Fault.BAD_FRAME
    code = "BAD_FRAME"


class FrameTooLarge(ServiceError):
    """The frame is longer than its reader allows."""

    fault = Fault.FRAME_TOO_LARGE
    code = "FRAME_TOO_LARGE"


class DuplicateId(ServiceError):
    """A call was begun under the id of one that has not ended."""

    fault = Fault.DUPLICATE_ID
    code = "DUPLICATE_ID"


class SchemaMismatch(ServiceError):
    """The two ends were generated from different schemas."""

    fault = Fault.SCHEMA_MISMATCH
    code = "SCHEMA_MISMATCH"


class VersionMismatch(ServiceError):
    """The two ends speak different versions of the protocol."""

    fault = Fault.VERSION_MISMATCH
    code = "VERSION_MISMATCH"


class NoSharedMemory(ServiceError):
    """The endpoint offers shared memory only, or none, or has none left."""

    fault = Fault.NO_SHARED_MEMORY
    code = "NO_SHARED_MEMORY"


class Cancelled(ServiceError):
    """The call was cancelled."""

    fault = Fault.CANCELLED
    code = "CANCELLED"


class DeadlineExceeded(ServiceError, TimeoutError):
    """The call's deadline passed."""

    fault = Fault.DEADLINE_EXCEEDED
    code = "DEADLINE_EXCEEDED"


class Abandoned(ServiceError):
    """The handler ended without an answer."""

    fault = Fault.ABANDONED
    code = "ABANDONED"


class Overloaded(ServiceError):
    """A bound was reached before any work was done."""

    fault = Fault.OVERLOADED
    code = "OVERLOADED"


class Draining(ServiceError):
    """The server is ending and takes nothing new."""

    fault = Fault.DRAINING
    code = "DRAINING"


class Overrun(ServiceError):
    """A stream's producer went on although nobody took what it made."""

    fault = Fault.OVERRUN
    code = "OVERRUN"


class Disconnected(ServiceError, ConnectionError):
    """The connection ended before the answer came."""

    fault = Fault.DISCONNECTED
    code = "DISCONNECTED"


class NotSent(ServiceError, ConnectionError):
    """The request was not sent: the connection ended before, or its deadline passed."""

    fault = Fault.NOT_SENT
    code = "NOT_SENT"


class NoServer(ServiceError, ConnectionError):
    """Nobody listens at the endpoint."""

    fault = Fault.NO_SERVER
    code = "NO_SERVER"


class ConnectTimeout(ServiceError, TimeoutError):
    """The endpoint did not take the connection in time."""

    fault = Fault.CONNECT_TIMEOUT
    code = "CONNECT_TIMEOUT"


class PermissionDenied(ServiceError, PermissionError):
    """The endpoint may not be used by this user."""

    fault = Fault.PERMISSION_DENIED
    code = "PERMISSION_DENIED"


class AddressInUse(ServiceError):
    """Another server has the endpoint."""

    fault = Fault.ADDRESS_IN_USE
    code = "ADDRESS_IN_USE"


class Closed(ServiceError):
    """This end was closed."""

    fault = Fault.CLOSED
    code = "CLOSED"


class BadAnswer(ServiceError):
    """The answer does not fit the schema."""

    fault = Fault.BAD_ANSWER
    code = "BAD_ANSWER"


class BrokenPeer(ServiceError):
    """The peer wrote what no peer may write into shared memory."""

    fault = Fault.BROKEN_PEER
    code = "BROKEN_PEER"


class BadArgument(ServiceError):
    """An argument that can never be right."""

    fault = Fault.BAD_ARGUMENT
    code = "BAD_ARGUMENT"


class System(ServiceError):
    """The operating system failed."""

    fault = Fault.SYSTEM
    code = "SYSTEM"


BY_FAULT: Final[dict[int, type[ServiceError]]] = {
    Fault.REFUSED: Refused,
    Fault.BAD_REQUEST: BadRequest,
    Fault.UNKNOWN_COMMAND: UnknownCommand,
    Fault.BAD_FRAME: BadFrame,
    Fault.FRAME_TOO_LARGE: FrameTooLarge,
    Fault.DUPLICATE_ID: DuplicateId,
    Fault.SCHEMA_MISMATCH: SchemaMismatch,
    Fault.VERSION_MISMATCH: VersionMismatch,
    Fault.NO_SHARED_MEMORY: NoSharedMemory,
    Fault.CANCELLED: Cancelled,
    Fault.DEADLINE_EXCEEDED: DeadlineExceeded,
    Fault.ABANDONED: Abandoned,
    Fault.OVERLOADED: Overloaded,
    Fault.DRAINING: Draining,
    Fault.OVERRUN: Overrun,
    Fault.DISCONNECTED: Disconnected,
    Fault.NOT_SENT: NotSent,
    Fault.NO_SERVER: NoServer,
    Fault.CONNECT_TIMEOUT: ConnectTimeout,
    Fault.PERMISSION_DENIED: PermissionDenied,
    Fault.ADDRESS_IN_USE: AddressInUse,
    Fault.CLOSED: Closed,
    Fault.BAD_ANSWER: BadAnswer,
    Fault.BROKEN_PEER: BrokenPeer,
    Fault.BAD_ARGUMENT: BadArgument,
    Fault.SYSTEM: System,
}
"""The exceptions by their faults."""
