//! Which logs are new, for a caller that wants to hear of every log.
//!
//! In the process that owns the store ids only grow and are never reused, so it is enough to remember the
//! last one: that costs one load when no log was created, and a look at those that are new when one was. An
//! attached process finds logs in the order of their commits, which need not be that of their ids, and does
//! not hear of ids that were never committed, so it remembers which logs it reported, and how many had come
//! by then: mostly it looks at those alone that came since.

use crate::attach::Attached;
use crate::error::ReadError;
use crate::log::Log;
use crate::progress::Ended;
use crate::source::ReadContext;
use crate::store::Store;
use crate::{LogId, Position};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Hears of logs as they become visible, each once, in the order of their creation.
#[derive(Clone, Debug)]
pub struct NewLogs {
    context: ReadContext,
    register: Register,
    ready: VecDeque<Arc<Log>>,
    seen: Position,
}

/// Where logs are looked up, and which ones were reported.
#[derive(Clone, Debug)]
enum Register {
    Own(Own),
    Neighbour { attached: Attached, told: BTreeSet<LogId>, created: Option<u64> },
}

/// The logs of this process's own store.
#[derive(Clone, Debug)]
struct Own {
    store: Store,
    /// All logs below this id were reported or will never be visible; none at or above it was reported.
    below: LogId,
    /// Logs at or above `below` that are not reported, because they existed at the beginning.
    known: BTreeSet<LogId>,
}

impl Store {
    /// Hears of every log there is; without `existing`, of those that become visible from now on. Complexity:
    /// every log is looked at once; then those that are new, and those on their way to be visible.
    ///
    /// ```
    /// use thalweg_log::{Options, Store};
    /// let store = Store::memory(Options::default())?;
    /// let mut new_logs = store.new_logs(false);
    /// assert!(new_logs.next()?.is_none());
    /// store.log(b"orders")?;
    /// assert_eq!(new_logs.next()?.map(|log| log.name().to_vec()), Some(b"orders".to_vec()));
    /// assert!(new_logs.next()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new_logs(&self, existing: bool) -> NewLogs {
        let mut own = Own { store: self.clone(), below: 0, known: BTreeSet::new() };
        if !existing && let Some((sure, visible)) = own.walk() {
            own.below = sure;
            own.known = visible.iter().map(|log| log.id()).filter(|id| *id >= sure).collect();
        }
        NewLogs::new(self.context(), Register::Own(own))
    }
}

impl Attached {
    /// Hears of every log of the other process's store; without `existing`, of those to come. Complexity:
    /// every log is looked at here; then a few for each that is new.
    ///
    /// # Errors
    /// [`ReadError::Io`]: it cannot be found out which there are.
    pub fn new_logs(&self, existing: bool) -> Result<NewLogs, ReadError> {
        let register = Register::Neighbour { attached: self.clone(), told: BTreeSet::new(), created: None };
        let mut new_logs = NewLogs::new(self.context.clone(), register);
        if !existing {
            new_logs.look()?;
            new_logs.ready.clear();
        }
        Ok(new_logs)
    }
}

impl NewLogs {
    fn new(context: ReadContext, register: Register) -> NewLogs {
        NewLogs { context, register, ready: VecDeque::new(), seen: Position::MAX }
    }

    /// The next log; `None` when none has come yet.
    ///
    /// # Errors
    /// [`ReadError::Io`] in a process that is attached: it cannot be found out which there are by now. The
    /// next call tries again.
    #[allow(clippy::should_implement_trait, reason = "it goes on after None")]
    pub fn next(&mut self) -> Result<Option<Arc<Log>>, ReadError> {
        if self.ready.is_empty() {
            self.look()?;
        }
        Ok(self.ready.pop_front())
    }

