//! Which logs are new: for whoever wants to hear of every log that comes.
//!
//! Ids only grow and are never reused, so whoever remembers the last one it saw has missed nothing. Costs one load
//! when no log was created, and a look at the catalogue when one was.

use crate::log::Log;
use crate::store::Store;
use crate::{LogId, Position};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Hears of logs as they become visible, each once, in the order of their creation.
#[derive(Clone, Debug)]
pub struct Births {
    store: Store,
    /// Every log below it was told of, or is not going to be seen.
    told: LogId,
    /// Logs above that were told of already, because one between them is not visible yet.
    ahead: Vec<LogId>,
    ready: VecDeque<Arc<Log>>,
    /// The oldest one that is not visible yet.
    coming: Option<Arc<Log>>,
    seen: Position,
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
        Births {
            store: self.clone(),
            told,
            ahead: Vec::new(),
            ready: VecDeque::new(),
            coming: None,
            seen: Position::MAX,
        }
    }
}

impl Births {
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
        let control = &self.store.shared.control;
        // A log is shown a moment after what is visible has moved past its creation.
        let shown = || self.coming.as_ref().is_some_and(|log| log.visible().is_some());
        let news = || !self.ready.is_empty() || control.visible() != self.seen || shown();
        self.store.shared.gate.wait(timeout, news)
    }

    fn look(&mut self) {
        // In this order: what becomes visible later is seen by the next look.
        self.seen = self.store.shared.control.visible();
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
                self.ready.push_back(log);
            }
        }
        let coming = self.coming.as_ref().map_or(next, |log| log.id());
        self.told = coming;
        self.ahead.retain(|id| *id >= coming);
    }
}
