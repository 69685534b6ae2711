//! Walking a segment's batches: the proof of where a log ends, and what is wrong where it does not go on.
//!
//! One walker serves recovery, verification and first reads. A batch is taken if its header and body match
//! their checksums, its body is made of whole frames, and its link names the batch before it. Where the walk
//! stops, the [`Stop`] says what stands there, which logs it touches if that can be known, and where the next
//! whole header begins. In a compacted segment the walk goes from run to run ([`Runs`]): within a run each
//! link names the batch before, and the end of the table names the last. Bytes of a file are brought in
//! before they are looked at, so that an unreadable sector is damage like any other, and no signal.

use crate::error::{Damage, Touched};
use crate::format::{self, BATCH_HEADER_BYTES, BatchHeader, Link, Seal, SealedAt, SegmentHeader};
use crate::going_on::{GoOn, PIECE_BYTES};
use crate::mapping;
use crate::runs::{Run, Runs};
use crate::{LogId, position};
use std::io;
use std::ops::Range;
use thalweg_sync::region::{Published, Region};

/// Bytes brought in at a time.
const AHEAD_BYTES: u32 = 1 << 20;

/// Bytes of a file that were not looked at yet: they may have to come from the disk, and the disk may fail to
/// give them.
#[derive(Debug)]
pub(crate) struct Unseen<'a> {
    region: &'a Region,
    bytes: Range<u32>,
    /// Where the end of what was brought in is kept for the next walk.
    brought: Option<&'a Published>,
}

impl<'a> Unseen<'a> {
    pub(crate) fn new(region: &'a Region, bytes: Range<u32>) -> Unseen<'a> {
        Unseen { region, bytes, brought: None }
    }

    /// The same, and keeps the end of what was brought in.
    pub(crate) fn kept_in(self, brought: &'a Published) -> Unseen<'a> {
        Unseen { brought: Some(brought), ..self }
    }

    /// Brings in the bytes in front of `to`, and some more.
    pub(crate) fn reach(&mut self, to: u32) {
        if to > self.bytes.start && !self.bytes.is_empty() {
            let end = to.max(self.bytes.start.saturating_add(AHEAD_BYTES)).min(self.bytes.end);
            mapping::bring_in_unread(self.region, self.bytes.start..end);
            self.bytes.start = end;
            if let Some(brought) = self.brought {
                brought.advance(end);
            }
        }
    }
}

/// A batch that stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    /// First byte in the file.
    pub(crate) at: u32,
    /// Its place in the segment.
    pub(crate) place: u32,
    pub(crate) header: BatchHeader,
    /// The frames.
    pub(crate) body: &'a [u8],
}

impl Batch<'_> {
    /// The byte of the file behind it.
    pub(crate) fn end(&self) -> u32 {
        self.at + self.header.length
    }

    /// The place behind it.
    pub(crate) fn end_place(&self) -> u32 {
        self.place + self.header.length
    }

    /// The damage that it is, in a segment's file, where what it says of a log cannot be.
    pub(crate) fn damage(&self, file: impl Into<String>, number: u32, log: LogId) -> Damage {
        let damage = Damage::at(file, position(number, self.place));
        damage.up_to(position(number, self.end_place())).touching(Touched::These(vec![log]))
    }
}

/// Why the walk stopped at a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) at: u32,
    /// The place of that byte.
    pub(crate) place: u32,
    /// Link that the next batch would have to carry.
    pub(crate) link: Option<Link>,
    /// Nothing but zeros follows: the ordinary end.
    pub(crate) blank: bool,
    /// The logs a broken batch touched and their ends, known when its header stands.
    pub(crate) touched: Option<Vec<(LogId, u64)>>,
    /// Where the next batch header stands; `None`: there is none.
    pub(crate) resumes: Option<Resume>,
}

/// Where a walk goes on behind damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    /// The byte of the file.
    pub(crate) at: u32,
    /// Its place in the segment.
    pub(crate) place: u32,
    /// The link that the batch there has to carry; `None`: any.
    pub(crate) link: Option<Link>,
}

impl From<Run> for Resume {
    /// At the beginning of a run: which batch came before its first is not known.
    fn from(run: Run) -> Resume {
        Resume { at: run.byte, place: run.place, link: None }
    }
}

impl Stop {
    /// The damage that it stopped at, in a segment's file.
    pub(crate) fn damage(&self, file: impl Into<String>, number: u32) -> Damage {
        let logs = self.touched.as_ref().map(|logs| logs.iter().map(|(log, _)| *log).collect());
        let logs = logs.map_or(Touched::Unknown, Touched::these);
        let damage = Damage::at(file, position(number, self.place)).touching(logs);
        match self.resumes {
            Some(resumes) => damage.up_to(position(number, resumes.place)),
            None => damage,
        }
    }
}

