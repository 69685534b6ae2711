//! Thalweg in Python, the native half of the package.
//!
//! Owns what Python cannot do by itself, one module for each part of the package: [`storage`] is the log,
//! with stores, appending, and every way to read; [`service`] and [`rpc`] are calls, over frames and over
//! JSON-RPC, and [`messagepack`] is the codec of generated code; `loop` is the event loop; [`worker`] is what
//! Erlang runs. Never knows what a payload means. All parts share [`payload`], bytes from Python;
//! [`numbers`], which of Python's an argument takes; [`hearing`], how a thread sleeps and still hears
//! signals; [`forks`], which process an object belongs to; and [`error`], the exceptions of stores.
//!
//! The interpreter's lock is kept where work is shorter than giving it away, and given away wherever a disk
//! or another thread may be waited for.

mod error;
mod forks;
mod hearing;
mod r#loop;
mod messagepack;
mod numbers;
mod payload;
mod rpc;
mod service;
mod storage;
mod worker;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// The number of the first interpreter of a process.
const MAIN_INTERPRETER: i64 = 0;

/// What is shared here is guarded by the interpreter's lock, and the classes are those of one interpreter:
/// where there is no such lock, or this is a second interpreter, there is no module.
fn ensure_may_load(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the interpreter's lock is held, so there is a current interpreter.
    let interpreter = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
    if interpreter != MAIN_INTERPRETER {
        return Err(PyImportError::new_err(
            "thalweg works in the main interpreter alone: this is a subinterpreter",
        ));
    }
    // Builds without the lock take it for a module like this one, unless they are told to do without. CPython
    // 3.13 is the first that may, and the first to say.
    let Ok(asks) = py.import("sys")?.getattr("_is_gil_enabled") else { return Ok(()) };
    if asks.call0()?.is_truthy()? {
        return Ok(());
    }
    let needs = "thalweg needs the interpreter's lock: start Python without PYTHON_GIL=0 and -X gil=0";
    Err(PyImportError::new_err(needs))
}

// What an iterator hands out again is changed under the interpreter's lock.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    ensure_may_load(module.py())?;
    hearing::register(module)?;
    storage::register(module)?;
    messagepack::register(module)?;
    rpc::register(module)?;
    service::register(module)?;
    r#loop::register(module)?;
    worker::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
