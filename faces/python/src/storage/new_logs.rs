//! Which logs are new: polled, waited for, or watched by an event loop.

use super::bell::Bell;
use super::following::{self, Source};
use super::shared::{Occupant, Seat, Shared};
use crate::error;
use crate::numbers::Number;
use pyo3::prelude::*;
use std::sync::Arc;
use thalweg_log::{Log, ReadError};

/// A listener for new logs. It holds the store, so it has a seat from which closing the store takes it.
struct Listener {
    new_logs: thalweg_log::NewLogs,
    /// What was found by looking ahead, and was not taken.
    came: Option<Result<Arc<Log>, ReadError>>,
}

impl Listener {
    fn next(&mut self) -> Result<Option<Arc<Log>>, ReadError> {
        match self.came.take() {
            Some(came) => came.map(Some),
            None => self.new_logs.next(),
        }
    }

    /// Whether there is something to be told, which is kept.
    fn look(&mut self) -> bool {
        self.came = self.next().transpose();
        self.came.is_some()
    }
}

impl Occupant for Listener {}

/// Hears of logs as they become visible, each once, in the order of their creation. Made by `Store.new_logs`.
///
/// Iterating over it takes the names there are; a later `next()`, or another loop, goes on with what came
/// meanwhile, and `async for` waits for them. A name comes again when a log takes it anew.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct NewLogs {
    seat: Arc<Seat<Listener>>,
}

impl NewLogs {
    /// `None` in a store that is closed.
    pub(crate) fn new(shared: &Arc<Shared>, new_logs: thalweg_log::NewLogs) -> Option<NewLogs> {
        Some(NewLogs { seat: shared.try_seat(Listener { new_logs, came: None })? })
    }
}

impl Source for NewLogs {
    fn shared(&self) -> &Arc<Shared> {
        self.seat.shared()
    }

    fn look(&self, _py: Python<'_>) -> bool {
        self.seat.try_with(Listener::look).unwrap_or(true)
    }
}

#[pymethods]
impl NewLogs {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self) -> PyResult<Option<String>> {
        self.next()
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("thalweg.tail")?.getattr("Following")?.call1((slf,))
    }

    /// The name of the next log; `None` when none has come yet.
    fn next(&self) -> PyResult<Option<String>> {
        let next = self.seat.with(Listener::next)?;
        let log = next.map_err(|error| error::read(&error, None))?;
        Ok(log.map(|log| String::from_utf8_lossy(log.name()).into_owned()))
    }

    /// Sleeps until something was committed since the last look, or `timeout` seconds are over; `False`: the
    /// time is over. What was committed need not be a log's creation. In a process that only reads the store
    /// it also returns when files of the store were removed. Other threads run meanwhile, and signals are
    /// handled.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Number<f64>>) -> PyResult<bool> {
        following::wait(py, &self.seat, timeout, |listener| &listener.new_logs)
    }

    /// Has `bell` rung by the next commit, or when files of the store are removed. `True`: that has happened
    /// already, and it need not be waited for.
    fn arm(&self, bell: &Bell) -> PyResult<bool> {
        following::arm(&self.seat, bell, |listener| &listener.new_logs)
    }

    /// Why nothing more will come: there is always a next log.
    #[getter]
    fn ended(&self) -> Option<&'static str> {
        None
    }
}
