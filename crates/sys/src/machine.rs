//! What the machine is like underneath: the file system that a directory lies on, which directory that is,
//! what its clocks are worth, and which of its runs this is.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// What a directory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes that this user may still fill.
    pub free_bytes: u64,
    /// What they are kept on.
    pub backing: Backing,
}

/// What the bytes of a file system are kept on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Memory: gone with the machine.
    Memory,
    /// Another machine.
    Network,
    /// The topmost layer of a container: gone with it.
    Container,
    /// A disk, as far as one can tell.
    Disk,
}

/// Magic numbers of statfs(2).
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
const NFS: i64 = 0x6969;
const SMB2: i64 = 0xfe53_4d42;
const CIFS: i64 = 0xff53_4d42;
const FUSE: i64 = 0x6573_5546;
const OVERLAY: i64 = 0x794c_7630;
/// Where the kernel says what it reads the time from.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// What is at a path, whatever it is called: its device and its number there, which are its own for as long
/// as it is.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::stat(path).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// What the kernel was given when it started, random(4).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Which run of the machine this is, as a number that another run hardly has; 0 where the kernel does not
/// say.
pub fn boot() -> u64 {
    let said = std::fs::read_to_string(BOOT).unwrap_or_default();
    let digits: String = said.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

/// The file system that a path lies on.
///
/// # Errors
/// The path is not there, or may not be looked at.
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    let found = rustix::fs::statfs(path)?;
    let block = block_bytes(&found);
    let backing = match found.f_type {
        TMPFS | RAMFS => Backing::Memory,
        NFS | SMB2 | CIFS | FUSE => Backing::Network,
        OVERLAY => Backing::Container,
        _ => Backing::Disk,
    };
    Ok(FileSystem {
        total_bytes: found.f_blocks.saturating_mul(block),
        free_bytes: found.f_bavail.saturating_mul(block),
        backing,
    })
}

/// Bytes that this user may still fill where a directory lies.
pub(crate) fn free_bytes(directory: BorrowedFd<'_>) -> io::Result<u64> {
    let found = rustix::fs::fstatfs(directory)?;
    Ok(found.f_bavail.saturating_mul(block_bytes(&found)))
}

/// Block sizes are never negative.
fn block_bytes(found: &rustix::fs::StatFs) -> u64 {
    u64::try_from(found.f_bsize).unwrap_or(0)
}

/// Bytes of a page of memory.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Whether something keeps the wall clock right (`adjtimex`).
///
/// # Errors
/// The system does not say.
pub fn clock_is_kept() -> io::Result<bool> {
    // SAFETY: a `timex` of zeros is valid, and asks for nothing to be changed.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `timex` of ours, which the call fills in.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(state != libc::TIME_ERROR)
}

/// What the kernel reads the time from, as `tsc`; `None` where it does not say.
pub fn clock_source() -> Option<String> {
    Some(std::fs::read_to_string(CLOCK_SOURCE).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_lies_on_something_that_has_room() {
        let directory = tempfile::tempdir().unwrap();
        let found = file_system(directory.path()).unwrap();
        assert!(found.total_bytes >= found.free_bytes && found.total_bytes > 0);
        assert!(file_system(&directory.path().join("missing")).is_err());
        if let Ok(memory) = file_system(Path::new("/dev/shm")) {
            assert_eq!(memory.backing, Backing::Memory);
        }
    }

    #[test]
    fn the_clock_is_kept_or_not_or_nobody_says_and_asking_changes_nothing() {
        assert_eq!(clock_is_kept().ok(), clock_is_kept().ok());
    }
}
