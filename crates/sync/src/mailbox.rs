//! The mailbox: what other threads have to say to one consumer.
//!
//! # Shape
//!
//! A bounded queue under a lock, one word beside it, and a [`Parking`]. Any thread posts; one consumer drains
//! by swapping the whole queue out under the lock and works on the snapshot without it. Room can be reserved
//! ahead as a [`Permit`]: a thread that starts work whose end must be reported reserves first, and the report
//! then never fails. A nudge takes no room: it says only that there is something elsewhere.
//!
//! # The words
//!
//! | word | written by | with | read by |
//! |---|---|---|---|
//! | `pending` | producers 0 → 1, the consumer 1 → 0 in a drain; both only under the lock | `Relaxed` | the consumer, without the lock |
//! | `parked` | see [`crate::parking`] | | |
//!
//! # Invariants
//!
//! 1. `pending` is 1 exactly when the queue holds a message, or a stop or a nudge that was not taken yet, as
//!    seen by the holder of the lock.
//! 2. A message posted is drained exactly once, in the order of posting; no wake is lost.
//! 3. The consumer is woken only on `pending` going 0 → 1 while it is parked: one wake per burst.
//! 4. messages queued + permits outstanding <= capacity, always. A permit is spent by posting or given
//!    back by dropping, never both, never lost.
//!
//! A consumer that reads `pending` as 0 too early misses nothing: it reads it again, behind the fence of
//! [`Parking::prepare`], before it sleeps. 1 to 4 are checked by the loom models; 2 and 4 also under real
//! threads below.

use crate::parking::{LocalWord, Orderings, Parking, Strong, Wake};
use crate::primitives::Mutex;
use crate::primitives::atomic::{AtomicU32, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

/// What the lock guards.
#[derive(Debug)]
struct Queue<T> {
    messages: VecDeque<T>,
    /// Permits outstanding.
    reserved: usize,
    /// What the next drain finds beside messages.
    drained: Drained,
}

/// The mailbox was full; the message comes back.
#[derive(PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> std::fmt::Debug for Full<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Full").finish_non_exhaustive()
    }
}

impl<T> std::fmt::Display for Full<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the mailbox is full: its consumer does not keep up, try again later")
    }
}

impl<T> std::error::Error for Full<T> {}

/// What a drain found beside messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Somebody asked the consumer to stop since the last drain.
    pub stopped: bool,
    /// Somebody nudged the consumer since then.
    pub nudged: bool,
}

/// A mailbox, shared between its consumer and its producers by [`Arc`].
#[derive(Debug)]
pub struct Mailbox<T, W, O = Strong> {
    queue: Mutex<Queue<T>>,
    pending: AtomicU32,
    parking: Parking<LocalWord, W, O>,
    capacity: usize,
}

impl<T, W: Wake, O: Orderings> Mailbox<T, W, O> {
    /// An empty mailbox for at most `capacity` messages and permits together. Allocates nothing yet.
    pub fn new(capacity: usize, wake: W) -> Self {
        Self {
            queue: Mutex::new(Queue { messages: VecDeque::new(), reserved: 0, drained: Drained::default() }),
            pending: AtomicU32::new(0),
            parking: Parking::new(LocalWord::new(), wake),
            capacity,
        }
    }

    /// Posts a message. Any thread.
    ///
    /// # Errors
    /// [`Full`] with the message when queue and permits together are at capacity.
    pub fn post(&self, message: T) -> Result<(), Full<T>> {
        let mut queue = self.queue.lock();
        if queue.messages.len() + queue.reserved >= self.capacity {
            return Err(Full(message));
        }
        queue.messages.push_back(message);
        let first = self.raise();
        drop(queue);
        if first {
            self.parking.announce();
        }
        Ok(())
    }

    /// Reserves room for one message; `None` when at capacity. Any thread.
    pub fn reserve(self: &Arc<Self>) -> Option<Permit<T, W, O>> {
        let mut queue = self.queue.lock();
        if queue.messages.len() + queue.reserved >= self.capacity {
            return None;
        }
        queue.reserved += 1;
        drop(queue);
        Some(Permit { mailbox: Some(Arc::clone(self)) })
    }

    /// Asks the consumer to stop; its next drain says so. Any thread, any number of times.
    pub fn stop(&self) {
        self.note(|drained| drained.stopped = true);
    }

    /// Wakes the consumer without a message; its next drain says so. Any thread, any number of times, however
    /// full the mailbox is.
    pub fn nudge(&self) {
        self.note(|drained| drained.nudged = true);
    }

    fn note(&self, note: impl FnOnce(&mut Drained)) {
        let mut queue = self.queue.lock();
        note(&mut queue.drained);
        let first = self.raise();
        drop(queue);
        if first {
            self.parking.announce();
        }
    }

