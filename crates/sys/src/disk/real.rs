//! The kernel's files.

use super::held::At;
use super::{Allocation, Map, parent_of};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::retry_on_intr;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

/// A file of the kernel's.
#[derive(Debug)]
pub(super) struct RealFile {
    descriptor: Arc<OwnedFd>,
}

static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
/// Pieces of zeros that one call writes at most.
const ZEROS_MAX: usize = 32;
/// Bytes of a text that says who holds a lock, at most.
const TEXT_MAX: u64 = 1024;

impl RealFile {
    fn of(descriptor: OwnedFd) -> RealFile {
        RealFile { descriptor: Arc::new(descriptor) }
    }

    pub(super) fn descriptor(&self) -> Arc<OwnedFd> {
        self.descriptor.clone()
    }

    pub(super) fn create(at: At<'_>) -> io::Result<RealFile> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(RealFile::of(fs::openat(at.from, at.path, flags, Mode::RUSR | Mode::WUSR)?))
    }

    pub(super) fn open(at: At<'_>, writable: bool) -> io::Result<RealFile> {
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        Ok(RealFile::of(fs::openat(at.from, at.path, access | OFlags::CLOEXEC, Mode::empty())?))
    }

    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(fs::fstat(&self.descriptor)?.st_size.cast_unsigned())
    }

    pub(super) fn allocate(&self, length: u64, how: Allocation) -> io::Result<()> {
        match fs::fallocate(&self.descriptor, fs::FallocateFlags::empty(), 0, length) {
            Ok(()) if how == Allocation::Reserved => return Ok(()),
            // A file system without reservation gets its blocks by the writes below, and so does one that a
            // signal interrupts: some begin all of it anew then, and the next signal finds them at it.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INTR) => {}
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

    pub(super) fn write_zeros(&self, length: u64, position: u64) -> io::Result<()> {
        let end = position + length;
        let mut position = position;
        while position < end {
            let left = usize::try_from(end - position).unwrap_or(usize::MAX);
            let (whole, rest) = (left / ZEROS.len(), left % ZEROS.len());
            let mut pieces = [io::IoSlice::new(&ZEROS); ZEROS_MAX];
            if let Some(last) = pieces.get_mut(whole) {
                *last = io::IoSlice::new(&ZEROS[..rest]);
            }
            match rustix::io::pwritev(&self.descriptor, &pieces[..ZEROS_MAX.min(whole + 1)], position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => position += count as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether it is this file that is at a path now.
    pub(super) fn is_at(&self, at: At<'_>) -> io::Result<bool> {
        let own = fs::fstat(&self.descriptor)?;
        match fs::statat(at.from, at.path, AtFlags::empty()) {
            Ok(there) => Ok(is_same(own, there)),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Releases the lock, also for processes that have a copy of the descriptor.
    pub(super) fn unlock(&self) {
        let _ = self.mark_held(libc::F_UNLCK);
        let _ = fs::flock(&self.descriptor, fs::FlockOperation::Unlock);
    }

    /// Sets or clears a lock of the whole file by which others can tell that it is held: who holds it by
    /// `flock` cannot be asked without taking it.
    fn mark_held(&self, kind: c_int) -> io::Result<()> {
        self.whole_file_lock(libc::F_OFD_SETLK, kind).map(drop)
    }

    /// Whether somebody marked it as held.
    fn is_marked_held(&self) -> io::Result<bool> {
        self.whole_file_lock(libc::F_OFD_GETLK, libc::F_RDLCK).map(|found| found != libc::F_UNLCK)
    }

    /// Calls for a lock of the open file, and answers the kind of lock that the kernel left in the request.
    fn whole_file_lock(&self, call: c_int, kind: c_int) -> io::Result<c_int> {
        // SAFETY: all fields are numbers, and 0 is one: from the first byte to the last of the file.
        let mut request: libc::flock = unsafe { std::mem::zeroed() };
        (request.l_type, request.l_whence) = (kind as _, libc::SEEK_SET as _);
        // SAFETY: the descriptor is open, and the call reads and writes one `flock`.
        match unsafe { libc::fcntl(self.descriptor.as_raw_fd(), call, &raw mut request) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(request.l_type.into()),
        }
    }

    /// Closes the file without giving its descriptor's number back: it stands for nothing from here on.
    pub(super) fn leave(&self) -> io::Result<()> {
        let nothing = fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: the number is open, owned by `self.descriptor`, and stays both: `dup3` puts another file in
        // its place in one step, and nothing closes what is never dropped.
        let mut place =
            std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.descriptor.as_raw_fd()) });
        Ok(rustix::io::dup3(&nothing, &mut place, rustix::io::DupFlags::CLOEXEC)?)
    }

    /// What is written in it, if that is a short text.
    fn text(&self) -> Option<String> {
        let length = self.length().ok().filter(|length| *length <= TEXT_MAX)?;
        let mut text = vec![0; usize::try_from(length).ok()?];
        self.read_at(&mut text, 0).ok()?;
        String::from_utf8(text).ok()
    }

    pub(super) fn empty(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fs::ftruncate(&self.descriptor, 0))?)
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fs::fdatasync(&self.descriptor))?)
    }

    pub(super) fn map(&self, length: usize, writable: bool) -> io::Result<Map> {
        Map::of_file(&self.descriptor, length, writable)
    }

    pub(super) fn map_apart(&self, length: usize) -> io::Result<Map> {
        Map::apart_from_file(&self.descriptor, length)
    }
}

pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            io::Error::new(io::ErrorKind::NotADirectory, "there is something else of that name")
        }
        _ => error,
    })?;
    for made in missing.into_iter().rev() {
        match sync_directory(parent_of(made).into()) {
            // A user who may write to a directory and not read it cannot sync it, and has to trust that it
            // lasts.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
    }
    Ok(())
}

pub(super) fn directory(at: At<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::openat(at.from, at.path, flags, Mode::empty())?)
}

/// Removes the directory at a path, if that is where it is.
pub(super) fn remove_directory(at: At<'_>, path: &Path) -> io::Result<()> {
    if at.is_held && !is_same(fs::fstat(at.from)?, fs::stat(path)?) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(fs::rmdir(path)?)
}

fn is_same(one: fs::Stat, other: fs::Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Asks something of a directory: of one that is held, without another descriptor.
fn of_directory<T>(at: At<'_>, ask: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
    if at.is_held { ask(at.from) } else { ask(directory(at)?.as_fd()) }
}

pub(super) fn sync_directory(at: At<'_>) -> io::Result<()> {
    of_directory(at, |directory| Ok(retry_on_intr(|| fs::fsync(directory))?))
}

pub(super) fn link(from: At<'_>, to: At<'_>) -> io::Result<()> {
    Ok(fs::linkat(from.from, from.path, to.from, to.path, AtFlags::empty())?)
}

pub(super) fn rename(from: At<'_>, to: At<'_>) -> io::Result<()> {
    Ok(fs::renameat(from.from, from.path, to.from, to.path)?)
}

pub(super) fn unlink(at: At<'_>) -> io::Result<()> {
    Ok(fs::unlinkat(at.from, at.path, AtFlags::empty())?)
}

pub(super) fn free_bytes(at: At<'_>) -> io::Result<u64> {
    of_directory(at, crate::machine::free_bytes)
}

pub(super) fn lock(at: At<'_>, holder: &str) -> io::Result<RealFile> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    loop {
        let file = RealFile::of(fs::openat(at.from, at.path, flags, Mode::RUSR | Mode::WUSR)?);
        match fs::flock(&file.descriptor, fs::FlockOperation::NonBlockingLockExclusive) {
            // Who held it may have removed the file meanwhile: somebody else locks another one there.
            Ok(()) if !file.is_at(at)? => {}
            Ok(()) => {
                file.empty()?;
                // Who it is helps somebody else, and on a full disk there is no room for it.
                let _ = file.write_at(holder.as_bytes(), 0);
                // Where the file system knows no such locks, nobody can tell; the lock is as good.
                let _ = file.mark_held(libc::F_WRLCK);
                return Ok(file);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, file.text().unwrap_or_default()));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether somebody holds the lock at a path.
pub(super) fn is_locked(at: At<'_>) -> io::Result<bool> {
    match RealFile::open(at, false) {
        Ok(file) => file.is_marked_held(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use crate::disk::Disk;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn what_is_created_is_its_owners_alone_and_what_existed_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (there, new) = (directory.path().join("there"), directory.path().join("there/a/b"));
        std::fs::create_dir(&there).unwrap();
        std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o755)).unwrap();
        Disk::Real.create_directory(&new).unwrap();
        Disk::Real.create_directory(&there).unwrap();
        assert_eq!((mode(&there), mode(&there.join("a")), mode(&new)), (0o755, 0o700, 0o700));
        drop(Disk::Real.create(&new.join("segment")).unwrap());
        let file = Disk::Real.create_directory(&new.join("segment")).unwrap_err();
        assert_eq!(file.kind(), std::io::ErrorKind::NotADirectory);
        let lock = Disk::Real.lock(&new.join("lock"), "somebody").unwrap();
        assert_eq!((mode(&new.join("segment")), mode(&new.join("lock"))), (0o600, 0o600));
        drop(lock);
    }

    #[test]
    fn a_lock_is_taken_where_there_is_no_room_to_say_who_has_it() {
        let full = memfd_create("full", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        fcntl_add_seals(&full, SealFlags::GROW).unwrap();
        let path = format!("/proc/self/fd/{}", full.as_raw_fd());
        let lock = Disk::Real.lock(Path::new(&path), "somebody").unwrap();
        let held = Disk::Real.lock(Path::new(&path), "somebody else").unwrap_err();
        assert_eq!((held.kind(), held.to_string()), (std::io::ErrorKind::WouldBlock, String::new()));
        drop(lock);
        drop(Disk::Real.lock(Path::new(&path), "somebody else").unwrap());
    }

    #[test]
    fn whether_a_lock_is_held_can_be_asked_without_taking_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert!(!Disk::Real.is_locked(&path).unwrap());
        let lock = Disk::Real.lock(&path, "somebody").unwrap();
        assert!(Disk::Real.is_locked(&path).unwrap() && Disk::Real.is_locked(&path).unwrap());
        drop(lock);
        assert!(!Disk::Real.is_locked(&path).unwrap());
    }

    /// Removing a locked file gives up its lock: a process that had opened it before then gets a lock that
    /// excludes no other.
    #[test]
    fn a_lock_that_was_removed_before_it_was_had_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let file = super::lock(path.as_path().into(), "somebody").unwrap();
        assert!(file.is_at(path.as_path().into()).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!file.is_at(path.as_path().into()).unwrap());
        let other = super::lock(path.as_path().into(), "somebody else").unwrap();
        assert!(!file.is_at(path.as_path().into()).unwrap() && other.is_at(path.as_path().into()).unwrap());
    }

    /// The same with threads that take the lock, remove its file and let go: never do two have it.
    #[test]
    fn a_lock_whose_file_is_removed_is_had_by_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = std::sync::Mutex::new(());
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..2_000 {
                        let Ok(file) = super::lock(path.as_path().into(), "somebody") else { continue };
                        let alone = held.try_lock().expect("two have it");
                        std::thread::yield_now();
                        drop(alone);
                        std::fs::remove_file(&path).unwrap();
                        drop(file);
                    }
                });
            }
        });
    }

    #[test]
    fn zeros_are_written_where_they_belong_and_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let most = super::ZEROS.len() * super::ZEROS_MAX;
        for (length, position) in
            [(0, 3), (1, 0), (5, 4093), (super::ZEROS.len(), 7), (most, 1), (most + 70_001, 9)]
        {
            let whole = position + length + 100;
            std::fs::write(&path, vec![7; whole]).unwrap();
            Disk::Real.open(&path).unwrap().write_zeros(length as u64, position as u64).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let zeros = position..position + length;
            assert_eq!(bytes.len(), whole, "{length} at {position}");
            let right = |(at, byte): (usize, &u8)| *byte == if zeros.contains(&at) { 0 } else { 7 };
            assert!(bytes.iter().enumerate().all(right), "{length} at {position}");
        }
    }
}
