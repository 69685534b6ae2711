//! Acknowledgements: leases, fences, and offsets that are none.

use super::{HOOK, World, acks, told, webhook};
use crate::store::Store;
use crate::subscriptions::subscription::Outcome;
use serde_json::{Value, json};
use thalweg_wire::exchange::{Answer, Method};
use thalweg_wire::token::Token;

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
