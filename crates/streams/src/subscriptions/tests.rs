//! The rules against a plain model; the service and the driver over the model store, with a clock moved by
//! hand and webhooks that answer when the test says so.

use super::subscription::{
    Ack, Change, Config as Wanted, Delivery, Fence, Link, Outcome, Phase, Position, Refused, StreamPosition,
    Subscription, backoff_ms,
};
use super::{Driver, Subscriptions, WebhookCall, encoding};
use crate::model::Model;
use crate::store::{Commit, Store, StoreError};
use crate::{Loopback, Options, Streams};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::exchange::{Answer, Method, Now, Request, Service};
use thalweg_wire::field::Field;
use thalweg_wire::token::Token;

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
        let mut all = vec![("Host", "h:1"), ("Content-Type", "application/json")];
        all.extend_from_slice(fields);
        let fields: Vec<Field<'_>> =
            all.iter().filter_map(|(name, value)| Field::of(name, value.as_bytes())).collect();
        let path = format!("/v1/stream/{target}");
        let body = text.as_bytes();
        let request = Request { method, path: &path, query: None, fields: &fields, body, secure: false };
        self.streams.call(&request, self.now)
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
        if self.model.ticket(&stream) == 0 {
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

#[test]
fn a_subscription_is_a_stream_of_which_there_may_be_so_many() {
    let mut world = World::new();
    world.create("events/old");
    assert_eq!(world.put("s", &webhook(HOOK)).status, 201);
    let mut world = world.restart_by(Options { streams_max: 1, ..Options::default() });
    assert_eq!(world.put("t", &webhook(HOOK)).code(), (429, "TOO_MANY_STREAMS"));
    assert_eq!(world.call(Method::Get, "__ds/subscriptions/t", &[], &Value::Null).status, 404);
    assert_eq!(world.put("s", &webhook(HOOK)).status, 200, "it is there");
    world.append("events/old", 1);
    assert_eq!(world.turn().len(), 1, "it is served");
}

#[test]
fn a_subscription_is_created_confirmed_read_and_deleted() {
    let mut world = World::new();
    world.create("events/old");
    world.append("events/old", 1);
    let created = world.put("s", &webhook(HOOK));
    assert_eq!(created.status, 201);
    assert_eq!(created.body["webhook"]["signing"]["jwks_url"], "http://h:1/v1/stream/__ds/jwks.json");
    assert_eq!(created.body["created_at"], "2026-01-01T00:00:00Z");
    // PROTOCOL 6.2: linked at its end, so nothing is replayed.
    assert_eq!(created.body["streams"][0]["path"], "events/old");
    assert_ne!(created.body["streams"][0]["acked_offset"], "-1");
    assert!(world.turn().is_empty());
    assert_eq!(world.put("s", &webhook(HOOK)).status, 200);
    let mut other = webhook(HOOK);
    other["description"] = json!("another");
    assert_eq!(world.put("s", &other).code(), (409, "SUBSCRIPTION_EXISTS"));
    assert_eq!(world.get("s")["status"], "active");
    assert_eq!(world.call(Method::Delete, "__ds/subscriptions/s", &[], &Value::Null).status, 204);
    assert_eq!(world.call(Method::Get, "__ds/subscriptions/s", &[], &Value::Null).status, 404);
    assert_eq!(world.put("s", &other).status, 201);
}

#[test]
fn bad_configurations_are_refused_by_name() {
    let mut world = World::new();
    let with = |key: &str, value: Value| {
        let mut body = webhook(HOOK);
        body[key] = value;
        body
    };
    for (body, code, field) in [
        (with("type", json!("push")), "INVALID_REQUEST", "type"),
        (with("pattern", json!("a//b")), "INVALID_REQUEST", "pattern"),
        (with("pattern", Value::Null), "INVALID_REQUEST", "pattern"),
        (with("pattern", json!("__ds/*")), "INVALID_REQUEST", "pattern"),
        (with("streams", json!(["a/../b"])), "INVALID_REQUEST", "streams"),
        (with("streams", json!(["__ds/x"])), "INVALID_REQUEST", "streams"),
        (with("lease_ttl_ms", json!(999)), "INVALID_REQUEST", "lease_ttl_ms"),
        (with("lease_ttl_ms", json!(600_001)), "INVALID_REQUEST", "lease_ttl_ms"),
        (with("lease_ttl_ms", json!("soon")), "INVALID_REQUEST", "body"),
        (with("webhook", Value::Null), "INVALID_REQUEST", "webhook.url"),
        (with("wake_stream", json!("w")), "INVALID_REQUEST", "wake_stream"),
        (webhook("http://10.0.0.1/hook"), "WEBHOOK_URL_REJECTED", "webhook.url"),
        (webhook("https://169.254.169.254/"), "WEBHOOK_URL_REJECTED", "webhook.url"),
        (webhook("https://[fe80::1]/"), "WEBHOOK_URL_REJECTED", "webhook.url"),
        (json!({ "type": "pull-wake", "pattern": "**" }), "INVALID_REQUEST", "wake_stream"),
        (
            json!({ "type": "pull-wake", "streams": ["w"], "wake_stream": "w" }),
            "INVALID_REQUEST",
            "wake_stream",
        ),
        (json!([]), "INVALID_REQUEST", "body"),
    ] {
        let reply = world.put("s", &body);
        assert_eq!((reply.code(), &reply.body["field"]), ((400, code), &json!(field)), "{body}");
    }
    assert_eq!(world.model.writes(), 0, "nothing was kept");
    assert_eq!(world.put("a%00b", &webhook(HOOK)).status, 400);
    assert_eq!(world.call(Method::Get, "__ds/nothing", &[], &Value::Null).status, 404);
    let refused = world.call(Method::Post, "__ds/subscriptions/s", &[], &Value::Null);
    assert!(
        refused.status == 405 && refused.head.contains("Allow: PUT, GET, DELETE\r\n"),
        "{}",
        refused.head
    );
    assert_eq!(world.call(Method::Put, "%5F%5Fds/x", &[], &Value::Null).status, 404);
}

#[test]
fn a_body_is_an_object_and_so_is_what_it_holds() {
    let mut world = World::new();
    world.create("w");
    world.put("s", &json!({ "type": "pull-wake", "pattern": "orders/*", "wake_stream": "w" }));
    world.create("orders/1");
    world.append("orders/1", 1);
    world.turn();
    let claimed = world.claim("s", "worker");
    let bearer = format!("Bearer {}", claimed.body["token"].as_str().unwrap());
    let no_object = "not as expected: invalid type: sequence, expected a JSON object at line 1 column ";
    let empty = "the body is empty; it has to be a JSON object";
    for (verb, body, detail) in [
        ("", r#"["pull-wake","orders/*",null,null,"w",null,null]"#, no_object),
        ("", "[]", no_object),
        ("", r#"{"type":"webhook","pattern":"a","webhook":["https://example.com/"]}"#, no_object),
        ("/streams", r#"[["a"]]"#, no_object),
        ("/claim", r#"["worker"]"#, no_object),
        ("/ack", r#"["w",1,[],true]"#, no_object),
        ("/ack", r#"{"wake_id":"w","generation":1,"acks":[["a","-1"]]}"#, no_object),
        ("/release", r#"["w",1,[],true]"#, no_object),
        ("", "7", "not as expected: invalid type: integer `7`, expected a JSON object at line 1 column 1"),
        ("", "", empty),
        ("/claim", " \r\n\t", empty),
        ("/claim", "{}", "not as expected: missing field `worker` at line 1 column 2"),
    ] {
        let method = if verb.is_empty() { Method::Put } else { Method::Post };
        let target = format!("__ds/subscriptions/s{verb}");
        let response = match world.answer_to_text(method, &target, &[("Authorization", &bearer)], body) {
            Answer::Respond(response) | Answer::After(_, response) => response,
            other => panic!("{verb} {body}: {other:?}"),
        };
        let said: Value = serde_json::from_slice(&response.body.concat()).unwrap();
        assert_eq!((response.status, &said["field"]), (400, &json!("body")), "{verb} {body}: {said}");
        assert!(said["detail"].as_str().unwrap().starts_with(detail), "{verb} {body}: {said}");
    }
}

#[test]
fn a_store_that_takes_nothing_leaves_no_subscription() {
    let mut world = World::new();
    world.call(Method::Get, "__ds/jwks.json", &[], &Value::Null);
    world.model.fail(Some(StoreError::Full("test".into())));
    assert_eq!(world.put("s", &webhook(HOOK)).code(), (507, "STORE_FULL"));
    world.model.fail(None);
    assert_eq!(world.call(Method::Get, "__ds/subscriptions/s", &[], &Value::Null).status, 404);
    assert_eq!(world.put("s", &webhook(HOOK)).status, 201);
}

#[test]
fn the_signing_key_is_published_and_outlives_a_restart() {
    let mut world = World::new();
    let first = world.call(Method::Get, "__ds/jwks.json", &[], &Value::Null);
    assert!(first.head.contains("Content-Type: application/jwk-set+json\r\n"));
    assert!(first.head.contains("Cache-Control: public, max-age=300\r\n"));
    let mut world = world.restart();
    let second = world.call(Method::Get, "__ds/jwks.json", &[], &Value::Null);
    assert_eq!(first.body, second.body);
}

#[test]
fn a_synchronous_done_acks_the_snapshot_and_what_came_later_wakes_again() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    let call = world.webhook();
    let wake = told(&call);
    assert_eq!((&wake["generation"], &wake["subscription_id"]), (&json!(1), &json!("s")));
    assert_eq!(wake["callback_url"], "http://h:1/v1/stream/__ds/subscriptions/s/callback");
    assert_eq!(wake["streams"][0]["has_pending"], true);
    world.append("events/a", 2);
    assert!(world.turn().is_empty(), "one wake at a time");
    let next = world.finished(&call, Outcome::Done).unwrap();
    assert_eq!(told(&next)["generation"], 2);
    assert_ne!(told(&next)["wake_id"], wake["wake_id"]);
    // The cursor stands where the first snapshot ended, not where the stream ends.
    assert_eq!(told(&next)["streams"][0]["acked_offset"], wake["streams"][0]["tail_offset"]);
    assert!(world.finished(&next, Outcome::Done).is_none());
    assert_eq!(world.get("s")["streams"][0]["acked_offset"], told(&next)["streams"][0]["tail_offset"]);
}

#[test]
fn failures_back_off_and_the_schedule_outlives_a_restart() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    let mut call = world.webhook();
    let wake = told(&call);
    for failures in 0..9 {
        assert!(world.finished(&call, Outcome::Failed).is_none());
        assert_eq!(world.get("s")["status"], "failed");
        world = world.restart();
        assert!(world.turn().is_empty(), "not before its time");
        let due_us = world.driver.next_due_us().unwrap();
        let plain_ms = (1_000 << failures).min(60_000);
        assert_eq!(due_us - world.now.time_us, (plain_ms - plain_ms / 5) * 1_000, "after {failures}");
        world.now.time_us = due_us - 1;
        assert!(world.turn().is_empty());
        world.now.time_us = due_us;
        call = world.webhook();
        // The same wake, tried again.
        assert_eq!(
            (&told(&call)["wake_id"], &told(&call)["generation"]),
            (&wake["wake_id"], &json!(1))
        );
    }
    assert!(world.finished(&call, Outcome::Accepted).is_none());
    assert_eq!(world.get("s")["status"], "active");
}

#[test]
fn a_callback_acks_extends_and_is_fenced_once_the_wake_is_over() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    let call = world.webhook();
    let wake = told(&call);
    let token = wake["callback_token"].as_str().unwrap().to_owned();
    world.finished(&call, Outcome::Accepted);
    world.sleep_ms(900);
    // A heartbeat: the lease goes on from here.
    let beat = json!({ "wake_id": wake["wake_id"], "generation": 1 });
    assert_eq!(world.verb("s", "callback", &token, &beat).body, json!({ "ok": true, "next_wake": false }));
    world.sleep_ms(900);
    assert!(world.turn().is_empty());
    for (changed, value) in [("wake_id", json!("w_other")), ("generation", json!(2))] {
        let mut stale = acks(&wake, true);
        stale[changed] = value;
        assert_eq!(world.verb("s", "callback", &token, &stale).code(), (409, "FENCED"));
    }
    let done = acks(&wake, true);
    assert_eq!(world.verb("s", "callback", "forged", &done).code(), (401, "TOKEN_INVALID"));
    assert_eq!(world.verb("s", "ack", &token, &done).code(), (401, "TOKEN_INVALID"), "for callbacks only");
    assert_eq!(world.verb("s", "callback", &token, &done).body, json!({ "ok": true, "next_wake": false }));
    let stale = world.verb("s", "callback", &token, &done);
    assert_eq!((stale.status, &stale.body), (409, &json!({ "error": { "code": "FENCED" } })));
    assert!(stale.head.contains("Content-Type: application/json\r\n"));
}

#[test]
fn a_lease_that_is_over_fences_its_holder_and_wakes_again() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    let call = world.webhook();
    let wake = told(&call);
    let token = wake["callback_token"].as_str().unwrap().to_owned();
    world.finished(&call, Outcome::Accepted);
    world.sleep_ms(1_000);
    assert_eq!(world.verb("s", "callback", &token, &acks(&wake, true)).code(), (409, "FENCED"));
    assert_eq!(told(&world.webhook())["generation"], 2);
    assert_eq!(world.verb("s", "callback", &token, &acks(&wake, true)).code(), (409, "FENCED"));
}

#[test]
fn acks_are_checked_whole_before_any_is_taken() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    for name in ["events/a", "events/b"] {
        world.create(name);
        world.append(name, 1);
    }
    let call = world.webhook();
    let wake = told(&call);
    let token = wake["callback_token"].as_str().unwrap().to_owned();
    let tail = wake["streams"][0]["tail_offset"].as_str().unwrap();
    let past = format!("{}ffff", &tail[..tail.len() - 4]);
    for offset in [past.as_str(), "now", "", "7"] {
        let mut bad = acks(&wake, true);
        bad["acks"][1]["offset"] =
            json!(offset.replace(&tail[..16], &wake["streams"][1]["tail_offset"].as_str().unwrap()[..16]));
        assert_eq!(world.verb("s", "callback", &token, &bad).code(), (400, "INVALID_OFFSET"), "{offset}");
    }
    let links = world.get("s")["streams"].clone();
    assert!(
        links
            .as_array()
            .unwrap()
            .iter()
            .all(|link| link["acked_offset"].as_str().unwrap().ends_with("_0000000000000000"))
    );
    // An old cursor moves nothing back.
    assert_eq!(world.verb("s", "callback", &token, &acks(&wake, false)).status, 200);
    let acked = world.get("s")["streams"][0]["acked_offset"].clone();
    let mut back = acks(&wake, false);
    back["acks"][0]["offset"] = json!("-1");
    assert_eq!(world.verb("s", "callback", &token, &back).status, 200);
    assert_eq!(world.get("s")["streams"][0]["acked_offset"], acked);
}

#[test]
fn an_ack_inside_a_message_is_no_offset_and_is_looked_up_elsewhere_where_that_would_wait() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    world.append("events/a", 2);
    let call = world.webhook();
    let wake = told(&call);
    let token = wake["callback_token"].as_str().unwrap().to_owned();
    let tail = wake["streams"][0]["tail_offset"].as_str().unwrap();
    let between = u64::from_str_radix(&tail[17..], 16).unwrap() / 2;
    let said = |offset: u64, done: bool| {
        let mut body = acks(&wake, done);
        body["acks"][0]["offset"] = json!(format!("{}{offset:016x}", &tail[..17]));
        body
    };
    let before = world.get("s")["streams"][0]["acked_offset"].clone();
    for inside in [1, between - 1, between + 1] {
        let reply = world.verb("s", "callback", &token, &said(inside, false));
        assert_eq!(reply.code(), (400, "INVALID_OFFSET"), "{inside}");
        assert_eq!(world.get("s")["streams"][0]["acked_offset"], before);
    }
    // Who is not let in is told that, whatever they ack.
    let mut fenced = said(1, false);
    fenced["generation"] = json!(wake["generation"].as_u64().unwrap() + 7);
    assert_eq!(world.verb("s", "callback", &token, &fenced).code(), (409, "FENCED"));
    world.put("t", &webhook(HOOK));
    let foreign = world.verb("t", "callback", &token, &said(1, false));
    assert_eq!(foreign.code(), (401, "TOKEN_INVALID"));
    // And what is not linked is not looked at.
    world.create("apart");
    world.append("apart", 1);
    let apart = world.model.find(b"apart").unwrap();
    let inside = Token { incarnation: world.model.incarnation(&apart), offset: 1 }.encode();
    let mut beside = said(between, false);
    beside["acks"] = json!([{ "stream": "apart", "offset": std::str::from_utf8(&inside).unwrap() }]);
    assert_eq!(world.verb("s", "callback", &token, &beside).status, 200);
    world.model.cool();
    let authorization = format!("Bearer {token}");
    let fields = [("Authorization", authorization.as_str())];
    let target = "__ds/subscriptions/s/callback";
    match world.answer(Method::Post, target, &fields, &said(between, false)) {
        Answer::Cold(work) => (work.0)(),
        other => panic!("looked up at once: {other:?}"),
    }
    assert_eq!(world.verb("s", "callback", &token, &said(between, false)).status, 200);
    assert_ne!(world.get("s")["streams"][0]["acked_offset"], before);
}

#[test]
fn pull_wake_events_claims_acks_and_releases() {
    let mut world = World::new();
    world.create("wake/pool");
    assert_eq!(world.put("s", &pull()).status, 201);
    assert_eq!(world.claim("s", "w1").code(), (409, "NO_PENDING_WORK"));
    world.create("events/a");
    world.append("events/a", 1);
    assert!(world.turn().is_empty());
    let events = world.events("wake/pool");
    assert_eq!(events.len(), 1);
    assert_eq!(
        events[0],
        json!({ "type": "wake", "subscription_id": "s", "stream": "events/a", "generation": 1,
        "ts": START_US / 1_000 })
    );
    let claimed = world.claim("s", "w1");
    assert_eq!(
        (claimed.status, &claimed.body["generation"], &claimed.body["lease_ttl_ms"]),
        (200, &json!(1), &json!(1000))
    );
    let busy = world.claim("s", "w2");
    assert_eq!(
        busy.body,
        json!({ "error": { "code": "ALREADY_CLAIMED", "current_holder": "w1", "generation": 1 } })
    );
    let token = claimed.body["token"].as_str().unwrap().to_owned();
    assert_eq!(
        world.verb("s", "callback", &token, &acks(&claimed.body, true)).code(),
        (401, "TOKEN_INVALID")
    );
    // Released with work left: another event, another generation.
    let release = json!({ "wake_id": claimed.body["wake_id"], "generation": 1 });
    assert_eq!(world.verb("s", "release", &token, &release).status, 204);
    assert_eq!(world.verb("s", "release", &token, &release).code(), (409, "FENCED"));
    world.turn();
    assert_eq!(world.events("wake/pool").len(), 2);
    let claimed = world.claim("s", "w2");
    assert_eq!(claimed.body["generation"], 2);
    let token = claimed.body["token"].as_str().unwrap().to_owned();
    world.append("events/a", 2);
    world.turn();
    // Work came meanwhile, and the answer says so.
    let done = acks(&claimed.body, true);
    assert_eq!(world.verb("s", "ack", &token, &done).body, json!({ "ok": true, "next_wake": true }));
    world.turn();
    assert_eq!(world.events("wake/pool")[2]["generation"], 3);
}

/// `state/main` and whatever begins with `state/forks/` is written by somebody else.
fn guarded() -> Options {
    Options { read_only: vec!["state/main".into(), "state/forks/".into()], ..Options::default() }
}

#[test]
fn a_wake_stream_that_somebody_else_writes_is_refused() {
    let mut world = World::over(Model::default(), guarded(), START_US);
    let with = |wake_stream: &str| {
        let mut body = pull();
        body["wake_stream"] = json!(wake_stream);
        body
    };
    for name in ["state/main", "/state/main", "state/forks/1"] {
        let reply = world.put("s", &with(name));
        assert_eq!((reply.code(), &reply.body["field"]), ((403, "STREAM_READ_ONLY"), &json!("wake_stream")));
        assert_eq!(reply.body["rule"], "stream-read-only");
    }
    assert_eq!(world.call(Method::Get, "__ds/subscriptions/s", &[], &Value::Null).status, 404);
    assert_eq!(world.put("s", &with("state/mainly")).status, 201);
    // Following one is reading it.
    let mut follows = with("wake/pool");
    follows["streams"] = json!(["state/main"]);
    assert_eq!(world.put("t", &follows).status, 201);
    assert_eq!(world.driver.barred(), []);
}

#[test]
fn a_wake_stream_that_became_somebody_elses_is_left_alone_and_its_subscription_works_on() {
    let mut world = World::new();
    world.create("state/main");
    let mut body = pull();
    body["wake_stream"] = json!("state/main");
    assert_eq!(world.put("s", &body).status, 201);
    let mut world = world.restart_by(guarded());
    let [(id, _)] = &world.driver.barred()[..] else { panic!("one is barred") };
    assert_eq!(&**id, "s");
    world.create("events/a");
    world.append("events/a", 1);
    for _ in 0..3 {
        world.turn();
        assert_eq!(world.events("state/main"), [Value::Null; 0]);
        world.now.time_us = world.driver.next_due_us().unwrap();
    }
    assert_eq!(world.get("s")["status"], "failed");
    let claimed = world.claim("s", "w").body;
    let token = claimed["token"].as_str().unwrap();
    assert_eq!(world.verb("s", "ack", token, &acks(&claimed, true)).status, 200);
    world.turn();
    assert_eq!(world.get("s")["status"], "active");
    assert_eq!(world.call(Method::Delete, "__ds/subscriptions/s", &[], &Value::Null).status, 204);
    assert_eq!(world.driver.barred(), []);
}

#[test]
fn webhooks_to_this_machine_are_for_servers_that_allow_them() {
    const NEAR: &str = "http://127.0.0.1:9/hook";
    let mut world = World::new();
    let reply = world.put("s", &webhook(NEAR));
    assert_eq!((reply.code(), &reply.body["field"]), ((400, "WEBHOOK_URL_REJECTED"), &json!("webhook.url")));
    assert!(reply.body["detail"].as_str().unwrap().contains("webhooks_loopback"), "{}", reply.body);
    let mut world =
        world.restart_by(Options { webhooks_loopback: Loopback::OfPrograms, ..Options::default() });
    assert_eq!(world.put("s", &webhook(NEAR)).status, 201);
    world.create("events/a");
    world.append("events/a", 1);
    assert_eq!(world.webhook().target.host, "127.0.0.1");
    // One that is kept from when they were allowed calls nobody.
    let mut world = world.restart_by(Options::default());
    let [(id, why)] = &world.driver.barred()[..] else { panic!("one is barred") };
    assert!(&**id == "s" && why.contains("webhooks_loopback"), "{why}");
    assert!(world.turn().is_empty());
    assert_eq!(world.get("s")["status"], "failed");
}

#[test]
fn a_page_has_the_server_call_its_own_machine_only_where_its_origin_is_listed() {
    let put = |world: &mut World, url: &str| {
        let page = [("Origin", "https://page.example")];
        world.call(Method::Put, "__ds/subscriptions/s", &page, &webhook(url))
    };
    let allowing = |webhooks_loopback| Options { webhooks_loopback, ..Options::default() };
    for near in ["http://127.0.0.1:9/admin/shutdown?x=1", "http://localhost:9/", "http://127.0.0.77/"] {
        let mut world = World::new().restart_by(allowing(Loopback::OfPrograms));
        let reply = put(&mut world, near);
        assert_eq!(
            (reply.code(), &reply.body["field"]),
            ((403, "ORIGIN_NOT_ALLOWED"), &json!("Origin")),
            "{near}"
        );
        assert_eq!(
            put(&mut world, "https://hooks.example/").status,
            201,
            "elsewhere, pages reach it themselves"
        );
        let mut world = World::new().restart_by(allowing(Loopback::OfPagesToo));
        assert_eq!(put(&mut world, near).status, 201, "{near}");
    }
}

/// A clock that goes back by an hour, while the server runs or while it does not.
fn back(mut world: World, restarts: bool) -> World {
    world.now.time_us -= 3_600 * SECOND_US;
    if restarts { world.restart() } else { world }
}

#[test]
fn a_clock_that_went_back_puts_a_retry_off_by_nothing() {
    for restarts in [false, true] {
        let mut world = World::new();
        world.put("s", &webhook(HOOK));
        world.create("events/a");
        world.append("events/a", 1);
        let call = world.webhook();
        let wake = told(&call);
        assert!(world.finished(&call, Outcome::Failed).is_none());
        world.turn();
        let mut world = back(world, restarts);
        assert_eq!(told(&world.webhook())["wake_id"], wake["wake_id"], "{restarts}");
    }
}

#[test]
fn a_clock_that_went_back_makes_a_lease_no_longer_than_it_is() {
    for restarts in [false, true] {
        let mut world = World::new();
        world.create("wake/pool");
        world.put("s", &pull());
        world.create("events/a");
        world.append("events/a", 1);
        world.turn();
        let claimed = world.claim("s", "w1").body;
        world.turn();
        // So little is no step: threads read the clock at different moments.
        world.now.time_us -= SECOND_US / 2;
        world.turn();
        assert_eq!(world.driver.next_due_us(), Some(START_US + SECOND_US));
        let mut world = back(world, restarts);
        world.turn();
        assert_eq!(world.driver.next_due_us(), Some(world.now.time_us + SECOND_US), "{restarts}");
        // Who holds it has it for that long, and then another may.
        world.sleep_ms(999);
        let token = claimed["token"].as_str().unwrap();
        assert_eq!(world.claim("s", "w2").code(), (409, "ALREADY_CLAIMED"));
        world.sleep_ms(1);
        world.turn();
        assert_eq!(world.verb("s", "ack", token, &acks(&claimed, true)).code(), (409, "FENCED"));
        assert_eq!(world.claim("s", "w2").status, 200);
    }
}

#[test]
fn a_clock_that_went_back_has_an_unclaimed_event_written_again_in_time() {
    let mut world = World::new();
    world.create("wake/pool");
    world.put("s", &pull());
    world.create("events/a");
    world.append("events/a", 1);
    world.turn();
    let mut world = back(world, false);
    world.turn();
    assert_eq!(world.driver.next_due_us(), Some(world.now.time_us + SECOND_US));
    world.sleep_ms(1_000);
    world.turn();
    assert_eq!(world.events("wake/pool").len(), 2);
}

#[test]
fn a_worker_that_dies_loses_its_claim_to_the_next() {
    let mut world = World::new();
    world.create("wake/pool");
    world.put("s", &pull());
    world.create("events/a");
    world.append("events/a", 1);
    world.turn();
    let first = world.claim("s", "w1").body;
    let mut world = world.restart();
    world.turn();
    assert_eq!(world.claim("s", "w2").code(), (409, "ALREADY_CLAIMED"), "a lease outlives a restart");
    assert_eq!(world.driver.next_due_us(), Some(START_US + SECOND_US));
    world.sleep_ms(1_000);
    world.turn();
    assert_eq!(world.events("wake/pool").len(), 2);
    assert_eq!(world.claim("s", "w2").body["generation"], 2);
    let token = first["token"].as_str().unwrap();
    assert_eq!(world.verb("s", "ack", token, &acks(&first, true)).code(), (409, "FENCED"));
}

/// The streams that a claim tells of, all of which it then has done.
fn work_off(world: &mut World) -> BTreeSet<String> {
    world.turn();
    let claimed = world.claim("s", "w").body;
    let token = claimed["token"].as_str().unwrap().to_owned();
    assert_eq!(world.verb("s", "ack", &token, &acks(&claimed, true)).status, 200);
    let told = claimed["streams"].as_array().unwrap().iter();
    told.map(|stream| stream["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn streams_that_are_never_quiet_leave_the_others_their_turn() {
    let mut world = World::new();
    world.create("wake/pool");
    world.put("s", &pull());
    let names: Vec<String> = (0..1_100).map(|n| format!("events/{n:04}")).collect();
    names.iter().for_each(|name| world.create(name));
    world.turn();
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        names.iter().for_each(|name| world.append(name, round));
        let told = work_off(&mut world);
        assert_eq!(told.len(), 512);
        seen.extend(told);
    }
    assert_eq!(
        seen.len(),
        names.len(),
        "whatever is pending is told of, though what comes first is pending again"
    );
}

#[test]
fn a_webhook_is_told_of_the_next_streams_by_the_next_wake() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    let names: Vec<String> = (0..600).map(|n| format!("events/{n:04}")).collect();
    names.iter().for_each(|name| world.create(name));
    names.iter().for_each(|name| world.append(name, 1));
    let first = world.webhook();
    names.iter().for_each(|name| world.append(name, 2));
    assert!(world.turn().is_empty(), "one call at a time");
    let second = world.finished(&first, Outcome::Done).unwrap();
    assert_eq!(told(&first)["streams"][0]["path"], "events/0000");
    assert_eq!(told(&second)["streams"][0]["path"], "events/0512");
    // Which is over where it began, so that nothing is told of twice.
    assert_eq!(told(&second)["streams"][511]["path"], "events/0423");
}

#[test]
fn an_event_that_nobody_claims_by_is_written_again() {
    let mut world = World::new();
    world.create("wake/pool");
    world.put("s", &pull());
    world.create("events/a");
    world.append("events/a", 1);
    world.turn();
    assert_eq!(world.events("wake/pool").len(), 1);
    // Its reader would find another stream of that name.
    world.call(Method::Delete, "wake/pool", &[], &Value::Null);
    world.create("wake/pool");
    world.sleep_ms(999);
    world.turn();
    assert_eq!(world.events("wake/pool").len(), 0, "a worker has as long to claim as it would have to work");
    assert_eq!(world.driver.next_due_us(), Some(START_US + SECOND_US));
    world.sleep_ms(1);
    world.turn();
    // A worker that died with it in its hands: the next time it is waited for twice as long, and so on up to
    // ten minutes.
    let mut waits_s = 0;
    for times in 1..16 {
        let events = world.events("wake/pool");
        assert_eq!((events.len(), &events[times - 1]["generation"]), (times, &json!(1)));
        waits_s = (1 << times).min(600);
        assert_eq!(world.driver.next_due_us(), Some(world.now.time_us + waits_s * SECOND_US));
        world.append("events/a", 2);
        world.turn();
        world.now.time_us = world.driver.next_due_us().unwrap();
        world.turn();
    }
    assert_eq!(waits_s, 600);
    let claimed = world.claim("s", "w").body;
    assert_eq!(claimed["generation"], 1, "it is one wake");
    let token = claimed["token"].as_str().unwrap();
    assert_eq!(world.verb("s", "ack", token, &acks(&claimed, true)).status, 200);
    world.turn();
    assert_eq!((world.events("wake/pool").len(), world.driver.next_due_us()), (16, None));
    // The next wake begins anew, and a start does too.
    world.append("events/a", 3);
    world.turn();
    assert_eq!(world.driver.next_due_us(), Some(world.now.time_us + SECOND_US));
    let mut world = world.restart();
    world.sleep_ms(500);
    world.turn();
    assert_eq!(world.driver.next_due_us(), Some(world.now.time_us + SECOND_US));
}

#[test]
fn nothing_is_said_again_of_work_that_is_gone() {
    let mut world = World::new();
    world.create("wake/pool");
    world.put("s", &pull());
    world.create("events/a");
    world.append("events/a", 1);
    world.turn();
    let stream = world.model.find(b"events/a").unwrap();
    world.call(Method::Delete, "events/a", &[], &Value::Null);
    world.shared.moved(world.model.incarnation(&stream));
    world.turn();
    world.sleep_ms(1_000);
    world.turn();
    assert_eq!((world.events("wake/pool").len(), world.driver.next_due_us()), (1, None));
    // What comes then is what the wake is for.
    world.create("events/a");
    world.append("events/a", 2);
    world.turn();
    let events = world.events("wake/pool");
    assert_eq!((events.len(), &events[1]["generation"]), (2, &json!(1)));
}

#[test]
fn a_wake_stream_that_is_missing_is_tried_again() {
    let mut world = World::new();
    world.put("s", &pull());
    world.create("events/a");
    world.append("events/a", 1);
    world.turn();
    assert_eq!(world.get("s")["status"], "failed");
    world.create("wake/pool");
    world.now.time_us = world.driver.next_due_us().unwrap();
    world.turn();
    assert_eq!(world.events("wake/pool").len(), 1);
    assert_eq!(world.get("s")["status"], "active");
}

#[test]
fn a_wake_is_appended_by_the_rules_of_every_append() {
    let mut world = World::new();
    world.put("s", &pull());
    world.create("events/a");
    let made = |world: &mut World, fields: &[(&str, &str)]| {
        assert_eq!(world.call(Method::Put, "wake/pool", fields, &Value::Null).status, 201);
    };
    let took = |world: &mut World, event: u64| {
        world.append("events/a", event);
        world.now.time_us = world.driver.next_due_us().unwrap_or(world.now.time_us);
        world.turn();
        world.get("s")["status"] == "active"
    };
    // PROTOCOL 5.2: one that is closed takes nothing, nor does one of another content type.
    made(&mut world, &[("Stream-Closed", "true")]);
    assert!(!took(&mut world, 1));
    assert_eq!(world.events("wake/pool").len(), 0);
    world.call(Method::Delete, "wake/pool", &[], &Value::Null);
    let lifetime = crate::store::Lifetime::Unlimited;
    let text = crate::store::Config { content_type: "text/plain".into(), lifetime };
    world.model.create(b"wake/pool", &text, None, &Commit::default()).unwrap();
    assert!(!took(&mut world, 2));
    assert_eq!(world.model.stored("wake/pool"), b"");
    world.call(Method::Delete, "wake/pool", &[], &Value::Null);
    // PROTOCOL 5.1: the first to find one whose time is over deletes it.
    made(&mut world, &[("Stream-TTL", "1")]);
    let stream = world.model.find(b"wake/pool").unwrap();
    world.sleep_ms(1_000);
    assert!(!took(&mut world, 3));
    assert_eq!(world.model.staged(&stream), None);
    // PROTOCOL 5.1: an append renews a sliding lifetime.
    made(&mut world, &[("Stream-TTL", "3600")]);
    assert!(took(&mut world, 4));
    assert_eq!(world.events("wake/pool").len(), 1);
    let stream = world.model.find(b"wake/pool").unwrap();
    assert_eq!(world.model.accessed(&stream), world.now.time_us);
}

#[test]
fn a_subscription_never_wakes_itself() {
    let mut world = World::new();
    world.create("wake/pool");
    world.put("s", &json!({ "type": "pull-wake", "pattern": "**", "wake_stream": "wake/pool" }));
    world.create("events/a");
    world.append("events/a", 1);
    world.turn();
    let claimed = world.claim("s", "w").body;
    assert_eq!(
        claimed["streams"].as_array().unwrap().len(),
        1,
        "neither the wake stream nor the server's logs"
    );
    let token = claimed["token"].as_str().unwrap().to_owned();
    let own =
        world.call(Method::Post, "__ds/subscriptions/s/streams", &[], &json!({ "streams": ["wake/pool"] }));
    assert_eq!(own.status, 400);
    assert_eq!(world.verb("s", "ack", &token, &acks(&claimed, true)).body["next_wake"], false);
}

#[test]
fn explicit_links_come_go_and_take_precedence() {
    let mut world = World::new();
    world.create("manual/b");
    world.append("manual/b", 1);
    let body = json!({ "type": "webhook", "streams": ["manual/a"], "webhook": { "url": HOOK } });
    world.put("s", &body);
    let streams = |world: &mut World| world.get("s")["streams"].clone();
    assert_eq!(
        streams(&mut world),
        json!([{ "path": "manual/a", "link_type": "explicit", "acked_offset": "-1" }])
    );
    let add = json!({ "streams": ["manual/b", "/manual/a"] });
    for _ in 0..2 {
        assert_eq!(world.call(Method::Post, "__ds/subscriptions/s/streams", &[], &add).status, 204);
    }
    assert_eq!(streams(&mut world).as_array().unwrap().len(), 2);
    assert!(world.turn().is_empty(), "linked at its end");
    for _ in 0..2 {
        let path = "__ds/subscriptions/s/streams/manual%2Fb";
        assert_eq!(world.call(Method::Delete, path, &[], &Value::Null).status, 204);
    }
    assert_eq!(streams(&mut world).as_array().unwrap().len(), 1);
    // Membership is no part of what a PUT is compared with.
    assert_eq!(world.put("s", &body).status, 200);
    // A stream that appears under a linked name is linked before its first byte.
    world.create("manual/a");
    world.append("manual/a", 1);
    let wake = told(&world.webhook());
    assert_eq!(wake["streams"][0]["path"], "manual/a");
    assert!(wake["streams"][0]["acked_offset"].as_str().unwrap().ends_with("_0000000000000000"));
}

#[test]
fn a_stream_that_was_unlinked_and_is_linked_again_wakes() {
    let named = |path: &str| json!({ "type": "webhook", "streams": [path], "webhook": { "url": HOOK } });
    let link = |world: &mut World, path: &str| {
        let body = json!({ "streams": [path] });
        assert_eq!(world.call(Method::Post, "__ds/subscriptions/s/streams", &[], &body).status, 204);
    };
    let unlink = |world: &mut World, path: &str| {
        let path = format!("__ds/subscriptions/s/streams/{path}");
        assert_eq!(world.call(Method::Delete, &path, &[], &Value::Null).status, 204);
    };
    let wakes = |world: &mut World, path: &str| {
        world.append(path, 1);
        assert_eq!(told(&world.webhook())["streams"][0]["path"], path);
    };
    // Once with the driver at work after each step, once only at the end.
    for at_once in [true, false] {
        let mut world = World::new();
        world.put("s", &named("x"));
        world.turn();
        unlink(&mut world, "x");
        if at_once {
            world.turn();
        }
        world.create("x");
        link(&mut world, "x");
        world.turn();
        wakes(&mut world, "x");
    }
    // And where it was another subscription of that id that linked it.
    let mut world = World::new();
    world.put("s", &named("x"));
    world.turn();
    assert_eq!(world.call(Method::Delete, "__ds/subscriptions/s", &[], &Value::Null).status, 204);
    world.put("s", &named("y"));
    world.turn();
    world.create("x");
    link(&mut world, "x");
    world.turn();
    wakes(&mut world, "x");
}

#[test]
fn a_stream_that_nobody_links_any_more_is_not_watched() {
    let mut world = World::new();
    world.create("x");
    world.put("s", &json!({ "type": "webhook", "streams": ["x"], "webhook": { "url": HOOK } }));
    world.turn();
    let stream = world.model.find(b"x").unwrap();
    assert_eq!(world.model.announced(), [(stream, "watch")]);
    world.call(Method::Delete, "__ds/subscriptions/s/streams/x", &[], &Value::Null);
    world.turn();
    assert_eq!(world.model.announced(), [(stream, "watch"), (stream, "unwatch")]);
}

#[test]
fn removing_an_explicit_link_leaves_the_glob_link() {
    let mut world = World::new();
    world.create("events/a");
    let mut body = webhook(HOOK);
    body["streams"] = json!(["events/a"]);
    world.put("s", &body);
    assert_eq!(world.get("s")["streams"][0]["link_type"], "explicit");
    world.call(Method::Delete, "__ds/subscriptions/s/streams/events/a", &[], &Value::Null);
    assert_eq!(world.get("s")["streams"][0]["link_type"], "glob");
}

#[test]
fn a_stream_that_comes_back_begins_anew_and_old_acks_move_nothing() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    let call = world.webhook();
    let old = told(&call);
    let stream = world.model.find(b"events/a").unwrap();
    world.call(Method::Delete, "events/a", &[], &Value::Null);
    world.shared.moved(world.model.incarnation(&stream));
    world.turn();
    assert_eq!(world.get("s")["streams"], json!([]));
    world.create("events/a");
    world.append("events/a", 2);
    world.turn();
    assert!(world.finished(&call, Outcome::Done).is_some(), "the new bytes are pending");
    let link = world.get("s")["streams"][0].clone();
    assert!(link["acked_offset"].as_str().unwrap().ends_with("_0000000000000000"));
    assert_ne!(
        link["acked_offset"].as_str().unwrap()[..16],
        old["streams"][0]["tail_offset"].as_str().unwrap()[..16]
    );
}

#[test]
fn nothing_runs_ahead_of_durability() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.model.lag();
    world.create("events/a");
    world.append("events/a", 1);
    assert!(world.turn().is_empty(), "the append is not durable");
    world.model.settle();
    let stream = world.model.find(b"events/a").unwrap();
    world.shared.moved(world.model.incarnation(&stream));
    assert!(world.turn().is_empty(), "the wake is not durable");
    assert_eq!(world.get("s")["streams"][0]["path"], "events/a");
    world.model.settle();
    world.shared.settled();
    let call = world.webhook();
    let wake = told(&call);
    let token = wake["callback_token"].as_str().unwrap().to_owned();
    let answer = world.verb("s", "callback", &token, &acks(&wake, true));
    assert!(answer.status == 200 && answer.ticket > 0, "the answer waits for its commit");
}

