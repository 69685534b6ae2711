//! Where a worker takes in what Erlang asks.
//!
//! A turn takes in everything that came, and calls what can be called at once. While nothing else is going on
//! it looks for a moment whether more comes, because a call that is made right after another is answered
//! before a thread could have been woken for it.
//!
//! While a function waits for a callback ([`Desk::call_and_wait`]) the turn it runs in is still under way.
//! Calls that are made in the course of that callback run there and then, whatever else comes waits until the
//! stack is down again. So the server is locked for a look, never while Python runs.
//!
//! Threads that wait for answers take them in themselves where the event loop stands still
//! ([`Desk::take_in`]). A thread that says something also sends it ([`Desk::send_off`]); what arrives with
//! that is left to the next turn.
//!
//! A request that cannot be dealt with is answered so, and keeps none of those behind it waiting.

mod calls;

use super::attending::{Attending, Said};
use super::flow::{self, Changes};
use super::generated::types::{
    Kind, PythonAttendItem, PythonForgetResponse, PythonPostResponse, PythonRequest, SCHEMA_HASH,
};
use super::job::Job;
use super::modules::Modules;
use super::state::{Posting, State, wanted};
use super::task::Tasks;
use super::{decode, encode};
use crate::forks::Process;
use crate::service::{Raise, Unavailable, endpoint};
use parking_lot::Mutex;
use pyo3::exceptions::{PyBlockingIOError, PyException, PyRecursionError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use std::os::fd::AsRawFd;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};
use thalweg_reactor::Wait;
use thalweg_service::{Incoming, Server, ServerOptions};
use thalweg_wire::frame::LENGTH_DEFAULT;
use thalweg_wire::messagepack::response_frame;

/// So long is looked for more before the event loop goes on.
const ATTENTION: Duration = Duration::from_micros(50);
/// So long a turn may take while more keeps coming.
const TURN: Duration = Duration::from_millis(1);
/// Callbacks may wait within each other so deep.
const NESTED_MAX: usize = 64;
/// Calls in flight: Erlang bounds them, and answers to callbacks must always come through.
const IN_FLIGHT_MAX: u32 = 1 << 20;
/// The longest frame that Erlang takes.
const SAID_BYTES_MAX: usize = LENGTH_DEFAULT as usize;
/// Turns that take in more than a ring holds, a piece each.
const RING_TURNS: usize = 256;

/// A worker's end of its connection. A child after a fork has the same rings in its memory, and writes
/// nothing there.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Desk {
    server: Mutex<Server>,
    modules: Modules,
    /// Where what is not called all the time goes: `python/thalweg/worker.py` says which methods.
    hooks: Py<PyAny>,
    /// The event loop's, where functions run and interrupts are raised.
    thread: ThreadId,
    tasks: Tasks,
    state: Mutex<State>,
    /// Where the worker says something by itself, once there is an attendant.
    attending: Attending,
    changes: Changes,
    process: Process,
}

#[pymethods]
impl Desk {
    /// Listens.
    #[new]
    fn new(py: Python<'_>, path: &str, hooks: Py<PyAny>) -> PyResult<Self> {
        let options = ServerOptions {
            schema: SCHEMA_HASH,
            error_tag: "PythonErrorResponse".into(),
            in_flight_max: IN_FLIGHT_MAX,
            clients_max: 1,
            drain_grace: Duration::ZERO,
            ..ServerOptions::default()
        };
        let server = Server::bind(&[endpoint(py, path)?], options).raise(py)?;
        Ok(Self {
            server: Mutex::new(server),
            modules: Modules::default(),
            tasks: Tasks::new(&hooks.bind(py).getattr("loop")?)?,
            hooks,
            thread: thread::current().id(),
            state: Mutex::default(),
            attending: Attending::default(),
            changes: Changes::default(),
            process: Process::this(),
        })
    }

    /// The descriptor for an event loop: readable when a turn has something to do.
    fn fileno(&self) -> i32 {
        self.server.lock().descriptor().as_raw_fd()
    }

