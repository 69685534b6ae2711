//! A disk that is full: what nobody needs is let go of, whatever filled the disk, and room comes back.

use super::store::small;
use crate::{Attached, CommitError, Durability, Log, Options, RETAIN_NOTE, Store, Time};
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;
use thalweg_sys::disk::sim::SimDisk;

const SECOND: Time = 1_000_000;
const SPACE: u64 = 1 << 20;

fn open(sim: &SimDisk, options: &Options) -> Store {
    let options = Options { committer_thread: false, ..options.clone() };
    Store::open(&Disk::Sim(sim.clone()), Path::new("/store"), options).unwrap().0
}

fn both() -> [Options; 2] {
    [Durability::Sync, Durability::Os].map(|durability| Options { durability, ..small() })
}

/// Appends until the disk takes no more; answers how often it was taken.
fn fill(store: &Store, log: &Arc<Log>, payload: &[u8]) -> usize {
    let taken = (0..).take_while(|_| match store.append(log, payload, SECOND) {
        Ok(_) => true,
        Err(error) => {
            assert!(matches!(error, CommitError::Full(_)), "{error}");
            false
        }
    });
    taken.count()
}

fn delete(store: &Store, name: &[u8]) {
    let log = store.find(name).unwrap();
    store.delete(&log, log.staged().unwrap().version, SECOND, None).unwrap();
    store.flush().unwrap();
}

fn keep_house(store: &Store, looks: std::ops::Range<u64>) {
    for look in looks {
        // Other work may be refused meanwhile, but what is let go of in the end is.
        let _ = store.maintain(look * 60 * SECOND);
        store.flush().unwrap();
    }
}

#[test]
fn deleting_on_a_disk_that_the_store_filled_gives_its_room_back() {
    for options in both() {
        for opened_again in [false, true] {
            let sim = SimDisk::new(1, SPACE);
            let mut store = open(&sim, &options);
            let log = store.log(b"large").unwrap();
            store.append(&store.log(b"small").unwrap(), b"stays", 1).unwrap();
            assert!(fill(&store, &log, &[7; 3000]) > 200);
            while store.append(&log, b"the rest", 1).is_ok() {}
            drop(log);
            if opened_again {
                store.flush().unwrap();
                drop(store);
                store = open(&sim, &options);
            }
            delete(&store, b"large");
            keep_house(&store, 1..6);
            assert!(sim.used_bytes() < SPACE / 4, "{} bytes of {SPACE} are in use", sim.used_bytes());
            let log = store.log(b"next").unwrap();
            assert!(fill(&store, &log, &[7; 3000]) > 150);
            store.flush().unwrap();
            drop(store);
            let small = open(&sim.crash(), &options).find(b"small").unwrap().visible().unwrap();
            assert_eq!(small.tail, 5);
        }
    }
}

#[test]
fn what_is_let_go_while_appends_are_refused_gives_its_room_back_without_a_wait() {
    for options in both() {
        let sim = SimDisk::new(1, SPACE);
        let store = open(&sim, &options);
        // Less than a part that is worth a checkpoint by itself.
        let small = store.log(b"small").unwrap();
        (0..40).for_each(|_| store.append(&small, &[7; 3000], 1).map(drop).unwrap());
        let log = store.log(b"large").unwrap();
        fill(&store, &log, &[7; 3000]);
        store.maintain(SECOND).unwrap();
        drop(small);
        delete(&store, b"small");
        // Housekeeping looks every few seconds; somebody tries all the while.
        let taken = (0..6).find(|look| {
            let _ = store.maintain((2 + look) * SECOND);
            store.flush().unwrap();
            fill(&store, &log, &[7; 3000]) > 0
        });
        assert!(taken.is_some(), "{} of {SPACE} bytes are in use", sim.used_bytes());
    }
}

#[test]
fn what_is_too_old_or_too_much_goes_on_a_disk_that_others_filled() {
    for options in both() {
        let sim = SimDisk::new(1, 4 * SPACE);
        let store = open(&sim, &options);
        let bounds = |age_us: u64, bytes: u64| [age_us.to_le_bytes(), bytes.to_le_bytes()].concat();
        for (name, bounds) in [(b"aged", bounds(10 * SECOND, 0)), (b"size", bounds(0, 10_000))] {
            let log = store.log(name).unwrap();
            let commit = crate::Commit { notes: &[(RETAIN_NOTE, &bounds)], ..Default::default() };
            store.commit(&log, log.staged().unwrap().version, &commit, None).unwrap();
            for _ in 0..100 {
                store.append(&log, &[7; 3000], SECOND).unwrap();
            }
        }
        store.flush().unwrap();
        let before = sim.used_bytes();
        sim.set_space(before);
        keep_house(&store, 1..6);
        assert!(sim.used_bytes() < before / 2, "{} of {before} bytes are in use", sim.used_bytes());
    }
}

#[test]
fn what_was_set_aside_is_nobodys_to_append_with_and_comes_back_first() {
    let sim = SimDisk::new(1, SPACE);
    let store = open(&sim, &both()[1]);
    let log = store.log(b"log").unwrap();
    fill(&store, &log, &[7; 3000]);
    let room = |sim: &SimDisk| Disk::Sim(sim.clone()).open(Path::new("/store/reserve"));
    assert!(room(&sim).unwrap().length().unwrap() > 0);
    // Somebody borrows it, and others take what it held.
    assert!(store.shared.writer.lock().reserve.lend());
    assert!(!store.shared.writer.lock().reserve.lend(), "it is lent once");
    let used = sim.used_bytes();
    assert_eq!(fill(&store, &log, &[7; 3000]), 0, "not while it is lent");
    sim.set_space(used);
    store.shared.writer.lock().reserve.give_back();
    room(&sim).unwrap_err();
    sim.set_space(used + 5000);
    assert_eq!(fill(&store, &log, &[7; 3000]), 0, "what there is is set aside");
    assert_eq!(room(&sim).unwrap().length().unwrap(), 4096);
    sim.set_space(4 * SPACE);
    store.append(&log, &[7; 3000], 1).unwrap();
}

