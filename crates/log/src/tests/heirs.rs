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

/// What the forks of each log need of it, from the first offset to the last: walked up from every log that shows something.
pub(super) fn inherited<K: Ord + Clone>(logs: &BTreeMap<K, Shown<K>>) -> BTreeMap<K, Range<u64>> {
    let mut hulls: BTreeMap<K, Range<u64>> = BTreeMap::new();
    for shown in logs.values() {
        let Some(first) = shown.first else { continue };
        let (mut at, mut cut) = (shown, u64::MAX);
        while let Some((source, base)) = &at.source {
            cut = cut.min(*base);
            if first < cut {
                let hull = hulls.entry(source.clone()).or_insert(first..cut);
                *hull = hull.start.min(first)..hull.end.max(cut);
            }
            at = &logs[source];
        }
    }
    hulls
}

/// Each extent of a log holds something that it shows or that is inherited from it, or says where such an extent lies; and what
/// says where one lies is there.
pub(super) fn keeps_what_is_needed(
    inner: &Inner,
    inherited: Option<&Range<u64>>,
    first: Option<u64>,
) -> bool {
    let (own, inherited) = (first.unwrap_or(u64::MAX), inherited.cloned().unwrap_or_default());
    let is_inherited =
        |extent: &Extent| !inherited.is_empty() && extent.holds(inherited.start, inherited.end);
    let extents = inner.extents.all();
    let (needed, others): (Vec<Extent>, Vec<Extent>) =
        extents.iter().partition(|extent| extent.end() > own || is_inherited(extent));
    let said = needed.iter().map(|extent| extent.places).max().unwrap_or(0);
    let is_there = |at| extents.iter().any(|extent| (extent.position..extent.end_position()).contains(&at));
    others.iter().all(|extent| extent.position <= said) && (said == 0 || is_there(said))
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

/// Of all that segments hold so many bytes are needed, give or take what is folded.
fn assert_needs(store: &Store, bytes: u64) {
    let needed: u64 = store.shared.writer.lock().live_bytes.values().sum();
    let folded = if bytes > 1 { 2 * (RUN * PIECE) as u64 } else { 0 };
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

fn content_from(store: &Store, name: &[u8], first: u64) -> Vec<u8> {
    store.read(&store.find(name).unwrap(), first, usize::MAX).unwrap().pieces.concat()
}