#[test]
fn a_refusal_waits_for_what_it_was_decided_on() {
    let mut world = World::new();
    world.create("wake/pool");
    world.put("s", &pull());
    world.create("events/a");
    world.append("events/a", 1);
    world.turn();
    world.model.lag();
    assert_eq!(world.claim("s", "first").status, 200);
    let second = world.claim("s", "second");
    assert_eq!((second.code(), second.ticket > 0), ((409, "ALREADY_CLAIMED"), true));
    let other = world.put("s", &webhook(HOOK));
    assert_eq!((other.code(), other.ticket > 0), ((409, "SUBSCRIPTION_EXISTS"), true));
    let gone = world.call(Method::Delete, "__ds/subscriptions/s", &[], &Value::Null);
    assert_eq!((gone.status, gone.ticket > 0), (204, true));
    let absent = |world: &mut World| {
        let read = world.call(Method::Get, "__ds/subscriptions/s", &[], &Value::Null);
        let again = world.call(Method::Delete, "__ds/subscriptions/s", &[], &Value::Null);
        [read, again, world.claim("s", "second")].map(|reply| (reply.status, reply.ticket))
    };
    assert_eq!(absent(&mut world), [(404, gone.ticket); 3]);
    world.model.settle();
    assert_eq!(absent(&mut world), [(404, 0); 3]);
}

