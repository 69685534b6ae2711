//! Checkpoints: the catalogue and the extents as of a position, so that opening replays only what follows.
//!
//! ```text
//! header   magic 8 | version 4 | 0 4 | store id 8 | start 8 | link 8 | next log 8 | latest time 8 | lateness 8
//! record   bytes 4 | id 8 | last 8 | first 8 | tail 8 | accessed 8 | version 4 | closed 1 | deleted 1 | 0 2 | create payload |
//!          writer seq | closed by | producers | notes | extents           (see `encode_log`)
//! end      0 4 | records 8 | checksum 4
//! ```
//!
//! A checkpoint is taken while commits go on: it notes where the log ends, walks the catalogue, and
//! becomes valid only when everything it may contain is durable. Each record says up to which batch it
//! speaks (`last`), and replay skips what a log already has. A fork and its parent may have been visited at
//! different moments: who is whose parent, and who is retained, is settled by recovery. Two checkpoints are kept, so a damaged one
//! costs replay time and nothing else; segments are removed only behind the older of them, and only if nobody needed them when the
//! newer began: what is let go while it is written may be in its records.

use crate::credible::{ID_END, are_credible, branches_off, is_place};
use crate::error::{Damage, is_full};
use crate::extents::{Extent, Extents};
use crate::fork::Lineage;
use crate::format::{self, Config, Created, Link, Producer, word32, word64};
use crate::log::{ClosedBy, Log, Producers};
use crate::open::Durability;
use crate::pace::PacedFile;
use crate::store::{Shared, Store};
use crate::times::Times;
use crate::working::Working;
use crate::{Position, segment_of};
use std::io;
use std::path::Path;
use std::sync::Arc;
use thalweg_sync::region::Final;
use thalweg_sys::disk::Disk;

const MAGIC: u64 = u64::from_le_bytes(*b"THALWEGk");
const PREFIX: &str = "checkpoint-";
const HEADER_BYTES: usize = 64;
pub(crate) const KEPT: usize = 2;
/// What is put together before it is written: so little that a small store's memory does not show that a checkpoint was taken.
const FLUSH_BYTES: usize = 32 << 10;

fn file_name(start: Position) -> String {
    format!("{PREFIX}{start:016x}")
}

pub(crate) fn start_of(name: &str) -> Option<Position> {
    name.strip_prefix(PREFIX)
        .filter(|digits| digits.len() == 16)
        .and_then(|d| u64::from_str_radix(d, 16).ok())
}

/// A checkpoint read back.
pub(crate) struct Checkpoint {
    pub(crate) start: Position,
    pub(crate) link: Link,
    pub(crate) next_log: u64,
    /// Of the entries before `start`.
    pub(crate) times: Times,
    pub(crate) logs: Vec<Arc<Log>>,
}

/// A checkpoint that was just written.
struct Written {
    start: Position,
    bytes: u64,
    records: u64,
    /// Segments that none of its records speaks of: nobody needed them any more when it began.
    dead: Vec<u32>,
}

/// A checkpoint that is being written, with a running checksum.
struct Sink<'l> {
    file: PacedFile<'l>,
    record: Vec<u8>,
    checksum: u32,
    records: u64,
    failed: Option<io::Error>,
}

