//! Reading a log of which nothing may be missing, in a store where others' entries may be.

use crate::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use thalweg_log::{Damage, Entry, Log, Query, ReadError, Store};

/// Shows `visit` the entries of a log, uncommitted ones too, from where a query begins until it breaks off. Damage that touches other
/// logs alone is passed over.
///
/// # Errors
/// What the log says, and what `visit` does.
pub(crate) fn entries(
    store: &Store,
    log: &Arc<Log>,
    query: Query,
    mut visit: impl FnMut(&Entry<'_>) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    let mut reader = store.reader(log);
    let mut entries = reader.entries(&Query { uncommitted: true, ..query });
    let (mut passed, mut expected) = (None, None);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Err(ReadError::Damaged(damage)) if spares(&damage, log) && passed.as_ref() != Some(&damage) => {
                passed = Some(damage);
                entries.resume();
                continue;
            }
            entry => entry?,
        };
        // What it was said to touch is not all: an entry is missing.
        if expected.is_some_and(|offset| offset != entry.offset)
            && let Some(damage) = passed
        {
            return Err(ReadError::Damaged(damage).into());
        }
        expected = Some(entry.offset + entry.data.len() as u64);
        if visit(&entry)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Whether damage is known to touch neither a log nor those that it came from.
fn spares(damage: &Damage, log: &Arc<Log>) -> bool {
    let Some(logs) = &damage.logs else { return false };
    let parent = |log: &Arc<Log>| log.fork().map(|branch| branch.parent);
    !std::iter::successors(Some(log.clone()), parent).any(|log| logs.contains(&log.id()))
}
