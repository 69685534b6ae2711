//! Offline verification: every bit of every file, without opening the store for writing.
//!
//! In a store that was closed cleanly a flipped bit is found anywhere: segments and checkpoints carry
//! checksums, bytes without a batch are zero, and the control file has a checksum. Three files hold nothing
//! that could be lost, and their bits are not judged: `signal`, of which the size is checked, `lock`, which
//! is empty when no process holds the store, and `reserve`, which is only room. Settled files of segments
//! that are missing, or still written to, are not judged either: opening removes them. Checked by the flips
//! test.

use crate::checkpoint;
use crate::continuity::Continuity;
use crate::control::{self, Control};
use crate::error::{Damage, OpenError, Touched};
use crate::final_end::FinalEnd;
use crate::format::{BadHeader, Config, FORMAT_VERSION, Kind, Link, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::going_on::{self, GoOn};
use crate::needed_segments::{self, Needs};
use crate::plausible::is_plausible;
use crate::scan::Stop;
use crate::segment;
use crate::segment_file::{SegmentFile, used_bytes};
use crate::settled::{self, Settled};
use crate::signal;
use crate::{Attached, LogId, Position, Store, position, segment_of};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use thalweg_sys::disk::Disk;

/// What verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Segments looked at.
    pub segments: u64,
    /// Batches whose checksums hold.
    pub batches: u64,
    /// Logs that are neither deleted nor lost, as the newest checkpoint and what came behind it say.
    pub logs: u64,
    /// Bytes of batches.
    pub bytes: u64,
    /// Checkpoints that are whole.
    pub checkpoints: u64,
    /// End of the log.
    pub end: Position,
    /// Unacknowledged bytes at the end that the next open discards.
    pub torn_bytes: u64,
    /// Spans that should be whole and are not.
    pub damage: Vec<Damage>,
}

/// Most looks at a store in use. A writer that is fast enough to change every list while it is read changes
/// different things each time.
const LOOKS_MAX: u32 = 16;

/// Verifies the store in a directory, up to the last batch that is published where a process has it open.
/// Changes nothing. If such a store seems to have lost something, it is looked at again: a file may have come
/// or gone between two reads of the directory.
///
/// # Errors
/// [`OpenError`] when the directory cannot be read as a store at all.
pub fn verify(disk: &Disk, directory: &Path) -> Result<Report, OpenError> {
    verify_while(disk, directory, &mut going_on::always)
}

