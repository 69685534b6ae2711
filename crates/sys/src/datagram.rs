//! Datagrams: one message, and whom it is from or for. A call that would block says `None`.

use rustix::net::{self, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Whom a datagram came from, or a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// An address of IP.
    Ip(SocketAddr),
    /// A Unix socket bound to a path.
    Path(Vec<u8>),
    /// A Unix socket bound to an abstract name: what stands behind the first zero byte.
    Abstract(Vec<u8>),
    /// One that has no address.
    Unnamed,
}

impl Sender {
    pub(crate) fn of(from: Option<SocketAddrAny>) -> io::Result<Self> {
        let Some(from) = from else { return Ok(Self::Unnamed) };
        if let Ok(address) = SocketAddr::try_from(from.clone()) {
            return Ok(Self::Ip(address));
        }
        let unix = SocketAddrUnix::try_from(from).map_err(|_| io::ErrorKind::Unsupported)?;
        Ok(match (unix.path_bytes(), unix.abstract_name()) {
            (Some(path), _) => Self::Path(path.strip_suffix(b"\0").unwrap_or(path).to_owned()),
            (_, Some(name)) if !name.is_empty() => Self::Abstract(name.to_owned()),
            _ => Self::Unnamed,
        })
    }
}

/// Reads one datagram into the vector's spare room, at most `limit` bytes of it, and lengthens the vector by it. `None`
/// when there is none.
///
/// # Errors
/// What the kernel says of an earlier datagram, `ConnectionRefused` among it; `Unsupported` for other families.
pub fn receive_from(socket: BorrowedFd<'_>, into: &mut Vec<u8>, limit: usize) -> io::Result<Option<Sender>> {
    let length = into.len();
    let spare = into.spare_capacity_mut();
    let room = spare.len().min(limit);
    loop {
        match net::recvfrom(socket, &mut spare[..room], RecvFlags::DONTWAIT) {
            Ok(((filled, _), _, from)) => {
                let count = filled.len();
                // SAFETY: the kernel wrote `count` bytes behind `length`, inside the capacity.
                unsafe { into.set_len(length + count) };
                return Sender::of(from).map(Some);
            }
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends one datagram; whether it was taken.
///
/// # Errors
/// What the kernel says of it, or of an earlier one.
pub fn send_to(socket: BorrowedFd<'_>, bytes: &[u8], to: SocketAddr) -> io::Result<bool> {
    loop {
        match net::sendto(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT, &to) {
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::AGAIN) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    fn receive(socket: impl AsFd) -> Option<(Vec<u8>, Sender)> {
        let mut bytes = Vec::with_capacity(100);
        receive_from(socket.as_fd(), &mut bytes, 100).unwrap().map(|sender| (bytes, sender))
    }

    #[test]
    fn a_datagram_comes_whole_with_its_sender_and_an_empty_one_is_one() {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        assert_eq!(receive(&other), None);
        for bytes in [&b"said"[..], b""] {
            assert!(send_to(one.as_fd(), bytes, other.local_addr().unwrap()).unwrap());
            assert_eq!(receive(&other), Some((bytes.to_owned(), Sender::Ip(one.local_addr().unwrap()))));
        }
    }

    #[test]
    fn unix_senders_are_told_apart() {
        let place = tempfile::tempdir().unwrap();
        let (path, named) = (place.path().join("to"), place.path().join("from"));
        let to = UnixDatagram::bind(&path).unwrap();
        UnixDatagram::unbound().unwrap().send_to(b"x", &path).unwrap();
        assert_eq!(receive(&to), Some((b"x".to_vec(), Sender::Unnamed)));
        UnixDatagram::bind(&named).unwrap().send_to(b"y", &path).unwrap();
        let from = named.as_os_str().as_encoded_bytes().to_owned();
        assert_eq!(receive(&to), Some((b"y".to_vec(), Sender::Path(from))));
    }
}
