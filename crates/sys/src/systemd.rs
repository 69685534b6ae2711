//! What a supervisor (systemd, or whatever speaks its protocol) hands to the process and wants to hear from
//! it.
//!
//! Listening sockets come as descriptors from 3 on (`sd_listen_fds(3)`); news goes as datagrams to a Unix
//! socket (`sd_notify(3)`). Which environment variables say so is for the caller to read.

use crate::datagram::Sender;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Mutex;

/// The first descriptor handed over.
const FIRST: RawFd = 3;

/// Where a listening socket is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// At a TCP address.
    Tcp(std::net::SocketAddr),
    /// At a path; `None` for a Unix socket without one.
    Unix(Option<PathBuf>),
}

/// Takes over `count` listening sockets that the process was started with. They become non-blocking and are
/// closed on exec. To be called before the process opens anything, and once: a second call gets none.
///
/// # Errors
/// `InvalidInput` naming the descriptor that is not a listening stream socket; nothing is taken then.
pub fn take_listeners(count: u32) -> io::Result<Vec<OwnedFd>> {
    static TAKEN: Mutex<bool> = Mutex::new(false);
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if std::mem::replace(&mut *taken, true) {
        return Ok(Vec::new());
    }
    let range = FIRST..FIRST.saturating_add(i32::try_from(count).unwrap_or(i32::MAX));
    for number in range.clone() {
        if !is_listener(number) {
            *taken = false;
            let why = format!("descriptor {number} is not a listening stream socket");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    }
    range
        .map(|number| {
            // SAFETY: the descriptor is open, as the look at it above has shown; the process was started with
            // it and opened nothing since, so nobody else owns it; `TAKEN` keeps it from being taken twice.
            let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
            rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&descriptor, true)?;
            Ok(descriptor)
        })
        .collect()
}

fn is_listener(number: RawFd) -> bool {
    // SAFETY: the borrow ends with this function, which closes nothing; a number that is not open makes the
    // calls below fail, nothing worse.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    sockopt::socket_type(descriptor) == Ok(SocketType::STREAM)
        && sockopt::socket_acceptconn(descriptor) == Ok(true)
}

/// Where a listening socket is reached.
///
/// # Errors
/// It is neither TCP nor Unix.
pub fn bound(listener: BorrowedFd<'_>) -> io::Result<Bound> {
    match Sender::of(Some(net::getsockname(listener)?)) {
        Ok(Sender::Ip(address)) => Ok(Bound::Tcp(address)),
        Ok(Sender::Path(path)) => Ok(Bound::Unix(Some(PathBuf::from(OsString::from_vec(path))))),
        Ok(Sender::Abstract(_) | Sender::Unnamed) => Ok(Bound::Unix(None)),
        Err(_) => Err(io::Error::other("a socket that is neither TCP nor Unix")),
    }
}

/// Sends news (`READY=1`, say) to the supervisor's socket: a path, or an abstract name after an `@`.
///
/// # Errors
/// Nobody listens there.
pub fn notify(socket: &std::ffi::OsStr, news: &str) -> io::Result<()> {
    let name = socket.as_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(abstract_name) => SocketAddrUnix::new_abstract_name(abstract_name)?,
        None => SocketAddrUnix::new(name)?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let sender = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    net::sendto(&sender, news.as_bytes(), SendFlags::NOSIGNAL, &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    #[test]
    fn news_arrive_at_a_path_and_at_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let receiver = UnixDatagram::bind(&path).unwrap();
        notify(path.as_os_str(), "READY=1").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(receiver.recv(&mut buffer).map(|count| buffer[..count].to_vec()).unwrap(), b"READY=1");
        let missing = directory.path().join("nobody");
        assert_eq!(notify(missing.as_os_str(), "X").unwrap_err().kind(), io::ErrorKind::NotFound);

        use std::os::linux::net::SocketAddrExt;
        let name = format!("thalweg-test-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let receiver = UnixDatagram::bind_addr(&address).unwrap();
        notify(format!("@{name}").as_ref(), "STOPPING=1").unwrap();
        assert_eq!(receiver.recv(&mut buffer).map(|count| buffer[..count].to_vec()).unwrap(), b"STOPPING=1");
    }

    #[test]
    fn listeners_say_where_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let unix = UnixListener::bind(&path).unwrap();
        assert_eq!(bound(unix.as_fd()).unwrap(), Bound::Unix(Some(path)));
        let brim = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let path = crate::datagram::bind_to_the_brim(brim.as_fd(), directory.path());
        assert_eq!(bound(brim.as_fd()).unwrap(), Bound::Unix(Some(OsString::from_vec(path).into())));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(bound(tcp.as_fd()).unwrap(), Bound::Tcp(tcp.local_addr().unwrap()));
    }

    #[test]
    fn what_is_no_listener_is_refused() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        use std::os::fd::AsRawFd;
        assert!(!is_listener(ours.as_raw_fd()));
        assert!(!is_listener(i32::MAX));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_listener(listener.as_raw_fd()));
    }
}
