//! What all handles of one store have in common, and how it ends.
//!
//! Purpose: closing a store ends it there and then, whatever handles Python still holds, without waiting for
//! its garbage collector: the directory can be opened again at once. So this alone keeps the
//! store. A walk through it has a *seat*, which closing empties. A wait for the disk or for an entry has the
//! store *in use*: closing wakes it and waits for it. Handles that are left say that the store is closed.
//!
//! While a thread that holds the interpreter's lock has the store in use, nothing of Python's runs, and no
//! exception is made: that may collect garbage, and a finalizer that closes the store would wait for the
//! thread that it runs in.
//!
//! After a fork the child has the maps and none of the threads. Its handles say so, and its copy of the store
//! is never dropped: it is the parent's to close.

use crate::error::{closed, failure, read_only};
use crate::forks;
use crate::hearing;
use parking_lot::Mutex;
use pyo3::exceptions::PyResourceWarning;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock, Weak};
use thalweg_log::{AnyStore, Closable, InUse, Maps, Store};

/// Stores that are open in this process.
static STORES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

pub(crate) struct Shared {
    pub(crate) directory: Option<PathBuf>,
    store: Closable<OpenStore>,
    seats: Mutex<Seats>,
    forked: OnceLock<()>,
}

/// The walks in their seats, and which places are free.
#[derive(Default)]
struct Seats {
    places: Vec<Option<Weak<dyn Vacate>>>,
    free: Vec<usize>,
}

/// A store that is open, and its words.
pub(crate) struct OpenStore {
    pub(crate) opened: AnyStore,
    pub(crate) maps: Maps,
}

/// The seat of a walk through a store.
pub(crate) struct Seat<T> {
    walker: Mutex<Option<T>>,
    place: usize,
    shared: Arc<Shared>,
}

/// What may sit in a seat.
pub(crate) trait Occupant: Send {
    /// Whether it is not in use now, and stays only because it may be soon.
    fn is_idle(&self) -> bool {
        false
    }
}

trait Vacate: Send + Sync {
    fn vacate(&self);
    fn vacate_idle(&self);
}

impl<T: Occupant> Vacate for Seat<T> {
    fn vacate(&self) {
        let leaves = self.walker.lock().take();
        drop(leaves);
    }

    fn vacate_idle(&self) {
        let leaves = self.walker.lock().take_if(|walker| walker.is_idle());
        drop(leaves);
    }
}

impl<T> Seat<T> {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Does something with the walk in it. It must not call Python.
    #[inline]
    pub(crate) fn with<R>(&self, task: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        self.try_with(task).ok_or_else(|| self.shared.over())
    }

    /// The same, for a caller without the interpreter's lock.
    #[inline]
    pub(crate) fn try_with<R>(&self, task: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.shared.forked.get().is_some() {
            return None;
        }
        self.walker.lock().as_mut().map(task)
    }

    /// Takes the walk out, unless it was taken already.
    pub(crate) fn leave(&self) -> Option<T> {
        if self.shared.forked.get().is_none() { self.walker.lock().take() } else { None }
    }
}

impl<T> Drop for Seat<T> {
    fn drop(&mut self) {
        if self.shared.forked.get().is_some() {
            // What is left of the parent's transaction or cursor is not the child's to end.
            std::mem::forget(self.walker.get_mut().take());
            return;
        }
        let mut seats = self.shared.seats.lock();
        // A store that was closed has no seats any more.
        if let Some(seat) = seats.places.get_mut(self.place) {
            *seat = None;
            seats.free.push(self.place);
        }
    }
}

impl Shared {
    pub(crate) fn new(opened: AnyStore, directory: Option<PathBuf>) -> Arc<Shared> {
        let store = Closable::new(OpenStore { maps: opened.maps(), opened });
        let (seats, forked) = (Mutex::default(), OnceLock::new());
        let shared = Arc::new(Shared { directory, store, seats, forked });
        let mut stores = STORES.lock();
        stores.retain(|store| store.strong_count() > 0);
        stores.push(Arc::downgrade(&shared));
        shared
    }

    /// Why nothing goes on.
    pub(crate) fn over(&self) -> PyErr {
        match self.forked.get() {
            Some(()) => {
                failure("FORKED", "the store was opened before this process was forked; open it again here")
            }
            None => closed(),
        }
    }

    /// The store, unless this is a child that inherited it.
    #[inline]
    fn ours(&self) -> Option<&Closable<OpenStore>> {
        self.forked.get().is_none().then_some(&self.store)
    }

    /// Does something short with the store. It must not call Python.
    #[inline]
    pub(crate) fn with<R>(&self, task: impl FnOnce(&OpenStore) -> R) -> PyResult<R> {
        self.ours().and_then(|store| store.with(task)).ok_or_else(|| self.over())
    }

