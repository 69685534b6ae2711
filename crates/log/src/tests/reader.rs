//! Readers, cursors and transactions, through the public interface.

use super::store::{open, os, small};
use crate::{
    Attached, Columns, CommitError, Cursor, Ended, Entry, Options, Query, ReadError, Start, Store, Time,
};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use thalweg_sys::disk::Disk;

type Row = (u64, u64, bool, Vec<u8>);

fn row(entry: &Entry<'_>) -> Row {
    (entry.offset, entry.time, entry.last, entry.data.to_vec())
}

fn rows(store: &Store, name: &[u8], query: &Query) -> Vec<Row> {
    let mut reader = store.reader(&store.log(name).unwrap());
    reader.entries(query).map(|entry| row(&entry.unwrap())).collect()
}

fn times(store: &Store, query: &Query) -> Vec<u64> {
    rows(store, b"a", query).iter().map(|row| row.1).collect()
}

fn memory() -> Store {
    Store::memory(small()).unwrap()
}

#[test]
fn entries_come_in_order_with_their_times_and_ends_of_transactions_across_segments() {
    let directory = tempfile::tempdir().unwrap();
    for store in [memory(), open(directory.path(), os())] {
        let (a, b) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
        let (mut expected_a, mut expected_b) = (Vec::new(), Vec::new());
        let (mut end_a, mut end_b) = (0, 0);
        for index in 0..900u64 {
            let payload = vec![index as u8; 1 + index as usize % 90];
            let mut transaction = store.transaction(index * 10);
            transaction.append(&a, &payload).unwrap();
            transaction.append(&b, b"b").unwrap();
            transaction.append(&a, b"second").unwrap();
            transaction.commit().unwrap();
            expected_a.push((end_a, index * 10, false, payload.clone()));
            end_a += payload.len() as u64;
            expected_a.push((end_a, index * 10, true, b"second".to_vec()));
            end_a += 6;
            expected_b.push((end_b, index * 10, true, b"b".to_vec()));
            end_b += 1;
        }
        assert!(store.stats().segments > 2);
        assert_eq!(rows(&store, b"a", &Query::default()), expected_a);
        assert_eq!(rows(&store, b"b", &Query::default()), expected_b);
        let some = Query::between(4000, 4020);
        assert_eq!(rows(&store, b"a", &some), expected_a[800..804]);
        assert_eq!(rows(&store, b"b", &Query::from(Start::After(8980))), expected_b[899..]);
        assert_eq!(rows(&store, b"b", &Query::from(Start::Offset(897))), expected_b[897..]);
        let inside = &rows(&store, b"a", &Query::from(Start::Offset(end_a - 3)))[0];
        assert_eq!(inside, &(end_a - 3, 8990, true, b"ond".to_vec()));
        assert!(rows(&store, b"a", &Query::from(Start::Tail)).is_empty());
    }
}

#[test]
fn times_that_go_back_are_found_and_an_exact_start_is_the_first_match() {
    let store = memory();
    let log = store.log(b"a").unwrap();
    for time in [10, 20, 20, 50, 30, 40, 20, 60, 70, 5, 80] {
        store.append(&log, b"x", time).unwrap();
    }
    assert_eq!(times(&store, &Query::between(20, 31)), [20, 20, 30, 20]);
    assert_eq!(times(&store, &Query::between(0, 11)), [10, 5]);
    assert_eq!(times(&store, &Query::from(Start::After(60))), [70, 80]);
    assert_eq!(times(&store, &Query::from(Start::Exact(20))), [20, 20, 50, 30, 40, 20, 60, 70, 5, 80]);
    assert_eq!(times(&store, &Query::from(Start::Exact(40))), [40, 20, 60, 70, 5, 80]);
    assert_eq!(times(&store, &Query::from(Start::Exact(45))), [0; 0]);
    let until = Query { end: Some(30), ..Query::from(Start::Exact(30)) };
    assert_eq!(times(&store, &until), [20, 5]);
}

