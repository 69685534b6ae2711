//! A store that is moved away from under a process that is attached to it, or that another is put in the
//! place of.

use super::reader::block_on;
use super::store::{open, os};
use crate::{Attached, Query, ReadError, Start};
use std::fs::rename;
use std::time::Duration;
use thalweg_sys::disk::Disk;

/// Nobody wakes them: nobody writes to what they have mapped any more.
#[test]
fn whoever_sleeps_until_something_comes_to_a_store_that_is_gone_is_told() {
    for in_its_place in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let store = open(&at("here"), os());
        store.log(b"a").unwrap();
        store.backup(&at("backup")).unwrap();
        let attached = Attached::open(&Disk::Real, &at("here")).unwrap();
        let theirs = attached.find(b"a").unwrap().unwrap();
        let tail = || attached.reader(&theirs).follow(&Query::from(Start::Tail));
        let (mut blocked, mut task) = (tail(), tail());
        let maps = attached.maps();
        assert_eq!(maps.check_presence(), Ok(()));
        let mut new_logs = attached.new_logs(false).unwrap();
        assert!(blocked.next().unwrap().is_none() && task.next().unwrap().is_none());
        assert!(new_logs.next().unwrap().is_none());
        assert!(!blocked.wait(Some(Duration::ZERO)) && !new_logs.wait(Some(Duration::ZERO)));
        let is_told = |error: Option<ReadError>, how: &[&str]| match error {
            Some(ReadError::Io { why, .. }) => how.iter().any(|how| why.contains(how)),
            _ => false,
        };
        std::thread::scope(|scope| {
            let blocked = scope.spawn(move || blocked.wait(None).then(|| blocked.next().err()).flatten());
            let new_logs = scope.spawn(move || new_logs.wait(None).then(|| new_logs.next().err()).flatten());
            let task = scope.spawn(move || {
                block_on(task.changed()).unwrap();
                task.next().err()
            });
            rename(at("here"), at("away")).unwrap();
            if in_its_place {
                rename(at("backup"), at("here")).unwrap();
            }
            for told in [blocked, new_logs, task] {
                let error = told.join().unwrap();
                // Between the two there was none.
                assert!(is_told(error.clone(), &["removed", "another store"]), "{in_its_place}: {error:?}");
            }
        });
        let how = if in_its_place { "another store" } else { "removed" };
        assert!(is_told(attached.find(b"a").err(), &[how]));
        let refused = attached.backup(&at("copy")).unwrap_err().to_string();
        assert!(refused.contains(how) && !at("copy").exists(), "{refused}");
        assert!(attached.verify().is_err_and(|error| error.to_string().contains(how)));
        // Of the words that it looks at none has moved.
        assert!(!maps.register(std::task::Waker::noop(), || false).unwrap());
        assert!(is_told(maps.check_presence().err(), &[how]));
        assert!(is_told(attached.new_logs(false).and_then(|mut new_logs| new_logs.next()).err(), &[how]));
        if !in_its_place {
            // Who sleeps was told, and nobody is left to wake the next one: so it stays gone.
            rename(at("away"), at("here")).unwrap();
            let how = ["moved away meanwhile"];
            assert!(is_told(attached.find(b"a").err(), &how));
            let mut late = tail();
            block_on(late.changed()).unwrap();
            assert!(is_told(late.next().err(), &how));
        }
        drop(store);
    }
}

#[test]
fn a_store_that_is_there_and_lost_a_segment_is_damaged_and_not_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    store.append(&store.log(b"a").unwrap(), b"entry", 1).unwrap();
    store.rotate().unwrap();
    store.append(&store.log(b"a").unwrap(), b"entry", 2).unwrap();
    let newest = Disk::Real.names(directory.path()).unwrap();
    let newest = newest.iter().rfind(|name| name.starts_with("segment-")).unwrap();
    std::fs::remove_file(directory.path().join(newest)).unwrap();
    let damage = attached.verify().unwrap().damage;
    assert_eq!(damage.iter().map(|damage| &damage.file).collect::<Vec<_>>(), [newest]);
}
