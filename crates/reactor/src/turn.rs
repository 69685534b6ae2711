//! The loop: wait (see [`crate::waiting`]), then hand each thing that happened to the handler.
//!
//! Parked or not: between two turns made by [`Reactor::run`] the reactor counts as up and producers make
//! no system call; it counts as parked inside `epoll_wait`, and, for a foreign loop, from the end of a
//! [`Wait::Poll`] turn to the beginning of the next.

use crate::buffers::{BufferConfig, Buffers};
use crate::core::Core;
use crate::handle::{DEPTH_MAX, Handle, MESSAGES, TURNS, WAITS, Waker};
use crate::key::{Key, Readiness};
use crate::spin::Spin;
use crate::{BusyPoll, Handler};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;
use thalweg_sync::mailbox::Mailbox;
use thalweg_sync::patience::{Pace, QUICK_NS};
use thalweg_sys::epoll::{Epoll, Events, Watch};
use thalweg_sys::event::TimerFd;
use thalweg_sys::{clock, process};

/// The generation of the reactor's own descriptors: no connection's.
const OWN: u32 = u32::MAX;
const WAKE: Key = Key { slot: 0, generation: OWN };
const TIMER: Key = Key { slot: 1, generation: OWN };
/// Reported once per signal or expiry, so that neither descriptor ever needs to be read.
const EDGE: Watch = Watch { readable: true, writable: false, edge: true, exclusive: false };
/// The most ready descriptors one wait brings.
const EVENTS_MAX: usize = 256;
/// A queue that a burst made longer than this is freed once it is empty.
const QUEUE_KEEP: usize = 1_024;

/// The bounds of a reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Entries at most, listeners included.
    pub entries_max: u32,
    /// Messages and permits in the mailbox at most.
    pub mailbox_max: usize,
    /// Look again for a moment before sleeping while work comes fast. Never with one processor.
    pub spin: bool,
    /// The same on one processor, yielding it between any two looks: for work that comes from another
    /// machine, or from a thread that runs meanwhile.
    pub spin_on_one: bool,
    /// The same for sources that no descriptor announces, whose peers say themselves where they run: it makes
    /// sense wherever they run elsewhere, whatever this thread may run on.
    pub spin_for_peers: bool,
    /// The buffer pool.
    pub buffers: BufferConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            entries_max: 65_536,
            mailbox_max: 65_536,
            spin: true,
            spin_on_one: false,
            spin_for_peers: true,
            buffers: BufferConfig::default(),
        }
    }
}

/// How long a turn may wait for something to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all. Afterwards [`Reactor::descriptor`] is readable when the next turn has something to do,
    /// a timer that came due and a message included: for foreign loops.
    Poll,
    /// Until an instant.
    Until(Instant),
    /// As long as it takes.
    Block,
}

/// A reactor: a core and the handler it calls, on the thread that runs it.
pub struct Reactor<H: Handler> {
    pub(crate) core: Core<H>,
    pub(crate) handler: H,
    pub(crate) events: Events,
    /// Messages drained and not handled yet.
    pub(crate) inbox: VecDeque<H::Message>,
    pub(crate) spin: Spin,
    pub(crate) spin_for_peers: Spin,
    /// The connection that was ready, when it was one alone.
    pub(crate) only: Option<Key>,
    /// The wait has read the clocks for the turn.
    pub(crate) has_clocks: bool,
    /// How long it waited for other threads' work.
    pub(crate) work: Pace,
    /// When the kernel was last asked, on the monotonic clock, if sources that it does not announce are up.
    pub(crate) asked_ns: u64,
    /// Only for foreign loops: says when the next timer is due, and what it was last set to.
    timer: Option<(TimerFd, Option<u64>)>,
}

