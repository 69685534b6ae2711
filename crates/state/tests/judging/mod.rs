//! What clients noted of a fork, and whether it can have been so.
//!
//! 1. *What was committed is a line*: each entry of a fork's log is the commit of exactly one call that was
//!    answered with its end, whole and nothing else, and every acknowledged write that changed something has
//!    one. So writes are serial, in the order of the log. A fork's line begins with its parent's, up to where
//!    it was made.
//! 2. *Reads fit into the line*: what a read saw is the state after some entry, and that is neither older
//!    than what had been answered when it was asked, nor newer than what had been asked for when it was
//!    answered. A pending read sees at least every write that was answered before; a committed one as well,
//!    because answers wait for the disk. So does a fork.
//! 3. *Sessions are atomic*: what is read after a snapshot is the snapshot with the session's own writes on
//!    it, until its end; a commit of writes is refused exactly if somebody else's entry came in between, one
//!    of nothing never. So is a write on a condition.
//! 4. *A fork that was dropped is gone*: nothing is read of it that was asked for after that was answered,
//!    and nobody is told that it is gone before that was asked for.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "this is tests' code, and not every test uses all of it"
)]

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use thalweg_log::{Query, Start, Store};
use thalweg_state::{Change, Changes, Digest, Map};

pub type Model = BTreeMap<String, Vec<u8>>;

/// What a client was told, between two readings of the one clock.
pub struct Note {
    pub client: usize,
    pub fork: String,
    pub asked: u64,
    pub answered: u64,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// Changes, and where the fork ended with them.
    Wrote(Vec<(String, Option<Vec<u8>>)>, u64),
    /// A key held this.
    Saw(String, Option<Vec<u8>>),
    /// Everything was this.
    SawAll(Model),
    /// From a key on there was this, and it went on there.
    SawPage { start: Option<String>, entries: Vec<(String, Vec<u8>)>, next: Option<String> },
    /// From a key on to before another there were so many.
    Counted(Option<String>, Option<String>, u64),
    /// Everything had this digest, and the fork ended there.
    Rooted([u8; 32], u64),
    /// When it ended there, everything was this.
    SawThen(u64, Model),
    /// What makes of the fork what a session saw.
    Differs(Vec<(String, Option<Vec<u8>>)>, Model),
    /// A fork was made of it as it ended there.
    Branched(u64),
    /// What a writer saw ended at the first, and its own write at the second.
    Spanned(u64, u64),
    /// A writer that saw up to there was refused.
    Refused(u64),
    /// There was no such fork.
    Gone,
}

/// Where a fork came from.
pub struct Birth {
    pub fork: String,
    pub parent: String,
    pub at: u64,
}

/// A fork that was dropped: its line, and when that was asked for and answered.
pub struct Ending {
    pub line: Line,
    pub asked: u64,
    pub answered: u64,
}

/// What a fork's log says of its own, behind what it inherited.
pub struct Line(Vec<Entry>);

struct Entry {
    end: u64,
    messages: Vec<Message>,
}

/// A key, what the log calls its change, and what it holds from then on.
struct Message {
    key: String,
    operation: String,
    value: Option<Vec<u8>>,
}

impl Line {
    /// Reads it from the log, with no code of the state's: the messages as anybody would.
    pub fn read(store: &Store, log: &str, from: u64) -> Self {
        let found = store.find(log.as_bytes()).unwrap();
        let mut reader = store.reader(&found);
        let entries = reader.entries(&Query::from(Start::Offset(from))).map(|entry| {
            let entry = entry.unwrap();
            let inner = entry.data.strip_suffix(b",").unwrap();
            let text = [b"[", inner, b"]"].concat();
            let messages: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
            let end = entry.offset + entry.data.len() as u64;
            Entry { end, messages: messages.iter().map(Message::of).collect() }
        });
        Self(entries.collect())
    }
}