pub(crate) enum Step<'a> {
    Batch(Batch<'a>),
    Stop(Stop),
}

/// A walk over `bytes`, which begin at the segment's first byte.
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    seal: Seal,
    at: u32,
    link: Option<Link>,
    runs: Runs<'a>,
    /// Where the run ends that it is in, and what is added to a byte of that for its place.
    end: u32,
    shift: u32,
    unseen: Option<Unseen<'a>>,
}

impl<'a> Scan<'a> {
    /// Starts at byte `at`, where a batch carrying `link` is expected; `None` takes any link there.
    pub(crate) fn new(header: &SegmentHeader, bytes: &'a [u8], at: u32, link: Option<Link>) -> Scan<'a> {
        let end = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Scan { bytes, seal: header.seal(), at, link, runs: Runs::default(), end, shift: 0, unseen: None }
    }

    /// The same in a segment that may have been compacted, with its table of runs.
    pub(crate) fn through(
        header: &SegmentHeader,
        (bytes, runs): (&'a [u8], Runs<'a>),
        at: u32,
        link: Option<Link>,
    ) -> Scan<'a> {
        let mut scan = Scan { runs, ..Scan::new(header, bytes, at, link) };
        if !runs.is_empty() {
            scan.end = at;
            scan.enter();
        }
        scan
    }

    /// The same walk, over bytes some of which have to be brought in first.
    pub(crate) fn over(self, unseen: Unseen<'a>) -> Scan<'a> {
        Scan { unseen: Some(unseen), ..self }
    }

    /// Brings in the bytes in front of `to` before they are looked at.
    #[inline]
    fn reach(&mut self, to: u32) {
        if let Some(unseen) = &mut self.unseen {
            unseen.reach(to);
        }
    }

    /// Enters the run at `self.at`, if one stands there.
    fn enter(&mut self) {
        let Some(run) = self.runs.around(self.at).filter(|run| run.byte <= self.at) else { return };
        if run.byte == self.at {
            self.link = None;
        }
        (self.end, self.shift) = (run.end(), run.shift());
    }

    /// Link that the next batch has to carry.
    pub(crate) fn link(&self) -> Option<Link> {
        self.link
    }

    /// What can be read of the run at hand.
    fn rest(&self) -> &'a [u8] {
        let end = self.bytes.len().min(self.end as usize);
        self.bytes.get(self.at as usize..end).unwrap_or_default()
    }

