//! The rules against a plain model; the service and the driver over the model store, with a clock moved by
//! hand and webhooks that answer when the test says so.

mod acks;
mod clock;
mod configuration;
mod durable;
mod founding;
mod links;
mod pull_wake;
mod rules;
mod webhooks;

use crate::model::Model;
use crate::store::Store;
use crate::subscriptions::subscription::Outcome;
use crate::subscriptions::{Driver, Subscriptions, WebhookCall};
use crate::{Options, Streams};
use serde_json::{Value, json};
use std::sync::Arc;
use thalweg_wire::exchange::{Answer, Method, Now, Request, Service};
use thalweg_wire::field::Field;

const START_US: u64 = 1_767_225_600_000_000;
const SECOND_US: u64 = 1_000_000;

/// A service, its store, its driver and a clock.
struct World {
    model: Model,
    streams: Streams<Model>,
    driver: Driver<Model>,
    shared: Arc<Subscriptions<Model>>,
    options: Options,
    now: Now,
}

struct Reply {
    status: u16,
    head: String,
    body: Value,
    ticket: u64,
}

impl Reply {
    fn code(&self) -> (u16, &str) {
        (self.status, self.body["error"]["code"].as_str().unwrap_or_default())
    }
}

impl World {
    fn new() -> World {
        World::over(Model::default(), Options::default(), START_US)
    }

    fn over(model: Model, options: Options, time_us: u64) -> World {
        let shared = Subscriptions::open(&model, || Some([5; 32]));
        let streams = Streams::new(model.clone(), options.clone()).with_subscriptions(shared.clone());
        let driver = Driver::new(model.clone(), shared.clone(), options.clone());
        World { model, streams, driver, shared, options, now: Now { time_us, entropy: 0 } }
    }

    /// Everything in memory is lost, what the store has is found again.
    fn restart(self) -> World {
        World::over(self.model, self.options, self.now.time_us)
    }

    /// The same, and other rules hold from then on.
    fn restart_by(self, options: Options) -> World {
        World { options, ..self }.restart()
    }

