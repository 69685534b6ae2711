//! Coroutines as tasks of the event loop that have had their first step: most calls need no other, and nobody
//! has to come back for them.
//!
//! Since Python 3.12 asyncio's own tasks can do that. Before, the step that a new task schedules is caught,
//! and run here and now: for as long as the task is being made the loop's `call_soon` is another. Others may
//! call that meanwhile, because making a task may collect garbage, and who is collected may have something
//! called soon. So only steps of tasks are caught, and those of other tasks are passed on.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
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
            let catch = Catch { steps: Mutex::default(), class: PyOnceLock::new(), soon };
            Some(Caught { attributes, catch: Py::new(py, catch)? })
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
        let own = caught.catch.get().step_of(py, made.as_ref().ok())?;
        let task = made?;
        if let Some((step, context)) = own {
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

/// The name of the class of what a task has called soon as its step. It is callable and nothing else, and
/// belongs to asyncio's tasks in C; those of Python's are not caught, and begin when their turn comes.
const STEP: &str = "TaskStepMethWrapper";

/// Keeps the steps of tasks that would be called soon. All else goes to the loop as it comes.
#[pyclass(frozen)]
struct Catch {
    steps: Mutex<Steps>,
    /// That of steps, once there was one.
    class: PyOnceLock<Py<PyType>>,
    /// The loop's own.
    soon: Py<PyAny>,
}

/// What would be called, and in which context.
type Step = (Py<PyAny>, Option<Py<PyAny>>);

/// In the order in which they came; there is hardly ever more than one.
#[derive(Default)]
struct Steps {
    first: Option<Step>,
    more: Vec<Step>,
}

impl Catch {
    /// The step of a task that was made, which is kept no longer. Those of others go to the loop.
    fn step_of(&self, py: Python<'_>, task: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Step>> {
        let Steps { first, more } = std::mem::take(&mut *self.steps.lock());
        if more.is_empty() && task.is_some() {
            return Ok(first);
        }
        let is_own = |(step, _): &Step| {
            let belongs_to = step.bind(py).getattr(pyo3::intern!(py, "__self__"));
            task.is_some_and(|task| belongs_to.is_ok_and(|other| other.is(task)))
        };
        let mut own = None;
        for step in first.into_iter().chain(more) {
            if own.is_none() && is_own(&step) {
                own = Some(step);
            } else {
                let (step, context) = step;
                self.pass_on(py, (step,), context)?;
            }
        }
        Ok(own)
    }

    fn is_step(&self, called: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, class) = (called.py(), called.get_type());
        if let Some(known) = self.class.get(py) {
            return Ok(class.is(known));
        }
        let is_step = class.name()? == STEP;
        if is_step {
            let _ = self.class.set(py, class.unbind());
        }
        Ok(is_step)
    }

    fn pass_on<'py>(
        &self,
        py: Python<'py>,
        words: impl pyo3::call::PyCallArgs<'py>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let named = PyDict::new(py);
        if let Some(context) = context {
            named.set_item(pyo3::intern!(py, "context"), context)?;
        }
        self.soon.call(py, words, Some(&named))
    }
}

#[pymethods]
impl Catch {
    #[pyo3(signature = (called, *arguments, context=None))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        called: Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
        context: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let context = context.map(Bound::unbind);
        if !(arguments.is_empty() && self.is_step(&called)?) {
            let words = std::iter::once(called).chain(arguments.iter()).collect::<Vec<_>>();
            return self.pass_on(py, PyTuple::new(py, words)?, context).map(Some);
        }
        // Tasks do not look at what they are answered.
        let (mut steps, step) = (self.steps.lock(), (called.unbind(), context));
        match steps.first {
            None => steps.first = Some(step),
            Some(_) => steps.more.push(step),
        }
        Ok(None)
    }
}
