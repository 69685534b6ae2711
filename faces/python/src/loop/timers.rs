//! Timers, to the nanosecond, never early.
//!
//! A heap by due time and order of making, so that timers of one instant are called in the order they were made.
//! A cancelled timer stays until it comes up or until more than half of the heap are such; then all of them are
//! swept out at once, so a cancel costs no search. Invariant: `cancelled` is how many cancelled ones lie in the heap.

use super::handle::TimerHandle;
use pyo3::prelude::*;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Below this many cancelled timers nobody sweeps.
const SWEEP_MIN: usize = 64;

struct Due {
    due_ns: u64,
    order: u64,
    handle: Py<TimerHandle>,
}

impl Due {
    fn is_cancelled(&self, py: Python<'_>) -> bool {
        self.handle.bind(py).as_super().get().is_cancelled(py)
    }
}

impl Ord for Due {
    /// The earliest is the greatest: the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due_ns, other.order).cmp(&(self.due_ns, self.order))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

/// The timers of one loop. What it returns as swept is to be dropped by the caller, outside.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Due>,
    cancelled: usize,
    made: u64,
}

impl Timers {
    #[inline]
    pub(crate) fn push(&mut self, due_ns: u64, handle: Py<TimerHandle>) {
        self.made += 1;
        self.heap.push(Due { due_ns, order: self.made, handle });
    }

    /// Counts a timer that was cancelled, and sweeps when it is time to.
    pub(crate) fn count_cancelled(&mut self, py: Python<'_>) -> Vec<Py<TimerHandle>> {
        self.cancelled += 1;
        if self.cancelled < SWEEP_MIN || self.cancelled * 2 < self.heap.len() {
            return Vec::new();
        }
        self.cancelled = 0;
        let all = std::mem::take(&mut self.heap).into_vec().into_iter();
        let (gone, left): (Vec<Due>, Vec<Due>) = all.partition(|due| due.is_cancelled(py));
        self.heap = left.into();
        gone.into_iter().map(|due| due.handle).collect()
    }

    /// When the first one that still counts is due; cancelled ones before it go to `swept`.
    #[inline]
    pub(crate) fn first_ns(&mut self, py: Python<'_>, swept: &mut Vec<Py<TimerHandle>>) -> Option<u64> {
        while self.cancelled > 0 && self.heap.peek()?.is_cancelled(py) {
            self.cancelled -= 1;
            swept.extend(self.heap.pop().map(|due| due.handle));
        }
        self.heap.peek().map(|due| due.due_ns)
    }

    /// The next one that is due at `now_ns`.
    #[inline]
    pub(crate) fn pop(&mut self, py: Python<'_>, now_ns: u64) -> Option<Py<TimerHandle>> {
        if self.heap.peek()?.due_ns > now_ns {
            return None;
        }
        let due = self.heap.pop()?;
        if self.cancelled > 0 && due.is_cancelled(py) {
            self.cancelled -= 1;
        }
        Some(due.handle)
    }

    /// Everything, at the end.
    pub(crate) fn clear(&mut self) -> Vec<Py<TimerHandle>> {
        self.cancelled = 0;
        std::mem::take(&mut self.heap).into_iter().map(|due| due.handle).collect()
    }
}

/// The first nanosecond at which the clock, read as seconds, says at least `when`.
pub(crate) fn due_ns(when: f64) -> u64 {
    // Rounding may go either way and is corrected upwards. A time before boot casts to zero, one beyond all clocks to
    // the end of them.
    let mut ns = (when * 1e9).ceil() as u64;
    while seconds(ns) < when && ns < u64::MAX {
        ns += 1;
    }
    ns
}

/// A clock reading as Python's `time.monotonic` gives it.
#[inline]
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