#[test]
fn a_deleted_subscription_takes_nothing_of_what_was_in_flight() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    let call = world.webhook();
    let wake = told(&call);
    let token = wake["callback_token"].as_str().unwrap().to_owned();
    world.call(Method::Delete, "__ds/subscriptions/s", &[], &Value::Null);
    assert_eq!(world.verb("s", "callback", &token, &acks(&wake, true)).status, 404);
    // Created anew under its name: neither the token nor the answer is for this one.
    world.put("s", &webhook(HOOK));
    world.append("events/a", 2);
    let fresh = world.webhook();
    assert_eq!(told(&fresh)["generation"], 1);
    assert_eq!(world.verb("s", "callback", &token, &acks(&wake, true)).code(), (401, "TOKEN_INVALID"));
    let acked = world.get("s")["streams"][0]["acked_offset"].clone();
    assert!(world.finished(&call, Outcome::Done).is_none());
    assert_eq!(world.get("s")["streams"][0]["acked_offset"], acked);
}

#[test]
fn a_call_that_waited_says_what_is_so_when_it_begins() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    let mut call = world.driver.turn(world.now).remove(0);
    world.sleep_ms(9_000);
    world.append("events/a", 2);
    assert!(world.turn().is_empty(), "one wake at a time");
    assert!(world.driver.begin(&mut call, world.now));
    let stream = world.model.find(b"events/a").unwrap();
    let end = format!("{:016x}", world.model.visible(&stream).unwrap().tail);
    assert!(told(&call)["streams"][0]["tail_offset"].as_str().unwrap().ends_with(&end));
    let signed = format!("t={},", world.now.time_us / SECOND_US);
    assert!(call.signature.starts_with(&signed), "{}", call.signature);
    world.finished(&call, Outcome::Accepted);
    assert!(world.turn().is_empty());
    assert_eq!(world.driver.next_due_us(), Some(world.now.time_us + SECOND_US), "its lease begins with it");
}

