//! Going on where recovery ended: for a process that follows the store of another.

use super::{Recovery, missing_segment};
use crate::checkpoint;
use crate::error::{OpenError, Touched};
use crate::extents::Extent;
use crate::fork_needs::drop_unneeded;
use crate::format::SEGMENT_HEADER_BYTES;
use crate::log::{Inner, Log};
use crate::segment;
use crate::view::View;
use crate::{Position, segment_of};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

impl Recovery {
    /// What looks damaged in another's store may only have changed since one began to look: it was purged or
    /// compacted behind checkpoints that were not listed, or that begin behind the bound and could not be
    /// used; or it was compacted while the directory was listed, which may have passed over it. Then one has
    /// to begin anew.
    ///
    /// # Errors
    /// `NotFound`, as when a file went between listing and reading it.
    pub(super) fn refuse_outdated(&self, listed: &[String]) -> Result<(), OpenError> {
        let Some(bound) = self.bound.filter(|_| self.found_damage()) else { return Ok(()) };
        let names = self.disk.names(&self.directory).map_err(|source| self.failed("list", source))?;
        // Not those that a power cut left in front of the words that told of them.
        let known = bound + 1..=self.control.visible();
        let newer = |name: &&String| {
            checkpoint::start_of(name).is_some_and(|start| known.contains(&start) || !listed.contains(name))
        };
        let mut is_outdated = names.iter().any(|name| newer(&name));
        for number in self.missing.keys().filter(|number| !listed.contains(&segment::file_name(**number))) {
            let is_there = segment::is_there(&self.disk, &self.directory, *number);
            is_outdated |= is_there.map_err(|source| self.failed("open", source))?;
        }
        if is_outdated { Err(self.failed("follow", io::ErrorKind::NotFound.into())) } else { Ok(()) }
    }

    /// Follows up what became of a log and is shown, in a process that follows another.
    pub(super) fn show(&self, log: &Arc<Log>, Shown { deleted, lets_go }: Shown) {
        if lets_go {
            drop_unneeded(log, drop);
        }
        if deleted {
            self.catalogue.remove(log);
        } else {
            self.catalogue.place(log.name()).put(log.clone());
        }
    }

    /// Begins anew from the newest checkpoint, up to a position: segments went before this process came to
    /// read them. Logs that are known stay who they are, so that their readers read on.
    pub(crate) fn renew(&mut self, to: Position) -> Result<(), OpenError> {
        let mut fresh = Recovery::new(&self.disk, &self.directory, &self.control, Some(to));
        fresh.catalogue.succeed(&self.catalogue);
        fresh.run()?;
        fresh.report(0);
        fresh.arrivals = self.arrivals.anew();
        let mut known = std::mem::replace(self, fresh).logs;
        for (id, log) in &mut self.logs {
            if let Some(same) = known.remove(id) {
                std::mem::swap(&mut *same.lock(), &mut *log.lock());
                *log = same;
            }
        }
        for log in self.logs.values() {
            if let Some(lineage) = &mut log.lock().lineage {
                lineage.parent = self.logs.get(&lineage.branch.parent).cloned();
            }
            self.catalogue.place(log.name()).put(log.clone());
        }
        for gone in known.values() {
            let mut inner = gone.lock();
            inner.stage_delete();
            inner.show();
        }
        Ok(())
    }

    /// Those of some segments in which a log has something that was not let go of. Complexity: each log is
    /// asked once.
    pub(crate) fn needed_of(&self, segments: &[u32]) -> BTreeSet<u32> {
        let mut needed = BTreeSet::new();
        if segments.is_empty() {
            return needed;
        }
        for log in self.logs.values() {
            let inner = log.lock();
            needed.extend(segments.iter().copied().filter(|number| is_needed_by(&inner, *number)));
        }
        needed
    }

