//! The state against plain maps, over memory and over files, and what remains of it after a restart.

use super::*;
use crate::fork::{Fork, LARGE_KEYS, Moment};
use crate::images::STEPS;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::mpsc::channel;
use thalweg_log::sim::SimDisk;
use thalweg_log::{CommitError, Disk, Durability, Options as StoreOptions, Store};

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

/// What a history does.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<(u8, Option<u8>)>),
    Fork(usize),
    ForkAt(usize, usize),
    Drop(usize),
    Snapshot(usize),
    InSession(Vec<(u8, Option<u8>)>),
    Commit,
    Rollback,
    Image(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let changes = || proptest::collection::vec((0_u8..8, proptest::option::of(0_u8..4)), 1..4);
    prop_oneof![
        6 => (0_usize..6, changes()).prop_map(|(fork, changes)| Step::Write(fork, changes)),
        2 => (0_usize..6).prop_map(Step::Fork),
        1 => (0_usize..6, 0_usize..20).prop_map(|(fork, back)| Step::ForkAt(fork, back)),
        1 => (0_usize..6).prop_map(Step::Drop),
        2 => (0_usize..6).prop_map(Step::Snapshot),
        4 => changes().prop_map(Step::InSession),
        2 => Just(Step::Commit),
        1 => Just(Step::Rollback),
        2 => (0_usize..6).prop_map(Step::Image),
        1 => Just(Step::Reopen),
    ]
}

fn changes_of(list: &[(u8, Option<u8>)]) -> Changes {
    let change = |(key, value): &(u8, Option<u8>)| {
        let key = format!("k{key}");
        value.map_or(Change::Delete(key.as_str().into()), |v| {
            Change::Put(key.as_str().into(), v.to_string().as_bytes().into())
        })
    };
    list.iter().map(change).collect()
}

/// A plain model: for each fork what it holds now, and what it held at each offset.
#[derive(Clone, Default)]
struct Line {
    now: Model,
    history: Vec<(u64, Model)>,
    /// Below this nothing is kept for certain.
    first: u64,
    /// Which lines it came from, and up to where it is theirs.
    origins: Vec<(ForkId, u64)>,
}

