"""Options of clients and servers."""

from typing import NotRequired, TypedDict


class ClientOptions(TypedDict):
    """The keywords of `Client.connect` and `SyncClient`."""

    schema: NotRequired[bytes]
    """SHA-256 of the schema the caller was generated from, its `SCHEMA_HASH`; without it any fits."""
    connect_within: NotRequired[float]
    """Seconds to go on trying to connect: until a server listens, has room, and says welcome. 5 by default; 0 tries once."""
    deadline: NotRequired[float]
    """The deadline of a call that is given none, in seconds."""
    in_flight_max: NotRequired[int]
    """Calls in flight at most; one more is `Overloaded`. 1024 by default."""
    unsent_bytes_max: NotRequired[int]
    """Bytes at most that wait to be sent before a further call is `Overloaded`. 64 MiB by default."""
    frame_bytes_max: NotRequired[int]
    """The longest request to send and the longest answer to take. 16 MiB by default."""
    shared: NotRequired[bool]
    """Ask for shared memory on a `.sock` too, and do without where there is none."""
    ring_bytes: NotRequired[int]
    """Bytes of each ring to ask for; 0 leaves that to the server."""
    spin: NotRequired[bool]
    """May look for some microseconds for an answer in shared memory before sleeping. True by default."""
    reconnect: NotRequired[tuple[float, float]]
    """Connect anew with the next call after the connection ended. The two numbers are the pause after a first attempt that
    failed, in seconds, and the longest pause. Without it further calls fail."""
    plain: NotRequired[bool]
    """Speak plain frames: no hello, answers in order, neither cancellation nor credit."""
    same_user_only: NotRequired[bool]
    """Connect only to a server that this process's user or root runs. True by default."""


class ServerOptions(TypedDict):
    """The keywords of `Server` and `serve`."""

    frame_bytes_max: NotRequired[int]
    """The longest request; a longer one is refused. 16 MiB by default."""
    ring_bytes_max: NotRequired[int]
    """The largest ring a client may ask for, in bytes, each way. 4 MiB by default."""
    clients_max: NotRequired[int]
    """Clients at once; more wait to be accepted. 65,000 by default."""
    in_flight_max: NotRequired[int]
    """Calls of one connection at once; at this bound it is not read from. 1024 by default."""
    in_flight_bytes_max: NotRequired[int]
    """Bytes of their requests; at this bound it is not read from. One request always fits. 64 MiB by default."""
    unsent_bytes_max: NotRequired[int]
    """Bytes of answers that one connection may leave lying before it is not read from. 4 MiB by default."""
    stream_credit: NotRequired[int]
    """Items that a new stream may send before its client asks for more. 64 by default."""
    spin: NotRequired[bool]
    """May look again for a moment before sleeping while work comes fast, in `serve`. True by default."""
    drain_grace: NotRequired[float]
    """Seconds that clients may take, once the server was stopped, to take their last answers. 5 by default."""
    hello_within: NotRequired[float]
    """Seconds that a client that connected may take to say what it speaks. One that has said only a part of it by then is
    disconnected; one that has said nothing gives its place to another that waits. 10 by default."""
    same_user_only: NotRequired[bool]
    """Only this process's user may connect. True by default."""
