//! When a checkpoint is due, and how it is written.
//!
//! It is taken while commits go on: it notes where the log ends, walks the catalogue, and becomes valid only
//! when everything that it may contain is durable. Segments that it makes superfluous are those that nobody
//! needed when it began: what is let go while it is written may be in its records. *Checked by* the crash
//! simulation, and by the tests of reclaiming.

use crate::checkpoint::{KEPT, encode_header, encode_log, file_name};
use crate::log::Log;
use crate::pace::PacedFile;
use crate::store::{Shared, Store};
use crate::working::Working;
use crate::{Position, segment_of};
use std::io;
use std::path::Path;

/// What is put together before it is written: so little that a small store's memory does not show that a
/// checkpoint was taken.
const FLUSH_BYTES: usize = 32 << 10;

/// A checkpoint that was just written.
struct Written {
    start: Position,
    bytes: u64,
    records: u64,
    /// Segments that none of its records speaks of: no log needed them any more when it began.
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
            (writer.staged_end(), writer.link, writer.times, writer.dead().collect())
        };
        let name = file_name(start);
        let (working, file) = Working::create(&self.disk, directory, &name)?;
        let mut sink = Sink::new(self.paced(file, FLUSH_BYTES));
        let next_log = *self.next_log.lock();
        sink.put(&encode_header(self.control.store_id, start, link, next_log, times))?;
        // Between two shards nothing is locked: whatever happens there the checkpoint has to bear.
        self.catalogue.visit_unlocked(|log| sink.add(log), || self.probes.between_shards());
        let records = sink.records;
        let bytes = sink.finish()?;
        // Everything a record may speak of must be durable before the checkpoint can be found.
        self.secure_before_checkpoint()?;
        if self.is_damaged() {
            return Err(io::Error::other("a read came upon damage meanwhile"));
        }
        working.put_in_place()?;
        if let Err(error) = self.disk.sync_directory(directory) {
            // It is not among those that are kept, so segments that it needs may go: the next start must not
            // take it for the older of two. Unless it is in the place of one that is.
            if self.checkpoints.lock().last() != Some(&start) {
                let _ = self.disk.unlink(&directory.join(&name));
            }
            return Err(error);
        }
        Ok(Written { start, bytes, records, dead })
    }

    fn secure_before_checkpoint(&self) -> io::Result<()> {
        if self.probes.forgets_sync_of_checkpoint() { Ok(()) } else { self.commit_group() }
    }
}

impl Store {
    /// Writes a checkpoint now and removes what it makes superfluous. Does nothing on a thread that is
    /// writing one already and was called back, as a watcher or a task that waited for a commit.
    /// Complexity: one record per log.
    ///
    /// # Errors
    /// What the disk said; the previous checkpoints stay valid.
    pub fn checkpoint(&self) -> io::Result<()> {
        let _waits = self.shared.throttle.hurry();
        self.checkpoint_throttled()
    }

    /// The same for a caller that is in no hurry.
    pub(crate) fn checkpoint_throttled(&self) -> io::Result<()> {
        match self.shared.maintenance_locks.replacing.lock() {
            Some(_one_at_a_time) => self.checkpoint_alone(),
            None => Ok(()),
        }
    }

    /// A checkpoint for a caller that goes on without it: an error of the disk is only logged.
    pub(crate) fn checkpoint_if_possible(&self) {
        if let Err(error) = self.checkpoint() {
            tracing::warn!(%error, "cannot write a checkpoint: files that nobody needs stay for now");
        }
    }

    fn checkpoint_alone(&self) -> io::Result<()> {
        let shared = &self.shared;
        let Some(directory) = shared.directory.as_ref().filter(|_| !shared.is_damaged()) else {
            return Ok(());
        };
        let purged_bytes = shared.writer.lock().tally.purged_bytes;
        let kept = shared.with_reserve(|| {
            let written = shared.write_checkpoint(directory)?;
            // What that removes makes room for what was lent.
            self.keep(directory, written, purged_bytes);
            Ok(())
        });
        match kept {
            // Damage was come upon meanwhile.
            Err(_) if shared.is_damaged() => Ok(()),
            kept => kept,
        }
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
    use crate::pace::Throttle;
    use crate::{Config, Durability, Lifetime, Options, Store};
    use thalweg_sys::disk::Disk;
    use thalweg_sys::disk::sim::SimDisk;

    #[test]
    fn what_a_full_disk_does_not_take_does_not_pile_up() {
        let store = Store::memory(Options::default()).unwrap();
        let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
        let (log, _) = store.create(&[b'n'; 200], &config, None, &Default::default(), None).unwrap();
        let disk = Disk::Sim(SimDisk::new(1, 3 * FLUSH_BYTES as u64));
        let throttle = Throttle::default();
        let file = disk.create(Path::new("/checkpoint")).unwrap();
        let mut sink = Sink::new(PacedFile::new(file, FLUSH_BYTES, &throttle, 0));
        for _ in 0..10_000 {
            sink.add(&log);
            assert!(sink.record.len() < FLUSH_BYTES);
        }
        assert!(sink.records > 0 && sink.failed.is_some(), "some of it was taken");
        assert_eq!(sink.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_checkpoint_that_failed_is_not_there_whatever_failed() {
        let directory = Path::new("/store");
        let mut failures = 0;
        loop {
            let sim = SimDisk::new(1, 64 << 20);
            let disk = Disk::Sim(sim.clone());
            let options =
                Options { durability: Durability::Os, committer_thread: false, ..Options::default() };
            let (store, _) = Store::open(&disk, directory, options).unwrap();
            let log = store.log(b"a").unwrap();
            store.append(&log, b"one", 1).unwrap();
            store.checkpoint().unwrap();
            store.append(&log, b"two", 2).unwrap();
            sim.fail_sync_after(failures);
            let checkpoint = store.checkpoint();
            let names = disk.names(directory).unwrap();
            let there: Vec<_> = names.into_iter().filter(|name| name.starts_with("checkpoint-")).collect();
            let kept: Vec<_> =
                store.shared.checkpoints.lock().iter().map(|start| file_name(*start)).collect();
            assert_eq!(there, kept, "sync {failures} failed");
            if checkpoint.is_ok() {
                break;
            }
            failures += 1;
        }
        assert!(failures >= 3, "what it speaks of, the file, and its name are synced");
    }
}
