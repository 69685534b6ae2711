//! `thalweg fork-server`: a supervisor of processes that fork, on a control endpoint of its own.

use crate::client::{Failure, Output};
use crate::command_line::ForkServerOptions;
use crate::run::second_signal::FirstSignal;
use crate::start::listeners_handed_over;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use thalweg_fork::generated::types::SCHEMA_HASH;
use thalweg_fork::{ERROR_TAG, First, Options, Supervisor};
use thalweg_service::{Server, ServerOptions};
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch};
use thalweg_sys::signal::{Signal, Signals};

/// Between two looks at a control endpoint that is ending.
const ENDING_MS: u32 = 10;

/// Runs until the last server has ended, or a signal says so. Then it ends them in good order; with a second
/// signal by force, at once.
///
/// # Errors
/// The program does not start, or the endpoint cannot be listened at; the last server crashed.
pub(crate) fn run(options: &ForkServerOptions) -> Result<(), Failure> {
    let failed = |what: &'static str| move |error| Failure::Undone(format!("cannot {what}: {error}"));
    // First of all: what was handed over has the descriptors that would be opened next.
    let inherited = listeners_handed_over().map_err(failed("use the sockets handed over"))?;
    let listener =
        first_listener(options.address, inherited).map_err(failed("use the sockets handed over"))?;
    let signals = Signals::take().map_err(failed("wait for signals"))?;
    let control =
        ServerOptions { schema: SCHEMA_HASH, error_tag: ERROR_TAG.into(), ..ServerOptions::default() };
    let server = Server::bind(std::slice::from_ref(&options.control), control);
    // No server was to be reached.
    let served = |error: thalweg_service::Error| Failure::Undone(error.to_string());
    let mut server = server.map_err(served)?;
    let cancel = signals.as_fd().try_clone_to_owned().map_err(failed("wait for signals"))?;
    let supervisor = match Supervisor::start(Options {
        servers_max: options.servers_max as usize,
        patience: Duration::from_millis(options.patience_ms.into()),
        cancel: Some(cancel),
        ..Options::new(options.program.clone(), listener)
    }) {
        // A signal ended it.
        Err(_) if matches!(signals.next(), Ok(Some(_))) => return Ok(()),
        // It says itself what it was at.
        started => started.map_err(|error| Failure::Undone(error.to_string()))?,
    };
    let (stopper, control) = (server.stopper(), supervisor.control());
    let serve = move || server.serve(control);
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(serve);
    let thread = thread.map_err(failed("start a thread"))?;
    if let Some(address) = supervisor.address("1") {
        // Standard output may be closed: the address is then not wanted.
        let _ = Output::Text.say(format_args!("server 1 at {address}, control at {}", options.control), ());
    }
    let wait = failed("wait for the servers to end");
    let changes = Changes::of(&signals, &supervisor).map_err(&wait)?;
    let mut first = changes.await_end().map_err(wait)?;
    // A signal to this program may have gone to its servers, too: one that ends from here on is no loss.
    let lost = supervisor.lost().filter(|_| first.is_none());
    changes.end_servers(&mut first);
    stopper.stop();
    while !thread.is_finished() {
        if changes.has_another(&mut first, ENDING_MS) {
            return Ok(());
        }
    }
    match thread.join() {
        Ok(outcome) => outcome.map_err(served)?,
        Err(_) => return Err(Failure::Undone("the control endpoint ended in a panic".to_owned())),
    }
    lost.map_or(Ok(()), |lost| Err(Failure::Undone(format!("{lost}, and no other is left"))))
}

/// Where the program's first process listens.
fn first_listener(asked: Option<SocketAddr>, mut inherited: Vec<OwnedFd>) -> io::Result<First> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    match (asked, inherited.len()) {
        (asked, 0) => Ok(First::At(asked.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))),
        (Some(_), _) => Err(wrong("a socket was handed over: leave --address out, or hand none over")),
        (None, 1) => Ok(First::On(inherited.remove(0))),
        (None, _) => Err(wrong("more than one socket was handed over; a program begins at one")),
    }
}

/// What the first thread waits for: signals, and ends of servers.
struct Changes<'a> {
    signals: &'a Signals,
    supervisor: &'a Supervisor,
    epoll: Epoll,
}

impl<'a> Changes<'a> {
    fn of(signals: &'a Signals, supervisor: &'a Supervisor) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(signals.as_fd(), 0, Watch::READ)?;
        epoll.add(supervisor.descriptor(), 1, Watch::READ)?;
        Ok(Self { signals, supervisor, epoll })
    }

    /// Waits for a change. Returns the signal, if it is one.
    fn next(&self, timeout: Timeout) -> io::Result<Option<Signal>> {
        self.epoll.wait(&mut Events::with_capacity(2), 2, timeout)?;
        self.supervisor.heard();
        self.signals.next()
    }

    /// Waits until no server is left, or a signal has this program end; returns that signal.
    fn await_end(&self) -> io::Result<Option<FirstSignal>> {
        while !self.supervisor.is_over() {
            if let Some(signal) = self.next(Timeout::Never)? {
                return Ok(Some(FirstSignal::now(signal)));
            }
        }
        Ok(self.signals.next()?.map(FirstSignal::now))
    }

    /// Ends the servers: in good order, and by force at another signal, or when their time is over.
    fn end_servers(&self, first: &mut Option<FirstSignal>) {
        let until = self.supervisor.order_end();
        while !self.supervisor.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            let left_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
            if left.is_zero() || self.has_another(first, left_ms.max(1)) {
                break;
            }
        }
        self.supervisor.end_by_force();
    }

    /// Waits for a change; whether it is a signal that follows the first as another. If signals cannot be
    /// read any more, it is.
    fn has_another(&self, first: &mut Option<FirstSignal>, wait_ms: u32) -> bool {
        match self.next(Timeout::Milliseconds(wait_ms)) {
            Ok(Some(signal)) => is_another(first, signal),
            Ok(None) => false,
            Err(_) => true,
        }
    }
}

/// Whether a signal follows the first as another. If there was none, it is the first: the servers may have
/// ended by themselves.
fn is_another(first: &mut Option<FirstSignal>, signal: Signal) -> bool {
    match first {
        Some(first) => first.is_followed_by_another(signal, Instant::now()),
        None => {
            *first = Some(FirstSignal::now(signal));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_the_first_where_the_servers_ended_by_themselves() {
        let mut first = None;
        assert!(!is_another(&mut first, Signal::Terminate));
        assert!(is_another(&mut first, Signal::Interrupt));
        // The first stays the first.
        assert!(is_another(&mut first, Signal::Interrupt));
    }
}
