//! The next segment's file: filled with zeros ahead of time, a step at a time.
//!
//! Purpose: a sync of blocks that were written before costs a fraction of one of blocks that the file system
//! has only reserved. So past half of the active segment, in `sync` mode, the committer fills the next one's
//! file. It syncs each step, so that no more than a step of zeros lies in front of a group on the disk's
//! queue, sees to groups between two steps, and rests after each as it does after all that is done in the
//! background ([`pace`](crate::pace)), unless the active segment is about to be full.
//!
//! Invariants: a spare has a working name until the writer takes it; one that is given up leaves no file
//! behind; only one is begun for each segment.

use crate::error::is_full;
use crate::file_names;
use crate::options::Durability;
use crate::pace::rest;
use crate::segment;
use crate::sizes::least_capacity;
use crate::writer::Writer;
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::time::Instant;
use thalweg_sys::disk::{Allocation, Disk, File};

/// Zeros that are written and synced at a time.
const STEP_BYTES: u32 = if cfg!(test) { 4096 } else { 1 << 20 };
/// Zeros that one call writes: the kernel keeps a file in pieces as large, and marks all of one dirty that a
/// store touches.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What a segment is begun for: it decides whether a full disk may lend the reserve to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentPurpose {
    /// More is to be kept.
    ToGrow,
    /// Something is not needed any more, and its room comes back.
    ToLetGo,
}

/// The next segment's file, full of zeros or, made on the spot, of blocks that are reserved.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) file: File,
    name: String,
    pub(crate) number: u32,
    pub(crate) capacity: u32,
}

/// A spare that is not full yet.
#[derive(Debug)]
pub(crate) struct Filling {
    disk: Disk,
    path: PathBuf,
    spare: Spare,
    filled: u32,
    /// The next step is due then, at the latest.
    pub(crate) rested: Instant,
}

impl Filling {
    fn begin(order: Order) -> io::Result<Filling> {
        let Order { disk, directory, number, capacity } = order;
        let name = file_names::spare(number);
        let path = directory.join(&name);
        let _ = disk.unlink(&path);
        let file = disk.create(&path)?;
        let spare = Spare { file, name, number, capacity };
        let filling = Filling { disk, path, spare, filled: 0, rested: Instant::now() };
        match filling.spare.file.allocate(u64::from(capacity), Allocation::Reserved) {
            Ok(()) => Ok(filling),
            Err(error) => {
                filling.give_up();
                Err(error)
            }
        }
    }

    /// Fills and syncs some more. Whether it is full.
    fn step(&mut self, rest_parts: u32) -> io::Result<bool> {
        let begun = Instant::now();
        let end = self.spare.capacity.min(self.filled + STEP_BYTES);
        while self.filled < end {
            let bytes = (end - self.filled).min(ZEROS.len() as u32);
            self.spare.file.write_at(&ZEROS[..bytes as usize], self.filled.into())?;
            self.filled += bytes;
        }
        self.spare.file.sync_data()?;
        self.rested = Instant::now() + rest(begun.elapsed(), rest_parts);
        Ok(end == self.spare.capacity)
    }

    /// Whether it may rest: it is wanted, and there is room left, also for the zeros that are missing: those
    /// are written several times as fast as a log fills.
    fn has_time(&self, writer: &Writer) -> bool {
        let (room, missing) = (writer.segment_tail.remaining(), self.spare.capacity - self.filled);
        writer.is_next(self.spare.number) && room > missing.max(writer.active.header.capacity) / 4
    }

    fn give_up(self) {
        let _ = self.disk.unlink(&self.path);
    }
}

/// What it takes to begin a spare without holding the writer's lock.
pub(crate) struct Order {
    disk: Disk,
    directory: PathBuf,
    number: u32,
    capacity: u32,
}

/// The committer's preallocation state: at most one file is being filled.
#[derive(Debug, Default)]
pub(crate) struct Filler {
    filling: Option<Filling>,
}

impl Filler {
    /// Until when there is nothing to do; `None` as long as no spare is due.
    pub(crate) fn rests_until(&self, writer: &Writer) -> Option<Instant> {
        match &self.filling {
            Some(filling) if filling.has_time(writer) => Some(filling.rested),
            Some(_) => Some(Instant::now()),
            None => writer.is_spare_due().then(Instant::now),
        }
    }

