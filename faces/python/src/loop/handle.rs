//! What is to be called, and may be cancelled until then.
//!
//! Purpose: the loop's own `asyncio.Handle` and `asyncio.TimerHandle`; `isinstance` takes them for those. A
//! handle lets go of its callback when it is cancelled, or was called and nothing refers to it, and a loop
//! of all that its handles hold when it is closed, so no garbage collector has to look at them while they
//! wait: what a loop's handles hold, the loop shows it, if nothing else refers to them. One that was
//! called, and that is referred to, keeps what it called and the context, as asyncio's do; from then on the
//! collector looks at it. Invariants: a callback scheduled once is called at most once; what waits in a
//! loop is not on the collector's list. Checked by `tests/test_loop.py` and `tests/test_loop_collected.py`.

use super::core::Loop;
use super::foreign;
use super::gil_cells::GilCell;
use super::spare::Spare;
use pyo3::basic::CompareOp;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

/// A callback, its arguments, and the context it is called in. Made by `call_soon` and its kin.
#[pyclass(module = "thalweg.loop", frozen, subclass, weakref)]
pub(crate) struct Handle {
    callback: GilCell<Option<Py<PyAny>>>,
    /// `None`: no arguments.
    arguments: GilCell<Option<Py<PyTuple>>>,
    /// `None`: an empty one, made when it is needed. So what waits keeps nothing for the garbage collector to
    /// look at, which with many timers is most of what they cost.
    context: GilCell<Option<Py<PyAny>>>,
    cancelled: GilCell<bool>,
    /// Where it was scheduled, in debug mode.
    pub(crate) traceback: GilCell<Option<Py<PyAny>>>,
}

impl Handle {
    /// A handle for `callback(*arguments)`, in a copy of the current context if none is given.
    #[inline]
    pub(crate) fn new(
        py: Python<'_>,
        callback: Bound<'_, PyAny>,
        arguments: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let context = match context {
            Some(context) if !context.is_none() => Some(context.unbind()),
            _ => foreign::current_context_unless_empty(py)?,
        };
        let arguments = if arguments.is_empty() { None } else { Some(arguments.unbind()) };
        Ok(Self {
            callback: GilCell::new(Some(callback.unbind())),
            arguments: GilCell::new(arguments),
            context: GilCell::new(context),
            cancelled: GilCell::new(false),
            traceback: GilCell::new(None),
        })
    }

    /// The handle as an object.
    #[inline]
    pub(crate) fn into_object(self, py: Python<'_>) -> PyResult<Py<Self>> {
        Ok(foreign::untrack(py, Py::new(py, self)?))
    }

    #[inline]
    pub(crate) fn is_cancelled(&self, py: Python<'_>) -> bool {
        self.cancelled.get(py)
    }

    /// The one context that it is called in, however often.
    #[inline]
    fn context(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(context) = self.context.share(py) {
            return Ok(context);
        }
        let context = foreign::empty_context(py)?;
        self.context.set(py, Some(context.clone_ref(py)));
        Ok(context)
    }

    /// Takes another's place.
    #[inline]
    pub(crate) fn become_another(&self, py: Python<'_>, other: Self) {
        self.callback.set(py, other.callback.take(py));
        self.arguments.set(py, other.arguments.take(py));
        self.context.set(py, other.context.take(py));
        self.cancelled.set(py, other.cancelled.get(py));
        self.traceback.set(py, other.traceback.take(py));
    }

    /// Holds nothing any more; the context it was called in.
    #[inline]
    pub(crate) fn let_go(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        drop((self.callback.take(py), self.arguments.take(py), self.traceback.take(py)));
        self.context.take(py)
    }

