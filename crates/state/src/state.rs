//! A state: opens it, finds its forks, reads and writes them.

use crate::background_drop::BackgroundDrop;
use crate::changes::{Changes, EachChange};
use crate::digest::Root;
use crate::due::Due;
use crate::durable::{DurabilityListener, Durable};
use crate::error::Error;
use crate::fork::{Fork, Moment, Place, View};
use crate::images::Images;
use crate::journal::CONTENT_TYPE;
use crate::log_observer::LogObserver;
use crate::map::{Key, Map, Value};
use crate::memory_budget::MemoryBudget;
use crate::past::Past;
use crate::read_view::ReadView;
use crate::replay::{self, Replayed};
use crate::session::Session;
use imbl::OrdMap;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Weak};
use thalweg_log::{
    Commit, CommitError, Config, Lifetime, Log, LogId, Offset, Position, Receipt, Store, Time,
};

/// Names a fork: the id of its log, which is never reused.
pub type ForkId = LogId;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1_024;

/// A fork of this number or a higher one was not named by a state: none makes as many.
const NUMBERS_END: u64 = 1 << 63;

/// Options of a [`State`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The `type` of the messages in the logs.
    pub kind: String,
    /// How many bytes of a fork's log an opening may have to replay before [`State::maintain`] writes an
    /// image of the fork.
    pub image_bytes: u64,
    /// What becomes of entries that an image replaces.
    pub history: History,
    /// What all sessions together may hold beside their snapshots, counted as for one of them
    /// ([`SESSION_BYTES_MAX`](crate::SESSION_BYTES_MAX)). Changes that a session has overwritten count as
    /// long as a [`ReadView`] holds them.
    pub sessions_bytes_max: usize,
    /// No fork is made while the store has this many logs, of whatever kind: each takes memory.
    pub logs_max: u64,
    /// Is told of each log that the state creates.
    pub log_observer: LogObserver,
}

/// What becomes of entries that an image replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum History {
    /// They stay: every past state can be read, and a stream can be followed from its beginning.
    #[default]
    Kept,
    /// They are trimmed, so that logs do not grow without bound. Readers of the stream begin after them.
    Trimmed,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: "entry".to_owned(),
            image_bytes: 32 << 20,
            history: History::Kept,
            sessions_bytes_max: 256 << 20,
            logs_max: u64::MAX,
            log_observer: LogObserver::default(),
        }
    }
}

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
/// let (fork, _) = state.fork(main, 2)?;
/// state.write(fork, &[Change::Delete("ann".into())].into_iter().collect(), 3)?;
/// assert_eq!(state.get(main, View::Committed, "ann")?.as_deref(), Some(&b"10"[..]));
/// assert_eq!(state.get(fork, View::Committed, "ann")?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct State {
    pub(crate) shared: Arc<Shared>,
}

/// Forks by their ids. Copies share what they have in common.
pub(crate) type Forks = OrdMap<ForkId, Arc<Fork>>;

pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) durable: Arc<Durable>,
    pub(crate) name: String,
    pub(crate) options: Options,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) main: ForkId,
    /// Locked only to find a fork, to change the map, or to copy it in constant time: an iteration over all
    /// forks uses a copy, and delays no other call.
    pub(crate) forks: RwLock<Forks>,
    /// A parent, an offset of it, and a fork that branched off it there. Changed with `images` locked.
    pub(crate) branches: Mutex<BTreeSet<(ForkId, Offset, ForkId)>>,
    /// Forks that cannot be read, and why. They can only be listed and dropped.
    pub(crate) unreadable: RwLock<BTreeMap<ForkId, (Arc<Log>, String)>>,
    /// The number of the next fork's log.
    pub(crate) next: Mutex<u64>,
    pub(crate) images: Mutex<Images>,
    pub(crate) due: Due,
    /// Held while an image is written: one at a time.
    pub(crate) imaging: Mutex<()>,
    pub(crate) past: Mutex<Past>,
    damage: Vec<Error>,
    pub(crate) background_drop: BackgroundDrop,
}

