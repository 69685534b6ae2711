//! Which calls may run at the same time: the fork scheduler's turns, and how a call gets them.
//!
//! A call begins on the thread that received it. The request decides which turn it needs. The call gets it at
//! once, or is queued with a copy of its request. A turn is held while a state is looked up or an entry is
//! appended, not until the answer leaves: long reads use an immutable state, and an answer waits for the disk
//! without a turn. So commits to one fork can share a sync, and no read delays a writer.
//!
//! A call that may need several turns joins all their queues in one step when it comes: a later call to any
//! of them is behind it in each. A call that holds a turn never waits for another turn.
//!
//! Long work is of two kinds. A scan of a page, a large commit and a call that has waited for its turn take a
//! few milliseconds at most, on one thread for each spare processor. Those that hold turns go first, since
//! other calls wait for them. The rest share one queue, and a reactor that would otherwise sleep takes the
//! first of them, within a bound that its other clients can wait for ([`Core::help`]). A root, a difference,
//! an image and a past state take time in proportion to the state, and share a thread of their own, so that
//! only calls of this kind wait for them. The root that a batch expects is computed while its turn is held,
//! on another thread: it waits for other such batches only.
//!
//! A page is made once its connection has room for it, and not at all once its caller has given up. A call
//! that holds a turn never waits for room: others wait for it, and the client may never read.

use super::answer::{Answer, refuse};
use super::pending_call::PendingCall;
use super::queue::Queued;
use super::refusal::Refusal;
use super::room::{Answering, with_room};
use super::workers::Workers;
use super::{Core, fault_of};
use crate::state::{ForkId, State};
use std::sync::Arc;
use thalweg_log::Position;
use thalweg_service::{Access, Executor, Scheduler, Turn};
use thalweg_wire::messagepack::DecodeError;

/// What a turn is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Fork(ForkId),
    Session(u64),
    /// The history of a fork. A call that forks a past state has a read turn of it for as long as the replay
    /// takes; a call that drops the fork has a write turn. A call that has this turn waits for no other.
    Past(ForkId),
}

pub(super) type Turns = Scheduler<Key, Arc<Workers>>;
/// A turn. Dropping it ends the turn.
pub(super) type Held = Turn<Key, Arc<Workers>>;

/// How many keys a call may look at on the current thread; each takes a few nanoseconds.
pub(super) type Budget = usize;
/// For a call whose connection has no room for its answer: it does what it needs its turn for, and the rest
/// later.
pub(super) const NO_ROOM: Budget = 0;
/// On a reactor that has others to serve.
pub(super) const BUSY: Budget = 512;
/// On a reactor if another thread would not be faster: no other call waits, or every worker thread is busy. A
/// fraction of a millisecond at most.
pub(super) const ALONE: Budget = 32_768;
/// On a worker thread.
pub(super) const UNLIMITED: Budget = usize::MAX - 1;
/// On the threads for work in proportion to the state.
pub(super) const ENDLESS: Budget = usize::MAX;
/// How many keys a call may look at on a worker thread, for which other long calls wait: some milliseconds.
pub(super) const LONG: Budget = 262_144;

/// The rest of a call.
pub(super) type Rest<A> = Box<dyn FnOnce(&Arc<Core>, A) -> Outcome + Send>;

/// The state of a call after a step.
pub(super) enum Outcome {
    /// Done. It is answered once this ticket is durable; at once for 0.
    Done(Position, Answer),
    Refused(Refusal),
    /// The frame is not a request.
    NoRequest(DecodeError),
    /// It takes too long for this thread. It continues with a budget of `least` or more.
    Elsewhere {
        least: Budget,
        rest: Rest<Budget>,
    },
    /// It may take time in proportion to the state: too long for the worker threads. Nothing visible was done
    /// yet, so the rest is not begun if its caller has given up.
    Apart(Rest<()>),
    /// The same for a page. It holds no turn, so it can wait until there is room for its answer.
    Page(Rest<()>),
    /// It takes too long for this thread, and holds turns that other calls wait for: it must not wait behind
    /// work that holds none.
    Holding(Rest<()>),
    /// The same, and it may take time in proportion to the state.
    InLine(Rest<()>),
    /// It needs these turns; `rest` runs once it has them.
    InTurn {
        places: Places,
        rest: Rest<(Vec<Held>, Budget)>,
    },
}

/// The turns that a call needs, each key once.
pub(super) type Places = Vec<(Key, Access)>;

impl<E: Into<Refusal>> From<Result<Outcome, E>> for Outcome {
    fn from(result: Result<Outcome, E>) -> Self {
        result.unwrap_or_else(|refusal| Self::Refused(refusal.into()))
    }
}

impl Outcome {
    pub(super) fn done(answer: Answer) -> Self {
        Self::Done(0, answer)
    }

    /// The rest is done within the budget that it is given, `least` or more.
    pub(super) fn elsewhere(
        least: Budget,
        rest: impl FnOnce(&Arc<Core>, Budget) -> Self + Send + 'static,
    ) -> Self {
        Self::Elsewhere { least, rest: Box::new(rest) }
    }

    pub(super) fn apart(rest: impl FnOnce(&Arc<Core>) -> Self + Send + 'static) -> Self {
        Self::Apart(Box::new(|core, ()| rest(core)))
    }

    pub(super) fn page(rest: impl FnOnce(&Arc<Core>) -> Self + Send + 'static) -> Self {
        Self::Page(Box::new(|core, ()| rest(core)))
    }

    /// The rest is done by a worker thread, with the turns that it holds.
    pub(super) fn holding(rest: impl FnOnce(&Arc<Core>) -> Self + Send + 'static) -> Self {
        Self::Holding(Box::new(|core, ()| rest(core)))
    }

