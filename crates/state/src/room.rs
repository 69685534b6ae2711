//! A bound on memory that many clients share: what all sessions of a state together hold beside their
//! snapshots, and what calls hold that wait.

use crate::error::Error;
use parking_lot::Mutex;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Room {
    limit: usize,
    held: Mutex<usize>,
}

impl Room {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: Mutex::new(0) })
    }

    /// Bytes that there are.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes of it that are taken.
    pub(crate) fn held(&self) -> usize {
        *self.held.lock()
    }

    /// Takes so many bytes in the place of others that are given back.
    pub(crate) fn exchange(&self, given: usize, taken: usize) -> Result<(), Error> {
        let mut held = self.held.lock();
        let more = taken.saturating_sub(given);
        if more > self.limit.saturating_sub(*held) {
            return Err(Error::NoRoom { bytes: more, limit: self.limit });
        }
        *held = *held - given + taken;
        Ok(())
    }

    /// Takes so many bytes, if there are.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        self.exchange(0, bytes).ok()?;
        Some(self.taken(bytes))
    }

    /// A part of what was taken.
    pub(crate) fn taken(self: &Arc<Self>, bytes: usize) -> Held {
        Held { room: self.clone(), bytes }
    }
}

/// A part of the room, given back when this goes.
#[derive(Debug)]
pub(crate) struct Held {
    room: Arc<Room>,
    bytes: usize,
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// It was given back, in an exchange.
    pub(crate) fn given(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.room.held.lock() -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let room = Room::new(10);
        room.exchange(0, 6).unwrap();
        let first = room.taken(6);
        assert!(matches!(room.exchange(0, 5), Err(Error::NoRoom { bytes: 5, limit: 10 })));
        room.exchange(0, 4).unwrap();
        let second = room.taken(4);
        assert!(matches!(room.exchange(4, 7), Err(Error::NoRoom { bytes: 3, limit: 10 })));
        room.exchange(6, 3).unwrap();
        first.given();
        let first = room.taken(3);
        room.exchange(4, 7).unwrap();
        second.given();
        let second = room.taken(7);
        assert_eq!((first.bytes(), second.bytes(), room.held()), (3, 7, 10));
        drop(first);
        assert_eq!(room.held(), 7);
        drop(second);
        assert_eq!(room.held(), 0);
        let all = room.take(10).unwrap();
        assert!(room.take(1).is_none());
        drop(all);
        assert_eq!(room.held(), 0);
    }
}
