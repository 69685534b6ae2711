//! Random histories of many clients against a serial model.
//!
//! Every client does what chance says, over its own connection, on forks that all share, and notes what it was told and when
//! it asked and was answered, by one clock. Afterwards the history is judged fork by fork, with what the log says:
//!
//! 1. *What was committed is a line*: each entry of a fork's log is the commit of exactly one call that was answered with
//!    its end, whole and nothing else, and every acknowledged write that changed something has one. So writes are serial,
//!    in the order of the log.
//! 2. *Reads fit into the line*: what a read saw is the state after some entry, and that is neither older than what had been
//!    answered when it was asked, nor newer than what had been asked for when it was answered. A pending read sees at least
//!    every write that was answered before; a committed one as well, because answers wait for the disk.
//! 3. *Sessions are atomic*: what is read after a snapshot is the snapshot with the session's own writes on it, until its end;
//!    a commit is refused exactly if somebody else's entry came in between.
//!
//! A run in `cargo test` is short. `THALWEG_OPERATIONS=1000000 cargo test --release -p thalweg-state --test history` is the
//! long one; `THALWEG_SEED` repeats what chance said, though not how threads met.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod serving;

use serving::{Served, WAYS, connect, store};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_log::{Durability, Query};
use thalweg_state::generated::types::*;
use thalweg_state::{ServiceOptions, View as Which};

const CLIENTS: usize = 16;
const KEYS: u64 = 12;

type Model = BTreeMap<String, Vec<u8>>;

/// What a client was told, between two readings of the one clock.
struct Note {
    client: usize,
    fork: String,
    asked: u64,
    answered: u64,
    what: What,
}

enum What {
    /// Changes, and where the fork ended with them.
    Wrote(Vec<(String, Option<Vec<u8>>)>, u64),
    /// A key held this.
    Saw(String, Option<Vec<u8>>),
    /// Everything was this.
    SawAll(Model),
    /// A session's snapshot ended at the first and its commit at the second.
    Spanned(u64, u64),
    /// A session that saw up to there was refused.
    Refused(u64),
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
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

struct Actor<'a> {
    index: usize,
    client: serving::Client,
    chance: Chance,
    clock: &'a AtomicU64,
    forks: &'a [String],
    notes: Vec<Note>,
    written: u64,
}

impl Actor<'_> {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&mut self, fork: &str, asked: u64, what: What) {
        let answered = self.tick();
        self.notes.push(Note { client: self.index, fork: fork.to_owned(), asked, answered, what });
    }

    fn key(&mut self) -> String {
        format!("k{}", self.chance.below(KEYS))
    }

    /// Changes whose values nobody else writes, so that an entry tells whose it is.
    fn changes(&mut self) -> Vec<(String, Option<Vec<u8>>)> {
        let mut changes = BTreeMap::new();
        for _ in 0..=self.chance.below(3) {
            let key = self.key();
            self.written += 1;
            let value = format!("{}-{}", self.index, self.written).into_bytes();
            changes.insert(key, (self.chance.below(4) > 0).then_some(value));
        }
        changes.into_iter().collect()
    }

    fn batch(&mut self, place: &str, changes: &[(String, Option<Vec<u8>>)]) -> u64 {
        let changes = changes
            .iter()
            .map(|(key, value)| Change { key: key.as_str().into(), value: value.as_deref().map(Into::into) });
        let changes = changes.collect();
        self.client
            .batch(&StateBatch { place: place.into(), changes, if_offset: None, if_root: None })
            .unwrap()
            .offset
    }

    fn everything(&mut self, place: &str, view: Option<View>) -> Model {
        let answer =
            self.client.scan(&StateScan { place: place.into(), start: None, limit: None, view }).unwrap();
        answer.entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_vec())).collect()
    }

    fn act(&mut self) -> u64 {
        let fork = self.forks[usize::try_from(self.chance.below(self.forks.len() as u64)).unwrap()].clone();
        let view = [None, Some(View::Committed), Some(View::Pending)];
        let view = view[usize::try_from(self.chance.below(3)).unwrap()];
        match self.chance.below(10) {
            0..=3 => {
                let changes = self.changes();
                let asked = self.tick();
                let offset = self.batch(&fork, &changes);
                self.note(&fork, asked, What::Wrote(changes, offset));
                1
            }
            4..=6 => {
                let key = self.key();
                let asked = self.tick();
                let get = StateGet { place: (&*fork).into(), key: (&*key).into(), view };
                let value = self.client.get(&get).unwrap().value.map(|value| value.into_owned());
                self.note(&fork, asked, What::Saw(key, value));
                1
            }
            7..=8 => {
                let asked = self.tick();
                let all = self.everything(&fork, view);
                self.note(&fork, asked, What::SawAll(all));
                1
            }
            _ => self.session(&fork),
        }
    }

    /// A session from its snapshot to its end; how many calls it took.
    fn session(&mut self, fork: &str) -> u64 {
        let open = StateOpen { fork: fork.into(), lease_ms: None };
        let session = self.client.open(&open).unwrap().session.into_owned();
        let asked = self.tick();
        let base = self.client.snapshot(&StateSnapshot { session: (&*session).into() }).unwrap().offset;
        let seen = self.everything(&session, None);
        self.note(fork, asked, What::SawAll(seen.clone()));
        let mut own = seen;
        let (mut written, mut calls) = (BTreeMap::new(), 4);
        for _ in 0..self.chance.below(4) {
            let changes = self.changes();
            assert_eq!(self.batch(&session, &changes), base);
            for (key, value) in changes {
                match &value {
                    Some(value) => drop(own.insert(key.clone(), value.clone())),
                    None => drop(own.remove(&key)),
                }
                written.insert(key, value);
            }
            assert_eq!(
                self.everything(&session, None),
                own,
                "a session sees its snapshot and its own writes"
            );
            calls += 2;
        }
        let asked = self.tick();
        if self.chance.below(3) == 0 {
            self.client.rollback(&StateRollback { session: (&*session).into() }).unwrap();
        } else {
            match self.client.commit(&StateCommit { session: (&*session).into() }) {
                Ok(answer) => {
                    let offset = answer.offset;
                    self.note(fork, asked, What::Spanned(base, offset));
                    self.note(fork, asked, What::Wrote(written.into_iter().collect(), offset));
                }
                Err(error) => {
                    assert!(error.to_string().contains("conflict: "), "{error}");
                    self.note(fork, asked, What::Refused(base));
                }
            }
        }
        self.client.close(&StateClose { session: session.into() }).unwrap();
        calls + 1
    }
}

