//! Readiness to bytes: TCP, Unix sockets, shared memory.
//!
//! Owns: listeners ([`Listener`]), accepting in bounded batches without a spin when descriptors run out
//! ([`Acceptor`]), and reading and writing on a connection's descriptor ([`read`], [`write()`],
//! [`write_gathered`]), what it did not take yet ([`Unsent`]), and the same through shared memory that was
//! handed over ([`SharedEnd`]); where a service is found ([`Endpoint`]).
//!
//! Never knows: what a byte means, which connection a descriptor belongs to, when to read again.
//!
//! Reading and writing is one system call at a time, two where the kernel does not take bytes from a file by
//! itself ([`write_held`]). Nothing blocks but a [`PeerWait`], and binding a path for as long as its
//! directory is locked. A connection's descriptor is owned by its reactor's slab; the functions here borrow
//! it.
#![forbid(unsafe_code)]

mod acceptor;
mod endpoint;
mod listener;
mod peer_wait;
mod shared;
mod stream;
mod unsent;

pub use acceptor::{Accepted, Acceptor};
pub use endpoint::{Endpoint, UnknownEndpoint};
pub use listener::{BoundPath, Listener};
pub use peer_wait::{PeerWait, WaitOutcome};
pub use shared::{
    DrainOutcome, RING_BYTES_DEFAULT, SharedEnd, drain_bell, receive_with_descriptor, ring_bell,
    send_with_descriptor,
};
pub use stream::{
    ReadOutcome, WriteOutcome, read, read_any, shutdown_write, write, write_any, write_gathered, write_held,
};
pub use unsent::Unsent;

pub use thalweg_sync::ring::{Broken, RING_BYTES, Wanted};
pub use thalweg_sys::socket::{
    Peer, is_local, local_address, peer, peer_address, queued_bytes, same_user, same_user_or_root,
    set_send_buffer,
};
pub use thalweg_sys::standard::descriptors as standard_streams;
