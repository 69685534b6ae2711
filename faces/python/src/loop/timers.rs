//! Timers, to the nanosecond, never early.
//!
//! A timer lies in the bucket of its millisecond until that millisecond begins, and then in a heap by due
//! time and order of making: so timers of one instant are called in the order they were made, a heap is small
//! however many timers there are, and what is cancelled long before its time was never sorted. A cancelled
//! timer stays until its time or until more than half of all are such; then all of them are swept out at
//! once, so a cancel costs no search.
//!
//! Invariants: whatever lies in `far` is due after everything in `near`; `count` is how many lie in both,
//! `cancelled` how many of these are cancelled.

use super::handle::TimerHandle;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

/// Below this many cancelled timers there is no sweep.
const SWEEP_MIN: usize = 64;
/// A bucket's span: 2^20 ns, about a millisecond.
const SPAN_BITS: u32 = 20;

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

/// Timers of one span of time that is still to come, in no order.
#[derive(Default)]
struct Bucket {
    timers: Vec<Due>,
    /// Before this none of them is due.
    first_ns: u64,
}

/// The timers of one loop. What it returns as swept is to be dropped by the caller, outside.
#[derive(Default)]
pub(crate) struct Timers {
    /// Those of the span that has begun, and of all before it.
    near: BinaryHeap<Due>,
    near_span: u64,
    /// Those of later spans.
    far: BTreeMap<u64, Bucket>,
    count: usize,
    cancelled: usize,
    made: u64,
}

impl Timers {
    #[inline]
    pub(crate) fn push(&mut self, due_ns: u64, handle: Py<TimerHandle>) {
        self.made += 1;
        self.count += 1;
        let due = Due { due_ns, order: self.made, handle };
        let span = due_ns >> SPAN_BITS;
        if span <= self.near_span {
            self.near.push(due);
            return;
        }
        let bucket = self.far.entry(span).or_insert(Bucket { timers: Vec::new(), first_ns: u64::MAX });
        bucket.first_ns = bucket.first_ns.min(due_ns);
        bucket.timers.push(due);
    }

    /// Counts a timer that was cancelled, and sweeps when it is time to.
    #[inline]
    pub(crate) fn count_cancelled(&mut self, py: Python<'_>) -> Vec<Py<TimerHandle>> {
        self.cancelled += 1;
        if self.cancelled < SWEEP_MIN || self.cancelled * 2 < self.count {
            Vec::new()
        } else {
            self.sweep(py)
        }
    }

    fn sweep(&mut self, py: Python<'_>) -> Vec<Py<TimerHandle>> {
        let mut swept = Vec::with_capacity(self.cancelled);
        let mut keep = |timers: Vec<Due>| -> Vec<Due> {
            let (gone, left): (Vec<Due>, Vec<Due>) = timers.into_iter().partition(|due| due.is_cancelled(py));
            swept.extend(gone.into_iter().map(|due| due.handle));
            left
        };
        self.near = keep(std::mem::take(&mut self.near).into_vec()).into();
        self.far.retain(|_, bucket| {
            bucket.timers = keep(std::mem::take(&mut bucket.timers));
            !bucket.timers.is_empty()
        });
        self.count -= swept.len();
        self.cancelled = 0;
        swept
    }

    /// Before this no timer is due; `None`: there is none.
    #[inline]
    pub(crate) fn first_ns(&self) -> Option<u64> {
        let near_ns = self.near.peek().map(|due| due.due_ns);
        near_ns.or_else(|| self.far.first_key_value().map(|(_, bucket)| bucket.first_ns))
    }

    /// The next one that is due at `now_ns`.
    #[inline]
    pub(crate) fn pop(&mut self, py: Python<'_>, now_ns: u64) -> Option<Py<TimerHandle>> {
        if self.near.is_empty() {
            let next = self.far.first_entry().filter(|entry| entry.get().first_ns <= now_ns)?;
            let (span, bucket) = next.remove_entry();
            self.near_span = span;
            self.near = bucket.timers.into();
        }
        if self.near.peek()?.due_ns > now_ns {
            return None;
        }
        let due = self.near.pop()?;
        self.count -= 1;
        if self.cancelled > 0 && due.is_cancelled(py) {
            self.cancelled -= 1;
        }
        Some(due.handle)
    }

    /// Shows the garbage collector what the timers hold.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let far = self.far.values().flat_map(|bucket| &bucket.timers);
        self.near.iter().chain(far).try_for_each(|due| TimerHandle::traverse_waiting(&due.handle, 1, visit))
    }

    /// Everything, at the end.
    pub(crate) fn clear(&mut self) -> Vec<Py<TimerHandle>> {
        let all = std::mem::take(self);
        let far = all.far.into_values().flat_map(|bucket| bucket.timers);
        all.near.into_iter().chain(far).map(|due| due.handle).collect()
    }
}

/// The first nanosecond at which the clock, read as seconds, says at least `when`.
pub(crate) fn due_ns(when: f64) -> u64 {
    // Rounding may go either way and is corrected upwards. A time before boot casts to zero, one beyond all
    // clocks to the end of them.
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
