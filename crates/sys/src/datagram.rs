//! Datagrams: one message, and whom it is from or for. A call that would block says `None`.

use crate::again::unless_it_would_wait;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketAddrAny};
use std::io;
use std::mem::{offset_of, size_of};
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

/// Where the name begins in the address of a Unix socket, and where the room for it ends.
const NAME_START: usize = offset_of!(libc::sockaddr_un, sun_path);
const NAME_END: usize = size_of::<libc::sockaddr_un>();

impl Sender {
    pub(crate) fn of(from: Option<SocketAddrAny>) -> io::Result<Self> {
        let Some(from) = from else { return Ok(Self::Unnamed) };
        if from.address_family() == AddressFamily::UNIX {
            return Ok(Self::named(unix_name(&from)));
        }
        let address = SocketAddr::try_from(from).map_err(|_| io::ErrorKind::Unsupported)?;
        Ok(Self::Ip(address))
    }

    /// A path ends with its first zero byte, if it has one; an abstract name begins with one and may have
    /// others.
    fn named(name: &[u8]) -> Self {
        match name {
            [] | [0] => Self::Unnamed,
            [0, name @ ..] => Self::Abstract(name.to_owned()),
            path => Self::Path(path.split(|byte| *byte == 0).next().unwrap_or(path).to_owned()),
        }
    }
}

/// What a Unix socket is bound to, as the kernel tells it. A path may fill all the room there is: then no
/// zero byte ends it there, and the kernel counts one that lies behind (unix(7)).
fn unix_name(from: &SocketAddrAny) -> &[u8] {
    let length = (from.addr_len() as usize).min(NAME_END);
    // SAFETY: so many bytes of an address are initialized, and borrowed with it.
    let bytes = unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<u8>(), length) };
    bytes.get(NAME_START..).unwrap_or_default()
}

/// Reads one datagram into the vector's spare room, at most `limit` bytes of it, and lengthens the vector by
/// it. `None` when there is none.
///
/// # Errors
/// What the kernel says of an earlier datagram, `ConnectionRefused` among it; `Unsupported` for other
/// families.
pub fn receive_from(socket: BorrowedFd<'_>, into: &mut Vec<u8>, limit: usize) -> io::Result<Option<Sender>> {
    let length = into.len();
    let spare = into.spare_capacity_mut();
    let room = spare.len().min(limit);
    let came = unless_it_would_wait(|| {
        let ((filled, _), _, from) = net::recvfrom(socket, &mut spare[..room], RecvFlags::DONTWAIT)?;
        Ok((filled.len(), from))
    })?;
    let Some((count, from)) = came else { return Ok(None) };
    // SAFETY: the kernel wrote `count` bytes behind `length`, inside the capacity.
    unsafe { into.set_len(length + count) };
    Sender::of(from).map(Some)
}

/// Sends one datagram; whether it was taken.
///
/// # Errors
/// What the kernel says of it, or of an earlier one.
pub fn send_to(socket: BorrowedFd<'_>, bytes: &[u8], to: SocketAddr) -> io::Result<bool> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(unless_it_would_wait(|| net::sendto(socket, bytes, flags, &to))?.is_some())
}

/// Binds a Unix socket to a path in a directory that leaves no room for a zero byte behind it.
#[cfg(test)]
pub(crate) fn bind_to_the_brim(socket: BorrowedFd<'_>, directory: &std::path::Path) -> Vec<u8> {
    use std::os::fd::AsRawFd;
    let mut path = directory.join("brim").into_os_string().into_encoded_bytes();
    path.resize(NAME_END - NAME_START, b'm');
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    for (place, byte) in address.sun_path.iter_mut().zip(&path) {
        *place = *byte as libc::c_char;
    }
    // SAFETY: an address of so many bytes, which the call only reads.
    let answer =
        unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), NAME_END as libc::socklen_t) };
    assert_eq!(answer, 0, "{}", io::Error::last_os_error());
    path
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

    #[test]
    fn an_abstract_name_keeps_its_zero_bytes() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::SocketAddr;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("to");
        let to = UnixDatagram::bind(&path).unwrap();
        let name = format!("thalweg\0{}\0", std::process::id()).into_bytes();
        let from = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        from.send_to(b"x", &path).unwrap();
        assert_eq!(receive(&to), Some((b"x".to_vec(), Sender::Abstract(name))));
    }

    #[test]
    fn a_path_that_fills_its_room_is_told_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("to");
        let to = UnixDatagram::bind(&path).unwrap();
        let from = UnixDatagram::unbound().unwrap();
        let named = bind_to_the_brim(from.as_fd(), place.path());
        from.send_to(b"x", &path).unwrap();
        assert_eq!(receive(&to), Some((b"x".to_vec(), Sender::Path(named))));
    }
}
