//! Appending to a log, one entry at a time or many at once.
//!
//! Purpose: the embedded log's way in. Every call is one batch: one short critical section, one publish, all
//! of it visible or nothing. Nothing waits for a disk but [`Store::persist`] and
//! [`Transaction::commit`](crate::Transaction::commit).

use crate::batch::Entries;
use crate::commit::{WhoSyncs, check_length};
use crate::error::{CommitError, said};
use crate::format::{FLAG_LAST, Stamp};
use crate::log::Log;
use crate::options::Durability;
use crate::parts::LogPart;
use crate::store::Store;
use crate::{Commit, Config, Lifetime, Position, Receipt, Time};
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
        let (mut encoded, mut bytes) = (Entries::lent(), 0);
        for (time, payload) in entries {
            encoded.push(Stamp { log: 0, offset: bytes, time }, FLAG_LAST, payload)?;
            bytes += payload.len() as u64;
        }
        let inner = log.lock_spinning();
        self.shared.owns(&inner)?;
        let mut part = LogPart::of(log, inner)?;
        if encoded.is_empty() {
            return Ok(self.shared.receipt(part.inner.last, part.first, part.end));
        }
        part.end += bytes;
        encoded.settle(|_| part.begins());
        let mut parts = [part];
        let (placed, moved) = self.shared.write_parts(&mut parts, &encoded, WhoSyncs::Committer)?;
        let receipt = self.shared.receipt(placed.end, parts[0].first, parts[0].end);
        drop(parts);
        self.shared.tell_moved(moved);
        Ok(receipt)
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
