//! Forks: made, listed and dropped, many of them and large ones.

use super::*;
use crate::fork::LARGE_KEYS;
use crate::images::STEPS;
use std::sync::mpsc::channel;

/// Forks of forks, each of which has something of its own.
fn chain(state: &State, length: usize) -> Vec<ForkId> {
    let mut forks = vec![state.main()];
    for n in 0..length {
        let last = forks[n];
        state.write(last, &put("k", &n.to_string()), 1).unwrap();
        forks.push(state.fork(last, 1).unwrap().0);
    }
    forks
}

#[test]
fn each_fork_of_a_long_chain_is_opened_and_dropped_without_a_look_at_all_before_it() {
    const FORKS: usize = 400;
    for has_image in [false, true] {
        let store = memory();
        let state = State::open(&store, "s", Options::default()).unwrap();
        if has_image {
            state.checkpoint(state.main(), 1).unwrap();
        }
        let forks = chain(&state, FORKS);
        drop(state);
        STEPS.set(0);
        let state = State::open(&store, "s", Options::default()).unwrap();
        let opened = STEPS.take();
        for fork in &forks[1..] {
            state.drop_fork(*fork, 2).unwrap();
        }
        let dropped = STEPS.take();
        assert!(opened < FORKS * 10 && dropped < FORKS * 10, "{has_image}: {opened}, {dropped}");
    }
}

/// A search that goes on with one of two forks each time, and may drop what it has left behind.
#[test]
fn forks_that_share_their_branch_points_are_opened_in_a_few_steps_each() {
    const GENERATIONS: usize = 400;
    for case in 0..8 {
        let [has_image, writes, drops] = [1, 2, 4].map(|bit| case & bit > 0);
        let store = memory();
        let state = State::open(&store, "s", Options::default()).unwrap();
        state.write(state.main(), &put("k", "1"), 1).unwrap();
        if has_image {
            state.checkpoint(state.main(), 1).unwrap();
        }
        let mut last = state.main();
        for n in 0..GENERATIONS {
            if writes {
                state.write(last, &put("n", &n.to_string()), 1).unwrap();
            }
            let (next, _) = state.fork(last, 1).unwrap();
            state.fork(last, 1).unwrap();
            if drops && last != state.main() {
                state.drop_fork(last, 1).unwrap();
            }
            last = next;
        }
        let before: Vec<_> = state.fork_infos(0, usize::MAX);
        drop(state);
        STEPS.set(0);
        let state = State::open(&store, "s", Options::default()).unwrap();
        let opened = STEPS.take();
        assert!(opened < GENERATIONS * 40, "image {has_image}, writes {writes}, drops {drops}: {opened}");
        assert_eq!(state.fork_infos(0, usize::MAX), before);
    }
}

#[test]
fn a_look_at_all_forks_keeps_nobody_from_making_one() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let main = state.main();
    let (other, _) = state.fork(main, 1).unwrap();
    let looks: [fn(&State); 2] = [|state| _ = state.forks(), |state| _ = state.fork_infos(0, usize::MAX)];
    for look in looks {
        let still = state.find(other).unwrap();
        let still = still.stand_still();
        let is_made = std::thread::scope(|scope| {
            let state = &state;
            let looking = scope.spawn(move || look(state));
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(!looking.is_finished(), "it waits for the other");
            let (made, is_made) = channel();
            scope.spawn(move || made.send(state.fork(main, 1).is_ok()));
            let is_made = is_made.recv_timeout(std::time::Duration::from_secs(10));
            drop(still);
            is_made
        });
        assert_eq!(is_made, Ok(true), "it waits for who looks at all");
    }
}

