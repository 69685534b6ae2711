//! Images: when they are written, what a start does with them, and when they are removed.

use super::*;
use thalweg_log::CommitError;

#[test]
fn what_a_start_replays_has_a_bound_where_forks_are_made_of_forks_that_are_dropped() {
    let (limit, directory) = (4_000, tempfile::tempdir().unwrap());
    let store = on_disk(directory.path(), Durability::Os);
    let options = || Options { image_bytes: limit, ..Options::default() };
    let state = State::open(&store, "s", options()).unwrap();
    let (mut fork, mut time) = (state.main(), 0);
    for generation in 0..40 {
        time += 1;
        let (next, _) = state.fork(fork, time).unwrap();
        state.write(next, &put("k", &generation.to_string().repeat(250)), time).unwrap();
        if fork != state.main() {
            state.drop_fork(fork, time).unwrap();
        }
        state.maintain(time).unwrap();
        fork = next;
    }
    let newest = state
        .shared
        .images
        .lock()
        .under(&state.find(fork).unwrap().log, u64::MAX)
        .next()
        .map(|image| image.offset);
    let left = state.offset(fork, View::Pending).unwrap() - newest.unwrap();
    assert!(left < 2 * limit, "{left} bytes would be replayed");
    let root = state.root(fork, View::Committed).unwrap();
    drop(state);
    store.close().unwrap();
    drop(store);
    let state = State::open(&on_disk(directory.path(), Durability::Os), "s", options()).unwrap();
    assert_eq!((state.damage().len(), state.root(fork, View::Committed).unwrap()), (0, root));
}

pub(super) fn images_in(store: &Store) -> usize {
    let mut images = 0;
    store.visit(|log| images += usize::from(log.name().starts_with(b"s/images/") && log.staged().is_some()));
    images
}

pub(super) fn find_image(store: &Store, fork: ForkId, offset: u64) -> std::sync::Arc<thalweg_log::Log> {
    let mut found = None;
    store.visit(|log| {
        let is_it =
            crate::image::Image::of(log, "s/images/").is_some_and(|image| image.id() == (fork, offset));
        if is_it && log.staged().is_some() {
            assert!(found.replace(log.clone()).is_none(), "there are two");
        }
    });
    found.unwrap()
}

#[test]
fn a_log_whose_name_is_not_as_an_image_s_is_no_image_and_stays() {
    let store = memory();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    let end = state.write(main, &put("a", "1"), 1).unwrap().next;
    drop(state);
    let of = |fork: &str, offset: &str| format!("s/images/{fork}-{offset}");
    let (fork, offset) = (main.to_string(), end.to_string());
    let theirs = [
        of(&format!("+{fork}"), &offset),
        of(&format!("0{fork}"), &offset),
        of(&fork, &format!("+{offset}")),
        of(&fork, &format!("0{offset}")),
        of(&fork, ""),
    ];
    for (name, close) in theirs.iter().zip([false, true].into_iter().cycle()) {
        let commit = thalweg_log::Commit { payload: b"theirs", close, ..Default::default() };
        store.create(name.as_bytes(), &crate::state::config(), None, &commit, None).unwrap();
    }
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert!(state.damage().is_empty());
    state.checkpoint(main, 2).unwrap();
    drop(state);
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert_eq!((state.damage().len(), state.shared.images.lock().all().count()), (0, 1));
    for name in theirs {
        assert!(store.find(name.as_bytes()).is_some_and(|log| log.staged().is_some()), "{name}");
    }
}

