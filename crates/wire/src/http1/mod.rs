//! HTTP/1.1 messages (RFC 9112): heads in, bodies decoded, heads and chunks out. No I/O, no clock.
//!
//! Everything is borrowed: a parsed head points into the bytes it was parsed from, and a decoded chunk
//! is a range of its input. Where two readers of one byte stream might disagree about where a message
//! ends (request smuggling), this one refuses: both framings, repeated or odd lengths, bare line feeds,
//! folded lines, any transfer coding but `chunked`.
//!
//! Invariants, checked by the property tests beside each part: cutting the input anywhere never changes
//! the outcome; no input panics; what is refused names the field and the rule.

mod announced;
mod arrival;
mod body;
mod chunked;
mod encode;
mod head;
mod heads;
mod minor;
mod persistence;
mod response;

pub use announced::announced;
pub use arrival::{Arrival, ArrivalError, CompleteResponse};
pub use body::BodyDecoder;
pub use chunked::{Chunk, ChunkedDecoder};
pub use encode::{
    CHUNK_END, CONTINUE, ChunkHead, Date, Framing, HeadPlan, LAST_CHUNK, chunk_head, encode_head, reason,
    status_has_body,
};
pub use head::{BodyLength, Fields, Head, HeadParser, Limits};
pub use heads::Heads;
pub use response::{ResponseError, ResponseField, ResponseHead, parse_response};
