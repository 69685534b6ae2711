//! One turn of the loop, and the order of things in it.
//!
//! What is ready when a turn begins is called in the turn; what is scheduled meanwhile, in the next. Before
//! it come the descriptors that are ready and the timers that are due, in this order, behind what was
//! scheduled already. While callbacks keep scheduling callbacks the kernel is asked only now and then: that
//! is what a turn would spend most of its time on otherwise.

use super::core::Loop;
use super::datagram::DatagramTransport;
use super::foreign;
use super::handle::Handle;
use super::io::{Io, PolledItem, ReadyDescriptor, Side, Target};
use super::mailbox;
use super::volley::WriteBatch;
use crate::error;
use crate::hearing;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PySystemExit};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use thalweg_events::{Event, Kind};
use thalweg_reactor::Wait;
use thalweg_sys::clock;

/// For so long the kernel is not asked again while there is something to call.
const LOOK_AGAIN_NS: u64 = 50_000;
/// So many turns are made without a look at the clock, if turns were this short lately: together less than
/// the above.
const QUICK_TURNS: u32 = 16;
const QUICK_TURN_NS: u64 = 2_000;
/// Turns that grow long all at once are found out when the kernel's clock ticks: this late, with the slowest
/// clock there is.
const TICK_NS: u64 = 10_000_000;

/// When the loop last looked at what.
#[derive(Default)]
struct Pace {
    /// The clock, as last read.
    now_ns: u64,
    asked_kernel_ns: u64,
    /// The kernel's last tick when quick turns began.
    tick_ns: u64,
    /// Turns since the clock was read, and how many may still come before it is read again.
    turns: u32,
    quick_left: u32,
}

impl Pace {
    /// Whether this turn may go without a look at the clock: turns are short, as far as the kernel's ticks
    /// tell, and no timer comes due before the next tick.
    #[inline]
    fn is_quick(&mut self, first_ns: Option<u64>) -> bool {
        self.turns += 1;
        let is_near = first_ns.is_some_and(|first_ns| first_ns < self.now_ns + TICK_NS);
        if self.quick_left == 0 || is_near || clock::coarse_ns() != self.tick_ns {
            return false;
        }
        self.quick_left -= 1;
        true
    }

    #[inline]
    fn read_clock(&mut self) {
        let now_ns = clock::monotonic_ns();
        let quick = now_ns.saturating_sub(self.now_ns) < u64::from(self.turns) * QUICK_TURN_NS;
        (self.now_ns, self.turns, self.quick_left) = (now_ns, 0, 0);
        if quick {
            (self.tick_ns, self.quick_left) = (clock::coarse_ns(), QUICK_TURNS);
        }
    }
}

/// What is to be done in a turn.
pub(crate) enum Ready {
    Call(Py<Handle>),
    ReadyDescriptor(ReadyDescriptor),
    Event(Event<Option<Py<PyAny>>>),
}

impl Ready {
    /// The loop is closed: what was to be called holds nothing any more.
    pub(crate) fn let_go(&self, py: Python<'_>) {
        if let Self::Call(handle) = self {
            drop(handle.get().let_go(py));
        }
    }

    /// Shows the garbage collector what waits.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Call(handle) => Handle::traverse_waiting(handle, visit),
            Self::Event(event) => visit.call(&event.payload),
            Self::ReadyDescriptor(_) => Ok(()),
        }
    }
}

impl From<PolledItem> for Ready {
    fn from(found: PolledItem) -> Self {
        match found {
            PolledItem::ReadyDescriptor(seen) => Self::ReadyDescriptor(seen),
            PolledItem::Event(callback, kind) => Self::Event(Event { callback, kind, payload: None }),
        }
    }
}

/// Turns until the loop is asked to stop; at least once.
pub(crate) fn run(slf: &Bound<'_, Loop>) -> PyResult<()> {
    let (py, state) = (slf.py(), slf.get());
    let mut found = Vec::new();
    let mut pace = Pace::default();
    loop {
        gather(py, state, &mut found, &mut pace)?;
        // What was written leaves, whatever a callback raised.
        let called = call_ready(slf);
        let sent = WriteBatch::end(slf);
        called.and(sent)?;
        if state.stopping.get(py) {
            return Ok(());
        }
    }
}

