//! The state over memory and over files, against plain maps, and what remains of it after a restart.

mod damaged_images;
mod durability;
mod forks;
mod images;
mod model;
mod sessions;
mod sharing;

use super::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use thalweg_log::{Config, Disk, Durability, Lifetime, Options as StoreOptions, Store};

type Model = BTreeMap<String, Vec<u8>>;

fn memory() -> Store {
    Store::memory(StoreOptions::default()).unwrap()
}

fn on_disk(path: &std::path::Path, durability: Durability) -> Store {
    Store::open(&Disk::Real, path, StoreOptions { durability, ..StoreOptions::default() }).unwrap().0
}

fn put(key: &str, value: &str) -> Changes {
    [Change::Put(key.into(), value.as_bytes().into())].into_iter().collect()
}

fn delete(key: &str) -> Changes {
    [Change::Delete(key.into())].into_iter().collect()
}

fn contents(map: &Map) -> Model {
    map.scan(Bound::Unbounded).map(|(key, value)| (key.to_string(), value.to_vec())).collect()
}

fn applied(model: &mut Model, changes: &Changes) {
    for (key, value) in changes.iter() {
        match value {
            Some(value) => drop(model.insert(key.to_string(), value.to_vec())),
            None => drop(model.remove(key.as_str())),
        }
    }
}

#[test]
fn a_value_that_is_null_is_there_when_the_state_is_opened_again() {
    let store = memory();
    let state = State::open(&store, "s", Options::default()).unwrap();
    state.write(state.main(), &put("a", "null"), 1).unwrap();
    drop(state);
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert_eq!(state.get(state.main(), View::Committed, "a").unwrap().as_deref(), Some(&b"null"[..]));
}

#[test]
fn keys_that_cannot_be_and_logs_of_others_are_refused() {
    let store = memory();
    let state = State::open(&store, "s", Options::default()).unwrap();
    for key in [String::new(), "x".repeat(KEY_BYTES_MAX + 1)] {
        assert!(matches!(state.write(state.main(), &put(&key, "1"), 1), Err(Error::Key { .. })), "{key}");
        let mut session = state.session(state.main()).unwrap();
        session.snapshot(1).unwrap();
        assert!(matches!(session.write(put(&key, "1"), 1), Err(Error::Key { .. })));
    }
    assert!(matches!(state.at(state.main(), 7), Err(Error::NoState { offset: 7, .. })));
    store.append(&store.find(b"s/main").unwrap(), b"not a change", 1).unwrap();
    assert!(matches!(State::open(&store, "s", Options::default()), Err(Error::Foreign { offset: 0, .. })));
    assert!(matches!(state.write(state.main(), &put("a", "1"), 1), Err(Error::Conflict { .. })));
}

#[test]
fn a_log_that_was_not_created_as_the_state_s_is_refused_even_if_it_is_empty() {
    let json = |lifetime| Config { content_type: "application/json".into(), lifetime };
    let others = [
        Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited },
        json(Lifetime::Sliding { ttl_s: 60 }),
    ];
    for (name, config) in
        ["s/main", "s/forks/0"].into_iter().flat_map(|name| others.clone().map(|c| (name, c)))
    {
        let store = memory();
        store.create(name.as_bytes(), &config, None, &Default::default(), None).unwrap();
        let refused = State::open(&store, "s", Options::default()).map(drop).unwrap_err();
        assert!(matches!(&refused, Error::ForeignLog { log, .. } if log == name), "{refused}");
    }
    let store = memory();
    store.create(b"s/main", &json(Lifetime::Unlimited), None, &Default::default(), None).unwrap();
    State::open(&store, "s", Options::default()).unwrap();
}
