//! What a server has done so far.

/// What a server has done so far, and what it is busy with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Clients connected.
    pub clients: u64,
    /// Of them over shared memory.
    pub shared_clients: u64,
    /// Calls that were handed to a handler, and that it has not ended: one that ended for its client alone is
    /// still among them.
    pub in_flight: u64,
    /// Bytes of their requests, as far as their clients are connected.
    pub in_flight_bytes: u64,
    /// Requests that came, but those that were too long to be taken.
    pub requests: u64,
    /// Of these, those whose calls ended: answered, refused, cancelled, overdue, or left by a client that is
    /// gone.
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
