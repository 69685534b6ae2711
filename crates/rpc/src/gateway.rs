//! `POST /rpc/<service>`: what an HTTP reactor serves by JSON-RPC.
//!
//! *Ownership*: one per reactor, with handlers and connections of its own; what other threads answer comes
//! through that reactor's handle, as a nudge.
//!
//! *Invariants*: nothing of a body is carried out unless all of it is JSON, and no call of it that is no
//! request; calls are handed over in the order in which they stand; every call with an id is answered once;
//! a call whose caller is gone is cancelled. Everything has a bound ([`Bounds`]). Checked by `tests/`.

use crate::admission::{self, PREFIX};
use crate::answer;
use crate::budget::Budget;
use crate::built_in;
use crate::delayed::{Delayed, DelayedBody};
use crate::mount::{Backend, Mount};
use crate::pending::{Items, PendingBody, PendingCall, StreamFailure};
use crate::plan::Plan;
use crate::request;
use bytes::Bytes;
use smallvec::smallvec;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_http::Message;
use thalweg_reactor::Handle;
use thalweg_service::{CallId, CallOptions, Error, LocalCallOptions, LocalEvent};
use thalweg_wire::exchange::{Advance, Announced, Answer, Live, Now, Refusal, Request, Response, Service};
use thalweg_wire::fault::Fault;
use thalweg_wire::host::Hosts;
use thalweg_wire::jsonrpc::{self, Call, Id, Item, write};
use thalweg_wire::lines::Lines;
use thalweg_wire::problem::Problem;

/// What a gateway allows.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Calls in one batch.
    pub batch_calls_max: usize,
    /// Bytes of answers to one batch; calls beyond are refused before they are made, and of what was made
    /// before, long answers are replaced by an error.
    pub batch_bytes_max: usize,
    /// Bytes that answers may take which wait for others before them, and whatever else is kept of calls that
    /// are awaited: in all, of one gateway. Calls beyond are refused before they are made, and of what was
    /// made before, long answers are replaced by an error and streams ended with one.
    pub answers_bytes_max: usize,
    /// Calls of one service whose handlers have not ended.
    pub in_flight_max: usize,
    /// How long an answer is waited for.
    pub patience: Duration,
    /// Items of a stream that are collected into one answer.
    pub stream_items_max: usize,
    /// And their bytes.
    pub stream_bytes_max: usize,
    /// How long `rpc.delay` may have the next body wait; zero: there is no such method.
    pub delay_max: Duration,
    /// Names by which clients may reach this server, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            batch_calls_max: 1_000,
            batch_bytes_max: 16 << 20,
            answers_bytes_max: 64 << 20,
            in_flight_max: 4_096,
            patience: Duration::from_secs(60),
            stream_items_max: 1_000,
            stream_bytes_max: 1 << 20,
            delay_max: Duration::ZERO,
            hosts: Vec::new(),
        }
    }
}

/// A service that is served.
struct MountedService {
    name: String,
    plan: Arc<Plan>,
    description: Bytes,
    backend: Backend,
    awaited: HashMap<CallId, PendingCall>,
    /// How long its next body waits.
    delay: Option<Duration>,
}

/// Services by JSON-RPC, for one HTTP reactor.
///
/// It answers 404 to every path that does not begin with `/rpc/`: a program that serves other paths hands it
/// only these.
pub struct Gateway {
    bounds: Bounds,
    hosts: Hosts,
    /// Of the reactor that looks after this.
    handle: Handle<Message>,
    served: Vec<MountedService>,
    /// Bodies whose calls are not all answered, by name.
    bodies: HashMap<u64, PendingBody>,
    delayed: Delayed,
    /// What these bodies, delayed ones and awaited calls take.
    budget: Budget,
    last_name: u64,
    alone: bool,
    /// The request that is being made.
    frame: Vec<u8>,
    /// Memory for the answers to the next body.
    room: Vec<u8>,
    /// When the calls that are awaited are next looked through for such whose time is over. While
    /// there is such a time, a look is to come: it was asked for, or the last one asked for the next.
    next_look: Option<Instant>,
}

/// What a body that is over is answered.
enum Reply {
    Answers(Bytes),
    /// It held notifications only.
    Nothing,
}

/// What is said of an answer that there is no room for.
const TOO_MUCH: &str =
    "the call was made, and its answer does not fit: the batch's other answers take all the room";
