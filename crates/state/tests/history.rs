//! Random histories of many clients against a serial model.
//!
//! Every client does what chance says, over its own connection, on forks that all share, makes and drops
//! forks while others use them, and notes what it was told and when it asked and was answered, by one clock.
//! Afterwards the history is judged fork by fork, with what the log says: see `judging`.
//!
//! A run in `cargo test` is short.
//! `THALWEG_OPERATIONS=1000000 cargo test --release -p thalweg-state --test history` is the long one;
//! `THALWEG_SEED` repeats what chance said, though not how threads met.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod judging;
mod serving;

use judging::{Birth, Course, Ending, Line, Model, Note, What, inherits, judge};
use parking_lot::{Mutex, RwLock};
use serving::{Served, WAYS, connect, store};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_log::{Durability, Store};
use thalweg_service::Error;
use thalweg_state::generated::types::*;
use thalweg_state::{ForkId, Options, ServiceOptions, State, View as Which};
use thalweg_wire::service::CallError;

const CLIENTS: usize = 16;
const KEYS: u64 = 12;
/// Forks that come and go, at once.
const PASSING_MAX: usize = 6;
/// Small, so that images are written all along, and those that are not needed any more are removed.
const IMAGE_BYTES: u64 = 64 << 10;
/// Calls that a fork serves at least before a client drops it.
const CALLS_MIN: u64 = 50;

type Said<T> = Result<T, CallError<Error>>;
type Changed = Vec<(String, Option<Vec<u8>>)>;

/// A fork, as the clients share it.
struct Fork {
    name: String,
    /// Where its parent ended when it was made.
    at: u64,
    /// Whether a client is about to drop it. A writer holds the lock for reading meanwhile: so its writes are
    /// known before the drop, which only reads can meet.
    is_closed: RwLock<bool>,
    calls: AtomicU64,
}

impl Fork {
    fn new(name: &str, at: u64) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), at, is_closed: RwLock::new(false), calls: AtomicU64::new(0) })
    }
}

/// What all clients share.
struct World {
    clock: AtomicU64,
    done: AtomicU64,
    /// Those that stay.
    lasting: Vec<Arc<Fork>>,
    passing: Mutex<Vec<Arc<Fork>>>,
    /// Each behind its parent's.
    new_logs: Mutex<Vec<Birth>>,
    endings: Mutex<HashMap<String, Ending>>,
    state: State,
    store: Store,
}

impl World {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn id(&self, fork: &str) -> ForkId {
        if fork == "main" { self.state.main() } else { fork.parse().unwrap() }
    }

    /// The log of a fork that is there.
    fn log(&self, fork: &str) -> String {
        let id = self.id(fork);
        self.state.fork_infos(id, 1).into_iter().find(|info| info.fork == id).unwrap().log
    }

    /// Notes that a fork was made, whose parent nobody drops meanwhile.
    fn bear(&self, fork: &str, parent: &str, at: u64) -> Arc<Fork> {
        assert!(inherits(&self.store, &self.log(fork), &self.log(parent), at), "{fork} of {parent} at {at}");
        self.new_logs.lock().push(Birth { fork: fork.to_owned(), parent: parent.to_owned(), at });
        Fork::new(fork, at)
    }
}

/// A small generator of its own, so that a seed means the same everywhere.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

struct Actor<'a> {
    index: usize,
    client: serving::Client,
    chance: Chance,
    world: &'a World,
    notes: Vec<Note>,
    /// Where each fork ended with what this client wrote last.
    ends: HashMap<String, u64>,
    /// How many values.
    written: u64,
}