#[test]
fn a_call_that_waited_until_its_wake_was_over_is_not_made() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    let first = world.webhook();
    world.finished(&first, Outcome::Failed);
    world.now.time_us = world.driver.next_due_us().unwrap();
    let mut retry = world.driver.turn(world.now).remove(0);
    // Its answer was lost, and it works.
    let (wake, token) = (told(&first), told(&first)["callback_token"].as_str().unwrap().to_owned());
    assert_eq!(world.verb("s", "callback", &token, &acks(&wake, true)).status, 200);
    assert!(!world.driver.begin(&mut retry, world.now));
    world.append("events/a", 2);
    let mut next = world.driver.turn(world.now).remove(0);
    assert_eq!(world.call(Method::Delete, "__ds/subscriptions/s", &[], &Value::Null).status, 204);
    world.put("s", &webhook(HOOK));
    assert!(!world.driver.begin(&mut next, world.now), "it was for another of that id");
    world.append("events/a", 3);
    assert_eq!(told(&world.webhook())["generation"], 1);
}

#[test]
fn what_was_created_while_nobody_looked_is_found_at_start() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    let mut world = world.restart();
    assert_eq!(told(&world.webhook())["streams"][0]["path"], "events/a");
}

#[test]
fn a_large_subscription_is_whole_or_absent_after_a_crash_in_its_creation() {
    let mut links = BTreeMap::new();
    for n in 0..3_000_u64 {
        let link = Link {
            glob: true,
            incarnation: n + 1,
            acked: 5,
            acked_owner: n + 1,
            tail: 5,
            tail_owner: n + 1,
            ..Link::default()
        };
        links.insert(format!("events/{n:040}").into(), link);
    }
    let subscription = Subscription { links, ..subscription() };
    let commits = encoding::whole(&subscription, super::COMMIT_BYTES_MAX);
    assert!(commits.len() > 2);
    for upto in 1..=commits.len() {
        let mut notes: BTreeMap<Box<[u8]>, Arc<[u8]>> = BTreeMap::new();
        for commit in &commits[..upto] {
            let size: usize = commit.iter().map(|(key, value)| key.len() + value.len()).sum();
            assert!(size <= super::COMMIT_BYTES_MAX);
            notes.extend(commit.iter().map(|(key, value)| (key.as_slice().into(), value.as_slice().into())));
        }
        let notes: Vec<_> = notes.into_iter().collect();
        let expected = (upto == commits.len()).then_some(&subscription);
        let kept = encoding::decode("s", &notes).unwrap();
        assert_eq!(kept.as_ref().map(|kept| &kept.subscription), expected);
    }
    // A store that holds such a beginning forgets it.
    let model = Model::default();
    let first: Vec<(&[u8], &[u8])> = commits[0].iter().map(|(k, v)| (&k[..], &v[..])).collect();
    let commit = Commit { notes: &first, ..Commit::default() };
    model.create(&encoding::log_name("s"), &super::log_config(), None, &commit).unwrap();
    let mut world = World::over(model, Options::default(), START_US);
    assert_eq!(world.put("s", &webhook(HOOK)).status, 201);
}

