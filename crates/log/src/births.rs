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
    /// `coming`: one was not visible yet at the last look, so the next one looks in any case.
    Neighbour {
        attached: Attached,
        told: BTreeSet<LogId>,
        coming: bool,
    },
}

#[derive(Clone, Debug)]
struct Own {
    store: Store,
    /// Every log below it was told of, or is not going to be seen.
    told: LogId,
    /// Logs above that were told of already, because one between them is not visible yet.
    ahead: Vec<LogId>,
    /// The oldest one that is not visible yet.
    coming: Option<Arc<Log>>,
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
        let told = if existing { 0 } else { *self.shared.next_log.lock() };
        let own = Own { store: self.clone(), told, ahead: Vec::new(), coming: None };
        Births::new(self.sight(), Register::Own(own))
    }
}

impl Attached {
    /// Hears of every log of the other process's store, or if `existing` is not asked for, of those to come.
    pub fn births(&self, existing: bool) -> Births {
        let register = Register::Neighbour { attached: self.clone(), told: BTreeSet::new(), coming: false };
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
        // A log is shown a moment after what is visible has moved past its creation.
        let coming = match &self.register {
            Register::Own(own) => own.coming.as_ref(),
            Register::Neighbour { .. } => None,
        };
        let shown = coming.is_some_and(|log| log.visible().is_some());
        !self.ready.is_empty() || self.sight.control.visible() != self.seen || shown
    }

    fn look(&mut self) {
        // In this order: what becomes visible later is seen by the next look.
        let before = std::mem::replace(&mut self.seen, self.sight.control.visible());
        match &mut self.register {
            Register::Own(own) => own.look(&mut self.ready),
            Register::Neighbour { coming: false, .. } if before == self.seen => {}
            Register::Neighbour { attached, told, coming } => {
                *coming = false;
                let (mut born, mut known) = (Vec::new(), BTreeSet::new());
                attached.visit(|log| {
                    let is_told = told.contains(&log.id());
                    if is_told {
                        known.insert(log.id());
                    }
                    match log.visible() {
                        _ if is_told => {}
                        Some(_) => born.push(log.clone()),
                        None => *coming = true,
                    }
                });
                // Without those that are gone: an id never comes again.
                known.extend(born.iter().map(|log| log.id()));
                *told = known;
                born.sort_by_key(|log| log.id());
                self.ready.extend(born);
            }
        }
    }
}

impl Own {
    fn look(&mut self, ready: &mut VecDeque<Arc<Log>>) {
        let next = *self.store.shared.next_log.lock();
        if next <= self.told {
            return;
        }
        let mut visible = Vec::new();
        self.coming = None;
        self.store.visit(|log| match log.visible() {
            _ if log.id() < self.told => {}
            Some(_) => visible.push(log.clone()),
            None if log.staged().is_some() => {
                self.coming = self.coming.take().filter(|first| first.id() < log.id()).or(Some(log.clone()));
            }
            None => {}
        });
        visible.sort_by_key(|log| log.id());
        for log in visible {
            if !self.ahead.contains(&log.id()) {
                self.ahead.push(log.id());
                ready.push_back(log);
            }
        }
        let coming = self.coming.as_ref().map_or(next, |log| log.id());
        self.told = coming;
        self.ahead.retain(|id| *id >= coming);
    }
}
