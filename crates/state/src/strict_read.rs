//! Reads a log of which no entry may be missing, from a store that may be damaged elsewhere.

use crate::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use thalweg_log::{Damage, Entry, Log, Offset, Query, ReadError, Start, Store};

/// Calls `visit` with the entries of a log, uncommitted ones too, from offset `from` on, until it breaks off
/// or reaches the end that the log had when this began. Each entry begins where the last one ended. Damage
/// that touches only other logs is passed over. If an entry is missing behind such damage, the damage is the
/// error: it did not name this log.
///
/// # Errors
/// Those of the log and of `visit`; [`ReadError::Purged`] where entries were purged, before this began or
/// meanwhile.
pub(crate) fn entries(
    store: &Store,
    log: &Arc<Log>,
    from: Offset,
    mut visit: impl FnMut(&Entry<'_>) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    let mut reader = store.reader(log);
    let tail = log.staged().map_or(from, |state| state.tail);
    let mut entries = reader.entries(&Query { uncommitted: true, ..Query::from(Start::Offset(from)) });
    let (mut passed, mut expected) = (None, from);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Err(ReadError::Damaged(damage)) if spares(&damage, log) && passed.as_ref() != Some(&damage) => {
                passed = Some(damage);
                entries.resume();
                continue;
            }
            entry => entry?,
        };
        if entry.offset != expected {
            return Err(missing(passed, expected, entry.offset));
        }
        expected = entry.offset + entry.data.len() as u64;
        if visit(&entry)?.is_break() {
            return Ok(());
        }
    }
    if expected < tail {
        return Err(missing(passed, expected, tail));
    }
    Ok(())
}

/// Why no entry was read from one offset up to another.
fn missing(passed: Option<Box<Damage>>, from: Offset, first: Offset) -> Error {
    passed.map_or(ReadError::Purged { from, first }, ReadError::Damaged).into()
}

/// Whether damage is known to touch neither a log nor the logs that it was forked from.
fn spares(damage: &Damage, log: &Arc<Log>) -> bool {
    let Some(logs) = damage.logs.known() else { return false };
    let parent = |log: &Arc<Log>| log.fork().map(|branch| branch.parent);
    !std::iter::successors(Some(log.clone()), parent).any(|log| logs.contains(&log.id()))
}
