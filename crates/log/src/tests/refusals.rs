//! What must not be done is refused, by name and whole: nothing of it is there, and the store is as good as
//! before.

use super::store::{config, open, os, small};
use crate::format::SegmentHeader;
use crate::segment::{NUMBER_MAX, Segment, next_number};
use crate::{
    Attached, Commit, CommitError, Config, Durability, Fork, Log, OpenError, Options, Place, Purge, Query,
    ReadError, Receipt, Store,
};
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::SimDisk;

pub(super) fn entries(store: &Store, log: &Arc<Log>) -> Vec<Vec<u8>> {
    store.reader(log).entries(&Query::default()).map(|entry| entry.unwrap().data.to_vec()).collect()
}

fn simulated(sim: &SimDisk, durability: Durability) -> Store {
    let options = Options { durability, committer_thread: false, ..small() };
    Store::open(&Disk::Sim(sim.clone()), Path::new("/store"), options).unwrap().0
}

#[test]
fn a_transaction_whose_sync_fails_is_not_seen_and_the_store_takes_nothing_more_until_it_is_opened_again() {
    let sim = SimDisk::new(1, 8 << 20);
    let store = simulated(&sim, Durability::Sync);
    let (log, other) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
    store.persist(store.append(&log, b"kept", 1).unwrap().ticket).unwrap();
    sim.fail_sync_after(0);
    let mut transaction = store.transaction(2);
    transaction.append(&log, b"first").unwrap();
    transaction.append(&other, b"second").unwrap();
    assert!(matches!(transaction.commit(), Err(CommitError::Failed(_))));
    // The disk may say what it likes from now on: what it said once counts.
    sim.mend();
    assert!(matches!(store.append(&log, b"more", 3), Err(CommitError::Failed(_))));
    assert!(store.transaction(3).commit().is_ok(), "nothing is asked of it");
    assert!(matches!(store.rotate(), Err(CommitError::Failed(_))));
    assert_eq!((entries(&store, &log), entries(&store, &other)), (vec![b"kept".to_vec()], vec![]));
    drop(store);
    let store = simulated(&sim.crash(), Durability::Sync);
    let (log, other) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
    let (of_log, of_other) = (entries(&store, &log), entries(&store, &other));
    assert_eq!(of_log[0], b"kept");
    assert_eq!((of_log.len() - 1, of_other.len()), if of_log.len() > 1 { (1, 1) } else { (0, 0) });
    store.persist(store.append(&log, b"more", 4).unwrap().ticket).unwrap();
    assert_eq!(entries(&store, &log).last().unwrap(), b"more");
}

#[test]
fn a_store_whose_control_file_is_lost_is_told_from_a_place_for_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.append(&store.log(b"a").unwrap(), b"kept", 1).unwrap();
    store.close().unwrap();
    drop(store);
    let (control, aside) = (directory.path().join("control"), directory.path().join("aside"));
    std::fs::rename(&control, &aside).unwrap();
    let error = Store::open(&Disk::Real, directory.path(), os()).unwrap_err();
    assert!(matches!(error, OpenError::ControlLost { .. }), "{error}");
    assert!(!control.exists());
    std::fs::rename(&aside, &control).unwrap();
    let store = open(directory.path(), os());
    assert_eq!(entries(&store, &store.log(b"a").unwrap()), [b"kept"]);
}

#[test]
fn nobody_waits_for_a_ticket_that_no_commit_has() {
    let sim = SimDisk::new(1, 8 << 20);
    let store = simulated(&sim, Durability::Sync);
    let log = store.log(b"a").unwrap();
    let last = store.append(&log, b"x", 1).unwrap().ticket;
    for persisted in [false, true] {
        if persisted {
            store.persist(last).unwrap();
        }
        for ticket in [last + 1, last + (1 << 32), u64::MAX] {
            assert_eq!(store.persist(ticket), Err(CommitError::NoTicket { ticket, last }));
        }
    }
    let lost = store.append(&log, &[7; 3000], 2).unwrap().ticket;
    drop(store);
    // As it is left by a power cut before anything of the last one was written.
    let sim =
        (0..).map(|_| sim.crash()).find(|sim| simulated(sim, Durability::Sync).staged_end() < lost).unwrap();
    let store = simulated(&sim, Durability::Sync);
    let last = store.staged_end();
    assert_eq!(store.persist(lost), Err(CommitError::NoTicket { ticket: lost, last }));
    // What is there from before needs no commit of this process.
    let kept = store.append_all(&store.log(b"a").unwrap(), &[], 3).unwrap();
    assert!(kept.ticket <= last && store.persist(kept.ticket).is_ok());
}