/// A fork's line: what it was after each entry, and where that ended.
struct Line {
    states: Vec<Model>,
    ends: Vec<u64>,
    entries: HashMap<u64, (usize, Model)>,
}

impl Line {
    /// Reads it from the log, with no code of the state's: the messages as anybody would.
    fn read(log: &thalweg_log::Store, name: &str) -> Self {
        let found = log.find(name.as_bytes()).unwrap();
        let mut reader = log.reader(&found);
        let mut line = Self { states: vec![Model::new()], ends: vec![0], entries: HashMap::new() };
        for entry in reader.entries(&Query::default()) {
            let entry = entry.unwrap();
            let inner = entry.data.strip_suffix(b",").unwrap();
            let text = [b"[", inner, b"]"].concat();
            let messages: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
            let (mut state, mut changes) = (line.states.last().unwrap().clone(), Model::new());
            for message in messages {
                let key = message["key"].as_str().unwrap().to_owned();
                if message["headers"]["operation"] == "delete" {
                    assert!(state.remove(&key).is_some(), "what is deleted was there");
                    changes.insert(key, Vec::new());
                } else {
                    let text = message["value"].as_str().unwrap();
                    let value = decode(text);
                    let before = state.insert(key.clone(), value.clone());
                    let operation = if before.is_some() { "update" } else { "insert" };
                    assert_eq!(message["headers"]["operation"], operation);
                    changes.insert(key, value);
                }
            }
            let end = entry.offset + entry.data.len() as u64;
            line.entries.insert(end, (line.states.len(), changes));
            line.states.push(state);
            line.ends.push(end);
        }
        line
    }

    /// The state's number by where it ends.
    fn at(&self, offset: u64) -> usize {
        self.ends.binary_search(&offset).unwrap_or_else(|_| panic!("nothing ends at {offset}"))
    }
}

/// Base64, by hand: the values here are no JSON.
fn decode(text: &str) -> Vec<u8> {
    let (mut bits, mut held, mut out) = (0_u32, 0, Vec::new());
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}

