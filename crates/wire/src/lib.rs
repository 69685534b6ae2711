//! Bytes to messages and back, sans-io. Owns every wire format; never knows time, files or sockets.
//!
//! Everything here is a plain function of its input. Input is hostile until a parser has passed it: parsers
//! are strict (one text per value), bounded, and never recurse without a bound of their own; property tests
//! feed each of them anything.
#![forbid(unsafe_code)]

pub mod decimal;
pub mod etag;
pub mod excerpt;
pub mod exchange;
pub mod fault;
pub mod field;
pub mod frame;
pub mod hex;
pub mod host;
pub mod http1;
pub mod json;
pub mod jsonrpc;
pub mod lines;
pub mod media;
pub mod messagepack;
pub mod path;
mod percent;
pub mod piece;
pub mod problem;
pub mod query;
pub mod rfc3339;
pub mod service;
pub mod sse;
mod tchar;
pub mod term;
pub mod token;
pub mod url;
