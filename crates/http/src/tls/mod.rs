//! TLS: the server's side beneath its connections, and the client's side for calls to other servers.
//!
//! Owns what is between the socket's bytes and the connection's: sealing, opening, handshakes and goodbyes.
//! Never knows what the bytes mean.
//!
//! A connection that is idle keeps its keys and nothing else: the library is used without buffers of its own,
//! so that what comes in is opened where the reactor's buffer received it, and what goes out is sealed in one
//! buffer of the reactor's. No thread, no lock but the one around the certificate, which is taken once per
//! handshake.

mod identity;
mod peer;
mod secure;
mod session;
mod trust;

pub use identity::{Identity, IdentityError};
pub use peer::Peer;
pub(crate) use secure::{ReceiveOutcome, Secure, SentBytes};
pub use trust::Trust;

/// What is spoken inside (RFC 7301).
const PROTOCOL: &[u8] = b"http/1.1";
