//! One entry, as Python sees it: four words, and a payload that is looked at where it lies.
//!
//! The time is kept as an object, which Python loads without a call; so it is made for each entry, read or
//! not, unless it is that of the one before.

use super::pin::{Pin, PinnedBytes};
use super::walk::Step;
use pyo3::exceptions::PyIndexError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyMemoryView};
use std::cell::UnsafeCell;
use std::os::raw::c_int;
use std::sync::Arc;
use thalweg_log::Time;

/// An entry, and what keeps its payload mapped.
struct EntryFields {
    offset: u64,
    /// What [`Entry::time`] says.
    time: Time,
    last: bool,
    lent: PinnedBytes,
}

/// One entry of a log. It is bytes-like: `len(entry)`, `entry[0]`, `memoryview(entry)` and `entry.data` look
/// at its payload where it lies, `bytes(entry)` copies it.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Entry {
    /// Microseconds since the Unix epoch: the time of its transaction.
    #[pyo3(get)]
    time: Py<PyInt>,
    found: UnsafeCell<EntryFields>,
}

// SAFETY: what is inside changes only in `Spares::entry`, which holds the interpreter's lock and the only
// reference.
unsafe impl Sync for Entry {}

impl Entry {
    fn found(&self) -> &EntryFields {
        // SAFETY: the caller has a reference of its own, so nothing is changed meanwhile.
        unsafe { &*self.found.get() }
    }
}

#[pymethods]
impl Entry {
    /// Offset of its first byte within the log: with the log, its identity.
    #[getter]
    fn offset(&self) -> u64 {
        self.found().offset
    }

    /// Whether it is the last entry of its transaction in this log.
    #[getter]
    fn last(&self) -> bool {
        self.found().last
    }

    /// Its payload as a read-only memoryview of the mapped log: no copy, and valid for as long as it is held.
    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    fn __len__(&self) -> usize {
        self.found().lent.length as usize
    }

    /// One byte as a number, or some of them as a memoryview.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = slf.get().found().lent.bytes();
        let Some(place) = number(index) else { return Entry::data(slf)?.get_item(index) };
        let place = if place < 0 { place + bytes.len() as isize } else { place };
        let byte = usize::try_from(place).ok().and_then(|place| bytes.get(place));
        let byte = *byte.ok_or_else(|| PyIndexError::new_err("a payload has no such byte"))?;
        Ok(byte.into_pyobject(slf.py())?.into_any())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.found().lent.bytes())
    }

    fn __repr__(&self) -> String {
        let (EntryFields { offset, lent, .. }, time) = (self.found(), &self.time);
        format!("<thalweg.Entry offset={offset} time={time} length={}>", lent.length)
    }

    /// # Safety
    /// `view` is to be filled, as the buffer protocol has it.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.get().found().lent.bytes();
        // SAFETY: the view refers to the entry, which keeps the bytes mapped and, referred to, is not
        // changed.
        let filled = unsafe {
            (*view).obj = std::ptr::null_mut();
            let start = bytes.as_ptr().cast_mut().cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes.len() as ffi::Py_ssize_t, 1, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// What an index says, if it is a number that a place may have.
#[inline]
fn number(index: &Bound<'_, PyAny>) -> Option<isize> {
    if !index.is_exact_instance_of::<PyInt>() {
        return index.extract().ok();
    }
    // SAFETY: it is an integer, and the interpreter's lock is held.
    let place = unsafe { ffi::PyLong_AsSsize_t(index.as_ptr()) };
    // One that is too large is said by -1 and an error.
    (place != -1 || PyErr::take(index.py()).is_none()).then_some(place)
}

/// The entries that were handed out last. A loop holds the last one while it asks for the next, and nobody
/// the one before it, unless it was kept: then its memory is used again. A memoryview holds its entry.
#[derive(Default)]
pub(crate) struct Spares([Option<Py<Entry>>; 2]);

impl Spares {
    #[inline]
    pub(crate) fn entry(&mut self, py: Python<'_>, step: Step, pin: &Arc<Pin>) -> PyResult<Py<Entry>> {
        let Step { offset, time, last, place, length, .. } = step;
        self.0.swap(0, 1);
        let before = self.0[1].as_ref().map(Py::get).filter(|entry| entry.found().time == time);
        let said = before.map_or_else(|| integer(py, time), |entry| entry.time.clone_ref(py));
        if let Some(entry) = &self.0[0] {
            // SAFETY: the object lives. With the interpreter's lock held and no reference but this one,
            // nothing can look at it while it changes.
            unsafe {
                if ffi::Py_REFCNT(entry.as_ptr()) == 1 {
                    set_time(py, entry, said);
                    let found = &mut *entry.get().found.get();
                    (found.offset, found.time, found.last) = (offset, time, last);
                    (found.lent.place, found.lent.length) = (place, length);
                    if !Arc::ptr_eq(&found.lent.pin, pin) {
                        found.lent.pin = pin.clone();
                    }
                    return Ok(entry.clone_ref(py));
                }
            }
        }
        let found = EntryFields { offset, time, last, lent: PinnedBytes { pin: pin.clone(), place, length } };
        let entry = Py::new(py, Entry { time: said, found: UnsafeCell::new(found) })?;
        self.0[0] = Some(entry.clone_ref(py));
        Ok(entry)
    }
}

#[inline]
fn integer(py: Python<'_>, number: u64) -> Py<PyInt> {
    let Ok(integer) = number.into_pyobject(py);
    integer.unbind()
}

/// Gives an entry another time.
///
/// # Safety
/// The caller's is the only reference to the entry.
#[inline]
unsafe fn set_time(py: Python<'_>, entry: &Py<Entry>, time: Py<PyInt>) {
    let within = std::ptr::from_ref(entry.get()).addr() - entry.as_ptr().addr();
    // SAFETY: the entry lies that far within its object, which is the interpreter's memory and, as nobody
    // looks at it, may be written to. An integer that is let go of runs no Python.
    let before = unsafe {
        let entry = entry.as_ptr().byte_add(within).cast::<Entry>();
        std::ptr::replace(&raw mut (*entry).time, time)
    };
    before.drop_ref(py);
}