impl Message {
    fn of(message: &serde_json::Value) -> Self {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let operation = text(&message["headers"]["operation"]);
        let value = (operation != "delete").then(|| decode(message["value"].as_str().unwrap()));
        Self { key: text(&message["key"]), operation, value }
    }
}

/// Whether a fork's log begins with what its parent's said until it was made.
pub fn inherits(store: &Store, fork: &str, parent: &str, at: u64) -> bool {
    let reader = |log: &str| store.reader(&store.find(log.as_bytes()).unwrap());
    let (mut fork, mut parent) = (reader(fork), reader(parent));
    let said = |entry: Result<thalweg_log::Entry<'_>, _>| {
        let entry = entry.unwrap_or_else(|error: thalweg_log::ReadError| panic!("{error}"));
        (entry.offset, entry.data.to_vec())
    };
    let is_before = |(offset, _): &(u64, Vec<u8>)| *offset < at;
    let fork = fork.entries(&Query::default()).map(said).take_while(is_before);
    fork.eq(parent.entries(&Query::default()).map(said).take_while(is_before))
}

/// A line from where it began: what the fork was there and after each entry, and where that ended.
pub struct Course {
    pub states: Vec<Model>,
    pub ends: Vec<u64>,
    /// By its end: which state each entry led to, and what it changed.
    entries: HashMap<u64, (usize, Model)>,
}

impl Course {
    pub fn new(line: Line, from: u64, begin: Model) -> Self {
        let mut course = Self { states: vec![begin], ends: vec![from], entries: HashMap::new() };
        for Entry { end, messages } in line.0 {
            let (mut state, mut changes) = (course.states[course.states.len() - 1].clone(), Model::new());
            for Message { key, operation, value } in messages {
                let before = match &value {
                    Some(value) => state.insert(key.clone(), value.clone()),
                    None => state.remove(&key),
                };
                let is_said = match (&before, &value) {
                    (None, Some(_)) => "insert",
                    (Some(_), Some(_)) => "update",
                    (Some(_), None) => "delete",
                    (None, None) => "nothing",
                };
                assert_eq!(operation, is_said, "of {key} at {end}");
                changes.insert(key, value.unwrap_or_default());
            }
            course.entries.insert(end, (course.states.len(), changes));
            course.states.push(state);
            course.ends.push(end);
        }
        course
    }

