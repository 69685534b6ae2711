//! Entry by entry: the native iterator of a query.

use super::entry::Entry;
use super::log::Log;
use super::shared::Seat;
use super::walk::EntryWalk;
use pyo3::prelude::*;
use std::sync::Arc;

/// Iterates over the entries of a query. Made by `Log.query`.
///
/// In front of damage it raises `Damaged` and has ended: a transaction is not to be taken for whole because
/// its missing half was passed over in silence. After `resume()` it goes on behind the damage.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Entries {
    seat: Arc<Seat<EntryWalk>>,
    log: Py<Log>,
}

impl Entries {
    pub(crate) fn new(log: Py<Log>, seat: Arc<Seat<EntryWalk>>) -> Entries {
        Entries { seat, log }
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        self.log.get().keep(&self.seat);
    }
}

#[pymethods]
impl Entries {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Entry>>> {
        self.seat.next(py, &self.log.get().log)
    }

    /// Goes on behind damage.
    fn resume(&self) -> PyResult<()> {
        self.seat.with(|entries| entries.walk.cursor.resume())
    }

    /// Payload bytes that had been purged before the iteration came to them.
    #[getter]
    fn skipped_bytes(&self) -> PyResult<u64> {
        self.seat.with(|entries| entries.walk.cursor.skipped_bytes())
    }
}
