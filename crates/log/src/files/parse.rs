//! Parsing: what stands in a segment file or a store, piece by piece, without opening it.
//!
//! Purpose: to look at what is there, whole or not. It owns nothing, changes nothing and believes nothing: a
//! batch is taken apart only if its checksums hold. What does not read back is reported as damage, with the
//! position where the batches resume. A segment that should be there and is not is reported as well, in its
//! place.
//!
//! Invariants: pieces come in the order of the bytes; every byte of a file lies in exactly one batch, one
//! damaged span, the segment's header or the unused rest behind its end. Checked by the tests.

use crate::checkpoint::{self, Checkpoint};
use crate::control::Control;
use crate::error::{Damage, OpenError};
use crate::final_end::FinalEnd;
use crate::format::{self, BadHeader, BatchHeader, FORMAT_VERSION, FRAME_HEADER_BYTES, Kind, Link};
use crate::format::{FLAG_LAST, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::going_on;
use crate::needed_segments::{self, Needs};
use crate::scan::{Batch, Step, Stop};
use crate::segment;
use crate::segment_file::{SegmentFile, used_bytes};
use crate::slice::Slice;
use crate::{LogId, Offset, Position, Time, position, segment_of};
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_sys::disk::Disk;

/// A piece of a segment or a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A segment begins.
    Segment(SegmentPiece),
    /// A batch whose header stands.
    Batch(BatchPiece),
    /// A frame of the batch before it, whose body stands.
    Frame(FramePiece),
    /// Bytes that do not read back as they were written.
    Damage(Damage),
    /// The batches of a segment end.
    End(EndPiece),
}

/// A segment's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPiece {
    /// The file's name.
    pub file: String,
    /// The segment's number.
    pub number: u32,
    /// The store it belongs to.
    pub store_id: u64,
    /// Bytes it has.
    pub capacity: u32,
    /// It was begun by a recovery that had found damage.
    pub after_damage: bool,
    /// The largest time of any entry in an earlier segment.
    pub latest: Time,
}

/// A batch: one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPiece {
    /// Where it begins.
    pub position: Position,
    /// Bytes it takes.
    pub bytes: u32,
    /// When it was committed.
    pub time: Time,
    /// End of what was known to be durable then.
    pub durable: Position,
    /// Frames it says it has.
    pub frames: u32,
    /// The logs it touches, and where each ends with it.
    pub touched: Vec<(LogId, Offset)>,
    /// It carries the link of the batch before it; a batch that does not is not believed.
    pub linked: bool,
    /// Its body matches its checksum; if not, its frames are not shown.
    pub whole: bool,
}

/// A frame: one thing that a batch says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramePiece {
    /// Where it begins.
    pub position: Position,
    /// What it says.
    pub kind: Kind,
    /// The log it is about.
    pub log: LogId,
    /// That log's name, if its creation was met or a checkpoint has it.
    pub name: Option<Arc<[u8]>>,
    /// Offset within the log.
    pub offset: Offset,
    /// When.
    pub time: Time,
    /// The last entry of its transaction in its log.
    pub last: bool,
    /// What it carries, borrowed from the file.
    pub payload: Bytes,
}

/// The end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndPiece {
    /// Where the last batch ends.
    pub position: Position,
    /// Bytes behind it.
    pub unused_bytes: u32,
    /// How many of these, up to the last one that is not zero, belong to commits that were never
    /// acknowledged. The next open discards them.
    pub torn_bytes: u32,
}

/// The pieces of a segment file or of a store, as an iterator.
pub struct Parse {
    disk: Disk,
    waiting: VecDeque<PathBuf>,
    /// 0 if no control file says.
    store_id: u64,
    /// Segments that should be there and are not, as ranges of numbers.
    missing: VecDeque<Range<u32>>,
    /// Segments whose files are blank and should not be.
    blanked: BTreeSet<u32>,
    /// How far the files may be looked at.
    end: FinalEnd,
    /// End of what is known to have been durable; `None` if a file is looked at alone.
    known: Option<Position>,
    names: HashMap<LogId, Arc<[u8]>>,
    open: Option<Open>,
    /// Where the batches of the segment before this one ended.
    ended: Option<(Position, Link)>,
    ready: VecDeque<Piece>,
}

