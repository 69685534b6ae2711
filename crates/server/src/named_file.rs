//! Files that an operator names: what they say, and who else could change or read that.
//!
//! Invariants: what is read is bounded, whatever is named; and nobody who serves waits for a file. What is
//! read at a start may be a pipe, as from a shell's `<(...)`: whoever starts the server waits for it. Its
//! contents come once, so where a file is read again there has to be one. *Checked by* the tests below.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Write permission of the group and of all users.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Read permission of all users: a group's members may be meant to read it.
const READABLE_BY_ALL: u32 = 0o004;

/// Bytes of a file: what a person writes, and bundles of certificates, have far fewer.
const BYTES_MAX: u64 = 16 << 20;

/// What a file says.
pub(crate) struct Contents {
    pub(crate) bytes: Vec<u8>,
    /// Others than its owner may write to it.
    pub(crate) is_writable_by_others: bool,
    /// Every user of the machine may read it.
    pub(crate) is_readable_by_all: bool,
}

/// Reads a file whole, and who else may write to it or read it.
///
/// # Errors
/// It cannot be read, or is too large.
pub(crate) fn read(path: &Path) -> io::Result<Contents> {
    let file = File::open(path)?;
    let mode = file.metadata()?.mode();
    let mut bytes = Vec::new();
    if file.take(BYTES_MAX + 1).read_to_end(&mut bytes)? as u64 > BYTES_MAX {
        let detail = format!("it has more than the {} MiB that are read", BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, detail));
    }
    let is_writable_by_others = mode & WRITABLE_BY_OTHERS != 0;
    Ok(Contents { bytes, is_writable_by_others, is_readable_by_all: mode & READABLE_BY_ALL != 0 })
}

/// Reads text whole.
///
/// # Errors
/// It cannot be read, is too large, or no UTF-8.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read(path)?.bytes);
    text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Whether what is at a path says the same each time, for what is read more than once.
///
/// # Errors
/// It does not: it is a pipe, a terminal, or the like. Or nothing is there.
pub(crate) fn check_lasts(path: &Path) -> io::Result<()> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_file() || kind.is_dir() {
        return Ok(());
    }
    let detail = "it is a pipe or a device, which cannot be read again: a regular file is needed for that";
    Err(io::Error::new(io::ErrorKind::InvalidInput, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_bounded_whatever_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large");
        let file = File::create(&path).unwrap();
        file.set_len(BYTES_MAX).unwrap();
        assert_eq!(read(&path).unwrap().bytes.len() as u64, BYTES_MAX);
        // As large as a file may be, and without an end.
        file.set_len(1 << 42).unwrap();
        for path in [&path, Path::new("/dev/zero")] {
            let error = read(path).err().unwrap();
            assert_eq!(error.to_string(), "it has more than the 16 MiB that are read");
        }
        let directory = read(directory.path()).err().unwrap();
        assert_eq!(directory.kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn what_comes_once_is_not_read_again() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        for path in [&pipe, "/dev/zero"] {
            let error = check_lasts(Path::new(path)).unwrap_err();
            assert!(error.to_string().contains("cannot be read again"), "{path}: {error}");
        }
        check_lasts(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(check_lasts(Path::new("/nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