/// Queues whatever is to be called, waiting for it if there is nothing.
fn gather(py: Python<'_>, state: &Loop, found: &mut Vec<PolledItem>, pace: &mut Pace) -> PyResult<()> {
    let first_ns = state.timers.with(py, |timers| timers.first_ns())?;
    let (stopping, idle) = (state.stopping.get(py), state.ready.with(py, |ready| ready.is_empty())?);
    if !stopping && !idle && pace.is_quick(first_ns) {
        return Ok(());
    }
    pace.read_clock();
    let waits = idle && !stopping && first_ns.is_none_or(|first_ns| first_ns > pace.now_ns);
    let wait = match first_ns {
        _ if !waits => Wait::Poll,
        Some(first_ns) => until(first_ns - pace.now_ns),
        None => Wait::Block,
    };
    if waits || stopping || pace.now_ns.saturating_sub(pace.asked_kernel_ns) >= LOOK_AGAIN_NS {
        let count = if waits {
            sleep(py, state, found, wait, first_ns)?
        } else {
            state.ensure_may_watch(py)?;
            ask(py, state, found, Io::look).map(|((), count)| count)?
        };
        pace.read_clock();
        pace.asked_kernel_ns = pace.now_ns;
        state.write_batch.begin(py, count)?;
    }
    if first_ns.is_some_and(|first_ns| first_ns <= pace.now_ns) {
        queue_due(py, state, pace.now_ns)?;
    }
    Ok(())
}

/// Waits until something is to be done; how much came of descriptors and other threads. Refused where
/// nothing could come: the loop was closed under its run.
fn sleep(
    py: Python<'_>,
    state: &Loop,
    found: &mut Vec<PolledItem>,
    wait: Wait,
    first_ns: Option<u64>,
) -> PyResult<usize> {
    state.open(py)?;
    let (is_ours, listens) = state.io.with(py, |io| (io.is_ours(), io.listens()))?;
    if !is_ours {
        return Err(not_ours());
    }
    let found = RefCell::new(found);
    let look = || {
        if !listens {
            return Ok(None);
        }
        let (came, count) = ask(py, state, &mut found.borrow_mut(), Io::listen)?;
        Ok(came.then_some(count))
    };
    let sleep = || {
        // What the handler of a signal scheduled meanwhile is done at once.
        let idle = state.ready.with(py, |ready| ready.is_empty())? && !state.stopping.get(py);
        let same = idle && state.timers.with(py, |timers| timers.first_ns())? == first_ns;
        let wait = if same { wait } else { Wait::Poll };
        ask(py, state, &mut found.borrow_mut(), |io, found| io.sleep(wait, found)).map(|((), count)| count)
    };
    // A call from another thread meanwhile finds that this one waits, and wakes it.
    state.waiting.set(py, true);
    let came = hearing::wait(py, look, sleep);
    state.waiting.set(py, false);
    came
}

/// Asks the kernel what is ready, other threads running meanwhile, and queues it; how much.
fn ask<R: Send>(
    py: Python<'_>,
    state: &Loop,
    found: &mut Vec<PolledItem>,
    how: impl FnOnce(&mut Io, &mut Vec<PolledItem>) -> std::io::Result<R> + Send,
) -> PyResult<(R, usize)> {
    let asked = state.io.with(py, |io| py.detach(|| how(io, found)));
    let count = found.len();
    // Queued before anything can go wrong: what was posted is found once.
    state.ready.with(py, |ready| ready.extend(found.drain(..).map(Ready::from)))?;
    Ok((asked?.map_err(|e| error::io("wait", &e))?, count))
}

/// What a call that waits or watches raises in a child after a fork.
#[cold]
pub(crate) fn not_ours() -> PyErr {
    PyRuntimeError::new_err(
        "this event loop belongs to the process that made it: after a fork, make a new one",
    )
}

