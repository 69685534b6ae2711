//! The walk over a log's entries: which frames are taken, and where the next run of bytes begins.
//!
//! Purpose: the one inner loop of every reader. [`Filter::step`] walks a run of verified, published bytes
//! flat, without a lock or a system call, and says what stopped it; [`Walk::more`] finds the next run, in this
//! segment or the next. Invariants: a walk never passes its limit, a position at which a batch ends; every
//! entry of the log is seen in the order of its offsets, and one that is missing is noticed, because each must
//! begin where the last one ended.

use crate::error::ReadError;
use crate::format::{BATCH_HEADER_BYTES, BATCH_MAGIC, FLAG_LAST, FRAME_HEADER_BYTES, Kind};
use crate::format::{SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, TOUCHED_BYTES, word16, word32, word64};
use crate::query::Entry;
use crate::segment::Readable;
use crate::view::View;
use crate::{LogId, Offset, Position, Time, byte_of, position, segment_of};

/// An offset that nobody expects: the next entry may begin anywhere.
const ANYWHERE: Offset = Offset::MAX;
const HEAD: usize = FRAME_HEADER_BYTES as usize;
/// Header and touched table of a batch that touches one log.
const LONE: usize = (BATCH_HEADER_BYTES + TOUCHED_BYTES) as usize;
/// After so many bytes of other logs it pays to ask where this one goes on.
const FOREIGN_BYTES_MAX: u32 = 256 << 10;

/// Which times are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Both ends included.
    since: Time,
    until: Time,
    /// A time after which none that is looked for can follow.
    stop: Time,
    lateness: Time,
    /// Nothing is taken before an entry of exactly `since`.
    exact: bool,
    /// Times that need no second look, if any: from the lowest one, so many more.
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
    /// Takes entries of these times, the last one excluded; in a store whose times lie behind earlier ones by no
    /// more than `lateness`.
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
    /// Offsets taken: from the first one to the one where a fork branches off.
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

/// An entry that was found: where its frame begins and what its header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) at: u32,
    /// Payload bytes left out in front and behind.
    skip: u32,
    pub(crate) length: u32,
    pub(crate) offset: Offset,
    pub(crate) time: Time,
    last: bool,
}

/// Whether a header that begins so is of the last entry of its log in a transaction.
#[inline(always)]
fn is_last(first: u64) -> bool {
    (first >> 40) as u8 & FLAG_LAST != 0
}

/// The entry at a header, or behind the header of a batch of this log alone, if it ends in front of where the bytes do.
#[inline(always)]
fn lone(bytes: &[u8], at: u32, log: LogId) -> Option<Found> {
    let rest = bytes.get(at as usize..)?;
    let mut head = rest.first_chunk::<HEAD>()?;
    let (mut first, mut here) = (word64(head, 0), at);
    if first as u32 == BATCH_MAGIC {
        let whole = rest.first_chunk::<{ LONE + HEAD }>()?;
        if word16(whole, 44) != 1 {
            return None;
        }
        head = whole.last_chunk::<HEAD>()?;
        (first, here) = (word64(head, 0), at + LONE as u32);
    }
    if (first >> 32) as u8 != Kind::Data as u8 || word64(head, 8) != log {
        return None;
    }
    let last = is_last(first);
    let (length, offset, time) = (first as u32, word64(head, 16), word64(head, 24));
    let found = Found { at: here, skip: 0, length, offset, time, last };
    found.is_within(bytes).then_some(found)
}

impl Found {
    /// The entry whose header stands at a byte, if there is one of a log. The bytes need not be verified: it may end
    /// anywhere.
    #[inline]
    pub(crate) fn read(bytes: &[u8], at: u32, log: LogId) -> Option<Found> {
        let head = bytes.get(at as usize..)?.first_chunk::<HEAD>()?;
        let first = word64(head, 0);
        let (length, kind) = (first as u32, (first >> 32) as u8);
        let ours = kind == Kind::Data as u8 && word64(head, 8) == log && length <= SEGMENT_BYTES_MAX;
        let last = is_last(first);
        let (offset, time) = (word64(head, 16), word64(head, 24));
        ours.then_some(Found { at, skip: 0, length, offset, time, last })
    }