    /// The store for a call that may take its time without the interpreter's lock. It must not call Python.
    pub(crate) fn enter(&self) -> PyResult<InUse<AnyStore>> {
        let in_use = self.ours().and_then(|store| store.enter(|open| open.opened.clone()));
        in_use.ok_or_else(|| self.over())
    }

    /// The same for what only the process that writes the store can do.
    pub(crate) fn enter_own(&self) -> PyResult<InUse<Store>> {
        self.enter()?.try_map(|opened| opened.own().cloned().ok_or(())).map_err(|()| read_only())
    }

    /// Gives a walk a seat, from which closing the store takes it. In a store that was closed meanwhile it
    /// gets none.
    pub(crate) fn seat<T: Occupant + 'static>(self: &Arc<Self>, walker: T) -> PyResult<Arc<Seat<T>>> {
        self.try_seat(walker).ok_or_else(|| self.over())
    }

    /// The same, for a caller that has the store in use.
    pub(crate) fn try_seat<T: Occupant + 'static>(self: &Arc<Self>, walker: T) -> Option<Arc<Seat<T>>> {
        self.ours()?.with(|_| {
            let mut seats = self.seats.lock();
            let place = seats.free.pop().unwrap_or(seats.places.len());
            let seat = Arc::new(Seat { walker: Mutex::new(Some(walker)), place, shared: self.clone() });
            let weak: Weak<dyn Vacate> = Arc::<Seat<T>>::downgrade(&seat);
            match seats.places.get_mut(place) {
                Some(free) => *free = Some(weak),
                None => seats.places.push(Some(weak)),
            }
            seat
        })
    }

    /// Takes idle walks from their seats: what they would keep mapped may be gone.
    pub(crate) fn send_idle_home(&self) {
        let seats: Vec<_> = self.seats.lock().places.iter().flatten().filter_map(Weak::upgrade).collect();
        seats.iter().for_each(|seat| seat.vacate_idle());
    }

    pub(crate) fn is_open(&self) -> bool {
        self.ours().is_some_and(Closable::is_open)
    }

    /// Closes the store. Where another thread does, waits until it is done; nothing when it is closed
    /// already.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(store) = self.ours() else { return Ok(()) };
        let Some(closing) = store.close() else {
            py.detach(|| store.ended());
            return Ok(());
        };
        let seats = std::mem::take(&mut self.seats.lock().places);
        seats.iter().flatten().filter_map(Weak::upgrade).for_each(|seat| seat.vacate());
        let closed = py.detach(|| {
            closing.value().opened.interrupt();
            closing.finish(|open| open.opened.close())
        });
        closed.map_err(|error| crate::error::io("close the store", &error))
    }
}

impl Drop for Shared {
    /// The last handle of a store that was not closed is gone. Its committer is waited for, which may be at
    /// the disk: others run meanwhile, as while a store is closed.
    fn drop(&mut self) {
        let Some(closing) = self.ours().and_then(Closable::close) else { return };
        let _ = Python::try_attach(|py| {
            if let Some(directory) = &self.directory {
                warn_unclosed(py, directory);
            }
            py.detach(|| drop(closing));
        });
    }
}

/// Says that a store was not closed, as of files and sockets is said.
fn warn_unclosed(py: Python<'_>, directory: &Path) {
    let says =
        CString::new(format!("unclosed store <thalweg.Store {}>", directory.display())).unwrap_or_default();
    beside_what_was_raised(py, || {
        if let Err(error) = PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &says, 1) {
            error.write_unraisable(py, None);
        }
    });
}

/// Does something in which Python is called, though something may have been raised: the last handle of a
/// store may go because of that. It stays raised, a panic's exception too, which [`PyErr::take`] would go on
/// with.
fn beside_what_was_raised(_: Python<'_>, work: impl FnOnce()) {
    let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the interpreter's lock is held; three places that are written to, null for nothing.
    unsafe { ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback) };
    work();
    // SAFETY: the lock is held still, or again; these are the references that were taken just now, given
    // back.
    unsafe { ffi::PyErr_Restore(kind, value, traceback) };
}

/// In a child, right after the fork: the stores it inherited are its parent's.
#[pyfunction]
#[pyo3(name = "_forked")]
pub(crate) fn forked(py: Python<'_>) -> PyResult<()> {
    forks::note();
    for store in STORES.lock().drain(..).filter_map(|store| store.upgrade()) {
        let _ = store.forked.set(());
        // A child does not wait for a thread that only its parent has.
        let _ = store.store.try_with(|open| open.opened.own().map(Store::leave_to_parent));
        std::mem::forget(store);
    }
    hearing::forked(py)
}
