//! Appending to logs: one entry at a time, many at once, or a transaction over several logs.
//!
//! Purpose: the embedded log's way in. Every call is one batch: one short critical section, one publish, all
//! of it visible or nothing. Nothing waits for a disk but [`Store::persist`] and [`Transaction::commit`].

use crate::batch::{Entries, PlannedBatch};
use crate::commit::{WhoSyncs, check_length};
use crate::committer::Pending;
use crate::error::{CommitError, said};
use crate::format::{FLAG_LAST, Kind, Stamp};
use crate::log::{Change, Inner, Log, Seen};
use crate::log_numbers::LogNumbers;
use crate::options::Durability;
use crate::store::Store;
use crate::{Commit, Config, Lifetime, LogId, Offset, Position, Receipt, Time};
use parking_lot::MutexGuard;
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// The time now, in microseconds since the Unix epoch: for an entry whose writer has no better one.
pub fn now() -> Time {
    thalweg_sys::clock::wall_us()
}

impl Store {
    /// The log of that name, created if there is none: of no particular media type, and without an end to its
    /// life. What is created is visible once it is durable, like any commit.
    ///
    /// # Errors
    /// [`CommitError::BadName`]; otherwise as [`Store::create`].
    pub fn log(&self, name: &[u8]) -> Result<Arc<Log>, CommitError> {
        loop {
            if let Some(log) = self.find(name).filter(|log| log.lock().has_name()) {
                return Ok(log);
            }
            check_name(name)?;
            let config =
                Config { content_type: "application/octet-stream".into(), lifetime: Lifetime::Unlimited };
            let created =
                self.create(name, &config, None, &Commit { time: now(), ..Commit::default() }, None);
            match created {
                Err(CommitError::Exists) => {}
                created => return created.map(|(log, _)| log),
            }
        }
    }

    /// Appends one entry. In `sync` mode it is visible once it is durable: see [`Store::persist`].
    /// Complexity: a copy of the payload and a checksum over it; no system call.
    ///
    /// # Errors
    /// [`CommitError`]; nothing was applied in any case.
    #[inline]
    pub fn append(&self, log: &Arc<Log>, payload: &[u8], time: Time) -> Result<Receipt, CommitError> {
        self.append_run(log, std::iter::once((time, payload)))
    }

    /// Appends entries of which each is a transaction of its own; they become visible together.
    ///
    /// # Errors
    /// [`CommitError`]; nothing was applied in any case.
    pub fn append_all(&self, log: &Arc<Log>, entries: &[&[u8]], time: Time) -> Result<Receipt, CommitError> {
        self.append_run(log, entries.iter().map(|payload| (time, *payload)))
    }

    /// The same with a time for each: several entries cost one commit.
    ///
    /// ```
    /// use thalweg_log::{Options, Query, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"readings")?;
    /// store.append_timed(&log, &[(10, b"4.7"), (20, b"4.8")])?;
    /// let mut reader = store.reader(&log);
    /// let late: Result<Vec<_>, _> = reader.entries(&Query::between(15, 25)).map(|entry| Ok(entry?.time)).collect();
    /// assert_eq!(late, Ok::<_, thalweg_log::ReadError>(vec![20]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CommitError`]; nothing was applied in any case.
    pub fn append_timed(&self, log: &Arc<Log>, entries: &[(Time, &[u8])]) -> Result<Receipt, CommitError> {
        self.append_run(log, entries.iter().copied())
    }

