//! HTTP/1.1 on the reactor: connections, keep-alive, pipelining, bodies, long-poll and SSE fan-out, limits.
//!
//! Owns what a connection is and when it reads, writes, waits and ends. Executes the words of
//! [`thalweg_wire::exchange`] for whatever [`Service`](thalweg_wire::exchange::Service) it is given.
//! Never knows the rules of streams, nor where bytes are kept.
//!
//! Beneath its connections lies TLS where a listener asks for it ([`tls`]). Beside them is the other side of
//! one: a single request of our own, with or without TLS, as webhooks are called ([`client`]).
//!
//! | | |
//! |---|---|
//! | the handler | `reactor` says which part answers which event; `drive` moves a connection forward, in one order; `timer` |
//! | connections | `connection` says what one is, `at` is one that something is done with; `accept`, `overflow`, `drain` |
//! | bytes in | `receive`, then `request`; `bodies` that are still arriving |
//! | bytes out | `send`, or many connections' at once: `send_batch` |
//! | answers that wait | `live` for a topic, `later` for the service, `cold` for the disk |
//! | bounds | `config`, `load`, `patience`; `limit` names what was met, `warnings` and `meters` tell of it; `append_latency` |
//!
//! Invariants, each with a test of its name in `tests/`:
//! - responses leave in the order of their requests, whatever order their tickets complete in;
//! - an idle connection (kept alive, parked long-poll or SSE) owns no buffer: its 24-byte slab entry is all;
//! - a request that arrives in one piece costs one `recv` and one `send`, and nothing is registered anew;
//! - subscribers that stand alike are sent the same bytes, encoded once;
//! - nothing is encoded for a client that does not read, and its connection is closed after a while;
//! - bytes that are not in memory are brought there by the pool, and hold back only the clients that read
//!   them;
//! - small requests are answered whatever is full, and a request without room is refused, never ignored;
//! - draining ends within its grace, and ends what can be ended in good order.
#![forbid(unsafe_code)]

mod accept;
mod append_latency;
mod at;
mod bodies;
pub mod client;
mod cold;
mod config;
mod connection;
mod drain;
mod drive;
mod later;
mod limit;
mod live;
mod load;
mod meters;
mod overflow;
mod patience;
mod reactor;
mod receive;
mod request;
mod send;
mod send_batch;
mod timer;
pub mod tls;
mod warnings;

pub use config::{Config, OVERFLOW_CONNECTIONS_MAX};
pub use connection::Connection;
pub use limit::Limit;
pub use meters::{Calls, Meters, Traffic};
pub use reactor::{ConnectionCounts, Http, ListenerSettings, Message};
pub use warnings::RateLimitedWarning;
