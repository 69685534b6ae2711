//! The walk over a log's entries: which frames are taken, and where the next run of bytes begins.
//!
//! Purpose: the one inner loop of every reader. [`Filter::step`] walks a run of verified, published bytes
//! flat, without a lock or a system call, and says what stopped it; [`Walk::more`] finds the next run, in
//! this segment or the next. Invariants: a walk never passes its limit, a position at which a batch ends;
//! every entry of the log is seen in the order of its offsets, and one that is missing is noticed, because
//! each must begin where the last one ended.

use crate::entry_frame::{EntryFrame, HEAD, Pace, is_last, lone};
use crate::error::ReadError;
use crate::format::{BATCH_HEADER_BYTES, BATCH_MAGIC, FRAME_HEADER_BYTES, Kind};
use crate::format::{SEGMENT_HEADER_BYTES, TOUCHED_BYTES, word16, word32, word64};
use crate::segment::Readable;
use crate::view::View;
use crate::{LogId, Offset, Position, Time, place_of, position, segment_of};

/// No offset in particular is expected: the next entry may begin anywhere.
const ANYWHERE: Offset = Offset::MAX;
/// After this many bytes of other logs' batches a walk asks the extents where its own log goes on.
const FOREIGN_BYTES_MAX: u32 = 256 << 10;

/// Which times are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Both ends included.
    since: Time,
    until: Time,
    /// An entry later than this proves that nothing the query takes can follow.
    stop: Time,
    lateness: Time,
    /// Nothing is taken before an entry of exactly `since`.
    exact: bool,
    /// The plain case of the two bounds, as one comparison: times from `lowest` on, `window` more at most.
    /// Only where `has_plain`.
    lowest: Time,
    window: Time,
    has_plain: bool,
}

impl Default for Wanted {
    /// All of them.
    fn default() -> Wanted {
        Wanted::taking(0, Time::MAX, false, 0)
    }
}

impl Wanted {
    /// Takes entries with `since <= time < end`, in a store where no entry's time lies more than `lateness`
    /// behind an earlier entry's.
    #[inline]
    pub(crate) fn of(since: Time, end: Option<Time>, exact: bool, lateness: Time) -> Wanted {
        match end {
            None => Wanted::taking(since, Time::MAX, exact, lateness),
            Some(0) => Wanted::taking(1, 0, false, lateness),
            Some(end) => Wanted::taking(since, end - 1, exact, lateness),
        }
    }

    #[inline]
    fn taking(since: Time, until: Time, exact: bool, lateness: Time) -> Wanted {
        let sought = if exact { since.min(until) } else { until };
        let has_plain = !exact && since <= until;
        let (lowest, window) = if has_plain { (since, until - since) } else { (Time::MAX, 0) };
        let stop = sought.saturating_add(lateness);
        Wanted { since, until, stop, lateness, exact, lowest, window, has_plain }
    }

    /// An entry of exactly the time was met: from there on entries of any time are taken.
    fn met(self) -> Wanted {
        Wanted::taking(0, self.until, false, self.lateness)
    }
}

/// Which frames are entries of the query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) log: LogId,
    /// Offsets taken: from `from` up to `cut`, where a fork branches off. Either may lie in the middle of an
    /// entry.
    pub(crate) from: Offset,
    pub(crate) cut: Offset,
    wanted: Wanted,
    over: bool,
    /// Offset at which the next entry of the log begins.
    next: Offset,
    /// Bytes of other logs since the last batch of this one.
    foreign: u32,
    pub(crate) pace: Pace,
}

/// What a walk over a run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Found(EntryFrame),
    /// The end of the run.
    End,
    /// The end of what the segment holds.
    Blank,
    /// An entry later than any that the query can take.
    Over,
    /// Offsets are missing: from the first, where the next entry should begin, to the second, where it does.
    Gap(Offset, Offset),
    /// The place where a fork branches off.
    Cut,
    /// A long stretch of other logs.
    Foreign,
    Closed,
    Deleted,
}

impl Filter {
    #[inline]
    pub(crate) fn new(log: LogId, from: Offset, cut: Offset, wanted: Wanted, pace: Pace) -> Filter {
        Filter { log, from, cut, wanted, over: false, next: ANYWHERE, foreign: 0, pace }
    }

    /// Takes over the store's present `lateness`; answers whether it grew.
    pub(crate) fn relax(&mut self, lateness: Time) -> bool {
        let Wanted { since, until, exact, lateness: known, .. } = self.wanted;
        self.wanted = Wanted::taking(since, until, exact, lateness);
        lateness > known
    }

