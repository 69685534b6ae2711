//! Where what may be much is let go of: beside whoever serves, on one thread for all of it, which is there
//! while there is any.
//!
//! *Ownership*: what is put here is nobody else's any more, and gone soon; when, nobody may depend on.

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Default)]
pub(crate) struct Leftovers(Arc<Mutex<Pile>>);

#[derive(Default)]
struct Pile {
    things: Vec<Box<dyn Send>>,
    /// Somebody is at it.
    is_swept: bool,
}

impl Leftovers {
    /// Has it let go of elsewhere. Where the system starts no thread that is here all the same.
    pub(crate) fn add(&self, thing: impl Send + 'static) {
        let mut pile = self.0.lock();
        pile.things.push(Box::new(thing));
        if std::mem::replace(&mut pile.is_swept, true) {
            return;
        }
        drop(pile);
        let this = self.clone();
        if std::thread::Builder::new().name("let go".to_owned()).spawn(move || this.sweep()).is_err() {
            self.sweep();
        }
    }

    fn sweep(&self) {
        loop {
            let mut pile = self.0.lock();
            pile.is_swept = !pile.things.is_empty();
            let things = std::mem::take(&mut pile.things);
            drop(pile);
            if things.is_empty() {
                return;
            }
        }
    }
}

impl fmt::Debug for Leftovers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Leftovers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;

    /// Says on which thread it is let go of, and stays until it may go.
    struct Thing(Sender<ThreadId>, Option<Receiver<()>>);

    impl Drop for Thing {
        fn drop(&mut self) {
            self.0.send(std::thread::current().id()).unwrap();
            if let Some(may) = &self.1 {
                may.recv().unwrap();
            }
        }
    }

    #[test]
    fn one_thread_lets_go_of_all_and_what_comes_afterwards_finds_another() {
        let leftovers = Leftovers::default();
        let ((say, told), (allow, may)) = (channel(), channel());
        leftovers.add(Thing(say.clone(), Some(may)));
        let first = told.recv().unwrap();
        assert_ne!(first, std::thread::current().id());
        (0..100).for_each(|_| leftovers.add(Thing(say.clone(), None)));
        allow.send(()).unwrap();
        assert!((0..100).all(|_| told.recv().unwrap() == first), "they wait for the one that is there");
        while leftovers.0.lock().is_swept {
            std::thread::yield_now();
        }
        leftovers.add(Thing(say, None));
        assert_ne!(told.recv().unwrap(), std::thread::current().id());
    }
}
