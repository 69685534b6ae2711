//! Many connections, each with one call under way, from one thread.

use crate::PACE;
use crate::floor::{check, connect, request};
use crate::work::Work;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use thalweg_bench::Failure;
use thalweg_bench::measure::{Measured, Until, repeat};
use thalweg_bench::message;
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch};
use thalweg_sys::socket;

const RECEIVE_BYTES: usize = 4 * 1024;

/// Calls over all of them: a turn takes what came, and asks again there, or over a new one in its place.
///
/// # Errors
/// What the system says, or another answer.
pub(crate) fn call(address: SocketAddr, work: &Work, until: Until) -> Result<Measured, Failure> {
    let request = request(address);
    let epoll = Epoll::new()?;
    let open = |number: u64| -> Result<OwnedFd, Failure> {
        let connection = connect(address)?;
        epoll.add(connection.as_fd(), number, Watch { readable: true, ..Watch::default() })?;
        Ok(connection)
    };
    let mut connections: Vec<(OwnedFd, Vec<u8>)> = Vec::new();
    for number in 0..work.connections {
        let connection = open(number as u64)?;
        socket::send(connection.as_fd(), &request)?;
        connections.push((connection, Vec::with_capacity(RECEIVE_BYTES)));
    }
    let mut events = Events::with_capacity(work.connections);
    repeat(PACE, until, || {
        epoll.wait(&mut events, work.connections, Timeout::Never)?;
        let mut answered = 0;
        for event in (0..events.len()).filter_map(|n| events.at(n)) {
            let Some((connection, received)) = connections.get_mut(event.token as usize) else { continue };
            if socket::receive(connection.as_fd(), received, RECEIVE_BYTES)? == Some(0) {
                return Err("the server closed the connection".into());
            }
            if message::length(received).is_some() {
                check(received)?;
                received.clear();
                if work.anew {
                    *connection = open(event.token)?;
                }
                socket::send(connection.as_fd(), &request)?;
                answered += 1;
            }
        }
        Ok(answered)
    })
}