#[test]
fn entries_appended_in_one_call_keep_their_own_times_however_these_go() {
    let late: [Time; 11] = [10, 20, 20, 50, 30, 40, 20, 60, 70, 5, 80];
    let (one_by_one, at_once) = (memory(), memory());
    let log = one_by_one.log(b"a").unwrap();
    for time in late {
        one_by_one.append(&log, b"x", time).unwrap();
    }
    let log = at_once.log(b"a").unwrap();
    for group in late.chunks(4) {
        let entries: Vec<(Time, &[u8])> = group.iter().map(|time| (*time, &b"x"[..])).collect();
        let receipt = at_once.append_timed(&log, &entries).unwrap();
        assert_eq!(receipt.next - receipt.first, group.len() as u64);
    }
    for from in 0..90 {
        for query in
            [Query::between(from, from + 7), Query::between(from, from + 45), Query::from(Start::Exact(from))]
        {
            assert_eq!(times(&at_once, &query), times(&one_by_one, &query), "{query:?}");
        }
    }
    let nothing = at_once.append_timed(&log, &[(90, b"x"), (91, b"")]);
    assert!(matches!(nothing, Err(CommitError::EmptyEntry)), "{nothing:?}");
    assert_eq!(times(&at_once, &Query::from(Start::Time(85))), [0; 0]);
    let mut reader = at_once.reader(&log);
    assert!(reader.entries(&Query::default()).all(|entry| entry.unwrap().last), "each is a transaction");
}

/// Readers foresee where the next header stands where entries have been alike for a while.
#[test]
fn entries_alike_for_a_while_and_then_not_are_all_read() {
    let store = memory();
    let log = store.log(b"a").unwrap();
    let runs = [(40, 100), (1, 7), (30, 8), (17, 1), (16, 90), (1, 91), (50, 90), (2, 3000), (60, 24)];
    let lengths: Vec<usize> = runs.iter().flat_map(|(count, length)| vec![*length; *count]).collect();
    for (time, length) in lengths.iter().enumerate() {
        store.append(&log, &vec![time as u8; *length], time as Time).unwrap();
    }
    let mut cursor = store.reader(&log).follow(&Query::default());
    for (time, length) in lengths.iter().enumerate() {
        let found = cursor.next().unwrap().map(|entry| (entry.time, entry.data.to_vec()));
        assert_eq!(found, Some((time as Time, vec![time as u8; *length])));
    }
    assert_eq!(cursor.next(), Ok(None));
    let mut reader = store.reader(&log);
    for (time, length) in lengths.iter().enumerate() {
        let rest =
            reader.entries(&Query::from(Start::Time(time as Time))).map(|entry| entry.unwrap().data.len());
        assert_eq!(rest.collect::<Vec<_>>(), lengths[time..], "from {time} on, the first of {length}");
        let mut folded = Vec::new();
        let query = Query::from(Start::Time(time as Time));
        reader.entries(&query).for_each(|entry| folded.push(entry.unwrap().data.len()));
        assert_eq!(folded, lengths[time..], "in one loop from {time} on");
    }
}

#[test]
fn a_cursor_resumes_after_the_end_and_across_segments() {
    let store = memory();
    let log = store.log(b"a").unwrap();
    let mut cursor = store.reader(&log).follow(&Query::default());
    let mut tail = store.reader(&log).follow(&Query::from(Start::Tail));
    assert_eq!(cursor.next(), Ok(None));
    for index in 0..2000u64 {
        store.append(&log, &index.to_le_bytes(), index).unwrap();
        for cursor in [&mut cursor, &mut tail] {
            assert_eq!(
                cursor.next().unwrap().map(|entry| entry.data.to_vec()),
                Some(index.to_le_bytes().to_vec())
            );
            assert_eq!(cursor.next(), Ok(None));
        }
    }
    assert!(store.stats().segments > 2);
    cursor.seek(&Query::between(500, 502));
    assert_eq!(cursor.next().unwrap().map(|entry| entry.time), Some(500));
    assert_eq!(cursor.next().unwrap().map(|entry| entry.time), Some(501));
    assert_eq!(cursor.next(), Ok(None));
}

