//! Stream sockets, TCP and Unix: listen, accept, read, write, and what may be set on them.
//!
//! Every socket made here is non-blocking and closed on exec. A call that would block says `None`, and does so even on
//! a socket that [`block`] made blocking; only [`receive_waiting`] waits.

use crate::datagram::Sender;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt,
};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Pieces one gathered write may have; more are refused by the kernel (`UIO_MAXIOV`).
pub const PIECES_MAX: usize = 1_024;

/// A listening TCP socket. With `shared_port`, several may listen on one address and the kernel spreads
/// connections over them (`SO_REUSEPORT`): one per reactor.
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
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
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

/// The next connection waiting on a listener; `None` when none waits. A connection that died in the queue
/// is passed over.
///
/// # Errors
/// Out of descriptors (see [`out_of_descriptors`]), or a broken listener.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    next_waiting(|| net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK))
}

/// As [`accept`], with the address of whoever connected.
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
    loop {
        match accept() {
            Ok(connection) => return Ok(Some(connection)),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED | rustix::io::Errno::PROTO) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether an error says that the process or the machine has no descriptor or no memory for one more.
pub fn out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// Reads what is there into the vector's spare room, at most `limit` bytes, and lengthens the vector by
/// it. `None` when nothing is there yet, `Some(0)` at the end of the stream.
///
/// # Errors
/// `ConnectionReset` and the like; `InvalidInput` if there is no spare room, which would look like the
/// end of the stream.
pub fn receive(socket: BorrowedFd<'_>, into: &mut Vec<u8>, limit: usize) -> io::Result<Option<usize>> {
    let length = into.len();
    let spare = into.spare_capacity_mut();
    let room = spare.len().min(limit);
    if room == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to receive into"));
    }
    loop {
        match net::recv(socket, &mut spare[..room], RecvFlags::DONTWAIT) {
            Ok(((filled, _), _)) => {
                let count = filled.len();
                // SAFETY: the kernel wrote `count` bytes behind `length`, inside the capacity.
                unsafe { into.set_len(length + count) };
                return Ok(Some(count));
            }
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Lets [`receive_waiting`] wait on a socket. Everything else here goes on not to block.
///
/// # Errors
/// None in practice.
pub fn block(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(socket, false)?)
}

/// Waits until something is there and reads it, in one system call: for a thread with one connection, whose socket went
/// through [`block`]. Otherwise as [`receive`], `None` when a signal interrupted the wait or [`set_receive_patience`] ended it.
///
/// # Errors
/// As [`receive`].
pub fn receive_waiting(socket: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let length = into.len();
    let spare = into.spare_capacity_mut();
    if spare.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to receive into"));
    }
    match net::recv(socket, spare, RecvFlags::empty()) {
        Ok(((filled, _), _)) => {
            let count = filled.len();
            // SAFETY: the kernel wrote `count` bytes behind `length`, inside the capacity.
            unsafe { into.set_len(length + count) };
            Ok(Some(count))
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What a descriptor is ready for. An error and a hang-up count as both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// A read will not block.
    pub readable: bool,
    /// A write will not block.
    pub writable: bool,
}

/// Waits until a descriptor can be read, or written if that is wanted, or until the time is over; a signal ends the
/// wait too. For threads outside a reactor.
///
/// # Errors
/// Only for a broken descriptor.
pub fn wait(descriptor: BorrowedFd<'_>, for_writing: bool, timeout: Option<Duration>) -> io::Result<Ready> {
    let timeout = timeout.map(timespec);
    let wanted = if for_writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut list = [PollFd::new(&descriptor, wanted)];
    match poll(&mut list, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let found = list[0].revents();
    let ended = found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    Ok(Ready {
        readable: ended || found.contains(PollFlags::IN),
        writable: ended || found.contains(PollFlags::OUT),
    })
}

/// Waits until one of two descriptors can be read, or until the time is over; a signal ends the wait too.
///
/// # Errors
/// Only for a broken descriptor.
pub fn wait_either(one: BorrowedFd<'_>, other: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    let mut list = [PollFd::new(&one, PollFlags::IN), PollFd::new(&other, PollFlags::IN)];
    match poll(&mut list, timeout.map(timespec).as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until one descriptor can be read or another be written, or until the time is over; a signal ends the wait too.
/// Whether the one can be read.
///
/// # Errors
/// Only for a broken descriptor.
pub fn wait_in_or_out(
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let mut list = [PollFd::new(&input, PollFlags::IN), PollFd::new(&output, PollFlags::OUT)];
    match poll(&mut list, timeout.map(timespec).as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!list[0].revents().is_empty()),
        Err(error) => Err(error.into()),
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Writes bytes; how many were taken, `None` when none can be now.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`; never a signal.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    loop {
        match net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => return Ok(Some(count)),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes pieces one after the other in one system call; how many bytes were taken, `None` when none can
/// be now. Pieces past [`PIECES_MAX`] wait for the next call.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`; never a signal.
pub fn send_gathered(socket: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    let pieces = &pieces[..pieces.len().min(PIECES_MAX)];
    loop {
        let mut control = SendAncillaryBuffer::default();
        match net::sendmsg(socket, pieces, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => return Ok(Some(count)),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends part of a file without copying it through the process; how many bytes were taken, `None` when
/// none can be now. May block on a disk when the range is not in memory.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`, what the file system says.
pub fn send_file(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    count: usize,
) -> io::Result<Option<usize>> {
    loop {
        let mut position = offset;
        match rustix::fs::sendfile(socket, file, Some(&mut position), count) {
            Ok(count) => return Ok(Some(count)),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Says that nothing more will be written; the peer reads the end of the stream, and may still send.
///
/// # Errors
/// `NotConnected` when the peer is gone already.
pub fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::shutdown(socket, net::Shutdown::Write)?)
}

/// Sends small writes at once instead of gathering them (`TCP_NODELAY`). Set on a listener it holds for
/// every connection accepted from it.
///
/// # Errors
/// For a socket that is not TCP.
pub fn set_no_delay(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(socket, true)?)
}

/// Lets closing reset the connection: nothing is owed to the peer, and neither end keeps the address for a while after.
///
/// # Errors
/// None in practice.
pub fn close_abruptly(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// How long a thread sleeps that also looks after signals: one that comes between the look for it and the sleep interrupts
/// nothing, and is noticed after this long.
pub const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Lets [`receive_waiting`] wait so long and no longer; without a limit, for [`SLEEP_MAX`], which is also the most.
///
/// # Errors
/// None in practice.
pub fn set_receive_patience(socket: BorrowedFd<'_>, patience: Option<Duration>) -> io::Result<()> {
    // The kernel takes zero for no limit.
    let patience = patience.unwrap_or(SLEEP_MAX).clamp(Duration::from_micros(1), SLEEP_MAX);
    Ok(sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(patience))?)
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

/// Takes the error that is pending on a socket: how a connection attempt ended.
///
/// # Errors
/// The pending error itself.
pub fn take_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::socket_error(socket)??)
}

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
    // SAFETY: the kernel writes at most `bytes` bytes to credentials, which are plain numbers and outlive the call.
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

/// A second descriptor for the connected socket that is this process's standard input, non-blocking and closed on exec.
///
/// # Errors
/// `ENOTSOCK`, `EBADF` where it is none.
pub fn standard_input() -> io::Result<OwnedFd> {
    let socket = duplicate(rustix::stdio::stdin())?;
    sockopt::socket_type(&socket)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
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
    fn an_abrupt_close_resets_and_patience_ends() {
        let listener = listen_tcp("127.0.0.1:0".parse().unwrap(), false, 8).unwrap();
        let client = connect_tcp(local_address(listener.as_fd()).unwrap()).unwrap();
        wait(listener.as_fd(), false, None).unwrap();
        let server = accept(listener.as_fd()).unwrap().unwrap();
        block(server.as_fd()).unwrap();
        let mut into = Vec::with_capacity(8);
        set_receive_patience(server.as_fd(), Some(Duration::ZERO)).unwrap();
        assert_eq!(receive_waiting(server.as_fd(), &mut into).unwrap(), None);
        set_receive_patience(server.as_fd(), None).unwrap();
        assert_eq!(
            receive_waiting(server.as_fd(), &mut into).unwrap(),
            None,
            "a signal may have come before the sleep"
        );
        close_abruptly(client.as_fd()).unwrap();
        drop(client);
        let error = receive_waiting(server.as_fd(), &mut into).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
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
    fn what_is_received_never_passes_room_or_limit() {
        let (ours, theirs) = pair().unwrap();
        assert_eq!(send(ours.as_fd(), b"0123456789").unwrap(), Some(10));
        let mut buffer = Vec::with_capacity(8);
        assert_eq!(receive(theirs.as_fd(), &mut buffer, 3).unwrap(), Some(3));
        assert_eq!(receive(theirs.as_fd(), &mut buffer, usize::MAX).unwrap(), Some(5));
        assert_eq!(buffer, b"01234567");
        assert!(receive(theirs.as_fd(), &mut buffer, usize::MAX).is_err(), "no room is not the end");
        buffer.clear();
        assert_eq!(receive(theirs.as_fd(), &mut buffer, usize::MAX).unwrap(), Some(2));
        assert_eq!(receive(theirs.as_fd(), &mut buffer, usize::MAX).unwrap(), None);
    }

    #[test]
    fn a_small_send_buffer_fills_sooner() {
        let fill = |bytes: Option<usize>| {
            let (ours, _theirs) = pair().unwrap();
            bytes.into_iter().for_each(|bytes| set_send_buffer(ours.as_fd(), bytes).unwrap());
            let mut sent = 0;
            while let Some(count) = send(ours.as_fd(), &[0; 512]).unwrap() {
                sent += count;
            }
            sent
        };
        let (small, usual) = (fill(Some(4_096)), fill(None));
        assert!(small < usual, "{small} bytes with a small buffer, {usual} without");
    }

    #[test]
    fn a_peer_is_who_connected() {
        let (ours, theirs) = pair().unwrap();
        assert_eq!(peer(ours.as_fd()).unwrap(), peer(theirs.as_fd()).unwrap());
        assert_eq!(peer(ours.as_fd()).unwrap().process, std::process::id());
        assert!(same_user(ours.as_fd()).unwrap());
        let alone = stream_socket(AddressFamily::UNIX).unwrap();
        assert_eq!(peer(alone.as_fd()).unwrap_err().kind(), io::ErrorKind::NotConnected);
        let tcp = listen_tcp(loopback(), false, 1).unwrap();
        assert!(same_user(tcp.as_fd()).is_err());
        assert!(peer(tempfile::tempfile().unwrap().as_fd()).is_err());
    }

    #[test]
    fn only_a_lack_of_descriptors_or_memory_counts_as_one() {
        assert!(out_of_descriptors(&io::Error::from_raw_os_error(libc::EMFILE)));
        assert!(out_of_descriptors(&io::Error::from_raw_os_error(libc::ENFILE)));
        assert!(!out_of_descriptors(&io::Error::from_raw_os_error(libc::EINVAL)));
        assert!(!out_of_descriptors(&io::Error::other("something else")));
    }

    #[test]
    fn a_blocking_socket_waits_only_where_it_is_asked_to() {
        let (ours, theirs) = pair().unwrap();
        block(ours.as_fd()).unwrap();
        let mut buffer = Vec::with_capacity(8);
        assert_eq!(receive(ours.as_fd(), &mut buffer, 8).unwrap(), None, "reading does not wait");
        let piece = [0; 4_096];
        while send(ours.as_fd(), &piece).unwrap().is_some() {}
        assert_eq!(
            send_gathered(ours.as_fd(), &[IoSlice::new(&piece), IoSlice::new(b"x")]).unwrap(),
            None,
            "nor does writing to one that is full"
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                send(theirs.as_fd(), b"late").unwrap();
            });
            assert_eq!(receive_waiting(ours.as_fd(), &mut buffer).unwrap(), Some(4));
        });
        assert_eq!(buffer, b"late");
        drop(theirs);
        assert_eq!(receive_waiting(ours.as_fd(), &mut buffer).ok().flatten().unwrap_or(0), 0);
    }

    #[test]
    fn a_wait_says_what_came_and_ends_with_its_time() {
        let (ours, theirs) = pair().unwrap();
        let none = Ready::default();
        assert_eq!(wait(ours.as_fd(), false, Some(Duration::from_millis(2))).unwrap(), none);
        assert_eq!(wait(ours.as_fd(), true, None).unwrap(), Ready { readable: false, writable: true });
        send(theirs.as_fd(), b"x").unwrap();
        assert_eq!(wait(ours.as_fd(), false, None).unwrap(), Ready { readable: true, writable: false });
        drop(theirs);
        assert_eq!(wait(ours.as_fd(), true, None).unwrap(), Ready { readable: true, writable: true });
    }
}
