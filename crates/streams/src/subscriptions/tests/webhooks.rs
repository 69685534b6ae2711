//! Wakes by webhook: calls that succeed, fail, wait and are repeated.

use super::{HOOK, SECOND_US, World, acks, told, webhook};
use crate::store::Store;
use crate::subscriptions::subscription::{Outcome, backoff_ms};
use serde_json::{Value, json};
use thalweg_wire::exchange::Method;

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
        assert_eq!((&told(&call)["wake_id"], &told(&call)["generation"]), (&wake["wake_id"], &json!(1)));
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
fn retries_wait_from_a_second_to_a_minute_with_a_fifth_of_jitter() {
    for attempts in 0..100 {
        let plain = (1_000_u64 << attempts.min(6)).min(60_000);
        let (low, high) = (plain - plain / 5, plain + plain / 5);
        assert_eq!(backoff_ms(attempts, 0), low);
        assert_eq!(backoff_ms(attempts, plain / 5 * 2), high);
        assert!((low..=high).contains(&backoff_ms(attempts, u64::MAX)));
    }
}
