//! When the streams that are followed are to be renewed, so that none with a sliding lifetime ends meanwhile.
//!
//! A handler has no timers. Owns what is planned, and a thread, from the first plan on, that sleeps until the
//! earliest is due, tells the service's [`News`], and ends when this is dropped. Checked by the tests below
//! and the service's.

use super::news::News;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const STACK_BYTES: usize = 64 * 1024;

pub(super) struct Renewals {
    news: Arc<News>,
    planned: BTreeSet<(Instant, u64)>,
    alarm: Option<Sender<Instant>>,
}

impl Renewals {
    pub(super) fn new(news: Arc<News>) -> Self {
        Self { news, planned: BTreeSet::new(), alarm: None }
    }

    /// Plans a stream's next renewal, if it has one; when that is.
    pub(super) fn plan(&mut self, topic_id: u64, after_ms: Option<u32>) -> Option<Instant> {
        let at = Instant::now() + Duration::from_millis(after_ms?.into());
        self.planned.insert((at, topic_id));
        if self.planned.first() == Some(&(at, topic_id)) {
            self.set_alarm(at);
        }
        Some(at)
    }

    /// Takes back what was planned for a stream.
    pub(super) fn forget(&mut self, topic_id: u64, planned: Option<Instant>) {
        if let Some(at) = planned {
            self.planned.remove(&(at, topic_id));
        }
    }

    /// The streams that are to be renewed now, and their next renewals planned. There is another alarm for
    /// the others.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<u64> {
        let later = self.planned.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.planned, later);
        if let Some(&(at, _)) = self.planned.first() {
            self.set_alarm(at);
        }
        due.into_iter().map(|(_, topic_id)| topic_id).collect()
    }

    fn set_alarm(&mut self, at: Instant) {
        if self.alarm.is_none() {
            let ((alarm, alarms), news) = (channel(), self.news.clone());
            let builder = std::thread::Builder::new().name("renewals".into()).stack_size(STACK_BYTES);
            match builder.spawn(move || ring(&alarms, &news)) {
                Ok(_) => self.alarm = Some(alarm),
                Err(error) => tracing::error!(%error, "streams may expire while they are followed"),
            }
        }
        if let Some(alarm) = &self.alarm {
            // The thread ends after this.
            let _ = alarm.send(at);
        }
    }
}

/// Tells of the earliest alarm there is, and then waits for the next.
fn ring(alarms: &Receiver<Instant>, news: &News) {
    while let Ok(mut at) = alarms.recv() {
        loop {
            match alarms.recv_timeout(at.saturating_duration_since(Instant::now())) {
                Ok(other) => at = at.min(other),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        news.renewal_due();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_service::Local;

    #[test]
    fn what_is_due_is_told_of_whatever_was_planned_before_it() {
        let local = Local::new("error", 1, || {});
        let news = Arc::new(News::new(local.notifier()));
        let mut renewals = Renewals::new(news.clone());
        let late = renewals.plan(1, Some(u32::MAX));
        assert!(renewals.plan(2, Some(1)).is_some() && renewals.plan(3, Some(2)).is_some());
        assert_eq!(renewals.plan(4, None), None);
        let (begun, mut due) = (Instant::now(), Vec::new());
        while due.len() < 2 {
            if news.take().renewal_due {
                due.extend(renewals.take_due(Instant::now()));
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "nothing is told");
        }
        assert_eq!(due, [2, 3]);
        renewals.forget(1, late);
        assert_eq!(renewals.planned.len(), 0);
    }
}
