//! What the machine allows: a request and an answer that were put together before, and nothing else done to
//! either.

use crate::PACE;
use crate::far;
use crate::ours::PATH;
use crate::work::Work;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thalweg_bench::Failure;
use thalweg_bench::measure::{Measured, Until, repeat};
use thalweg_bench::message;
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch};
use thalweg_sys::socket;

const LISTENER: u64 = u64::MAX;
const RECEIVE_BYTES: usize = 16 * 1024;

/// What is asked, and the answer.
pub(crate) fn request(address: SocketAddr) -> Vec<u8> {
    let body = r#"{"jsonrpc":"2.0","method":"Add","params":[40,2],"id":1}"#;
    let length = body.len();
    format!(
        "POST {PATH} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

const RESULT: &[u8] = br#"{"sum":42}"#;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 44\r\n\r\n\
    {\"jsonrpc\":\"2.0\",\"result\":{\"sum\":42},\"id\":1}";

/// Answers whatever comes, until the process ends.
///
/// # Errors
/// What the system says.
pub(crate) fn serve(pin: impl FnOnce() -> Result<(), Failure>, spinning: bool) -> Result<(), Failure> {
    let listener = socket::listen_tcp(SocketAddr::from(([127, 0, 0, 1], 0)), false, 1024)?;
    let address = socket::local_address(listener.as_fd())?;
    pin()?;
    far::ready(address)?;
    if spinning {
        spin(&listener)?
    } else {
        wait(&listener)?
    }
    Ok(())
}

/// One connection after the other, looked at all the time.
fn spin(listener: &OwnedFd) -> io::Result<()> {
    let mut received = Vec::with_capacity(RECEIVE_BYTES);
    loop {
        let Some(connection) = socket::accept(listener.as_fd())? else { continue };
        socket::set_no_delay(connection.as_fd())?;
        loop {
            match socket::receive(connection.as_fd(), &mut received, RECEIVE_BYTES) {
                Ok(None) => std::hint::spin_loop(),
                Ok(Some(0)) | Err(_) => break,
                Ok(Some(_)) => answer(connection.as_fd(), &mut received)?,
            }
        }
    }
}

fn wait(listener: &OwnedFd) -> io::Result<()> {
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
            } else if let Some((connection, received)) = connections.get_mut(&event.token) {
                received.reserve(RECEIVE_BYTES);
                match socket::receive(connection.as_fd(), received, RECEIVE_BYTES) {
                    Ok(None) => {}
                    Ok(Some(0)) | Err(_) => drop(connections.remove(&event.token)),
                    Ok(Some(_)) => {
                        // One that is gone meanwhile is found by reading.
                        let _ = answer(connection.as_fd(), received);
                    }
                }
            }
        }
    }
}

/// Answers every whole request.
fn answer(connection: BorrowedFd<'_>, received: &mut Vec<u8>) -> io::Result<()> {
    while let Some(length) = message::length(received) {
        socket::send(connection, ANSWER)?;
        received.drain(..length);
    }
    Ok(())
}

/// Connects, and waits until that is done.
pub(crate) fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let connection = socket::connect_tcp(address)?;
    socket::wait(connection.as_fd(), true, None)?;
    socket::take_error(connection.as_fd())?;
    socket::set_no_delay(connection.as_fd())?;
    socket::close_abruptly(connection.as_fd())?;
    socket::block(connection.as_fd())?;
    Ok(connection)
}

/// Calls with what was put together before.
///
/// # Errors
/// What the system says, or another answer.
pub(crate) fn call(
    address: SocketAddr,
    work: &Work,
    until: Until,
    spinning: bool,
) -> Result<Measured, Failure> {
    let request = request(address);
    let mut received = Vec::with_capacity(RECEIVE_BYTES);
    let mut connection = connect(address)?;
    repeat(PACE, until, || {
        if work.anew {
            connection = connect(address)?;
        }
        socket::send(connection.as_fd(), &request)?;
        while message::length(&received).is_none() {
            let count = if spinning {
                socket::receive(connection.as_fd(), &mut received, RECEIVE_BYTES)?
            } else {
                socket::receive_waiting(connection.as_fd(), &mut received)?
            };
            if count == Some(0) {
                return Err("the server closed the connection".into());
            }
        }
        check(&received)?;
        received.clear();
        Ok(1)
    })
}

/// Whether an answer is the right one.
pub(crate) fn check(answer: &[u8]) -> Result<(), Failure> {
    let is_right = message::status(answer) == 200 && answer.windows(RESULT.len()).any(|w| w == RESULT);
    if is_right { Ok(()) } else { Err(format!("another answer: {}", String::from_utf8_lossy(answer)).into()) }
}
