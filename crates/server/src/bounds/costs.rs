//! What things cost in memory at most, as measured: what limits are summed by, and what is shown of memory by
//! kind.

/// Bytes of an idle connection, whether it follows a stream or not; `cargo xtask slopes` measures it.
pub(crate) const IDLE_BYTES: u64 = 128;
/// Bytes of an idle stream with a name of 32 bytes; `cargo xtask streams-million` measures it.
pub(crate) const STREAM_BYTES: u64 = 400;
/// Bytes of a reactor's buffer, which a connection borrows while bytes are in flight.
pub(crate) const BUFFER_BYTES: u64 = 16 << 10;
/// Bytes of what a connection owns beside its buffer while bytes are in flight.
pub(crate) const ACTIVE_BYTES: u64 = 512;
/// Bytes of an idle connection's keys behind TLS; `thalweg bench idle` measures it.
pub(crate) const KEYS_BYTES: u64 = 4 << 10;
/// Bytes behind TLS of a record that has not come whole.
pub(crate) const RECORD_BYTES: u64 = 20 << 10;
/// Bytes of a TLS handshake under way beside these.
pub(crate) const HANDSHAKE_BYTES: u64 = 16 << 10;
/// Bytes of an answer that waits for the disk.
pub(crate) const WRITE_BYTES: u64 = 1 << 10;
