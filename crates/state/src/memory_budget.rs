//! A bound on memory that many clients share. One bounds what all sessions of a state together hold beside
//! their snapshots, another what all calls together hold while they wait.

use crate::error::Error;
use parking_lot::Mutex;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: usize,
    held: Mutex<usize>,
}

impl MemoryBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: Mutex::new(0) })
    }

    /// The bound, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are reserved.
    pub(crate) fn held(&self) -> usize {
        *self.held.lock()
    }

    /// Reserves `taken` bytes and releases `given` in one step. The caller makes [`Reservation`]s of the
    /// bytes ([`MemoryBudget::taken`]), and ends those that it released ([`Reservation::given`]).
    pub(crate) fn exchange(&self, given: usize, taken: usize) -> Result<(), Error> {
        let mut held = self.held.lock();
        let more = taken.saturating_sub(given);
        if more > self.limit.saturating_sub(*held) {
            return Err(Error::NoRoom { bytes: more, limit: self.limit });
        }
        *held = *held - given + taken;
        Ok(())
    }

    /// Reserves `bytes` if they are free.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        self.exchange(0, bytes).ok()?;
        Some(self.taken(bytes))
    }

    /// A part of what [`MemoryBudget::exchange`] reserved.
    pub(crate) fn taken(self: &Arc<Self>, bytes: usize) -> Reservation {
        Reservation { budget: self.clone(), bytes }
    }
}

/// Bytes that are reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Reservation {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Ends a reservation whose bytes an exchange released.
    pub(crate) fn given(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.budget.held.lock() -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let budget = MemoryBudget::new(10);
        budget.exchange(0, 6).unwrap();
        let first = budget.taken(6);
        assert!(matches!(budget.exchange(0, 5), Err(Error::NoRoom { bytes: 5, limit: 10 })));
        budget.exchange(0, 4).unwrap();
        let second = budget.taken(4);
        assert!(matches!(budget.exchange(4, 7), Err(Error::NoRoom { bytes: 3, limit: 10 })));
        budget.exchange(6, 3).unwrap();
        first.given();
        let first = budget.taken(3);
        budget.exchange(4, 7).unwrap();
        second.given();
        let second = budget.taken(7);
        assert_eq!((first.bytes(), second.bytes(), budget.held()), (3, 7, 10));
        drop(first);
        assert_eq!(budget.held(), 7);
        drop(second);
        assert_eq!(budget.held(), 0);
        let all = budget.reserve(10).unwrap();
        assert!(budget.reserve(1).is_none());
        drop(all);
        assert_eq!(budget.held(), 0);
    }
}