#[test]
fn what_need_not_be_waited_for_has_no_ticket() {
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"a").unwrap();
    let receipt = |first, next| Ok(Receipt { ticket: 0, first, next });
    assert_eq!(store.append(&log, b"entry", 1), receipt(0, 5));
    assert_eq!(store.append_all(&log, &[], 1), receipt(5, 5));
}

#[test]
fn a_segment_that_cannot_be_made_for_another_reason_is_no_full_disk_and_the_store_goes_on_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Os, committer_thread: false, ..small() };
    let store = Store::open(&Disk::Real, directory.path(), options.clone()).unwrap().0;
    let log = store.log(b"a").unwrap();
    let second = directory.path().join(crate::segment::file_name(2));
    std::fs::create_dir(&second).unwrap();
    let mut count = 0;
    let refused = loop {
        match store.append(&log, &[7; 500], 1) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, CommitError::Io(why) if why.contains("File exists")), "{refused}");
    assert_eq!((entries(&store, &log).len(), store.stats().failures), (count, 1));
    std::fs::remove_dir(&second).unwrap();
    store.append(&log, &[7; 500], 1).unwrap();
    drop(store);
    let store = Store::open(&Disk::Real, directory.path(), options).unwrap().0;
    assert_eq!(entries(&store, &store.find(b"a").unwrap()).len(), count + 1);
}

#[test]
fn a_disk_that_fills_in_the_middle_of_a_transaction_leaves_nothing_of_it_and_the_store_usable() {
    for durability in [Durability::Os, Durability::Sync] {
        let sim = SimDisk::new(1, 8 << 20);
        let store = simulated(&sim, durability);
        let (log, other) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
        sim.set_space(sim.used_bytes());
        let large = |store: &Store| {
            let mut transaction = store.transaction(2);
            for log in [&log, &other, &log] {
                transaction.append(log, &[7; 2000]).unwrap();
            }
            transaction.commit()
        };
        assert!(matches!(large(&store), Err(CommitError::Full(_))));
        assert_eq!((entries(&store, &log).len(), entries(&store, &other).len()), (0, 0));
        assert_eq!(store.stats().failures, 1);
        // What the newest segment has room for is taken.
        store.persist(store.append(&log, b"small", 3).unwrap().ticket).unwrap();
        assert!(matches!(large(&store), Err(CommitError::Full(_))));
        assert_eq!(entries(&store, &log), [b"small"]);
        sim.set_space(8 << 20);
        large(&store).unwrap();
        store.flush().unwrap();
        for store in [store, simulated(&sim.crash(), durability)] {
            let sizes = |name: &[u8]| -> Vec<usize> {
                entries(&store, &store.find(name).unwrap()).iter().map(Vec::len).collect()
            };
            assert_eq!((sizes(b"a"), sizes(b"b")), (vec![5, 2000, 2000], vec![2000]));
        }
    }
}

