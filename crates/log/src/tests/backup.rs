//! Backups: against a writer that does not wait, against power cuts, and put back.

use super::store::{content, open, os, small};
use crate::backup::backup_beside;
use crate::going_on::always;
use crate::{
    Attached, Backup, BackupError, Damage, Durability, OpenError, Options, Purge, Query, Recovered, Store,
};
use crate::{GoOn, backup, backup_while, place_of, restore, restore_while, segment, segment_of};
use crate::{verify, verify_while};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::{Random, SimDisk};

/// The numbers that a log's entries carry.
fn numbers(store: &Store, name: &[u8]) -> Vec<u64> {
    let Some(log) = store.find(name) else { return Vec::new() };
    let mut reader = store.reader(&log);
    let number = |data: &[u8]| u64::from_le_bytes(data[..8].try_into().unwrap());
    reader.entries(&Query::default()).map(|entry| number(entry.unwrap().data)).collect()
}

fn opened(disk: &Disk, path: &Path) -> (Store, Recovered) {
    let report = verify(disk, path).unwrap();
    assert_eq!((report.damage, report.torn_bytes), (vec![], 0));
    let (store, found) = Store::open(disk, path, Options { committer_thread: false, ..small() }).unwrap();
    assert!(found.clean && found.damage.is_empty() && found.discarded_bytes == 0, "{found:?}");
    (store, found)
}

/// Commits numbers to two logs at once, and keeps creating, deleting and checkpointing beside them.
fn write(store: &Store, acknowledged: &Mutex<u64>, stopped: &Mutex<bool>) {
    let (a, b) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
    for number in 0.. {
        if *stopped.lock() {
            return;
        }
        let mut transaction = store.transaction(number);
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(8 + (number as usize * 7) % 200, 1);
        transaction.append(&a, &bytes).unwrap();
        transaction.append(&b, &bytes[..8]).unwrap();
        transaction.commit().unwrap();
        *acknowledged.lock() = number + 1;
        if number % 10 == 9 {
            let passing = store.log(b"passing").unwrap();
            store.append(&passing, &[0; 3000], number).unwrap();
            store.delete(&passing, passing.staged().unwrap().version, number, None).unwrap();
            store.maintain(number).unwrap();
        }
    }
}

#[test]
fn backups_taken_while_somebody_writes_open_as_of_one_moment() {
    for durability in [Durability::Os, Durability::Sync] {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("store");
        let store = open(&from, Options { durability, checkpoint_bytes: 128 << 10, ..small() });
        let (acknowledged, stopped) = (Mutex::new(0), Mutex::new(false));
        let (mut linked, mut ends) = (0, Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| write(&store, &acknowledged, &stopped));
            while *acknowledged.lock() < 20 {
                std::thread::yield_now();
            }
            for round in 0..12 {
                let to = directory.path().join(format!("backup-{round}"));
                let before = *acknowledged.lock();
                // The second way knows nothing of the writer, as if it were in another process.
                let done = if round % 2 == 0 { store.backup(&to) } else { backup(&Disk::Real, &from, &to) };
                let done = done.unwrap_or_else(|error| {
                    *stopped.lock() = true;
                    panic!("{error}")
                });
                let copy = opened(&Disk::Real, &to).0;
                let (a, b) = (numbers(&copy, b"a"), numbers(&copy, b"b"));
                let sound = a == b && a.iter().copied().eq(0..a.len() as u64) && a.len() as u64 >= before;
                if !sound {
                    *stopped.lock() = true;
                }
                assert!(sound, "{durability:?} {round}: {} and {} of {before}", a.len(), b.len());
                assert_eq!(copy.stats().staged_end, done.end);
                linked += done.linked;
                ends.push(done.end);
            }
            *stopped.lock() = true;
        });
        assert!(ends.is_sorted() && ends.first() < ends.last(), "{ends:?}");
        assert!(linked > 12, "{linked}");
    }
}

