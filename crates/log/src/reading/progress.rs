//! How far a reader has come, and how it goes on.
//!
//! Purpose: the one state of every forward reader: which entries are taken ([`Filter`]), where the walk
//! stands ([`Walk`]), and in which log of the lineage. It begins a query in place and finds the next run of
//! bytes when one is over. Owns nothing; it is used with the source of its reader.

use crate::entry_frame::EntryFrame;
use crate::error::ReadError;
use crate::query::{Query, Start};
use crate::source::{Source, unlisted};
use crate::walk::{Filter, Step, Walk, Wanted};
use crate::{Damage, Offset, Position, Time};

/// Why nothing more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The log is closed and everything in it was read.
    Closed,
    /// The log was deleted.
    Deleted,
    /// Damage is in the way; `resume` goes on behind it.
    Damaged,
    /// The store was closed, or the last [`Store`](crate::Store) of it dropped, and everything that was
    /// committed was read.
    StoreClosed,
}

/// Not enough is known yet to say whether a log is over: the caller reads on, or asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotKnownYet;

/// The state of a query that is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) filter: Filter,
    pub(crate) walk: Walk,
    pub(crate) part: usize,
    /// Bytes that were passed over because they had been purged.
    pub(crate) skipped: u64,
    pub(crate) ended: Option<Ended>,
    /// The walk passed over bytes without looking at them since it last asked whether the log is over, so it
    /// may have missed the frame that ends the log.
    pub(crate) leapt: bool,
}

impl Progress {
    /// Begins a query. In the steady state: two loads, a search of an index and a walk over what is older in
    /// one of its blocks.
    ///
    /// # Errors
    /// It cannot be found out what there is to read. It then stands nowhere and takes nothing.
    #[inline]
    pub(crate) fn begin(&mut self, source: &mut Source, query: &Query) -> Result<(), ReadError> {
        self.begin_below(source, query, source.limit(query.uncommitted))
    }

    /// The same with a limit that was taken earlier.
    #[inline]
    pub(crate) fn begin_below(
        &mut self,
        source: &mut Source,
        query: &Query,
        limit: Position,
    ) -> Result<(), ReadError> {
        let refreshed = source.refresh();
        (self.skipped, self.ended, self.leapt) = (0, None, true);
        if let Err(error) = refreshed {
            self.stand_nowhere(source, limit);
            return Err(error);
        }
        source.cover(if let Start::Offset(offset) = query.start { offset } else { 0 });
        let (since, exact) = match query.start {
            Start::Time(time) => (time, false),
            // There is no time behind the last one.
            Start::After(Time::MAX) => {
                self.begin_with_nothing(source, limit);
                return Ok(());
            }
            Start::After(time) => (time + 1, false),
            Start::Exact(time) => (time, true),
            _ => return self.begin_elsewhere(source, query, limit),
        };
        let wanted = Wanted::of(since, query.end, exact, source.context.control.lateness());
        self.filter = source.filter(wanted, self.filter.pace);
        self.walk = source.walk_from_time(since, query.end, limit);
        self.part = source.part_at(self.walk.position(), &mut self.filter);
        self.filter.skip_older(self.walk.bytes(source.view()), &mut self.walk.at);
        Ok(())
    }

    /// Leaves no run of bytes at hand, only the limit for another attempt.
    #[cold]
    fn stand_nowhere(&mut self, source: &Source, limit: Position) {
        self.filter = source.filter(Wanted::default(), self.filter.pace);
        (self.walk, self.part) = (Walk { limit, ..Walk::default() }, 0);
    }

    /// Begins a query that takes no entry, whatever is committed.
    #[cold]
    fn begin_with_nothing(&mut self, source: &Source, limit: Position) {
        self.filter = source.filter(Wanted::of(0, Some(0), false, 0), self.filter.pace);
        self.part = source.part_at(limit, &mut self.filter);
        self.filter.from = Offset::MAX;
        self.walk = Walk::at(source.view(), limit, limit);
    }

    fn begin_elsewhere(&mut self, source: &Source, query: &Query, limit: Position) -> Result<(), ReadError> {
        let wanted = match query.end {
            Some(_) => Wanted::of(0, query.end, false, source.context.control.lateness()),
            None => Wanted::default(),
        };
        self.filter = source.filter(wanted, self.filter.pace);
        let start = match query.start {
            Start::Offset(offset) => {
                self.filter.from = self.filter.from.max(offset);
                source.position_of(offset)
            }
            Start::Tail => limit,
            Start::Checkpoint => match source.context.access.checkpoint() {
                Ok(start) => start,
                Err(error) => {
                    self.stand_nowhere(source, limit);
                    return Err(unlisted(error));
                }
            },
            _ => source.begins(0),
        };
        let start = start.min(limit);
        self.part = source.part_at(start, &mut self.filter);
        match query.start {
            // An offset that is asked for is there, was purged, or is missing.
            Start::First | Start::Offset(_) => self.filter.expect_first(),
            // What comes from here on and is purged before it is read counts as skipped.
            Start::Tail => source
                .tail(limit, query.uncommitted)
                .into_iter()
                .for_each(|tail| self.filter.expect_up_to(tail)),
            _ => {}
        }
        self.walk = Walk::at(source.view(), start, limit);
        Ok(())
    }

