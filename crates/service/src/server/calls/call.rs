//! What a call's producer and its connection tell each other: credit, and that the call is cancelled.
//!
//! One lock per call, taken by the reply (on whatever thread) for each item, and by the reactor when the
//! client sends credit, cancels or goes. A call that is answered at once never locks it.
//!
//! *Invariants*: while anything is held back nothing of the call is pushed, so items leave in the order in
//! which they were made; what is held back has a bound, and a producer that exceeds it has its call ended.
//! A waker is foreign code, so it is cloned, woken and dropped without the lock. It lives no longer
//! than the reply: an answer forgets it ([`Call::forget_wakers`]), so a call that is renewed has none.

use crate::server::calls::answers::Answers;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use thalweg_sync::contain::contain;
use thalweg_wire::service::Flow;

/// Items that a producer may make without credit before its call is ended.
const HELD_ITEMS_MAX: usize = 16;
/// And their bytes; a single item may be longer.
const HELD_BYTES_MAX: usize = 1 << 20;

/// A call as its reply and its connection share it.
#[derive(Debug)]
pub(crate) struct Call {
    answers: Arc<Answers>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The answer is not wanted any more: the call was cancelled or is overdue, or the client is gone.
    cancelled: bool,
    /// The connection has more unsent than it may; credit waits.
    congested: bool,
    /// Items that may leave.
    credit: u32,
    held: VecDeque<Held>,
    held_bytes: usize,
    waker: Option<Waker>,
    /// Woken only when the answer is not wanted any more.
    cancel_waker: Option<Waker>,
    /// Woken when the connection has room again, or the answer is not wanted any more.
    room_waker: Option<Waker>,
}

/// A frame that waits for credit, or for the items before it.
#[derive(Debug)]
pub(crate) enum Held {
    /// An item.
    Item(Vec<u8>),
    /// The end, with its fault or 0.
    End(u16, Vec<u8>),
}

/// How much credit is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// This many items more.
    Items(u32),
    /// Raise the call's credit to this, if it is lower.
    UpTo(u32),
}

/// What becomes of an item.
pub(crate) enum Admission {
    /// It may leave; what its producer is to do next.
    Leaves(Flow),
    /// It waits for credit.
    Held,
    /// The client does not want it any more.
    Unwanted,
    /// Its producer did not wait when it was told to.
    Overrun,
}

impl State {
    fn may_leave(&self) -> bool {
        self.credit > 0 && !self.congested && self.held.is_empty()
    }

    fn flow(&self) -> Flow {
        match self {
            _ if self.cancelled => Flow::Gone,
            _ if self.may_leave() => Flow::Go,
            _ => Flow::Wait,
        }
    }
}

impl Call {
    pub(crate) fn new(answers: Arc<Answers>, credit: u32) -> Self {
        Self { answers, state: Mutex::new(State { credit, ..State::default() }) }
    }

    pub(crate) fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Makes a call as good as new; exclusive access proves that no reply refers to it any more.
    pub(crate) fn renew(&mut self, credit: u32) {
        let state = self.state.get_mut();
        if state.cancelled || !state.held.is_empty() || state.congested {
            *state = State::default();
        }
        state.credit = credit;
    }

    /// The client said how many items may leave to begin with.
    pub(crate) fn begin_with(&self, credit: u32) {
        self.state.lock().credit = credit;
    }

    // For the reply.

    pub(crate) fn is_cancelled(&self) -> bool {
        self.state.lock().cancelled
    }

    /// Whether an item would leave.
    pub(crate) fn flow(&self) -> Flow {
        self.state.lock().flow()
    }

    /// Decides about one item.
    pub(crate) fn admit(&self, frame: &[u8]) -> Admission {
        let mut state = self.state.lock();
        if state.cancelled {
            return Admission::Unwanted;
        }
        if state.may_leave() {
            state.credit -= 1;
            return Admission::Leaves(state.flow());
        }
        let full = state.held_bytes.saturating_add(frame.len()) > HELD_BYTES_MAX && !state.held.is_empty();
        if full || state.held.len() >= HELD_ITEMS_MAX {
            state.cancelled = true;
            state.held.clear();
            return Admission::Overrun;
        }
        state.held_bytes += frame.len();
        state.held.push_back(Held::Item(frame.to_vec()));
        Admission::Held
    }

    /// Holds the end back behind the items that are held back; `false` when there are none.
    pub(crate) fn hold_end(&self, fault: u16, frame: &[u8]) -> bool {
        let mut state = self.state.lock();
        if state.held.is_empty() || state.cancelled {
            return false;
        }
        state.held.push_back(Held::End(fault, frame.to_vec()));
        true
    }

    /// Wakes once something changes, at once if it has.
    pub(crate) fn changed(&self, waker: &Waker) {
        let given = waker.clone();
        let mut state = self.state.lock();
        if state.flow() == Flow::Wait {
            let former = state.waker.replace(given);
            drop(state);
            drop(former);
            return;
        }
        drop(state);
        waker.wake_by_ref();
    }

