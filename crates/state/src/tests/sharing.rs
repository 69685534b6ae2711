//! What forks, past states and digests share in memory, and how long they are kept.

use super::*;

/// Whether what a key holds is one value in memory.
fn is_one(state: &State, forks: &[ForkId], key: &str) -> bool {
    let values: Vec<_> =
        forks.iter().map(|fork| state.get(*fork, View::Committed, key).unwrap().unwrap()).collect();
    values.iter().all(|value| std::sync::Arc::ptr_eq(value, &values[0]))
}

#[test]
fn forks_share_in_memory_after_a_start_what_they_share_in_the_logs() {
    for history in [History::Kept, History::Trimmed] {
        let store = memory();
        let options = Options { history, ..Options::default() };
        let state = State::open(&store, "s", options.clone()).unwrap();
        let main = state.main();
        state.write(main, &put("old", "1"), 1).unwrap();
        state.checkpoint(main, 1).unwrap();
        let mut forks = Vec::new();
        for n in 0..6 {
            state.write(main, &put("new", &n.to_string()), 2).unwrap();
            // Two of each, one of which goes on and has an image of its own.
            for goes_on in [false, true] {
                let (fork, _) = state.fork(main, 2).unwrap();
                state.write(fork, &put("own", &n.to_string()), 2).unwrap();
                if goes_on {
                    state.checkpoint(fork, 2).unwrap();
                }
                forks.push(fork);
            }
        }
        // The main line has an image behind all of them.
        state.write(main, &put("new", "last"), 3).unwrap();
        state.checkpoint(main, 3).unwrap();
        let before: Vec<_> = forks.iter().map(|fork| state.root(*fork, View::Committed).unwrap()).collect();
        drop(state);
        let state = State::open(&store, "s", options).unwrap();
        assert!(state.damage().is_empty());
        let after: Vec<_> = forks.iter().map(|fork| state.root(*fork, View::Committed).unwrap()).collect();
        assert_eq!(before, after);
        forks.chunks(2).for_each(|pair| assert!(is_one(&state, pair, "new"), "{history:?}"));
        forks.push(main);
        assert!(is_one(&state, &forks, "old"), "{history:?}");
    }
}

#[test]
fn forks_of_dropped_forks_share_in_memory_after_a_start_what_they_share_in_the_logs() {
    let store = memory();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    state.write(main, &put("old", "1"), 1).unwrap();
    let mut forks = vec![main];
    for n in 0..3 {
        state.write(main, &put("new", &n.to_string()), 1).unwrap();
        let (parent, _) = state.fork(main, 1).unwrap();
        state.write(parent, &put("of the parent", "1"), 1).unwrap();
        forks.extend([(); 2].map(|()| state.fork(parent, 1).unwrap().0));
        state.drop_fork(parent, 2).unwrap();
    }
    drop(state);
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert!(is_one(&state, &forks, "old"));
    for pair in forks[1..].chunks(2) {
        assert!(is_one(&state, pair, "new") && is_one(&state, pair, "of the parent"));
    }
}

#[test]
fn forks_of_what_was_copy_nothing_that_is_there_already() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let main = state.main();
    state.write(main, &put("old", "1"), 1).unwrap();
    let ends = [1, 2, 3].map(|n| state.write(main, &put("new", &n.to_string()), 1).unwrap().next);
    let fork_at = |offset| state.fork_at(main, offset, 2).unwrap().0;
    let map = |fork| state.map(fork, View::Committed).unwrap();
    let now = fork_at(ends[2]);
    assert!(map(now).is_same(&map(main)) && state.at(main, ends[2]).unwrap().0.is_same(&map(main)));
    // Of one place there is one state, whichever forks of it there are, and whatever became of them.
    let (first, second) = (fork_at(ends[0]), fork_at(ends[0]));
    state.write(first, &put("own", "1"), 3).unwrap();
    state.drop_fork(first, 4).unwrap();
    let third = fork_at(ends[0]);
    assert!(map(second).is_same(&map(third)) && state.at(main, ends[0]).unwrap().0.is_same(&map(third)));
    // Of other places that which differs.
    let nearby = fork_at(ends[1]);
    assert!(is_one(&state, &[main, now, second, third, nearby], "old"));
    // What no place of the past has any more is shared with the last that had it.
    state.write(main, &put("old", "2"), 5).unwrap();
    state.checkpoint(main, 5).unwrap();
    assert!(is_one(&state, &[second, nearby, fork_at(ends[1])], "old"));
    let between = state.write(main, &put("new", "9"), 6).unwrap().next;
    state.write(main, &put("new", "10"), 6).unwrap();
    assert!(is_one(&state, &[main, fork_at(between)], "old"));
}

