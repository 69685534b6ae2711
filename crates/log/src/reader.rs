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
use crate::error::ReadError;
use crate::extents::Extent;
use crate::format::SEGMENT_HEADER_BYTES;
use crate::log::Log;
use crate::query::{Entry, Query, Start};
use crate::segment::Segment;
use crate::view::{Segments, View};
use crate::walk::{Filter, Step, Walk};
use crate::{Offset, Position, Time, position, segment_of};
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
    pub(crate) cached: Cached<View>,
    /// Oldest first; the last one is the log's own.
    stretches: SmallVec<[Stretch; 1]>,
}

impl Reader {
    pub(crate) fn new(sight: Sight, log: Arc<Log>) -> Reader {
        let cached = sight.segments.cached();
        let mut reader = Reader { sight, log, cached, stretches: SmallVec::new() };
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
    pub fn entries(&mut self, query: &Query) -> Entries<'_> {
        let (walk, filter, stretch) = self.begin(query);
        Entries { reader: self, walk, filter, stretch, bytes: &[], stopped: None, skipped: 0 }
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
    pub(crate) fn begin(&mut self, query: &Query) -> (Walk, Filter, usize) {
        let limit = self.limit(query.uncommitted);
        self.refresh();
        let first = &self.stretches[0];
        let mut filter = Filter::new(first.log.id(), first.from, first.cut);
        let (since, exact) = match query.start {
            Start::Time(time) => (time, false),
            Start::After(time) => (time.saturating_add(1), false),
            Start::Exact(time) => (time, true),
            _ => (0, false),
        };
        if since > 0 || query.end.is_some() || exact {
            filter.times(since, query.end, exact, self.sight.control.lateness());
        }
        let start = match query.start {
            Start::Time(_) | Start::After(_) | Start::Exact(_) => self.position_of_time(since, limit),
            Start::First => self.position_of(self.stretches[0].from),
            Start::Offset(offset) => {
                filter.from = filter.from.max(offset);
                self.position_of(offset)
            }
            Start::Tail => limit,
            Start::Checkpoint => self.sight.home.checkpoint().min(limit),
        };
        let stretch = self.stretch_at(start, &mut filter);
        (Walk::at(self.view(), start.min(limit), limit), filter, stretch)
    }

    /// Position before which every entry is older.
    fn position_of_time(&self, time: Time, limit: Position) -> Position {
        let view = self.view();
        let place = view.place_of_time(time);
        let Some(segment) = view.all().get(place) else { return limit };
        let number = segment.header.number;
        if number > segment_of(limit) {
            return limit;
        }
        position(number, seek(segment, time, limit))
    }

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

    /// Goes on with what the next log of the lineage holds; `false` behind the last one.
    pub(crate) fn next_stretch(&self, stretch: &mut usize, filter: &mut Filter, walk: &mut Walk) -> bool {
        let Some(next) = self.stretches.get(*stretch + 1) else { return false };
        *stretch += 1;
        filter.go_on(next.log.id(), next.cut);
        walk.go(self.view(), self.position_of(next.from).min(walk.limit));
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

    /// Where this log goes on behind a long stretch of others.
    pub(crate) fn leap(&self, stretch: usize, walk: &mut Walk) {
        let known = self.sight.home.known();
        let here = walk.position();
        let inner = self.stretches[stretch].log.lock();
        let next = inner.extents.behind(here).unwrap_or(known);
        drop(inner);
        walk.leap(self.view(), next.min(walk.limit));
    }

    /// Whether offsets are missing because they were purged.
    pub(crate) fn is_purged(&self, stretch: usize, below: Offset) -> bool {
        self.stretches[stretch].log.lock().first >= below
    }
}

fn seek(segment: &Segment, time: Time, limit: Position) -> u32 {
    // Without memory for an index the walk begins at the beginning.
    segment.index(segment.end(limit)).map_or(SEGMENT_HEADER_BYTES, |index| index.seek(time))
}

/// Entries of a query, oldest first.
#[derive(Debug)]
pub struct Entries<'r> {
    reader: &'r Reader,
    walk: Walk,
    filter: Filter,
    stretch: usize,
    bytes: &'r [u8],
    stopped: Option<Stopped>,
    skipped: u64,
}

/// Why an iteration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// Everything was seen.
    Done,
    /// Damage: it may be resumed.
    Damaged,
}

impl Entries<'_> {
    /// Goes on behind damage, with what follows it. Without it an iteration that met damage has ended: a
    /// transaction is not to be taken for whole because its missing half was passed over in silence.
    pub fn resume(&mut self) {
        if self.stopped == Some(Stopped::Damaged) {
            self.stopped = None;
        }
    }

    /// Payload bytes that had been purged before this iteration came to them.
    pub fn skipped_bytes(&self) -> u64 {
        self.skipped
    }

    /// Whatever a run came to but an entry. `None`: look again.
    #[cold]
    fn turn(&mut self, step: Step) -> Option<Option<ReadError>> {
        let view = self.reader.view();
        let more = match self.reader.here(step, self.stretch, &self.filter) {
            Step::Found(_) => return None,
            Step::End => self.walk.more(view),
            Step::Blank => Ok(self.walk.next_segment(view))
                .and_then(|there| if there { self.walk.more(view) } else { Ok(false) }),
            Step::Cut => {
                self.walk.end = 0;
                Ok(self.reader.next_stretch(&mut self.stretch, &mut self.filter, &mut self.walk))
                    .and_then(|there| if there { self.walk.more(view) } else { Ok(false) })
            }
            Step::Foreign => {
                self.reader.leap(self.stretch, &mut self.walk);
                self.walk.more(view)
            }
            Step::Gap(from, to) if self.reader.is_purged(self.stretch, to) => {
                self.skipped += to - from;
                return None;
            }
            Step::Gap(..) => Err(gap(&self.walk)),
            Step::Deleted => {
                self.stopped = Some(Stopped::Done);
                return Some(Some(ReadError::Deleted));
            }
            Step::Over | Step::Closed => Ok(false),
        };
        self.bytes = self.walk.bytes(view);
        match more {
            Ok(true) => None,
            Ok(false) => {
                self.stopped = Some(Stopped::Done);
                Some(None)
            }
            Err(error) => {
                self.stopped = Some(Stopped::Damaged);
                self.filter.jump();
                Some(Some(error))
            }
        }
    }
}

/// An entry is missing where none was purged.
pub(crate) fn gap(walk: &Walk) -> ReadError {
    let (file, from) = (crate::segment::file_name(walk.number), walk.position());
    ReadError::Damaged(Box::new(crate::Damage { file, from, to: from, logs: None }))
}

impl<'r> Iterator for Entries<'r> {
    type Item = Result<Entry<'r>, ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Result<Entry<'r>, ReadError>> {
        loop {
            if self.stopped.is_some() {
                return None;
            }
            let step = self.filter.step(self.bytes, &mut self.walk.at);
            if let Step::Found(found) = step {
                return Some(Ok(found.entry(self.walk.number, self.bytes)));
            }
            if let Some(end) = self.turn(step) {
                return end.map(Err);
            }
        }
    }
}
