//! Files and maps: the real disk, and a simulated twin that crashes on demand.
//!
//! Purpose: the log reaches storage only through [`Disk`], [`File`] and [`Map`], so the very code that
//! serves users runs against the twin in the crash simulation. The twin (feature `sim`) keeps, beside what
//! a running process sees, what would survive a power cut, and loses, tears and reorders the rest.
//!
//! Invariants: a [`Map`] never outgrows its file, whose blocks are allocated before it is mapped, so a store
//! through a map cannot fault; no file of ours is truncated while mapped. What the disk does not give all the
//! same is looked for before a first look ([`Map::bring_in`]). Checked by the tests below and by the log's
//! crash simulation.

mod held;
mod listing;
mod map;
mod presence;
mod real;
mod residency;
#[cfg(feature = "sim")]
pub mod sim;
mod whole;

pub use held::HeldDirectory;
use held::Lookup;
pub use map::Map;
pub use presence::{bring_in, is_present};
pub use residency::Residency;
pub use whole::read_whole;

use std::io;
use std::path::Path;

/// Whether a read failed because the disk does not give what was written: other bytes may well be read.
pub fn is_bad_sector(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::IO)
}

/// Where files live.
#[derive(Clone, Debug, Default)]
pub enum Disk {
    /// The kernel's file systems.
    #[default]
    Real,
    /// The same, and one directory by its descriptor ([`Disk::hold`]).
    Held(HeldDirectory),
    /// The simulated twin.
    #[cfg(feature = "sim")]
    Sim(sim::SimDisk),
}

/// An open file.
#[derive(Debug)]
pub struct File(Backing);

#[derive(Debug)]
enum Backing {
    Real(real::RealFile),
    #[cfg(feature = "sim")]
    Sim(sim::SimFile),
}

/// Who keeps the files, whether or not a directory is held.
enum Kind<'a> {
    Real(Lookup<'a>),
    #[cfg(feature = "sim")]
    Sim(&'a sim::SimDisk),
}

/// Runs the body for whichever disk it is.
macro_rules! on {
    ($value:expr, $real:ident => $do_real:expr, $sim:ident => $do_sim:expr) => {
        match $value {
            Backing::Real($real) => $do_real,
            #[cfg(feature = "sim")]
            Backing::Sim($sim) => $do_sim,
        }
    };
}

/// Exclusive hold on a path, released on drop or when the process dies. The file is empty when it was
/// dropped.
///
/// The hold is its process's alone. A child made by a fork has a copy of the descriptor: dropping it there
/// releases nothing, and as long as the child lives it keeps others out after its parent was killed, unless
/// it calls [`Lock::leave_to_parent`].
#[derive(Debug)]
pub struct Lock {
    file: File,
    process: u32,
}

impl Lock {
    fn of(file: File) -> Lock {
        Lock { file, process: std::process::id() }
    }

    /// In a child right after a fork: lets go of the copy, so that only the parent's hold counts. Does
    /// nothing in the process that took it.
    ///
    /// # Errors
    /// What the system said: there is no descriptor left.
    pub fn leave_to_parent(&self) -> io::Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        on!(&self.file.0, file => file.leave(), _file => Ok(()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // What it said is of no use to anybody now, and wrong the next moment.
            let _ = self.file.empty();
            // A copy that a child has would keep it.
            on!(&self.file.0, file => file.unlock(), _file => ());
        }
    }
}

/// How a new file gets its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Zeros are written: later overwrites change no metadata, so `sync_data` stays cheap.
    ZeroFilled,
    /// Blocks are only reserved: quick, for stores that do not wait for the disk.
    Reserved,
}

impl Disk {
    /// The kernel's disk with a directory held open: files in it are found there, under whatever name the
    /// directory is by then, and whatever is at its path; and it is synced however few descriptors are left.
    /// Every other path leads where it does without.
    ///
    /// ```
    /// # use thalweg_sys::disk::Disk;
    /// # let directory = tempfile::tempdir()?;
    /// let (place, elsewhere) = (directory.path().join("place"), directory.path().join("elsewhere"));
    /// Disk::Real.create_directory(&place)?;
    /// let held = Disk::Real.hold(&place)?;
    /// std::fs::rename(&place, &elsewhere)?;
    /// held.create(&place.join("file"))?;
    /// held.sync_directory(&place)?;
    /// assert!(elsewhere.join("file").exists() && !place.exists());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, and whatever the file system says.
    pub fn hold(&self, directory: &Path) -> io::Result<Disk> {
        match self.kind() {
            Kind::Real(lookup) => HeldDirectory::open(lookup, directory).map(Disk::Held),
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => Ok(Disk::Sim(disk.clone())),
        }
    }