impl Line {
    /// What begins as this is at an offset.
    fn branch(&self, of: ForkId, at: u64) -> Vec<(ForkId, u64)> {
        let older = self.origins.iter().map(|(line, up_to)| (*line, at.min(*up_to)));
        older.chain([(of, at)]).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Forks, writes, sessions and restarts come to what they come to in plain maps; no fork sees another's
    /// writes; roots are equal exactly for equal states; and every state there ever was can be had again.
    #[test]
    fn agrees_with_plain_maps(steps in proptest::collection::vec(step(), 1..60), trims: bool) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = on_disk(directory.path(), Durability::Os);
        let history = if trims { History::Trimmed } else { History::Kept };
        let options = Options { history, ..Options::default() };
        let mut state = State::open(&store, "s", options.clone()).unwrap();
        let mut lines: BTreeMap<ForkId, Line> = BTreeMap::from([(state.main(), Line::default())]);
        let mut session: Option<(Session, Model, u64)> = None;
        for (time, step) in (1_u64..).zip(steps) {
            let pick = |n: usize| *lines.keys().nth(n % lines.len()).unwrap();
            match step {
                Step::Write(n, list) => {
                    let (fork, changes) = (pick(n), changes_of(&list));
                    let receipt = state.write(fork, &changes, time).unwrap();
                    let line = lines.get_mut(&fork).unwrap();
                    let before = line.now.clone();
                    applied(&mut line.now, &changes);
                    prop_assert_eq!(receipt.first == receipt.next, before == line.now, "no entry for no change");
                    line.history.push((receipt.next, line.now.clone()));
                }
                Step::Fork(n) => {
                    let of = pick(n);
                    let origins = lines[&of].branch(of, state.offset(of, View::Pending).unwrap());
                    let line = Line { origins, ..lines[&of].clone() };
                    lines.insert(state.fork(of, time).unwrap().0, line);
                }
                Step::ForkAt(n, back) => {
                    let of = pick(n);
                    let history = &lines[&of].history;
                    if history.is_empty() { continue; }
                    let (offset, now) = history[history.len() - 1 - back % history.len()].clone();
                    let history = history.iter().filter(|(at, _)| *at <= offset).cloned().collect();
                    let (first, origins) = (lines[&of].first, lines[&of].branch(of, offset));
                    match state.fork_at(of, offset, time) {
                        Ok((fork, _)) => drop(lines.insert(fork, Line { now, history, first, origins })),
                        Err(Error::NoState { .. }) => prop_assert!(offset < first),
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
                Step::Drop(n) => {
                    let fork = pick(n);
                    if fork == state.main() {
                        prop_assert!(matches!(state.drop_fork(fork, time), Err(Error::MainLine)));
                    } else {
                        state.drop_fork(fork, time).unwrap();
                        lines.remove(&fork);
                        prop_assert!(matches!(state.get(fork, View::Pending, "k1"), Err(Error::NoFork(_))));
                    }
                }
                Step::Snapshot(n) => {
                    let fork = pick(n);
                    let mut fresh = state.session(fork).unwrap();
                    fresh.snapshot(time).unwrap();
                    let at = state.offset(fork, View::Pending).unwrap();
                    session = Some((fresh, lines[&fork].now.clone(), at));
                }
                Step::InSession(list) => if let Some((session, model, _)) = &mut session {
                    let changes = changes_of(&list);
                    session.write(changes.clone(), time).unwrap();
                    applied(model, &changes);
                },
                Step::Commit => if let Some((mut session, model, at)) = session.take() {
                    let fork = session.fork();
                    let moved = state.offset(fork, View::Pending).map(|offset| offset != at);
                    let writes = session.changes() > 0;
                    match (moved, session.commit(time)) {
                        // What was only read is as the fork was then.
                        (Ok(_), Ok(receipt)) if !writes => prop_assert_eq!(receipt.next, at),
                        (Ok(false), Ok(receipt)) => {
                            let line = lines.get_mut(&fork).unwrap();
                            line.now = model;
                            if receipt.ticket > 0 || receipt.next > receipt.first {
                                line.history.push((receipt.next, line.now.clone()));
                            }
                        }
                        (Ok(true), Err(Error::Conflict { .. })) if writes => session.rollback().unwrap(),
                        (Err(Error::NoFork(_)), Err(Error::NoFork(_))) => {
                            session.rollback().unwrap();
                        }
                        (moved, outcome) => prop_assert!(false, "{moved:?}: {outcome:?}"),
                    }
                },
                Step::Rollback => if let Some((mut session, ..)) = session.take() {
                    session.rollback().unwrap();
                    prop_assert!(matches!(session.rollback(), Err(Error::NoSnapshot)));
                },
                Step::Image(n) => {
                    let fork = pick(n);
                    let offset = state.checkpoint(fork, time).unwrap();
                    prop_assert_eq!(offset, state.offset(fork, View::Committed).unwrap());
                    // What begins with this image needs no older one.
                    let begins = |line: &Line| line.origins.iter().any(|(of, at)| *of == fork && *at >= offset);
                    for (_, line) in lines.iter_mut().filter(|(of, line)| trims && (**of == fork || begins(line))) {
                        line.first = line.first.max(offset);
                    }
                }
                Step::Reopen => {
                    session = None;
                    drop(state);
                    store.close().unwrap();
                    drop(store);
                    store = on_disk(directory.path(), Durability::Os);
                    state = State::open(&store, "s", options.clone()).unwrap();
                    prop_assert!(state.wrong().is_empty());
                }
            }
            if let Some((session, model, _)) = &session {
                let seen: Model = session.scan(Bound::Unbounded, 100).unwrap().into_iter()
                    .map(|(key, value)| (key.to_string(), value.to_vec())).collect();
                prop_assert_eq!(&seen, model);
                for key in ["k0", "k3", "k7"] {
                    prop_assert_eq!(session.get(key).unwrap().map(|v| v.to_vec()), model.get(key).cloned());
                }
                let mut map = Map::default();
                map.apply(&model.iter().map(|(k, v)| Change::Put(k.as_str().into(), v.as_slice().into())).collect());
                prop_assert_eq!(session.root().unwrap(), Digest::of(&map).root());
            }
            prop_assert_eq!(state.forks(), lines.keys().copied().collect::<Vec<_>>());
        }
        for (fork, line) in &lines {
            let map = state.map(*fork, View::Committed).unwrap();
            prop_assert_eq!(&contents(&map), &line.now);
            prop_assert_eq!(state.root(*fork, View::Committed).unwrap(), Digest::of(&map).root());
            for (offset, model) in &line.history {
                match state.at(*fork, *offset) {
                    Ok((map, _)) => prop_assert_eq!(&contents(&map), model),
                    Err(Error::NoState { .. }) => prop_assert!(*offset < line.first),
                    Err(error) => prop_assert!(false, "{error}"),
                }
            }
            for (other, theirs) in &lines {
                let mut patched = line.now.clone();
                applied(&mut patched, &state.diff(*fork, *other, View::Committed).unwrap());
                prop_assert_eq!(&patched, &theirs.now);
            }
        }
    }
}

#[test]
fn committed_is_what_is_durable_and_pending_what_is_on_its_way() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    let receipt = state.write(main, &put("a", "1"), 1).unwrap();
    assert!(receipt.ticket > 0);
    assert_eq!(state.get(main, View::Pending, "a").unwrap().as_deref(), Some(&b"1"[..]));
    let (told, hear) = channel();
    state.when(receipt.ticket, move |outcome| told.send(outcome).unwrap());
    hear.recv().unwrap().unwrap();
    assert_eq!(state.get(main, View::Committed, "a").unwrap().as_deref(), Some(&b"1"[..]));
    // What is durable already calls back at once.
    let (told, hear) = channel();
    state.when(receipt.ticket, move |outcome| told.send(outcome).unwrap());
    hear.try_recv().unwrap().unwrap();
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
fn a_waiter_that_comes_after_the_store_failed_is_told_at_once() {
    let disk = SimDisk::new(1, 64 << 20);
    let options = StoreOptions { durability: Durability::Sync, ..StoreOptions::default() };
    let (store, _) = Store::open(&Disk::Sim(disk.clone()), "/store".as_ref(), options).unwrap();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let told = |ticket| {
        let (told, hear) = channel();
        state.when(ticket, move |outcome| told.send(outcome).unwrap());
        hear
    };
    let kept = state.write(state.main(), &put("a", "1"), 1).unwrap();
    told(kept.ticket).recv().unwrap().unwrap();
    disk.fail_sync_after(0);
    let lost = state.write(state.main(), &put("a", "2"), 1).unwrap();
    assert!(matches!(told(lost.ticket).recv().unwrap(), Err(CommitError::Failed(_))));
    assert!(matches!(told(lost.ticket).try_recv().unwrap(), Err(CommitError::Failed(_))), "and again");
    assert!(state.is_durable(lost.ticket).is_err() && state.is_durable(kept.ticket) == Ok(true));
}

#[test]
fn states_that_come_and_go_give_their_place_to_be_told_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    for _ in 0..40 {
        State::open(&store, "s", Options::default()).unwrap();
    }
    let names = (0..40).map(|number| format!("s{number}"));
    let open: Vec<_> = names.map(|name| State::open(&store, &name, Options::default())).collect();
    assert_eq!(open.iter().filter(|state| state.is_ok()).count(), 32);
    assert!(matches!(open.last(), Some(Err(Error::Crowded))));
}

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
    assert_eq!((state.wrong().len(), state.root(fork, View::Committed).unwrap()), (0, root));
}

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