/// The same, for as long as the caller wants it to go on.
///
/// # Errors
/// As [`verify()`]; [`OpenError::Io`] with what `go_on` said otherwise.
pub fn verify_while(disk: &Disk, directory: &Path, go_on: GoOn<'_>) -> Result<Report, OpenError> {
    let mut suspected: Option<HashSet<(String, Position)>> = None;
    let mut looks = 1;
    loop {
        let mut control = Control::attach_existing(disk, directory)?;
        let before = state(disk, directory, &control)?;
        let looked = Look::at(disk, directory, &mut control, &mut *go_on);
        let is_in_use = state(disk, directory, &control)? != before;
        match looked {
            Err(OpenError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound && looks < LOOKS_MAX => {}
            Ok(mut report) if is_in_use && !report.damage.is_empty() => {
                // Real damage is found by every look.
                let found: HashSet<_> = report.damage.iter().map(|d| (d.file.clone(), d.from)).collect();
                let kept = suspected.map_or(found.clone(), |before| &before & &found);
                report.damage.retain(|damage| kept.contains(&(damage.file.clone(), damage.from)));
                if report.damage.is_empty() || looks == LOOKS_MAX || looks > 1 && kept.len() == found.len() {
                    return Ok(report);
                }
                suspected = Some(kept);
            }
            outcome => return outcome,
        }
        looks += 1;
    }
}

impl Store {
    /// Verifies this store while it is written; see [`verify()`]. One without files is whole.
    ///
    /// # Errors
    /// [`OpenError`] when the directory cannot be read as a store at all.
    pub fn verify(&self) -> Result<Report, OpenError> {
        self.files().map_or(Ok(Report::default()), |(disk, directory)| verify(&disk, &directory))
    }

    /// Where its files are; `None` where it has none.
    pub(crate) fn files(&self) -> Option<(Disk, PathBuf)> {
        self.shared.directory.as_ref().map(|directory| (self.shared.disk.clone(), directory.clone()))
    }
}

impl Attached {
    /// Verifies this store; see [`verify()`].
    ///
    /// # Errors
    /// [`OpenError`] when the directory cannot be read as a store at all, or holds another by now.
    pub fn verify(&self) -> Result<Report, OpenError> {
        let (disk, directory) = self.files()?;
        verify(&disk, &directory)
    }

    /// Where its files are, and still are its own.
    pub(crate) fn files(&self) -> Result<(Disk, PathBuf), OpenError> {
        let (disk, directory) = self.disk_and_directory();
        let is_there = self.check_place();
        is_there.map_err(|source| OpenError::Io { action: "read", file: directory.to_owned(), source })?;
        Ok((disk.clone(), directory.to_owned()))
    }
}

/// What changes whenever a store is written to, or files of it are added or removed.
fn state(disk: &Disk, directory: &Path, control: &Control) -> Result<(Vec<String>, [u64; 3]), OpenError> {
    let failed = |source| OpenError::Io { action: "list", file: directory.to_owned(), source };
    let words = [control.segments_version(), control.file_end(), control.clean_end()];
    Ok((disk.names(directory).map_err(failed)?, words))
}

/// One look at a store.
struct Look<'a> {
    disk: &'a Disk,
    directory: &'a Path,
    report: Report,
    /// The logs that exist, as of the batches verified so far.
    logs: HashSet<LogId>,
    continuity: Continuity,
    /// Where the newest whole checkpoint begins: it knows the logs of what came before.
    replays: Position,
    /// How far the files may be looked at.
    end: FinalEnd,
    go_on: GoOn<'a>,
}

impl<'a> Look<'a> {
    /// Takes one look at all of it.
    fn at(
        disk: &'a Disk,
        directory: &'a Path,
        control: &mut Control,
        go_on: GoOn<'a>,
    ) -> Result<Report, OpenError> {
        // Before the files are listed: what is published lies in files that are there by then.
        let end = FinalEnd::of(disk, directory, control);
        let (report, logs, continuity) = (Report::default(), HashSet::new(), Continuity::default());
        let mut look = Look { disk, directory, report, logs, continuity, replays: 0, end, go_on };
        look.over(control)?;
        look.report.logs = look.logs.len() as u64;
        Ok(look.report)
    }

    fn over(&mut self, control: &mut Control) -> Result<(), OpenError> {
        let (disk, directory) = (self.disk, self.directory);
        let failed = |action| move |source| OpenError::Io { action, file: directory.to_owned(), source };
        let names = disk.names(directory).map_err(failed("list"))?;
        self.check_small_files(control).map_err(failed("look around in"))?;
        let mut headers: Vec<SegmentHeader> = Vec::new();
        let mut needs = Needs::of(None);
        for name in &names {
            (self.go_on)().map_err(failed("read"))?;
            if let Some(start) = checkpoint::start_of(name) {
                let read =
                    checkpoint::read(disk, directory, start, control.store_id, &mut |config: Config| config);
                match read.map_err(failed("read a checkpoint of"))? {
                    Some(whole) => {
                        self.report.checkpoints += 1;
                        needs = Needs::of(Some(&whole));
                        let there = whole.logs.iter().filter(|log| !log.lock().phase.is_deleting());
                        (self.logs, self.replays) = (there.map(|log| log.id()).collect(), start);
                    }
                    None => self.lost(name, start),
                }
            }
            headers.extend(self.header(name, control.store_id)?);
        }
        let last = headers.last().map_or(0, |header| header.number);
        let passed_over =
            needs.passed_over(disk, directory, &names, last, self.end).map_err(failed("read"))?;
        for name in &passed_over {
            headers.extend(self.header(name, control.store_id)?);
        }
        headers.sort_unstable_by_key(|header| header.number);
        let known = self.evidence(control, &headers);
        let torn = needed_segments::torn_from(
            disk,
            directory,
            &headers,
            needs.replays_from,
            known,
            self.end,
            &mut *self.go_on,
        );
        let torn = torn.map_err(failed("read"))?;
        headers.retain(|header| header.number < torn);
        self.report
            .damage
            .retain(|damage| segment::number_of(&damage.file).is_none_or(|number| number < torn));
        let clean = (control.is_intact() && control.clean_end() != 0).then(|| control.clean_end());
        self.check_compacted(&names, &headers, needs.replays_from).map_err(failed("list"))?;
        let last = headers.last().map_or(0, |header| header.number).max(segment_of(known));
        for hole in needs.missing(&headers.iter().map(|header| header.number).collect(), last, self.end) {
            self.report.damage.push(Damage::segments(&hole));
        }
        self.segments(&headers, known, clean).map_err(failed("read"))
    }

