//! Streams that a subscription follows: they come, go and come back.

use super::{HOOK, START_US, World, pull, send, told, webhook};
use crate::store::Store;
use crate::subscriptions::subscription::{Link, Outcome};
use serde_json::{Value, json};
use std::sync::Arc;
use thalweg_wire::exchange::{Answer, Method};

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
fn a_subscription_that_is_created_anew_within_a_turn_wakes_for_what_that_turn_looked_at() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.turn();
    let paths = ["events/a", "events/b", "events/c"];
    paths.iter().for_each(|path| world.create(path));
    let (mut streams, now) = (world.streams.clone(), world.now);
    world.model.meanwhile("events/b", move || {
        let target = "__ds/subscriptions/s";
        for (method, body) in [(Method::Delete, String::new()), (Method::Put, webhook(HOOK).to_string())] {
            let answer = send(&mut streams, now, (method, target), &[], &body);
            let (Answer::After(_, response) | Answer::Respond(response)) = answer else {
                panic!("{method:?}")
            };
            assert!(response.status < 300, "{method:?}: {}", response.status);
        }
    });
    assert!(world.turn().is_empty());
    assert!(world.turn().is_empty());
    for path in paths {
        world.append(path, 1);
        let call = world.webhook();
        assert_eq!(told(&call)["streams"][0]["path"], path);
        assert!(world.finished(&call, Outcome::Done).is_none());
    }
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
fn what_was_created_while_nobody_looked_is_found_at_start() {
    let mut world = World::new();
    world.put("s", &webhook(HOOK));
    world.create("events/a");
    world.append("events/a", 1);
    let mut world = world.restart();
    assert_eq!(told(&world.webhook())["streams"][0]["path"], "events/a");
}

/// Links so many streams by name.
fn link_many(world: &World, id: &str, many: usize) {
    let fresh: Vec<(Arc<str>, Link)> =
        (0..many).map(|n| (format!("many/{n}").into(), Link { explicit: true, ..Link::default() })).collect();
    let slot = world.shared.slot(id).unwrap();
    let mut held = slot.held.lock();
    let held = held.as_mut().unwrap();
    for some in fresh.chunks(500) {
        let change = held.subscription.link(some);
        world.shared.keep(&world.model, held, change, START_US).unwrap();
    }
}

#[test]
fn a_subscription_with_many_streams_is_described_elsewhere_and_as_it_is_then() {
    let mut world = World::new();
    world.put("s", &pull());
    let many = 9_000;
    link_many(&world, "s", many);
    let target = "__ds/subscriptions/s";
    for method in [Method::Get, Method::Put] {
        let body = if method == Method::Put { pull() } else { Value::Null };
        // As if nothing was encoded yet.
        world.shared.slot("s").unwrap().held.lock().as_mut().unwrap().listing = Arc::default();
        let Answer::Cold(work) = world.answer(method, target, &[], &body) else { panic!("at once") };
        (work.0)();
        // What changes between the two is seen.
        let added = format!("added/{method:?}");
        world.call(Method::Post, &format!("{target}/streams"), &[], &json!({ "streams": [added] }));
        let described = world.call(method, target, &[], &body);
        assert_eq!((described.status, &described.body["id"]), (200, &json!("s")));
        assert_eq!(described.body["status"], "active");
        let streams = described.body["streams"].as_array().unwrap();
        assert!(streams.len() > many && streams.iter().any(|link| link["path"] == *added), "{method:?}");
    }
}

#[test]
fn descriptions_that_are_kept_have_a_bound_together_and_count_for_what_is_there() {
    let mut world = World::new();
    for id in ["a", "b", "c"] {
        world.put(id, &pull());
        link_many(&world, id, 9_000);
    }
    let kept = |world: &World, id: &str| {
        let slot = world.shared.slot(id).unwrap();
        let listing = slot.held.lock().as_ref().unwrap().listing.clone();
        listing.lock().bytes()
    };
    let describe = |world: &mut World, id: &str| {
        let target = format!("__ds/subscriptions/{id}");
        let Answer::Cold(work) = world.answer(Method::Get, &target, &[], &Value::Null) else {
            panic!("at once")
        };
        work
    };
    (describe(&mut world, "a").0)();
    let one = kept(&world, "a");
    world.get("a");
    assert_eq!(kept(&world, "a"), one);
    world.shared.listed.lock().bytes_max = 2 * one;
    (describe(&mut world, "b").0)();
    assert_eq!([kept(&world, "a"), kept(&world, "b")], [one, one]);
    // What a reactor encoded before it left the rest to a thread counts at once.
    let work = describe(&mut world, "c");
    let some = kept(&world, "c");
    assert!(some > 0 && some < one);
    assert_eq!([kept(&world, "a"), kept(&world, "b")], [0, one]);
    (work.0)();
    assert_eq!([kept(&world, "b"), kept(&world, "c")], [one, one]);
    // A description of one that was deleted has no room any more.
    assert_eq!(world.call(Method::Delete, "__ds/subscriptions/b", &[], &Value::Null).status, 204);
    (describe(&mut world, "a").0)();
    assert_eq!([kept(&world, "a"), kept(&world, "c")], [one, one]);
    // Nor has one that became so small that it is not kept.
    for n in 8_000..9_000 {
        let path = format!("__ds/subscriptions/c/streams/many/{n}");
        assert_eq!(world.call(Method::Delete, &path, &[], &Value::Null).status, 204);
    }
    world.get("c");
    world.put("d", &pull());
    link_many(&world, "d", 9_000);
    (describe(&mut world, "d").0)();
    assert_eq!([kept(&world, "a"), kept(&world, "c"), kept(&world, "d")], [one, 0, one]);
}
