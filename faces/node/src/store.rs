//! One opening of a store, as JavaScript holds it.

use crate::append;
use crate::bell::Bell;
use crate::error::{Result, closed, commit, failure, read, read_only};
use crate::housekeeping::{self, MaintainTask};
use crate::lend::lend;
use crate::log::NativeLog;
use crate::offline::{BackupRow, CopyTask, ReportRow, Source, VerifySubject, VerifyTask};
use crate::recovery::{DamageRow, RecoveryRow};
use crate::segment::NativeSegment;
use crate::shelf::{Closing, Ending, Kind, Shelf};
use napi::Task;
use napi::bindgen_prelude::{ClassInstance, Env, Function, PromiseRaw, Uint8ArraySlice, Unknown};
use napi_derive::napi;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use thalweg_log::{Durability, InUse, Mapped, Options, Purge, Purged, Store, now};

#[napi]
pub struct Opening {
    shelf: Arc<Shelf>,
    /// Left already.
    left: Mutex<bool>,
}

/// A segment, but for its bytes.
#[napi(object)]
pub struct SegmentRow {
    pub number: u32,
    /// The largest time of any entry in an earlier segment.
    pub latest: f64,
    pub trusted_from: u32,
    /// Another than before when it was written anew.
    pub held_bytes: f64,
}

/// What the store holds.
#[napi(object)]
pub struct StatsRow {
    pub logs: f64,
    pub segments: f64,
    pub segment_bytes: f64,
    pub settled_bytes: f64,
    pub mapped_bytes: f64,
    pub staged_end: f64,
    pub durable: f64,
    pub index_bytes: f64,
    pub batches: f64,
    pub batch_bytes: f64,
    pub entries: f64,
    pub rotations: f64,
    pub purges: f64,
    pub purged_bytes: f64,
    pub live_bytes: f64,
    pub freed_bytes: f64,
    pub failures: f64,
    pub transactions: f64,
    pub failed: bool,
}

/// How a store is opened; what is left out is as the log has it.
#[napi(object)]
pub struct OpenOptions {
    pub durability: Option<String>,
    pub read_only: bool,
    pub segment_bytes_min: Option<u32>,
    pub segment_bytes_max: Option<u32>,
    pub retain_us: Option<f64>,
    pub retain_bytes: Option<f64>,
    pub rotate_after_us: Option<f64>,
}

/// Opens a store at a canonical path; in memory, under a name.
#[napi]
pub fn open(path: String, asked: OpenOptions) -> Result<Opening> {
    let durability = asked.durability.as_deref().map_or(Ok(Durability::Sync), str::parse);
    let durability: Durability = durability.map_err(|why: String| failure("BAD_ARGUMENT", why))?;
    let kind = match durability {
        _ if asked.read_only => Kind::Attached,
        Durability::Memory => Kind::Memory,
        _ => Kind::Files,
    };
    let shelf = Shelf::open(kind, Path::new(&path), asked.options(durability), |open| asked.differs(open))?;
    Ok(Opening { shelf, left: Mutex::new(false) })
}

impl OpenOptions {
    fn options(&self, durability: Durability) -> Options {
        let usual = Options::default();
        let segment_bytes_max = self.segment_bytes_max.unwrap_or(usual.segment_bytes_max);
        let small = usual.segment_bytes_min.min(segment_bytes_max);
        Options {
            durability,
            opened_at: now(),
            segment_bytes_min: self.segment_bytes_min.unwrap_or(small),
            segment_bytes_max,
            retain_us: self.retain_us.map(|us| us as u64),
            retain_bytes: self.retain_bytes.map(|bytes| bytes as u64),
            rotate_after_us: self.rotate_after_us.map(|us| us as u64),
            ..usual
        }
    }

