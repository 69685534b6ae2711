//! A place in a log that moves forward: polled, waited for, or watched by an event loop.

use crate::bell::Bell;
use crate::entry::Entry;
use crate::error;
use crate::log::Log;
use crate::query::Words;
use crate::shared::{Backing, Seat};
use crate::walk::{Entrywise, Walk};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};
use thalweg_log::Ended;

/// A signal that comes between the look for it and the sleep is noticed after this long.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A place in a log that moves forward. Made by `Log.cursor`.
///
/// Iterating over it takes what there is; a later `next()`, or another loop, goes on with what came meanwhile.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Cursor {
    seat: Arc<Seat<Entrywise>>,
    log: Arc<thalweg_log::Log>,
}

impl Cursor {
    pub(crate) fn new(log: &Log, walk: Walk) -> Cursor {
        Cursor { seat: log.shared.seat(Entrywise::new(walk)), log: log.log.clone() }
    }

    /// Sleeps until something was committed, somebody woke everybody, or the sleep was long enough.
    fn sleep(seat: &Seat<Entrywise>, py: Python<'_>, longest: Duration) -> PyResult<bool> {
        let shared = seat.shared();
        let in_use = shared.enter()?;
        let cursor = seat.with(|entries| entries.walk.cursor.clone())?;
        let maps = in_use.backing()?.maps();
        Ok(py.detach(move || {
            // Once before declaring itself asleep, once after; whatever woke it then, a signal perhaps, is looked into
            // with the interpreter's lock.
            let mut looks = 0;
            let news = || cursor.wait(Some(Duration::ZERO));
            maps.wait(Some(longest), || {
                looks += 1;
                looks > 2 || !shared.is_open() || news()
            });
            let came = news();
            drop((cursor, maps, in_use));
            came
        }))
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
        self.seat.next(py, &self.log)
    }

    /// Stands where another query begins.
    #[pyo3(signature = (start=None, end=None, *, after=None, exact=None, offset=None, tail=false, checkpoint=false, uncommitted=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn seek(
        &self,
        start: Option<u64>,
        end: Option<u64>,
        after: Option<u64>,
        exact: Option<u64>,
        offset: Option<u64>,
        tail: bool,
        checkpoint: bool,
        uncommitted: bool,
    ) -> PyResult<()> {
        let query = Words { start, end, after, exact, offset, tail, checkpoint, uncommitted }.query()?;
        self.seat.with(|entries| entries.walk.cursor.seek(&query))
    }

    /// Sleeps until something was committed that the cursor has not looked at, or `timeout` seconds are over; whether
    /// something was. It need not be an entry of this log. Other threads run meanwhile, and signals are handled.
    #[pyo3(signature = (timeout=None))]
    fn wait(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<bool> {
        let py = slf.py();
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
        let timeout =
            timeout.map_err(|_| PyValueError::new_err("a timeout is a number of seconds, 0 or more"))?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let seat = slf.get().seat.clone();
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let came = Cursor::sleep(&seat, py, left.map_or(SLEEP_MAX, |left| left.min(SLEEP_MAX)))?;
            py.check_signals()?;
            if came || left == Some(Duration::ZERO) {
                return Ok(came);
            }
        }
    }

    /// Has `bell` rung by the next commit. `True`: something was committed already, and it need not be waited for.
    fn arm(&self, bell: &Bell) -> PyResult<bool> {
        let waker = bell.waker()?;
        let abroad = self.seat.shared().with(|open| match &open.backing {
            Backing::Own(_) => None,
            Backing::Attached(attached) => Some(self.seat.shared().neighbour.arm(attached.maps(), &waker)),
        })?;
        let own = abroad.is_none();
        abroad.transpose().map_err(|error| error::io("start a thread", &error))?;
        self.seat.with(|entries| {
            let cursor = &entries.walk.cursor;
            match own {
                true => pin!(cursor.changed()).poll(&mut Context::from_waker(&waker)).is_ready(),
                false => cursor.wait(Some(Duration::ZERO)),
            }
        })
    }

    /// Why nothing more will come, once that is so: "closed", "deleted" or "damaged"; else `None`.
    #[getter]
    fn ended(&self) -> PyResult<Option<&'static str>> {
        let ended = self.seat.with(|entries| entries.walk.cursor.ended())?;
        Ok(ended.map(|ended| match ended {
            Ended::Closed => "closed",
            Ended::Deleted => "deleted",
            Ended::Damaged => "damaged",
        }))
    }

    /// Goes on behind damage.
    fn resume(&self) -> PyResult<()> {
        self.seat.with(|entries| entries.walk.cursor.resume())
    }

    /// Payload bytes that had been purged before the cursor came to them.
    #[getter]
    fn skipped_bytes(&self) -> PyResult<u64> {
        self.seat.with(|entries| entries.walk.cursor.skipped_bytes())
    }
}
