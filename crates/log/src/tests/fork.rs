//! Forks on real stores: what they read, how long their sources last, and what a crash or damage makes of
//! them.

use super::fork_needs::{Shown, keeps_no_more, needs};
use super::store::{append, config, content, open, os, payload, small};
use crate::fork::LINEAGE_STEPS;
use crate::{Commit, CommitError, Fork, Log, Query, ReadError, Start, Store, Touched, segment_of};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn fork(store: &Store, name: &[u8], parent: &[u8], at: u64, own: &[u8]) -> Arc<Log> {
    let fork = Fork { parent: store.find(parent).unwrap(), at, asked: [at, 7] };
    store.create(name, &config(), Some(&fork), &payload(own), None).unwrap().0
}

pub(super) fn delete(store: &Store, name: &[u8]) {
    let log = store.find(name).unwrap();
    store.delete(&log, log.staged().unwrap().version, 0, None).unwrap();
}

#[test]
fn a_fork_reads_its_source_up_to_its_base_even_inside_a_record() {
    let store = Store::memory(small()).unwrap();
    store.create(b"a", &config(), None, &payload(b"first"), None).unwrap();
    append(&store, b"a", b"second");
    let log = fork(&store, b"b", b"a", 8, b"+own");
    append(&store, b"a", b"third");
    assert_eq!(content(&store, b"b"), b"firstsec+own");
    assert_eq!(content(&store, b"a"), b"firstsecondthird");
    // Records end where they end, or at the base.
    let read = store.read(&log, 0, 1).unwrap();
    assert_eq!((read.pieces.concat(), read.next, read.at_tail), (b"first".to_vec(), 5, false));
    assert_eq!(store.record(&log, 6).unwrap().pieces.concat(), b"ec");
    assert_eq!(store.record(&log, 8).unwrap().pieces.concat(), b"+own");
    assert!(store.record(&log, 12).unwrap().pieces.is_empty());
    for (from, inside) in [(0, false), (1, true), (5, false), (6, true), (8, false), (9, true), (12, false)] {
        assert_eq!(store.record(&log, from).unwrap().inside, inside, "{from}");
        assert_eq!(store.read(&log, from, 100).unwrap().inside, inside, "{from}");
    }
    let state = log.visible().unwrap();
    assert_eq!((state.base, state.tail, state.version), (8, 12, 1));
    let origin = log.fork().unwrap();
    assert_eq!((origin.parent.name(), origin.at, origin.asked), (&b"a"[..], 8, [8, 7]));
    let a = store.find(b"a").unwrap();
    assert_eq!((log.owner(0), log.owner(8), log.owner(9)), (a.id(), a.id(), log.id()));
}

#[test]
fn entries_of_a_fork_go_on_with_its_own_wherever_its_source_goes_on() {
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"a").unwrap();
    store.append(&log, b"inherited", 1).unwrap();
    let child = fork(&store, b"fork", b"a", 6, b"own");
    store.append(&log, b"not inherited", 2).unwrap();
    store.append(&child, b"more", 3).unwrap();
    let mut reader = store.reader(&child);
    let entries = reader.entries(&Query::default()).map(|entry| entry.unwrap().data.to_vec());
    assert_eq!(entries.collect::<Vec<_>>(), [&b"inheri"[..], b"own", b"more"]);
}

#[test]
fn a_fork_costs_one_small_batch_whatever_it_inherits() {
    let store = Store::memory(crate::Options { segment_bytes_max: 1 << 20, ..small() }).unwrap();
    store.create(b"source", &config(), None, &payload(&[7; 500_000]), None).unwrap();
    let before = store.stats();
    fork(&store, &[b'n'; 64], b"source", 500_000, b"");
    let after = store.stats();
    assert!(after.segments == before.segments && after.staged_end - before.staged_end <= 256);
}

#[test]
fn what_cannot_be_forked_is_refused_and_leaves_no_trace() {
    let store = Store::memory(small()).unwrap();
    let (a, _) = store.create(b"a", &config(), None, &payload(b"data"), None).unwrap();
    let at = |at| Fork { parent: a.clone(), at, asked: [0; 2] };
    let create = |fork: &Fork| store.create(b"b", &config(), Some(fork), &payload(b""), None).map(drop);
    assert_eq!(create(&at(5)), Err(CommitError::PastEnd { at: 5, tail: 4 }));
    assert_eq!(a.lock().children, 0);
    delete(&store, b"a");
    assert_eq!(create(&at(4)), Err(CommitError::ParentDeleted));
    assert!(store.find(b"a").is_none() && store.find(b"b").is_none());
}