#[test]
fn segments_of_which_little_is_needed_give_room_back_on_a_full_disk() {
    for options in both() {
        let sim = SimDisk::new(1, SPACE);
        // What is written anew is there twice for a while.
        let options = Options { segment_bytes_max: 8192, rest_parts: 0, ..options };
        let store = open(&sim, &options);
        let (large, little) = (store.log(b"large").unwrap(), store.log(b"little").unwrap());
        let taken = (0..).take_while(|count| {
            let log = if count % 4 == 0 { &little } else { &large };
            store.append(log, if count % 4 == 0 { &[7; 10][..] } else { &[7; 2000] }, SECOND).is_ok()
        });
        assert!(taken.count() > 200);
        let kept = little.staged().unwrap().tail;
        drop(large);
        delete(&store, b"large");
        // Two checkpoints take some of what is set aside; then there is less than a segment takes without the
        // rest of it.
        sim.set_space(SPACE + 4096);
        keep_house(&store, 1..8);
        assert!(store.stats().freed_bytes > SPACE / 8, "{} bytes were given back", store.stats().freed_bytes);
        store.flush().unwrap();
        drop((little, store));
        assert_eq!(open(&sim.crash(), &options).find(b"little").unwrap().visible().unwrap().tail, kept);
    }
}

#[test]
fn as_much_is_set_aside_as_many_logs_take_and_is_found_when_a_store_is_opened() {
    let sim = SimDisk::new(1, 64 << 20);
    let options = &both()[0];
    let names = |from: u32, to: u32| (from..to).map(|name| format!("{name:060}").into_bytes());
    let store = open(&sim, options);
    for name in names(0, 2_000) {
        store.append(&store.log(&name).unwrap(), b"x", SECOND).unwrap();
    }
    store.flush().unwrap();
    store.maintain(SECOND).unwrap();
    let large = store.log(b"large").unwrap();
    sim.set_space(sim.used_bytes() + SPACE);
    fill(&store, &large, &[7; 3000]);
    store.flush().unwrap();
    drop((large, store));
    let store = open(&sim, options);
    assert!(store.shared.writer.lock().reserve.is_whole());
    names(0, 1_000).for_each(|name| delete(&store, &name));
    delete(&store, b"large");
    let before = sim.used_bytes();
    keep_house(&store, 1..8);
    store.append(&store.log(b"next").unwrap(), &[7; 3000], SECOND).unwrap();
    assert!(store.stats().freed_bytes > SPACE / 2, "{} of {before}", store.stats().freed_bytes);
}

#[test]
fn what_is_set_aside_follows_what_is_foreseen() {
    let sim = SimDisk::new(1, 64 << 20);
    let store = open(&sim, &both()[1]);
    let length = || Disk::Sim(sim.clone()).open(Path::new("/store/reserve")).unwrap().length().unwrap();
    let foresee = |bytes: u64| {
        let mut writer = store.shared.writer.lock();
        writer.reserve.foresee(bytes);
        assert!(writer.reserve.restore());
    };
    foresee(1 << 20);
    let large = length();
    assert!((1 << 20..2 << 20).contains(&large), "{large}");
    foresee(9 << 17);
    foresee(7 << 17);
    assert_eq!(length(), large, "not for a little more or less");
    foresee(1 << 15);
    assert!((1 << 15..1 << 17).contains(&length()), "{}", length());
}

#[test]
fn a_reserve_that_somebody_took_away_is_not_lent_for_ever() {
    let sim = SimDisk::new(1, SPACE);
    let store = open(&sim, &both()[1]);
    let log = store.log(b"log").unwrap();
    fill(&store, &log, &[7; 3000]);
    let disk = Disk::Sim(sim.clone());
    disk.unlink(Path::new("/store/reserve")).unwrap();
    sim.set_space(sim.used_bytes());
    assert!(!store.shared.writer.lock().reserve.lend());
    assert_eq!(fill(&store, &log, &[7; 3000]), 0);
    sim.set_space(4 * SPACE);
    store.append(&log, &[7; 3000], 1).unwrap();
    assert!(disk.open(Path::new("/store/reserve")).is_ok());
}

#[test]
fn it_is_no_part_of_a_store_that_is_read_or_backed_up() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().join("here");
    let (store, _) = Store::open(&Disk::Real, &here, both()[1].clone()).unwrap();
    store.append(&store.log(b"log").unwrap(), b"entry", 1).unwrap();
    assert!(here.join("reserve").exists());
    store.flush().unwrap();
    store.backup(&directory.path().join("there")).unwrap();
    assert!(!directory.path().join("there/reserve").exists());
    std::fs::write(here.join("reserve"), b"whatever lies here, however much it is").unwrap();
    let attached = Attached::open(&Disk::Real, &here).unwrap();
    assert!(attached.find(b"log").unwrap().is_some());
    store.close().unwrap();
    let verified = crate::verify(&Disk::Real, &here).unwrap();
    assert_eq!(verified.damage, []);
}