    fn answer(
        &mut self,
        method: Method,
        target: &str,
        fields: &[(&str, &str)],
        body: &Value,
    ) -> Answer<usize> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.answer_to_text(method, target, fields, &text)
    }

    fn answer_to_text(
        &mut self,
        method: Method,
        target: &str,
        fields: &[(&str, &str)],
        text: &str,
    ) -> Answer<usize> {
        send(&mut self.streams, self.now, (method, target), fields, text)
    }

    fn call(&mut self, method: Method, target: &str, fields: &[(&str, &str)], body: &Value) -> Reply {
        let writes = self.model.writes();
        let (ticket, response) = match self.answer(method, target, fields, body) {
            Answer::Respond(response) => (0, response),
            Answer::After(ticket, response) => (ticket, response),
            other => panic!("{target}: {other:?}"),
        };
        let status = response.status;
        // The server's secret is made when a subscription is; beside that a refusal writes nothing.
        if status >= 400 {
            assert_eq!(self.model.writes(), writes, "a refused {method:?} {target} wrote");
        }
        let head = String::from_utf8(response.fields.to_vec()).unwrap();
        if status >= 400 && !matches!(status, 409) {
            assert!(head.contains("application/problem+json"), "{head}");
        }
        let body = serde_json::from_slice(&response.body.concat()).unwrap_or(Value::Null);
        Reply { status, head, body, ticket }
    }

    fn put(&mut self, id: &str, body: &Value) -> Reply {
        self.call(Method::Put, &format!("__ds/subscriptions/{id}"), &[], body)
    }

    /// A PUT whose subscription is founded elsewhere: what is to be done there.
    fn put_elsewhere(&mut self, id: &str, body: &Value) -> Box<dyn FnOnce() + Send> {
        match self.answer(Method::Put, &format!("__ds/subscriptions/{id}"), &[], body) {
            Answer::Cold(work) => work.0,
            other => panic!("founded at once: {other:?}"),
        }
    }

    fn get(&mut self, id: &str) -> Value {
        let reply = self.call(Method::Get, &format!("__ds/subscriptions/{id}"), &[], &Value::Null);
        assert_eq!(reply.status, 200);
        reply.body
    }

    fn verb(&mut self, id: &str, verb: &str, token: &str, body: &Value) -> Reply {
        let authorization = format!("Bearer {token}");
        let fields = [("Authorization", authorization.as_str())];
        self.call(Method::Post, &format!("__ds/subscriptions/{id}/{verb}"), &fields, body)
    }

    fn claim(&mut self, id: &str, worker: &str) -> Reply {
        self.verb(id, "claim", "", &json!({ "worker": worker }))
    }

    fn create(&mut self, name: &str) {
        assert_eq!(self.call(Method::Put, &name.replace('"', "%22"), &[], &Value::Null).status, 201);
    }

    fn append(&mut self, name: &str, event: u64) {
        let target = name.replace('"', "%22");
        assert_eq!(self.call(Method::Post, &target, &[], &json!({ "event": event })).status, 204);
        // What the store announces once that is durable.
        let stream = self.model.find(name.as_bytes()).unwrap();
        if self.model.ticket(&stream) == Ok(0) {
            self.shared.moved(self.model.incarnation(&stream));
        }
    }

    /// The webhooks to call now, whose calls begin at once.
    fn turn(&mut self) -> Vec<WebhookCall> {
        let mut calls = self.driver.turn(self.now);
        calls.retain_mut(|call| self.driver.begin(call, self.now));
        calls
    }

    /// A call ended; the next one begins at once.
    fn finished(&mut self, call: &WebhookCall, outcome: Outcome) -> Option<WebhookCall> {
        let mut next = self.driver.finished(call, outcome, self.now)?;
        self.driver.begin(&mut next, self.now).then_some(next)
    }

    /// The one webhook to call now.
    fn webhook(&mut self) -> WebhookCall {
        let mut calls = self.turn();
        assert_eq!(calls.len(), 1, "{calls:?}");
        calls.remove(0)
    }

    fn sleep_ms(&mut self, ms: u64) {
        self.now.time_us += ms * 1_000;
    }

    /// The wake events in a stream.
    fn events(&self, name: &str) -> Vec<Value> {
        let text = String::from_utf8(self.model.stored(name)).unwrap();
        serde_json::from_str(&format!("[{}]", text.trim_end_matches(','))).unwrap()
    }
}

/// What a service answers to a request.
fn send(
    streams: &mut Streams<Model>,
    now: Now,
    (method, target): (Method, &str),
    fields: &[(&str, &str)],
    text: &str,
) -> Answer<usize> {
    let mut all = vec![("Host", "h:1"), ("Content-Type", "application/json")];
    all.extend_from_slice(fields);
    let fields: Vec<Field<'_>> =
        all.iter().filter_map(|(name, value)| Field::of(name, value.as_bytes())).collect();
    let path = format!("/v1/stream/{target}");
    let body = text.as_bytes();
    let request = Request { method, path: &path, query: None, fields: &fields, body, secure: false };
    streams.call(&request, now)
}

fn webhook(url: &str) -> Value {
    json!({ "type": "webhook", "pattern": "events/*", "webhook": { "url": url }, "lease_ttl_ms": 1000 })
}

fn pull() -> Value {
    json!({ "type": "pull-wake", "pattern": "events/*", "wake_stream": "wake/pool", "lease_ttl_ms": 1000 })
}

const HOOK: &str = "https://worker.example/hooks";

fn told(call: &WebhookCall) -> Value {
    serde_json::from_slice(&call.body).unwrap()
}

/// A callback's body that acks all a wake told of.
fn acks(wake: &Value, done: bool) -> Value {
    let acks = wake["streams"].as_array().unwrap().iter();
    let acks: Vec<_> = acks.map(|s| json!({ "stream": s["path"], "offset": s["tail_offset"] })).collect();
    json!({ "wake_id": wake["wake_id"], "generation": wake["generation"], "acks": acks, "done": done })
}