    /// Refuses logs that need something of segments that are gone, and has these be missing.
    pub(crate) fn miss(&mut self, gone: &BTreeSet<u32>) {
        for number in gone {
            let harmed = self.logs.values().filter(|log| is_needed_by(&log.lock(), *number));
            let harmed: Vec<Arc<Log>> = harmed.cloned().collect();
            let damage =
                missing_segment(*number, Touched::these(harmed.iter().map(|log| log.id()).collect()));
            harmed.iter().for_each(|log| log.lock().note_damage(|| damage.clone()));
            self.missing.entry(*number).or_insert(damage);
        }
    }

    /// Applies what was committed since, up to a position.
    pub(crate) fn follow(&mut self, view: &View, from: Position, to: Position) {
        let first = view.place(segment_of(from));
        for segment in &view.all()[first.min(view.all().len())..] {
            let number = segment.header.number;
            if number > segment_of(to) {
                return;
            }
            let mut at =
                if number == segment_of(from) { segment.byte_of(from) } else { SEGMENT_HEADER_BYTES };
            // One that is missing has nothing to be followed.
            let end = segment.end(to).min(segment.region().published());
            loop {
                let stop = segment.scan(at, end, None).each(|batch| self.apply(number, batch));
                let Some(resumes) = stop.resumes.filter(|_| !stop.blank) else { break };
                self.damaged(number, stop);
                at = resumes.at;
            }
        }
    }
}

/// What became of a log that shows it.
#[derive(Clone, Copy, Default)]
pub(super) struct Shown {
    deleted: bool,
    /// Something of it is not needed any more.
    lets_go: bool,
}

impl Shown {
    /// Shows all that is staged.
    pub(super) fn of(inner: &mut Inner) -> Shown {
        let purged = inner.first > inner.first_visible;
        inner.show();
        let deleted = inner.phase.is_deleting();
        Shown { deleted, lets_go: deleted || purged }
    }
}

