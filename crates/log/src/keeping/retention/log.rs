//! Retention per log: how old its entries may be, and how many bytes of it there may be.
//!
//! The bounds are a note of the log ([`RETAIN_NOTE`]), and so as durable, atomic and replayed as whatever it
//! holds. What goes beyond them is trimmed by [`Store::maintain`]. A log is looked at when something may be
//! to do and not before: once its oldest entry may be too old, or when a commit brought it beyond its size;
//! one that is empty, or has no bounds, never.
//!
//! Times are whatever the writers of entries say. One that lies in the future of `maintain`'s clock says
//! nothing about the age of its entry, which goes with what was written behind it. Checked by the tests here.

use crate::error::CommitError;
use crate::extents::Extent;
use crate::fork::read_parts;
use crate::log::{Inner, Log};
use crate::places::Unfolder;
use crate::query::{Query, Start};
use crate::store::{Shared, Store};
use crate::{LogId, Offset, Time};
use parking_lot::Mutex;
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use thalweg_queue::Deadlines;

/// Key of the note that bounds what a log keeps. Its value is two integers of 8 bytes, little-endian: how
/// many microseconds old an entry may be, and how many bytes of payload there may be; 0 for no bound.
pub const RETAIN_NOTE: &[u8] = b"\0retain";

/// Logs looked at in one call at the most.
const LOOKS_MAX: usize = 1024;
/// A log is trimmed once it is this many bytes larger than its bound, or an eighth of the bound, so that
/// many entries go at once.
const SLACK_BYTES: u64 = 64 << 10;
/// One that could not be trimmed is looked at again after so long.
const AGAIN_US: Time = 10_000_000;
/// A log is looked at no sooner than such a part of its age after the last look.
const AGE_PARTS: u64 = 16;

/// What a log may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    age_us: Option<Time>,
    bytes: Option<u64>,
}

impl Bounds {
    fn of(inner: &Inner) -> Option<Bounds> {
        let value = inner.notes.as_ref()?.get(RETAIN_NOTE)?;
        let word = |range: std::ops::Range<usize>| {
            let bytes = value.get(range)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes)).filter(|word| *word > 0)
        };
        Some(Bounds { age_us: word(0..8), bytes: word(8..16) })
    }

    /// When a log is to be looked at of which something was just appended at `time`.
    fn due(&self, inner: &Inner, time: Time) -> Option<Time> {
        let held = inner.tail - inner.first;
        match (self.bytes, self.age_us) {
            (Some(bytes), _) if held > bytes.saturating_add((bytes / 8).max(SLACK_BYTES)) => Some(0),
            (_, Some(age)) if held > 0 => Some(time.saturating_add(age)),
            _ => None,
        }
    }
}

/// Logs to be looked at, and when.
#[derive(Debug, Default)]
pub(crate) struct LogRetention(Mutex<Deadlines<LogId, Weak<Log>>>);

impl LogRetention {
    /// Something was appended to a log, or it was found.
    pub(crate) fn note(&self, log: &Arc<Log>, inner: &Inner, time: Time) {
        if let Some(due) = Bounds::of(inner).and_then(|bounds| bounds.due(inner, time)) {
            self.enter(log, due);
        }
    }

    /// The earlier of two looks is the one that counts: when it comes, it says when the next has to.
    fn enter(&self, log: &Arc<Log>, due: Time) {
        let mut looks = self.0.lock();
        if looks.at(&log.id()).is_none_or(|known| due < known) {
            looks.set_with(log.id(), due, Arc::downgrade(log));
        }
    }

    /// Forgets a deleted log.
    pub(crate) fn leave(&self, log: &Log) {
        self.0.lock().clear(&log.id());
    }

    fn take(&self, now: Time) -> Vec<Arc<Log>> {
        let mut looks = self.0.lock();
        let mut taken = Vec::new();
        while taken.len() < LOOKS_MAX
            && let Some((_, log)) = looks.due(now)
        {
            taken.extend(log.upgrade());
        }
        taken
    }
}

impl Store {
    /// Trims the logs that may hold more than they are to, a bounded number of them. `true`: there may be
    /// more to do at once.
    pub(crate) fn retain_each(&self, now: Time) -> Result<bool, CommitError> {
        let retention = &self.shared.log_retention;
        let mut taken = retention.take(now).into_iter();
        let (is_full, mut is_of_use) = (taken.len() == LOOKS_MAX, false);
        while let Some(log) = taken.next() {
            match self.retain_one(&log, now) {
                Ok(Some(due)) => {
                    is_of_use |= due > now;
                    retention.enter(&log, due);
                }
                // What is damaged is left as it is.
                Ok(None) | Err(CommitError::Deleted | CommitError::Damaged(_)) => is_of_use = true,
                Err(error) => {
                    // Nor are those forgotten that were to come behind it; and next time they come before it.
                    retention.enter(&log, now.saturating_add(AGAIN_US));
                    taken.for_each(|log| retention.enter(&log, now));
                    return Err(error);
                }
            }
        }
        Ok(is_full && is_of_use)
    }

