//! The event loop: asyncio's contract over our reactor.
//!
//! Owns scheduling, timers, descriptors, calls from other threads, and the transports of sockets. Everything
//! that is not hot (name lookups, executors, TLS, signals, how servers are set up) stands on asyncio's own
//! base classes, see `python/thalweg/loop`.
//!
//! [`io`] waits, without the interpreter's lock, [`listening`] for other threads first if that pays; [`turn`]
//! is one turn of the loop and the order of things in it; [`core`] is the class that Python sees; [`handle`]
//! and [`timers`] are what is scheduled; [`mailbox`] serves what is no coroutine; [`stream`] is a
//! connection, [`reading`] its one half, [`outgoing`] and [`flow`] what its peer does not take yet,
//! [`volley`] what many of them send in one turn; [`datagram`] is an endpoint of messages, [`address`] where
//! they go; [`endpoint`] is what both of them are. [`accepting`] is a server's listener, [`operation`]
//! what is awaited of a bare socket. [`spawn`] starts programs. [`spare`] is what is used again;
//! [`gil_cells`] is how all of it is shared under the interpreter's lock.

mod accepting;
mod address;
mod core;
mod datagram;
mod endpoint;
mod flow;
mod foreign;
mod gil_cells;
mod handle;
mod io;
mod listening;
mod mailbox;
mod operation;
mod outgoing;
mod reading;
mod spare;
mod spawn;
mod stream;
mod timers;
mod turn;
mod volley;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Adds the loop's classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<core::Loop>()?;
    module.add_class::<mailbox::Mailbox>()?;
    module.add_class::<handle::Handle>()?;
    module.add_class::<handle::TimerHandle>()?;
    module.add_function(wrap_pyfunction!(mailbox::_event_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(spawn::_spawn, module)?)?;
    module.add_class::<operation::Operation>()?;
    module.add_class::<datagram::DatagramTransport>()?;
    module.add_class::<stream::StreamTransport>()
}

/// What a caller says of a switch: anything goes, as with asyncio, which asks whether it is true.
pub(crate) fn truth(of: &Bound<'_, PyAny>) -> PyResult<bool> {
    of.is_truthy()
}

/// What the system said, as the `OSError` that Python makes of its number.
pub(crate) fn os_error(error: &std::io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, words_of(error))),
        None => PyOSError::new_err(words_of(error)),
    }
}

/// What the system said, without the number that it has for it.
pub(crate) fn words_of(error: &std::io::Error) -> String {
    let said = error.to_string();
    let number = error.raw_os_error().map(|number| format!(" (os error {number})"));
    number.and_then(|number| said.strip_suffix(&number).map(str::to_owned)).unwrap_or(said)
}