    /// Takes in what came. With `idle` nothing else is going on, so it may look a little for more. `True`:
    /// there has to be another turn after the jobs that were begun had theirs.
    fn turn(&self, py: Python<'_>, idle: bool) -> PyResult<bool> {
        self.check(py)?;
        let began = Instant::now();
        let (mut wait, mut last) = (Wait::Poll, None);
        loop {
            self.cycle(py, wait)?;
            let worked = self.serve(py)?;
            let now = Instant::now();
            let is_full = worked && now.duration_since(began) >= TURN;
            if std::mem::take(&mut self.state.lock().fresh) > 0 || is_full {
                self.tell(py)?;
                return Ok(true);
            }
            if !worked && wait == Wait::Poll {
                // Nothing was left unseen, and the descriptor says when there is more.
                break;
            }
            last = if worked { Some(now) } else { last };
            let attends = idle && last.is_some_and(|last| now.duration_since(last) < ATTENTION);
            // A wait that is over leaves nothing to be watched, so the peer rings for nothing.
            wait = if attends { Wait::Until(began) } else { Wait::Poll };
        }
        self.tell(py)?;
        Ok(false)
    }

    /// Says something by itself: 0 that it is ready, 1 a callback, 2 a message to a process, 3 a line of a
    /// log, 4 that no caller waits for a callback any more.
    fn say(&self, kind: u8, number: u64, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check(value.py())?;
        let kind = match kind {
            0 => Kind::Ready,
            1 => Kind::Callback,
            2 => Kind::Send,
            3 => Kind::Log,
            4 => Kind::Unwanted,
            _ => return Err(PyValueError::new_err("nothing is said in this kind")),
        };
        let mut bytes = Vec::with_capacity(64);
        encode::value(value, &mut bytes)?;
        let mut frame = Vec::with_capacity(bytes.len() + 48);
        response_frame(&PythonAttendItem { kind, number, value: bytes.into() }, &mut frame);
        if frame.len() > SAID_BYTES_MAX {
            let words = format!("{} bytes to be said at once, {SAID_BYTES_MAX} are allowed", frame.len());
            return Err(PyValueError::new_err(words));
        }
        let mut said = self.attending.say(&frame)?;
        if said == Said::Refused {
            // Erlang may have said meanwhile that it read some of it.
            self.send_off(value.py())?;
            said = self.attending.say(&frame)?;
        }
        match said {
            Said::Refused => Err(PyBlockingIOError::new_err("Erlang has too much unread: try again later")),
            // A thread that waits for a callback takes a turn anyway.
            Said::Due if kind != Kind::Callback => self.send_off(value.py()),
            Said::Due | Said::Queued => Ok(()),
        }
    }