    /// Trims a log, and answers when it is to be looked at again.
    fn retain_one(&self, log: &Arc<Log>, now: Time) -> Result<Option<Time>, CommitError> {
        let (bounds, large) = {
            let inner = log.lock();
            let Some(bounds) = Bounds::of(&inner) else { return Ok(None) };
            (bounds, bounds.bytes.and_then(|bytes| beyond(log, &inner, bytes)))
        };
        let large = large.map_or(0, |beyond| self.shared.whole_below(&beyond));
        // Before what is old is looked for: what comes meanwhile is not.
        let Some(state) = log.visible() else { return Ok(None) };
        let old = match bounds.age_us {
            Some(age) => self.young_from(log, now.saturating_sub(age)..=now)?,
            None => 0,
        };
        let first = old.max(large).min(state.tail);
        if first > state.first {
            self.trim(log, first, now)?;
        }
        if log.staged().is_some_and(|staged| staged.tail > state.tail) {
            // Of what is not to be seen yet nothing was looked at.
            return Ok(Some(now));
        }
        if first == state.tail {
            // What is appended from now on has it looked at again.
            return Ok(None);
        }
        let Some(age) = bounds.age_us else { return Ok(None) };
        let soonest = now.saturating_add((age / AGE_PARTS).max(1));
        let oldest = self.reader(log).entries(&Query::default()).next().and_then(Result::ok).map(|e| e.time);
        // Behind one from the future there may be any.
        let due = |time: Time| if time > now { soonest } else { time.saturating_add(age).max(soonest) };
        Ok(oldest.map(due))
    }

    /// Where the entries begin that are not older than some times: behind the last older one in front of the
    /// first that is of those times. Complexity: a search by time; entries from the future are walked over.
    fn young_from(&self, log: &Arc<Log>, times: RangeInclusive<Time>) -> Result<Offset, CommitError> {
        let Some(mut from) = self.first_since(log, *times.start())? else { return Ok(Offset::MAX) };
        let query = Query { uncommitted: true, ..Query::from(Start::Offset(from)) };
        for entry in self.reader(log).entries(&query) {
            match entry {
                Ok(entry) if entry.time < *times.start() => from = entry.offset + entry.data.len() as u64,
                Ok(entry) if entry.time > *times.end() => {}
                // What damage hides is not taken for older.
                Ok(_) | Err(_) => break,
            }
        }
        Ok(from)
    }
}

/// Where a log goes beyond its size.
struct Excess {
    /// At least everything from here on stays.
    keep_from: Offset,
    /// What holds that, and of which log: a fork's beginning is an ancestor's.
    extent: Extent,
    log: LogId,
}

/// Where a log goes beyond `bytes` bytes; `None` unless it does.
fn beyond(log: &Log, inner: &Inner, bytes: u64) -> Option<Excess> {
    let keep_from = inner.tail_visible.checked_sub(bytes).filter(|from| *from > inner.first_visible)?;
    let parts = read_parts(log, inner, keep_from, keep_from.saturating_add(1), inner.tail_visible).ok()?;
    // The last part comes first.
    let part = parts.last()?;
    part.extents.first().map(|extent| Excess { keep_from, extent: *extent, log: part.log })
}

impl Shared {
    /// The last offset at which a run of batches ends, up to the one from which on everything stays.
    fn whole_below(&self, Excess { keep_from, extent, log }: &Excess) -> Offset {
        let unfolder = Unfolder { view: &self.segments.latest(), limit: self.control.file_end() };
        let ends = unfolder.known(*log, extent).map(|one| one.end()).take_while(|end| end <= keep_from);
        ends.last().unwrap_or(extent.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Commit, Options, ReadError};

    const SECOND: Time = 1_000_000;

    fn bounds(age_us: Time, bytes: u64) -> [u8; 16] {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&age_us.to_le_bytes());
        value[8..].copy_from_slice(&bytes.to_le_bytes());
        value
    }

    fn bounded(store: &Store, name: &[u8], age_us: Time, bytes: u64) -> Arc<Log> {
        let log = store.log(name).unwrap();
        let (value, version) = (bounds(age_us, bytes), log.staged().unwrap().version);
        let commit = Commit { notes: &[(RETAIN_NOTE, &value)], ..Commit::default() };
        store.commit(&log, version, &commit, None).unwrap();
        log
    }

