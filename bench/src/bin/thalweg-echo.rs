//! Both ends of an echo, with nothing in between: what an event loop is measured with, and against.
//!
//! `thalweg-echo client ADDRESS CONNECTIONS BYTES SECONDS` keeps one message in flight on each connection and
//! prints how many came back in that time. `thalweg-echo serve ADDRESS` is the floor: one epoll, a read and a
//! write per message; it prints where it listens and ends with its standard input. ADDRESS is a port on the
//! loopback, or a path.
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch};
use thalweg_sys::socket;

const READ: Watch = Watch { readable: true, writable: false, edge: false, exclusive: false };
/// No client's token.
const LISTENER: u64 = u64::MAX;
const INPUT: u64 = u64::MAX - 1;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["client", address, connections, bytes, seconds] => {
            let number = |word: &str| word.parse::<usize>().map_err(io::Error::other);
            let seconds = seconds.parse::<f64>().map_err(io::Error::other)?;
            let (connections, bytes) = (number(connections)?, number(bytes)?);
            println!("{}", client(address, connections, bytes, Duration::from_secs_f64(seconds))?);
            Ok(())
        }
        ["serve", address] => serve(address),
        _ => Err(io::Error::other("client ADDRESS CONNECTIONS BYTES SECONDS, or serve ADDRESS")),
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn connect(address: &str) -> io::Result<OwnedFd> {
    let Ok(port) = address.parse() else { return socket::connect_unix(Path::new(address)) };
    let connection = socket::connect_tcp(loopback(port))?;
    let epoll = Epoll::new()?;
    epoll.add(connection.as_fd(), 0, Watch { readable: false, writable: true, ..READ })?;
    epoll.wait(&mut Events::with_capacity(1), 1, Timeout::Milliseconds(10_000))?;
    socket::take_error(connection.as_fd())?;
    socket::set_no_delay(connection.as_fd())?;
    Ok(connection)
}

/// A connection, and how much of its message came back.
struct Lane {
    connection: OwnedFd,
    back: usize,
}

fn client(address: &str, connections: usize, bytes: usize, lasts: Duration) -> io::Result<u64> {
    let epoll = Epoll::new()?;
    let message = vec![0x61; bytes];
    let mut lanes = Vec::with_capacity(connections);
    for token in 0..connections {
        let connection = connect(address)?;
        epoll.add(connection.as_fd(), token as u64, READ)?;
        lanes.push(Lane { connection, back: 0 });
    }
    lanes.iter().try_for_each(|lane| say(lane, &message))?;
    let (began, mut done, mut buffer) = (Instant::now(), 0, Vec::with_capacity(64 * 1024));
    let mut events = Events::with_capacity(256);
    while began.elapsed() < lasts {
        epoll.wait(&mut events, 256, Timeout::Milliseconds(1_000))?;
        for event in (0..events.len()).filter_map(|index| events.at(index)) {
            let lane = &mut lanes[event.token as usize];
            buffer.clear();
            match socket::receive(lane.connection.as_fd(), &mut buffer, usize::MAX)? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(count) => lane.back += count,
                None => continue,
            }
            if lane.back == bytes {
                done += 1;
                lane.back = 0;
                say(lane, &message)?;
            }
        }
    }
    // Per second, whatever the last wait added.
    Ok((done as f64 / began.elapsed().as_secs_f64()) as u64)
}

/// Says the message, which is small enough for any socket's buffer.
fn say(lane: &Lane, message: &[u8]) -> io::Result<()> {
    match socket::send(lane.connection.as_fd(), message)? {
        Some(count) if count == message.len() => Ok(()),
        _ => Err(io::Error::other("a message did not fit into a socket's buffer")),
    }
}

fn serve(address: &str) -> io::Result<()> {
    let listener = match address.parse() {
        Ok(port) => socket::listen_tcp(loopback(port), false, 128)?,
        Err(_) => socket::listen_unix(Path::new(address), 128)?,
    };
    match address.parse::<u16>() {
        Ok(_) => println!("{}", socket::local_address(listener.as_fd())?.port()),
        Err(_) => println!("{address}"),
    }
    let epoll = Epoll::new()?;
    epoll.add(listener.as_fd(), LISTENER, READ)?;
    epoll.add(io::stdin().as_fd(), INPUT, READ)?;
    let (mut lanes, mut events) = (Vec::<Option<OwnedFd>>::new(), Events::with_capacity(256));
    let mut buffer = Vec::with_capacity(64 * 1024);
    loop {
        epoll.wait(&mut events, 256, Timeout::Never)?;
        for event in (0..events.len()).filter_map(|index| events.at(index)) {
            match event.token {
                INPUT => return Ok(()),
                LISTENER => {
                    while let Some(connection) = socket::accept(listener.as_fd())? {
                        epoll.add(connection.as_fd(), lanes.len() as u64, READ)?;
                        lanes.push(Some(connection));
                    }
                }
                token => {
                    if let Some(place) = lanes.get_mut(token as usize)
                        && !echo(place, &mut buffer)
                    {
                        *place = None;
                    }
                }
            }
        }
    }
}

/// Sends back what came; whether the connection stands.
fn echo(place: &Option<OwnedFd>, buffer: &mut Vec<u8>) -> bool {
    let Some(connection) = place else { return false };
    buffer.clear();
    match socket::receive(connection.as_fd(), buffer, usize::MAX) {
        Ok(Some(0)) | Err(_) => false,
        Ok(None) => true,
        Ok(Some(_)) => {
            matches!(socket::send(connection.as_fd(), buffer), Ok(Some(count)) if count == buffer.len())
        }
    }
}
