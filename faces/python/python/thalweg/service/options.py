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
