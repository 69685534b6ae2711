//! Cursors: a reader that stays where it is and goes on when there is more.
//!
//! Purpose: following a log. A cursor owns its reader, so it may live as long as it likes; it comes to the end,
//! says so, and the next call goes on with whatever was committed meanwhile, across segments that were begun,
//! purged or removed. Polling it costs one load when there is nothing. Waiting is a sleep on the word that
//! moves with every commit (`sync::gate`), in this process or another: nobody polls.

use crate::error::ReadError;
use crate::query::{Entry, Query};
use crate::reader::{Ended, Progress, Reader};
use crate::walk::{Filter, Found, Step};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// A place in a log that moves forward.
#[derive(Clone, Debug)]
pub struct Cursor {
    reader: Reader,
    filter: Filter,
    progress: Progress,
    uncommitted: bool,
    /// The last call found nothing.
    drained: bool,
}

impl Cursor {
    /// Stands where the query begins.
    pub fn new(mut reader: Reader, query: &Query) -> Cursor {
        let (walk, filter, stretch) = reader.begin(query);
        let progress = Progress::at(walk, stretch);
        Cursor { reader, filter, progress, uncommitted: query.uncommitted, drained: false }
    }

    /// Stands where another query begins. Costs a search and no allocation.
    pub fn seek(&mut self, query: &Query) {
        let (walk, filter, stretch) = self.reader.begin(query);
        self.filter = filter;
        self.progress = Progress::at(walk, stretch);
        (self.uncommitted, self.drained) = (query.uncommitted, false);
    }

    /// The next entry; `None` when there is none yet: ask again later, or [`Cursor::wait`]. Complexity: one
    /// load when nothing was committed since.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] in front of damage, [`ReadError::Deleted`] where the log ends; the cursor has
    /// [ended](Cursor::ended) then.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend what it borrows from itself")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        let bytes = self.progress.walk.bytes(self.reader.view());
        let found = match self.filter.plain(bytes, &mut self.progress.walk.at) {
            Some(found) => Some(found),
            None => self.look()?,
        };
        self.drained = found.is_none();
        let walk = &self.progress.walk;
        Ok(found.map(|found| found.entry(walk.number, walk.bytes(self.reader.view()))))
    }

    #[inline]
    fn look(&mut self) -> Result<Option<Found>, ReadError> {
        loop {
            if self.is_at_limit() || self.progress.ended.is_some() {
                return Ok(None);
            }
            let bytes = self.progress.walk.bytes(self.reader.view());
            match self.filter.step(bytes, &mut self.progress.walk.at) {
                Step::Found(found) => return Ok(Some(found)),
                step => {
                    let over = matches!(step, Step::Over);
                    let lineage = self.reader.lineage();
                    if !self.progress.turn(lineage, &mut self.filter, step)? && !self.catch_up(over) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Whether everything was seen and nothing was committed since.
    #[inline]
    fn is_at_limit(&self) -> bool {
        let walk = &self.progress.walk;
        walk.position() == walk.limit && self.reader.limit(self.uncommitted) == walk.limit
    }

    /// Moves the limit up to what is visible by now; `false` when nothing is new, or of no interest to a query
    /// that is over.
    fn catch_up(&mut self, over: bool) -> bool {
        let limit = self.reader.limit(self.uncommitted);
        if limit == self.progress.walk.limit {
            return false;
        }
        self.progress.walk.limit = limit;
        let late = self.filter.relax(self.reader.sight.control.lateness());
        if self.reader.refresh() {
            self.progress.walk.locate(self.reader.view());
        }
        !over || late
    }

    /// Why nothing more will come, once that is so.
    pub fn ended(&self) -> Option<Ended> {
        self.progress.ended
    }

    /// Goes on behind damage.
    pub fn resume(&mut self) {
        self.progress.resume();
    }

    /// Payload bytes that had been purged before the cursor came to them.
    pub fn skipped_bytes(&self) -> u64 {
        self.progress.skipped
    }

    /// The reader it moves with.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    fn is_news(&self) -> bool {
        let limit = self.progress.walk.limit;
        !self.drained || self.progress.ended.is_some() || self.reader.limit(self.uncommitted) != limit
    }

    /// Sleeps until something was committed that the cursor has not looked at, or the time is over; whether
    /// something was. It need not be an entry of this log.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.reader.sight.gate.wait(timeout, || self.is_news())
    }

    /// The same for a task, in whichever process.
    pub async fn changed(&self) {
        self.reader.sight.home.task_waits();
        poll_fn(|context| match self.reader.sight.gate.register(context.waker(), || self.is_news()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}
