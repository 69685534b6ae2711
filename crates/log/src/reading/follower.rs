//! A thread that sleeps for the tasks of a process that is attached.
//!
//! Where the writer is another process, no thread of this one publishes anything, so none would wake a task:
//! this thread sleeps at the gate and wakes all tasks when something moved. It is started when the first task
//! waits, never by readers that block or poll; it ends with the attached store, or once that is gone. If it
//! cannot be started, the task that was going to wait gets the error, and the next one tries again.

use crate::control::Control;
use crate::presence::Presence;
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
    // Once the store is gone tasks are woken no more: each call that looks at it reports that.
    while ended.bytes() == 0 && !presence.is_gone() {
        let moved = || ended.bytes() != 0 || words(control) != seen;
        presence.wait(control, gate, None, moved);
        // Before the tasks are woken: a task that registers later waits for what moves later.
        seen = words(control);
        gate.wake_tasks();
    }
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