    pub(crate) fn step(&mut self) -> Step<'a> {
        if self.at >= self.end && !self.runs.is_empty() {
            self.enter();
            if self.at >= self.end {
                return Step::Stop(self.between());
            }
        }
        self.reach(self.at.saturating_add(BATCH_HEADER_BYTES));
        let rest = self.rest();
        let header = BatchHeader::decode(rest, self.sealed(self.at));
        let linked = header.filter(|header| self.link.is_none_or(|link| link == header.previous));
        self.reach(linked.map_or(self.at, |header| self.at.saturating_add(header.length)));
        match linked.and_then(|header| Some((header, header.verified_body(rest)?))) {
            Some((header, body)) => {
                let batch = Batch { at: self.at, place: self.place(self.at), header, body };
                self.at = batch.end();
                self.link = Some(header.link_behind(body));
                Step::Batch(batch)
            }
            None => {
                // The next header is searched for in all that is left.
                self.reach(self.end);
                Step::Stop(self.stop(rest, linked))
            }
        }
    }

    /// Walks to where it stops.
    pub(crate) fn each(mut self, mut visit: impl FnMut(&Batch<'a>)) -> Stop {
        loop {
            match self.step() {
                Step::Batch(batch) => visit(&batch),
                Step::Stop(stop) => return stop,
            }
        }
    }

    /// The same, and asks behind the first batch, and between pieces of what follows, whether to go on.
    pub(crate) fn each_while(
        mut self,
        go_on: GoOn<'_>,
        mut visit: impl FnMut(&Batch<'a>),
    ) -> io::Result<Stop> {
        let mut piece_end = 0;
        loop {
            match self.step() {
                Step::Batch(batch) => visit(&batch),
                Step::Stop(stop) => return Ok(stop),
            }
            if self.at >= piece_end {
                go_on()?;
                piece_end = self.at.saturating_add(PIECE_BYTES);
            }
        }
    }

    /// What the checksums of a header at a byte of the run at hand begin with.
    fn sealed(&self, byte: u32) -> SealedAt {
        self.seal.at(self.place(byte))
    }

    /// The place of a byte of the run at hand.
    fn place(&self, byte: u32) -> u32 {
        byte.wrapping_add(self.shift)
    }

    /// The stop behind a run that no other run follows directly: the segment's end, or damaged entries of its
    /// table.
    fn between(&self) -> Stop {
        let next = self.runs.around(self.at);
        let end = self.runs.end().filter(|_| next.is_none() && self.at as usize >= self.bytes.len());
        Stop {
            at: self.at,
            place: end.map_or(self.place(self.at), |end| end.place),
            link: end.map(|end| end.link),
            blank: end.is_some(),
            touched: None,
            resumes: next.map(Resume::from),
        }
    }

    /// The stop at a batch that is not taken. `broken`: its header, if that stands and only the body does
    /// not.
    fn stop(&self, rest: &[u8], broken: Option<BatchHeader>) -> Stop {
        // Damage in one run does not hide the next. A run that begins at or in front of `at` is not believed:
        // the walk never goes back.
        let next = self.runs.around(self.end).filter(|run| run.byte > self.at);
        let next = next.map(Resume::from);
        let (at, place) = (self.at, self.place(self.at));
        if let Some(header) = broken {
            let touched: Vec<_> = format::touched(&header, rest).collect();
            let end = self.at.saturating_add(header.length);
            let inside = end < self.end.min(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
            let resumes = if inside {
                let link = Some(self.link_behind_broken(&header, end));
                Some(Resume { at: end, place: self.place(end), link })
            } else {
                next
            };
            return Stop { at, place, link: self.link, blank: false, touched: Some(touched), resumes };
        }
        // A run has no zeros between its batches.
        let blank = self.runs.is_empty() && rest.iter().all(|byte| *byte == 0);
        let found = if blank { None } else { self.successor(rest) };
        let found = found.map(|(at, header)| {
            let link = Some(header.previous);
            Resume { at, place: self.place(at), link }
        });
        Stop { at, place, link: self.link, blank, touched: None, resumes: found.or(next) }
    }

    /// The link that the batch behind a broken one carries: it names the broken one; or, if that stood for
    /// others, the last of those.
    fn link_behind_broken(&self, header: &BatchHeader, end: u32) -> Link {
        let next = || BatchHeader::decode(self.bytes.get(end as usize..)?, self.sealed(end));
        let carried = (header.touched == 0).then(next).flatten().map(|next| next.previous);
        carried.unwrap_or_else(|| header.link())
    }

    /// Where the walk goes on behind a batch whose header is lost: at the header whose link names the lost
    /// one, by the checksum that it carries or ought to carry. If there is none, because more than one header
    /// is lost, at the first that stands. Bytes in a payload that look like a batch do not stand: they have
    /// another seal.
    fn successor(&self, lost: &[u8]) -> Option<(u32, BatchHeader)> {
        let claims = BatchHeader::claims(lost, self.sealed(self.at));
        let (mut first, mut after) = (None, self.at);
        while let Some((at, header)) = self.search(after) {
            if claims.contains(&Some(header.previous.checksum)) {
                return Some((at, header));
            }
            first = first.or(Some((at, header)));
            after = at;
        }
        first
    }

    /// The first header that stands behind byte `after`. Batches begin at multiples of 8.
    fn search(&self, after: u32) -> Option<(u32, BatchHeader)> {
        let mut at = after.checked_add(8)? & !7;
        let bytes = &self.bytes[..self.bytes.len().min(self.end as usize)];
        while at as usize + BATCH_HEADER_BYTES as usize <= bytes.len() {
            if let Some(header) = BatchHeader::decode(&bytes[at as usize..], self.sealed(at)) {
                return Some((at, header));
            }
            at += 8;
        }
        None
    }
}

/// The highest `durable` in any header that stands from where a walk begins; 0 if none does.
pub(crate) fn attested_durable(mut scan: Scan<'_>, runs: Runs<'_>) -> u64 {
    scan.reach(u32::MAX);
    let mut highest = 0;
    loop {
        while let Some((at, header)) = scan.search(scan.at) {
            highest = highest.max(header.durable);
            scan.at = at;
        }
        let Some(next) = runs.around(scan.end).filter(|next| next.byte >= scan.end) else { return highest };
        // The search looks behind a byte, so the header at the run's beginning is looked at by itself.
        scan.at = next.byte;
        scan.enter();
        let first = BatchHeader::decode(scan.rest(), scan.sealed(next.byte));
        highest = highest.max(first.map_or(0, |header| header.durable));
    }
}