#[test]
fn a_sleeping_cursor_is_woken_by_a_commit_and_by_nothing_else() {
    let store = memory();
    let log = store.log(b"a").unwrap();
    let mut cursor = store.reader(&log).follow(&Query::default());
    assert_eq!(cursor.next(), Ok(None));
    assert!(!cursor.wait(Some(Duration::from_millis(5))));
    let waiter = std::thread::spawn(move || {
        assert!(cursor.wait(None));
        cursor.next().unwrap().map(|entry| entry.data.to_vec())
    });
    std::thread::sleep(Duration::from_millis(20));
    store.append(&log, b"up", 1).unwrap();
    assert_eq!(waiter.join().unwrap(), Some(b"up".to_vec()));
}

fn wakes_a_task(cursor: &Cursor) -> bool {
    let mut changed = std::pin::pin!(cursor.changed());
    changed.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
}

#[test]
fn a_cursor_whose_query_is_over_sleeps_like_any_other_and_sees_what_comes_late() {
    for query in [
        Query { end: Some(100), ..Query::from(Start::Tail) },
        Query::between(20, 100),
        Query::from(Start::Exact(99)),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), os());
        let (log, other) = (store.log(b"a").unwrap(), store.log(b"b").unwrap());
        store.append(&log, b"x", 10).unwrap();
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let readers = [store.reader(&log), attached.reader(&attached.find(b"a").unwrap().unwrap())];
        let mut cursors = readers.map(|reader| reader.follow(&query));
        for (log, time) in [(&log, 200), (&other, 200), (&log, 300), (&other, 10)] {
            store.append(log, b"x", time).unwrap();
            for cursor in &mut cursors {
                assert!(cursor.wait(Some(Duration::ZERO)) && wakes_a_task(cursor), "{query:?}");
                assert_eq!(cursor.next(), Ok(None), "{query:?}");
                assert!(!cursor.wait(Some(Duration::ZERO)) && !wakes_a_task(cursor), "{query:?}, {time}");
            }
        }
        store.append(&log, b"late", 99).unwrap();
        for cursor in &mut cursors {
            assert!(cursor.wait(Some(Duration::ZERO)) && wakes_a_task(cursor), "{query:?}");
            assert_eq!(cursor.next().unwrap().map(|entry| entry.data), Some(&b"late"[..]), "{query:?}");
        }
    }
}

#[test]
fn a_cursor_whose_query_is_over_hears_that_its_log_ended() {
    let store = memory();
    let (closed, deleted) = (store.log(b"closed").unwrap(), store.log(b"deleted").unwrap());
    for log in [&closed, &deleted] {
        [10, 200].iter().for_each(|time| assert!(store.append(log, b"x", *time).is_ok()));
    }
    let query = Query::between(0, 100);
    let mut early = [&closed, &deleted].map(|log| store.reader(log).follow(&query));
    for cursor in &mut early {
        assert!(cursor.next().unwrap().is_some());
        assert_eq!(cursor.next(), Ok(None));
        assert_eq!(cursor.ended(), None);
    }
    let version = closed.staged().unwrap().version;
    store.commit(&closed, version, &crate::Commit { close: true, ..crate::Commit::default() }, None).unwrap();
    store.delete(&deleted, deleted.staged().unwrap().version, 300, None).unwrap();
    let [on_closed, on_deleted] = &mut early;
    assert_eq!((on_closed.next(), on_deleted.next()), (Ok(None), Err(ReadError::Deleted)));
    assert_eq!((on_closed.ended(), on_deleted.ended()), (Some(Ended::Closed), Some(Ended::Deleted)));
    // What ended the log came while the cursor was not drained.
    let log = store.log(b"amid").unwrap();
    [10, 200].iter().for_each(|time| assert!(store.append(&log, b"x", *time).is_ok()));
    let mut amid = store.reader(&log).follow(&query);
    assert!(amid.next().unwrap().is_some());
    store.delete(&log, log.staged().unwrap().version, 300, None).unwrap();
    assert_eq!(amid.next(), Err(ReadError::Deleted));
    let mut late = store.reader(&closed).follow(&query);
    assert!(late.next().unwrap().is_some());
    (0..2).for_each(|_| assert_eq!(late.next(), Ok(None)));
    assert_eq!(late.ended(), Some(Ended::Closed), "who asks again hears of it");
}

