//! The gate between real processes, over real files.
//!
//! Each test is both sides: it runs itself again in a child, which finds the directory to meet in in its
//! environment and does the sleeper's part.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::Duration;
use thalweg_sync::gate::Gate;
use thalweg_sync::words::Words;
use thalweg_sys::disk::{Allocation, Disk, File, Map};

const DIRECTORY: &str = "THALWEG_TEST_GATE_DIRECTORY";
const CHILD: &str = "THALWEG_TEST_GATE_CHILD";
const BYTES: usize = 4096;
const ROUNDS: u64 = 100_000;
const CHILDREN: usize = 2;
/// Who waits for longer is taken for a sleeper that was never woken. A round takes microseconds.
const STANDSTILL: Duration = Duration::from_secs(60);

/// A child process that does not outlive its test.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Sleeper {
    /// Runs the test of this name in a process of its own, as child number `child`.
    fn start(test: &str, directory: &Path, child: usize) -> Sleeper {
        let program = std::env::current_exe().unwrap();
        let started = Command::new(program)
            .args([test, "--exact", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(CHILD, child.to_string())
            .stdout(std::process::Stdio::null())
            .spawn();
        Sleeper(started.unwrap())
    }

    fn ended_well(mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

/// In a child: where to meet, and which child this is.
fn as_child() -> Option<(PathBuf, usize)> {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY)?);
    Some((directory, std::env::var(CHILD).unwrap().parse().unwrap()))
}

fn file(directory: &Path, name: &str) -> File {
    let path = directory.join(name);
    Disk::Real.open(&path).unwrap_or_else(|_| {
        let file = Disk::Real.create(&path).unwrap();
        file.allocate(BYTES as u64, Allocation::ZeroFilled).unwrap();
        file
    })
}

fn map(directory: &Path, name: &str) -> Map {
    file(directory, name).map(BYTES, true).unwrap()
}

/// What both sides see: the parent's word and each child's, and the gates at which the others sleep.
struct Meeting {
    words: Words,
    there: Gate,
    back: [Gate; CHILDREN],
}

impl Meeting {
    fn at(directory: &Path) -> Meeting {
        let back = std::array::from_fn(|child| Gate::new(map(directory, &format!("back-{child}"))));
        Meeting {
            words: Words::new(map(directory, "words")),
            there: Gate::new(map(directory, "there")),
            back,
        }
    }

    /// Answers each round.
    fn child(&self, child: usize) {
        for round in 1..=ROUNDS {
            assert!(self.there.wait(Some(STANDSTILL * 2), || self.words.load(0) >= round));
            self.words.store(8 + child, round);
            self.back[child].announce();
        }
    }

    /// Begins each round and waits until all have answered; tells after every thousandth.
    fn parent(&self, progress: &mpsc::Sender<u64>) {
        for round in 1..=ROUNDS {
            self.words.store(0, round);
            self.there.announce();
            // Sometimes late, so that the answer also comes before and during the declaration.
            (0..round % 64 * 16).for_each(|_| std::hint::spin_loop());
            for (child, back) in self.back.iter().enumerate() {
                assert!(back.wait(None, || self.words.load(8 + child) == round));
            }
            if round % 1000 == 0 {
                progress.send(round).unwrap();
            }
        }
    }
}

#[test]
fn processes_answer_each_other_and_no_wake_is_lost() {
    if let Some((directory, child)) = as_child() {
        return Meeting::at(&directory).child(child);
    }
    let directory = tempfile::tempdir().unwrap();
    let meeting = Meeting::at(directory.path());
    let children: [_; CHILDREN] = std::array::from_fn(|child| {
        Sleeper::start("processes_answer_each_other_and_no_wake_is_lost", directory.path(), child)
    });
    let (progress, told) = mpsc::channel();
    // Not joined: a round that stands still never ends.
    std::thread::spawn(move || meeting.parent(&progress));
    for thousand in 1..=ROUNDS / 1000 {
        let round = told.recv_timeout(STANDSTILL);
        assert_eq!(round, Ok(thousand * 1000), "somebody was not woken");
    }
    children.into_iter().for_each(|child| assert!(child.ended_well()));
}

#[test]
fn a_sleeper_that_was_killed_costs_one_wake() {
    if let Some((directory, _)) = as_child() {
        let gate = Gate::new(map(&directory, "there"));
        assert!(!gate.wait(Some(STANDSTILL * 2), || false));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (signal, gate) = (file(directory.path(), "there"), Gate::new(map(directory.path(), "there")));
    let child = Sleeper::start("a_sleeper_that_was_killed_costs_one_wake", directory.path(), 0);
    let mut sleepers = [0; 4];
    while u32::from_ne_bytes(sleepers) == 0 {
        std::thread::sleep(Duration::from_millis(1));
        signal.read_at(&mut sleepers, 0).unwrap();
    }
    drop(child);
    let wakes: Vec<_> = (0..4).map(|_| gate.announce()).collect();
    assert_eq!(wakes, [true, false, false, false]);
}