#[test]
fn a_root_keeps_nothing_of_a_session_that_is_taken_back() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let main = state.main();
    for held in ["", "1"] {
        if !held.is_empty() {
            state.write(main, &put("a", held), 1).unwrap();
        }
        let mut session = state.session(main).unwrap();
        session.snapshot(1).unwrap();
        let value: Value = b"2"[..].into();
        let written = std::sync::Arc::downgrade(&value);
        session.write([Change::Put("b".into(), value)].into_iter().collect(), 1).unwrap();
        let mut map = state.map(main, View::Pending).unwrap();
        map.apply(&put("b", "2"));
        assert_eq!(session.root().unwrap(), Digest::of(&map).root());
        let (fork, _) = state.fork(main, 1).unwrap();
        session.rollback().unwrap();
        assert!(written.upgrade().is_none(), "somebody holds on to what was taken back");
        assert_eq!(state.root(fork, View::Pending).unwrap(), session.root().unwrap());
    }
}

#[test]
fn a_root_of_a_snapshot_that_its_fork_has_left_behind_holds_it_no_longer_than_the_session() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let main = state.main();
    state.write(main, &put("a", "1"), 1).unwrap();
    let then = std::sync::Arc::downgrade(&state.get(main, View::Pending, "a").unwrap().unwrap());
    let before = state.root(main, View::Pending).unwrap();
    let mut session = state.session(main).unwrap();
    session.snapshot(1).unwrap();
    state.write(main, &put("a", "2"), 2).unwrap();
    let now = state.root(main, View::Pending).unwrap();
    for changes in [None, Some(put("b", "1"))] {
        if let Some(changes) = changes {
            session.write(changes, 2).unwrap();
        }
        assert_eq!(session.root().unwrap() == before, session.changes() == 0);
    }
    session.rollback().unwrap();
    assert!(then.upgrade().is_none(), "somebody holds on to what the snapshot was of");
    assert_eq!((state.root(main, View::Pending).unwrap(), session.root().unwrap()), (now, now));
}

#[test]
fn a_session_keeps_the_digest_of_a_snapshot_that_its_fork_has_left_behind_and_the_fork_does_not() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let main = state.main();
    state.write(main, &put("a", "1"), 1).unwrap();
    let then = std::sync::Arc::downgrade(&state.get(main, View::Pending, "a").unwrap().unwrap());
    let mut session = state.session(main).unwrap();
    session.snapshot(1).unwrap();
    state.write(main, &put("a", "2"), 2).unwrap();
    // Nothing has asked for a root of the fork.
    assert!(!session.read_view().unwrap().is_near(0));
    let root = session.root().unwrap();
    assert!(session.read_view().unwrap().is_near(0), "it is computed anew each time");
    assert_eq!(session.root().unwrap(), root);
    session.write(put("b", "1"), 2).unwrap();
    assert!(session.read_view().unwrap().is_near(1));
    assert_ne!(session.root().unwrap(), root);
    session.rollback().unwrap();
    assert!(then.upgrade().is_none(), "the fork holds on to what the snapshot was of");
}

#[test]
fn forks_share_what_roots_are_computed_from_and_have_none_before_somebody_asks() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let main = state.main();
    state.write(main, &put("a", "1"), 1).unwrap();
    let rooted = |fork| state.find(fork).unwrap().rooted();
    let (first, _) = state.fork(main, 1).unwrap();
    assert!(rooted(main).is_none() && rooted(first).is_none());
    let root = state.root(main, View::Committed).unwrap();
    let (second, _) = state.fork(main, 1).unwrap();
    let shared = rooted(main).unwrap();
    assert!(std::sync::Arc::ptr_eq(&shared, &rooted(second).unwrap()));
    state.write(second, &put("b", "1"), 1).unwrap();
    assert_ne!(state.root(second, View::Committed).unwrap(), root);
    assert!(std::sync::Arc::ptr_eq(&shared, &rooted(main).unwrap()), "what a fork asks for is its own");
}
