//! The service as its clients see it: the same over a socket and over shared memory, each refusal with its
//! code.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod serving;

use serving::{Client, Served, WAYS, Words, connect, store};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;
use thalweg_log::{Durability, Options, Store};
use thalweg_state::generated::types::*;
use thalweg_state::{ServiceOptions, State};

fn memory() -> Store {
    Store::memory(Options::default()).unwrap()
}

/// Runs a test over each way in, on a state of its own.
fn over_each_way(test: impl Fn(&mut Client, &dyn Fn() -> Client)) {
    for way in WAYS {
        let directory = tempfile::tempdir().unwrap();
        let _served = Served::start(directory.path(), memory(), ServiceOptions::default());
        let again = || connect(directory.path(), way);
        test(&mut again(), &again);
    }
}

/// The code that a refusal begins with.
fn code<T: std::fmt::Debug, E: ToString>(refused: Result<T, E>) -> String {
    let message = refused.err().unwrap().to_string();
    let message = message.strip_prefix("refused: ").unwrap_or(&message);
    message.split_once(": ").map(|(code, _)| code.to_owned()).unwrap()
}

fn batch(place: &str, changes: &[(&str, Option<&str>)]) -> StateBatch<'static> {
    let change = |(key, value): &(&str, Option<&str>)| Change {
        key: (*key).to_owned().into(),
        value: value.map(|value| value.to_owned().into_bytes().into()),
    };
    StateBatch {
        place: place.to_owned().into(),
        changes: changes.iter().map(change).collect(),
        if_offset: None,
        if_root: None,
    }
}

#[test]
fn keys_hold_what_was_put_and_forks_go_their_own_way() {
    over_each_way(|client, _| {
        assert_eq!(client.value("main", "a").unwrap(), None);
        client.set("main", "a", "1").unwrap();
        client.batch(&batch("main", &[("b", Some("2")), ("c", Some("3")), ("a", None)])).unwrap();
        assert_eq!(client.value("main", "a").unwrap(), None);
        let fork = client.fork(&StateFork { parent: "main".into(), offset: None }).unwrap().fork.into_owned();
        assert_eq!(client.digest(&fork).unwrap(), client.digest("main").unwrap());
        client.set(&fork, "d", "4").unwrap();
        client.remove(&StateRemove { place: (&*fork).into(), key: "b".into() }).unwrap();
        assert_eq!(client.all("main").unwrap(), [("b".into(), b"2".to_vec()), ("c".into(), b"3".to_vec())]);
        let diff = StateDiff {
            before: "main".into(),
            now: (&*fork).into(),
            start: None,
            limit: Some(1),
            view: None,
        };
        let answer = client.diff(&diff).unwrap();
        assert_eq!((answer.changes.len(), &*answer.changes[0].key), (1, "b"));
        assert_eq!((&answer.changes[0].value, answer.next.as_deref()), (&None, Some("d")));
        let rest = StateDiff { start: Some("d".into()), limit: None, ..diff };
        let answer = client.diff(&rest).unwrap();
        assert_eq!((&*answer.changes[0].key, answer.next.as_deref()), ("d", None));
        let count =
            StateCount { place: "main".into(), start: Some("b".into()), until: Some("c".into()), view: None };
        assert_eq!(client.count(&count).unwrap().count, 1);
        let forks = client.forks(&StateForks { start: None, limit: None }).unwrap();
        assert_eq!(forks.forks.len(), 2);
        assert_eq!((&*forks.forks[0].fork, &*forks.forks[0].stream), ("main", "state/main"));
        client.drop(&StateDrop { fork: (&*fork).into() }).unwrap();
        assert_eq!(code(client.value(&fork, "d")), "no_fork");
        assert_eq!(code(client.fork(&StateFork { parent: (&*fork).into(), offset: None })), "no_fork");
        assert_eq!(code(client.drop(&StateDrop { fork: (&*fork).into() })), "no_fork");
    });
}

