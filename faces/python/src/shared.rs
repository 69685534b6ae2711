//! What all handles of one store have in common, and how it ends.
//!
//! Purpose: closing a store ends it there and then, whatever handles Python still holds, without waiting for its
//! garbage collector: the directory can be opened again at once. So nobody keeps the store but this; whoever walks it
//! does so in a *seat* that is emptied, and whoever waits for the disk or for an entry is *in use*, is woken, and
//! is waited for. What handles are left with says that the store is closed.
//!
//! After a fork the child has the maps and none of the threads. Its handles say so, and its copy of the store is
//! never dropped: it is the parent's to close.

use crate::error::{closed, failure};
use crate::forks;
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use thalweg_log::{Attached, Log, Maps, Reader, Store};

/// Stores that are open in this process.
static STORES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// A store of this process, or another's that is read here.
#[derive(Clone)]
pub(crate) enum Backing {
    Own(Store),
    Attached(Attached),
}

impl Backing {
    pub(crate) fn reader(&self, log: &Arc<Log>) -> Reader {
        match self {
            Backing::Own(store) => store.reader(log),
            Backing::Attached(attached) => attached.reader(log),
        }
    }

    pub(crate) fn maps(&self) -> Maps {
        match self {
            Backing::Own(store) => store.maps(),
            Backing::Attached(attached) => attached.maps(),
        }
    }
}

pub(crate) struct Shared {
    pub(crate) directory: Option<PathBuf>,
    /// Of the largest segment there may be: a commit holds a little less.
    pub(crate) segment_bytes_max: u32,
    state: Mutex<State>,
    left: Condvar,
    forked: OnceLock<()>,
}

struct State {
    open: Option<Open>,
    /// Somebody is about to have closed it.
    closing: bool,
    in_use: usize,
    /// Who sits where, and which places are free.
    seats: Vec<Option<Weak<dyn Vacate>>>,
    free: Vec<usize>,
}

/// A store that is open, and its words.
pub(crate) struct Open {
    pub(crate) backing: Backing,
    pub(crate) maps: Maps,
}

/// Where somebody walks a store.
pub(crate) struct Seat<T> {
    walker: Mutex<Option<T>>,
    place: usize,
    shared: Arc<Shared>,
}

/// Who may sit in a seat.
pub(crate) trait Sits: Send {
    /// Whether nobody has use for it now, and it stays only because somebody may soon.
    fn is_idle(&self) -> bool {
        false
    }
}

trait Vacate: Send + Sync {
    fn vacate(&self);
    fn vacate_idle(&self);
}

impl<T: Sits> Vacate for Seat<T> {
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

    /// Does something with who sits here. It must not call Python.
    #[inline]
    pub(crate) fn with<R>(&self, task: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        self.try_with(task).ok_or_else(|| self.shared.over())
    }

    /// The same, for whoever does not hold the interpreter's lock.
    #[inline]
    pub(crate) fn try_with<R>(&self, task: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.shared.forked.get().is_some() {
            return None;
        }
        self.walker.lock().as_mut().map(task)
    }

    /// Gets up, unless somebody made them.
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
        let mut state = self.shared.state.lock();
        // A store that was closed has no seats any more.
        if let Some(seat) = state.seats.get_mut(self.place) {
            *seat = None;
            state.free.push(self.place);
        }
    }
}

/// The store in use: it is not dropped before this is.
pub(crate) struct InUse<'s> {
    pub(crate) backing: Option<Backing>,
    shared: &'s Shared,
}

impl InUse<'_> {
    pub(crate) fn backing(&self) -> PyResult<&Backing> {
        self.backing.as_ref().ok_or_else(closed)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.backing = None;
        self.shared.state.lock().in_use -= 1;
        self.shared.left.notify_all();
    }
}