    /// Looks at the segments, in order.
    fn segments(
        &mut self,
        headers: &[SegmentHeader],
        known: Position,
        clean: Option<Position>,
    ) -> io::Result<()> {
        for (index, header) in headers.iter().enumerate() {
            // Behind a segment that was removed, or is reported missing, another chain of links begins.
            let follower = match headers.get(index + 1) {
                // It ends as it should, and the segment behind it is missing.
                None if header.number < segment_of(known) => Follower::Gone,
                None => Follower::None,
                Some(next) if next.number == header.number + 1 => Follower::Next(next),
                Some(_) => Follower::Gone,
            };
            self.segment(header, follower, known)?;
            if !matches!(follower, Follower::Next(_)) {
                self.continuity.interrupt();
            }
            if self.report.torn_bytes > 0 && clean == Some(self.report.end) {
                // The store was closed, so these bytes were not written by it.
                self.lost(&segment::file_name(header.number), self.report.end);
                self.report.torn_bytes = 0;
            }
        }
        Ok(())
    }

    /// The header in a file, if that is of a segment that is looked at and it stands.
    fn header(&mut self, name: &str, store_id: u64) -> Result<Option<SegmentHeader>, OpenError> {
        let number = segment::number_of(name).filter(|number| self.end.reaches(*number));
        let Some(number) = number else { return Ok(None) };
        let path = self.directory.join(name);
        let read = segment::read_header(self.disk, &path);
        let failed = |source| OpenError::Io { action: "read", file: self.directory.to_owned(), source };
        match read.map_err(failed)? {
            // A spare; or a segment that should be full, which is then found missing.
            None => {}
            Some(Ok(header)) if header.number == number && header.store_id == store_id => {
                return Ok(Some(header));
            }
            // Whole, but of another store or number.
            Some(Ok(_) | Err(BadHeader::Damaged)) => self.lost(name, position(number, 0)),
            Some(Err(BadHeader::Newer(found))) => {
                return Err(OpenError::Newer {
                    file: path,
                    found: found.into(),
                    known: FORMAT_VERSION.into(),
                });
            }
        }
        Ok(None)
    }

    fn segment(
        &mut self,
        header: &SegmentHeader,
        follower: Follower<'_>,
        known_durable: Position,
    ) -> io::Result<()> {
        self.report.segments += 1;
        if let Follower::Next(next) = follower {
            self.check_settled(next)?;
        }
        let name = segment::file_name(header.number);
        let file = SegmentFile::open(self.disk, self.directory, header, self.end)?;
        let (header, held) = (file.header(), file.held());
        if held < header.file_bytes() {
            self.lost(&name, position(header.number, held));
        }
        let (report, logs, replays) = (&mut self.report, &mut self.logs, self.replays);
        let (continuity, is_compacted) = (&mut self.continuity, header.is_compacted());
        if is_compacted {
            continuity.interrupt();
        }
        let (mut at, mut link): (u32, Option<Link>) = (SEGMENT_HEADER_BYTES, Some(header.previous));
        loop {
            let stop = file.scan(at, link).each_while(&mut *self.go_on, |batch| {
                report.batches += 1;
                report.bytes += u64::from(batch.header.length);
                for frame in crate::format::frames(batch.body) {
                    if !is_plausible(&frame) || !is_compacted && !continuity.follow(&frame) {
                        report.damage.push(batch.damage(name.clone(), header.number, frame.log));
                    }
                }
                if position(header.number, batch.place) < replays {
                    return;
                }
                for frame in crate::format::frames(batch.body) {
                    match frame.kind {
                        Kind::Create => _ = logs.insert(frame.log),
                        Kind::Delete => _ = logs.remove(&frame.log),
                        _ => {}
                    }
                }
            })?;
            report.end = position(header.number, stop.place);
            let is_end = matches!(follower, Follower::None) && report.end >= known_durable;
            if stop.blank && (is_end || follower.continues(&stop)) {
                return Ok(());
            }
            if is_end {
                report.torn_bytes = used_bytes(file.bytes(), stop.at).into();
                return Ok(());
            }
            report.damage.push(stop.damage(name.clone(), header.number));
            continuity.interrupt();
            let Some(resumes) = stop.resumes else { return Ok(()) };
            (at, link) = (resumes.at, resumes.link);
        }
    }

