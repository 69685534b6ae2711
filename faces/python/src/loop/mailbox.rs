//! Every event of a loop by one number, one shape, one queue: for callers that are no coroutines.
//!
//! Purpose: a router, another runtime, a thread that finished posts [`Event`]s here, and the loop's own
//! descriptors, timers and sockets are told the same way: `callback(kind, payload)`, the kinds being those of
//! `thalweg-events`. What is posted waits in the queue that all callbacks wait in, in its place. Invariants:
//! a post is delivered once, or refused, or said to reach no callback; what comes from the loop's own
//! sources is delivered in the turn that found it, so it is never refused. A callback keeps the context in
//! which it was registered.

use super::core::{Loop, descriptor_of};
use super::foreign::{self, call_two};
use super::handle::TimerHandle;
use super::io::{PostedEvent, Side, Target};
use super::turn::{Ready, report_raised};
use super::{os_error, truth};
use crate::numbers::Number;
use crate::storage::Bell;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use std::os::fd::{BorrowedFd, RawFd};
use thalweg_events::{CallbackId, Callbacks, Event, Kind, Noted, ROWS, Subject};
use thalweg_sys::socket;

/// How much of a socket one event takes at most.
const DATA_BYTES_MAX: usize = 64 * 1024;

/// The receiver of an event.
pub(crate) enum Registration {
    Call {
        callback: Py<PyAny>,
        context: Py<PyAny>,
        source: Source,
    },
    /// Told once: `answered` says that the answer waits already.
    Future {
        future: Py<PyAny>,
        answered: bool,
    },
}

impl Registration {
    /// A future waits for its one answer; a callback hears everything.
    fn hears(&self, kind: Kind) -> bool {
        matches!(self, Self::Call { .. }) || kind.is_answer() || kind.is_error()
    }

    /// Shows the garbage collector what is told, and by what.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Call { callback, context, source } => {
                visit.call(callback)?;
                visit.call(context)?;
                source.traverse(visit)
            }
            Self::Future { future, .. } => visit.call(future),
        }
    }
}

/// What of the loop's own brings a callback its events.
pub(crate) enum Source {
    /// Nothing: it comes from posts.
    Posts,
    Descriptor(RawFd),
    /// The socket object owns its descriptor and is kept for it.
    Socket(RawFd, Py<PyAny>),
    /// It waits in the loop as well, among its timers or to be called.
    Timer(Py<TimerHandle>),
}

impl Source {
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Posts | Self::Descriptor(_) => Ok(()),
            Self::Socket(_, socket) => visit.call(socket),
            // Shown here alone: the loop shows what waits in it if nothing else refers to that.
            Self::Timer(timer) => TimerHandle::traverse_waiting(timer, 2, visit),
        }
    }
}

/// One callback's share of a delivery.
enum Call {
    Back(Py<PyAny>, Py<PyAny>),
    Future(Py<PyAny>),
}

/// Calls the callback, or resolves the future, that is registered under the event's number.
pub(crate) fn deliver(slf: &Bound<'_, Loop>, event: Event<Option<Py<PyAny>>>) -> PyResult<()> {
    let (py, state) = (slf.py(), slf.get());
    let subject = subject_of(py, event.kind, event.payload.as_ref());
    let call = state.callbacks.with(py, |callbacks| {
        let told =
            callbacks.deliver(event.callback, event.kind, subject).filter(|told| told.hears(event.kind));
        told.map(|told| match told {
            Registration::Call { callback, context, .. } => {
                Call::Back(callback.clone_ref(py), context.clone_ref(py))
            }
            Registration::Future { future, .. } => Call::Future(future.clone_ref(py)),
        })
    })?;
    let payload = event.payload.map_or_else(|| py.None().into_bound(py), |payload| payload.into_bound(py));
    match call {
        None => Ok(()),
        Some(Call::Back(callback, context)) => {
            let kind = event.kind.number().into_pyobject(py)?;
            let callback = callback.bind(py);
            let called = foreign::in_context(context.bind(py), || call_two(callback, &kind, &payload));
            called.map(drop).or_else(|raised| report(slf, callback, event.kind, raised))
        }
        Some(Call::Future(future)) => {
            drop(state.callbacks.with(py, |callbacks| callbacks.remove(event.callback))?);
            resolve(future.bind(py), event.kind, &payload)
        }
    }
}

