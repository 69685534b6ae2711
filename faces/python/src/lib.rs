//! Thalweg in Python, the native half of the package.
//!
//! Owns what Python cannot do by itself, one module for each part of the package: [`storage`] is the log,
//! with stores, appending, and every way to read; [`service`] and [`rpc`] are calls, over frames and over
//! JSON-RPC, and [`messagepack`] is the codec of generated code; `loop` is the event loop; [`worker`] is what
//! Erlang runs. Never knows what a payload means. All parts share [`payload`], bytes from Python;
//! [`hearing`], how a thread sleeps and still hears signals; [`forks`], which process an object belongs to;
//! and [`error`], the exceptions of stores.
//!
//! The interpreter's lock is kept where work is shorter than giving it away, and given away wherever a disk
//! or another thread may be waited for.

mod error;
mod forks;
mod hearing;
mod r#loop;
mod messagepack;
mod payload;
mod rpc;
mod service;
mod storage;
mod worker;

use pyo3::prelude::*;

// What an iterator hands out again is changed under the interpreter's lock: without one there is no module.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    storage::register(module)?;
    messagepack::register(module)?;
    rpc::register(module)?;
    service::register(module)?;
    r#loop::register(module)?;
    worker::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
