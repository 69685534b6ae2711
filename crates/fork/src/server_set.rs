//! The servers of one process: the current one, and those at earlier addresses, which drain until the calls
//! that they had begun are answered.

use std::io;
use std::os::fd::BorrowedFd;
use thalweg_rpc::Server;
use thalweg_service::Wait;
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch};

/// How long a server at an earlier address may take for the calls that it had begun.
const GRACE_MS: u32 = 5_000;

/// What is ready is not looked at: whatever it is, each server has its turn.
const EVENTS_MAX: usize = 2;

#[derive(Default)]
pub(crate) struct ServerSet {
    now: Option<Server>,
    before: Vec<Server>,
}

impl ServerSet {
    /// Serves with this one from here on; the one before takes nothing new, and listens no more when this
    /// returns.
    pub(crate) fn go_on_with(&mut self, server: Option<Server>) -> io::Result<()> {
        if let Some(left) = std::mem::replace(&mut self.now, server) {
            left.stopper().drain(GRACE_MS);
            self.before.push(left);
        }
        self.turn()
    }

    /// Does what there is to do, without waiting.
    pub(crate) fn turn(&mut self) -> io::Result<()> {
        for server in self.now.iter_mut().chain(&mut self.before) {
            server.turn(Wait::Poll)?;
        }
        self.before.retain_mut(|server| !server.is_stopped());
        Ok(())
    }

    /// Answers what was begun, wherever that was.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.go_on_with(None)?;
        let (epoll, mut events) = (self.watched([])?, Events::with_capacity(EVENTS_MAX));
        while !self.before.is_empty() {
            epoll.wait(&mut events, EVENTS_MAX, Timeout::Never)?;
            self.turn()?;
        }
        Ok(())
    }

    /// Ready when there is something to do, or something at one of the descriptors beside.
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
