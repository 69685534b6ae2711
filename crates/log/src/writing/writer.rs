//! The one writer: copies batches into the active segment, chained, and publishes them.
//!
//! Behind one lock, held for a header checksum and a copy. The body does not depend on its place and is
//! checksummed beforehand. How a batch gets into the file is decided by the
//! [`segment_tail`](crate::segment_tail). When the active segment is full, the next one takes over: the spare
//! that the committer prepared, or one made on the spot with reserved blocks.
//!
//! Invariants: a batch never spans segments; `file_end` moves only over whole batches; what a group took with
//! it is synced before anything in it is acknowledged; no commit in `os` or `memory` mode makes a system call
//! of its own but the one in thousands that prefaults pages or prepares a segment.

use crate::ahead::{Ahead, prefault_bytes};
use crate::batch::{Placed, PlannedBatch};
use crate::committer::{Lead, NextGroup};
use crate::control::Control;
use crate::error::CommitError;
use crate::format::{BatchHeader, Link, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::open::{Parts, Tail};
use crate::options::{Durability, Options};
use crate::reserve::Reserve;
use crate::segment::{self, Segment};
use crate::segment_tail::{SegmentTail, WriteMode};
use crate::spare::{SegmentPurpose, Spare};
use crate::store::Store;
use crate::times::{EntryTimes, Times};
use crate::view::Segments;
use crate::{Position, Time, position};
use parking_lot::Condvar;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thalweg_sys::disk::Disk;

pub(crate) struct Writer {
    pub(crate) disk: Disk,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) options: Options,
    /// The store's, as are the segments.
    pub(crate) control: Arc<Control>,
    pub(crate) segments: Arc<Segments>,
    pub(crate) active: Arc<Segment>,
    pub(crate) segment_tail: SegmentTail,
    pub(crate) link: Link,
    /// Of all entries.
    pub(crate) times: Times,
    /// Pages of the active segment that are there, in `os` mode.
    pub(crate) ahead: Ahead,
    pub(crate) spare: Option<Spare>,
    pub(crate) reserve: Reserve,
    /// The segment whose spare is being filled, or could not be.
    pub(crate) spare_begun: u32,
    /// What the next sync is going to cover.
    pub(crate) next_group: NextGroup,
    /// Who makes what is written durable.
    pub(crate) lead: Lead,
    /// Why nothing more is written or acknowledged: a sync failed, or a call that was to write.
    pub(crate) failure: Option<String>,
    /// Every watcher was told of it.
    pub(crate) failure_announced: bool,
    /// Wakes the committer.
    pub(crate) work: Arc<Condvar>,
    pub(crate) closed: bool,
    /// The last [`Store`] is gone, and the committer: what is not durable by now never will be.
    pub(crate) abandoned: bool,
    /// The next segment is to be as small as a store's first.
    pub(crate) shrink_next: bool,
    /// Time of the first entry in the active segment, 0 while there is none.
    pub(crate) first_entry_time: Time,
    pub(crate) tally: Tally,
    /// Payload bytes per segment that some log still needs.
    pub(crate) live_bytes: BTreeMap<u32, u64>,
    /// Of the active segment, payload bytes that were let go.
    pub(crate) gone_bytes: u64,
    pub(crate) scratch: Vec<u8>,
}

impl Store {
    /// Seals the segment that is being written and begins the next one, so that what is in it can be retired,
    /// backed up by a link, or let go. Does nothing when it is empty.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn rotate(&self) -> Result<(), CommitError> {
        self.shared.writer.lock().begin_next(SegmentPurpose::ToGrow)
    }
}

/// What was done since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Segments begun.
    pub(crate) rotations: u64,
    /// Purges that a caller asked for.
    pub(crate) purges: u64,
    /// Payload bytes let go.
    pub(crate) purged_bytes: u64,
    /// Bytes of segments removed.
    pub(crate) freed_bytes: u64,
    /// Batches of commits written, and the bytes they took.
    pub(crate) batches: u64,
    pub(crate) batch_bytes: u64,
    /// Entries written.
    pub(crate) entries: u64,
    /// Batches refused by the disk.
    pub(crate) failures: u64,
}

