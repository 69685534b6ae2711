//! A state: its forks, how they are made, kept and rebuilt.

use crate::changes::Changes;
use crate::digest::Root;
use crate::error::Error;
use crate::fork::{Fork, Moment, Place, View};
use crate::journal::{self, CONTENT_TYPE};
use crate::map::{Key, Map, Value};
use crate::session::Session;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Weak};
use thalweg_log::{
    Commit, CommitError, Config, Lifetime, Log, LogId, Offset, Position, Query, Receipt, Start, Store, Time,
    Watch, WatcherId,
};

/// Names a fork: its log's identity, never used again.
pub type ForkId = LogId;

/// Bytes of a key at most.
pub const KEY_BYTES_MAX: usize = 1_024;

/// What may be chosen.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `type` of the messages in the logs.
    pub kind: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { kind: "entry".to_owned() }
    }
}

/// Called once what it waits for is durable, or can no longer become so.
type Callback = Box<dyn FnOnce(Result<(), CommitError>) + Send>;

/// A keyed, forkable state over a store. Clones share it.
///
/// ```
/// use thalweg_log::{Options as StoreOptions, Store};
/// use thalweg_state::{Change, Options, State, View};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Store::memory(StoreOptions::default())?;
/// let state = State::open(&store, "accounts", Options::default())?;
/// let main = state.main();
/// state.write(main, &[Change::Put("ann".into(), b"10"[..].into())].into_iter().collect(), 1)?;
///
/// let fork = state.fork(main, 2)?;
/// state.write(fork, &[Change::Delete("ann".into())].into_iter().collect(), 3)?;
/// assert_eq!(state.get(main, View::Committed, "ann")?.as_deref(), Some(&b"10"[..]));
/// assert_eq!(state.get(fork, View::Committed, "ann")?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct State {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    watcher: Option<WatcherId>,
    name: String,
    options: Options,
    main: ForkId,
    forks: RwLock<BTreeMap<ForkId, Arc<Fork>>>,
    /// Forks with commits on their way, by ticket.
    under_way: Mutex<VecDeque<(Position, Arc<Fork>)>>,
    waiting: Mutex<BTreeMap<Position, Vec<Callback>>>,
    /// The number of the next fork's log.
    next: Mutex<u64>,
}

/// What the store tells, for as long as there is a state.
struct Ear(Mutex<Weak<Shared>>);

impl State {
    /// Opens the state of that name: what its logs come to. The first time it is empty.
    ///
    /// # Errors
    /// [`Error::Foreign`] when a log of these names holds something else; what the log says.
    pub fn open(store: &Store, name: &str, options: Options) -> Result<Self, Error> {
        let main = main_log(store, name)?;
        let ear = Arc::new(Ear(Mutex::new(Weak::new())));
        let watcher = store.watcher(ear.clone());
        let mut logs = vec![main.clone()];
        let prefix = format!("{name}/forks/");
        store.visit(|log| {
            if log.name().starts_with(prefix.as_bytes()) && !log.retained() {
                logs.push(log.clone());
            }
        });
        let next = logs.iter().filter_map(|log| number_of(log, &prefix)).max().map_or(0, |last| last + 1);
        let mut forks = BTreeMap::new();
        // A fork's log begins with what it inherits, so each is replayed by itself; what they share in the logs they do
        // not share in memory, which is paid once, when the state is opened.
        for log in logs {
            let moment = replay(store, &log)?;
            forks.insert(log.id(), Arc::new(Fork::new(log, moment, None)));
        }
        let shared = Arc::new(Shared {
            store: store.clone(),
            watcher,
            name: name.to_owned(),
            options,
            main: main.id(),
            forks: RwLock::new(forks),
            under_way: Mutex::default(),
            waiting: Mutex::default(),
            next: Mutex::new(next),
        });
        *ear.0.lock() = Arc::downgrade(&shared);
        Ok(Self { shared })
    }

    /// The line that all others come from.
    pub fn main(&self) -> ForkId {
        self.shared.main
    }

    /// Every fork, the main line included.
    pub fn forks(&self) -> Vec<ForkId> {
        self.shared.forks.read().keys().copied().collect()
    }

    /// A new fork that begins as `of` is, commits on their way included. Complexity: one log entry, however large the state.
    ///
    /// # Errors
    /// [`Error::NoFork`], and what the log says.
    pub fn fork(&self, of: ForkId, time: Time) -> Result<ForkId, Error> {
        let parent = self.find(of)?;
        let moment = parent.moment(View::Pending);
        self.branch(&parent, moment, time)
    }

