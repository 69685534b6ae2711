//! When a protocol is asked to pause writing, and when to go on.

use super::gil_cells::GilCell;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

const HIGH_BYTES: usize = 64 * 1024;

/// The marks of one write buffer. Invariant: low <= high, and pause and resume alternate.
pub(crate) struct Flow {
    low_bytes: GilCell<usize>,
    high_bytes: GilCell<usize>,
    paused: GilCell<bool>,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            low_bytes: GilCell::new(HIGH_BYTES / 4),
            high_bytes: GilCell::new(HIGH_BYTES),
            paused: GilCell::new(false),
        }
    }
}

/// A mark as asyncio takes it, any number: what no buffer reaches, such as infinity, is the highest one.
pub(crate) fn mark(given: &Bound<'_, PyAny>) -> PyResult<Option<isize>> {
    if given.is_none() {
        return Ok(None);
    }
    let whole = given.extract::<isize>().or_else(|_| match given.extract::<f64>() {
        Ok(number) if number.is_nan() => Err(PyValueError::new_err("a mark of the write buffer is a number")),
        // As far as the type goes.
        Ok(number) => Ok(number as isize),
        Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => {
            Ok(if given.lt(0)? { isize::MIN } else { isize::MAX })
        }
        Err(error) => Err(error),
    });
    whole.map(Some)
}

impl Flow {
    /// Whether the protocol is to be asked to pause, now that so many bytes wait.
    #[inline]
    pub(crate) fn pauses(&self, py: Python<'_>, bytes: usize) -> bool {
        bytes > self.high_bytes.get(py) && !self.paused.replace(py, true)
    }

    /// Whether the protocol is to be asked to go on, now that only so many bytes wait.
    #[inline]
    pub(crate) fn resumes(&self, py: Python<'_>, bytes: usize) -> bool {
        bytes <= self.low_bytes.get(py) && self.paused.replace(py, false)
    }

    /// Whether the protocol was asked to pause.
    pub(crate) fn is_paused(&self, py: Python<'_>) -> bool {
        self.paused.get(py)
    }

    pub(crate) fn limits(&self, py: Python<'_>) -> (usize, usize) {
        (self.low_bytes.get(py), self.high_bytes.get(py))
    }

    /// Sets both marks, each from the other where only one is given.
    ///
    /// # Errors
    /// Unless high >= low >= 0.
    pub(crate) fn set_limits(&self, py: Python<'_>, high: Option<isize>, low: Option<isize>) -> PyResult<()> {
        let high = high.unwrap_or_else(|| low.map_or(HIGH_BYTES as isize, |low| low.saturating_mul(4)));
        let low = low.unwrap_or(high.div_euclid(4));
        match (usize::try_from(low), usize::try_from(high)) {
            (Ok(low), Ok(high)) if low <= high => {
                self.low_bytes.set(py, low);
                self.high_bytes.set(py, high);
                Ok(())
            }
            _ => Err(PyValueError::new_err(format!("high ({high}) must be >= low ({low}) must be >= 0"))),
        }
    }
}