/// There is one thread for what takes long, as there is where processors are few.
#[test]
fn a_scan_waits_for_nothing_that_takes_as_long_as_the_state_is_large() {
    let directory = tempfile::tempdir().unwrap();
    let options = ServiceOptions { threads: 1, ..ServiceOptions::default() };
    let served = Served::start(directory.path(), memory(), options);
    let state = served.service.state().unwrap();
    let put = |number: usize| thalweg_state::Change::Put(format!("{number:08}").into(), b"1"[..].into());
    let offsets: Vec<u64> = (0..200_000)
        .step_by(10_000)
        .map(|first| {
            let changes = (first..first + 10_000).map(put).collect();
            state.write(state.main(), &changes, thalweg_log::now()).unwrap().next
        })
        .collect();
    // Behind them in line it would be the last each time. Beside them it may be, where the machine stops for
    // as long as they take.
    let is_last = |offsets: &[u64]| scanned_beside(directory.path(), offsets).last() == Some(&"scan");
    assert!(!offsets[5..].chunks(3).all(is_last), "a scan was the last of all each time");
}

/// Asks for histories at these offsets, which nobody has asked for before, and then for a scan: in which
/// order they are answered.
fn scanned_beside(directory: &Path, offsets: &[u64]) -> Vec<&'static str> {
    let (answered, order) = channel();
    std::thread::scope(|scope| {
        for &offset in offsets {
            let (answered, mut client) = (answered.clone(), connect(directory, WAYS[0]));
            scope.spawn(move || {
                let history = StateHistory { fork: "main".into(), offset, start: None, limit: None };
                assert_eq!(client.history(&history).unwrap().entries.len(), 1_000);
                answered.send("history").unwrap();
            });
        }
        let mut client = connect(directory, WAYS[0]);
        // All of them are asked for before this.
        std::thread::sleep(Duration::from_millis(20));
        let scan = StateScan { place: "main".into(), start: None, limit: Some(10_000), view: None };
        assert_eq!(client.scan(&scan).unwrap().entries.len(), 10_000);
        answered.send("scan").unwrap();
    });
    order.try_iter().collect()
}

#[test]
fn a_commit_without_a_snapshot_says_where_the_fork_ended() {
    over_each_way(|client, _| {
        let begun = client.set("main", "a", "1").unwrap();
        let session = client.session("main");
        assert_eq!(client.keep(&session).unwrap(), begun);
        let written = client.set(&session, "a", "2").unwrap();
        client.set("main", "a", "3").unwrap();
        assert_eq!(client.keep(&session).unwrap(), written);
        let seen = client.begin(&session).unwrap();
        client.undo(&session).unwrap();
        assert!(seen > written);
        assert_eq!(client.keep(&session).unwrap(), seen);
    });
}

#[test]
fn what_was_there_at_an_offset_can_be_read_and_forked() {
    over_each_way(|client, _| {
        let first = client.set("main", "a", "1").unwrap();
        let second = client.set("main", "b", "2").unwrap();
        client.set("main", "a", "3").unwrap();
        let mut at = |offset, start: Option<&'static str>| {
            let history =
                StateHistory { fork: "main".into(), offset, start: start.map(Into::into), limit: Some(1) };
            let answer = client.history(&history)?;
            let entries: Vec<_> =
                answer.entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_vec())).collect();
            Ok::<_, thalweg_wire::service::CallError<thalweg_service::Error>>((
                entries,
                answer.next.map(|n| n.into_owned()),
            ))
        };
        assert_eq!(at(first, None).unwrap(), (vec![("a".into(), b"1".to_vec())], None));
        assert_eq!(at(second, None).unwrap(), (vec![("a".into(), b"1".to_vec())], Some("b".into())));
        assert_eq!(at(second, Some("b")).unwrap().0, [("b".into(), b"2".to_vec())]);
        assert_eq!(code(at(first + 1, None)), "no_state");
        let fork = StateFork { parent: "main".into(), offset: Some(second) };
        let fork = client.fork(&fork).unwrap().fork.into_owned();
        assert_eq!(client.value(&fork, "a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(code(client.fork(&StateFork { parent: "main".into(), offset: Some(1) })), "no_state");
    });
}

