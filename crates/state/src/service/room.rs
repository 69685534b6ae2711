//! Calls with long answers wait until the client's connection has room for one. For a client that asks for a
//! thousand pages and reads none, no more of them are made than its connection may have unsent. None of them
//! holds a turn, so such a client delays no other.
//!
//! A call that waits here is owned by the waker in its reply. It continues when the connection has sent some
//! of its output, or is dropped with its reply once its caller has given up.

use super::pending_call::PendingCall;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Work that makes an answer.
pub(super) trait Answering: Send + Sized + 'static {
    /// The call that is answered.
    fn pending(&mut self) -> &mut PendingCall;

    /// Hands the work to a thread. Called on the reactor's thread.
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

/// Returns the work if there is room for its answer now. Otherwise it waits for room, and is resumed then.
pub(super) fn with_room<W: Answering>(mut work: W) -> Option<W> {
    if work.pending().has_room() {
        return Some(work);
    }
    let parked = Arc::new(Parked(Mutex::new(None)));
    let waker = Waker::from(Arc::clone(&parked));
    // Locked: a wake meanwhile waits until the work is in its place.
    let mut place = parked.0.lock();
    if !work.pending().await_room(&waker) {
        return Some(work);
    }
    *place = Some(work);
    None
}
