//! The kernel's files.

use super::{Allocation, Map};
use rustix::fs::{self, Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A file of the kernel's.
#[derive(Debug)]
pub(super) struct RealFile {
    descriptor: OwnedFd,
}

static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

impl RealFile {
    pub(super) fn create(path: &Path) -> io::Result<RealFile> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(RealFile { descriptor: fs::open(path, flags, Mode::RUSR | Mode::WUSR)? })
    }

    pub(super) fn open(path: &Path, writable: bool) -> io::Result<RealFile> {
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        Ok(RealFile { descriptor: fs::open(path, access | OFlags::CLOEXEC, Mode::empty())? })
    }

    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(fs::fstat(&self.descriptor)?.st_size.cast_unsigned())
    }

    pub(super) fn allocate(&self, length: u64, how: Allocation) -> io::Result<()> {
        match fs::fallocate(&self.descriptor, fs::FallocateFlags::empty(), 0, length) {
            Ok(()) if how == Allocation::Reserved => return Ok(()),
            // A file system without reservation gets its blocks by the writes below.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        let mut position = 0;
        while position < length {
            let step = ZEROS.len().min(usize::try_from(length - position).unwrap_or(usize::MAX));
            self.write_at(&ZEROS[..step], position)?;
            position += step as u64;
        }
        Ok(())
    }

    pub(super) fn read_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::io::pread(&self.descriptor, &mut bytes[filled..], position + filled as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn write_at(&self, mut bytes: &[u8], mut position: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::pwrite(&self.descriptor, bytes, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    position += count as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn empty(&self) -> io::Result<()> {
        Ok(fs::ftruncate(&self.descriptor, 0)?)
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        Ok(fs::fdatasync(&self.descriptor)?)
    }

    pub(super) fn map(&self, length: usize, writable: bool) -> io::Result<Map> {
        Map::of_file(&self.descriptor, length, writable)
    }
}

pub(super) fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::fsync(fs::open(directory, flags, Mode::empty())?)?)
}

pub(super) fn lock(path: &Path, holder: &str) -> io::Result<RealFile> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = RealFile { descriptor: fs::open(path, flags, Mode::RUSR | Mode::WUSR)? };
    match fs::flock(&file.descriptor, fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            fs::ftruncate(&file.descriptor, 0)?;
            file.write_at(holder.as_bytes(), 0)?;
            Ok(file)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let held_by = std::fs::read_to_string(path).unwrap_or_default();
            Err(io::Error::new(io::ErrorKind::WouldBlock, held_by))
        }
        Err(error) => Err(error.into()),
    }
}