#[test]
fn in_sync_mode_readers_see_what_is_durable_unless_they_ask_for_more() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Options { committer_thread: false, ..small() });
    let log = store.log(b"a").unwrap();
    let receipt = store.append(&log, b"x", 1).unwrap();
    let uncommitted = Query { uncommitted: true, ..Query::default() };
    assert_eq!((times(&store, &Query::default()).len(), times(&store, &uncommitted).len()), (0, 1));
    store.persist(receipt.ticket).unwrap();
    assert_eq!(times(&store, &Query::default()).len(), 1);
}

#[test]
fn an_aborted_transaction_leaves_nothing_and_what_cannot_be_appended_says_why() {
    let store = memory();
    let log = store.log(b"a").unwrap();
    let mut transaction = store.transaction(1);
    transaction.append(&log, b"x").unwrap();
    transaction.abort();
    assert!(rows(&store, b"a", &Query::default()).is_empty());
    assert_eq!(store.append(&log, b"", 1), Err(CommitError::EmptyEntry));
    assert!(matches!(store.append(&log, &vec![0; 70_000], 1), Err(CommitError::TooLarge { .. })));
    for name in [&b"a/b"[..], b"", b"..", b"a\nb", b"\xff", b"a\\b"] {
        assert!(matches!(store.log(name), Err(CommitError::BadName { .. })), "{name:?}");
    }
    store.close().unwrap();
    assert_eq!(store.append(&log, b"x", 1), Err(CommitError::Closed));
}

#[test]
fn a_deleted_log_ends_its_readers() {
    let store = memory();
    let log = store.log(b"a").unwrap();
    store.append(&log, b"x", 1).unwrap();
    let mut cursor = store.reader(&log).follow(&Query::default());
    assert!(cursor.next().unwrap().is_some());
    store.delete(&log, log.staged().unwrap().version, 2, None).unwrap();
    assert_eq!(cursor.next(), Err(ReadError::Deleted));
    assert_eq!(cursor.next(), Ok(None));
    assert_eq!(cursor.ended(), Some(crate::Ended::Deleted));
}

#[test]
fn a_log_that_ended_behind_much_of_others_ends_its_readers() {
    let store = Store::memory(Options { segment_bytes_max: 1 << 20, ..small() }).unwrap();
    let (closed, deleted, other) =
        (store.log(b"closed").unwrap(), store.log(b"deleted").unwrap(), store.log(b"other").unwrap());
    for log in [&closed, &deleted] {
        store.append(log, b"x", 1).unwrap();
    }
    let begins = |log, start| store.reader(log).follow(&Query { start, ..Query::default() });
    let mut early = [begins(&closed, Start::First), begins(&deleted, Start::First)];
    for cursor in &mut early {
        assert!(cursor.next().unwrap().is_some());
        assert!(!cursor.reader.progress.leapt, "nothing to ask the log about");
    }
    let fill = || (0..100).for_each(|_| assert!(store.append(&other, &[7; 10_000], 2).is_ok()));
    fill();
    let version = closed.staged().unwrap().version;
    store.commit(&closed, version, &crate::Commit { close: true, ..crate::Commit::default() }, None).unwrap();
    store.delete(&deleted, deleted.staged().unwrap().version, 3, None).unwrap();
    fill();
    let [on_closed, on_deleted] = &mut early;
    assert_eq!((on_closed.next(), on_deleted.next()), (Ok(None), Err(ReadError::Deleted)));
    assert_eq!((on_closed.ended(), on_deleted.ended()), (Some(Ended::Closed), Some(Ended::Deleted)));
    for (start, found) in [(Start::First, 1), (Start::Offset(1), 0), (Start::Tail, 0), (Start::Time(9), 0)] {
        let mut late = begins(&closed, start);
        (0..found).for_each(|_| assert!(late.next().unwrap().is_some()));
        assert_eq!(late.next(), Ok(None));
        assert_eq!(late.ended(), Some(Ended::Closed), "{start:?}");
    }
    let mut open = begins(&other, Start::Tail);
    assert_eq!(open.next(), Ok(None));
    assert_eq!(open.ended(), None);
}

