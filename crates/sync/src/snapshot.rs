//! A value that is seldom replaced and read all the time.
//!
//! # Shape
//!
//! [`Snapshots`] holds the latest value behind a lock, and beside it a version that each replacement moves.
//! A reader keeps a [`Cached`] copy of its own, a reference to the value it last saw, and compares versions:
//! one load of a line that nobody writes, until there is something new. A value lives for as long as
//! somebody holds it, so a reader is never in a hurry.
//!
//! # The words
//!
//! | word | written by | with | read by | with |
//! |---|---|---|---|---|
//! | `version` | the writer, under the lock, after the value | `Relaxed` | readers, without the lock | `Relaxed` |
//! | the value | the writer | the lock | readers that found another version | the lock |
//!
//! The version carries nothing: it says that a look is worth the lock, and the lock orders the look. A
//! reader that read a version moves to that value or a newer one, since the version is moved within the lock
//! and the reader takes the lock after having seen it.
//!
//! # What a position promises
//!
//! Writers replace *and then* publish where to look (`Release`: a log's visible end); readers load where to
//! look (`Acquire`) *and then* refresh. The pair orders the version's store before its load, so who knows
//! of a position has the snapshot that holds it, or a newer one. Nothing is promised to who asks the other
//! way round.
//!
//! Checked by the models in `models/snapshot.rs`, which also show that the position must be published
//! after, with `Release`, and read before, with `Acquire`.

use crate::primitives::Mutex;
use crate::primitives::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// The latest value, shared by those who replace it and those who read it.
#[derive(Debug)]
pub struct Snapshots<T> {
    version: AtomicU64,
    latest: Mutex<Arc<T>>,
}

/// A reader's own reference to the value it last saw.
#[derive(Debug)]
pub struct Cached<T> {
    version: u64,
    value: Arc<T>,
}

impl<T> Snapshots<T> {
    /// Begins with a value, at version 0.
    pub fn new(value: T) -> Self {
        Self { version: AtomicU64::new(0), latest: Mutex::new(Arc::new(value)) }
    }

    /// How often the value was replaced or touched.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The latest value and its version.
    pub fn latest(&self) -> (u64, Arc<T>) {
        let latest = self.latest.lock();
        (self.version(), Arc::clone(&latest))
    }

    /// Makes a value from the latest one and puts it in its place. `make` runs under the lock, so what it
    /// was given is still the latest when it is replaced; it must not come back here.
    pub fn replace(&self, make: impl FnOnce(&T) -> T) {
        let mut latest = self.latest.lock();
        let made = Arc::new(make(&latest));
        let former = std::mem::replace(&mut *latest, made);
        self.version.store(self.version() + 1, Ordering::Relaxed);
        drop(latest);
        // Perhaps the last reference: what it takes along must not be waited for under the lock.
        drop(former);
    }

    /// Has readers find the value replaced by itself: something that they look at together with it was
    /// changed before.
    pub fn touch(&self) {
        let _latest = self.latest.lock();
        self.version.store(self.version() + 1, Ordering::Relaxed);
    }
}

impl<T> Cached<T> {
    /// The latest value, to be kept.
    pub fn of(snapshots: &Snapshots<T>) -> Self {
        let (version, value) = snapshots.latest();
        Self { version, value }
    }

    /// Goes on to the latest value; whether it was replaced since. One load when it was not. To be asked of
    /// the same `Snapshots` always.
    ///
    /// ```
    /// use thalweg_sync::snapshot::{Cached, Snapshots};
    /// let segments = Snapshots::new(vec![1, 2]);
    /// let mut seen = Cached::of(&segments);
    /// assert!(!seen.refresh(&segments));
    /// segments.replace(|old| old.iter().copied().chain([3]).collect());
    /// assert_eq!(**seen.value(), [1, 2]);
    /// assert!(seen.refresh(&segments));
    /// assert_eq!(**seen.value(), [1, 2, 3]);
    /// ```
    #[inline]
    pub fn refresh(&mut self, snapshots: &Snapshots<T>) -> bool {
        let stale = self.is_stale(snapshots);
        if stale {
            *self = Self::of(snapshots);
        }
        stale
    }

    /// Whether the value was replaced since: [`Cached::refresh`] lets go of this one then. One load.
    #[inline]
    pub fn is_stale(&self, snapshots: &Snapshots<T>) -> bool {
        snapshots.version() != self.version
    }

    /// The value last seen.
    #[inline]
    pub fn value(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self { version: self.version, value: Arc::clone(&self.value) }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_is_told_once_of_what_was_replaced() {
        let snapshots = Snapshots::new("a".to_owned());
        let mut early = Cached::of(&snapshots);
        snapshots.replace(|former| format!("{former}b"));
        snapshots.replace(|former| format!("{former}c"));
        let (mut late, mut copy) = (Cached::of(&snapshots), early.clone());
        assert!(early.refresh(&snapshots) && copy.refresh(&snapshots));
        assert!(!early.refresh(&snapshots) && !late.refresh(&snapshots));
        assert_eq!([&**early.value(), &**late.value(), &**copy.value()], ["abc"; 3]);
        assert_eq!((snapshots.version(), snapshots.latest().0), (2, 2));
    }

    #[test]
    fn a_touch_is_told_as_a_replacement_and_copies_nothing() {
        let snapshots = Snapshots::new("a".to_owned());
        let mut seen = Cached::of(&snapshots);
        let before = Arc::clone(seen.value());
        snapshots.touch();
        assert!(seen.is_stale(&snapshots) && seen.refresh(&snapshots) && !seen.refresh(&snapshots));
        assert!(Arc::ptr_eq(&before, seen.value()));
    }

    /// One that were newer than its value would keep a reader from what came in between.
    #[test]
    fn the_version_of_a_copy_is_that_of_its_value() {
        const LAST: u64 = 200_000;
        let snapshots = Snapshots::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..LAST).for_each(|_| snapshots.replace(|former| former + 1)));
            let mut seen = 0;
            while seen < LAST {
                let copy = Cached::of(&snapshots);
                assert_eq!(copy.version, **copy.value());
                assert!(copy.version >= seen, "values come in their order");
                seen = copy.version;
            }
        });
    }

    /// What is let go of may take long, or come back here.
    #[test]
    fn a_value_is_let_go_of_outside_the_lock() {
        struct Looks(Arc<Snapshots<Option<Looks>>>);
        impl Drop for Looks {
            fn drop(&mut self) {
                assert_eq!(self.0.latest().0, 2);
            }
        }
        let snapshots = Arc::new(Snapshots::new(None));
        let held = snapshots.clone();
        snapshots.replace(|_| Some(Looks(held)));
        snapshots.replace(|_| None);
        assert_eq!(Arc::strong_count(&snapshots), 1, "the first value is gone");
    }

    #[test]
    fn a_replacement_that_fails_leaves_everything_as_it_was() {
        let snapshots = Snapshots::new(1);
        let failing = std::panic::AssertUnwindSafe(|| snapshots.replace(|_| panic!("no value")));
        assert!(std::panic::catch_unwind(failing).is_err());
        snapshots.replace(|former| former + 1);
        assert_eq!((snapshots.version(), *snapshots.latest().1), (1, 2));
    }
}
