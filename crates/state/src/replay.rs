//! What logs come to.
//!
//! Forks are replayed in the order in which they were made, each from where it branched off its parent: so what they
//! share in the logs they share in memory. One whose parent was dropped replays what it inherits by itself.

use crate::error::Error;
use crate::fork::{Fork, Moment};
use crate::journal;
use crate::state::ForkId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use thalweg_log::{Log, Offset, Query, Start, Store};

/// The forks of these logs.
///
/// # Errors
/// [`Error::Foreign`], and what the log says.
pub(crate) fn all(store: &Store, mut logs: Vec<Arc<Log>>) -> Result<BTreeMap<ForkId, Arc<Fork>>, Error> {
    // A parent is older than its forks, and ids only grow.
    logs.sort_by_key(|log| log.id());
    let mut branches: HashMap<ForkId, Vec<Offset>> = HashMap::new();
    for branch in logs.iter().filter_map(|log| log.fork()) {
        branches.entry(branch.parent.id()).or_default().push(branch.at);
    }
    let (mut begins, mut forks) = (HashMap::new(), BTreeMap::new());
    for log in logs {
        let parent = log.fork().map(|branch| (branch.parent.id(), branch.at));
        let begin = parent.and_then(|place| begins.get(&place).cloned()).unwrap_or_default();
        let mut stops = branches.remove(&log.id()).unwrap_or_default();
        stops.sort_unstable();
        let moment = replay(store, &log, begin, |moment| {
            if stops.binary_search(&moment.offset).is_ok() {
                begins.insert((log.id(), moment.offset), moment.clone());
            }
            true
        })?;
        forks.insert(log.id(), Arc::new(Fork::new(log, 0, moment, None)));
    }
    Ok(forks)
}

/// What the entries of a log come to, up to an offset at most.
///
/// # Errors
/// [`Error::Foreign`], and what the log says.
pub(crate) fn until(store: &Store, log: &Arc<Log>, offset: Offset) -> Result<Moment, Error> {
    let mut reached = Moment::default();
    replay(store, log, Moment::default(), |moment| {
        let reaches = moment.offset <= offset;
        if reaches {
            reached = moment.clone();
        }
        reaches
    })?;
    Ok(reached)
}

/// Follows the entries behind `begin` for as long as `visit`, which sees every state there was, says so.
fn replay(
    store: &Store,
    log: &Arc<Log>,
    begin: Moment,
    mut visit: impl FnMut(&Moment) -> bool,
) -> Result<Moment, Error> {
    let mut moment = begin;
    if !visit(&moment) {
        return Ok(moment);
    }
    let mut reader = store.reader(log);
    let query = Query { uncommitted: true, ..Query::from(Start::Offset(moment.offset)) };
    for entry in reader.entries(&query) {
        let entry = entry?;
        let foreign = |why| Error::Foreign { fork: log.id(), offset: entry.offset, why };
        moment.map.apply(&journal::decode(entry.data).map_err(foreign)?);
        moment.offset = entry.offset + entry.data.len() as u64;
        if !visit(&moment) {
            break;
        }
    }
    Ok(moment)
}
