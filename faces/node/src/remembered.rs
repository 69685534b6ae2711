//! Things that are told something for as long as they are there, and that nobody takes off the list.
//!
//! Invariant: the list is at most twice as long as the most that were there at once, or four, however many
//! come and go; a list that never tells anything forgets as well. *Checked by* the test below.

use std::sync::{Arc, Weak};

#[derive(Debug)]
pub(crate) struct Remembered<T>(Vec<Weak<T>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Remembered<T> {
    pub(crate) fn add(&mut self, one: &Arc<T>) {
        if self.0.len() == self.0.capacity() {
            // Before it grows.
            self.0.retain(|one| one.strong_count() > 0);
        }
        self.0.push(Arc::downgrade(one));
    }

    /// Tells those that are there.
    pub(crate) fn tell(&mut self, tell: impl Fn(&T)) {
        self.0.retain(|one| one.upgrade().inspect(|one| tell(one)).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_is_gone_is_forgotten_though_nothing_is_told() {
        let mut list = Remembered::default();
        let told = |list: &mut Remembered<Cell<u32>>| list.tell(|one| one.set(one.get() + 1));
        let stays: Vec<Arc<Cell<u32>>> = (0..10).map(|_| Arc::default()).collect();
        stays.iter().for_each(|one| list.add(one));
        for _ in 0..10_000 {
            list.add(&Arc::default());
        }
        assert!(list.0.capacity() <= 32, "room for {}", list.0.capacity());
        told(&mut list);
        told(&mut list);
        assert!(stays.iter().all(|one| one.get() == 2));
        assert_eq!(list.0.len(), 10);
    }
}