#[test]
fn a_deleted_source_keeps_name_and_payload_until_its_last_fork_goes() {
    for durable in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let store = if durable { open(directory.path(), small()) } else { Store::memory(small()).unwrap() };
        store.create(b"a", &config(), None, &payload(&[1; 30_000]), None).unwrap();
        fork(&store, b"b", b"a", 30_000, &[2; 30_000]);
        fork(&store, b"c", b"b", 60_000, b"c");
        fork(&store, b"d", b"a", 10, b"d");
        for name in [b"a", b"b"] {
            delete(&store, name);
            store.flush().unwrap();
            let log = store.find(name).unwrap();
            assert!(log.is_tombstone() && log.staged().is_none() && log.visible().is_none());
            assert_eq!(store.read(&log, 0, 1), Err(ReadError::Deleted));
            let again = store.create(name, &config(), None, &payload(b""), None);
            assert_eq!(again.map(drop), Err(CommitError::Exists));
        }
        store.checkpoint().unwrap();
        store.checkpoint().unwrap();
        assert_eq!(content(&store, b"c"), [vec![1; 30_000], vec![2; 30_000], b"c".to_vec()].concat());
        delete(&store, b"c");
        store.flush().unwrap();
        assert!(store.find(b"b").is_none(), "the chain went as far as nobody else needs it");
        assert!(store.find(b"a").unwrap().is_tombstone());
        delete(&store, b"d");
        store.flush().unwrap();
        assert!(store.find(b"a").is_none());
        assert_eq!(store.shared.writer.lock().live_bytes.values().sum::<u64>(), 0);
        store.create(b"a", &config(), None, &payload(b"new"), None).unwrap();
        store.flush().unwrap();
        assert_eq!(content(&store, b"a"), b"new");
    }
}

#[test]
fn nobody_hears_that_a_name_is_free_before_that_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), crate::Options { committer_thread: false, ..small() });
    store.create(b"a", &config(), None, &payload(b"data"), None).unwrap();
    fork(&store, b"b", b"a", 4, b"");
    delete(&store, b"a");
    store.flush().unwrap();
    delete(&store, b"b");
    assert!(store.find(b"a").unwrap().is_tombstone());
    let again = store.create(b"a", &config(), None, &payload(b""), None);
    assert_eq!(again.map(drop), Err(CommitError::Exists));
    store.flush().unwrap();
    assert!(store.create(b"a", &config(), None, &payload(b""), None).is_ok());
}

#[test]
fn damage_of_a_source_is_named_by_what_reads_it_and_by_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.create(b"a", &config(), None, &payload(b"alpha"), None).unwrap();
    append(&store, b"a", b"beta!");
    fork(&store, b"b", b"a", 5, b"own-b");
    fork(&store, b"c", b"b", 10, b"own-c");
    store.flush().unwrap();
    drop(store);
    let segment = directory.path().join("segment-0000000001");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(5).position(|window| window == b"beta!").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let store = open(directory.path(), os());
    for name in [b"b", b"c"] {
        let log = store.find(name).unwrap();
        let Err(ReadError::Damaged(damage)) = store.read(&log, 0, 100) else { panic!("read damaged bytes") };
        assert_eq!(damage.logs, Touched::These(vec![store.find(b"a").unwrap().id()]));
        assert_eq!(store.read(&log, 5, 5).unwrap().pieces.concat(), b"own-b");
        append(&store, name, b"!");
    }
}

#[test]
fn a_fork_whose_source_is_lost_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.create(b"a", &config(), None, &payload(b"alpha"), None).unwrap();
    fork(&store, b"b", b"a", 5, b"own");
    store.flush().unwrap();
    drop(store);
    let segment = directory.path().join("segment-0000000001");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(5).position(|window| window == b"alpha").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let store = open(directory.path(), os());
    assert!(store.find(b"a").is_none());
    assert_eq!(store.damage().len(), 2, "the span, and what it took from the fork");
    let log = store.find(b"b").unwrap();
    assert!(matches!(store.read(&log, 0, 100), Err(ReadError::Damaged(_))));
}

