//! One column of a batch: an array for callers that use the buffer protocol.

use super::scan::Batch;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;
use std::os::raw::c_int;

/// A column of numbers, read-only. `memoryview(column)` and NumPy look at them where they lie.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Column {
    batch: Py<Batch>,
    which: Which,
    // The buffer protocol points to these two.
    count: ffi::Py_ssize_t,
    item_bytes: ffi::Py_ssize_t,
}

/// A column of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Times,
    Offsets,
    Lengths,
    Places,
}

impl Which {
    /// Its items as the `struct` module and as NumPy call them.
    pub(crate) fn format(self) -> (&'static CStr, &'static str) {
        match self {
            Which::Times | Which::Offsets => (c"Q", "uint64"),
            Which::Lengths | Which::Places => (c"I", "uint32"),
        }
    }
}

impl Column {
    pub(crate) fn new(batch: &Bound<'_, Batch>, which: Which) -> Column {
        let item_bytes = if which.format().1 == "uint64" { 8 } else { 4 };
        let count = batch.get().count() as ffi::Py_ssize_t;
        Column { batch: batch.clone().unbind(), which, count, item_bytes }
    }
}

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.count as usize
    }

    /// # Safety
    /// `view` is to be filled, as the buffer protocol has it.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let column = slf.get();
        let start = column.batch.get().column(column.which);
        // SAFETY: the view refers to the column, which keeps the batch; the batch, referred to, is not filled
        // again.
        unsafe {
            (*view).obj = std::ptr::null_mut();
            let bytes = column.count * column.item_bytes;
            if ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast_mut().cast(), bytes, 1, flags) != 0 {
                return Err(PyErr::fetch(slf.py()));
            }
            (*view).itemsize = column.item_bytes;
            if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT {
                (*view).format = column.which.format().0.as_ptr().cast_mut();
            }
            if flags & ffi::PyBUF_ND == ffi::PyBUF_ND {
                (*view).shape = (&raw const column.count).cast_mut();
            }
            if flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES {
                (*view).strides = (&raw const column.item_bytes).cast_mut();
            }
        }
        Ok(())
    }
}
