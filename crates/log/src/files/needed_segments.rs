//! Which segments a store needs, and which of them it lacks.
//!
//! Purpose: verification, parsing and backups say the same of a file that is not there. Segments are removed
//! when no log needs them any more, so a gap in their numbers proves nothing. The newest whole checkpoint
//! says which segments in front of it are needed; behind it, all are. Whatever is removed, no newer
//! checkpoint speaks of. So a caller that first looks for the segments and then for the newest checkpoint can
//! tell a segment that is lost from one that was removed meanwhile. Nor does a name that was not listed prove
//! anything: a directory is read piece by piece, and a file that took another's place meanwhile, as one that
//! was compacted does, may be passed over. So what is needed and was not listed is looked for by its name.

use crate::checkpoint::{self, Checkpoint};
use crate::final_end::FinalEnd;
use crate::format::SegmentHeader;
use crate::going_on::GoOn;
use crate::log::Log;
use crate::segment_file::SegmentFile;
use crate::{Position, position, segment, segment_of};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;

/// Names that are looked for one by one. One listing passes over few, and where more than these are missing
/// the store is damaged anyway.
const NAMES_MAX: usize = 1024;

/// Attempts to read the newest checkpoint while it is replaced by newer ones.
const LOOKS_MAX: u32 = 16;

/// Which segments a store needs, as of a checkpoint.
pub(crate) struct Needs {
    /// Segments that hold payload of some log in it.
    held: BTreeSet<u32>,
    /// The segment that a replay begins in.
    pub(crate) replays_from: u32,
}

impl Needs {
    /// By the newest checkpoint that is whole.
    pub(crate) fn of(newest: Option<&Checkpoint>) -> Needs {
        let positions = |log: &Arc<Log>| {
            let inner = log.lock();
            inner.extents.all().iter().map(|extent| segment_of(extent.position)).collect::<Vec<_>>()
        };
        let logs = newest.iter().flat_map(|checkpoint| &checkpoint.logs);
        Needs {
            held: logs.flat_map(positions).collect(),
            replays_from: newest.map_or(1, |checkpoint| segment_of(checkpoint.start)),
        }
    }

    /// Segments without which a store whose last one has this number does not open whole.
    pub(crate) fn up_to(&self, last: u32) -> impl Iterator<Item = u32> {
        self.held.range(..self.replays_from).copied().chain(self.replays_from..=last)
    }

    /// Those of them that were not listed and are there all the same, by their names.
    pub(crate) fn passed_over(
        &self,
        disk: &Disk,
        directory: &Path,
        listed: &[String],
        last: u32,
        end: FinalEnd,
    ) -> io::Result<Vec<String>> {
        let listed: BTreeSet<u32> = listed.iter().filter_map(|name| segment::number_of(name)).collect();
        let unlisted = self.up_to(last).filter(|number| end.reaches(*number) && !listed.contains(number));
        let unlisted = unlisted.take(NAMES_MAX);
        let mut found = Vec::new();
        for number in unlisted {
            if segment::is_there(disk, directory, number)? {
                found.push(segment::file_name(number));
            }
        }
        Ok(found)
    }

    /// Those of them that are not there, as ranges. A single segment of a number far away makes one range,
    /// not as many entries. The checkpoint may be newer than the end up to which a store in use is looked at:
    /// what it needs behind that was not looked for.
    pub(crate) fn missing(&self, there: &BTreeSet<u32>, last: u32, end: FinalEnd) -> Vec<Range<u32>> {
        let held = self.held.range(..self.replays_from);
        let held = held.filter(|number| end.reaches(**number) && !there.contains(number));
        let mut holes: Vec<Range<u32>> = held.map(|number| *number..*number + 1).collect();
        let mut next = self.replays_from;
        let behind = there.range(self.replays_from..).copied().take_while(|number| *number <= last);
        for number in behind.chain([last.saturating_add(1)]) {
            holes.extend((next < number).then_some(next..number));
            next = next.max(number + 1);
        }
        holes
    }
}

fn is_there(headers: &[SegmentHeader], number: u32) -> bool {
    headers.binary_search_by_key(&number, |header| header.number).is_ok()
}

/// The newest checkpoint that is whole, of those there are now.
pub(crate) fn newest(disk: &Disk, directory: &Path, store_id: u64) -> io::Result<Option<Checkpoint>> {
    let mut looks = 0;
    loop {
        looks += 1;
        let names = disk.names(directory)?;
        let mut starts: Vec<Position> = names.iter().filter_map(|name| checkpoint::start_of(name)).collect();
        starts.sort_unstable();
        let whole = starts.iter().rev().find_map(|start| {
            checkpoint::read(disk, directory, *start, store_id, &mut |config| config).transpose()
        });
        match whole.transpose() {
            // A checkpoint is removed once there are newer ones.
            Err(error) if error.kind() == io::ErrorKind::NotFound && looks < LOOKS_MAX => {}
            newest => return newest,
        }
    }
}

/// The first missing segment, if nothing from there on is known to have been durable: then a power cut took
/// the end, and the next open discards what lies behind it. `u32::MAX`: there is no such. The headers are of
/// the segments there are, in order.
pub(crate) fn torn_from(
    disk: &Disk,
    directory: &Path,
    headers: &[SegmentHeader],
    replays_from: u32,
    known: Position,
    end: FinalEnd,
    go_on: GoOn<'_>,
) -> io::Result<u32> {
    let missing = (replays_from..).find(|number| !is_there(headers, *number)).unwrap_or(u32::MAX);
    let mut evidence = known;
    for header in headers.iter().filter(|header| header.number > missing) {
        go_on()?;
        let file = SegmentFile::open(disk, directory, header, end)?;
        evidence = evidence.max(file.attested_durable(0));
    }
    let is_torn = missing > replays_from && evidence <= position(missing, 0);
    Ok(if is_torn { missing } else { u32::MAX })
}
