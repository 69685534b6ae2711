//! JSON-RPC in Python: the native half.
//!
//! Owns: the client as event loops and blocking programs use it, one native call per turn, and what a schema
//! says about the way between JSON and frames. What comes and goes is text: Python's own `json` reads and
//! writes it. Never knows asyncio.

use crate::numbers::Number;
use crate::service::{Owned, Raise, exception, fault, seconds, whole};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::os::fd::AsRawFd;
use thalweg_reactor::Wait;
use thalweg_rpc::client::{Answers, Ask, Options, RemoteError};
use thalweg_rpc::{Bearer, Client, Translator};
use thalweg_service::{CallId, Error};
use thalweg_wire::fault::Fault;

/// Puts the classes into the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Caller>()?;
    module.add_class::<Schema>()
}

/// Connections to services that are called by JSON-RPC.
#[pyclass(module = "thalweg", name = "RpcCaller", frozen)]
pub(crate) struct Caller(Owned<Client>);

/// What was answered to calls, in their order: of a result its text, of an error `(code, message, data)`.
fn answers(py: Python<'_>, answers: &Answers) -> PyResult<Py<PyAny>> {
    let list = PyList::empty(py);
    for answer in answers.iter() {
        match answer {
            Ok(result) => list.append(result)?,
            Err(RemoteError { code, message, data }) => list.append((code, message, data))?,
        }
    }
    Ok(list.into_any().unbind())
}

impl Caller {
    /// Does something that may wait, while other threads run.
    fn detached<R: Send>(
        &self,
        py: Python<'_>,
        task: impl FnOnce(&mut Client) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.0.detached(py, task).map_err(|away| away.raise(py))?.raise(py)
    }
}

#[pymethods]
impl Caller {
    /// Of the service at a URL. Connects with the first call.
    #[new]
    #[pyo3(signature = (
        url, *, deadline=Some(Number::Fits(60.0)), connections_max=Number::Fits(8),
        idle_max=Number::Fits(2), idle_for=Number::Fits(30.0), in_flight_max=Number::Fits(1024),
        answer_bytes_max=Number::Fits(64 << 20), spin=true, token=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn new(
        py: Python<'_>,
        url: &str,
        deadline: Option<Number<f64>>,
        connections_max: Number<usize>,
        idle_max: Number<usize>,
        idle_for: Number<f64>,
        in_flight_max: Number<usize>,
        answer_bytes_max: Number<usize>,
        spin: bool,
        token: Option<&str>,
    ) -> PyResult<Self> {
        let options = Options {
            deadline: deadline.map(|deadline| seconds(py, "deadline", deadline)).transpose()?,
            connections_max: whole(py, "connections_max", connections_max)?,
            idle_max: whole(py, "idle_max", idle_max)?,
            idle_for: seconds(py, "idle_for", idle_for)?,
            in_flight_max: whole(py, "in_flight_max", in_flight_max)?,
            answer_bytes_max: whole(py, "answer_bytes_max", answer_bytes_max)?,
            spin,
            token: token.map(Bearer::new).transpose().raise(py)?,
            ..Options::default()
        };
        // A name may have to be looked up.
        let client = py.detach(|| Client::new(url, options)).raise(py)?;
        Ok(Self(Owned::new(client)))
    }

