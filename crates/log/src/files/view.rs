//! Which segments there are, as readers see it: a list that is replaced, never changed.
//!
//! Purpose: a reader keeps the list it last saw and only compares its version (`sync::snapshot`), so finding
//! the next segment takes no lock. A thread that adds or removes a segment replaces the list. A removed
//! segment lives for as long as some reader's list names it. In a process that is attached to another's store
//! the version is a word of the control file, and the list is read from the directory.

use crate::Time;
use crate::segment::Segment;
use std::sync::Arc;
use thalweg_sync::snapshot::{Cached, Snapshots};

/// The store's segments in order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct View {
    segments: Vec<Arc<Segment>>,
    /// The largest time before each of them, side by side to be searched.
    latest: Vec<Time>,
}

impl View {
    pub(crate) fn of(segments: Vec<Arc<Segment>>) -> View {
        let latest = segments.iter().map(|segment| segment.header.latest).collect();
        View { segments, latest }
    }

    pub(crate) fn all(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    /// Index in the list of a segment, or of the next one there is.
    pub(crate) fn place(&self, number: u32) -> usize {
        let first = self.segments.first().map_or(0, |segment| segment.header.number);
        // Numbers follow each other unless something was removed in between.
        let guess = number.saturating_sub(first) as usize;
        match self.segments.get(guess) {
            Some(segment) if segment.header.number == number => guess,
            _ => self.segments.partition_point(|segment| segment.header.number < number),
        }
    }

    pub(crate) fn find(&self, number: u32) -> Option<&Arc<Segment>> {
        self.segments.get(self.place(number)).filter(|segment| segment.header.number == number)
    }

    /// Index of the last segment that may hold the first entry at or after a time: everything in front of it
    /// is older.
    pub(crate) fn place_of_time(&self, time: Time) -> usize {
        match self.latest.last() {
            // Most queries ask for what is new.
            Some(latest) if *latest < time => self.latest.len() - 1,
            _ => self.latest.partition_point(|latest| *latest < time).saturating_sub(1),
        }
    }
}

/// The list of the store's segments, and the versions of it that readers hold.
#[derive(Debug)]
pub(crate) struct Segments {
    snapshots: Snapshots<View>,
}

impl Default for Segments {
    fn default() -> Segments {
        Segments { snapshots: Snapshots::new(View::default()) }
    }
}

impl Segments {
    pub(crate) fn find(&self, number: u32) -> Option<Arc<Segment>> {
        self.snapshots.latest().1.find(number).cloned()
    }

    pub(crate) fn add(&self, segment: Arc<Segment>) {
        self.snapshots.replace(|view| {
            let mut segments = view.segments.clone();
            let place = view.place(segment.header.number);
            match segments.get_mut(place) {
                Some(same) if same.header.number == segment.header.number => *same = segment,
                _ => segments.insert(place, segment),
            }
            View::of(segments)
        });
    }

    pub(crate) fn remove(&self, number: u32) {
        self.snapshots.replace(|view| {
            let kept = view.segments.iter().filter(|segment| segment.header.number != number);
            View::of(kept.cloned().collect())
        });
    }

    /// Replaces the whole list.
    pub(crate) fn set(&self, segments: Vec<Arc<Segment>>) {
        self.snapshots.replace(|_| View::of(segments));
    }

    /// Makes a new version of the same list, so that readers look again: the beginning of a log moved.
    pub(crate) fn touch(&self) {
        self.snapshots.touch();
    }

    /// Releases the memory that all but the newest `keep` segments take in this process.
    pub(crate) fn release(&self, keep: usize) {
        let old = |count: usize| ..count.saturating_sub(keep.max(1));
        let view = self.latest();
        let segments = &view.segments[old(view.segments.len())];
        if segments.iter().any(|segment| segment.index_bytes() > 0) {
            self.snapshots.replace(|view| {
                let mut segments = view.segments.clone();
                let old = old(segments.len());
                for segment in segments[old].iter_mut().filter(|segment| segment.index_bytes() > 0) {
                    *segment = Arc::new(segment.without_index());
                }
                View::of(segments)
            });
        }
        segments.iter().for_each(|segment| segment.release());
    }

    pub(crate) fn index_bytes(&self) -> u64 {
        self.latest().segments.iter().map(|segment| segment.index_bytes()).sum()
    }

    pub(crate) fn latest(&self) -> Arc<View> {
        self.snapshots.latest().1
    }

    pub(crate) fn cached(&self) -> Cached<View> {
        Cached::of(&self.snapshots)
    }

    pub(crate) fn refresh(&self, cached: &mut Cached<View>) -> bool {
        cached.refresh(&self.snapshots)
    }

    /// Whether the list was replaced since it was cached. Complexity: one load.
    #[inline]
    pub(crate) fn is_newer(&self, cached: &Cached<View>) -> bool {
        cached.is_stale(&self.snapshots)
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.latest().segments.iter().map(|segment| segment.header.number).collect()
    }

    pub(crate) fn settled_bytes(&self) -> u64 {
        self.latest().segments.iter().map(|segment| segment.settled_bytes()).sum()
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.latest().segments.iter().map(|segment| segment.header.held_bytes()).sum()
    }
}