#[test]
fn a_backup_is_put_back_and_neither_is_changed_by_what_becomes_of_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), os());
    let log = store.log(b"a").unwrap();
    let fill = |store: &Store, range: std::ops::Range<u64>| {
        let log = store.log(b"a").unwrap();
        range.for_each(|number| drop(store.append(&log, &[&number.to_le_bytes()[..], &[0; 90]].concat(), 1)));
    };
    fill(&store, 0..300);
    store.checkpoint().unwrap();
    fill(&store, 300..400);
    let done = store.backup(&at("backup")).unwrap();
    let segments = u64::from(segment_of(done.end));
    let expected =
        Backup { end: done.end, linked: segments - 1, copied: 1, checkpoints: 1, attempts: 1, ..done };
    assert_eq!(done, expected);
    assert!(segments > 3 && done.copied_bytes < u64::from(place_of(done.end)));
    let kept = files(&at("backup"));
    // Who only reads need not open it first.
    let attached = Attached::open(&Disk::Real, &at("backup")).unwrap();
    let mut reader = attached.reader(&attached.find(b"a").unwrap().unwrap());
    assert_eq!(reader.entries(&Query::default()).map(Result::unwrap).count(), 400);
    drop((attached, reader));
    fill(&store, 400..900);
    store.close().unwrap();

    restore(&Disk::Real, &at("backup"), &at("again")).unwrap();
    let again = open(&at("again"), os());
    assert_eq!(numbers(&again, b"a"), (0..400).collect::<Vec<_>>());
    fill(&again, 1000..1400);
    again
        .delete(&again.find(b"a").unwrap(), again.find(b"a").unwrap().staged().unwrap().version, 0, None)
        .unwrap();
    (0..2).for_each(|_| again.checkpoint().unwrap());
    again.close().unwrap();
    assert_eq!(files(&at("backup")), kept, "the backup is as it was");
    restore(&Disk::Real, &at("backup"), &at("third")).unwrap();
    assert_eq!(numbers(&open(&at("third"), os()), b"a"), (0..400).collect::<Vec<_>>());
    assert_eq!(numbers(&store, b"a"), (0..900).collect::<Vec<_>>(), "and so is the source");
    drop((store, log));
    fs::remove_dir_all(at("store")).unwrap();
    assert_eq!(verify(&Disk::Real, &at("backup")).unwrap().damage, [], "it needs no source");
}

fn files(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |entry: fs::DirEntry| (entry.path(), fs::read(entry.path()).unwrap());
    fs::read_dir(path).unwrap().map(|entry| read(entry.unwrap())).collect()
}

#[test]
fn nothing_is_written_over_and_nothing_damaged_is_restored() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), os());
    let log = store.log(b"a").unwrap();
    (0..100u8).for_each(|index| drop(store.append(&log, &[index; 200], 1)));
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full").join("mine"), "precious").unwrap();
    assert!(matches!(store.backup(&at("full")), Err(BackupError::Occupied { .. })));
    assert!(matches!(store.backup(&at("store")), Err(BackupError::Occupied { .. })));
    assert_eq!(files(&at("full")).len(), 1);
    assert!(matches!(Store::memory(small()).unwrap().backup(&at("none")), Err(BackupError::Memory)));
    let nothing = backup(&Disk::Real, &at("nowhere"), &at("empty")).unwrap_err();
    assert!(matches!(nothing, BackupError::Source(OpenError::NotAStore { .. })), "{nothing}");
    let open_still = restore(&Disk::Real, &at("store"), &at("empty")).unwrap_err();
    assert!(matches!(open_still, BackupError::NotClosed { .. }), "{open_still}");

    let done = store.backup(&at("backup")).unwrap();
    assert!(restore(&Disk::Real, &at("backup"), &at("full")).is_err());
    assert!(!at("empty").exists(), "what was made for a copy that failed is left behind");
    fs::create_dir(at("kept")).unwrap();
    assert!(restore(&Disk::Real, &at("nowhere"), &at("kept")).is_err() && at("kept").exists());
    let good = files(&at("backup"));
    let mut random = Random::new(3);
    for path in good.keys() {
        let mut bytes = good[path].clone();
        let byte = random.below(bytes.len() as u64) as usize;
        bytes[byte] ^= 1 << random.below(8);
        // Written beside and put in its place, as it may be linked.
        fs::write(at("flipped"), &bytes).unwrap();
        fs::rename(at("flipped"), path).unwrap();
        let error = restore(&Disk::Real, &at("backup"), &at("empty")).unwrap_err();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(error.to_string().contains(name), "{name}: {error}");
        assert!(!at("empty").exists(), "{name}");
        fs::write(path, &good[path]).unwrap();
    }
    fs::remove_file(at("backup").join(crate::segment::file_name(segment_of(done.end) - 1))).unwrap();
    let error = restore(&Disk::Real, &at("backup"), &at("empty")).unwrap_err();
    assert!(matches!(&error, BackupError::Damaged(damage) if damage.len() == 1), "{error}");
}

