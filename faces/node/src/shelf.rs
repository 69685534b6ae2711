//! The stores of this process: one per path and kind, shared by all threads that open it.
//!
//! A shelf is one store and whoever has it open. The last one to close it closes the store; destroying it closes
//! it for everybody. What is closed is dropped there and then, whatever handles JavaScript still holds: those
//! hold the shelf, which is empty then, and their calls say so. A word of flags, lent to each isolate, says it to
//! readers that make no calls. Whatever is under way with the store itself then is waited for, off the event loop.

use crate::bell::Ring;
use crate::error::{Result, closed, failure, open as open_failure, read};
use crate::remove::remove;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use thalweg_log::{Attached, Births, Damage, Disk, Log, Maps, Options, Position, Recovered, Store, Watch};
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
/// Larger batches save nothing.
const RUN_BYTES_MAX: usize = 256 << 10;

static SHELVES: Mutex<BTreeMap<Key, Arc<Shelf>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Debug)]
enum Held {
    Store(Store),
    Attached(Attached),
}

#[derive(Debug)]
struct Open {
    held: Held,
    maps: Maps,
    /// Kept here because a listener holds the store.
    listeners: Mutex<Listeners>,
}

/// Who hears of new logs, by a number that is given out once.
#[derive(Debug, Default)]
struct Listeners {
    given: u32,
    births: BTreeMap<u32, Births>,
}

#[derive(Debug)]
pub(crate) struct Shelf {
    key: Key,
    /// The directory that was at the path then: device and number.
    directory: Option<(u64, u64)>,
    open: RwLock<Option<Open>>,
    pub(crate) options: Options,
    /// What opening it found, of a store that this process writes.
    pub(crate) recovered: Option<Recovered>,
    /// Bytes that fit into one batch with room to spare.
    pub(crate) run_bytes_max: usize,
    openings: Mutex<usize>,
    /// Calls under way that hold the store, and a sign that one of them let go of it.
    in_use: Mutex<usize>,
    left: Condvar,
    pub(crate) flags: Arc<Words>,
    rings: Arc<Rings>,
}

/// Whoever is to be told of what no word of the store says.
#[derive(Debug)]
struct Rings {
    flags: Arc<Words>,
    list: Mutex<Vec<Weak<Ring>>>,
}

