//! The stores of this process: one per path and kind, shared by all threads that open it.
//!
//! A shelf is one store and its openings. The last one to close it closes the store; destroying it
//! closes it for every opening. What is closed is dropped there and then, whatever handles JavaScript still
//! holds: those hold the shelf, which is empty then, and their calls say so. A word of flags, lent to each
//! isolate, says it to readers that make no calls. Whatever is under way with the store itself then is waited
//! for, off the event loop.

use crate::bell::Ring;
use crate::dues::Dues;
use crate::error::{Result, closed, failure, open as open_failure, read, read_only};
use crate::remembered::Remembered;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_log::{
    AnyStore, Attached, Closable, Damage, Disk, InUse, Log, Maps, NewLogs, Options, Position, Recovered,
    Store, Watch,
};
use thalweg_sync::words::Words;
use thalweg_sys::disk::Map;
use thalweg_sys::machine::identity;

/// What is shared under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Files,
    Memory,
    Attached,
}

type Key = (Kind, PathBuf);

/// Word of the flags: the store is closed.
const CLOSED: usize = 0;
/// Word of the flags: a sync failed.
const FAILED: usize = 1;
/// Word of the flags: it is closed and nothing of it is under way any more.
const FINISHED: usize = 2;
const FLAGS_BYTES: usize = 4096;

static SHELVES: Mutex<BTreeMap<Key, Arc<Shelf>>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Open {
    opened: AnyStore,
    maps: Maps,
    /// Kept here because a listener holds the store.
    listeners: Mutex<Listeners>,
}

/// Listeners for new logs, by a number that is given out once.
#[derive(Debug, Default)]
struct Listeners {
    given: u32,
    new_logs: BTreeMap<u32, NewLogs>,
}

#[derive(Debug)]
pub(crate) struct Shelf {
    key: Key,
    /// The directory that was at the path then: device and number.
    directory: Option<(u64, u64)>,
    open: Closable<Open>,
    pub(crate) options: Options,
    /// What opening it found, of a store that this process writes.
    pub(crate) recovered: Option<Recovered>,
    openings: Mutex<usize>,
    /// Held while a task is put on the pool that waits for other tasks, or that others wait for: a task that
    /// waits then stands behind those it waits for, however few threads the pool has.
    queue: Mutex<()>,
    /// When housekeeping is due, whichever opening appends.
    pub(crate) dues: Arc<Dues>,
    pub(crate) flags: Arc<Words>,
    rings: Arc<Rings>,
}

/// Isolates that are told of what no word of the store says.
#[derive(Debug)]
struct Rings {
    flags: Arc<Words>,
    list: Mutex<Remembered<Ring>>,
}

impl Rings {
    fn ring(&self) {
        self.list.lock().tell(Ring::ring);
    }
}

impl Watch for Rings {
    fn complete(&self, _up_to: Position) {}

    fn failed(&self) {
        self.flags.store(FAILED, 1);
        self.ring();
    }

    fn advanced(&self, _log: thalweg_log::LogId) {}
}

/// What is at a path now.
fn directory_at((kind, path): &Key) -> Option<(u64, u64)> {
    (*kind != Kind::Memory).then(|| identity(path)).flatten()
}

impl Shelf {
    /// The store at a path that was made canonical, opened unless this process has it open already: `differs`
    /// says what of its options is not as it is asked for.
    pub(crate) fn open(
        kind: Kind,
        path: &Path,
        options: Options,
        differs: impl FnOnce(&Options) -> Option<String>,
    ) -> Result<Arc<Shelf>> {
        let key = (kind, path.to_owned());
        let mut shelves = SHELVES.lock();
        if let Some(shelf) = shelves.get(&key) {
            // The last opening to close shuts it under this.
            let mut openings = shelf.openings.lock();
            if !shelf.open.is_open() {
                return Err(failure("CLOSED", "the store is being closed: open it again once that is done"));
            }
            if shelf.directory != directory_at(&key) {
                let what =
                    "another directory is at the path by now; close the store that was opened there first";
                return Err(failure("CONFLICT", what));
            }
            // A reader goes by no option.
            if kind != Kind::Attached {
                shelf.agrees(differs)?;
            }
            *openings += 1;
            return Ok(shelf.clone());
        }
        let shelf = Arc::new(Shelf::begin(key.clone(), options)?);
        shelves.insert(key, shelf.clone());
        Ok(shelf)
    }