#[test]
fn a_look_at_all_forks_keeps_nobody_from_making_one() {
    let state = State::open(&memory(), "s", Options::default()).unwrap();
    let main = state.main();
    let (other, _) = state.fork(main, 1).unwrap();
    let looks: [fn(&State); 4] = [
        |state| _ = state.is_due(),
        |state| _ = state.maintain(1),
        |state| _ = state.forks(),
        |state| _ = state.fork_infos(0, usize::MAX),
    ];
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
        assert!(state.wrong().is_empty());
        let after: Vec<_> = forks.iter().map(|fork| state.root(*fork, View::Committed).unwrap()).collect();
        assert_eq!(before, after);
        forks.chunks(2).for_each(|pair| assert!(is_one(&state, pair, "new"), "{history:?}"));
        forks.push(main);
        assert!(is_one(&state, &forks, "old"), "{history:?}");
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
    assert!(session.read_view().unwrap().is_near(0), "it is reckoned anew each time");
    assert_eq!(session.root().unwrap(), root);
    session.write(put("b", "1"), 2).unwrap();
    assert!(session.read_view().unwrap().is_near(1));
    assert_ne!(session.root().unwrap(), root);
    session.rollback().unwrap();
    assert!(then.upgrade().is_none(), "the fork holds on to what the snapshot was of");
}