impl Actor<'_> {
    fn tick(&self) -> u64 {
        self.world.tick()
    }

    fn note(&mut self, fork: &str, asked: u64, what: What) {
        let answered = self.tick();
        if let What::Wrote(_, end) = &what {
            self.ends.insert(fork.to_owned(), *end);
        }
        self.notes.push(Note { client: self.index, fork: fork.to_owned(), asked, answered, what });
    }

    /// Notes what a read came to, or that there was no such fork any more.
    fn note_read(&mut self, fork: &str, asked: u64, read: Said<What>) {
        let what = read.unwrap_or_else(|error| {
            assert!(error.to_string().contains("no_fork: "), "{error}");
            What::Gone
        });
        self.note(fork, asked, what);
    }

    fn key(&mut self) -> String {
        format!("k{}", self.chance.below(KEYS))
    }

    fn maybe_key(&mut self) -> Option<String> {
        (self.chance.below(2) > 0).then(|| self.key())
    }

    /// Changes whose values nobody else writes, so that an entry tells whose it is.
    fn changes(&mut self) -> Changed {
        let mut changes = BTreeMap::new();
        for _ in 0..=self.chance.below(3) {
            let key = self.key();
            self.written += 1;
            let value = format!("{}-{}", self.index, self.written).into_bytes();
            changes.insert(key, (self.chance.below(4) > 0).then_some(value));
        }
        changes.into_iter().collect()
    }

    fn batch(&mut self, place: &str, changes: &Changed, if_offset: Option<u64>) -> Said<u64> {
        let changes = changes
            .iter()
            .map(|(key, value)| Change { key: key.as_str().into(), value: value.as_deref().map(Into::into) });
        let changes = changes.collect();
        let batch = StateBatch { place: place.into(), changes, if_offset, if_root: None };
        self.client.batch(&batch).map(|answer| answer.offset)
    }

    fn everything(&mut self, place: &str, view: Option<View>) -> Said<Model> {
        let scan = StateScan { place: place.into(), start: None, limit: None, view };
        let answer = self.client.scan(&scan)?;
        Ok(answer.entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_vec())).collect())
    }

    /// Does something; how many calls it took.
    fn act(&mut self) -> u64 {
        let passing = self.world.passing.lock().clone();
        let forks: Vec<_> = self.world.lasting.iter().chain(&passing).cloned().collect();
        let fork = self.chance.of(&forks).clone();
        let calls = match self.chance.below(40) {
            0..=21 => self.read(&fork.name),
            22 => self.drop_one(&passing),
            _ => {
                let is_closed = fork.is_closed.read();
                if *is_closed { 0 } else { self.write(&fork.name) }
            }
        };
        fork.calls.fetch_add(calls, Ordering::Relaxed);
        calls
    }

    fn read(&mut self, fork: &str) -> u64 {
        let view = *self.chance.of(&[None, Some(View::Committed), Some(View::Pending)]);
        let (kind, key, start, until) =
            (self.chance.below(8), self.key(), self.maybe_key(), self.maybe_key());
        let limit = 1 + self.chance.below(4) as u32;
        let asked = self.tick();
        let place = fork.into();
        let read = match kind {
            0..=2 => {
                let get = StateGet { place, key: (&*key).into(), view };
                let value = self.client.get(&get).map(|answer| answer.value.map(|value| value.into_owned()));
                value.map(|value| What::Saw(key, value))
            }
            3 => self.everything(fork, view).map(What::SawAll),
            4 => {
                let scan =
                    StateScan { place, start: start.as_deref().map(Into::into), limit: Some(limit), view };
                self.client.scan(&scan).map(|answer| What::SawPage {
                    entries: answer.entries.iter().map(|e| (e.key.to_string(), e.value.to_vec())).collect(),
                    next: answer.next.as_ref().map(|next| next.to_string()),
                    start: start.clone(),
                })
            }
            5 => {
                let (from, to) = (start.as_deref().map(Into::into), until.as_deref().map(Into::into));
                let count = StateCount { place, start: from, until: to, view };
                let count = self.client.count(&count).map(|answer| answer.count);
                count.map(|count| What::Counted(start, until, count))
            }
            6 => match self.ends.get(fork).copied() {
                Some(offset) => self.long_ago(fork, offset, limit).map(|all| What::SawThen(offset, all)),
                None => return 0,
            },
            _ => {
                let root = self.client.root(&StateRoot { place, view });
                root.map(|answer| What::Rooted(answer.root, answer.offset))
            }
        };
        self.note_read(fork, asked, read);
        1
    }

    /// Everything as it was when a fork ended there, page by page.
    fn long_ago(&mut self, fork: &str, offset: u64, limit: u32) -> Said<Model> {
        let (mut all, mut start) = (Model::new(), None::<String>);
        loop {
            let from = start.as_deref().map(Into::into);
            let page = StateHistory { fork: fork.into(), offset, start: from, limit: Some(limit) };
            let page = self.client.history(&page)?;
            all.extend(page.entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_vec())));
            match &page.next {
                Some(next) => start = Some(next.to_string()),
                None => return Ok(all),
            }
        }
    }

    /// Writes to a fork that nobody drops meanwhile.
    fn write(&mut self, fork: &str) -> u64 {
        match self.chance.below(17) {
            0..=7 => {
                let changes = self.changes();
                let asked = self.tick();
                let offset = self.batch(fork, &changes, None).unwrap();
                self.note(fork, asked, What::Wrote(changes, offset));
                1
            }
            8..=9 => self.write_one(fork),
            10..=12 => self.write_after(fork),
            13 => self.branch(fork),
            _ => self.session(fork),
        }
    }

    fn write_one(&mut self, fork: &str) -> u64 {
        let (key, value) = self.changes().remove(0);
        let asked = self.tick();
        let offset = match &value {
            Some(value) => {
                let put = StatePut { place: fork.into(), key: (&*key).into(), value: (&**value).into() };
                self.client.put(&put).unwrap().offset
            }
            None => {
                self.client.remove(&StateRemove { place: fork.into(), key: (&*key).into() }).unwrap().offset
            }
        };
        self.note(fork, asked, What::Wrote(vec![(key, value)], offset));
        1
    }

    /// Writes on condition that nobody did since a look.
    fn write_after(&mut self, fork: &str) -> u64 {
        let asked = self.tick();
        let root = self.client.root(&StateRoot { place: fork.into(), view: Some(View::Pending) });
        let (root, base) = root.map(|answer| (answer.root, answer.offset)).unwrap();
        self.note(fork, asked, What::Rooted(root, base));
        let changes = self.changes();
        let asked = self.tick();
        match self.batch(fork, &changes, Some(base)) {
            Ok(offset) => {
                self.note(fork, asked, What::Spanned(base, offset));
                self.note(fork, asked, What::Wrote(changes, offset));
            }
            Err(error) => {
                assert!(error.to_string().contains("conflict: "), "{error}");
                self.note(fork, asked, What::Refused(base));
            }
        }
        2
    }

    /// Makes a fork, of what is there or of what this client wrote once.
    fn branch(&mut self, parent: &str) -> u64 {
        if self.world.passing.lock().len() >= PASSING_MAX {
            return 0;
        }
        let wrote = self.ends.get(parent).copied();
        let offset = wrote.filter(|_| self.chance.below(3) == 0);
        let asked = self.tick();
        let answer = self.client.fork(&StateFork { parent: parent.into(), offset }).unwrap();
        let (name, at) = (answer.fork.to_string(), answer.offset);
        match offset {
            None => self.note(parent, asked, What::Branched(at)),
            Some(offset) => assert_eq!(at, offset),
        }
        let fork = self.world.bear(&name, parent, at);
        self.world.passing.lock().push(fork);
        1
    }

    /// Drops a fork, once everything that was written to it is known.
    fn drop_one(&mut self, passing: &[Arc<Fork>]) -> u64 {
        let is_used = |fork: &&Arc<Fork>| fork.calls.load(Ordering::Relaxed) >= CALLS_MIN;
        let Some(fork) = passing.iter().find(is_used) else { return 0 };
        if std::mem::replace(&mut *fork.is_closed.write(), true) {
            return 0;
        }
        let line = Line::read(&self.world.store, &self.world.log(&fork.name), fork.at);
        let asked = self.tick();
        self.client.drop(&StateDrop { fork: (&*fork.name).into() }).unwrap();
        let answered = self.tick();
        self.world.endings.lock().insert(fork.name.clone(), Ending { line, asked, answered });
        self.world.passing.lock().retain(|other| other.name != fork.name);
        1
    }

    /// A session from its snapshot to its end; how many calls it took.
    fn session(&mut self, fork: &str) -> u64 {
        let open = StateOpen { fork: fork.into(), lease_ms: None };
        let session = self.client.open(&open).unwrap().session.into_owned();
        let mut asked = self.tick();
        let mut base = self.client.snapshot(&StateSnapshot { session: (&*session).into() }).unwrap().offset;
        let mut calls = 3;
        loop {
            let (written, took) = self.in_snapshot(fork, &session, asked, base);
            calls += took + 1;
            asked = self.tick();
            // A snapshot commits the one that is pending, and begins the next where that ended.
            let (ended, goes_on) = match self.chance.below(4) {
                0 => {
                    self.client.rollback(&StateRollback { session: (&*session).into() }).unwrap();
                    break;
                }
                1 => {
                    let snapshot = self.client.snapshot(&StateSnapshot { session: (&*session).into() });
                    (snapshot.map(|answer| answer.offset), true)
                }
                _ => {
                    let commit = self.client.commit(&StateCommit { session: (&*session).into() });
                    (commit.map(|answer| answer.offset), false)
                }
            };
            match ended {
                Ok(end) => {
                    // One that follows upon nothing written says nothing about what was between; nor does a
                    // commit of nothing, which is of its snapshot.
                    if written.is_empty() {
                        assert!(goes_on || end == base, "{end} is not the snapshot's {base}");
                    } else {
                        self.note(fork, asked, What::Spanned(base, end));
                        self.note(fork, asked, What::Wrote(written, end));
                    }
                    base = end;
                    if !goes_on {
                        break;
                    }
                }
                Err(error) => {
                    assert!(error.to_string().contains("conflict: "), "{error}");
                    assert!(!written.is_empty(), "refused, though nothing was written");
                    self.note(fork, asked, What::Refused(base));
                    break;
                }
            }
        }
        self.client.close(&StateClose { session: session.into() }).unwrap();
        calls + 1
    }

    /// What a session sees and writes beside its snapshot, which it asked for then and which ended there.
    fn in_snapshot(&mut self, fork: &str, session: &str, asked: u64, base: u64) -> (Changed, u64) {
        let seen = self.everything(session, None).unwrap();
        self.note(fork, asked, What::SawAll(seen.clone()));
        let mut own = seen;
        let (mut written, mut calls) = (BTreeMap::new(), 1);
        for _ in 0..self.chance.below(4) {
            let changes = self.changes();
            assert_eq!(self.batch(session, &changes, None).unwrap(), base);
            for (key, value) in changes {
                match &value {
                    Some(value) => drop(own.insert(key.clone(), value.clone())),
                    None => drop(own.remove(&key)),
                }
                written.insert(key, value);
            }
            let now = self.everything(session, None).unwrap();
            assert_eq!(now, own, "a session sees its snapshot and its own writes");
            calls += 2;
        }
        if self.chance.below(2) == 0 {
            let asked = self.tick();
            let (before, now, view) = (fork.into(), session.into(), Some(View::Pending));
            let diff = StateDiff { before, now, start: None, limit: None, view };
            let answer = self.client.diff(&diff).unwrap();
            let change =
                |change: &Change<'_>| (change.key.to_string(), change.value.as_deref().map(<[u8]>::to_vec));
            let changes = answer.changes.iter().map(change).collect();
            self.note(fork, asked, What::Differs(changes, own));
            calls += 1;
        }
        (written.into_iter().collect(), calls)
    }
}

