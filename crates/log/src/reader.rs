//! Readers of one log: in the process that writes it, or in one that is attached.
//!
//! Purpose: entries by time, offset or place, forwards and backwards, at the speed of memory. A reader owns
//! nothing that others use: it holds the log, its own copy of the segment list, and shares the store's words.
//!
//! What a query does in the steady state is load the word that says how far the log may be read and the version
//! of the segment list, search an index, and walk mapped bytes: no lock, no system call, on the segment that is
//! being written as on sealed ones. Locks are taken when the list of segments changed, when bytes are read that
//! this process has not verified, and to find where a log begins or goes on among others.

use crate::control::Control;
use crate::error::{Damage, ReadError};
use crate::extents::Extent;
use crate::format::SEGMENT_HEADER_BYTES;
use crate::log::Log;
use crate::query::{Entry, Query, Start};
use crate::view::{Segments, View};
use crate::walk::{Filter, Step, Walk};
use crate::{Offset, Position, Time, segment_of};
use smallvec::SmallVec;
use std::sync::Arc;
use thalweg_sync::gate::Gate;
use thalweg_sync::snapshot::Cached;

/// What readers see of a store, in whichever process.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) control: Arc<Control>,
    pub(crate) segments: Arc<Segments>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) home: Arc<dyn Home>,
}

/// What readers ask the store about, seldom.
pub(crate) trait Home: Send + Sync + std::fmt::Debug {
    /// Brings the list of segments up to date, in a process that does not keep it.
    fn look(&self) {}
    /// A task of this process is going to wait.
    fn task_waits(&self) {}
    /// No extent of any log is missing below this position.
    fn known(&self) -> Position;
    /// Where the newest checkpoint begins.
    fn checkpoint(&self) -> Position;
}

/// A stretch of offsets that one log holds: the reader's own, or what a fork inherits.
#[derive(Clone, Debug)]
struct Stretch {
    log: Arc<Log>,
    from: Offset,
    cut: Offset,
}

/// Reads one log. Cheap to clone; each thread has its own.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(crate) sight: Sight,
    log: Arc<Log>,
    cached: Cached<View>,
    /// Oldest first; the last one is the log's own.
    stretches: SmallVec<[Stretch; 1]>,
    progress: Progress,
}

impl Reader {
    pub(crate) fn new(sight: Sight, log: Arc<Log>) -> Reader {
        let cached = sight.segments.cached();
        let (stretches, progress) = (SmallVec::new(), Progress::default());
        let mut reader = Reader { sight, log, cached, stretches, progress };
        reader.look_back();
        reader
    }

