//! The loop under iterators, cursors and scans: the next entry, and what keeps it mapped.

use super::entry::{Entry, Spares};
use super::pin::Pin;
use super::search;
use super::shared::{Occupant, Seat};
use crate::error;
use pyo3::prelude::*;
use std::sync::Arc;
use thalweg_log::{Columns, Cursor, Gathered, Position, Query, ReadError, Time};

/// An entry that was found, in the map that the walk is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) offset: u64,
    pub(crate) time: Time,
    pub(crate) last: bool,
    pub(crate) place: u32,
    pub(crate) length: u32,
}

/// A cursor, and the segment that it is in.
pub(crate) struct Walk {
    pub(crate) cursor: Cursor,
    /// Segments that it was in of late, each in the place that its number leads to, and which one it is in.
    maps: [Option<(u32, Arc<Pin>)>; MAPS],
    here: usize,
}

/// Segments of which a walk keeps hold at most: one that goes to and fro need not take hold of each again.
const MAPS: usize = 4;

impl Walk {
    pub(crate) fn new(cursor: Cursor) -> Walk {
        Walk { cursor, maps: [const { None }; MAPS], here: 0 }
    }

    /// The map that the last entry lies in.
    pub(crate) fn map(&self) -> Option<&Arc<Pin>> {
        self.maps[self.here].as_ref().map(|(_, pin)| pin)
    }

    /// The next entry; `None` when there is none for now.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> Result<Option<Step>, ReadError> {
        let Some(entry) = self.cursor.next()? else { return Ok(None) };
        let (offset, time, last, position) = (entry.offset, entry.time, entry.last, entry.position);
        let (start, length) = (entry.data.as_ptr().addr(), entry.data.len() as u32);
        let place = self.enter(position, |pin| pin.place_of(start, length as usize))?;
        Ok(Some(Step { offset, time, last, place, length }))
    }

    /// Goes to the segment in which a position lies, for what is asked of its map. Of one that was compacted
    /// there is another map by now: when the one at hand does not have it, that one does.
    #[inline]
    fn enter<T>(&mut self, position: Position, ask: impl Fn(&Arc<Pin>) -> Option<T>) -> Result<T, ReadError> {
        let segment = (position >> 32) as u32;
        self.here = segment as usize % MAPS;
        let at_hand = self.maps[self.here].as_ref().filter(|(number, _)| *number == segment);
        if let Some(answer) = at_hand.and_then(|(_, pin)| ask(pin)) {
            return Ok(answer);
        }
        self.hold(segment, position);
        self.map().and_then(ask).ok_or_else(|| unmapped(segment))
    }

    #[cold]
    fn hold(&mut self, segment: u32, position: Position) {
        let mapped = self.cursor.reader().mapped(position);
        self.maps[self.here] = mapped.map(|mapped| (segment, Pin::new(mapped)));
    }

    /// Lets go of every map: what purged segments take on the disk is freed once they are mapped nowhere.
    fn let_go(&mut self) {
        self.maps = [const { None }; MAPS];
    }

    /// The next entries in columns, and the map that they lie in; `None` when there are none for now.
    pub(crate) fn gather(
        &mut self,
        columns: &mut Columns<'_>,
    ) -> Result<Option<(Gathered, Arc<Pin>)>, ReadError> {
        let gathered = self.cursor.gather(columns)?;
        if gathered.count == 0 {
            self.let_go();
            return Ok(None);
        }
        // Of a segment that was written anew meanwhile the one at hand has other bytes there.
        let mapped = self.cursor.reader().mapped(gathered.position);
        let pin = self.enter(gathered.position, |pin| {
            let same = mapped.as_ref().is_some_and(|mapped| pin.is_of(mapped));
            same.then(|| pin.clone())
        })?;
        Ok(Some((gathered, pin)))
    }
}

/// An entry was read that no map of its segment holds.
#[cold]
fn unmapped(segment: u32) -> ReadError {
    let why = "what was read of it lies in no map of it".to_owned();
    ReadError::Io { file: format!("segment {segment}"), why }
}

/// A walk that hands out entries.
pub(crate) struct EntryWalk {
    pub(crate) walk: Walk,
    spares: Spares,
    /// What was found by looking ahead, and was not taken.
    came: Option<Result<Py<Entry>, Obstacle>>,
    /// It waits to be used for another query.
    idle: bool,
}

impl Occupant for EntryWalk {
    fn is_idle(&self) -> bool {
        self.idle
    }
}

/// What is in the way of an entry.
pub(crate) enum Obstacle {
    Read(ReadError),
    Memory(PyErr),
}

impl Obstacle {
    /// The same as an exception.
    #[cold]
    pub(crate) fn raised(self, log: &thalweg_log::Log) -> PyErr {
        match self {
            Obstacle::Read(error) => error::read(&error, Some(&String::from_utf8_lossy(log.name()))),
            Obstacle::Memory(error) => error,
        }
    }
}

impl EntryWalk {
    pub(crate) fn new(walk: Walk) -> EntryWalk {
        EntryWalk { walk, spares: Spares::default(), came: None, idle: false }
    }