#[test]
fn a_session_is_taken_back_or_committed_as_one_and_goes_on_over_another_connection() {
    over_each_way(|client, again| {
        client.set("main", "a", "1").unwrap();
        let session = client.session("main");
        assert_eq!(code(client.undo(&session)), "no_snapshot");
        client.keep(&session).unwrap();
        client.begin(&session).unwrap();
        client.set(&session, "a", "2").unwrap();
        client.batch(&batch(&session, &[("b", Some("1")), ("c", Some("1"))])).unwrap();
        assert_eq!(client.value(&session, "a").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(client.value("main", "a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(client.all(&session).unwrap().len(), 3);
        client.undo(&session).unwrap();
        assert_eq!(client.all(&session).unwrap(), [("a".into(), b"1".to_vec())]);
        client.begin(&session).unwrap();
        client.set(&session, "b", "2").unwrap();
        // Another connection, and this one dies.
        let mut other = again();
        std::mem::swap(client, &mut other);
        drop(other);
        let rejoined = client.rejoin(&StateRejoin { session: (&*session).into() }).unwrap();
        assert_eq!((&*rejoined.fork, rejoined.pending), ("main", true));
        let first = client.begin(&session).unwrap();
        assert_eq!(
            client.value("main", "b").unwrap().as_deref(),
            Some(&b"2"[..]),
            "committed by the snapshot"
        );
        client.set(&session, "c", "3").unwrap();
        let second = client.keep(&session).unwrap();
        assert!(second > first);
        assert_eq!(client.keep(&session).unwrap(), second, "who asks again does nothing twice");
        assert_eq!(client.all("main").unwrap().len(), 3);
        client.close(&StateClose { session: (&*session).into() }).unwrap();
        assert_eq!(code(client.keep(&session)), "session_expired");
        assert_eq!(code(client.set(&session, "d", "4")), "session_expired");
    });
}

#[test]
fn the_first_to_commit_wins() {
    over_each_way(|client, again| {
        let mut other = again();
        let (mine, theirs) = (client.session("main"), other.session("main"));
        client.begin(&mine).unwrap();
        other.begin(&theirs).unwrap();
        client.set(&mine, "a", "mine").unwrap();
        other.set(&theirs, "a", "theirs").unwrap();
        other.keep(&theirs).unwrap();
        assert_eq!(code(client.keep(&mine)), "conflict");
        assert_eq!(code(client.begin(&mine)), "conflict");
        assert_eq!(client.value(&mine, "a").unwrap().as_deref(), Some(&b"mine"[..]), "it is still there");
        client.undo(&mine).unwrap();
        assert_eq!(client.value(&mine, "a").unwrap().as_deref(), Some(&b"theirs"[..]));
    });
}

#[test]
fn a_batch_may_expect_what_it_finds() {
    over_each_way(|client, _| {
        let offset = client.set("main", "a", "1").unwrap();
        let root = client.digest("main").unwrap();
        let expecting = |offset, root| StateBatch {
            if_offset: offset,
            if_root: root,
            ..batch("main", &[("a", Some("2"))])
        };
        assert_eq!(code(client.batch(&expecting(Some(offset + 1), None))), "conflict");
        assert_eq!(code(client.batch(&expecting(None, Some([7; 32])))), "root_mismatch");
        assert_eq!(client.value("main", "a").unwrap().as_deref(), Some(&b"1"[..]), "nothing was done");
        client.batch(&expecting(Some(offset), Some(root))).unwrap();
        assert_eq!(code(client.batch(&expecting(Some(offset), None))), "conflict");
        let session = client.session("main");
        client.begin(&session).unwrap();
        let in_session =
            StateBatch { place: (&*session).into(), if_root: Some(root), ..batch(&session, &[("a", None)]) };
        assert_eq!(code(client.batch(&in_session)), "root_mismatch");
    });
}

#[test]
fn what_can_never_be_right_is_refused_with_its_code() {
    over_each_way(|client, _| {
        let session = client.session("main");
        for (place, wanted) in
            [("mian", "bad_place"), ("", "bad_place"), ("+1", "bad_place"), ("77", "no_fork")]
        {
            assert_eq!(code(client.value(place, "a")), wanted, "{place}");
            assert_eq!(code(client.set(place, "a", "1")), wanted, "{place}");
            assert_eq!(code(client.open(&StateOpen { fork: place.into(), lease_ms: None })), wanted);
        }
        assert_eq!(code(client.fork(&StateFork { parent: (&*session).into(), offset: None })), "bad_place");
        assert_eq!(code(client.drop(&StateDrop { fork: "main".into() })), "main_line");
        let view = StateGet { place: (&*session).into(), key: "a".into(), view: Some(View::Pending) };
        assert_eq!(code(client.get(&view)), "bad_view");
        assert_eq!(code(client.set("main", "", "1")), "bad_key");
        assert_eq!(code(client.set("main", &"x".repeat(2_000), "1")), "bad_key");
        client.begin(&session).unwrap();
        assert_eq!(code(client.set(&session, "", "1")), "bad_key");
        assert_eq!(code(client.keep("main")), "bad_place");
        assert_eq!(code(client.keep(&"0".repeat(32))), "session_lost");
        for lease_ms in [0, 3_600_001] {
            let open = StateOpen { fork: "main".into(), lease_ms: Some(lease_ms) };
            assert_eq!(code(client.open(&open)), "bad_lease");
        }
        let huge = "x".repeat(9 << 20);
        client.set(&session, "a", &huge).unwrap();
        assert_eq!(code(client.set(&session, "b", &huge)), "too_much");
        assert_eq!(client.all("main").unwrap(), []);
    });
}

#[test]
fn all_sessions_together_have_a_bound() {
    let directory = tempfile::tempdir().unwrap();
    let state = thalweg_state::Options { sessions_bytes_max: 1_000, ..thalweg_state::Options::default() };
    let options = ServiceOptions { state, ..ServiceOptions::default() };
    let _served = Served::start(directory.path(), memory(), options);
    let mut client = connect(directory.path(), WAYS[0]);
    let (first, second) = (client.session("main"), client.session("main"));
    client.begin(&first).unwrap();
    client.begin(&second).unwrap();
    client.set(&first, "a", &"x".repeat(600)).unwrap();
    assert_eq!(code(client.set(&second, "b", &"x".repeat(600))), "sessions_full");
    // What one gives back the other may have.
    client.undo(&first).unwrap();
    client.set(&second, "b", &"x".repeat(600)).unwrap();
    client.keep(&second).unwrap();
    assert_eq!(client.all("main").unwrap().len(), 1);
}

#[test]
fn there_are_as_many_forks_as_there_may_be_streams() {
    let directory = tempfile::tempdir().unwrap();
    let state = thalweg_state::Options { logs_max: 2, ..thalweg_state::Options::default() };
    let options = ServiceOptions { state, ..ServiceOptions::default() };
    let _served = Served::start(directory.path(), memory(), options);
    let mut client = connect(directory.path(), WAYS[0]);
    let fork = StateFork { parent: "main".into(), offset: None };
    let made = client.fork(&fork).unwrap().fork.into_owned();
    assert_eq!(code(client.fork(&fork)), "too_many_forks");
    assert_eq!(code(client.fork(&StateFork { offset: Some(0), ..fork.clone() })), "too_many_forks");
    client.drop(&StateDrop { fork: made.into() }).unwrap();
    client.fork(&fork).unwrap();
}

#[test]
fn there_are_as_many_sessions_as_there_may_be() {
    let directory = tempfile::tempdir().unwrap();
    let options = ServiceOptions { sessions_max: 2, ..ServiceOptions::default() };
    let _served = Served::start(directory.path(), memory(), options);
    let mut client = connect(directory.path(), WAYS[0]);
    let open = StateOpen { fork: "main".into(), lease_ms: None };
    let (first, second) = (client.session("main"), client.session("main"));
    assert_eq!(code(client.open(&open)), "sessions_full");
    client.close(&StateClose { session: first.into() }).unwrap();
    let third = client.session("main");
    assert_eq!(code(client.open(&open)), "sessions_full");
    // Those that were let in are none the worse for it.
    for session in [&second, &third] {
        client.begin(session).unwrap();
        client.set(session, session, "1").unwrap();
        client.keep(session).unwrap();
    }
    assert_eq!(client.all("main").unwrap().len(), 2);
}

#[test]
fn a_lease_that_ends_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let options = ServiceOptions { sessions_max: 1, ..ServiceOptions::default() };
    let served = Served::start(directory.path(), memory(), options);
    let mut client = connect(directory.path(), WAYS[0]);
    let open = StateOpen { fork: "main".into(), lease_ms: Some(4_000) };
    let session = client.open(&open).unwrap().session.into_owned();
    client.begin(&session).unwrap();
    client.set(&session, "a", "1").unwrap();
    let open = StateOpen { fork: "main".into(), lease_ms: None };
    std::thread::sleep(std::time::Duration::from_millis(4_100));
    assert_eq!(code(client.keep(&session)), "session_expired");
    served.service.keep_house();
    assert_eq!(client.value("main", "a").unwrap(), None);
    client.open(&open).unwrap();
}

#[test]
fn a_write_is_durable_when_it_is_answered_and_a_session_is_lost_with_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let open = || store(directory.path(), Durability::Sync);
    let served = Served::start(directory.path(), open(), ServiceOptions::default());
    let (session, fork, root) = {
        let mut clients = WAYS.map(|way| connect(directory.path(), way));
        for (n, client) in clients.iter_mut().enumerate() {
            for key in 0..20 {
                client.set("main", &format!("{n}-{key}"), "1").unwrap();
                let durable = served.service.state().unwrap();
                let held = durable.get(durable.main(), thalweg_state::View::Committed, &format!("{n}-{key}"));
                assert!(held.unwrap().is_some());
            }
        }
        let [client, _] = &mut clients;
        let fork = client.fork(&StateFork { parent: "main".into(), offset: None }).unwrap().fork.into_owned();
        client.set(&fork, "only", "here").unwrap();
        let session = client.session(&fork);
        client.begin(&session).unwrap();
        client.set(&session, "never", "kept").unwrap();
        (session, fork.clone(), client.digest(&fork).unwrap())
    };
    let old = served.end();
    old.close().unwrap();
    drop(old);
    let _served = Served::start(directory.path(), open(), ServiceOptions::default());
    let mut client = connect(directory.path(), WAYS[1]);
    assert_eq!(code(client.keep(&session)), "session_lost");
    assert_eq!(client.digest(&fork).unwrap(), root);
    assert_eq!(client.all("main").unwrap().len(), 40);
    assert_eq!(client.value(&fork, "never").unwrap(), None);
}

#[test]
fn long_calls_keep_nobody_waiting_and_keep_their_place() {
    over_each_way(|client, _| {
        let many: Vec<(String, Option<String>)> =
            (0..20_000).map(|n| (format!("{n:06}"), Some("1".into()))).collect();
        let many: Vec<(&str, Option<&str>)> =
            many.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
        client.batch(&batch("main", &many)).unwrap();
        let count = StateCount { place: "main".into(), start: None, until: None, view: Some(View::Pending) };
        assert_eq!(client.count(&count).unwrap().count, 20_000);
        let scan = StateScan { place: "main".into(), start: None, limit: Some(u32::MAX), view: None };
        assert_eq!(client.scan(&scan).unwrap().entries.len(), 10_000);
        let session = client.session("main");
        client.begin(&session).unwrap();
        let gone: Vec<_> = many.iter().map(|(key, _)| (*key, None)).collect();
        client.batch(&batch(&session, &gone)).unwrap();
        assert_eq!(client.all(&session).unwrap(), []);
        client.keep(&session).unwrap();
        assert_eq!(client.count(&count).unwrap().count, 0);
    });
}

#[test]
fn more_long_reads_than_threads_are_all_answered_and_writes_go_on_between_them() {
    for way in WAYS {
        let directory = tempfile::tempdir().unwrap();
        let options = ServiceOptions { threads: 1, ..ServiceOptions::default() };
        let _served = Served::start(directory.path(), memory(), options);
        let many: Vec<String> = (0..40_000).map(|n| format!("{n:06}")).collect();
        let many: Vec<(&str, Option<&str>)> = many.iter().map(|key| (&**key, Some("1"))).collect();
        connect(directory.path(), way).batch(&batch("main", &many)).unwrap();
        std::thread::scope(|scope| {
            for reader in 0..6 {
                let mut client = connect(directory.path(), way);
                scope.spawn(move || {
                    for view in [None, Some(View::Pending)].into_iter().cycle().take(30) {
                        let until = Some("x".into());
                        let count = StateCount { place: "main".into(), start: None, until, view };
                        assert_eq!(client.count(&count).unwrap().count, 40_000, "reader {reader}");
                    }
                });
            }
            let mut client = connect(directory.path(), way);
            for n in 0..60 {
                client.set("main", &format!("x{n}"), "1").unwrap();
            }
        });
    }
}

#[test]
fn a_state_whose_name_is_taken_by_something_else_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let store = memory();
    drop(State::open(&store, "state", Default::default()).unwrap());
    let log = store.find(b"state/main").unwrap();
    store.append(&log, b"something else", 1).unwrap();
    let _served = Served::start(directory.path(), store, ServiceOptions::default());
    let mut client = connect(directory.path(), WAYS[0]);
    assert_eq!(code(client.value("main", "a")), "foreign");
    assert_eq!(code(client.set("main", "a", "1")), "foreign");
}
