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
use crate::whole;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use thalweg_log::{Log, LogId, Offset, Store};

/// What a store's logs come to.
#[derive(Default)]
pub(crate) struct Replayed {
    pub(crate) forks: BTreeMap<ForkId, Arc<Fork>>,
    /// Those whose logs do not say what they come to, and why.
    pub(crate) unreadable: BTreeMap<ForkId, (Arc<Log>, String)>,
    /// What was found wrong on the way, and done without.
    pub(crate) wrong: Vec<Error>,
    /// Images that are not what they were, and stand for nothing.
    pub(crate) spoiled: Vec<LogId>,
}

impl Replayed {
    /// What these images would have said was said otherwise.
    fn did_without(&mut self, broken: Option<Error>, spoiled: Vec<LogId>) {
        self.wrong.extend(broken);
        self.spoiled.extend(spoiled);
    }
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
/// [`Error::Foreign`]; of the main line, [`Error::Root`] when there is no other way to what an image would have held, and what the
/// log says. Another fork that cannot be read is among those, and all else goes on.
pub(crate) fn all(store: &Store, mut logs: Vec<Arc<Log>>, images: &Images) -> Result<Replayed, Error> {
    // A parent is older than its forks, and ids only grow.
    logs.sort_by_key(|log| log.id());
    let mut branches: HashMap<ForkId, Vec<Offset>> = HashMap::new();
    for branch in logs.iter().filter_map(|log| log.fork()) {
        branches.entry(branch.parent.id()).or_default().push(branch.at);
    }
    let (mut passed, mut replayed) = (HashMap::new(), Replayed::default());
    for log in logs {
        let mut stops = branches.remove(&log.id()).unwrap_or_default();
        stops.sort_unstable();
        match one(store, &log, images, &stops, &mut passed, &mut replayed) {
            Ok(fork) => drop(replayed.forks.insert(log.id(), Arc::new(fork))),
            Err(error) if log.fork().is_none() || matches!(error, Error::Foreign { .. }) => {
                return Err(error);
            }
            Err(error) => {
                let why = error.to_string();
                replayed.wrong.push(Error::Unreadable { fork: log.id(), why: why.clone() });
                replayed.unreadable.insert(log.id(), (log, why));
            }
        }
    }
    Ok(replayed)
}

/// A fork out of its log. What it is at each of these places, where others branch off, is among what was `passed` then.
fn one(
    store: &Store,
    log: &Arc<Log>,
    images: &Images,
    stops: &[Offset],
    passed: &mut HashMap<(ForkId, Offset), Begin>,
    replayed: &mut Replayed,
) -> Result<Fork, Error> {
    let parent = log.fork().map(|branch| (branch.parent.id(), branch.at));
    let inherited = parent.and_then(|place| passed.get(&place).cloned());
    let begin = begin(store, log, images, inherited, replayed)?;
    let imaged = begin.moment.offset;
    let rooted = begin.digest.map(|digest| Arc::new((begin.moment.map.clone(), digest)));
    let moment = replay(store, log, begin.moment, |moment| {
        if stops.binary_search(&moment.offset).is_ok() {
            let begin = Begin { moment: moment.clone(), digest: None };
            passed.insert((log.id(), moment.offset), begin);
        }
        true
    })?;
    Ok(Fork::new(log.clone(), 0, moment, rooted, imaged))
}

/// Where to begin a log: with its own newest image, where it branched off, with an image of its line, or with nothing.
fn begin(
    store: &Store,
    log: &Arc<Log>,
    images: &Images,
    inherited: Option<Begin>,
    replayed: &mut Replayed,
) -> Result<Begin, Error> {
    let first = log.staged().map_or(0, |state| state.first);
    // Where it branched off is no place to begin for one that let go of what came behind it.
    let inherited = inherited.filter(|begin| begin.moment.offset >= first);
    let (mut broken, mut spoiled) = (None, Vec::new());
    let usable = images.under(log, Offset::MAX).filter(|image| image.offset >= first);
    for image in usable {
        if image.fork != log.id() && inherited.is_some() {
            break;
        }
        match image.read(store) {
            Ok((moment, digest)) => {
                replayed.did_without(broken, spoiled);
                return Ok(Begin { moment, digest: Some(digest) });
            }
            // What an image does not say the entries may still say, or an older one.
            Err(error) => {
                broken = broken.or(Some(error));
                spoiled.push(image.log.id());
            }
        }
    }
    if inherited.is_none() && first > 0 {
        return Err(broken.unwrap_or(Error::NoState { fork: log.id(), offset: 0 }));
    }
    replayed.did_without(broken, spoiled);
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
    let (mut begin, mut broken) = (None, None);
    for image in images.under(log, offset).filter(|image| image.offset >= first) {
        match image.read(store) {
            Ok((moment, _)) => {
                begin = Some(moment);
                break;
            }
            Err(error) => broken = broken.or(Some(error)),
        }
    }
    let mut reached = match (begin, broken) {
        (Some(moment), _) => moment,
        (None, Some(error)) if first > 0 => return Err(error),
        (None, None) if first > 0 => return Ok(None),
        (None, _) => Moment::default(),
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
    whole::entries(store, log, moment.offset, |entry| {
        let foreign = |why| Error::Foreign { fork: log.id(), offset: entry.offset, why };
        moment.map.apply(&journal::decode(entry.data).map_err(foreign)?);
        moment.offset = entry.offset + entry.data.len() as u64;
        Ok(if visit(&moment) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(moment)
}
