//! Entries that are written together.

use super::log::Log;
use super::shared::{Occupant, Seat, Shared};
use crate::error;
use crate::payload::Payload;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyAny;
use std::sync::{Arc, OnceLock};
use thalweg_log::{CommitError, Durability, Store, Time};

/// What an entry takes beside its payload.
const FRAME_BYTES: usize = 40;
/// What is copied in some microseconds.
const BRIEF_BYTES: usize = 64 * 1024;

/// A transaction, and the store that it borrows from.
pub(crate) struct Pending {
    /// Dropped before the store it points into.
    transaction: thalweg_log::Transaction<'static>,
    store: Arc<Store>,
}

impl Pending {
    pub(crate) fn new(store: &Store, time: Time) -> Pending {
        let store = Arc::new(store.clone());
        // SAFETY: the store lies in an allocation of its own, which is kept until the transaction is gone: as
        // a field behind it here, and by `commit` below.
        let borrowed: &'static Store = unsafe { &*Arc::as_ptr(&store) };
        Pending { transaction: borrowed.transaction(time), store }
    }

    /// Whether writing it takes so little that letting other threads in meanwhile, and waiting for one's turn
    /// after them, would cost more: nothing is waited for but the copy, and now and then the next segment, as
    /// by `Log.append`.
    fn is_brief(&self) -> bool {
        self.store.durability() != Durability::Sync
            && self.transaction.bytes() + self.transaction.count() * FRAME_BYTES <= BRIEF_BYTES
    }

    fn commit(self) -> Result<u64, CommitError> {
        let Pending { transaction, store } = self;
        let committed = transaction.commit();
        drop(store);
        committed.map(|receipt| receipt.first)
    }
}

impl Occupant for Pending {}

/// Entries of one or several logs that are written together, or not at all. Made by `Store.transaction`.
///
/// As a context manager it commits at the end, and aborts when an exception comes out; neither when that was
/// done by hand.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Transaction {
    seat: Arc<Seat<Pending>>,
    /// It was committed or aborted by name, whatever came of it; a store that is closed empties the seat,
    /// too.
    ended: OnceLock<()>,
}

impl Transaction {
    pub(crate) fn new(shared: &Arc<Shared>, pending: Pending) -> PyResult<Transaction> {
        Ok(Transaction { seat: shared.seat(pending)?, ended: OnceLock::new() })
    }

    /// Why it takes nothing more.
    fn over(&self) -> PyErr {
        match self.seat.shared().is_open() {
            true => error::failure("TRANSACTION_OVER", "the transaction was committed or aborted"),
            false => self.seat.shared().over(),
        }
    }
}

#[pymethods]
impl Transaction {
    /// Adds an entry. It is copied, and written by the commit.
    fn append(&self, log: &Log, data: &Bound<'_, PyAny>) -> PyResult<()> {
        if !Arc::ptr_eq(self.seat.shared(), &log.shared) {
            return Err(PyValueError::new_err("the log belongs to another store"));
        }
        let payload = Payload::of(data)?;
        let append = |pending: &mut Pending| pending.transaction.append(&log.log, payload.bytes());
        self.seat.try_with(append).ok_or_else(|| self.over())?.map_err(|error| log.failed(&error))
    }

    /// Entries so far.
    fn __len__(&self) -> PyResult<usize> {
        let count = self.seat.try_with(|pending| pending.transaction.count());
        count.ok_or_else(|| self.over())
    }

    /// Writes all of it, and in a "sync" store waits until it is durable.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let _ = self.ended.set(());
        let in_use = self.seat.shared().enter()?;
        let Some(pending) = self.seat.leave() else {
            drop(in_use);
            return Err(self.over());
        };
        let brief = pending.is_brief();
        let write = move || {
            let committed = pending.commit();
            drop(in_use);
            committed
        };
        let committed = if brief { write() } else { py.detach(write) };
        committed.map(drop).map_err(|error| error::commit(&error, None))
    }

    /// Drops all of it.
    fn abort(&self) -> PyResult<()> {
        let _ = self.ended.set(());
        self.seat.leave().map(drop).ok_or_else(|| self.over())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, _value, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() {
            return if self.ended.get().is_some() { Ok(()) } else { self.commit(py) };
        }
        // The exception that comes out says more than that the store was closed meanwhile.
        let _ = self.abort();
        Ok(())
    }
}