/// The segment at hand.
struct Open {
    file: String,
    segment: SegmentFile,
    at: u32,
    link: Option<Link>,
}

impl Open {
    fn number(&self) -> u32 {
        self.segment.header().number
    }
}

/// Parses a segment file, or all segments of the store in a directory, up to the last batch that is published
/// where a process has the store open.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// use thalweg_log::{Disk, Kind, Options, Piece, Store, now, parse};
/// let (store, _) = Store::open(&Disk::Real, path, Options::default())?;
/// store.append(&store.log(b"orders")?, b"one espresso", now())?;
/// store.close()?;
/// let entries = parse(&Disk::Real, path)?.filter_map(|piece| match piece {
///     Ok(Piece::Frame(frame)) if frame.kind == Kind::Data => Some(frame.payload),
///     _ => None,
/// });
/// assert_eq!(entries.collect::<Vec<_>>(), ["one espresso"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`OpenError`] when there is nothing that could be parsed. An item is an error when a file cannot be read
/// or a newer program wrote it; the iteration goes on with the next file.
pub fn parse(disk: &Disk, path: &Path) -> Result<Parse, OpenError> {
    let mut parse = Parse {
        disk: disk.clone(),
        waiting: VecDeque::new(),
        store_id: 0,
        missing: VecDeque::new(),
        blanked: BTreeSet::new(),
        end: FinalEnd::unknown(),
        known: None,
        names: HashMap::new(),
        open: None,
        ended: None,
        ready: VecDeque::new(),
    };
    let mut listed = match disk.names(path) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            // There may be none. Without it batches of a segment that lost its header cannot be told.
            let beside = path.parent().and_then(|directory| control(disk, directory).ok()?);
            if let (Some(control), Some(directory)) = (&beside, path.parent()) {
                (parse.store_id, parse.end) = (control.store_id, FinalEnd::of(disk, directory, control));
            }
            parse.begin(path)?;
            return Ok(parse);
        }
        listed => listed.map_err(|source| failed("list", path, source))?,
    };
    if let Some(control) = if listed.is_empty() { None } else { control(disk, path)? } {
        let last_present = listed.iter().filter_map(|name| segment::number_of(name)).max().unwrap_or(0);
        parse.store_id = control.store_id;
        parse.end = FinalEnd::of(disk, path, &control);
        let known = control.evidence(last_present).min(parse.end.of_open().unwrap_or(Position::MAX));
        // Listed again: all that the control file speaks of is there by now, or is missing.
        listed = disk.names(path).map_err(|source| failed("list", path, source))?;
        for start in listed.iter().filter_map(|name| checkpoint::start_of(name)) {
            parse.learn_names(path, start)?;
        }
        parse.known = Some(known);
        listed.retain(|name| segment::number_of(name).is_none_or(|number| parse.end.reaches(number)));
        let found = parse.find_missing(path, &mut listed, known);
        found.map_err(|source| failed("look around in", path, source))?;
    }
    let is_segment = |name: &&String| segment::number_of(name).is_some();
    parse.waiting.extend(listed.iter().filter(is_segment).map(|name| path.join(name)));
    if parse.waiting.is_empty() {
        return Err(OpenError::NotAStore { file: path.to_owned(), why: "there are no segments" });
    }
    Ok(parse)
}

/// The control file of a store. Its id is needed to judge checkpoints, and batches of a segment that lost its
/// header.
fn control(disk: &Disk, directory: &Path) -> Result<Option<Control>, OpenError> {
    let mut control = Control::attach(disk, directory)?;
    if let Some(control) = control.as_mut().filter(|control| !control.is_intact()) {
        control.adopt_id(disk, directory).map_err(|source| failed("read", directory, source))?;
    }
    Ok(control)
}

fn failed(action: &'static str, file: &Path, source: io::Error) -> OpenError {
    OpenError::Io { action, file: file.to_owned(), source }
}

