//! `thalweg fork-server`: a supervisor of processes that fork, on a control endpoint of its own.

use crate::client::{Failure, Output};
use crate::command_line::ForkServerOptions;
use crate::start::listeners_handed_over;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use thalweg_fork::generated::types::SCHEMA_HASH;
use thalweg_fork::{ERROR_TAG, First, Options, Supervisor};
use thalweg_service::{Server, ServerOptions};
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch};
use thalweg_sys::signal::Signals;

/// Runs until the last server has ended, or a signal says so.
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
    let is_told = await_end(&signals, &supervisor).map_err(failed("wait for the servers to end"))?;
    // A signal to this program may have gone to its servers, too: one that ends from here on is no loss.
    let lost = supervisor.lost().filter(|_| !is_told);
    supervisor.end();
    stopper.stop();
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

/// Waits until no server is left, or a signal has this program end; whether one has.
fn await_end(signals: &Signals, supervisor: &Supervisor) -> io::Result<bool> {
    let epoll = Epoll::new()?;
    epoll.add(signals.as_fd(), 0, Watch::READ)?;
    epoll.add(supervisor.descriptor(), 1, Watch::READ)?;
    while !supervisor.is_over() {
        epoll.wait(&mut Events::with_capacity(2), 2, Timeout::Never)?;
        supervisor.heard();
        if signals.next()?.is_some() {
            return Ok(true);
        }
    }
    Ok(signals.next()?.is_some())
}
