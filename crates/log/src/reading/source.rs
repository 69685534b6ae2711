//! Where a reader's entries come from: the store's words and segments, and the logs that a log inherits from.
//!
//! Purpose: what readers share with the store they read, in this process or another, and where in it a log's
//! offsets lie. Owns the reader's copy of the segment list. Reading takes locks here and nowhere else: when
//! the list of segments changed, to find where a log begins or goes on among others, and to find out whether
//! it had ended by a position that a reader leapt over.

use crate::control::Control;
use crate::entry_frame::Pace;
use crate::error::{Damage, ReadError};
use crate::extents::Extent;
use crate::fork::{LineagePart, lineage_parts};
use crate::format::SEGMENT_HEADER_BYTES;
use crate::index::Line;
use crate::log::Log;
use crate::places::Unfolder;
use crate::progress::{Ended, NotKnownYet};
use crate::runs::RunEnd;
use crate::segment::file_name;
use crate::view::{Segments, View};
use crate::walk::{Filter, Step, Walk, Wanted};
use crate::{LogId, Offset, Position, Time, segment_of};
use smallvec::SmallVec;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thalweg_sync::gate::Gate;
use thalweg_sync::snapshot::Cached;

/// What readers see of a store, in whichever process.
#[derive(Clone, Debug)]
pub(crate) struct ReadContext {
    pub(crate) control: Arc<Control>,
    pub(crate) segments: Arc<Segments>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) access: Arc<dyn StoreAccess>,
}

impl ReadContext {
    /// Sleeps until `is_ready` answers true or the time is over; answers whether it did. In a process that is
    /// attached it also answers true once the store is gone.
    pub(crate) fn wait(&self, timeout: Option<Duration>, mut is_ready: impl FnMut() -> bool) -> bool {
        self.access.wait(&self.gate, timeout, &mut is_ready)
    }

    /// Brings what is known of the logs up to a position, as far as that is visible.
    pub(crate) fn learn(&self, position: Position) -> Result<(), ReadError> {
        match self.access.known() < position {
            true => self.access.learn().map_err(unlisted),
            false => Ok(()),
        }
    }

    /// How a log ended, for a reader that did not meet every entry in front of `position`. The caller has
    /// brought what is known of the logs up to there ([`ReadContext::learn`]).
    pub(crate) fn ended(&self, log: &Log, position: Position) -> Result<Option<Ended>, NotKnownYet> {
        if self.access.known() < position {
            return Err(NotKnownYet);
        }
        log.lock().ended_by(position)
    }
}

/// The error of a read that cannot find out which segments there are, or what became of the logs in them.
pub(crate) fn unlisted(error: io::Error) -> ReadError {
    ReadError::Io { file: "the list of segments".into(), why: error.to_string() }
}

/// What readers ask of the store now and then: the process that writes it and one that is attached answer
/// differently.
pub(crate) trait StoreAccess: Send + Sync + std::fmt::Debug {
    /// Number of the opening, of a store or an attachment, that its logs carry.
    fn opening(&self) -> u32;
    /// Whether the list of segments is kept by another process.
    fn follows(&self) -> bool {
        false
    }
    /// Whether the list of segments is the present one.
    fn is_listed(&self) -> bool {
        true
    }
    /// Brings the list of segments up to date, in a process that does not keep it.
    fn list(&self) -> io::Result<()> {
        Ok(())
    }
    /// Brings what is known of the logs up to date, in a process that does not keep it.
    fn learn(&self) -> io::Result<()> {
        Ok(())
    }
    /// See [`ReadContext::wait`].
    fn wait(&self, gate: &Gate, timeout: Option<Duration>, is_ready: &mut dyn FnMut() -> bool) -> bool {
        gate.wait(timeout, is_ready)
    }
    /// The store was moved or removed, so that nothing will wake a sleeper. Only in a process that is
    /// attached.
    fn is_gone(&self) -> bool {
        false
    }
    /// Called before a task of this process waits. Fails when nothing would wake it.
    fn task_waits(&self) -> io::Result<()> {
        Ok(())
    }
    /// True once nothing will be committed any more.
    fn is_over(&self) -> bool {
        false
    }
    /// A reader came upon damage. The caller holds no lock.
    fn came_upon(&self, _damage: &Damage) {}
    /// Below this position the extents of all logs are known.
    fn known(&self) -> Position;
    /// Where the newest checkpoint begins.
    fn checkpoint(&self) -> io::Result<Position>;
}

