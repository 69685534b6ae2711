//! The class that Python's `EventLoop` stands on: scheduling, time, and what is watched.
//!
//! The names with an underscore are those that asyncio's own base classes call. Two of its attributes are
//! kept here, because every turn asks for them: whether the loop is to stop, and whether it is in debug mode.

use super::accepting::Acceptor;
use super::gil_cells::{GilCell, GilRefCell};
use super::handle::{Handle, TimerHandle};
use super::io::{Io, PostedEvent, Side, Target};
use super::mailbox::Registration;
use super::spare::Spare;
use super::timers::{Timers, due_ns, seconds};
use super::turn::{self, Ready, not_ours};
use super::volley::WriteBatch;
use super::{os_error, truth};
use crate::error;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyTuple};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use thalweg_events::Callbacks;
use thalweg_sys::clock;

/// Calls and events that may wait in a loop, at most, for one more event to be posted; beyond that the
/// post is refused.
const QUEUED_MAX: usize = 1 << 20;

/// What a loop is made of.
#[pyclass(module = "thalweg._native", frozen, subclass)]
pub(crate) struct Loop {
    pub(crate) ready: GilRefCell<VecDeque<Ready>>,
    pub(crate) spare: Spare,
    pub(crate) timers: GilRefCell<Timers>,
    pub(crate) io: GilRefCell<Io>,
    pub(crate) stopping: GilCell<bool>,
    pub(crate) debug: GilCell<bool>,
    closed: GilCell<bool>,
    /// What every connection reads into.
    pub(crate) scratch: GilRefCell<Vec<u8>>,
    /// Whether the loop sleeps, or is about to: then a call from another thread wakes it, once.
    pub(crate) waiting: GilCell<bool>,
    /// There until the loop is closed: its descriptor goes with it, whoever refers to the loop still.
    waker: GilRefCell<Option<thalweg_reactor::Handle<PostedEvent>>>,
    /// The receivers of events by number.
    pub(crate) callbacks: GilRefCell<Callbacks<Registration>>,
    /// How many may wait in `ready` for one more to be posted.
    pub(crate) capacity: GilCell<usize>,
    pub(crate) refused: GilCell<u64>,
    /// What connections write in a turn in which many of them are ready.
    pub(crate) write_batch: WriteBatch,
}

impl Loop {
    /// Refuses when the loop is closed.
    #[inline]
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<()> {
        if self.closed.get(py) { Err(closed()) } else { Ok(()) }
    }

