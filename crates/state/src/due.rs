//! The forks that are due for an image, so that neither housekeeping nor a large commit looks at every fork.
//!
//! *Invariant*: a fork whose replay would read [`Options::image_bytes`] or more, or would need an image that
//! cannot be read, is in the set, from shortly after the change that makes it due. A fork is removed with the
//! set locked, and only if it is gone, or not due even with the commits on their way. A fork, and each
//! commit, is published before the fork is added, so none is missed.
//!
//! *Checked by* `tests/images.rs` and `tests/damaged_images.rs`.
//!
//! [`Options::image_bytes`]: crate::Options::image_bytes

use crate::fork::{Fork, View};
use crate::state::{ForkId, State};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_log::Offset;

#[derive(Debug, Default)]
pub(crate) struct Due(Mutex<BTreeSet<ForkId>>);

impl State {
    /// Adds a fork to the set if it is due. Its log ends at `end`. Complexity: constant unless it is due.
    pub(crate) fn note_due(&self, fork: &Fork, end: Offset) {
        if fork.behind(end) >= self.shared.options.image_bytes {
            self.shared.due.0.lock().insert(fork.log.id());
        }
    }

    /// The forks whose committed state is due for an image. Complexity: a look at each in the set.
    pub(crate) fn due(&self) -> Vec<Arc<Fork>> {
        let limit = self.shared.options.image_bytes;
        let mut due = Vec::new();
        self.shared.due.0.lock().retain(|fork| {
            let Ok(fork) = self.find(*fork) else { return false };
            // A dropped fork needs no image.
            let Ok(pending) = fork.pending() else { return false };
            if fork.moment(View::Committed).is_ok_and(|committed| fork.behind(committed.offset) >= limit) {
                due.push(fork.clone());
            }
            fork.behind(pending.offset) >= limit
        });
        due
    }
}