#[test]
fn an_append_on_a_closing_store_says_so_and_what_was_acknowledged_before_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    let acknowledged: Vec<u64> = std::thread::scope(|scope| {
        let append = |thread: u64| {
            let (store, log) = (store.clone(), log.clone());
            move || {
                let mut count = 0;
                loop {
                    match store.append(&log, &thread.to_le_bytes(), 1) {
                        Ok(_) => count += 1,
                        Err(CommitError::Closed) => return count,
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(append(thread))).collect();
        while store.stats().entries < 1000 {
            std::thread::yield_now();
        }
        store.close().unwrap();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // It stays closed, also while another store has the directory open.
    let mut transaction = store.transaction(2);
    transaction.append(&log, b"x").unwrap();
    assert_eq!(transaction.commit(), Err(CommitError::Closed));
    drop((store, log));
    let store = open(directory.path(), os());
    let found = entries(&store, &store.find(b"a").unwrap());
    let of = |thread: u64| found.iter().filter(|entry| entry[..] == thread.to_le_bytes()).count() as u64;
    assert_eq!((0..4).map(of).collect::<Vec<_>>(), acknowledged);
}

#[test]
fn readers_of_a_closed_store_read_on_to_the_end_and_wait_no_longer_than_asked() {
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"a").unwrap();
    (0..5).for_each(|time| assert!(store.append(&log, b"x", time).is_ok()));
    let mut reader = store.reader(&log);
    let mut entries = reader.entries(&Query::default());
    let mut cursor = store.reader(&log).follow(&Query::default());
    assert!(entries.next().is_some() && cursor.next().unwrap().is_some());
    store.close().unwrap();
    drop((store, log));
    assert_eq!(entries.count(), 4);
    for _ in 1..5 {
        assert!(cursor.next().unwrap().is_some());
    }
    assert_eq!(cursor.next(), Ok(None));
}

#[test]
fn a_log_that_nobody_made_is_unknown_here_and_to_a_neighbour() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.log(b"a").unwrap();
    let neighbour = Attached::open(&Disk::Real, directory.path()).unwrap();
    assert!(store.find(b"b").is_none() && neighbour.find(b"b").unwrap().is_none());
    assert_eq!(store.logs().len(), 1, "asking makes none");
}

#[test]
fn names_with_separators_or_control_characters_are_refused_with_the_reason() {
    let store = Store::memory(small()).unwrap();
    let bad: [(&[u8], &str); 11] = [
        (b"", "empty"),
        (b".", "directory"),
        (b"..", "directory"),
        (b"a/b", "separator"),
        (b"/", "separator"),
        (b"a\\b", "separator"),
        (b"a\0b", "control"),
        (b"a\nb", "control"),
        (b"\x7f", "control"),
        ("a\u{85}b".as_bytes(), "control"),
        (b"\xff", "UTF-8"),
    ];
    for (name, reason) in bad {
        let refused = store.log(name).map(drop).unwrap_err();
        assert!(matches!(refused, CommitError::BadName { .. }), "{name:?}: {refused}");
        assert!(refused.to_string().contains(reason), "{refused}");
    }
    assert!(matches!(store.log(&[b'x'; 65_536]), Err(CommitError::BadName { .. })));
    assert_eq!(store.logs().len(), 0);
    store.log(&[b'x'; 10_000]).unwrap();
    store.log("Übersicht 2026: alles".as_bytes()).unwrap();
}

#[test]
fn an_entry_over_the_limit_is_refused_and_one_below_it_taken() {
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"a").unwrap();
    // A segment's header, a batch's with one log touched, and a frame's.
    let most = 65_536 - 64 - (48 + 16) - 32;
    let refused = store.append(&log, &vec![1; most + 1], 1).unwrap_err();
    assert!(matches!(refused, CommitError::TooLarge { limit: 65_472, .. }), "{refused}");
    store.append(&log, &vec![2; most], 1).unwrap();
    let mut transaction = store.transaction(2);
    (0..10).for_each(|_| transaction.append(&log, &[3; 10_000]).unwrap());
    assert!(matches!(transaction.commit(), Err(CommitError::TooLarge { .. })));
    assert_eq!(entries(&store, &log), [vec![2; most]]);
}

#[test]
fn a_directory_in_which_nothing_can_be_made_is_refused_by_its_name() {
    // Where not even root may write.
    for path in ["/proc/self", "/proc/thalweg"] {
        let refused = Store::open(&Disk::Real, Path::new(path), os()).err().unwrap();
        assert!(matches!(refused, OpenError::Io { .. }), "{refused}");
        assert!(refused.to_string().contains(path), "{refused}");
    }
    let refused = Attached::open(&Disk::Real, Path::new("/proc/self")).err().unwrap();
    assert!(matches!(refused, OpenError::NotAStore { .. }), "{refused}");
}

/// Of two stores the first logs have one identity, and so have a log's handles from before and after its
/// store was opened anew.
#[test]
fn a_log_of_another_opening_is_refused_by_whatever_would_write_or_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = open(&path, os());
    let stale = store.log(b"a").unwrap();
    store.append(&stale, b"one", 1).unwrap();
    store.close().unwrap();
    drop(store);
    let (store, other) = (open(&path, os()), open(&directory.path().join("other"), os()));
    let (log, foreign) = (store.log(b"a").unwrap(), other.log(b"b").unwrap());
    let attached = Attached::open(&Disk::Real, &path).unwrap();
    let followed = attached.find(b"a").unwrap().unwrap();
    assert_eq!((stale.id(), foreign.id(), followed.id()), (log.id(), log.id(), log.id()));
    store.append(&log, b"two", 2).unwrap();
    let written = store.staged_end();
    for handle in [&stale, &foreign, &followed] {
        assert_eq!(store.append(handle, b"stray", 3), Err(CommitError::OtherStore));
        assert_eq!(store.transaction(3).append(handle, b"stray"), Err(CommitError::OtherStore));
        let version = handle.staged().unwrap().version;
        let commit = Commit { payload: b"stray", time: 3, ..Commit::default() };
        assert_eq!(store.commit(handle, version, &commit, None), Err(CommitError::OtherStore));
        assert_eq!(store.delete(handle, version, 3, None), Err(CommitError::OtherStore));
        let fork = Fork { parent: handle.clone(), at: 0, asked: [0; 2] };
        let forked = store.create(b"fork", log.config(), Some(&fork), &commit, None);
        assert_eq!(forked.err(), Some(CommitError::OtherStore));
        assert_eq!(store.read(handle, 0, 100).err(), Some(ReadError::OtherStore));
        assert_eq!(store.record(handle, 0).err(), Some(ReadError::OtherStore));
        let mut reader = store.reader(handle);
        let read: Vec<_> = reader.entries(&Query::default()).collect();
        assert_eq!(read, [Err(ReadError::OtherStore)]);
        assert_eq!(reader.entries_back(&Query::default()).next(), Some(Err(ReadError::OtherStore)));
        assert_eq!(reader.at(Place { offset: 0, position: 64 }), Err(ReadError::OtherStore));
        let mut cursor = reader.follow(&Query::default());
        for _ in 0..2 {
            assert_eq!(cursor.next(), Err(ReadError::OtherStore));
        }
    }
    assert_eq!(attached.reader(&log).entries(&Query::default()).next(), Some(Err(ReadError::OtherStore)));
    assert_eq!(store.staged_end(), written, "nothing was written");
    assert_eq!(entries(&store, &log), [b"one".to_vec(), b"two".to_vec()]);
    assert_eq!(attached.reader(&followed).entries(&Query::default()).count(), 2);
    store.close().unwrap();
    assert_eq!(crate::verify(&Disk::Real, &path).unwrap().damage, []);
}

