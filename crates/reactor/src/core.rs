//! What a handler may do: its connections, timers, subscriptions, buffers, and the time.

use crate::Handler;
use crate::buffers::{Buffer, Buffers};
use crate::handle::{Handle, Shared};
use crate::key::{Interest, Key};
use crate::slab::{Occupant, SLOTS_MAX, Slab};
use crate::topics::Topics;
use crate::wheel::Wheel;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thalweg_sys::clock;
use thalweg_sys::epoll::Epoll;
use thalweg_sys::event::EventFd;

/// The farthest a timer is set ahead, about twelve days: a longer one comes due then, and the handler
/// sets it anew.
const TIMER_MAX_MS: u32 = 1 << 30;
/// What was served so lately is likely to be served again soon.
const RECENT_US: u64 = 1_000;

/// An insertion that did not happen; descriptor and entry come back.
#[derive(Debug)]
pub struct Rejected<E> {
    /// The descriptor, still open.
    pub descriptor: OwnedFd,
    /// The entry.
    pub entry: E,
    /// Why.
    pub reason: RejectReason,
}

/// Why an insertion did not happen.
#[derive(Debug)]
pub enum RejectReason {
    /// The reactor holds as many entries as it may.
    Full,
    /// The kernel would not watch the descriptor.
    Kernel(io::Error),
}

/// An entry that was removed.
#[derive(Debug)]
pub struct RemovedEntry<E, T> {
    /// The entry.
    pub entry: E,
    /// The topic it was subscribed to, if that has no subscriber on this reactor any more.
    pub last_topic: Option<T>,
}

/// An entry that was removed, and its descriptor.
#[derive(Debug)]
pub struct Released<E, T> {
    /// The entry.
    pub removed: RemovedEntry<E, T>,
    /// Open still, and watched no more.
    pub descriptor: OwnedFd,
}

/// A subscription that ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Unsubscribed<T> {
    /// The topic's identity.
    pub topic_id: u64,
    /// The topic, if it has no subscriber on this reactor any more.
    pub last: Option<T>,
}

/// Everything of a reactor but its handler.
pub struct Core<H: Handler> {
    pub(crate) epoll: Epoll,
    pub(crate) mailbox: Shared<H::Message>,
    pub(crate) ready_queue: VecDeque<H::Message>,
    pub(crate) wheel: Wheel,
    /// Nanoseconds on the monotonic clock when the turn began.
    pub(crate) now_ns: u64,
    pub(crate) wall_us: u64,
    /// The same clock as the handler read it when the turn ended; 0 if it did not.
    pub(crate) ended_ns: u64,
    /// What was last served, and until when, in microseconds: in this turn, since the turn began.
    recent: Option<(Key, u64)>,
    /// Ready descriptors of this turn not handed to the handler yet.
    pub(crate) ready_left: usize,
    pub(crate) messages_left: usize,
    pub(crate) stopping: bool,
    pub(crate) waits: u64,
    slab: Slab<H::Entry>,
    topics: Topics<H::Topic>,
    buffers: Buffers,
    entries_max: u32,
    random: u64,
}

impl<H: Handler> Core<H> {
    pub(crate) fn new(
        epoll: Epoll,
        mailbox: Shared<H::Message>,
        buffers: Buffers,
        entries_max: u32,
        seed: u64,
    ) -> Self {
        let now_ns = clock::monotonic_ns();
        Self {
            epoll,
            mailbox,
            ready_queue: VecDeque::new(),
            wheel: Wheel::new(now_ns / 1_000_000),
            now_ns,
            wall_us: clock::wall_us(),
            ended_ns: 0,
            recent: None,
            ready_left: 0,
            messages_left: 0,
            stopping: false,
            waits: 0,
            slab: Slab::new(),
            topics: Topics::new(),
            buffers,
            entries_max: entries_max.min(SLOTS_MAX),
            // The generator below never leaves zero.
            random: seed | 1,
        }
    }

    /// Takes a connection in: watches its descriptor, names it. The descriptor is closed when the entry
    /// is removed.
    ///
    /// # Errors
    /// [`Rejected`] gives both back.
    pub fn insert(
        &mut self,
        descriptor: OwnedFd,
        entry: H::Entry,
        interest: Interest,
    ) -> Result<Key, Rejected<H::Entry>> {
        if self.slab.len() >= self.entries_max {
            return Err(Rejected { descriptor, entry, reason: RejectReason::Full });
        }
        let key = self.slab.next_key();
        if let Err(error) = self.epoll.add(descriptor.as_fd(), key.token(), interest.watch()) {
            return Err(Rejected { descriptor, entry, reason: RejectReason::Kernel(error) });
        }
        self.slab.fill(key, descriptor, interest, entry);
        Ok(key)
    }

