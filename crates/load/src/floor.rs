//! The floor: a server that answers 204 to everything. Owns nothing but sockets and never keeps a byte: no
//! server that does work can be cheaper, so the distance to it is what the work costs.

use crate::message;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch};
use thalweg_sys::socket;

const LISTENER: u64 = u64::MAX;
const RECEIVE_BYTES: usize = 16 * 1024;
const ANSWER: &[u8] =
    b"HTTP/1.1 204 No Content\r\nStream-Next-Offset: 0000000000000000_0000000000000256\r\n\r\n";

/// Serves until the process ends.
///
/// # Errors
/// The address is taken; out of descriptors.
pub(crate) fn serve(address: SocketAddr) -> io::Result<Infallible> {
    let listener = socket::listen_tcp(address, false, 1024)?;
    let epoll = Epoll::new()?;
    let watch = Watch { readable: true, ..Watch::default() };
    epoll.add(listener.as_fd(), LISTENER, watch)?;
    let mut connections: BTreeMap<u64, (OwnedFd, Vec<u8>)> = BTreeMap::new();
    let mut next = 0;
    let mut events = Events::with_capacity(1024);
    loop {
        epoll.wait(&mut events, 1024, Timeout::Never)?;
        for event in (0..events.len()).filter_map(|n| events.at(n)) {
            if event.token == LISTENER {
                while let Some(connection) = socket::accept(listener.as_fd())? {
                    socket::set_no_delay(connection.as_fd())?;
                    epoll.add(connection.as_fd(), next, watch)?;
                    connections.insert(next, (connection, Vec::with_capacity(RECEIVE_BYTES)));
                    next += 1;
                }
            } else if let Some((connection, received)) = connections.get_mut(&event.token)
                && !answer(connection, received).unwrap_or(false)
            {
                connections.remove(&event.token);
            }
        }
    }
}

/// Takes in what came and answers every whole request in it; `false` at the end of the connection.
fn answer(connection: &OwnedFd, received: &mut Vec<u8>) -> io::Result<bool> {
    received.reserve(RECEIVE_BYTES);
    match socket::receive(connection.as_fd(), received, RECEIVE_BYTES)? {
        None => return Ok(true),
        Some(0) => return Ok(false),
        Some(_) => {}
    }
    while let Some(length) = message::length(received) {
        socket::send(connection.as_fd(), ANSWER)?;
        received.drain(..length);
    }
    Ok(true)
}