#[test]
fn a_source_that_is_broken_is_not_passed_on_as_whole() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), os());
    let log = store.log(b"a").unwrap();
    (0..100u8).for_each(|index| drop(store.append(&log, &[index; 200], 1)));
    store.flush().unwrap();
    let newest = at("store").join(crate::segment::file_name(segment_of(store.stats().staged_end)));
    let mut bytes = fs::read(&newest).unwrap();
    bytes[200] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let error = backup(&Disk::Real, &at("store"), &at("backup")).unwrap_err();
    let BackupError::Damaged(damage) = error else { panic!("{error}") };
    // How far it reaches, too, and what it touches.
    assert_eq!(damage, crate::verify(&Disk::Real, &at("store")).unwrap().damage);
    assert!(matches!(&damage[..], [Damage { resumes: Some(_), .. }]), "{damage:?}");
    assert!(!at("backup").exists());
    fs::remove_file(at("store").join(crate::segment::file_name(2))).unwrap();
    let error = backup(&Disk::Real, &at("store"), &at("backup")).unwrap_err();
    assert!(error.to_string().contains("segment-"), "{error}");
    assert!(!at("backup").exists());
}

/// On the simulated disk: a store that is written, backed up and cut off at random.
struct Simulated {
    random: Random,
    sim: SimDisk,
    durability: Durability,
    /// Numbers that were appended, whether they last or not.
    appended: u64,
    tried: u32,
    backups: Vec<(PathBuf, u64)>,
}

impl Simulated {
    fn open(&self) -> Store {
        let options = Options { durability: self.durability, committer_thread: false, ..small() };
        Store::open(&Disk::Sim(self.sim.clone()), Path::new("/store"), options).unwrap().0
    }

    fn write(&mut self, store: &Store) {
        let log = store.log(b"a").unwrap();
        for _ in 0..self.random.below(60) {
            let mut bytes = self.appended.to_le_bytes().to_vec();
            bytes.resize(8 + self.random.below(150) as usize, 2);
            store.append(&log, &bytes, 1).unwrap();
            self.appended += 1;
            match self.random.below(40) {
                0 => store.checkpoint().unwrap(),
                1..4 => store.flush().unwrap(),
                4 => self.sim.write_back(),
                _ => {}
            }
        }
    }