impl<H: Handler> Reactor<H> {
    /// A reactor whose handler is built with its core at hand: to take listeners in, and to give its
    /// handle away.
    ///
    /// # Errors
    /// Out of descriptors, or what `build` says.
    pub fn new<E: From<io::Error>>(
        config: Config,
        build: impl FnOnce(&mut Core<H>) -> Result<H, E>,
    ) -> Result<Self, E> {
        let epoll = Epoll::new()?;
        let waker = Waker::new()?;
        epoll.add(waker.as_fd(), WAKE.token(), EDGE)?;
        let mailbox = Arc::new(Mailbox::new(config.mailbox_max, waker));
        let buffers = Buffers::new(config.buffers);
        let seed = process::random_u64()?;
        let mut core = Core::new(epoll, mailbox, buffers, config.entries_max, seed);
        let handler = build(&mut core)?;
        let processors = if config.spin_on_one { usize::MAX } else { process::parallelism() };
        let reactor = Self {
            core,
            handler,
            events: Events::with_capacity(EVENTS_MAX),
            inbox: VecDeque::new(),
            spin: Spin::new(config.spin, processors),
            spin_for_peers: Spin::new(config.spin_for_peers, usize::MAX),
            only: None,
            has_clocks: false,
            // A wait that was slept through has a wake in it, and one that was not was partly the other
            // threads'.
            work: Pace::new(QUICK_NS),
            asked_ns: 0,
            timer: None,
        };
        // A foreign loop may look at the descriptor before the first turn.
        reactor.park();
        Ok(reactor)
    }

    /// This reactor, for other threads.
    pub fn handle(&self) -> Handle<H::Message> {
        self.core.handle()
    }

    /// The handler.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    /// The core, between turns. A foreign loop that changes something through it takes a turn next.
    pub fn core(&mut self) -> &mut Core<H> {
        &mut self.core
    }

    /// Core and handler, between turns.
    pub fn parts(&mut self) -> (&mut Core<H>, &mut H) {
        (&mut self.core, &mut self.handler)
    }