    /// A new fork that begins as `of` was when its log ended at `offset`. Complexity: that of replaying up to there.
    ///
    /// # Errors
    /// [`Error::NoState`] when no commit ended there; else as [`State::fork`].
    pub fn fork_at(&self, of: ForkId, offset: Offset, time: Time) -> Result<ForkId, Error> {
        let parent = self.find(of)?;
        let map = self.at(of, offset)?;
        self.branch(&parent, Moment { map, offset }, time)
    }

    fn branch(&self, parent: &Fork, moment: Moment, time: Time) -> Result<ForkId, Error> {
        let shared = &*self.shared;
        let fork = thalweg_log::Fork { parent: parent.log.clone(), at: moment.offset, asked: [0; 2] };
        loop {
            let number = {
                let mut next = shared.next.lock();
                *next += 1;
                *next - 1
            };
            let name = format!("{}/forks/{number}", shared.name);
            let commit = Commit { time, ..Commit::default() };
            match shared.store.create(name.as_bytes(), &config(), Some(&fork), &commit, shared.watcher) {
                Err(CommitError::Exists) => {}
                Err(error) => return Err(error.into()),
                Ok((log, _)) => {
                    let id = log.id();
                    let fork = Fork::new(log, moment, Some(parent.rooted()));
                    shared.forks.write().insert(id, Arc::new(fork));
                    return Ok(id);
                }
            }
        }
    }

    /// Drops a fork. What it shares with others stays theirs.
    ///
    /// # Errors
    /// [`Error::MainLine`], [`Error::NoFork`], and what the log says.
    pub fn drop_fork(&self, fork: ForkId, time: Time) -> Result<Receipt, Error> {
        if fork == self.shared.main {
            return Err(Error::MainLine);
        }
        let found = self.find(fork)?;
        found.drop_it();
        let staged = found.log.staged().ok_or(Error::NoFork(fork))?;
        let receipt = self.shared.store.delete(&found.log, staged.version, time, self.shared.watcher)?;
        self.shared.forks.write().remove(&fork);
        Ok(receipt)
    }