    fn append(store: &Store, log: &Arc<Log>, payload: &[u8], time: Time) {
        let version = log.staged().unwrap().version;
        store.commit(log, version, &Commit { payload, time, ..Commit::default() }, None).unwrap();
    }

    fn waiting(store: &Store) -> usize {
        store.shared.log_retention.0.lock().len()
    }

    #[test]
    fn entries_go_when_they_are_too_old_and_an_empty_log_is_left_alone() {
        let store = Store::memory(Options::default()).unwrap();
        let log = bounded(&store, b"aged", 10 * SECOND, 0);
        let free = store.log(b"free").unwrap();
        store.maintain(SECOND).unwrap();
        assert_eq!(waiting(&store), 0, "nothing is in it");
        for time in 1..=20 {
            append(&store, &log, b"entry", time * SECOND);
            append(&store, &free, b"entry", time * SECOND);
        }
        let first = |log: &Log| log.visible().unwrap().first;
        for (now, gone) in [(5, 0), (11, 0), (13, 2), (20, 9), (25, 14)] {
            store.maintain(now * SECOND).unwrap();
            // A look comes up to a sixteenth of the age late.
            assert!(first(&log) <= gone * 5 && first(&log) + 5 >= gone * 5, "{now}: {}", first(&log));
        }
        assert!(matches!(store.read(&log, 0, 9), Err(ReadError::Purged { .. })));
        store.maintain(31 * SECOND).unwrap();
        assert_eq!((first(&log), waiting(&store)), (100, 0));
        append(&store, &log, b"entry", 40 * SECOND);
        assert_eq!((waiting(&store), first(&free)), (1, 0));
    }

    #[test]
    fn an_entry_from_the_future_keeps_nothing_behind_it() {
        let store = Store::memory(Options::default()).unwrap();
        let log = bounded(&store, b"aged", 10 * SECOND, 0);
        let first = |log: &Log| log.visible().unwrap().first;
        for time in [1, 9_999, 2, 3, 9_999, 20] {
            append(&store, &log, b"entry", time * SECOND);
        }
        store.maintain(11 * SECOND).unwrap();
        assert_eq!(first(&log), 0, "the first is not too old yet");
        // The one in front of what is old goes with it, the one in front of what is not stays with that.
        store.maintain(25 * SECOND).unwrap();
        assert_eq!(first(&log), 20);
        append(&store, &log, b"entry", 9_999 * SECOND);
        store.maintain(40 * SECOND).unwrap();
        assert_eq!((first(&log), waiting(&store)), (30, 1), "nobody can tell how old the last is");
        append(&store, &log, b"entry", 41 * SECOND);
        store.maintain(60 * SECOND).unwrap();
        assert_eq!((first(&log), waiting(&store)), (40, 0));
    }

    #[test]
    fn what_is_appended_while_old_entries_go_stays() {
        let store = Store::memory(Options::default()).unwrap();
        for round in 0..300 {
            let log = bounded(&store, format!("aged {round}").as_bytes(), 10 * SECOND, 0);
            (0..100).for_each(|_| append(&store, &log, b"old", SECOND));
            std::thread::scope(|scope| {
                // Whatever version the other one makes of it.
                scope.spawn(|| store.append(&log, b"new", 60 * SECOND).unwrap());
                store.retain_one(&log, 60 * SECOND).unwrap();
            });
            let state = log.visible().unwrap();
            assert!(state.tail - state.first >= 3, "round {round}: {state:?}");
        }
    }

    #[test]
    fn a_log_beyond_its_size_is_brought_back_to_it_and_others_are_not_looked_at() {
        let store = Store::memory(Options::default()).unwrap();
        let (log, other) = (bounded(&store, b"sized", 0, 1 << 20), bounded(&store, b"other", 0, 1 << 20));
        let payload = vec![b'x'; 10_000];
        (0..100).for_each(|time| append(&store, &log, &payload, time));
        append(&store, &other, &payload, 1);
        assert_eq!(waiting(&store), 0);
        for time in 100..1_000 {
            append(&store, &log, &payload, time);
            if time % 50 == 0 {
                store.maintain(time).unwrap();
            }
            let state = log.visible().unwrap();
            assert!(state.tail - state.first >= 1_000_000 || time < 110);
            assert_eq!(state.first % 10_000, 0, "whole entries go");
        }
        store.maintain(2_000).unwrap();
        let state = log.visible().unwrap();
        assert!(state.tail - state.first < (1 << 20) + (200 << 10), "{state:?}");
        assert_eq!(other.visible().unwrap().first, 0);
    }

