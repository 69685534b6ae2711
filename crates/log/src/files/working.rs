//! A file that is there whole or not at all: it is written beside the name that it is to have, and takes it
//! when all is there.
//!
//! Owns the name that such a file has meanwhile. Its writer syncs it first, and the directory
//! afterwards, where its own order wants that: until then a power cut may take the name back. What is given
//! up is removed, and what a crash left of one is removed by recovery. *Checked by* the test below, and by
//! the crash simulation, which cuts between any two steps.

use std::io;
use std::path::{Path, PathBuf};
use thalweg_sys::disk::{Disk, File};

/// What is behind the name meanwhile.
const SUFFIX: &str = ".new";

/// A file that is being written. Dropped before it is [put in place](Working::put_in_place), it is removed.
pub(crate) struct Working<'d> {
    disk: &'d Disk,
    path: PathBuf,
    target: PathBuf,
    is_placed: bool,
}

impl<'d> Working<'d> {
    /// Begins one that is to have a name in a directory, in the place of whatever was left there of an
    /// earlier one.
    pub(crate) fn create(disk: &'d Disk, directory: &Path, name: &str) -> io::Result<(Working<'d>, File)> {
        let (path, target) = (directory.join(format!("{name}{SUFFIX}")), directory.join(name));
        let working = Working { disk, path, target, is_placed: false };
        let _ = disk.unlink(&working.path);
        let file = disk.create(&working.path)?;
        Ok((working, file))
    }

    /// Gives it its name, and takes that from what had it.
    pub(crate) fn put_in_place(mut self) -> io::Result<()> {
        self.disk.rename(&self.path, &self.target)?;
        self.is_placed = true;
        Ok(())
    }

    /// The name that a file of this name was to have.
    pub(crate) fn target_of(name: &str) -> Option<&str> {
        name.strip_suffix(SUFFIX)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = self.disk.unlink(&self.path);
        }
    }
}

/// Writes a small file whole, in the place of an older one, and durably. If it fails the old one, if any, is
/// still there.
pub(crate) fn replace(disk: &Disk, directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (working, file) = Working::create(disk, directory, name)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    working.put_in_place()?;
    disk.sync_directory(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_leaves_the_old_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let (disk, path) = (Disk::Real, directory.path());
        replace(&disk, path, "file", b"old").unwrap();
        let (working, file) = Working::create(&disk, path, "file").unwrap();
        file.write_at(b"half", 0).unwrap();
        let names = disk.names(path).unwrap();
        assert_eq!(names.iter().filter_map(|name| Working::target_of(name)).collect::<Vec<_>>(), ["file"]);
        assert_eq!(names.len(), 2);
        drop(working);
        assert_eq!(disk.names(path).unwrap(), ["file"]);
        assert_eq!(std::fs::read(path.join("file")).unwrap(), b"old");
        replace(&disk, path, "file", b"new").unwrap();
        assert_eq!(disk.names(path).unwrap(), ["file"]);
        assert_eq!(std::fs::read(path.join("file")).unwrap(), b"new");
    }
}
