//! A server as Python drives it: by turns, each of which brings every request that came.

use super::error::Raise;
use super::owned::Owned;
use super::reply::Replies;
use super::{endpoint, schema, seconds, whole};
use crate::numbers::Number;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::os::fd::AsRawFd;
use std::time::Instant;
use thalweg_reactor::Wait;
use thalweg_service::{Incoming, Server, ServerOptions, Stopper};
use thalweg_sys::socket::SLEEP_MAX;

/// Listens at endpoints, and takes in what clients ask.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Listener {
    server: Owned<Server>,
    stopper: Stopper,
    replies: Replies,
}

impl Listener {
    /// Everything that was taken in, as replies with the frames to answer.
    fn taken<'py>(&self, py: Python<'py>, server: &mut Server) -> PyResult<Bound<'py, PyList>> {
        let requests = PyList::empty(py);
        for _ in 0..server.queued() {
            let Some(incoming) = server.next() else { break };
            self.append(&requests, incoming)?;
        }
        Ok(requests)
    }

    fn append(&self, requests: &Bound<'_, PyList>, incoming: Incoming) -> PyResult<()> {
        let py = requests.py();
        let frame = PyBytes::new(py, &incoming.request);
        requests.append((Py::new(py, self.replies.take_in(incoming.reply))?, frame))
    }
}

#[pymethods]
impl Listener {
    /// Listens. Clients may connect from here on; they are served by turns.
    #[new]
    #[pyo3(signature = (
        endpoints, *, schema=None, error_tag="ErrorResponse", frame_bytes_max=Number::Fits(16 << 20),
        ring_bytes_max=Number::Fits(4 << 20), clients_max=Number::Fits(65_000),
        in_flight_max=Number::Fits(1024), in_flight_bytes_max=Number::Fits(64 << 20),
        unsent_bytes_max=Number::Fits(4 << 20), stream_credit=Number::Fits(64), spin=true,
        drain_grace=Number::Fits(5.0), hello_within=Number::Fits(10.0), same_user_only=true
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn new(
        py: Python<'_>,
        endpoints: Vec<String>,
        schema: Option<&[u8]>,
        error_tag: &str,
        frame_bytes_max: Number<u32>,
        ring_bytes_max: Number<u32>,
        clients_max: Number<u32>,
        in_flight_max: Number<u32>,
        in_flight_bytes_max: Number<usize>,
        unsent_bytes_max: Number<usize>,
        stream_credit: Number<u32>,
        spin: bool,
        drain_grace: Number<f64>,
        hello_within: Number<f64>,
        same_user_only: bool,
    ) -> PyResult<Self> {
        let endpoints = endpoints.iter().map(|path| endpoint(py, path)).collect::<PyResult<Vec<_>>>()?;
        let options = ServerOptions {
            schema: self::schema(py, schema)?,
            error_tag: error_tag.to_owned().into(),
            frame_bytes_max: whole(py, "frame_bytes_max", frame_bytes_max)?,
            ring_bytes_max: whole(py, "ring_bytes_max", ring_bytes_max)?,
            clients_max: whole(py, "clients_max", clients_max)?,
            in_flight_max: whole(py, "in_flight_max", in_flight_max)?,
            in_flight_bytes_max: whole(py, "in_flight_bytes_max", in_flight_bytes_max)?,
            unsent_bytes_max: whole(py, "unsent_bytes_max", unsent_bytes_max)?,
            stream_credit: whole(py, "stream_credit", stream_credit)?,
            spin,
            drain_grace: seconds(py, "drain_grace", drain_grace)?,
            hello_within: seconds(py, "hello_within", hello_within)?,
            same_user_only,
        };
        let server = Server::bind(&endpoints, options).raise(py)?;
        Ok(Self { stopper: server.stopper(), server: Owned::new(server), replies: Replies::new() })
    }

    /// Sends what was answered and takes in what came: replies with the frames to answer. `finish` comes
    /// after it, when the first of them may have been answered.
    fn turn<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.server.with(py, |server| {
            server.turn(Wait::Poll).raise(py)?;
            self.taken(py, server)
        })
    }

    /// Sends what was answered since the turn, and has the descriptor say when to come again. What came
    /// meanwhile.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.server.with(py, |server| {
            let requests = PyList::empty(py);
            while let Some(incoming) = server.next() {
                self.append(&requests, incoming)?;
            }
            Ok(requests)
        })
    }

    /// As `turn`, and waits for something to come, a second at most, other threads running meanwhile and
    /// signals being handled.
    #[pyo3(signature = (seconds=None))]
    fn wait<'py>(&self, py: Python<'py>, seconds: Option<Number<f64>>) -> PyResult<Bound<'py, PyList>> {
        let most = seconds.map(|timeout| super::seconds(py, "seconds", timeout)).transpose()?;
        let until = Instant::now() + most.unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
        let turned = self.server.detached(py, |server| server.turn(Wait::Until(until)));
        turned.ok().transpose().raise(py)?;
        py.check_signals()?;
        self.server.with(py, |server| self.taken(py, server))
    }

    /// The numbers of replies that `Reply.watch` was called for and for which something changed.
    fn changed(&self) -> Vec<u64> {
        self.replies.changed()
    }

    /// Takes nothing new from here on. The turns that follow answer what was begun.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.server.check(py)?;
        self.stopper.stop();
        Ok(())
    }

    /// Whether it was stopped, and everything that was begun is answered.
    #[getter]
    fn is_stopped(&self, py: Python<'_>) -> bool {
        self.server.try_with(py, |server| server.is_stopped()).unwrap_or(true)
    }

    /// Whether it is this process's, and was not closed.
    #[getter]
    fn is_open(&self) -> bool {
        self.server.is_open()
    }

    /// Lets go of everything.
    fn close(&self, py: Python<'_>) {
        self.server.close(py);
    }

    /// The descriptor for an event loop: readable when a turn has something to do.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.server.with(py, |server| Ok(server.descriptor().as_raw_fd()))
    }

    /// What it has done so far.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = self.server.with(py, |server| Ok(server.statistics()))?;
        let named = PyDict::new(py);
        named.set_item("clients", statistics.clients)?;
        named.set_item("shared_clients", statistics.shared_clients)?;
        named.set_item("in_flight", statistics.in_flight)?;
        named.set_item("in_flight_bytes", statistics.in_flight_bytes)?;
        named.set_item("requests", statistics.requests)?;
        named.set_item("answers", statistics.answers)?;
        Ok(named)
    }
}
