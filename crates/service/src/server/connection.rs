//! One client's connection, on the reactor's thread alone.
//!
//! The files in the order of a request's way:
//!
//! | file | what it does |
//! |---|---|
//! | `bind`, `accept` | listens, and lets clients in |
//! | `slot` | what a client costs while it is idle |
//! | `busy`, `input` | what it costs while bytes or calls are in flight, and the bytes that came |
//! | `opening` | finds out what kind of connection it is, and hands rings over |
//! | `next_frame` | says what its input begins with |
//! | `serve` | begins calls |
//! | `ahead` | hears what stands behind a request that has to wait |
//! | `in_flight` | keeps the calls that were not answered at once |
//! | `settle` | takes answers in, in the order that the connection promises, and gives credit |
//! | `flow` | ends calls before their handlers do |
//! | `send` | writes, and applies backpressure |

pub(crate) mod accept;
pub(crate) mod ahead;
pub(crate) mod bind;
pub(crate) mod busy;
pub(crate) mod flow;
pub(crate) mod in_flight;
pub(crate) mod input;
pub(crate) mod next_frame;
pub(crate) mod opening;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod settle;
pub(crate) mod slot;