    /// Sleeps until something was committed since the last look, or the time is over; `false`: the time is
    /// over. What was committed need not be the creation of a log. In a process that is attached it also
    /// returns when segments were begun or removed, so that the [`NewLogs::next`] that follows lets go of
    /// those that were removed; and within about a second once the store was moved or removed, which
    /// [`NewLogs::next`] then reports. In the process whose store it is it also returns once that was closed,
    /// which [`NewLogs::ended`] says.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.context.wait(timeout, || self.is_news())
    }

    /// The same for a task. What it may do on the thread that wakes it says
    /// [`Cursor::changed`](crate::Cursor::changed).
    ///
    /// # Errors
    /// In a process that is attached: no thread could be started to wake it. The next call tries again.
    pub async fn changed(&self) -> io::Result<()> {
        self.context.access.task_waits()?;
        self.context.gate.until(|| self.is_news()).await;
        Ok(())
    }

    /// Why no more logs will come, once that is so and [`NewLogs::next`] has named the last: always
    /// [`Ended::StoreClosed`].
    ///
    /// ```
    /// use thalweg_log::{Ended, Options, Store};
    /// let store = Store::memory(Options::default())?;
    /// let mut new_logs = store.new_logs(true);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| store.close());
    ///     while new_logs.ended().is_none() {
    ///         new_logs.wait(None);
    ///         while let Some(log) = new_logs.next()? {
    ///             println!("{log:?}");
    ///         }
    ///     }
    ///     Ok::<(), thalweg_log::ReadError>(())
    /// })?;
    /// assert_eq!(new_logs.ended(), Some(Ended::StoreClosed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ended(&self) -> Option<Ended> {
        // In this order: nothing is committed once it is over.
        let is_over = self.ready.is_empty() && self.context.access.is_over();
        (is_over && self.context.control.visible() == self.seen).then_some(Ended::StoreClosed)
    }

    fn is_news(&self) -> bool {
        let access = &self.context.access;
        let moved = self.context.control.visible() != self.seen;
        !self.ready.is_empty() || moved || !access.is_listed() || access.is_over() || access.is_gone()
    }

    fn look(&mut self) -> Result<(), ReadError> {
        // In this order: what becomes visible later is seen by the next look.
        let (visible, access) = (self.context.control.visible(), &self.context.access);
        match &mut self.register {
            Register::Own(own) => own.look(&mut self.ready),
            // Where the list of segments is not the present one, it may keep removed segments mapped.
            Register::Neighbour { .. } if visible == self.seen && access.is_listed() && !access.is_gone() => {
            }
            Register::Neighbour { attached, told, created } => {
                let mut born = Vec::new();
                attached.visit_created(created, told, |told, log| {
                    #[cfg(test)]
                    LOOKS.set(LOOKS.get() + 1);
                    if log.visible().is_some() && told.insert(log.id()) {
                        born.push(log.clone());
                    }
                })?;
                born.sort_by_key(|log| log.id());
                self.ready.extend(born);
            }
        }
        self.seen = visible;
        Ok(())
    }
}

impl Own {
    fn look(&mut self, ready: &mut VecDeque<Arc<Log>>) {
        if let Some((sure, visible)) = self.walk() {
            let surely = surely(sure, visible);
            ready.extend(surely.into_iter().filter(|log| !self.known.remove(&log.id())));
            self.below = sure;
        }
    }

    /// The visible logs at or above `below`, in no order, and the id below which there can be no others.
    /// `None`: no log was created since.
    fn walk(&self) -> Option<(LogId, Vec<Arc<Log>>)> {
        // Read before the walk: every id below it belongs to a log that the walk meets, or to none.
        let next = *self.store.shared.next_log.lock();
        if next <= self.below {
            return None;
        }
        let (mut visible, mut coming) = (Vec::new(), LogId::MAX);
        self.store.shared.catalogue.visit_from(self.below, |log| {
            #[cfg(test)]
            LOOKS.set(LOOKS.get() + 1);
            match log.visible() {
                Some(_) => visible.push(log.clone()),
                None if log.staged().is_some() => coming = coming.min(log.id()),
                None => {}
            }
        });
        Some((next.min(coming), visible))
    }
}

