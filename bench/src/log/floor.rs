//! What the machine allows: a mapped file of equally long frames without batches, checksums, an index or
//! published lengths. Its walk is the least that a reader of framed entries can do, its readers share
//! nothing, and the place of an entry is computed. Also the floors of appending: a copy into a map, and
//! `write` + `fdatasync`.

use crate::side::{Cold, Failure, Reading, Side};
use crate::workload::{PAYLOAD_BYTES, Sum, payload, time};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use thalweg_sync::region::{Region, RegionWriter};
use thalweg_sys::disk::{Allocation, Disk, File};

const FILE: &str = "frames";
const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES.next_multiple_of(8);
/// Bytes before the first frame, so that blank bytes are never taken for one.
const START: usize = 64;

/// One frame: length and number of an entry, its time, its payload.
fn frame(number: u64) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..4].copy_from_slice(&(PAYLOAD_BYTES as u32).to_le_bytes());
    frame[16..24].copy_from_slice(&(number * PAYLOAD_BYTES as u64).to_le_bytes());
    frame[24..32].copy_from_slice(&time(number).to_le_bytes());
    frame[HEADER_BYTES..HEADER_BYTES + PAYLOAD_BYTES].copy_from_slice(&payload(number));
    frame
}

fn word(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// A mapped file of frames.
pub(crate) struct Frames {
    region: Arc<Region>,
    entries: u64,
    writer: Mutex<RegionWriter>,
}

impl Frames {
    /// A new file with room for `room` frames.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn create(directory: &Path, room: u64) -> Result<Frames, Failure> {
        std::fs::create_dir_all(directory)?;
        let bytes = START + usize::try_from(room)? * FRAME_BYTES;
        let file = Disk::Real.create(&directory.join(FILE))?;
        file.allocate(bytes as u64, Allocation::Reserved)?;
        let map = file.map(bytes, true)?;
        // SAFETY: the file was just made, and nothing but this writer stores to it.
        let mut writer = unsafe { Region::writable(map, 0) };
        writer.write(&[0; START]);
        writer.publish();
        Ok(Frames { region: writer.region().clone(), entries: 0, writer: Mutex::new(writer) })
    }

    /// A new file of `entries` frames.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn filled(directory: &Path, entries: u64) -> Result<Frames, Failure> {
        let mut frames = Frames::create(directory, entries)?;
        frames.append(0, entries)?;
        frames.entries = entries;
        Ok(frames)
    }
}

impl Side for Frames {
    const NAME: &'static str = "floor";
    type Reader<'s> = FramesReader<'s>;

    fn reader(&self) -> Result<FramesReader<'_>, Failure> {
        Ok(FramesReader { bytes: self.region.bytes(0..self.region.published()), entries: self.entries })
    }

    fn append(&self, first: u64, count: u64) -> Result<(), Failure> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if u64::from(writer.remaining()) < count * FRAME_BYTES as u64 {
            return Err("the floor's file is full".into());
        }
        (first..first + count).for_each(|number| writer.write(&frame(number)));
        writer.publish();
        Ok(())
    }
}

/// A file of frames that nobody has mapped.
pub(crate) struct ColdFrames(PathBuf);

impl ColdFrames {
    /// A new file of `entries` frames.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn filled(directory: &Path, entries: u64) -> Result<ColdFrames, Failure> {
        Frames::filled(directory, entries).map(|_| ColdFrames(directory.join(FILE)))
    }
}

impl Cold for ColdFrames {
    const NAME: &'static str = "floor";

    fn scan(&self) -> Result<Sum, Failure> {
        let file = Disk::Real.open_read_only(&self.0)?;
        let length = u32::try_from(file.length()?)?;
        let map = file.map(length as usize, false)?;
        // SAFETY: `ColdFrames::filled` is done with the file, and nothing else stores to it.
        let region = unsafe { Region::sealed(map, length) };
        FramesReader { bytes: region.bytes(0..length), entries: 0 }.scan()
    }
}

/// A plain slice and a place in it.
pub(crate) struct FramesReader<'s> {
    bytes: &'s [u8],
    entries: u64,
}

