//! The process at the other end of a connection, for the process that started it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thalweg_sys::{process, socket};

/// The process that listened where a client connected, whatever becomes of its number.
///
/// A connection alone does not tell of its end: a child may hold its descriptors. It may also have handed
/// them over, and go on to be served by another; so this is for callers that know that it did not.
#[derive(Debug)]
pub struct PeerProcess(OwnedFd);

impl PeerProcess {
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        process::open(socket::peer(socket)?.process).map(Self)
    }

    /// Ends it; one that has ended is no error.
    ///
    /// # Errors
    /// `PermissionDenied` for a process of somebody else's.
    pub fn kill(&self) -> io::Result<()> {
        process::kill(self.0.as_fd())
    }

    /// Another descriptor of it, to be watched: readable once it has ended.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}