    /// Is of no use any more, unless [`EntryWalk::again`] makes it of use.
    pub(crate) fn rest(&mut self) {
        self.idle = true;
    }

    /// Begins another query, up to what is there now. `false` if that would take long: it is idle still.
    pub(crate) fn again(&mut self, query: &Query) -> bool {
        self.idle = !self.seek_at_once(query);
        !self.idle
    }

    /// Whether there is something to be told: an entry, which is kept until it is taken, what is in the way
    /// of one, or that no more will come. A caller that looks again is told of the last, even if nothing
    /// came that could end the log.
    pub(crate) fn look(&mut self, py: Python<'_>) -> bool {
        for _ in 0..2 {
            if self.came.is_none() {
                let mut obstacle = None;
                let next = self.next(py, &mut obstacle);
                self.came = next.map(Ok).or(obstacle.map(Err));
            }
        }
        if self.came.is_none() {
            self.let_go();
        }
        self.came.is_some() || self.walk.cursor.ended().is_some()
    }

    /// The next entry, one found by looking ahead first.
    #[inline]
    fn take(&mut self, py: Python<'_>, obstacle: &mut Option<Obstacle>) -> Option<Py<Entry>> {
        match self.came.take() {
            None => {
                let next = self.next(py, obstacle);
                if next.is_none() {
                    self.let_go();
                }
                next
            }
            Some(Ok(entry)) => Some(entry),
            Some(Err(error)) => {
                *obstacle = Some(error);
                None
            }
        }
    }

    /// Lets go of all maps where there is nothing to read for now, however long that may be; entries that
    /// are held keep theirs.
    fn let_go(&mut self) {
        self.walk.let_go();
        self.spares = Spares::default();
    }

    /// Stands where another query begins, unless it would take long until it does; whether it does.
    pub(crate) fn seek_at_once(&mut self, query: &Query) -> bool {
        let is_long = search::is_long(self.walk.cursor.unindexed_bytes(query));
        if !is_long {
            self.seek(query);
        }
        !is_long
    }

    /// Stands where another query begins.
    pub(crate) fn seek(&mut self, query: &Query) {
        self.came = None;
        self.walk.cursor.seek(query);
    }

    /// Goes on behind damage.
    pub(crate) fn resume(&mut self) {
        self.came.take_if(|came| came.is_err());
        self.walk.cursor.resume();
    }

    /// The next entry; `None` when there is none for now, or something is in its way. Makes an object, which
    /// runs no Python. A pointer is all that goes through here for each entry.
    #[inline]
    pub(crate) fn next(&mut self, py: Python<'_>, obstacle: &mut Option<Obstacle>) -> Option<Py<Entry>> {
        let step = match self.walk.step() {
            Ok(step) => step?,
            Err(error) => {
                *obstacle = Some(Obstacle::Read(error));
                return None;
            }
        };
        match self.spares.entry(py, step, self.walk.map()?) {
            Ok(entry) => Some(entry),
            Err(error) => {
                *obstacle = Some(Obstacle::Memory(error));
                None
            }
        }
    }
}

impl Seat<EntryWalk> {
    /// The next entry for Python.
    #[inline]
    pub(crate) fn next(&self, py: Python<'_>, log: &thalweg_log::Log) -> PyResult<Option<Py<Entry>>> {
        self.step(py, log, EntryWalk::next)
    }

    /// The same for a caller that may have looked ahead.
    #[inline]
    pub(crate) fn take(&self, py: Python<'_>, log: &thalweg_log::Log) -> PyResult<Option<Py<Entry>>> {
        self.step(py, log, EntryWalk::take)
    }

    /// Stands where another query begins.
    #[inline]
    pub(crate) fn seek(&self, py: Python<'_>, log: &Arc<thalweg_log::Log>, query: &Query) -> PyResult<()> {
        if self.with(|entries| entries.seek_at_once(query))? {
            return Ok(());
        }
        search::index(py, self.shared(), log, query)?;
        self.with(|entries| entries.seek(query))
    }

    /// The same, and the first entry from there on.
    #[inline]
    pub(crate) fn find(
        &self,
        py: Python<'_>,
        log: &Arc<thalweg_log::Log>,
        query: &Query,
    ) -> PyResult<Option<Py<Entry>>> {
        let mut is_long = false;
        let found = self.step(py, log, |entries, py, obstacle| {
            is_long = !entries.seek_at_once(query);
            if is_long { None } else { entries.take(py, obstacle) }
        });
        if !is_long {
            return found;
        }
        self.seek(py, log, query)?;
        self.take(py, log)
    }

    #[inline(always)]
    fn step(
        &self,
        py: Python<'_>,
        log: &thalweg_log::Log,
        how: impl FnOnce(&mut EntryWalk, Python<'_>, &mut Option<Obstacle>) -> Option<Py<Entry>>,
    ) -> PyResult<Option<Py<Entry>>> {
        let mut obstacle = None;
        let next = self.try_with(|entries| how(entries, py, &mut obstacle));
        match (next, obstacle) {
            (Some(next), None) => Ok(next),
            (None, _) => Err(self.shared().over()),
            (_, Some(obstacle)) => Err(obstacle.raised(log)),
        }
    }
}