impl<'l> Sink<'l> {
    fn new(file: PacedFile<'l>) -> Sink<'l> {
        Sink { file, record: Vec::new(), checksum: 0, records: 0, failed: None }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.file.put(bytes)
    }

    /// Adds a log's record. Once the disk has taken less than there was, nothing more is kept for it.
    fn add(&mut self, log: &Log) {
        if self.failed.is_some() {
            return;
        }
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        self.failed = encode_log(log, &mut record).and_then(|()| self.put(&record)).err();
        self.records += u64::from(!record.is_empty());
        self.record = record;
    }

    /// Answers how many bytes there are.
    fn finish(mut self) -> io::Result<u64> {
        self.failed.take().map_or(Ok(()), Err)?;
        self.put(&[0; 4])?;
        self.put(&self.records.to_le_bytes())?;
        let checksum = self.checksum.to_le_bytes();
        self.file.put(&checksum)?;
        self.file.finish().map(|(_, bytes)| bytes)
    }
}

fn put(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    into.extend_from_slice(bytes);
}

/// One log's record, unless it is on its way out. One that is deleted and retained is not.
///
/// # Errors
/// It, or something in it, would be longer than its length can say.
fn encode_log(log: &Log, into: &mut Vec<u8>) -> io::Result<()> {
    let inner = log.lock();
    if inner.deleting && inner.children == 0 {
        return Ok(());
    }
    let start = into.len();
    into.extend_from_slice(&[0; 4]);
    for word in [log.id(), inner.last, inner.first, inner.tail, inner.accessed] {
        into.extend_from_slice(&word.to_le_bytes());
    }
    into.extend_from_slice(&inner.version.to_le_bytes());
    into.extend_from_slice(&[u8::from(inner.closed), u8::from(inner.deleting), 0, 0]);
    let mut scratch = Vec::new();
    let branch = inner.lineage.as_ref().map(|lineage| &lineage.branch);
    format::encode_create(log.name(), log.config(), branch, &mut scratch)?;
    put(into, &scratch);
    put(into, inner.damage().map_or(&b""[..], |_| b"damaged"));
    put(into, inner.writer_seq().map_or(&b""[..], |seq| &**seq));
    scratch.clear();
    if let Some(closed_by) = inner.closed_by() {
        format::encode_producer(&closed_by.id, closed_by.producer, &mut scratch);
    }
    put(into, &scratch);
    let producers = inner.producers.as_deref();
    let count = producers.map_or(0, Producers::len);
    into.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    for (id, producer) in producers.into_iter().flatten() {
        scratch.clear();
        format::encode_producer(id, *producer, &mut scratch);
        put(into, &scratch);
    }
    scratch.clear();
    for (key, value) in inner.notes.iter().flat_map(|notes| notes.iter()) {
        format::encode_note(key, value, &mut scratch)?;
    }
    put(into, &scratch);
    for extent in inner.extents.all() {
        into.extend_from_slice(&extent.position.to_le_bytes());
        into.extend_from_slice(&extent.offset.to_le_bytes());
        into.extend_from_slice(&extent.length.to_le_bytes());
        into.extend_from_slice(&extent.span.to_le_bytes());
        into.extend_from_slice(&extent.places.to_le_bytes());
    }
    let length =
        u32::try_from(into.len() - start).map_err(|_| io::Error::other("a log's record of 4 GiB"))?;
    into[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Cuts pieces off the front of a record.
struct Cutter<'a>(&'a [u8]);

impl<'a> Cutter<'a> {
    fn cut(&mut self, length: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(front)
    }

    fn word32(&mut self) -> Option<u32> {
        self.cut(4).map(|bytes| word32(bytes, 0))
    }

    fn word64(&mut self) -> Option<u64> {
        self.cut(8).map(|bytes| word64(bytes, 0))
    }

    fn piece(&mut self) -> Option<&'a [u8]> {
        let length = self.word32()?;
        self.cut(length as usize)
    }
}

fn decode_log(record: &[u8], intern: &mut dyn FnMut(Config) -> Config) -> Option<Log> {
    let mut cutter = Cutter(record);
    let (id, last, first, tail) = (cutter.word64()?, cutter.word64()?, cutter.word64()?, cutter.word64()?);
    let (accessed, version) = (cutter.word64()?, cutter.word32()?);
    let flags = cutter.cut(4)?;
    let (closed, deleting) = (flags[0] != 0, flags[1] != 0);
    let Created { name, config, branch } = format::decode_create(cutter.piece()?).filter(branches_off)?;
    // Who its parent is to whoever reads all records.
    let lineage = branch.map(|branch| Lineage::of(branch, None));
    if id >= ID_END || first > tail {
        return None;
    }
    let log = Log::new(id, name, intern(config), accessed, lineage);
    {
        let mut inner = log.lock();
        (inner.last, inner.first, inner.tail, inner.version) = (last, first, tail, version);
        (inner.closed, inner.deleting) = (closed, deleting);
        if !cutter.piece()?.is_empty() {
            inner.set_damage(Damage::of_logs(last, vec![id]));
        }
        let writer_seq = cutter.piece()?;
        if !writer_seq.is_empty() {
            inner.set_writer_seq(writer_seq);
        }
        let closed_by = cutter.piece()?;
        if !closed_by.is_empty() {
            let (id, producer) = format::decode_producer(closed_by)?;
            inner.set_closed_by(Some(ClosedBy { id: id.into(), producer }));
        }
        let mut producers = Producers::new();
        for _ in 0..cutter.word32()? {
            let (id, producer): (_, Producer) = format::decode_producer(cutter.piece()?)?;
            producers.insert(id.into(), producer);
        }
        inner.producers = (!producers.is_empty()).then(|| Box::new(producers));
        for (key, value) in format::decode_notes(cutter.piece()?)? {
            inner.note(key, value);
        }
        let mut extents = Extents::default();
        while !cutter.0.is_empty() {
            let (position, offset) = (cutter.word64()?, cutter.word64()?);
            let (length, span, places) = (cutter.word32()?, cutter.word32()?, cutter.word64()?);
            extents.restore(Extent { position, offset, length, span, places });
        }
        if !are_credible(extents.all(), tail) {
            return None;
        }
        inner.extents = extents;
    }
    Some(log)
}

/// Reads a checkpoint; `None` when it is not whole.
pub(crate) fn read(
    disk: &Disk,
    directory: &Path,
    start: Position,
    store_id: u64,
    intern: &mut dyn FnMut(Config) -> Config,
) -> io::Result<Option<Checkpoint>> {
    let file = disk.open_read_only(&directory.join(file_name(start)))?;
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    if length < HEADER_BYTES + 16 {
        return Ok(None);
    }
    // Mapped, not read: a large checkpoint must not double the memory at start.
    let whole = Final::new(file.map(length, false)?);
    Ok(decode(whole.bytes(), start, store_id, intern))
}

fn decode(
    bytes: &[u8],
    start: Position,
    store_id: u64,
    intern: &mut dyn FnMut(Config) -> Config,
) -> Option<Checkpoint> {
    let (whole, checksum) = bytes.split_at(bytes.len() - 4);
    let named = word64(whole, 0) == MAGIC && word64(whole, 16) == store_id && word64(whole, 24) == start;
    if !named || word32(whole, 8) != format::FORMAT_VERSION || crc32c::crc32c(whole) != word32(checksum, 0) {
        return None;
    }
    if !is_place(start) || segment_of(start) == 0 || word64(whole, 40) >= ID_END {
        return None;
    }
    let link = Link { length: word32(whole, 32), checksum: word32(whole, 36) };
    let mut cutter = Cutter(&whole[HEADER_BYTES..]);
    let mut logs = Vec::new();
    loop {
        match cutter.word32()? {
            0 => break,
            length => {
                let record = cutter.cut((length as usize).checked_sub(4)?)?;
                logs.push(Arc::new(decode_log(record, intern)?));
            }
        }
    }
    (cutter.word64()? == logs.len() as u64).then_some(Checkpoint {
        start,
        link,
        next_log: word64(whole, 40),
        times: Times { latest: word64(whole, 48), lateness: word64(whole, 56) },
        logs,
    })
}

impl Shared {
    pub(crate) fn checkpoint_due(&self) -> bool {
        if self.directory.is_none() || self.is_damaged() {
            return false;
        }
        let last = self.checkpoints.lock().last().copied().unwrap_or(crate::position(1, 0));
        let written = self.writer.lock().staged_end();
        let segments = u64::from(segment_of(written) - segment_of(last).min(segment_of(written)));
        segments * u64::from(self.options.segment_bytes_due()) >= self.options.checkpoint_bytes
            && segments > 0
    }