impl Tally {
    /// Counts the batch of a commit, once it is written.
    pub(crate) fn count(&mut self, entries: u64, placed: &Placed) {
        self.batches += 1;
        self.batch_bytes += u64::from(placed.bytes);
        self.entries += entries;
    }
}

impl Writer {
    /// The writer of a store that goes on at `tail`. What is needed of each segment is for the caller to say.
    pub(crate) fn new(parts: &Parts, segments: Arc<Segments>, tail: Tail) -> Writer {
        let Parts { disk, directory, options, control, .. } = parts;
        Writer {
            disk: disk.clone(),
            directory: directory.clone(),
            options: options.clone(),
            control: control.clone(),
            segments,
            first_entry_time: tail.active.first_time(),
            active: tail.active,
            segment_tail: SegmentTail::new(tail.region, options),
            link: tail.link,
            times: tail.times,
            ahead: Ahead::default(),
            spare: None,
            reserve: Reserve::found(disk, directory.as_deref()),
            spare_begun: 0,
            next_group: NextGroup::default(),
            lead: Lead::default(),
            failure: None,
            failure_announced: false,
            work: Arc::default(),
            closed: false,
            abandoned: false,
            shrink_next: false,
            tally: Tally::default(),
            live_bytes: BTreeMap::new(),
            gone_bytes: 0,
            scratch: Vec::with_capacity(128),
        }
    }

    /// End of the last batch, in its file or staged.
    pub(crate) fn staged_end(&self) -> Position {
        position(self.active.header.number, self.segment_tail.end())
    }

    /// Whether it takes more.
    pub(crate) fn check_open(&self) -> Result<(), CommitError> {
        match &self.failure {
            _ if self.closed => Err(CommitError::Closed),
            Some(why) => Err(CommitError::Failed(why.clone())),
            None => Ok(()),
        }
    }

    /// Wakes the committer, if it sleeps.
    pub(crate) fn wake_committer(&mut self) {
        if std::mem::take(&mut self.lead.committer_idle) {
            self.work.notify_one();
        }
    }

    /// Leaves what is written to the committer.
    pub(crate) fn nudge(&mut self) {
        self.lead.owed = true;
        self.wake_committer();
    }

    /// Takes nothing more from here on. The committer tells the watchers: the thread that came upon the
    /// failure may hold locks that they want.
    pub(crate) fn fail(&mut self, why: &io::Error) -> CommitError {
        let why = self.failure.get_or_insert_with(|| why.to_string()).clone();
        self.nudge();
        CommitError::Failed(why)
    }

    /// Writes one batch, and publishes it unless it is staged.
    pub(crate) fn append(
        &mut self,
        batch: &PlannedBatch<'_>,
        mode: WriteMode,
    ) -> Result<Placed, CommitError> {
        self.check_open()?;
        let limit = self.options.batch_bytes_max();
        let (size, too_large) = (batch.bytes(), |size| CommitError::TooLarge { size, limit });
        let length = u32::try_from(size).ok().filter(|_| size <= limit).ok_or_else(|| too_large(size))?;
        let logs = batch.touched.len();
        let touched = u16::try_from(logs);
        let touched = touched.map_err(|_| CommitError::TooManyLogs { logs, limit: usize::from(u16::MAX) })?;
        if length > self.segment_tail.remaining() {
            let why = if batch.lets_go() { SegmentPurpose::ToLetGo } else { SegmentPurpose::ToGrow };
            self.rotate(length, why).inspect_err(|_| self.tally.failures += 1)?;
        }
        self.bring_in(length);
        if batch.entries > 0 {
            self.note_times(&batch.times);
        }
        self.next_group.batches += 1;
        let start = self.staged_end();
        self.place(batch, (length, touched), mode).map_err(|error| self.fail(&error))?;
        let end = self.staged_end();
        self.control.set_staged_end(end);
        self.show();
        Ok(Placed { start, end, bytes: length })
    }

    /// Keeps what searches by time rely on: known before the entry is visible.
    fn note_times(&mut self, span: &EntryTimes) {
        if self.first_entry_time == 0 {
            self.first_entry_time = span.first;
        }
        let before = self.times.lateness;
        self.times.join(span);
        if self.times.lateness > before {
            self.control.set_lateness(self.times.lateness);
        }
    }