    /// Takes one, or fails at some sync and leaves nothing that could be taken for one.
    fn back_up(&mut self, store: &Store) {
        // What was undone may come back with a power cut, so each try has a place of its own.
        self.tried += 1;
        let to = PathBuf::from(format!("/backup-{}", self.tried));
        let disk = Disk::Sim(self.sim.clone());
        let lasts = numbers(store, b"a").len() as u64;
        if self.random.once_in(4) {
            self.sim.fail_sync_after(self.random.below(6) as u32);
        }
        let done = backup(&disk, Path::new("/store"), &to);
        self.sim.mend();
        match done {
            Ok(_) => self.backups.push((to, lasts)),
            Err(BackupError::Io { .. }) => assert!(disk.names(&to).unwrap().is_empty()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Every backup that was reported opens, clean, with what was to be in it. Opening one is a writer too,
    /// and the others may share its files, so each is looked at on a disk of its own.
    fn check(&self) {
        for (path, lasts) in &self.backups {
            let disk = Disk::Sim(self.sim.crash());
            let (copy, _) = opened(&disk, path);
            let found = numbers(&copy, b"a");
            assert_eq!((found.len() as u64, found.is_sorted()), (*lasts, true), "{path:?}");
            let own = copy.log(b"own").unwrap();
            copy.append(&own, &[1; 100], 1).unwrap();
            copy.close().unwrap();
        }
    }
}

#[test]
fn a_backup_that_was_reported_survives_every_power_cut_and_whatever_its_source_does_then() {
    let mut kept = 0;
    for seed in 0..120 {
        let durability = if seed % 2 == 0 { Durability::Os } else { Durability::Sync };
        let (random, sim) = (Random::new(seed), SimDisk::new(seed, 64 << 20));
        let mut simulated = Simulated { random, sim, durability, appended: 0, tried: 0, backups: Vec::new() };
        for _ in 0..4 {
            let store = simulated.open();
            // What a power cut took away is not appended anew, so numbers may be left out.
            for _ in 0..3 {
                simulated.write(&store);
                simulated.back_up(&store);
            }
            if simulated.random.once_in(3) {
                store.close().unwrap();
            }
            drop(store);
            simulated.sim = simulated.sim.crash();
            simulated.check();
        }
        kept += simulated.backups.len();
    }
    assert!(kept > 800, "{kept}");
}

#[test]
fn a_backup_that_lacks_what_went_away_meanwhile_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("store"), directory.path().join("backup"));
    let store = open(&from, os());
    let (log, passing) = (store.log(b"a").unwrap(), store.log(b"passing").unwrap());
    let fill = || (0..30).for_each(|_| drop(store.append(&passing, &[7; 2000], 1)));
    fill();
    store.checkpoint().unwrap();
    fill();
    store.checkpoint().unwrap();
    let segments = store.stats().segments;
    let mut times = 0;
    let mut meanwhile = || {
        times += 1;
        if times == 1 {
            store.delete(&passing, passing.staged().unwrap().version, 2, None).unwrap();
            store.append(&log, &3u64.to_le_bytes(), 3).unwrap();
            (0..2).for_each(|_| store.checkpoint().unwrap());
            assert!(store.stats().segments < segments, "something went away");
        }
    };
    let done = backup_beside(&Disk::Real, &from, &to, &mut meanwhile, &mut always).unwrap();
    assert_eq!(done.attempts, 2);
    let copy = opened(&Disk::Real, &to).0;
    assert_eq!((numbers(&copy, b"a"), copy.find(b"passing").is_some()), (vec![3], false));
    // It goes on like that for as long as it is tried.
    let passing = store.log(b"passing").unwrap();
    let fill = || (0..30).for_each(|_| drop(store.append(&passing, &[7; 2000], 1)));
    fill();
    store.checkpoint().unwrap();
    let mut times = 0;
    let mut rotates = || {
        times += 1;
        if times % 2 == 1 {
            store.purge(&Purge { log: Some(b"passing"), ..Purge::default() }).unwrap();
        } else {
            fill();
            store.checkpoint().unwrap();
        }
    };
    let error = backup_beside(&Disk::Real, &from, &directory.path().join("none"), &mut rotates, &mut always)
        .unwrap_err();
    assert!(matches!(error, BackupError::Gone { attempts: 16, .. }), "{error}");
}

/// A store of six segments and more that was closed.
fn several(from: &Path) {
    let store = open(from, Options { segment_bytes_max: 8_192, ..os() });
    let log = store.log(b"a").unwrap();
    (0..200u64)
        .for_each(|number| drop(store.append(&log, &[&number.to_le_bytes()[..], &[0; 192]].concat(), 1)));
    assert!(store.stats().segments >= 6);
    store.close().unwrap();
}

/// Does something as often as it asks whether to go on, and has it end at each of these questions.
fn ended_at_each_question<T>(work: impl Fn(GoOn<'_>) -> Result<T, BackupError>, undone: impl Fn()) -> T {
    let mut asked = 0_u32;
    loop {
        let mut left = asked;
        let done = work(&mut || {
            left = left.checked_sub(1).ok_or(std::io::ErrorKind::Interrupted)?;
            Ok(())
        });
        match done {
            Ok(done) => {
                assert!(asked > 6, "once for each segment, at least: {asked}");
                return done;
            }
            Err(BackupError::Io { source, .. } | BackupError::Source(OpenError::Io { source, .. })) => {
                assert_eq!(source.kind(), std::io::ErrorKind::Interrupted)
            }
            Err(error) => panic!("{error}"),
        }
        undone();
        asked += 1;
    }
}

#[test]
fn what_is_asked_to_end_between_two_pieces_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name| directory.path().join(name);
    let (from, to, again) = (path("store"), path("backup"), path("again"));
    several(&from);
    let whole = verify(&Disk::Real, &from).unwrap();
    let verified = ended_at_each_question(|go_on| Ok(verify_while(&Disk::Real, &from, go_on)?), || ());
    assert_eq!(verified, whole);
    let gone = |path: &Path| assert!(!path.exists());
    let work = |go_on: GoOn<'_>| backup_while(&Disk::Real, &from, &to, go_on);
    assert_eq!(ended_at_each_question(work, || gone(&to)).end, whole.end);
    let work = |go_on: GoOn<'_>| restore_while(&Disk::Real, &to, &again, go_on);
    assert_eq!(ended_at_each_question(work, || gone(&again)).end, whole.end);
    assert_eq!(verify(&Disk::Real, &again).unwrap().damage, []);
}

#[test]
fn a_look_behind_a_missing_segment_asks_before_each_that_follows() {
    let directory = tempfile::tempdir().unwrap();
    several(directory.path());
    // A replay without checkpoints comes to it, and so all that follow are asked what was durable.
    for name in Disk::Real.names(directory.path()).unwrap() {
        if name.starts_with("checkpoint-") || name == segment::file_name(3) {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
    let names = Disk::Real.names(directory.path()).unwrap();
    let segments: Vec<u32> = names.iter().filter_map(|name| segment::number_of(name)).collect();
    let behind = segments.iter().filter(|number| **number > 3).count();
    let mut asked = 0;
    let mut go_on = || {
        asked += 1;
        Ok(())
    };
    let report = verify_while(&Disk::Real, directory.path(), &mut go_on).unwrap();
    assert_eq!(report.damage.iter().map(|damage| segment_of(damage.from)).collect::<Vec<_>>(), [3]);
    assert_eq!(asked, names.len() + segments.len() + behind);
}

#[test]
fn what_ends_while_it_looks_for_all_that_is_damaged_does_not_name_a_part_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("store"), directory.path().join("backup"));
    let store = open(&from, Options { segment_bytes_max: 8_192, ..os() });
    let log = store.log(b"a").unwrap();
    (0..200u8).for_each(|index| drop(store.append(&log, &[index; 200], 1)));
    let newest = from.join(segment::file_name(segment_of(store.stats().staged_end)));
    let mut bytes = fs::read(&newest).unwrap();
    bytes[200] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let work = |go_on: GoOn<'_>| match backup_while(&Disk::Real, &from, &to, go_on) {
        Err(BackupError::Damaged(damage)) => Ok(damage),
        done => Err(done.expect_err("it is damaged")),
    };
    let named = ended_at_each_question(work, || assert!(!to.exists()));
    assert_eq!(named, verify(&Disk::Real, &from).unwrap().damage);
}