    /// What a key holds.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn get(&self, fork: ForkId, view: View, key: &str) -> Result<Option<Value>, Error> {
        Ok(self.find(fork)?.moment(view).map.get(key).cloned())
    }

    /// At most `limit` entries from `from` on, in the order of their keys.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn scan(
        &self,
        fork: ForkId,
        view: View,
        from: Bound<&str>,
        limit: usize,
    ) -> Result<Vec<(Key, Value)>, Error> {
        let map = self.map(fork, view)?;
        Ok(map.scan(from).take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// The whole state, as it is now for as long as it is held. Complexity: constant.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn map(&self, fork: ForkId, view: View) -> Result<Map, Error> {
        Ok(self.find(fork)?.moment(view).map)
    }

    /// Where the fork's log ends, by that view.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn offset(&self, fork: ForkId, view: View) -> Result<Offset, Error> {
        Ok(self.find(fork)?.moment(view).offset)
    }

    /// A digest of the whole state: equal for equal states, whatever led to them. Complexity: what changed since the
    /// last one.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn root(&self, fork: ForkId, view: View) -> Result<Root, Error> {
        let found = self.find(fork)?;
        Ok(found.root(&found.moment(view).map))
    }

    /// What makes the one fork's state of the other's. Complexity: what they do not share.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn diff(&self, from: ForkId, to: ForkId, view: View) -> Result<Changes, Error> {
        Ok(self.map(from, view)?.changes_to(&self.map(to, view)?))
    }

    /// The state as it was when the fork's log ended at `offset`. Complexity: that of replaying up to there.
    ///
    /// # Errors
    /// [`Error::NoState`] when no commit ended there; [`Error::NoFork`]; what the log says.
    pub fn at(&self, fork: ForkId, offset: Offset) -> Result<Map, Error> {
        let log = self.find(fork)?.log.clone();
        let moment = replay_until(&self.shared.store, &log, Some(offset))?;
        if moment.offset == offset { Ok(moment.map) } else { Err(Error::NoState { fork, offset }) }
    }

    /// Commits changes, all or none of them. The receipt's ticket says when they are durable: see [`State::when`].
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::NoFork`], and what the log says.
    pub fn write(&self, fork: ForkId, changes: &Changes, time: Time) -> Result<Receipt, Error> {
        self.commit(fork, changes, None, time)
    }

    /// A session on a fork: see there.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn session(&self, fork: ForkId) -> Result<Session, Error> {
        self.find(fork)?;
        Ok(Session::new(self.clone(), fork))
    }

    /// Calls back once everything up to a ticket is durable: at once if it is, else on the thread that makes it so.
    pub fn when(&self, ticket: Position, callback: impl FnOnce(Result<(), CommitError>) + Send + 'static) {
        let mut waiting = self.shared.waiting.lock();
        // Looked at under the lock: whoever announces takes it afterwards.
        if self.shared.store.wait_for(ticket, self.shared.watcher) == 0 {
            drop(waiting);
            return callback(Ok(()));
        }
        waiting.entry(ticket).or_default().push(Box::new(callback));
    }

    pub(crate) fn moment(&self, fork: ForkId, view: View) -> Result<Moment, Error> {
        Ok(self.find(fork)?.moment(view))
    }

    pub(crate) fn root_of(&self, fork: ForkId, map: &Map) -> Result<Root, Error> {
        Ok(self.find(fork)?.root(map))
    }

    pub(crate) fn commit(
        &self,
        fork: ForkId,
        changes: &Changes,
        expected: Option<Offset>,
        time: Time,
    ) -> Result<Receipt, Error> {
        changes.iter().try_for_each(|(key, _)| check_key(key))?;
        let found = self.find(fork)?;
        let shared = &*self.shared;
        let place = Place { store: &shared.store, watcher: shared.watcher, kind: &shared.options.kind };
        let receipt = found.commit(&place, changes, expected, time)?;
        if receipt.ticket > 0 {
            shared.under_way.lock().push_back((receipt.ticket, found));
            // It may have become durable before it was noted.
            if shared.store.wait_for(receipt.ticket, shared.watcher) == 0 {
                shared.complete(shared.store.durable());
            }
        }
        Ok(receipt)
    }

    fn find(&self, fork: ForkId) -> Result<Arc<Fork>, Error> {
        self.shared.forks.read().get(&fork).cloned().ok_or(Error::NoFork(fork))
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("State").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl Shared {
    fn complete(&self, up_to: Position) {
        let mut under_way = self.under_way.lock();
        // Two that commit at once may note their tickets in another order than they got them, so all are looked at.
        let (done, left): (VecDeque<_>, VecDeque<_>) =
            under_way.drain(..).partition(|(ticket, _)| *ticket <= up_to);
        *under_way = left;
        drop(under_way);
        done.iter().for_each(|(_, fork)| fork.complete(up_to));
        self.call_back(up_to, &Ok(()));
    }

    fn call_back(&self, up_to: Position, outcome: &Result<(), CommitError>) {
        let mut waiting = self.waiting.lock();
        let left = waiting.split_off(&up_to.saturating_add(1));
        let done = std::mem::replace(&mut *waiting, left);
        drop(waiting);
        done.into_values().flatten().for_each(|callback| callback(outcome.clone()));
    }
}

impl Watch for Ear {
    fn complete(&self, up_to: Position) {
        if let Some(shared) = self.0.lock().upgrade() {
            shared.complete(up_to);
        }
    }

    fn failed(&self) {
        if let Some(shared) = self.0.lock().upgrade() {
            let failed = CommitError::Failed("what became of the commit is not known".to_owned());
            shared.call_back(Position::MAX - 1, &Err(failed));
        }
    }

    fn advanced(&self, _log: LogId) {}
}

/// # Errors
/// [`Error::Key`].
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Error::Key { length: key.len(), limit: KEY_BYTES_MAX });
    }
    Ok(())
}

fn config() -> Config {
    Config { content_type: CONTENT_TYPE.into(), lifetime: Lifetime::Unlimited }
}

/// The log of the main line.
fn main_log(store: &Store, name: &str) -> Result<Arc<Log>, Error> {
    let name = format!("{name}/main");
    loop {
        if let Some(log) = store.find(name.as_bytes()) {
            return Ok(log);
        }
        let commit = Commit { time: thalweg_log::now(), ..Commit::default() };
        match store.create(name.as_bytes(), &config(), None, &commit, None) {
            Ok((log, _)) => return Ok(log),
            Err(CommitError::Exists) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn number_of(log: &Log, prefix: &str) -> Option<u64> {
    std::str::from_utf8(log.name().strip_prefix(prefix.as_bytes())?).ok()?.parse().ok()
}

fn replay(store: &Store, log: &Arc<Log>) -> Result<Moment, Error> {
    replay_until(store, log, None)
}

/// What the entries of a log come to, up to an offset at most.
fn replay_until(store: &Store, log: &Arc<Log>, until: Option<Offset>) -> Result<Moment, Error> {
    let mut reader = store.reader(log);
    let mut moment = Moment::default();
    let query = Query { uncommitted: true, ..Query::from(Start::First) };
    for entry in reader.entries(&query) {
        let entry = entry?;
        let end = entry.offset + entry.data.len() as u64;
        if until.is_some_and(|until| end > until) {
            break;
        }
        let foreign = |why| Error::Foreign { fork: log.id(), offset: entry.offset, why };
        moment.map.apply(&journal::decode(entry.data).map_err(foreign)?);
        moment.offset = end;
    }
    Ok(moment)
}
