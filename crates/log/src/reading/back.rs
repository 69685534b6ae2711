//! Reading backwards: the newest entries first.
//!
//! Frames do not say where the one before them begins, but the time index says where the first header in each
//! kibibyte is. So a block of one kibibyte is walked forwards, its entries are noted and given out from the
//! last to the first; then comes the block before it. It costs what reading forwards costs and a look at the
//! index per block, and memory for one block.
//!
//! Invariant: a missing entry is noticed, as it is forwards: the last entry of a block has to end where the
//! first one behind the block begins, whether or not the query takes them.

use crate::entry_frame::EntryFrame;
use crate::error::ReadError;
use crate::format::{BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::index::BLOCK_BYTES;
use crate::query::{Entry, Query, Start};
use crate::reader::Reader;
use crate::segment::{Readable, Segment};
use crate::source::Source;
use crate::view::View;
use crate::walk::{Filter, Step};
use crate::{Offset, Position, position, segment_of};
use smallvec::SmallVec;

/// After this many blocks without an entry the extents are asked where the log has its last one before.
const EMPTY_BLOCKS_MAX: u32 = 64;

/// Entries of a query, newest first.
#[derive(Debug)]
pub struct EntriesBack<'r> {
    source: &'r Source,
    filter: Filter,
    /// The part of the lineage at hand, the one in which the query begins, and the position where it does.
    part: usize,
    first: usize,
    start: Position,
    limit: Position,
    /// Index of the segment in the view, and the byte up to which it is yet to be read.
    place: usize,
    end: u32,
    /// Blocks in a row without an entry.
    empty: u32,
    /// The segment at hand was verified.
    checked: bool,
    /// It is damaged, and the caller was told: entries missing in it or next to it are not reported again.
    told: bool,
    /// Offset and position of the entry that follows what is yet to be read.
    behind: Option<(Offset, Position)>,
    /// The first offset missing in the block or behind it, and the position of the entry in front of which it
    /// is missing.
    torn: Option<(Offset, Position)>,
    /// The query starts at the first entry or at an offset, so an entry missing in front of the first one met
    /// is damage.
    from_first: bool,
    /// Entries of the last block that were not given out yet, in the order of the log, and their segment.
    block: SmallVec<[EntryFrame; 16]>,
    bytes: &'r [u8],
    segment: Option<&'r Segment>,
    state: State,
    /// The error met while looking for the beginning, until it is given out.
    error: Option<ReadError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Going,
    Damaged,
    Done,
}

impl Reader {
    /// Entries of a query, newest first. An exact start, or one by offset, is where it ends.
    /// Complexity: as [`Reader::entries`], and for an exact start a search for it from the front.
    ///
    /// # Errors
    /// Each entry is a `Result`: in front of a segment with damage in it there is [`ReadError::Damaged`], and
    /// nothing more until [`EntriesBack::resume`]. The same comes first if the search for an exact start met
    /// damage. [`ReadError::Deleted`] is the last, and the only one of a log that was deleted before: what
    /// the query has besides may be gone. In a process that is attached there is one [`ReadError::Io`] and
    /// nothing else if it cannot be found out what there is.
    ///
    /// ```
    /// use thalweg_log::{Options, Query, Store};
    /// let store = Store::memory(Options::default())?;
    /// let log = store.log(b"steps")?;
    /// (1..=3).try_for_each(|time| store.append(&log, b"step", time).map(drop))?;
    /// let mut reader = store.reader(&log);
    /// let times: Result<Vec<_>, _> = reader.entries_back(&Query::default()).map(|entry| Ok(entry?.time)).collect();
    /// assert_eq!(times, Ok::<_, thalweg_log::ReadError>(vec![3, 2, 1]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn entries_back(&mut self, query: &Query) -> EntriesBack<'_> {
        let (exact, error) = match query.start {
            Start::Exact(_) => self.first(query),
            _ => (None, None),
        };
        let nothing = matches!(query.start, Start::Exact(_)) && exact.is_none();
        let query = exact.map_or(*query, |offset| Query { start: Start::Offset(offset), ..*query });
        let begun = self.progress.begin(&mut self.source, &query);
        let (walk, mut filter, first) =
            (self.progress.walk, self.progress.filter.clone(), self.progress.part);
        filter.never_over();
        let source = &self.source;
        let part = source.select(source.count() - 1, &mut filter);
        let begun = begun.and_then(|()| if source.is_deleted() { Err(ReadError::Deleted) } else { Ok(()) });
        let state = if nothing || begun.is_err() { State::Done } else { State::Going };
        let (bytes, block): (&[u8], _) = (&[], SmallVec::new());
        let mut back = EntriesBack {
            source,
            filter,
            part,
            first,
            start: walk.position(),
            limit: walk.limit,
            place: 0,
            end: 0,
            empty: 0,
            checked: false,
            told: false,
            behind: None,
            torn: None,
            from_first: matches!(query.start, Start::First | Start::Offset(_)),
            block,
            bytes,
            segment: None,
            state,
            error: error.or(begun.err()),
        };
        back.stand(walk.limit);
        back
    }

    /// Offset of the first entry of a query, and the first error met on the way to it.
    fn first(&mut self, query: &Query) -> (Option<Offset>, Option<ReadError>) {
        let mut entries = self.entries(query);
        let mut first = None;
        loop {
            match entries.next() {
                Some(Ok(entry)) => return (Some(entry.offset), first),
                Some(Err(error)) => first = first.or(Some(error)),
                None => return (None, first),
            }
            entries.resume();
        }
    }
}

