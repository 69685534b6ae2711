//! Wakes a thread that sleeps in [`AsyncClient::run_until`](super::AsyncClient::run_until).

use std::io;
use std::sync::Arc;
use std::task::Wake;
use thalweg_sync::primitives::Mutex;
use thalweg_sys::event::EventFd;

/// The waker of one thread's future.
///
/// *Invariant*: the event is set from the moment that `Asleep` becomes `Woken` until the thread is up, and at
/// no other time. So it is set under the lock: a thread that the client's descriptor woke, and that finds
/// `Woken`, clears what is there already, and not what is still to come, which would end every sleep after it
/// at once.
#[derive(Debug)]
pub(super) struct Alarm {
    pub(super) event: EventFd,
    phase: Mutex<Phase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Up,
    /// Woken while up: it polls once more before it sleeps.
    Woken,
    Asleep,
}

impl Alarm {
    /// Of a thread that is up.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { event: EventFd::new()?, phase: Mutex::new(Phase::Up) })
    }

    /// Whether there is nothing left to do but sleep.
    pub(super) fn about_to_sleep(&self) -> bool {
        let mut phase = self.phase.lock();
        let woken = *phase == Phase::Woken;
        *phase = if woken { Phase::Up } else { Phase::Asleep };
        !woken
    }

    /// The thread is up again, whatever woke it.
    pub(super) fn up(&self) -> io::Result<()> {
        let before = std::mem::replace(&mut *self.phase.lock(), Phase::Up);
        // The thread that woke it set the event.
        if before == Phase::Woken { self.event.clear().map(drop) } else { Ok(()) }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut phase = self.phase.lock();
        if std::mem::replace(&mut *phase, Phase::Woken) == Phase::Asleep {
            // Cannot fail on an open eventfd.
            let _ = self.event.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_sync::primitives::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_gets_up_by_itself_leaves_no_event_behind() {
        let alarm = Arc::new(Alarm::new().unwrap());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    alarm.wake_by_ref();
                }
            });
            let mut left_behind = 0;
            for _ in 0..100_000 {
                // The client's descriptor is readable, so the sleep ends at once.
                if alarm.about_to_sleep() {
                    alarm.up().unwrap();
                    // One that is up is woken without an event.
                    left_behind += alarm.event.clear().unwrap();
                }
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(left_behind, 0, "events make each sleep end at once");
        });
    }
}