#[test]
fn whoever_waits_hears_that_the_store_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    for durability in [Durability::Memory, Durability::Os, Durability::Sync] {
        let store = match durability {
            Durability::Memory => Store::memory(small()).unwrap(),
            _ => open(&directory.path().join(format!("{durability:?}")), Options { durability, ..small() }),
        };
        let log = store.log(b"a").unwrap();
        store.flush().unwrap();
        let mut tail = store.reader(&log).follow(&Query::from(crate::Start::Tail));
        assert!(tail.wait(Some(std::time::Duration::ZERO)), "it has not looked yet");
        assert_eq!(tail.next(), Ok(None));
        assert!(!tail.wait(Some(std::time::Duration::ZERO)), "nothing has come");
        let waiting = std::thread::spawn(move || {
            let mut read = 0;
            while tail.ended().is_none() {
                tail.wait(None);
                while tail.next().unwrap().is_some() {
                    read += 1;
                }
            }
            (read, tail.ended())
        });
        store.append(&log, b"last", 1).unwrap();
        store.close().unwrap();
        assert_eq!(waiting.join().unwrap(), (1, Some(crate::Ended::StoreClosed)), "{durability:?}");
    }
}

/// A cursor that follows a log that was over before is not left asleep.
#[test]
fn a_cursor_at_the_tail_of_a_log_that_is_over_hears_so_without_a_commit() {
    let store = Store::memory(small()).unwrap();
    for (name, ended) in [(b"closed", crate::Ended::Closed), (b"gone!!", crate::Ended::Deleted)] {
        let log = store.log(name).unwrap();
        let version = log.staged().unwrap().version;
        match ended {
            crate::Ended::Closed => {
                let commit = Commit { close: true, ..Commit::default() };
                store.commit(&log, version, &commit, None).unwrap();
            }
            _ => {
                store.delete(&log, version, 1, None).unwrap();
            }
        }
        let mut tail = store.reader(&log).follow(&Query::from(crate::Start::Tail));
        while tail.ended().is_none() {
            assert!(tail.wait(Some(std::time::Duration::from_secs(60))), "it slept");
            while let Ok(Some(_)) = tail.next() {}
        }
        assert_eq!(tail.ended(), Some(ended));
    }
}

