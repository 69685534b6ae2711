//! Cursors: a reader that stays where it is and goes on when there is more.
//!
//! Purpose: following a log. A cursor owns its reader, so it has no lifetime to obey; at the end it says so,
//! and the next call goes on with what was committed meanwhile, across segments that were begun, purged or
//! removed. Polling costs two loads when there is nothing: how far the store may be read, and the version of
//! the list of segments, so that a cursor which rests at the end of its log keeps no removed segment mapped.
//! Waiting is a sleep on the word that moves with every commit (`sync::gate`), in this process or another,
//! without polling.

use crate::Position;
use crate::entry_frame::EntryFrame;
use crate::error::ReadError;
use crate::progress::{Ended, Next, Progress};
use crate::query::{Entry, Query};
use crate::reader::Reader;
use std::io;
use std::time::Duration;

/// A place in a log that moves forward. [`Reader::follow`] and [`Reader::cursor_up_to_now`] make one.
#[derive(Clone, Debug)]
pub struct Cursor {
    pub(crate) reader: Reader,
    uncommitted: bool,
    /// It goes on with what is committed after it began.
    follows: bool,
    /// The query that it could not begin with; the next call tries again.
    unbegun: Option<Query>,
    /// The last call found nothing.
    pub(crate) drained: bool,
}

impl Reader {
    /// A cursor that stands where the query begins, and goes on with what is committed from now on. Costs a
    /// search, as [`Reader::entries`]. If that fails, the first [`Cursor::next`] tries again and reports it.
    ///
    /// ```
    /// use thalweg_log::{Options, Query, Start, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"steps")?;
    /// store.append(&log, b"one", 1)?;
    /// let mut tail = store.reader(&log).follow(&Query::from(Start::Tail));
    /// assert!(tail.next()?.is_none());
    /// store.append(&log, b"two", 2)?;
    /// assert_eq!(tail.next()?.map(|entry| entry.data), Some(&b"two"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn follow(self, query: &Query) -> Cursor {
        Cursor::begin(self, query, true)
    }

    /// A cursor that stands where the query begins, and ends where the log ends now. It gives nothing that is
    /// committed later, and what becomes of the log meanwhile does not change what it gives.
    ///
    /// ```
    /// use thalweg_log::{Options, Query, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"steps")?;
    /// store.append(&log, b"one", 1)?;
    /// let mut cursor = store.reader(&log).cursor_up_to_now(&Query::default());
    /// store.append(&log, b"two", 2)?;
    /// assert_eq!(cursor.next()?.map(|entry| entry.data), Some(&b"one"[..]));
    /// assert!(cursor.next()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cursor_up_to_now(self, query: &Query) -> Cursor {
        Cursor::begin(self, query, false)
    }
}

impl Cursor {
    fn begin(reader: Reader, query: &Query, follows: bool) -> Cursor {
        let mut cursor = Cursor { reader, uncommitted: false, follows, unbegun: None, drained: false };
        cursor.seek(query);
        cursor
    }

    /// Stands where another query begins. Costs a search and no allocation.
    #[inline]
    pub fn seek(&mut self, query: &Query) {
        // The next call tries again, and reports the error if there still is one.
        self.unbegun = self.reader.progress.begin(&mut self.reader.source, query).err().map(|_| *query);
        (self.uncommitted, self.drained) = (query.uncommitted, false);
    }