/// Answers this short are sent whether there is room or not: to say that there is none is no shorter.
const SHORT_BYTES: usize = 512;
/// How often calls that are awaited are looked through.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Answers in more memory than most need leave with it.
const ROOM_BYTES_KEPT: usize = 512;
/// A buffer that one request made larger is freed.
const FRAME_BYTES_KEPT: usize = 256 << 10;

impl Gateway {
    /// A gateway on the reactor of this handle, without services.
    pub fn new(handle: Handle<Message>, mut bounds: Bounds) -> Self {
        Self {
            budget: Budget::new(bounds.answers_bytes_max),
            hosts: Hosts::new(std::mem::take(&mut bounds.hosts).into()),
            bounds,
            handle,
            served: Vec::new(),
            bodies: HashMap::new(),
            delayed: Delayed::default(),
            last_name: 0,
            alone: false,
            frame: Vec::new(),
            room: Vec::new(),
            next_look: None,
        }
    }

    /// Whether a service may have that name: it stands in a path as it is.
    pub fn takes(name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !name.is_empty() && name.bytes().all(is_plain)
    }

    /// Serves a service under a name: at `/rpc/<name>`. Returns the descriptor that the reactor is to watch
    /// ([`thalweg_http::Http::attach`]), if the service lives elsewhere.
    ///
    /// # Errors
    /// [`Fault::BadArgument`] for a name that is taken, or none that stands in a path as it is; what the
    /// endpoint says.
    pub fn mount(&mut self, name: &str, mount: Mount) -> Result<Option<std::os::fd::OwnedFd>, Error> {
        if !Self::takes(name) {
            return Err(Error::new(
                Fault::BadArgument,
                format!("{name:?} cannot be part of a path as it is"),
            ));
        }
        if self.served.iter().any(|served| served.name == name) {
            return Err(Error::new(Fault::BadArgument, format!("there is a service {name} already")));
        }
        let handle = self.handle.clone();
        let (plan, description, mut backend) = mount.open(&self.bounds, move || handle.nudge())?;
        let descriptor = match &mut backend {
            Backend::Here(..) => None,
            Backend::Elsewhere { client, .. } => Some(thalweg_sys::socket::duplicate(client.descriptor()?)?),
        };
        self.served.push(MountedService {
            name: name.to_owned(),
            plan,
            description,
            backend,
            awaited: HashMap::new(),
            delay: None,
        });
        Ok(descriptor)
    }

