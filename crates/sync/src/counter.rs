//! Numbers that are given out once each, to callers in any thread.
//!
//! Nothing is published by a number, so no ordering is asked of it: only that no two get the same, and that
//! each thread's own numbers grow.

use crate::primitives::atomic::{AtomicU64, Ordering};

/// A source of numbers, from 1 on.
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One whose first number is 1.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    /// One whose first number is 1.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    /// The next number: nobody else ever gets it. Lock-free, from any thread.
    #[inline]
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_given_out_once_and_each_threads_grow() {
        const EACH: usize = 20_000;
        let counter = Counter::new();
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let drawing =
                [(); 3].map(|()| scope.spawn(|| (0..EACH).map(|_| counter.next()).collect::<Vec<u64>>()));
            drawing
                .into_iter()
                .flat_map(|thread| {
                    let drawn = thread.join().unwrap();
                    assert!(drawn.is_sorted());
                    drawn
                })
                .collect()
        });
        all.sort_unstable();
        assert_eq!(all, (1..=3 * EACH as u64).collect::<Vec<u64>>());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn no_number_is_given_out_twice() {
        loom::model(|| {
            let counter = Arc::new(Counter::new());
            let rival = counter.clone();
            let rival = loom::thread::spawn(move || [rival.next(), rival.next()]);
            let ours = counter.next();
            let [first, second] = rival.join().unwrap();
            assert!(first < second && ours != first && ours != second);
            assert_eq!(counter.next(), 4);
        });
    }
}