#[test]
fn forks_share_what_roots_are_reckoned_from_and_have_none_before_somebody_asks() {
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
fn a_log_of_the_last_number_there_is_leaves_the_others_to_forks() {
    for taken in [u64::MAX, u64::MAX - 1] {
        let store = memory();
        let state = State::open(&store, "s", Options::default()).unwrap();
        state.fork(state.main(), 1).unwrap();
        drop(state);
        let name = format!("s/forks/{taken}");
        store.create(name.as_bytes(), &crate::state::config(), None, &Default::default(), None).unwrap();
        let state = State::open(&store, "s", Options::default()).unwrap();
        for _ in 0..3 {
            state.fork(state.main(), 2).unwrap();
        }
        assert_eq!(state.forks().len(), 1 + 5);
    }
}

#[test]
fn a_caller_that_finds_a_write_durable_sees_it_committed() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "state", Options::default()).unwrap();
    for number in 0..2_000 {
        let value = number.to_string();
        let receipt = state.write(state.main(), &put("k", &value), 0).unwrap();
        // By asking, as the code that answers a call does, and not by waiting for the announcement.
        while !state.is_durable(receipt.ticket).unwrap() {
            std::hint::spin_loop();
        }
        let seen = state.read_view(state.main(), View::Committed).unwrap();
        assert_eq!(seen.get("k").map(|value| &**value), Some(value.as_bytes()));
    }
}

#[test]
fn what_is_noted_when_it_is_durable_already_is_committed() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options::default()).unwrap();
    let ticket = state.write(state.main(), &put("a", "1"), 1).unwrap().ticket;
    while !state.is_durable(ticket).unwrap() {
        std::thread::yield_now();
    }
    let log = state.find(state.main()).unwrap().log.clone();
    let fork = Fork::new(log, ticket, Moment::default(), None, 0);
    let fork = std::sync::Arc::new(fork);
    assert!(fork.moment(View::Committed).is_err());
    state.shared.durable.note(ticket, fork.clone(), || ());
    assert!(fork.moment(View::Committed).is_ok());
}

#[test]
fn nobody_learns_of_a_commit_before_it_is_noted() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    let log = state.find(main).unwrap().log.clone();
    let is_there = |key: &str| state.get(main, View::Pending, key).unwrap().is_some();
    let still = state.shared.durable.stand_still();
    std::thread::scope(|scope| {
        let (state, log) = (&state, &log);
        let first = scope.spawn(move || state.write(main, &put("a", "1"), 1).unwrap());
        while log.staged().unwrap().tail == 0 {
            std::thread::yield_now();
        }
        // It changes nothing, and leans on the other's ticket.
        let second = scope.spawn(move || state.write(main, &put("a", "1"), 1).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(100));
        let end = log.staged().unwrap().tail;
        let is_known = is_there("a") || second.is_finished() || state.ticket_at(main, end).is_ok();
        drop(still);
        assert!(!is_known, "it is durable before long, and nobody would see it committed");
        assert_eq!(first.join().unwrap().next, second.join().unwrap().next);
    });
}

