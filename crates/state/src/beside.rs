//! What a session wrote beside its snapshot, and the room that each change of it takes: given back once
//! nobody holds the change any more, be it the session or whoever looks at what it held before it wrote on.

use crate::changes::Changes;
use crate::error::Error;
use crate::journal;
use crate::map::{Key, Value};
use crate::room::{Held, Room};
use crate::session::SESSION_BYTES_MAX;
use imbl::OrdMap;
use imbl::ordmap;
use std::iter::Map;
use std::ops::Bound;
use std::sync::Arc;

/// Changes, each in its room. A copy shares all of them and costs nothing, and one more change to either of
/// two copies what lies on the way to its key.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    changes: OrdMap<Key, Arc<Written>>,
    /// Of those changes, whatever others hold.
    bytes: usize,
    room: Arc<Room>,
}

/// What a key holds from here on, in its room.
#[derive(Debug)]
pub(crate) struct Written {
    value: Option<Value>,
    held: Held,
}

impl Beside {
    /// Nothing, to be written to.
    pub(crate) fn new(room: &Arc<Room>) -> Self {
        Self { changes: OrdMap::new(), bytes: 0, room: Arc::clone(room) }
    }

    /// How many keys they change.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether they change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What a key holds by these: `Some(None)` for nothing, `None` when they do not say.
    pub(crate) fn get(&self, key: &str) -> Option<Option<&Value>> {
        self.changes.get(key).map(|written| written.value.as_ref())
    }

    /// Each key and what it holds by these, from a key on.
    pub(crate) fn scan(&self, from: Bound<&str>) -> impl Iterator<Item = (&Key, Option<&Value>)> {
        self.changes.range::<_, str>((from, Bound::Unbounded)).map(change)
    }

    /// Adds changes behind the others, all or none; `kind` is the type of their messages.
    ///
    /// # Errors
    /// [`Error::TooMuch`], [`Error::NoRoom`].
    pub(crate) fn write(&mut self, kind: &str, changes: Changes) -> Result<(), Error> {
        let sizes = changes.iter().map(|(key, value)| journal::bytes_max(kind, key, value));
        let sizes: Vec<usize> = sizes.collect();
        let after: usize = sizes.iter().sum();
        let old = changes.iter().filter_map(|(key, _)| self.changes.remove_with_key(key));
        // What nobody else holds makes room for what comes in its place.
        let (free, looked_at): (Vec<_>, Vec<_>) =
            old.partition(|(_, written)| Arc::strong_count(written) == 1);
        let total = self.bytes - bytes(&free) - bytes(&looked_at) + after;
        let room = match total {
            ..=SESSION_BYTES_MAX => self.room.exchange(bytes(&free), after),
            _ => Err(Error::TooMuch { bytes: total, limit: SESSION_BYTES_MAX }),
        };
        if let Err(error) = room {
            self.changes.extend(free.into_iter().chain(looked_at));
            return Err(error);
        }
        free.into_iter()
            .filter_map(|(_, written)| Arc::into_inner(written))
            .for_each(|written| written.held.given());
        for ((key, value), bytes) in changes.into_iter().zip(sizes) {
            self.changes.insert(key, Arc::new(Written { value, held: self.room.taken(bytes) }));
        }
        self.bytes = total;
        Ok(())
    }
}

/// What they take of the room.
fn bytes(all: &[(Key, Arc<Written>)]) -> usize {
    all.iter().map(|(_, written)| written.held.bytes()).sum()
}

fn change<'c>((key, written): (&'c Key, &'c Arc<Written>)) -> (&'c Key, Option<&'c Value>) {
    (key, written.value.as_ref())
}

impl<'c> IntoIterator for &'c Beside {
    type Item = (&'c Key, Option<&'c Value>);
    type IntoIter = Map<
        ordmap::Iter<'c, Key, Arc<Written>, imbl::shared_ptr::DefaultSharedPtr>,
        fn((&'c Key, &'c Arc<Written>)) -> Self::Item,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.changes.iter().map(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Change;

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
        assert_eq!((room.held(), beside.bytes), (before, second.bytes));
        assert!(beside.into_iter().eq(&*second), "all or nothing");
        drop(first);
        write(&mut beside, put("a", 3_000)).unwrap();
        drop(second);
        assert_eq!(room.held(), beside.bytes);
        drop(beside);
        assert_eq!(room.held(), 0);
    }
}
