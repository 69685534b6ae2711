//! Random steps against plain maps: forks, writes, sessions, images and restarts come to the same.

use super::*;
use proptest::prelude::*;

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
                    prop_assert!(state.damage().is_empty());
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
