//! What a session wrote over its snapshot, and the memory that is reserved for each change. It is released
//! once neither the session holds the change nor a reader that holds an earlier state of the session.

use crate::changes::Changes;
use crate::error::Error;
use crate::journal;
use crate::map::{Key, Value};
use crate::memory_budget::{MemoryBudget, Reservation};
use crate::session::SESSION_BYTES_MAX;
use imbl::OrdMap;
use imbl::ordmap;
use std::iter::Map;
use std::ops::Bound;
use std::sync::Arc;

/// Changes, each with its memory reserved. A clone shares all of them and costs nothing; a later change to
/// either clone copies the nodes of the tree between its root and the key.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    changes: OrdMap<Key, Arc<Written>>,
    /// Bytes of these changes, also of those that readers share.
    bytes: usize,
    memory: Arc<MemoryBudget>,
}

/// What a key holds from here on: `None` once it was removed.
#[derive(Debug)]
pub(crate) struct Written {
    value: Option<Value>,
    held: Reservation,
}

impl Overlay {
    /// An overlay without changes, which reserves memory of this budget.
    pub(crate) fn new(memory: &Arc<MemoryBudget>) -> Self {
        Self { changes: OrdMap::new(), bytes: 0, memory: Arc::clone(memory) }
    }

    /// How many keys they change.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Bytes of the log that all of them would take at most.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether they change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What these changes say of a key: `Some(None)` that it was removed, `None` nothing.
    pub(crate) fn get(&self, key: &str) -> Option<Option<&Value>> {
        self.changes.get(key).map(|written| written.value.as_ref())
    }

    /// Each changed key of a range, and what it holds.
    pub(crate) fn range(
        &self,
        from: Bound<&str>,
        until: Bound<&str>,
    ) -> impl Iterator<Item = (&Key, Option<&Value>)> {
        self.changes.range::<_, str>((from, until)).map(change)
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
        // The memory of what no reader shares is free for what replaces it.
        let (free, looked_at): (Vec<_>, Vec<_>) =
            old.partition(|(_, written)| Arc::strong_count(written) == 1);
        let total = self.bytes - bytes(&free) - bytes(&looked_at) + after;
        let reserved = match total {
            ..=SESSION_BYTES_MAX => self.memory.exchange(bytes(&free), after),
            _ => Err(Error::TooMuch { bytes: total, limit: SESSION_BYTES_MAX }),
        };
        if let Err(error) = reserved {
            self.changes.extend(free.into_iter().chain(looked_at));
            return Err(error);
        }
        free.into_iter()
            .filter_map(|(_, written)| Arc::into_inner(written))
            .for_each(|written| written.held.given());
        for ((key, value), bytes) in changes.into_iter().zip(sizes) {
            self.changes.insert(key, Arc::new(Written { value, held: self.memory.taken(bytes) }));
        }
        self.bytes = total;
        Ok(())
    }
}

/// Bytes that are reserved for them.
fn bytes(all: &[(Key, Arc<Written>)]) -> usize {
    all.iter().map(|(_, written)| written.held.bytes()).sum()
}

fn change<'c>((key, written): (&'c Key, &'c Arc<Written>)) -> (&'c Key, Option<&'c Value>) {
    (key, written.value.as_ref())
}

impl<'c> IntoIterator for &'c Overlay {
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
    fn what_a_reader_shares_stays_reserved_until_it_is_done() {
        let size = |bytes: usize| journal::bytes_max(KIND, "a", put("a", bytes).get("a").flatten());
        let memory = MemoryBudget::new(size(3_000) * 3);
        let mut beside = Arc::new(Overlay::new(&memory));
        let write = |beside: &mut Arc<Overlay>, changes| Arc::make_mut(beside).write(KIND, changes);
        for _ in 0..10 {
            write(&mut beside, put("a", 3_000)).unwrap();
            assert_eq!(memory.held(), size(3_000), "what was written over is nobody's");
        }
        let first = beside.clone();
        write(&mut beside, put("a", 3_000)).unwrap();
        assert_eq!(memory.held(), size(3_000) * 2);
        write(&mut beside, put("b", 10)).unwrap();
        let second = beside.clone();
        let before = memory.held();
        assert!(matches!(write(&mut beside, put("a", 3_000)), Err(Error::NoRoom { .. })));
        assert_eq!((memory.held(), beside.bytes), (before, second.bytes));
        assert!(beside.into_iter().eq(&*second), "all or nothing");
        drop(first);
        write(&mut beside, put("a", 3_000)).unwrap();
        drop(second);
        assert_eq!(memory.held(), beside.bytes);
        drop(beside);
        assert_eq!(memory.held(), 0);
    }
}