impl FramesReader<'_> {
    /// Takes the frame at `at`; answers where the next one begins, `None` behind the last.
    #[inline(always)]
    fn take(&self, at: usize, sum: &mut Sum) -> Option<usize> {
        let head = self.bytes.get(at..)?.first_chunk::<HEADER_BYTES>()?;
        let length = word(head, 0) as u32 as usize;
        if length == 0 {
            return None;
        }
        let start = at + HEADER_BYTES;
        sum.take(word(head, 24), word(head, 16), self.bytes.get(start..start + length)?);
        Some(start + length.next_multiple_of(8))
    }

    fn place(number: u64) -> usize {
        START + number as usize * FRAME_BYTES
    }

    /// Number of the first entry at or after a time.
    fn number(&self, since: u64) -> u64 {
        let step = time(1) - time(0);
        since.saturating_sub(time(0)).div_ceil(step).min(self.entries)
    }
}

impl Reading for FramesReader<'_> {
    type Place = usize;

    fn scan(&mut self) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        let mut at = START;
        while let Some(next) = self.take(at, &mut sum) {
            at = next;
        }
        Ok(sum)
    }

    fn ranges(&mut self, starts: &[u64], count: u64) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        for start in starts {
            let mut at = Self::place(self.number(time(*start)));
            for _ in 0..count {
                let Some(next) = self.take(at, &mut sum) else { break };
                at = next;
            }
        }
        Ok(sum)
    }

    fn seeks(&mut self, times: &[u64]) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        times.iter().for_each(|time| {
            self.take(Self::place(self.number(*time)), &mut sum);
        });
        Ok(sum)
    }

    fn places(&mut self, numbers: &[u64]) -> Result<Vec<usize>, Failure> {
        Ok(numbers.iter().map(|number| Self::place(*number)).collect())
    }

    fn reads(&mut self, places: &[usize]) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        places.iter().for_each(|place| {
            self.take(*place, &mut sum);
        });
        Ok(sum)
    }

    fn iterate(&mut self, starts: &[u64], each: u64) -> Result<Sum, Failure> {
        let mut open: Vec<usize> = starts.iter().map(|start| Self::place(*start)).collect();
        let mut sum = Sum::default();
        for _ in 0..each {
            for at in &mut open {
                *at = self.take(*at, &mut sum).unwrap_or(*at);
            }
        }
        Ok(sum)
    }

    fn follow(&mut self) -> Result<(), Failure> {
        Err("the floor has nobody who publishes, so there is nothing to follow".into())
    }

    fn poll(&mut self) -> Result<Sum, Failure> {
        self.follow().map(|()| Sum::default())
    }
}

/// Bytes of the file that `write` and `fdatasync` go round in.
const PLAIN_BYTES: u64 = 64 << 20;

/// A file whose blocks are there and written. Each append is one `write` and one `fdatasync`.
pub(crate) struct Plain {
    file: File,
    at: Mutex<u64>,
}

impl Plain {
    /// A new file of zeros.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn create(directory: &Path) -> Result<Plain, Failure> {
        let file = Disk::Real.create(&directory.join("plain"))?;
        file.allocate(PLAIN_BYTES, Allocation::ZeroFilled)?;
        file.sync_data()?;
        Ok(Plain { file, at: Mutex::new(0) })
    }

    /// Appends entries `first .. first + count` and waits until they survive a power cut.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub(crate) fn append(&self, first: u64, count: u64) -> Result<(), Failure> {
        let mut bytes = Vec::with_capacity(count as usize * FRAME_BYTES);
        (first..first + count).for_each(|number| bytes.extend_from_slice(&frame(number)));
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        if *at + bytes.len() as u64 > PLAIN_BYTES {
            *at = 0;
        }
        self.file.write_at(&bytes, *at)?;
        *at += bytes.len() as u64;
        Ok(self.file.sync_data()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::expected;

    #[test]
    fn the_floor_reads_what_was_written() {
        let directory = std::env::temp_dir().join(format!("thalweg-frames-{}", std::process::id()));
        let frames = Frames::filled(&directory, 1000).unwrap();
        let mut reader = frames.reader().unwrap();
        assert!(reader.scan().unwrap().agrees(&expected(0, 1000)));
        assert!(ColdFrames(directory.join(FILE)).scan().unwrap().agrees(&expected(0, 1000)));
        assert!(reader.ranges(&[7, 990], 10).unwrap().entries == 20);
        assert!(reader.seeks(&[time(3) - 1]).unwrap().agrees(&expected(3, 1)));
        assert!(reader.iterate(&[5], 4).unwrap().agrees(&expected(5, 4)));
        assert_eq!(frames.append(1000, 1).unwrap_err().to_string(), "the floor's file is full");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
