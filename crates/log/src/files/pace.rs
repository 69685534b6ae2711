//! The share of the disk and of a processor that background work takes.
//!
//! A thread that does such work does a step of it and then rests for some multiple of the time that the
//! step took. So the work has the same share on a disk of any speed. A caller that waits for the work
//! *hurries* it: meanwhile no thread rests. *Checked by* the tests below.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::time::{Duration, Instant};
use thalweg_sys::disk::File;

/// The longest rest of a thread that has other things to do.
const REST_MAX: Duration = Duration::from_millis(50);
/// Bytes that are made durable at a time, so that a commit's sync never waits for much that is not its own.
const STEP_BYTES: usize = 1 << 20;

/// How long a thread that has other things to do rests after a step: `parts` times as long as the step took,
/// 50 ms at most.
pub(crate) fn rest(took: Duration, parts: u32) -> Duration {
    took.saturating_mul(parts).min(REST_MAX)
}

/// Where background work rests, and is told to rest no more.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    hurried: Mutex<u64>,
    changed: Condvar,
}

/// A caller waits for background work: for as long as this lives no thread rests.
pub(crate) struct Hurry<'l>(&'l Throttle);

impl Throttle {
    /// Rests after a step, `parts` times as long as the step took.
    pub(crate) fn rest(&self, took: Duration, parts: u32) {
        let until = Instant::now() + took.saturating_mul(parts);
        let mut hurried = self.hurried.lock();
        while *hurried == 0 && !self.changed.wait_until(&mut hurried, until).timed_out() {}
    }

    /// Has no thread rest for as long as the answer lives.
    pub(crate) fn hurry(&self) -> Hurry<'_> {
        self.hurry_for_good();
        Hurry(self)
    }

    /// Has no thread rest any more.
    pub(crate) fn hurry_for_good(&self) {
        *self.hurried.lock() += 1;
        self.changed.notify_all();
    }
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        *self.0.hurried.lock() -= 1;
    }
}

/// A file that is written from its beginning to its end at a share of the time. Errors are the disk's.
pub(crate) struct PacedFile<'l> {
    file: File,
    buffer: Vec<u8>,
    at: u64,
    throttle: &'l Throttle,
    parts: u32,
    begun: Instant,
    unsynced: usize,
}

impl<'l> PacedFile<'l> {
    /// Gathers `buffer_bytes` before it writes them, and rests `parts` times as long as the writing of each
    /// mebibyte took; 0: never.
    pub(crate) fn new(file: File, buffer_bytes: usize, throttle: &'l Throttle, parts: u32) -> PacedFile<'l> {
        let (buffer, begun) = (Vec::with_capacity(buffer_bytes), Instant::now());
        PacedFile { file, buffer, at: 0, throttle, parts, begun, unsynced: 0 }
    }

    /// Writes some more.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(self.buffer.capacity()) {
            if self.buffer.len() + piece.len() > self.buffer.capacity() {
                self.flush()?;
            }
            self.buffer.extend_from_slice(piece);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.unsynced += self.buffer.len();
        self.buffer.clear();
        if self.parts > 0 && self.unsynced >= STEP_BYTES {
            self.file.sync_data()?;
            self.throttle.rest(self.begun.elapsed(), self.parts);
            (self.begun, self.unsynced) = (Instant::now(), 0);
        }
        Ok(())
    }

    /// Makes all of it durable. Answers the file, and how long it is.
    pub(crate) fn finish(mut self) -> io::Result<(File, u64)> {
        self.flush()?;
        self.file.sync_data()?;
        Ok((self.file, self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use thalweg_sys::disk::Disk;

    #[test]
    fn what_is_put_is_what_is_there_whatever_the_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        for pieces in [1, 7, 4096, 100_000] {
            let throttle = Throttle::default();
            let file = Disk::Real.create(Path::new(&path)).unwrap();
            let mut paced = PacedFile::new(file, 4096, &throttle, 3);
            bytes.chunks(pieces).for_each(|piece| paced.put(piece).unwrap());
            assert_eq!(paced.finish().unwrap().1, bytes.len() as u64);
            assert!(std::fs::read(&path).unwrap() == bytes);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_rest_is_so_many_times_as_long_as_its_step_unless_somebody_waits() {
        let (throttle, step) = (Throttle::default(), Duration::from_millis(20));
        let took = |rest: &dyn Fn()| {
            let begun = Instant::now();
            rest();
            begun.elapsed()
        };
        assert!(took(&|| throttle.rest(step, 4)) >= step * 4);
        let hour = Duration::from_secs(3600);
        {
            let _hurry = throttle.hurry();
            throttle.rest(hour, 1);
        }
        std::thread::scope(|scope| {
            let resting = scope.spawn(|| throttle.rest(hour, 1));
            std::thread::sleep(step);
            assert!(!resting.is_finished());
            throttle.hurry_for_good();
        });
    }
}