/// The one history in which a source is recorded as deleted, its only recorded fork goes in what is replayed,
/// and another fork of it comes in between: the source must not be dropped on the way.
#[test]
fn a_source_recorded_as_deleted_waits_for_forks_that_replay_brings() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let shard = |name: &[u8]| store.shared.catalogue.shard_of(name);
    let names = || (0..1_000u32).map(|index| format!("n{index}").into_bytes());
    let source = names().find(|name| shard(name) > 8).unwrap();
    let early: Vec<_> = names().filter(|name| shard(name) < 8).take(2).collect();
    store.create(&source, &config(), None, &payload(b"data"), None).unwrap();
    fork(&store, &early[0], &source, 4, b"");
    let (ask, asked) = std::sync::mpsc::channel();
    let (answer, answered) = std::sync::mpsc::channel();
    store.shared.options.interleave.set(Some((ask, answered)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            store.checkpoint().unwrap();
            store.shared.options.interleave.set(None);
        });
        let (asked, answer) = (asked, answer);
        for visited in 0.. {
            let Ok(()) = asked.recv() else { break };
            if visited == 8 {
                fork(&store, b"x", &source, 4, b"");
                delete(&store, b"x");
                delete(&store, &early[0]);
                fork(&store, &early[1], &source, 2, b"new");
                delete(&store, &source);
            }
            answer.send(()).unwrap();
        }
    });
    drop(store);
    let (store, report) = Store::open(&thalweg_sys::disk::Disk::Real, directory.path(), os()).unwrap();
    assert!(report.checkpoint.is_some() && report.batches >= 5 && report.damage.is_empty());
    assert_eq!(content(&store, &early[1]), b"danew");
    assert!(store.find(&source).unwrap().is_tombstone());
    delete(&store, &early[1]);
    assert_eq!(store.stats().logs, 0);
}

#[test]
fn a_chain_of_any_length_is_read_deleted_and_let_go_on_a_small_stack() {
    const DEPTH: u32 = 20_000;
    let work = || {
        let store = Store::memory(crate::Options { segment_bytes_max: 1 << 20, ..small() }).unwrap();
        store.create(b"0", &config(), None, &payload(b"x"), None).unwrap();
        for depth in 1..DEPTH {
            let (name, parent) = (depth.to_string(), (depth - 1).to_string());
            fork(&store, name.as_bytes(), parent.as_bytes(), depth.into(), b"x");
        }
        let leaf = (DEPTH - 1).to_string();
        assert_eq!(content(&store, leaf.as_bytes()), vec![b'x'; DEPTH as usize]);
        let kept = store.clone();
        (0..DEPTH - 1).for_each(|depth| delete(&store, depth.to_string().as_bytes()));
        assert_eq!(store.stats().logs, u64::from(DEPTH));
        let log = store.find(leaf.as_bytes()).unwrap();
        delete(&store, leaf.as_bytes());
        assert_eq!(store.stats().logs, 0);
        drop(log);
        // And without being deleted.
        store.create(b"0", &config(), None, &payload(b"x"), None).unwrap();
        for depth in 1..DEPTH {
            let (name, parent) = (depth.to_string(), (depth - 1).to_string());
            fork(&store, name.as_bytes(), parent.as_bytes(), depth.into(), b"x");
        }
        drop((store, kept));
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(work).unwrap().join().unwrap();
}

#[test]
fn each_fork_of_a_long_chain_is_read_from_its_own_on_without_a_look_at_all_before_it() {
    const DEPTH: usize = 400;
    // With and without something of its own in each of them.
    for own in [&b"own"[..], b""] {
        let store = Store::memory(small()).unwrap();
        let (root, _) = store.create(b"0", &config(), None, &payload(b"root"), None).unwrap();
        let mut logs = vec![root];
        for depth in 1..DEPTH {
            let parent = &logs[depth - 1];
            let at = parent.staged().unwrap().tail;
            logs.push(fork(&store, depth.to_string().as_bytes(), parent.name(), at, own));
        }
        LINEAGE_STEPS.set(0);
        for log in &logs[1..] {
            let query = Query::from(Start::Offset(log.staged().unwrap().base));
            let (mut reader, mut tail) = (store.reader(log), store.reader(log).follow(&query));
            assert_eq!(
                reader.entries(&query).map(|entry| entry.unwrap().data.len()).sum::<usize>(),
                own.len()
            );
            while tail.next().unwrap().is_some() {}
        }
        let steps = LINEAGE_STEPS.take();
        assert!(steps < DEPTH * 10, "{steps}");
        let mut last = store.reader(&logs[DEPTH - 1]);
        assert_eq!(last.entries(&Query::default()).count(), if own.is_empty() { 1 } else { DEPTH });
    }
}

#[test]
fn forks_that_come_and_go_on_many_threads_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.create(b"a", &config(), None, &payload(b"data"), None).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let store = store.clone();
            scope.spawn(move || {
                for round in 0..200u32 {
                    let (one, two) = (format!("{thread}-{round}"), format!("{thread}-{round}-fork"));
                    fork(&store, one.as_bytes(), b"a", 4, b"1");
                    fork(&store, two.as_bytes(), one.as_bytes(), 5, b"2");
                    delete(&store, one.as_bytes());
                    assert_eq!(content(&store, two.as_bytes()), b"data12");
                    delete(&store, two.as_bytes());
                }
            });
        }
        scope.spawn(|| (0..20).for_each(|_| store.checkpoint().unwrap()));
    });
    assert_eq!((store.stats().logs, store.find(b"a").unwrap().lock().children), (1, 0));
    drop(store);
    let store = open(directory.path(), os());
    assert_eq!((store.stats().logs, store.find(b"a").unwrap().lock().children), (1, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Fork { parent: prop::sample::Index, at: prop::sample::Index, own: u16 },
    Append { log: prop::sample::Index, length: u16 },
    Read { log: prop::sample::Index, from: prop::sample::Index, limit: u16 },
    Purge { log: prop::sample::Index, first: prop::sample::Index },
    Delete { log: prop::sample::Index },
}

/// A log of the tree: all the bytes it has had, the first that it shows, and its source and where it branched
/// off.
struct Copied {
    log: Arc<Log>,
    bytes: Vec<u8>,
    first: usize,
    source: Option<(usize, u64)>,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (index(), index(), 0..300u16).prop_map(|(parent, at, own)| Step::Fork { parent, at, own }),
        5 => (index(), 1..6_000u16).prop_map(|(log, length)| Step::Append { log, length }),
        4 => (index(), index(), 1..9_000u16).prop_map(|(log, from, limit)| Step::Read { log, from, limit }),
        2 => (index(), index()).prop_map(|(log, first)| Step::Purge { log, first }),
        1 => index().prop_map(|log| Step::Delete { log }),
    ]
}