/// For so long, if clocks reach that far.
fn until(left_ns: u64) -> Wait {
    Instant::now().checked_add(Duration::from_nanos(left_ns)).map_or(Wait::Block, Wait::Until)
}

fn queue_due(py: Python<'_>, state: &Loop, now_ns: u64) -> PyResult<()> {
    state.timers.with(py, |timers| {
        state.ready.with(py, |ready| {
            while let Some(due) = timers.pop(py, now_ns) {
                due.get().came_due(py);
                ready.push_back(Ready::Call(due.into_bound(py).into_super().unbind()));
            }
        })
    })?
}

/// Calls what is ready by now.
fn call_ready(slf: &Bound<'_, Loop>) -> PyResult<()> {
    let (py, state) = (slf.py(), slf.get());
    let count = state.ready.with(py, |ready| ready.len())?;
    for _ in 0..count {
        match state.ready.with(py, |ready| ready.pop_front())? {
            Some(Ready::Call(handle)) => {
                let called = if state.debug.get(py) {
                    let call = || handle.get().call_again(py).or_else(|raised| report(slf, &handle, raised));
                    timed(slf, handle.bind(py), call)
                } else {
                    match handle.get().call_once(py, &state.spare) {
                        Ok(()) => Ok(()),
                        Err(raised) => report(slf, &handle, raised),
                    }
                };
                state.spare.keep(py, handle)?;
                called?;
            }
            Some(Ready::ReadyDescriptor(seen)) => {
                // What a descriptor has is its parent's in a child that a callback has just made.
                state.ensure_may_watch(py)?;
                if let Err(raised) = deliver(slf, seen) {
                    report_raised(slf, raised, "what a descriptor was ready for failed")?;
                }
            }
            Some(Ready::Event(event)) if state.debug.get(py) => {
                let called = mailbox::called(py, state, event.callback)?;
                timed(slf, called.bind(py), || mailbox::deliver(slf, event))?;
            }
            Some(Ready::Event(event)) => mailbox::deliver(slf, event)?,
            None => break,
        }
        WriteBatch::relieve(slf)?;
    }
    Ok(())
}

fn deliver(slf: &Bound<'_, Loop>, seen: ReadyDescriptor) -> PyResult<()> {
    let sides = [(seen.readable, Side::Read), (seen.writable, Side::Write)];
    for (_, side) in sides.into_iter().filter(|(ready, _)| *ready) {
        let py = slf.py();
        match slf.get().io.with(py, |io| io.target(py, seen, side))? {
            Some(target) if slf.get().debug.get(py) => {
                let told = told(py, slf.get(), &target)?;
                timed(slf, told.bind(py), || tell(slf, seen.descriptor, side, &target))?;
            }
            Some(target) => tell(slf, seen.descriptor, side, &target)?,
            None => {}
        }
    }
    Ok(())
}

#[inline]
fn tell(slf: &Bound<'_, Loop>, descriptor: RawFd, side: Side, target: &Target) -> PyResult<()> {
    let py = slf.py();
    match target {
        Target::Stream(stream) => stream.get().ready(stream.bind(py), side),
        Target::Datagrams(endpoint) => DatagramTransport::ready(endpoint.bind(py), side),
        Target::Listener(listener) => listener.get().ready(slf),
        Target::Operation(operation) => operation.get().ready(slf),
        Target::Call(handle, _) => handle.get().call_again(py).or_else(|raised| report(slf, handle, raised)),
        Target::Events(callback) => {
            let kind = if side == Side::Read { Kind::Readable } else { Kind::Writable };
            let payload = Some(descriptor.into_pyobject(py)?.into_any().unbind());
            mailbox::deliver(slf, Event { callback: *callback, kind, payload })
        }
        Target::Socket(callback) => mailbox::read_socket(slf, descriptor, *callback),
    }
}

