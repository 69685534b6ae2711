//! A bounded number of places, taken and given back by any thread.
//!
//! Nothing is published by a place, so no ordering is asked of it: only that there are never more takers than
//! places, and that one given back is there again. Who is refused saw a moment in which all were taken.

use crate::primitives::atomic::{AtomicUsize, Ordering};

/// Places, by how many are free.
#[derive(Debug)]
pub struct Places(AtomicUsize);

impl Places {
    /// A set of this many places, all free.
    #[cfg(not(loom))]
    pub const fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    /// A set of this many places, all free.
    #[cfg(loom)]
    pub fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    /// Takes one, unless none is free. Lock-free.
    #[must_use]
    pub fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok()
    }

    /// Gives one back that was taken.
    pub fn give(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were free a moment ago.
    pub fn free(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_there_are_can_be_taken_and_again_when_they_are_given_back() {
        let places = Places::new(2);
        assert!(places.take() && places.take());
        assert!(!places.take() && !places.take());
        places.give();
        assert_eq!(places.free(), 1);
        assert!(places.take());
        assert!(!places.take());
        assert!(!Places::new(0).take());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn nobody_has_a_place_that_another_has() {
        loom::model(|| {
            let places = Arc::new(Places::new(1));
            let rival = places.clone();
            let rival = loom::thread::spawn(move || {
                let first = rival.take();
                if first {
                    rival.give();
                }
                let second = rival.take();
                (first, second)
            });
            let ours = places.take();
            let (first, second) = rival.join().unwrap();
            assert!(!(ours && second && places.free() > 0));
            assert_eq!(usize::from(ours) + usize::from(second) + places.free(), 1);
            // Ours was refused only while the rival had it.
            assert!(ours || first || second);
        });
    }
}
