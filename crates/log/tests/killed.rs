//! A writer is killed, again and again, while neighbours read: what it acknowledged is there for them, what
//! they see is whole and in order, and they go on with the next writer, over segments that were begun,
//! blanked and purged meanwhile.
//!
//! The writer is this program again, told so by its first argument; it says on its output what was
//! acknowledged. `THALWEG_SEED=n` begins elsewhere.
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use thalweg_log::{Attached, Cursor, Disk, Durability, Options, Purge, Query, ReadError, Start, Store};

const WRITE: &str = "write";
const NAME: &[u8] = b"a";
const ROUNDS: u64 = 12;
/// Entries that a purge leaves.
const KEPT: u64 = 2_000;
/// How long something may take that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A number that is the same in every run; no two steps alike.
fn mixed(seed: u64) -> u64 {
    let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 20
}

/// Appends transactions for as long as it lives; each entry is its number, repeated.
fn write(directory: &Path, durability: Durability) {
    let options =
        Options { durability, segment_bytes_min: 4096, segment_bytes_max: 65_536, ..Options::default() };
    let (store, recovered) = Store::open(&Disk::Real, directory, options).unwrap();
    assert!(recovered.damage.is_empty(), "{:?}", recovered.damage);
    let log = store.log(NAME).unwrap();
    let last = store.reader(&log).entries_back(&Query::default()).next().map(|entry| entry.unwrap().time);
    let mut number = last.map_or(0, |last| last + 1);
    let mut out = std::io::stdout().lock();
    loop {
        let count = 1 + mixed(number) % 4;
        let mut transaction = store.transaction(number + count - 1);
        for number in number..number + count {
            let times = 1 + mixed(number) as usize % 30;
            transaction.append(&log, &number.to_le_bytes().repeat(times)).unwrap();
        }
        transaction.commit().unwrap();
        number += count;
        writeln!(out, "{number}").unwrap();
        if number % 256 < count && number > KEPT {
            store.purge(&Purge { before: Some(number - KEPT), ..Purge::default() }).unwrap();
            store.maintain(0).unwrap();
        }
    }
}

/// A writer, and what it says was acknowledged.
struct Writer {
    child: Child,
    said: Receiver<u64>,
}

impl Writer {
    fn start(directory: &Path, durability: &str) -> Writer {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([WRITE, directory.to_str().unwrap(), durability]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (say, said) = channel();
        std::thread::spawn(move || {
            // The last line may be cut short.
            lines.map_while(Result::ok).filter_map(|line| line.parse().ok()).all(|n| say.send(n).is_ok())
        });
        Writer { child, said }
    }

    /// Lets it acknowledge `count` more, kills it, and answers the last number that it said in full.
    fn kill_after(mut self, count: u64) -> u64 {
        let first = self.said.recv_timeout(PATIENCE).unwrap();
        let mut last = first;
        while last < first + count {
            last = self.said.recv_timeout(PATIENCE).unwrap();
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // A number that lost its last digits is smaller.
        self.said.iter().fold(last, u64::max)
    }
}

/// Somebody who follows, across writers.
struct Follower {
    cursor: Cursor,
    next: u64,
    skipped: u64,
    whole: bool,
}

impl Follower {
    fn new(attached: &Attached) -> Follower {
        let cursor = attached.reader(&attached.find(NAME).unwrap().unwrap()).follow(&Query::default());
        Follower { cursor, next: 0, skipped: 0, whole: true }
    }

    /// Takes what there is, and judges it.
    fn take(&mut self) {
        while let Some(entry) = self.cursor.next().unwrap() {
            let number = u64::from_le_bytes(entry.data[..8].try_into().unwrap());
            assert!(entry.data.chunks(8).all(|part| part == number.to_le_bytes()), "{number} is torn");
            assert_eq!(entry.data.len(), 8 * (1 + mixed(number) as usize % 30));
            let last = entry.last;
            assert!(number >= self.next, "{number} comes again, or late");
            if number > self.next {
                let skipped = self.cursor.skipped_bytes();
                assert!(skipped > self.skipped, "{} to {number} are missing", self.next);
                self.skipped = skipped;
            }
            (self.next, self.whole) = (number + 1, last);
        }
        assert!(self.whole, "half a transaction is seen before {}", self.next);
    }

    /// Follows until a number was seen.
    fn reach(&mut self, number: u64) {
        loop {
            self.take();
            if self.next >= number {
                return;
            }
            assert!(self.cursor.wait(Some(PATIENCE)), "{} of {number} are visible", self.next);
        }
    }
}

/// Short queries of a neighbour while all that goes on.
fn query(attached: &Attached, about: u64) {
    let mut reader = attached.reader(&attached.find(NAME).unwrap().unwrap());
    let from = about.saturating_sub(500);
    let mut next = None;
    for entry in reader.entries(&Query::from(Start::Time(from))).take(1_000) {
        match entry {
            Ok(entry) => {
                let number = u64::from_le_bytes(entry.data[..8].try_into().unwrap());
                // What a query meets may be purged under it, at its front or further on, and never in the
                // middle.
                assert!(entry.time >= from && next.is_none_or(|next| number >= next), "{number}");
                next = Some(number + 1);
            }
            Err(ReadError::Purged { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn attack(durability: &str, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::start(directory.path(), durability);
    writer.said.recv_timeout(PATIENCE).unwrap();
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let (mut eager, mut lazy) = (Follower::new(&attached), Follower::new(&attached));
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let count = mixed(seed << 8 | round) % 1_500;
        acknowledged = std::thread::scope(|scope| {
            let killed = scope.spawn(|| writer.kill_after(count));
            while !killed.is_finished() {
                eager.take();
                query(&attached, eager.next);
            }
            killed.join().unwrap()
        });
        eager.reach(acknowledged);
        if round % 3 == 2 {
            lazy.reach(acknowledged);
        }
        let fresh = Attached::open(&Disk::Real, directory.path()).unwrap();
        assert!(fresh.damage().is_empty(), "{durability}, seed {seed}, round {round}: {:?}", fresh.damage());
        Follower::new(&fresh).reach_from_what_is_left(acknowledged);
        writer = Writer::start(directory.path(), durability);
    }
    writer.kill_after(0);
    assert!(acknowledged > 0 && lazy.next > 0 && eager.next >= acknowledged);
}

impl Follower {
    /// The same for one who comes late: what is purged is none of its business.
    fn reach_from_what_is_left(mut self, number: u64) {
        if let Some(entry) = self.cursor.next().unwrap() {
            (self.next, self.whole) =
                (u64::from_le_bytes(entry.data[..8].try_into().unwrap()) + 1, entry.last);
            self.skipped = self.cursor.skipped_bytes();
        }
        self.reach(number);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == WRITE) {
        let durability = if words[3] == "sync" { Durability::Sync } else { Durability::Os };
        return write(Path::new(&words[2]), durability);
    }
    let seed = std::env::var("THALWEG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for durability in ["os", "sync"] {
        attack(durability, seed);
        println!("a writer in `{durability}` mode killed {ROUNDS} times: nothing lost, torn or out of order");
    }
}
