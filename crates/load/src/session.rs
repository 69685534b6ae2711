//! A load: connections are opened, driven for a while, and what happened in between is read.

use crate::arguments::{Common, Span};
use crate::driver::{Driver, Shared};
use crate::error::Error;
use crate::roles::Role;
use crate::target::Target;
use serde_json::{Map, Value};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use thalweg_reactor::{Config, Reactor, Wait};
use thalweg_sys::process::raise_descriptors_max;
use thalweg_sys::{socket, usage};

/// Connections that are opened before the loop has a turn, fewer than any listener's queue holds.
const OPENED_AT_ONCE: usize = 64;
/// Descriptors beside connections.
const DESCRIPTORS_SPARE: u64 = 64;
/// Preparations that take longer have failed.
const PREPARING_MAX: Duration = Duration::from_secs(600);

/// A connection that takes longer is none.
const CONNECTING_MAX: Duration = Duration::from_secs(10);

/// The first of the addresses that a server listens at.
fn first_reachable(addresses: &[SocketAddr]) -> io::Result<SocketAddr> {
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for address in addresses {
        outcome = reach(*address).map(|()| *address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn reach(address: SocketAddr) -> io::Result<()> {
    let socket = socket::connect_tcp(address)?;
    socket::wait(socket.as_fd(), true, Some(CONNECTING_MAX))?;
    socket::take_error(socket.as_fd())
}

/// Where a measured span began, and what the server had used of a processor by then.
struct SpanStart {
    at: Instant,
    server_us: Option<u64>,
}

/// One load.
pub(crate) struct Session {
    reactor: Reactor<Driver>,
    process: Option<u32>,
}

impl Session {
    /// # Errors
    /// The server cannot be named or reached; out of descriptors.
    pub(crate) fn new(common: &Common, connections: u64) -> Result<Self, Error> {
        let mut target = Target::new(common)?;
        let wanted = connections + DESCRIPTORS_SPARE;
        let limit = raise_descriptors_max(wanted)?;
        if limit < wanted {
            return Err(Error::Descriptors { connections, limit });
        }
        let reach = |error| Error::Unreachable { url: target.url.clone(), error };
        target.address = first_reachable(&target.addresses).map_err(reach)?;
        // What looks instead of waiting takes a processor from the server.
        let config = Config { entries_max: 1 << 20, spin: false, spin_for_peers: false, ..Config::default() };
        let reactor = Reactor::new(config, |_| Ok::<_, io::Error>(Driver::new(target)))?;
        Ok(Self { reactor, process: common.process })
    }

    pub(crate) fn shared(&mut self) -> &mut Shared {
        &mut self.reactor.handler().shared
    }

    /// Opens a connection for each role.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(crate) fn open(&mut self, roles: impl IntoIterator<Item = Box<dyn Role>>) -> Result<(), Error> {
        for (count, role) in roles.into_iter().enumerate() {
            let (core, driver) = self.reactor.parts();
            driver.open(core, role)?;
            if count % OPENED_AT_ONCE == OPENED_AT_ONCE - 1 {
                self.drive(Duration::from_millis(2), |_| false)?;
            }
        }
        Ok(())
    }

    /// Turns until `done`, or until the time is over; whether it was done.
    ///
    /// # Errors
    /// A broken epoll instance; the server refuses for good.
    pub(crate) fn drive(&mut self, span: Duration, done: impl Fn(&Shared) -> bool) -> Result<bool, Error> {
        let until = Instant::now() + span;
        loop {
            if let Some(refusal) = self.shared().refusal.take() {
                return Err(refusal);
            }
            if done(self.shared()) {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            let reconnect_at = self.reactor.handler().reconnect_at();
            let wait = Wait::Until(reconnect_at.map_or(until, |due| due.min(until)));
            self.reactor.turn(usize::MAX, wait)?;
            let (core, driver) = self.reactor.parts();
            driver.reconnect(core, Instant::now());
        }
    }

    /// Lets roles do their work to the end, before anything is measured.
    ///
    /// # Errors
    /// The server refuses any of it.
    pub(crate) fn prepare(&mut self, roles: Vec<Box<dyn Role>>, limit: u64) -> Result<(), Error> {
        let count = roles.len() as u64;
        let shared = self.shared();
        (shared.issued, shared.limit, shared.over) = (0, limit, 0);
        self.open(roles)?;
        let done = self.drive(PREPARING_MAX, |shared| shared.over == count || shared.counts.failed > 0)?;
        let shared = self.shared();
        if !done || shared.counts.failed > 0 {
            let why = shared.counts.complaints.first().cloned();
            let why = why.unwrap_or_else(|| "the server takes too long".to_owned());
            let exists = shared.counts.failed > 0 && shared.counts.existed > 0;
            return Err(if exists { Error::Conflict(why) } else { Error::Preparing(why) });
        }
        (shared.issued, shared.limit, shared.over) = (0, u64::MAX, 0);
        Ok(())
    }

    /// Waits until every connection is attached.
    ///
    /// # Errors
    /// Not every one is.
    pub(crate) fn attach(&mut self, count: u64) -> Result<(), Error> {
        let done =
            self.drive(PREPARING_MAX, |shared| shared.attached >= count || shared.counts.failed > 0)?;
        let shared = self.shared();
        if done && shared.attached >= count {
            return Ok(());
        }
        let why = shared.counts.complaints.first().cloned();
        Err(Error::Preparing(why.unwrap_or_else(|| format!("{} of {count} are attached", shared.attached))))
    }

    /// Opens a connection for each role, then measures. Without a warm-up what they do while others still
    /// connect counts, too: a load of few operations may be done by then.
    ///
    /// # Errors
    /// Out of descriptors; the server's process is not there.
    pub(crate) fn open_and_measure(
        &mut self,
        span: Span,
        roles: impl IntoIterator<Item = Box<dyn Role>>,
        done: impl Fn(&Shared) -> bool,
    ) -> Result<Map<String, Value>, Error> {
        if span.warm_up_ms > 0 {
            self.open(roles)?;
            return self.measure(span, done);
        }
        let begun = self.begin()?;
        self.open(roles)?;
        self.count(begun, span, done)
    }

    /// Lets it warm up, then counts for a while, or until `done`.
    ///
    /// # Errors
    /// The server's process is not there.
    pub(crate) fn measure(
        &mut self,
        span: Span,
        done: impl Fn(&Shared) -> bool,
    ) -> Result<Map<String, Value>, Error> {
        self.drive(Duration::from_millis(span.warm_up_ms), &done)?;
        let begun = self.begin()?;
        self.count(begun, span, done)
    }

    /// From here on operations count.
    fn begin(&mut self) -> Result<SpanStart, Error> {
        let server_us = self.processor_us()?;
        self.shared().counts.measuring = true;
        Ok(SpanStart { at: Instant::now(), server_us })
    }

    fn count(
        &mut self,
        begun: SpanStart,
        span: Span,
        done: impl Fn(&Shared) -> bool,
    ) -> Result<Map<String, Value>, Error> {
        let left = Duration::from_secs(span.seconds).saturating_sub(begun.at.elapsed());
        self.drive(left, &done)?;
        let span_us = u64::try_from(begun.at.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (core, driver) = self.reactor.parts();
        driver.count_unanswered(core);
        self.shared().counts.measuring = false;
        let after_us = self.processor_us()?;
        let server_us = after_us.zip(begun.server_us).map(|(after, before)| after - before);
        Ok(self.shared().counts.report(span_us, server_us))
    }

    /// Resident and anonymous memory of the server, once it has stopped moving.
    ///
    /// # Errors
    /// The server's process is not there.
    pub(crate) fn settled_memory(&mut self) -> Result<Option<(u64, u64)>, Error> {
        let Some(process) = self.process else { return Ok(None) };
        let deadline = Instant::now() + Duration::from_secs(4);
        let mut last = used(process, usage::memory_bytes)?;
        loop {
            self.drive(Duration::from_millis(200), |_| false)?;
            let now = used(process, usage::memory_bytes)?;
            if now == last || Instant::now() > deadline {
                return Ok(Some(now));
            }
            last = now;
        }
    }

    fn processor_us(&self) -> Result<Option<u64>, Error> {
        self.process.map(|process| used(process, usage::processor_us)).transpose()
    }
}

/// What a process uses.
fn used<T>(process: u32, of: impl FnOnce(u32) -> io::Result<T>) -> Result<T, Error> {
    let gone = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot look at --process {process}: {error}"))
    };
    of(process).map_err(|error| gone(error).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{BROKEN_MAX, TRIES_MAX};
    use crate::roles::{Work, Write};
    use std::io::{Read, Write as _};
    use std::net::TcpListener;

    /// A server that answers one request, and is gone for a while.
    fn restarting(listener: TcpListener) {
        let serve = |listener: &TcpListener, requests: usize| {
            let (mut peer, _) = listener.accept().unwrap();
            for _ in 0..requests {
                let read = peer.read(&mut [0; 4_096]).unwrap();
                assert!(read > 0);
                peer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            }
        };
        // The look whether it is there.
        drop(listener.accept().unwrap());
        serve(&listener, 1);
        let address = listener.local_addr().unwrap();
        drop(listener);
        std::thread::sleep(Duration::from_millis(50));
        serve(&listening_again(address), 2);
    }

    /// A listener where another one was. Until then any connection that goes out may have been given the
    /// port: it is waited for.
    fn listening_again(address: SocketAddr) -> TcpListener {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match TcpListener::bind(address) {
                Ok(listener) => return listener,
                Err(error) => assert!(Instant::now() < deadline, "{address}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_writer_goes_on_when_the_server_is_there_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(|| restarting(listener));
        let mut session = Session::new(&Common { url, ..Common::default() }, 1).unwrap();
        let work = Work::Append { first: 0, streams: 1, record: crate::record::blank(40) };
        session.open([Box::new(Write::new(work, "text/plain", None)) as Box<dyn Role>]).unwrap();
        let done = session.drive(Duration::from_secs(60), |shared| shared.counts.appended == 3).unwrap();
        let counts = &session.shared().counts;
        assert!(done && counts.failed >= 1, "{} appended: {:?}", counts.appended, counts.complaints);
        server.join().unwrap();
    }

    #[test]
    fn a_server_that_is_gone_is_tried_as_often_by_each_connection_however_many_there_are() {
        for connections in [1, 100] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let mut session = Session::new(&Common { url, ..Common::default() }, connections).unwrap();
            // Nobody listens there.
            session.shared().target.address = "127.0.0.1:1".parse().unwrap();
            let work = Work::Append { first: 0, streams: 1, record: crate::record::blank(40) };
            let role = |_| Box::new(Write::new(work.clone(), "text/plain", None)) as Box<dyn Role>;
            session.open((0..connections).map(role)).unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            while session.shared().over < connections && Instant::now() < deadline {
                let soon = Instant::now() + Duration::from_millis(1);
                session.reactor.turn(usize::MAX, Wait::Until(soon)).unwrap();
                let (core, driver) = session.reactor.parts();
                // Each is due by then.
                driver.reconnect(core, deadline);
            }
            let counted = (session.shared().over, session.shared().counts.failed);
            assert_eq!(counted, (connections, connections * u64::from(TRIES_MAX)));
        }
    }

    #[test]
    fn a_server_that_drops_whatever_it_takes_ends_a_load() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            // The look whether it is there.
            drop(listener.accept().unwrap());
            for _ in 0..BROKEN_MAX {
                let (mut peer, _) = listener.accept().unwrap();
                assert!(peer.read(&mut [0; 4_096]).unwrap() > 0);
            }
        });
        let mut session = Session::new(&Common { url, ..Common::default() }, 1).unwrap();
        let work = Work::Append { first: 0, streams: 1, record: crate::record::blank(40) };
        session.open([Box::new(Write::new(work, "text/plain", None)) as Box<dyn Role>]).unwrap();
        assert!(session.drive(Duration::from_secs(60), |shared| shared.over == 1).unwrap());
        assert_eq!(session.shared().counts.failed, BROKEN_MAX);
        server.join().unwrap();
    }

    #[test]
    fn a_name_is_tried_at_each_of_its_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert_eq!(first_reachable(&[nobody, there]).unwrap(), there);
        assert_eq!(first_reachable(&[nobody]).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