#[test]
fn a_cursor_goes_on_in_a_fork_of_which_all_that_it_inherited_is_purged() {
    for read in [1, 3] {
        let store = Store::memory(Options { segment_bytes_max: 1 << 20, ..small() }).unwrap();
        let (parent, other) = (store.log(b"parent").unwrap(), store.log(b"other").unwrap());
        store.append(&parent, b"one", 1).unwrap();
        store.append(&parent, b"two", 1).unwrap();
        let fork = crate::Fork { parent: parent.clone(), at: 6, asked: [0; 2] };
        let fork =
            store.create(b"fork", parent.config(), Some(&fork), &crate::Commit::default(), None).unwrap().0;
        for payload in [b"own", b"and"] {
            store.append(&fork, payload, 2).unwrap();
        }
        let mut cursor = store.reader(&fork).follow(&Query::default());
        for _ in 0..read {
            assert!(cursor.next().unwrap().is_some());
        }
        while read == 3 && cursor.next().unwrap().is_some() {}
        store.trim(&fork, 9, 3).unwrap();
        for _ in 0..100 {
            store.append(&other, &[7; 10_000], 4).unwrap();
        }
        store.append(&fork, b"new", 5).unwrap();
        let mut found = Vec::new();
        while let Some(entry) = cursor.next().unwrap() {
            found.push(entry.data.to_vec());
        }
        // What it had not come to is there still, or was passed over; what came since is there.
        assert_eq!(found.last().map(Vec::as_slice), Some(&b"new"[..]), "{found:?}");
        assert_eq!(cursor.ended(), None);
    }
}

#[test]
fn rows_go_on_in_a_fork_of_which_all_that_it_inherited_is_purged() {
    let store =
        Store::memory(Options { segment_bytes_min: 1 << 20, segment_bytes_max: 1 << 20, ..small() }).unwrap();
    let (parent, other) = (store.log(b"parent").unwrap(), store.log(b"other").unwrap());
    store.append(&parent, b"one", 1).unwrap();
    let fork = crate::Fork { parent: parent.clone(), at: 3, asked: [0; 2] };
    let fork =
        store.create(b"fork", parent.config(), Some(&fork), &crate::Commit::default(), None).unwrap().0;
    for _ in 0..4 {
        store.append(&fork, b"own", 2).unwrap();
    }
    let mut cursor = store.reader(&fork).follow(&Query::default());
    (0..2).for_each(|_| assert!(cursor.next().unwrap().is_some()));
    store.trim(&fork, 6, 3).unwrap();
    let fill = || (0..110).for_each(|_| assert!(store.append(&other, &[7; 10_000], 4).is_ok()));
    fill();
    store.append(&fork, b"new", 5).unwrap();
    let mut rows = 0;
    let mut gather = |cursor: &mut Cursor| {
        let (mut times, mut offsets, mut lengths, mut places) = ([0; 8], [0; 8], [0; 8], [0; 8]);
        let (times, offsets) = (&mut times[..], &mut offsets[..]);
        let mut columns = Columns { times, offsets, lengths: &mut lengths, places: &mut places };
        rows += cursor.gather(&mut columns).unwrap().count;
        rows
    };
    assert_eq!(
        (gather(&mut cursor), gather(&mut cursor)),
        (3, 4),
        "what is left of the segment, then the next one's"
    );
    fill();
    store.append(&fork, b"end", 6).unwrap();
    assert_eq!((gather(&mut cursor), cursor.ended()), (5, None));
}

