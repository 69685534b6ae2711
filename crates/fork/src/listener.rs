//! The sockets at which servers listen: opened here, or handed over by another process.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use thalweg_sys::socket;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// Opens a listener at an address. Returns it with the address that it has, port included.
pub(crate) fn listen(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let listener = socket::listen_tcp(address, false, BACKLOG)?;
    let address = socket::local_address(listener.as_fd())?;
    Ok((listener, address))
}

/// Opens a listener at the address that a client asks for, or refuses with `bad_address`.
pub(crate) fn listen_at(address: &str) -> Result<(OwnedFd, SocketAddr), String> {
    let wanted = address.parse().map_err(|why| bad_address(&address, &why))?;
    listen(wanted).map_err(|why| bad_address(&address, &why))
}

/// Opens a listener at a free port of an address.
pub(crate) fn listen_beside(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), String> {
    let wanted = SocketAddr::new(address.ip(), 0);
    listen(wanted).map_err(|why| bad_address(&wanted.ip(), &why))
}

fn bad_address(address: &dyn Display, why: &dyn Display) -> String {
    format!("bad_address: {address}: {why}")
}

/// The same for a socket that listens already.
pub(crate) fn taken(listener: OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let address = socket::local_address(listener.as_fd());
    let address = address.map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, "the socket handed over is not one that listens at TCP")
    })?;
    // As with a listener opened here: accepted connections inherit it, and accepting never waits.
    socket::set_no_delay(listener.as_fd())?;
    let listener = TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    Ok((listener.into(), address))
}
