//! Names in the file system as far as sockets need them: what lies at a path, taking it away, and one
//! process at a time doing so.

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest wait for a directory's lock, and how often it is looked at meanwhile.
pub const PATIENCE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(2);
/// The longest wait of a caller that must not be held up.
const MOMENT: Duration = Duration::from_millis(50);

/// What lies at a path. Two different things never have the same at one time; a later one may have that
/// of one that is gone (see [`pin`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    /// It is a Unix socket.
    pub is_socket: bool,
}

/// What lies at the path, links not followed; `None` when nothing does.
///
/// # Errors
/// What the file system says.
pub fn identity(path: &Path) -> io::Result<Option<Identity>> {
    match rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(Identity {
            device: found.st_dev,
            inode: found.st_ino,
            is_socket: FileType::from_raw_mode(found.st_mode) == FileType::Socket,
        })),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A descriptor that keeps what lies at the path from being forgotten, so that its inode number is not
/// given to anything else and its [`Identity`] stays its own. It cannot be read or written.
///
/// # Errors
/// What the file system says.
pub fn pin(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Removes the name. The file it named lives on for processes that have it open.
///
/// # Errors
/// What the file system says.
pub fn unlink(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::unlink(path)?)
}

/// Keeps other holders of the same lock out until dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    _directory: OwnedFd,
}

/// Waits for the lock on the directory a path lies in, but no longer than [`PATIENCE`]. A process holds it
/// for a few system calls, so one that holds it longer was stopped meanwhile, or uses it for something else.
/// Advisory: it binds only processes that take it too.
///
/// # Errors
/// `NotFound` when there is no such directory, `TimedOut` when somebody else went on holding it, what the
/// file system says.
pub fn lock_directory_of(path: &Path) -> io::Result<DirectoryLock> {
    lock_within(path, PATIENCE)
}

/// As [`lock_directory_of`], for a caller that must not be held up: it gives up after 50 ms.
///
/// # Errors
/// As there.
pub fn lock_directory_soon(path: &Path) -> io::Result<DirectoryLock> {
    lock_within(path, MOMENT)
}

fn lock_within(path: &Path, patience: Duration) -> io::Result<DirectoryLock> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty())?;
    let until = Instant::now() + patience;
    loop {
        match rustix::io::retry_on_intr(|| {
            rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)
        }) {
            Ok(()) => return Ok(DirectoryLock { _directory: directory }),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(RETRY),
            Err(Errno::WOULDBLOCK) => {
                let held = format!(
                    "{}: another process goes on holding the directory's lock (flock)",
                    parent.display()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, held));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_tells_a_replaced_file_from_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("name");
        assert_eq!(identity(&path).unwrap(), None);
        drop(std::fs::File::create(&path).unwrap());
        let before = identity(&path).unwrap().unwrap();
        let pinned = pin(&path).unwrap();
        assert!(!before.is_socket);
        assert_eq!(identity(&path).unwrap(), Some(before));
        unlink(&path).unwrap();
        let _second = std::fs::File::create(&path).unwrap();
        assert_ne!(identity(&path).unwrap(), Some(before));
        drop(pinned);
    }

    #[test]
    fn a_directory_is_locked_by_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("name");
        let lock = lock_directory_of(&path).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiting = {
            let path = path.clone();
            std::thread::spawn(move || {
                let _lock = lock_directory_of(&path).unwrap();
                sender.send(()).unwrap();
            })
        };
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
        let impatient = lock_within(&path, Duration::from_millis(10)).unwrap_err();
        assert_eq!(impatient.kind(), io::ErrorKind::TimedOut);
        assert!(impatient.to_string().contains(&*directory.path().to_string_lossy()), "{impatient}");
        let hurried = lock_directory_soon(&path).unwrap_err();
        assert_eq!(hurried.kind(), io::ErrorKind::TimedOut);
        drop(lock);
        receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        waiting.join().unwrap();
        let missing = directory.path().join("missing/name");
        assert_eq!(lock_directory_of(&missing).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