/// What is registered for an event: a callback or a future, or nothing any more.
#[cold]
pub(crate) fn called(py: Python<'_>, state: &Loop, id: CallbackId) -> PyResult<Py<PyAny>> {
    state.callbacks.with(py, |callbacks| match callbacks.find(id) {
        Some(Registration::Call { callback: told, .. } | Registration::Future { future: told, .. }) => {
            told.clone_ref(py)
        }
        None => py.None(),
    })
}

fn resolve(future: &Bound<'_, PyAny>, kind: Kind, payload: &Bound<'_, PyAny>) -> PyResult<()> {
    if is_done(future)? {
        return Ok(());
    }
    let name = if kind.is_error() { "set_exception" } else { "set_result" };
    let resolved = future.call_method1(name, (payload,));
    // What is no exception cannot be raised: the future fails with that error instead.
    let other = |raised: PyErr| future.call_method1("set_exception", (raised.into_value(future.py()),));
    resolved.or_else(other).map(drop)
}

#[cold]
fn report(slf: &Bound<'_, Loop>, callback: &Bound<'_, PyAny>, kind: Kind, raised: PyErr) -> PyResult<()> {
    let name = ROWS.iter().find(|row| row.kind == kind).map_or("", |row| row.name);
    report_raised(slf, raised, &format!("Exception in {callback:?}, told of {name}"))
}

/// A socket with a callback is readable: the one call that reads and tells. It stays watched, with nothing to
/// re-arm, until the peer ends; datagrams have no end, and an error of one is none.
pub(crate) fn read_socket(slf: &Bound<'_, Loop>, descriptor: RawFd, callback: CallbackId) -> PyResult<()> {
    let (py, state) = (slf.py(), slf.get());
    // SAFETY: the callback is registered still, or nothing watched it, and holds the socket object that owns
    // the descriptor; a number closed behind our back makes the calls fail, nothing worse.
    let from = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let received = state.scratch.with(py, |scratch| {
        scratch.clear();
        scratch.reserve(DATA_BYTES_MAX);
        let count = socket::receive(from, scratch, DATA_BYTES_MAX)?;
        Ok::<_, std::io::Error>(count.map(|_| PyBytes::new(py, scratch)))
    })?;
    let may_end = !matches!(&received, Ok(Some(data)) if !data.as_bytes().is_empty());
    let ends = may_end && !socket::is_datagram(from);
    let (kind, payload) = match received {
        Ok(None) => return Ok(()),
        Ok(Some(_)) if ends => (Kind::SocketClosed, None),
        Ok(Some(data)) => (Kind::SocketData, Some(data.into_any().unbind())),
        Err(error) => (Kind::SocketError, Some(os_error(&error).into_value(py).into_any())),
    };
    if ends {
        unwatch(py, state, descriptor, callback)?;
    }
    deliver(slf, Event { callback, kind, payload })
}

/// Takes a callback's watches off a descriptor. One that was closed may have left its number to another,
/// whose they stay.
fn unwatch(py: Python<'_>, state: &Loop, descriptor: RawFd, callback: CallbackId) -> PyResult<()> {
    for side in [Side::Read, Side::Write] {
        if state.io.with(py, |io| io.tells(descriptor, side, callback))? {
            state.unwatch(py, descriptor, side)?;
        }
    }
    Ok(())
}

/// What a loop is told by numbers.
#[pyclass(module = "thalweg._native", frozen, subclass)]
pub(crate) struct Mailbox {
    owner: Py<Loop>,
}

impl Mailbox {
    fn insert(&self, py: Python<'_>, told: Registration) -> PyResult<CallbackId> {
        let state = self.owner.get();
        state.open(py)?;
        state.callbacks.with(py, |callbacks| callbacks.insert(told))
    }

    fn insert_call(&self, callback: Bound<'_, PyAny>, source: Source) -> PyResult<CallbackId> {
        if !callback.is_callable() {
            return Err(PyTypeError::new_err(format!("a callback is called: {callback:?} is not")));
        }
        let context = foreign::current_context(callback.py())?;
        self.insert(
            callback.py(),
            Registration::Call { callback: callback.clone().unbind(), context, source },
        )
    }

    /// What a transport has is its alone, also while it does not read.
    fn refuse_transports(&self, py: Python<'_>, fd: RawFd) -> PyResult<()> {
        self.owner.bind(py).call_method1(intern!(py, "_ensure_fd_no_transport"), (fd,)).map(drop)
    }