#[test]
fn what_is_missing_for_good_is_damage_at_once_and_named_as_verification_names_it() {
    for lost in [1, 2, 4] {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("store"), directory.path().join("backup"));
        several(&from);
        fs::remove_file(from.join(crate::segment::file_name(lost))).unwrap();
        let mut looks = 0;
        let error = backup_beside(&Disk::Real, &from, &to, &mut || looks += 1, &mut always).unwrap_err();
        let BackupError::Damaged(damage) = error else { panic!("{error}") };
        assert_eq!(damage, verify(&Disk::Real, &from).unwrap().damage);
        assert_eq!(
            (damage[0].file.clone(), looks),
            (crate::segment::file_name(lost), 2),
            "it was begun once"
        );
        assert!(!to.exists());
    }
}

#[test]
fn who_wrote_what_is_missing_may_have_lost_it_to_a_power_cut_and_has_it_opened_first() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("store"), directory.path().join("backup"));
    let store = open(&from, os());
    let log = store.log(b"a").unwrap();
    (0..200u64)
        .for_each(|number| drop(store.append(&log, &[&number.to_le_bytes()[..], &[0; 192]].concat(), 1)));
    let last = segment_of(store.stats().staged_end);
    drop(store);
    fs::remove_file(from.join(crate::segment::file_name(last))).unwrap();
    let mut words = fs::read(from.join("control")).unwrap();
    words[crate::control::BOOT * 8..][..8].fill(1);
    fs::write(from.join("control"), words).unwrap();
    assert_eq!(verify(&Disk::Real, &from).unwrap().damage, []);
    let error = backup(&Disk::Real, &from, &to).unwrap_err();
    assert!(matches!(error, BackupError::NotClosed { .. }), "{error}");
}