    /// How its header begins.
    #[inline(always)]
    fn first(&self) -> u64 {
        let flags = if self.last { u64::from(FLAG_LAST) } else { 0 };
        u64::from(self.length) | (Kind::Data as u64) << 32 | flags << 40
    }

    /// Where its payload begins.
    #[inline]
    pub(crate) fn start(&self) -> u32 {
        self.at + FRAME_HEADER_BYTES + self.skip
    }

    /// Where its payload ends.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.start() + self.length
    }

    /// Whether all of it is there. What a batch holds is, once that was verified; unless whoever says how far one may read
    /// says so of a place within a batch.
    #[inline(always)]
    pub(crate) fn is_within(&self, bytes: &[u8]) -> bool {
        let start = self.at as usize + HEAD + self.skip as usize;
        bytes.len().checked_sub(start).is_some_and(|left| self.length as usize <= left)
    }

    /// Where the next header is, of an entry of which nothing is left out.
    #[inline(always)]
    fn next(&self) -> u32 {
        self.at + FRAME_HEADER_BYTES + self.length.next_multiple_of(8)
    }

    /// The entry, whose header's position is known, in the bytes that it was found in.
    #[inline(always)]
    pub(crate) fn entry(self, position: Position, bytes: &[u8]) -> Entry<'_> {
        let start = self.at as usize + FRAME_HEADER_BYTES as usize + self.skip as usize;
        let data = &bytes[start..start + self.length as usize];
        Entry { offset: self.offset, time: self.time, last: self.last, position, data }
    }
}

/// How long entries have been of late.
///
/// Where the next header stands follows from a length that has to be read first, so a walk waits for one header after
/// the other. Where entries have the same length for a while the place is foreseen, and the processor reads
/// several headers at once; that it was right is made sure of behind. Where lengths vary it would be wrong more often
/// than it helps, so it stops and waits until they do not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// How the last header began: kind, flags, and the length, which is looked at most.
    first: u64,
    length: u32,
    /// Bytes from a header to the next, at that length.
    frame_bytes: u32,
    /// Entries of that length in a row, until there are enough of them.
    alike: u32,
    steady: bool,
}

/// Entries of one length in a row that are taken for a sign of more.
const ALIKE: u32 = 16;

impl Pace {
    /// Where the next header is, of an entry of which nothing is left out.
    #[inline(always)]
    fn next(&mut self, found: &Found) -> u32 {
        if self.steady {
            // A branch, never a choice between two values: what is foreseen must not wait for what was read.
            if found.length == self.length {
                self.first = found.first();
                return found.at + self.frame_bytes;
            }
            self.stumble();
        } else {
            self.alike = if found.length == self.length { self.alike + 1 } else { 0 };
            (self.length, self.first) = (found.length, found.first());
            if self.alike == ALIKE {
                self.settle();
            }
        }
        found.next()
    }

    /// The entry at a header that begins as the last one did, which one comparison tells of length, kind and flags.
    #[inline(always)]
    fn foreseen(&self, bytes: &[u8], at: u32, log: LogId) -> Option<Found> {
        if !self.steady {
            return None;
        }
        let frame = bytes.get(at as usize..)?.get(..HEAD + self.length as usize)?;
        let head = frame.first_chunk::<HEAD>()?;
        if word64(head, 0) != self.first || word64(head, 8) != log {
            return None;
        }
        let (offset, time, last) = (word64(head, 16), word64(head, 24), is_last(self.first));
        Some(Found { at, skip: 0, length: self.length, offset, time, last })
    }

    #[cold]
    #[inline(never)]
    fn stumble(&mut self) {
        (self.steady, self.alike) = (false, 0);
    }