/// The longest names there may be, of what takes most room where it is written down.
fn longest(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:04}{}", "\"".repeat(1_020))).collect()
}

/// A world in which there is a stream of each name.
fn with_streams(names: &[String]) -> World {
    let mut world = World::new();
    for name in names {
        world.create(name);
    }
    world
}

/// Has everything done that is pending, and says for how many streams.
fn all_done(world: &mut World) -> usize {
    let mut done = 0;
    let mut calls = world.turn();
    while let Some(call) = calls.pop() {
        let streams = told(&call);
        done += streams["streams"].as_array().unwrap().iter().filter(|s| s["has_pending"] == true).count();
        calls.extend(world.finished(&call, Outcome::Done));
    }
    done
}

#[test]
fn a_thousand_of_the_longest_names_are_kept_survive_and_can_be_done_with() {
    let names = longest(1_000);
    let wish = json!({ "type": "webhook", "streams": names, "webhook": { "url": HOOK } });
    let mut world = with_streams(&names);
    assert_eq!(world.put("s", &wish).status, 201);
    for round in 0..2 {
        world = world.restart();
        assert_eq!(world.put("s", &wish).status, 200, "as it was asked for");
        world.turn();
        for name in &names {
            world.append(name, round);
        }
        assert_eq!(all_done(&mut world), names.len());
    }
    let mut world = world.restart();
    assert_eq!(world.get("s")["streams"].as_array().unwrap().len(), names.len());
    assert!(world.turn().is_empty(), "all of it was done");
}

