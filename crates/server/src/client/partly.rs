//! An append that failed part of the way: what was appended, so that the user can go on behind it.

use super::failure::Failure;
use crate::quantity::Count;
use serde::Serialize;
use std::fmt;

/// What is known to be there.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AppendedPart {
    /// Offset behind it.
    pub(crate) next_offset: String,
    /// Bytes of this run.
    pub(crate) bytes: u64,
    /// Appends of this run.
    pub(crate) appends: u64,
    /// One more may be there, behind these.
    pub(crate) unsure: bool,
}

/// Why it ended, and how far it came.
#[derive(Debug)]
pub(crate) struct PartialAppend {
    pub(crate) failure: Failure,
    pub(crate) there: AppendedPart,
}

impl fmt::Display for PartialAppend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AppendedPart { next_offset, bytes, appends, unsure } = &self.there;
        write!(out, "{}", self.failure)?;
        if *appends == 0 {
            return Ok(());
        }
        let (bytes, appends) = (Count(*bytes, "byte"), Count(*appends, "append"));
        write!(out, "; {bytes} of it ({appends}) are there, up to {next_offset}")?;
        // What may have arrived is told of already; and what was no message says it itself.
        let said = *unsure || matches!(self.failure.cause(), Failure::Message { .. });
        if said { Ok(()) } else { write!(out, ", and nothing after") }
    }
}