    /// Its context, which it does without; or has again.
    pub(crate) fn take_context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.context.take(py)
    }

    pub(crate) fn put_context(&self, py: Python<'_>, context: Py<PyAny>) {
        self.context.set(py, Some(context));
    }

    /// Shows the garbage collector what one that waits in a loop holds, unless it is referred to elsewhere
    /// too.
    pub(crate) fn traverse_waiting(slf: &Py<Self>, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if foreign::is_only(slf) { slf.get().traverse(visit) } else { Ok(()) }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.callback.traverse(visit)?;
        self.arguments.traverse(visit)?;
        self.context.traverse(visit)?;
        self.traceback.traverse(visit)
    }

    /// Calls it for the only time.
    #[inline]
    pub(crate) fn call_once(&self, py: Python<'_>, spare: &Spare) -> PyResult<()> {
        if self.cancelled.get(py) {
            return Ok(());
        }
        if !self.context.is_some(py) {
            self.context.set(py, Some(spare.context(py)?));
        }
        self.call_again(py)
    }

    /// Calls it, and keeps it to be called again: what watches a descriptor.
    pub(crate) fn call_again(&self, py: Python<'_>) -> PyResult<()> {
        if self.cancelled.get(py) {
            return Ok(());
        }
        let (callback, arguments) = (self.callback.share(py), self.arguments.share(py));
        self.call(py, callback.as_ref(), arguments.as_ref())
    }

    #[inline]
    fn call(
        &self,
        py: Python<'_>,
        callback: Option<&Py<PyAny>>,
        arguments: Option<&Py<PyTuple>>,
    ) -> PyResult<()> {
        let Some(callback) = callback else { return Ok(()) };
        foreign::in_context(self.context(py)?.bind(py), || {
            match arguments {
                None => callback.bind(py).call0()?,
                Some(arguments) => callback.bind(py).call1(arguments.bind(py))?,
            };
            Ok(())
        })
    }

    /// Whether this was what cancelled it.
    pub(crate) fn cancel_once(&self, py: Python<'_>) -> bool {
        if self.cancelled.replace(py, true) {
            return false;
        }
        drop((self.callback.take(py), self.arguments.take(py), self.context.take(py)));
        true
    }
}

/// `asyncio`'s class of a name, for `isinstance`.
fn class_of_asyncio(py: Python<'_>, timer: bool) -> PyResult<Bound<'_, PyType>> {
    static HANDLE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static TIMER: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let (cell, name) = if timer { (&TIMER, "TimerHandle") } else { (&HANDLE, "Handle") };
    cell.import(py, "asyncio.events", name).cloned()
}

#[pymethods]
impl Handle {
    /// The callback will not be called.
    fn cancel(&self, py: Python<'_>) {
        self.cancel_once(py);
    }

    /// Whether it was cancelled.
    fn cancelled(&self, py: Python<'_>) -> bool {
        self.cancelled.get(py)
    }

    /// The context that the callback is called in.
    fn get_context(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.context(py)
    }

    /// Calls it there and then, as the loop would.
    fn _run(&self, py: Python<'_>) -> PyResult<()> {
        self.call_again(py)
    }

    #[getter]
    fn _context(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.context(py)
    }

    #[getter]
    fn _cancelled(&self, py: Python<'_>) -> bool {
        self.cancelled.get(py)
    }

    #[getter]
    fn _callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.callback.share(py)
    }

    #[getter]
    fn _args<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyTuple>> {
        match self.arguments.share(py) {
            Some(arguments) => Some(arguments.into_bound(py)),
            None if self.cancelled.get(py) => None,
            None => Some(PyTuple::empty(py)),
        }
    }

    #[getter]
    fn _source_traceback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.traceback.share(py)
    }

    /// What asyncio since 3.13 asks in order to show a handle; a handle of ours keeps no loop.
    #[getter]
    fn _loop(&self, py: Python<'_>) -> LoopMode {
        LoopMode { debug: self.traceback.share(py).is_some() }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.traverse(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.let_go(py));
    }

    #[getter]
    fn __class__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyType>> {
        class_of_asyncio(slf.py(), slf.cast::<TimerHandle>().is_ok())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let info = Self::__class__(slf)?.call_method1("_repr_info", (slf,))?;
        let words: Vec<String> = info.extract()?;
        Ok(format!("<{}>", words.join(" ")))
    }
}