#[test]
fn writers_on_many_threads_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options::default()).unwrap();
    let (fork, _) = state.fork(state.main(), 1).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let state = &state;
            scope.spawn(move || {
                for n in 0..50 {
                    let to = if n % 2 == 0 { state.main() } else { fork };
                    let receipt = state.write(to, &put(&format!("{writer}-{n}"), "1"), n).unwrap();
                    let (told, hear) = channel();
                    state.when(receipt.ticket, move |outcome| told.send(outcome).unwrap());
                    hear.recv().unwrap().unwrap();
                    let held = state.get(to, View::Committed, &format!("{writer}-{n}")).unwrap();
                    assert!(held.is_some(), "what was acknowledged is committed");
                }
            });
        }
    });
    drop(state);
    store.close().unwrap();
    drop(store);
    let store = on_disk(directory.path(), Durability::Sync);
    let state = State::open(&store, "s", Options::default()).unwrap();
    for of in [state.main(), fork] {
        assert_eq!(state.map(of, View::Committed).unwrap().len(), 100);
    }
}

/// An image of the main line that says it has another root than it has.
fn forged(store: &Store, fork: ForkId, offset: u64) {
    let log = find_image(store, fork, offset);
    let mut reader = store.reader(&log);
    let entries: Vec<Vec<u8>> =
        reader.entries(&Default::default()).map(|entry| entry.unwrap().data.to_vec()).collect();
    let name = log.name().to_vec();
    let version = log.staged().unwrap().version;
    store.delete(&log, version, 1, None).unwrap();
    let config = log.config().clone();
    let (log, _) = store.create(&name, &config, None, &Default::default(), None).unwrap();
    let count = entries.len();
    for (n, mut payload) in entries.into_iter().enumerate() {
        let close = n + 1 == count;
        if close {
            *payload.last_mut().unwrap() ^= 1;
        }
        let commit = thalweg_log::Commit { payload: &payload, close, ..Default::default() };
        store.commit(&log, log.staged().unwrap().version, &commit, None).unwrap();
    }
}

fn images_in(store: &Store) -> usize {
    let mut images = 0;
    store.visit(|log| images += usize::from(log.name().starts_with(b"s/images/") && log.staged().is_some()));
    images
}

fn find_image(store: &Store, fork: ForkId, offset: u64) -> std::sync::Arc<thalweg_log::Log> {
    store.find(format!("s/images/{fork}-{offset}").as_bytes()).unwrap()
}

#[test]
fn an_image_without_its_root_is_done_without_or_named() {
    for history in [History::Kept, History::Trimmed] {
        let store = memory();
        let options = Options { history, ..Options::default() };
        let state = State::open(&store, "s", options.clone()).unwrap();
        let main = state.main();
        for n in 0..50 {
            state.write(main, &put(&format!("k{n}"), "1"), 1).unwrap();
        }
        let offset = state.checkpoint(main, 2).unwrap();
        state.write(main, &put("after", "1"), 3).unwrap();
        let root = state.root(main, View::Committed).unwrap();
        drop(state);
        let state = State::open(&store, "s", options.clone()).unwrap();
        assert_eq!(state.root(main, View::Committed).unwrap(), root);
        drop(state);
        forged(&store, main, offset);
        match (history, State::open(&store, "s", options)) {
            (History::Kept, Ok(state)) => {
                assert!(matches!(state.wrong(), [Error::Root { .. }]));
                assert_eq!(state.root(main, View::Committed).unwrap(), root);
            }
            (History::Trimmed, Err(Error::Root { fork, offset: at })) => {
                assert_eq!((fork, at), (main, offset))
            }
            (_, opened) => panic!("{history:?}: {opened:?}"),
        }
    }
}

