//! Where a server is to listen: a socket that is made here, or one that was handed over.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use thalweg_sys::socket;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// Listens there, and says where that is.
pub(crate) fn listen(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let listener = socket::listen_tcp(address, false, BACKLOG)?;
    let address = socket::local_address(listener.as_fd())?;
    Ok((listener, address))
}

/// Listens where somebody asks for; `bad_address` says why not.
pub(crate) fn listen_at(address: &str) -> Result<(OwnedFd, SocketAddr), String> {
    let wanted = address.parse().map_err(|why| bad_address(&address, &why))?;
    listen(wanted).map_err(|why| bad_address(&address, &why))
}

/// Listens at a free port beside an address.
pub(crate) fn listen_beside(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), String> {
    let wanted = SocketAddr::new(address.ip(), 0);
    listen(wanted).map_err(|why| bad_address(&wanted.ip(), &why))
}

fn bad_address(address: &dyn Display, why: &dyn Display) -> String {
    format!("bad_address: {address}: {why}")
}

/// What [`listen`] answers, of a socket that listens already.
pub(crate) fn taken(listener: OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let address = socket::local_address(listener.as_fd());
    let address = address.map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, "the socket handed over is not one that listens at TCP")
    })?;
    // As a listener of ours hands it on to what is accepted, and waits for nobody.
    socket::set_no_delay(listener.as_fd())?;
    let listener = TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    Ok((listener.into(), address))
}
