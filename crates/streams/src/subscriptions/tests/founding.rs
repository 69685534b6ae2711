//! Subscriptions whose pattern is compared with the names of many streams.

use super::World;
use crate::store::{Commit, Store, StoreError};
use serde_json::{Value, json};
use std::sync::Arc;
use thalweg_wire::exchange::Method;

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
    let doubts = |founding: &Arc<crate::subscriptions::founding::Founding>| founding.doubts();
    assert_eq!(
        index.foundings.values().map(doubts).sum::<usize>(),
        0,
        "nobody is told of new streams for them"
    );
}