    /// Calls back, and waits for the answer, while calls that are made in its course run: whether it went
    /// well, and its value.
    #[pyo3(signature = (number, call, seconds=None))]
    fn call_and_wait<'py>(
        &self,
        py: Python<'py>,
        number: u64,
        call: &Bound<'py, PyAny>,
        seconds: Option<f64>,
    ) -> PyResult<(bool, Bound<'py, PyAny>)> {
        self.check(py)?;
        let until = seconds
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .and_then(|left| Instant::now().checked_add(left));
        {
            let mut state = self.state.lock();
            if state.waiting.len() >= NESTED_MAX {
                return Err(PyRecursionError::new_err("callbacks are nested too deep"));
            }
            // Before the answer can come: another thread may take it in, and has to know whose it is.
            state.waiting.push(number);
        }
        let outcome = self.say(1, number, call).and_then(|()| self.wait_until(py, number, until));
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| *waiting != number);
        state.answers.remove(&number);
        drop(state);
        let (ok, value) = outcome?;
        let read = self.read(py, ok, &value)?;
        self.look_again(py)?;
        Ok(read)
    }

    /// For a thread that waits for an answer: takes in what came, because the event loop may stand still
    /// until just that thread is done. `True`: what else came is the loop's.
    fn take_in(&self, py: Python<'_>) -> PyResult<bool> {
        self.check(py)?;
        // The thread that has it takes in what comes.
        let Some(mut server) = self.server.try_lock() else { return Ok(false) };
        server.turn(Wait::Poll).raise(py)?;
        let mut answers = Vec::new();
        while let Some(incoming) = server.next() {
            let answer = match PythonRequest::decode(&incoming.request) {
                Ok(PythonRequest::Answer(request)) => Some(request),
                _ => None,
            };
            let mut state = self.state.lock();
            // What the worker's own thread waits for is there before that can begin to sleep.
            match answer {
                Some(request) if !state.keeps(request.number, request.ok, &request.value) => {
                    answers.push(incoming);
                }
                Some(_) => incoming.reply.end(&flow::answered()),
                None => state.taken.push_back(incoming),
            }
        }
        drop(server);
        answers.into_iter().try_for_each(|incoming| self.deal_with(py, incoming))?;
        Ok(true)
    }

    /// Whether to interrupt the function that runs, or else the job whose task does, for nobody waits for it
    /// any more: once for each. Everything that has come is looked at, and kept. Of what waits below it is
    /// asked when that goes on.
    #[pyo3(signature = (job=None))]
    fn interrupts(&self, job: Option<&Bound<'_, Job>>) -> bool {
        if self.process.is_this()
            && let Some(mut server) = self.server.try_lock()
        {
            for _ in 0..RING_TURNS {
                // What is broken shows in the next turn.
                if !matches!(server.turn(Wait::Poll), Ok(1..)) {
                    break;
                }
            }
        }
        let mut state = self.state.lock();
        state.was_asked |= state.running.len() + usize::from(job.is_some()) > 1;
        match state.running.last_mut() {
            Some(running) => running.give_up(),
            None => job.is_some_and(|job| job.get().give_up()),
        }
    }
}

