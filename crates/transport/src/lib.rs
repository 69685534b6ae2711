//! Readiness to bytes: TCP and Unix sockets.
//!
//! Owns: listeners ([`Listener`]), accepting in bounded batches without a spin when descriptors run out
//! ([`Acceptor`]), and reading and writing on a connection's descriptor ([`read`], [`write()`],
//! [`write_gathered`], [`write_file`]).
//!
//! Never knows: what a byte means, which connection a descriptor belongs to, when to read again.
//!
//! Every function is one system call that never blocks. A connection's descriptor is owned by its
//! reactor's slab; the functions here borrow it.
#![forbid(unsafe_code)]

mod listener;
mod stream;

pub use listener::{Accepted, Acceptor, BoundPath, Listener};
pub use stream::{Read, Written, read, shutdown_write, write, write_file, write_gathered};

pub use thalweg_sys::socket::{Peer, local_address, peer, peer_address, set_send_buffer};
