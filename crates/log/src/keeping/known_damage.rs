//! The damage that is known, and the logs that lost something by it.
//!
//! Purpose: damage is reported and treated alike, whether recovery finds it or a later read. Each span is
//! named and counted once. A log that lost something in it shows nothing by offset and takes no commit until
//! it is deleted; without such logs the store is whole, as far as can be known. Recovery reads only what lies
//! behind the newest checkpoint. So what a read finds damaged is payload, and the extents of the logs say
//! whose it was. Owns both lists, which last as long as the store is open. Reads and writes of what is whole
//! take no lock of this module. Its lock is taken before those of logs. *Checked by* the tests of damage and
//! of known damage.

use crate::catalogue::Catalogue;
use crate::error::{Damage, Touched, said};
use crate::extents::Extent;
use crate::log::Log;
use crate::places::Unfolder;
use crate::segment::file_name;
use crate::store::Shared;
use crate::{LogId, Position, position, segment_of};
use parking_lot::Mutex;
use std::sync::Arc;

/// Logs that a message about damage names at most.
const NAMES_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct KnownDamage(Mutex<DamageRecord>);

#[derive(Debug, Default)]
struct DamageRecord {
    spans: Vec<Damage>,
    /// A log that is gone is taken out when the list is next looked through.
    harmed: Vec<Arc<Log>>,
}

impl DamageRecord {
    fn names(&self, damage: &Damage) -> bool {
        let (from, to) = span_of(damage);
        self.spans
            .iter()
            .any(|known| known.file == damage.file && span_of(known).0 <= from && to <= span_of(known).1)
    }
}

impl KnownDamage {
    /// The damage that recovery found.
    pub(crate) fn found(spans: &[Damage], catalogue: &Catalogue) -> KnownDamage {
        let mut known = DamageRecord { spans: spans.to_vec(), harmed: Vec::new() };
        if !spans.is_empty() {
            let harms = |log: &Arc<Log>| log.lock().damage().is_some();
            catalogue.visit(|log| known.harmed.extend(harms(log).then(|| log.clone())));
        }
        KnownDamage(Mutex::new(known))
    }

    pub(crate) fn spans(&self) -> Vec<Damage> {
        self.0.lock().spans.clone()
    }

    fn names(&self, damage: &Damage) -> bool {
        self.0.lock().names(damage)
    }

    /// Adds a span and the logs that lost something in it; `false` when it is known by now.
    fn add(&self, damage: &Damage, harmed: &[Arc<Log>]) -> bool {
        let mut known = self.0.lock();
        if known.names(damage) {
            return false;
        }
        known.spans.push(damage.clone());
        known.harmed.extend_from_slice(harmed);
        true
    }

    /// Whether a log that still exists lost something.
    fn lasts(&self) -> bool {
        let harmed = &mut self.0.lock().harmed;
        harmed.retain(|log| !log.lock().is_gone());
        !harmed.is_empty()
    }
}

impl Shared {
    /// Some log may have lost something. Then nothing is removed and no checkpoint forgets: what is repaired
    /// by hand, a file put back say, must find everything else as it was.
    pub(crate) fn is_damaged(&self) -> bool {
        self.unnamed.is_some() || self.known_damage.lasts()
    }

    /// Notes damage that a read found. Complexity: the first time, a look at the extents of every log.
    #[cold]
    pub(crate) fn note_damage_read(&self, damage: &Damage) {
        // What else is missing recovery has told of.
        if damage.file != file_name(segment_of(damage.from)) || self.known_damage.names(damage) {
            return;
        }
        let mut harmed = Vec::new();
        let visitor = |log: &Arc<Log>| harmed.extend(self.harms(damage, log).then(|| log.clone()));
        self.catalogue.visit_unlocked(visitor, || {});
        let mut logs: Vec<LogId> = harmed.iter().map(|log| log.id()).collect();
        logs.sort_unstable();
        let damage = damage.clone().touching(Touched::these(logs));
        if !self.known_damage.add(&damage, &harmed) {
            return;
        }
        for log in &harmed {
            // A reader that waits for more of this log would wait in vain.
            let tell = {
                let mut inner = log.lock();
                inner.note_damage(|| damage.clone());
                inner.announce()
            };
            self.watchers.tell(tell, |watch| watch.advanced(log.id()));
        }
        let streams = names_of(harmed);
        tracing::error!(%damage, streams, "a read came upon it: what it touches is not served, everything else is");
    }

    /// Which of the logs that a span touches there are, by name; some of many. Complexity: a look at every
    /// log, with nothing locked.
    pub(crate) fn names_touched(&self, damage: &Damage) -> String {
        let mut ids = damage.logs.known().unwrap_or_default().to_vec();
        ids.sort_unstable();
        let mut touched = Vec::new();
        let visitor =
            |log: &Arc<Log>| touched.extend(ids.binary_search(&log.id()).is_ok().then(|| log.clone()));
        self.catalogue.visit_unlocked(visitor, || {});
        names_of(touched)
    }

    /// Whether payload that a log needs lies in a damaged span.
    fn harms(&self, damage: &Damage, log: &Log) -> bool {
        if damage.logs.known().is_some_and(|logs| !logs.contains(&log.id())) {
            return false;
        }
        let (from, to) = span_of(damage);
        let overlaps = |extent: &Extent| extent.position < to && from < extent.end_position();
        let lost: Vec<Extent> =
            log.lock().extents.all().iter().filter(|one| overlaps(one)).copied().collect();
        // Among what a folded one spans lies others'.
        let (view, limit) = (self.segments.latest(), self.control.file_end());
        let unfolder = Unfolder { view: &view, limit };
        let told = |extent: &Extent| extent.is_folded().then(|| unfolder.listed(log.id(), extent)).flatten();
        lost.iter().any(|extent| told(extent).is_none_or(|mut told| told.any(|one| overlaps(&one))))
    }
}

/// The names of logs, in order; some of many.
fn names_of(mut logs: Vec<Arc<Log>>) -> String {
    logs.sort_unstable_by(|one, other| one.name().cmp(other.name()));
    let more = logs.len().saturating_sub(NAMES_MAX);
    let names: Vec<String> = logs.iter().take(NAMES_MAX).map(|log| said(log.name())).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}

/// Where a span begins and ends: at the end of its segment, if nothing resumes in it.
fn span_of(damage: &Damage) -> (Position, Position) {
    (damage.from, damage.resumes.unwrap_or_else(|| position(segment_of(damage.from) + 1, 0)))
}