/// A log and everything needed to read it.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) context: ReadContext,
    log: Arc<Log>,
    /// Another process keeps the list of segments.
    follows: bool,
    /// The log belongs to another store, or to another opening of this one.
    is_other: bool,
    cached: Cached<View>,
    /// Per segment, by its index in the view: what the next search for a time starts its guess from.
    lines: Vec<Line>,
    /// Oldest first; the last one is the log's own. What lies below `covered` may be in none of them: a
    /// lineage may be long, and who begins at an offset wants only what lies behind it.
    parts: SmallVec<[LineagePart; 1]>,
    covered: Offset,
}

impl Source {
    pub(crate) fn new(context: ReadContext, log: Arc<Log>) -> Source {
        let cached = context.segments.cached();
        let (covered, follows) = (Offset::MAX, context.access.follows());
        let parts = lineage_parts(&log, covered);
        let is_other = log.lock().opening != context.access.opening();
        Source { context, log, follows, is_other, cached, lines: Vec::new(), parts, covered }
    }

    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Notes the damage that a read failed for.
    #[cold]
    pub(crate) fn failed(&self, error: &ReadError) {
        if let ReadError::Damaged(damage) = error {
            self.context.access.came_upon(damage);
        }
    }

    /// Whether nothing comes any more because the store was moved or removed where another process keeps it.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.follows && self.context.access.is_gone()
    }

    /// How far one may read now.
    #[inline]
    pub(crate) fn limit(&self, uncommitted: bool) -> Position {
        if uncommitted { self.context.control.file_end() } else { self.context.control.visible() }
    }

    /// The error where an offset is missing that was not purged; `here` is what the reader met instead. It
    /// names the damage that the log is known to have between what comes before the offset and `here`;
    /// failing that, a span from where the offset should lie, if that is known, or from `here`.
    #[cold]
    pub(crate) fn missing(&self, offset: Offset, here: Position) -> ReadError {
        let parts = lineage_parts(&self.log, 0);
        let of = |offset: Offset| Some(self.position_among(&parts, offset)).filter(|at| *at < here);
        let before = offset.checked_sub(1).and_then(of).unwrap_or(0);
        let known = self.log.lock().damage().filter(|damage| (before..=here).contains(&damage.from)).cloned();
        let from = of(offset).unwrap_or(here);
        let unknown = || Damage::at(file_name(segment_of(from)), from).up_to(here);
        ReadError::Damaged(Box::new(known.unwrap_or_else(unknown)))
    }

    /// Takes over segments that came and went, and what was purged; answers whether anything changed. If it
    /// fails, the view stays as it was, and may end in front of what is visible by now.
    #[inline]
    pub(crate) fn refresh(&mut self) -> Result<bool, ReadError> {
        self.list()?;
        let changed = self.context.segments.refresh(&mut self.cached);
        if changed {
            self.parts = lineage_parts(&self.log, self.covered);
            self.lines.clear();
        }
        Ok(changed)
    }

    /// Has the parts of the lineage at hand that hold what is shown from an offset on.
    #[inline]
    pub(crate) fn cover(&mut self, from: Offset) {
        if from < self.covered {
            (self.parts, self.covered) = (lineage_parts(&self.log, from), from);
        }
    }

    /// Asks the segments that the next refresh would take over. A walk that is under way has a place in the
    /// list that it began in, so that one stays.
    #[inline]
    pub(crate) fn ask_present_view<T>(&self, ask: impl FnOnce(&View) -> T) -> Result<T, ReadError> {
        self.list()?;
        Ok(match self.context.segments.is_newer(&self.cached) {
            true => ask(&self.context.segments.latest()),
            false => ask(self.view()),
        })
    }

    /// Brings the list of segments up to date, for every reader of this process.
    #[inline]
    fn list(&self) -> Result<(), ReadError> {
        match (self.is_other, self.follows) {
            (true, _) => Err(ReadError::OtherStore),
            (false, true) => self.context.access.list().map_err(unlisted),
            (false, false) => Ok(()),
        }
    }

    /// Whether segments came or went, or something was purged, since the view was taken over: it may keep
    /// segments mapped that were removed. Complexity: one load; three in a process that is attached.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        self.context.segments.is_newer(&self.cached) || self.follows && !self.context.access.is_listed()
    }

    #[inline]
    pub(crate) fn view(&self) -> &View {
        self.cached.value()
    }

    fn unfolder(&self) -> Unfolder<'_> {
        Unfolder { view: self.view(), limit: self.limit(true) }
    }

    /// The log and the first offset that it holds itself, unless parts that it inherits are at hand, too.
    #[inline]
    pub(crate) fn own(&self) -> Option<(LogId, Offset)> {
        match &self.parts[..] {
            [own] => Some((own.log.id(), own.from)),
            _ => None,
        }
    }

    /// A filter for what the oldest part at hand holds.
    #[inline]
    pub(crate) fn filter(&self, wanted: Wanted, pace: Pace) -> Filter {
        let first = &self.parts[0];
        Filter::new(first.log.id(), first.from, first.cut, wanted, pace)
    }

    /// A walk that begins where all earlier entries are older than `time`. `end` is the query's, if it has
    /// one.
    #[inline]
    pub(crate) fn walk_from_time(&mut self, time: Time, end: Option<Time>, limit: Position) -> Walk {
        let view = self.cached.value();
        let place = view.place_of_time(time);
        match view.all().get(place) {
            Some(segment) if segment.is_lost() => {
                let (number, at) = (segment.header.number, SEGMENT_HEADER_BYTES);
                Walk { place, number, at, limit, ..Walk::default() }
            }
            Some(segment) if segment.header.number <= segment_of(limit) => {
                let bound = segment.end(limit);
                // Without memory for an index the walk begins at the beginning.
                let line = line_at(&mut self.lines, place);
                // The search's result is guessed first, so that its cache misses and those of the walk are
                // waited for together.
                let about = line.about(time, end.unwrap_or(time));
                thalweg_sys::hint::prefetch_run(segment.region().bytes(0..bound), about, ABOUT_BYTES_MAX);
                let at = segment.index(bound).map_or(SEGMENT_HEADER_BYTES, |index| index.seek(time, line));
                let RunEnd { end, shift } = segment.run(at, bound);
                let end = if segment.needs_no_look(at, end) { end } else { 0 };
                Walk { place, number: segment.header.number, at, end, shift, limit }
            }
            _ => Walk::at(view, limit, limit),
        }
    }

    /// The part that a walk from a position is in: the first with anything behind it.
    #[inline]
    pub(crate) fn part_at(&self, start: Position, filter: &mut Filter) -> usize {
        match self.parts.len() - 1 {
            0 => 0,
            last => self.part_of(last, start, filter),
        }
    }

    #[cold]
    fn part_of(&self, last: usize, start: Position, filter: &mut Filter) -> usize {
        let ends_before = |part: &LineagePart| self.end_of(part).is_none_or(|end| end <= start);
        let passed = self.parts[..last].iter().take_while(|part| ends_before(part)).count();
        self.select(passed, filter)
    }

    /// Position of the first entry that holds an offset, which is [covered](Source::cover), or a later one. A
    /// lower bound: it may be that of an earlier entry.
    pub(crate) fn position_of(&self, offset: Offset) -> Position {
        self.position_among(&self.parts, offset)
    }

    fn position_among(&self, parts: &[LineagePart], offset: Offset) -> Position {
        let first = parts.iter().position(|part| offset < part.cut).unwrap_or(0);
        for part in &parts[first..] {
            let known = self.context.access.known();
            let covering = first_of(&part.log, offset);
            match covering {
                Some(extent) => return self.unfolder().holding(part.log.id(), &extent, offset),
                // Whatever comes will lie behind what is written.
                None if part.cut == Offset::MAX => return known,
                None => {}
            }
        }
        self.context.access.known()
    }

    /// Finds the part again that a walk is in, after the lineage may have changed. One that is gone was
    /// purged: the walk then goes on at the first that is left.
    pub(crate) fn settle(&self, part: &mut usize, filter: &mut Filter, walk: &mut Walk) {
        match self.parts.iter().position(|known| known.log.id() == filter.log) {
            Some(place) => {
                *part = place;
                walk.locate(self.view());
            }
            None => {
                *part = self.select(0, filter);
                walk.go(self.view(), self.begins(0));
            }
        }
    }

    /// Where the log ended when the store could be read up to `limit`, or later; `None` where that is not
    /// known yet, in a process that is attached.
    pub(crate) fn tail(&self, limit: Position, uncommitted: bool) -> Option<Offset> {
        let is_known = self.context.access.known() >= limit;
        let inner = self.log.lock();
        is_known.then_some(if uncommitted { inner.tail } else { inner.tail_visible })
    }

    /// How the log ended, for a reader that did not meet every entry in front of `position`.
    pub(crate) fn ended(&self, position: Position) -> Result<Option<Ended>, NotKnownYet> {
        self.context.ended(&self.log, position)
    }

    /// Goes on with what the next log of the lineage holds; `false` behind the last one.
    pub(crate) fn next_part(&self, part: &mut usize, filter: &mut Filter, walk: &mut Walk) -> bool {
        let Some(next) = self.parts.get(*part + 1) else { return false };
        *part += 1;
        filter.go_on(next.log.id(), next.cut);
        // The walk may have passed it on its way to the place where the ancestor ends.
        walk.go(self.view(), self.position_of(next.from));
        true
    }

    /// What a step means in this part of the lineage: the end of an ancestor is the end of what is inherited
    /// from it.
    pub(crate) fn here(&self, step: Step, part: usize, filter: &Filter) -> Step {
        let inherited = part + 1 < self.parts.len();
        match step {
            Step::Closed | Step::Deleted if inherited => Step::Cut,
            Step::End | Step::Blank | Step::Foreign if inherited && filter.reached_cut() => Step::Cut,
            step => step,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.parts.len()
    }

    /// Has the filter take what one of the parts holds.
    pub(crate) fn select(&self, part: usize, filter: &mut Filter) -> usize {
        filter.go_on(self.parts[part].log.id(), self.parts[part].cut);
        part
    }

    /// Where a part ends, if it holds anything.
    fn end_of(&self, part: &LineagePart) -> Option<Position> {
        let last = part.log.lock().extents.covering(part.from, part.cut).last().copied();
        last.map(|extent| self.unfolder().end_below(part.log.id(), &extent, part.cut))
    }

    /// Position in front of everything that a part holds.
    pub(crate) fn begins(&self, part: usize) -> Position {
        self.position_of(self.parts[part].from)
    }

    /// Goes back to the log in front of this one in the lineage, and answers the position at which its part
    /// ends. `None`: `first` was reached.
    pub(crate) fn previous(&self, part: &mut usize, first: usize, filter: &mut Filter) -> Option<Position> {
        if *part <= first {
            return None;
        }
        *part = self.select(*part - 1, filter);
        Some(self.end_of(&self.parts[*part]).unwrap_or(0))
    }

    /// Where the last of this log's batches in front of `here` ends, if that is further back, and known. Of
    /// a log that was deleted nothing is.
    pub(crate) fn leap_back(&self, part: usize, here: Position) -> Option<Position> {
        if self.context.access.known() < here || self.is_deleted() {
            return None;
        }
        let log = &self.parts[part].log;
        let last = log.lock().extents.before(here).copied();
        let end = last.map_or(0, |extent| self.unfolder().before(log.id(), &extent, here));
        (end < here).then_some(end)
    }

    /// Moves the walk to this log's next batch, behind a long run of other logs' batches.
    pub(crate) fn leap(&self, part: usize, walk: &mut Walk) {
        let known = self.context.access.known();
        let here = walk.position();
        let log = &self.parts[part].log;
        let next = log.lock().extents.behind(here).copied();
        let next = next.map_or(known, |extent| self.unfolder().behind(log.id(), &extent, here));
        walk.leap(self.view(), next.min(walk.limit));
    }

    /// Whether readers see that the log was deleted.
    pub(crate) fn is_deleted(&self) -> bool {
        self.log.lock().is_deleted()
    }

    /// Whether everything below an offset was purged from this log, by itself or with it. What an ancestor
    /// purges stays as far as it is inherited.
    pub(crate) fn is_purged(&self, below: Offset) -> bool {
        let inner = self.log.lock();
        inner.first_visible >= below || inner.is_deleted()
    }
}

/// The first of a log's extents that holds an offset or a later one.
fn first_of(log: &Log, offset: Offset) -> Option<Extent> {
    log.lock().extents.covering(offset, Offset::MAX).first().copied()
}

/// Most bytes that are fetched ahead for a query: more than a processor waits for at once.
const ABOUT_BYTES_MAX: usize = 2048;

/// The line for the segment at an index of the view.
#[inline]
fn line_at(lines: &mut Vec<Line>, place: usize) -> &mut Line {
    if place >= lines.len() {
        lines.resize(place + 1, Line::default());
    }
    &mut lines[place]
}
