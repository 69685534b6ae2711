//! A log: appending to it, and the ways to read it.

use super::arguments::{optional, whole};
use super::cursor::Cursor;
use super::entries::Entries;
use super::query::QueryArguments;
use super::scan::{Memory, Scan};
use super::search;
use super::shared::{Seat, Shared};
use super::walk::{EntryWalk, Walk};
use crate::error;
use crate::numbers::Number;
use crate::payload::Payload;
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::Arc;
use thalweg_log::{CommitError, Position, Query, Receipt, Time, now};

/// One log of a store. Made by `Store.log`.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Log {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Arc<thalweg_log::Log>,
    /// What the last query was made with, for the next one: most of what a short query costs is making that.
    idle: Mutex<Option<Arc<Seat<EntryWalk>>>>,
    pub(crate) memory: Arc<Memory>,
}

impl Log {
    pub(crate) fn new(shared: Arc<Shared>, log: Arc<thalweg_log::Log>) -> Log {
        Log { shared, log, idle: Mutex::default(), memory: Arc::default() }
    }

    pub(crate) fn name_text(&self) -> String {
        String::from_utf8_lossy(self.log.name()).into_owned()
    }

    pub(crate) fn failed(&self, error: &CommitError) -> PyErr {
        error::commit(error, Some(&self.name_text()))
    }

    /// Appends with the store, if it is this process's to write.
    #[inline]
    fn write(
        &self,
        append: impl FnOnce(&thalweg_log::Store) -> Result<Receipt, CommitError>,
    ) -> PyResult<Receipt> {
        let written = self.shared.with(|open| open.opened.own().map(append))?;
        written.ok_or_else(error::read_only)?.map_err(|error| self.failed(&error))
    }

    fn persist(&self, py: Python<'_>, ticket: Position) -> PyResult<()> {
        let in_use = self.shared.enter_own()?;
        py.detach(move || in_use.persist(ticket)).map_err(|error| self.failed(&error))
    }

    /// Where a query begins. What comes later than now is taken only if it follows.
    fn begin(&self, py: Python<'_>, query: &Query, follows: bool) -> PyResult<Walk> {
        let reader = self.shared.with(|open| open.opened.reader(&self.log))?;
        if search::is_long(reader.unindexed_bytes(query)) {
            search::index(py, &self.shared, &self.log, query)?;
        }
        Ok(Walk::new(if follows { reader.follow(query) } else { reader.cursor_up_to_now(query) }))
    }
}

impl Log {
    /// Appends what an iterable yields, each item made an entry by `taken`, group by group. A group in which
    /// one cannot be taken is left.
    fn append_groups<'py>(
        &self,
        py: Python<'py>,
        entries: &Bound<'py, PyAny>,
        wait: bool,
        taken: impl Fn(Bound<'py, PyAny>) -> PyResult<TimedPayload<'py>>,
    ) -> PyResult<usize> {
        let (mut entries, failed) = (entries.try_iter()?, Cell::new(None));
        let note = |error| failed.set(Some(error));
        let taken = std::iter::from_fn(|| entries.next()?.and_then(&taken).map_err(note).ok());
        let bytes = |(_, data): &TimedPayload<'_>| data.bytes().len();
        let groups = self.shared.with(|open| Some(open.opened.own()?.runs(taken, bytes)))?;
        let (mut count, mut ticket) = (0, 0);
        for group in groups.ok_or_else(error::read_only)? {
            if let Some(error) = failed.take() {
                return Err(error);
            }
            let timed: Vec<(Time, &[u8])> = group.iter().map(|(time, data)| (*time, data.bytes())).collect();
            ticket = self.write(|store| store.append_timed(&self.log, &timed))?.ticket;
            count += group.len();
        }
        // Where the first of a group cannot be taken there is none.
        if let Some(error) = failed.take() {
            return Err(error);
        }
        if wait && ticket != 0 {
            self.persist(py, ticket)?;
        }
        Ok(count)
    }

    /// What goes through a query's entries.
    fn walker(&self, py: Python<'_>, query: &Query) -> PyResult<Arc<Seat<EntryWalk>>> {
        let idle = self.idle.lock().take();
        // Its seat may have been taken away, because it was idle for long or the store is closed. Then no
        // other gets one either.
        match idle.filter(|seat| seat.try_with(|entries| entries.again(query)) == Some(true)) {
            Some(seat) => Ok(seat),
            None => self.shared.seat(EntryWalk::new(self.begin(py, query, false)?)),
        }
    }

    /// Keeps a walker for the next query.
    pub(crate) fn keep(&self, seat: &Arc<Seat<EntryWalk>>) {
        if seat.try_with(EntryWalk::rest).is_some() {
            let before = self.idle.lock().replace(seat.clone());
            drop(before);
        }
    }
}

#[pymethods]
impl Log {
    /// Its name.
    #[getter]
    fn name(&self) -> String {
        self.name_text()
    }

    /// Its number within the store, never used again.
    #[getter]
    fn id(&self) -> u64 {
        self.log.id()
    }

    /// Appends one entry, a transaction of its own, and answers its offset. `data` is anything bytes-like
    /// with at least one byte; `time` is in microseconds since the epoch, now by default. In a "sync" store
    /// the call returns once the entry is durable; with `wait=False` at once, and `Store.flush` waits for all
    /// of them.
    #[pyo3(signature = (data, time=None, *, wait=true))]
    fn append(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        time: Option<Number<u64>>,
        wait: bool,
    ) -> PyResult<u64> {
        let payload = Payload::of(data)?;
        let time = optional("time", time)?.unwrap_or_else(now);
        let receipt = self.write(|store| store.append(&self.log, payload.bytes(), time))?;
        if wait && receipt.ticket != 0 {
            self.persist(py, receipt.ticket)?;
        }
        Ok(receipt.first)
    }

