//! A thread that sleeps for the tasks of a process that is attached.
//!
//! Where the writer is another process, no thread of this one publishes anything, so none would wake a task:
//! this thread sleeps at the gate and wakes all tasks when something moved. It is started when the first task
//! waits, never by readers that block or poll; it ends with the attached store, or once that is gone. If it
//! cannot be started, the task that was going to wait gets the error, and the next one tries again.

use super::presence::Presence;
use crate::control::Control;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use thalweg_sync::gate::Gate;
use thalweg_sync::region::Published;

const STACK_BYTES: usize = 64 << 10;

/// Starts the thread when it is first needed, and ends it.
#[derive(Debug)]
pub(crate) struct Follower {
    control: Arc<Control>,
    gate: Arc<Gate>,
    presence: Arc<Presence>,
    started: Mutex<bool>,
    /// Threads that fail to start, for tests.
    #[cfg(test)]
    pub(crate) refusals: Mutex<u32>,
    /// 1 once the thread has to end.
    ended: Arc<Published>,
}

impl Follower {
    pub(crate) fn new(control: Arc<Control>, gate: Arc<Gate>, presence: Arc<Presence>) -> Follower {
        Follower {
            control,
            gate,
            presence,
            started: Mutex::new(false),
            #[cfg(test)]
            refusals: Mutex::new(0),
            ended: Arc::new(Published::new(0)),
        }
    }

    /// Starts the thread, if it does not run yet.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut started = self.started.lock();
        if !*started {
            self.spawn()?;
            *started = true;
        }
        Ok(())
    }

    fn spawn(&self) -> io::Result<()> {
        #[cfg(test)]
        if *self.refusals.lock() > 0 {
            *self.refusals.lock() -= 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (control, gate, ended) = (self.control.clone(), self.gate.clone(), self.ended.clone());
        let presence = self.presence.clone();
        // Read before the task that waits reads them, so that what moves while the thread starts is not
        // missed.
        let seen = words(&control);
        let builder = std::thread::Builder::new().name("follower".into()).stack_size(STACK_BYTES);
        builder.spawn(move || run(&control, &gate, &presence, &ended, seen)).map(drop)
    }
}

fn run(control: &Control, gate: &Gate, presence: &Presence, ended: &Published, mut seen: [u64; 3]) {
    while ended.bytes() == 0 && !presence.is_gone() {
        let moved = || ended.bytes() != 0 || words(control) != seen;
        presence.wait(control, gate, None, moved);
        // Before the tasks are woken: a task that registers later waits for what moves later.
        seen = words(control);
        gate.wake_tasks();
    }
    // Any thread may have found the store gone since tasks were last woken, and some may have registered
    // before that. Tasks that register later find it gone: no thread wakes them any more.
    gate.wake_tasks();
}

/// What tasks wait for: more to read, or removed segments to let go of.
fn words(control: &Control) -> [u64; 3] {
    [control.visible(), control.file_end(), control.segments_version()]
}

impl Drop for Follower {
    fn drop(&mut self) {
        if *self.started.get_mut() {
            self.ended.publish(1);
            self.gate.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Store, control, signal};
    use std::task::{Wake, Waker};
    use thalweg_sys::disk::Disk;

    struct Woken(Mutex<bool>);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            *self.0.lock() = true;
        }
    }

    /// Any thread may be the one that finds it gone, also before this one first runs.
    #[test]
    fn a_thread_that_finds_the_store_gone_wakes_whoever_registered_while_it_began() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let (_store, _) = Store::open(&Disk::Real, at, Options::default()).unwrap();
        let control = Control::attach_existing(&Disk::Real, at).unwrap();
        let gate = signal::attach(&Disk::Real, at).unwrap();
        let presence = Presence::new(at.join(control::FILE_NAME));
        let woken = Arc::new(Woken(Mutex::new(false)));
        assert!(!gate.register(&Waker::from(woken.clone()), || presence.is_gone()));
        std::fs::remove_file(at.join(control::FILE_NAME)).unwrap();
        assert!(presence.look(&control));
        run(&control, &gate, &presence, &Published::new(0), words(&control));
        assert!(*woken.0.lock());
    }
}