    /// The log it reads.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Entries in the order of the log, up to what is visible now. Complexity: a search of the time index, or
    /// of the log's extents for a start by offset; then a few nanoseconds per entry.
    ///
    /// # Errors
    /// Each entry is a `Result`: after [`ReadError::Damaged`] there is nothing more until
    /// [`Entries::resume`].
    #[inline]
    pub fn entries(&mut self, query: &Query) -> Entries<'_> {
        let (walk, filter, stretch) = self.begin(query);
        self.progress = Progress::at(walk, stretch);
        let lineage = Lineage { sight: &self.sight, view: self.cached.value(), stretches: &self.stretches };
        let mut run = Run { bytes: &[], at: walk.at, number: walk.number, filter };
        let mut first = walk;
        // Whatever else it comes to is found again, and said, by the first step.
        if let Ok(true) = first.more(lineage.view) {
            (run.bytes, run.at, run.number) = (first.bytes(lineage.view), first.at, first.number);
            self.progress.walk = first;
        }
        Entries { run, lineage, progress: &mut self.progress }
    }

    /// How far one may read now.
    #[inline]
    pub(crate) fn limit(&self, uncommitted: bool) -> Position {
        if uncommitted { self.sight.control.written() } else { self.sight.control.visible() }
    }

    /// Takes notice of segments that came and went and of what was purged.
    #[inline]
    pub(crate) fn refresh(&mut self) -> bool {
        self.sight.home.look();
        let changed = self.sight.segments.refresh(&mut self.cached);
        if changed {
            self.look_back();
        }
        changed
    }

    pub(crate) fn lineage(&self) -> Lineage<'_> {
        Lineage { sight: &self.sight, view: self.cached.value(), stretches: &self.stretches }
    }

    pub(crate) fn view(&self) -> &View {
        self.cached.value()
    }

    /// Finds which logs hold what this one inherits.
    #[cold]
    fn look_back(&mut self) {
        self.stretches.clear();
        let mut log = self.log.clone();
        let mut cut = Offset::MAX;
        loop {
            let (base, first, parent) = log.lock().origin();
            let from = first.max(base);
            if from < cut {
                self.stretches.push(Stretch { log: log.clone(), from, cut });
            }
            match parent {
                Some(parent) if first < base => (log, cut) = (parent, cut.min(base)),
                _ => break,
            }
        }
        self.stretches.reverse();
    }

    /// Where a query begins, and what it takes.
    #[inline]
    pub(crate) fn begin(&mut self, query: &Query) -> (Walk, Filter, usize) {
        let limit = self.limit(query.uncommitted);
        self.refresh();
        let first = &self.stretches[0];
        let mut filter = Filter::new(first.log.id(), first.from, first.cut);
        let (since, exact) = match query.start {
            Start::Time(time) => (time, false),
            Start::After(time) => (time.saturating_add(1), false),
            Start::Exact(time) => (time, true),
            _ => return self.begin_elsewhere(query, filter, limit),
        };
        filter.times(since, query.end, exact, self.sight.control.lateness());
        let walk = self.walk_from_time(since, limit);
        let stretch =
            if self.stretches.len() == 1 { 0 } else { self.stretch_at(walk.position(), &mut filter) };
        (walk, filter, stretch)
    }

    fn begin_elsewhere(&self, query: &Query, mut filter: Filter, limit: Position) -> (Walk, Filter, usize) {
        if query.end.is_some() {
            filter.times(0, query.end, false, self.sight.control.lateness());
        }
        let start = match query.start {
            Start::Offset(offset) => {
                filter.from = filter.from.max(offset);
                self.lineage().position_of(offset)
            }
            Start::Tail => limit,
            Start::Checkpoint => self.sight.home.checkpoint(),
            _ => self.lineage().position_of(self.stretches[0].from),
        };
        let start = start.min(limit);
        let stretch = self.stretch_at(start, &mut filter);
        (Walk::at(self.view(), start, limit), filter, stretch)
    }

    /// A walk before which every entry is older.
    #[inline]
    fn walk_from_time(&self, time: Time, limit: Position) -> Walk {
        let view = self.view();
        let place = view.place_of_time(time);
        match view.all().get(place) {
            Some(segment) if segment.header.number <= segment_of(limit) => {
                // Without memory for an index the walk begins at the beginning.
                let index = segment.index(segment.end(limit));
                let at = index.map_or(SEGMENT_HEADER_BYTES, |index| index.seek(time));
                Walk { place, number: segment.header.number, at, end: 0, limit }
            }
            _ => Walk::at(view, limit, limit),
        }
    }

    /// The stretch that a walk from a position is in: the first with anything behind it.
    fn stretch_at(&self, start: Position, filter: &mut Filter) -> usize {
        let last = self.stretches.len() - 1;
        let ends_before = |stretch: &Stretch| {
            let inner = stretch.log.lock();
            let held = inner.extents.covering(stretch.from, stretch.cut);
            held.last().is_none_or(|extent| extent.position + u64::from(extent.span) <= start)
        };
        let passed =
            if last == 0 { 0 } else { self.stretches[..last].iter().take_while(|s| ends_before(s)).count() };
        let stretch = &self.stretches[passed];
        filter.go_on(stretch.log.id(), stretch.cut);
        passed
    }
}

/// What a walk needs to know of the logs it goes through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lineage<'r> {
    sight: &'r Sight,
    pub(crate) view: &'r View,
    stretches: &'r [Stretch],
}