    /// The next entry, up to the limit.
    pub(crate) fn step(&mut self, source: &Source) -> Result<Next, ReadError> {
        loop {
            if self.ended.is_some() {
                return Ok(Next::Nothing);
            }
            let bytes = self.walk.bytes(source.view());
            match self.filter.step(bytes, &mut self.walk.at) {
                Step::Found(found) if found.is_within(bytes) => return Ok(Next::Found(found)),
                Step::Found(_) => return Err(self.torn()),
                Step::Over => return Ok(Next::Over),
                step if self.turn(source, step)? => {}
                _ => return Ok(Next::Nothing),
            }
        }
    }

    /// Acts on what ended a run, other than an entry, and finds the next run. `false`: there is none for now.
    fn turn(&mut self, source: &Source, step: Step) -> Result<bool, ReadError> {
        let view = source.view();
        let more = match source.here(step, self.part, &self.filter) {
            Step::Found(_) => Ok(true),
            Step::End => self.more(source),
            Step::Blank if self.walk.next_segment(view) => self.more(source),
            Step::Cut => {
                self.walk.end = 0;
                match source.next_part(&mut self.part, &mut self.filter, &mut self.walk) {
                    true => self.more(source),
                    false => Ok(false),
                }
            }
            Step::Foreign => {
                self.leapt = true;
                source.leap(self.part, &mut self.walk);
                self.more(source)
            }
            // What is missing went with the log.
            Step::Gap(..) if source.is_deleted() => {
                self.ended = Some(Ended::Deleted);
                return Err(ReadError::Deleted);
            }
            Step::Gap(from, to) if source.is_purged(to) => {
                self.skipped += to - from;
                Ok(true)
            }
            Step::Gap(from, _) => Err(source.missing(from, self.walk.position())),
            Step::Blank | Step::Over => Ok(false),
            Step::Closed => {
                self.ended = Some(Ended::Closed);
                Ok(false)
            }
            Step::Deleted => {
                self.ended = Some(Ended::Deleted);
                return Err(ReadError::Deleted);
            }
        };
        more.inspect_err(|_| self.stop())
    }

    /// Finds the next run of bytes.
    fn more(&mut self, source: &Source) -> Result<bool, ReadError> {
        self.walk.more(source.view()).inspect_err(|error| source.failed(error))
    }

    /// Ends the query at damage. The run at hand is emptied, so that the inlined check for a plain entry
    /// finds nothing either.
    fn stop(&mut self) {
        self.ended = Some(Ended::Damaged);
        self.walk.end = 0;
        self.filter.jump();
    }

    /// An entry that ends behind what may be read: the visible end lies within its batch.
    #[cold]
    fn torn(&mut self) -> ReadError {
        let error = self.gap();
        self.stop();
        error
    }

    /// Asks the log whether it had ended by a position, in front of which the query takes nothing more.
    #[cold]
    pub(crate) fn ask(
        &mut self,
        source: &Source,
        position: Position,
    ) -> Result<Option<EntryFrame>, ReadError> {
        if self.ended.is_some() {
            return Ok(None);
        }
        source.context.learn(position)?;
        let Ok(ended) = source.ended(position) else { return Ok(None) };
        (self.leapt, self.ended) = (false, ended);
        match ended {
            Some(Ended::Deleted) => Err(ReadError::Deleted),
            _ => Ok(None),
        }
    }

    /// The damage at the walk's position: an entry is missing that was not purged.
    pub(crate) fn gap(&self) -> ReadError {
        let (file, from) = (crate::segment::file_name(self.walk.number), self.walk.position());
        ReadError::Damaged(Box::new(Damage::at(file, from)))
    }

    /// Goes on behind damage.
    pub(crate) fn resume(&mut self) {
        if self.ended == Some(Ended::Damaged) {
            self.ended = None;
        }
    }
}

/// What a step to the next entry came to.
pub(crate) enum Next {
    Found(EntryFrame),
    /// Nothing more, up to the limit.
    Nothing,
    /// Nothing more that the query could take.
    Over,
}
