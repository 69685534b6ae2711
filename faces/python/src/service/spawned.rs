//! A service's program, started and watched for Python.
//!
//! Whatever waits for it hears signals, unless another thread waits for it already: when a handler raises,
//! the program is killed and nothing waits any more.

use super::error::Raise;
use super::owned::{Owned, Unavailable};
use super::{endpoint, seconds, whole};
use crate::numbers::Number;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use thalweg_service::{Client, ClientOptions, Error, Exit, ProgramEvent, Respawn, SpawnOptions, Spawned};

/// A program that serves an endpoint.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Program(Owned<Spawned>);

/// As Python's own processes say it: a code, or a signal's number below zero, and 255 where nobody knows.
fn code(exit: Exit) -> i32 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(number) => -number,
        Exit::Unknown => 255,
    }
}

/// Does something that may wait, while other threads run and signals are handled; what a handler raised.
fn hearing<R: Send>(py: Python<'_>, task: impl FnOnce(&mut dyn FnMut() -> bool) -> R + Send) -> PyResult<R> {
    let mut raised = Ok(());
    let done = py.detach(|| {
        task(&mut || {
            raised = Python::attach(|py| py.check_signals());
            raised.is_err()
        })
    });
    raised.map(|()| done)
}

impl Program {
    /// Begins to connect to it.
    pub(super) fn begin_connecting(&self, py: Python<'_>, options: ClientOptions) -> PyResult<Client> {
        self.0.with(py, |spawned| spawned.begin_connecting(options).raise(py))
    }

    fn hearing<R: Send>(
        &self,
        py: Python<'_>,
        task: impl FnOnce(&mut Spawned, &mut dyn FnMut() -> bool) -> Result<R, Error> + Send,
    ) -> PyResult<Option<R>> {
        let Ok(lent) = self.0.lend() else { return Ok(None) };
        let done = hearing(py, |interrupted| lent.with(|spawned| task(spawned, interrupted)))?;
        match done {
            Err(busy @ Unavailable::Busy) => Err(busy.raise(py)),
            done => done.ok().transpose().raise(py),
        }
    }
}

#[pymethods]
impl Program {
    /// Starts it and waits until its endpoint answers, other threads running meanwhile.
    #[new]
    #[pyo3(signature = (
        program, endpoint, *, arguments=Vec::new(), environment=HashMap::new(), directory=None, log=None,
        ready_within=Number::Fits(10.0), plain=false, pipes=false, end_within=Number::Fits(5.0), respawn=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn new(
        py: Python<'_>,
        program: OsString,
        endpoint: &str,
        arguments: Vec<OsString>,
        environment: HashMap<OsString, OsString>,
        directory: Option<PathBuf>,
        log: Option<PathBuf>,
        ready_within: Number<f64>,
        plain: bool,
        pipes: bool,
        end_within: Number<f64>,
        respawn: Option<(Number<u32>, Number<f64>)>,
    ) -> PyResult<Self> {
        let endpoint = self::endpoint(py, endpoint)?;
        let respawn = match respawn {
            None => Respawn::Never,
            Some((most, within)) => Respawn::Limited {
                most: whole(py, "respawn", most)?,
                within: seconds(py, "respawn", within)?,
            },
        };
        let options = SpawnOptions {
            arguments,
            environment: environment.into_iter().collect(),
            directory,
            log,
            ready_within: seconds(py, "ready_within", ready_within)?,
            plain,
            pipes,
            end_within: seconds(py, "end_within", end_within)?,
            respawn,
        };
        let started =
            hearing(py, |interrupted| Spawned::start_interruptible(program, endpoint, options, interrupted))?;
        let mut started = started.raise(py)?;
        if let Err(raised) = py.check_signals() {
            py.detach(|| drop(started.stop_interruptible(&mut || true)));
            return Err(raised);
        }
        Ok(Self(Owned::new(started)))
    }

    /// Looks whether it still runs, and starts it anew if it does not and may be: how the one before had
    /// ended, if so.
    fn tend(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        let tended = self.hearing(py, |spawned, interrupted| spawned.tend_interruptible(interrupted))?;
        Ok(tended.and_then(|tended| match tended {
            ProgramEvent::Running => None,
            ProgramEvent::Respawned(exit) => Some(code(exit)),
        }))
    }

    /// Ends it, by force if need be, and starts it anew.
    fn restart(&self, py: Python<'_>) -> PyResult<()> {
        self.hearing(py, |spawned, interrupted| spawned.restart_interruptible(interrupted)).map(drop)
    }

    /// Asks it to end, and kills it when it does not; how it ended.
    fn stop(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        let exit = self.hearing(py, |spawned, interrupted| spawned.stop_interruptible(interrupted))?;
        Ok(exit.flatten().map(code))
    }

    /// Its number, while it runs.
    #[getter]
    fn process(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.0.with(py, |spawned| Ok(spawned.process()))
    }

    /// How it ended, once it has.
    #[getter]
    fn exit(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        self.0.with(py, |spawned| Ok(spawned.exit().map(code)))
    }
}
