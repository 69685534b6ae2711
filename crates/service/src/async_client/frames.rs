//! The frames of one call, as a future that can be asked for each.

use super::state::glance;
use super::{Shared, wake_all};
use crate::call::{CallId, CallOptions};
use crate::error::Error;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use thalweg_wire::service::AsyncFrames;

/// The frames that answer one request. Dropped before the end it cancels the call.
#[derive(Debug)]
pub struct Frames {
    shared: Arc<Shared>,
    call: CallId,
    /// What the call was given.
    options: CallOptions,
    /// Has asked to be polled again, so that other tasks that are ready may queue their requests first.
    yielded: bool,
    /// A future was told that nothing is there, and has left its waker.
    waits: bool,
}

impl AsyncFrames for Frames {
    type Error = Error;

    async fn next(&mut self) -> Result<Vec<u8>, Error> {
        let next = Next(self);
        poll_fn(|context| next.0.poll_next(context)).await
    }
}

/// A future that asks for the next frame. Dropped before that came it waits no more, so that it does not have
/// the client read on for nobody.
struct Next<'f>(&'f mut Frames);

impl Drop for Next<'_> {
    fn drop(&mut self) {
        if std::mem::take(&mut self.0.waits) {
            let waker = self.0.shared.state.lock().leave(self.0.call);
            drop(waker);
        }
    }
}

impl Frames {
    pub(super) fn new(shared: Arc<Shared>, call: CallId, options: CallOptions) -> Self {
        Self { shared, call, options, yielded: false, waits: false }
    }

    /// The next frame, for futures that are written by hand.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<u8>, Error>> {
        let given = context.waker().clone();
        let (mut wakers, mut former, mut again) = (Vec::new(), None, false);
        let mut state = self.shared.state.lock();
        if state.is_empty(self.call) && state.stale && self.yielded {
            // A failure here is one of the operating system, and the next drive reports it again.
            let _ = state.turn(glance, &mut wakers);
        }
        let mut taken = state.take(self.call, self.options);
        if taken.is_none() {
            former = state.wait(self.call, given);
        }
        if state.resume(&mut wakers) && taken.is_none() {
            taken = state.take(self.call, self.options);
        }
        let taken = match taken {
            Some(taken) => {
                self.yielded = false;
                Poll::Ready(taken)
            }
            None => {
                again = state.stale && !self.yielded;
                self.yielded |= again;
                Poll::Pending
            }
        };
        self.waits = taken.is_pending();
        drop(state);
        drop(former);
        wake_all(wakers);
        if again {
            context.waker().wake_by_ref();
        }
        taken
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let waiting = state.forget(self.call);
        let mut wakers = Vec::new();
        if let Some(waiting) = &waiting {
            if waiting.has_ended() {
                state.client.leave_unread(self.call);
            }
            state.client.forget(self.call);
            // The cancellation leaves now, if it can; else with the next turn.
            let _ = state.client.flush();
            state.resume(&mut wakers);
        }
        drop(state);
        drop(waiting);
        wake_all(wakers);
    }
}