#[test]
fn a_purge_that_contradicts_itself_or_means_a_log_that_is_not_durable_yet_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Sync, committer_thread: false, ..small() };
    let store = open(directory.path(), options);
    let log = store.log(b"a").unwrap();
    store.append(&log, b"old", 1).unwrap();
    store.flush().unwrap();
    let contradiction = Purge { log: Some(b"a"), before: Some(1), destroy: true, ..Purge::default() };
    assert_eq!(store.purge(&contradiction), Err(CommitError::BadPurge));
    assert_eq!(store.purge(&Purge { log: Some(b"a"), ..Purge::default() }).unwrap()[0].bytes, 3);
    store.log(b"b").unwrap();
    let destroy = Purge { log: Some(b"b"), destroy: true, ..Purge::default() };
    assert_eq!(store.purge(&destroy), Err(CommitError::NoLog { name: "b".into() }));
    store.flush().unwrap();
    assert!(store.purge(&destroy).unwrap()[0].destroyed);
}

/// Words that a disk blanked say nothing, and do not say that the store was closed.
#[test]
fn a_closed_control_file_without_its_checksum_does_not_add_up() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    store.append(&store.log(b"a").unwrap(), b"x", 1).unwrap();
    store.close().unwrap();
    drop(store);
    let path = directory.path().join("control");
    let mut words = std::fs::read(&path).unwrap();
    words[40..200].fill(0);
    std::fs::write(&path, words).unwrap();
    let damage = crate::verify(&Disk::Real, directory.path()).unwrap().damage;
    assert_eq!(damage.iter().map(|damage| &*damage.file).collect::<Vec<_>>(), ["control"]);
    let store = open(directory.path(), os());
    assert_eq!(entries(&store, &store.log(b"a").unwrap()), [b"x".to_vec()]);
}

/// Nothing of what was set aside was needed: twice as much would not be, either.
#[test]
fn rotating_with_little_in_a_segment_begins_no_larger_one() {
    let store = Store::memory(Options::default()).unwrap();
    let log = store.log(b"a").unwrap();
    for time in 0..12 {
        store.append(&log, b"x", time).unwrap();
        store.rotate().unwrap();
    }
    let stats = store.stats();
    assert!(stats.segments > 12 && stats.segment_bytes < 64 << 20, "{stats:?}");
}

/// A file of a higher number would be taken for nobody's by whoever opens the store.
#[test]
fn no_segment_is_begun_behind_the_last_number_there_is() {
    assert!(next_number(NUMBER_MAX).is_err() && next_number(u32::MAX).is_err());
    let store = Store::memory(small()).unwrap();
    let log = store.log(b"a").unwrap();
    {
        let header = SegmentHeader { number: NUMBER_MAX, capacity: 4096, ..SegmentHeader::default() };
        let (segment, region) = Segment::in_memory(header).unwrap();
        let mut writer = store.shared.writer.lock();
        writer.active = Arc::new(segment);
        writer.segment_tail.move_to(region);
        store.shared.segments.add(writer.active.clone());
    }
    store.append(&log, &[7; 3000], 1).unwrap();
    for refused in [store.append(&log, &[7; 3000], 2).unwrap_err(), store.rotate().unwrap_err()] {
        assert_eq!(refused.word(), "IO");
        assert!(refused.to_string().contains("no number is left"), "{refused}");
    }
    store.append(&log, b"fits", 3).unwrap();
    assert_eq!(entries(&store, &log).iter().map(Vec::len).collect::<Vec<_>>(), [3000, 4]);
}