    #[cold]
    #[inline(never)]
    fn settle(&mut self) {
        self.frame_bytes = FRAME_HEADER_BYTES + self.length.next_multiple_of(8);
        self.steady = true;
    }
}

/// What a walk over a run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Found(Found),
    /// The end of the run.
    End,
    /// The end of what the segment holds.
    Blank,
    /// An entry later than any that the query can take.
    Over,
    /// Offsets are missing between what was seen and what stands here.
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

    /// Times may now lie further back than was known; whether they do.
    pub(crate) fn relax(&mut self, lateness: Time) -> bool {
        let Wanted { since, until, exact, lateness: known, .. } = self.wanted;
        self.wanted = Wanted::taking(since, until, exact, lateness);
        lateness > known
    }

    /// The same times in another log, whose offsets go on where this one's end.
    pub(crate) fn go_on(&mut self, log: LogId, cut: Offset) {
        if self.next != ANYWHERE {
            self.next = self.next.min(self.cut);
        }
        (self.log, self.cut) = (log, cut);
    }

    /// Looks at everything, however late: for a walk that does not go forwards.
    pub(crate) fn never_over(&mut self) {
        self.wanted.stop = Time::MAX;
    }

    /// Takes up the walk at a place from which offsets need not follow on.
    pub(crate) fn jump(&mut self) {
        self.next = ANYWHERE;
    }

    /// Nothing may be missing in front of the first entry: it begins at the first offset taken, or before it.
    pub(crate) fn expect_first(&mut self) {
        self.next = self.from;
    }

    /// Whether everything below the cut was seen.
    pub(crate) fn reached_cut(&self) -> bool {
        self.next != ANYWHERE && self.next >= self.cut
    }

    /// The next entry, if it follows directly and is of the ordinary kind: in the middle of the query, in a batch
    /// of this log alone. What it is not is found out by [`Filter::step`].
    #[inline(always)]
    pub(crate) fn plain(&mut self, bytes: &[u8], at: &mut u32) -> Option<Found> {
        let found = lone(bytes, *at, self.log)?;
        let end = found.offset.wrapping_add(u64::from(found.length));
        let inside = found.time.wrapping_sub(self.wanted.lowest) <= self.wanted.window
            && self.wanted.has_plain
            && found.offset >= self.from
            && end <= self.cut;
        // An entry that none of this log has come before may begin anywhere.
        if !(inside && (found.offset == self.next || self.next == ANYWHERE)) {
            self.over = found.time > self.wanted.stop;
            return None;
        }
        *at = self.pace.next(&found);
        // The header after the next, and where its payload begins, half of the time on another line: by the time they
        // are wanted they are there, also where many walks take turns.
        let after_next = (*at + (*at - found.at)) as usize;
        thalweg_sys::hint::prefetch(bytes, after_next);
        thalweg_sys::hint::prefetch(bytes, after_next + HEAD);
        self.next = end;
        Some(found)
    }

    /// Takes entries for as long as they are of the ordinary kind and follow on the one before, which was taken; folds each with a
    /// row of `rows`. The loop of [`Filter::plain`] with everything in registers that does not change.
    #[inline(always)]
    pub(crate) fn plain_run<A, R>(
        &mut self,
        bytes: &[u8],
        at: &mut u32,
        rows: impl Iterator<Item = R>,
        initial: A,
        mut take: impl FnMut(A, R, &Found) -> A,
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

    /// Passes over entries before the first time taken, as long as they are of the ordinary kind.
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

    /// An entry was met that is later than any the query can take.
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
            // Behind a length that no frame has there is nothing.
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
            let found = Found { at: frame_at, skip: 0, length, offset, time, last };
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

    /// The decision about an entry at some edge of the query.
    fn edge(&mut self, found: Found, end: Offset) -> Edge {
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
    Taken(Found),
    Passed,
    Stop(Step),
}

/// Where a batch is entered or passed over.
enum Batch {
    Ours(u32),
    Foreign(u32, u32),
}
use Batch::{Foreign, Ours};

/// A batch header: where to go on. A batch of one other log is passed over whole.
fn batch(bytes: &[u8], at: u32, log: LogId) -> Batch {
    let rest =
        bytes.get(at as usize..).and_then(|rest| rest.first_chunk::<{ BATCH_HEADER_BYTES as usize + 8 }>());
    // The header stands, so there is as much as it says.
    let Some(head) = rest else { return Ours(u32::MAX) };
    let touched = word16(head, 44);
    if touched == 1 && word64(head, BATCH_HEADER_BYTES as usize) != log {
        let length = word32(head, 4);
        return Foreign(at + length, length);
    }
    Ours(at + BATCH_HEADER_BYTES + u32::from(touched) * TOUCHED_BYTES)
}

/// What is no entry of a log; `None` to go on behind it.
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
fn trimmed(found: Found, from: Offset, end: Offset) -> Found {
    let skip = u32::try_from(from.saturating_sub(found.offset)).unwrap_or(0);
    let offset = found.offset + u64::from(skip);
    Found { skip, offset, length: u32::try_from(end - offset).unwrap_or(0), ..found }
}

/// A place in a view, and how far one may go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    /// Place of the segment in the view, and its number.
    pub(crate) place: usize,
    pub(crate) number: u32,
    pub(crate) at: u32,
    /// End of the run at hand.
    pub(crate) end: u32,
    /// What is added to a byte of that run for its place in the segment.
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

    /// Finds its place again in a view that was replaced.
    pub(crate) fn locate(&mut self, view: &View) {
        self.go(view, self.position());
    }

    /// Goes to a position, which may lie behind: the next log of a lineage begins wherever it was created. A segment that was
    /// removed is passed over.
    pub(crate) fn go(&mut self, view: &View, to: Position) {
        (self.number, self.place, self.end) = (segment_of(to), view.place(segment_of(to)), 0);
        let start = byte_of(to).max(SEGMENT_HEADER_BYTES);
        (self.at, self.shift) = (start, 0);
        match view.all().get(self.place) {
            Some(segment) if segment.header.number != self.number => {
                (self.number, self.at) = (segment.header.number, SEGMENT_HEADER_BYTES);
                (_, self.shift) = segment.run(self.at, self.at);
            }
            Some(segment) => {
                self.at = segment.byte_of(position(self.number, start));
                (_, self.shift) = segment.run(self.at, self.at);
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

    /// Finds the next run of bytes; `false` when the limit is reached. With damage in the way the walk stands
    /// behind it afterwards.
    #[inline]
    pub(crate) fn more(&mut self, view: &View) -> Result<bool, ReadError> {
        while let Some(segment) = view.all().get(self.place) {
            let bound = segment.end(self.limit);
            // What is left of a sealed segment may be too short for anything, and where to begin may be another process's word.
            if bound.checked_sub(FRAME_HEADER_BYTES).is_some_and(|last| self.at <= last) {
                match segment.readable(self.at, bound) {
                    Readable::To(end) if end > self.at => {
                        (self.end, self.shift) = segment.run(self.at, end);
                        return Ok(true);
                    }
                    Readable::To(_) => {}
                    Readable::Damaged(damage, resumes) => {
                        (self.at, self.end) = (resumes, 0);
                        (_, self.shift) = segment.run(resumes, resumes);
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

    /// Leaves the segment behind; `false` when the view has no other.
    pub(crate) fn next_segment(&mut self, view: &View) -> bool {
        let Some(next) = view.all().get(self.place + 1) else { return false };
        self.place += 1;
        (self.number, self.at, self.end) = (next.header.number, SEGMENT_HEADER_BYTES, 0);
        (_, self.shift) = next.run(self.at, self.at);
        true
    }
}
