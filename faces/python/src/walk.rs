//! The loop under iterators, cursors and scans: the next entry, and what keeps it mapped.

use crate::entry::{Entry, Spares};
use crate::pin::Pin;
use pyo3::prelude::*;
use std::sync::Arc;
use thalweg_log::{Columns, Cursor, Gathered, Position, ReadError, Time};

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
    /// Nothing at or behind it is taken.
    until: Position,
    map: Option<(u32, Arc<Pin>)>,
}

impl Walk {
    pub(crate) fn new(cursor: Cursor, until: Position) -> Walk {
        Walk { cursor, until, map: None }
    }

    /// The map that the last entry lies in.
    pub(crate) fn map(&self) -> Option<&Arc<Pin>> {
        self.map.as_ref().map(|(_, pin)| pin)
    }

    /// The next entry; `None` when there is none for now.
    #[inline]
    pub(crate) fn step(&mut self) -> Result<Option<Step>, ReadError> {
        let Some(entry) = self.cursor.next()? else { return Ok(None) };
        if entry.position >= self.until {
            return Ok(None);
        }
        let (offset, time, last, position) = (entry.offset, entry.time, entry.last, entry.position);
        let (start, length) = (entry.data.as_ptr().addr(), entry.data.len() as u32);
        let segment = (position >> 32) as u32;
        if !matches!(&self.map, Some((number, _)) if *number == segment) {
            self.turn(position);
        }
        let place = self.map().and_then(|pin| pin.place_of(start, length as usize));
        Ok(place.map(|place| Step { offset, time, last, place, length }))
    }

    /// Takes hold of the segment in which a position lies.
    #[cold]
    fn turn(&mut self, position: Position) {
        let segment = (position >> 32) as u32;
        self.map = self.cursor.reader().mapped(position).map(|mapped| (segment, Pin::new(mapped)));
    }

    /// The next entries in columns, and the map that they lie in; `None` when there are none for now.
    pub(crate) fn gather(
        &mut self,
        columns: &mut Columns<'_>,
    ) -> Result<Option<(Gathered, Arc<Pin>)>, ReadError> {
        let gathered = self.cursor.gather(columns, self.until)?;
        if gathered.count == 0 {
            return Ok(None);
        }
        let segment = (gathered.position >> 32) as u32;
        if !matches!(&self.map, Some((number, _)) if *number == segment) {
            self.turn(gathered.position);
        }
        Ok(self.map().filter(|pin| pin.holds(gathered.end)).map(|pin| (gathered, pin.clone())))
    }
}

/// A walk that hands out entries.
pub(crate) struct Entrywise {
    pub(crate) walk: Walk,
    spares: Spares,
}

/// An entry for Python, or none; or what is in the way of one.
pub(crate) type Next = Result<PyResult<Option<Py<Entry>>>, ReadError>;

impl Entrywise {
    pub(crate) fn new(walk: Walk) -> Entrywise {
        Entrywise { walk, spares: Spares::default() }
    }

    /// The next entry. Makes an object, which runs no Python.
    #[inline]
    pub(crate) fn next(&mut self, py: Python<'_>) -> Next {
        let step = self.walk.step()?;
        let found = step.zip(self.walk.map());
        Ok(found.map(|(step, pin)| self.spares.entry(py, step, pin)).transpose())
    }
}