    /// A timer among ours was cancelled.
    pub(crate) fn timer_cancelled(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.timers.with(py, |timers| timers.count_cancelled(py))?);
        Ok(())
    }

    /// Whether as many wait as may.
    #[inline]
    pub(crate) fn is_full(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.ready.with(py, |ready| ready.len())? >= self.capacity.get(py))
    }

    /// What is said of a post when as many wait as may.
    #[cold]
    pub(crate) fn refuse(&self, py: Python<'_>) -> PyErr {
        self.refused.set(py, self.refused.get(py) + 1);
        let why = "the event loop does not keep up: too many calls and events wait in it, try again later";
        error::failure("OVERLOADED", why)
    }

    /// Refuses when nothing can be watched: the loop is closed, or another process's.
    pub(crate) fn ensure_may_watch(&self, py: Python<'_>) -> PyResult<()> {
        self.open(py)?;
        if self.io.with(py, |io| io.may_watch())? { Ok(()) } else { Err(not_ours()) }
    }

    /// Wakes the loop if it sleeps: something was queued from another thread.
    #[inline]
    pub(crate) fn wake(&self, py: Python<'_>) {
        if self.waiting.replace(py, false) {
            // A loop that is closed does not sleep.
            let _ = self.waker.with(py, |waker| waker.as_ref().map(thalweg_reactor::Handle::nudge));
        }
    }

    /// What posts to the loop from any thread, without Python.
    pub(crate) fn waker(&self, py: Python<'_>) -> PyResult<thalweg_reactor::Handle<PostedEvent>> {
        self.waker.with(py, |waker| waker.clone())?.ok_or_else(closed)
    }

    /// Whether the loop sleeps, in another thread: nothing of what is watched can be changed then.
    #[inline]
    pub(crate) fn is_away(&self, py: Python<'_>) -> bool {
        self.io.is_lent(py)
    }

    /// Queues a handle to be called in the next turn.
    #[inline]
    pub(crate) fn queue(&self, py: Python<'_>, handle: Py<Handle>) -> PyResult<()> {
        self.ready.with(py, |ready| ready.push_back(Ready::Call(handle)))
    }

    /// Sets the target of one side of a descriptor. Refused where one of the two is told by number: see
    /// `Io::is_taken`.
    pub(crate) fn watch(&self, py: Python<'_>, fd: RawFd, side: Side, target: Target) -> PyResult<()> {
        if !self.io.with(py, |io| io.may_watch())? {
            return Err(not_ours());
        }
        if self.io.with(py, |io| io.is_taken(fd, side, &target))? {
            return Err(taken(fd));
        }
        let before = self.io.with(py, |io| io.watch(fd, side, target))?.map_err(|e| os_error(&e))?;
        before.map_or(Ok(()), |before| before.replaced(py, side))
    }

    /// Refuses a transport what a callback is told of by number.
    pub(crate) fn ensure_no_number(&self, py: Python<'_>, fd: RawFd) -> PyResult<()> {
        if self.io.with(py, |io| io.is_numbers(fd))? { Err(taken(fd)) } else { Ok(()) }
    }

    /// Whether that side had a target.
    pub(crate) fn unwatch(&self, py: Python<'_>, fd: RawFd, side: Side) -> PyResult<bool> {
        let before = self.io.with(py, |io| io.unwatch(fd, side))?;
        if let Some(before) = &before {
            before.let_go(py);
        }
        Ok(before.is_some())
    }

    fn watch_call(
        slf: &Bound<'_, Self>,
        fd: &Bound<'_, PyAny>,
        side: Side,
        callback: Bound<'_, PyAny>,
        arguments: Bound<'_, PyTuple>,
    ) -> PyResult<Py<Handle>> {
        let (py, state) = (slf.py(), slf.get());
        state.open(py)?;
        let handle = state.traced(py, Handle::new(py, callback, arguments, None)?)?.into_object(py)?;
        let object = (!fd.is_instance_of::<PyInt>()).then(|| fd.clone().unbind());
        state.watch(py, descriptor_of(fd)?, side, Target::Call(handle.clone_ref(py), object))?;
        Ok(handle)
    }

    fn unwatch_call(&self, fd: &Bound<'_, PyAny>, side: Side) -> PyResult<bool> {
        if self.closed.get(fd.py()) {
            return Ok(false);
        }
        let descriptor = match descriptor_of(fd) {
            Ok(descriptor) => descriptor,
            // Closed before it was taken off, as many do.
            Err(refused) => self.io.with(fd.py(), |io| io.descriptor_of(fd))?.ok_or(refused)?,
        };
        // That is for `Mailbox.unregister` to take off.
        if self.io.with(fd.py(), |io| io.tells_number(descriptor, side))? {
            return Ok(false);
        }
        self.unwatch(fd.py(), descriptor, side)
    }

    /// What debug mode asks of a call before it is scheduled.
    #[cold]
    fn check(
        slf: &Bound<'_, Self>,
        callback: &Bound<'_, PyAny>,
        name: &str,
        same_thread: bool,
    ) -> PyResult<()> {
        if same_thread {
            slf.call_method0("_check_thread")?;
        }
        slf.call_method1("_check_callback", (callback, name)).map(drop)
    }

    /// Has a handle know, in debug mode, where it was made: reports of its call show it.
    #[inline]
    pub(crate) fn traced(&self, py: Python<'_>, handle: Handle) -> PyResult<Handle> {
        if self.debug.get(py) {
            Self::trace(py, &handle)?;
        }
        Ok(handle)
    }

    #[cold]
    fn trace(py: Python<'_>, handle: &Handle) -> PyResult<()> {
        let frame = py.import("sys")?.call_method1("_getframe", (0,))?;
        let stack = py.import("asyncio.format_helpers")?.call_method1("extract_stack", (frame,))?;
        handle.traceback.set(py, Some(stack.unbind()));
        Ok(())
    }

    /// What every way of scheduling begins with: the handle of a call, which debug mode has looked at.
    /// `on_loop_thread`: whether `method` may be called by the loop's own thread only.
    #[inline]
    fn handle(
        slf: &Bound<'_, Self>,
        callback: Bound<'_, PyAny>,
        arguments: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
        method: &str,
        on_loop_thread: bool,
    ) -> PyResult<Handle> {
        let (py, state) = (slf.py(), slf.get());
        state.open(py)?;
        if state.debug.get(py) {
            Self::check(slf, &callback, method, on_loop_thread)?;
        }
        state.traced(py, Handle::new(py, callback, arguments, context)?)
    }

    /// Puts a call behind those that the next turn makes. The interpreter's lock makes one queue of all
    /// threads' calls, in the order in which they were made.
    #[inline]
    fn enqueue(&self, py: Python<'_>, handle: Handle) -> PyResult<Py<Handle>> {
        let handle = self.spare.object(py, handle)?;
        self.queue(py, handle.clone_ref(py))?;
        Ok(handle)
    }

    fn schedule(
        slf: &Bound<'_, Self>,
        when: f64,
        callback: Bound<'_, PyAny>,
        arguments: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<TimerHandle>> {
        let (py, state) = (slf.py(), slf.get());
        let base = Self::handle(slf, callback, arguments, context, "call_at", true)?;
        let timer = TimerHandle::new(when, Some(slf.clone().unbind()));
        let handle = timer.into_object(py, base)?;
        state.timers.with(py, |timers| timers.push(due_ns(when), handle.clone_ref(py)))?;
        Ok(handle)
    }
}

