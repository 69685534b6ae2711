//! Transactions: entries of one or several logs that are written together or not at all.
//!
//! Purpose: what is to be written is encoded as it comes, before anybody knows where the logs will end; the
//! commit locks them, settles the entries behind their ends, and writes one batch. Until it is durable, or
//! dropped, a transaction *holds* its logs: no purge destroys them.

use crate::batch::Entries;
use crate::commit::WhoSyncs;
use crate::error::CommitError;
use crate::format::Stamp;
use crate::log::Log;
use crate::log_numbers::LogNumbers;
use crate::parts::LogPart;
use crate::store::Store;
use crate::{Offset, Receipt, Time};
use smallvec::SmallVec;
use std::sync::Arc;

impl Store {
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
            held: SmallVec::new(),
            numbers: LogNumbers::default(),
            last: 0,
            encoded: Entries::lent(),
        }
    }

    /// Says that a transaction which is kept elsewhere is going to append to a log, as
    /// [`Transaction::append`] does of its own.
    ///
    /// # Errors
    /// [`CommitError::OtherStore`].
    pub fn hold(&self, log: &Arc<Log>) -> Result<AppendIntent, CommitError> {
        let mut inner = log.lock();
        self.shared.owns(&inner)?;
        inner.transactions += 1;
        Ok(AppendIntent { log: log.clone(), _counted: self.shared.transactions.clone() })
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
    held: SmallVec<[Held; 1]>,
    /// Where each of the logs is in that list.
    numbers: LogNumbers,
    /// The log of the last entry.
    last: usize,
    encoded: Entries,
}

/// A log that a transaction is going to append to.
#[derive(Debug)]
struct Held {
    intent: AppendIntent,
    /// Payload bytes so far.
    bytes: Offset,
    /// Where its last entry is among the encoded ones.
    last_at: usize,
}