#[test]
fn an_attached_cursor_hears_that_its_log_ended_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    store.append(&log, b"x", 1).unwrap();
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let theirs = attached.find(b"a").unwrap().unwrap();
    let version = log.staged().unwrap().version;
    store.commit(&log, version, &crate::Commit { close: true, ..crate::Commit::default() }, None).unwrap();
    let mut cursor = attached.reader(&theirs).follow(&Query { start: Start::Tail, ..Query::default() });
    assert_eq!(cursor.next(), Ok(None));
    assert_eq!(cursor.ended(), Some(Ended::Closed));
}

#[test]
fn a_cursor_that_is_to_go_on_behind_damage_does_not_sleep_in_front_of_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let mut cursor = attached.reader(&attached.find(b"a").unwrap().unwrap()).follow(&Query::default());
    assert_eq!(cursor.next(), Ok(None));
    [b"lost", b"left"].iter().for_each(|payload| assert!(store.append(&log, *payload, 1).is_ok()));
    let mut reader = store.reader(&log);
    let lost = reader.entries(&Query::default()).next().unwrap().unwrap().place();
    let file = directory.path().join(crate::segment::file_name(crate::segment_of(lost.position)));
    let file = std::fs::File::options().write(true).open(file).unwrap();
    let payload_at = u64::from(crate::place_of(lost.position) + crate::format::FRAME_HEADER_BYTES);
    file.write_all_at(b"most", payload_at).unwrap();
    assert!(matches!(cursor.next(), Err(ReadError::Damaged(_))));
    cursor.resume();
    assert!(cursor.wait(Some(Duration::ZERO)) && wakes_a_task(&cursor));
    assert_eq!(cursor.next().unwrap().map(|entry| entry.data), Some(&b"left"[..]));
}

#[test]
fn an_attached_store_reads_what_another_handle_writes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    store.append(&log, b"before", 1).unwrap();
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    let mut cursor = attached.reader(&attached.find(b"a").unwrap().unwrap()).follow(&Query::default());
    assert_eq!(cursor.next().unwrap().map(|entry| entry.data.to_vec()), Some(b"before".to_vec()));
    for index in 2..3000u64 {
        store.append(&log, &index.to_le_bytes(), index).unwrap();
        assert_eq!(cursor.next().unwrap().map(|entry| entry.time), Some(index));
        assert_eq!(cursor.next(), Ok(None));
    }
    assert!(store.stats().segments > 2);
    let late = store.log(b"late").unwrap();
    store.append(&late, b"x", 5).unwrap();
    let late = attached.find(b"late").unwrap().unwrap();
    let mut reader = attached.reader(&late);
    assert_eq!(reader.entries(&Query::default()).count(), 1);
    cursor.seek(&Query::between(1000, 1010));
    assert_eq!(cursor.next().unwrap().map(|entry| entry.time), Some(1000));
}

/// Wakes a parked thread: the smallest executor.
struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_task_that_no_thread_would_wake_is_told_and_the_next_one_is_woken() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    *attached.refuse_threads().lock() = 3;
    let mut cursor = attached.reader(&attached.find(b"a").unwrap().unwrap()).follow(&Query::default());
    let mut new_logs = attached.new_logs(false).unwrap();
    assert!(cursor.next() == Ok(None) && new_logs.next().unwrap().is_none());
    assert!(block_on(cursor.changed()).is_err() && block_on(new_logs.changed()).is_err());
    assert!(attached.maps().register(std::task::Waker::noop(), || false).is_err());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| block_on(cursor.changed()));
        store.append(&log, b"comes", 1).unwrap();
        waits.join().unwrap().unwrap();
    });
    assert_eq!(cursor.next().unwrap().map(|entry| entry.data), Some(&b"comes"[..]));
}

