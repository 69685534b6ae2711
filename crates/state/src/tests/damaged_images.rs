//! What a start does with images that are not what they were, and which of them stay.

use super::images::{find_image, images_in};
use super::*;
use std::sync::Arc;
use thalweg_log::Log;
use thalweg_log::sim::SimDisk;

/// An image of the main line that says it has another root than it has.
fn forged(store: &Store, fork: ForkId, offset: u64) {
    forged_log(store, &find_image(store, fork, offset));
}

fn forged_log(store: &Store, log: &Arc<Log>) {
    let mut entries = entries_of(store, log);
    *entries.last_mut().unwrap().last_mut().unwrap() ^= 1;
    let name = String::from_utf8(log.name().to_vec()).unwrap();
    store.delete(log, log.staged().unwrap().version, 1, None).unwrap();
    written(store, log, &name, entries);
}

/// An image with what another has, under another name.
fn copied(store: &Store, of: &Arc<Log>, name: &str) -> Arc<Log> {
    written(store, of, name, entries_of(store, of))
}

fn entries_of(store: &Store, log: &Arc<Log>) -> Vec<Vec<u8>> {
    let mut reader = store.reader(log);
    reader.entries(&Default::default()).map(|entry| entry.unwrap().data.to_vec()).collect()
}

/// A log with the configuration of another, closed behind these entries.
fn written(store: &Store, like: &Log, name: &str, entries: Vec<Vec<u8>>) -> Arc<Log> {
    let (log, _) = store.create(name.as_bytes(), like.config(), None, &Default::default(), None).unwrap();
    for (n, payload) in entries.iter().enumerate() {
        let commit = thalweg_log::Commit { payload, close: n + 1 == entries.len(), ..Default::default() };
        store.commit(&log, log.staged().unwrap().version, &commit, None).unwrap();
    }
    log
}

#[test]
fn an_image_without_its_root_is_done_without_or_named() {
    for history in [History::Kept, History::Trimmed] {
        let store = memory();
        let options = Options { history, ..Options::default() };
        let state = State::open(&store, "s", options.clone()).unwrap();
        let main = state.main();
        for n in 0..50 {
            state.write(main, &put(&format!("k{n}"), "1"), 1).unwrap();
        }
        let offset = state.checkpoint(main, 2).unwrap();
        state.write(main, &put("after", "1"), 3).unwrap();
        let root = state.root(main, View::Committed).unwrap();
        drop(state);
        let state = State::open(&store, "s", options.clone()).unwrap();
        assert_eq!(state.root(main, View::Committed).unwrap(), root);
        drop(state);
        forged(&store, main, offset);
        match (history, State::open(&store, "s", options)) {
            (History::Kept, Ok(state)) => {
                assert!(matches!(state.damage(), [Error::Root { .. }]));
                assert_eq!(state.root(main, View::Committed).unwrap(), root);
            }
            (History::Trimmed, Err(Error::Root { fork, offset: at })) => {
                assert_eq!((fork, at), (main, offset))
            }
            (_, opened) => panic!("{history:?}: {opened:?}"),
        }
    }
}

#[test]
fn a_fork_whose_only_image_is_not_what_it_was_is_no_state_that_never_was() {
    let store = memory();
    let options = Options { history: History::Trimmed, ..Options::default() };
    let state = State::open(&store, "s", options.clone()).unwrap();
    let main = state.main();
    state.write(main, &put("of main", "1"), 1).unwrap();
    let (fork, _) = state.fork(main, 1).unwrap();
    for n in 0..10 {
        state.write(fork, &put(&format!("k{n}"), "1"), 1).unwrap();
    }
    let offset = state.checkpoint(fork, 2).unwrap();
    state.write(fork, &put("after", "1"), 3).unwrap();
    drop(state);
    forged(&store, fork, offset);
    for _ in 0..2 {
        let state = State::open(&store, "s", options.clone()).unwrap();
        assert!(matches!(state.damage(), [Error::Unreadable { fork: broken, .. }] if *broken == fork));
        assert!(matches!(state.map(fork, View::Committed), Err(Error::Unreadable { .. })));
        assert_eq!(state.map(main, View::Committed).unwrap().len(), 1);
        // It may be mended by other means.
        state.checkpoint(main, 4).unwrap();
        assert!(find_image(&store, fork, offset).staged().is_some());
    }
    let state = State::open(&store, "s", options).unwrap();
    state.drop_fork(fork, 5).unwrap();
    assert_eq!((state.forks(), images_in(&store)), (vec![main], 1));
}

