//! A place in a log that moves forward: polled, waited for, or watched by an event loop.

use super::arguments::whole;
use super::bell::Bell;
use super::entry::Entry;
use super::following::{self, Source};
use super::log::Log;
use super::query::QueryArguments;
use super::shared::{Seat, Shared};
use super::walk::{EntryWalk, Walk};
use crate::numbers::Number;
use pyo3::prelude::*;
use std::sync::Arc;
use thalweg_log::{Ended, Query, Start};

/// A place in a log that moves forward. Made by `Log.cursor`.
///
/// Iterating over it takes what there is; a later `next()`, or another loop, goes on with what came
/// meanwhile.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Cursor {
    seat: Arc<Seat<EntryWalk>>,
    log: Arc<thalweg_log::Log>,
}

impl Cursor {
    pub(crate) fn new(log: &Log, walk: Walk) -> PyResult<Cursor> {
        Ok(Cursor { seat: log.shared.seat(EntryWalk::new(walk))?, log: log.log.clone() })
    }
}

impl Source for Cursor {
    fn shared(&self) -> &Arc<Shared> {
        self.seat.shared()
    }

    fn look(&self, py: Python<'_>) -> bool {
        self.seat.try_with(|entries| entries.look(py)).unwrap_or(true)
    }
}

#[pymethods]
impl Cursor {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Entry>>> {
        self.next(py)
    }

    /// The next entry; `None` when there is none yet.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<Entry>>> {
        self.seat.take(py, &self.log)
    }

    /// Stands where another query begins.
    #[pyo3(signature = (start=None, end=None, *, after=None, exact=None, offset=None, tail=false, checkpoint=false, uncommitted=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn seek(
        &self,
        py: Python<'_>,
        start: Option<Number<u64>>,
        end: Option<Number<u64>>,
        after: Option<Number<u64>>,
        exact: Option<Number<u64>>,
        offset: Option<Number<u64>>,
        tail: bool,
        checkpoint: bool,
        uncommitted: bool,
    ) -> PyResult<()> {
        let query =
            QueryArguments { start, end, after, exact, offset, tail, checkpoint, uncommitted }.query()?;
        self.seat.seek(py, &self.log, &query)
    }

    /// The first entry of a time or later, with which the cursor goes on: `seek(start)` and `next()` in one
    /// call. Each of them costs about as much as the read itself.
    #[pyo3(signature = (start, /))]
    fn find(&self, py: Python<'_>, start: Number<u64>) -> PyResult<Option<Py<Entry>>> {
        let query = Query::from(Start::Time(whole("start", start)?));
        self.seat.find(py, &self.log, &query)
    }

    /// Sleeps until something was committed that the cursor has not looked at, files of the store were
    /// removed, or `timeout` seconds are over; `False`: the time is over. What was committed need not be an
    /// entry of this log. Other threads run meanwhile, and signals are handled.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Number<f64>>) -> PyResult<bool> {
        following::wait(py, &self.seat, timeout, |entries| &entries.walk.cursor)
    }

    /// Has `bell` rung by the next commit, or when files of the store are removed. `True`: that has happened
    /// already, and it need not be waited for.
    fn arm(&self, bell: &Bell) -> PyResult<bool> {
        following::arm(&self.seat, bell, |entries| &entries.walk.cursor)
    }

    /// Why nothing more will come, once that is so: "closed", "deleted" or "damaged"; else `None`.
    #[getter]
    fn ended(&self) -> PyResult<Option<&'static str>> {
        let ended = self.seat.with(|entries| entries.walk.cursor.ended())?;
        Ok(ended.and_then(|ended| match ended {
            Ended::Closed => Some("closed"),
            Ended::Deleted => Some("deleted"),
            Ended::Damaged => Some("damaged"),
            // The next call for an entry raises that.
            Ended::StoreClosed => None,
        }))
    }

    /// Goes on behind damage.
    fn resume(&self) -> PyResult<()> {
        self.seat.with(EntryWalk::resume)
    }

    /// Payload bytes that had been purged before the cursor came to them.
    #[getter]
    fn skipped_bytes(&self) -> PyResult<u64> {
        self.seat.with(|entries| entries.walk.cursor.skipped_bytes())
    }
}
