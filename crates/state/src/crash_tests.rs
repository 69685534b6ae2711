//! The state on the simulated disk: what was acknowledged is there after any crash, whatever images were
//! being written and whatever they made superfluous. `THALWEG_SEEDS=2000` runs more seeds,
//! `THALWEG_SEED_FIRST=2000` others, and `THALWEG_SEED=n` one.

use super::*;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use thalweg_log::sim::{Random, SimDisk};
use thalweg_log::{Disk, Durability, Options as StoreOptions, Store};

type Model = BTreeMap<String, String>;

/// A fork as it should be: what it held after each entry, and where that ended.
#[derive(Clone, Default)]
struct ForkModel {
    states: BTreeMap<u64, Model>,
    /// It ends nowhere before that.
    acknowledged: u64,
    /// Its creation is durable.
    is_durable: bool,
    /// It was asked to be dropped.
    is_dropped: bool,
}

/// What becomes of entries that an image stands for, from one start to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Histories {
    Kept,
    Trimmed,
    /// Now the one, now the other.
    Either,
}

struct World {
    random: Random,
    disk: SimDisk,
    histories: Histories,
    forks: BTreeMap<ForkId, ForkModel>,
    time: u64,
    counts: Counts,
}

/// What a simulation did.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    crashes: u64,
    writes: u64,
    flushes: u64,
    images: u64,
    forks: u64,
    past: u64,
    drops: u64,
}

impl Counts {
    fn and(self, more: Self) -> Self {
        Self {
            crashes: self.crashes + more.crashes,
            writes: self.writes + more.writes,
            flushes: self.flushes + more.flushes,
            images: self.images + more.images,
            forks: self.forks + more.forks,
            past: self.past + more.past,
            drops: self.drops + more.drops,
        }
    }

    fn least(self) -> u64 {
        let Self { crashes, writes, flushes, images, forks, past, drops } = self;
        [crashes, writes, flushes, images, forks, past, drops].into_iter().min().unwrap_or(0)
    }
}

impl World {
    fn open(&mut self) -> (Store, State) {
        let options = StoreOptions { durability: Durability::Sync, ..StoreOptions::default() };
        let disk = Disk::Sim(self.disk.clone());
        let (store, report) = Store::open(&disk, Path::new("/store"), options).unwrap();
        assert_eq!(report.damage, []);
        let history = match self.histories {
            Histories::Either if self.random.once_in(2) => History::Kept,
            Histories::Kept => History::Kept,
            Histories::Either | Histories::Trimmed => History::Trimmed,
        };
        let options = Options { history, ..Options::default() };
        let state = State::open(&store, "s", options).unwrap();
        assert!(state.damage().is_empty());
        (store, state)
    }

    /// What was recovered is some state of each fork, no older than what was acknowledged.
    fn check(&mut self, state: &State) {
        let forks = state.forks();
        for (fork, expected) in &self.forks {
            let is_there = forks.contains(fork);
            assert!(is_there || expected.is_dropped || !expected.is_durable, "fork {fork} is lost");
        }
        self.forks.retain(|fork, _| forks.contains(fork));
        for fork in forks {
            let offset = state.offset(fork, View::Committed).unwrap();
            let expected = self.forks.get_mut(&fork).unwrap();
            assert!(
                offset >= expected.acknowledged,
                "acknowledged up to {}, found {offset}",
                expected.acknowledged
            );
            let map = state.map(fork, View::Committed).unwrap();
            assert_eq!(Some(&held(&map)), expected.states.get(&offset), "at {offset}");
            assert_eq!(state.root(fork, View::Committed).unwrap(), Digest::of(&map).root());
            expected.states.split_off(&(offset + 1));
            (expected.is_durable, expected.is_dropped) = (true, false);
            // A few of them: each may be replayed from the beginning.
            let states = &self.forks[&fork].states;
            let step = states.len().div_ceil(4).max(1);
            let first = usize::try_from(self.random.below(step as u64)).unwrap();
            for (offset, model) in states.iter().skip(first).step_by(step) {
                match state.at(fork, *offset) {
                    Ok((map, _)) => assert_eq!(&held(&map), model, "what fork {fork} was at {offset}"),
                    Err(error) => assert!(self.lets_go(&error), "fork {fork} at {offset}: {error}"),
                }
            }
        }
    }

