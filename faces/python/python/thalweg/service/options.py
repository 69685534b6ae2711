"""What a client may be told when it connects."""

from typing import NotRequired, TypedDict


class ClientOptions(TypedDict):
    """The keywords of `Client.connect` and `SyncClient`."""

    schema: NotRequired[bytes]
    """SHA-256 of the schema the caller was generated from, its `SCHEMA_HASH`; without it any fits."""
    connect_within: NotRequired[float]
    """Seconds to go on trying to connect: until somebody listens, has room, and says welcome. 5 unless said; 0 tries once."""
    deadline: NotRequired[float]
    """Seconds that anybody wants the answer of a call that says nothing else."""
    in_flight_max: NotRequired[int]
    """Calls in flight at most; one more is `Overloaded`. 1024 unless said."""
    unsent_bytes_max: NotRequired[int]
    """Bytes at most that wait to be sent before a further call is `Overloaded`. 64 MiB unless said."""
    frame_bytes_max: NotRequired[int]
    """The longest request to send and the longest answer to take. 16 MiB unless said."""
    shared: NotRequired[bool]
    """Ask for shared memory on a `.sock` too, and do without where there is none."""
    ring_bytes: NotRequired[int]
    """Bytes of each ring to ask for; 0 leaves that to the server."""
    spin: NotRequired[bool]
    """May look for some microseconds for an answer in shared memory before sleeping. True unless said."""
    reconnect: NotRequired[tuple[float, float]]
    """Connect anew with the next call after the connection ended, pausing so many seconds after a first attempt that
    failed, and never longer than so many. Without it further calls fail."""
    plain: NotRequired[bool]
    """Speak plain frames: no hello, answers in order, neither cancellation nor credit."""
    same_user_only: NotRequired[bool]
    """Only a server that this process's user runs, or root, is spoken to; as is unless said otherwise."""


class ServerOptions(TypedDict):
    """The keywords of `Server` and `serve`."""

    frame_bytes_max: NotRequired[int]
    """The longest request; a longer one is refused. 16 MiB unless said."""
    ring_bytes_max: NotRequired[int]
    """The largest ring a client may ask for, in bytes, each way. 4 MiB unless said."""
    clients_max: NotRequired[int]
    """Clients at once; more wait to be accepted. 65,000 unless said."""
    in_flight_max: NotRequired[int]
    """Calls of one connection at once; at this bound it is not read from. 1024 unless said."""
    in_flight_bytes_max: NotRequired[int]
    """Bytes of their requests; at this bound it is not read from. One request always fits. 64 MiB unless said."""
    unsent_bytes_max: NotRequired[int]
    """Bytes of answers that one connection may leave lying before it is not read from. 4 MiB unless said."""
    stream_credit: NotRequired[int]
    """Items that a new stream may send before its client asks for more. 64 unless said."""
    spin: NotRequired[bool]
    """May look again for a moment before sleeping while work comes fast, in `serve`. True unless said."""
    drain_grace: NotRequired[float]
    """Seconds that clients may take, once the server was stopped, to take their last answers. 5 unless said."""
    same_user_only: NotRequired[bool]
    """Only this process's user may connect. True unless said."""