impl Parse {
    /// The name of a log, if its creation was met by now or a checkpoint has it.
    pub fn name(&self, log: LogId) -> Option<&[u8]> {
        self.names.get(&log).map(|name| &name[..])
    }

    /// Takes names from a checkpoint: logs may have been created in segments that are gone. One that is gone
    /// by now has made way for a newer one.
    fn learn_names(&mut self, directory: &Path, start: Position) -> Result<(), OpenError> {
        match checkpoint::read(&self.disk, directory, start, self.store_id, &mut |config| config) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => self.learn(read.map_err(|source| failed("read a checkpoint of", directory, source))?),
        }
        Ok(())
    }

    fn learn(&mut self, checkpoint: Option<Checkpoint>) {
        for log in checkpoint.into_iter().flat_map(|checkpoint| checkpoint.logs) {
            self.names.insert(log.id(), log.name().into());
        }
    }

    /// Finds the segments that the store needs and that are not there, and those whose files are blank. One
    /// that lost its header is not missing; nor is one that the listing passed over, which is added to it.
    fn find_missing(
        &mut self,
        directory: &Path,
        listed: &mut Vec<String>,
        known: Position,
    ) -> io::Result<()> {
        let (disk, end) = (&self.disk, self.end);
        let (mut headers, mut there, mut blank) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for name in listed.iter() {
            let Some(number) = segment::number_of(name) else { continue };
            match segment::read_header(disk, &directory.join(name)) {
                // A spare, or a segment that should be full.
                Ok(None) => _ = blank.insert(number),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // An error is reported once the file is reached.
                header => {
                    there.insert(number);
                    let header = header.ok().flatten().and_then(Result::ok);
                    headers.extend(header.filter(|header| header.number == number));
                }
            }
        }
        // The checkpoint is looked for after the segments were listed: the newest one by then does not need
        // those that were removed.
        let newest = needed_segments::newest(disk, directory, self.store_id)?;
        let needs = Needs::of(newest.as_ref());
        let last = there.last().copied().unwrap_or(0);
        let passed_over = needs.passed_over(disk, directory, listed, last, end)?;
        if !passed_over.is_empty() {
            listed.extend(passed_over);
            listed.sort_unstable();
            return self.find_missing(directory, listed, known);
        }
        let go_on = &mut going_on::always;
        let torn =
            needed_segments::torn_from(disk, directory, &headers, needs.replays_from, known, end, go_on)?;
        let last = headers.iter().map(|header| header.number).filter(|number| *number < torn).max();
        let last = last.unwrap_or(0).max(segment_of(known)).min(torn.saturating_sub(1));
        let holes = needs.missing(&there, last, end);
        let blanked = blank.into_iter().filter(|number| holes.iter().any(|hole| hole.contains(number)));
        self.blanked = blanked.collect();
        self.missing = needs.missing(&(&there | &self.blanked), last, end).into();
        self.learn(newest);
        Ok(())
    }

    /// The next missing segments in front of the next file.
    fn missed(&mut self) -> Option<Range<u32>> {
        let next = self.waiting.front().and_then(|path| segment::number_of(path.file_name()?.to_str()?));
        let first = self.missing.front()?.start;
        if next.is_some_and(|next| next <= first) { None } else { self.missing.pop_front() }
    }

    /// Opens the next file.
    fn begin(&mut self, path: &Path) -> Result<(), OpenError> {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let number = segment::number_of(&file).unwrap_or(0);
        let header = segment::read_header(&self.disk, path).map_err(|e| failed("read", path, e))?;
        let opened = self.disk.open_read_only(path).map_err(|e| failed("open", path, e))?;
        let length = opened.length().map_err(|e| failed("read", path, e))?;
        let length = u32::try_from(length).unwrap_or(SEGMENT_BYTES_MAX).min(SEGMENT_BYTES_MAX);
        if (1..SEGMENT_HEADER_BYTES).contains(&length) {
            self.ready.push_back(lost(&file, position(number, 0)));
            return Ok(());
        }
        let header = match header {
            None if self.blanked.contains(&number) => {
                self.ready.push_back(Piece::Damage(Damage::segments(&(number..number + 1))));
                return Ok(());
            }
            None => {
                let (position, unused_bytes) = (position(number, 0), length);
                self.ready.push_back(Piece::End(EndPiece { position, unused_bytes, torn_bytes: 0 }));
                return Ok(());
            }
            Some(Ok(header)) => Some(header),
            Some(Err(BadHeader::Damaged)) => None,
            Some(Err(BadHeader::Newer(found))) => {
                let (file, found) = (path.to_owned(), found.into());
                return Err(OpenError::Newer { file, found, known: FORMAT_VERSION.into() });
            }
        };
        match &header {
            Some(header) => self.enter(&file, header),
            None => self.ready.push_back(lost(&file, position(number, 0))),
        }
        let length = header.map_or(length, |header| header.file_bytes().min(length));
        let link = header.map(|header| header.previous);
        let nameless =
            SegmentHeader { number, store_id: self.store_id, capacity: length, ..SegmentHeader::default() };
        let segment = SegmentFile::map(&opened, &header.unwrap_or(nameless), length, self.end);
        let segment = segment.map_err(|e| failed("map", path, e))?;
        self.open = Some(Open { file, segment, at: SEGMENT_HEADER_BYTES, link });
        Ok(())
    }

    /// Reports a segment whose header stands. The header also says how the segment before it ended.
    fn enter(&mut self, file: &str, header: &SegmentHeader) {
        if let Some((end, link)) = self.ended.take() {
            let follows = crate::segment_of(end) + 1 == header.number && !header.after_damage;
            if follows && link != header.previous {
                self.ready.push_back(lost(&segment::file_name(header.number - 1), end));
            }
        }
        self.ready.push_back(Piece::Segment(SegmentPiece {
            file: file.to_owned(),
            number: header.number,
            store_id: header.store_id,
            capacity: header.capacity,
            after_damage: header.after_damage,
            latest: header.latest,
        }));
    }

    /// Reports the next batch, or what stands in its place.
    fn advance(&mut self, mut open: Open) {
        let segment = open.segment.clone();
        let mut scan = segment.scan(open.at, open.link);
        match scan.step() {
            Step::Batch(batch) => {
                let at = position(open.number(), batch.place);
                let bytes = &segment.bytes()[batch.at as usize..];
                self.ready.push_back(batch_piece(at, &batch.header, bytes, true, true));
                self.frames(&open, &batch);
                (open.at, open.link) = (batch.end(), scan.link());
                self.open = Some(open);
            }
            Step::Stop(stop) => self.stopped(open, stop),
        }
    }

    fn frames(&mut self, open: &Open, batch: &Batch<'_>) {
        let body_at = batch.at + batch.header.body_start();
        for frame in format::frames(batch.body) {
            if frame.kind == Kind::Create
                && let Some(created) = format::decode_create(frame.payload)
            {
                self.names.insert(frame.log, created.name.into());
            }
            let start = body_at + frame.payload_at;
            let range = start..start + frame.payload.len() as u32;
            let flags = batch.body[(frame.payload_at - FRAME_HEADER_BYTES) as usize + 5];
            self.ready.push_back(Piece::Frame(FramePiece {
                position: position(open.number(), batch.place + (start - batch.at) - FRAME_HEADER_BYTES),
                kind: frame.kind,
                log: frame.log,
                name: self.names.get(&frame.log).cloned(),
                offset: frame.offset,
                time: frame.time,
                last: flags & FLAG_LAST != 0,
                payload: Bytes::from_owner(Slice { region: open.segment.region().clone(), range }),
            }));
        }
    }

    fn stopped(&mut self, mut open: Open, stop: Stop) {
        let number = open.number();
        let end = position(number, stop.place);
        let segment = open.segment.clone();
        let (bytes, _) = segment.batches();
        let rest = bytes.get(stop.at as usize..).unwrap_or_default();
        let newest = self.waiting.is_empty();
        if stop.blank || newest && self.known.is_some_and(|known| end >= known) {
            let unused_bytes = rest.len() as u32 + (segment.held() - segment.length());
            let torn_bytes = used_bytes(bytes, stop.at);
            self.ready.push_back(Piece::End(EndPiece { position: end, unused_bytes, torn_bytes }));
            self.ended = stop.link.map(|link| (end, link));
            if segment.held() < segment.header().file_bytes() {
                self.ready.push_back(lost(&open.file, position(number, segment.held())));
            }
            return;
        }
        if let Some(header) = BatchHeader::decode(rest, segment.header().seal().at(stop.place)) {
            let linked = open.link.is_none_or(|link| link == header.previous);
            let whole = header.verified_body(rest).is_some();
            self.ready.push_back(batch_piece(end, &header, rest, linked, whole));
        }
        self.ready.push_back(Piece::Damage(stop.damage(open.file.clone(), number)));
        if let Some(resumes) = stop.resumes {
            (open.at, open.link) = (resumes.at, resumes.link);
            self.open = Some(open);
        }
    }
}

