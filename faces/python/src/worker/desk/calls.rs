//! How a call runs at its worker's desk, from its first step to its end or to the job that goes on in the
//! event loop.
//!
//! An interrupt is for one call. While what was asked for runs, the call is the last of [`State::running`],
//! and is the one that an interrupt asks about. From the end of its first step on a call's place there is the
//! desk's own ([`Running::Desk`]): what is described, encoded or handed to the event loop then is no function
//! of anybody's, and an interrupt that comes meanwhile is kept for what waits below, which is asked when it
//! goes on. One that came before the call, and was not heard yet, is heard before the function is called:
//! machine code that waits would not hear it any more.
//!
//! [`State::running`]: super::super::state::State::running

use super::super::decode;
use super::super::flow;
use super::super::generated::types::{PythonGenerate, PythonInvoke};
use super::super::job::Job;
use super::super::state::Running;
use super::super::task;
use super::Desk;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::thread;
use thalweg_service::Reply;

/// What a call came to so far.
enum Came<'py> {
    Value(Bound<'py, PyAny>),
    /// A task that goes on in the event loop.
    Task(Bound<'py, PyAny>),
}

impl Desk {
    /// Has something run, and ends the call with what it came to; what goes on in the event loop becomes a
    /// job.
    pub(super) fn run<'py>(
        &self,
        py: Python<'py>,
        reply: Reply,
        run: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        self.state.lock().running.push(Running::Call(reply, false));
        let outcome = py.check_signals().and_then(|()| run()).and_then(|value| self.step(py, value));
        let ended = match self.is_back() {
            Some(Running::Call(reply, was_told)) => self.end(py, (reply, was_told), outcome),
            _ => Ok(()),
        };
        self.state.lock().running.pop();
        ended
    }

    /// Has a generator made, and bring what it has with its first step.
    pub(super) fn generate(
        &self,
        py: Python<'_>,
        reply: Reply,
        request: &PythonGenerate<'_>,
    ) -> PyResult<()> {
        if !self.state.lock().waiting.is_empty() {
            // The event loop, which has it go on, stands still until that function is back.
            let words = "nothing is streamed while a function waits for a callback";
            let raised = self.described(py, PyRuntimeError::new_err(words))?;
            reply.end(&flow::outcome(false, &raised)?);
            return Ok(());
        }
        let job = self.job(py, reply, false)?;
        self.state.lock().running.push(Running::Job(job.clone().unbind()));
        let outcome = py.check_signals().and_then(|()| {
            let function = self.modules.function(py, &request.module, &request.name)?;
            let positional = decode::arguments(py, &request.positional)?;
            let named = decode::named(py, request.named.as_deref())?;
            let arguments = (&job, function, positional, named, request.batch.unwrap_or(0));
            self.tasks.begin(&self.hooks.bind(py).call_method1("generate", arguments)?)
        });
        self.is_back();
        let ended = match outcome {
            Ok(task) => task::has_ended(&task).and_then(|has_ended| {
                if has_ended {
                    self.hooks.call_method1(py, "ended", (&job, &task)).map(drop)
                } else {
                    self.suspend(py, &job, &task)
                }
            }),
            Err(raised) => self.described(py, raised).and_then(|reason| job.get().fail(&reason)),
        };
        self.state.lock().running.pop();
        ended
    }

    /// Does something of the desk's own in whatever runs: what that is interrupted by is kept until it goes
    /// on. No other thread is interrupted.
    pub(super) fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        if thread::current().id() != self.thread {
            return work();
        }
        self.state.lock().running.push(Running::Desk);
        let outcome = work();
        self.state.lock().running.pop();
        outcome
    }

    /// What ran last is back, and its place is the desk's.
    fn is_back(&self) -> Option<Running> {
        self.state.lock().running.last_mut().map(|last| std::mem::replace(last, Running::Desk))
    }

    fn end<'py>(
        &self,
        py: Python<'py>,
        (reply, was_told): (Reply, bool),
        outcome: PyResult<Came<'py>>,
    ) -> PyResult<()> {
        let ended = match outcome {
            Ok(Came::Task(task)) => return self.suspend(py, &self.job(py, reply, was_told)?, &task),
            Ok(Came::Value(value)) => flow::outcome(true, &value),
            Err(raised) => flow::outcome(false, &self.described(py, raised)?),
        };
        let frame = match ended {
            Ok(frame) => frame,
            Err(raised) => flow::outcome(false, &self.described(py, raised)?)?,
        };
        reply.end(&frame);
        Ok(())
    }

    /// Hands a job to the event loop. One that cannot be is ended: nobody would have it go on, or end it
    /// later.
    fn suspend(&self, py: Python<'_>, job: &Bound<'_, Job>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let suspended = self.hooks.call_method1(py, "suspended", (job, task));
        self.state.lock().fresh += 1;
        let Err(raised) = suspended else { return Ok(()) };
        task.call_method0("cancel")?;
        job.get().fail(&self.described(py, raised)?)
    }

    /// What a function returned; where that has to be awaited, what it came to with its first step.
    fn step<'py>(&self, py: Python<'py>, value: Bound<'py, PyAny>) -> PyResult<Came<'py>> {
        if !task::is_awaitable(&value)? {
            return Ok(Came::Value(value));
        }
        if !self.state.lock().waiting.is_empty() {
            // The event loop stands still until that function is back.
            value.call_method0("close").ok();
            let words = "nothing is awaited while a function waits for a callback";
            return Err(PyRuntimeError::new_err(words));
        }
        let coroutine = if self.tasks.takes(&value) {
            value
        } else {
            self.hooks.bind(py).call_method1("awaiting", (value,))?
        };
        let task = self.tasks.begin(&coroutine)?;
        Ok(if task::has_ended(&task)? { Came::Value(task::outcome(&task)?) } else { Came::Task(task) })
    }

    pub(super) fn invoke<'py>(
        &self,
        py: Python<'py>,
        request: &PythonInvoke<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = self.modules.function(py, &request.module, &request.name)?;
        let positional = decode::arguments(py, &request.positional)?;
        match &request.named {
            None => function.call1(positional),
            Some(named) => {
                let named = decode::value(py, named)?.cast_into::<PyDict>()?;
                function.call(positional, Some(&named))
            }
        }
    }

    fn job<'py>(&self, py: Python<'py>, reply: Reply, was_told: bool) -> PyResult<Bound<'py, Job>> {
        let mut state = self.state.lock();
        state.jobs += 1;
        let number = state.jobs;
        drop(state);
        Bound::new(py, Job::new(number, reply, was_told, self.changes.clone()))
    }
}
