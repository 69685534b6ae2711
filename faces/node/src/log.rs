//! One log, as JavaScript holds it: where its entries begin and go on, and the way in.

use crate::append;
use crate::error::{Result, commit, deleted};
use crate::housekeeping;
use crate::shelf::Shelf;
use napi::bindgen_prelude::{Env, Uint8ArraySlice};
use napi_derive::napi;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_log::{AppendIntent, Ended, Log, NotKnownYet, Position};

#[napi]
pub struct NativeLog {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) log: Arc<Log>,
}

/// A transaction that is going to append to a log: released when it is over, or collected.
#[napi]
pub struct NativeHold {
    hold: Mutex<Option<AppendIntent>>,
}

#[napi]
impl NativeHold {
    #[napi]
    pub fn release(&self) {
        *self.hold.lock() = None;
    }
}

/// Offsets that the log holds, or one that it was forked from.
#[napi(object)]
pub struct Stretch {
    pub id_low: u32,
    pub id_high: u32,
    pub from: f64,
    /// `Infinity` for the log's own.
    pub cut: f64,
}

#[napi]
impl NativeLog {
    /// Its number within the store, never used again.
    #[napi]
    pub fn id(&self) -> f64 {
        self.log.id() as f64
    }

    /// Which logs hold its entries, oldest first. Throws when the log is deleted.
    #[napi]
    pub fn lineage(&self) -> Result<Vec<Stretch>> {
        if self.log.staged().is_none() {
            return Err(deleted());
        }
        let stretch = |(_, held): (Arc<Log>, thalweg_log::Held)| Stretch {
            id_low: held.log as u32,
            id_high: (held.log >> 32) as u32,
            from: held.from as f64,
            cut: if held.cut == u64::MAX { f64::INFINITY } else { held.cut as f64 },
        };
        self.shelf.maps(|maps| Ok(maps.lineage(&self.log).into_iter().map(stretch).collect()))
    }

    /// Position of the first entry of a stretch that holds an offset or a later one, or of one before it.
    #[napi]
    pub fn position_of(&self, stretch: u32, offset: f64) -> Result<f64> {
        self.held(stretch, |maps, log| maps.position_of(log, offset as u64))
    }

    /// Position at which a stretch goes on, at or behind another.
    #[napi]
    pub fn position_behind(&self, stretch: u32, position: f64) -> Result<f64> {
        self.held(stretch, |maps, log| maps.position_behind(log, position as Position))
    }

    /// How it ended, for a reader that came to a position without having met all that lies in front of it:
    /// `closed`, `deleted`, or nothing; `unsure` when that cannot be said yet.
    #[napi]
    pub fn ended(&self, position: f64) -> Result<Option<&'static str>> {
        let name = |ended| match ended {
            Ok(Some(Ended::Closed)) => Some("closed"),
            Ok(Some(Ended::Deleted)) => Some("deleted"),
            Ok(Some(Ended::Damaged | Ended::StoreClosed) | None) => None,
            Err(NotKnownYet) => Some("unsure"),
        };
        self.shelf.maps(|maps| Ok(name(maps.ended(&self.log, position as Position))))
    }

    /// Says that a transaction is going to append to it.
    #[napi]
    pub fn hold(&self) -> Result<NativeHold> {
        let hold = self.shelf.store(|store| store.hold(&self.log).map_err(|error| commit(&error)))?;
        Ok(NativeHold { hold: Mutex::new(Some(hold)) })
    }

    /// Whether it takes nothing more because it is gone: as of now, also where another process says so.
    #[napi]
    pub fn is_deleted(&self) -> Result<bool> {
        if self.shelf.is_attached() {
            let found = self.shelf.find(self.log.name())?;
            return Ok(found.is_none_or(|found| found.id() != self.log.id()));
        }
        Ok(self.log.staged().is_none())
    }

    /// Whether a stretch has anything at or behind a position.
    #[napi]
    pub fn holds_behind(&self, stretch: u32, position: f64) -> Result<bool> {
        self.shelf.maps(|maps| {
            let lineage = maps.lineage(&self.log);
            let holds =
                |(log, held): &(Arc<Log>, thalweg_log::Held)| maps.holds_behind(log, held, position as u64);
            Ok(lineage.get(stretch as usize).is_some_and(holds))
        })
    }

    /// Whether everything below an offset was purged. What an ancestor has purged since, a fork keeps.
    #[napi]
    pub fn is_purged(&self, below: f64) -> Result<bool> {
        self.shelf.maps(|maps| Ok(maps.is_purged(&self.log, below as u64)))
    }

    /// Appends what is staged (see `append.rs`), each entry a transaction of its own. Answers how many were
    /// appended; the staging area says where, and why the next one was not.
    #[napi]
    pub fn append(&self, env: &Env, mut staged: Uint8ArraySlice<'_>, bytes: u32) -> Result<u32> {
        // SAFETY: JavaScript is in this call and touches the area only after it.
        let area = unsafe { staged.as_mut() };
        let appended = self.shelf.store(|store| append::each(store, &self.log, area, bytes as usize))?;
        housekeeping::grew(env, &self.shelf, bytes);
        Ok(appended)
    }

    fn held(&self, stretch: u32, find: impl Fn(&thalweg_log::Maps, &Log) -> Position) -> Result<f64> {
        self.shelf.maps(|maps| {
            let lineage = maps.lineage(&self.log);
            let log = lineage.get(stretch as usize).map_or(&self.log, |(log, _)| log);
            Ok(find(maps, log) as f64)
        })
    }
}
