//! What a session wrote beside its snapshot, and the room that each change of it takes: given back once nobody holds the
//! change any more, be it the session or whoever looks at what it held before it wrote on.

use crate::changes::{Change, Changes};
use crate::error::Error;
use crate::journal;
use crate::map::Key;
use crate::room::{Held, Room};
use crate::session::SESSION_BYTES_MAX;
use imbl::OrdMap;
use std::ops::Deref;
use std::sync::Arc;

/// Changes, each in its room. A copy shares both, and costs nothing.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    changes: Changes,
    held: OrdMap<Key, Arc<Held>>,
    /// Of those changes, whatever others hold.
    bytes: usize,
    room: Arc<Room>,
}

impl Deref for Beside {
    type Target = Changes;

    fn deref(&self) -> &Changes {
        &self.changes
    }
}

impl Beside {
    /// Nothing, to be written to.
    pub(crate) fn new(room: &Arc<Room>) -> Self {
        Self { changes: Changes::default(), held: OrdMap::new(), bytes: 0, room: Arc::clone(room) }
    }

    /// Adds changes behind the others, all or none; `kind` is the type of their messages.
    ///
    /// # Errors
    /// [`Error::TooMuch`], [`Error::NoRoom`].
    pub(crate) fn write(&mut self, kind: &str, changes: Changes) -> Result<(), Error> {
        let (mut before, mut after) = (0, 0);
        for (key, value) in changes.iter() {
            after += journal::bytes_max(kind, key, value);
            before += self.held.get(key).map_or(0, |held| held.bytes());
        }
        let bytes = self.bytes - before + after;
        if bytes > SESSION_BYTES_MAX {
            return Err(Error::TooMuch { bytes, limit: SESSION_BYTES_MAX });
        }
        let old = changes.iter().filter_map(|(key, _)| self.held.remove_with_key(key));
        let old: Vec<(Key, Arc<Held>)> = old.collect();
        // What nobody else holds makes room for what comes in its place.
        let (free, looked_at): (Vec<_>, Vec<_>) =
            old.into_iter().partition(|(_, held)| Arc::strong_count(held) == 1);
        let given: usize = free.iter().map(|(_, held)| held.bytes()).sum();
        if let Err(error) = self.room.exchange(given, after) {
            self.held.extend(free.into_iter().chain(looked_at));
            return Err(error);
        }
        free.into_iter().filter_map(|(_, held)| Arc::into_inner(held)).for_each(Held::given);
        for (key, value) in changes {
            let bytes = journal::bytes_max(kind, &key, value.as_ref());
            self.held.insert(key.clone(), Arc::new(self.room.taken(bytes)));
            self.changes.push(match value {
                Some(value) => Change::Put(key, value),
                None => Change::Delete(key),
            });
        }
        self.bytes = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "entry";

    fn put(key: &str, bytes: usize) -> Changes {
        std::iter::once(Change::Put(key.into(), vec![7; bytes].into())).collect()
    }

    #[test]
    fn what_somebody_looks_at_takes_room_until_nobody_does() {
        let size = |bytes: usize| journal::bytes_max(KIND, "a", put("a", bytes).get("a").flatten());
        let room = Room::new(size(3_000) * 3);
        let mut beside = Arc::new(Beside::new(&room));
        let write = |beside: &mut Arc<Beside>, changes| Arc::make_mut(beside).write(KIND, changes);
        for _ in 0..10 {
            write(&mut beside, put("a", 3_000)).unwrap();
            assert_eq!(room.held(), size(3_000), "what was written over is nobody's");
        }
        let first = beside.clone();
        write(&mut beside, put("a", 3_000)).unwrap();
        assert_eq!(room.held(), size(3_000) * 2);
        write(&mut beside, put("b", 10)).unwrap();
        let second = beside.clone();
        let before = room.held();
        assert!(matches!(write(&mut beside, put("a", 3_000)), Err(Error::NoRoom { .. })));
        assert_eq!((room.held(), beside.bytes, &**beside), (before, second.bytes, &**second));
        drop(first);
        write(&mut beside, put("a", 3_000)).unwrap();
        drop(second);
        assert_eq!(room.held(), beside.bytes);
        drop(beside);
        assert_eq!(room.held(), 0);
    }
}
