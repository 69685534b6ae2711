//! How a turn waits for something to do.
//!
//! Most sources are announced by the kernel, and waiting is one `epoll_wait`. Some are not: a ring in shared
//! memory whose writer makes no system call while its reader is up. While a handler has such sources up
//! ([`Handler::busy_poll`]) the wait polls them instead, and asks the kernel only every [`ASK_NS`], so that
//! neither kind starves the other and a turn that finds work in a ring costs no system call. Before the
//! reactor sleeps they have to go to sleep too, each by its own handshake ([`Handler::prepare_to_sleep`]):
//! then they ring a descriptor.

use crate::turn::{Reactor, Wait};
use crate::{BusyPoll, Handler};
use std::io;
use std::time::Instant;
use thalweg_sync::patience::{Patience, WAKE_NS};
use thalweg_sys::epoll::Timeout;
use thalweg_sys::{clock, process};

/// The kernel is asked at least this often while other sources keep the reactor busy.
const ASK_NS: u64 = 50_000;
/// Peers whose work is not on other threads answer within this, so until then the reactor does not yield.
const ALONE_NS: u64 = 2_000;
/// Looks at one connection between any two at all of them.
const GLANCES: u32 = 6;
/// How often a reactor makes way for a peer on its own processor before it sleeps.
const YIELDS_MAX: u32 = 2;

impl<H: Handler> Reactor<H> {
    pub(crate) fn wait(&mut self, limit: usize, wait: Wait) -> io::Result<()> {
        // One that failed before may have read them.
        self.has_clocks = false;
        if self.core.stopping || wait == Wait::Poll {
            return self.ask(limit, Timeout::Now);
        }
        match self.handler.busy_poll(&mut self.core) {
            BusyPoll::Asleep if self.has_messages() => self.ask(limit, Timeout::Now),
            BusyPoll::Asleep => self.wait_for_kernel(limit, wait),
            found => self.wait_for_both(found, limit, wait),
        }
    }

    fn wait_for_kernel(&mut self, limit: usize, wait: Wait) -> io::Result<()> {
        if !(self.spin.is_enabled() || self.core.notes_served()) {
            // Nobody asks when it began.
            return self.sleep(limit, wait);
        }
        let began_ns = match self.core.ended_ns {
            0 => clock::monotonic_ns(),
            ended_ns => ended_ns,
        };
        self.core.turn_is_over(began_ns);
        if !self.spin.is_enabled() {
            return self.sleep(limit, wait);
        }
        let outcome = if self.spin.is_worth() {
            self.look_again(limit, began_ns, wait)
        } else {
            self.sleep(limit, wait)
        };
        // A glance that found something has read them before it.
        if !std::mem::replace(&mut self.has_clocks, true) {
            self.core.read_clocks();
        }
        self.spin.record(self.core.now_ns.saturating_sub(began_ns));
        outcome
    }

    /// Looks at mailbox, descriptors and timers again and again for a moment, then sleeps. Makes way
    /// meanwhile: the thread that has the work may be waiting for this very processor.
    fn look_again(&mut self, limit: usize, began_ns: u64, wait: Wait) -> io::Result<()> {
        let due_ns = self.due_ns(began_ns, wait);
        let mut patience = Patience::for_peer_at(began_ns, ALONE_NS);
        loop {
            self.ask(limit, Timeout::Now)?;
            if self.events.is_empty() && self.glance() {
                return Ok(());
            }
            let now_ns = clock::monotonic_ns();
            if !self.events.is_empty() || self.core.mailbox.pending() || now_ns >= due_ns {
                return Ok(());
            }
            if !patience.lasts() {
                // Another source may end the sleep than the one that brought work before.
                self.only = None;
                return self.sleep(limit, wait);
            }
        }
    }

    /// Looks a few times at the connection that was ready last, if it was one alone: it is likely to be the
    /// next, and then the kernel need not be asked first which one is.
    fn glance(&mut self) -> bool {
        let Some(key) = self.only.filter(|key| self.core.is_alive(*key)) else { return false };
        self.has_clocks = (0..GLANCES).any(|_| {
            self.core.read_clocks();
            self.handler.glance(&mut self.core, key)
        });
        self.has_clocks
    }