/// The list of files, their headers and the words are read one after the other while others change them.
#[test]
fn verifying_a_store_in_use_finds_no_damage_that_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for time in 0.. {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                store.append(&log, &[7; 300], time).unwrap();
                std::thread::yield_now();
                if time % 500 == 499 {
                    let purge = Purge { before: Some(time - 200), time, ..Purge::default() };
                    store.purge(&purge).unwrap();
                }
            }
        });
        for _ in 0..60 {
            let report = crate::verify(&Disk::Real, directory.path()).unwrap();
            assert_eq!(report.damage, []);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn what_a_length_of_two_bytes_cannot_say_is_refused_and_the_rest_of_the_store_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (most, over) = ("n".repeat(65_535), "n".repeat(65_536));
    let of_type = |content_type: &str| Config { content_type: content_type.into(), ..config() };
    let create = |store: &Store, name: &str, content_type: &str| {
        let commit = Commit { payload: b"kept", ..Commit::default() };
        store.create(name.as_bytes(), &of_type(content_type), None, &commit, None).map(drop)
    };
    let store = open(directory.path(), Options::default());
    create(&store, &most, &most).unwrap();
    assert!(matches!(create(&store, &over, "text/plain"), Err(CommitError::BadName { .. })));
    let limit = most.len() as u64;
    let too_large = CommitError::TooLarge { size: over.len() as u64, limit };
    assert_eq!(create(&store, "other", &over), Err(too_large));
    let log = store.find(most.as_bytes()).unwrap();
    let key = Commit { notes: &[(over.as_bytes(), b"x")], ..Commit::default() };
    let refused = store.commit(&log, log.staged().unwrap().version, &key, None);
    assert_eq!(refused, Err(CommitError::TooLarge { size: over.len() as u64, limit }));
    store.close().unwrap();
    drop((store, log));
    let (store, found) = Store::open(&Disk::Real, directory.path(), Options::default()).unwrap();
    assert_eq!((found.damage, found.logs), (vec![], 1));
    let log = store.find(most.as_bytes()).unwrap();
    assert_eq!(entries(&store, &log), [b"kept"]);
    assert_eq!(*log.config(), of_type(&most));
}

#[test]
fn a_closed_log_takes_no_payload_whichever_way_it_comes() {
    let store = Store::memory(Options::default()).unwrap();
    let first = Commit { payload: b"first", close: true, ..Commit::default() };
    let (log, _) = store.create(b"a", &config(), None, &first, None).unwrap();
    let version = || log.staged().unwrap().version;
    let closed = Err(CommitError::LogClosed);
    for close in [false, true] {
        let commit = Commit { payload: b"more", close, ..Commit::default() };
        assert_eq!(store.commit(&log, version(), &commit, None), closed);
        let commit = Commit { suffix: b"more", close, ..Commit::default() };
        assert_eq!(store.commit(&log, version(), &commit, None), closed);
    }
    assert_eq!(store.append(&log, b"more", 1), closed);
    assert_eq!(store.append_all(&log, &[b"more"], 1), closed);
    let mut transaction = store.transaction(1);
    transaction.append(&log, b"more").unwrap();
    assert_eq!(transaction.commit(), closed);
    assert_eq!(store.read(&log, 0, 99).unwrap().pieces.concat(), b"first");
    // What is said beside the payload may change.
    let note = Commit { notes: &[(b"k", b"v")], ..Commit::default() };
    store.commit(&log, version(), &note, None).unwrap();
    assert_eq!(log.notes().len(), 1);
    assert_eq!(entries(&store, &log), [b"first"]);
}
