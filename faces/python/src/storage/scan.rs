//! Batches: columns instead of objects, for readers of more entries than Python can look at one by one.
//!
//! A batch is gathered without the interpreter's lock and lies in one segment, so that its payloads are
//! slices of one map. The memory of batches that are gone is used for the next ones, so that none is fresh
//! from the system.

use super::column::{Column, Which};
use super::log::Log;
use super::pin::Pin;
use super::shared::{Occupant, Seat};
use super::walk::Walk;
use crate::error;
use crate::numbers::Number;
use parking_lot::Mutex;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PySlice};
use std::os::raw::c_int;
use std::sync::Arc;
use thalweg_log::{Columns, ReadError};

/// Times, offsets, lengths and places.
type Views<'py> =
    (Bound<'py, PyMemoryView>, Bound<'py, PyMemoryView>, Bound<'py, PyMemoryView>, Bound<'py, PyMemoryView>);

/// Entries of a scan's first batch for which there is no memory yet; the next ones are larger, so that a
/// short scan clears no memory that it does not need.
const FIRST: usize = 4096;
/// Most entries of a batch.
const LIMIT_MAX: usize = 1 << 24;
/// Of so many batches at a time memory is kept for the next ones, unless they are larger than so many
/// entries: a loop holds the last batch while the next is gathered, and memory fresh from the system costs
/// more than filling it.
const KEPT: usize = 2;
const KEPT_ENTRIES_MAX: usize = 1 << 16;

/// Iterates over batches of entries. Made by `Log.scan`.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Scan {
    seat: Arc<Seat<BatchWalk>>,
    log: Arc<thalweg_log::Log>,
    memory: Arc<Memory>,
    limit: usize,
}

/// A walk that fills batches, for one thread at a time.
struct BatchWalk {
    walk: Walk,
    /// Entries of the next batch, unless there is memory for more.
    size: usize,
}

impl Occupant for BatchWalk {}

impl BatchWalk {
    /// Fills the next batch, of at most `limit` entries; the batch behind one that was full is larger.
    fn fill(&mut self, rows: &mut Rows, limit: usize) -> Result<(), ReadError> {
        let size = limit.min(self.size.max(rows.times.len()));
        rows.reserve(size);
        let filled = rows.fill(&mut self.walk, size);
        if rows.count == size {
            self.size = limit.min(4 * size);
        }
        filled
    }
}

/// Columns side by side; the first `count` items of each are filled.
#[derive(Default)]
struct Rows {
    times: Vec<u64>,
    offsets: Vec<u64>,
    lengths: Vec<u32>,
    places: Vec<u32>,
    count: usize,
    /// The map that the payloads lie in, and where the last of them ends.
    map: Option<Arc<Pin>>,
    end: usize,
}

impl Rows {
    /// Makes room.
    fn reserve(&mut self, size: usize) {
        if self.times.len() < size {
            self.times.resize(size, 0);
            self.offsets.resize(size, 0);
            self.lengths.resize(size, 0);
            self.places.resize(size, 0);
        }
    }

    /// Takes entries until there are `size`, the segment ends, or nothing comes.
    fn fill(&mut self, walk: &mut Walk, size: usize) -> Result<(), ReadError> {
        let Rows { times, offsets, lengths, places, .. } = self;
        let (times, offsets) = (&mut times[..size], &mut offsets[..size]);
        let (lengths, places) = (&mut lengths[..size], &mut places[..size]);
        let found = walk.gather(&mut Columns { times, offsets, lengths, places })?;
        if let Some((gathered, pin)) = found {
            (self.count, self.end, self.map) = (gathered.count, gathered.end as usize, Some(pin));
        }
        Ok(())
    }
}

/// Columns whose batches are gone, for the next batches of the same log.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Vec<Rows>>);

impl Memory {
    fn take(&self) -> Rows {
        self.0.lock().pop().unwrap_or_default()
    }

    fn give(&self, mut rows: Rows) {
        (rows.count, rows.end, rows.map) = (0, 0, None);
        let mut kept = self.0.lock();
        if kept.len() < KEPT && (1..=KEPT_ENTRIES_MAX).contains(&rows.times.len()) {
            kept.push(rows);
        }
    }
}

impl Scan {
    pub(crate) fn new(log: &Log, walk: Walk, limit: usize) -> PyResult<Scan> {
        if limit == 0 || limit > LIMIT_MAX {
            return Err(PyValueError::new_err(format!("a batch holds 1 to {LIMIT_MAX} entries")));
        }
        let seat = log.shared.seat(BatchWalk { walk, size: limit.min(FIRST) })?;
        Ok(Scan { seat, log: log.log.clone(), memory: log.memory.clone(), limit })
    }
}