    /// Takes in a timer that belongs to no connection. The wheel knows entries only, so it has one of its
    /// own, whose descriptor never has an event.
    ///
    /// # Errors
    /// Out of descriptors, or the reactor holds as many entries as it may.
    pub fn insert_timer(&mut self, entry: H::Entry) -> io::Result<Key> {
        let descriptor = EventFd::new()?.into();
        self.insert(descriptor, entry, Interest::NONE).map_err(|rejected| match rejected.reason {
            RejectReason::Full => io::Error::other("the reactor takes no more entries"),
            RejectReason::Kernel(error) => error,
        })
    }

    /// Lets a connection go: ends its timer and its subscription, stops watching and closes its
    /// descriptor. Its key is dead from here on. `None` when it was dead already.
    pub fn remove(&mut self, key: Key) -> Option<RemovedEntry<H::Entry, H::Topic>> {
        self.release(key).map(|released| released.removed)
    }

    /// Lets a connection go as [`Core::remove`] does, but gives its descriptor back instead of closing it:
    /// for descriptors that live on elsewhere.
    pub fn release(&mut self, key: Key) -> Option<Released<H::Entry, H::Topic>> {
        if !self.slab.is_alive(key) {
            return None;
        }
        self.wheel.clear(&mut self.slab, key.slot);
        let last_topic = self.unsubscribe(key).and_then(|left| left.last);
        let Occupant { descriptor, entry, .. } = self.slab.vacate(key)?;
        // Closing alone would leave the watch behind while a duplicate of the descriptor lives, in a
        // child process say; then events would come for a dead key, without end.
        let _ = self.epoll.delete(descriptor.as_fd());
        Some(Released { removed: RemovedEntry { entry, last_topic }, descriptor })
    }

    /// The connection's entry; `None` when the key is dead.
    #[inline]
    pub fn entry(&mut self, key: Key) -> Option<&mut H::Entry> {
        self.slab.get_mut(key).map(|occupant| &mut occupant.entry)
    }