/// Whether a log has something in a segment that was not let go of. What is kept of it for its forks alone is
/// not looked into.
fn is_needed_by(inner: &Inner, number: u32) -> bool {
    let is_needed = |extent: &Extent| !inner.phase.is_deleting() && extent.end() > inner.first_visible;
    inner.extents.of_segment(number).iter().any(is_needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::{Durability, Options, Purge, Store};
    use std::path::Path;
    use thalweg_sys::disk::Disk;

    const ENTRY: &[u8] = &[7; 2000];

    /// A store with two logs side by side, and its words as another process sees them.
    fn filled(directory: &Path) -> (Store, [Arc<Log>; 2], Arc<Control>) {
        let (segment_bytes_min, segment_bytes_max) = (16_384, 65_536);
        let options = Options { segment_bytes_min, segment_bytes_max, ..Options::default() };
        let options = Options { durability: Durability::Os, ..options };
        let store = Store::open(&Disk::Real, directory, options).unwrap().0;
        let logs = [store.log(b"stays").unwrap(), store.log(b"goes").unwrap()];
        // The first segment stays, and nothing of it is replayed.
        store.append(&logs[0], b"x", 0).unwrap();
        store.checkpoint().unwrap();
        store.rotate().unwrap();
        for time in 0..60 {
            store.append(&logs[0], b"x", time).unwrap();
            store.append(&logs[1], ENTRY, time).unwrap();
        }
        // And so does the last.
        store.rotate().unwrap();
        store.append(&logs[0], b"x", 60).unwrap();
        let control = Arc::new(Control::attach(&Disk::Real, directory).unwrap().unwrap());
        (store, logs, control)
    }

    /// Two checkpoints behind everything that is needed.
    fn checkpoints(store: &Store, log: &Arc<Log>) {
        for _ in 0..2 {
            store.rotate().unwrap();
            store.append(log, b"x", 100).unwrap();
            store.checkpoint().unwrap();
        }
    }

    fn is_to_begin_anew<T>(outcome: Result<T, OpenError>) -> bool {
        matches!(outcome, Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound)
    }

    #[test]
    fn what_was_purged_behind_the_bound_is_not_taken_for_lost() {
        let directory = tempfile::tempdir().unwrap();
        let (store, logs, control) = filled(directory.path());
        let bound = control.visible();
        store.purge(&Purge::default()).unwrap();
        checkpoints(&store, &logs[0]);
        let run = |bound| Recovery::new(&Disk::Real, directory.path(), &control, Some(bound)).run();
        assert!(is_to_begin_anew(run(bound)));
        assert!(run(control.visible()).is_ok());
    }

    #[test]
    fn what_is_compacted_between_two_looks_is_not_replayed_without_what_it_lacks() {
        let directory = tempfile::tempdir().unwrap();
        let (store, logs, control) = filled(directory.path());
        let mut recovery = Recovery::new(&Disk::Real, directory.path(), &control, Some(control.visible()));
        let names = Disk::Real.names(directory.path()).unwrap();
        recovery.read_headers(&names).unwrap();
        let start = names.iter().find_map(|name| checkpoint::start_of(name)).unwrap();
        let begin = recovery.load(start).unwrap();
        store.delete(&logs[1], logs[1].staged().unwrap().version, 100, None).unwrap();
        checkpoints(&store, &logs[0]);
        while store.shared.compact().unwrap() {}
        let view = store.shared.segments.latest();
        assert!(view.all().iter().any(|segment| segment.header.is_compacted()));
        recovery.replay(begin).unwrap();
        assert!(is_to_begin_anew(recovery.refuse_outdated(&names)));
    }

    /// A directory is read piece by piece: of what came and went meanwhile any part may be in the list.
    #[test]
    fn a_segment_that_went_behind_a_checkpoint_that_was_not_listed_is_not_taken_for_lost() {
        let directory = tempfile::tempdir().unwrap();
        let (store, logs, control) = filled(directory.path());
        // One that a log needs as of the newest checkpoint, and none needs in front of the next.
        store.rotate().unwrap();
        store.append(&logs[1], ENTRY, 61).unwrap();
        let number = segment_of(control.visible());
        checkpoints(&store, &logs[0]);
        let (bound, listed) = (control.visible(), Disk::Real.names(directory.path()).unwrap());
        store.delete(&logs[1], logs[1].staged().unwrap().version, 100, None).unwrap();
        store.checkpoint().unwrap();
        let name = segment::file_name(number);
        assert!(listed.contains(&name) && !directory.path().join(&name).exists());
        let torn: Vec<String> = listed
            .into_iter()
            .filter(|name| checkpoint::start_of(name).is_some() || directory.path().join(name).exists())
            .collect();
        let recovery = || Recovery::new(&Disk::Real, directory.path(), &control, Some(bound));
        // Of what is listed the newest checkpoint is there still.
        let newest = torn.iter().filter_map(|name| checkpoint::start_of(name)).max().unwrap();
        assert!(directory.path().join(format!("checkpoint-{newest:016x}")).exists());
        assert!(is_to_begin_anew(recovery().run_over(&torn)));
        let mut whole = Recovery::new(&Disk::Real, directory.path(), &control, Some(control.visible()));
        whole.run().unwrap();
        assert_eq!(whole.report(0).damage, []);
    }

    #[test]
    fn what_is_lost_is_lost_for_whoever_follows_too() {
        let directory = tempfile::tempdir().unwrap();
        let (store, logs, control) = filled(directory.path());
        checkpoints(&store, &logs[0]);
        let newest = Disk::Real.names(directory.path()).unwrap();
        let newest = newest.into_iter().filter(|name| checkpoint::start_of(name).is_some()).max().unwrap();
        std::fs::write(directory.path().join(&newest), b"lost").unwrap();
        let mut recovery = Recovery::new(&Disk::Real, directory.path(), &control, Some(control.visible()));
        recovery.run().unwrap();
        let damage = recovery.report(0).damage;
        assert_eq!(damage.into_iter().map(|damage| damage.file).collect::<Vec<_>>(), [newest]);
    }
}