/// What a handle knows of the loop that it was made in.
#[pyclass(module = "thalweg.loop", frozen)]
struct LoopMode {
    debug: bool,
}

#[pymethods]
impl LoopMode {
    /// Whether the loop was in debug mode then.
    fn get_debug(&self) -> bool {
        self.debug
    }
}

/// A handle that is called at a time. Made by `call_later` and `call_at`.
#[pyclass(module = "thalweg.loop", frozen, extends = Handle)]
pub(crate) struct TimerHandle {
    /// Seconds on the loop's clock, as asked for.
    when: f64,
    /// Whose timers it lies among; lets go of the loop when it was cancelled or came due.
    scheduled_on: GilCell<Option<Py<Loop>>>,
}

impl TimerHandle {
    #[inline]
    pub(crate) fn new(when: f64, scheduled_on: Option<Py<Loop>>) -> Self {
        Self { when, scheduled_on: GilCell::new(scheduled_on) }
    }

    /// The timer as an object.
    #[inline]
    pub(crate) fn into_object(self, py: Python<'_>, handle: Handle) -> PyResult<Py<Self>> {
        let object = Py::new(py, PyClassInitializer::from(handle).add_subclass(self))?;
        Ok(foreign::untrack(py, object))
    }

    /// It left the loop's timers.
    #[inline]
    pub(crate) fn came_due(&self, py: Python<'_>) {
        self.scheduled_on.set(py, None);
    }

    /// Its loop is closed: holds nothing any more.
    pub(crate) fn let_go(slf: &Bound<'_, Self>) {
        slf.get().came_due(slf.py());
        drop(slf.as_super().get().let_go(slf.py()));
    }

    /// What [`Handle::traverse_waiting`] is for a handle. `references`: how many the loop has to it.
    pub(crate) fn traverse_waiting(
        slf: &Py<Self>,
        references: isize,
        visit: &PyVisit<'_>,
    ) -> Result<(), PyTraverseError> {
        if foreign::references(slf) != references {
            return Ok(());
        }
        slf.get().scheduled_on.traverse(visit)?;
        // SAFETY: the collector runs under the interpreter's lock; with the token only the way to the base is
        // found.
        let py = unsafe { Python::assume_attached() };
        slf.bind(py).as_super().get().traverse(visit)
    }
}

#[pymethods]
impl TimerHandle {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.scheduled_on.traverse(&visit)
    }

    /// The callback will not be called.
    pub(crate) fn cancel(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        if slf.as_super().get().cancel_once(py)
            && let Some(scheduled_on) = slf.get().scheduled_on.take(py)
        {
            scheduled_on.get().timer_cancelled(py)?;
        }
        Ok(())
    }

    /// When it is called, in seconds on the loop's clock.
    fn when(&self) -> f64 {
        self.when
    }

    #[getter]
    fn _when(&self) -> f64 {
        self.when
    }

    #[getter]
    fn _scheduled(&self, py: Python<'_>) -> bool {
        self.scheduled_on.share(py).is_some()
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.when.into_pyobject(py)?.hash()
    }

    fn __richcmp__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>, how: CompareOp) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let Ok(theirs) = other.getattr("_when").and_then(|when| when.extract::<f64>()) else {
            return Ok(py.NotImplemented());
        };
        let mine = slf.get().when;
        let same = || -> PyResult<bool> {
            for name in ["_callback", "_args", "_cancelled"] {
                if !slf.getattr(name)?.eq(other.getattr(name)?)? {
                    return Ok(false);
                }
            }
            Ok(mine == theirs)
        };
        let holds = match how {
            CompareOp::Lt => mine < theirs,
            CompareOp::Gt => mine > theirs,
            CompareOp::Le => mine < theirs || same()?,
            CompareOp::Ge => mine > theirs || same()?,
            CompareOp::Eq => same()?,
            CompareOp::Ne => !same()?,
        };
        Ok(holds.into_pyobject(py)?.to_owned().into_any().unbind())
    }
}