    /// Appends everything that an iterable yields, each a transaction of its own, and answers how many there
    /// were. They are published in groups and share the time, each as it was when it was yielded; in a "sync"
    /// store the disk is waited for once. When one is refused, the groups before it are appended already.
    #[pyo3(signature = (entries, time=None, *, wait=true))]
    fn append_many(
        &self,
        py: Python<'_>,
        entries: &Bound<'_, PyAny>,
        time: Option<Number<u64>>,
        wait: bool,
    ) -> PyResult<usize> {
        let time = optional("time", time)?.unwrap_or_else(now);
        self.append_groups(py, entries, wait, |data| Ok((time, Payload::of(&data)?.kept())))
    }

    /// Appends everything that an iterable of pairs yields, a time and what is bytes-like, each a transaction
    /// of its own, and answers how many there were. They are published in groups, as by `append_many`.
    #[pyo3(signature = (entries, *, wait=true))]
    fn append_timed(&self, py: Python<'_>, entries: &Bound<'_, PyAny>, wait: bool) -> PyResult<usize> {
        self.append_groups(py, entries, wait, |pair| {
            let (time, data) = pair.extract::<(Number<Time>, Bound<'_, PyAny>)>()?;
            Ok((whole("time", time)?, Payload::of(&data)?.kept()))
        })
    }

    /// Iterates over entries in the order of the log, up to what is visible now; without words, over all of
    /// them. One of these says where to begin: `start`, entries of this time or later; `after`, of a later
    /// time; `exact`, at the first entry of exactly this time; `offset`, at this offset, where an entry that
    /// begins in front of it is cut; `tail`, behind the newest; `checkpoint`, behind what the newest
    /// checkpoint covers. `end` takes only entries before a time.
    #[pyo3(signature = (start=None, end=None, *, after=None, exact=None, offset=None, tail=false, checkpoint=false, uncommitted=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn query(
        slf: &Bound<'_, Self>,
        start: Option<Number<u64>>,
        end: Option<Number<u64>>,
        after: Option<Number<u64>>,
        exact: Option<Number<u64>>,
        offset: Option<Number<u64>>,
        tail: bool,
        checkpoint: bool,
        uncommitted: bool,
    ) -> PyResult<Entries> {
        let query =
            QueryArguments { start, end, after, exact, offset, tail, checkpoint, uncommitted }.query()?;
        Ok(Entries::new(slf.clone().unbind(), slf.get().walker(slf.py(), &query)?))
    }

    /// The same entries in batches of at most `limit`: arrays of times, offsets, lengths and places, and the
    /// map that the payloads lie in. Python's lock is given away while a batch is gathered.
    #[pyo3(signature = (start=None, end=None, *, after=None, exact=None, offset=None, tail=false, checkpoint=false, uncommitted=false, limit=16_384))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn scan(
        &self,
        py: Python<'_>,
        start: Option<Number<u64>>,
        end: Option<Number<u64>>,
        after: Option<Number<u64>>,
        exact: Option<Number<u64>>,
        offset: Option<Number<u64>>,
        tail: bool,
        checkpoint: bool,
        uncommitted: bool,
        #[pyo3(from_py_with = limit)] limit: usize,
    ) -> PyResult<Scan> {
        let query =
            QueryArguments { start, end, after, exact, offset, tail, checkpoint, uncommitted }.query()?;
        Scan::new(self, self.begin(py, &query, false)?, limit)
    }

    /// A place in the log that moves forward, and goes on when there is more.
    #[pyo3(signature = (start=None, end=None, *, after=None, exact=None, offset=None, tail=false, checkpoint=false, uncommitted=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn cursor(
        &self,
        py: Python<'_>,
        start: Option<Number<u64>>,
        end: Option<Number<u64>>,
        after: Option<Number<u64>>,
        exact: Option<Number<u64>>,
        offset: Option<Number<u64>>,
        tail: bool,
        checkpoint: bool,
        uncommitted: bool,
    ) -> PyResult<Cursor> {
        let query =
            QueryArguments { start, end, after, exact, offset, tail, checkpoint, uncommitted }.query()?;
        Cursor::new(self, self.begin(py, &query, true)?)
    }

    /// `async for entry in log.tail()`, in any asyncio loop: entries as they are committed, from now on.
    /// Takes the words of `query`; with one that says where to begin, history first. It ends when the log is
    /// closed and everything in it was seen. Cancelling the task, or closing the tail, lets go of everything;
    /// who was cancelled may go on, and misses nothing.
    #[pyo3(signature = (*, start=None, end=None, after=None, exact=None, offset=None, tail=false, checkpoint=false, uncommitted=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords")]
    fn tail<'py>(
        &self,
        py: Python<'py>,
        start: Option<Number<u64>>,
        end: Option<Number<u64>>,
        after: Option<Number<u64>>,
        exact: Option<Number<u64>>,
        offset: Option<Number<u64>>,
        tail: bool,
        checkpoint: bool,
        uncommitted: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let begins = checkpoint || [&start, &after, &exact, &offset].into_iter().any(Option::is_some);
        let tail = tail || !begins;
        let query =
            QueryArguments { start, end, after, exact, offset, tail, checkpoint, uncommitted }.query()?;
        let cursor = Cursor::new(self, self.begin(py, &query, true)?)?;
        py.import("thalweg.tail")?.getattr("Tail")?.call1((cursor,))
    }

    fn __repr__(&self) -> String {
        format!("<thalweg.Log {:?}>", self.name_text())
    }
}

/// Most entries of a batch, as it is given.
fn limit(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    whole("limit", value.extract()?)
}

/// An entry that is about to be appended.
type TimedPayload<'py> = (Time, Payload<'py>);
