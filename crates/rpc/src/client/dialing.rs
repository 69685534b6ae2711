//! Connecting: the addresses of a host one after the other, until one accepts.
//!
//! Each has its share of what is left of the call's time, and the last one all of it; where a call has no
//! deadline, each has what the kernel gives it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use thalweg_service::Error as Failure;
use thalweg_sys::socket;
use thalweg_wire::fault::Fault;

/// A socket that is being connected, or is connected.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) socket: OwnedFd,
    pub(crate) address: SocketAddr,
}

#[derive(Debug)]
pub(crate) struct Dialing {
    /// Those that were not tried yet.
    rest: VecDeque<SocketAddr>,
    /// What came of those that were.
    failed: Vec<(SocketAddr, io::Error)>,
    deadline: Option<Instant>,
    /// When the one that is tried is given up for the next.
    until: Option<Instant>,
}

impl Dialing {
    /// Begins with the first address where that is possible.
    pub(crate) fn begin(
        addresses: VecDeque<SocketAddr>,
        deadline: Option<Instant>,
    ) -> Result<(Self, Line), Failure> {
        let mut dialing = Self { rest: addresses, failed: Vec::new(), deadline, until: None };
        let line = dialing.next()?;
        Ok((dialing, line))
    }

    /// Whether the connection is established. If the address refuses, the line goes on to the next one.
    pub(crate) fn look(&mut self, line: &mut Line) -> Result<bool, Failure> {
        loop {
            let error = match is_up(line) {
                Ok(true) => return Ok(true),
                Ok(false) if self.until.is_none_or(|until| Instant::now() < until) => return Ok(false),
                Ok(false) => io::ErrorKind::TimedOut.into(),
                Err(error) => error,
            };
            self.failed.push((line.address, error));
            *line = self.next()?;
        }
    }

    /// When to look again though nothing happened.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        self.until
    }

    /// The time of the call is over.
    pub(crate) fn overdue(&mut self, address: SocketAddr) -> Failure {
        self.failed.push((address, io::ErrorKind::TimedOut.into()));
        Failure::new(Fault::ConnectTimeout, format!("nothing could be sent in time: {}", self.tried()))
    }

    fn next(&mut self) -> Result<Line, Failure> {
        while let Some(address) = self.rest.pop_front() {
            match connect(address) {
                Ok(socket) => {
                    self.until = self.deadline.and_then(|deadline| share(deadline, self.rest.len()));
                    return Ok(Line { socket, address });
                }
                Err(error) => self.failed.push((address, error)),
            }
        }
        Err(self.failure())
    }

    /// No address accepted.
    fn failure(&mut self) -> Failure {
        if let [_] = self.failed[..]
            && let Some((address, error)) = self.failed.pop()
        {
            return Failure::system(fault(&error), address.to_string(), error);
        }
        // That there is no way to one address says less than what came of another.
        let faults = self.failed.iter().map(|(_, error)| fault(error));
        let fault = faults.rev().find(|fault| *fault != Fault::System).unwrap_or(Fault::System);
        Failure::new(fault, self.tried())
    }

    fn tried(&self) -> String {
        let each: Vec<_> = self.failed.iter().map(|(address, error)| format!("{address}: {error}")).collect();
        each.join("; ")
    }
}

fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = socket::connect_tcp(address)?;
    socket::set_no_delay(socket.as_fd())?;
    // From here on closing it is a reset; see `client`.
    socket::close_abruptly(socket.as_fd())?;
    socket::block(socket.as_fd())?;
    socket::set_receive_patience(socket.as_fd(), None)?;
    Ok(socket)
}

fn is_up(line: &Line) -> io::Result<bool> {
    if !socket::wait(line.socket.as_fd(), true, Some(Duration::ZERO))?.writable {
        return Ok(false);
    }
    socket::take_error(line.socket.as_fd())?;
    Ok(true)
}

/// Until when an address is tried behind which so many others wait.
fn share(deadline: Instant, others: usize) -> Option<Instant> {
    let shares = u32::try_from(others).ok().filter(|others| *others > 0)?.checked_add(1)?;
    let now = Instant::now();
    Some(now + deadline.saturating_duration_since(now) / shares)
}

fn fault(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::TimedOut => Fault::ConnectTimeout,
        io::ErrorKind::PermissionDenied => Fault::PermissionDenied,
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Fault::NoServer,
        // Out of descriptors or of addresses, or no way there.
        _ => Fault::System,
    }
}
