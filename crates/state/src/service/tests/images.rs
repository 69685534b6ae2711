//! A full disk: the state and its images, once there is room.

use super::*;
use std::path::Path;
use thalweg_log::sim::SimDisk;
use thalweg_log::{CommitError, Disk};

#[test]
fn a_state_that_a_full_disk_kept_from_being_made_is_made_once_there_is_room() {
    const SPACE: u64 = 64 << 20;
    let sim = SimDisk::new(1, SPACE);
    let (store, _) =
        Store::open(&Disk::Sim(sim.clone()), Path::new("/store"), thalweg_log::Options::default()).unwrap();
    let log = store.log(b"other").unwrap();
    sim.set_space(sim.used_bytes());
    while !matches!(store.append(&log, &[7; 1 << 16], 1), Err(CommitError::Full(_))) {}
    while store.append(&log, &[7; 64], 1).is_ok() {}
    let service = Service::new(&store, "state", ServiceOptions::default());
    assert!(matches!(&*service.core.state().err().unwrap(), Error::Commit(CommitError::Full(_))));
    sim.set_space(SPACE);
    service.core.state().unwrap();
}

#[test]
fn an_image_that_there_is_no_room_for_is_not_tried_at_every_round() {
    const SPACE: u64 = 64 << 20;
    let sim = SimDisk::new(7, SPACE);
    let options = thalweg_log::Options { durability: thalweg_log::Durability::Os, ..Default::default() };
    let (store, _) = Store::open(&Disk::Sim(sim.clone()), Path::new("/store"), options).unwrap();
    let options = Options { image_bytes: 1, ..Options::default() };
    let service = Service::new(&store, "state", ServiceOptions { state: options, ..Default::default() });
    let state = service.core.state().unwrap();
    let put = crate::Change::Put("a".into(), b"1"[..].into());
    state.write(state.main(), &[put].into_iter().collect(), 1).unwrap();
    sim.set_space(sim.used_bytes());
    let log = store.log(b"other").unwrap();
    while !matches!(store.append(&log, &[7; 1 << 16], 1), Err(CommitError::Full(_))) {}
    while store.append(&log, &[7; 64], 1).is_ok() {}
    // What was asked for is done when what comes behind it on the same thread is.
    let settled = || {
        let (done, is_done) = std::sync::mpsc::channel();
        service.core.apart.execute(Box::new(move || done.send(()).unwrap()));
        is_done.recv().unwrap();
    };
    service.keep_house();
    settled();
    assert!(matches!(service.image_news(), Some(ImageNews::Refused(_))));
    sim.set_space(SPACE);
    for _ in 0..2 {
        service.keep_house();
        settled();
        assert!(state.is_due() && service.image_news().is_none(), "it was tried again at once");
    }
    state.maintain(2).unwrap();
    service.keep_house();
    assert_eq!(service.image_news(), Some(ImageNews::Written));
}