#[test]
fn a_backup_takes_no_segment_that_lacks_what_was_there_at_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("store"), directory.path().join("backup"));
    let store = open(&from, os());
    let (log, passing) = (store.log(b"a").unwrap(), store.log(b"passing").unwrap());
    for number in 0..60u64 {
        store.append(&passing, &[7; 2000], 1).unwrap();
        store.append(&log, &number.to_le_bytes(), 1).unwrap();
    }
    (0..2).for_each(|_| store.checkpoint().unwrap());
    let compacted = || {
        let view = store.shared.segments.latest();
        view.all().iter().any(|segment| segment.header.is_compacted())
    };
    for number in 60..70u64 {
        store.append(&log, &number.to_le_bytes(), 1).unwrap();
        store.checkpoint().unwrap();
    }
    let mut times = 0;
    let mut meanwhile = || {
        times += 1;
        // Behind the position that the backup is to have.
        if times == 2 {
            store.delete(&passing, passing.staged().unwrap().version, 2, None).unwrap();
            while store.shared.compact().unwrap() {}
            assert!(compacted());
        }
    };
    assert!(!compacted());
    let done = backup_beside(&Disk::Real, &from, &to, &mut meanwhile, &mut always).unwrap();
    assert_eq!(done.attempts, 2);
    let copy = opened(&Disk::Real, &to).0;
    assert_eq!(numbers(&copy, b"a"), (0..70).collect::<Vec<_>>());
    assert!(copy.find(b"passing").is_none());
}

/// The place of its end is none of the bytes of that segment's file by then.
#[test]
fn a_backup_does_not_take_the_segment_of_its_end_for_damaged_once_that_is_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("store"), directory.path().join("backup"));
    let store = open(&from, os());
    let (log, passing) = (store.log(b"a").unwrap(), store.log(b"passing").unwrap());
    store.append(&passing, &[7; 3000], 1).unwrap();
    store.append(&log, &0u64.to_le_bytes(), 1).unwrap();
    let ends_in = segment_of(store.stats().staged_end);
    let mut times = 0;
    let mut meanwhile = || {
        times += 1;
        // Behind the position that the backup is to have.
        if times == 2 {
            store.delete(&passing, passing.staged().unwrap().version, 2, None).unwrap();
            for number in 1..3u64 {
                store.rotate().unwrap();
                store.append(&log, &number.to_le_bytes(), 1).unwrap();
                store.checkpoint().unwrap();
            }
            while store.shared.compact().unwrap() {}
            let view = store.shared.segments.latest();
            let compacted = view.all().iter().filter(|segment| segment.header.is_compacted());
            assert!(compacted.map(|segment| segment.header.number).eq([ends_in]));
        }
    };
    let done = backup_beside(&Disk::Real, &from, &to, &mut meanwhile, &mut always).unwrap();
    assert_eq!(done.attempts, 2);
    assert_eq!(numbers(&opened(&Disk::Real, &to).0, b"a"), (0..3).collect::<Vec<_>>());
}

#[test]
fn a_backup_takes_no_compacted_segment_that_a_replay_from_its_checkpoint_comes_to() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("store"), directory.path().join("backup"));
    let store = open(&from, os());
    let (log, passing) = (store.log(b"a").unwrap(), store.log(b"passing").unwrap());
    store.checkpoint().unwrap();
    for number in 0..60u64 {
        store.append(&passing, &[7; 2000], 1).unwrap();
        store.append(&log, &number.to_le_bytes(), 1).unwrap();
    }
    let mut times = 0;
    let mut meanwhile = || {
        times += 1;
        // Behind the checkpoint that was found, in front of the position that the backup is to have.
        if times == 1 {
            store.delete(&passing, passing.staged().unwrap().version, 2, None).unwrap();
            for number in 60..62u64 {
                store.rotate().unwrap();
                store.append(&log, &number.to_le_bytes(), 1).unwrap();
                store.checkpoint().unwrap();
            }
            while store.shared.compact().unwrap() {}
            let view = store.shared.segments.latest();
            assert!(view.all().iter().any(|segment| segment.header.is_compacted()));
        }
    };
    let done = backup_beside(&Disk::Real, &from, &to, &mut meanwhile, &mut always).unwrap();
    assert_eq!(done.attempts, 2);
    let copy = opened(&Disk::Real, &to).0;
    assert_eq!(numbers(&copy, b"a"), (0..62).collect::<Vec<_>>());
    copy.close().unwrap();
    drop((copy, log, passing));
    store.close().unwrap();
    drop(store);
    // As such a backup would be: the checkpoints in front of what was compacted are lost.
    let names = Disk::Real.names(&from).unwrap();
    for name in names.iter().filter(|name| name.starts_with("checkpoint-")) {
        fs::remove_file(from.join(name)).unwrap();
    }
    let named = verify(&Disk::Real, &from).unwrap().damage;
    let headers = names.iter().filter(|name| name.starts_with("segment-"));
    let headers =
        headers.filter_map(|name| segment::read_header(&Disk::Real, &from.join(name)).unwrap()?.ok());
    let compacted: Vec<String> = headers
        .filter(|header| header.is_compacted())
        .map(|header| segment::file_name(header.number))
        .collect();
    assert!(!compacted.is_empty());
    assert_eq!(named.into_iter().map(|damage| damage.file).collect::<Vec<_>>(), compacted);
}

