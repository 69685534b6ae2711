//! Calls with long answers, which wait until the client's connection has room for one. A client that asks for
//! a thousand pages and reads none is owed no more of them than its connection may have unsent. None of them
//! holds a turn: a client that reads nothing delays no other client.
//!
//! A call that waits here is owned by the waker that its reply has: it goes on when the connection has sent
//! some of what it has, or is dropped with its reply once its caller has given up.

use super::pending_call::PendingCall;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Work for an answer.
pub(super) trait Answering: Send + Sized + 'static {
    /// The call that is answered.
    fn pending(&mut self) -> &mut PendingCall;

    /// Hands the work to a thread. Called on the reactor's.
    fn resume(self);
}

struct Parked<W>(Mutex<Option<W>>);

impl<W: Answering> Wake for Parked<W> {
    fn wake(self: Arc<Self>) {
        let work = self.0.lock().take();
        if let Some(work) = work {
            work.resume();
        }
    }
}

/// The work, if there is room for its answer now; otherwise it waits for that, and is resumed then.
pub(super) fn with_room<W: Answering>(mut work: W) -> Option<W> {
    if work.pending().has_room() {
        return Some(work);
    }
    let parked = Arc::new(Parked(Mutex::new(None)));
    let waker = Waker::from(Arc::clone(&parked));
    // Who wakes it meanwhile waits until it is there.
    let mut place = parked.0.lock();
    if !work.pending().await_room(&waker) {
        return Some(work);
    }
    *place = Some(work);
    None
}