    /// The services' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.served.iter().map(|served| served.name.as_str())
    }

    /// The service that a request is for.
    fn route(&mut self, request: &Request<'_>) -> Result<usize, Box<Response>> {
        let name = request.path.strip_prefix(PREFIX);
        let place = name.and_then(|name| self.served.iter().position(|served| served.name == name));
        let place = place.ok_or_else(|| Box::new(admission::no_service(request.path, self.names())))?;
        admission::admit(request, &mut self.hosts).map(|()| place)
    }

    /// Carries out what a body asks, now or later: what it is answered at once, or nothing while the answer
    /// is to come under the last name.
    fn body(&mut self, place: usize, body: &[u8]) -> Option<Reply> {
        let name = self.last_name + 1;
        if let Some(time) = self.served[place].delay.take() {
            if self.budget.lacks(body.len()) {
                return Some(Reply::Answers(no_room_for_body()));
            }
            let was = self.delayed.bytes();
            self.delayed.add(name, place, body, time);
            self.budget.replace(was, self.delayed.bytes());
        } else {
            let looks = self.next_look.is_some();
            let reply = self.carry_out(place, body, name);
            if reply.is_some() {
                if !looks && self.next_look.is_some() {
                    // Notifications are awaited behind this answer, and no answer that comes later has the
                    // first look made, which asks for all that follow.
                    self.handle.nudge();
                }
                self.owe_look();
                return reply;
            }
        }
        self.last_name = name;
        None
    }

    /// Carries out what a body asks; what it is answered, unless that is to come later under this name.
    fn carry_out(&mut self, place: usize, body: &[u8], name: u64) -> Option<Reply> {
        let calls = match jsonrpc::calls(body, self.bounds.batch_calls_max) {
            Ok(calls) => calls,
            Err(refused) => {
                let mut out = Vec::new();
                write::error(&mut out, Id::NULL, refused.code(), &refused.to_string(), |_| {});
                return Some(Reply::Answers(out.into()));
            }
        };
        let room = std::mem::take(&mut self.room);
        let mut pending = PendingBody::new(calls.is_batch, calls.items.len(), room);
        for (left, item) in (0..calls.items.len()).rev().zip(&calls.items) {
            match item {
                Item::Invalid(invalid) => pending.answer(|out| answer::invalid(out, invalid)),
                Item::Call(call) => self.one(place, call, name, &mut pending, left == 0),
            }
        }
        if pending.is_over() {
            return Some(match pending.finish() {
                Some(answers) => Reply::Answers(self.copied_if_short(answers)),
                None => Reply::Nothing,
            });
        }
        self.budget.replace(0, pending.held_bytes());
        self.bodies.insert(name, pending);
        None
    }

    /// Answers that are sent now. Short ones are copied to as many bytes as they have, and their memory is
    /// kept.
    fn copied_if_short(&mut self, mut answers: Vec<u8>) -> Bytes {
        if answers.capacity() > ROOM_BYTES_KEPT {
            return answers.into();
        }
        let sent = Bytes::copy_from_slice(&answers);
        answers.clear();
        self.room = answers;
        sent
    }

    /// Makes one call, and answers it if that can be done at once.
    #[inline]
    fn one(&mut self, place: usize, call: &Call<'_>, name: u64, pending: &mut PendingBody, last: bool) {
        let Self { bounds, served, frame, alone, next_look, budget, .. } = self;
        let MountedService { plan, description, backend, awaited, delay, .. } = &mut served[place];
        let echoed = call.id.map_or("", Id::as_str);
        if pending.bytes() > bounds.batch_bytes_max {
            return reply(pending, call, |out, id| {
                let most = bounds.batch_bytes_max;
                let words = format!("the answers of this batch have {most} bytes: make this call in another");
                answer::fault(out, id, Fault::Overloaded, &words);
            });
        }
        if budget.lacks(pending.held_bytes() + echoed.len()) {
            return reply(pending, call, overloaded);
        }
        let Some(index) = plan.find(&call.method) else {
            return match built_in::delay(call, bounds) {
                None => reply(pending, call, |out, id| built_in::answer(plan, description, call, id, out)),
                Some(Err(error)) => reply(pending, call, |out, id| answer::field_error(out, id, &error)),
                Some(Ok(time)) => {
                    *delay = Some(time);
                    reply(pending, call, built_in::null);
                }
            };
        };
        let method = &plan.methods[index];
        frame.clear();
        if let Err(error) = request::encode(plan, method, call.params, frame) {
            return reply(pending, call, |out, id| answer::field_error(out, id, &error));
        }
        if backend.in_flight() >= bounds.in_flight_max {
            return reply(pending, call, overloaded);
        }
        let mut items = Items::default();
        let asked = LocalCallOptions { deadline: None, alone: *alone && last && backend.in_flight() == 0 };
        let options = CallOptions {
            deadline: Some(bounds.patience),
            credit: Some(bounds.credit()),
            unary: method.item.is_none(),
        };
        let made = backend.call(frame, asked, options, |came, frame| match came {
            LocalEvent::Item => answer::item(plan, method, &mut items, bounds.stream(), frame),
            LocalEvent::End(code) => {
                reply(pending, call, |out, id| answer::ended(plan, method, &items, id, code, frame, out));
            }
        });
        if frame.capacity() > FRAME_BYTES_KEPT {
            *frame = Vec::new();
        }
        match made {
            Ok(None) => {}
            Err(error) => reply(pending, call, |out, id| answer::failed(out, id, &error)),
            Ok(Some(under)) if items.broken.is_some() => {
                backend.cancel(under);
                reply(pending, call, |out, id| answer::ended(plan, method, &items, id, 0, &[], out));
            }
            Ok(Some(under)) => {
                let now = Instant::now();
                next_look.get_or_insert(now + LOOK_EVERY);
                let seat = call.id.map(|_| (name, pending.expect()));
                if seat.is_some() {
                    pending.awaited.push((place, under));
                }
                let until = now.checked_add(bounds.patience);
                let call = PendingCall { seat, id: echoed.into(), method: index, items, until };
                budget.replace(0, call.held_bytes());
                awaited.insert(under, call);
            }
        }
    }

    /// Has itself looked for soon if a service elsewhere was given something that has no answer: a
    /// notification, or that a call is not wanted any more.
    fn owe_look(&self) {
        if self.served.iter().any(|served| served.backend.owes_turn()) {
            self.handle.nudge();
        }
    }

    /// The next delayed body whose time has come.
    fn take_delayed(&mut self, now: Instant) -> Option<DelayedBody> {
        let was = self.delayed.bytes();
        let body = self.delayed.take(now);
        self.budget.replace(was, self.delayed.bytes());
        body
    }

    /// Takes what came of one service's calls.
    fn turn(&mut self, place: usize, over: &mut Vec<u64>) {
        let Self { bounds, served, bodies, budget, .. } = self;
        let MountedService { plan, backend, awaited, .. } = &mut served[place];
        let mut broken = Vec::new();
        backend.turn(|under, came, frame| match came {
            LocalEvent::Item => {
                let Some(call) = awaited.get_mut(&under) else { return };
                let was = call.held_bytes();
                answer::item(plan, &plan.methods[call.method], &mut call.items, bounds.stream(), frame);
                if budget.lacks(call.held_bytes().saturating_sub(was)) {
                    call.items.break_off(StreamFailure::NoRoom);
                }
                budget.replace(was, call.held_bytes());
                if call.items.broken.is_some() {
                    broken.push(under);
                }
            }
            LocalEvent::End(code) => {
                let Some(call) = awaited.remove(&under) else { return };
                settle(bounds, budget, bodies, over, (place, under), &call, |out, id| {
                    answer::ended(plan, &plan.methods[call.method], &call.items, id, code, frame, out);
                });
            }
        });
        for under in broken {
            backend.cancel(under);
            let Some(call) = awaited.remove(&under) else { continue };
            settle(bounds, budget, bodies, over, (place, under), &call, |out, id| {
                answer::ended(plan, &plan.methods[call.method], &call.items, id, 0, &[], out);
            });
        }
    }

    /// Gives up calls that were waited for long enough.
    fn give_up(&mut self, over: &mut Vec<u64>) {
        let now = Instant::now();
        if self.next_look.is_none_or(|at| at > now) {
            return;
        }
        let Self { bounds, served, bodies, budget, .. } = self;
        for (place, MountedService { backend, awaited, .. }) in served.iter_mut().enumerate() {
            let overdue: Vec<CallId> = awaited
                .iter()
                .filter(|(_, call)| call.until.is_some_and(|until| until <= now))
                .map(|(under, _)| *under)
                .collect();
            for under in overdue {
                backend.cancel(under);
                let Some(call) = awaited.remove(&under) else { continue };
                settle(bounds, budget, bodies, over, (place, under), &call, |out, id| {
                    answer::fault(out, id, Fault::DeadlineExceeded, Fault::DeadlineExceeded.says());
                });
            }
        }
        let awaits = self.served.iter().any(|served| !served.awaited.is_empty());
        self.next_look = awaits.then(|| now + LOOK_EVERY);
    }
}