#[test]
fn a_fork_whose_only_image_is_not_what_it_was_is_no_state_that_never_was() {
    let store = memory();
    let options = Options { history: History::Trimmed, ..Options::default() };
    let state = State::open(&store, "s", options.clone()).unwrap();
    let main = state.main();
    state.write(main, &put("of main", "1"), 1).unwrap();
    let (fork, _) = state.fork(main, 1).unwrap();
    for n in 0..10 {
        state.write(fork, &put(&format!("k{n}"), "1"), 1).unwrap();
    }
    let offset = state.checkpoint(fork, 2).unwrap();
    state.write(fork, &put("after", "1"), 3).unwrap();
    drop(state);
    forged(&store, fork, offset);
    for _ in 0..2 {
        let state = State::open(&store, "s", options.clone()).unwrap();
        assert!(matches!(state.wrong(), [Error::Unreadable { fork: broken, .. }] if *broken == fork));
        assert!(matches!(state.map(fork, View::Committed), Err(Error::Unreadable { .. })));
        assert_eq!(state.map(main, View::Committed).unwrap().len(), 1);
        // It may be mended by other means.
        state.checkpoint(main, 4).unwrap();
        assert!(find_image(&store, fork, offset).staged().is_some());
    }
    let state = State::open(&store, "s", options).unwrap();
    state.drop_fork(fork, 5).unwrap();
    assert_eq!((state.forks(), images_in(&store)), (vec![main], 1));
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

#[test]
fn a_fork_whose_image_cannot_be_written_keeps_no_other_waiting() {
    let store = memory();
    let state = State::open(&store, "s", Options { image_bytes: 1, ..Options::default() }).unwrap();
    let main = state.main();
    let (fork, _) = state.fork(main, 1).unwrap();
    let [taken, free] = [main, fork].map(|of| (of, state.write(of, &put("a", "1"), 1).unwrap().next));
    let log = store.find(b"s/main").unwrap();
    let name = format!("s/images/{}-{}", taken.0, taken.1);
    store.create(name.as_bytes(), log.config(), None, &Default::default(), None).unwrap();
    let foreign = store.find(name.as_bytes()).unwrap();
    let close = thalweg_log::Commit { close: true, ..Default::default() };
    store.commit(&foreign, foreign.staged().unwrap().version, &close, None).unwrap();
    let refused = state.maintain(2).unwrap_err();
    assert!(matches!(refused, Error::Commit(CommitError::Exists)), "{refused}");
    assert!(find_image(&store, free.0, free.1).staged().is_some_and(|image| image.closed));
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
    let holds = [held(fork), held(past)];
    let none = (0..=LARGE_KEYS).map(|n| Change::Delete(n.to_string().into())).collect();
    state.write(past, &none, 4).unwrap();
    // What waits to be let go of waits for this.
    let (go, may_go) = channel::<()>();
    let (begun, is_begun) = channel();
    state.shared.background_drop.add(OnDrop(Some(move || {
        begun.send(()).unwrap();
        may_go.recv().unwrap();
    })));
    is_begun.recv().unwrap();
    state.drop_fork(past, 5).unwrap();
    state.drop_fork(fork, 5).unwrap();
    let is_held = holds.each_ref().map(|value| value.strong_count() > 0);
    go.send(()).unwrap();
    assert_eq!(is_held, [true, true], "let go of by the caller");
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

/// An image that many forks lean on: how many of them are looked at when one is dropped does not grow with
/// how many there are.
#[test]
fn an_image_goes_with_the_last_fork_that_leans_on_it_and_a_drop_looks_at_no_other_fork() {
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
            assert_eq!(images_in(&store), 3, "others lean on it");
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
fn nothing_is_seen_committed_before_it_is_durable() {
    let disk = SimDisk::new(1, 64 << 20);
    let options =
        StoreOptions { durability: Durability::Sync, committer_thread: false, ..StoreOptions::default() };
    let (store, _) = Store::open(&Disk::Sim(disk), "/store".as_ref(), options).unwrap();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    let durable = state.write(main, &put("a", "1"), 1).unwrap();
    store.flush().unwrap();
    assert_eq!(state.is_durable(durable.ticket), Ok(true));
    assert_eq!(state.at(main, durable.next).unwrap().1, 0);
    let first = state.write(main, &put("a", "2"), 2).unwrap();
    let (fork, made) = state.fork(main, 2).unwrap();
    let second = state.write(main, &put("a", "3"), 2).unwrap();
    let tickets = [(main, first), (main, second), (fork, made)].map(|(of, receipt)| {
        let (_, ticket) = state.at(of, receipt.next).unwrap();
        (ticket, receipt.ticket)
    });
    assert!(tickets.iter().all(|(ticket, receipt)| ticket == receipt && *ticket > 0), "{tickets:?}");
    assert!(matches!(state.at(main, second.next + 1), Err(Error::NoState { .. })));
    assert!(matches!(state.get(fork, View::Committed, "a"), Err(Error::NoFork(of)) if of == fork));
    assert_eq!(state.get(fork, View::Pending, "a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(state.fork_infos(0, 10).len(), 1);
    store.flush().unwrap();
    assert_eq!(state.is_durable(second.ticket), Ok(true));
    assert_eq!(state.get(fork, View::Committed, "a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(state.at(main, second.next).unwrap().1, 0);
    assert_eq!(state.fork_infos(0, 10).len(), 2);
}

/// As a commit is: nobody hears that a fork is gone which is there again after a crash.
#[test]
fn a_fork_is_seen_as_committed_until_its_drop_is_durable() {
    let disk = SimDisk::new(1, 64 << 20);
    let open = |disk: &SimDisk| {
        let options = StoreOptions { committer_thread: false, ..StoreOptions::default() };
        let store = Store::open(&Disk::Sim(disk.clone()), "/store".as_ref(), options).unwrap().0;
        let state = State::open(&store, "s", Options::default()).unwrap();
        (store, state)
    };
    let (store, state) = open(&disk);
    let main = state.main();
    let (fork, _) = state.fork(main, 1).unwrap();
    state.write(fork, &put("a", "1"), 1).unwrap();
    store.flush().unwrap();
    let seen = |state: &State| match state.get(fork, View::Committed, "a") {
        Ok(value) => value.map(|value| value.to_vec()),
        Err(Error::NoFork(_)) => None,
        Err(error) => panic!("{error}"),
    };
    let receipt = state.drop_fork(fork, 2).unwrap();
    assert!(!state.is_durable(receipt.ticket).unwrap());
    assert_eq!((seen(&state), state.fork_infos(0, 10).len()), (Some(b"1".to_vec()), 2));
    // A drop that is not durable yet shows in what concerns the pending view.
    assert_eq!(state.forks(), [main]);
    let end = state.offset(fork, View::Committed).unwrap();
    let refused = [
        state.drop_fork(fork, 2).err(),
        state.get(fork, View::Pending, "a").err(),
        state.write(fork, &put("b", "2"), 2).err(),
        state.fork(fork, 2).err(),
        state.fork_at(fork, end, 2).err(),
        state.at(fork, end).err(),
        state.session(fork).err(),
        state.checkpoint(fork, 2).err(),
    ];
    for refusal in refused {
        assert!(matches!(refusal, Some(Error::NoFork(of)) if of == fork), "{refusal:?}");
    }
    let crashed = disk.crash();
    store.flush().unwrap();
    assert!(state.is_durable(receipt.ticket).unwrap());
    assert_eq!((seen(&state), state.fork_infos(0, 10).len(), state.count()), (None, 1, 1));
    assert!(matches!(state.get(fork, View::Pending, "a"), Err(Error::NoFork(_))));
    let (_store, state) = open(&crashed);
    assert_eq!(seen(&state), Some(b"1".to_vec()), "what was seen then is so after the crash");
}