    /// Looks at the handler's own sources all the time and at everything else once in a while; sleeps once
    /// work has become rare, or none can come while this thread runs.
    fn wait_for_both(&mut self, mut found: BusyPoll, limit: usize, wait: Wait) -> io::Result<()> {
        let began_ns = clock::monotonic_ns();
        self.core.turn_is_over(began_ns);
        let due_ns = self.due_ns(began_ns, wait);
        let spin_ns = if self.spin_for_peers.is_worth() { WAKE_NS } else { 0 };
        let (mut now_ns, mut yields, mut patience) = (began_ns, 0, None);
        // What other threads are at ends when it ends, however fast peers have been.
        let is_for_work = found == BusyPoll::Working;
        let looks_for_work = self.spin_for_peers.is_enabled() && self.work.is_quick();
        loop {
            if now_ns.saturating_sub(self.asked_ns) >= ASK_NS {
                self.asked_ns = now_ns;
                self.ask(limit, Timeout::Now)?;
            } else {
                self.events.clear();
            }
            let busy = found == BusyPoll::Ready || !self.events.is_empty();
            if busy || self.has_messages() || now_ns >= due_ns {
                break;
            }
            match found {
                BusyPoll::Sharing if yields < YIELDS_MAX => {
                    yields += 1;
                    process::yield_now();
                }
                BusyPoll::Working
                    if looks_for_work && patience.get_or_insert_with(|| Patience::new(ALONE_NS)).lasts() => {}
                BusyPoll::Quiet if now_ns.saturating_sub(began_ns) < spin_ns => std::hint::spin_loop(),
                _ => {
                    self.sleep_with_all(limit, wait)?;
                    now_ns = clock::monotonic_ns();
                    break;
                }
            }
            now_ns = clock::monotonic_ns();
            found = self.handler.busy_poll(&mut self.core);
        }
        let waited_ns = now_ns.saturating_sub(began_ns);
        if is_for_work {
            self.work.record(waited_ns);
        } else {
            self.spin_for_peers.record(waited_ns);
        }
        Ok(())
    }

    fn sleep_with_all(&mut self, limit: usize, wait: Wait) -> io::Result<()> {
        if !self.handler.prepare_to_sleep(&mut self.core) {
            // Something came meanwhile; the turn finds it.
            return Ok(());
        }
        self.sleep(limit, wait)
    }

    fn sleep(&mut self, limit: usize, wait: Wait) -> io::Result<()> {
        let timeout = self.timeout(wait);
        if !self.core.mailbox.prepare_to_park() {
            return self.ask(limit, Timeout::Now);
        }
        let outcome = self.ask(limit, timeout);
        self.core.mailbox.resume();
        outcome
    }

    fn ask(&mut self, limit: usize, timeout: Timeout) -> io::Result<()> {
        self.core.waits += 1;
        self.core.epoll.wait(&mut self.events, limit, timeout)
    }

    /// When the next timer is due, or the caller wants to be back.
    fn due_ns(&self, now_ns: u64, wait: Wait) -> u64 {
        let timer_ns = self.core.wheel.next_tick().map_or(u64::MAX, |tick| tick.saturating_mul(1_000_000));
        left_ns(wait).map_or(timer_ns, |left_ns| timer_ns.min(now_ns.saturating_add(left_ns)))
    }

    /// How long to sleep: to the next timer, or to what the caller allows. Rounded up, so that a turn
    /// woken by it finds the timer due.
    fn timeout(&self, wait: Wait) -> Timeout {
        let until_timer_ns = self
            .core
            .wheel
            .next_tick()
            .map(|tick| tick.saturating_mul(1_000_000).saturating_sub(clock::monotonic_ns()));
        match until_timer_ns.into_iter().chain(left_ns(wait)).min() {
            None => Timeout::Never,
            Some(0) => Timeout::Now,
            Some(ns) => {
                let ms = ns.div_ceil(1_000_000).min(i32::MAX as u64);
                Timeout::Milliseconds(u32::try_from(ms).unwrap_or(u32::MAX))
            }
        }
    }

    fn has_messages(&self) -> bool {
        !self.inbox.is_empty() || !self.core.ready_queue.is_empty() || self.core.mailbox.pending()
    }
}

/// Nanoseconds that a caller allows from now on; `None`: as many as it takes.
fn left_ns(wait: Wait) -> Option<u64> {
    match wait {
        Wait::Poll => Some(0),
        Wait::Until(instant) => {
            let left = instant.saturating_duration_since(Instant::now());
            Some(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
        }
        Wait::Block => None,
    }
}

#[cfg(test)]
mod tests;