    /// A number for what is told of a descriptor. None where nothing can be watched, as from another thread
    /// while the loop sleeps: it could not be let go of there.
    fn insert_watch(&self, callback: Bound<'_, PyAny>, source: Source) -> PyResult<CallbackId> {
        self.owner.get().ensure_may_watch(callback.py())?;
        self.insert_call(callback, source)
    }

    fn watch_or_remove(
        &self,
        py: Python<'_>,
        id: CallbackId,
        fd: RawFd,
        side: Side,
        target: Target,
    ) -> PyResult<()> {
        self.owner.get().watch(py, fd, side, target).inspect_err(|_| drop(self.let_go(py, id)))
    }

    /// What `unregister` does.
    fn let_go(&self, py: Python<'_>, id: CallbackId) -> PyResult<bool> {
        let state = self.owner.get();
        let watched = state.callbacks.with(py, |callbacks| match callbacks.find(id) {
            Some(Registration::Call { source: Source::Descriptor(fd) | Source::Socket(fd, _), .. }) => {
                Some(*fd)
            }
            _ => None,
        })?;
        // First, for it may be refused: a watch whose number is gone could not be taken off.
        if let Some(fd) = watched {
            unwatch(py, state, fd, id)?;
        }
        match state.callbacks.with(py, |callbacks| callbacks.remove(id))? {
            None => return Ok(false),
            Some(Registration::Call { source: Source::Timer(timer), .. }) => {
                TimerHandle::cancel(timer.bind(py))?
            }
            Some(Registration::Future { future, .. }) => self.cancel(future.bind(py))?,
            Some(_) => {}
        }
        Ok(true)
    }

    /// Nothing will resolve a future any more, so it is cancelled. By the loop, if it runs in another
    /// thread, which alone may touch a future.
    fn cancel(&self, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = future.py();
        let cancel = future.getattr(intern!(py, "cancel"))?;
        let handed = self.owner.bind(py).call_method1(intern!(py, "_hands_over"), (&cancel,))?;
        if handed.is_truthy()? { Ok(()) } else { cancel.call0().map(drop) }
    }
}

/// Notes an event for the callback or future that hears of its kind; the future, where it is one. Of a
/// future's answers the first is noted, and is the only one from then on, whichever thread has the next.
fn note(
    py: Python<'_>,
    callbacks: &mut Callbacks<Registration>,
    id: CallbackId,
    kind: Kind,
    subject: Subject,
) -> (Noted, Option<Py<PyAny>>) {
    let future = match callbacks.find(id) {
        Some(told) if !told.hears(kind) => return (Noted::Unknown, None),
        Some(Registration::Future { future, answered }) => {
            if std::mem::replace(answered, true) {
                return (Noted::Unknown, None);
            }
            Some(future.clone_ref(py))
        }
        Some(Registration::Call { .. }) | None => None,
    };
    (callbacks.note(id, kind, subject), future)
}

/// What was noted does not wait after all: the next one does in its place.
fn forget(callbacks: &mut Callbacks<Registration>, id: CallbackId, kind: Kind, subject: Subject) {
    callbacks.deliver(id, kind, subject);
    if let Some(Registration::Future { answered, .. }) = callbacks.find(id) {
        *answered = false;
    }
}

/// Whether a future is not awaited any more: it was cancelled, or has been resolved already.
fn is_done(future: &Bound<'_, PyAny>) -> PyResult<bool> {
    future.call_method0(intern!(future.py(), "done"))?.is_truthy()
}

/// Which descriptor an event is of, by its payload. Nothing but a number is compared: anything else may run
/// Python.
#[inline]
fn subject_of(py: Python<'_>, kind: Kind, payload: Option<&Py<PyAny>>) -> Subject {
    match payload.map(|payload| payload.bind(py)) {
        Some(payload) if kind.says_the_same_twice() && !payload.is_none() => {
            let number = payload.cast_exact::<PyInt>().ok().and_then(|number| number.extract().ok());
            number.map_or(Subject::Other, Subject::Number)
        }
        _ => Subject::Unsaid,
    }
}

/// Whom a number stands for; one that no callback can have is refused by name.
fn callback_of(id: Number<u64>) -> PyResult<CallbackId> {
    id.whole("id").map(CallbackId::of).map_err(PyValueError::new_err)
}

/// For how many seconds; for less than none it is at once.
fn delay_of(delay: Number<f64>) -> PyResult<f64> {
    let text = match delay {
        Number::Fits(seconds) if !seconds.is_nan() => return Ok(seconds),
        Number::Fits(seconds) => seconds.to_string(),
        Number::Outside(text) => *text,
    };
    Err(PyValueError::new_err(format!("delay is {text}: give seconds")))
}