    /// Whether an error says what may be: that the past is gone.
    fn lets_go(&self, error: &Error) -> bool {
        self.histories != Histories::Kept && matches!(error, Error::NoState { .. })
    }

    /// A fork of what another was at some offset.
    fn fork_at(&mut self, state: &State, of: ForkId) {
        let expected = &self.forks[&of];
        let nth = usize::try_from(self.random.below(expected.states.len() as u64)).unwrap();
        let (offset, model) = expected.states.iter().nth(nth).unwrap();
        match state.fork_at(of, *offset, self.time) {
            Ok((made, _)) => {
                assert_eq!(&held(&state.map(made, View::Pending).unwrap()), model);
                let states =
                    expected.states.range(..=offset).map(|(at, model)| (*at, model.clone())).collect();
                self.forks.insert(made, ForkModel { states, ..ForkModel::default() });
                self.counts.past += 1;
            }
            Err(error) => assert!(self.lets_go(&error), "fork {of} at {offset}: {error}"),
        }
    }

    fn step(&mut self, store: &Store, state: &State) {
        self.time += 1;
        let forks: Vec<_> =
            self.forks.iter().filter(|(_, expected)| !expected.is_dropped).map(|(fork, _)| *fork).collect();
        let fork = forks[usize::try_from(self.random.below(forks.len() as u64)).unwrap()];
        match self.random.below(24) {
            0 if forks.len() < 8 => {
                let (made, receipt) = state.fork(fork, self.time).unwrap();
                let expected = ForkModel { is_durable: false, acknowledged: 0, ..self.forks[&fork].clone() };
                self.forks.insert(made, expected);
                assert!(receipt.ticket > 0);
                self.counts.forks += 1;
            }
            1 if fork != state.main() => {
                state.drop_fork(fork, self.time).unwrap();
                self.forks.get_mut(&fork).unwrap().is_dropped = true;
                self.counts.drops += 1;
            }
            2 | 3 => match state.checkpoint(fork, self.time) {
                // There is nothing of it to hold on to before it is durable.
                Err(Error::NoFork(_)) if !self.forks[&fork].is_durable => {}
                made => {
                    made.unwrap();
                    self.counts.images += 1;
                }
            },
            4 => self.disk.write_back(),
            5 => {
                store.flush().unwrap();
                self.counts.flushes += 1;
                for (fork, expected) in self.forks.iter_mut().filter(|(_, expected)| !expected.is_dropped) {
                    expected.acknowledged = state.offset(*fork, View::Pending).unwrap();
                    expected.is_durable = true;
                }
            }
            6 => drop(store.maintain(self.time).unwrap()),
            7 if forks.len() < 8 => self.fork_at(state, fork),
            _ => {
                let expected = self.forks.get_mut(&fork).unwrap();
                let mut model = expected.states.values().next_back().cloned().unwrap_or_default();
                let mut changes = Changes::default();
                for _ in 0..=self.random.below(3) {
                    let key = format!("k{}", self.random.below(20));
                    let value = "v".repeat(usize::try_from(self.random.below(400)).unwrap()) + &key;
                    if self.random.once_in(4) {
                        model.remove(&key);
                        changes.delete(key.into());
                    } else {
                        changes.put(key.as_str().into(), value.as_bytes().into());
                        model.insert(key, value);
                    }
                }
                let receipt = state.write(fork, &changes, self.time).unwrap();
                expected.states.insert(receipt.next, model);
                self.counts.writes += 1;
            }
        }
    }
}

/// What a map holds.
fn held(map: &Map) -> Model {
    let entry = |(key, value): (&Key, &Value)| (key.to_string(), String::from_utf8(value.to_vec()).unwrap());
    map.scan(std::ops::Bound::Unbounded).map(entry).collect()
}

