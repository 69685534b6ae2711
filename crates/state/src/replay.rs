//! What logs come to.
//!
//! Forks are replayed in the order in which they were made, each from its newest image or from where it branched off its
//! parent: so what they share in the logs they share in memory. One whose parent was dropped, or has an image that is newer,
//! begins with an image of its own line or replays what it inherits by itself.

use crate::digest::Digest;
use crate::error::Error;
use crate::fork::{Fork, Moment};
use crate::images::Images;
use crate::journal;
use crate::state::ForkId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use thalweg_log::{Log, Offset, Query, Start, Store};

/// What a store's logs come to.
pub(crate) struct Replayed {
    pub(crate) forks: BTreeMap<ForkId, Arc<Fork>>,
    /// What was found wrong on the way, and done without.
    pub(crate) wrong: Vec<Error>,
}

/// Where a replay begins: a state, and what its digest is if that is known.
#[derive(Clone, Debug, Default)]
struct Begin {
    moment: Moment,
    digest: Option<Digest>,
}

/// The forks of these logs.
///
/// # Errors
/// [`Error::Foreign`]; [`Error::Root`] when there is no other way to what an image would have held; what the log says.
pub(crate) fn all(store: &Store, mut logs: Vec<Arc<Log>>, images: &Images) -> Result<Replayed, Error> {
    // A parent is older than its forks, and ids only grow.
    logs.sort_by_key(|log| log.id());
    let mut branches: HashMap<ForkId, Vec<Offset>> = HashMap::new();
    for branch in logs.iter().filter_map(|log| log.fork()) {
        branches.entry(branch.parent.id()).or_default().push(branch.at);
    }
    let (mut passed, mut forks, mut wrong) = (HashMap::new(), BTreeMap::new(), Vec::new());
    for log in logs {
        let parent = log.fork().map(|branch| (branch.parent.id(), branch.at));
        let inherited = parent.and_then(|place| passed.get(&place).cloned());
        let begin = begin(store, &log, images, inherited, &mut wrong)?;
        let mut stops = branches.remove(&log.id()).unwrap_or_default();
        stops.sort_unstable();
        let imaged = begin.moment.offset;
        let rooted = begin.digest.map(|digest| Arc::new((begin.moment.map.clone(), digest)));
        let moment = replay(store, &log, begin.moment, |moment| {
            if stops.binary_search(&moment.offset).is_ok() {
                let begin = Begin { moment: moment.clone(), digest: None };
                passed.insert((log.id(), moment.offset), begin);
            }
            true
        })?;
        forks.insert(log.id(), Arc::new(Fork::new(log, 0, moment, rooted, imaged)));
    }
    Ok(Replayed { forks, wrong })
}

/// Where to begin a log: with its own newest image, where it branched off, with an image of its line, or with nothing.
fn begin(
    store: &Store,
    log: &Arc<Log>,
    images: &Images,
    inherited: Option<Begin>,
    wrong: &mut Vec<Error>,
) -> Result<Begin, Error> {
    let first = log.staged().map_or(0, |state| state.first);
    let mut broken = None;
    let usable = images.under(log, Offset::MAX).into_iter().filter(|image| image.offset >= first);
    for image in usable {
        if image.fork != log.id() && inherited.is_some() {
            break;
        }
        match image.read(store) {
            Ok((moment, digest)) => {
                wrong.extend(broken);
                return Ok(Begin { moment, digest: Some(digest) });
            }
            // What an image does not say the entries may still say, or an older one.
            Err(error @ Error::Root { .. }) => broken = broken.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    if inherited.is_none() && first > 0 {
        return Err(broken.unwrap_or(Error::NoState { fork: log.id(), offset: 0 }));
    }
    wrong.extend(broken);
    Ok(inherited.unwrap_or_default())
}

/// What the entries of a log come to, up to an offset at most; `None` when what would be needed is gone.
///
/// # Errors
/// [`Error::Foreign`], and what the log says.
pub(crate) fn until(
    store: &Store,
    log: &Arc<Log>,
    images: &Images,
    offset: Offset,
) -> Result<Option<Moment>, Error> {
    let first = log.staged().map_or(0, |state| state.first);
    let mut reached = match images.under(log, offset).into_iter().find(|image| image.offset >= first) {
        Some(image) => image.read(store)?.0,
        None if first > 0 => return Ok(None),
        None => Moment::default(),
    };
    replay(store, log, reached.clone(), |moment| {
        let reaches = moment.offset <= offset;
        if reaches {
            reached = moment.clone();
        }
        reaches
    })?;
    Ok(Some(reached))
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
