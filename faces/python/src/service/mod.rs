//! Services in Python: the native half.
//!
//! Owns: a client and a server as event loops and blocking programs use them, each one native call per turn,
//! whatever came in it. Never knows asyncio, nor a schema: those are `python/thalweg/service`.
//!
//! A client or server is used by one thread at a time. One that is used by two is safe and slow: the second
//! waits, without the interpreter's lock, until the first one's call is over.

mod connection;
mod error;
mod listener;
mod owned;
mod reply;
mod spawned;

pub(crate) use error::{Raise, exception, fault};
pub(crate) use owned::{Owned, Unavailable};

use connection::Connection;
use listener::Listener;
use reply::Reply;
use spawned::Program;

use crate::numbers::Number;
use pyo3::prelude::*;
use std::time::Duration;
use thalweg_transport::Endpoint;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::SchemaHash;

/// Puts the classes into the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Connection>()?;
    module.add_class::<Listener>()?;
    module.add_class::<Program>()?;
    module.add_class::<Reply>()?;
    module.add("BACKLOG_BYTES", thalweg_service::BACKLOG_BYTES)
}

/// A whole number that an option or an argument is given.
#[inline]
pub(crate) fn whole<T>(py: Python<'_>, name: &str, value: Number<T>) -> PyResult<T> {
    value.whole(name).map_err(|wrong| fault(py, Fault::BadArgument, wrong))
}

/// A number of seconds.
#[inline]
pub(crate) fn seconds(py: Python<'_>, name: &str, value: Number<f64>) -> PyResult<Duration> {
    value.seconds(name).map_err(|wrong| fault(py, Fault::BadArgument, wrong))
}

pub(crate) fn endpoint(py: Python<'_>, path: &str) -> PyResult<Endpoint> {
    path.parse().map_err(|wrong: thalweg_transport::UnknownEndpoint| {
        error::fault(py, Fault::BadArgument, wrong.to_string())
    })
}

/// A schema's hash; none fits any.
fn schema(py: Python<'_>, hash: Option<&[u8]>) -> PyResult<SchemaHash> {
    let Some(hash) = hash else { return Ok(SchemaHash::default()) };
    let wrong =
        |_| error::fault(py, Fault::BadArgument, format!("a schema's hash has 32 bytes, not {}", hash.len()));
    hash.try_into().map_err(wrong)
}