#[pymethods]
impl Scan {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let (seat, memory, limit) = (&*self.seat, self.memory.clone(), self.limit);
        let mut batch = Batch { rows: memory.take(), memory };
        let filled = py.detach(|| seat.try_with(|batches| batches.fill(&mut batch.rows, limit)));
        let filled = filled.ok_or_else(|| self.seat.shared().over())?;
        match filled {
            Err(error) => Err(error::read(&error, Some(&String::from_utf8_lossy(self.log.name())))),
            Ok(()) => Ok((batch.rows.count > 0).then_some(batch)),
        }
    }

    /// Goes on behind damage.
    fn resume(&self) -> PyResult<()> {
        self.seat.with(|batches| batches.walk.cursor.resume())
    }

    /// Payload bytes that had been purged before the scan came to them.
    #[getter]
    fn skipped_bytes(&self) -> PyResult<u64> {
        self.seat.with(|batches| batches.walk.cursor.skipped_bytes())
    }
}

/// Entries in columns: entry `i` has `times[i]`, `offsets[i]`, and `lengths[i]` bytes of payload that begin
/// at byte `places[i]` of `map`. Arrays and views stay valid for as long as they are held.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Batch {
    rows: Rows,
    memory: Arc<Memory>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.memory.give(std::mem::take(&mut self.rows));
    }
}

impl Batch {
    pub(crate) fn count(&self) -> usize {
        self.rows.count
    }

    /// Where a column begins. As many items are there as the batch has entries.
    pub(crate) fn column(&self, which: Which) -> *const u8 {
        let rows = &self.rows;
        match which {
            Which::Times => rows.times.as_ptr().cast(),
            Which::Offsets => rows.offsets.as_ptr().cast(),
            Which::Lengths => rows.lengths.as_ptr().cast(),
            Which::Places => rows.places.as_ptr().cast(),
        }
    }

    /// A column for NumPy.
    fn array<'py>(slf: &Bound<'py, Self>, which: Which) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let column = Bound::new(py, Column::new(slf, which))?;
        py.import("numpy")?.call_method1("frombuffer", (column, which.format().1))
    }
}

#[pymethods]
impl Batch {
    /// Microseconds since the epoch: an array of `uint64`. Needs NumPy, which `columns` does not.
    #[getter]
    fn times<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Batch::array(slf, Which::Times)
    }

    /// Offsets in the log: an array of `uint64`. Needs NumPy, which `columns` does not.
    #[getter]
    fn offsets<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Batch::array(slf, Which::Offsets)
    }

    /// Bytes of each payload: an array of `uint32`. Needs NumPy, which `columns` does not.
    #[getter]
    fn lengths<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Batch::array(slf, Which::Lengths)
    }

    /// Where in `map` each payload begins: an array of `uint32`. Needs NumPy, which `columns` does not.
    #[getter]
    fn places<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Batch::array(slf, Which::Places)
    }

    /// Times, offsets, lengths and places as memoryviews, without NumPy.
    fn columns<'py>(slf: &Bound<'py, Self>) -> PyResult<Views<'py>> {
        let view = |which| PyMemoryView::from(&Bound::new(slf.py(), Column::new(slf, which))?.into_any());
        Ok((view(Which::Times)?, view(Which::Offsets)?, view(Which::Lengths)?, view(Which::Places)?))
    }

    /// The mapped segment up to the end of the last payload, as a read-only memoryview: no copy.
    #[getter]
    fn map<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    /// The payload of one entry, without a copy.
    fn data<'py>(slf: &Bound<'py, Self>, index: Number<isize>) -> PyResult<Bound<'py, PyAny>> {
        let rows = &slf.get().rows;
        let index = match index {
            Number::Fits(index) if index < 0 => rows.count.checked_add_signed(index),
            Number::Fits(index) => Some(index.unsigned_abs()),
            Number::Outside(_) => None,
        };
        let index = index.filter(|index| *index < rows.count);
        let index = index.ok_or_else(|| PyIndexError::new_err("a batch has no such entry"))?;
        let (place, length) = (rows.places[index] as isize, rows.lengths[index] as isize);
        Batch::map(slf)?.get_item(PySlice::new(slf.py(), place, place + length, 1))
    }

    fn __len__(&self) -> usize {
        self.count()
    }

    fn __repr__(&self) -> String {
        format!("<thalweg.Batch of {}>", self.count())
    }

    /// # Safety
    /// `view` is to be filled, as the buffer protocol has it.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let rows = &slf.get().rows;
        let start = rows.map.as_ref().map_or(std::ptr::null(), |pin| pin.start());
        // SAFETY: the view refers to the batch, which keeps the map; up to `end` it was published.
        let filled = unsafe {
            (*view).obj = std::ptr::null_mut();
            let bytes = rows.end as ffi::Py_ssize_t;
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast_mut().cast(), bytes, 1, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
