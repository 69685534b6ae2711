//! Memory that is handed over to another process as a descriptor, and that neither can pull from under the
//! other.
//!
//! A process that maps memory which another may shrink dies at its next access behind the new end. So the
//! kernel is told to forbid that (*seals*: no shrinking, no growing, no further seals), and a process that is
//! handed such memory checks the seals before it maps it.
//!
//! Its pages come as they are first written to: to have them all from the start costs a server's thread
//! milliseconds for a few mebibytes, of which most clients use little. So a machine without memory must be an
//! error before there is anything to write to: where the kernel accounts for what it promises it refuses, and
//! elsewhere we ask what is available, for this memory and for what others were promised before and may not
//! have used yet. That is as good as the machine's own word; a limit that a container sets is enforced by
//! killing.

use crate::disk::Map;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// What must be forbidden.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Zeroed memory of a fixed length, sealed, closed on exec. The name is for people who look into `/proc`;
/// `promised_bytes` is what such memory that was made before may still come to need.
///
/// # Errors
/// `OutOfMemory` when there is not as much; `FileTooLarge` where the process may not have a file of that
/// length (`RLIMIT_FSIZE`); `InvalidInput` for no bytes; out of descriptors.
pub fn sealed(name: &str, bytes: usize, promised_bytes: u64) -> io::Result<OwnedFd> {
    if bytes == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The kernel would also send a signal that kills.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < bytes as u64) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // Nor does it refuse what it does not have: it makes room by killing whom it likes.
    let needed_bytes = promised_bytes.saturating_add(bytes as u64);
    if available_bytes().is_some_and(|available| available < needed_bytes) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let memory = anonymous(name)?;
    ftruncate(&memory, bytes as u64)?;
    fcntl_add_seals(&memory, SEALS)?;
    Ok(memory)
}

/// What the machine could give without taking it from a process; `None` where it does not say.
fn available_bytes() -> Option<u64> {
    stated_bytes(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn stated_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn anonymous(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // A kernel before 6.3, which does not know that memory might be executed.
        Err(Errno::INVAL) => Ok(memfd_create(name, flags)?),
        memory => Ok(memory?),
    }
}

/// Maps all of the memory behind a descriptor that somebody handed over, to be read and written.
///
/// # Errors
/// `InvalidInput` when it is not memory, or not sealed as [`sealed`] does it, so that its other holder could
/// shrink it; `PermissionDenied` when it may not be written; `OutOfMemory`.
pub fn map(memory: BorrowedFd<'_>) -> io::Result<Map> {
    let refused = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what);
    match fcntl_get_seals(memory) {
        Ok(seals) if seals.contains(SEALS) => {}
        Ok(_) => return Err(refused("memory that its owner could still cut short: not sealed")),
        Err(Errno::INVAL) => return Err(refused("not a descriptor of shared memory")),
        Err(error) => return Err(error.into()),
    }
    // Read behind the seals: from here on it does not change.
    let length = usize::try_from(fstat(memory)?.st_size).unwrap_or(0);
    if length == 0 {
        return Err(refused("memory without a byte"));
    }
    Map::of_file(memory, length, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn refusal(memory: impl AsFd) -> io::ErrorKind {
        map(memory.as_fd()).unwrap_err().kind()
    }

    #[test]
    fn two_maps_show_the_same_memory_which_outlives_its_descriptor() {
        let memory = sealed("test", 8192, 0).unwrap();
        let maps = [map(memory.as_fd()).unwrap(), map(memory.as_fd()).unwrap()];
        drop(memory);
        assert_eq!(maps[1].length(), 8192);
        // SAFETY: nobody reads yet.
        unsafe { maps[0].write(5000, b"there") };
        // SAFETY: nobody writes any more.
        assert_eq!(unsafe { maps[1].bytes(4999, 6) }, b"\0there");
    }

    #[test]
    fn sealed_memory_keeps_its_length() {
        let memory = sealed("test", 8192, 0).unwrap();
        assert_eq!(ftruncate(&memory, 4096), Err(Errno::PERM));
        assert_eq!(ftruncate(&memory, 16384), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(&memory, SealFlags::WRITE), Err(Errno::PERM));
    }

    #[test]
    fn pages_come_as_they_are_written_to() {
        let memory = sealed("test", 1 << 20, 0).unwrap();
        assert_eq!(fstat(&memory).unwrap().st_blocks, 0);
        // SAFETY: nobody reads.
        unsafe { map(memory.as_fd()).unwrap().write(4096, b"x") };
        assert!(fstat(&memory).unwrap().st_blocks > 0);
    }

    /// Nothing is taken for it: it is refused at its word.
    #[test]
    fn what_was_promised_before_counts_against_what_the_machine_has() {
        assert_eq!(sealed("test", 4096, u64::MAX - 1).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(sealed("test", 0, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn memory_that_could_be_pulled_away_is_refused() {
        for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let memory = anonymous("test").unwrap();
            ftruncate(&memory, 4096).unwrap();
            fcntl_add_seals(&memory, SEALS.difference(missing)).unwrap();
            assert_eq!(refusal(memory), io::ErrorKind::InvalidInput, "{missing:?}");
        }
    }

    #[test]
    fn memory_that_may_not_be_written_is_refused() {
        let memory = anonymous("test").unwrap();
        ftruncate(&memory, 4096).unwrap();
        fcntl_add_seals(&memory, SEALS | SealFlags::WRITE).unwrap();
        assert_eq!(refusal(memory), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_is_not_memory_or_has_none_is_refused() {
        assert_eq!(refusal(crate::socket::pair().unwrap().0), io::ErrorKind::InvalidInput);
        assert_eq!(refusal(tempfile::tempfile().unwrap()), io::ErrorKind::InvalidInput);
        assert_eq!(refusal(empty()), io::ErrorKind::InvalidInput);
    }

    fn empty() -> OwnedFd {
        let memory = anonymous("test").unwrap();
        fcntl_add_seals(&memory, SEALS).unwrap();
        memory
    }

    /// Nothing is asked of the kernel here: it would make room by killing.
    #[test]
    fn what_the_machine_has_left_is_read_from_what_it_says() {
        let text = "MemTotal:       1024 kB\nMemAvailable:        12 kB\nBuffers: 3 kB\n";
        assert_eq!(stated_bytes(text), Some(12 * 1024));
        for text in ["", "MemTotal: 1 kB", "MemAvailable: much", "MemAvailable: 99999999999999999999 kB"] {
            assert_eq!(stated_bytes(text), None, "{text:?}");
        }
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
