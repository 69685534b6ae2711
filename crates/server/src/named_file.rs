//! Files that say who may do what, or who the server is. A user who may write to one could change that, so
//! such a file is refused.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Write permission of the group and of all users.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Read permission of all users: a group's members may be meant to read it.
const READABLE_BY_ALL: u32 = 0o004;

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
/// It cannot be read.
pub(crate) fn read(path: &Path) -> io::Result<Contents> {
    let mut file = File::open(path)?;
    let mode = file.metadata()?.mode();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let is_writable_by_others = mode & WRITABLE_BY_OTHERS != 0;
    Ok(Contents { bytes, is_writable_by_others, is_readable_by_all: mode & READABLE_BY_ALL != 0 })
}