    /// The epoll descriptor, to be watched for reading by a foreign loop that calls [`Reactor::turn`]
    /// with [`Wait::Poll`] once to begin with and whenever it is readable.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.core.epoll.as_fd()
    }

    /// Turns until [`Core::stop`] or [`Handle::stop`]. May be called again afterwards.
    ///
    /// # Errors
    /// Only for a broken epoll instance.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.core.stopping {
            self.turn(EVENTS_MAX, Wait::Block)?;
        }
        self.core.stopping = false;
        Ok(())
    }

    /// One turn: waits, then hands over at most `budget` ready descriptors, as many messages from
    /// elsewhere, as many of its own and as many timers. What is left comes next turn. Returns how many
    /// calls the handler got, [`Handler::turn_ended`] aside.
    ///
    /// # Errors
    /// Only for a broken epoll instance.
    pub fn turn(&mut self, budget: usize, wait: Wait) -> io::Result<usize> {
        let calls = self.gather(budget, wait)?;
        if wait == Wait::Poll {
            self.leave()?;
        }
        Ok(calls)
    }

    /// A turn without its last step, for handlers that merely note what came, and owners that act on it
    /// between turns through [`Reactor::parts`]. Behind [`Wait::Poll`] it is to be followed by
    /// [`Reactor::leave`].
    ///
    /// # Errors
    /// Only for a broken epoll instance.
    pub fn gather(&mut self, budget: usize, wait: Wait) -> io::Result<usize> {
        let budget = budget.max(1);
        self.core.mailbox.resume();
        self.wait(budget, wait)?;
        if !std::mem::take(&mut self.has_clocks) {
            self.core.read_clocks();
        }
        let calls = self.hand_over_ready()
            + self.hand_over_messages(budget)
            + self.hand_over_ready_queue(budget)
            + self.hand_over_timers(budget);
        self.handler.turn_ended(&mut self.core);
        let meter = &self.core.mailbox.waker().meter;
        meter.add(TURNS, 1);
        meter.set(WAITS, self.core.waits);
        Ok(calls)
    }

    /// Hands over what other threads posted, without asking the kernel for anything else.
    pub fn hear(&mut self) -> usize {
        self.core.mailbox.resume();
        self.hand_over_messages(usize::MAX)
    }

    /// How often the kernel was asked what is ready.
    pub fn waits(&self) -> u64 {
        self.core.waits
    }

    /// Leaves the reactor to a foreign loop: from here on its descriptor becomes readable when the next
    /// turn has something to do.
    ///
    /// # Errors
    /// Out of descriptors; a broken epoll instance.
    pub fn leave(&mut self) -> io::Result<()> {
        let asleep = self.handler.busy_poll(&mut self.core) == BusyPoll::Asleep
            || self.handler.prepare_to_sleep(&mut self.core);
        self.park();
        if !asleep {
            self.core.mailbox.wake();
        }
        // A loop that cannot be told of a timer when it is due is told at once, and looks again.
        self.arm_timer().inspect_err(|_| self.core.mailbox.wake())
    }

    fn hand_over_ready(&mut self) -> usize {
        let mut calls = 0;
        let count = self.events.len();
        if count > 0 {
            self.only = self.events.at(0).filter(|_| count == 1).map(|event| Key::from_token(event.token));
        }
        for index in 0..count {
            let Some(event) = self.events.at(index) else { break };
            let key = Key::from_token(event.token);
            // Dead ones, which an earlier call of this very batch may have removed, and our own.
            if key.generation == OWN || !self.core.is_alive(key) {
                continue;
            }
            self.core.ready_left = count - index - 1;
            self.handler.ready(&mut self.core, key, Readiness::of(event));
            calls += 1;
        }
        self.core.ready_left = 0;
        calls
    }

    fn hand_over_messages(&mut self, budget: usize) -> usize {
        let drained = self.core.mailbox.drain(&mut self.inbox);
        if drained.stopped {
            self.core.stopping = true;
        }
        if !self.inbox.is_empty() {
            let meter = &self.core.mailbox.waker().meter;
            let found = self.inbox.len() as u64;
            if found > meter.read(DEPTH_MAX) {
                meter.set(DEPTH_MAX, found);
            }
        }
        if drained.nudged {
            self.core.messages_left = self.inbox.len();
            self.handler.nudged(&mut self.core);
        }
        let count = self.inbox.len().min(budget);
        for _ in 0..count {
            let Some(message) = self.inbox.pop_front() else { break };
            self.core.messages_left = self.inbox.len();
            self.handler.message(&mut self.core, message);
        }
        let heard = count + usize::from(drained.nudged);
        if heard > 0 {
            self.core.mailbox.waker().meter.add(MESSAGES, heard as u64);
        }
        // Beyond the budget they wait for the next turn.
        self.core.messages_left = self.inbox.len();
        trim(&mut self.inbox);
        heard
    }

    fn hand_over_ready_queue(&mut self, budget: usize) -> usize {
        let count = self.core.ready_queue.len().min(budget);
        for _ in 0..count {
            let Some(message) = self.core.ready_queue.pop_front() else { break };
            self.handler.message(&mut self.core, message);
        }
        trim(&mut self.core.ready_queue);
        count
    }

    fn hand_over_timers(&mut self, budget: usize) -> usize {
        let mut calls = 0;
        while calls < budget
            && let Some(key) = self.core.take_due()
        {
            self.handler.timer(&mut self.core, key);
            calls += 1;
        }
        calls
    }

    /// Leaves the reactor parked for a foreign loop, its descriptor readable if messages wait already.
    fn park(&self) {
        let parked = self.core.mailbox.prepare_to_park();
        if !parked || !self.inbox.is_empty() || !self.core.ready_queue.is_empty() || self.core.stopping {
            self.core.mailbox.wake();
        }
    }

    /// Makes the descriptor readable when the next timer is due.
    fn arm_timer(&mut self) -> io::Result<()> {
        let due_ns = self.core.wheel.next_tick().map(|tick| tick.saturating_mul(1_000_000));
        if self.timer.is_none() && due_ns.is_some() {
            let timer = TimerFd::new()?;
            self.core.epoll.add(timer.as_fd(), TIMER.token(), EDGE)?;
            self.timer = Some((timer, None));
        }
        if let Some((timer, set_ns)) = &mut self.timer
            && (*set_ns != due_ns || due_ns.is_some_and(|due_ns| due_ns <= clock::monotonic_ns()))
        {
            timer.set(due_ns)?;
            *set_ns = due_ns;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn is_spinning(&self) -> bool {
        self.spin.is_worth()
    }
}

fn trim<M>(queue: &mut VecDeque<M>) {
    if queue.is_empty() && queue.capacity() > QUEUE_KEEP {
        *queue = VecDeque::new();
    }
}
