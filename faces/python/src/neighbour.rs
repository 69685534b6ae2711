//! Bells for a store that another process writes.
//!
//! Nobody in this process hears of its commits but who sleeps on the word that moves with them. So one thread does, for
//! all bells of the store and only while one is armed; in the writing process there is none.
//!
//! Invariant: a commit after a bell was armed rings it. The thread reads the words before it takes the bells, so a bell
//! that it does not take was armed after that, and a commit behind that moves the words again.

use parking_lot::Mutex;
use std::io;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use thalweg_log::Maps;

/// Bells that are armed.
#[derive(Default)]
pub(crate) struct Neighbour {
    bells: Mutex<Bells>,
    closed: OnceLock<()>,
}

#[derive(Default)]
struct Bells {
    armed: Vec<Waker>,
    /// A thread listens.
    heard: bool,
}

impl Neighbour {
    /// Has a bell rung by the next commit.
    pub(crate) fn arm(self: &Arc<Self>, maps: Maps, bell: &Waker) -> io::Result<()> {
        let mut bells = self.bells.lock();
        if !bells.armed.iter().any(|armed| armed.will_wake(bell)) {
            bells.armed.push(bell.clone());
        }
        if !bells.heard {
            let listener = self.clone();
            let seen = (maps.visible(), maps.written());
            let builder = std::thread::Builder::new().name("neighbour".into()).stack_size(128 << 10);
            builder.spawn(move || listener.listen(&maps, seen))?;
            bells.heard = true;
        }
        Ok(())
    }

    fn listen(&self, maps: &Maps, mut seen: (u64, u64)) {
        let words = || (maps.visible(), maps.written());
        loop {
            maps.wait(None, || words() != seen || self.closed.get().is_some());
            seen = words();
            let armed = {
                let mut bells = self.bells.lock();
                // Whoever arms the next one finds nobody here.
                bells.heard = !bells.armed.is_empty() && self.closed.get().is_none();
                std::mem::take(&mut bells.armed)
            };
            if armed.is_empty() {
                return;
            }
            armed.into_iter().for_each(Waker::wake);
            if self.closed.get().is_some() {
                return;
            }
        }
    }

    /// Rings what is armed for the last time.
    pub(crate) fn close(&self, maps: &Maps) {
        let _ = self.closed.set(());
        maps.wake_all();
    }
}
