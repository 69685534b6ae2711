//! Starting programs for the loop: no fork, no lock, no thread; their end is a descriptor to be watched.

use super::{os_error, truth};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ffi::CString;
use std::os::fd::{IntoRawFd, RawFd};
use thalweg_sys::spawn::{Program, own_environment, spawn};

fn strings(words: Vec<Vec<u8>>) -> PyResult<Vec<CString>> {
    let made: Result<Vec<CString>, _> = words.into_iter().map(CString::new).collect();
    made.map_err(|_| PyValueError::new_err("embedded null byte"))
}

/// Starts the first of `paths` that is there: its process, and the descriptor of its end, which the caller
/// closes. A negative number in `standard` leaves what this process has.
#[pyfunction]
#[pyo3(signature = (paths, arguments, environment, directory, standard, closes_others, default_signals, new_session, process_group))]
#[expect(clippy::too_many_arguments, reason = "it is called from one place, by position, as subprocess does")]
pub(crate) fn _spawn(
    py: Python<'_>,
    paths: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
    environment: Option<Vec<Vec<u8>>>,
    directory: Option<Vec<u8>>,
    standard: [RawFd; 3],
    #[pyo3(from_py_with = truth)] closes_others: bool,
    #[pyo3(from_py_with = truth)] default_signals: bool,
    #[pyo3(from_py_with = truth)] new_session: bool,
    process_group: Option<i32>,
) -> PyResult<(i32, RawFd)> {
    let (paths, arguments) = (strings(paths)?, strings(arguments)?);
    // Copied here: once others may run, they may change it.
    let environment = environment.map_or_else(|| Ok(own_environment()), strings)?;
    let directory = strings(directory.into_iter().collect())?.into_iter().next();
    let program = Program {
        paths: &paths,
        arguments: &arguments,
        environment: &environment,
        directory: directory.as_deref(),
        standard: standard.map(|number| (number >= 0).then_some(number)),
        closes_others,
        default_signals,
        new_session,
        process_group,
    };
    let started = py.detach(|| spawn(&program)).map_err(|error| os_error(&error))?;
    Ok((started.process, started.end.into_raw_fd()))
}
