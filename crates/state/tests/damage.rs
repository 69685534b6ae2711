//! What becomes of a state whose store was damaged, or whose disk had no room for an image.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::path::Path;
use thalweg_log::sim::SimDisk;
use thalweg_log::{Commit, Config, Disk, Durability, Lifetime, Options as StoreOptions, Store};
use thalweg_state::{Change, Error, History, Options, State, View};

fn options() -> StoreOptions {
    StoreOptions { durability: Durability::Os, ..StoreOptions::default() }
}

fn write(state: &State, fork: u64, key: &str, value: &[u8], time: u64) {
    let put = Change::Put(key.into(), value.into());
    state.write(fork, &[put].into_iter().collect(), time).unwrap();
}

fn keys(state: &State, fork: u64) -> usize {
    state.map(fork, View::Committed).unwrap().len()
}

/// Flips a bit where these bytes lie in the store's files.
fn flip(directory: &Path, pattern: &[u8]) {
    let segments = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut flipped = 0;
    for path in segments.filter(|path| path.to_string_lossy().contains("segment-")) {
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(pattern.len()).position(|window| window == pattern) {
            bytes[at + 10] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1, "the bytes lie there once, as they are");
}

/// Images that are there, and those of them that are whole.
fn images(store: &Store) -> (usize, usize) {
    let (mut all, mut whole) = (0, 0);
    store.visit(|log| {
        if let (true, Some(staged)) = (log.name().starts_with(b"s/images/"), log.staged()) {
            all += 1;
            whole += usize::from(staged.closed);
        }
    });
    (all, whole)
}

#[test]
fn an_image_with_a_flipped_bit_is_done_without_and_written_anew() {
    let directory = tempfile::tempdir().unwrap();
    // No text: an entry has it as base64, the image as it is.
    let pattern: Vec<u8> = (0..200_u32).map(|n| (n * 37 % 251) as u8 | 0x80).collect();
    let store = Store::open(&Disk::Real, directory.path(), options()).unwrap().0;
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    (0..10).for_each(|n| write(&state, main, &format!("k{n}"), &pattern, n));
    state.checkpoint(main, 20).unwrap();
    drop(state);
    store.close().unwrap();
    drop(store);
    flip(directory.path(), &pattern);
    let store = Store::open(&Disk::Real, directory.path(), options()).unwrap().0;
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert!(matches!(state.damage(), [Error::Read(_)]), "{:?}", state.damage());
    assert_eq!((keys(&state, main), images(&store)), (10, (0, 0)));
    state.checkpoint(main, 40).unwrap();
    drop(state);
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert_eq!((state.damage().len(), keys(&state, main), images(&store)), (0, 10, (1, 1)));
}

#[test]
fn nothing_is_let_go_of_for_an_image_that_is_not_what_it_was() {
    let store = Store::memory(StoreOptions::default()).unwrap();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    (0..10).for_each(|n| write(&state, main, &format!("k{n}"), b"1", n));
    let offset = state.checkpoint(main, 20).unwrap();
    drop(state);
    let name = format!("s/images/{main}-{offset}");
    let log = store.find(name.as_bytes()).unwrap();
    store.delete(&log, log.staged().unwrap().version, 30, None).unwrap();
    let config = Config { content_type: "application/octet-stream".into(), lifetime: Lifetime::Unlimited };
    let forged = Commit { payload: b"\xff\xff\xff\xffnonsense", close: true, time: 31, ..Commit::default() };
    store.create(name.as_bytes(), &config, None, &forged, None).unwrap();
    let trimmed = Options { history: History::Trimmed, ..Options::default() };
    for wrong in [1, 0] {
        let state = State::open(&store, "s", trimmed.clone()).unwrap();
        assert_eq!((state.damage().len(), keys(&state, main)), (wrong, 10));
        assert_eq!(state.checkpoint(main, 40).unwrap(), offset);
    }
}

#[test]
fn a_fork_that_cannot_be_read_keeps_nobody_from_the_others_and_can_be_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let pattern = format!("\"{}\"", "only the fork has this ".repeat(10));
    let store = Store::open(&Disk::Real, directory.path(), options()).unwrap().0;
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    write(&state, main, "a", b"1", 1);
    let (fork, _) = state.fork(main, 2).unwrap();
    let (other, _) = state.fork(main, 3).unwrap();
    write(&state, fork, "b", pattern.as_bytes(), 4);
    write(&state, other, "c", b"2", 5);
    drop(state);
    store.close().unwrap();
    drop(store);
    flip(directory.path(), pattern.as_bytes());
    let store = Store::open(&Disk::Real, directory.path(), options()).unwrap().0;
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert!(matches!(state.damage(), [Error::Unreadable { fork: broken, .. }] if *broken == fork));
    assert_eq!((keys(&state, main), keys(&state, other)), (1, 2));
    let refused = state.get(fork, View::Committed, "a").unwrap_err();
    assert!(
        matches!(refused, Error::Unreadable { .. }) && refused.to_string().contains("dropped"),
        "{refused}"
    );
    // Whoever lists the forks finds it among them, in its place.
    let listed = |from, limit| -> Vec<(u64, bool)> {
        let infos = state.fork_infos(from, limit).into_iter();
        infos.map(|info| (info.fork, info.unreadable.is_some())).collect()
    };
    assert_eq!(listed(0, 10), [(main, false), (fork, true), (other, false)]);
    assert_eq!((listed(0, 2), listed(other, 1)), (vec![(main, false), (fork, true)], vec![(other, false)]));
    let info = state.fork_infos(fork, 1).remove(0);
    assert!(info.log.starts_with("s/forks/") && info.offset > 0 && info.keys == 0, "{info:?}");
    assert!(refused.to_string().contains(&info.unreadable.unwrap()), "{refused}");
    state.drop_fork(fork, 6).unwrap();
    assert_eq!(listed(0, 10), [(main, false), (other, false)]);
    assert!(matches!(state.get(fork, View::Committed, "a"), Err(Error::NoFork(_))));
    drop(state);
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert_eq!((state.damage().len(), state.forks()), (0, vec![main, other]));
}