    /// What is asked for otherwise than a store has it that is open already. What is not asked for may be as
    /// it likes.
    fn differs(&self, open: &Options) -> Option<String> {
        let asked = self.options(open.durability);
        let sizes = |options: &Options| {
            [options.segment_bytes_min, options.segment_bytes_max].map(|bytes| Some(u64::from(bytes)))
        };
        let ([min, max], [open_min, open_max]) = (sizes(&asked), sizes(open));
        let rows = [
            ("segmentBytesMin", self.segment_bytes_min.map(|_| min), open_min),
            ("segmentBytesMax", self.segment_bytes_max.map(|_| max), open_max),
            ("retainUs", self.retain_us.map(|_| asked.retain_us), open.retain_us),
            ("retainBytes", self.retain_bytes.map(|_| asked.retain_bytes), open.retain_bytes),
            ("rotateAfterUs", self.rotate_after_us.map(|_| asked.rotate_after_us), open.rotate_after_us),
        ];
        let has = open.durability.name();
        if self.durability.as_deref().is_some_and(|asked| asked != has) {
            return Some(format!("durability {has:?}"));
        }
        let other = rows.into_iter().find(|(_, asked, open)| asked.is_some_and(|asked| asked != *open));
        other.map(|(name, _, open)| match open {
            Some(value) => format!("{name} of {value}"),
            None => format!("no {name}"),
        })
    }
}

/// The time that an entry gets when none is given.
#[napi(js_name = "now")]
pub fn time_now() -> f64 {
    now() as f64
}

/// Bytes of a page: what is written later may share one with what is there.
#[napi]
pub fn page_bytes() -> u32 {
    thalweg_sys::machine::page_bytes() as u32
}

