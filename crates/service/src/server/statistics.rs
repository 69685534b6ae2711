//! What a server has done so far.

/// What a server has done so far, and what it is busy with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Clients connected.
    pub clients: u64,
    /// Of them over shared memory.
    pub shared_clients: u64,
    /// Calls that were handed to a handler and have not been answered.
    pub in_flight: u64,
    /// Bytes of their requests, as far as their clients are connected.
    pub in_flight_bytes: u64,
    /// Requests that came.
    pub requests: u64,
    /// Calls that ended, refused ones included.
    pub answers: u64,
    /// System calls that read.
    pub reads: u64,
    /// System calls that wrote.
    pub writes: u64,
    /// System calls that woke a peer behind shared memory.
    pub bells: u64,
    /// System calls that waited, or asked what is ready.
    pub waits: u64,
}