    /// Goes on with the next log of a lineage, whose offsets begin where this one's end. The times taken
    /// stay.
    pub(crate) fn go_on(&mut self, log: LogId, cut: Offset) {
        if self.next != ANYWHERE {
            self.next = self.next.min(self.cut);
        }
        (self.log, self.cut) = (log, cut);
    }

    /// Never stops at an entry that is too late. For a walk that does not go forwards.
    pub(crate) fn never_over(&mut self) {
        self.wanted.stop = Time::MAX;
    }

    /// Lets the next entry begin at any offset: the walk goes on somewhere else.
    pub(crate) fn jump(&mut self) {
        self.next = ANYWHERE;
    }

    /// Requires the first entry to begin at the first offset taken, or before it: else that is a gap.
    pub(crate) fn expect_first(&mut self) {
        self.next = self.from;
    }

    /// Lets the next entry begin at an offset or before it: else what lies between is a gap.
    pub(crate) fn expect_up_to(&mut self, offset: Offset) {
        self.next = offset;
    }

    /// Expects offset 0 next, so that the next entry is reported as `Gap(0, its offset)`. For walks that do
    /// not go forwards.
    pub(crate) fn expect_nothing(&mut self) {
        self.next = 0;
    }

    /// The walk came to the cut, and `first` is where the first entry of its block begins. Answers whether
    /// that is in front of the cut. If so, nothing between the two is missing; if not, the log has no entry
    /// in front of the cut here.
    pub(crate) fn stop_at_cut(&mut self, first: Offset) -> bool {
        let is_own = first < self.cut;
        self.next = if is_own { self.cut } else { ANYWHERE };
        is_own
    }

    /// The end of the last entry met, taken or not. `None`: no entry was met since the filter was told to
    /// expect any offset or 0.
    pub(crate) fn came_to(&self) -> Option<Offset> {
        (self.next != ANYWHERE && self.next > 0).then_some(self.next)
    }

    /// Whether the entries met reach up to the cut.
    pub(crate) fn reached_cut(&self) -> bool {
        self.next != ANYWHERE && self.next >= self.cut
    }

    /// The next entry, if it is a plain one: it follows directly, in a batch of this log alone, in the middle
    /// of the query. All other cases are left to [`Filter::step`].
    #[inline(always)]
    pub(crate) fn plain(&mut self, bytes: &[u8], at: &mut u32) -> Option<EntryFrame> {
        let found = lone(bytes, *at, self.log)?;
        let end = found.offset.wrapping_add(u64::from(found.length));
        let inside = found.time.wrapping_sub(self.wanted.lowest) <= self.wanted.window
            && self.wanted.has_plain
            && found.offset >= self.from
            && end <= self.cut;
        // The first entry that a walk meets may begin anywhere.
        if !(inside && (found.offset == self.next || self.next == ANYWHERE)) {
            self.over = found.time > self.wanted.stop;
            return None;
        }
        *at = self.pace.next(&found);
        // Fetches the header after the next and the beginning of its payload, which is on another line half
        // of the time: they are in the cache when they are wanted, also where many walks take turns.
        let after_next = (*at + (*at - found.at)) as usize;
        thalweg_sys::hint::prefetch(bytes, after_next);
        thalweg_sys::hint::prefetch(bytes, after_next + HEAD);
        self.next = end;
        Some(found)
    }

    /// Takes plain entries that follow on the one before, which was taken, and folds each with a row of
    /// `rows`. This is the loop of [`Filter::plain`] with all that does not change in registers.
    #[inline(always)]
    pub(crate) fn plain_run<A, R>(
        &mut self,
        bytes: &[u8],
        at: &mut u32,
        rows: impl Iterator<Item = R>,
        initial: A,
        mut take: impl FnMut(A, R, &EntryFrame) -> A,
    ) -> A {
        let Filter { log, cut, .. } = *self;
        let Wanted { lowest, window, .. } = self.wanted;
        let (mut here, mut next, mut pace) = (*at, self.next, self.pace);
        let mut folded = initial;
        for row in rows {
            let foreseen = pace.foreseen(bytes, here, log);
            let Some(found) = foreseen.or_else(|| lone(bytes, here, log)) else { break };
            let end = found.offset.wrapping_add(u64::from(found.length));
            if found.offset != next || found.time.wrapping_sub(lowest) > window || end > cut {
                break;
            }
            folded = take(folded, row, &found);
            here = if foreseen.is_some() { here + pace.frame_bytes } else { pace.next(&found) };
            next = end;
        }
        (*at, self.next, self.pace) = (here, next, pace);
        folded
    }