    /// Wakes once the answer is not wanted any more, at once if that is so already.
    pub(crate) fn when_cancelled(&self, waker: &Waker) {
        let given = waker.clone();
        let mut state = self.state.lock();
        if !state.cancelled {
            let former = state.cancel_waker.replace(given);
            drop(state);
            drop(former);
            return;
        }
        drop(state);
        waker.wake_by_ref();
    }

    /// Whether the connection has room for an answer; also when none is wanted any more.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.state.lock();
        !state.congested || state.cancelled
    }

    /// Has `waker` woken once the connection has room for an answer, or none is wanted any more; `false` if
    /// either is so already.
    pub(crate) fn await_room(&self, waker: &Waker) -> bool {
        let given = waker.clone();
        let mut state = self.state.lock();
        let waits = state.congested && !state.cancelled;
        let dropped = if waits { state.room_waker.replace(given) } else { Some(given) };
        drop(state);
        drop(dropped);
        waits
    }

    /// The reply is answered: no waker is used any more, and all are dropped before this returns. A wake that
    /// another thread has begun already may still run.
    pub(crate) fn forget_wakers(&self) {
        let mut state = self.state.lock();
        let forgotten = (state.waker.take(), state.cancel_waker.take(), state.room_waker.take());
        drop(state);
        drop(forgotten);
    }

    // For the connection.

    /// The answer is not wanted any more. Whether the end was held back here: then none will come.
    pub(crate) fn cancel(&self) -> bool {
        let mut state = self.state.lock();
        state.cancelled = true;
        let ended = state.held.iter().any(|held| matches!(held, Held::End(..)));
        state.held.clear();
        let others = [state.cancel_waker.take(), state.room_waker.take()];
        wake(state);
        others.into_iter().flatten().for_each(rouse);
        ended
    }

    /// More items may leave. `false`: some are held back, and before they may leave what was pushed before
    /// them has to be taken; then see [`Call::release`]. While a connection is congested nothing is released.
    pub(crate) fn grant(&self, grant: Grant, congested: bool) -> bool {
        let mut state = self.state.lock();
        state.congested = congested;
        state.credit = match grant {
            Grant::Items(items) => state.credit.saturating_add(items),
            Grant::UpTo(items) => state.credit.max(items),
        };
        let nothing_held = state.held.is_empty();
        let room_waker = if congested { None } else { state.room_waker.take() };
        if state.flow() == Flow::Go {
            wake(state);
        } else {
            drop(state);
        }
        room_waker.into_iter().for_each(rouse);
        nothing_held || congested
    }

    /// Hands over what was held back, as far as there is credit.
    pub(crate) fn release(&self, mut take: impl FnMut(Held)) {
        let mut state = self.state.lock();
        loop {
            match state.held.front() {
                Some(Held::Item(_)) if state.credit == 0 => break,
                Some(Held::Item(frame)) => {
                    state.held_bytes -= frame.len();
                    state.credit -= 1;
                }
                Some(Held::End(..)) => {}
                None => break,
            }
            state.held.pop_front().into_iter().for_each(&mut take);
        }
        if state.flow() == Flow::Go {
            wake(state);
        }
    }

    /// The connection has more unsent than it may.
    pub(crate) fn congest(&self) {
        self.state.lock().congested = true;
    }
}

/// Wakes the waiting producer, without the lock: a waker may do anything.
fn wake(mut state: parking_lot::MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    waker.into_iter().for_each(rouse);
}

/// A waker that panics is its producer's fault: the reactor's thread, which wakes it, has others to serve.
fn rouse(waker: Waker) {
    contain(|| waker.wake());
}

/// Calls that ended, to be used again: one that is answered at once allocates nothing.
#[derive(Debug)]
pub(crate) struct Calls {
    answers: Arc<Answers>,
    credit: u32,
    idle: Vec<Arc<Call>>,
}

/// Ended calls kept for reuse.
const IDLE_MAX: usize = 1_024;

impl Calls {
    pub(crate) fn new(answers: Arc<Answers>, credit: u32) -> Self {
        Self { answers, credit, idle: Vec::new() }
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Arc<Call> {
        while let Some(mut call) = self.idle.pop() {
            // A reply may still be on its way out of another thread's hands.
            if let Some(unshared) = Arc::get_mut(&mut call) {
                unshared.renew(self.credit);
                return call;
            }
        }
        Arc::new(Call::new(Arc::clone(&self.answers), self.credit))
    }

    #[inline]
    pub(crate) fn give(&mut self, call: Arc<Call>) {
        if self.idle.len() < IDLE_MAX {
            self.idle.push(call);
        }
    }
}

#[cfg(test)]
mod tests;
