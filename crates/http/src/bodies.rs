//! The bodies that are still arriving, and what they may take together.
//!
//! A body that is announced is reserved whole before any of it is read, so that those let in can all be finished; one
//! in chunks is counted as it comes. Heads are not counted: every connection may have one. What was reserved is given back
//! when the request is whole, refused or gone.
//!
//! Invariant: `held` is the sum of what every connection has reserved. *Checked by* the tests in `tests/requests.rs`.

use crate::connection::{Active, Body};
use thalweg_wire::exchange::Refusal;

/// What the bodies of one reactor have reserved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bodies {
    held: u64,
}

impl Bodies {
    /// Reserves what a body is known to need; whether there was room for it.
    pub(crate) fn reserve<T>(&mut self, active: &mut Active<T>, body: &Body, bytes_max: u64) -> bool {
        let wanted = match body {
            Body::Unknown => 0,
            Body::Fixed { head_bytes, total_bytes } => (total_bytes - head_bytes) as u64,
            Body::Chunked { decoded, .. } => decoded.len() as u64,
        };
        let held = self.held - active.reserved + wanted;
        // What gives room back is never refused.
        let fits = held <= bytes_max || wanted <= active.reserved;
        if fits {
            (self.held, active.reserved) = (held, wanted);
        }
        fits
    }

    /// Bytes reserved at the moment.
    pub(crate) fn held(self) -> u64 {
        self.held
    }

    /// Gives back what a connection's body had reserved.
    pub(crate) fn release<T>(&mut self, active: &mut Active<T>) {
        self.held -= std::mem::take(&mut active.reserved);
    }
}

/// The refusal of a body that there is no room for now.
pub(crate) const FULL: Refusal = Refusal {
    status: 503,
    code: "too-many-bodies",
    field: "body",
    detail: "The bodies that are arriving take all the memory there is for them; send it again in a moment.",
};