    /// Passes over plain entries that are older than the first time taken.
    #[inline]
    pub(crate) fn skip_older(&mut self, bytes: &[u8], at: &mut u32) {
        if self.wanted.exact {
            return;
        }
        while let Some(found) = lone(bytes, *at, self.log) {
            if found.time >= self.wanted.since || found.offset != self.next && self.next != ANYWHERE {
                return;
            }
            *at = self.pace.next(&found);
            self.next = found.offset.wrapping_add(u64::from(found.length));
        }
    }

    /// Whether an entry was met after which the query can take nothing more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Walks `bytes`, which begin at the segment's first byte, from `at` to the next entry taken.
    pub(crate) fn step(&mut self, bytes: &[u8], at: &mut u32) -> Step {
        loop {
            let frame_at = *at;
            let Some(head) = bytes.get(frame_at as usize..).and_then(|rest| rest.first_chunk::<HEAD>())
            else {
                return Step::End;
            };
            let first = word64(head, 0);
            let length = first as u32;
            if length == BATCH_MAGIC {
                match batch(bytes, frame_at, self.log) {
                    Ours(next) => (*at, self.foreign) = (next, 0),
                    Foreign(next, length) => {
                        (*at, self.foreign) = (next, self.foreign.saturating_add(length))
                    }
                }
                if self.foreign > FOREIGN_BYTES_MAX {
                    self.foreign = 0;
                    return Step::Foreign;
                }
                continue;
            }
            // A length that no frame can have ends the walk of the run.
            let next_at = (frame_at + FRAME_HEADER_BYTES)
                .saturating_add(length.checked_next_multiple_of(8).unwrap_or(u32::MAX));
            if (first >> 32) as u8 != Kind::Data as u8 || word64(head, 8) != self.log {
                match other(head, self.log) {
                    Some(step) => return step,
                    None => *at = next_at,
                }
                continue;
            }
            let (offset, time) = (word64(head, 16), word64(head, 24));
            if offset > self.next && self.next != ANYWHERE {
                let missing = std::mem::replace(&mut self.next, ANYWHERE);
                return Step::Gap(missing, offset);
            }
            let end = offset.saturating_add(u64::from(length));
            (self.next, *at) = (end, next_at);
            let last = is_last(first);
            let found = EntryFrame { at: frame_at, skip: 0, length, offset, time, last };
            let Wanted { since, until, exact, .. } = self.wanted;
            if time < since || time > until || offset < self.from || end > self.cut || exact {
                match self.edge(found, end) {
                    Edge::Taken(found) => return Step::Found(found),
                    Edge::Passed => continue,
                    Edge::Stop(step) => {
                        *at = frame_at;
                        return step;
                    }
                }
            }
            return Step::Found(found);
        }
    }

    /// Decides about an entry at a bound of the query: of its offsets, of its times, or in front of an exact
    /// start.
    fn edge(&mut self, found: EntryFrame, end: Offset) -> Edge {
        if found.offset >= self.cut {
            return Edge::Stop(Step::Cut);
        }
        if found.time > self.wanted.stop {
            return Edge::Stop(Step::Over);
        }
        if end <= self.from {
            return Edge::Passed;
        }
        if self.wanted.exact && found.time == self.wanted.since {
            self.wanted = self.wanted.met();
        }
        let Wanted { since, until, exact, .. } = self.wanted;
        if exact || found.time < since || found.time > until {
            return Edge::Passed;
        }
        Edge::Taken(trimmed(found, self.from, end.min(self.cut)))
    }
}

/// What becomes of an entry at an edge.
enum Edge {
    Taken(EntryFrame),
    Passed,
    Stop(Step),
}

/// Where a batch is entered or passed over.
enum Batch {
    Ours(u32),
    Foreign(u32, u32),
}
use Batch::{Foreign, Ours};

/// Where to go on from a batch header. A batch of one other log is passed over whole.
fn batch(bytes: &[u8], at: u32, log: LogId) -> Batch {
    let rest =
        bytes.get(at as usize..).and_then(|rest| rest.first_chunk::<{ BATCH_HEADER_BYTES as usize + 8 }>());
    // A verified header is followed by all that it announces. If not, the run ends here.
    let Some(head) = rest else { return Ours(u32::MAX) };
    let touched = word16(head, 44);
    if touched == 1 && word64(head, BATCH_HEADER_BYTES as usize) != log {
        let length = word32(head, 4);
        return Foreign(at + length, length);
    }
    Ours(at + BATCH_HEADER_BYTES + u32::from(touched) * TOUCHED_BYTES)
}

