//! Checkpoints: the catalogue and the extents as of a position, so that opening replays only what follows.
//! Here is what stands in the file, to the byte, and how it is read.
//!
//! ```text
//! header   magic 8 | version 4 | 0 4 | store id 8 | start 8 | link 8 | next log 8 | latest time 8 | lateness 8
//! record   bytes 4 | id 8 | last 8 | first 8 | tail 8 | accessed 8 | version 4 | closed 1 | deleted 1 | 0 2 | create payload |
//!          writer seq | closed by | producers | notes | extents           (see `encode_log`)
//! end      0 4 | records 8 | checksum 4
//! ```
//!
//! Each record says up to which batch it speaks (`last`), and replay skips what a log already has. A fork and
//! its parent may have been visited at different moments: recovery settles which log is whose parent, and
//! which ones are tombstones. The checksum covers everything in front of it. *Checked by* the tests of
//! damage, and by a fuzz target.

use crate::Position;
use crate::error::Damage;
use crate::extents::{Extent, Extents};
use crate::fork::Lineage;
use crate::format::{self, Config, Created, Link, Producer, word32, word64};
use crate::log::{ClosedBy, Log, Producers};
use crate::mapping;
use crate::plausible::{ID_END, are_plausible, branches_off, is_place};
use crate::segment_of;
use crate::times::Times;
use std::io;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::Disk;

const MAGIC: u64 = u64::from_le_bytes(*b"THALWEGk");
const HEADER_BYTES: usize = 64;
/// Checkpoints that are kept: a damaged one costs replay time and nothing else.
pub(crate) const KEPT: usize = 2;
const PREFIX: &str = "checkpoint-";

pub(crate) fn file_name(start: Position) -> String {
    format!("{PREFIX}{start:016x}")
}

pub(crate) fn start_of(name: &str) -> Option<Position> {
    let start = u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok()?;
    (file_name(start) == name).then_some(start)
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

/// What a checkpoint begins with. The link is that of the batch in front of its start.
pub(crate) fn encode_header(
    store_id: u64,
    start: Position,
    link: Link,
    next_log: u64,
    times: Times,
) -> [u8; HEADER_BYTES] {
    let link = u64::from(link.length) | u64::from(link.checksum) << 32;
    let version = u64::from(format::FORMAT_VERSION);
    let words = [MAGIC, version, store_id, start, link, next_log, times.latest, times.lateness];
    let mut header = [0; HEADER_BYTES];
    for (bytes, word) in header.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    header
}

fn put(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    into.extend_from_slice(bytes);
}

/// One log's record, unless it is on its way out. One that is deleted and retained is not.
///
/// # Errors
/// It, or something in it, would be longer than its length can say.
pub(crate) fn encode_log(log: &Log, into: &mut Vec<u8>) -> io::Result<()> {
    let inner = log.lock();
    if inner.phase.is_deleting() && inner.children == 0 {
        return Ok(());
    }
    let start = into.len();
    into.extend_from_slice(&[0; 4]);
    for word in [log.id(), inner.last, inner.first, inner.tail, inner.accessed] {
        into.extend_from_slice(&word.to_le_bytes());
    }
    into.extend_from_slice(&inner.version.to_le_bytes());
    into.extend_from_slice(&[u8::from(inner.closed), u8::from(inner.phase.is_deleting()), 0, 0]);
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
    // The reader of all records finds out which log its parent is.
    let lineage = branch.map(|branch| Lineage::of(branch, None));
    if id >= ID_END || first > tail {
        return None;
    }
    let log = Log::new(id, name, intern(config), accessed, lineage);
    {
        let mut inner = log.lock();
        (inner.last, inner.first, inner.tail, inner.version) = (last, first, tail, version);
        inner.closed = closed;
        if deleting {
            inner.stage_delete();
        }
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
        if !are_plausible(extents.all(), last, tail) {
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
    let whole = mapping::of_checkpoint(&file, length)?;
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