    fn begin(key: Key, options: Options) -> Result<Shelf> {
        let mut recovered = None;
        let opened = match key.0 {
            Kind::Memory => Store::memory(options.clone()).map(AnyStore::Own),
            Kind::Files => Store::open(&Disk::Real, &key.1, options.clone()).map(|(store, found)| {
                recovered = Some(found);
                AnyStore::Own(store)
            }),
            Kind::Attached => Attached::open(&Disk::Real, &key.1).map(AnyStore::Attached),
        };
        let opened = opened.map_err(|error| open_failure(&error))?;
        let flags = Map::anonymous(FLAGS_BYTES).map_err(|error| failure("IO", error))?;
        let flags = Arc::new(Words::new(flags));
        let rings = Arc::new(Rings { flags: flags.clone(), list: Mutex::default() });
        if let Some(store) = opened.own() {
            store.watcher(rings.clone());
        }
        let open = Closable::new(Open { maps: opened.maps(), opened, listeners: Mutex::default() });
        let (directory, openings) = (directory_at(&key), Mutex::new(1));
        let (queue, dues) = (Mutex::default(), Arc::default());
        Ok(Shelf { key, directory, open, options, recovered, openings, queue, dues, flags, rings })
    }

    /// Refuses options that differ from those of a store that is open already.
    fn agrees(&self, differs: impl FnOnce(&Options) -> Option<String>) -> Result<()> {
        match differs(&self.options) {
            Some(has) => Err(failure("CONFLICT", format!("the store is open in this process with {has}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.key.0 == Kind::Attached
    }

    /// Does something short with what is open.
    fn with<T>(&self, then: impl FnOnce(&Open) -> Result<T>) -> Result<T> {
        self.open.with(then).unwrap_or_else(|| Err(closed()))
    }

    /// The maps, as long as the store is open.
    pub(crate) fn maps<T>(&self, then: impl FnOnce(&Maps) -> Result<T>) -> Result<T> {
        self.with(|open| then(&open.maps))
    }

    /// The store, as long as it is open, for writing.
    pub(crate) fn store<T>(&self, then: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        self.with(|open| then(open.opened.own().ok_or_else(read_only)?))
    }

    /// The store for a call that may take its time.
    pub(crate) fn enter(&self) -> Result<InUse<AnyStore>> {
        self.open.enter(|open| open.opened.clone()).ok_or_else(closed)
    }

    /// The same for writing.
    pub(crate) fn enter_own(&self) -> Result<InUse<Store>> {
        self.enter()?.try_map(|opened| opened.own().cloned().ok_or_else(read_only))
    }

    /// Has the pool begin what has the store in use, ahead of a close that waits for it.
    pub(crate) fn queue<T>(&self, begin: impl FnOnce() -> Result<T>) -> Result<T> {
        let _in_front = self.queue.lock();
        begin()
    }

    pub(crate) fn find(&self, name: &[u8]) -> Result<Option<Arc<Log>>> {
        self.with(|open| open.opened.find(name).map_err(|error| read(&error)))
    }

    pub(crate) fn logs(&self) -> Result<Vec<Arc<Log>>> {
        self.with(|open| open.opened.logs().map_err(|error| read(&error)))
    }

    /// Spans that are known to be damaged.
    pub(crate) fn damage(&self) -> Result<Vec<Damage>> {
        self.with(|open| Ok(open.opened.damage()))
    }

    /// Begins to listen for new logs: the listener's number.
    pub(crate) fn listen(&self, existing: bool) -> Result<u32> {
        self.with(|open| {
            let new_logs = open.opened.new_logs(existing).map_err(|error| read(&error))?;
            let mut listeners = open.listeners.lock();
            listeners.given += 1;
            let number = listeners.given;
            listeners.new_logs.insert(number, new_logs);
            Ok(number)
        })
    }

    /// The next new log for a listener.
    pub(crate) fn birth(&self, listener: u32) -> Result<Option<Arc<Log>>> {
        self.with(|open| {
            let next = open.listeners.lock().new_logs.get_mut(&listener).map_or(Ok(None), NewLogs::next);
            next.map_err(|error| read(&error))
        })
    }

    /// Listens no longer.
    pub(crate) fn unlisten(&self, listener: u32) {
        let left = self.open.with(|open| open.listeners.lock().new_logs.remove(&listener));
        drop(left);
    }

    pub(crate) fn remember(&self, ring: &Arc<Ring>) {
        self.rings.list.lock().add(ring);
    }

    /// One opening was closed: `then` has the pool do what follows from that.
    pub(crate) fn leave<T>(self: &Arc<Shelf>, then: impl FnOnce(Ending) -> T) -> T {
        let _behind = self.queue.lock();
        let ending = {
            let mut openings = self.openings.lock();
            *openings = openings.saturating_sub(1);
            let last = if *openings == 0 { self.shut() } else { None };
            match last {
                Some(closing) => Ending::Own(closing),
                None if self.open.is_open() => Ending::Nothing,
                None => Ending::Awaited(self.clone()),
            }
        };
        then(ending)
    }

    /// Closes it for every opening: `then` has the pool do so.
    pub(crate) fn end<T>(self: &Arc<Shelf>, then: impl FnOnce(Option<Closing>) -> T) -> T {
        let _behind = self.queue.lock();
        then(self.shut())
    }

    fn shut(self: &Arc<Shelf>) -> Option<Closing> {
        self.flags.store(CLOSED, 1);
        let closing = self.open.close();
        if let Some(closing) = &closing {
            closing.value().opened.interrupt();
        }
        self.rings.ring();
        closing.map(|closing| Closing { shelf: self.clone(), closing: Some(closing) })
    }

    fn forget(&self) {
        let mut shelves = SHELVES.lock();
        if shelves.get(&self.key).is_some_and(|shelf| std::ptr::eq(&raw const **shelf, self)) {
            shelves.remove(&self.key);
        }
        self.flags.store(FINISHED, 1);
        self.rings.ring();
    }
}

/// What is left to do for an opening that was closed.
pub(crate) enum Ending {
    /// They were the last.
    Own(Closing),
    /// It is being closed for every opening.
    Awaited(Arc<Shelf>),
    /// Others have it open.
    Nothing,
}

impl Ending {
    /// Waits until the store is closed, if it is to be.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self {
            Ending::Own(closing) => closing.finish(),
            Ending::Awaited(shelf) => {
                shelf.open.ended();
                Ok(())
            }
            Ending::Nothing => Ok(()),
        }
    }
}

/// A store on its way out: it may have to wait for the disk.
pub(crate) struct Closing {
    shelf: Arc<Shelf>,
    closing: Option<thalweg_log::Closing<Open>>,
}

impl Closing {
    /// Waits for whatever is under way, makes everything durable, seals the store and lets go of it.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.finish_with(|open| open.opened.close().map_err(|error| failure("IO", error)))
    }

    /// The same, and removes its files while the store is still held: no other can be made there until they
    /// are gone.
    pub(crate) fn destroy(&mut self) -> Result<()> {
        let what = self.shelf.key.1.display().to_string();
        self.finish_with(|open| {
            let Open { opened: AnyStore::Own(store), maps, listeners } = open else { return Ok(()) };
            drop((maps, listeners));
            store.remove().map_err(|error| failure("IO", format!("cannot remove {what}: {error}")))
        })
    }

    fn finish_with(&mut self, then: impl FnOnce(Open) -> Result<()>) -> Result<()> {
        let closing = self.closing.take().ok_or_else(closed)?;
        closing.finish(|open| {
            let ended = then(open);
            // Before an opening that waits for the end goes on, and opens it anew.
            self.shelf.forget();
            ended
        })
    }
}

impl Drop for Closing {
    /// Not finished: the environment ended. What was acknowledged is safe; the next opening replays the rest.
    fn drop(&mut self) {
        if self.closing.take().is_some() {
            self.shelf.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_log::{Commit, Config, Durability, Lifetime};

    /// As many as one call of housekeeping deletes.
    const LOGS: usize = 4096;

    #[test]
    fn closing_a_store_waits_for_no_rest_of_housekeeping() {
        let options = Options { durability: Durability::Memory, rest_parts: u32::MAX, ..Options::default() };
        let shelf = Shelf::open(Kind::Memory, Path::new("rests"), options, |_| None).unwrap();
        let lifetime = Lifetime::Until { expires_us: 5 };
        let config = Config { content_type: "text/plain".into(), lifetime };
        let store = shelf.enter_own().unwrap();
        for n in 0..LOGS {
            store.create(n.to_string().as_bytes(), &config, None, &Commit::default(), None).unwrap();
        }
        let keeper = std::thread::spawn(move || store.maintain(6).unwrap());
        shelf.leave(|mut ending| ending.finish()).unwrap();
        assert!(keeper.join().unwrap(), "it would have rested, for hours");
    }

    #[test]
    fn who_closes_beside_another_waits_until_the_store_can_be_opened_again() {
        let open = || Shelf::open(Kind::Memory, Path::new("beside"), Options::default(), |_| None);
        for _ in 0..100 {
            let (shelf, other) = (open().unwrap(), open().unwrap());
            let mut closing = shelf.end(|closing| closing).unwrap();
            let mut ending = other.leave(|ending| ending);
            std::thread::scope(|scope| {
                scope.spawn(|| closing.destroy().unwrap());
                ending.finish().unwrap();
                open().unwrap().leave(|mut ending| ending.finish()).unwrap();
            });
        }
    }
}
