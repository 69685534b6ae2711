//! Sessions: snapshots, commits, rollbacks, and how much they may hold.

use super::*;

#[test]
fn a_snapshot_that_is_pending_is_committed_by_the_next() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let mut session = state.session(state.main()).unwrap();
    session.snapshot(1).unwrap();
    session.write(put("a", "1"), 1).unwrap();
    assert_eq!(state.get(state.main(), View::Pending, "a").unwrap(), None);
    let receipt = session.snapshot(2).unwrap();
    assert!(receipt.next > receipt.first);
    session.write(delete("a"), 2).unwrap();
    session.rollback().unwrap();
    assert_eq!(session.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(session.commit(3).unwrap().next, receipt.next, "nothing to commit");
}

#[test]
fn a_snapshot_that_is_asked_for_again_conflicts_with_nobody() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let mut session = state.session(state.main()).unwrap();
    session.snapshot(1).unwrap();
    session.write(put("a", "1"), 1).unwrap();
    let committed = session.snapshot(2).unwrap();
    let others = state.write(state.main(), &put("b", "1"), 3).unwrap();
    // The answer was not heard, and nothing was written since that could be lost.
    let again = session.snapshot(4).unwrap();
    assert_eq!((again.ticket, again.first, again.next), (committed.ticket, committed.first, others.next));
    assert_eq!(session.get("b").unwrap().as_deref(), Some(&b"1"[..]));
    state.write(state.main(), &put("c", "1"), 5).unwrap();
    session.write(put("a", "2"), 5).unwrap();
    assert!(matches!(session.snapshot(6), Err(Error::Conflict { .. })), "what is written does conflict");
    session.rollback().unwrap();
    session.snapshot(7).unwrap();
    let seen = state.offset(state.main(), View::Pending).unwrap();
    let others = state.write(state.main(), &put("d", "1"), 8).unwrap();
    assert!(others.first == seen && others.next > seen);
    // What was only read is one moment of the fork, whatever came after it.
    let read = session.commit(9).unwrap();
    assert_eq!((read.first, read.next, session.is_pending()), (seen, seen, false));
    assert!([0, others.ticket].contains(&read.ticket), "as durable as what was read");
    assert_eq!(session.commit(10).unwrap(), read, "again");
    assert_eq!(session.get("d").unwrap().as_deref(), Some(&b"1"[..]));
    let (fork, _) = state.fork(state.main(), 11).unwrap();
    let mut session = state.session(fork).unwrap();
    session.snapshot(12).unwrap();
    state.drop_fork(fork, 13).unwrap();
    assert!(matches!(session.commit(14), Err(Error::NoFork(_))));
}

#[test]
fn a_commit_without_a_snapshot_says_where_the_fork_ended() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let write = |value: &str| state.write(state.main(), &put("a", value), 1).unwrap().next;
    let begun = write("1");
    let mut session = state.session(state.main()).unwrap();
    assert_eq!(session.commit(1).unwrap().next, begun, "where it was when the session began");
    let written = session.write(put("a", "2"), 1).unwrap();
    assert_eq!(session.commit(1).unwrap(), written, "what it wrote itself");
    let others = write("3");
    assert_eq!(session.commit(1).unwrap(), written, "again");
    assert_eq!(session.snapshot(1).unwrap().next, others);
    session.rollback().unwrap();
    assert_eq!(session.commit(1).unwrap().next, others, "what the snapshot was of");
}

#[test]
fn a_session_leaves_nothing_behind_and_writes_nothing_before_its_commit() {
    let store = memory();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let before = store.stats().staged_end;
    for _ in 0..100 {
        let mut session = state.session(state.main()).unwrap();
        session.snapshot(1).unwrap();
        session.write(put("a", "1"), 1).unwrap();
    }
    assert_eq!(store.stats().staged_end, before);
}

#[test]
fn what_a_session_takes_can_be_committed() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let mut session = state.session(state.main()).unwrap();
    session.snapshot(1).unwrap();
    let mut number = 0;
    let refused = loop {
        let few = (number..number + 10_000).map(|n| Change::Put(format!("{n:08}").into(), b"x"[..].into()));
        if let Err(refused) = session.write(few.collect(), 1) {
            break refused;
        }
        number += 10_000;
    };
    assert!(matches!(refused, Error::TooMuch { .. }), "{refused}");
    assert!(number >= 100_000);
    session.commit(1).unwrap();
    assert_eq!(state.map(state.main(), View::Committed).unwrap().len(), number);
}

#[test]
fn what_a_session_writes_over_again_takes_no_more_of_what_it_may_hold() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let mut session = state.session(state.main()).unwrap();
    session.snapshot(1).unwrap();
    let value = |length: usize| -> Changes {
        [Change::Put("a".into(), vec![7; length].into()), Change::Delete("b".into())].into_iter().collect()
    };
    for _ in 0..100 {
        session.write(value(1 << 20), 1).unwrap();
    }
    let held = state.sessions_bytes();
    assert!((1 << 20..2 << 20).contains(&held), "{held}");
    let refused = session.write(value(SESSION_BYTES_MAX), 1).unwrap_err();
    assert!(matches!(refused, Error::TooMuch { .. }), "{refused}");
    assert_eq!(state.sessions_bytes(), held, "what was refused takes nothing");
    session.write(value(10), 1).unwrap();
    assert!(state.sessions_bytes() < 1_000);
    session.commit(1).unwrap();
    assert_eq!(
        (contents(&state.map(state.main(), View::Committed).unwrap())["a"].len(), state.sessions_bytes()),
        (10, 0)
    );
}
