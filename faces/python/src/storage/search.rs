//! Searches by time, for which an index may have to be made first.
//!
//! With the index a search takes a microsecond and keeps the interpreter's lock: to give it away would cost
//! more, and 5 ms where another thread computes meanwhile. A segment that was not searched before is indexed
//! first. That takes 100 µs for each MiB of short entries, and as long as the disk needs for what is not in
//! memory, so it is done without the lock.

use super::shared::Shared;
use pyo3::prelude::*;
use std::sync::Arc;
use thalweg_log::Query;

/// Bytes that are indexed with the interpreter's lock held, at most.
const UNINDEXED_BYTES_MAX: u32 = 1 << 20;

/// Whether a search that has to index so many bytes first needs [`index`].
#[inline]
pub(crate) fn is_long(unindexed_bytes: u32) -> bool {
    unindexed_bytes > UNINDEXED_BYTES_MAX
}

/// Indexes what a search needs, while other threads run.
#[cold]
pub(crate) fn index(
    py: Python<'_>,
    shared: &Shared,
    log: &Arc<thalweg_log::Log>,
    query: &Query,
) -> PyResult<()> {
    let in_use = shared.enter()?;
    py.detach(|| drop(in_use.reader(log).cursor_up_to_now(query)));
    Ok(())
}
