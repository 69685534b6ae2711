//! Cursors: a reader that stays where it is and goes on when there is more.
//!
//! Purpose: following a log. A cursor owns its reader, so it may live as long as it likes; it comes to the end,
//! says so, and the next call goes on with whatever was committed meanwhile, across segments that were begun,
//! purged or removed. Polling it costs one load when there is nothing. Waiting is a sleep on the word that
//! moves with every commit (`sync::gate`), in this process or another: nobody polls.

use crate::error::ReadError;
use crate::query::{Entry, Query};
use crate::reader::{Reader, gap};
use crate::walk::{Filter, Found, Step, Walk};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// A place in a log that moves forward.
#[derive(Debug)]
pub struct Cursor {
    reader: Reader,
    walk: Walk,
    filter: Filter,
    stretch: usize,
    uncommitted: bool,
    ended: Option<Ended>,
    /// The last call found nothing.
    drained: bool,
    skipped: u64,
}

/// Why nothing more comes from a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The log is closed and everything in it was read.
    Closed,
    /// The log was deleted.
    Deleted,
    /// Damage is in the way; [`Cursor::resume`] goes on behind it.
    Damaged,
}

impl Cursor {
    /// Stands where the query begins.
    pub fn new(mut reader: Reader, query: &Query) -> Cursor {
        let (walk, filter, stretch) = reader.begin(query);
        let uncommitted = query.uncommitted;
        Cursor { reader, walk, filter, stretch, uncommitted, ended: None, drained: false, skipped: 0 }
    }

    /// Stands where another query begins. Costs a search and no allocation.
    pub fn seek(&mut self, query: &Query) {
        (self.walk, self.filter, self.stretch) = self.reader.begin(query);
        (self.uncommitted, self.ended, self.drained) = (query.uncommitted, None, false);
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
        let found = self.look()?;
        self.drained = found.is_none();
        Ok(found.map(|found| found.entry(self.walk.number, self.walk.bytes(self.reader.view()))))
    }

    #[inline]
    fn look(&mut self) -> Result<Option<Found>, ReadError> {
        loop {
            if self.is_at_limit() {
                return Ok(None);
            }
            let step = self.filter.step(self.walk.bytes(self.reader.view()), &mut self.walk.at);
            if let Step::Found(found) = step {
                return Ok(Some(found));
            }
            if !self.turn(step)? {
                return Ok(None);
            }
        }
    }

    /// Whether everything was seen and nothing was committed since.
    #[inline]
    fn is_at_limit(&self) -> bool {
        self.walk.position() == self.walk.limit && self.reader.limit(self.uncommitted) == self.walk.limit
    }

    /// Whatever a run came to but an entry; `false` when nothing more is there.
    #[cold]
    fn turn(&mut self, step: Step) -> Result<bool, ReadError> {
        if self.ended.is_some() {
            return Ok(false);
        }
        let view = self.reader.view();
        let more = match self.reader.here(step, self.stretch, &self.filter) {
            Step::Found(_) => return Ok(true),
            Step::End => self.walk.more(view),
            Step::Blank if self.walk.next_segment(view) => self.walk.more(view),
            Step::Blank => Ok(false),
            Step::Cut => {
                self.walk.end = 0;
                match self.reader.next_stretch(&mut self.stretch, &mut self.filter, &mut self.walk) {
                    true => self.walk.more(view),
                    false => Ok(false),
                }
            }
            Step::Foreign => {
                self.reader.leap(self.stretch, &mut self.walk);
                self.walk.more(view)
            }
            Step::Gap(from, to) if self.reader.is_purged(self.stretch, to) => {
                self.skipped += to - from;
                return Ok(true);
            }
            Step::Gap(..) => Err(gap(&self.walk)),
            Step::Over => Ok(false),
            Step::Closed => {
                self.ended = Some(Ended::Closed);
                return Ok(false);
            }
            Step::Deleted => {
                self.ended = Some(Ended::Deleted);
                return Err(ReadError::Deleted);
            }
        };
        match more {
            Ok(true) => Ok(true),
            Ok(false) => Ok(self.catch_up()),
            Err(error) => {
                self.ended = Some(Ended::Damaged);
                // Whatever stands here comes after it.
                self.walk.end = 0;
                self.filter.jump();
                Err(error)
            }
        }
    }

    /// Moves the limit up to what is visible by now; `false` when nothing is new.
    fn catch_up(&mut self) -> bool {
        let limit = self.reader.limit(self.uncommitted);
        if limit == self.walk.limit {
            return false;
        }
        self.walk.limit = limit;
        self.filter.relax(self.reader.sight.control.lateness());
        if self.reader.refresh() {
            self.walk.locate(self.reader.view());
        }
        true
    }

    /// Why nothing more will come, once that is so.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Goes on behind damage.
    pub fn resume(&mut self) {
        if self.ended == Some(Ended::Damaged) {
            self.ended = None;
        }
    }

    /// Payload bytes that had been purged before the cursor came to them.
    pub fn skipped_bytes(&self) -> u64 {
        self.skipped
    }

    /// The reader it moves with.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    fn is_news(&self) -> bool {
        !self.drained || self.ended.is_some() || self.reader.limit(self.uncommitted) != self.walk.limit
    }

    /// Sleeps until something was committed that the cursor has not looked at, or the time is over; whether
    /// something was. It need not be an entry of this log.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.reader.sight.gate.wait(timeout, || self.is_news())
    }

    /// The same for a task. To be awaited in the process that has the store open.
    pub async fn changed(&self) {
        poll_fn(|context| match self.reader.sight.gate.register(context.waker(), || self.is_news()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}