    fn append_run<'e>(
        &self,
        log: &Arc<Log>,
        entries: impl Iterator<Item = (Time, &'e [u8])>,
    ) -> Result<Receipt, CommitError> {
        let (receipt, tell) = encoding(|encoded| {
            let mut inner = log.lock_spinning();
            self.shared.owns(&inner)?;
            inner.check_open()?;
            let (first, mut next) = (inner.tail, inner.tail);
            let places = inner.places_to_list();
            if !places.is_empty() {
                let stamp = Stamp { log: log.id(), offset: first, time: inner.accessed };
                encoded.push_beside(Kind::Places, stamp, &places);
            }
            for (time, payload) in entries {
                encoded.push(Stamp { log: log.id(), offset: next, time }, FLAG_LAST, payload)?;
                next += payload.len() as u64;
            }
            if next == first {
                return Ok((Receipt { ticket: inner.last, first, next }, None));
            }
            let shared = &self.shared;
            let mut batch = PlannedBatch::of_entries(encoded, smallvec![(log.id(), next)]);
            let pending = std::iter::once_with(|| Pending::payload(log, next));
            let placed = shared.publish(&mut batch, next - first, pending, None, WhoSyncs::Committer)?;
            let (places, latest) = (batch.said(&places), batch.times.latest());
            let change = Change::payload(&placed, first..next, places, latest);
            let tell = shared.apply(log, &mut inner, &change, &Seen::payload(next));
            Ok::<_, CommitError>((shared.receipt(placed, first, next), Some(tell)))
        })?;
        if let Some(tell) = tell {
            self.shared.tell_moved([(tell, log.id())]);
        }
        Ok(receipt)
    }

    /// Begins a transaction: entries of one or several logs that are written together or not at all.
    ///
    /// ```
    /// use thalweg_log::{Options, Store, now};
    /// let store = Store::memory(Options::default())?;
    /// let (orders, audit) = (store.log(b"orders")?, store.log(b"audit")?);
    /// let mut transaction = store.transaction(now());
    /// transaction.append(&orders, b"one espresso")?;
    /// transaction.append(&audit, b"order taken")?;
    /// transaction.commit()?;
    /// assert_eq!(store.reader(&orders).entries(&Default::default()).count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transaction(&self, time: Time) -> Transaction<'_> {
        Transaction {
            store: self,
            time,
            intents: SmallVec::new(),
            numbers: LogNumbers::default(),
            entries: SmallVec::new(),
            bytes: Vec::new(),
        }
    }

    /// Says that a transaction which is kept elsewhere is going to append to a log, as
    /// [`Transaction::append`] does of its own.
    pub fn hold(&self, log: &Arc<Log>) -> AppendIntent {
        self.hold_locked(log, &mut log.lock())
    }

    fn hold_locked(&self, log: &Arc<Log>, inner: &mut Inner) -> AppendIntent {
        inner.transactions += 1;
        AppendIntent { log: log.clone(), _counted: self.shared.transactions.clone() }
    }

    /// Waits until a ticket is durable, and leads the group that makes it so when no other thread does. In
    /// `os` and `memory` mode there is nothing to wait for.
    ///
    /// # Errors
    /// [`CommitError::Failed`] when a sync failed: whether the commit lasts is unknown then.
    /// [`CommitError::NoTicket`] when nothing reaches as far: the ticket is another store's, or what a crash
    /// took.
    pub fn persist(&self, ticket: Position) -> Result<(), CommitError> {
        if self.durability() != Durability::Sync {
            return Ok(());
        }
        let last = self.shared.control.staged_end();
        if ticket > last {
            return Err(CommitError::NoTicket { ticket, last });
        }
        while self.shared.control.durable() < ticket {
            self.shared.lead(ticket).map_err(|error| CommitError::Failed(error.to_string()))?;
        }
        Ok(())
    }
}

/// Announces that a caller is going to append to a log: until it is dropped, no purge destroys the log. It
/// keeps nothing of the store open.
#[derive(Debug)]
pub struct AppendIntent {
    log: Arc<Log>,
    _counted: Arc<()>,
}

impl Drop for AppendIntent {
    fn drop(&mut self) {
        self.log.lock().transactions -= 1;
    }
}

/// Entries that will be written together. Dropped uncommitted, nothing of it is.
#[derive(Debug)]
pub struct Transaction<'s> {
    store: &'s Store,
    time: Time,
    /// One per log.
    intents: SmallVec<[AppendIntent; 2]>,
    /// Where each of the logs is in that list.
    numbers: LogNumbers,
    /// Which log each entry goes to, and where its payload is kept.
    entries: SmallVec<[(usize, Range<usize>); 1]>,
    bytes: Vec<u8>,
}