fn lost(file: &str, at: Position) -> Piece {
    Piece::Damage(Damage::at(file, at))
}

/// The batch whose header begins some bytes.
fn batch_piece(position: Position, header: &BatchHeader, bytes: &[u8], linked: bool, whole: bool) -> Piece {
    Piece::Batch(BatchPiece {
        position,
        bytes: header.length,
        time: header.time,
        durable: header.durable,
        frames: header.frames,
        touched: format::touched(header, bytes).collect(),
        linked,
        whole,
    })
}

impl Iterator for Parse {
    type Item = Result<Piece, OpenError>;

    fn next(&mut self) -> Option<Result<Piece, OpenError>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if let Some(open) = self.open.take() {
                self.advance(open);
                continue;
            }
            if let Some(hole) = self.missed() {
                return Some(Ok(Piece::Damage(Damage::segments(&hole))));
            }
            let path = self.waiting.pop_front()?;
            if let Err(error) = self.begin(&path) {
                return Some(Err(error));
            }
        }
    }
}

impl std::fmt::Debug for Parse {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Parse")
            .field("waiting", &self.waiting)
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Options, Store};

    /// The end is looked at first, and the newest checkpoint last.
    #[test]
    fn what_a_checkpoint_behind_the_end_needs_there_is_not_missing_and_one_that_went_is_not_missed() {
        let directory = tempfile::tempdir().unwrap();
        let (segment_bytes_min, durability) = (4096, Durability::Os);
        let options =
            Options { segment_bytes_min, segment_bytes_max: 8192, durability, ..Options::default() };
        let (store, _) = Store::open(&Disk::Real, directory.path(), options).unwrap();
        let log = store.log(b"a").unwrap();
        let fill = || {
            (0..40).for_each(|time| _ = store.append(&log, &[7; 900], time).unwrap());
            store.checkpoint().unwrap();
        };
        fill();
        let mut parse = parse(&Disk::Real, directory.path()).unwrap();
        let (mut listed, known) = (Disk::Real.names(directory.path()).unwrap(), parse.known.unwrap());
        listed.retain(|name| segment::number_of(name).is_none_or(|number| parse.end.reaches(number)));
        let start = listed.iter().find_map(|name| checkpoint::start_of(name)).unwrap();
        (0..2).for_each(|_| fill());
        assert!(!directory.path().join(checkpoint::file_name(start)).exists());
        parse.learn_names(directory.path(), start).unwrap();
        parse.find_missing(directory.path(), &mut listed, known).unwrap();
        assert_eq!((parse.missing.len(), parse.blanked.len()), (0, 0));
        assert_eq!(parse.name(log.id()), Some(&b"a"[..]));
        // One in front of the end is.
        std::fs::remove_file(directory.path().join(segment::file_name(3))).unwrap();
        parse.find_missing(directory.path(), &mut listed, known).unwrap();
        assert_eq!((parse.missing.len(), parse.missing.pop_front()), (1, Some(3..4)));
    }
}
