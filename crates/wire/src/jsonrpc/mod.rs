//! JSON-RPC 2.0: what a body asks, and what answers it. Rules in `docs/rpc.md`.
//!
//! *One text per meaning.* A body is judged as a whole before anything of it is carried out: [`calls`] says
//! what it asks, or why nothing of it will happen. Ids are kept as they were written and echoed byte for
//! byte; parameters and results stay text ([`Text`](crate::json::Text) walks it), so an integer of 64 bits
//! never passes through a float, and nothing is built between the text and whatever it becomes.
//!
//! *Bounds*: nesting up to [`DEPTH_MAX`](crate::json::DEPTH_MAX), as many calls as the caller allows, nothing
//! allocated but a list of the calls.
//!
//! *Checked by* property tests: any bytes, any cut, and agreement with another parser about what is JSON.

mod answer;
mod body;
pub mod write;

pub use answer::{Answer, AnswerError, Outcome, answers};
pub use body::{BodyError, Call, Calls, Id, InvalidRequest, Item, Params, calls};

/// The version that requests and answers name, as it is written.
const VERSION: &str = r#""2.0""#;
/// The body is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The JSON is no request.
pub const INVALID_REQUEST: i32 = -32600;
/// The parameters do not fit the method.
pub const INVALID_PARAMS: i32 = -32602;
