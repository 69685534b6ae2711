//! The floor: a server that answers 204 to everything, and sends what is posted to every client that asked to
//! follow. Owns nothing but sockets, keeps no byte and knows no stream: no server that does work can be
//! cheaper, so the distance to it is what the work costs.

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

const FOLLOWED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
const CONTROL: &[u8] =
    b"event: control\ndata: {\"streamNextOffset\":\"0000000000000000_0000000000000256\"}\n\n";

/// Every connection.
#[derive(Default)]
struct Floor {
    connections: BTreeMap<u64, (OwnedFd, Vec<u8>)>,
    followers: Vec<u64>,
}

/// Serves until the process ends.
///
/// # Errors
/// The address is taken; out of descriptors.
pub(crate) fn serve(address: SocketAddr) -> io::Result<Infallible> {
    let taken =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot listen at {address}: {error}"));
    let listener = socket::listen_tcp(address, false, 1024).map_err(taken)?;
    let epoll = Epoll::new()?;
    epoll.add(listener.as_fd(), LISTENER, Watch::READ)?;
    let mut floor = Floor::default();
    let mut next = 0;
    let mut events = Events::with_capacity(1024);
    loop {
        epoll.wait(&mut events, 1024, Timeout::Never)?;
        for event in (0..events.len()).filter_map(|n| events.at(n)) {
            if event.token != LISTENER {
                if !floor.answer(event.token).unwrap_or(false) {
                    floor.forget(event.token);
                }
                continue;
            }
            while let Some(connection) = socket::accept(listener.as_fd())? {
                socket::set_no_delay(connection.as_fd())?;
                epoll.add(connection.as_fd(), next, Watch::READ)?;
                floor.connections.insert(next, (connection, Vec::with_capacity(RECEIVE_BYTES)));
                next += 1;
            }
        }
    }
}

impl Floor {
    /// Takes in what came and answers every whole request in it; `false` at the end of the connection.
    fn answer(&mut self, token: u64) -> io::Result<bool> {
        let Some((connection, received)) = self.connections.get_mut(&token) else { return Ok(true) };
        received.reserve(RECEIVE_BYTES);
        match socket::receive(connection.as_fd(), received, RECEIVE_BYTES)? {
            None => return Ok(true),
            Some(0) => return Ok(false),
            Some(_) => {}
        }
        let mut event = Vec::new();
        while let Some(length) = message::length(received) {
            let request = &received[..length];
            if follows(request) {
                socket::send(connection.as_fd(), &[FOLLOWED, CONTROL].concat())?;
                self.followers.push(token);
            } else {
                socket::send(connection.as_fd(), ANSWER)?;
            }
            if request.starts_with(b"POST") && !self.followers.is_empty() {
                let body = length - message::body_bytes(request);
                event.extend_from_slice(b"event: data\ndata: ");
                event.extend_from_slice(&request[body..]);
                event.extend_from_slice(b"\n\n");
                event.extend_from_slice(CONTROL);
            }
            received.drain(..length);
        }
        if !event.is_empty() {
            for follower in &self.followers {
                if let Some((connection, _)) = self.connections.get(follower) {
                    // A client that does not read misses it: nothing is kept here.
                    let _ = socket::send(connection.as_fd(), &event);
                }
            }
        }
        Ok(true)
    }

    fn forget(&mut self, token: u64) {
        self.connections.remove(&token);
        self.followers.retain(|follower| *follower != token);
    }
}

fn follows(request: &[u8]) -> bool {
    const WORD: &[u8] = b"live=sse";
    request.starts_with(b"GET") && request.windows(WORD.len()).any(|word| word == WORD)
}