    /// The disk without: every path leads to what is there by now.
    #[must_use]
    pub fn unheld(&self) -> Disk {
        match self {
            Disk::Real | Disk::Held(_) => Disk::Real,
            #[cfg(feature = "sim")]
            Disk::Sim(disk) => Disk::Sim(disk.clone()),
        }
    }

    fn kind(&self) -> Kind<'_> {
        match self {
            Disk::Real => Kind::Real(Lookup::default()),
            Disk::Held(held) => Kind::Real(held.lookup()),
            #[cfg(feature = "sim")]
            Disk::Sim(disk) => Kind::Sim(disk),
        }
    }

    /// Creates a directory and its parents, durably and each its owner's alone; an existing one is fine, and
    /// stays as it is. Found by its path, whatever is held.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn create_directory(&self, path: &Path) -> io::Result<()> {
        match self.kind() {
            Kind::Real(_) => real::create_directory(path),
            #[cfg(feature = "sim")]
            Kind::Sim(_) => Ok(()),
        }
    }

    /// Removes a directory with nothing in it; one that is held, if it is still at its path.
    ///
    /// # Errors
    /// `NotFound`, `DirectoryNotEmpty`, and whatever the file system says.
    pub fn remove_directory(&self, path: &Path) -> io::Result<()> {
        match self.kind() {
            Kind::Real(lookup) => real::remove_directory(lookup.at(path), path),
            #[cfg(feature = "sim")]
            Kind::Sim(_) => Ok(()),
        }
    }

    /// Which run of the machine this is, so far as a number can tell: what a process of this run gave to the
    /// kernel is there, though none of it may be on the disk. 0 where that is not known.
    pub fn boot(&self) -> u64 {
        match self.kind() {
            Kind::Real(_) => crate::machine::boot(),
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => disk.boot(),
        }
    }

    /// Creates a file that must not exist yet, readable and writable by its owner alone.
    ///
    /// # Errors
    /// `AlreadyExists`, and whatever the file system says.
    pub fn create(&self, path: &Path) -> io::Result<File> {
        match self.kind() {
            Kind::Real(lookup) => real::RealFile::create(lookup.at(path)).map(|f| File(Backing::Real(f))),
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => disk.create(path).map(|f| File(Backing::Sim(f))),
        }
    }

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound`, and whatever the file system says.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        match self.kind() {
            Kind::Real(lookup) => real::RealFile::open(lookup.at(path), true).map(|f| File(Backing::Real(f))),
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => disk.open(path).map(|f| File(Backing::Sim(f))),
        }
    }

    /// Opens an existing file for reading only.
    ///
    /// # Errors
    /// `NotFound`, and whatever the file system says.
    pub fn open_read_only(&self, path: &Path) -> io::Result<File> {
        match self.kind() {
            Kind::Real(lookup) => {
                real::RealFile::open(lookup.at(path), false).map(|f| File(Backing::Real(f)))
            }
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => disk.open(path).map(|f| File(Backing::Sim(f))),
        }
    }

    /// Names of the files in a directory, sorted.
    ///
    /// # Errors
    /// `NotFound`, and whatever the file system says.
    pub fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        match self.kind() {
            Kind::Real(lookup) => listing::names(lookup.at(directory)),
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => Ok(disk.names(directory)),
        }
    }

    /// Gives a file a second name in the same file system, which is found as `target` has it. Both names mean
    /// the same bytes from then on.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, and whatever the file system says: many know no such thing.
    pub fn link(&self, from: &Path, target: &Disk, to: &Path) -> io::Result<()> {
        match (self.kind(), target.kind()) {
            (Kind::Real(source), Kind::Real(target)) => real::link(source.at(from), target.at(to)),
            #[cfg(feature = "sim")]
            (Kind::Sim(disk), Kind::Sim(_)) => disk.link(from, to),
            #[cfg(feature = "sim")]
            _ => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    /// Renames a file, replacing what stood at the target.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.kind() {
            Kind::Real(lookup) => real::rename(lookup.at(from), lookup.at(to)),
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => disk.rename(from, to),
        }
    }

    /// Removes a name. Maps and open files of it stay valid.
    ///
    /// # Errors
    /// `NotFound`, and whatever the file system says.
    pub fn unlink(&self, path: &Path) -> io::Result<()> {
        match self.kind() {
            Kind::Real(lookup) => real::unlink(lookup.at(path)),
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => disk.unlink(path),
        }
    }

    /// Makes creations, renames and removals in a directory durable.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        match self.kind() {
            Kind::Real(lookup) => real::sync_directory(lookup.at(directory)),
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => disk.sync_directory(),
        }
    }

    /// Bytes that this user may still fill where a directory lies.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        match self.kind() {
            Kind::Real(lookup) => real::free_bytes(lookup.at(directory)),
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => Ok(disk.free_bytes()),
        }
    }

    /// Takes an exclusive lock on a file, created if needed, and writes `holder` into it if there is room.
    ///
    /// # Errors
    /// `WouldBlock` with the holder's text as message when somebody else holds it.
    pub fn lock(&self, path: &Path, holder: &str) -> io::Result<Lock> {
        match self.kind() {
            Kind::Real(lookup) => {
                real::lock(lookup.at(path), holder).map(|file| Lock::of(File(Backing::Real(file))))
            }
            #[cfg(feature = "sim")]
            Kind::Sim(disk) => {
                let file = disk.open(path).or_else(|_| disk.create(path))?;
                Ok(Lock::of(File(Backing::Sim(file))))
            }
        }
    }

    /// Whether somebody holds the lock at a path, this process included. Takes nothing, so nobody is kept out
    /// meanwhile. `false` as well where the file system cannot tell, and of a simulated disk.
    ///
    /// # Errors
    /// Whatever the file system says, but that there is no such file.
    pub fn is_locked(&self, path: &Path) -> io::Result<bool> {
        match self.kind() {
            Kind::Real(lookup) => real::is_locked(lookup.at(path)),
            #[cfg(feature = "sim")]
            Kind::Sim(_) => Ok(false),
        }
    }
}

impl File {
    /// Its descriptor, which lives as long as somebody has it; `None` of a simulated file.
    pub fn descriptor(&self) -> Option<std::sync::Arc<std::os::fd::OwnedFd>> {
        on!(&self.0, file => Some(file.descriptor()), _file => None)
    }

    /// Whether it is this file that is at a path now, and not another, or none.
    ///
    /// # Errors
    /// Whatever the file system says, but that there is none.
    pub fn is_at(&self, path: &Path) -> io::Result<bool> {
        on!(&self.0, file => file.is_at(held::At::from(path)), file => Ok(file.is_at(path)))
    }

    /// Length in bytes.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn length(&self) -> io::Result<u64> {
        on!(&self.0, file => file.length(), file => Ok(file.length()))
    }

    /// Gives a new, empty file `length` bytes of zeros with their blocks.
    ///
    /// # Errors
    /// `StorageFull` when the disk is; the file is then of no use and to be removed.
    pub fn allocate(&self, length: u64, how: Allocation) -> io::Result<()> {
        on!(&self.0, file => file.allocate(length, how), file => file.allocate(length))
    }

    /// Fills `bytes` from `position`.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end, and whatever the file system says.
    pub fn read_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        on!(&self.0, file => file.read_at(bytes, position), file => file.read_at(bytes, position))
    }

    /// Writes all of `bytes` at `position`, extending the file if needed.
    ///
    /// # Errors
    /// `StorageFull`, and whatever the file system says.
    pub fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        on!(&self.0, file => file.write_at(bytes, position), file => file.write_at(bytes, position))
    }

    /// Writes `length` zeros at `position`, extending the file if needed: in calls of up to 2 MiB, which the
    /// kernel keeps in pieces as large, so that a map of them costs few faults.
    ///
    /// # Errors
    /// `StorageFull`, and whatever the file system says.
    pub fn write_zeros(&self, length: u64, position: u64) -> io::Result<()> {
        on!(&self.0, file => file.write_zeros(length, position), file => file.write_zeros(length, position))
    }

    /// Cuts the file to nothing. It must not be mapped.
    fn empty(&self) -> io::Result<()> {
        on!(&self.0, file => file.empty(), file => { file.empty(); Ok(()) })
    }

    /// Makes the file's bytes durable, those stored through maps included.
    ///
    /// # Errors
    /// After an error nothing is known about what reached the disk, and asking again proves nothing.
    pub fn sync_data(&self) -> io::Result<()> {
        on!(&self.0, file => file.sync_data(), file => file.sync_data())
    }

    /// Maps the first `length` bytes, shared, readable and, if asked, writable.
    ///
    /// # Errors
    /// `InvalidInput` when the file is shorter; whatever the kernel says.
    pub fn map(&self, length: usize, writable: bool) -> io::Result<Map> {
        if self.length()? < length as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is shorter than its map"));
        }
        on!(&self.0, file => file.map(length, writable), file => Ok(file.map(length)))
    }

    /// Maps the first `length` bytes for somebody who may store to them and must not reach the file: what is
    /// stored stays in the map, and from then on its page shows nothing of what becomes of the file's.
    ///
    /// # Errors
    /// `InvalidInput` when the file is shorter; `Unsupported` of a simulated one; whatever the kernel says.
    pub fn map_apart(&self, length: usize) -> io::Result<Map> {
        if self.length()? < length as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is shorter than its map"));
        }
        on!(&self.0, file => file.map_apart(length), _file => Err(io::ErrorKind::Unsupported.into()))
    }
}

/// The directory that something is in.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