#[test]
fn every_fork_is_serial() {
    run(Durability::Os, number("THALWEG_OPERATIONS", 20_000));
}

#[test]
fn every_fork_is_serial_while_answers_wait_for_the_disk() {
    run(Durability::Sync, number("THALWEG_OPERATIONS", 60_000) / 10);
}

fn run(durability: Durability, operations: u64) {
    let seed = number("THALWEG_SEED", 1);
    let directory = tempfile::tempdir().unwrap();
    let state = Options { image_bytes: IMAGE_BYTES, ..Options::default() };
    let options = ServiceOptions { state, ..ServiceOptions::default() };
    let served = Served::start(directory.path(), store(directory.path(), durability), options);
    let mut client = connect(directory.path(), WAYS[0]);
    let mut world = World {
        clock: AtomicU64::new(0),
        done: AtomicU64::new(0),
        lasting: vec![Fork::new("main", 0)],
        passing: Mutex::default(),
        new_logs: Mutex::default(),
        endings: Mutex::default(),
        state: served.service.state().unwrap(),
        store: served.store.clone(),
    };
    for _ in 0..2 {
        let fork = client.fork(&StateFork { parent: "main".into(), offset: None }).unwrap();
        let fork = world.bear(&fork.fork, "main", fork.offset);
        world.lasting.push(fork);
    }
    let notes: Vec<Note> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let (world, directory) = (&world, directory.path());
                scope.spawn(move || {
                    let client = connect(directory, WAYS[index % 2]);
                    let chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (index as u64 + 1) << 20);
                    let mut actor = Actor {
                        index,
                        client,
                        chance,
                        world,
                        notes: Vec::new(),
                        ends: HashMap::new(),
                        written: 0,
                    };
                    while world.done.load(Ordering::Relaxed) < operations {
                        let calls = actor.act();
                        world.done.fetch_add(calls, Ordering::Relaxed);
                    }
                    actor.notes
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    check(&world, notes);
    assert_eq!(served.service.sessions(), 0);
}

/// Judges all forks there were, each before those that were made of it.
fn check(world: &World, notes: Vec<Note>) {
    let mut by_fork: HashMap<String, Vec<Note>> = HashMap::new();
    for note in notes {
        by_fork.entry(note.fork.clone()).or_default().push(note);
    }
    let (new_logs, mut endings) = (world.new_logs.lock(), world.endings.lock());
    assert!(endings.len() > 1, "hardly a fork was dropped");
    let mut branches: HashMap<&str, Vec<&Birth>> = HashMap::new();
    for birth in new_logs.iter() {
        branches.entry(&birth.parent).or_default().push(birth);
    }
    let mut begins = HashMap::from([("main", Model::new())]);
    for (fork, at) in [("main", 0)].into_iter().chain(new_logs.iter().map(|birth| (&*birth.fork, birth.at))) {
        let (line, dropped) = match endings.remove(fork) {
            Some(ending) => (ending.line, Some((ending.asked, ending.answered))),
            None => (Line::read(&world.store, &world.log(fork), at), None),
        };
        let course = Course::new(line, at, begins.remove(fork).unwrap());
        for branch in branches.remove(fork).unwrap_or_default() {
            begins.insert(&branch.fork, course.states[course.at(branch.at)].clone());
        }
        if dropped.is_none() {
            let map = world.state.map(world.id(fork), Which::Committed).unwrap();
            let held = map.scan(std::ops::Bound::Unbounded);
            let held: Model = held.map(|(key, value)| (key.to_string(), value.to_vec())).collect();
            assert_eq!(Some(&held), course.states.last());
        }
        judge(&course, &by_fork.remove(fork).unwrap_or_default(), dropped);
    }
}
