//! Which calls may run at the same time: the fork scheduler's turns, and how a call gets them.
//!
//! A call is tried where it came in. What it asks for decides which turn it needs; it has it at once, or
//! waits in line with its request made its own. A turn is held while a state is looked at or an entry is
//! appended, not until an answer leaves: what takes long looks at a state that stays as it is, and an
//! acknowledgement waits for the disk without it. So the commits of one fork share a sync, and no read keeps
//! a writer waiting.
//!
//! A call that may need several turns joins all their queues in one step when it comes: a later call to any
//! of them is behind it in each. A call that holds a turn never waits for another turn.
//!
//! Long work is of two kinds. A scan of a page, a large commit and a call that has waited for its turn take a
//! few milliseconds at most, on one thread for each spare processor. Those that hold turns go first, since
//! others wait for them. The others stand in one queue, and a reactor that would otherwise sleep takes the
//! first of them, as far as that may hold up its other clients ([`Core::help`]). A root, a difference, an
//! image and a past state take time in proportion to the state, and share a thread of their own, so that only
//! calls of this kind wait for them. The root that a batch expects is computed while its turn is held, on
//! another thread: it waits for other such batches only.
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

/// What turns are taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Fork(ForkId),
    Session(u64),
    /// The history of a fork: read by a call that forks an old state, which takes as long as its replay, and
    /// written by a call that drops the fork. A call that has this turn waits for no other turn.
    Past(ForkId),
}

pub(super) type Turns = Scheduler<Key, Arc<Workers>>;
/// The right to a fork or a session, until it is dropped.
pub(super) type Held = Turn<Key, Arc<Workers>>;

/// How many keys a call may look at where it is; each is a few nanoseconds.
pub(super) type Budget = usize;
/// Where there is no room for an answer: what a turn is needed for is done, and the rest elsewhere.
pub(super) const NO_ROOM: Budget = 0;
/// On a reactor that has others to serve.
pub(super) const BUSY: Budget = 512;
/// On a reactor where handing it over would win nothing: no other call waits, or every thread for what takes
/// long is busy and the answers of what they do wait with it. A fraction of a millisecond at most.
pub(super) const ALONE: Budget = 32_768;
/// On a thread for what takes long.
pub(super) const UNLIMITED: Budget = usize::MAX - 1;
/// On the threads for what takes as long as the state is large.
pub(super) const ENDLESS: Budget = usize::MAX;
/// How many keys a call may look at where others wait for what takes long: some milliseconds.
pub(super) const LONG: Budget = 262_144;

/// The rest of a call.
pub(super) type Rest<A> = Box<dyn FnOnce(&Arc<Core>, A) -> Outcome + Send>;

/// What became of a call so far.
pub(super) enum Outcome {
    /// It is answered once a ticket is durable; at once for 0.
    Done(Position, Answer),
    Refused(Refusal),
    /// It is none.
    NoRequest(DecodeError),
    /// It takes too long for here. It goes on with a budget that is no smaller than `least`.
    Elsewhere {
        least: Budget,
        rest: Rest<Budget>,
    },
    /// It may take time in proportion to the state: too long for the threads that scans wait for. Nothing
    /// visible was done yet, so the rest is not begun once its caller has given up.
    Apart(Rest<()>),
    /// So may this, for a page, and it holds no turn: it can wait until there is room for its answer.
    Page(Rest<()>),
    /// It takes too long for here, and holds turns that other calls wait for: it must not wait behind work
    /// that holds none.
    Holding(Rest<()>),
    /// So it does, and it may take time in proportion to the state.
    InLine(Rest<()>),
    /// It needs a turn of each of these places; `rest` runs once it has them.
    InTurn {
        places: Places,
        rest: Rest<(Vec<Held>, Budget)>,
    },
}

/// What turns are needed of, none twice, and what is done to each.
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

    /// The rest takes long, and is to be done by a thread for that.
    pub(super) fn elsewhere(rest: impl FnOnce(&Arc<Core>) -> Self + Send + 'static) -> Self {
        Self::elsewhere_within(UNLIMITED, |core, _| rest(core))
    }

    /// The rest is done as far as the budget goes that it is given, `least` or more.
    pub(super) fn elsewhere_within(
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

    /// The rest takes long, and is to be done by a thread for that, with the turns that it holds.
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
    /// A turn here and now.
    pub(super) fn turn(&self, key: Key, access: Access) -> Option<Held> {
        self.turns.now(key, access)
    }

    /// Goes on for a fraction of a millisecond with one of the first calls in the queue, if every thread is
    /// busy; whether there was one that can be had in so small a part. What is left of it stays in front.
    pub(super) fn help(&self) -> bool {
        self.workers.take_to_help(ALONE).map(|call| call.go_on(ALONE)).is_some()
    }

    /// Sees a call to its answer.
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
                        // On a thread for what takes long.
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
    /// Goes on as far as a budget goes; what is left stays before all others.
    pub(super) fn go_on(self, budget: Budget) {
        // A call whose caller has given up has done nothing yet, and is dropped: so it delays no other call.
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

/// A call on the thread for what may take as long as the state is large.
struct Apart {
    core: Arc<Core>,
    /// It waits for room. What may hold a turn does not: others wait for it.
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
            // As in the queue: what was given up holds up no other call.
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