    /// The next entry; `None` when there is none yet: ask again later, or [`Cursor::wait`]. Complexity
    /// when nothing was committed or removed since: two loads; five in a process that is attached.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] in front of damage, [`ReadError::Deleted`] where the log ends; the cursor has
    /// [ended](Cursor::ended) then. [`ReadError::Io`] in a process that is attached, if it cannot be found
    /// out what there is by now: the next call tries again.
    #[inline(always)]
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend what it borrows from itself")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        let Reader { source, progress } = &mut self.reader;
        let bytes = progress.walk.bytes(source.view());
        let found = match progress.filter.plain(bytes, &mut progress.walk.at) {
            Some(found) => Some(found),
            None => self.look()?,
        };
        self.drained = found.is_none();
        let Reader { source, progress: Progress { walk, .. } } = &self.reader;
        Ok(found.map(|found| found.entry(walk.position_of(found.at), walk.bytes(source.view()))))
    }

    #[inline(never)]
    pub(crate) fn look(&mut self) -> Result<Option<EntryFrame>, ReadError> {
        if let Some(query) = self.unbegun {
            let Reader { source, progress } = &mut self.reader;
            progress.begin_below(source, &query, progress.walk.limit)?;
            self.unbegun = None;
        }
        if !self.follows {
            return self.look_at_hand();
        }
        let mut moved = false;
        loop {
            if self.is_at_limit() {
                return self.make_sure();
            }
            match self.step()? {
                Next::Found(found) => return Ok(Some(found)),
                Next::Nothing if self.catch_up()? => moved = true,
                Next::Over if self.is_late() => {}
                // Before it says that the query is over it also looks at what was committed since: a caller
                // that waits then waits for more than that.
                Next::Over if self.catch_up()? => moved = true,
                Next::Nothing => return self.make_sure(),
                // A caller that looks only once, at what was there, does not pay for what followers need to
                // know.
                Next::Over if moved || self.drained => return self.make_sure_behind(),
                Next::Over => return Ok(None),
            }
        }
    }

    /// The next entry of what was visible when it last caught up, in the list of segments that it had then.
    pub(crate) fn look_at_hand(&mut self) -> Result<Option<EntryFrame>, ReadError> {
        match self.step()? {
            Next::Found(found) => Ok(Some(found)),
            Next::Nothing => self.make_sure(),
            Next::Over => Ok(None),
        }
    }

    #[inline]
    fn step(&mut self) -> Result<Next, ReadError> {
        let Reader { source, progress } = &mut self.reader;
        let next = progress.step(source)?;
        if matches!(next, Next::Found(_)) {
            // An entry of the log itself proves that its end was not passed over.
            progress.leapt &= progress.filter.log != source.log().id();
        }
        Ok(next)
    }

    /// Nothing more is there. If the walk passed over bytes, the frame that ends the log may have been among
    /// them: then the log itself is asked, once.
    #[inline]
    fn make_sure(&mut self) -> Result<Option<EntryFrame>, ReadError> {
        let Reader { source, progress } = &mut self.reader;
        if !progress.leapt {
            return Ok(None);
        }
        // A walk may stand behind its limit, where a fork's own part would begin.
        progress.ask(source, progress.walk.position().min(progress.walk.limit))
    }

    /// The query takes nothing more, but the frame that ends the log may lie further on: so the log itself is
    /// asked.
    fn make_sure_behind(&mut self) -> Result<Option<EntryFrame>, ReadError> {
        let Reader { source, progress } = &mut self.reader;
        progress.ask(source, progress.walk.limit)
    }

    /// Whether everything was read, and since then nothing was committed and no segment removed.
    #[inline]
    fn is_at_limit(&self) -> bool {
        let walk = &self.reader.progress.walk;
        walk.position() == walk.limit && !self.is_behind()
    }

    /// Whether there may be more to read, segments to let go of, or the news that the store is gone.
    #[inline]
    fn is_behind(&self) -> bool {
        let Reader { source, progress } = &self.reader;
        source.limit(self.uncommitted) != progress.walk.limit || source.is_stale() || source.is_gone()
    }

    /// Moves the limit up to what is visible by now, and takes over the segments that there are by now;
    /// `false` when nothing is new.
    fn catch_up(&mut self) -> Result<bool, ReadError> {
        if !self.is_behind() {
            return Ok(false);
        }
        let Reader { source, progress } = &mut self.reader;
        let limit = source.limit(self.uncommitted);
        if progress.ended.is_some() {
            // Nothing more is read, so all there is to do is to let go of what was removed. Where that fails
            // there is nothing to report: the next call tries again.
            if source.refresh().is_ok_and(|moved| moved) {
                source.settle(&mut progress.part, &mut progress.filter, &mut progress.walk);
            }
            return Ok(false);
        }
        // If the store is gone, refreshing the list reports it.
        let moved = source.refresh()?;
        progress.walk.limit = limit;
        progress.filter.relax(source.context.control.lateness());
        if moved {
            source.settle(&mut progress.part, &mut progress.filter, &mut progress.walk);
            progress.leapt = true;
        }
        Ok(true)
    }

    /// Whether the store's `lateness` grew since the query was found to be over.
    fn is_late(&mut self) -> bool {
        let Reader { source, progress } = &mut self.reader;
        progress.filter.relax(source.context.control.lateness())
    }

    /// How far it has read, or will: up to what was visible when it began, or when it last came to the end.
    #[inline]
    pub fn limit(&self) -> Position {
        self.reader.progress.walk.limit
    }

    /// Why nothing more will come, once that is so and the last call found nothing.
    ///
    /// ```
    /// use thalweg_log::{Ended, Options, Query, Start, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"steps")?;
    /// let mut tail = store.reader(&log).follow(&Query::from(Start::Tail));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| store.close());
    ///     while tail.ended().is_none() {
    ///         tail.wait(None);
    ///         while let Some(entry) = tail.next()? {
    ///             println!("{entry:?}");
    ///         }
    ///     }
    ///     Ok::<(), thalweg_log::ReadError>(())
    /// })?;
    /// assert_eq!(tail.ended(), Some(Ended::StoreClosed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ended(&self) -> Option<Ended> {
        self.reader.progress.ended.or_else(|| self.is_over().then_some(Ended::StoreClosed))
    }

    /// Everything was read, and nothing will be committed any more.
    fn is_over(&self) -> bool {
        let Reader { source, progress } = &self.reader;
        // In this order: nothing is committed once it is over.
        self.drained
            && source.context.access.is_over()
            && source.limit(self.uncommitted) == progress.walk.limit
    }

    /// Goes on behind damage.
    pub fn resume(&mut self) {
        self.drained &= self.ended() != Some(Ended::Damaged);
        self.reader.progress.resume();
    }

    /// Payload bytes that had been purged before the cursor came to them.
    pub fn skipped_bytes(&self) -> u64 {
        self.reader.progress.skipped
    }

    /// The reader it moves with.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    fn is_news(&self) -> bool {
        let Reader { source, progress } = &self.reader;
        !self.drained
            || progress.ended.is_some()
            || source.limit(self.uncommitted) != progress.walk.limit
            || self.follows && source.is_stale()
            || source.context.access.is_over()
            || source.is_gone()
    }

    /// Sleeps until something was committed that the cursor has not looked at, nothing will be committed any
    /// more, or the time is over; `false`: the time is over. What was committed need not be an entry of this
    /// log; that nothing more comes is said by [`Cursor::ended`]. It also returns when segments were removed,
    /// so that the [`Cursor::next`] that follows lets go of them: until then they are mapped, and their disk
    /// space is not given back. In a process that is attached it also returns within about a second once the
    /// store was moved or removed, which [`Cursor::next`] then reports. A cursor that has looked at nothing
    /// yet does not sleep: its log may be over already.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.reader.source.context.wait(timeout, || self.is_news())
    }

    /// The same for a task, in this process or an attached one. The waker may run its task at once, on the
    /// thread that wakes it. The task may then do what a [watcher](crate::Watch) may.
    ///
    /// # Errors
    /// In a process that is attached: no thread could be started to wake it. The next call tries again.
    pub async fn changed(&self) -> io::Result<()> {
        self.reader.source.context.access.task_waits()?;
        self.reader.source.context.gate.until(|| self.is_news()).await;
        Ok(())
    }
}
