//! Stream sockets, TCP and Unix: listen, connect, accept, and what may be set on them; `transfer` reads and
//! writes, `wait` waits, `peer` says who is at the other end, `sender` who sent something.
//!
//! Every socket made here is non-blocking and closed on exec. A call that would block says `None`, and does
//! so even on a socket that [`block`] made blocking; only [`receive_waiting`] waits.

mod peer;
mod sender;
mod transfer;
mod wait;

pub use peer::{Peer, peer, same_user, same_user_or_root};
pub use sender::{PeekedSender, peek_sender, set_pass_credentials};
pub use transfer::{
    PIECES_MAX, SLEEP_MAX, block, queued_bytes, receive, receive_waiting, send, send_file, send_gathered,
    set_receive_patience, shutdown_write,
};
pub use wait::{Ready, wait, wait_either, wait_in_or_out};

use crate::datagram::Sender;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// A listening TCP socket. With `shared_port`, several may listen on one address and the kernel spreads
/// connections over them (`SO_REUSEPORT`): one per reactor. An IPv6 address, `[::]` included, takes no
/// IPv4 (`IPV6_V6ONLY`), so that both can be listened at on one port.
///
/// # Errors
/// `AddrInUse`, `PermissionDenied` (a port below 1,024), `AddrNotAvailable`, out of descriptors.
pub fn listen_tcp(address: SocketAddr, shared_port: bool, backlog: u32) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = stream_socket(family)?;
    // A restarted server takes its port over from connections that linger in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

/// Lets others of this user listen where a TCP listener does, from now on: those made with `shared_port`.
///
/// # Errors
/// None in practice.
pub fn share_port(listener: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseport(listener, true)?)
}

/// A listening Unix socket whose path only this user may connect to (mode 0600 from its first moment).
///
/// # Errors
/// `AddrInUse` if the path exists, `InvalidFilename` for a path over 107 bytes, what the file system says.
pub fn listen_unix(path: &Path, backlog: u32) -> io::Result<OwnedFd> {
    let address = net::SocketAddrUnix::new(path)?;
    let socket = stream_socket(AddressFamily::UNIX)?;
    // The path takes its mode from the socket's inode at bind, so that it is never wider, not even
    // between bind and a later chmod; the chmod after it settles what a lax or strict umask made of it.
    rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(0o600))?;
    net::bind(&socket, &address)?;
    let listening = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| Ok(net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?));
    // Nobody answers at a path that was bound and nothing more.
    listening.inspect_err(|_| drop(std::fs::remove_file(path)))?;
    Ok(socket)
}

/// Connects to a Unix socket at once or not at all: for asking whether a server lives behind a path.
///
/// # Errors
/// `ConnectionRefused` when nobody listens, `NotFound`, `WouldBlock` when the listener's queue is full.
pub fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let address = net::SocketAddrUnix::new(path)?;
    let socket = stream_socket(AddressFamily::UNIX)?;
    net::connect(&socket, &address)?;
    Ok(socket)
}

/// Starts to connect to a TCP address; the socket is writable once the attempt ended, and
/// [`take_error`] then tells how.
///
/// # Errors
/// What the kernel says at once.
pub fn connect_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = stream_socket(family)?;
    match net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

fn stream_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Connections in a row that are passed over before the listener itself is taken for what is wrong.
const PASSED_OVER_MAX: usize = 64;

/// The next connection waiting on a listener; `None` when none waits. A connection that died in the queue
/// is passed over.
///
/// # Errors
/// Out of descriptors (see [`out_of_descriptors`]), or a listener that is broken, or that this process may
/// not accept from: a policy that says so takes no connection off the queue.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    next_waiting(|| net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK))
}

/// As [`accept`], with the peer's address.
///
/// # Errors
/// As [`accept`]; `Unsupported` for families of addresses other than IP and Unix.
pub fn accept_from(listener: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, Sender)>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match next_waiting(|| net::acceptfrom_with(listener, flags))? {
        Some((connection, from)) => Ok(Some((connection, Sender::of(from)?))),
        None => Ok(None),
    }
}

fn next_waiting<T>(accept: impl Fn() -> rustix::io::Result<T>) -> io::Result<Option<T>> {
    let mut passed_over = 0;
    loop {
        match accept() {
            Ok(connection) => return Ok(Some(connection)),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) if is_of_one_connection(error) && passed_over < PASSED_OVER_MAX => passed_over += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether an error tells of one connection that is gone before it was taken, and nothing of the listener:
/// accept(2) lists what the network may have said of it.
fn is_of_one_connection(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(
        error,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::PROTO
            | Errno::PERM
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NONET
    )
}

/// Whether an error says that the process or the machine has no descriptor or no memory for one more.
pub fn out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// Sends small writes at once instead of gathering them (`TCP_NODELAY`). Set on a listener it holds for
/// every connection accepted from it.
///
/// # Errors
/// For a socket that is not TCP.
pub fn set_no_delay(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(socket, true)?)
}

/// Lets closing reset the connection: nothing is owed to the peer, and neither end keeps the address for a
/// while after.
///
/// # Errors
/// None in practice.
pub fn close_abruptly(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Whether small writes are sent at once.
///
/// # Errors
/// For a socket that is not TCP.
pub fn no_delay(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockopt::tcp_nodelay(socket)?)
}

/// Bounds what the kernel holds of unsent bytes; it doubles the number for its own bookkeeping.
///
/// # Errors
/// None in practice.
pub fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(socket, bytes)?)
}

/// Whether the peer is on this machine: at a loopback address, at the address that it reached, or at a path.
pub fn is_local(socket: BorrowedFd<'_>) -> bool {
    match (peer_address(socket), local_address(socket)) {
        (Ok(Some(peer)), Ok(ours)) => peer.ip().to_canonical().is_loopback() || peer.ip() == ours.ip(),
        (Ok(None), _) => false,
        // Not of the network.
        _ => true,
    }
}