/// Watchers to be told of a log that moved.
type Moved = SmallVec<[(u32, LogId); 1]>;

impl Transaction<'_> {
    /// Adds an entry to one of the store's logs. It is copied and written by [`Transaction::commit`].
    ///
    /// # Errors
    /// [`CommitError::EmptyEntry`], [`CommitError::OtherStore`].
    pub fn append(&mut self, log: &Arc<Log>, payload: &[u8]) -> Result<(), CommitError> {
        if payload.is_empty() {
            return Err(CommitError::EmptyEntry);
        }
        // Another store may have a log of the same id.
        let known = self.numbers.find(log.id()).filter(|place| Arc::ptr_eq(self.log(*place), log));
        let place = match known {
            Some(place) => place,
            None => {
                let mut inner = log.lock();
                self.store.shared.owns(&inner)?;
                self.intents.push(self.store.hold_locked(log, &mut inner));
                self.numbers.add(log.id())
            }
        };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.entries.push((place, start..self.bytes.len()));
        Ok(())
    }

    /// Entries so far.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Drops it all.
    pub fn abort(self) {}

    /// Writes all of it as one batch, and in `sync` mode waits until it is durable. The receipt's offsets are
    /// those of all that was written to the log of the last entry.
    ///
    /// # Errors
    /// [`CommitError`]. Nothing was applied unless it is [`CommitError::Failed`] after a sync that failed.
    pub fn commit(self) -> Result<Receipt, CommitError> {
        let receipt = self.write(WhoSyncs::Caller)?;
        self.store.persist(receipt.ticket)?;
        Ok(receipt)
    }

    /// Writes all of it as one batch and does not wait.
    ///
    /// # Errors
    /// [`CommitError`]; nothing was applied in any case.
    pub fn submit(self) -> Result<Receipt, CommitError> {
        self.write(WhoSyncs::Committer)
    }

    fn write(&self, who_syncs: WhoSyncs) -> Result<Receipt, CommitError> {
        // Nothing moves, so nobody is woken.
        let Some((last, _)) = self.entries.last() else { return Ok(Receipt::default()) };
        let (receipt, moved) = encoding(|encoded| self.write_encoded(encoded, *last, who_syncs))?;
        // Without what this thread encodes in: a watcher may append.
        self.store.shared.tell_moved(moved);
        Ok(receipt)
    }

    /// `last` is the place of the log of the last entry.
    fn write_encoded(
        &self,
        encoded: &mut Entries,
        last: usize,
        who_syncs: WhoSyncs,
    ) -> Result<(Receipt, Moved), CommitError> {
        let mut moved = Moved::new();
        let mut locked = self.lock()?;
        let firsts: SmallVec<[Offset; 2]> = locked.iter().map(|inner| inner.tail).collect();
        let mut ends = firsts.clone();
        let mut last_of: SmallVec<[usize; 2]> = smallvec![0; self.intents.len()];
        for (index, (place, _)) in self.entries.iter().enumerate() {
            last_of[*place] = index;
        }
        let places: SmallVec<[Vec<u8>; 2]> = locked.iter().map(|inner| inner.places_to_list()).collect();
        for (log, (said, first)) in self.logs().zip(places.iter().zip(&firsts)) {
            if !said.is_empty() {
                let stamp = Stamp { log: log.id(), offset: *first, time: self.time };
                encoded.push_beside(Kind::Places, stamp, said);
            }
        }
        for (index, (place, range)) in self.entries.iter().enumerate() {
            let flags = if last_of[*place] == index { FLAG_LAST } else { 0 };
            let payload = &self.bytes[range.clone()];
            let stamp = Stamp { log: self.log(*place).id(), offset: ends[*place], time: self.time };
            encoded.push(stamp, flags, payload)?;
            ends[*place] += payload.len() as u64;
        }
        let touched: SmallVec<[_; 1]> = self.logs().zip(&ends).map(|(log, end)| (log.id(), *end)).collect();
        let shared = &self.store.shared;
        let mut batch = PlannedBatch::of_entries(encoded, touched);
        let last_log = self.intents.len() - 1;
        let pending = self.logs().zip(&ends).enumerate().map(|(place, (log, end))| Pending {
            same_batch_follows: place < last_log,
            ..Pending::payload(log, *end)
        });
        let placed = shared.publish(&mut batch, self.bytes.len() as u64, pending, None, who_syncs)?;
        for (place, inner) in locked.iter_mut().enumerate() {
            let (offsets, places) = (firsts[place]..ends[place], batch.said(&places[place]));
            let change = Change::payload(&placed, offsets, places, self.time);
            let tell = shared.apply(self.log(place), inner, &change, &Seen::payload(ends[place]));
            if tell != 0 {
                moved.push((tell, self.log(place).id()));
            }
        }
        Ok((shared.receipt(placed, firsts[last], ends[last]), moved))
    }

    fn log(&self, place: usize) -> &Arc<Log> {
        &self.intents[place].log
    }

    fn logs(&self) -> impl Iterator<Item = &Arc<Log>> {
        self.intents.iter().map(|intent| &intent.log)
    }

    fn lock(&self) -> Result<SmallVec<[MutexGuard<'_, Inner>; 2]>, CommitError> {
        let locked = Log::lock_all(self.logs().map(|log| &**log));
        locked.iter().try_for_each(|inner| inner.check_open())?;
        Ok(locked)
    }
}