impl Bounds {
    /// Items and bytes of a stream.
    fn stream(&self) -> (usize, usize) {
        (self.stream_items_max, self.stream_bytes_max)
    }

    /// One item more than is collected, so that one too many is told from a stream that waits.
    pub(crate) fn credit(&self) -> u32 {
        u32::try_from(self.stream_items_max).unwrap_or(u32::MAX).saturating_add(1)
    }
}

/// Answers a call at once, unless it is a notification.
#[inline]
fn reply(pending: &mut PendingBody, call: &Call<'_>, write: impl FnOnce(&mut Vec<u8>, Id<'_>)) {
    if let Some(id) = call.id {
        pending.answer(|out| write(out, id));
    }
}

/// Answers a call that was awaited, within what a batch's answers may come to and what may wait in all; notes
/// bodies that are over. The last answer of a body waits for no other.
fn settle(
    bounds: &Bounds,
    budget: &mut Budget,
    bodies: &mut HashMap<u64, PendingBody>,
    over: &mut Vec<u64>,
    named: (usize, CallId),
    call: &PendingCall,
    write: impl FnOnce(&mut Vec<u8>, Id<'_>),
) {
    budget.replace(call.held_bytes(), 0);
    let Some((name, sequence)) = call.seat else { return };
    let Some(pending) = bodies.get_mut(&name) else { return };
    let (was, waits) = (pending.held_bytes(), pending.awaited.len() > 1);
    let is_full = pending.bytes() > bounds.batch_bytes_max;
    pending.complete(sequence, named, |out| {
        write(out, Id::kept(&call.id));
        if out.len() <= SHORT_BYTES {
            return;
        }
        let lacks_room = waits && budget.lacks(out.len());
        if let Some(why) = is_full.then_some(TOO_MUCH).or(lacks_room.then_some(answer::NO_ROOM)) {
            *out = Vec::new();
            answer::fault(out, Id::kept(&call.id), Fault::Overrun, why);
        }
    });
    budget.replace(was, pending.held_bytes());
    if pending.is_over() {
        over.push(name);
    }
}

/// Says of a call that it is not made, for too much is under way or waits.
fn overloaded(out: &mut Vec<u8>, id: Id<'_>) {
    answer::fault(out, id, Fault::Overloaded, Fault::Overloaded.says());
}

/// The same of a body that nothing of was looked at.
fn no_room_for_body() -> Bytes {
    let mut out = Vec::new();
    overloaded(&mut out, Id::NULL);
    out.into()
}

/// The response that brings answers, or says that there are none.
fn respond(reply: Reply) -> Response {
    let Reply::Answers(answers) = reply else { return Response { status: 204, ..Response::default() } };
    let fields = Lines::constant(b"Content-Type: application/json\r\n");
    Response { status: 200, fields, body: smallvec![answers.into()] }
}

impl Service for Gateway {
    /// A gateway has no subscribers.
    type Topic = Infallible;

    fn call(&mut self, request: &Request<'_>, _now: Now) -> Answer<Infallible> {
        match self.route(request) {
            Ok(place) => match self.body(place, request.body) {
                Some(reply) => Answer::Respond(respond(reply)),
                None => Answer::Later(self.last_name),
            },
            Err(refusal) => Answer::Respond(*refusal),
        }
    }

    fn appends(&self, _head: &Request<'_>) -> bool {
        false
    }

    fn admit(&mut self, head: &Request<'_>, _now: Now) -> Option<Response> {
        self.route(head).err().map(|refusal| *refusal)
    }

    fn alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    fn look(&mut self, moment: Now, each: &mut dyn FnMut(u64, Response)) -> Option<u32> {
        let mut over = Vec::new();
        (0..self.served.len()).for_each(|place| self.turn(place, &mut over));
        self.give_up(&mut over);
        let now = Instant::now();
        while let Some(body) = self.take_delayed(now) {
            if let Some(reply) = self.carry_out(body.place, &body.text, body.name) {
                each(body.name, respond(reply));
            }
        }
        for name in over {
            let pending = self.bodies.remove(&name);
            self.budget.replace(pending.as_ref().map_or(0, PendingBody::held_bytes), 0);
            let output = pending.and_then(PendingBody::finish);
            // What waited held a call with an id: that nothing answers it would be a fault here, and is not
            // to look as if there were notifications only.
            debug_assert!(output.is_some(), "a body that waited has no answer");
            let response = match output {
                Some(answers) => respond(Reply::Answers(answers.into())),
                None => self.failed(moment),
            };
            each(name, response);
        }
        self.owe_look();
        let looks_ms = self.next_look.and_then(|_| u32::try_from(LOOK_EVERY.as_millis()).ok());
        looks_ms.into_iter().chain(self.delayed.due_ms(now)).min()
    }

    fn gone(&mut self, later: u64) {
        let was = self.delayed.bytes();
        self.delayed.forget(later);
        self.budget.replace(was, self.delayed.bytes());
        let Some(pending) = self.bodies.remove(&later) else { return };
        self.budget.replace(pending.held_bytes(), 0);
        for (place, under) in pending.awaited {
            let MountedService { backend, awaited, .. } = &mut self.served[place];
            let call = awaited.remove(&under);
            self.budget.replace(call.as_ref().map_or(0, PendingCall::held_bytes), 0);
            backend.cancel(under);
        }
        self.owe_look();
    }

    fn failed(&mut self, _now: Now) -> Response {
        let detail = "the store failed; what became of the call is not known";
        let problem = Problem { status: 500, rule: "outcome-unknown", field: "store", detail, error: None };
        admission::refusal(&problem, "")
    }

    fn watch(&mut self, topic: &Infallible) {
        match *topic {}
    }

    fn unwatch(&mut self, topic: &Infallible) {
        match *topic {}
    }

    fn acknowledge(&mut self, topic: &Infallible) {
        match *topic {}
    }

    fn advance(&mut self, topic: &Infallible, _live: &Live, _now: Now) -> Advance {
        match *topic {}
    }

    fn deadline(&mut self, topic: &Infallible, _live: &Live, _now: Now) -> Response {
        match *topic {}
    }

    fn refuse(&mut self, refusal: &Refusal, _announced: Announced<'_>, _now: Now) -> Response {
        admission::refusal(&Problem::from(refusal), "")
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names().collect();
        out.debug_struct("Gateway").field("services", &names).finish_non_exhaustive()
    }
}
