//! Wakes by events in a wake stream: who claims them, and who may write there.

use super::{SECOND_US, START_US, World, acks, pull};
use crate::Options;
use crate::model::Model;
use crate::store::{Commit, Store};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use thalweg_wire::exchange::Method;

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

#[test]
fn claims_that_find_nothing_go_on_where_the_last_one_ended() {
    let mut world = World::new();
    let paths: Vec<String> = (0..1_500).map(|n| format!("events/{n:04}")).collect();
    paths.iter().for_each(|path| world.create(path));
    // What a restart finds linked begins behind something.
    paths.iter().for_each(|path| world.append(path, 1));
    world.put("s", &pull());
    world.append("events/1499", 2);
    // The driver has not looked at any of them.
    let mut world = world.restart();
    assert_eq!(world.claim("s", "w").code(), (409, "NO_PENDING_WORK"));
    let claimed = world.claim("s", "w");
    assert_eq!((claimed.status, &claimed.body["streams"][0]["path"]), (200, &json!("events/1499")));
}

#[test]
fn a_claim_finds_its_work_however_much_moved_that_others_link() {
    let mut world = World::new();
    let mut others = pull();
    others["pattern"] = json!("others/*");
    assert_eq!((world.put("t", &others).status, world.put("s", &pull()).status), (201, 201));
    let paths: Vec<String> = (0..1_500).map(|n| format!("others/{n}")).collect();
    paths.iter().for_each(|path| world.create(path));
    world.create("events/a");
    world.turn();
    paths.iter().for_each(|path| world.append(path, 1));
    world.append("events/a", 1);
    assert_eq!(world.claim("s", "w").status, 200);
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
fn a_claim_and_an_ack_cost_what_is_pending_and_not_what_is_linked() {
    let mut world = World::new();
    world.create("wake/pool");
    world.put("s", &pull());
    (0..1_000).for_each(|n| world.create(&format!("events/{n}")));
    world.create("late");
    world.turn();
    let few = |world: &World, before: u64| world.model.finds() - before < 20;
    let before = world.model.finds();
    assert_eq!(world.claim("s", "w").code(), (409, "NO_PENDING_WORK"));
    assert!(few(&world, before), "{} streams were looked for", world.model.finds() - before);
    // What the driver did not tell yet: that a stream moved, and then one that it does not follow yet.
    for (name, event) in [("events/7", 1), ("late", 1)] {
        let link = json!({ "streams": ["late"] });
        assert_eq!(world.call(Method::Post, "__ds/subscriptions/s/streams", &[], &link).status, 204);
        world.append(name, event);
        let before = world.model.finds();
        let claimed = world.claim("s", "w").body;
        assert_eq!(claimed["streams"][0]["path"], name);
        // More came since, and is done as well, which nobody told either.
        world.append(name, 2);
        let head = world.call(Method::Head, name, &[], &Value::Null).head;
        let end = head.lines().find_map(|line| line.strip_prefix("Stream-Next-Offset: ")).unwrap();
        let mut done = acks(&claimed, true);
        done["acks"] = json!([{ "stream": name, "offset": end }]);
        let token = claimed["token"].as_str().unwrap();
        assert_eq!(world.verb("s", "ack", token, &done).body, json!({ "ok": true, "next_wake": false }));
        assert!(few(&world, before), "{name}: {} streams were looked for", world.model.finds() - before);
    }
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