    /// Consumer: takes everything posted so far, in order, behind what `into` holds. An empty `into` is
    /// swapped with the queue, so that two allocations serve for good. No lock when nothing is pending.
    pub fn drain(&self, into: &mut VecDeque<T>) -> Drained {
        if !self.pending() {
            return Drained::default();
        }
        let mut queue = self.queue.lock();
        if into.is_empty() {
            std::mem::swap(&mut queue.messages, into);
        } else {
            into.append(&mut queue.messages);
        }
        self.pending.store(0, Ordering::Relaxed);
        std::mem::take(&mut queue.drained)
    }

    /// Consumer: whether something is there. One load; may be late, never wrong for good.
    #[inline]
    pub fn pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == 1
    }

    /// Consumer: about to sleep. `false` when there is something after all (see [`Parking::prepare`]).
    #[inline]
    pub fn prepare_to_park(&self) -> bool {
        self.parking.prepare(|| self.pending())
    }

    /// Consumer: up again.
    #[inline]
    pub fn resume(&self) {
        self.parking.resume();
    }

    /// Wakes the consumer unconditionally: one system call.
    pub fn wake(&self) {
        self.parking.wake();
    }

    /// How the consumer is woken.
    pub fn waker(&self) -> &W {
        self.parking.waker()
    }

    /// Messages queued and permits outstanding.
    pub fn occupied(&self) -> usize {
        let queue = self.queue.lock();
        queue.messages.len() + queue.reserved
    }

    /// Messages and permits together may be this many.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Under the lock: takes `pending` to 1; whether it was 0.
    #[inline]
    fn raise(&self) -> bool {
        let first = self.pending.load(Ordering::Relaxed) == 0;
        if first {
            self.pending.store(1, Ordering::Relaxed);
        }
        first
    }

    fn post_reserved(&self, message: T) {
        let mut queue = self.queue.lock();
        queue.reserved -= 1;
        queue.messages.push_back(message);
        let first = self.raise();
        drop(queue);
        if first {
            self.parking.announce();
        }
    }

    fn give_back(&self) {
        self.queue.lock().reserved -= 1;
    }
}

/// Room for one message. Posting with it never fails; dropping it gives the room back.
#[derive(Debug)]
pub struct Permit<T, W: Wake, O: Orderings = Strong> {
    /// `None` once spent.
    mailbox: Option<Arc<Mailbox<T, W, O>>>,
}

impl<T, W: Wake, O: Orderings> Permit<T, W, O> {
    /// Posts the message the room was reserved for.
    pub fn post(mut self, message: T) {
        if let Some(mailbox) = self.mailbox.take() {
            mailbox.post_reserved(message);
        }
    }
}