    /// The state's number by where it ends.
    pub fn at(&self, offset: u64) -> usize {
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

/// Whether something can have been seen in a state, which ended there.
fn fits(what: &What, state: &Model, end: u64) -> bool {
    let from = |start: &Option<String>| start.clone().map_or(Bound::Unbounded, Bound::Included);
    match what {
        What::Saw(key, value) => state.get(key) == value.as_ref(),
        What::SawAll(all) => state == all,
        What::SawPage { start, entries, next } => {
            let mut rest = state.range::<String, _>((from(start), Bound::Unbounded));
            entries.iter().all(|(key, value)| rest.next() == Some((key, value)))
                && rest.next().map(|(key, _)| key) == next.as_ref()
        }
        What::Counted(start, until, count) => {
            let rest = state.range::<String, _>((from(start), Bound::Unbounded));
            let is_before = |key: &&String| until.as_ref().is_none_or(|until| *key < until);
            rest.map(|(key, _)| key).take_while(is_before).count() as u64 == *count
        }
        What::Rooted(root, at) => *at == end && digest(state) == *root,
        What::Differs(changes, now) => {
            let mut state = state.clone();
            for (key, value) in changes {
                let before = match value {
                    Some(value) => state.insert(key.clone(), value.clone()),
                    None => state.remove(key),
                };
                if before == *value {
                    return false;
                }
            }
            state == *now
        }
        What::Branched(at) => *at == end,
        What::SawThen(..) | What::Wrote(..) | What::Spanned(..) | What::Refused(_) | What::Gone => false,
    }
}

fn digest(state: &Model) -> [u8; 32] {
    let changes = state.iter().map(|(key, value)| Change::Put(key.into(), value.as_slice().into()));
    let mut map = Map::default();
    map.apply(&changes.collect::<Changes>());
    Digest::of(&map).root()
}

/// Judges what was noted of one fork, which was dropped between these times, if it was.
pub fn judge(course: &Course, notes: &[Note], dropped: Option<(u64, u64)>) {
    let (mut answered, asked) = writes(course, notes);
    answered.sort_unstable();
    let mut newest = 0;
    for (_, at) in &mut answered {
        newest = newest.max(*at);
        *at = newest;
    }
    for note in notes {
        match &note.what {
            What::Wrote(..) => {}
            What::Spanned(base, end) => {
                let between = course.at(*end) - course.at(*base);
                assert!(between <= 1, "a commit over {} entries of others", between - 1);
            }
            What::Refused(base) => {
                assert!(course.at(*base) + 1 < course.states.len(), "refused, though nobody else committed");
            }
            What::SawThen(end, all) => assert_eq!(course.states[course.at(*end)], *all, "at {end}"),
            What::Gone => assert!(
                dropped.is_some_and(|(asked, _)| asked < note.answered),
                "client {} was told that {} is gone, and nobody had dropped it",
                note.client,
                note.fork
            ),
            seen => {
                let least = answered.partition_point(|(time, _)| *time < note.asked);
                let least = least.checked_sub(1).map_or(0, |n| answered[n].1);
                let is_early = |state: usize| asked.get(&state).is_none_or(|asked| *asked < note.answered);
                let can_be =
                    (least..course.states.len()).take_while(|state| *state == least || is_early(*state));
                let fits = |state: &usize| fits(seen, &course.states[*state], course.ends[*state]);
                if !can_be.clone().any(|state| fits(&state)) {
                    let was = (0..course.states.len()).rfind(fits);
                    panic!(
                        "client {} saw of {} what was after {was:?}, neither {least} nor what came meanwhile, \
                         {}: {seen:?}",
                        note.client,
                        note.fork,
                        can_be.count()
                    );
                }
                assert!(
                    dropped.is_none_or(|(_, answered)| note.asked < answered),
                    "client {} saw {} when it was dropped: {seen:?}",
                    note.client,
                    note.fork
                );
            }
        }
    }
}

/// Finds each write's entry; how far the line had come for certain at which time, and when each entry was
/// asked for first.
fn writes(course: &Course, notes: &[Note]) -> (Vec<(u64, usize)>, HashMap<usize, u64>) {
    let mut claimed: HashMap<u64, usize> = HashMap::new();
    let mut answered: Vec<(u64, usize)> = Vec::new();
    let mut asked: HashMap<usize, u64> = HashMap::new();
    for note in notes {
        let What::Wrote(changes, offset) = &note.what else { continue };
        let at = course.at(*offset);
        answered.push((note.answered, at));
        let before = course.entries.get(offset).map(|(at, _)| &course.states[at - 1]);
        let effective: Model = before.map_or_else(Model::new, |before| {
            changes
                .iter()
                .filter(|(key, value)| before.get(key) != value.as_ref())
                .map(|(key, value)| (key.clone(), value.clone().unwrap_or_default()))
                .collect()
        });
        if before.is_some() && !effective.is_empty() && course.entries[offset].1 == effective {
            // Nobody can tell who deleted first; whatever else is written is one client's own.
            let again = claimed.insert(*offset, note.client).is_some();
            assert!(!again || changes.iter().all(|(_, value)| value.is_none()), "one entry, two commits");
            let first = asked.get(&at).map_or(note.asked, |asked: &u64| note.asked.min(*asked));
            asked.insert(at, first);
        } else {
            // It changed nothing: then there it held already what it wrote.
            let state = &course.states[at];
            assert!(changes.iter().all(|(key, value)| state.get(key) == value.as_ref()), "a write was lost");
        }
    }
    for (end, at) in course.ends.iter().zip(0..).skip(1) {
        assert!(claimed.contains_key(end), "entry {at} at {end} is nobody's");
    }
    (answered, asked)
}
