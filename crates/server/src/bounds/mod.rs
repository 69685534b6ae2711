//! What the server may take: bounds, how they are shared out to reactors, and what they come to in memory and
//! descriptors.
//!
//! | file | what it is |
//! |---|---|
//! | [`costs`] | bytes of one connection, stream, handshake |
//! | [`memory`] | how much memory the program may use |
//! | [`descriptors`] | how many connections the descriptor limit leaves room for |
//! | [`per_reactor`] | each reactor's share |
//! | [`limits`] | the sums that are said at the start |

pub(crate) mod costs;
pub(crate) mod descriptors;
mod limits;
pub(crate) mod memory;
mod per_reactor;

pub(crate) use descriptors::TooFew;
pub(crate) use limits::Limits;
pub(crate) use per_reactor::PerReactor;