    /// Begins calls, each a method and its parameters as text, and names them. They leave with the next turn
    /// or wait.
    #[pyo3(signature = (calls, batch, notifies=false, idempotent=false, deadline=None, url=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn begin(
        &self,
        py: Python<'_>,
        calls: Vec<(String, String)>,
        batch: bool,
        notifies: bool,
        idempotent: bool,
        deadline: Option<Number<f64>>,
        url: Option<&str>,
    ) -> PyResult<u64> {
        let deadline = deadline.map(|deadline| seconds(py, "deadline", deadline)).transpose()?;
        let calls: Vec<(&str, &str)> = calls.iter().map(|(method, params)| (&**method, &**params)).collect();
        // A name may have to be looked up.
        let target = url.map(|url| self.detached(py, |client| client.target(url))).transpose()?;
        self.0.with(py, |client| {
            let ask = Ask {
                calls: &calls,
                call: None,
                is_batch: batch,
                notifies,
                is_idempotent: idempotent,
                deadline,
                target,
            };
            client.begin(&ask).map(CallId::number).raise(py)
        })
    }

    /// The caller waits for this call no more.
    fn cancel(&self, py: Python<'_>, call: u64) {
        // Closed, or in the middle of another call: then it ends by itself.
        let _ = self.0.try_with(py, |client| client.cancel(CallId::from_number(call)));
    }

    /// Writes and reads what can be now, and returns what came: of which calls, and the answers or why there
    /// are none.
    fn turn<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.0.with(py, |client| {
            client.turn(Wait::Poll).raise(py)?;
            let came = PyList::empty(py);
            while let Some(done) = client.next() {
                let outcome = match &done.outcome {
                    Ok(found) => answers(py, found)?,
                    Err(error) => exception(py, error).into_value(py).into_any(),
                };
                came.append((done.call.number(), done.outcome.is_ok(), outcome))?;
            }
            Ok(came)
        })
    }

    /// Waits for the answers to calls that were begun, other threads running meanwhile; a signal's handler
    /// runs in between.
    fn wait(&self, py: Python<'_>, call: u64) -> PyResult<Py<PyAny>> {
        let call = CallId::from_number(call);
        loop {
            if let Some(found) = self.detached(py, |client| client.listen(call))? {
                return answers(py, &found);
            }
            if let Err(error) = py.check_signals() {
                self.cancel(py, call.number());
                return Err(error);
            }
        }
    }

    /// The descriptor for an event loop: readable when a turn has something to do.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.with(py, |client| client.descriptor().map(|descriptor| descriptor.as_raw_fd()).raise(py))
    }

    /// Whether it is this process's, and was not closed.
    #[getter]
    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Closes every connection, and lets go of everything.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    /// What it has done so far.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.0.with(py, |client| {
            let of = client.statistics();
            let told = PyDict::new(py);
            told.set_item("opened", of.opened)?;
            told.set_item("closed", of.closed)?;
            told.set_item("reused", of.reused)?;
            told.set_item("waits", of.waits)?;
            told.set_item("retried", of.retried)?;
            told.set_item("idle", of.idle)?;
            told.set_item("connections", of.connections)?;
            told.set_item("in_flight", client.in_flight())?;
            Ok(told)
        })
    }
}

/// A service's schema: turns parameters into the frame of a request, and a frame that answers it into a
/// result.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Schema(Translator);

/// What the state is called by, wherever it is served.
const STATE: &str = include_str!("../../../schemas/state.jsonc");

#[pymethods]
impl Schema {
    /// From the text of a schema; `name` stands for it in messages.
    #[new]
    #[pyo3(signature = (text, name="schema"))]
    fn new(py: Python<'_>, text: &str, name: &str) -> PyResult<Self> {
        match thalweg_schema::parse(name, text) {
            Ok(service) => Ok(Self(Translator::new(&service))),
            Err(problems) => Err(fault(py, Fault::BadArgument, problems.to_string())),
        }
    }

    /// The state's.
    #[staticmethod]
    fn state(py: Python<'_>) -> PyResult<Self> {
        Self::new(py, STATE, "state.jsonc")
    }

    /// Its hash, which both ends of a connection hold against each other's.
    #[getter]
    fn hash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.hash())
    }

    /// The frame of a request.
    fn request<'py>(&self, py: Python<'py>, method: &str, params: &str) -> PyResult<Bound<'py, PyBytes>> {
        let mut frame = Vec::new();
        self.0.request(method, params, &mut frame).raise(py)?;
        Ok(PyBytes::new(py, &frame))
    }

    /// What a frame that answers a method says, as text.
    fn result(&self, py: Python<'_>, method: &str, frame: &[u8]) -> PyResult<String> {
        let mut json = Vec::new();
        self.0.result(method, frame, &mut json).raise(py)?;
        String::from_utf8(json).map_err(|_| fault(py, Fault::BadAnswer, "the answer is no text"))
    }
}