    pub(super) fn in_line(rest: impl FnOnce(&Arc<Core>) -> Self + Send + 'static) -> Self {
        Self::InLine(Box::new(|core, ()| rest(core)))
    }

    pub(super) fn in_turn(
        key: Key,
        access: Access,
        rest: impl FnOnce(&Arc<Core>, Vec<Held>, Budget) -> Self + Send + 'static,
    ) -> Self {
        Self::in_turns(vec![(key, access)], rest)
    }

    pub(super) fn in_turns(
        places: Places,
        rest: impl FnOnce(&Arc<Core>, Vec<Held>, Budget) -> Self + Send + 'static,
    ) -> Self {
        Self::InTurn { places, rest: Box::new(|core, (held, budget)| rest(core, held, budget)) }
    }
}

impl Core {
    /// A turn, if it can be had at once.
    pub(super) fn turn(&self, key: Key, access: Access) -> Option<Held> {
        self.turns.now(key, access)
    }

    /// Works on one of the first calls in the queue for a fraction of a millisecond, if every worker thread
    /// is busy. Returns whether there was one that fits; what is left of it stays in front.
    pub(super) fn help(&self) -> bool {
        self.workers.take_to_help(ALONE).map(|call| call.go_on(ALONE)).is_some()
    }

    /// Carries a call on until it is answered or waits.
    pub(super) fn settle(self: &Arc<Self>, mut outcome: Outcome, budget: Budget, pending: PendingCall) {
        loop {
            match outcome {
                Outcome::Done(ticket, answer) => return self.give(ticket, answer, pending.ended()),
                Outcome::Refused(refusal) => {
                    return refuse(&refusal, self.state.get().map(State::main), pending.ended());
                }
                Outcome::NoRequest(wrong) => {
                    return pending.ended().fail(fault_of(&wrong), &wrong.to_string());
                }
                Outcome::Elsewhere { rest, .. } if budget >= UNLIMITED => outcome = rest(self, budget),
                Outcome::Holding(rest) if budget >= UNLIMITED => outcome = rest(self, ()),
                Outcome::Apart(rest) | Outcome::Page(rest) | Outcome::InLine(rest) if budget == ENDLESS => {
                    outcome = rest(self, ());
                }
                Outcome::Elsewhere { least, rest } => {
                    let Some(pending) = self.let_wait(pending) else { return };
                    let core = Arc::clone(self);
                    return self.workers.put_last(Queued { core, least, rest, pending });
                }
                Outcome::Holding(rest) => {
                    let Some(pending) = self.let_wait(pending) else { return };
                    let core = Arc::clone(self);
                    let job = move || core.settle(rest(&core, ()), UNLIMITED, pending);
                    return self.workers.execute(Box::new(job));
                }
                Outcome::Apart(rest) => {
                    let Some(pending) = self.let_wait(pending) else { return };
                    return Apart { core: Arc::clone(self), is_page: false, rest, pending }.resume();
                }
                Outcome::Page(rest) => {
                    let Some(pending) = self.let_wait(pending) else { return };
                    return Apart { core: Arc::clone(self), is_page: true, rest, pending }.resume();
                }
                Outcome::InLine(rest) => {
                    let Some(pending) = self.let_wait(pending) else { return };
                    let core = Arc::clone(self);
                    let job = move || core.settle(rest(&core, ()), ENDLESS, pending);
                    return self.roots.execute(Box::new(job));
                }
                Outcome::InTurn { places, rest } => match self.turns.all_now(&places) {
                    Some(held) => outcome = rest(self, (held, budget)),
                    None => {
                        let Some(pending) = self.let_wait(pending) else { return };
                        let core = Arc::clone(self);
                        let reads = places.iter().all(|(_, access)| *access == Access::Read);
                        // Runs on a worker thread.
                        let rest = move |held| {
                            let budget = if reads && !pending.has_room() { NO_ROOM } else { UNLIMITED };
                            core.settle(rest(&core, (held, budget)), budget, pending);
                        };
                        return self.turns.schedule_all(&places, rest);
                    }
                },
            }
        }
    }
}

impl Queued {
    /// Continues within a budget. What is left stays in front of all others.
    pub(super) fn go_on(self, budget: Budget) {
        // A call whose caller has given up has done nothing yet. It is dropped, and delays no other call.
        if self.pending.is_cancelled() {
            return;
        }
        let Some(Self { core, rest, pending, .. }) = with_room(self) else { return };
        match rest(&core, budget) {
            Outcome::Elsewhere { least, rest } if budget < UNLIMITED => {
                let workers = Arc::clone(&core.workers);
                workers.put_first(Self { core, least, rest, pending });
            }
            outcome => core.settle(outcome, budget, pending),
        }
    }
}

impl Answering for Queued {
    fn pending(&mut self) -> &mut PendingCall {
        &mut self.pending
    }

    fn resume(self) {
        let workers = Arc::clone(&self.core.workers);
        workers.put_last(self);
    }
}

/// A call on the thread for work in proportion to the state.
struct Apart {
    core: Arc<Core>,
    /// A page waits for room. A call that may hold a turn does not, because others wait for it.
    is_page: bool,
    rest: Rest<()>,
    pending: PendingCall,
}

impl Answering for Apart {
    fn pending(&mut self) -> &mut PendingCall {
        &mut self.pending
    }

    fn resume(self) {
        let core = Arc::clone(&self.core);
        let job = move || {
            // As in the queue: a call whose caller has given up delays no other call.
            if self.pending.is_cancelled() {
                return;
            }
            let ready = if self.is_page { with_room(self) } else { Some(self) };
            let Some(Self { core, rest, pending, .. }) = ready else { return };
            core.settle(rest(&core, ()), ENDLESS, pending);
        };
        core.apart.execute(Box::new(job));
    }
}