/// A reactor that drops a fork has others to serve.
#[test]
fn a_large_fork_is_let_go_of_in_the_background_where_its_drop_is_durable_at_once() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let large = |value: &str| -> Changes {
        (0..=LARGE_KEYS).map(|n| Change::Put(n.to_string().into(), value.as_bytes().into())).collect()
    };
    let held = |fork| {
        let value = state.get(fork, View::Pending, "1").unwrap().unwrap();
        std::sync::Arc::downgrade(&value)
    };
    let (fork, _) = state.fork(state.main(), 1).unwrap();
    let then = state.write(fork, &large("then"), 1).unwrap().next;
    state.write(fork, &large("now"), 2).unwrap();
    let (past, _) = state.fork_at(fork, then, 3).unwrap();
    let (rooted, _) = state.fork(fork, 4).unwrap();
    state.write(rooted, &large("rooted"), 4).unwrap();
    state.root(rooted, View::Pending).unwrap();
    let holds = [held(fork), held(past), held(rooted)];
    let none: Changes = (0..=LARGE_KEYS).map(|n| Change::Delete(n.to_string().into())).collect();
    for fork in [past, rooted] {
        state.write(fork, &none, 4).unwrap();
    }
    // What waits to be let go of waits for this.
    let (go, may_go) = channel::<()>();
    let (begun, is_begun) = channel();
    state.shared.background_drop.add(OnDrop(Some(move || {
        begun.send(()).unwrap();
        may_go.recv().unwrap();
    })));
    is_begun.recv().unwrap();
    for fork in [past, rooted, fork] {
        state.drop_fork(fork, 5).unwrap();
    }
    let is_held = holds.each_ref().map(|value| value.strong_count() > 0);
    go.send(()).unwrap();
    assert_eq!(is_held, [true; 3], "let go of by the caller");
    while holds.iter().any(|value| value.strong_count() > 0) {
        std::thread::yield_now();
    }
}

/// Does something when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|act| act());
    }
}

#[test]
fn forks_are_streams_and_bounded_with_them() {
    let store = memory();
    let state = State::open(&store, "s", Options { logs_max: 3, ..Options::default() }).unwrap();
    let main = state.main();
    let (fork, _) = state.fork(main, 1).unwrap();
    state.fork(fork, 1).unwrap();
    assert!(matches!(state.fork(main, 1), Err(Error::TooManyForks { limit: 3 })));
    assert!(matches!(state.fork_at(main, 0, 1), Err(Error::TooManyForks { limit: 3 })));
    state.write(fork, &put("a", "1"), 1).unwrap();
    state.drop_fork(state.forks()[2], 2).unwrap();
    state.fork(main, 3).unwrap();
}

#[test]
fn a_log_of_the_last_number_there_is_leaves_the_others_to_forks() {
    for taken in [u64::MAX, u64::MAX - 1] {
        let store = memory();
        let state = State::open(&store, "s", Options::default()).unwrap();
        let forks: Vec<_> = (0..3).map(|_| state.fork(state.main(), 1).unwrap().0).collect();
        state.drop_fork(forks[0], 1).unwrap();
        state.drop_fork(forks[1], 1).unwrap();
        drop(state);
        let name = format!("s/forks/{taken}");
        store.create(name.as_bytes(), &crate::state::config(), None, &Default::default(), None).unwrap();
        let state = State::open(&store, "s", Options::default()).unwrap();
        for _ in 0..3 {
            state.fork(state.main(), 2).unwrap();
        }
        assert_eq!(state.forks().len(), 1 + 5);
        let name = |fork| state.find(fork).unwrap().log.name().to_vec();
        let names: Vec<_> = state.forks().into_iter().map(name).collect();
        for number in [2, 3, 4, 5] {
            assert!(names.contains(&format!("s/forks/{number}").into_bytes()), "{taken}: {number}");
        }
    }
}

#[test]
fn a_log_whose_number_is_not_written_as_a_fork_s_does_not_take_that_number_from_one() {
    for name in ["s/forks/+7", "s/forks/07", "s/forks/7+", "s/forks/7 "] {
        let store = memory();
        store.create(name.as_bytes(), &crate::state::config(), None, &Default::default(), None).unwrap();
        let state = State::open(&store, "s", Options::default()).unwrap();
        let (fork, _) = state.fork(state.main(), 1).unwrap();
        assert_eq!(state.find(fork).unwrap().log.name(), b"s/forks/0", "beside {name}");
    }
}

#[test]
fn a_log_whose_name_has_no_number_is_no_fork_and_left_alone() {
    for name in ["s/forks/notes", "s/forks/07", "s/forks/"] {
        let store = memory();
        let (log, _) =
            store.create(name.as_bytes(), &crate::state::config(), None, &Default::default(), None).unwrap();
        let list = || State::open(&store, "s", Options::default()).map(|state| state.forks().len());
        assert_eq!(list().unwrap(), 1, "{name}");
        store.append(&log, b"not a change", 1).unwrap();
        assert_eq!(list().unwrap(), 1, "{name}");
        assert_eq!(log.staged().unwrap().tail, 12);
    }
}