proptest! {
    #[test]
    fn a_tree_of_forks_reads_as_so_many_copies(steps in proptest::collection::vec(step(), 1..60)) {
        let store = Store::memory(small()).unwrap();
        let (mut copies, mut serial) = (Vec::<Copied>::new(), 0u8);
        let mut fresh = |length: u16| {
            serial = serial.wrapping_add(1);
            (0..length).map(|index| serial.wrapping_add(index as u8)).collect::<Vec<u8>>()
        };
        let (root, _) = store.create(b"root", &config(), None, &payload(b""), None).unwrap();
        copies.push(Copied { log: root, bytes: Vec::new(), first: 0, source: None });
        for step in steps {
            let live: Vec<usize> = (0..copies.len()).filter(|at| copies[*at].log.staged().is_some()).collect();
            if live.is_empty() {
                break;
            }
            let pick = |index: prop::sample::Index| live[index.index(live.len())];
            match step {
                Step::Fork { parent, at, own } => {
                    let (parent, own) = (pick(parent), fresh(own));
                    let Copied { log, bytes, first, .. } = &copies[parent];
                    let at = first + at.index(bytes.len() - first + 1);
                    let name = copies.len().to_string();
                    let (log, first) = (fork(&store, name.as_bytes(), log.name(), at as u64, &own), *first);
                    let bytes = [&bytes[..at], &own].concat();
                    copies.push(Copied { log, bytes, first, source: Some((parent, at as u64)) });
                }
                Step::Append { log, length } => {
                    let (log, bytes) = (pick(log), fresh(length));
                    append(&store, copies[log].log.name(), &bytes);
                    copies[log].bytes.extend(bytes);
                }
                Step::Read { log, from, limit } => {
                    let Copied { log, bytes, first, .. } = &copies[pick(log)];
                    let from = first + from.index(bytes.len() - first + 1);
                    let read = store.read(log, from as u64, limit.into()).unwrap();
                    let next = read.next as usize;
                    prop_assert_eq!(read.pieces.concat(), &bytes[from..next]);
                    prop_assert!(next > from || from == bytes.len());
                    let small = next - from <= usize::from(limit);
                    prop_assert!(small || store.record(log, from as u64).unwrap().next == read.next);
                    let mut reader = store.reader(log);
                    for from in [from, *first] {
                        let query = Query::from(Start::Offset(from as u64));
                        let forwards: Vec<_> = reader.entries(&query).map(|entry| entry.unwrap().data.to_vec()).collect();
                        let mut back: Vec<_> = reader.entries_back(&query).map(|entry| entry.unwrap().data.to_vec()).collect();
                        back.reverse();
                        prop_assert_eq!(&back, &forwards);
                        prop_assert_eq!(forwards.concat(), &bytes[from..]);
                    }
                    let owners: Vec<u64> = (0..=bytes.len() as u64).step_by(97).map(|at| log.owner(at)).collect();
                    prop_assert!(owners.is_sorted());
                }
                Step::Purge { log, first } => {
                    let Copied { log, bytes, first: begin, .. } = &mut copies[pick(log)];
                    *begin += first.index(bytes.len() - *begin + 1);
                    store.trim(log, *begin as u64, 0).unwrap();
                }
                Step::Delete { log } => delete(&store, copies[pick(log)].log.name()),
            }
        }
        let reads_as_copied = |Copied { log, bytes, first, .. }: &Copied| match log.visible() {
            Some(_) => store.read(log, *first as u64, usize::MAX).unwrap().pieces.concat() == bytes[*first..],
            None => store.read(log, 0, 1) == Err(ReadError::Deleted),
        };
        prop_assert!(copies.iter().all(reads_as_copied));
        // A log that is still a fork's source is kept, and no other.
        let is_kept = |at: usize| store.find(copies[at].log.name()).is_some_and(|log| Arc::ptr_eq(&log, &copies[at].log));
        let shown: BTreeMap<usize, Shown<usize>> = copies.iter().map(|copy| {
            let first = copy.log.visible().map(|state| state.first);
            Shown { source: copy.source, first }
        }).enumerate().collect();
        let needs = needs(&shown);
        for (at, Copied { log, .. }) in copies.iter().enumerate() {
            let is_source = |fork: usize| copies[fork].source.is_some_and(|(source, _)| source == at);
            let has_forks = (0..copies.len()).any(|fork| is_source(fork) && is_kept(fork));
            prop_assert_eq!(is_kept(at), log.visible().is_some() || has_forks);
            let inner = log.lock();
            let extents = inner.extents.all();
            prop_assert!(is_kept(at) || extents.is_empty());
            prop_assert!(extents.iter().all(|extent| store.shared.segments.find(segment_of(extent.position)).is_some()));
            prop_assert!(keeps_no_more(&inner, &needs[&at], shown[&at].first));
        }
        store.maintain(0).unwrap();
        prop_assert!(copies.iter().all(reads_as_copied), "reclaiming segments takes nothing from anybody");
    }
}

