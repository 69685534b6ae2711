//! Walking a segment's batches: the proof of where a log ends, and what is wrong where it does not go on.
//!
//! One walker serves recovery, verification and first reads. A batch is taken when its header and body
//! match their checksums and its link names the batch before it. Where the walk stops, the stop says what
//! stood there, which logs it touched if that can be known, and where the next whole header begins.

use crate::LogId;
use crate::format::{self, BATCH_HEADER_BYTES, BatchHeader, Link};

/// A batch that stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    /// First byte in the segment.
    pub(crate) at: u32,
    pub(crate) header: BatchHeader,
    /// The frames.
    pub(crate) body: &'a [u8],
}

impl Batch<'_> {
    pub(crate) fn end(&self) -> u32 {
        self.at + self.header.length
    }
}

/// Why the walk stopped at `at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) at: u32,
    /// Link that the next batch would have to carry.
    pub(crate) link: Option<Link>,
    /// Nothing but zeros follows: the ordinary end.
    pub(crate) blank: bool,
    /// The logs a broken batch touched and their ends, known when its header stands.
    pub(crate) touched: Option<Vec<(LogId, u64)>>,
    pub(crate) logs: Option<Vec<LogId>>,
    /// The next byte where a batch header stands.
    pub(crate) resumes_at: Option<u32>,
    /// Link that the walk continues with from there.
    pub(crate) resumes_link: Option<Link>,
}

pub(crate) enum Step<'a> {
    Batch(Batch<'a>),
    Stop(Stop),
}

/// A walk over `bytes`, which begin at the segment's first byte.
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    at: u32,
    link: Option<Link>,
}

impl<'a> Scan<'a> {
    /// Starts at byte `at`, where a batch carrying `link` is expected; `None` takes any link there.
    pub(crate) fn new(bytes: &'a [u8], at: u32, link: Option<Link>) -> Scan<'a> {
        Scan { bytes, at, link }
    }

    /// Link that the next batch has to carry.
    pub(crate) fn link(&self) -> Option<Link> {
        self.link
    }

    pub(crate) fn step(&mut self) -> Step<'a> {
        let rest = self.bytes.get(self.at as usize..).unwrap_or_default();
        let header = BatchHeader::decode(rest);
        let linked = header.filter(|header| self.link.is_none_or(|link| link == header.previous));
        match linked.and_then(|header| Some((header, header.verified_body(rest)?))) {
            Some((header, body)) => {
                let batch = Batch { at: self.at, header, body };
                self.at = batch.end();
                self.link = Some(header.link_behind(body));
                Step::Batch(batch)
            }
            None => Step::Stop(self.stop(rest, linked)),
        }
    }

    /// `broken`: the header at the stop, when it stands and only the body does not.
    fn stop(&self, rest: &[u8], broken: Option<BatchHeader>) -> Stop {
        if let Some(header) = broken {
            let touched: Vec<_> = format::touched(&header, rest).collect();
            let end = self.at.saturating_add(header.length);
            let inside = (end as usize) < self.bytes.len();
            return Stop {
                at: self.at,
                link: self.link,
                blank: false,
                logs: Some(touched.iter().map(|(log, _)| *log).collect()),
                touched: Some(touched),
                resumes_at: inside.then_some(end),
                resumes_link: Some(self.link_behind_broken(&header, end)),
            };
        }
        let blank = rest.iter().all(|byte| *byte == 0);
        let found = if blank { None } else { self.successor(rest) };
        Stop {
            at: self.at,
            link: self.link,
            blank,
            touched: None,
            logs: None,
            resumes_at: found.map(|(at, _)| at),
            resumes_link: found.map(|(_, header)| header.previous),
        }
    }

    /// What follows a broken batch names it; what follows one that stood for others names the last of those.
    fn link_behind_broken(&self, header: &BatchHeader, end: u32) -> Link {
        let next = || BatchHeader::decode(self.bytes.get(end as usize..)?);
        let carried = (header.touched == 0).then(next).flatten().map(|next| next.previous);
        carried.unwrap_or_else(|| header.link())
    }

    /// Where the walk goes on behind a batch whose header is lost: at the header that names it as the one before,
    /// by the checksum it carries or ought to. What merely looks like a batch, because a payload holds one, does
    /// not know that. Failing such a header, because more than one is lost, at the first that stands.
    fn successor(&self, lost: &[u8]) -> Option<(u32, BatchHeader)> {
        let claims = BatchHeader::claims(lost);
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
        let mut at = (after as usize + 8) & !7;
        while at + BATCH_HEADER_BYTES as usize <= self.bytes.len() {
            if let Some(header) = BatchHeader::decode(&self.bytes[at..]) {
                return Some((u32::try_from(at).ok()?, header));
            }
            at += 8;
        }
        None
    }
}

/// The highest `durable` that any header behind byte `after` attests; 0 when none stands there.
pub(crate) fn attested_durable(bytes: &[u8], after: u32) -> u64 {
    let mut scan = Scan::new(bytes, after, None);
    let mut highest = 0;
    while let Some((at, header)) = scan.search(scan.at) {
        highest = highest.max(header.durable);
        scan.at = at;
    }
    highest
}
