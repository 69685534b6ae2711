//! Who may do what over HTTP: bearer tokens, each with scopes and a prefix of names.
//!
//! Purpose: a [`Certificate`] says who the server is. A [`Guard`] stands in front of whatever is served and
//! lets a request through that carries a token good for it. Owns: the token file in force, shared by every
//! reactor and exchanged whole by a reload. Never knows what is served behind it, but for the paths that
//! streams live at, and those of requests that prove themselves there.
//!
//! Invariants, each with a test: what was not let through has not reached the service, its body not even the
//! buffer; nobody without a good token has memory kept for a body, but for a little with a token that the
//! service has still to check; a token is kept and compared as its SHA-256 alone, and how long a comparison
//! takes says nothing about the tokens there are; a file that has become wrong changes nothing.

mod certificate;
mod guard;
mod mint;
mod tokens;

#[cfg(fuzzing)]
pub(crate) use tokens::fuzzing;

pub(crate) use certificate::{Certificate, CertificateError};
pub(crate) use guard::{Guard, Keys};
pub(crate) use mint::mint;
pub(crate) use tokens::{Scope, TokensError};