/// Of the logs that a walk met, those to report now, in order. Below `sure` it met every log, and each is
/// visible or never will be. At or above `sure` it may have met some logs and missed older ones; visible logs
/// there wait for those, whose commits will cause another look.
fn surely(sure: LogId, mut visible: Vec<Arc<Log>>) -> Vec<Arc<Log>> {
    visible.retain(|log| log.id() < sure);
    visible.sort_by_key(|log| log.id());
    visible
}

#[cfg(test)]
thread_local! {
    /// Logs that this thread looked at.
    static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Commit, Config, Lifetime, Options};
    use thalweg_sys::disk::Disk;

    fn config() -> Config {
        Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited }
    }

    fn logs(ids: &[LogId]) -> Vec<Arc<Log>> {
        ids.iter().map(|id| Arc::new(Log::new(*id, b"log", config(), 0, None))).collect()
    }

    #[test]
    fn who_hears_of_what_comes_hears_of_what_is_on_its_way() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { committer_thread: false, ..Options::default() };
        let (store, _) = Store::open(&Disk::Real, directory.path(), options).unwrap();
        let create =
            |name: &[u8]| drop(store.create(name, &config(), None, &Commit::default(), None).unwrap());
        create(b"there");
        store.flush().unwrap();
        create(b"on its way");
        let mut new_logs = store.new_logs(false);
        assert!(new_logs.next().unwrap().is_none());
        create(b"to come");
        assert!(new_logs.next().unwrap().is_none());
        store.flush().unwrap();
        let told: Vec<_> =
            std::iter::from_fn(|| new_logs.next().unwrap()).map(|log| log.name().to_vec()).collect();
        assert_eq!(told, [&b"on its way"[..], b"to come"]);
    }

    #[test]
    fn logs_that_are_made_meanwhile_are_told_of_once_and_in_order() {
        const COUNT: u64 = 3_000;
        let store = Store::memory(Options::default()).unwrap();
        let mut new_logs = store.new_logs(true);
        let makers: Vec<_> = (0..2)
            .map(|maker| {
                let store = store.clone();
                std::thread::spawn(move || {
                    (0..COUNT / 2).for_each(|n| drop(store.log(format!("{maker}-{n}").as_bytes()).unwrap()));
                })
            })
            .collect();
        let mut told = Vec::new();
        while told.len() < COUNT as usize {
            match new_logs.next().unwrap() {
                Some(log) => told.push(log.id()),
                None => assert!(new_logs.wait(Some(Duration::from_secs(60))), "{} were told of", told.len()),
            }
        }
        makers.into_iter().for_each(|maker| maker.join().unwrap());
        assert!(told.is_sorted_by(|a, b| a < b), "each once, in the order of their creation");
        assert!(new_logs.next().unwrap().is_none());
    }

    #[test]
    fn a_log_that_is_created_has_nobody_look_at_those_that_were_there() {
        const LOGS: usize = 50;
        let store = Store::memory(Options::default()).unwrap();
        let create = |n: usize| store.log(format!("{n}").as_bytes()).unwrap().id();
        (0..LOGS).for_each(|n| _ = create(n));
        let mut listeners = [store.new_logs(true), store.new_logs(false)];
        assert_eq!(std::iter::from_fn(|| listeners[0].next().unwrap()).count(), LOGS);
        LOOKS.set(0);
        for n in LOGS..2 * LOGS {
            let new = create(n);
            for listener in &mut listeners {
                assert_eq!(listener.next().unwrap().map(|log| log.id()), Some(new));
                assert!(listener.next().unwrap().is_none());
            }
        }
        assert_eq!(LOOKS.take(), 2 * LOGS, "each new one once, by each of them");
    }

    #[test]
    fn a_log_that_another_process_creates_has_nobody_look_at_those_that_were_there() {
        const LOGS: usize = 50;
        let directory = tempfile::tempdir().unwrap();
        let options = Options { durability: crate::Durability::Os, ..Options::default() };
        let (store, _) = Store::open(&Disk::Real, directory.path(), options).unwrap();
        let create = |n: usize| store.log(format!("{n}").as_bytes()).unwrap();
        (0..LOGS).for_each(|n| _ = create(n));
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let mut listeners = [attached.new_logs(true).unwrap(), attached.new_logs(false).unwrap()];
        assert_eq!(std::iter::from_fn(|| listeners[0].next().unwrap()).count(), LOGS);
        LOOKS.set(0);
        for n in LOGS..2 * LOGS {
            let new = create(n).id();
            for listener in &mut listeners {
                assert_eq!(listener.next().unwrap().map(|log| log.id()), Some(new));
                assert!(listener.next().unwrap().is_none());
            }
        }
        assert_eq!(LOOKS.take(), 2 * LOGS, "each new one once, by each of them");
        // One that is late is told of each all the same, once and in order, and remembers few that are gone.
        for n in 2 * LOGS..10 * LOGS {
            let log = create(n);
            let there = log.staged().unwrap().version;
            _ = (n % 2 == 0).then(|| store.delete(&log, there, 0, None).unwrap());
        }
        for listener in &mut listeners {
            let told: Vec<_> = std::iter::from_fn(|| listener.next().unwrap()).map(|log| log.id()).collect();
            assert!(told.is_sorted_by(|a, b| a < b) && told.len() == 4 * LOGS, "{}", told.len());
        }
        for n in 0..10 * LOGS {
            let log = store.log(b"passing").unwrap();
            assert_eq!(listeners[0].next().unwrap().map(|log| log.id()), Some(log.id()), "{n}");
            store.delete(&log, log.staged().unwrap().version, 0, None).unwrap();
        }
        let Register::Neighbour { told, .. } = &listeners[0].register else { panic!("it is attached") };
        assert!(told.len() < 14 * LOGS + 64 + 1, "{}", told.len());
    }

    #[test]
    fn a_commit_that_creates_no_log_has_nobody_look_at_all_of_them() {
        const LOGS: usize = 50;
        let directory = tempfile::tempdir().unwrap();
        let options = Options { durability: crate::Durability::Os, ..Options::default() };
        let (store, _) = Store::open(&Disk::Real, directory.path(), options).unwrap();
        let logs: Vec<_> = (0..LOGS).map(|n| store.log(format!("{n}").as_bytes()).unwrap()).collect();
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let mut new_logs = attached.new_logs(true).unwrap();
        assert_eq!(std::iter::from_fn(|| new_logs.next().unwrap()).count(), LOGS);
        LOOKS.set(0);
        for time in 0..100 {
            store.append(&logs[time as usize % LOGS], b"entry", time).unwrap();
            assert!(new_logs.next().unwrap().is_none());
        }
        assert_eq!(LOOKS.take(), 0);
        store.log(b"new").unwrap();
        assert_eq!(new_logs.next().unwrap().map(|log| log.name().to_vec()), Some(b"new".to_vec()));
        store.delete(&logs[0], logs[0].staged().unwrap().version, 200, None).unwrap();
        assert!(new_logs.next().unwrap().is_none());
        store.log(b"0").unwrap();
        assert_eq!(new_logs.next().unwrap().map(|log| log.name().to_vec()), Some(b"0".to_vec()));
    }

    #[test]
    fn logs_that_a_walk_missed_while_they_were_made_hold_up_those_made_after_them() {
        let walk = |sure, visible: &[LogId]| -> Vec<LogId> {
            surely(sure, logs(visible)).iter().map(|log| log.id()).collect()
        };
        // 10 and 11 were put where the walk had been already, 12 and 13 where it had not; then 11 is not
        // visible yet.
        assert_eq!(walk(10, &[9, 8, 13, 12]), [8, 9]);
        assert_eq!(walk(11, &[13, 12, 10]), [10]);
        assert_eq!(walk(14, &[11, 13, 12]), [11, 12, 13]);
    }
}
