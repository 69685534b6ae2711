//! Starting programs for the loop: no fork, no lock, no thread; their end is a descriptor to be watched.

use super::{os_error, truth, words_of};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use std::ffi::CString;
use std::os::fd::{IntoRawFd, RawFd};
use thalweg_sys::spawn::{Program, Refused, Step, own_environment, spawn};

fn strings(words: Vec<Vec<u8>>) -> PyResult<Vec<CString>> {
    let made: Result<Vec<CString>, _> = words.into_iter().map(CString::new).collect();
    made.map_err(|_| PyValueError::new_err("embedded null byte"))
}

/// What is raised of a program that was not started, as `subprocess` does: with a name where the program or
/// the directory was refused. Of a group or a descriptor, which have none, the words say so.
fn refusal(refused: &Refused, names: [Py<PyAny>; 2], process_group: Option<i32>) -> PyErr {
    let Some(number) = refused.error.raw_os_error() else { return os_error(&refused.error) };
    let [program, directory] = names;
    let words = words_of(&refused.error);
    match (refused.step, process_group) {
        (Step::Program, _) => PyOSError::new_err((number, words, program)),
        (Step::Directory, _) => PyOSError::new_err((number, words, directory)),
        (Step::Group, Some(group)) => PyOSError::new_err((number, format!("{words}: process group {group}"))),
        (Step::Standard, _) => PyOSError::new_err((number, format!("{words}: stdin, stdout or stderr"))),
        (Step::Process | Step::Group, _) => PyOSError::new_err((number, words)),
    }
}

/// Starts the first of `paths` that is there, and tells `popen`, a `subprocess.Popen`, of its process and of
/// the descriptor of its end, which that closes. Not as an answer: what a signal's handler raises would take
/// it from the caller, and with it the descriptor. A negative number in `standard` leaves what this process
/// has. `names` are what the caller calls the program and the directory.
#[pyfunction]
#[pyo3(signature = (popen, paths, arguments, environment, directory, standard, closes_others, default_signals, new_session, process_group, names))]
#[expect(clippy::too_many_arguments, reason = "it is called from one place, by position, as subprocess does")]
pub(crate) fn _spawn(
    popen: &Bound<'_, PyAny>,
    paths: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
    environment: Option<Vec<Vec<u8>>>,
    directory: Option<Vec<u8>>,
    standard: [RawFd; 3],
    #[pyo3(from_py_with = truth)] closes_others: bool,
    #[pyo3(from_py_with = truth)] default_signals: bool,
    #[pyo3(from_py_with = truth)] new_session: bool,
    process_group: Option<i32>,
    names: [Py<PyAny>; 2],
) -> PyResult<()> {
    let py = popen.py();
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
    let started = py.detach(|| spawn(&program)).map_err(|refused| refusal(&refused, names, process_group))?;
    popen.setattr(intern!(py, "pid"), started.process)?;
    popen.setattr(intern!(py, "_child_created"), true)?;
    popen.setattr(intern!(py, "end"), started.end.into_raw_fd())
}