#[test]
fn a_subscription_of_the_first_shape_is_read_and_kept_in_the_second() {
    let names = longest(500);
    let wish = json!({ "type": "webhook", "streams": names, "webhook": { "url": HOOK } });
    let mut world = with_streams(&names);
    assert_eq!(world.put("s", &wish).status, 201);
    let log = world.model.find(&encoding::log_name("s")).unwrap();
    let second = world.model.notes(&log);
    // As the first shape had it: all in the head.
    let mut head: Value =
        serde_json::from_slice(&second.iter().find(|(k, _)| **k == *b"head").unwrap().1).unwrap();
    head["version"] = json!(1);
    head["streams"] = json!(names);
    let head = head.to_string();
    let named = second.iter().filter(|(key, _)| key.starts_with(b"named/"));
    let unnamed: Vec<(&[u8], &[u8])> = named.map(|(key, _)| (&key[..], &b""[..])).collect();
    assert_eq!(unnamed.len(), names.len());
    for notes in [&unnamed[..], &[(&b"head"[..], head.as_bytes())]] {
        let version = world.model.staged(&log).unwrap().version;
        world.model.commit(&log, version, &Commit { notes, ..Commit::default() }).unwrap();
    }

    let mut world = world.restart();
    assert_eq!(world.put("s", &wish).status, 200, "as it was asked for");
    world.turn();
    assert!(
        world.model.notes(&log).iter().any(|(key, value)| **key == *b"head" && **value == *head.as_bytes())
    );
    for name in &names {
        world.append(name, 1);
    }
    assert_eq!(all_done(&mut world), names.len());
    assert!(
        world.model.notes(&log).iter().filter(|(key, _)| key.starts_with(b"named/")).count() == names.len()
    );
    let mut world = world.restart();
    assert_eq!(world.put("s", &wish).status, 200);
    assert_eq!(world.put("s", &webhook(HOOK)).code(), (409, "SUBSCRIPTION_EXISTS"));
    assert!(world.turn().is_empty());
}