/// A state of some megabytes on a disk of so many.
fn large(disk: &SimDisk, values: u64) -> (Store, State) {
    let store = Store::open(&Disk::Sim(disk.clone()), Path::new("/store"), options()).unwrap().0;
    let state = State::open(&store, "s", Options::default()).unwrap();
    let value = "x".repeat(100_000);
    (0..values).for_each(|n| write(&state, state.main(), &format!("k{n}"), value.as_bytes(), n));
    (store, state)
}

#[test]
fn half_an_image_does_not_outlast_the_refusal_to_write_the_rest() {
    let disk = SimDisk::new(7, 256 << 20);
    let (store, state) = large(&disk, 100);
    let main = state.main();
    let mut refused = 0;
    for round in 0..5 {
        // Somewhat more than before; where a segment has room left it is enough.
        disk.set_space(disk.used_bytes() + (6 << 20));
        refused += usize::from(state.checkpoint(main, 1_000 + round).is_err());
        disk.set_space(256 << 20);
        // The next one would be of another offset.
        write(&state, main, "small", round.to_string().as_bytes(), 1_000 + round);
    }
    assert!(refused > 0, "there was always room for an image");
    state.checkpoint(main, 2_000).unwrap();
    assert_eq!(images(&store), (1, 1));
    // Of a fork that is dropped, too.
    let (fork, _) = state.fork(main, 3_000).unwrap();
    write(&state, fork, "own", b"1", 3_000);
    disk.set_space(disk.used_bytes());
    let refused = (0..40).find_map(|n| {
        write(&state, fork, "own", n.to_string().as_bytes(), 3_001);
        state.checkpoint(fork, 3_001).err()
    });
    assert!(refused.is_some(), "there was always room for an image");
    disk.set_space(256 << 20);
    state.drop_fork(fork, 3_002).unwrap();
    state.checkpoint(main, 3_003).unwrap();
    assert_eq!(images(&store), (1, 1));
}

#[test]
fn a_state_opens_though_half_an_image_cannot_be_removed() {
    let disk = SimDisk::new(7, 64 << 20);
    let (store, state) = large(&disk, 60);
    let main = state.main();
    disk.set_space(disk.used_bytes());
    assert!(state.checkpoint(main, 1_000).is_err());
    let full = (0..1_000_000_u64).find_map(|n| {
        let put = Change::Put("k".into(), n.to_string().as_bytes().into());
        state.write(main, &[put].into_iter().collect(), n).err()
    });
    assert!(full.is_some(), "the disk is full");
    Disk::Sim(disk.clone()).unlink(Path::new("/store/reserve")).unwrap();
    disk.set_space(disk.used_bytes());
    drop(state);
    let _ = store.close();
    drop(store);
    let store = Store::open(&Disk::Sim(disk.clone()), Path::new("/store"), options()).unwrap().0;
    let state = State::open(&store, "s", Options::default()).unwrap();
    assert!(state.get(main, View::Committed, "k1").unwrap().is_some());
}

#[test]
fn a_value_as_large_as_a_commit_may_be_has_an_image() {
    let small = StoreOptions { segment_bytes_min: 1 << 20, segment_bytes_max: 1 << 20, ..options() };
    let store = Store::memory(small).unwrap();
    let state = State::open(&store, "s", Options::default()).unwrap();
    let main = state.main();
    write(&state, main, "a", format!("\"{}\"", "x".repeat(100_000)).as_bytes(), 1);
    let taken = (0..2_000).map(|n| (1_usize << 20) - 16 * n).find(|length| {
        let put = Change::Put("b".into(), format!("\"{}\"", "x".repeat(*length)).as_bytes().into());
        state.write(main, &[put].into_iter().collect(), 2).is_ok()
    });
    assert!(taken.unwrap() > 1_000_000);
    state.checkpoint(main, 3).unwrap();
    drop(state);
    assert_eq!(keys(&State::open(&store, "s", Options::default()).unwrap(), main), 2);
}