fn kind_of(number: Number<u8>) -> PyResult<Kind> {
    let (found, text) = match number {
        Number::Fits(number) => (Kind::of(number), number.to_string()),
        Number::Outside(text) => (None, *text),
    };
    found.ok_or_else(|| PyValueError::new_err(format!("{text} is no kind of event")))
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new(owner: &Bound<'_, Loop>) -> Self {
        Self { owner: owner.clone().unbind() }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owner)
    }

    /// Registers `callback(kind, payload)` for whatever is posted to the number returned.
    fn register(&self, callback: Bound<'_, PyAny>) -> PyResult<u64> {
        self.insert_call(callback, Source::Posts).map(CallbackId::number)
    }

    /// A number and a future: the first answer or error that is posted resolves it; of anything else it hears
    /// nothing. Its number goes with it once it is done or cancelled, and stays for as long as neither
    /// happens. In the loop's thread only.
    fn future<'py>(slf: &Bound<'py, Self>) -> PyResult<(u64, Bound<'py, PyAny>)> {
        let (py, this) = (slf.py(), slf.get());
        let future = this.owner.bind(py).call_method0(intern!(py, "create_future"))?;
        let told = Registration::Future { future: future.clone().unbind(), answered: false };
        let number = this.insert(py, told)?.number();
        // The collector sees through what Python made, as it has to: the future is known to the mailbox, and
        // knows it.
        let done = slf.getattr(intern!(py, "_future_done"))?;
        let done =
            py.import(intern!(py, "functools"))?.call_method1(intern!(py, "partial"), (done, number))?;
        future.call_method1(intern!(py, "add_done_callback"), (done,))?;
        Ok((number, future))
    }

    /// Lets go of a future's number, if its answer has not.
    fn _future_done(&self, py: Python<'_>, id: u64, _future: &Bound<'_, PyAny>) -> PyResult<()> {
        self.owner.get().callbacks.with(py, |callbacks| callbacks.remove(CallbackId::of(id))).map(drop)
    }

    /// Tells `callback` whenever a descriptor is ready. Refused where it has another watcher. In the
    /// loop's thread only.
    #[pyo3(signature = (fd, callback, *, read = true, write = false))]
    fn watch(
        &self,
        fd: &Bound<'_, PyAny>,
        callback: Bound<'_, PyAny>,
        #[pyo3(from_py_with = truth)] read: bool,
        #[pyo3(from_py_with = truth)] write: bool,
    ) -> PyResult<u64> {
        if !(read || write) {
            return Err(PyValueError::new_err("watch for reading, for writing, or for both"));
        }
        let (py, number) = (fd.py(), descriptor_of(fd)?);
        self.refuse_transports(py, number)?;
        let id = self.insert_watch(callback, Source::Descriptor(number))?;
        for (_, side) in [(read, Side::Read), (write, Side::Write)].into_iter().filter(|(asked, _)| *asked) {
            self.watch_or_remove(py, id, number, side, Target::Events(id))?;
        }
        Ok(id.number())
    }

    /// Tells `callback` what comes from a connected, non-blocking socket. Refused as in `watch`. In the
    /// loop's thread only.
    fn socket(&self, sock: &Bound<'_, PyAny>, callback: Bound<'_, PyAny>) -> PyResult<u64> {
        let number = descriptor_of(sock)?;
        self.refuse_transports(sock.py(), number)?;
        let id = self.insert_watch(callback, Source::Socket(number, sock.clone().unbind()))?;
        self.watch_or_remove(sock.py(), id, number, Side::Read, Target::Socket(id))?;
        Ok(id.number())
    }

    /// Tells `callback` once, in `delay` seconds, never early. In the loop's thread only.
    fn timer(slf: &Bound<'_, Self>, delay: Number<f64>, callback: Bound<'_, PyAny>) -> PyResult<u64> {
        let (py, this, delay) = (slf.py(), slf.get(), delay_of(delay)?);
        let id = this.insert_call(callback, Source::Posts)?;
        let due = slf.getattr(intern!(py, "_due"))?;
        let timer = this.owner.bind(py).call_method1(intern!(py, "call_later"), (delay, due, id.number()));
        let timer = timer.and_then(|timer| Ok(timer.extract::<Py<TimerHandle>>()?));
        let timer = timer.inspect_err(|_| drop(this.let_go(py, id)))?;
        this.owner.get().callbacks.with(py, |callbacks| {
            if let Some(Registration::Call { source, .. }) = callbacks.find(id) {
                *source = Source::Timer(timer);
            }
        })?;
        Ok(id.number())
    }

    fn _due(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        let callback = CallbackId::of(id);
        let delivered = deliver(self.owner.bind(py), Event { callback, kind: Kind::Timer, payload: None });
        self.let_go(py, callback)?;
        delivered
    }

    /// Nothing is told any more; whether there was such a number. Events that wait are dropped, and a future
    /// is cancelled. One of `watch` or `socket` in the loop's thread only: while the loop sleeps another's is
    /// refused, and the number stays. Any other from any thread.
    fn unregister(&self, py: Python<'_>, id: Number<u64>) -> PyResult<bool> {
        self.let_go(py, callback_of(id)?)
    }

    /// Posts an event, from any thread: whether a callback is told of it. One that would only repeat what
    /// waits already, of the same side of the same descriptor, is not queued again. Raises `Overloaded`
    /// when as many wait as may.
    #[pyo3(signature = (id, kind, payload = None))]
    fn post(
        &self,
        py: Python<'_>,
        id: Number<u64>,
        kind: Number<u8>,
        payload: Option<Py<PyAny>>,
    ) -> PyResult<bool> {
        let (state, id, kind) = (self.owner.get(), callback_of(id)?, kind_of(kind)?);
        state.open(py)?;
        let subject = subject_of(py, kind, payload.as_ref());
        let (noted, future) = state.callbacks.with(py, |callbacks| note(py, callbacks, id, kind, subject))?;
        // Nothing is to be undone: its number is about to go.
        if let Some(future) = future
            && is_done(future.bind(py))?
        {
            return Ok(false);
        }
        match noted {
            Noted::Unknown => return Ok(false),
            Noted::Waiting => return Ok(true),
            Noted::New => {}
        }
        if state.is_full(py)? {
            // Before another thread may run, as it may once Python is asked for words: what that one posts
            // would not be queued beside this.
            state.callbacks.with(py, |callbacks| forget(callbacks, id, kind, subject))?;
            return Err(state.refuse(py));
        }
        let event = Event { callback: id, kind, payload };
        state.ready.with(py, |ready| ready.push_back(Ready::Event(event)))?;
        state.wake(py);
        Ok(true)
    }

    /// Raises where nothing can be watched: for a caller that is about to begin what cannot be undone.
    fn _ensure_may_watch(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.get().ensure_may_watch(py)
    }

    /// Tells of an event there and then: for sources of the loop's own.
    #[pyo3(signature = (id, kind, payload = None))]
    fn _tell(&self, py: Python<'_>, id: u64, kind: Number<u8>, payload: Option<Py<PyAny>>) -> PyResult<()> {
        deliver(self.owner.bind(py), Event { callback: CallbackId::of(id), kind: kind_of(kind)?, payload })
    }

    /// A bell that posts ASYNC_RESULT when it rings, from whatever thread, without Python.
    fn bell(&self, py: Python<'_>, id: Number<u64>) -> PyResult<Bell> {
        let (handle, id) = (self.owner.get().waker(py)?, callback_of(id)?);
        Ok(Bell::posting(handle, move || PostedEvent(id, Kind::AsyncResult)))
    }

    /// Callbacks and events that may wait, at most, for one more to be posted.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> usize {
        self.owner.get().capacity.get(py)
    }

    #[setter]
    fn set_capacity(&self, py: Python<'_>, events: Number<usize>) -> PyResult<()> {
        let events = events.whole("capacity").map_err(PyValueError::new_err)?;
        self.owner.get().capacity.set(py, events);
        Ok(())
    }

    /// Callbacks and events that wait to be called.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> PyResult<usize> {
        self.owner.get().ready.with(py, |ready| ready.len())
    }

    /// How many were refused because as many waited as may.
    #[getter]
    fn refused(&self, py: Python<'_>) -> u64 {
        self.owner.get().refused.get(py)
    }

    #[getter]
    fn _owner(&self, py: Python<'_>) -> Py<Loop> {
        self.owner.clone_ref(py)
    }

    /// How many numbers are registered.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.owner.get().callbacks.with(py, |callbacks| callbacks.len())
    }

    fn __bool__(&self) -> bool {
        true
    }
}

/// The kinds: name and number.
#[pyfunction]
pub(crate) fn _event_kinds() -> Vec<(&'static str, u8)> {
    ROWS.iter().map(|row| (row.name, row.kind.number())).collect()
}