fn run(seed: u64) -> Counts {
    let histories = [Histories::Kept, Histories::Trimmed, Histories::Either][(seed % 3) as usize];
    let disk = SimDisk::new(seed, 64 << 20);
    let (random, counts) = (Random::new(seed), Counts::default());
    let mut world = World { random, disk, histories, forks: BTreeMap::new(), time: 0, counts };
    let (_, state) = world.open();
    let expected = ForkModel { states: [(0, Model::new())].into(), is_durable: true, ..ForkModel::default() };
    world.forks.insert(state.main(), expected);
    drop(state);
    for _ in 0..4 {
        let (store, state) = world.open();
        world.check(&state);
        for _ in 0..world.random.below(120) {
            world.step(&store, &state);
        }
        if world.random.once_in(4) {
            store.close().unwrap();
        } else {
            world.disk = world.disk.crash();
            world.counts.crashes += 1;
        }
    }
    let (_, state) = world.open();
    world.check(&state);
    world.counts
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_acknowledged_is_lost_with_any_image() {
    if let Some(seed) = environment("THALWEG_SEED") {
        run(seed);
        return;
    }
    let seeds = environment("THALWEG_SEEDS").unwrap_or(100);
    let first = environment("THALWEG_SEED_FIRST").unwrap_or(0);
    let mut all = Counts::default();
    for seed in first..first + seeds {
        let counts = catch_unwind(AssertUnwindSafe(|| run(seed)));
        all =
            all.and(counts.unwrap_or_else(|_| panic!("seed {seed} failed: THALWEG_SEED={seed} repeats it")));
    }
    println!("state: {seeds} seeds from {first} clean, {all:?}");
    assert!(all.least() >= seeds && all.writes > seeds * 50, "the simulation did too little: {all:?}");
}

#[test]
fn a_disk_that_was_full_is_tried_again() {
    let disk = SimDisk::new(7, 64 << 20);
    let options = StoreOptions { durability: Durability::Os, ..StoreOptions::default() };
    let (store, _) = Store::open(&Disk::Sim(disk.clone()), Path::new("/store"), options).unwrap();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let big = "x".repeat(100_000);
    for n in 0..60 {
        let put = Change::Put(format!("k{n}").into(), big.as_bytes().into());
        state.write(state.main(), &[put].into_iter().collect(), n).unwrap();
    }
    // There is room for some of an image and not for all of it.
    disk.set_space(disk.used_bytes());
    let full = (0..3).any(|time| state.checkpoint(state.main(), time).is_err());
    assert!(full, "an image of six megabytes does not fit");
    disk.set_space(256 << 20);
    let offset = state.checkpoint(state.main(), 9).unwrap();
    assert_eq!(offset, state.offset(state.main(), View::Committed).unwrap());
    let root = state.root(state.main(), View::Committed).unwrap();
    drop(state);
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert!(state.damage().is_empty());
    assert_eq!(state.root(state.main(), View::Committed).unwrap(), root);
}

#[test]
fn an_image_that_could_not_be_removed_is_removed_when_there_is_room_for_that() {
    let disk = SimDisk::new(7, 64 << 20);
    let options = StoreOptions { durability: Durability::Os, ..StoreOptions::default() };
    let (store, _) = Store::open(&Disk::Sim(disk.clone()), Path::new("/store"), options).unwrap();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    let put = |n: u64| [Change::Put("k".into(), n.to_string().as_bytes().into())].into_iter().collect();
    for n in 0..20 {
        let (fork, _) = state.fork(main, n).unwrap();
        state.write(fork, &put(n), n).unwrap();
        state.checkpoint(fork, n).unwrap();
    }
    disk.set_space(disk.used_bytes());
    let full = (0..10_000_000).any(|n| state.write(main, &put(n % 10), n).is_err());
    assert!(full, "the disk ends somewhere");
    // What the store had set aside for removing somebody else took.
    Disk::Sim(disk.clone()).unlink(Path::new("/store/reserve")).unwrap();
    disk.set_space(disk.used_bytes());
    let images_left = || {
        let mut left = 0;
        store
            .visit(|log| left += usize::from(log.name().starts_with(b"s/images/") && log.staged().is_some()));
        left
    };
    let mut images = state.shared.images.lock();
    state.forks().into_iter().for_each(|fork| images.leave(fork));
    assert!(images.clear(&store, 9, None).is_err());
    assert!(images_left() > 0);
    disk.set_space(256 << 20);
    images.clear(&store, 9, None).unwrap();
    assert_eq!(images_left(), 0, "it was forgotten");
}
