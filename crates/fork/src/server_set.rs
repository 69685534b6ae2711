//! The servers of one process: the current one, and those at earlier addresses, which drain until the calls
//! that they had begun are answered.

use std::io;
use std::os::fd::BorrowedFd;
use thalweg_rpc::Server;
use thalweg_service::Wait;
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch};

/// How long a server at an earlier address may take for the calls that it had begun.
const GRACE_MS: u32 = 5_000;

/// Events are only waited for, and not looked at: every server has its turn.
const EVENTS_MAX: usize = 2;

#[derive(Default)]
pub(crate) struct ServerSet {
    now: Option<Server>,
    before: Vec<Server>,
}

impl ServerSet {
    /// Serves with this server from here on. The one before it drains, and has stopped listening when this
    /// returns.
    pub(crate) fn go_on_with(&mut self, server: Option<Server>) -> io::Result<()> {
        if let Some(left) = std::mem::replace(&mut self.now, server) {
            left.stopper().drain(GRACE_MS);
            self.before.push(left);
        }
        self.turn()
    }

    /// One turn of every server, without waiting.
    pub(crate) fn turn(&mut self) -> io::Result<()> {
        for server in self.now.iter_mut().chain(&mut self.before) {
            server.turn(Wait::Poll)?;
        }
        self.before.retain_mut(|server| !server.is_stopped());
        Ok(())
    }

    /// Answers the calls that were begun, at every address.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.go_on_with(None)?;
        let (epoll, mut events) = (self.watched([])?, Events::with_capacity(EVENTS_MAX));
        while !self.before.is_empty() {
            epoll.wait(&mut events, EVENTS_MAX, Timeout::Never)?;
            self.turn()?;
        }
        Ok(())
    }

    /// Readable when a server has work, or one of the other descriptors is readable.
    pub(crate) fn watched<'a>(
        &'a self,
        beside: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<Epoll> {
        let epoll = Epoll::new()?;
        let servers = self.now.iter().chain(&self.before).map(Server::descriptor);
        for (token, descriptor) in beside.into_iter().chain(servers).enumerate() {
            epoll.add(descriptor, token as u64, Watch::READ)?;
        }
        Ok(epoll)
    }
}
