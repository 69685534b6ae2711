//! Recovery: from whatever a crash left to a store that holds everything acknowledged and nothing torn.
//!
//! The newest whole checkpoint gives the catalogue; the batches behind it are replayed along the chain.
//! Where the chain breaks at a place that is known to have been durable, that is *damage*: it is named,
//! the logs it touches are refused from then on, and replay goes on where the chain resumes. Where it
//! breaks behind everything known durable, that is the *torn end* of unacknowledged commits: discarded,
//! reported, blanked. Evidence of durability: the control file's word, a clean close, and the `durable`
//! position that any later header attests.
//!
//! Forks find their parents as soon as both are known, and a deleted log is dropped as soon as replay has
//! passed its deletion and no log inherits from it: until then a fork of it may still turn up.
//!
//! Before the store is used, what lies between the evidence and the end is written anew and synced: a
//! sync that failed before the crash may have left pages that the kernel calls clean and never wrote.

mod apply;
mod arrivals;
mod follow;
mod resume;
mod settle;

pub(crate) use resume::resume;

use crate::catalogue::Catalogue;
use crate::checkpoint;
use crate::control::{self, Control};
use crate::error::{Damage, OpenError, Touched};
use crate::file_names;
use crate::final_end::FinalEnd;
use crate::format::{BadHeader, Config, FORMAT_VERSION, Link, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::log::Log;
use crate::open::Recovered;
use crate::plausible::{ID_END, OFFSET_MAX};
use crate::scan::{Step, Stop};
use crate::segment;
use crate::segment_file::{SegmentFile, used_bytes};
use crate::times::Times;
use crate::{LogId, Position, Time, place_of, position, segment_of};
use arrivals::Arrivals;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_sys::disk::Disk;

/// Where the log ends and what the next batch has to link to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) at: Position,
    pub(crate) link: Link,
}

pub(crate) struct Recovery {
    disk: Disk,
    directory: PathBuf,
    control: Arc<Control>,
    /// Another process has the store open and has written up to here: nothing is changed, nothing behind is
    /// read.
    bound: Option<Position>,
    headers: BTreeMap<u32, SegmentHeader>,
    /// The segments that were replayed: from where, and their ends.
    replayed: BTreeMap<u32, (u32, u32)>,
    catalogue: Catalogue,
    logs: HashMap<LogId, Arc<Log>>,
    /// The logs that came to the catalogue.
    arrivals: Arrivals,
    next_log: u64,
    last_link: Link,
    times: Times,
    evidence: Option<Position>,
    /// Logs that a gap of unknown logs may have touched, until a later commit shows that it did not.
    suspects: HashMap<LogId, Damage>,
    /// Segments that are not there, or whose header is lost, and should be: each hole under the number it
    /// begins with.
    missing: BTreeMap<u32, Damage>,
    /// Segments whose header is lost.
    headless: Vec<u32>,
    report: Recovered,
    /// The catalogue is filled: what is applied from now on is shown at once.
    reported: bool,
}

impl Recovery {
    pub(crate) fn new(
        disk: &Disk,
        directory: &Path,
        control: &Arc<Control>,
        bound: Option<Position>,
    ) -> Recovery {
        Recovery {
            disk: disk.clone(),
            directory: directory.to_owned(),
            control: control.clone(),
            bound,
            headers: BTreeMap::new(),
            replayed: BTreeMap::new(),
            catalogue: Catalogue::new(),
            logs: HashMap::new(),
            arrivals: Arrivals::default(),
            next_log: Some(control.next_log()).filter(|next| *next < ID_END).unwrap_or(0).max(1),
            last_link: Link::default(),
            times: Times { latest: 0, lateness: control.lateness() },
            evidence: None,
            suspects: HashMap::new(),
            missing: BTreeMap::new(),
            headless: Vec::new(),
            report: Recovered {
                clean: control.clean_end() != 0 && control.is_intact(),
                ..Recovered::default()
            },
            reported: false,
        }
    }

    /// Reads everything. Answers the starts of whole checkpoints and the end of the log, if the last
    /// segment can be written on.
    pub(crate) fn run(&mut self) -> Result<(Vec<Position>, Option<End>), OpenError> {
        if !self.control.is_intact() {
            self.lost(control::FILE_NAME.to_owned(), 0);
        }
        let names = self.disk.names(&self.directory).map_err(|source| self.failed("list", source))?;
        self.run_over(&names)
    }

