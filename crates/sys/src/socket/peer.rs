//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Who is at the other end of a Unix socket, as the kernel saw it when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process; 0 when it lives where this process cannot see it (another container).
    pub process: u32,
    /// User.
    pub user: u32,
    /// Group.
    pub group: u32,
}

/// The credentials of a Unix socket's peer.
///
/// # Errors
/// For a socket that is not a connected Unix socket.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    // Not by the library's wrapper, whose process numbers are never 0.
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: the kernel writes at most `bytes` bytes to credentials, which are plain numbers and outlive the
    // call.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut credentials).cast(),
            &raw mut bytes,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // A socket that is not connected has a peer without number and with no user.
    if credentials.uid == u32::MAX {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(Peer { process: credentials.pid.unsigned_abs(), user: credentials.uid, group: credentials.gid })
}

/// Whether a Unix socket's peer connected as the user that this process acts as.
///
/// # Errors
/// For a socket that is not a connected Unix socket.
pub fn same_user(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(peer(socket)?.user == rustix::process::geteuid().as_raw())
}

/// The same, or as the superuser, who may do everything in this process anyway. The superuser is also who
/// listens on a socket that systemd hands to a service of another user.
///
/// # Errors
/// For a socket that is not a connected Unix socket.
pub fn same_user_or_root(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(same_user(socket)? || peer(socket)?.user == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{listen_tcp, pair, stream_socket};
    use rustix::net::AddressFamily;
    use std::os::fd::AsFd;

    #[test]
    fn a_peer_is_who_connected() {
        let (ours, theirs) = pair().unwrap();
        assert_eq!(peer(ours.as_fd()).unwrap(), peer(theirs.as_fd()).unwrap());
        assert_eq!(peer(ours.as_fd()).unwrap().process, std::process::id());
        assert!(same_user(ours.as_fd()).unwrap());
        assert!(same_user_or_root(ours.as_fd()).unwrap());
        let alone = stream_socket(AddressFamily::UNIX).unwrap();
        assert_eq!(peer(alone.as_fd()).unwrap_err().kind(), io::ErrorKind::NotConnected);
        let tcp = listen_tcp("127.0.0.1:0".parse().unwrap(), false, 1).unwrap();
        assert!(same_user(tcp.as_fd()).is_err());
        assert!(same_user_or_root(tcp.as_fd()).is_err());
        assert!(peer(tempfile::tempfile().unwrap().as_fd()).is_err());
    }
}