#[napi]
impl Opening {
    /// What an acknowledged entry survives, whichever opening was the first.
    #[napi]
    pub fn durability(&self) -> &'static str {
        self.shelf.options.durability.name()
    }

    /// Size of the largest segment file: one commit holds a little less.
    #[napi]
    pub fn segment_bytes_max(&self) -> u32 {
        self.shelf.options.segment_bytes_max
    }

    /// The words of the control file.
    #[napi(ts_return_type = "ArrayBuffer")]
    pub fn control<'e>(&self, env: &'e Env) -> Result<Unknown<'e>> {
        lend(env, self.shelf.maps(|maps| Ok(maps.control()))?)
    }

    /// The words that say whether the store was closed, and whether a sync failed.
    #[napi(ts_return_type = "ArrayBuffer")]
    pub fn flags<'e>(&self, env: &'e Env) -> Result<Unknown<'e>> {
        let (start, length) = self.shelf.flags.place();
        lend(env, Mapped::new(start, length, self.shelf.flags.clone()))
    }

    #[napi]
    pub fn segments(&self) -> Result<Vec<SegmentRow>> {
        self.shelf.maps(|maps| {
            let segments = maps.segments().map_err(|error| failure("IO", error))?;
            let row = |segment: &thalweg_log::MappedSegment| SegmentRow {
                number: segment.number,
                latest: segment.latest as f64,
                trusted_from: segment.trusted_from,
                held_bytes: segment.held_bytes as f64,
            };
            Ok(segments.iter().map(row).collect())
        })
    }

    /// The segment that has a number now; undefined when it is gone.
    #[napi]
    pub fn segment(&self, number: u32) -> Result<Option<NativeSegment>> {
        let segment = self.shelf.maps(|maps| Ok(maps.segment(number)))?;
        Ok(segment.map(|segment| NativeSegment { shelf: self.shelf.clone(), segment }))
    }

    /// Where the newest checkpoint begins.
    #[napi]
    pub fn checkpoint(&self) -> Result<f64> {
        self.shelf.maps(|maps| maps.checkpoint().map(|at| at as f64).map_err(|error| read(&error)))
    }

    /// A bell that rings on this thread.
    #[napi]
    pub fn bell(&self, callback: Function<'_, (), ()>) -> Result<Bell> {
        Bell::new(self.shelf.clone(), callback)
    }

    /// The log of that name, made if there is none and it may be.
    #[napi]
    pub fn log(&self, name: String) -> Result<NativeLog> {
        let log = if self.shelf.is_attached() {
            let found = self.shelf.find(name.as_bytes())?;
            found.ok_or_else(|| failure("NO_LOG", format!("there is no log {name:?}")))?
        } else {
            self.shelf.store(|store| store.log(name.as_bytes()).map_err(|error| commit(&error)))?
        };
        Ok(NativeLog { shelf: self.shelf.clone(), log })
    }

    /// Names of all logs, sorted.
    #[napi]
    pub fn names(&self) -> Result<Vec<String>> {
        let logs = self.shelf.logs()?;
        Ok(logs.iter().map(|log| String::from_utf8_lossy(log.name()).into_owned()).collect())
    }

    /// Hears of new logs; of those there are as well when asked for.
    #[napi]
    pub fn new_logs(&self, existing: bool) -> Result<NativeNewLogs> {
        let listener = self.shelf.listen(existing)?;
        Ok(NativeNewLogs { shelf: self.shelf.clone(), listener })
    }

    /// Writes what is staged as one transaction over several logs.
    #[napi]
    pub fn commit(
        &self,
        env: &Env,
        logs: Vec<ClassInstance<'_, NativeLog>>,
        mut staged: Uint8ArraySlice<'_>,
        bytes: u32,
        time: f64,
    ) -> Result<()> {
        let logs: Vec<_> = logs.iter().map(|log| log.log.clone()).collect();
        // SAFETY: JavaScript is in this call and touches the area only after it.
        let area = unsafe { staged.as_mut() };
        self.shelf.store(|store| {
            let written = append::together(store, &logs, area, bytes as usize, time);
            written.map(drop).map_err(|error| commit(&error))
        })?;
        housekeeping::grew(env, &self.shelf, bytes);
        Ok(())
    }

    /// What opening it found; undefined of a store that is only read, or has no files.
    #[napi]
    pub fn recovery(&self) -> Option<RecoveryRow> {
        self.shelf.recovered.as_ref().map(RecoveryRow::from)
    }

    /// Spans that were damaged when it was opened, and, of one that is written, those that reads came upon
    /// since.
    #[napi]
    pub fn damage(&self) -> Result<Vec<DamageRow>> {
        Ok(self.shelf.damage()?.iter().map(DamageRow::from).collect())
    }

    #[napi]
    pub fn stats(&self) -> Result<StatsRow> {
        let stats = self.shelf.store(|store| Ok(store.stats()))?;
        Ok(StatsRow {
            logs: stats.logs as f64,
            segments: stats.segments as f64,
            segment_bytes: stats.segment_bytes as f64,
            settled_bytes: stats.settled_bytes as f64,
            mapped_bytes: stats.mapped_bytes as f64,
            staged_end: stats.staged_end as f64,
            durable: stats.durable as f64,
            index_bytes: stats.index_bytes as f64,
            batches: stats.batches as f64,
            batch_bytes: stats.batch_bytes as f64,
            entries: stats.entries as f64,
            rotations: stats.rotations as f64,
            purges: stats.purges as f64,
            purged_bytes: stats.purged_bytes as f64,
            live_bytes: stats.live_bytes as f64,
            freed_bytes: stats.freed_bytes as f64,
            failures: stats.failures as f64,
            transactions: stats.transactions as f64,
            failed: stats.failed,
        })
    }

    /// Waits, on this thread, until everything up to a ticket lasts.
    #[napi]
    pub fn persist(&self, ticket: f64) -> Result<()> {
        self.shelf.enter_own()?.persist(ticket as u64).map_err(|error| commit(&error))
    }

    /// Lets go of the oldest entries, or of whole logs.
    #[napi]
    pub fn purge<'e>(
        &self,
        env: &'e Env,
        log: Option<String>,
        before: Option<f64>,
        destroy: bool,
        count_entries: bool,
    ) -> Result<PromiseRaw<'e, Vec<PurgedRow>>> {
        let before = before.map(|time| time as u64);
        self.begin(env, |in_use| PurgeTask { in_use: Some(in_use), log, before, destroy, count_entries })
    }

    /// Begins a new segment.
    #[napi]
    pub fn rotate(&self) -> Result<()> {
        self.shelf.store(|store| store.rotate().map_err(|error| commit(&error)))
    }

    /// Housekeeping: a checkpoint when one is due, segments that no log needs. Whether there is more to do.
    #[napi]
    pub fn maintain<'e>(&self, env: &'e Env) -> Result<PromiseRaw<'e, bool>> {
        self.begin(env, |in_use| MaintainTask { in_use: Some(in_use) })
    }

    /// Looks at every byte of its files.
    #[napi]
    pub fn verify<'e>(&self, env: &'e Env) -> Result<PromiseRaw<'e, ReportRow>> {
        self.shelf.queue(|| begin(env, VerifyTask(VerifySubject::Open(Some(self.shelf.enter()?)))))
    }

    /// Writes a backup of the store to a directory.
    #[napi]
    pub fn backup<'e>(&self, env: &'e Env, to: String) -> Result<PromiseRaw<'e, BackupRow>> {
        self.shelf.queue(|| {
            let source = Source::Open(Some(self.shelf.enter()?));
            begin(env, CopyTask { source, to: to.into() })
        })
    }

    /// Closes this opening, and the store with the last one.
    #[napi]
    pub fn close<'e>(&self, env: &'e Env) -> Result<PromiseRaw<'e, ()>> {
        let end = |ending| begin(env, CloseTask { ending });
        match std::mem::replace(&mut *self.left.lock(), true) {
            true => end(Ending::Nothing),
            false => self.shelf.leave(end),
        }
    }

    /// Closes the store for every opening and removes its files.
    #[napi]
    pub fn destroy<'e>(&self, env: &'e Env) -> Result<PromiseRaw<'e, ()>> {
        if self.shelf.is_attached() {
            return Err(read_only());
        }
        *self.left.lock() = true;
        self.shelf.end(|closing| begin(env, DestroyTask { closing }))
    }

    /// Has the pool do what needs the store for writing.
    fn begin<'e, T: Task + 'static>(
        &self,
        env: &'e Env,
        task: impl FnOnce(InUse<Store>) -> T,
    ) -> Result<PromiseRaw<'e, T::JsValue>> {
        self.shelf.queue(|| begin(env, task(self.shelf.enter_own()?)))
    }
}

