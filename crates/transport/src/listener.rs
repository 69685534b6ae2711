//! Where connections come from.
//!
//! TCP: one listener per reactor on one port; the kernel spreads connections over them, so that no thread
//! hands a connection to another. Unix: one listener, of which every reactor watches a duplicate.
//!
//! # A Unix path is never stolen
//!
//! A socket file outlives a killed server, so a path that exists means nothing by itself. A new listener asks
//! whether a server answers behind it: if so it refuses, if not it takes the leftover's place. It removes its
//! own path when dropped, unless another has taken the place meanwhile, another process goes on holding that
//! lock, or it is dropped by a copy of the process that bound it. Looking and taking happen under a lock
//! on the directory, so two servers that start together cannot both win.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use thalweg_sys::{name, socket};

/// Connections the kernel keeps waiting for us to accept; it caps this by `net.core.somaxconn`.
const BACKLOG: u32 = 4_096;

/// A listening socket. A Unix listener's path is removed with it; see [`Listener::into_parts`].
#[derive(Debug)]
pub struct Listener {
    descriptor: OwnedFd,
    path: Option<BoundPath>,
}

impl Listener {
    /// `reactors` listeners (at least one) on one TCP address. Port 0 picks a free port, the same for
    /// all. Connections have `TCP_NODELAY` set.
    ///
    /// # Errors
    /// `AddrInUse` when anybody listens there, another process of ours included; `PermissionDenied`,
    /// `AddrNotAvailable`, out of descriptors.
    pub fn tcp(address: SocketAddr, reactors: usize) -> io::Result<Vec<Self>> {
        if reactors <= 1 {
            return Ok(vec![Self::tcp_one(address, false)?]);
        }
        // A shared port would also be shared with a second server that the user started by mistake, and each
        // would get half of the connections. So the first takes the port for itself alone, and shares it once
        // it has it: of two that start together one is refused.
        let first = Self::tcp_one(address, false)?;
        socket::share_port(first.as_fd())?;
        let address = first.local_address()?;
        let others = (1..reactors).map(|_| Self::tcp_one(address, true));
        std::iter::once(Ok(first)).chain(others).collect()
    }

    fn tcp_one(address: SocketAddr, shared_port: bool) -> io::Result<Self> {
        let descriptor = socket::listen_tcp(address, shared_port, BACKLOG)?;
        // Inherited by what is accepted: one system call here instead of one per connection.
        socket::set_no_delay(descriptor.as_fd())?;
        Ok(Self { descriptor, path: None })
    }

    /// A listener on a Unix path, which only this user may connect to (mode 0600).
    ///
    /// # Errors
    /// `AddrInUse` when a server answers behind the path; `AlreadyExists` when something other than a
    /// socket lies there, which is left alone; `InvalidFilename` for a path over 107 bytes; `NotFound` when
    /// its directory does not exist; `TimedOut` when another process goes on holding the directory's lock.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let _lock = name::lock_directory_of(path)?;
        if let Some(found) = name::identity(path)? {
            clear_leftover(path, found)?;
        }
        // Where it is found must not depend on where this process goes later.
        let whole = std::path::absolute(path)?;
        let descriptor = socket::listen_unix(path, BACKLOG)?;
        match BoundPath::of(whole) {
            Ok(bound) => Ok(Self { descriptor, path: Some(bound) }),
            Err(error) => {
                // No server would answer behind it.
                let _ = name::unlink(path);
                Err(error)
            }
        }
    }

    /// The address a TCP listener is bound to.
    ///
    /// # Errors
    /// For a Unix listener.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        socket::local_address(self.as_fd())
    }

    /// Another descriptor for the same listener, for another reactor to watch as
    /// `Interest::SHARED_LISTENER`.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        socket::duplicate(self.as_fd())
    }

    /// The descriptor, for a reactor to own, and a Unix listener's path, to be kept for as long as the
    /// listener should be found there.
    pub fn into_parts(self) -> (OwnedFd, Option<BoundPath>) {
        (self.descriptor, self.path)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Removes what a dead server left behind.
fn clear_leftover(path: &Path, found: name::Identity) -> io::Result<()> {
    if !found.is_socket {
        let message = format!("{} exists and is not a socket: choose another path", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match socket::connect_unix(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => name::unlink(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full queue means a busy server, not a dead one.
        Ok(_) => Err(answered(path)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(answered(path)),
        Err(error) => Err(error),
    }
}

fn answered(path: &Path) -> io::Error {
    let message = format!("a server answers at {}: stop it first, or choose another path", path.display());
    io::Error::new(io::ErrorKind::AddrInUse, message)
}

/// A path that leads to our listener; removed when dropped, if it still does. While another process holds its
/// directory's lock it stays, as after a crash: a reactor may be waiting for the drop, and the next listener
/// that binds there takes the path away.
#[derive(Debug)]
pub struct BoundPath {
    path: PathBuf,
    identity: Option<name::Identity>,
    /// The process that bound it: a copy of that closes what it inherited, and leaves the path.
    process: u32,
    /// Keeps a successor's socket from getting the identity of ours.
    _pinned: OwnedFd,
}

impl BoundPath {
    /// What was just bound there.
    fn of(path: PathBuf) -> io::Result<Self> {
        let (pinned, identity) = (name::pin(&path)?, name::identity(&path)?);
        Ok(Self { path, identity, process: std::process::id(), _pinned: pinned })
    }

    /// The path, from the root on.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let Ok(_lock) = name::lock_directory_soon(&self.path) else { return };
        let found = name::identity(&self.path).ok().flatten();
        if found.is_some() && found == self.identity {
            // Gone meanwhile, or not ours to remove any more: either way nothing is left to do.
            let _ = name::unlink(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