#[test]
fn a_thousand_of_the_longest_names_are_added_at_once() {
    let names = longest(1_000);
    let mut world = World::new();
    assert_eq!(world.put("s", &webhook(HOOK)).status, 201);
    let added = json!({ "streams": names });
    assert_eq!(world.call(Method::Post, "__ds/subscriptions/s/streams", &[], &added).status, 204);
    let mut world = world.restart();
    assert_eq!(world.get("s")["streams"].as_array().unwrap().len(), names.len());
}

#[test]
fn retries_wait_from_a_second_to_a_minute_with_a_fifth_of_jitter() {
    for attempts in 0..100 {
        let plain = (1_000_u64 << attempts.min(6)).min(60_000);
        let (low, high) = (plain - plain / 5, plain + plain / 5);
        assert_eq!(backoff_ms(attempts, 0), low);
        assert_eq!(backoff_ms(attempts, plain / 5 * 2), high);
        assert!((low..=high).contains(&backoff_ms(attempts, u64::MAX)));
    }
}

fn subscription() -> Subscription {
    Subscription {
        id: "s".into(),
        config: Wanted {
            delivery: Delivery::PullWake { wake_stream: "w".into() },
            pattern: super::Pattern::parse("events/*"),
            streams: BTreeSet::from(["named".into()]),
            lease_ttl_ms: 1_000,
            description: Some("test".into()),
        },
        origin: "https://h".into(),
        created_us: 7,
        generation: 0,
        phase: Phase::Idle,
        links: BTreeMap::new(),
    }
}

/// What a worker may do, and what happens around it.
#[derive(Clone, Debug)]
enum Step {
    Append { stream: u64, bytes: u64 },
    Drive,
    Claim { worker: u8 },
    Ack { age: u64, stream: u64, offset: u64, done: bool },
    Release { age: u64 },
    Sleep { ms: u64 },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3_u64, 1..4_u64).prop_map(|(stream, bytes)| Step::Append { stream, bytes }),
        Just(Step::Drive),
        (0..3_u8).prop_map(|worker| Step::Claim { worker }),
        (0..3_u64, 0..3_u64, 0..12_u64, any::<bool>()).prop_map(|(age, stream, offset, done)| Step::Ack {
            age,
            stream,
            offset,
            done
        }),
        (0..2_u64).prop_map(|age| Step::Release { age }),
        (0..1_500_u64).prop_map(|ms| Step::Sleep { ms }),
        Just(Step::Restart),
    ]
}

/// The plain model: tails and cursors in arrays, the present wake and who holds it until when.
#[derive(Debug, Default)]
struct Plain {
    tails: [u64; 3],
    acked: [u64; 3],
    generation: u64,
    /// A wake is under way: not yet told, told, or held by somebody until an instant.
    wake: Option<Option<(u8, u64)>>,
}

impl Plain {
    fn pending(&self) -> bool {
        (0..3).any(|n| self.tails[n] > self.acked[n])
    }

    fn holds(&self, generation: u64, now: u64) -> bool {
        generation == self.generation && matches!(self.wake, Some(Some((_, until))) if until > now)
    }
}

fn name(stream: u64) -> Arc<str> {
    format!("events/{stream}").into()
}

fn keep(subscription: &mut Subscription, notes: &mut BTreeMap<Box<[u8]>, Arc<[u8]>>, change: Change) {
    for (key, value) in encoding::notes(subscription, &change) {
        match value.as_slice() {
            [] => notes.remove(key.as_slice()),
            value => notes.insert(key.into(), value.into()),
        };
    }
    subscription.apply(change);
}

fn observe(
    subscription: &mut Subscription,
    notes: &mut BTreeMap<Box<[u8]>, Arc<[u8]>>,
    stream: u64,
    tail: u64,
) {
    let incarnation = stream + 10;
    let seen =
        StreamPosition { incarnation, base: 0, base_owner: incarnation, tail, tail_owner: incarnation };
    let link = subscription.observe(&name(stream), Some(seen));
    keep(subscription, notes, Change { links: BTreeMap::from([(name(stream), link)]), ..Change::default() });
}

proptest! {
    #[test]
    fn the_rules_are_those_of_a_plain_model(steps in proptest::collection::vec(step(), 1..80)) {
        let mut rules = subscription();
        let named = encoding::named(&rules, usize::MAX).into_iter().flatten();
        let mut notes: BTreeMap<Box<[u8]>, Arc<[u8]>> =
            named.map(|(key, value)| (key.into(), value.into())).collect();
        let start = Change { generation: Some(0), ..Change::default() };
        keep(&mut rules, &mut notes, start);
        let (mut plain, mut now) = (Plain::default(), START_US);
        for step in steps {
            let before = (rules.clone(), plain.acked);
            match step {
                Step::Append { stream, bytes } => {
                    plain.tails[stream as usize] += bytes;
                    observe(&mut rules, &mut notes, stream, plain.tails[stream as usize]);
                }
                Step::Drive => {
                    if matches!(plain.wake, Some(Some((_, until))) if until <= now) {
                        plain.wake = None;
                    }
                    if plain.wake.is_none() && plain.pending() {
                        plain.generation += 1;
                        plain.wake = Some(None);
                    }
                    while let Some(change) = rules.expire(now).or_else(|| rules.wake(now)) {
                        keep(&mut rules, &mut notes, change);
                    }
                    let told = rules.delivered(rules.generation, Outcome::Accepted, &[], now, now, 0);
                    if let Some(change) = told {
                        keep(&mut rules, &mut notes, change);
                    }
                }
                Step::Claim { worker } => {
                    let held = matches!(plain.wake, Some(Some((_, until))) if until > now);
                    let result = rules.claim(&worker.to_string(), now);
                    if held {
                        let busy = matches!(result, Err(Refused::AlreadyClaimed { .. }));
                        prop_assert!(busy);
                    } else if plain.wake != Some(None) && !plain.pending() {
                        prop_assert_eq!(result, Err(Refused::NothingPending));
                    } else {
                        plain.generation += u64::from(plain.wake != Some(None));
                        plain.wake = Some(Some((worker, now + SECOND_US)));
                        keep(&mut rules, &mut notes, result.unwrap());
                    }
                }
                Step::Ack { age, stream, offset, done } => {
                    let generation = plain.generation.saturating_sub(age);
                    let fence = Fence { token: generation, generation, same_wake: age == 0 };
                    let incarnation = stream + 10;
                    let position = Position::At { incarnation, offset, owner: incarnation };
                    let result = rules.ack(fence, &[Ack { stream: name(stream), position }], done, now);
                    let at = stream as usize;
                    let linked = rules.links.contains_key(&name(stream));
                    if !(age == 0 && plain.holds(generation, now)) {
                        prop_assert_eq!(result, Err(Refused::Fenced));
                    } else if linked && offset > plain.tails[at] {
                        prop_assert_eq!(result, Err(Refused::PastEnd { stream: name(stream) }));
                    } else {
                        plain.acked[at] = if linked { plain.acked[at].max(offset) } else { plain.acked[at] };
                        let holder = plain.wake.flatten().unwrap().0;
                        plain.wake = (!done).then_some(Some((holder, now + SECOND_US)));
                        let change = result.unwrap();
                        prop_assert_eq!(rules.is_pending_after(&change), plain.pending());
                        keep(&mut rules, &mut notes, change);
                    }
                }
                Step::Release { age } => {
                    let generation = plain.generation.saturating_sub(age);
                    let fence = Fence { token: generation, generation, same_wake: age == 0 };
                    let result = rules.release(fence, now);
                    if age == 0 && plain.holds(generation, now) {
                        plain.wake = None;
                        keep(&mut rules, &mut notes, result.unwrap());
                    } else {
                        prop_assert_eq!(result, Err(Refused::Fenced));
                    }
                }
                Step::Sleep { ms } => now += ms * 1_000,
                Step::Restart => {
                    let kept: Vec<_> = notes.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                    rules = encoding::decode("s", &kept).unwrap().unwrap().subscription;
                    for stream in 0..3 {
                        if plain.tails[stream as usize] > 0 {
                            observe(&mut rules, &mut notes, stream, plain.tails[stream as usize]);
                        }
                    }
                    prop_assert_eq!(&rules, &before.0, "what is kept is what there was");
                }
            }
            prop_assert_eq!(rules.generation, plain.generation);
            prop_assert_eq!(rules.is_pending(), plain.pending());
            for stream in 0..3 {
                let acked = rules.links.get(&name(stream)).map_or(0, |link| link.acked);
                prop_assert_eq!(acked, plain.acked[stream as usize]);
                prop_assert!(acked >= before.1[stream as usize], "a cursor never moves back");
            }
        }
    }
}