/// A fork that branched off before its parent was trimmed still has the entries.
#[test]
fn a_damaged_image_that_a_fork_cannot_do_without_stays_where_another_can() {
    let store = memory();
    let options = Options { history: History::Trimmed, ..Options::default() };
    let state = State::open(&store, "s", options.clone()).unwrap();
    let (parent, _) = state.fork(state.main(), 1).unwrap();
    state.write(parent, &put("a", "1"), 1).unwrap();
    let (child, _) = state.fork(parent, 1).unwrap();
    let offset = state.checkpoint(parent, 2).unwrap();
    drop(state);
    forged(&store, parent, offset);
    let state = State::open(&store, "s", options).unwrap();
    assert_eq!(state.get(child, View::Committed, "a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(matches!(state.map(parent, View::Committed), Err(Error::Unreadable { .. })));
    assert!(find_image(&store, parent, offset).staged().is_some(), "it may be mended by other means");
}

/// What another fork has passed is there only for as long as that fork keeps the entries.
#[test]
fn a_damaged_image_of_a_trimmed_fork_stays_where_the_fork_begins_at_what_another_has_passed() {
    let store = memory();
    let options = Options { history: History::Trimmed, ..Options::default() };
    let state = State::open(&store, "s", options.clone()).unwrap();
    state.write(state.main(), &put("a", "1"), 1).unwrap();
    let (fork, _) = state.fork(state.main(), 1).unwrap();
    let offset = state.checkpoint(fork, 2).unwrap();
    drop(state);
    forged(&store, fork, offset);
    let state = State::open(&store, "s", options).unwrap();
    assert_eq!(state.get(fork, View::Committed, "a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(find_image(&store, fork, offset).staged().is_some(), "the fork has nothing else of its own");
}

/// There was a commit, and its history was not trimmed: the entries are there, and what they are applied to
/// is not.
#[test]
fn a_past_state_that_a_damaged_image_keeps_from_being_rebuilt_is_not_said_to_be_none() {
    let store = memory();
    let options = Options { history: History::Trimmed, ..Options::default() };
    let state = State::open(&store, "s", options.clone()).unwrap();
    let (parent, _) = state.fork(state.main(), 1).unwrap();
    state.write(parent, &put("a", "1"), 1).unwrap();
    // It has the entries, and finds the image damaged that the other cannot do without.
    state.fork(parent, 1).unwrap();
    let offset = state.checkpoint(parent, 2).unwrap();
    let end = state.write(parent, &put("b", "1"), 3).unwrap().next;
    let (fork, _) = state.fork(parent, 3).unwrap();
    state.drop_fork(parent, 4).unwrap();
    drop(state);
    forged(&store, parent, offset);
    let state = State::open(&store, "s", options).unwrap();
    let past = state.write(fork, &put("c", "1"), 5).unwrap().next;
    state.write(fork, &put("d", "1"), 5).unwrap();
    for at in [offset, end, past] {
        let refused = state.at(fork, at).unwrap_err();
        let Error::Root { fork: of, offset: image } = refused else { panic!("{refused}") };
        assert_eq!((of, image), (parent, offset));
        assert!(matches!(state.fork_at(fork, at, 6), Err(Error::Root { .. })));
    }
    assert!(matches!(state.at(fork, 0), Err(Error::NoState { .. })));
    // Once it is written anew what is behind it is there, and what is before it is trimmed.
    let end = state.checkpoint(fork, 7).unwrap();
    state.write(fork, &put("e", "1"), 8).unwrap();
    assert_eq!(state.at(fork, end).unwrap().0.len(), 4);
    assert!(matches!(state.at(fork, past), Err(Error::NoState { .. })));
}

#[test]
fn a_damaged_image_stays_where_there_is_no_room_for_another() {
    let disk = SimDisk::new(7, 256 << 20);
    let segments =
        StoreOptions { segment_bytes_min: 1 << 20, segment_bytes_max: 1 << 20, ..StoreOptions::default() };
    let options = StoreOptions { durability: Durability::Os, ..segments };
    let (store, _) = Store::open(&Disk::Sim(disk.clone()), std::path::Path::new("/store"), options).unwrap();
    let trimmed = Options { history: History::Trimmed, ..Options::default() };
    let state = State::open(&store, "s", trimmed.clone()).unwrap();
    let (parent, _) = state.fork(state.main(), 1).unwrap();
    for n in 0..60 {
        state.write(parent, &put(&format!("k{n}"), &"x".repeat(100_000)), 1).unwrap();
    }
    state.fork(parent, 1).unwrap();
    let first = state.checkpoint(parent, 2).unwrap();
    let (fork, _) = state.fork(parent, 3).unwrap();
    drop(state);
    // What has replaced the entries goes, and one that replaces nothing comes.
    let state = State::open(&store, "s", Options::default()).unwrap();
    state.write(fork, &put("b", "1"), 3).unwrap();
    let offset = state.checkpoint(fork, 4).unwrap();
    state.drop_fork(parent, 4).unwrap();
    drop(state);
    forged(&store, parent, first);
    forged(&store, fork, offset);
    let name = format!("s/images/{fork}-{offset}");
    let there = || store.find(name.as_bytes()).map(|log| log.id());
    let damaged = there();
    assert!(damaged.is_some());
    let state = State::open(&store, "s", trimmed.clone()).unwrap();
    disk.set_space(disk.used_bytes());
    let full = state.checkpoint(fork, 5).unwrap_err();
    assert!(matches!(full, Error::Commit(thalweg_log::CommitError::Full(_))), "{full}");
    assert_eq!(there(), damaged, "it may be mended by other means");
    disk.set_space(256 << 20);
    assert_eq!(state.checkpoint(fork, 6).unwrap(), offset);
    assert_eq!(there(), None);
    drop(state);
    let state = State::open(&store, "s", trimmed).unwrap();
    assert_eq!(state.map(fork, View::Committed).unwrap().len(), 61);
    assert_ne!(Some(find_image(&store, fork, offset).id()), damaged);
}

/// A crash came between the new one and the removal of the damaged one. The new one is the younger log and is
/// read first. It is not if what is damaged was put back by other means.
#[test]
fn a_damaged_image_goes_where_another_of_its_place_can_be_read() {
    for is_put_back in [false, true] {
        let store = memory();
        let options = Options { history: History::Trimmed, ..Options::default() };
        let state = State::open(&store, "s", options.clone()).unwrap();
        state.write(state.main(), &put("a", "1"), 1).unwrap();
        let (fork, _) = state.fork(state.main(), 1).unwrap();
        state.write(fork, &put("b", "1"), 1).unwrap();
        let offset = state.checkpoint(fork, 2).unwrap();
        drop(state);
        let image = find_image(&store, fork, offset);
        let name = format!("s/images/{fork}-{offset}+");
        let again = if is_put_back {
            let again = copied(&store, &image, &name);
            forged_log(&store, &image);
            again
        } else {
            let entries = entries_of(&store, &image);
            forged_log(&store, &image);
            written(&store, &image, &name, entries)
        };
        assert_eq!(images_in(&store), 2);
        let state = State::open(&store, "s", options).unwrap();
        assert_eq!(state.damage().is_empty(), !is_put_back);
        assert_eq!(state.map(fork, View::Committed).unwrap().len(), 2);
        assert_eq!((images_in(&store), find_image(&store, fork, offset).id()), (1, again.id()));
        state.checkpoint(fork, 3).unwrap();
        assert_eq!((images_in(&store), find_image(&store, fork, offset).id()), (1, again.id()));
    }
}

/// One that has the entries finds an image damaged that another cannot do without.
#[test]
fn a_fork_whose_images_are_all_damaged_has_a_new_one_written_whatever_its_size() {
    let store = memory();
    let options = Options { history: History::Trimmed, ..Options::default() };
    let state = State::open(&store, "s", options.clone()).unwrap();
    let (parent, _) = state.fork(state.main(), 1).unwrap();
    state.write(parent, &put("a", "1"), 1).unwrap();
    let (whole, _) = state.fork(parent, 1).unwrap();
    let offset = state.checkpoint(parent, 2).unwrap();
    let end = state.write(parent, &put("b", "1"), 3).unwrap().next;
    let (fork, _) = state.fork(parent, 3).unwrap();
    state.drop_fork(parent, 4).unwrap();
    drop(state);
    forged(&store, parent, offset);
    for _ in 0..2 {
        let state = State::open(&store, "s", options.clone()).unwrap();
        assert!(find_image(&store, parent, offset).staged().is_some(), "it may be mended by other means");
        assert!(matches!(state.damage(), [Error::Root { .. }]) && state.is_due());
    }
    let state = State::open(&store, "s", options.clone()).unwrap();
    // It is no better off.
    let (child, _) = state.fork(fork, 5).unwrap();
    assert_eq!((state.maintain(6).unwrap(), state.is_due()), (2, false));
    assert!(
        find_image(&store, fork, end).staged().is_some() && find_image(&store, child, end).staged().is_some()
    );
    assert_eq!(images_in(&store), 2, "nobody uses the damaged one any more");
    state.drop_fork(whole, 7).unwrap();
    drop(state);
    let state = State::open(&store, "s", options).unwrap();
    assert!(state.damage().is_empty());
    for fork in [fork, child] {
        assert_eq!(state.map(fork, View::Committed).unwrap().len(), 2);
    }
}

/// A fork that lost its image at the end of its log has it written again in the same place. If a crash came
/// before a damaged one was removed, that which was written in its place may be damaged, too.
#[test]
fn an_image_is_written_again_where_damaged_ones_stay() {
    for are_two in [false, true] {
        let store = memory();
        let trimmed = Options { history: History::Trimmed, ..Options::default() };
        let state = State::open(&store, "s", trimmed.clone()).unwrap();
        let (parent, _) = state.fork(state.main(), 1).unwrap();
        let base = state.write(parent, &put("a", "1"), 1).unwrap().next;
        let (whole, _) = state.fork(parent, 1).unwrap();
        let first = state.checkpoint(parent, 2).unwrap();
        assert_eq!(first, base);
        let (fork, _) = state.fork(parent, 3).unwrap();
        drop(state);
        // What has replaced the entries goes, and one that replaces nothing comes.
        let state = State::open(&store, "s", Options::default()).unwrap();
        state.write(fork, &put("b", "1"), 3).unwrap();
        let end = state.checkpoint(fork, 4).unwrap();
        state.drop_fork(parent, 4).unwrap();
        drop(state);
        forged(&store, parent, first);
        let image = find_image(&store, fork, end);
        let again = are_two.then(|| copied(&store, &image, &format!("s/images/{fork}-{end}+")));
        again.iter().chain([&image]).for_each(|image| forged_log(&store, image));
        let damaged = 2 + usize::from(are_two);
        let state = State::open(&store, "s", trimmed.clone()).unwrap();
        assert_eq!(state.map(fork, View::Committed).unwrap().len(), 2);
        assert_eq!((images_in(&store), state.is_due()), (damaged, true), "they may be mended by other means");
        assert_eq!((state.maintain(6).unwrap(), state.is_due()), (1, false));
        assert_eq!(images_in(&store), 1);
        state.drop_fork(whole, 7).unwrap();
        drop(state);
        let state = State::open(&store, "s", trimmed).unwrap();
        assert!(state.damage().is_empty());
        assert_eq!(state.map(fork, View::Committed).unwrap().len(), 2);
        assert_eq!(find_image(&store, fork, end).name().ends_with(b"++"), are_two);
    }
}