fn check_name(name: &[u8]) -> Result<(), CommitError> {
    check_length(name)?;
    let text = std::str::from_utf8(name);
    let why = match name {
        [] => "it is empty",
        b"." | b".." => "it means a directory",
        _ if text.is_err() => "it is not UTF-8",
        _ if text.is_ok_and(|text| text.contains(char::is_control)) => "it holds a control character",
        name if name.iter().any(|byte| matches!(byte, b'/' | b'\\')) => "it holds a path separator",
        _ => return Ok(()),
    };
    Err(CommitError::BadName { name: said(name), why })
}

thread_local! {
    /// Where a thread's appends are encoded, one after the other.
    static ENCODED: RefCell<Entries> = RefCell::default();
}

/// Lends what this thread encodes in, empty. Of a lot of room nothing is kept until the next time: a thread
/// may never append again.
fn encoding<T>(encode: impl FnOnce(&mut Entries) -> T) -> T {
    ENCODED.with_borrow_mut(|encoded| {
        // There may be something left where one panicked.
        encoded.clear();
        let outcome = encode(encoded);
        encoded.clear();
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::batch::ENCODED_BYTES_KEPT;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_empty_transaction_wakes_nobody() {
        let store = Store::memory(Options::default()).unwrap();
        let log = store.log(b"log").unwrap();
        let wakes = Arc::new(Wakes::default());
        store.shared.gate.register(&Waker::from(wakes.clone()), || false);
        store.transaction(0).commit().unwrap();
        store.transaction(0).submit().unwrap();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        let mut transaction = store.transaction(0);
        transaction.append(&log, b"entry").unwrap();
        transaction.commit().unwrap();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }

    /// Whether it was written or not.
    #[test]
    fn a_thread_keeps_little_room_behind_a_large_write() {
        let options = Options { segment_bytes_min: 4096, segment_bytes_max: 1 << 20, ..Options::default() };
        let store = Store::memory(options).unwrap();
        let log = store.log(b"log").unwrap();
        let payload = vec![1; 3 * ENCODED_BYTES_KEPT];
        let room = || ENCODED.with_borrow(Entries::room);
        // Two are more than a batch may be.
        for count in [1, 2] {
            let mut transaction = store.transaction(0);
            (0..count).for_each(|_| transaction.append(&log, &payload).unwrap());
            assert_eq!(transaction.commit().is_ok(), count == 1);
            assert!(room() <= ENCODED_BYTES_KEPT, "a transaction of {count} keeps {}", room());
            assert_eq!(store.append_all(&log, &vec![&payload[..]; count], 0).is_ok(), count == 1);
            assert!(room() <= ENCODED_BYTES_KEPT, "{count} appended keep {}", room());
        }
    }
}