impl Rings {
    fn ring(&self) {
        self.list.lock().retain(|ring| ring.upgrade().inspect(|ring| ring.ring()).is_some());
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
    /// The store at a path that was made canonical, opened unless this process has it open already: `differs` says what of its options
    /// is not as it is asked for.
    pub(crate) fn open(
        kind: Kind,
        path: &Path,
        options: Options,
        differs: impl FnOnce(&Options) -> Option<String>,
    ) -> Result<Arc<Shelf>> {
        let key = (kind, path.to_owned());
        let mut shelves = SHELVES.lock();
        if let Some(shelf) = shelves.get(&key) {
            // The last one who leaves shuts it under this.
            let mut openings = shelf.openings.lock();
            if shelf.open.read().is_none() {
                return Err(failure("CLOSED", "the store is being closed: open it again once that is done"));
            }
            if shelf.directory != directory_at(&key) {
                let what =
                    "another directory is at the path by now; close the store that was opened there first";
                return Err(failure("CONFLICT", what));
            }
            // Who only reads goes by no option.
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
        let run_bytes_max = (options.segment_bytes_max as usize / 4).min(RUN_BYTES_MAX);
        let mut recovered = None;
        let opened = match key.0 {
            Kind::Memory => Store::memory(options.clone()).map(Held::Store),
            Kind::Files => Store::open(&Disk::Real, &key.1, options.clone()).map(|(store, found)| {
                recovered = Some(found);
                Held::Store(store)
            }),
            Kind::Attached => Attached::open(&Disk::Real, &key.1).map(Held::Attached),
        };
        let held = opened.map_err(|error| open_failure(&error))?;
        let maps = match &held {
            Held::Store(store) => store.maps(),
            Held::Attached(attached) => attached.maps(),
        };
        let flags = Map::anonymous(FLAGS_BYTES).map_err(|error| failure("IO", error))?;
        let flags = Arc::new(Words::new(flags));
        let rings = Arc::new(Rings { flags: flags.clone(), list: Mutex::default() });
        if let Held::Store(store) = &held {
            store.watcher(rings.clone());
        }
        let open = RwLock::new(Some(Open { held, maps, listeners: Mutex::default() }));
        let (openings, in_use, left) = (Mutex::new(1), Mutex::new(0), Condvar::new());
        let directory = directory_at(&key);
        Ok(Shelf {
            key,
            directory,
            open,
            options,
            recovered,
            run_bytes_max,
            openings,
            in_use,
            left,
            flags,
            rings,
        })
    }

    /// Refuses who asks for a store that is open already to be another.
    fn agrees(&self, differs: impl FnOnce(&Options) -> Option<String>) -> Result<()> {
        match differs(&self.options) {
            Some(has) => Err(failure("CONFLICT", format!("the store is open in this process with {has}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.key.0 == Kind::Attached
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        (self.key.0 != Kind::Memory).then_some(&*self.key.1)
    }

    /// The maps, as long as the store is open.
    pub(crate) fn maps<T>(&self, then: impl FnOnce(&Maps) -> Result<T>) -> Result<T> {
        then(&self.open.read().as_ref().ok_or_else(closed)?.maps)
    }

    /// The store, as long as it is open, for writing.
    pub(crate) fn store<T>(&self, then: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        match &self.open.read().as_ref().ok_or_else(closed)?.held {
            Held::Store(store) => then(store),
            Held::Attached(_) => Err(failure("READ_ONLY", "the store was opened to be read only")),
        }
    }

    /// The store for a call that may take its time. Where that runs on the pool it is begun by `then`, so that it stands
    /// there in front of whoever closes the store and waits for it.
    pub(crate) fn enter<T>(self: &Arc<Shelf>, then: impl FnOnce(InUse) -> Result<T>) -> Result<T> {
        self.store(|store| {
            *self.in_use.lock() += 1;
            then(InUse { store: Some(store.clone()), shelf: self.clone() })
        })
    }

    pub(crate) fn find(&self, name: &[u8]) -> Result<Option<Arc<Log>>> {
        match &self.open.read().as_ref().ok_or_else(closed)?.held {
            Held::Store(store) => Ok(store.find(name)),
            Held::Attached(attached) => attached.find(name).map_err(|error| read(&error)),
        }
    }

    pub(crate) fn visit(&self, visitor: impl FnMut(&Arc<Log>)) -> Result<()> {
        match &self.open.read().as_ref().ok_or_else(closed)?.held {
            Held::Store(store) => store.visit(visitor),
            Held::Attached(attached) => attached.visit(visitor).map_err(|error| read(&error))?,
        }
        Ok(())
    }

    /// Spans that are known to be damaged.
    pub(crate) fn damage(&self) -> Result<Vec<Damage>> {
        Ok(match &self.open.read().as_ref().ok_or_else(closed)?.held {
            Held::Store(store) => store.damage(),
            Held::Attached(attached) => attached.damage().to_vec(),
        })
    }

    /// Begins to listen for new logs: the listener's number.
    pub(crate) fn listen(&self, existing: bool) -> Result<u32> {
        let open = self.open.read();
        let open = open.as_ref().ok_or_else(closed)?;
        let births = match &open.held {
            Held::Store(store) => store.births(existing),
            Held::Attached(attached) => attached.births(existing).map_err(|error| read(&error))?,
        };
        let mut listeners = open.listeners.lock();
        listeners.given += 1;
        let number = listeners.given;
        listeners.births.insert(number, births);
        Ok(number)
    }

    /// The next new log for a listener.
    pub(crate) fn birth(&self, listener: u32) -> Result<Option<Arc<Log>>> {
        let open = self.open.read();
        let mut listeners = open.as_ref().ok_or_else(closed)?.listeners.lock();
        let next = listeners.births.get_mut(&listener).map_or(Ok(None), Births::next);
        next.map_err(|error| read(&error))
    }

    /// Listens no longer.
    pub(crate) fn unlisten(&self, listener: u32) {
        if let Some(open) = &*self.open.read() {
            open.listeners.lock().births.remove(&listener);
        }
    }

    pub(crate) fn remember(&self, ring: &Arc<Ring>) {
        self.rings.list.lock().push(Arc::downgrade(ring));
    }

    /// One who had it open has not any more. Answers the store if it was the last one, to be closed by
    /// [`Closing::finish`].
    pub(crate) fn leave(self: &Arc<Shelf>) -> Option<Closing> {
        let mut openings = self.openings.lock();
        *openings = openings.saturating_sub(1);
        (*openings == 0).then(|| self.shut())
    }

    /// Closes it for everybody.
    pub(crate) fn shut(self: &Arc<Shelf>) -> Closing {
        self.flags.store(CLOSED, 1);
        let open = self.open.write().take();
        if let Some(open) = &open {
            open.maps.wake_all();
            if let Held::Store(store) = &open.held {
                // Housekeeping that rests is under way.
                store.hurry();
            }
        }
        self.rings.ring();
        Closing { shelf: self.clone(), open }
    }
}

/// A store that somebody does something with: whoever closes it waits.
pub(crate) struct InUse {
    store: Option<Store>,
    shelf: Arc<Shelf>,
}

impl InUse {
    /// Does what it is in use for, and lets go of it there and then: a task lives until the event loop has heard of it.
    pub(crate) fn finish<T>(&mut self, then: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        let last = InUse { store: self.store.take(), shelf: self.shelf.clone() };
        then(last.store.as_ref().ok_or_else(closed)?)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            drop(store);
            *self.shelf.in_use.lock() -= 1;
            self.shelf.left.notify_all();
        }
    }
}

/// A store on its way out: it may have to wait for the disk.
pub(crate) struct Closing {
    shelf: Arc<Shelf>,
    open: Option<Open>,
}

impl Closing {
    /// Waits for whatever is under way, makes everything durable, seals the store and lets go of it.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.open.take().map_or(Ok(()), |open| self.end(open, |closed| closed))
    }

    /// The same, and removes its files while the store is still held: nobody else has one there until they are gone.
    pub(crate) fn destroy(&mut self) -> Result<()> {
        let open = self.open.take().ok_or_else(closed)?;
        let directory = self.shelf.path().map(Path::to_owned);
        self.end(open, |_| directory.as_deref().map_or(Ok(()), remove))
    }

    fn end(&self, open: Open, then: impl FnOnce(Result<()>) -> Result<()>) -> Result<()> {
        let mut in_use = self.shelf.in_use.lock();
        while *in_use > 0 {
            self.shelf.left.wait(&mut in_use);
        }
        drop(in_use);
        let ended = then(match &open.held {
            Held::Store(store) => store.close().map_err(|error| failure("IO", error)),
            Held::Attached(_) => Ok(()),
        });
        drop(open);
        self.forget();
        ended
    }

    fn forget(&self) {
        let mut shelves = SHELVES.lock();
        if shelves.get(&self.shelf.key).is_some_and(|shelf| Arc::ptr_eq(shelf, &self.shelf)) {
            shelves.remove(&self.shelf.key);
        }
        self.shelf.flags.store(FINISHED, 1);
        self.shelf.rings.ring();
    }
}

impl Drop for Closing {
    /// Not finished: the environment ended. What was acknowledged is safe; the next opening replays the rest.
    fn drop(&mut self) {
        if self.open.take().is_some() {
            self.forget();
        }
    }
}
