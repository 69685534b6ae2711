//! The C interface of typed services and of JSON-RPC: what every language that can call C stands on.
//!
//! Owns: the boundary. What crosses it is plain: handles made and freed here, structs of numbers and
//! pointers, and codes that are [`thalweg_wire::fault::Fault`]'s, 0 for none. No panic crosses it: one
//! becomes `THALWEG_SYSTEM`. Each function is a few lines over `thalweg-service` or `thalweg-rpc`, and says
//! in `include/thalweg.h` (which is made from it) who owns what, which threads may call it, and how it fails.
//!
//! *Invariants*: a handle that is null is refused, never followed; what a function lends stays until the next
//! call on the same handle. *Checked by* the tests here, and by the C++ and Zig faces, which are built on
//! nothing else.
//!
//! Never knows: a schema, a language.

mod borrowed;
mod client;
mod client_options;
mod outcome;
mod reply;
mod rpc;
mod server;
mod server_options;
mod spawn;
mod wake;

pub use client::*;
pub use client_options::*;
pub use outcome::*;
pub use reply::*;
pub use rpc::*;
pub use server::*;
pub use server_options::*;
pub use spawn::*;
