//! A worker of Erlang's: the native half of `python/thalweg/worker.py`.
//!
//! Owns: the service of `schemas/python.jsonc`, and Erlang's terms as Python values. A plain function is
//! called right here and its result written back without a line of Python in between; what has to be awaited,
//! and whatever is not called all the time, is handed to Python. Never knows what a worker is for, nor how it
//! was started.
//!
//! A worker belongs to one thread, its event loop's. Others may only say something ([`desk::Desk::say`]).

mod attending;
mod decode;
mod desk;
mod encode;
mod flow;
#[rustfmt::skip]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "generated for callers that need more of it")]
mod generated;
mod job;
mod modules;
mod state;
mod task;
mod terms;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Puts the classes into the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<terms::Atom>()?;
    module.add_class::<terms::Pid>()?;
    module.add_class::<terms::Reference>()?;
    module.add_class::<desk::Desk>()?;
    module.add_class::<job::Job>()?;
    module.add_function(wrap_pyfunction!(modules::named, module)?)?;
    module.add_function(wrap_pyfunction!(encode_term, module)?)?;
    module.add_function(wrap_pyfunction!(decode_term, module)?)
}

/// A value as Erlang would be sent it.
#[pyfunction]
fn encode_term<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::with_capacity(64);
    encode::value(value, &mut out)?;
    Ok(PyBytes::new(value.py(), &out))
}

/// What Erlang would have sent, as a value.
#[pyfunction]
fn decode_term<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    decode::value(py, bytes)
}