impl Transaction<'_> {
    /// Adds an entry to one of the store's logs. It is copied, and written by [`Transaction::commit`].
    ///
    /// # Errors
    /// [`CommitError::EmptyEntry`], [`CommitError::OtherStore`], [`CommitError::TooLarge`] for an entry that
    /// no segment can hold.
    pub fn append(&mut self, log: &Arc<Log>, payload: &[u8]) -> Result<(), CommitError> {
        // In front of the hold: of a log of which there is no entry nothing is to be written.
        Entries::check(payload)?;
        // Another store may have a log of the same id.
        let known = self.numbers.find(log.id());
        let place = match known.filter(|place| Arc::ptr_eq(&self.held[*place].intent.log, log)) {
            Some(place) => place,
            None => self.take_hold(log)?,
        };
        let held = &mut self.held[place];
        let (at, stamp) =
            (self.encoded.bytes(), Stamp { log: place as u64, offset: held.bytes, time: self.time });
        self.encoded.push(stamp, 0, payload)?;
        (held.bytes, held.last_at, self.last) = (held.bytes + payload.len() as u64, at, place);
        Ok(())
    }

    fn take_hold(&mut self, log: &Arc<Log>) -> Result<usize, CommitError> {
        let intent = self.store.hold(log)?;
        self.held.push(Held { intent, bytes: 0, last_at: 0 });
        Ok(self.numbers.add(log.id()))
    }

    /// Entries so far.
    pub fn count(&self) -> usize {
        self.encoded.count()
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        let bytes: Offset = self.held.iter().map(|held| held.bytes).sum();
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Drops it all.
    pub fn abort(self) {}

    /// Writes all of it as one batch, and in `sync` mode waits until it is durable. The receipt's offsets are
    /// those of all that was written to the log of the last entry.
    ///
    /// # Errors
    /// [`CommitError`]. Nothing was applied unless it is [`CommitError::Failed`] after a sync that failed.
    pub fn commit(mut self) -> Result<Receipt, CommitError> {
        let receipt = self.write(WhoSyncs::Caller)?;
        self.store.persist(receipt.ticket)?;
        Ok(receipt)
    }

    /// Writes all of it as one batch and does not wait.
    ///
    /// # Errors
    /// [`CommitError`]; nothing was applied in any case.
    pub fn submit(mut self) -> Result<Receipt, CommitError> {
        self.write(WhoSyncs::Committer)
    }

    /// Once: the entries are settled then.
    fn write(&mut self, who_syncs: WhoSyncs) -> Result<Receipt, CommitError> {
        if self.encoded.is_empty() {
            // Nothing moves, so nobody is woken.
            return Ok(Receipt::default());
        }
        let shared = &self.store.shared;
        let mut parts: SmallVec<[LogPart<'_>; 1]> = SmallVec::new();
        let locked = Log::lock_all(self.held.iter().map(|held| &*held.intent.log));
        for (Held { intent, bytes, last_at }, inner) in self.held.iter().zip(locked) {
            let mut part = LogPart::of(&intent.log, inner)?;
            part.end += bytes;
            self.encoded.mark_last(*last_at);
            parts.push(part);
        }
        self.encoded.settle(|place| parts[place].begins());
        let (placed, moved) = shared.write_parts(&mut parts, &self.encoded, who_syncs)?;
        let receipt = shared.receipt(placed.end, parts[self.last].first, parts[self.last].end);
        drop(parts);
        shared.tell_moved(moved);
        Ok(receipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attached, Commit, Disk, Options, Query};
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

    /// Nor does it hold the log that the entry was for: when that is closed, it can be committed still.
    #[test]
    fn a_refused_entry_leaves_a_transaction_as_it_was() {
        let store = Store::memory(Options::default()).unwrap();
        let logs = [b"a", b"b"].map(|name| store.log(name).unwrap());
        let mut transaction = store.transaction(0);
        transaction.append(&logs[0], b"1").unwrap();
        let larger_than_segments = vec![0; 1 << 30];
        for (payload, too_large) in [(&larger_than_segments[..], true), (&[], false)] {
            let refused = transaction.append(&logs[1], payload).unwrap_err();
            assert_eq!(matches!(refused, CommitError::TooLarge { .. }), too_large, "{refused}");
        }
        transaction.append(&logs[0], b"2").unwrap();
        assert_eq!((transaction.count(), transaction.bytes(), store.stats().transactions), (2, 2, 1));
        let close = Commit { close: true, ..Commit::default() };
        store.commit(&logs[1], logs[1].staged().unwrap().version, &close, None).unwrap();
        let version = logs[1].staged().unwrap().version;
        transaction.commit().unwrap();
        assert_eq!(logs[1].staged().unwrap().version, version);
        let mut reader = store.reader(&logs[0]);
        let last: Vec<bool> = reader.entries(&Query::default()).map(|entry| entry.unwrap().last).collect();
        assert_eq!(last, [false, true]);
    }

    /// While a commit waits for the disk its entries are written, and may be lost still.
    #[test]
    fn what_is_written_holds_its_logs_until_the_transaction_is_gone() {
        let store = Store::memory(Options::default()).unwrap();
        let log = store.log(b"log").unwrap();
        let mut transaction = store.transaction(0);
        transaction.append(&log, b"entry").unwrap();
        transaction.write(WhoSyncs::Caller).unwrap();
        assert_eq!(store.reader(&log).entries(&Query::default()).count(), 1);
        let held = || (store.stats().transactions, log.lock().transactions);
        assert_eq!(held(), (1, 1));
        drop(transaction);
        assert_eq!(held(), (0, 0));
    }

    /// What follows another process gives its logs new contents, and the count would go with the old ones.
    #[test]
    fn a_log_that_is_read_along_is_not_held() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(&Disk::Real, directory.path(), Options::default()).unwrap();
        store.persist(store.append(&store.log(b"log").unwrap(), b"1", 1).unwrap().ticket).unwrap();
        let attached = Attached::open(&Disk::Real, directory.path()).unwrap();
        let log = attached.find(b"log").unwrap().unwrap();
        assert!(matches!(store.hold(&log), Err(CommitError::OtherStore)));
        assert_eq!((store.stats().transactions, log.lock().transactions), (0, 0));
    }

    #[test]
    fn a_log_of_another_store_is_refused_even_if_one_of_the_same_id_is_held() {
        let stores = [(); 2].map(|()| Store::memory(Options::default()).unwrap());
        let [own, other] = stores.each_ref().map(|store| store.log(b"log").unwrap());
        assert_eq!(own.id(), other.id());
        let mut transaction = stores[0].transaction(0);
        transaction.append(&own, b"1").unwrap();
        assert!(matches!(transaction.append(&other, b"2"), Err(CommitError::OtherStore)));
        transaction.commit().unwrap();
        assert_eq!((own.staged().unwrap().tail, other.staged().unwrap().tail), (1, 0));
    }
}