#[cold]
fn closed() -> PyErr {
    PyRuntimeError::new_err("Event loop is closed")
}

#[cold]
fn taken(fd: RawFd) -> PyErr {
    PyRuntimeError::new_err(format!("File descriptor {fd} is watched already"))
}

/// The number of a descriptor, or of what has one.
pub(crate) fn descriptor_of(from: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    let number = match from.extract::<RawFd>() {
        Ok(number) => number,
        Err(_) => {
            let asked = from.call_method0(intern!(from.py(), "fileno")).and_then(|number| number.extract());
            asked.map_err(|_| PyValueError::new_err(format!("Invalid file object: {from:?}")))?
        }
    };
    if number < 0 {
        Err(PyValueError::new_err(format!("Invalid file descriptor: {number}")))
    } else {
        Ok(number)
    }
}

#[pymethods]
impl Loop {
    #[new]
    #[pyo3(signature = (*_arguments, **_words))]
    fn new(
        py: Python<'_>,
        _arguments: &Bound<'_, PyTuple>,
        _words: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (io, waker) = Io::new()?;
        Ok(Self {
            ready: GilRefCell::new(VecDeque::new()),
            spare: Spare::new(py)?,
            timers: GilRefCell::new(Timers::default()),
            io: GilRefCell::new(io),
            stopping: GilCell::new(false),
            debug: GilCell::new(false),
            closed: GilCell::new(false),
            scratch: GilRefCell::new(Vec::new()),
            waiting: GilCell::new(false),
            waker: GilRefCell::new(Some(waker)),
            callbacks: GilRefCell::new(Callbacks::default()),
            capacity: GilCell::new(QUEUED_MAX),
            refused: GilCell::new(0),
            write_batch: WriteBatch::default(),
        })
    }

    /// Calls `callback(*args)` in the next turn.
    #[pyo3(signature = (callback, *args, context = None))]
    fn call_soon(
        slf: &Bound<'_, Self>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<Handle>> {
        let handle = Self::handle(slf, callback, args, context, "call_soon", true)?;
        slf.get().enqueue(slf.py(), handle)
    }

    /// Calls `callback(*args)` in the loop, from any thread. Never refused while the loop is open: results of
    /// executors and of waits in other threads come this way, and nothing would hear of a refusal.
    #[pyo3(signature = (callback, *args, context = None))]
    fn call_soon_threadsafe(
        slf: &Bound<'_, Self>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<Handle>> {
        let handle = Self::handle(slf, callback, args, context, "call_soon_threadsafe", false)?;
        let handle = slf.get().enqueue(slf.py(), handle)?;
        slf.get().wake(slf.py());
        Ok(handle)
    }

    /// Calls `callback(*args)` in `delay` seconds, never early.
    #[pyo3(signature = (delay, callback, *args, context = None))]
    fn call_later(
        slf: &Bound<'_, Self>,
        delay: &Bound<'_, PyAny>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<TimerHandle>> {
        if delay.is_none() {
            return Err(PyTypeError::new_err("delay must not be None"));
        }
        let delay: f64 = delay.extract()?;
        Self::schedule(slf, seconds(clock::monotonic_ns()) + delay, callback, args, context)
    }

    /// Calls `callback(*args)` when the loop's clock says `when`, never early.
    #[pyo3(signature = (when, callback, *args, context = None))]
    fn call_at(
        slf: &Bound<'_, Self>,
        when: &Bound<'_, PyAny>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<TimerHandle>> {
        if when.is_none() {
            return Err(PyTypeError::new_err("when cannot be None"));
        }
        Self::schedule(slf, when.extract()?, callback, args, context)
    }