    /// Reports compacted segments that a replay from the newest checkpoint has to read: a segment is
    /// compacted only in front of two checkpoints.
    fn check_compacted(
        &mut self,
        names: &[String],
        headers: &[SegmentHeader],
        replays_from: u32,
    ) -> io::Result<()> {
        let compacted =
            headers.iter().filter(|header| header.number >= replays_from && header.is_compacted());
        let mut compacted = compacted.map(|header| header.number).peekable();
        let newest = |names: &[String]| names.iter().filter_map(|name| checkpoint::start_of(name)).max();
        // In a store in use newer checkpoints may have come since they were listed.
        if compacted.peek().is_some() && newest(names) == newest(&self.disk.names(self.directory)?) {
            compacted.for_each(|number| self.lost(&segment::file_name(number), position(number, 0)));
        }
        Ok(())
    }

    /// Checks the settled file of the segment in front of `next`, if it is there. Damage in it harms no log,
    /// but the disk made a mistake.
    fn check_settled(&mut self, next: &SegmentHeader) -> io::Result<()> {
        let number = next.number - 1;
        let name = settled::file_name(number);
        let is_whole = match Settled::open(self.disk, &self.directory.join(&name), next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            settled => settled.is_ok_and(|settled| settled.is_some_and(|settled| settled.is_whole())),
        };
        if !is_whole {
            let damage = Damage::at(name, position(number, 0)).touching(Touched::Nobody);
            self.report.damage.push(damage);
        }
        Ok(())
    }

    /// How far the control file proves the store durable, where it says what can be.
    fn evidence(&mut self, control: &Control, headers: &[SegmentHeader]) -> Position {
        let last_present = headers.last().map_or(0, |header| header.number);
        if control.is_intact() && !control.is_plausible(last_present) {
            self.lost(control::FILE_NAME, 0);
        }
        control.evidence(last_present).min(self.end.of_open().unwrap_or(Position::MAX))
    }

    /// Checks the control file and the signal file. If the control file's checksum fails, none of its words
    /// is believed, nor the store's id in it.
    fn check_small_files(&mut self, control: &mut Control) -> io::Result<()> {
        if !control.is_intact() {
            self.lost(control::FILE_NAME, 0);
            control.adopt_id(self.disk, self.directory)?;
        }
        if !signal::is_sound(self.disk, self.directory)? {
            self.lost(signal::FILE_NAME, 0);
        }
        Ok(())
    }

    /// Reports that a file does not read as it was written, from a position on.
    fn lost(&mut self, name: &str, at: Position) {
        self.report.damage.push(Damage::at(name, at));
    }
}

/// What follows a segment.
#[derive(Clone, Copy)]
enum Follower<'a> {
    /// Nothing: it is the newest.
    None,
    Next(&'a SegmentHeader),
    /// One or more segments that are missing.
    Gone,
}

impl Follower<'_> {
    /// Whether what follows the segment allows it to end here.
    fn continues(self, stop: &Stop) -> bool {
        match self {
            Follower::None => false,
            Follower::Next(next) => stop.link == Some(next.previous) || next.after_damage && stop.blank,
            Follower::Gone => true,
        }
    }
}