#[test]
fn an_expired_source_is_kept_like_a_deleted_one() {
    let store = Store::memory(small()).unwrap();
    let short = crate::Config { lifetime: crate::Lifetime::Until { expires_us: 5 }, ..config() };
    let first = Commit { payload: b"data", time: 1, ..Commit::default() };
    store.create(b"a", &short, None, &first, None).unwrap();
    fork(&store, b"b", b"a", 4, b"");
    assert_eq!(store.expire(5), 1);
    assert!(store.find(b"a").unwrap().is_tombstone());
    assert_eq!((store.expire(6), content(&store, b"b")), (0, b"data".to_vec()));
    delete(&store, b"b");
    assert_eq!(store.stats().logs, 0);
}

#[test]
fn a_read_that_races_with_the_deletion_succeeds_or_says_so() {
    let store = Store::memory(small()).unwrap();
    let done = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            done.wait();
            for _ in 0..500 {
                store.create(b"a", &config(), None, &payload(b""), None).unwrap();
                (0..40).for_each(|_| append(&store, b"a", &[7; 3_000]));
                fork(&store, b"b", b"a", 120_000, b"");
                delete(&store, b"a");
                delete(&store, b"b");
            }
            store.create(b"end", &config(), None, &payload(b""), None).unwrap();
        });
        done.wait();
        while store.find(b"end").is_none() {
            let Some(log) = store.find(b"b") else { continue };
            match store.read(&log, 0, usize::MAX) {
                Ok(read) => assert_eq!(read.pieces.concat(), vec![7; 120_000]),
                Err(error) => assert_eq!(error, ReadError::Deleted),
            }
        }
    });
}