impl Lineage<'_> {
    /// Position of the first entry that holds an offset or a later one, or of one before it.
    fn position_of(&self, offset: Offset) -> Position {
        let holds = |stretch: &&Stretch| offset < stretch.cut;
        let first = self.stretches.iter().position(|stretch| holds(&stretch)).unwrap_or(0);
        for stretch in &self.stretches[first..] {
            let known = self.sight.home.known();
            let inner = stretch.log.lock();
            let covering: &[Extent] = inner.extents.covering(offset, Offset::MAX);
            match covering.first() {
                Some(extent) => return extent.position,
                // Whatever comes will lie behind what is written.
                None if stretch.cut == Offset::MAX => return known,
                None => {}
            }
        }
        self.sight.home.known()
    }

    /// Goes on with what the next log of the lineage holds; `false` behind the last one.
    pub(crate) fn next_stretch(&self, stretch: &mut usize, filter: &mut Filter, walk: &mut Walk) -> bool {
        let Some(next) = self.stretches.get(*stretch + 1) else { return false };
        *stretch += 1;
        filter.go_on(next.log.id(), next.cut);
        // The walk may have passed it on its way to the place where the ancestor ends.
        walk.go(self.view, self.position_of(next.from));
        true
    }

    /// What a step means here: whatever ends an ancestor ends what is inherited from it.
    pub(crate) fn here(&self, step: Step, stretch: usize, filter: &Filter) -> Step {
        let inherited = stretch + 1 < self.stretches.len();
        match step {
            Step::Closed | Step::Deleted if inherited => Step::Cut,
            Step::End | Step::Blank | Step::Foreign if inherited && filter.reached_cut() => Step::Cut,
            step => step,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.stretches.len()
    }

    /// Has the filter take what one of the stretches holds.
    pub(crate) fn select(&self, stretch: usize, filter: &mut Filter) -> usize {
        filter.go_on(self.stretches[stretch].log.id(), self.stretches[stretch].cut);
        stretch
    }

    /// Position in front of everything that a stretch holds.
    pub(crate) fn begins(&self, stretch: usize) -> Position {
        self.position_of(self.stretches[stretch].from)
    }

    /// Goes back to what the log before in the lineage holds: the position at which that ends. `None` before
    /// the first one of interest.
    pub(crate) fn previous(
        &self,
        stretch: &mut usize,
        first: usize,
        filter: &mut Filter,
    ) -> Option<Position> {
        if *stretch <= first {
            return None;
        }
        *stretch = self.select(*stretch - 1, filter);
        let held = &self.stretches[*stretch];
        let inner = held.log.lock();
        let last = inner.extents.covering(held.from, held.cut).last().copied();
        last.map(|extent| extent.position + u64::from(extent.span)).or(Some(0))
    }

    /// Where the last bytes of this log in front of a position end, when that is further back.
    pub(crate) fn leap_back(&self, stretch: usize, here: Position) -> Option<Position> {
        let inner = self.stretches[stretch].log.lock();
        let end = inner.extents.before(here).unwrap_or(0);
        (end < here).then_some(end)
    }

    /// Where this log goes on behind a long stretch of others.
    pub(crate) fn leap(&self, stretch: usize, walk: &mut Walk) {
        let known = self.sight.home.known();
        let here = walk.position();
        let inner = self.stretches[stretch].log.lock();
        let next = inner.extents.behind(here).unwrap_or(known);
        drop(inner);
        walk.leap(self.view, next.min(walk.limit));
    }

    /// Whether offsets are missing because they were purged.
    pub(crate) fn is_purged(&self, stretch: usize, below: Offset) -> bool {
        self.stretches[stretch].log.lock().first >= below
    }
}

/// How far a walk through a log has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) walk: Walk,
    pub(crate) stretch: usize,
    /// Bytes that had been purged.
    pub(crate) skipped: u64,
    pub(crate) ended: Option<Ended>,
    /// Everything was seen that there was.
    over: bool,
}

/// Why nothing more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The log is closed and everything in it was read.
    Closed,
    /// The log was deleted.
    Deleted,
    /// Damage is in the way; `resume` goes on behind it.
    Damaged,
}

impl Progress {
    pub(crate) fn at(walk: Walk, stretch: usize) -> Progress {
        Progress { walk, stretch, ..Progress::default() }
    }