    /// Begins what was ordered, or goes on with what is being filled.
    pub(crate) fn go_on(&mut self, order: Option<Order>, writer: &Mutex<Writer>, rest_parts: u32) {
        let before = self.filling.take();
        let begun = match (before, order) {
            // The log moved past it.
            (Some(before), order) if order.is_some() || !writer.lock().is_next(before.spare.number) => {
                before.give_up();
                order.map(Filling::begin)
            }
            (before, order) => before.map(Ok).or_else(|| order.map(Filling::begin)),
        };
        let stepped = begun.map(|begun| {
            let mut filling = begun?;
            match filling.step(rest_parts) {
                Ok(full) => Ok((filling, full)),
                Err(error) => {
                    filling.give_up();
                    Err(error)
                }
            }
        });
        match stepped {
            None => {}
            Some(Ok((filling, true))) => writer.lock().offer(filling.spare),
            Some(Ok((filling, false))) => self.filling = Some(filling),
            Some(Err(error)) => tracing::warn!(%error, "cannot prepare the next segment"),
        }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        if let Some(filling) = self.filling.take() {
            filling.give_up();
        }
    }
}

impl Writer {
    fn is_next(&self, number: u32) -> bool {
        number == self.active.header.number + 1
    }

    /// Past half of the active segment, in `sync` mode, when none was begun and a number is left for one.
    pub(crate) fn is_spare_due(&self) -> bool {
        self.options.durability == Durability::Sync
            && self.segment_tail.end() > self.active.header.capacity / 2
            && self.spare.is_none()
            && !self.is_next(self.spare_begun)
            && segment::next_number(self.active.header.number).is_ok()
            && self.directory.is_some()
            && self.reserve.is_whole()
    }

    /// Orders the spare that is due, once.
    pub(crate) fn order_spare(&mut self) -> Option<Order> {
        let directory = self.directory.clone().filter(|_| self.is_spare_due())?;
        self.spare_begun = self.active.header.number + 1;
        let (number, capacity) = (self.spare_begun, self.next_capacity(0));
        Some(Order { disk: self.disk.clone(), directory, number, capacity })
    }

    /// Takes a prepared spare, unless the log moved past its number meanwhile or takes nothing any more.
    fn offer(&mut self, mut spare: Spare) {
        let Some(directory) = self.directory.clone() else { return };
        let name = segment::file_name(spare.number);
        let wanted = !self.closed && self.is_next(spare.number) && self.spare.is_none();
        if wanted && self.disk.rename(&directory.join(&spare.name), &directory.join(&name)).is_ok() {
            spare.name = name;
            self.spare = Some(spare);
        } else {
            self.discard(Some(spare));
        }
    }

    /// A closed store leaves no file behind that nothing is in.
    pub(crate) fn drop_spare(&mut self) {
        let spare = self.spare.take();
        self.spare_begun = 0;
        self.discard(spare);
    }

    pub(crate) fn discard(&self, spare: Option<Spare>) {
        if let (Some(spare), Some(directory)) = (spare, &self.directory) {
            let _ = self.disk.unlink(&directory.join(spare.name));
        }
    }

    /// Makes the next segment on the spot. On a full disk a caller that lets go of something gets the least
    /// that it needs out of the [`reserve`](crate::reserve). No other caller gets anything before that is
    /// whole again.
    pub(crate) fn prepare_on_the_spot(
        &mut self,
        number: u32,
        needed: u32,
        purpose: SegmentPurpose,
    ) -> io::Result<Spare> {
        let prepared = match (self.reserve.restore(), purpose) {
            (true, _) => self.prepare_largest(number, needed),
            (false, SegmentPurpose::ToLetGo) => {
                self.prepare(number, least_capacity(needed), Allocation::Reserved)
            }
            (false, SegmentPurpose::ToGrow) => return Err(io::ErrorKind::StorageFull.into()),
        };
        match prepared {
            Err(error) if purpose == SegmentPurpose::ToLetGo && is_full(&error) && self.reserve.lend() => {
                let prepared = self.prepare(number, least_capacity(needed), Allocation::Reserved);
                self.reserve.give_back();
                prepared
            }
            prepared => prepared,
        }
    }

    /// Of the size that is due, or on a nearly full disk the largest that fits.
    fn prepare_largest(&self, number: u32, needed: u32) -> io::Result<Spare> {
        let (floor, mut capacity) = (least_capacity(needed), self.next_capacity(needed));
        loop {
            match self.prepare(number, capacity, Allocation::Reserved) {
                Err(error) if is_full(&error) && capacity > floor => {
                    capacity = (capacity / 2).next_multiple_of(4096).max(floor);
                }
                other => return other,
            }
        }
    }

    fn prepare(&self, number: u32, capacity: u32, how: Allocation) -> io::Result<Spare> {
        let Some(directory) = &self.directory else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let name = segment::file_name(number);
        let path = directory.join(&name);
        let _ = self.disk.unlink(&path);
        let file = self.disk.create(&path)?;
        if let Err(error) = file.allocate(u64::from(capacity), how) {
            let _ = self.disk.unlink(&path);
            return Err(error);
        }
        Ok(Spare { file, name, number, capacity })
    }
}
