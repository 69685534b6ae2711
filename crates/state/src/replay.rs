//! Rebuilds states from logs.
//!
//! Forks are replayed in the order in which they were made, each from the newest known place of its lineage,
//! or from an image of its lineage that is newer. A place is known once it was passed by a replay, if a log
//! branches off there, dropped ones included, or once its image was read, which happens once for each image.
//! So no inherited entries are replayed twice, and what forks share in the logs they share in memory,
//! whichever of them have images.
//!
//! *Complexity*: each entry once, and a few steps for each log. The places of a lineage are looked for in the
//! logs that own offsets of it ([`Lineages`]), from the newest to the first that has one. *Checked by* tests
//! that count these steps.

use crate::error::Error;
use crate::fork::{Fork, Moment, Rooted};
use crate::image::{Image, Near};
use crate::images::Images;
use crate::journal;
use crate::lineages::{Lineages, Place};
use crate::state::ForkId;
use crate::strict_read;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use thalweg_log::{Log, LogId, Offset, Store};

/// The forks that were rebuilt from a store's logs.
#[derive(Default)]
pub(crate) struct Replayed {
    pub(crate) forks: BTreeMap<ForkId, Arc<Fork>>,
    /// Forks that cannot be rebuilt, and why.
    pub(crate) unreadable: BTreeMap<ForkId, (Arc<Log>, String)>,
    /// The damage that was found. The rest was rebuilt without it.
    pub(crate) damage: Vec<Error>,
    /// The logs of images that could not be read.
    pub(crate) damaged: Vec<LogId>,
}

/// Where a replay begins.
#[derive(Clone, Debug, Default)]
struct Begin {
    moment: Moment,
    /// The state and digest that later digests are computed from, if one is known.
    rooted: Option<Rooted>,
}

/// Rebuilds the forks of these logs.
///
/// # Errors
/// [`Error::Foreign`]; for the main line also [`Error::Root`], if an image is damaged and the entries that it
/// replaced are gone, and what the log says. Any other fork that cannot be rebuilt is in
/// [`Replayed::unreadable`].
pub(crate) fn all(store: &Store, mut logs: Vec<Arc<Log>>, images: &Images) -> Result<Replayed, Error> {
    // A parent is older than its forks, and ids only grow.
    logs.sort_by_key(|log| log.id());
    let lineages = Lineages::of(&logs);
    let place = |image: &Image| {
        let owner = lineages.owner(image.fork, image.offset)?;
        Some(((owner, image.offset, image.log.id()), image.clone()))
    };
    let imaged = images.all().filter_map(place).collect();
    let wanted = lineages.branch_points().collect();
    let mut replay =
        Replay { store, lineages, imaged, wanted, known: BTreeMap::new(), replayed: Replayed::default() };
    for log in logs {
        match replay.one(&log) {
            Ok(fork) => drop(replay.replayed.forks.insert(log.id(), Arc::new(fork))),
            Err(error) if log.fork().is_none() || matches!(error, Error::Foreign { .. }) => {
                return Err(error);
            }
            Err(error) => {
                let why = error.to_string();
                replay.replayed.damage.push(Error::Unreadable { fork: log.id(), why: why.clone() });
                replay.replayed.unreadable.insert(log.id(), (log, why));
            }
        }
    }
    Ok(replay.replayed)
}

/// The replay of all logs, as far as it has come.
struct Replay<'s> {
    store: &'s Store,
    lineages: Lineages,
    /// The images by their places and their own logs, whichever fork they were written of.
    imaged: BTreeMap<(LogId, Offset, LogId), Image>,
    /// Where logs branch off.
    wanted: HashSet<Place>,
    /// The states at the known places.
    known: BTreeMap<Place, Begin>,
    replayed: Replayed,
}

