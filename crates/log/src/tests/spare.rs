//! The next segment's file, filled ahead of time.

use super::store::{append, config, content, open, payload, small};
use crate::spare::Filler;
use crate::{Options, Store};
use std::path::Path;
use std::time::{Duration, Instant};

/// A store of which more than half of the active segment is written.
fn half_full(path: &Path, options: Options) -> Store {
    let store = open(path, options);
    store.create(b"a", &config(), None, &payload(&[b'x'; 40_000]), None).unwrap();
    store
}

fn files(path: &Path, prefix: &str) -> Vec<String> {
    let names =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    names
}

fn options(committer_thread: bool) -> Options {
    Options { segment_bytes_min: 65_536, committer_thread, ..small() }
}

#[test]
fn the_next_segment_is_there_before_it_is_needed_and_taken_when_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let store = half_full(directory.path(), options(true));
    let begun = Instant::now();
    while store.shared.writer.lock().spare.is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no spare: {:?}", files(directory.path(), "s"));
        std::thread::sleep(Duration::from_millis(1));
    }
    let prepared = files(directory.path(), "segment-").pop().unwrap();
    assert_eq!(std::fs::read(directory.path().join(&prepared)).unwrap(), vec![0; 65_536]);
    append(&store, b"a", &[b'y'; 40_000]);
    assert!(store.shared.writer.lock().spare.is_none());
    assert_eq!(files(directory.path(), "segment-").pop().unwrap(), prepared);
    store.flush().unwrap();
    assert_eq!(content(&store, b"a").len(), 80_000);
    store.close().unwrap();
    assert_eq!(files(directory.path(), "spare-"), [""; 0]);
}

#[test]
fn a_spare_is_filled_in_steps_with_rests_and_begun_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = half_full(directory.path(), options(false));
    let (writer, mut filler) = (&store.shared.writer, Filler::default());
    assert!(filler.rests_until(&writer.lock()).is_some());
    let order = writer.lock().order_spare();
    assert!(order.is_some() && writer.lock().order_spare().is_none());
    filler.go_on(order, writer, 1000);
    assert!(filler.rests_until(&writer.lock()).unwrap() > Instant::now(), "it rests after a step");
    assert_eq!(files(directory.path(), "spare-").len(), 1);
    let mut steps = 1;
    while writer.lock().spare.is_none() {
        filler.go_on(None, writer, 0);
        steps += 1;
    }
    assert_eq!((steps, filler.rests_until(&writer.lock())), (16, None));
    assert_eq!((files(directory.path(), "spare-").len(), files(directory.path(), "segment-").len()), (0, 2));
}

#[test]
fn a_spare_that_the_log_overtakes_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let store = half_full(directory.path(), options(false));
    let (writer, mut filler) = (&store.shared.writer, Filler::default());
    let order = writer.lock().order_spare();
    filler.go_on(order, writer, 0);
    append(&store, b"a", &[b'y'; 40_000]);
    // The next one is due already, and this one is given up for it.
    let order = writer.lock().order_spare();
    assert!(order.is_some());
    filler.go_on(order, writer, 0);
    let left = files(directory.path(), "spare-");
    assert_eq!(left, ["spare-0000000003"]);
    append(&store, b"a", &[b'z'; 50_000]);
    filler.go_on(None, writer, 0);
    assert_eq!(
        (files(directory.path(), "spare-"), filler.rests_until(&writer.lock()).is_some()),
        (vec![], true)
    );
}

#[test]
fn nothing_is_left_of_a_spare_when_its_store_is_closed_or_the_disk_refuses_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = half_full(directory.path(), options(false));
    let (writer, mut filler) = (&store.shared.writer, Filler::default());
    let order = writer.lock().order_spare();
    filler.go_on(order, writer, 0);
    drop(filler);
    assert_eq!(files(directory.path(), "spare-"), [""; 0]);
    // Of a directory that is gone.
    let mut filler = Filler::default();
    writer.lock().spare_begun = 0;
    let order = writer.lock().order_spare();
    std::fs::remove_dir_all(directory.path()).unwrap();
    filler.go_on(order, writer, 0);
    assert!(writer.lock().spare.is_none() && filler.rests_until(&writer.lock()).is_none());
}