/// Takes the error that is pending on a socket: how a connection attempt ended.
///
/// # Errors
/// The pending error itself.
pub fn take_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::socket_error(socket)??)
}

/// The address a TCP socket is bound to: tells which port `0` became.
///
/// # Errors
/// For a socket that is not TCP.
pub fn local_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(net::getsockname(socket)?)?)
}

/// The address of a TCP socket's peer; `None` when it is gone already.
///
/// # Errors
/// For a socket that is not TCP.
pub fn peer_address(socket: BorrowedFd<'_>) -> io::Result<Option<SocketAddr>> {
    Ok(net::getpeername(socket)?.map(SocketAddr::try_from).transpose()?)
}

/// Two connected Unix sockets.
///
/// # Errors
/// Out of descriptors.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// A second descriptor for the connected socket that is this process's standard input, non-blocking and
/// closed on exec.
///
/// # Errors
/// `ENOTSOCK`, `EBADF` where it is none.
pub fn standard_input() -> io::Result<OwnedFd> {
    let socket = duplicate(rustix::stdio::stdin())?;
    sockopt::socket_type(&socket)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Whether what a socket receives are datagrams, of which one may be empty and none is the last.
pub fn is_datagram(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_type(socket) == Ok(SocketType::DGRAM)
}

/// A second descriptor for the same open thing.
///
/// # Errors
/// Out of descriptors.
pub fn duplicate(descriptor: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(descriptor.as_fd(), 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::bind_to_the_brim;
    use crate::epoll::{Epoll, Events, Timeout, Watch, wait_readable};

    fn loopback() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    /// Waits until a connection attempt ended.
    fn settle(socket: BorrowedFd<'_>) -> io::Result<()> {
        let epoll = Epoll::new().unwrap();
        epoll.add(socket, 0, Watch { writable: true, ..Watch::default() }).unwrap();
        epoll.wait(&mut Events::with_capacity(1), 1, Timeout::Milliseconds(10_000)).unwrap();
        take_error(socket)
    }

    #[test]
    fn who_connects_is_named_as_it_is_accepted() {
        let from = |listener: &OwnedFd| accept_from(listener.as_fd()).unwrap().map(|(_, sender)| sender);
        let listener = listen_tcp(loopback(), false, 8).unwrap();
        assert_eq!(from(&listener), None);
        let client = connect_tcp(local_address(listener.as_fd()).unwrap()).unwrap();
        wait(listener.as_fd(), false, None).unwrap();
        assert_eq!(from(&listener), Some(Sender::Ip(local_address(client.as_fd()).unwrap())));
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        let listener = listen_unix(&path, 8).unwrap();
        let _client = connect_unix(&path).unwrap();
        assert_eq!(from(&listener), Some(Sender::Unnamed));
        let client = stream_socket(AddressFamily::UNIX).unwrap();
        let named = bind_to_the_brim(client.as_fd(), place.path());
        net::connect(&client, &net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert_eq!(from(&listener), Some(Sender::Path(named)));
    }

    #[test]
    fn a_connection_is_made_accepted_and_named_at_both_ends() {
        for address in [loopback(), "[::1]:0".parse().unwrap()] {
            let listener = match listen_tcp(address, false, 16) {
                // A machine without IPv6.
                Err(error) if address.is_ipv6() && error.kind() == io::ErrorKind::AddrNotAvailable => {
                    continue;
                }
                listener => listener.unwrap(),
            };
            assert_eq!(accept(listener.as_fd()).unwrap().map(drop), None);
            let client = connect_tcp(local_address(listener.as_fd()).unwrap()).unwrap();
            settle(client.as_fd()).unwrap();
            assert!(wait_readable(listener.as_fd(), 10_000).unwrap());
            let server = accept(listener.as_fd()).unwrap().unwrap();
            assert_eq!(peer_address(server.as_fd()).unwrap(), Some(local_address(client.as_fd()).unwrap()));
            assert_eq!(peer_address(client.as_fd()).unwrap(), Some(local_address(server.as_fd()).unwrap()));
        }
    }

    #[test]
    fn a_refused_connection_says_so() {
        let listener = listen_tcp(loopback(), false, 16).unwrap();
        let address = local_address(listener.as_fd()).unwrap();
        drop(listener);
        let outcome = connect_tcp(address).and_then(|client| settle(client.as_fd()));
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn connections_that_died_are_passed_over_and_a_refusal_of_them_all_is_told() {
        use rustix::io::Errno;
        let calls = std::cell::Cell::new(0);
        let accept = |of: &[Errno]| {
            let call = calls.replace(calls.get() + 1);
            assert!(call < 1_000, "nothing else is done meanwhile");
            of.get(call % (of.len() + 1)).map_or(Ok(call), |error| Err(*error))
        };
        let dead = [Errno::CONNABORTED, Errno::PERM, Errno::INTR, Errno::HOSTUNREACH];
        assert_eq!(next_waiting(|| accept(&dead)).unwrap(), Some(dead.len()));
        let refused = next_waiting(|| accept(&[Errno::PERM; 10_000]));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn only_a_lack_of_descriptors_or_memory_counts_as_one() {
        assert!(out_of_descriptors(&io::Error::from_raw_os_error(libc::EMFILE)));
        assert!(out_of_descriptors(&io::Error::from_raw_os_error(libc::ENFILE)));
        assert!(!out_of_descriptors(&io::Error::from_raw_os_error(libc::EINVAL)));
        assert!(!out_of_descriptors(&io::Error::other("something else")));
    }
}