impl<T, W: Wake, O: Orderings> Drop for Permit<T, W, O> {
    fn drop(&mut self) {
        if let Some(mailbox) = self.mailbox.take() {
            mailbox.give_back();
        }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Condvar;
    use std::sync::Mutex as StdMutex;

    /// Counts wakes, and lets a consumer sleep until one.
    #[derive(Default)]
    struct Bell {
        rung: StdMutex<u64>,
        ring: Condvar,
    }

    impl Wake for Bell {
        fn wake(&self) {
            *self.rung.lock().unwrap() += 1;
            self.ring.notify_one();
        }
    }

    impl Bell {
        fn rung(&self) -> u64 {
            *self.rung.lock().unwrap()
        }

        fn sleep_until_rung_more_than(&self, seen: u64) {
            let rung = self.rung.lock().unwrap();
            drop(self.ring.wait_while(rung, |rung| *rung <= seen).unwrap());
        }
    }

    fn mailbox(capacity: usize) -> (Arc<Mailbox<u32, Arc<Bell>>>, Arc<Bell>) {
        let bell = Arc::new(Bell::default());
        (Arc::new(Mailbox::new(capacity, bell.clone())), bell)
    }

    #[test]
    fn a_burst_wakes_once_and_an_awake_consumer_never() {
        let (mailbox, bell) = mailbox(100);
        let mut inbox = VecDeque::new();
        (0..5).for_each(|message| mailbox.post(message).unwrap());
        assert_eq!(bell.rung(), 0, "the consumer is up");
        assert!(!mailbox.prepare_to_park(), "there is work");
        assert!(!mailbox.drain(&mut inbox).stopped);
        inbox.clear();
        assert!(mailbox.prepare_to_park());
        (0..5).for_each(|message| mailbox.post(message).unwrap());
        mailbox.stop();
        assert_eq!(bell.rung(), 1, "one wake for the whole burst, the stop included");
        mailbox.resume();
        assert!(mailbox.drain(&mut inbox).stopped);
        assert_eq!(inbox, [0, 1, 2, 3, 4]);
        assert!(!mailbox.drain(&mut inbox).stopped, "a stop is told once");
        assert!(mailbox.prepare_to_park());
        mailbox.stop();
        assert_eq!(bell.rung(), 2, "a stop alone wakes too");
    }

    #[test]
    fn a_stop_is_told_once_whatever_comes_after_it() {
        let (mailbox, _) = mailbox(4);
        mailbox.stop();
        let mut inbox = VecDeque::new();
        assert!(mailbox.drain(&mut inbox).stopped);
        mailbox.post(1).unwrap();
        assert!(!mailbox.drain(&mut inbox).stopped);
        assert_eq!(inbox, [1]);
    }

    #[test]
    fn a_nudge_takes_no_room_and_is_told_once() {
        let (mailbox, bell) = mailbox(1);
        let permit = mailbox.reserve().unwrap();
        assert_eq!(mailbox.post(1), Err(Full(1)));
        assert!(mailbox.prepare_to_park());
        mailbox.nudge();
        mailbox.nudge();
        assert_eq!(bell.rung(), 1);
        mailbox.resume();
        let mut inbox = VecDeque::new();
        assert_eq!(mailbox.drain(&mut inbox), Drained { stopped: false, nudged: true });
        assert_eq!((mailbox.drain(&mut inbox), mailbox.occupied()), (Drained::default(), 1));
        permit.post(2);
        assert_eq!((mailbox.drain(&mut inbox), &inbox), (Drained::default(), &VecDeque::from([2])));
    }

    #[test]
    fn who_finds_work_at_the_last_look_counts_as_up() {
        let (mailbox, bell) = mailbox(4);
        mailbox.post(1).unwrap();
        assert!(!mailbox.prepare_to_park(), "there is work");
        mailbox.drain(&mut VecDeque::new());
        mailbox.post(2).unwrap();
        assert_eq!(bell.rung(), 0, "the consumer is up");
    }

    proptest! {
        /// Whatever is posted, reserved, given back and drained: order, bound and permits hold.
        #[test]
        fn agrees_with_a_plain_queue(steps in proptest::collection::vec(0_u8..6, 1..200)) {
            const CAPACITY: usize = 5;
            let (mailbox, _) = mailbox(CAPACITY);
            let (mut queued, mut permits) = (VecDeque::new(), Vec::new());
            for (message, step) in (0_u32..).zip(steps) {
                let room = queued.len() + permits.len() < CAPACITY;
                match step {
                    0 => {
                        prop_assert_eq!(mailbox.post(message), if room { Ok(()) } else { Err(Full(message)) });
                        if room {
                            queued.push_back(message);
                        }
                    }
                    1 | 2 => {
                        let permit = mailbox.reserve();
                        prop_assert_eq!(permit.is_some(), room);
                        permits.extend(permit);
                    }
                    3 => {
                        if let Some(permit) = permits.pop() {
                            permit.post(message);
                            queued.push_back(message);
                        }
                    }
                    4 => drop(permits.pop()),
                    _ => {
                        let mut drained = VecDeque::new();
                        mailbox.drain(&mut drained);
                        prop_assert_eq!(&drained, &queued);
                        queued.clear();
                    }
                }
                prop_assert_eq!(mailbox.occupied(), queued.len() + permits.len());
                prop_assert_eq!(mailbox.pending(), !queued.is_empty());
            }
        }
    }

    #[test]
    fn threads_lose_nothing_and_keep_each_senders_order() {
        const SENDERS: u32 = 3;
        const EACH: u32 = 5_000;
        let (mailbox, bell) = mailbox(64);
        std::thread::scope(|scope| {
            for sender in 0..SENDERS {
                let mailbox = mailbox.clone();
                scope.spawn(move || {
                    for count in 0..EACH {
                        let message = sender << 16 | count;
                        if count % 2 == 0 {
                            while mailbox.post(message).is_err() {
                                std::thread::yield_now();
                            }
                        } else {
                            let permit = loop {
                                match mailbox.reserve() {
                                    Some(permit) => break permit,
                                    None => std::thread::yield_now(),
                                }
                            };
                            permit.post(message);
                        }
                    }
                });
            }
            let mut next = [0; SENDERS as usize];
            let mut inbox = VecDeque::new();
            while next.iter().sum::<u32>() < SENDERS * EACH {
                let seen = bell.rung();
                if mailbox.prepare_to_park() {
                    bell.sleep_until_rung_more_than(seen);
                    mailbox.resume();
                }
                mailbox.drain(&mut inbox);
                for message in inbox.drain(..) {
                    let (sender, count) = (message >> 16, message & 0xffff);
                    assert_eq!(count, next[sender as usize]);
                    next[sender as usize] += 1;
                }
            }
        });
        assert_eq!(mailbox.occupied(), 0);
    }
}