    /// Whatever a run came to but an entry: finds the next run. `false` when there is none for now.
    #[cold]
    #[inline(never)]
    pub(crate) fn turn(
        &mut self,
        lineage: Lineage<'_>,
        filter: &mut Filter,
        step: Step,
    ) -> Result<bool, ReadError> {
        let view = lineage.view;
        let more = match lineage.here(step, self.stretch, filter) {
            Step::Found(_) => Ok(true),
            Step::End => self.walk.more(view),
            Step::Blank if self.walk.next_segment(view) => self.walk.more(view),
            Step::Cut => {
                self.walk.end = 0;
                match lineage.next_stretch(&mut self.stretch, filter, &mut self.walk) {
                    true => self.walk.more(view),
                    false => Ok(false),
                }
            }
            Step::Foreign => {
                lineage.leap(self.stretch, &mut self.walk);
                self.walk.more(view)
            }
            Step::Gap(from, to) if lineage.is_purged(self.stretch, to) => {
                self.skipped += to - from;
                Ok(true)
            }
            Step::Gap(..) => Err(self.gap()),
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
        more.inspect_err(|_| {
            self.ended = Some(Ended::Damaged);
            filter.jump();
        })
    }

    /// An entry is missing where none was purged.
    fn gap(&self) -> ReadError {
        let (file, from) = (crate::segment::file_name(self.walk.number), self.walk.position());
        ReadError::Damaged(Box::new(Damage { file, from, to: from, logs: None }))
    }

    /// Goes on behind damage.
    pub(crate) fn resume(&mut self) {
        if self.ended == Some(Ended::Damaged) {
            self.ended = None;
        }
    }
}

/// Entries of a query, oldest first.
#[derive(Debug)]
pub struct Entries<'r> {
    run: Run<'r>,
    lineage: Lineage<'r>,
    progress: &'r mut Progress,
}

/// The bytes at hand, and what is taken of them.
#[derive(Debug)]
struct Run<'r> {
    bytes: &'r [u8],
    at: u32,
    number: u32,
    filter: Filter,
}

impl Entries<'_> {
    /// Goes on behind damage, with what follows it. Without it an iteration that met damage has ended: a
    /// transaction is not to be taken for whole because its missing half was passed over in silence.
    pub fn resume(&mut self) {
        self.progress.resume();
    }

    /// Why nothing more comes, when that is for good.
    pub fn ended(&self) -> Option<Ended> {
        self.progress.ended
    }

    /// Payload bytes that had been purged before this iteration came to them.
    pub fn skipped_bytes(&self) -> u64 {
        self.progress.skipped
    }
}

impl<'r> Iterator for Entries<'r> {
    type Item = Result<Entry<'r>, ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Result<Entry<'r>, ReadError>> {
        if let Some(found) = self.run.filter.plain(self.run.bytes, &mut self.run.at) {
            return Some(Ok(found.entry(self.run.number, self.run.bytes)));
        }
        self.step()
    }
}

impl<'r> Entries<'r> {
    /// The next entry, wherever it is, for an iteration that has come to anything but a plain one.
    #[inline(never)]
    fn step(&mut self) -> Option<Result<Entry<'r>, ReadError>> {
        let (run, progress) = (&mut self.run, &mut *self.progress);
        loop {
            if progress.over || progress.ended.is_some() {
                return None;
            }
            let found = match run.filter.step(run.bytes, &mut run.at) {
                Step::Found(found) => return Some(Ok(found.entry(run.number, run.bytes))),
                Step::Over => Ok(false),
                step => {
                    progress.walk.at = run.at;
                    progress.turn(self.lineage, &mut run.filter, step)
                }
            };
            let walk = &progress.walk;
            match found {
                Ok(true) => {
                    (run.bytes, run.at, run.number) = (walk.bytes(self.lineage.view), walk.at, walk.number)
                }
                Ok(false) => progress.over = true,
                Err(error) => {
                    // What could be read is behind us: nothing is left of this run.
                    (run.bytes, run.at) = (&[], walk.at);
                    return Some(Err(error));
                }
            }
        }
    }
}
