//! Drops values that may take long to drop, on a thread beside those that serve. One thread drops all of
//! them, and ends when none is left.
//!
//! *Ownership*: a value that is put here has no other owner. It is dropped soon; no caller may depend on
//! when.

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Default)]
pub(crate) struct BackgroundDrop(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    things: Vec<Box<dyn Send>>,
    /// A thread is dropping, and will look for more before it ends.
    is_running: bool,
}

impl BackgroundDrop {
    /// Has `thing` dropped in the background, or here if the system starts no thread.
    pub(crate) fn add(&self, thing: impl Send + 'static) {
        let mut queue = self.0.lock();
        queue.things.push(Box::new(thing));
        if std::mem::replace(&mut queue.is_running, true) {
            return;
        }
        drop(queue);
        let this = self.clone();
        if std::thread::Builder::new().name("let go".to_owned()).spawn(move || this.run()).is_err() {
            self.run();
        }
    }

    fn run(&self) {
        loop {
            let mut queue = self.0.lock();
            queue.is_running = !queue.things.is_empty();
            let things = std::mem::take(&mut queue.things);
            drop(queue);
            if things.is_empty() {
                return;
            }
        }
    }
}

impl fmt::Debug for BackgroundDrop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("BackgroundDrop")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;

    /// Says on which thread it is dropped, and then waits there until it may go on.
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
    fn one_thread_drops_all_and_what_comes_afterwards_finds_another() {
        let background_drop = BackgroundDrop::default();
        let ((say, told), (allow, may)) = (channel(), channel());
        background_drop.add(Thing(say.clone(), Some(may)));
        let first = told.recv().unwrap();
        assert_ne!(first, std::thread::current().id());
        (0..100).for_each(|_| background_drop.add(Thing(say.clone(), None)));
        allow.send(()).unwrap();
        assert!((0..100).all(|_| told.recv().unwrap() == first), "they wait for the one that is there");
        while background_drop.0.lock().is_running {
            std::thread::yield_now();
        }
        background_drop.add(Thing(say, None));
        assert_ne!(told.recv().unwrap(), std::thread::current().id());
    }
}
