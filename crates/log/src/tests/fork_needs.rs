//! What logs keep for their forks, and what they let go of although they have some.

use super::fork::{delete, fork};
use super::store::{append, config, content, open, os, payload, small};
use crate::extents::Extent;
use crate::log::Inner;
use crate::places::RUN;
use crate::{Durability, Options, Purge, Store};
use std::collections::BTreeMap;
use std::ops::Range;

const PIECE: usize = 300;

/// A log as a model has it.
#[derive(Clone, Debug)]
pub(super) struct Shown<K> {
    /// Where it branched off.
    pub(super) source: Option<(K, u64)>,
    /// Where what it shows begins; `None` if it is deleted.
    pub(super) first: Option<u64>,
}

/// What the forks of each log need of it: of each what it shows below its base, or its own forks need there,
/// from the first to the last.
pub(super) fn needs<K: Ord + Clone>(logs: &BTreeMap<K, Shown<K>>) -> BTreeMap<K, Vec<Range<u64>>> {
    logs.keys().map(|key| (key.clone(), needs_of(logs, key))).collect()
}

fn needs_of<K: Ord + Clone>(logs: &BTreeMap<K, Shown<K>>, of: &K) -> Vec<Range<u64>> {
    let forks = logs.iter().filter_map(|(key, shown)| {
        shown.source.as_ref().filter(|(source, _)| source == of).map(|(_, base)| (key, shown, *base))
    });
    let need = |(key, shown, base): (&K, &Shown<K>, u64)| {
        let own = shown.first.map(|first| first..u64::MAX);
        let below = needs_of(logs, key).into_iter().chain(own).map(|need| need.start..need.end.min(base));
        below.filter(|need| !need.is_empty()).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
    };
    forks.filter_map(need).collect()
}

/// Each extent of a log holds something that it shows or that a fork needs.
pub(super) fn keeps_no_more(inner: &Inner, needs: &[Range<u64>], first: Option<u64>) -> bool {
    let needed = |extent: &Extent| needs.iter().any(|need| extent.holds(need.start, need.end));
    inner.extents.all().iter().all(|extent| extent.end() > first.unwrap_or(u64::MAX) || needed(extent))
}

/// Fills a log with pieces that lie apart, so that each can be let go of alone.
fn fill(store: &Store, name: &[u8], piece: &[u8], count: u32) {
    let beside = store.log(b"beside").unwrap();
    for _ in 0..count {
        append(store, name, piece);
        store.append(&beside, b"x", 0).unwrap();
    }
    purge(store, b"beside", beside.staged().unwrap().tail);
}

fn modes(directory: &std::path::Path) -> [Store; 3] {
    let [sync, written] = ["sync", "os"].map(|name| directory.join(name));
    [open(&sync, small()), open(&written, os()), Store::memory(small()).unwrap()]
}

fn purge(store: &Store, name: &[u8], before: u64) {
    let log = store.find(name).unwrap();
    store.trim(&log, before, 0).unwrap();
    store.flush().unwrap();
}

/// Asserts how many bytes are needed of all that segments hold, give or take what is folded.
fn assert_needs(store: &Store, bytes: u64) {
    assert_needs_parts(store, bytes, usize::from(bytes > 1));
}

/// The same for bytes that lie in `parts` places apart from each other.
fn assert_needs_parts(store: &Store, bytes: u64, parts: usize) {
    let needed: u64 = store.shared.writer.lock().live_bytes.values().sum();
    let folded = (2 * parts * RUN * PIECE) as u64;
    assert!((bytes..=bytes + folded).contains(&needed), "{needed} of {bytes}");
}

#[test]
fn a_log_lets_go_of_what_lies_behind_what_its_forks_inherit() {
    let directory = tempfile::tempdir().unwrap();
    for store in modes(directory.path()) {
        store.create(b"a", &config(), None, &payload(&[1; 10_000]), None).unwrap();
        fork(&store, b"b", b"a", 10_000, b"own");
        for round in 0..40u64 {
            fill(&store, b"a", &[2; PIECE], 100);
            store.flush().unwrap();
            purge(&store, b"a", 10_000 + (round + 1) * 30_000);
        }
        assert_needs(&store, 10_003);
        let before = store.stats().segments;
        store.rotate().unwrap();
        append(&store, b"b", b"!");
        store.purge(&Purge { log: Some(b"beside"), destroy: true, ..Purge::default() }).unwrap();
        let after = store.stats().segments;
        assert!(before > 10 && after <= 3, "{before} {after}");
        assert_eq!(content(&store, b"b"), [vec![1; 10_000], b"own!".to_vec()].concat());
        append(&store, b"a", b"more");
        store.flush().unwrap();
        let log = store.find(b"a").unwrap();
        assert_eq!(store.read(&log, 1_210_000, 100).unwrap().pieces.concat(), b"more");
    }
    for options in [small(), os()] {
        let name = if options.durability == Durability::Sync { "sync" } else { "os" };
        let store = open(&directory.path().join(name), options);
        assert!(store.damage().is_empty());
        assert_needs(&store, 10_008);
        assert_eq!(content(&store, b"b"), [vec![1; 10_000], b"own!".to_vec()].concat());
    }
}