#[test]
fn what_is_let_go_while_a_checkpoint_is_written_stays_as_long_as_that_speaks_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("store"), directory.path().join("backup"));
    let store = open(&from, os());
    let (log, passing) = (store.log(b"a").unwrap(), store.log(b"passing").unwrap());
    (0..30).for_each(|_| assert!(store.append(&passing, &[7; 2000], 1).is_ok()));
    let checkpoint = |number: u64| {
        store.rotate().unwrap();
        store.append(&log, &number.to_le_bytes(), 1).unwrap();
        store.checkpoint().unwrap();
    };
    (0..2).for_each(checkpoint);
    let before = store.stats().segments;
    let (ask, asked) = std::sync::mpsc::channel();
    let (answer, answered) = std::sync::mpsc::channel();
    store.shared.options.interleave.set(Some((ask, answered)));
    let shard = store.shared.catalogue.shard_of(b"passing");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            checkpoint(2);
            store.shared.options.interleave.set(None);
        });
        // Owned here, so that a failure below ends the other side too.
        let (asked, answer) = (asked, answer);
        for pause in 0.. {
            if asked.recv().is_err() {
                return;
            }
            // Behind the shard that it is in.
            if pause == shard {
                store.delete(&passing, passing.staged().unwrap().version, 2, None).unwrap();
                store.flush().unwrap();
            }
            answer.send(()).unwrap();
        }
    });
    assert_eq!(verify(&Disk::Real, &from).unwrap().damage, []);
    assert_eq!(store.backup(&to).unwrap().attempts, 1);
    let copy = opened(&Disk::Real, &to).0;
    assert_eq!((numbers(&copy, b"a"), copy.find(b"passing").is_some()), (vec![0, 1, 2], false));
    checkpoint(3);
    assert!(store.stats().segments < before, "gone with the next one");
    assert_eq!(verify(&Disk::Real, &from).unwrap().damage, []);
}

#[test]
fn an_unfinished_backup_is_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), os());
    let log = store.log(b"a").unwrap();
    store.append(&log, b"x", 1).unwrap();
    store.backup(&at("backup")).unwrap();
    fs::remove_file(at("backup").join("control")).unwrap();
    assert!(Store::open(&Disk::Real, &at("backup"), os()).is_err());
    assert!(matches!(restore(&Disk::Real, &at("backup"), &at("again")), Err(BackupError::Source(_))));
    assert_eq!(content(&store, b"a"), b"x");
}

#[test]
fn a_store_that_was_put_back_gives_out_no_id_that_the_one_before_gave_out_behind_the_backup() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let options = |opened_at| Options { opened_at, ..os() };
    let store = open(&at("store"), options(1_000));
    store.log(b"a").unwrap();
    backup(&Disk::Real, &at("store"), &at("backup")).unwrap();
    let behind = store.log(b"behind").unwrap().id();
    drop(store);
    restore(&Disk::Real, &at("backup"), &at("again")).unwrap();
    for from in ["backup", "again"] {
        let store = open(&at(from), options(2_000_000));
        let (log, opened) = (store.log(b"other").unwrap(), store.find(b"a").unwrap());
        assert!(log.id() >= 2_000_000 && log.id() > behind && opened.id() < behind, "{from}");
        store.close().unwrap();
        drop((store, log, opened));
        // A store that was closed knows what it gave out.
        assert_eq!(open(&at(from), options(3_000_000)).log(b"third").unwrap().id(), 2_000_001, "{from}");
    }
}