impl<'r> EntriesBack<'r> {
    /// Goes on with what lies around and before damage.
    pub fn resume(&mut self) {
        if self.state == State::Damaged {
            self.state = State::Going;
        }
    }

    /// Goes to the byte at which what lies in front of a position ends.
    fn stand(&mut self, position: Position) {
        let (segments, number) = (self.source.view().all(), segment_of(position));
        let place = self.source.view().place(number);
        self.end = match segments.get(place) {
            Some(segment) if segment.header.number == number => segment.byte_of(position),
            // That segment was removed: all that is left from this one on lies behind the position.
            Some(_) => SEGMENT_HEADER_BYTES,
            None => u32::MAX,
        };
        let place = place.min(segments.len().saturating_sub(1));
        self.checked &= place == self.place;
        self.place = place;
    }

    /// Whether all that is left of this part of the lineage lies in front of the query.
    fn is_before(&self, segment: &Segment) -> bool {
        let start = if self.part == self.first { self.start } else { self.source.begins(self.part) };
        position_at(segment, self.end.min(u32::MAX - 1)) <= start
    }

    /// Notes the entries of the next block, going back, that has any; `false`: none has.
    fn turn(&mut self) -> Result<bool, ReadError> {
        loop {
            let view: &'r View = self.source.view();
            let Some(segment) = view.all().get(self.place) else { return Ok(false) };
            let bound = segment.end(self.limit);
            self.end = self.end.min(bound);
            if self.is_before(segment) {
                match self.source.previous(&mut self.part, self.first, &mut self.filter) {
                    Some(end) => self.stand(end),
                    None => return self.end(),
                }
            } else if self.end > SEGMENT_HEADER_BYTES {
                if !std::mem::replace(&mut self.checked, true) {
                    let verified = segment.verify(SEGMENT_HEADER_BYTES..bound);
                    self.told = verified.is_err();
                    if self.told {
                        self.behind = None;
                    }
                    verified.inspect_err(|error| self.source.failed(error))?;
                }
                if self.note_block(segment, bound)? {
                    return Ok(true);
                }
            } else if self.place > 0 {
                self.place -= 1;
                (self.end, self.checked) = (u32::MAX, false);
            } else {
                return self.end();
            }
        }
    }

    /// Everything was read: reports what is missing in front of the first entry, if the query asked for that.
    fn end(&mut self) -> Result<bool, ReadError> {
        match self.behind.take() {
            Some((first, at)) if self.from_first && first > self.filter.from && self.is_hole(first) => {
                Err(self.missing(self.filter.from, at))
            }
            _ => Ok(false),
        }
    }

    /// Whether it is told of that something is missing in front of an offset: it was not purged, or it went
    /// with the log.
    fn is_hole(&self, offset: Offset) -> bool {
        self.source.is_deleted() || !self.source.is_purged(offset)
    }

    /// Why an offset is missing in front of `at`.
    fn missing(&self, offset: Offset, at: Position) -> ReadError {
        if self.source.is_deleted() { ReadError::Deleted } else { self.source.missing(offset, at) }
    }

    /// Notes the entries of the next block, going back; answers whether there are any.
    fn note_block(&mut self, segment: &'r Segment, bound: u32) -> Result<bool, ReadError> {
        let failed =
            |error: std::io::Error| ReadError::Io { file: "a time index".into(), why: error.to_string() };
        let index = segment.index(bound).map_err(failed)?;
        let (block, to) = ((self.end - 1) / BLOCK_BYTES, self.end);
        self.end = (block * BLOCK_BYTES).max(SEGMENT_HEADER_BYTES).min(to - 1);
        if let Some(from) = index.start(block).filter(|from| *from < to) {
            self.walk(segment, from, to, bound);
            if let Some((missing, at)) = self.torn.take() {
                return Err(self.missing(missing, at));
            }
        }
        if !self.block.is_empty() {
            self.empty = 0;
            return Ok(true);
        }
        self.empty += 1;
        if self.empty > EMPTY_BLOCKS_MAX {
            self.empty = 0;
            let here = position_at(segment, self.end);
            if let Some(end) = self.source.leap_back(self.part, here) {
                self.stand(end);
            }
        }
        Ok(false)
    }

