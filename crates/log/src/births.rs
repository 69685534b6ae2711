//! Which logs are new: for whoever wants to hear of every log that comes.
//!
//! Where the store is this process's own, ids only grow and are never reused, so whoever remembers the last one it saw has
//! missed nothing: that costs one load when no log was created, and a look at the catalogue when one was. A neighbour
//! finds logs in the order of their commits, which need not be that of their ids, and does not hear of ids that were
//! given out in vain, so it remembers which ones it told of.

use crate::attach::Attached;
use crate::log::Log;
use crate::source::Sight;
use crate::store::Store;
use crate::{LogId, Position};
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Hears of logs as they become visible, each once, in the order of their creation.
#[derive(Clone, Debug)]
pub struct Births {
    sight: Sight,
    register: Register,
    ready: VecDeque<Arc<Log>>,
    seen: Position,
}

/// Where logs are looked up, and which ones were told of.
#[derive(Clone, Debug)]
enum Register {
    Own(Own),
    Neighbour { attached: Attached, told: BTreeSet<LogId> },
}

#[derive(Clone, Debug)]
struct Own {
    store: Store,
    told: Told,
}

/// What of the logs of this process's own store was told.
#[derive(Clone, Debug)]
struct Told {
    /// Every log below it was told of, or is not going to be seen.
    below: LogId,
    /// Logs above that were told of already, because one between them is not visible yet.
    ahead: Vec<LogId>,
}

impl Store {
    /// Hears of every log there is, or if `existing` is not asked for, of those to come.
    ///
    /// ```
    /// use thalweg_log::{Options, Store};
    /// let store = Store::memory(Options::default())?;
    /// let mut births = store.births(false);
    /// assert!(births.next().is_none());
    /// store.log(b"orders")?;
    /// assert_eq!(births.next().map(|log| log.name().to_vec()), Some(b"orders".to_vec()));
    /// assert!(births.next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn births(&self, existing: bool) -> Births {
        let below = if existing { 0 } else { *self.shared.next_log.lock() };
        let told = Told { below, ahead: Vec::new() };
        Births::new(self.sight(), Register::Own(Own { store: self.clone(), told }))
    }
}

impl Attached {
    /// Hears of every log of the other process's store, or if `existing` is not asked for, of those to come.
    pub fn births(&self, existing: bool) -> Births {
        let register = Register::Neighbour { attached: self.clone(), told: BTreeSet::new() };
        let mut births = Births::new(self.sight.clone(), register);
        if !existing {
            births.look();
            births.ready.clear();
        }
        births
    }
}

impl Births {
    fn new(sight: Sight, register: Register) -> Births {
        Births { sight, register, ready: VecDeque::new(), seen: Position::MAX }
    }

    /// The next log; `None` when none has come yet.
    #[allow(clippy::should_implement_trait, reason = "it goes on after None")]
    pub fn next(&mut self) -> Option<Arc<Log>> {
        if self.ready.is_empty() {
            self.look();
        }
        self.ready.pop_front()
    }

    /// Sleeps until something was committed since the last look, or the time is over; whether something was. It
    /// need not have been a log's creation.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.sight.gate.wait(timeout, || self.is_news())
    }

    /// The same for a task.
    pub async fn changed(&self) {
        self.sight.home.task_waits();
        poll_fn(|context| match self.sight.gate.register(context.waker(), || self.is_news()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    fn is_news(&self) -> bool {
        !self.ready.is_empty() || self.sight.control.visible() != self.seen
    }

    fn look(&mut self) {
        // In this order: what becomes visible later is seen by the next look.
        let before = std::mem::replace(&mut self.seen, self.sight.control.visible());
        match &mut self.register {
            Register::Own(own) => own.look(&mut self.ready),
            Register::Neighbour { .. } if before == self.seen => {}
            Register::Neighbour { attached, told } => {
                let (mut born, mut known) = (Vec::new(), BTreeSet::new());
                attached.visit(|log| {
                    let is_told = told.contains(&log.id());
                    if is_told || log.visible().is_some() {
                        known.insert(log.id());
                    }
                    if !is_told && log.visible().is_some() {
                        born.push(log.clone());
                    }
                });
                // Without those that are gone: an id never comes again.
                *told = known;
                born.sort_by_key(|log| log.id());
                self.ready.extend(born);
            }
        }
    }
}

impl Own {
    fn look(&mut self, ready: &mut VecDeque<Arc<Log>>) {
        // Before the walk: every id below it belongs to a log that the walk comes by, or to none.
        let next = *self.store.shared.next_log.lock();
        if next <= self.told.below {
            return;
        }
        let (mut visible, mut coming) = (Vec::new(), LogId::MAX);
        self.store.visit(|log| match log.visible() {
            _ if log.id() < self.told.below => {}
            Some(_) => visible.push(log.clone()),
            None if log.staged().is_some() => coming = coming.min(log.id()),
            None => {}
        });
        ready.extend(self.told.go_on(next.min(coming), visible));
    }
}

impl Told {
    /// Takes what a walk came by; the logs to tell of now. Below `sure` it came by every log, and every one is visible or never
    /// will be; of those from there on it may have come by some and missed others, in whatever order they were made.
    fn go_on(&mut self, sure: LogId, visible: Vec<Arc<Log>>) -> Vec<Arc<Log>> {
        let mut fresh = visible;
        fresh.retain(|log| !self.ahead.contains(&log.id()));
        fresh.sort_by_key(|log| log.id());
        self.ahead.extend(fresh.iter().map(|log| log.id()));
        self.ahead.retain(|id| *id >= sure);
        self.below = sure;
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Lifetime};

    fn logs(ids: &[LogId]) -> Vec<Arc<Log>> {
        let config = || Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
        ids.iter().map(|id| Arc::new(Log::new(*id, b"log", config(), 0, None))).collect()
    }

    #[test]
    fn logs_that_a_walk_missed_while_they_were_made_are_told_of_by_the_next() {
        let mut told = Told { below: 0, ahead: Vec::new() };
        let mut walk = |sure, visible: &[LogId]| -> Vec<LogId> {
            told.go_on(sure, logs(visible)).iter().map(|log| log.id()).collect()
        };
        // 10 and 11 were put where the walk had been already, 12 and 13 where it had not; 12 is not visible yet.
        assert_eq!(walk(10, &[9, 8, 13]), [8, 9, 13]);
        assert_eq!(walk(11, &[13, 12, 10]), [10, 12]);
        assert_eq!(walk(14, &[11, 13, 12]), [11]);
        assert_eq!(walk(15, &[14]), [14]);
    }
}