    fn write_checkpoint(&self, directory: &Path) -> io::Result<Written> {
        let (start, link, times, dead) = {
            let writer = self.writer.lock();
            let times = [writer.times.latest, writer.times.lateness];
            (writer.staged_end(), writer.link, times, writer.dead().collect())
        };
        let name = file_name(start);
        let (working, file) = Working::create(&self.disk, directory, &name)?;
        let mut sink = Sink::new(self.paced(file, FLUSH_BYTES));
        let [link_length, link_checksum] = [link.length, link.checksum].map(u64::from);
        let link = link_length | link_checksum << 32;
        let next_log = *self.next_log.lock();
        let named = [MAGIC, u64::from(format::FORMAT_VERSION), self.control.store_id, start];
        for word in named.into_iter().chain([link, next_log, times[0], times[1]]) {
            sink.put(&word.to_le_bytes())?;
        }
        self.catalogue.visit_at_leisure(|log| sink.add(log), || self.pause());
        let records = sink.records;
        let bytes = sink.finish()?;
        // Everything a record may speak of must be durable before the checkpoint can be found.
        self.secure_before_checkpoint()?;
        if self.is_damaged() {
            return Err(io::Error::other("a read came upon damage meanwhile"));
        }
        working.put_in_place()?;
        self.disk.sync_directory(directory)?;
        Ok(Written { start, bytes, records, dead })
    }

    /// Between two shards: nothing is locked, and whatever happens here the checkpoint has to bear.
    fn pause(&self) {
        #[cfg(test)]
        self.options.interleave.step();
    }

    fn secure_before_checkpoint(&self) -> io::Result<()> {
        #[cfg(test)]
        if self.options.fault == crate::store::Fault::CheckpointBeforeSync {
            return Ok(());
        }
        self.commit_group()
    }

    /// Removes segments whose payload nobody needs by now, of a store without checkpoints.
    pub(crate) fn drop_dead_segments(&self) {
        let dead: Vec<u32> = self.writer.lock().dead().collect();
        self.drop_segments(dead);
    }

