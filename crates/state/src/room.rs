//! What all sessions of a state together hold beside their snapshots: a bound on memory that many clients share.

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

    /// Bytes of it that are taken.
    pub(crate) fn held(&self) -> usize {
        *self.held.lock()
    }

    /// A part of it, of nothing to begin with.
    pub(crate) fn begin(self: &Arc<Self>) -> Held {
        Held { room: self.clone(), bytes: 0 }
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

    /// Is of so many bytes from here on.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Error> {
        let Room { limit, held } = &*self.room;
        let mut held = held.lock();
        let more = bytes.saturating_sub(self.bytes);
        if more > limit.saturating_sub(*held) {
            return Err(Error::NoRoom { bytes: more, limit: *limit });
        }
        *held = *held - self.bytes + bytes;
        self.bytes = bytes;
        Ok(())
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
        let (mut first, mut second) = (room.begin(), room.begin());
        first.resize(6).unwrap();
        assert!(matches!(second.resize(5), Err(Error::NoRoom { bytes: 5, limit: 10 })));
        second.resize(4).unwrap();
        assert!(matches!(second.resize(7), Err(Error::NoRoom { bytes: 3, limit: 10 })));
        first.resize(3).unwrap();
        second.resize(7).unwrap();
        assert_eq!((first.bytes(), second.bytes(), *room.held.lock()), (3, 7, 10));
        drop(first);
        second.resize(10).unwrap();
        drop(second);
        assert_eq!(*room.held.lock(), 0);
    }
}