    /// Seconds on the loop's clock: the monotonic one.
    fn time(&self) -> f64 {
        seconds(clock::monotonic_ns())
    }

    /// Turns until a stop is asked for. asyncio's `run_forever` calls it once per turn; here once is all.
    fn _run_once(slf: &Bound<'_, Self>) -> PyResult<()> {
        turn::run(slf)
    }

    #[pyo3(signature = (fd, callback, *args))]
    fn _add_reader(
        slf: &Bound<'_, Self>,
        fd: &Bound<'_, PyAny>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
    ) -> PyResult<Py<Handle>> {
        Self::watch_call(slf, fd, Side::Read, callback, args)
    }

    #[pyo3(signature = (fd, callback, *args))]
    fn _add_writer(
        slf: &Bound<'_, Self>,
        fd: &Bound<'_, PyAny>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
    ) -> PyResult<Py<Handle>> {
        Self::watch_call(slf, fd, Side::Write, callback, args)
    }

    fn _remove_reader(&self, fd: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.unwatch_call(fd, Side::Read)
    }

    fn _remove_writer(&self, fd: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.unwatch_call(fd, Side::Write)
    }

    /// Whether reading and writing are watched; `None` for a descriptor that is not.
    fn _watched(&self, py: Python<'_>, fd: RawFd) -> PyResult<Option<(bool, bool)>> {
        self.io.with(py, |io| io.sides(fd))
    }

    /// The descriptors that are watched.
    fn _watched_descriptors(&self, py: Python<'_>) -> PyResult<Vec<RawFd>> {
        self.io.with(py, |io| io.descriptors())
    }

    /// Takes connections from a listening socket: `connected(descriptor, address)` owns each,
    /// `refused(error)` hears why there was none. So many are taken in a turn at most.
    fn _accept(
        slf: &Bound<'_, Self>,
        sock: &Bound<'_, PyAny>,
        connected: Py<PyAny>,
        refused: Py<PyAny>,
        turn_connections_max: usize,
    ) -> PyResult<()> {
        slf.get().open(slf.py())?;
        Acceptor::start(slf, sock, connected, refused, turn_connections_max)
    }

    /// Lets go of everything that is scheduled or watched.
    fn _let_go(&self, py: Python<'_>) -> PyResult<()> {
        let ready = self.ready.with(py, std::mem::take)?;
        let timers = self.timers.with(py, Timers::clear)?;
        let targets = self.io.with(py, Io::close)?;
        let callbacks = self.callbacks.with(py, Callbacks::clear)?;
        // References to a handle keep it, but not what it would have called.
        ready.iter().for_each(|ready| ready.let_go(py));
        timers.iter().for_each(|timer| TimerHandle::let_go(timer.bind(py)));
        targets.iter().for_each(|target| target.let_go(py));
        drop((ready, timers, targets, callbacks, self.waker.with(py, Option::take)?));
        self.write_batch.close(py)?;
        self.spare.clear(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.ready.traverse(|ready| ready.iter().try_for_each(|ready| ready.traverse(&visit)))?;
        self.timers.traverse(|timers| timers.traverse(&visit))?;
        self.io.traverse(|io| io.traverse(&visit))?;
        self.callbacks.traverse(|callbacks| callbacks.iter().try_for_each(|told| told.traverse(&visit)))?;
        self.write_batch.traverse(&visit)
    }

    fn __clear__(&self, py: Python<'_>) -> PyResult<()> {
        self._let_go(py)
    }

    /// Writes that shared a system call with others'.
    #[getter]
    fn _sent_together(&self, py: Python<'_>) -> u64 {
        self.write_batch.sent.get(py)
    }

    #[getter(_stopping)]
    fn stopping(&self, py: Python<'_>) -> bool {
        self.stopping.get(py)
    }

    #[setter(_stopping)]
    fn set_stopping(&self, py: Python<'_>, #[pyo3(from_py_with = truth)] to: bool) {
        self.stopping.set(py, to);
    }

    #[getter(_debug)]
    fn debug(&self, py: Python<'_>) -> bool {
        self.debug.get(py)
    }

    #[setter(_debug)]
    fn set_debug_mode(&self, py: Python<'_>, #[pyo3(from_py_with = truth)] to: bool) {
        self.debug.set(py, to);
    }

    #[getter(_closed)]
    fn closed(&self, py: Python<'_>) -> bool {
        self.closed.get(py)
    }

    #[setter(_closed)]
    fn set_closed(&self, py: Python<'_>, #[pyo3(from_py_with = truth)] to: bool) {
        self.closed.set(py, to);
    }
}
