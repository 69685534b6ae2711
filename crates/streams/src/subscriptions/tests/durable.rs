//! What waits for the disk, what a crash leaves, and what a later start reads.

use super::rules::subscription;
use super::{HOOK, START_US, World, acks, pull, told, webhook};
use crate::Options;
use crate::model::Model;
use crate::store::{Commit, Store};
use crate::subscriptions::encoding;
use crate::subscriptions::links::Links;
use crate::subscriptions::subscription::{Link, Outcome, Subscription};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::exchange::Method;

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
fn a_large_subscription_is_whole_or_absent_after_a_crash_in_its_creation() {
    let mut links = Links::default();
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
    let commits = encoding::whole(&subscription, crate::subscriptions::COMMIT_BYTES_MAX);
    assert!(commits.len() > 2);
    for upto in 1..=commits.len() {
        let mut notes: BTreeMap<Box<[u8]>, Arc<[u8]>> = BTreeMap::new();
        for commit in &commits[..upto] {
            let size: usize = commit.iter().map(|(key, value)| key.len() + value.len()).sum();
            assert!(size <= crate::subscriptions::COMMIT_BYTES_MAX);
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
    model.create(&encoding::log_name("s"), &crate::subscriptions::log_config(), None, &commit).unwrap();
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
        let log = model
            .create(&encoding::log_name("s"), &crate::subscriptions::log_config(), None, &commit)
            .unwrap()
            .0;
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