#[test]
fn a_subscription_that_is_not_understood_stays_as_it_is_until_somebody_deletes_it() {
    let mut world = World::new();
    assert_eq!(world.put("s", &pull()).status, 201);
    let kept = world.model.notes(&world.model.find(&encoding::log_name("s")).unwrap());
    let rewritten = |from: &str, to: &str| -> Vec<(Vec<u8>, Vec<u8>)> {
        let change = |value: &[u8]| String::from_utf8_lossy(value).replace(from, to).into_bytes();
        kept.iter().map(|(key, value)| (key.to_vec(), change(value))).collect()
    };
    let foreign = [
        rewritten("\"version\":2", "\"version\":3"),
        rewritten("\"version\":2", "\"version\":1"),
        rewritten("\"version\":2", "\"version\":2,\"streams\":[]"),
        rewritten("\"phase\":", "\"phases\":"),
        rewritten("events/*", ""),
        vec![(b"head".to_vec(), b"{}".to_vec())],
        vec![(b"body".to_vec(), b"{}".to_vec())],
        [rewritten("", ""), vec![(b"link/events/a".to_vec(), vec![1; 24])]].concat(),
    ];
    for (number, notes) in foreign.iter().enumerate() {
        let model = Model::default();
        let notes: Vec<(&[u8], &[u8])> = notes.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let commit = Commit { notes: &notes, ..Commit::default() };
        let log = model.create(&encoding::log_name("s"), &super::log_config(), None, &commit).unwrap().0;
        let mut world = World::over(model, Options::default(), START_US);
        let before = world.model.notes(&log);
        assert_eq!(world.shared.foreign(), ["s".into()], "{number}");
        assert_eq!(world.put("s", &pull()).code(), (500, "SUBSCRIPTION_NOT_UNDERSTOOD"));
        for (method, target) in
            [(Method::Get, "s"), (Method::Post, "s/claim"), (Method::Delete, "s/streams/a")]
        {
            let reply = world.call(method, &format!("__ds/subscriptions/{target}"), &[], &Value::Null);
            assert_eq!(reply.code(), (500, "SUBSCRIPTION_NOT_UNDERSTOOD"), "{target}");
        }
        world.create("events/a");
        assert!(world.turn().is_empty());
        let mut world = world.restart();
        assert_eq!(world.model.notes(&log), before, "{number}");
        assert_eq!(world.call(Method::Delete, "__ds/subscriptions/s", &[], &Value::Null).status, 204);
        assert_eq!(world.shared.foreign(), []);
        assert_eq!(world.put("s", &pull()).status, 201);
    }
}

/// Streams of one world, more than are compared with a pattern at once.
const MANY: usize = 4_097;

fn with_many_streams() -> World {
    let mut world = World::new();
    let config = crate::store::Config {
        content_type: "application/json".into(),
        lifetime: crate::store::Lifetime::Unlimited,
    };
    for number in 0..MANY {
        let name = format!("many/{number}");
        world.model.create(name.as_bytes(), &config, None, &Commit::default()).unwrap();
    }
    // The server's secret is made by the first PUT, and is no part of what is asked here.
    world.create("wakes");
    world
}

fn all_of_many() -> Value {
    json!({ "type": "pull-wake", "pattern": "many/*", "wake_stream": "wakes" })
}

#[test]
fn among_many_streams_a_pattern_is_founded_elsewhere_and_only_then_found() {
    let mut world = with_many_streams();
    let body = all_of_many();
    let first = world.put_elsewhere("all", &body);
    let second = world.put_elsewhere("all", &body);
    let reply = world.call(Method::Get, "__ds/subscriptions/all", &[], &Value::Null);
    assert_eq!(reply.code(), (404, "SUBSCRIPTION_NOT_FOUND"));
    assert_eq!(world.claim("all", "w").code(), (404, "SUBSCRIPTION_NOT_FOUND"));

    // Not durable when the founding comes by: linked as soon as it is, at its beginning.
    world.model.lag();
    assert_eq!(world.call(Method::Put, "many/late", &[], &Value::Null).status, 201);
    second();
    first();
    assert_eq!(world.put("all", &body).status, 201, "the first that asks is told that it was created");
    assert_eq!(world.put("all", &body).status, 200, "and every other that it exists");
    assert_eq!(world.get("all")["streams"].as_array().unwrap().len(), MANY);
    world.model.settle();
    world.shared.settled();
    world.driver.turn(world.now);
    let linked = world.get("all");
    let linked = linked["streams"].as_array().unwrap();
    assert_eq!(linked.len(), MANY + 1);
    assert!(linked.iter().any(|link| link["path"] == "many/late"), "the late one is linked too");

    let other = json!({ "type": "pull-wake", "pattern": "many/1*", "wake_stream": "wakes" });
    assert_eq!(world.put("all", &other).code(), (409, "SUBSCRIPTION_EXISTS"));
    let named = json!({ "type": "pull-wake", "streams": ["many/1"], "wake_stream": "wakes" });
    assert_eq!(world.put("one", &named).status, 201, "names alone are looked up at once");
}

#[test]
fn a_stream_that_comes_while_a_pattern_is_founded_is_told_to_the_driver() {
    let mut world = with_many_streams();
    let body = all_of_many();
    let work = world.put_elsewhere("all", &body);
    // As if the visit had passed its place already: it is there, and the driver has looked at all it was
    // told.
    world.create("many/new");
    world.driver.turn(world.now);
    work();
    let told = world.shared.inbox.lock().doubtful.clone();
    assert!(told.iter().any(|path| **path == *"many/new"), "{told:?}");
}

#[test]
fn a_founding_that_fails_tells_why_and_the_next_begins_anew() {
    let mut world = with_many_streams();
    let body = all_of_many();
    assert_eq!(
        world
            .put("other", &json!({ "type": "pull-wake", "streams": ["many/1"], "wake_stream": "wakes" }))
            .status,
        201
    );
    let work = world.put_elsewhere("all", &body);
    world.model.fail(Some(StoreError::Full("no room".into())));
    work();
    world.model.fail(None);
    assert_eq!(world.put("all", &body).status, 507, "what the founding came to");
    let again = world.put_elsewhere("all", &body);
    again();
    assert_eq!(world.put("all", &body).status, 201);
}

#[test]
fn a_founding_that_no_thread_takes_is_off_and_the_next_may_ask_for_something_else() {
    let mut world = with_many_streams();
    let other = json!({ "type": "pull-wake", "pattern": "many/1*", "wake_stream": "wakes" });
    drop(world.put_elsewhere("all", &all_of_many()));
    assert!(world.shared.index.read().foundings.is_empty(), "nothing of it is left");

    // As long as somebody has it to do it goes on, though others let go.
    let first = world.put_elsewhere("all", &other);
    drop(world.put_elsewhere("all", &other));
    first();
    assert_eq!(world.put("all", &other).status, 201);
    assert_eq!(world.put("all", &all_of_many()).code(), (409, "SUBSCRIPTION_EXISTS"));

    // Who comes between has nothing to do, and is told to ask again by finding nothing there.
    let first = world.put_elsewhere("more", &other);
    let second = world.put_elsewhere("more", &other);
    drop(first);
    second();
    assert_eq!(world.put("more", &other).status, 201);
}

#[test]
fn of_foundings_that_came_to_nothing_and_that_nobody_asks_for_again_few_are_remembered() {
    let mut world = with_many_streams();
    let body = all_of_many();
    for number in 0..200 {
        let work = world.put_elsewhere(&format!("lost-{number}"), &body);
        world.model.fail(Some(StoreError::Full("no room".into())));
        work();
        world.model.fail(None);
        world.create(&format!("many/more/{number}"));
    }
    let index = world.shared.index.read();
    assert!(index.foundings.len() <= 64, "{} are", index.foundings.len());
    let doubts = |founding: &Arc<super::founding::Founding>| founding.doubts();
    assert_eq!(
        index.foundings.values().map(doubts).sum::<usize>(),
        0,
        "nobody is told of new streams for them"
    );
}