impl State {
    /// Opens the state of that name, rebuilt from its logs. The first time it is empty.
    ///
    /// # Errors
    /// [`Error::ForeignLog`] and [`Error::Foreign`] when a log of these names is not the state's; what the
    /// log says.
    pub fn open(store: &Store, name: &str, options: Options) -> Result<Self, Error> {
        let main = main_log(store, name, &options.log_observer)?;
        let mut logs = vec![main.clone()];
        let prefix = format!("{name}/forks/");
        store.visit(|log| {
            // A log of another name is somebody else's, and not for a state to refuse to open for.
            if number_of(log, &prefix).is_some() && !log.is_tombstone() {
                logs.push(log.clone());
            }
        });
        logs.iter().try_for_each(|log| check_own(log))?;
        // Anybody may have made a log of a number that no state comes to: the numbers do not go on there.
        let numbers = logs.iter().filter_map(|log| number_of(log, &prefix));
        let last = numbers.filter(|number| *number < NUMBERS_END).max();
        let next = last.map_or(0, |last| last + 1);
        let mut images = Images::find(store, &image_prefix(name), thalweg_log::now());
        let Replayed { forks, unreadable, damage, damaged } = replay::all(store, logs, &images)?;
        images.set_aside(&damaged);
        let branch = |fork: &Arc<Fork>| {
            let branch = fork.log.fork()?;
            Some((branch.parent.id(), branch.at, fork.log.id()))
        };
        let branches = forks.values().filter_map(branch).collect();
        let shared = Arc::new(Shared {
            store: store.clone(),
            durable: Durable::over(store)?,
            name: name.to_owned(),
            memory: MemoryBudget::new(options.sessions_bytes_max),
            options,
            main: main.id(),
            forks: RwLock::new(forks.into_iter().collect()),
            branches: Mutex::new(branches),
            unreadable: RwLock::new(unreadable),
            next: Mutex::new(next),
            images: Mutex::new(images),
            due: Due::default(),
            imaging: Mutex::new(()),
            past: Mutex::default(),
            damage,
            background_drop: BackgroundDrop::default(),
        });
        let state = Self { shared };
        let mut images = state.shared.images.lock();
        state.count_uses(&mut images);
        for fork in state.all().values() {
            fork.begins_at(state.begin_of(&images, fork));
            state.note_due(fork, fork.pending()?.offset);
        }
        if state.damage().is_empty() {
            // Removes images that a crash or a refusal left. Those that cannot be removed now go with the
            // next image or start. If an image is damaged, the older ones stay until there is a new one.
            images.settle_once();
        }
        let _ = images.clear(store, thalweg_log::now(), state.shared.durable.watcher);
        drop(images);
        Ok(state)
    }

    /// Whether there is a state of that name already.
    pub fn exists(store: &Store, name: &str) -> bool {
        store.find(main_name(name).as_bytes()).is_some()
    }

    /// The damage that was found when it was opened: images without their recorded root, images that cannot
    /// be read, and forks that cannot ([`Error::Unreadable`]). The state was rebuilt without them.
    pub fn damage(&self) -> &[Error] {
        &self.shared.damage
    }

    /// What all sessions together hold beside their snapshots, of [`Options::sessions_bytes_max`].
    pub fn sessions_bytes(&self) -> usize {
        self.shared.memory.held()
    }

    /// The main line, from which all other forks come.
    pub fn main(&self) -> ForkId {
        self.shared.main
    }

    /// Every fork that can be read, the main line included, those that are on their way, and not those that
    /// were dropped. [`State::fork_infos`] says more of each, and names those that cannot be read.
    pub fn forks(&self) -> Vec<ForkId> {
        self.all().values().filter(|fork| !fork.is_dropped()).map(|fork| fork.log.id()).collect()
    }

    /// How many forks there are, those included that cannot be read.
    pub(crate) fn count(&self) -> usize {
        self.shared.forks.read().len() + self.shared.unreadable.read().len()
    }