    /// The same of the files that were listed, in another's store perhaps while some came and others went.
    fn run_over(&mut self, names: &[String]) -> Result<(Vec<Position>, Option<End>), OpenError> {
        self.read_headers(names)?;
        if self.control.is_intact() && !self.control.is_plausible(self.last_present()) {
            self.lost(control::FILE_NAME.to_owned(), 0);
        }
        let mut starts: Vec<Position> = names.iter().filter_map(|name| checkpoint::start_of(name)).collect();
        let mut begin = None;
        while let (None, Some(start)) = (begin, starts.last().copied()) {
            begin = self.load(start).map_err(|source| self.failed("read a checkpoint of", source))?;
            if begin.is_none() {
                starts.pop();
                self.lost(checkpoint::file_name(start), start);
            }
        }
        let end = self.replay(begin)?;
        self.settle();
        // Once all that may look like damage is known.
        self.refuse_outdated(names)?;
        Ok((starts, end))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> OpenError {
        OpenError::Io { action, file: self.directory.to_owned(), source }
    }

    fn lost(&mut self, file: String, at: Position) {
        self.report.damage.push(Damage::at(file, at).touching(Touched::Nobody));
    }

    /// A span whose logs cannot be told any more: whatever log there was by then is suspect, and what was
    /// created in it is unknown.
    fn gap(&mut self, damage: Damage) {
        for id in self.logs.keys() {
            self.suspects.entry(*id).or_insert_with(|| damage.clone());
        }
        self.report.unnamed.get_or_insert_with(|| damage.clone());
        self.report.damage.push(damage);
    }

    /// The last segment that is known to have existed.
    fn last_expected(&self) -> u32 {
        self.last_present().max(segment_of(self.evidence_in_control()))
    }

    fn last_present(&self) -> u32 {
        self.headers.keys().next_back().copied().unwrap_or(0)
    }

    /// What the control file proves durable, as far as one may look.
    fn evidence_in_control(&self) -> Position {
        self.control.evidence(self.last_present()).min(self.bound.unwrap_or(Position::MAX))
    }

    fn read_headers(&mut self, names: &[String]) -> Result<(), OpenError> {
        let mut blank = Vec::new();
        for name in names {
            let path = self.directory.join(name);
            if self.bound.is_none() && file_names::is_leftover(name) {
                let _ = self.disk.unlink(&path);
            }
            let Some(number) = segment::number_of(name) else { continue };
            if self.bound.is_some_and(|bound| number > segment_of(bound)) {
                continue;
            }
            let header = segment::read_header(&self.disk, &path);
            match header.map_err(|source| OpenError::Io { action: "read", file: path.clone(), source })? {
                None => blank.push(number),
                Some(Err(BadHeader::Newer(found))) => {
                    return Err(OpenError::Newer {
                        file: path,
                        found: found.into(),
                        known: FORMAT_VERSION.into(),
                    });
                }
                // Missing as far as replay is concerned, which says so when it comes there.
                Some(Err(BadHeader::Damaged)) => self.headless.push(number),
                Some(Ok(header)) if header.store_id != self.control.store_id => {
                    return Err(OpenError::NotAStore { file: path, why: "it belongs to another store" });
                }
                // Another's contents under its name.
                Some(Ok(header)) if header.number != number => self.headless.push(number),
                Some(Ok(header)) => {
                    self.headers.insert(number, header);
                }
            }
        }
        // A spare that was not taken into use; one that should be full is left for inspection.
        let taken = if self.bound.is_some() { u32::MAX } else { self.last_expected() };
        for number in blank.into_iter().filter(|number| *number > taken) {
            let _ = self.disk.unlink(&self.directory.join(segment::file_name(number)));
        }
        Ok(())
    }

    /// Takes a checkpoint's contents; `None` when it is not whole or its segment is missing.
    fn load(&mut self, start: Position) -> io::Result<Option<(Position, Link)>> {
        let catalogue = &self.catalogue;
        let mut intern =
            |config: Config| Config { content_type: catalogue.intern(&config.content_type), ..config };
        let read = checkpoint::read(&self.disk, &self.directory, start, self.control.store_id, &mut intern)?;
        let Some(found) = read.filter(|_| self.headers.contains_key(&segment_of(start))) else {
            return Ok(None);
        };
        self.next_log = self.next_log.max(found.next_log);
        self.times.latest = self.times.latest.max(found.times.latest);
        self.times.lateness = self.times.lateness.max(found.times.lateness);
        for log in found.logs {
            self.logs.insert(log.id(), log);
        }
        self.link_all();
        self.report.checkpoint = Some(found.start);
        Ok(Some((found.start, found.link)))
    }

    /// The file of a segment that has a header, as far as one may look.
    fn open_segment(&self, number: u32) -> Result<SegmentFile, OpenError> {
        let end = self.bound.map_or_else(FinalEnd::of_own, FinalEnd::at);
        let file = SegmentFile::open(&self.disk, &self.directory, &self.headers[&number], end);
        file.map_err(|source| {
            let file = self.directory.join(segment::file_name(number));
            OpenError::Io { action: "map", file, source }
        })
    }

    /// The highest position known to have been durable. Costs a look at everything behind `stop`, so it
    /// is gathered only when the chain breaks.
    fn durable_evidence(&mut self, stop: Position) -> Result<Position, OpenError> {
        if let Some(evidence) = self.evidence {
            return Ok(evidence);
        }
        let mut evidence = self.evidence_in_control();
        let later: Vec<u32> = self.headers.range(segment_of(stop)..).map(|(number, _)| *number).collect();
        for number in later {
            let behind = if number == segment_of(stop) { place_of(stop) } else { 0 };
            evidence = evidence.max(self.open_segment(number)?.attested_durable(behind));
        }
        self.evidence = Some(evidence);
        Ok(evidence)
    }

    fn replay(&mut self, begin: Option<(Position, Link)>) -> Result<Option<End>, OpenError> {
        let first = match begin {
            Some((start, _)) => segment_of(start),
            None => self.headers.keys().next().copied().unwrap_or(0),
        };
        if begin.is_none() && first > 1 {
            self.gap(Damage::segments(&(1..first)));
        }
        let (mut end, mut next, last) = (None, first.max(1), self.last_expected());
        while next <= last {
            let number = next;
            let Some(header) = self.headers.get(&number).copied() else {
                // However many are missing, it is one hole.
                next = self.headers.range(number..).next().map_or(last + 1, |(next, _)| *next);
                self.gap(Damage::segments(&(number..next)));
                self.missing.extend(self.report.damage.last().map(|damage| (number, damage.clone())));
                continue;
            };
            next += 1;
            // What lies in front of it may be missing.
            self.times.latest = self.times.latest.max(header.latest);
            let file = self.open_segment(number)?;
            if file.header().is_compacted() {
                // Without a checkpoint: what the batches that are gone said of names and states is lost.
                self.gap(Damage::segments(&(number..number + 1)));
            }
            let (at, link) = match begin {
                Some((start, link)) if number == first => (place_of(start), link),
                _ => (SEGMENT_HEADER_BYTES, header.previous),
            };
            let follower = self.headers.get(&(number + 1)).copied();
            end = self.replay_segment(&file, at, link, follower)?;
            if end.is_some() {
                break;
            }
        }
        Ok(end.filter(|end| self.is_whole(segment_of(end.at))))
    }

    /// Whether a segment's file still has all its bytes, so that it can be written on.
    fn is_whole(&mut self, number: u32) -> bool {
        let file = self.open_segment(number).ok();
        file.is_some_and(|file| file.length() >= self.headers[&number].capacity)
    }

    /// Replays one segment. Answers the end of the log if it lies here; `None` to go on with the next.
    fn replay_segment(
        &mut self,
        file: &SegmentFile,
        at: u32,
        link: Link,
        next: Option<SegmentHeader>,
    ) -> Result<Option<End>, OpenError> {
        let number = file.header().number;
        let mut scan = file.scan(at, Some(link));
        // A reader of what lies in front of damage has to find it anew.
        let mut trusted_from = at;
        loop {
            match scan.step() {
                Step::Batch(batch) => {
                    self.last_link = batch.header.link();
                    self.apply(number, &batch);
                }
                Step::Stop(stop) => {
                    let here = position(number, stop.place);
                    let link = stop.link.unwrap_or_default();
                    self.replayed.insert(number, (trusted_from, stop.at));
                    self.last_link = link;
                    let gone_on =
                        |next: SegmentHeader| next.previous == link || next.after_damage && stop.blank;
                    if next.is_some_and(gone_on) {
                        return Ok(None);
                    }
                    let evidence = self.durable_evidence(here)?;
                    if stop.blank && next.is_none() && evidence > here {
                        // It ends as it should; what is missing is the segment behind it.
                        return Ok(None);
                    }
                    if here >= evidence {
                        if self.report.clean && !stop.blank {
                            // Nothing was being written: what stands there came by itself.
                            self.lost(segment::file_name(number), here);
                        }
                        let used = if stop.blank { 0 } else { used_bytes(file.bytes(), stop.at) };
                        self.report.discarded_bytes += u64::from(used);
                        // What a torn end leaves behind it may lack its header, or the segment before it.
                        self.headless.retain(|torn| *torn <= number);
                        return Ok(Some(End { at: here, link }));
                    }
                    let resumes = stop.resumes;
                    self.damaged(number, stop);
                    match resumes {
                        Some(resumes) => {
                            trusted_from = resumes.at;
                            scan = file.scan(resumes.at, resumes.link);
                        }
                        None => {
                            self.replayed.insert(number, (file.length(), file.length()));
                            return Ok(None);
                        }
                    }
                }
            }
        }
    }

    fn damaged(&mut self, number: u32, stop: Stop) {
        let damage = stop.damage(segment::file_name(number), number);
        let Some(touched) = stop.touched else { return self.gap(damage) };
        for (id, tail) in touched {
            if let Some(log) = self.logs.get(&id) {
                let mut inner = log.lock();
                inner.tail = inner.tail.max(tail.min(OFFSET_MAX));
                inner.set_damage(damage.clone());
            } else {
                // Perhaps created there: its name is lost.
                self.report.unnamed.get_or_insert_with(|| damage.clone());
            }
        }
        self.report.damage.push(damage);
    }

    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Finishes the catalogue and answers what was found.
    pub(crate) fn report(&mut self, opened_at: Time) -> Recovered {
        let suspects = std::mem::take(&mut self.suspects);
        for log in self.logs.values() {
            let mut inner = log.lock();
            if let Some(damage) = suspects.get(&log.id()) {
                inner.note_damage(|| damage.clone());
            }
            inner.accessed = inner.accessed.max(opened_at);
            drop(inner);
            self.catalogue.place(log.name()).put(log.clone());
        }
        self.report.logs = self.logs.len() as u64;
        self.reported = true;
        self.report.clone()
    }

    /// Segments that are not there, or whose header is lost, and should be: each hole under the number it
    /// begins with.
    pub(crate) fn missing(&self) -> &BTreeMap<u32, Damage> {
        &self.missing
    }

    /// Segments whose headers it read.
    pub(crate) fn segments(&self) -> impl Iterator<Item = u32> {
        self.headers.keys().copied()
    }

    pub(crate) fn times(&self) -> Times {
        self.times
    }

    pub(crate) fn found_damage(&self) -> bool {
        !self.report.damage.is_empty()
    }

    /// Number and link of the segment to begin when none can be written on.
    ///
    /// # Errors
    /// No number is left for one.
    pub(crate) fn next_segment(&self) -> io::Result<(u32, Link)> {
        Ok((segment::next_number(self.last_expected())?, self.last_link))
    }
}

/// A segment that is missing, and who lost something in it.
pub(crate) fn missing_segment(number: u32, logs: Touched) -> Damage {
    Damage::segments(&(number..number + 1)).touching(logs)
}

/// Whether a segment is in one of some holes.
pub(crate) fn is_missing(holes: &BTreeMap<u32, Damage>, number: u32) -> bool {
    holes.range(..=number).any(|(_, hole)| hole.resumes.is_some_and(|behind| segment_of(behind) > number))
}
