//! Services in Node.js, the native half: clients and servers that the event loop drives.
//!
//! Owns the embedded reactors and their place in libuv's loop. Never knows a schema, nor what JavaScript does
//! with a frame: frames come and go in areas of many (`area`), one native call for each turn.

mod area;
mod blocking;
mod client;
mod options;
mod program;
mod server;
mod watch;

pub(crate) use options::fault;
pub(crate) use watch::Watch;
