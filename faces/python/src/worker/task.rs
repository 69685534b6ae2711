//! Coroutines as tasks of the event loop that have had their first step: most calls need no other, and nobody
//! has to come back for them.
//!
//! Since Python 3.12 asyncio's own tasks can do that. Before, the step that a new task schedules is caught,
//! and run here and now: for as long as the task is being made the loop's `call_soon` is another.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple, PyType};

/// How tasks are made in one event loop.
pub(super) struct Tasks {
    task: Py<PyAny>,
    coroutine: Py<PyType>,
    /// What every task is made with.
    named: Py<PyDict>,
    /// Where tasks do not begin by themselves.
    caught: Option<Caught>,
}

struct Caught {
    /// The loop's own attributes, which come before its class's.
    attributes: Py<PyDict>,
    catch: Py<Catch>,
}

impl Tasks {
    pub(super) fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = event_loop.py();
        let named = PyDict::new(py);
        named.set_item("loop", event_loop)?;
        let caught = if py.version_info() >= (3, 12) {
            named.set_item("eager_start", true)?;
            None
        } else {
            let attributes = event_loop.getattr("__dict__")?.cast_into::<PyDict>()?.unbind();
            let soon = event_loop.getattr("call_soon")?.unbind();
            Some(Caught { attributes, catch: Py::new(py, Catch { step: Mutex::default(), soon })? })
        };
        Ok(Self {
            task: py.import("asyncio")?.getattr("Task")?.unbind(),
            coroutine: py.import("types")?.getattr("CoroutineType")?.cast_into::<PyType>()?.unbind(),
            named: named.unbind(),
            caught,
        })
    }

    /// Whether a value is what tasks are made of.
    pub(super) fn takes(&self, value: &Bound<'_, PyAny>) -> bool {
        value.get_type().is(&self.coroutine)
    }

    /// Makes a task, and has it take its first step. What that raises is the task's.
    pub(super) fn begin<'py>(&self, coroutine: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = coroutine.py();
        let make = || self.task.bind(py).call((coroutine,), Some(self.named.bind(py)));
        let Some(caught) = &self.caught else { return make() };
        let attributes = caught.attributes.bind(py);
        attributes.set_item(pyo3::intern!(py, "call_soon"), &caught.catch)?;
        let made = make();
        attributes.del_item(pyo3::intern!(py, "call_soon"))?;
        let step = caught.catch.get().step.lock().take();
        let task = made?;
        if let Some((step, context)) = step {
            let ran = match context {
                Some(context) => context.call_method1(py, pyo3::intern!(py, "run"), (step,)),
                None => step.call0(py),
            };
            match ran {
                // The end of the interpreter is raised here as well, and was asked for by a call alone.
                Err(_) if has_ended(&task)? => {}
                ran => drop(ran?),
            }
        }
        Ok(task)
    }
}

/// Whether a value has to be awaited. Most are of kinds that are looked at before anything is looked up.
pub(super) fn is_awaitable(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if value.is_none() || value.is_instance_of::<PyString>() || value.is_instance_of::<PyInt>() {
        return Ok(false);
    }
    value.get_type().hasattr(pyo3::intern!(value.py(), "__await__"))
}

/// Whether a task came to something.
pub(super) fn has_ended(task: &Bound<'_, PyAny>) -> PyResult<bool> {
    task.call_method0(pyo3::intern!(task.py(), "done"))?.is_truthy()
}

/// What it came to.
pub(super) fn outcome<'py>(task: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    task.call_method0(pyo3::intern!(task.py(), "result"))
}

/// Takes the first that would be called soon, which is the new task's step: whatever else runs while a task
/// is being made, such as a signal's handler, comes after it and has its call made.
#[pyclass(frozen)]
struct Catch {
    step: Mutex<Option<Step>>,
    /// The loop's own.
    soon: Py<PyAny>,
}

/// What would be called, and in which context.
type Step = (Py<PyAny>, Option<Py<PyAny>>);

#[pymethods]
impl Catch {
    #[pyo3(signature = (step, *arguments, context=None))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        step: Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
        context: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        {
            let mut caught = self.step.lock();
            if caught.is_none() {
                *caught = Some((step.unbind(), context.map(Bound::unbind)));
                return Ok(None);
            }
        }
        let words = PyTuple::new(py, std::iter::once(step).chain(arguments.iter()).collect::<Vec<_>>())?;
        let named = PyDict::new(py);
        if let Some(context) = context {
            named.set_item(pyo3::intern!(py, "context"), context)?;
        }
        self.soon.call(py, words, Some(&named)).map(Some)
    }
}