    /// Notes the entries whose headers lie in `from..to` of a segment.
    fn walk(&mut self, segment: &'r Segment, from: u32, to: u32, bound: u32) {
        (self.bytes, self.segment) = (segment.region().bytes(0..bound), Some(segment));
        let mut at = from;
        let behind = self.behind.take();
        self.filter.expect_nothing();
        self.note_all(segment, (&mut at, to), bound);
        match self.filter.came_to() {
            _ if self.told => (self.behind, self.torn) = (None, None),
            Some(came_to) => {
                self.behind = self.behind.or(Some((0, segment.position_of(from))));
                if let Some((first, at)) = behind
                    && came_to < first
                    && self.is_hole(first)
                {
                    self.torn = self.torn.or(Some((came_to, at)));
                }
            }
            None => self.behind = self.behind.or(behind),
        }
    }

    fn note_all(&mut self, segment: &'r Segment, (at, to): (&mut u32, u32), bound: u32) {
        while *at < to {
            // Damage was reported when the segment was checked, and the caller told it to go on.
            *at = match segment.readable(*at, bound) {
                Readable::To(end) if end > *at && self.note(segment, (*at, end), to) => end,
                Readable::To(_) => return,
                Readable::Damaged(damage, resumes) => {
                    self.source.context.access.came_upon(&damage);
                    self.filter.jump();
                    resumes
                }
            };
        }
    }

    /// Notes the entries of a run of bytes whose headers lie in front of `to`; answers whether there may be
    /// more behind the run.
    fn note(&mut self, segment: &Segment, (from, end): (u32, u32), to: u32) -> bool {
        let run = &self.bytes[..end as usize];
        let headers = &run[..end.min(to.saturating_add(BATCH_HEADER_BYTES)) as usize];
        let mut at = from;
        let floor = if self.part == self.first { self.start } else { 0 };
        loop {
            match self.filter.step(headers, &mut at) {
                Step::Found(found) if found.at >= to => return false,
                Step::Found(found) if segment.position_of(found.at) < floor => {}
                // An entry that ends behind what may be read is reported by forward readers only.
                Step::Found(found) if !found.is_within(run) => return false,
                Step::Found(found) => self.block.push(found),
                Step::Gap(0, offset) => self.behind = Some((offset, segment.position_of(at))),
                Step::Gap(missing, offset) => {
                    let at = segment.position_of(at);
                    if at >= floor && self.is_hole(offset) {
                        self.torn = self.torn.or(Some((missing, at)));
                    }
                }
                Step::Foreign => {}
                // What lies behind the cut is not inherited, and proves nothing about what is.
                Step::Cut => {
                    let first = self.behind.unwrap_or((0, segment.position_of(from)));
                    self.behind = Some(first).filter(|(first, _)| self.filter.stop_at_cut(*first));
                    return false;
                }
                Step::End => return true,
                _ => return false,
            }
        }
    }
}

/// The position behind what ends at a byte.
fn position_at(segment: &Segment, end: u32) -> Position {
    // What comes next may have stood further on.
    end.checked_sub(1).map_or(position(segment.header.number, 0), |last| segment.position_of(last) + 1)
}

impl<'r> Iterator for EntriesBack<'r> {
    type Item = Result<Entry<'r>, ReadError>;

    fn next(&mut self) -> Option<Result<Entry<'r>, ReadError>> {
        loop {
            // After an error the block waits until the caller resumes.
            if self.state == State::Damaged {
                return None;
            }
            if let Some((found, segment)) = self.block.pop().zip(self.segment) {
                return Some(Ok(found.entry(segment.position_of(found.at), self.bytes)));
            }
            if let Some(error) = self.error.take() {
                if self.state == State::Going {
                    self.state = State::Damaged;
                }
                return Some(Err(error));
            }
            if self.state != State::Going {
                return None;
            }
            match self.turn() {
                Ok(true) => {}
                Ok(false) => self.state = State::Done,
                Err(error) => {
                    let is_over = error == ReadError::Deleted;
                    self.state = if is_over { State::Done } else { State::Damaged };
                    return Some(Err(error));
                }
            }
        }
    }
}