    fn place(
        &mut self,
        batch: &PlannedBatch<'_>,
        (length, touched): (u32, u16),
        mode: WriteMode,
    ) -> io::Result<()> {
        let header = BatchHeader {
            length,
            header_checksum: 0,
            body_checksum: batch.body_checksum,
            previous: self.link,
            durable: self.control.durable(),
            time: batch.times.latest(),
            frames: batch.count,
            touched,
        };
        let here = self.active.seal.at(self.segment_tail.end());
        let checksum = header.encode(batch.touched, here, &mut self.scratch);
        self.link = Link { length, checksum };
        self.segment_tail.put(&self.scratch, batch, mode, &self.active)
    }

    /// Brings what is staged into the file.
    ///
    /// # Errors
    /// [`CommitError::Failed`]: it did not come there, now or before.
    pub(crate) fn flush(&mut self) -> Result<(), CommitError> {
        if let Some(why) = &self.failure {
            return Err(CommitError::Failed(why.clone()));
        }
        self.segment_tail.flush(&self.active).map_err(|error| self.fail(&error))?;
        self.show();
        Ok(())
    }

    /// Says how far the file goes.
    fn show(&self) {
        let end = position(self.active.header.number, self.segment_tail.published());
        self.control.set_file_end(end);
        if self.options.durability != Durability::Sync {
            self.control.set_visible(end);
        }
    }

    fn rotate(&mut self, needed: u32, why: SegmentPurpose) -> Result<(), CommitError> {
        self.flush()?;
        let refused = |error: io::Error| CommitError::no_segment(&error);
        let number = segment::next_number(self.active.header.number).map_err(refused)?;
        let (store_id, previous, latest) = (self.control.store_id, self.link, self.times.latest);
        let header = |capacity| SegmentHeader {
            number,
            store_id,
            previous,
            capacity,
            latest,
            ..SegmentHeader::default()
        };
        self.ahead.settle();
        let mut ahead = Ahead::default();
        let (segment, region) = match &self.directory {
            None => Segment::in_memory(header(self.next_capacity(needed))).map_err(refused)?,
            Some(_) => {
                let fits = |spare: &Spare| spare.capacity - SEGMENT_HEADER_BYTES >= needed;
                let spare = match self.spare.take() {
                    Some(spare) if spare.number == number && fits(&spare) => spare,
                    unfit => {
                        self.discard(unfit);
                        self.prepare_on_the_spot(number, needed, why).map_err(refused)?
                    }
                };
                self.next_group.names_changed = true;
                if self.options.durability == Durability::Os {
                    // Before anything is stored through a map: the first fault on a page that is not there
                    // has the kernel read ahead, and what it reads is the zeros that were never written.
                    let first = prefault_bytes(spare.capacity);
                    let brought = spare.file.write_zeros(first.into(), 0);
                    ahead = Ahead::of(brought.map_or(spare.capacity, |()| first));
                }
                Segment::activate(header(spare.capacity), spare.file).map_err(refused)?
            }
        };
        let segment = Arc::new(segment);
        self.segments.add(segment.clone());
        self.control.bump_segments();
        let sealed = std::mem::replace(&mut self.active, segment);
        self.segment_tail.move_to(region);
        (self.ahead, self.first_entry_time, self.gone_bytes) = (ahead, 0, 0);
        self.tally.rotations += 1;
        match self.options.durability {
            Durability::Sync => self.next_group.sealed.push(sealed),
            Durability::Os => {
                sealed.release();
                self.next_group.sealed.push(sealed);
            }
            // Nothing to sync, and nothing must keep a segment that no log needs.
            Durability::Memory => {}
        }
        Ok(())
    }

    /// Seals the active segment, unless nothing is in it.
    pub(crate) fn begin_next(&mut self, why: SegmentPurpose) -> Result<(), CommitError> {
        self.check_open()?;
        if self.segment_tail.end() <= SEGMENT_HEADER_BYTES {
            return Ok(());
        }
        self.rotate(0, why)
    }
}