impl Desk {
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.process.is_this() { Ok(()) } else { Err(Unavailable::Elsewhere.raise(py)) }
    }

    /// Sends what was said, in whatever thread. The event loop sees to what came with that.
    fn send_off(&self, py: Python<'_>) -> PyResult<()> {
        // The thread that has it sends.
        let Some(mut server) = self.server.try_lock() else { return Ok(()) };
        let before = server.queued();
        server.turn(Wait::Poll).raise(py)?;
        let is_news =
            server.queued() > before || server.statistics().clients == 0 || !self.changes.is_empty();
        drop(server);
        self.attending.sent();
        if !is_news || std::mem::replace(&mut self.state.lock().owes_turn, true) {
            return Ok(());
        }
        let asked = self.hooks.call_method0(py, "left").map(drop);
        if asked.is_err() {
            self.state.lock().owes_turn = false;
        }
        asked
    }

    fn cycle(&self, py: Python<'_>, wait: Wait) -> PyResult<()> {
        let mut server = self.server.lock();
        server.turn(wait).raise(py)?;
        let clients = server.statistics().clients;
        drop(server);
        let mut state = self.state.lock();
        let orphaned = clients == 0 && state.had_client;
        state.had_client |= clients > 0;
        state.owes_turn = false;
        drop(state);
        if orphaned {
            self.hooks.call_method0(py, "orphaned")?;
        }
        Ok(())
    }

    /// Answers what is there; whether there was anything.
    fn serve(&self, py: Python<'_>) -> PyResult<bool> {
        let mut worked = false;
        self.post_waiting(py)?;
        while let Some(incoming) = self.next_of_all() {
            worked = true;
            self.deal_with(py, incoming)?;
        }
        Ok(worked)
    }

    /// The next request, of those first that had to wait.
    fn next_of_all(&self) -> Option<Incoming> {
        let waited = wanted(&mut self.state.lock().later);
        waited.or_else(|| self.next())
    }

    /// The next request of those that a turn took in.
    fn next(&self) -> Option<Incoming> {
        let mut server = self.server.lock();
        let taken = wanted(&mut self.state.lock().taken);
        if taken.is_some() || server.queued() == 0 { taken } else { server.next() }
    }

    /// Jobs whose callers changed their minds.
    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        let changed = self.changes.take();
        if !changed.is_empty() {
            self.hooks.call_method1(py, "changed", (changed,))?;
        }
        Ok(())
    }

    fn wait_until(&self, py: Python<'_>, number: u64, until: Option<Instant>) -> PyResult<(bool, Vec<u8>)> {
        loop {
            py.check_signals()?;
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(PyTimeoutError::new_err("no answer to the callback came in time"));
            }
            // So that signals are heard in time even where something keeps coming.
            let slice = Instant::now() + Duration::from_secs(1);
            let until = until.map_or(slice, |until| until.min(slice));
            py.detach(|| {
                let mut server = self.server.lock();
                // An interrupt, or a thread, may have taken in what is waited for.
                let state = self.state.lock();
                let is_there = !state.taken.is_empty() || state.answers.contains_key(&number);
                drop(state);
                let polls = is_there || server.queued() > 0;
                server.turn(if polls { Wait::Poll } else { Wait::Until(until) })
            })
            .raise(py)?;
            self.cycle(py, Wait::Poll)?;
            while let Some(incoming) = self.next() {
                self.nested(py, incoming)?;
                self.look_again(py)?;
            }
            if let Some(answer) = self.state.lock().answers.remove(&number) {
                return Ok(answer);
            }
        }
    }

    /// Has what goes on here hear of an interrupt that came while something else was on top of it.
    fn look_again(&self, py: Python<'_>) -> PyResult<()> {
        if std::mem::take(&mut self.state.lock().was_asked) {
            self.hooks.call_method0(py, "look_again")?;
        }
        Ok(())
    }

    /// What came while a callback is waited for.
    fn nested(&self, py: Python<'_>, incoming: Incoming) -> PyResult<()> {
        let within = match PythonRequest::decode(&incoming.request) {
            Ok(PythonRequest::Invoke(request)) => request.within,
            Ok(PythonRequest::Evaluate(request)) => request.within,
            Ok(PythonRequest::Execute(request)) => request.within,
            Ok(PythonRequest::Generate(request)) => request.within,
            Ok(PythonRequest::Answer(_)) => return self.deal_with(py, incoming),
            _ => None,
        };
        let mut state = self.state.lock();
        if within.is_some_and(|callback| state.waiting.contains(&callback)) {
            drop(state);
            return self.deal_with(py, incoming);
        }
        state.later.push_back(incoming);
        Ok(())
    }

    /// Handles a request. One that goes wrong where nobody may hear what it came to is abandoned, and said to
    /// be.
    fn deal_with(&self, py: Python<'_>, incoming: Incoming) -> PyResult<()> {
        match self.handle(py, incoming) {
            Err(raised) if raised.is_instance_of::<PyException>(py) => {
                raised.write_unraisable(py, None);
                Ok(())
            }
            handled => handled,
        }
    }

    fn handle(&self, py: Python<'_>, incoming: Incoming) -> PyResult<()> {
        let Incoming { request, reply, .. } = incoming;
        let mut frame = Vec::new();
        let heard = match PythonRequest::decode(&request) {
            Ok(PythonRequest::Invoke(request)) => {
                return self.run(py, reply, || self.invoke(py, &request));
            }
            Ok(PythonRequest::Evaluate(request)) => {
                let variables = decode::named(py, request.variables.as_deref());
                let arguments = variables.map(|variables| (&*request.source, variables, &*request.scope));
                return self.run(py, reply, || self.hooks.bind(py).call_method1("evaluate", arguments?));
            }
            Ok(PythonRequest::Execute(request)) => {
                let variables = decode::named(py, request.variables.as_deref());
                let arguments = variables.map(|variables| (&*request.source, variables, &*request.scope));
                return self.run(py, reply, || self.hooks.bind(py).call_method1("execute", arguments?));
            }
            Ok(PythonRequest::Generate(request)) => return self.generate(py, reply, &request),
            Ok(PythonRequest::Attend(_)) => {
                self.attending.begin(reply);
                self.hooks.call_method0(py, "attended")?;
                return Ok(());
            }
            Ok(PythonRequest::Answer(request)) => {
                frame = flow::answered();
                self.answered(py, request.number, request.ok, &request.value)
            }
            Ok(PythonRequest::Forget(request)) => {
                response_frame(&PythonForgetResponse {}, &mut frame);
                self.hooks.call_method1(py, "forget", (&*request.scope,)).map(drop)
            }
            Ok(PythonRequest::Post(request)) => match decode::value(py, &request.value) {
                Ok(value) => {
                    let (kind, number, value) = (request.kind, request.number, value.unbind());
                    self.state.lock().posts.push_back(Posting { kind, number, value, reply });
                    return self.post_waiting(py);
                }
                Err(raised) => {
                    frame = self.lost(py, (request.kind, request.number), raised)?;
                    Ok(())
                }
            },
            Err(wrong) => {
                reply.fail(thalweg_wire::fault::Fault::BadFrame, &wrong.to_string());
                return Ok(());
            }
        };
        if let Err(raised) = heard {
            frame = flow::outcome(false, &self.described(py, raised)?)?;
        }
        reply.end(&frame);
        Ok(())
    }

    /// Posts what waits for room in the loop's mailbox, the first of it first, as far as there is some.
    fn post_waiting(&self, py: Python<'_>) -> PyResult<()> {
        let next = || self.state.lock().posts.pop_front();
        while let Some(posting) = next() {
            let arguments = (posting.kind, posting.number, &posting.value);
            let posted = self.hooks.call_method1(py, "post", arguments);
            let frame = match posted.and_then(|posted| posted.extract(py)) {
                Ok(true) => {
                    let mut frame = Vec::new();
                    response_frame(&PythonPostResponse {}, &mut frame);
                    frame
                }
                Err(raised) if raised.is_instance_of::<PyException>(py) => {
                    self.lost(py, (posting.kind, posting.number), raised)?
                }
                still => {
                    self.state.lock().posts.push_front(posting);
                    return still.map(drop);
                }
            };
            posting.reply.end(&frame);
        }
        Ok(())
    }

    /// The answer to an event that was not posted. Erlang does not read it, so the log says it too.
    fn lost(&self, py: Python<'_>, (kind, number): (u32, u64), raised: PyErr) -> PyResult<Vec<u8>> {
        self.hooks.call_method1(py, "lost", (kind, number, raised.value(py)))?;
        flow::outcome(false, &self.described(py, raised)?)
    }

    /// What was raised, in words for Erlang.
    fn described<'py>(&self, py: Python<'py>, raised: PyErr) -> PyResult<Bound<'py, PyAny>> {
        self.aside(|| self.hooks.bind(py).call_method1("describe", (raised.into_value(py),)))
    }

    fn answered(&self, py: Python<'_>, number: u64, ok: bool, value: &[u8]) -> PyResult<()> {
        if !self.state.lock().keeps(number, ok, value) {
            let (ok, value) = self.read(py, ok, value)?;
            self.aside(|| self.hooks.call_method1(py, "answered", (number, ok, value)))?;
        }
        Ok(())
    }

    /// What a callback came to. What has no value here is an error as one of Erlang's own.
    fn read<'py>(&self, py: Python<'py>, ok: bool, value: &[u8]) -> PyResult<(bool, Bound<'py, PyAny>)> {
        match decode::value(py, value) {
            Ok(value) => Ok((ok, value)),
            Err(raised) => Ok((false, self.described(py, raised)?)),
        }
    }
}