/// What a frame that is no entry of the log means to its walk; `None`: nothing, the walk goes on behind it.
fn other(head: &[u8; HEAD], log: LogId) -> Option<Step> {
    if word64(head, 0) == 0 {
        return Some(Step::Blank);
    }
    if word64(head, 8) != log {
        return None;
    }
    match head[4] {
        kind if kind == Kind::Delete as u8 => Some(Step::Deleted),
        kind if kind == Kind::Close as u8 => Some(Step::Closed),
        _ => None,
    }
}

/// The part of an entry from one offset up to another.
fn trimmed(found: EntryFrame, from: Offset, end: Offset) -> EntryFrame {
    let skip = u32::try_from(from.saturating_sub(found.offset)).unwrap_or(0);
    let offset = found.offset + u64::from(skip);
    EntryFrame { skip, offset, length: u32::try_from(end - offset).unwrap_or(0), ..found }
}

/// Where a walk stands in a view, and the limit up to which it may go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    /// Index of the segment in the view, and its number.
    pub(crate) place: usize,
    pub(crate) number: u32,
    pub(crate) at: u32,
    /// End of the run at hand.
    pub(crate) end: u32,
    /// What is added, in wrapping arithmetic, to a byte of that run for its place in the segment.
    pub(crate) shift: u32,
    /// Where the walk ends for now.
    pub(crate) limit: Position,
}

impl Walk {
    pub(crate) fn at(view: &View, start: Position, limit: Position) -> Walk {
        let mut walk = Walk { limit, ..Walk::default() };
        walk.go(view, start);
        walk
    }

    pub(crate) fn position(&self) -> Position {
        self.position_of(self.at)
    }

    /// The position of a byte of the run at hand.
    #[inline(always)]
    pub(crate) fn position_of(&self, byte: u32) -> Position {
        position(self.number, byte.wrapping_add(self.shift))
    }

    /// Finds its segment again in a view that was replaced.
    pub(crate) fn locate(&mut self, view: &View) {
        self.go(view, self.position());
    }

    /// Goes to a position, forwards or back: the next log of a lineage begins wherever it was created. If the
    /// segment was removed, the walk goes to the beginning of the next one.
    pub(crate) fn go(&mut self, view: &View, to: Position) {
        (self.number, self.place, self.end) = (segment_of(to), view.place(segment_of(to)), 0);
        let start = place_of(to).max(SEGMENT_HEADER_BYTES);
        (self.at, self.shift) = (start, 0);
        match view.all().get(self.place) {
            Some(segment) if segment.header.number != self.number => {
                (self.number, self.at) = (segment.header.number, SEGMENT_HEADER_BYTES);
                self.shift = segment.run(self.at, self.at).shift;
            }
            Some(segment) => {
                self.at = segment.byte_of(position(self.number, start));
                self.shift = segment.run(self.at, self.at).shift;
            }
            None => {}
        }
    }

    /// Goes to a position if it lies further on.
    pub(crate) fn leap(&mut self, view: &View, to: Position) {
        if to > self.position() {
            self.go(view, to);
        }
    }

    /// The run at hand.
    #[inline]
    pub(crate) fn bytes<'v>(&self, view: &'v View) -> &'v [u8] {
        view.all().get(self.place).map_or(&[], |segment| segment.region().bytes(0..self.end))
    }

    /// Finds the next run of bytes; `false`: the limit is reached. On damage the walk stands behind it
    /// afterwards.
    #[inline]
    pub(crate) fn more(&mut self, view: &View) -> Result<bool, ReadError> {
        while let Some(segment) = view.all().get(self.place) {
            let bound = segment.end(self.limit);
            // A sealed segment may end with fewer bytes than a header has; and `at` may come from another
            // process's word.
            if bound.checked_sub(FRAME_HEADER_BYTES).is_some_and(|last| self.at <= last) {
                match segment.readable(self.at, bound) {
                    Readable::To(end) if end > self.at => {
                        let run = segment.run(self.at, end);
                        (self.end, self.shift) = (run.end, run.shift);
                        return Ok(true);
                    }
                    Readable::To(_) => {}
                    Readable::Damaged(damage, resumes) => {
                        (self.at, self.end) = (resumes, 0);
                        self.shift = segment.run(resumes, resumes).shift;
                        return Err(ReadError::Damaged(damage));
                    }
                }
            }
            if self.number >= segment_of(self.limit) || !self.next_segment(view) {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Goes to the beginning of the next segment; `false`: the view has none.
    pub(crate) fn next_segment(&mut self, view: &View) -> bool {
        let Some(next) = view.all().get(self.place + 1) else { return false };
        self.place += 1;
        (self.number, self.at, self.end) = (next.header.number, SEGMENT_HEADER_BYTES, 0);
        self.shift = next.run(self.at, self.at).shift;
        true
    }
}