/// Has the pool do a task.
fn begin<T: Task + 'static>(env: &Env, task: T) -> Result<PromiseRaw<'_, T::JsValue>> {
    Ok(env.spawn(task)?.promise_object())
}

/// A listener for new logs.
#[napi]
pub struct NativeNewLogs {
    shelf: Arc<Shelf>,
    listener: u32,
}

#[napi]
impl NativeNewLogs {
    /// The name of the next one; null when none has come yet.
    #[napi]
    pub fn next(&self) -> Result<Option<String>> {
        let log = self.shelf.birth(self.listener)?;
        Ok(log.map(|log| String::from_utf8_lossy(log.name()).into_owned()))
    }

    #[napi]
    pub fn end(&self) {
        self.shelf.unlisten(self.listener);
    }
}

impl Drop for NativeNewLogs {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Opening {
    /// Collected, or its environment ended, without having been closed.
    fn drop(&mut self) {
        if !std::mem::replace(&mut *self.left.lock(), true) {
            drop(self.shelf.leave(|ending| ending));
        }
    }
}

pub struct CloseTask {
    ending: Ending,
}

impl Task for CloseTask {
    type Output = ();
    type JsValue = ();

    fn compute(&mut self) -> Result<()> {
        self.ending.finish()
    }

    fn resolve(&mut self, _env: Env, (): ()) -> Result<()> {
        Ok(())
    }
}

pub struct DestroyTask {
    /// Nothing when another thread closes it.
    closing: Option<Closing>,
}

impl Task for DestroyTask {
    type Output = ();
    type JsValue = ();

    fn compute(&mut self) -> Result<()> {
        self.closing.as_mut().ok_or_else(closed)?.destroy()
    }

    fn resolve(&mut self, _env: Env, (): ()) -> Result<()> {
        Ok(())
    }
}

pub struct PurgeTask {
    in_use: Option<InUse<Store>>,
    log: Option<String>,
    before: Option<u64>,
    destroy: bool,
    count_entries: bool,
}

/// What was purged of a log.
#[napi(object)]
pub struct PurgedRow {
    pub name: String,
    pub first: f64,
    pub bytes: f64,
    pub entries: Option<f64>,
    pub destroyed: bool,
}

impl Task for PurgeTask {
    type Output = Vec<Purged>;
    type JsValue = Vec<PurgedRow>;

    fn compute(&mut self) -> Result<Vec<Purged>> {
        let (log, before) = (self.log.as_deref().map(str::as_bytes), self.before);
        let (destroy, count_entries) = (self.destroy, self.count_entries);
        let purge = Purge { log, before, destroy, count_entries, time: now() };
        let store = self.in_use.take().ok_or_else(closed)?;
        store.purge_written(&purge).map_err(|error| commit(&error))
    }

    fn resolve(&mut self, _env: Env, purged: Vec<Purged>) -> Result<Vec<PurgedRow>> {
        let row = |purged: Purged| PurgedRow {
            name: String::from_utf8_lossy(&purged.name).into_owned(),
            first: purged.first as f64,
            bytes: purged.bytes as f64,
            entries: purged.entries.map(|entries| entries as f64),
            destroyed: purged.destroyed,
        };
        Ok(purged.into_iter().map(row).collect())
    }
}
