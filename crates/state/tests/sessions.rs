//! Sessions in the same process.

#![allow(clippy::unwrap_used, reason = "this is a test's code")]

use std::sync::Arc;
use thalweg_log::{Options as StoreOptions, Store};
use thalweg_state::{Change, Options, State, Value};

#[test]
fn a_read_view_of_a_session_shares_the_memory_of_its_writes() {
    const KEYS: usize = 10_000;
    const SIGHTS: usize = 100;
    let store = Store::memory(StoreOptions::default()).unwrap();
    let state = State::open(&store, "state", Options::default()).unwrap();
    let mut session = state.session(state.main()).unwrap();
    session.snapshot(1).unwrap();
    let value: Value = b"1"[..].into();
    let put = |number: usize| Change::Put(format!("{number:08}").into(), value.clone());
    session.write((0..KEYS).map(put).collect(), 2).unwrap();
    assert_eq!(Arc::strong_count(&value), KEYS + 1);
    let bytes = state.sessions_bytes();
    let mut views = Vec::new();
    for number in 0..SIGHTS {
        views.push(session.read_view().unwrap());
        let change = Change::Put(format!("{:08}", number * KEYS / SIGHTS).into(), b"2"[..].into());
        session.write(std::iter::once(change).collect(), 3).unwrap();
    }
    assert!(Arc::strong_count(&value) < KEYS + SIGHTS * 64, "{} are held", Arc::strong_count(&value));
    let looked_at = bytes / KEYS * SIGHTS;
    assert_eq!(
        state.sessions_bytes(),
        bytes + looked_at,
        "what was written over counts while it is looked at"
    );
    assert!(views.iter().all(|view| view.get("00009900") == Some(&value)));
    assert_eq!(session.get("00009900").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(session.changes(), KEYS);
    drop(views);
    assert_eq!(state.sessions_bytes(), bytes, "of one key the last change counts");
}