    /// A view of a fork's current state, which does not change. Complexity: constant.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn read_view(&self, fork: ForkId, view: View) -> Result<ReadView, Error> {
        let fork = self.find(fork)?;
        Ok(ReadView::new(fork.moment(view)?, None, Some(fork)))
    }

    /// What a key holds.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn get(&self, fork: ForkId, view: View, key: &str) -> Result<Option<Value>, Error> {
        Ok(self.find(fork)?.moment(view)?.map.get(key).cloned())
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

    /// The current state as a map, which does not change. Complexity: constant.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn map(&self, fork: ForkId, view: View) -> Result<Map, Error> {
        Ok(self.find(fork)?.moment(view)?.map)
    }

    /// Where the fork's log ends in a view.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn offset(&self, fork: ForkId, view: View) -> Result<Offset, Error> {
        Ok(self.find(fork)?.moment(view)?.offset)
    }

    /// A digest of the whole state: equal for equal states, whatever led to them. Complexity: what changed
    /// since the last one.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn root(&self, fork: ForkId, view: View) -> Result<Root, Error> {
        let found = self.find(fork)?;
        Ok(found.root(&found.moment(view)?))
    }

    /// The changes that turn the state of `from` into that of `to`. Complexity: what they do not share.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn diff(&self, from: ForkId, to: ForkId, view: View) -> Result<Changes, Error> {
        Ok(self.map(from, view)?.changes_to(&self.map(to, view)?))
    }

    /// The ticket at which everything up to an offset is durable, so that its state may be shown.
    ///
    /// # Errors
    /// [`Error::NoState`] for an offset beyond the end; [`Error::NoFork`].
    pub(crate) fn ticket_at(&self, fork: ForkId, offset: Offset) -> Result<Position, Error> {
        self.find(fork)?.ticket_of(offset)?.ok_or(Error::NoState { fork, offset })
    }

    /// Commits changes, all or none of them. The receipt's ticket says when they are durable: see
    /// [`State::when`].
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::NoFork`], and what the log says.
    pub fn write(&self, fork: ForkId, changes: &Changes, time: Time) -> Result<Receipt, Error> {
        self.commit(fork, changes, None, time)
    }

    /// The same only if the fork's log ends at `expected`.
    ///
    /// # Errors
    /// [`Error::Conflict`]; else as [`State::write`].
    pub fn write_at(
        &self,
        fork: ForkId,
        expected: Offset,
        changes: &Changes,
        time: Time,
    ) -> Result<Receipt, Error> {
        self.commit(fork, changes, Some(expected), time)
    }

    /// Begins a [`Session`] on a fork.
    ///
    /// # Errors
    /// [`Error::NoFork`].
    pub fn session(&self, fork: ForkId) -> Result<Session, Error> {
        let end = self.offset(fork, View::Pending)?;
        Ok(Session::new(self.clone(), fork, end))
    }

    /// Calls back once everything up to a ticket is durable: at once if it is, otherwise on the thread that
    /// announces it.
    pub fn when(&self, ticket: Position, callback: impl FnOnce(Result<(), CommitError>) + Send + 'static) {
        self.shared.durable.when(ticket, Box::new(callback));
    }

    /// Whether everything up to a ticket is durable. If it is not, listeners will be told.
    ///
    /// # Errors
    /// [`CommitError::Failed`]: the store failed, so it never will be.
    pub fn is_durable(&self, ticket: Position) -> Result<bool, CommitError> {
        self.shared.durable.is(ticket)
    }

    /// Tells `listener` what becomes durable, until it is dropped.
    pub fn listen(&self, listener: Weak<dyn DurabilityListener>) {
        self.shared.durable.listen(listener);
    }

    pub(crate) fn moment(&self, fork: ForkId, view: View) -> Result<Moment, Error> {
        self.find(fork)?.moment(view)
    }

    pub(crate) fn commit<'c>(
        &self,
        fork: ForkId,
        changes: impl EachChange<'c>,
        expected: Option<Offset>,
        time: Time,
    ) -> Result<Receipt, Error> {
        changes.into_iter().try_for_each(|(key, _)| check_key(key))?;
        let found = self.find(fork)?;
        let Shared { store, durable, options, .. } = &*self.shared;
        let receipt =
            found.commit(&Place { store, durable, kind: &options.kind }, changes, expected, time)?;
        self.note_due(&found, receipt.next);
        Ok(receipt)
    }

    /// Finds a fork. It may be dropped, which its methods report.
    pub(crate) fn find(&self, fork: ForkId) -> Result<Arc<Fork>, Error> {
        self.shared.forks.read().get(&fork).cloned().ok_or_else(|| {
            match self.shared.unreadable.read().get(&fork) {
                Some((_, why)) => Error::Unreadable { fork, why: why.clone() },
                None => Error::NoFork(fork),
            }
        })
    }

    /// All forks, including those whose drop is not durable yet. Complexity: constant.
    pub(crate) fn all(&self) -> Forks {
        self.shared.forks.read().clone()
    }

    /// The logs of all forks that were not dropped, those included that cannot be read.
    pub(crate) fn logs(&self) -> Vec<Arc<Log>> {
        let forks = self.all();
        let readable = forks.values().filter(|fork| !fork.is_dropped()).map(|fork| &fork.log);
        let unreadable = self.shared.unreadable.read();
        let unreadable = unreadable.values().map(|(log, _)| log).filter(|log| log.staged().is_some());
        readable.chain(unreadable).cloned().collect()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("State").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// # Errors
/// [`Error::Key`].
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Error::Key { length: key.len(), limit: KEY_BYTES_MAX });
    }
    Ok(())
}

pub(crate) fn config() -> Config {
    Config { content_type: CONTENT_TYPE.into(), lifetime: Lifetime::Unlimited }
}

/// The prefix of the names of images.
pub(crate) fn image_prefix(name: &str) -> String {
    format!("{name}/images/")
}

fn main_name(name: &str) -> String {
    format!("{name}/main")
}

/// Refuses a log that no state creates so, whatever is in it. In one with a lifetime a state would end with
/// it.
fn check_own(log: &Log) -> Result<(), Error> {
    if *log.config() == config() {
        return Ok(());
    }
    let name = String::from_utf8_lossy(log.name()).into_owned();
    Err(Error::ForeignLog { log: name, content_type: log.config().content_type.to_string() })
}

/// The log of the main line.
fn main_log(store: &Store, name: &str, log_observer: &LogObserver) -> Result<Arc<Log>, Error> {
    let name = main_name(name);
    loop {
        if let Some(log) = store.find(name.as_bytes()) {
            return Ok(log);
        }
        let commit = Commit { time: thalweg_log::now(), ..Commit::default() };
        match store.create(name.as_bytes(), &config(), None, &commit, None) {
            Ok((log, _)) => {
                log_observer.tell(&log);
                return Ok(log);
            }
            Err(CommitError::Exists) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn number_of(log: &Log, prefix: &str) -> Option<u64> {
    number(std::str::from_utf8(log.name().strip_prefix(prefix.as_bytes())?).ok()?)
}

/// The number that stands in a name, if it is written as a state writes it: without a sign, and without zeros
/// in front.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}