    #[test]
    fn more_than_one_call_looks_at_is_asked_for_until_nothing_is_left() {
        let store = Store::memory(Options::default()).unwrap();
        let logs: Vec<_> = (0..3 * LOOKS_MAX - 7)
            .map(|n| bounded(&store, format!("aged {n}").as_bytes(), 10 * SECOND, 0))
            .inspect(|log| append(&store, log, b"entry", SECOND))
            .collect();
        let begun = std::time::Instant::now();
        let rounds = (1..).find(|_| !store.maintain(12 * SECOND).unwrap());
        let is_empty = |log: &Arc<Log>| log.visible().is_some_and(|state| state.first == state.tail);
        assert!(logs.iter().all(is_empty));
        assert_eq!(rounds, Some(3));
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(60),
            "it rests in proportion to what it does"
        );
    }

    #[test]
    fn bounds_last_and_are_looked_at_when_a_store_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let disk = thalweg_sys::disk::Disk::Real;
        let (store, _) = Store::open(&disk, directory.path(), Options::default()).unwrap();
        let log = bounded(&store, b"aged", 10 * SECOND, 0);
        append(&store, &log, b"entry", SECOND);
        store.close().unwrap();
        drop((log, store));
        let (store, _) = Store::open(&disk, directory.path(), Options::default()).unwrap();
        assert_eq!(waiting(&store), 1);
        store.maintain(12 * SECOND).unwrap();
        store.flush().unwrap();
        let state = store.find(b"aged").unwrap().visible().unwrap();
        assert_eq!(state.first, state.tail);
    }

    #[test]
    fn bounds_that_nothing_reaches_let_go_of_nothing() {
        let store = Store::memory(Options::default()).unwrap();
        let log = bounded(&store, b"unbounded", Time::MAX, u64::MAX);
        append(&store, &log, b"entry", Time::MAX - 1);
        store.maintain(Time::MAX).unwrap();
        assert_eq!(log.visible().unwrap().first, 0);
    }

    fn forked(store: &Store, age_us: Time, bytes: u64) -> Arc<Log> {
        let parent = store.log(b"parent").unwrap();
        (0..100).for_each(|time| append(store, &parent, &[b'x'; 10_000], time));
        let fork = crate::Fork { parent: parent.clone(), at: 1_000_000, asked: [0; 2] };
        let value = bounds(age_us, bytes);
        let first = Commit { notes: &[(RETAIN_NOTE, &value)], ..Commit::default() };
        store.create(b"fork", parent.config(), Some(&fork), &first, None).unwrap().0
    }

    #[test]
    fn what_a_fork_inherits_counts_and_is_kept() {
        let store = Store::memory(Options::default()).unwrap();
        let fork = forked(&store, 0, 500_000);
        append(&store, &fork, b"own", 100);
        store.maintain(200).unwrap();
        let state = fork.visible().unwrap();
        let kept = state.tail - state.first;
        // Whole runs of batches go.
        assert!((500_000..700_000).contains(&kept), "{state:?}");
        assert_eq!(store.read(&fork, state.first, usize::MAX).unwrap().pieces.concat().len() as u64, kept);
    }

    #[test]
    fn a_fork_below_both_of_its_bounds_keeps_what_it_has_when_a_store_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let disk = thalweg_sys::disk::Disk::Real;
        let (store, _) = Store::open(&disk, directory.path(), Options::default()).unwrap();
        let fork = forked(&store, 1_000 * SECOND, 100 << 20);
        append(&store, &fork, b"own", 100);
        store.close().unwrap();
        drop((fork, store));
        let (store, _) = Store::open(&disk, directory.path(), Options::default()).unwrap();
        store.maintain(SECOND).unwrap();
        store.flush().unwrap();
        assert_eq!(store.find(b"fork").unwrap().visible().unwrap().first, 0);
    }

    #[test]
    fn what_cannot_be_trimmed_now_is_looked_at_again_and_what_is_deleted_is_not() {
        let store = Store::memory(Options::default()).unwrap();
        let logs: Vec<_> =
            [b"a", b"b", b"c", b"d"].iter().map(|name| bounded(&store, *name, SECOND, 0)).collect();
        logs.iter().for_each(|log| append(&store, log, b"entry", 1));
        store.delete(&logs[3], logs[3].staged().unwrap().version, 2, None).unwrap();
        assert_eq!(waiting(&store), 3);
        store.close().unwrap();
        store.retain_each(10 * SECOND).unwrap_err();
        assert_eq!(waiting(&store), 3);
    }
}