    /// Removes those of some segments that no replay starts before.
    fn drop_segments(&self, mut dead: Vec<u32>) {
        let kept = self.checkpoints.lock().len();
        if self.is_damaged() || self.directory.is_some() && kept < KEPT {
            return;
        }
        if self.options.durability != Durability::Memory {
            let oldest = self.checkpoints.lock().first().map_or(0, |start| segment_of(*start));
            dead.retain(|number| *number < oldest);
        }
        // What emptied them may be known before it is durable: a crash would bring it back, and its segments not.
        if dead.is_empty() || self.options.durability == Durability::Os && self.commit_group().is_err() {
            return;
        }
        for number in &dead {
            let bytes = self.segments.find(*number).map_or(0, |segment| segment.header.held_bytes());
            {
                let mut writer = self.writer.lock();
                if writer.live_bytes.remove(number).is_none() {
                    // Somebody else was faster.
                    continue;
                }
                writer.tally.freed_bytes += bytes;
            }
            self.segments.remove(*number);
            if let Some(directory) = &self.directory {
                let _ = self.disk.unlink(&directory.join(crate::segment::file_name(*number)));
                self.remove_settled(directory, *number);
            }
        }
        self.control.bump_segments();
    }
}

impl Store {
    /// Writes a checkpoint now and removes what it makes superfluous. Complexity: one record per log.
    ///
    /// # Errors
    /// What the disk said; the previous checkpoints stay valid.
    pub fn checkpoint(&self) -> io::Result<()> {
        let _waits = self.shared.leisure.hurry();
        self.checkpoint_at_leisure()
    }

    /// The same for whoever does not wait for it.
    pub(crate) fn checkpoint_at_leisure(&self) -> io::Result<()> {
        let _one_at_a_time = self.shared.turns.replacing.lock();
        self.checkpoint_alone()
    }

    /// A checkpoint for whoever is going to make another anyway: not while one is under way, and what the disk refuses it
    /// may do later.
    pub(crate) fn checkpoint_unless_under_way(&self) {
        let _waits = self.shared.leisure.hurry();
        if let Some(_one_at_a_time) = self.shared.turns.replacing.try_lock()
            && let Err(error) = self.checkpoint_alone()
        {
            tracing::warn!(%error, "cannot write a checkpoint: files that nobody needs stay for now");
        }
    }

    fn checkpoint_alone(&self) -> io::Result<()> {
        let shared = &self.shared;
        let Some(directory) = shared.directory.as_ref().filter(|_| !shared.is_damaged()) else {
            return Ok(());
        };
        let purged_bytes = shared.writer.lock().tally.purged_bytes;
        let written = match shared.write_checkpoint(directory) {
            Err(error) if is_full(&error) && shared.writer.lock().reserve.lend() => {
                shared.write_checkpoint(directory)
            }
            // Damage was come upon meanwhile.
            Err(_) if shared.is_damaged() => return Ok(()),
            written => written,
        };
        let kept = written.map(|written| self.keep(directory, written, purged_bytes));
        shared.writer.lock().reserve.give_back();
        kept
    }

    /// Keeps a checkpoint in the oldest one's place, and removes what that held on to.
    fn keep(&self, directory: &Path, written: Written, purged_bytes: u64) {
        let (shared, Written { start, bytes, records, dead }) = (&self.shared, written);
        let superfluous: Vec<Position> = {
            let mut kept = shared.checkpoints.lock();
            if kept.last() != Some(&start) {
                kept.push(start);
                shared.checkpoint_taken(purged_bytes, bytes, records);
            }
            let excess = kept.len().saturating_sub(KEPT);
            kept.drain(..excess).collect()
        };
        for start in superfluous {
            let _ = shared.disk.unlink(&directory.join(file_name(start)));
        }
        shared.drop_segments(dead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Leisure;
    use crate::{Lifetime, Options, Store};
    use thalweg_sys::disk::sim::SimDisk;

    #[test]
    fn what_a_full_disk_does_not_take_does_not_pile_up() {
        let store = Store::memory(Options::default()).unwrap();
        let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
        let (log, _) = store.create(&[b'n'; 200], &config, None, &Default::default(), None).unwrap();
        let disk = Disk::Sim(SimDisk::new(1, 3 * FLUSH_BYTES as u64));
        let leisure = Leisure::default();
        let file = disk.create(Path::new("/checkpoint")).unwrap();
        let mut sink = Sink::new(PacedFile::new(file, FLUSH_BYTES, &leisure, 0));
        for _ in 0..10_000 {
            sink.add(&log);
            assert!(sink.record.len() < FLUSH_BYTES);
        }
        assert!(sink.records > 0 && sink.failed.is_some(), "some of it was taken");
        assert_eq!(sink.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