impl Replay<'_> {
    /// Rebuilds a fork.
    fn one(&mut self, log: &Arc<Log>) -> Result<Fork, Error> {
        let Begin { moment, rooted } = self.begin(log)?;
        let from = moment.offset;
        let owners = self.lineages.owners(log.id());
        let owners: Vec<_> = owners.take_while(|(_, until)| *until >= from).collect();
        let (wanted, known) = (&self.wanted, &mut self.known);
        let moment = replay(self.store, log, moment, |moment| {
            let offset = moment.offset;
            // Of those that have this offset the oldest gave it out.
            let owner = owners[owners.partition_point(|(_, until)| *until >= offset) - 1].0;
            if wanted.contains(&(owner, offset)) {
                let begin = Begin { moment: moment.clone(), rooted: rooted.clone() };
                known.entry((owner, offset)).or_insert(begin);
            }
            true
        })?;
        Ok(Fork::new(log.clone(), 0, moment, rooted))
    }

    /// Where the replay of a log begins: at the newest image of its lineage, at a known place that is as new,
    /// or at the empty state. Images of other forks at the same places are passed over.
    fn begin(&mut self, log: &Arc<Log>) -> Result<Begin, Error> {
        // A fork that trimmed the entries after its branch point cannot begin there.
        let first = log.staged().map_or(0, |state| state.first);
        let (mut begin, mut near) = (None, None);
        let mut broken = None;
        'owners: for (owner, until) in self.lineages.owners(log.id()).take_while(|(_, until)| *until >= first)
        {
            let known = self.known.range((owner, first)..=(owner, until)).next_back();
            let after = known.map_or((owner, first, 0), |((_, offset), _)| (owner, *offset, LogId::MAX));
            let images = self.imaged.range(after..=(owner, until, LogId::MAX)).rev();
            // An image of another fork is nothing to rely on: it goes when those stop using it that count as
            // its users.
            let own = images.filter(|(_, image)| self.lineages.descends(log.id(), image.fork));
            for ((_, offset, _), image) in own {
                match image.read(self.store, near.get_or_insert_with(|| self.near(log))) {
                    Ok((moment, rooted)) => {
                        let read = Begin { moment, rooted: Some(rooted) };
                        self.known.insert((owner, *offset), read.clone());
                        begin = Some(read);
                        break 'owners;
                    }
                    // An older image, or the entries, may still have what this image should.
                    Err(error) => {
                        broken = broken.or(Some(error));
                        self.replayed.damaged.push(image.log.id());
                    }
                }
            }
            if let Some((_, known)) = known {
                begin = Some(known.clone());
                break;
            }
        }
        if begin.is_none() && first > 0 {
            return Err(broken.unwrap_or(Error::NoState { fork: log.id(), offset: 0 }));
        }
        // The fork can be rebuilt without these images.
        self.replayed.damage.extend(broken);
        Ok(begin.unwrap_or_default())
    }

    /// A state that shares much with those of this log: of the newest log of its lineage that has a known
    /// place, the newest one that the log has passed, or the first after that.
    fn near(&self, log: &Arc<Log>) -> Near {
        let nearest = self.lineages.owners(log.id()).find_map(|(owner, until)| {
            let passed = self.known.range((owner, 0)..=(owner, until)).next_back();
            passed.or_else(|| self.known.range((owner, until)..=(owner, Offset::MAX)).next())
        });
        let Some((_, Begin { moment, rooted, .. })) = nearest else { return Near::default() };
        Near { map: moment.map.clone(), rooted: rooted.clone() }
    }
}

/// The state of a log at an offset, or at the last commit before it, rebuilt from the best of these images
/// that can be read; `None` if the entries that it takes are gone. What it has in common with `near` is
/// shared in memory.
///
/// # Errors
/// [`Error::Foreign`], and what the log says.
pub(crate) fn until(
    store: &Store,
    log: &Arc<Log>,
    images: &[Image],
    near: &Near,
    offset: Offset,
) -> Result<Option<Moment>, Error> {
    let first = log.staged().map_or(0, |state| state.first);
    let (mut begin, mut broken) = (None, None);
    for image in images.iter().filter(|image| image.offset >= first) {
        match image.read(store, near) {
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
    reached.map = reached.map.sharing(&near.map);
    Ok(Some(reached))
}

/// Applies the entries after `begin` one by one. `visit` is given each state, and ends the replay by
/// returning false.
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
    strict_read::entries(store, log, moment.offset, |entry| {
        let foreign = |why| Error::Foreign { fork: log.id(), offset: entry.offset, why };
        moment.map.apply(&journal::decode(entry.data).map_err(foreign)?);
        moment.offset = entry.offset + entry.data.len() as u64;
        Ok(if visit(&moment) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(moment)
}