#[test]
fn a_task_is_woken_in_the_process_that_writes_and_in_one_that_is_attached() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), os());
    let log = store.log(b"a").unwrap();
    let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
    for reader in [store.reader(&log), attached.reader(&attached.find(b"a").unwrap().unwrap())] {
        let mut cursor = reader.follow(&Query::from(Start::Tail));
        assert_eq!(cursor.next(), Ok(None));
        let waiter = std::thread::spawn(move || {
            for _ in 0..100 {
                block_on(cursor.changed()).unwrap();
                while cursor.next().unwrap().is_some() {}
            }
        });
        while !waiter.is_finished() {
            store.append(&log, b"x", 1).unwrap();
            std::thread::yield_now();
        }
        waiter.join().unwrap();
    }
}

#[test]
fn a_time_index_takes_no_more_than_a_hundredth_of_its_segments() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes_min: 1 << 20, segment_bytes_max: 4 << 20, ..os() };
    let store = open(directory.path(), options);
    let log = store.log(b"a").unwrap();
    for time in 0..60_000 {
        store.append(&log, &[7; 100], time).unwrap();
    }
    assert!(store.stats().segments > 3);
    // Every segment is searched, so every index is made, as large as it gets.
    for time in (0..60_000).step_by(500) {
        assert_eq!(times(&store, &Query::between(time, time + 2)), [time, time + 1]);
    }
    let (stats, maps) = (store.stats(), store.maps());
    let segments = maps.segments().unwrap();
    let mut index_bytes = 0;
    for segment in &segments {
        let length = maps.index(segment).unwrap().length();
        let bytes = segment.bytes.length();
        assert!(length > 0 && length * 100 <= bytes, "{length} of {bytes} in segment {}", segment.number);
        index_bytes += length as u64;
    }
    assert_eq!(stats.index_bytes, index_bytes);
    assert!(stats.index_bytes * 100 <= stats.segment_bytes, "{stats:?}");
}

#[test]
fn behind_the_last_time_there_is_nothing() {
    let store = memory();
    let log = store.log(b"a").unwrap();
    for time in [1, Time::MAX - 1, Time::MAX] {
        store.append(&log, b"x", time).unwrap();
    }
    assert_eq!(times(&store, &Query::from(Start::After(Time::MAX - 1))), [Time::MAX]);
    assert_eq!(times(&store, &Query::from(Start::Time(Time::MAX))), [Time::MAX]);
    let behind = Query::from(Start::After(Time::MAX));
    assert_eq!(times(&store, &behind), []);
    assert_eq!(store.reader(&log).entries_back(&behind).count(), 0);
    let mut cursor = store.reader(&log).follow(&behind);
    store.append(&log, b"x", Time::MAX).unwrap();
    assert_eq!(cursor.next(), Ok(None));
}

/// A file that nobody may write, not even the machine's owner.
const FORBIDDEN: &str = "/sys/kernel/uevent_seqnum";

#[test]
fn who_may_not_write_the_signal_reads_and_waits_all_the_same() {
    let forbidden = |signal: &Path| std::os::unix::fs::symlink(FORBIDDEN, signal).unwrap();
    let unfinished = |signal: &Path| std::fs::write(signal, b"").unwrap();
    for spoil in [forbidden, unfinished, |_: &Path| {}] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), os());
        let log = store.log(b"a").unwrap();
        store.append(&log, b"there", 1).unwrap();
        let signal = directory.path().join("signal");
        std::fs::remove_file(&signal).unwrap();
        spoil(&signal);
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let mut cursor = attached.reader(&attached.find(b"a").unwrap().unwrap()).follow(&Query::default());
        assert_eq!(cursor.next().unwrap().unwrap().data, b"there");
        assert_eq!(cursor.next(), Ok(None));
        assert!(!cursor.wait(Some(Duration::from_millis(20))));
        for wait in [
            |cursor: &Cursor| assert!(cursor.wait(None)),
            |cursor: &Cursor| block_on(cursor.changed()).unwrap(),
        ] {
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| wait(&cursor));
                store.append(&log, b"comes", 2).unwrap();
                waits.join().unwrap();
            });
            assert_eq!(cursor.next().unwrap().unwrap().data, b"comes");
            assert_eq!(cursor.next(), Ok(None));
        }
    }
}
