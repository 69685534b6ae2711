//! A directory that is held open, and paths that lead into it.
//!
//! Purpose: a path names whatever is there by now. A process that finds its files by one, after their
//! directory was moved away and another put in its place, would write and remove files there. So whoever owns
//! a directory holds it, and every path into it is followed from the descriptor.
//!
//! Ownership: copies share the descriptor, which is closed with the last of them; a child made by a fork has
//! it as well. Nothing is locked by it. *Checked by* the example of [`Disk::hold`](super::Disk::hold) and the
//! log's tests `displaced` and `moved`.

use super::real;
use rustix::fs::CWD;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that is open, and the path that it was opened by.
#[derive(Clone, Debug)]
pub struct HeldDirectory {
    path: PathBuf,
    descriptor: Arc<OwnedFd>,
}

impl HeldDirectory {
    pub(super) fn open(lookup: Lookup<'_>, path: &Path) -> io::Result<HeldDirectory> {
        let descriptor = Arc::new(real::directory(lookup.at(path))?);
        Ok(HeldDirectory { path: path.to_owned(), descriptor })
    }

    pub(super) fn lookup(&self) -> Lookup<'_> {
        Lookup(Some(self))
    }
}

/// From where paths are followed: from a directory those that lead into it.
#[derive(Clone, Copy, Default)]
pub(super) struct Lookup<'a>(Option<&'a HeldDirectory>);

impl<'a> Lookup<'a> {
    pub(super) fn at(self, path: &'a Path) -> At<'a> {
        let inside = self.0.and_then(|held| {
            let from = held.descriptor.as_fd();
            let path = path.strip_prefix(&held.path).ok()?;
            let is_held = path.as_os_str().is_empty();
            Some(At { from, path: if is_held { Path::new(".") } else { path }, is_held })
        });
        inside.unwrap_or(At::from(path))
    }
}

/// A path, and from where it is followed.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) from: BorrowedFd<'a>,
    pub(super) path: &'a Path,
    /// It is the directory that is held.
    pub(super) is_held: bool,
}

impl<'a> From<&'a Path> for At<'a> {
    fn from(path: &'a Path) -> At<'a> {
        At { from: CWD, path, is_held: false }
    }
}