#[test]
fn what_a_fork_inherits_is_let_go_of_as_the_fork_is_purged() {
    let directory = tempfile::tempdir().unwrap();
    for store in modes(directory.path()) {
        store.create(b"a", &config(), None, &payload(b""), None).unwrap();
        fill(&store, b"a", &[1; PIECE], 200);
        fork(&store, b"b", b"a", 45_000, b"b");
        fork(&store, b"c", b"b", 30_000, b"c");
        purge(&store, b"a", 60_000);
        assert_needs(&store, 45_002);
        purge(&store, b"b", 45_000);
        assert_needs(&store, 30_002);
        purge(&store, b"c", 15_000);
        assert_needs(&store, 15_002);
        purge(&store, b"c", 30_001);
        assert_needs(&store, 1);
        assert_eq!(
            (content_from(&store, b"b", 45_000), content_from(&store, b"c", 30_001)),
            (b"b".to_vec(), Vec::new())
        );
    }
}

#[test]
fn a_deleted_source_keeps_what_its_forks_inherit_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    for store in modes(directory.path()) {
        store.create(b"a", &config(), None, &payload(b""), None).unwrap();
        fill(&store, b"a", &[1; PIECE], 200);
        fork(&store, b"b", b"a", 12_000, b"");
        fork(&store, b"c", b"a", 6_000, b"");
        delete(&store, b"a");
        store.flush().unwrap();
        assert_needs(&store, 12_000);
        delete(&store, b"b");
        store.flush().unwrap();
        assert_needs(&store, 6_000);
        assert_eq!(content(&store, b"c"), vec![1; 6_000]);
        delete(&store, b"c");
        store.flush().unwrap();
        assert_needs(&store, 0);
    }
}

#[test]
fn a_purge_of_what_no_fork_inherits_removes_segments_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    store.create(b"a", &config(), None, &payload(b"x"), None).unwrap();
    fork(&store, b"b", b"a", 1, b"");
    store.rotate().unwrap();
    (0..40).for_each(|_| append(&store, b"a", &[2; 3_000]));
    store.flush().unwrap();
    let before = store.stats().segments;
    store.purge(&Purge { log: Some(b"a"), ..Purge::default() }).unwrap();
    let after = store.stats().segments;
    assert!(before > 4 && after <= 3, "{before} {after}");
    assert_eq!(content(&store, b"b"), b"x");
}

#[test]
fn a_purge_of_a_fork_and_of_its_source_removes_segments_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), small());
    store.create(b"a", &config(), None, &payload(b""), None).unwrap();
    (0..200).for_each(|_| append(&store, b"a", &[1; PIECE]));
    fork(&store, b"b", b"a", 60_000, b"");
    purge(&store, b"a", 60_000);
    let segments = || store.stats().segments;
    assert!(segments() > 4);
    store.purge(&Purge { log: Some(b"b"), ..Purge::default() }).unwrap();
    assert_eq!(segments(), 1);
    (0..200).for_each(|_| append(&store, b"a", &[1; PIECE]));
    fork(&store, b"c", b"a", 120_000, b"");
    store.flush().unwrap();
    assert!(segments() > 4);
    store.purge(&Purge { destroy: true, ..Purge::default() }).unwrap();
    assert_eq!((segments(), store.stats().logs), (1, 0));
}

/// Each fork needs a part that is far from the others', and of which the source shows nothing.
#[test]
fn what_lies_between_the_parts_that_forks_inherit_goes() {
    let store = Store::memory(small()).unwrap();
    store.create(b"a", &config(), None, &payload(b""), None).unwrap();
    let mut forks: Vec<Vec<u8>> = Vec::new();
    for round in 0..20u64 {
        fill(&store, b"a", &[1; PIECE], 100);
        let (name, end) = (format!("fork-{round}").into_bytes(), (round + 1) * 30_000);
        fork(&store, &name, b"a", end - 20_000, b"");
        forks.push(name);
        purge(&store, b"a", end);
        // The first one stays; of the others there are always two.
        if forks.len() > 3 {
            delete(&store, &forks.remove(1));
        }
        let shown = forks.iter().map(|name| store.find(name).unwrap().visible().unwrap());
        let inherited: u64 = shown.map(|state| state.tail - state.first).sum();
        assert_eq!(inherited, 10_000 * forks.len() as u64);
        assert_needs_parts(&store, inherited, forks.len());
    }
}

#[test]
fn retention_of_the_store_reaches_what_a_fork_inherits() {
    let store = Store::memory(Options { retain_bytes: Some(16 << 20), ..Options::default() }).unwrap();
    store.create(b"a", &config(), None, &payload(b""), None).unwrap();
    (0..8).for_each(|_| append(&store, b"a", &[1; 1 << 20]));
    fork(&store, b"b", b"a", 8 << 20, b"");
    fork(&store, b"c", b"b", 8 << 20, b"own");
    (0..40).for_each(|_| append(&store, b"a", &[1; 1 << 20]));
    store.maintain(1).unwrap();
    let first = |name: &[u8]| store.find(name).unwrap().visible().unwrap().first;
    assert!(first(b"a") > 8 << 20);
    assert_eq!((first(b"b"), first(b"c")), (8 << 20, (8 << 20) + 3));
    assert!(store.stats().live_bytes <= 16 << 20);
}

fn content_from(store: &Store, name: &[u8], first: u64) -> Vec<u8> {
    store.read(&store.find(name).unwrap(), first, usize::MAX).unwrap().pieces.concat()
}