/// Whom debug mode names if it takes long.
#[cold]
fn told(py: Python<'_>, state: &Loop, target: &Target) -> PyResult<Py<PyAny>> {
    Ok(match target {
        Target::Stream(stream) => stream.clone_ref(py).into_any(),
        Target::Datagrams(endpoint) => endpoint.clone_ref(py).into_any(),
        Target::Listener(listener) => listener.get().socket.clone_ref(py),
        Target::Operation(operation) => operation.get().socket.clone_ref(py),
        Target::Call(handle, _) => handle.clone_ref(py).into_any(),
        Target::Events(callback) | Target::Socket(callback) => mailbox::called(py, state, *callback)?,
    })
}

/// What is meant to end the program, and not only what was called.
pub(crate) fn ends_program(py: Python<'_>, raised: &PyErr) -> bool {
    raised.is_instance_of::<PySystemExit>(py) || raised.is_instance_of::<PyKeyboardInterrupt>(py)
}

/// Tells the loop's exception handler what went wrong; what is meant to end the program does.
#[cold]
pub(crate) fn report_raised(slf: &Bound<'_, Loop>, raised: PyErr, message: &str) -> PyResult<()> {
    let py = slf.py();
    if ends_program(py, &raised) {
        return Err(raised);
    }
    let context = PyDict::new(py);
    context.set_item("message", message)?;
    tell_handler(slf, raised, &context)
}

/// Hands what went wrong to the loop's exception handler, as from an `except` clause: what the handler itself
/// raises then shows it.
#[cold]
pub(crate) fn tell_handler(
    slf: &Bound<'_, Loop>,
    raised: PyErr,
    context: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let py = slf.py();
    let raised = raised.into_value(py).into_bound(py);
    context.set_item("exception", &raised)?;
    foreign::handling(&raised, || slf.call_method1(intern!(py, "call_exception_handler"), (context,)))
        .map(drop)
}

/// Tells the loop's exception handler what a callback raised; what is meant to end the program does.
#[cold]
fn report(slf: &Bound<'_, Loop>, handle: &Py<Handle>, raised: PyErr) -> PyResult<()> {
    let py = slf.py();
    if ends_program(py, &raised) {
        return Err(raised);
    }
    let described = describe(py, handle)?;
    let context = PyDict::new(py);
    context.set_item("message", format!("Exception in callback {described}"))?;
    context.set_item("handle", handle)?;
    if let Some(traceback) = handle.get().traceback.share(py) {
        context.set_item("source_traceback", traceback)?;
    }
    tell_handler(slf, raised, &context)
}

fn describe<'py>(py: Python<'py>, handle: &Py<Handle>) -> PyResult<Bound<'py, PyAny>> {
    let debug = handle.get().traceback.is_some(py);
    let handle = handle.bind(py);
    let (callback, arguments) = (handle.getattr("_callback")?, handle.getattr("_args")?);
    let helpers = py.import("asyncio.format_helpers")?;
    let words = PyDict::new(py);
    if debug && py.version_info() >= (3, 13) {
        // Since then arguments, which may be secrets, are shown in debug mode alone.
        words.set_item("debug", true)?;
    }
    helpers.call_method("_format_callback_source", (callback, arguments), Some(&words))
}

/// A call in debug mode: one that takes long is named in the log.
#[cold]
fn timed(
    slf: &Bound<'_, Loop>,
    called: &Bound<'_, PyAny>,
    call: impl FnOnce() -> PyResult<()>,
) -> PyResult<()> {
    let py = slf.py();
    let is_handle = called.is_instance_of::<Handle>();
    if is_handle {
        slf.setattr("_current_handle", called)?;
    }
    let began_ns = clock::monotonic_ns();
    let outcome = call();
    let took = clock::monotonic_ns().saturating_sub(began_ns) as f64 / 1e9;
    if is_handle {
        slf.setattr("_current_handle", py.None())?;
    }
    outcome?;
    let slow: f64 = slf.getattr("slow_callback_duration")?.extract()?;
    if took >= slow {
        let base = py.import("asyncio.base_events")?;
        let described = if is_handle {
            base.call_method1("_format_handle", (called,))?
        } else {
            called.repr().map_or_else(|_| called.get_type().into_any(), Bound::into_any)
        };
        let words = ("Executing %s took %.3f seconds", described, took);
        base.getattr("logger")?.call_method1("warning", words)?;
    }
    Ok(())
}