impl Shared {
    pub(crate) fn new(backing: Backing, directory: Option<PathBuf>, segment_bytes_max: u32) -> Arc<Shared> {
        let open = Some(Open { maps: backing.maps(), backing });
        let state = State { open, closing: false, in_use: 0, seats: Vec::new(), free: Vec::new() };
        let (left, forked) = (Condvar::new(), OnceLock::new());
        let state = Mutex::new(state);
        let shared = Arc::new(Shared { directory, segment_bytes_max, state, left, forked });
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

    /// Does something short with the store. It must not call Python.
    #[inline]
    pub(crate) fn with<R>(&self, task: impl FnOnce(&Open) -> R) -> PyResult<R> {
        if self.forked.get().is_none()
            && let Some(open) = &self.state.lock().open
        {
            return Ok(task(open));
        }
        Err(self.over())
    }

    /// The store for a call that may take its time without the interpreter's lock.
    pub(crate) fn enter(&self) -> PyResult<InUse<'_>> {
        let backing = self.with(|open| open.backing.clone())?;
        self.state.lock().in_use += 1;
        Ok(InUse { backing: Some(backing), shared: self })
    }

    /// Has somebody sit down where closing the store can make them leave. In a store that was closed meanwhile nobody does.
    pub(crate) fn seat<T: Sits + 'static>(self: &Arc<Self>, walker: T) -> PyResult<Arc<Seat<T>>> {
        let mut state = self.state.lock();
        if state.open.is_none() {
            drop(state);
            return Err(self.over());
        }
        let place = state.free.pop().unwrap_or(state.seats.len());
        let seat = Arc::new(Seat { walker: Mutex::new(Some(walker)), place, shared: self.clone() });
        let weak: Weak<dyn Vacate> = Arc::<Seat<T>>::downgrade(&seat);
        match state.seats.get_mut(place) {
            Some(free) => *free = Some(weak),
            None => state.seats.push(Some(weak)),
        }
        Ok(seat)
    }

    /// Has those leave who are idle: what they would keep mapped may be gone.
    pub(crate) fn send_idle_home(&self) {
        let state = self.state.lock();
        let seats: Vec<_> = state.seats.iter().flatten().filter_map(Weak::upgrade).collect();
        drop(state);
        seats.iter().for_each(|seat| seat.vacate_idle());
    }

    pub(crate) fn is_open(&self) -> bool {
        self.forked.get().is_none() && self.state.lock().open.is_some()
    }

    /// Closes the store. Where somebody else does, waits until they are done; nothing when it is closed already.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.forked.get().is_some() {
            return Ok(());
        }
        let (open, seats) = {
            let mut state = self.state.lock();
            state.closing |= state.open.is_some();
            (state.open.take(), std::mem::take(&mut state.seats))
        };
        let Some(open) = open else {
            py.detach(|| self.wait_until(|state| !state.closing));
            return Ok(());
        };
        seats.iter().flatten().filter_map(Weak::upgrade).for_each(|seat| seat.vacate());
        let closed = py.detach(|| self.finish(open));
        closed.map_err(|error| crate::error::io("close the store", &error))
    }

    /// Waits for whoever has it in use, and ends it.
    fn finish(&self, Open { backing, maps }: Open) -> io::Result<()> {
        maps.wake_all();
        drop(maps);
        if let Backing::Own(store) = &backing {
            // Housekeeping that rests is in use.
            store.hurry();
        }
        self.wait_until(|state| state.in_use == 0);
        let closed = match &backing {
            Backing::Own(store) => store.close(),
            Backing::Attached(_) => Ok(()),
        };
        drop(backing);
        self.state.lock().closing = false;
        self.left.notify_all();
        closed
    }

    fn wait_until(&self, is_so: impl Fn(&State) -> bool) {
        let mut state = self.state.lock();
        while !is_so(&state) {
            self.left.wait(&mut state);
        }
    }
}

/// In a child, right after the fork: the stores it inherited are its parent's.
#[pyfunction]
#[pyo3(name = "_forked")]
pub(crate) fn forked() {
    forks::note();
    for store in STORES.lock().drain(..).filter_map(|store| store.upgrade()) {
        let _ = store.forked.set(());
        // Nobody waits in a child for a thread that only its parent has.
        if let Some(state) = store.state.try_lock()
            && let Some(Open { backing: Backing::Own(own), .. }) = &state.open
        {
            let _ = own.leave_to_parent();
        }
        std::mem::forget(store);
    }
}