/// Judges what was noted of one fork.
fn judge(line: &Line, notes: &[&Note], from: usize) {
    let mut claimed: HashMap<u64, usize> = HashMap::new();
    // How far the line had come for certain when something was asked: the newest entry answered before that.
    let mut answered: Vec<(u64, usize)> = Vec::new();
    let mut asked: HashMap<usize, u64> = HashMap::new();
    for note in notes {
        let What::Wrote(changes, offset) = &note.what else { continue };
        let at = line.at(*offset);
        answered.push((note.answered, at));
        let before = line.entries.get(offset).map(|(at, _)| &line.states[at - 1]);
        let effective: Model = before.map_or_else(Model::new, |before| {
            changes
                .iter()
                .filter(|(key, value)| before.get(key) != value.as_ref())
                .map(|(key, value)| (key.clone(), value.clone().unwrap_or_default()))
                .collect()
        });
        if before.is_some() && !effective.is_empty() && line.entries[offset].1 == effective {
            // Nobody can tell who deleted first; whatever else is written is one client's own.
            let again = claimed.insert(*offset, note.client).is_some();
            assert!(!again || changes.iter().all(|(_, value)| value.is_none()), "one entry, two commits");
            let first = asked.get(&at).map_or(note.asked, |asked: &u64| note.asked.min(*asked));
            asked.insert(at, first);
        } else {
            // It changed nothing: then there it held already what it wrote.
            let state = &line.states[at];
            assert!(changes.iter().all(|(key, value)| state.get(key) == value.as_ref()), "a write was lost");
        }
    }
    for (end, at) in line.ends.iter().zip(0..).skip(from + 1) {
        assert!(claimed.contains_key(end), "entry {at} at {end} is nobody's");
    }
    answered.sort_unstable();
    let mut newest = from;
    for (_, at) in &mut answered {
        newest = newest.max(*at);
        *at = newest;
    }
    for note in notes {
        let least = answered.partition_point(|(time, _)| *time < note.asked);
        let least = least.checked_sub(1).map_or(from, |n| answered[n].1);
        let fits = |state: usize| asked.get(&state).is_none_or(|asked| *asked < note.answered);
        let mut candidates = (least..line.states.len()).take_while(|state| *state == least || fits(*state));
        match &note.what {
            What::Saw(key, value) => {
                assert!(
                    candidates.any(|state| line.states[state].get(key) == value.as_ref()),
                    "client {} saw {key} as it never was then",
                    note.client
                );
            }
            What::SawAll(all) => {
                if !candidates.any(|state| line.states[state] == *all) {
                    let was = line.states.iter().rposition(|state| state == all);
                    panic!(
                        "client {} saw what was after {was:?}, neither {least} nor what came meanwhile",
                        note.client
                    );
                }
            }
            What::Spanned(base, end) => {
                let between = line.at(*end) - line.at(*base);
                assert!(between <= 1, "a commit over {} entries of others", between - 1);
            }
            What::Refused(base) => {
                assert!(line.at(*base) + 1 < line.states.len(), "refused, though nobody else committed");
            }
            What::Wrote(..) => {}
        }
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
    let served =
        Served::start(directory.path(), store(directory.path(), durability), ServiceOptions::default());
    let mut forks = vec!["main".to_owned()];
    for _ in 0..2 {
        let mut client = connect(directory.path(), WAYS[0]);
        let fork = client.fork(&StateFork { parent: "main".into(), offset: None }).unwrap().fork;
        forks.push(fork.into_owned());
    }
    let (clock, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let notes: Vec<Note> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let (clock, done, forks, directory) = (&clock, &done, &forks, directory.path());
                scope.spawn(move || {
                    let client = connect(directory, WAYS[index % 2]);
                    let chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (index as u64 + 1) << 20);
                    let mut actor =
                        Actor { index, client, chance, clock, forks, notes: Vec::new(), written: 0 };
                    while done.load(Ordering::Relaxed) < operations {
                        let calls = actor.act();
                        done.fetch_add(calls, Ordering::Relaxed);
                    }
                    actor.notes
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let state = served.service.state().unwrap();
    let lines: HashMap<String, String> =
        state.lines().into_iter().map(|line| (line.fork.to_string(), line.log)).collect();
    for fork in &forks {
        let id = if fork == "main" { state.main() } else { fork.parse().unwrap() };
        let line = Line::read(&served.store, &lines[&id.to_string()]);
        let notes: Vec<&Note> = notes.iter().filter(|note| note.fork == *fork).collect();
        judge(&line, &notes, 0);
        let map = state.map(id, Which::Committed).unwrap();
        let held: Model = map
            .scan(std::ops::Bound::Unbounded)
            .map(|(key, value)| (key.to_string(), value.to_vec()))
            .collect();
        assert_eq!(Some(&held), line.states.last());
    }
    assert_eq!(served.service.sessions(), 0);
}
