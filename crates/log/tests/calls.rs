//! What makes no system call: an append in `os` mode, and reading what was appended, within a stretch of a
//! segment whose pages were brought in. That takes a call for each stretch of 2 MiB at most (`ahead`).
//!
//! This program runs itself again, told so by its first argument. That one has the kernel kill it with the
//! first system call that it makes from a certain point on, and says when it came past what makes none.
#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::io::Write;
use std::path::Path;
use std::process::Command;
use thalweg_log::{Attached, Disk, Durability, Options, Query, Store};
use thalweg_sys::process::forbid_calls;

/// They take less than a stretch of a segment, which is an eighth of it.
const ENTRIES: u64 = 10_000;
const BYTES: usize = 100;
const SEGMENT_BYTES: u32 = 16 << 20;
const SAID: &str = "made none";

/// What is done with a store in `os` mode, without a call.
fn work(directory: &Path, what: &str) {
    let sizes = Options { segment_bytes_min: SEGMENT_BYTES, ..Options::default() };
    let options = Options { durability: Durability::Os, committer_thread: false, ..sizes };
    let (store, _) = Store::open(&Disk::Real, directory, options).unwrap();
    let log = store.log(b"a").unwrap();
    let attached = Attached::open(&Disk::Real, directory).unwrap();
    let mut own = store.reader(&log).follow(&Query::default());
    let mut neighbours = attached.reader(&attached.find(b"a").unwrap().unwrap()).follow(&Query::default());
    let mut read = 0;
    let mut append = |time| {
        store.append(&log, &[7; BYTES], time).unwrap();
        for cursor in [&mut own, &mut neighbours] {
            while cursor.next().unwrap().is_some() {
                read += 1;
            }
        }
    };
    // The first ones make room for what the next ones need.
    (0..ENTRIES / 10).for_each(&mut append);
    let mut out = std::io::stdout().lock();
    forbid_calls().unwrap();
    (ENTRIES / 10..ENTRIES).for_each(&mut append);
    if what == "flush" {
        store.flush().unwrap();
    }
    assert_eq!(read, 2 * ENTRIES);
    out.write_all(SAID.as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Whether it is done without a call.
fn makes_none(what: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args([what.as_ref(), directory.path().as_os_str()]).output().unwrap();
    // It could not end, either, without a call.
    assert!(!output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    output.stdout == SAID.as_bytes()
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, what, directory] = &words[..]
        && ["append", "flush"].contains(&what.as_str())
    {
        return work(Path::new(directory), what);
    }
    assert!(
        makes_none("append"),
        "an append in `os` mode, or a look at what it appended, made a system call"
    );
    assert!(!makes_none("flush"), "a sync went unnoticed");
    println!("{ENTRIES} appends in `os` mode, read by their process and by another: no system call");
}