#[test]
fn entries_that_were_let_go_of_are_not_passed_over() {
    let store = memory();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    let ends = [1, 2, 3].map(|n| state.write(main, &put("a", &n.to_string()), 1).unwrap().next);
    let log = state.find(main).unwrap().log.clone();
    let seen = |from| {
        let mut seen = Vec::new();
        strict_read::entries(&store, &log, from, |entry| {
            seen.push(entry.offset);
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .map(|()| seen)
    };
    assert_eq!(seen(0).unwrap(), [0, ends[0], ends[1]]);
    for (trim, first) in [(ends[1], ends[1]), (ends[2], ends[2])] {
        let version = log.staged().unwrap().version;
        let commit = thalweg_log::Commit { trim: Some(trim), time: 2, ..Default::default() };
        store.commit(&log, version, &commit, None).unwrap();
        for from in [0, ends[0]] {
            let Err(Error::Read(thalweg_log::ReadError::Purged { from: missing, first: begins })) =
                seen(from)
            else {
                panic!("{:?}", seen(from))
            };
            assert_eq!((missing, begins), (from, first));
        }
        assert_eq!(seen(first).unwrap().len(), usize::from(first < ends[2]));
    }
}

#[test]
fn what_was_is_found_while_images_come_and_go() {
    what_was_is_found(History::Kept);
    what_was_is_found(History::Trimmed);
}

fn what_was_is_found(history: History) {
    const KEYS: u64 = 8;
    let state = State::open(&memory(), "s", Options { history, ..Options::default() }).unwrap();
    let main = state.main();
    let passing = state.fork(main, 1).unwrap().0;
    let is_over = std::sync::OnceLock::new();
    // Numbers are written one behind the other, each to the next key.
    let is_one_that_was = |map: &Map| {
        let mut numbers: Vec<u64> =
            contents(map).into_values().map(|n| String::from_utf8(n).unwrap().parse().unwrap()).collect();
        numbers.sort_unstable();
        let first = numbers.first().copied().unwrap_or(0);
        (first == 0 || numbers.len() as u64 == KEYS)
            && numbers.iter().copied().eq((first..).take(numbers.len()))
    };
    let look = || {
        while is_over.get().is_none() {
            for fork in [main, passing] {
                let Ok(end) = state.offset(fork, View::Pending) else { continue };
                match state.at(fork, end) {
                    Ok((map, _)) => assert!(is_one_that_was(&map), "at {end}: {:?}", contents(&map)),
                    Err(Error::NoFork(gone)) => assert_eq!(gone, passing),
                    // By now an image further on stands for it.
                    Err(Error::NoState { .. })
                        if history == History::Trimmed
                            && state.offset(fork, View::Pending).ok() != Some(end) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    let image = || {
        while is_over.get().is_none() {
            for fork in [main, passing] {
                assert!(matches!(state.checkpoint(fork, 1), Ok(_) | Err(Error::NoFork(_))));
            }
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(look)));
        scope.spawn(image);
        for n in 0..6_000 {
            for fork in [main, passing] {
                state.write(fork, &put(&format!("k{}", n % KEYS), &n.to_string()), 1).unwrap();
            }
            if n % 8 == 0 {
                state.checkpoint(main, 1).unwrap();
                state.checkpoint(passing, 1).unwrap();
            }
        }
        state.drop_fork(passing, 2).unwrap();
        is_over.set(()).unwrap();
    });
}

#[test]
fn images_are_written_when_they_are_due_and_forks_keep_what_they_need() {
    let store = memory();
    let options = Options { history: History::Trimmed, image_bytes: 2_000, ..Options::default() };
    let state = State::open(&store, "s", options.clone()).unwrap();
    let main = state.main();
    assert_eq!(state.maintain(1).unwrap(), 0);
    let write = |fork, n: u64| {
        state.write(fork, &put(&format!("k{}", n % 7), &n.to_string()), n).unwrap();
    };
    (0..30).for_each(|n| write(main, n));
    assert!(state.is_due());
    assert_eq!(state.maintain(1).unwrap(), 1);
    let (fork, _) = state.fork(main, 1).unwrap();
    write(fork, 99);
    assert!(!state.is_due(), "a fork has only its own behind it");
    let root = state.root(fork, View::Committed).unwrap();
    for round in 0..3 {
        (0..30).for_each(|n| write(main, n + round));
        assert_eq!(state.maintain(1).unwrap(), 1);
    }
    assert_eq!(images_in(&store), 2, "the newest, and the one that the fork began with");
    let first = store.find(b"s/main").unwrap().staged().unwrap().first;
    assert!(first > 0 && matches!(state.at(main, first - 1), Err(Error::NoState { .. })));
    drop(state);
    let state = State::open(&store, "s", options).unwrap();
    assert_eq!(state.root(fork, View::Committed).unwrap(), root);
    state.drop_fork(fork, 2).unwrap();
    assert_eq!(images_in(&store), 1);
}

/// Housekeeping asks every few seconds, however many forks there are.
#[test]
fn forks_that_are_not_due_for_an_image_are_not_looked_at() {
    let store = memory();
    let options = Options { image_bytes: 1_000, ..Options::default() };
    let state = State::open(&store, "s", options.clone()).unwrap();
    let main = state.main();
    let (other, _) = state.fork(main, 1).unwrap();
    let (due, _) = state.fork(main, 1).unwrap();
    state.write(due, &put("a", &"1".repeat(1_000)), 1).unwrap();
    for reopened in [false, true] {
        let state = if reopened { State::open(&store, "s", options.clone()).unwrap() } else { state.clone() };
        let still = state.find(other).unwrap();
        // Looking at this one would take for ever.
        let _still = still.stand_still();
        assert_eq!((state.is_due(), state.maintain(2).unwrap(), state.is_due()), (true, 1, false));
        state.write(due, &put("a", &"2".repeat(1_000)), 1).unwrap();
    }
}

/// A fork whose parent goes may have more to replay from then on.
#[test]
fn a_fork_is_due_for_an_image_when_its_parent_is_dropped_and_only_then() {
    let store = memory();
    let state = State::open(&store, "s", Options { image_bytes: 1_000, ..Options::default() }).unwrap();
    let (parent, _) = state.fork(state.main(), 1).unwrap();
    state.write(parent, &put("a", &"1".repeat(600)), 1).unwrap();
    let (child, _) = state.fork(parent, 1).unwrap();
    state.write(child, &put("b", &"1".repeat(600)), 1).unwrap();
    assert!(!state.is_due());
    state.drop_fork(parent, 2).unwrap();
    assert!(state.is_due());
    assert_eq!(state.maintain(3).unwrap(), 1);
    assert!(!state.is_due());
    state.write(child, &put("b", &"2".repeat(1_000)), 4).unwrap();
    assert!(state.is_due());
    state.drop_fork(child, 5).unwrap();
    assert!(!state.is_due(), "it is gone");
}

/// What a start finds of others may be gone at the next.
#[test]
fn a_fork_is_due_for_an_image_after_a_start_whatever_others_have() {
    let store = memory();
    let options = || Options { image_bytes: 1_000, ..Options::default() };
    let state = State::open(&store, "s", options()).unwrap();
    let main = state.main();
    state.write(main, &put("a", &"1".repeat(600)), 1).unwrap();
    let (fork, _) = state.fork(main, 1).unwrap();
    state.write(fork, &put("b", &"1".repeat(600)), 1).unwrap();
    let (imaged, _) = state.fork(main, 1).unwrap();
    state.checkpoint(imaged, 2).unwrap();
    drop(state);
    let state = State::open(&store, "s", options()).unwrap();
    assert!(!state.is_due(), "a fork has only its own behind it");
    state.write(main, &put("a", &"2".repeat(600)), 3).unwrap();
    drop(state);
    let state = State::open(&store, "s", options()).unwrap();
    assert_eq!(state.maintain(4).unwrap(), 1, "the image of a fork is not its own");
    assert!(state.is_due(), "nobody is replayed up to where the fork branched off any more");
    let (middle, _) = state.fork(fork, 5).unwrap();
    let (last, _) = state.fork(middle, 5).unwrap();
    state.write(last, &put("c", &"1".repeat(600)), 5).unwrap();
    state.drop_fork(middle, 6).unwrap();
    drop(state);
    let state = State::open(&store, "s", options()).unwrap();
    state.drop_fork(fork, 7).unwrap();
    assert!(state.is_due(), "nobody else is replayed up to where it branched off");
    assert_eq!(state.maintain(8).unwrap(), 1);
    assert_eq!(state.map(last, View::Committed).unwrap().len(), 3);
}

#[test]
fn a_trimmed_store_does_not_grow_while_a_fork_stays() {
    let store = memory();
    let options = Options { history: History::Trimmed, image_bytes: 100_000, ..Options::default() };
    let state = State::open(&store, "s", options).unwrap();
    let main = state.main();
    let mut serial = 0;
    let mut round = |fork| {
        for _ in 0..50 {
            serial += 1;
            let value = format!("{serial:05000}");
            state.write(fork, &put(&format!("k{}", serial % 3), &value), serial).unwrap();
        }
        state.maintain(1).unwrap();
        store.stats().live_bytes
    };
    round(main);
    let (fork, _) = state.fork(main, 1).unwrap();
    let root = state.root(fork, View::Committed).unwrap();
    let held: Vec<u64> = (0..12).map(|_| round(main)).collect();
    assert!(held[11] < held[0] + 300_000, "{held:?}");
    assert_eq!(state.root(fork, View::Committed).unwrap(), root);
    // What it has an image of, the line that it branched off from need not keep.
    let held: Vec<u64> = (0..12).map(|_| round(fork)).collect();
    assert!(held[11] < held[0] + 300_000, "{held:?}");
}

/// The replay of its parent begins behind where it branched off from then on.
#[test]
fn a_fork_is_due_once_an_image_of_its_parent_has_a_start_replay_more_of_it() {
    let store = memory();
    let options = Options { image_bytes: 4_000, ..Options::default() };
    let state = State::open(&store, "s", options.clone()).unwrap();
    let main = state.main();
    let grow = |state: &State, fork, key| state.write(fork, &put(key, &"x".repeat(2_500)), 1).unwrap().next;
    grow(&state, main, "a");
    let (fork, _) = state.fork(main, 1).unwrap();
    let end = grow(&state, fork, "b");
    grow(&state, main, "c");
    let (young, _) = state.fork(main, 1).unwrap();
    let behind = |state: &State, fork| state.find(fork).unwrap().behind(end);
    assert!(behind(&state, fork) < 4_000);
    assert_eq!(state.maintain(2).unwrap(), 1, "the main line");
    assert!(state.is_due() && behind(&state, fork) == end && behind(&state, young) == 0);
    drop(state);
    let state = State::open(&store, "s", options).unwrap();
    assert!(state.is_due() && behind(&state, fork) == end && behind(&state, young) == 0);
    assert_eq!((state.maintain(3).unwrap(), state.is_due()), (1, false));
}

#[test]
fn a_fork_of_a_state_before_an_image_of_its_parent_is_due_as_after_a_start() {
    let store = memory();
    let options = Options { image_bytes: 1_000, ..Options::default() };
    let state = State::open(&store, "s", options.clone()).unwrap();
    let main = state.main();
    let grow = |state: &State, fork, n: usize| state.write(fork, &put("a", &"x".repeat(n)), 1).unwrap().next;
    let small = grow(&state, main, 100);
    let past = grow(&state, main, 2_000);
    let image = grow(&state, main, 100);
    assert_eq!(state.maintain(2).unwrap(), 1);
    let fork_at = |at| state.fork_at(main, at, 3).unwrap().0;
    let [short, of_image] = [small, image].map(fork_at);
    assert!(!state.is_due());
    let long = fork_at(past);
    let behind = |state: &State| {
        let forks = [(short, small), (of_image, image), (long, past)];
        forks.map(|(fork, end)| state.find(fork).unwrap().behind(end))
    };
    assert_eq!((state.is_due(), behind(&state)), (true, [small, 0, past]));
    drop(state);
    let state = State::open(&store, "s", options).unwrap();
    assert_eq!((state.is_due(), behind(&state)), (true, [small, 0, past]));
    assert_eq!((state.maintain(4).unwrap(), state.is_due()), (1, false));
}

/// Housekeeping may look while a fork is being made.
#[test]
fn a_fork_that_is_due_when_it_is_made_is_found_whoever_looks_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options { image_bytes: 1_000, ..Options::default() }).unwrap();
    let main = state.main();
    let grow = |n: usize| state.write(main, &put("a", &"x".repeat(n)), 1).unwrap();
    let await_durable = |ticket| {
        while !state.is_durable(ticket).unwrap() {
            std::thread::yield_now();
        }
    };
    let (past, last) = (grow(2_000).next, grow(100));
    await_durable(last.ticket);
    assert_eq!((state.maintain(2).unwrap(), state.is_due()), (1, false));
    let still = state.shared.durable.stand_still();
    std::thread::scope(|scope| {
        let made = scope.spawn(|| state.fork_at(main, past, 3).unwrap());
        while state.shared.branches.lock().is_empty() {
            std::thread::yield_now();
        }
        // The fork is in the store, and no other call finds it yet.
        for _ in 0..1_000 {
            assert!(!state.is_due());
            std::thread::yield_now();
        }
        drop(still);
        await_durable(made.join().unwrap().1.ticket);
    });
    assert!(state.is_due());
}

#[test]
fn an_image_looks_at_no_fork_that_branched_off_before_the_last_one() {
    let store = memory();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    for n in 0..3 {
        state.write(main, &put("a", &n.to_string()), 1).unwrap();
        for _ in 0..200 {
            state.fork(main, 1).unwrap();
        }
    }
    let steps = || {
        state.write(main, &put("b", "1"), 2).unwrap();
        crate::images::STEPS.set(0);
        state.checkpoint(main, 2).unwrap();
        crate::images::STEPS.get()
    };
    assert!(steps() >= 600);
    assert!(steps() < 20);
}

#[test]
fn a_fork_whose_image_cannot_be_written_keeps_no_other_waiting() {
    let store = memory();
    // Longer by a digit, the name of an image is longer than that of a log may be.
    let name = "s".repeat(usize::from(u16::MAX) - "/images/1-123".len());
    let state = State::open(&store, &name, Options { image_bytes: 1, ..Options::default() }).unwrap();
    let main = state.main();
    let (fork, _) = state.fork(main, 1).unwrap();
    let end = state.write(main, &put("a", "1"), 1).unwrap().next;
    // The last fork is the first to have its image written.
    let long = state.write(fork, &put("a", &"1".repeat(1_000)), 1).unwrap().next;
    let names = [(main, end), (fork, long)].map(|(fork, end)| format!("{name}/images/{fork}-{end}"));
    assert_eq!(names.each_ref().map(|name| name.len() > usize::from(u16::MAX)), [false, true]);
    let refused = state.maintain(2).unwrap_err();
    assert!(matches!(refused, Error::Commit(CommitError::BadName { .. })), "{refused}");
    let written = store.find(names[0].as_bytes()).unwrap();
    assert!(written.staged().is_some_and(|image| image.closed));
    assert!(state.is_due(), "the one that could not be");
}

#[test]
fn a_dropped_fork_takes_its_images_with_it_and_leaves_those_of_others() {
    let store = memory();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    state.write(main, &put("a", "1"), 1).unwrap();
    state.checkpoint(main, 1).unwrap();
    let (fork, _) = state.fork(main, 1).unwrap();
    state.write(fork, &put("b", "1"), 1).unwrap();
    state.checkpoint(fork, 1).unwrap();
    let (child, _) = state.fork(fork, 1).unwrap();
    assert_eq!(images_in(&store), 2);
    state.drop_fork(fork, 2).unwrap();
    assert_eq!(images_in(&store), 2, "the child begins with it");
    state.drop_fork(child, 3).unwrap();
    assert_eq!(images_in(&store), 1);
    // One that a crash left when it had taken the fork.
    let (fork, _) = state.fork(main, 4).unwrap();
    state.write(fork, &put("b", "2"), 4).unwrap();
    state.checkpoint(fork, 4).unwrap();
    let name = state.fork_infos(fork, 1)[0].log.clone();
    drop(state);
    let log = store.find(name.as_bytes()).unwrap();
    store.delete(&log, log.staged().unwrap().version, 5, None).unwrap();
    assert_eq!(images_in(&store), 2);
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert_eq!(images_in(&store), 1);
    assert_eq!(state.get(main, View::Committed, "a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// An image that many forks use: how many of them are looked at when one is dropped does not grow with
/// how many there are.
#[test]
fn an_image_goes_with_the_last_fork_that_uses_it_and_a_drop_looks_at_no_other_fork() {
    let store = memory();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    state.write(main, &put("a", "1"), 1).unwrap();
    state.checkpoint(main, 1).unwrap();
    let mut forks: Vec<_> = (0..20).map(|n| state.fork(main, n).unwrap().0).collect();
    // One of a fork, one of a place behind the image, and one that has an image of its own.
    forks.push(state.fork(forks[0], 2).unwrap().0);
    let end = state.write(main, &put("a", "2"), 2).unwrap().next;
    let own = state.fork(main, 2).unwrap().0;
    state.write(own, &put("own", "2"), 2).unwrap();
    state.checkpoint(own, 2).unwrap();
    state.write(main, &put("a", "3"), 3).unwrap();
    state.checkpoint(main, 3).unwrap();
    forks.push(state.fork_at(main, end, 3).unwrap().0);
    assert_eq!(images_in(&store), 3);
    for reopened in [false, true] {
        let state = match reopened {
            false => state.clone(),
            true => State::open(&store, "s", Options::default()).unwrap(),
        };
        let half = if reopened { 0 } else { forks.len() / 2 };
        for fork in forks.drain(half..) {
            assert_eq!(images_in(&store), 3, "others use it");
            // A drop that took the lock of another fork's views, or of all forks, would wait here for ever.
            let others = state.shared.forks.read();
            let held: Vec<_> = others.values().filter(|other| other.log.id() != fork).cloned().collect();
            drop(others);
            let _held: Vec<_> = held.iter().map(|other| other.stand_still()).collect();
            state.drop_fork(fork, 4).unwrap();
        }
    }
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert_eq!(images_in(&store), 2);
    state.drop_fork(own, 5).unwrap();
    assert_eq!(images_in(&store), 1);
}

#[test]
fn what_is_kept_from_some_image_on_stays_when_there_are_others() {
    let store = memory();
    let trimmed = Options { history: History::Trimmed, ..Options::default() };
    let state = State::open(&store, "s", trimmed).unwrap();
    let main = state.main();
    state.write(main, &put("a", "1"), 1).unwrap();
    let base = state.checkpoint(main, 2).unwrap();
    drop(state);
    let state = State::open(&store, "s", Options::default()).unwrap();
    let kept = state.write(main, &put("b", "1"), 3).unwrap().next;
    let (fork, _) = state.fork(main, 3).unwrap();
    for time in 4..7 {
        for of in [main, fork] {
            state.write(of, &put("b", &time.to_string()), time).unwrap();
            state.checkpoint(of, time).unwrap();
        }
    }
    drop(state);
    let state = State::open(&store, "s", Options::default()).unwrap();
    for of in [main, fork] {
        assert_eq!(contents(&state.at(of, base).unwrap().0).len(), 1);
        assert_eq!(contents(&state.at(of, kept).unwrap().0)["b"], b"1");
        let (again, _) = state.fork_at(of, kept, 8).unwrap();
        assert_eq!(state.get(again, View::Committed, "b").unwrap().as_deref(), Some(&b"1"[..]));
    }
    assert_eq!(images_in(&store), 3, "the first, and the newest of either");
}

#[test]
fn what_is_kept_from_some_image_on_stays_for_forks_of_a_dropped_fork_that_had_its_own() {
    let store = memory();
    let trimmed = Options { history: History::Trimmed, ..Options::default() };
    let state = State::open(&store, "s", trimmed).unwrap();
    let (parent, _) = state.fork(state.main(), 1).unwrap();
    state.write(parent, &put("a", "1"), 1).unwrap();
    let base = state.checkpoint(parent, 2).unwrap();
    drop(state);
    let state = State::open(&store, "s", Options::default()).unwrap();
    let kept = state.write(parent, &put("b", "1"), 3).unwrap().next;
    state.write(parent, &put("b", "2"), 3).unwrap();
    let (dropped, _) = state.fork(parent, 4).unwrap();
    state.write(dropped, &put("c", "1"), 4).unwrap();
    state.checkpoint(dropped, 4).unwrap();
    let (fork, _) = state.fork(dropped, 5).unwrap();
    state.drop_fork(dropped, 6).unwrap();
    drop(state);
    let state = State::open(&store, "s", Options::default()).unwrap();
    state.drop_fork(parent, 7).unwrap();
    assert_eq!(contents(&state.at(fork, base).unwrap().0).len(), 1);
    assert_eq!(contents(&state.at(fork, kept).unwrap().0)["b"], b"1");
    let (again, _) = state.fork_at(fork, kept, 8).unwrap();
    assert_eq!(state.get(again, View::Committed, "b").unwrap().as_deref(), Some(&b"1"[..]));
}
