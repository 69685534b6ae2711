//! A thread that sleeps for the tasks of a process that is attached.
//!
//! Where the writer is another process, nobody here publishes anything, so nobody would wake a task: a thread
//! sleeps at the gate in their place and wakes them all when something moved. It is started when the first
//! task waits, never by readers that block or poll, and ends with the attached store.

use crate::Position;
use crate::control::Control;
use std::sync::Arc;
use std::sync::OnceLock;
use thalweg_sync::gate::Gate;
use thalweg_sync::region::Published;

const STACK_BYTES: usize = 64 << 10;

/// Starts the thread when it is first needed, and ends it.
#[derive(Debug)]
pub(crate) struct Follower {
    control: Arc<Control>,
    gate: Arc<Gate>,
    started: OnceLock<bool>,
    /// 1 once the thread has to end.
    ended: Arc<Published>,
}

impl Follower {
    pub(crate) fn new(control: Arc<Control>, gate: Arc<Gate>) -> Follower {
        Follower { control, gate, started: OnceLock::new(), ended: Arc::new(Published::new(0)) }
    }

    /// Sees to it that tasks are woken from now on.
    pub(crate) fn start(&self) {
        self.started.get_or_init(|| {
            let (control, gate, ended) = (self.control.clone(), self.gate.clone(), self.ended.clone());
            // Looked at before whoever waits has looked: what moves while the thread starts is not missed.
            let seen = (control.visible(), control.written());
            let builder = std::thread::Builder::new().name("follower".into()).stack_size(STACK_BYTES);
            let started = builder.spawn(move || run(&control, &gate, &ended, seen));
            started.inspect_err(|error| tracing::error!(%error, "no thread to wake waiting tasks")).is_ok()
        });
    }
}

fn run(control: &Control, gate: &Gate, ended: &Published, mut seen: (Position, Position)) {
    while ended.bytes() == 0 {
        gate.wait(None, || ended.bytes() != 0 || (control.visible(), control.written()) != seen);
        // Before the tasks are woken: one that registers behind that waits for what moves behind this.
        seen = (control.visible(), control.written());
        gate.wake_tasks();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.started.get().is_some() {
            self.ended.publish(1);
            self.gate.wake_all();
        }
    }
}