    /// The connection's descriptor; `None` when the key is dead.
    #[inline]
    pub fn descriptor(&self, key: Key) -> Option<BorrowedFd<'_>> {
        self.slab.get(key).map(|occupant| occupant.descriptor.as_fd())
    }

    /// Entry and descriptor at once.
    #[inline]
    pub fn entry_and_descriptor(&mut self, key: Key) -> Option<(&mut H::Entry, BorrowedFd<'_>)> {
        let Occupant { descriptor, entry, .. } = self.slab.get_mut(key)?;
        let descriptor: &OwnedFd = descriptor;
        Some((entry, descriptor.as_fd()))
    }

    /// Changes what the connection is told of. No system call when nothing changes.
    ///
    /// # Errors
    /// What the kernel says; never for a dead key, which is ignored. A listener that was, or was to be,
    /// shared is told of nothing then, and may be tried again; any other connection is told of what it was
    /// before.
    pub fn set_interest(&mut self, key: Key, wanted: Interest) -> io::Result<()> {
        let Some(Occupant { descriptor, interest, .. }) = self.slab.get_mut(key) else { return Ok(()) };
        if *interest == wanted {
            return Ok(());
        }
        if interest.watch().exclusive || wanted.watch().exclusive {
            // The kernel does not modify exclusive watches. Should it not take the new one, none is left, and
            // the next attempt begins with that.
            match self.epoll.delete(descriptor.as_fd()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => *interest = Interest::NONE,
            }
            self.epoll.add(descriptor.as_fd(), key.token(), wanted.watch())?;
        } else {
            self.epoll.modify(descriptor.as_fd(), key.token(), wanted.watch())?;
        }
        *interest = wanted;
        Ok(())
    }

    /// What the connection is told of.
    pub fn interest(&self, key: Key) -> Option<Interest> {
        self.slab.get(key).map(|occupant| occupant.interest)
    }

    /// Sets the connection's one timer, anew if it was set: due `after_ms` milliseconds from this very
    /// call (not from the beginning of the turn) at the earliest. At most about twelve days.
    pub fn set_timer(&mut self, key: Key, after_ms: u32) {
        if !self.slab.is_alive(key) {
            return;
        }
        self.wheel.clear(&mut self.slab, key.slot);
        // One tick more than asked: this one has partly passed already.
        let now_ms = clock::monotonic_ns() / 1_000_000;
        let due = now_ms + u64::from(after_ms.min(TIMER_MAX_MS)) + 1;
        self.wheel.set(&mut self.slab, key.slot, due);
    }

    /// Clears the connection's timer.
    pub fn clear_timer(&mut self, key: Key) {
        if self.slab.is_alive(key) {
            self.wheel.clear(&mut self.slab, key.slot);
        }
    }

    /// The next connection whose timer came due.
    pub(crate) fn take_due(&mut self) -> Option<Key> {
        let now_ms = self.now_ms();
        let slot = self.wheel.take(&mut self.slab, now_ms)?;
        self.slab.at(slot).map(|(key, _)| key)
    }

    /// Subscribes the connection to a topic at an offset, ending any other subscription it has (its topic
    /// is dropped if it was the last; use [`Core::unsubscribe`] first to learn of that). `true` when it
    /// is the topic's first subscriber on this reactor. A dead key subscribes nothing.
    pub fn subscribe(
        &mut self,
        key: Key,
        topic_id: u64,
        offset: u64,
        topic: impl FnOnce() -> H::Topic,
    ) -> bool {
        if !self.slab.is_alive(key) {
            return false;
        }
        self.unsubscribe(key);
        self.set_offset(key, offset);
        self.topics.subscribe(&mut self.slab, key.slot, topic_id, topic)
    }

    /// Ends the connection's subscription; `None` when it has none.
    pub fn unsubscribe(&mut self, key: Key) -> Option<Unsubscribed<H::Topic>> {
        self.subscribed(key)?;
        let (topic_id, last) = self.topics.unsubscribe(&mut self.slab, key.slot)?;
        Some(Unsubscribed { topic_id, last })
    }

    /// A topic, while it has a subscriber on this reactor.
    pub fn topic(&self, topic_id: u64) -> Option<&H::Topic> {
        self.topics.topic(topic_id)
    }

    /// How many topics have a subscriber on this reactor.
    #[cfg(test)]
    pub(crate) fn topics_len(&self) -> usize {
        self.topics.len()
    }

    /// How many connections of this reactor are subscribed to the topic.
    #[cfg(test)]
    pub(crate) fn subscribers_len(&self, topic_id: u64) -> usize {
        self.topics.first(topic_id).map_or(0, |(count, _)| count as usize)
    }

    /// Appends the topic's subscribers to `into`, the latest first. The keys are a snapshot: a caller that
    /// walks them may remove and unsubscribe at will, and asks [`Core::topic_of`] whether each still belongs.
    pub fn subscribers(&self, topic_id: u64, into: &mut Vec<Key>) {
        let Some((count, first)) = self.topics.first(topic_id) else {
            return;
        };
        into.reserve_exact(count as usize);
        let mut slot = Some(first);
        while let Some((key, occupant)) = slot.and_then(|slot| self.slab.at(slot)) {
            into.push(key);
            slot = Topics::<H::Topic>::next(occupant.subscription);
        }
    }

    /// The subscription's offset; `None` without one.
    pub fn offset(&self, key: Key) -> Option<u64> {
        self.subscribed(key).map(|occupant| occupant.offset)
    }

    /// Moves the subscription's offset.
    pub fn set_offset(&mut self, key: Key, to: u64) {
        if let Some(occupant) = self.slab.get_mut(key) {
            occupant.offset = to;
        }
    }

    /// The identity of the topic the connection is subscribed to.
    pub fn topic_of(&self, key: Key) -> Option<u64> {
        self.topics.id_of(self.subscribed(key)?.subscription)
    }

    /// The connection, while it is subscribed to something.
    fn subscribed(&self, key: Key) -> Option<&Occupant<H::Entry>> {
        self.slab.get(key).filter(|occupant| occupant.subscription.is_present())
    }

    /// Sends the handler a message in a moment: in this turn if its messages are still to come, in the
    /// next otherwise. The ready queue: no lock, no wake, no bound but the handler's own sense.
    pub fn ready_later(&mut self, message: H::Message) {
        self.ready_queue.push_back(message);
    }

    pub(crate) fn is_alive(&self, key: Key) -> bool {
        self.slab.is_alive(key)
    }

    /// Reads both clocks for the turn.
    pub(crate) fn read_clocks(&mut self) {
        self.now_ns = clock::monotonic_ns();
        self.wall_us = clock::wall_us();
        self.ended_ns = 0;
    }

    /// How many ready descriptors of this turn the handler will be called for yet, the dead among them.
    pub fn ready_left(&self) -> usize {
        self.ready_left
    }

    /// Whether nothing else of this turn waits: no other ready descriptor, no message. A handler that
    /// serves something slow may then do it inline; otherwise it would hold others up.
    pub fn alone(&self) -> bool {
        self.ready_left == 0
            && self.messages_left == 0
            && self.ready_queue.is_empty()
            && !self.mailbox.pending()
    }

    /// Whether an entry that is being served is the only one: nothing else of this turn waits
    /// ([`Core::alone`]), and no other was served until less than a millisecond ago. Of two connections that
    /// take turns each sends its request while the other is served, and each finds nothing waiting: a handler
    /// that then did slow work inline would serve one after the other, while other threads are idle.
    pub fn has_to_itself(&mut self, key: Key) -> bool {
        let now_us = self.now_us();
        let others = self.recent.replace((key, now_us));
        let is_recent = |(other, until_us)| other != key && now_us.saturating_sub(until_us) < RECENT_US;
        self.alone() && !others.is_some_and(is_recent)
    }

    /// Whether it is kept what was last served, and until when: it is once [`Core::has_to_itself`] was asked.
    pub(crate) fn notes_served(&self) -> bool {
        self.recent.is_some()
    }

    /// The turn is over at `now_ns`, and with it what was served.
    pub(crate) fn turn_is_over(&mut self, now_ns: u64) {
        let began_us = self.now_us();
        if let Some((_, until_us)) = &mut self.recent
            && *until_us == began_us
        {
            *until_us = now_ns / 1_000;
        }
    }

    /// Milliseconds on the monotonic clock, as of the beginning of the turn.
    pub fn now_ms(&self) -> u64 {
        self.now_ns / 1_000_000
    }

    /// Microseconds on the monotonic clock, as of the beginning of the turn.
    pub fn now_us(&self) -> u64 {
        self.now_ns / 1_000
    }

    /// Milliseconds on the monotonic clock at this very moment.
    pub fn fresh_now_ms(&self) -> u64 {
        clock::monotonic_ns() / 1_000_000
    }

    /// Microseconds on the monotonic clock at this very moment.
    pub fn fresh_now_us(&self) -> u64 {
        clock::monotonic_ns() / 1_000
    }

    /// As [`Core::fresh_now_us`], for the last thing that a handler does in [`Handler::turn_ended`]: the wait
    /// that follows goes by it, and the clock is not read twice.
    pub fn turn_ended_us(&mut self) -> u64 {
        self.ended_ns = clock::monotonic_ns();
        self.ended_ns / 1_000
    }

    /// Microseconds since the Unix epoch, as of the beginning of the turn.
    pub fn wall_us(&self) -> u64 {
        self.wall_us
    }

    /// A fresh random word, for jitter: xorshift64*, seeded by the kernel. Not for secrets.
    pub fn entropy(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Borrows an empty buffer from the pool.
    pub fn take_buffer(&mut self) -> Buffer {
        self.buffers.take()
    }

    /// Gives a buffer back.
    pub fn give_buffer(&mut self, buffer: Buffer) {
        self.buffers.give(buffer);
    }

    /// Capacity of the pool's buffers.
    pub fn buffer_bytes(&self) -> usize {
        self.buffers.buffer_bytes()
    }

    /// Connections on this reactor, listeners included.
    pub fn len(&self) -> usize {
        self.slab.len() as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// How many there may be.
    pub fn entries_max(&self) -> u32 {
        self.entries_max
    }

    /// The keys of all connections, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.slab.keys()
    }

    /// Ends [`crate::Reactor::run`] after this turn.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether a stop was asked for, which is forgotten: for owners that end in their own time.
    pub fn take_stop(&mut self) -> bool {
        std::mem::take(&mut self.stopping)
    }

    /// Whether a stop was asked for.
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// This reactor, for other threads.
    pub fn handle(&self) -> Handle<H::Message> {
        Handle { mailbox: self.mailbox.clone() }
    }

    /// Bytes of slab made so far.
    #[cfg(test)]
    pub(crate) fn slab_bytes(&self) -> usize {
        self.slab.bytes()
    }

    #[cfg(test)]
    pub(crate) fn buffers_idle(&self) -> usize {
        self.buffers.idle()
    }
}
