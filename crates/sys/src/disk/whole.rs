//! Small files that somebody names, read whole.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads a file whole, unless it has more bytes than this. Waits for nobody, and reads the same each time:
/// what is no regular file is refused, such as a pipe.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("ca.pem");
/// std::fs::write(&path, "-----BEGIN")?;
/// assert_eq!(thalweg_sys::disk::read_whole(&path, 1 << 20)?, b"-----BEGIN");
/// assert!(thalweg_sys::disk::read_whole(&path, 9).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// It cannot be opened or read, is no regular file, or is too large.
pub fn read_whole(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Otherwise a pipe that nobody writes to would not be opened before somebody does.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        let detail = "it is a pipe or a device, where a regular file is needed";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, detail));
    }
    let mut bytes = Vec::new();
    if file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)? as u64 > bytes_max {
        let detail = format!("it has more than the {bytes_max} bytes that are read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, detail));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn nothing_is_waited_for_and_nothing_read_without_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let [pipe, large, absent] = ["pipe", "large", "absent"].map(|name| directory.path().join(name));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Far larger than any memory.
        std::fs::File::create(&large).unwrap().set_len(1 << 42).unwrap();
        for (path, kind) in [
            (&*pipe, io::ErrorKind::InvalidInput),
            (Path::new("/dev/zero"), io::ErrorKind::InvalidInput),
            (&large, io::ErrorKind::FileTooLarge),
            (directory.path(), io::ErrorKind::IsADirectory),
            (&absent, io::ErrorKind::NotFound),
        ] {
            assert_eq!(read_whole(path, 1 << 20).unwrap_err().kind(), kind, "{}", path.display());
        }
    }
}
