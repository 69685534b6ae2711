//! When a client waits, and what becomes of its connection: the part of [`Client`] behind its calls.
//!
//! A turn writes what is queued, reads what came, fails what is overdue. It comes in two forms over the same
//! steps: [`Client::advance`] waits in between, on the connection itself; [`Client::look`] never does, and
//! leaves everything to be watched. Either way a connection that ends is lost in one place, [`Client::lose`],
//! which ends its calls.

use super::dial::{Dialer, NOBODY_ELSE};
use super::link::Link;
use super::session::Session;
use super::{Client, Connection, Reconnect};
use crate::error::Error;
use std::io::IoSlice;
use std::time::Instant;
use thalweg_transport::{RING_BYTES_DEFAULT, ReadOutcome, Wanted, WriteOutcome};
use thalweg_wire::fault::Fault;

/// What is read at most from a connection that is given up: more than a ring or a socket holds, however large
/// the system lets that grow.
const LEFT_BYTES_MAX: usize = 16 * RING_BYTES_DEFAULT as usize;
/// Pieces that one write takes at most: there are several where requests between them were taken back.
const PIECES_MAX: usize = 16;

impl Client {
    /// Writes what is queued, as far as it can be now.
    pub(super) fn write_out(&mut self) {
        if let Connection::Up(link) = &mut self.connection
            && let Err(error) = write_out(link, &mut self.session)
        {
            self.drain_and_lose(error);
        }
    }

    /// Sees to it that a call has somewhere to go.
    pub(super) fn ensure_connection(&mut self) -> Result<(), Error> {
        let draining = self.session.is_draining();
        match &self.connection {
            Connection::Up(_) if !draining => return Ok(()),
            Connection::Dialing(_) => return Ok(()),
            Connection::Up(_) if self.may_redial() && self.session.in_flight() == 0 => {
                self.lose(Error::new(Fault::Draining, ""));
            }
            Connection::Up(_) => return Err(Error::new(Fault::Draining, "")),
            Connection::Down(error) if !self.may_redial() => return Err(error.of_later_call()),
            Connection::Down(_) => {}
        }
        let Some(endpoint) = &self.endpoint else {
            return Err(Error::new(Fault::Closed, "a connection that was handed over is not made anew"));
        };
        self.connection = Connection::Dialing(Dialer::new(endpoint, &self.options)?);
        Ok(())
    }

    fn may_redial(&self) -> bool {
        self.endpoint.is_some() && self.options.reconnect != Reconnect::Never
    }

    /// Waits for something to come, at most until then, and reads it.
    pub(super) fn advance(&mut self, until: Option<Instant>) -> Result<usize, Error> {
        self.advance_by(until, Link::read_waiting, |dialer, due| dialer.wait(due))
    }

    /// The first half of that, which never sleeps.
    pub(super) fn advance_looking(&mut self) -> Result<usize, Error> {
        self.advance_by(None, Link::read_looking, |_, _| Ok(()))
    }

    fn advance_by(
        &mut self,
        until: Option<Instant>,
        read: impl FnOnce(&mut Link, &mut Vec<u8>, Wanted, Option<Instant>) -> Result<ReadOutcome, Error>,
        wait: impl FnOnce(&Dialer, Option<Instant>) -> Result<(), Error>,
    ) -> Result<usize, Error> {
        let due = self.session.next_deadline();
        let due = until.map_or(due, |until| Some(due.map_or(until, |due| due.min(until))));
        let settled = std::mem::take(&mut self.settled);
        let moved = match &mut self.connection {
            Connection::Up(link) => match exchange(link, &mut self.session, settled, |link, into, wanted| {
                read(link, into, wanted, due)
            }) {
                Ok(moved) => moved,
                Err(error) => {
                    self.drain_and_lose(error);
                    1
                }
            },
            Connection::Dialing(dialer) => {
                wait(dialer, due)?;
                self.dial()
            }
            Connection::Down(error) if !self.session.is_ready() => return Err(error.clone()),
            Connection::Down(_) => 1,
        };
        Ok(moved + self.expire(due))
    }

    fn expire(&mut self, due: Option<Instant>) -> usize {
        // Without a deadline the clock is not read.
        let expired = due.map_or(0, |_| self.session.expire(Instant::now()));
        if expired > 0 {
            // Now, because nothing else may leave for long, and the server works on, or keeps what it
            // answered.
            self.write_out();
        }
        expired
    }

    /// A turn that never waits.
    pub(super) fn look(&mut self) -> Result<usize, Error> {
        let mut moved = 0;
        loop {
            moved += self.look_once();
            if self.settle()? {
                return Ok(moved);
            }
        }
    }

    /// Writes, reads and fails what can be now, and leaves nothing to be watched.
    pub(super) fn look_once(&mut self) -> usize {
        let settled = std::mem::take(&mut self.settled);
        let moved = match &mut self.connection {
            Connection::Up(link) => match glance(link, &mut self.session, settled) {
                Ok(moved) => moved,
                Err(error) => {
                    self.drain_and_lose(error);
                    1
                }
            },
            Connection::Dialing(_) => self.dial(),
            Connection::Down(_) => 0,
        };
        let due = self.session.next_deadline();
        moved + self.expire(due)
    }

    /// Leaves everything to be watched. `false`: something came meanwhile.
    pub(super) fn settle(&mut self) -> Result<bool, Error> {
        let Some(watch) = &mut self.watch else { return Ok(true) };
        let mut due = self.session.next_deadline();
        let unsent = self.session.has_unsent();
        match &mut self.connection {
            Connection::Up(link) => {
                let is_full = self.session.is_full();
                let wanted = match (is_full, unsent) {
                    (false, unsent) => Some(Wanted::beside_unsent(unsent)),
                    // Requests leave although nothing is read, as long as the server is there to take them.
                    (true, true) if !link.has_ended() => Some(Wanted::Space),
                    (true, _) => None,
                };
                match wanted {
                    Some(wanted) => {
                        // Of shared memory the socket tells by a bell, which is read.
                        watch.follow(link.duplex(), if link.is_shared() { Wanted::Bytes } else { wanted })?;
                        if !link.settle(wanted) {
                            return Ok(false);
                        }
                        self.settled = true;
                    }
                    None => watch.leave(link.duplex()),
                }
                if is_full && !self.session.is_held_back() {
                    // Reading pauses until the caller took what is there, so a loop has to come back by
                    // itself.
                    due = Some(Instant::now());
                }
            }
            Connection::Dialing(dialer) => {
                let (socket, at) = dialer.watched();
                if let Some((socket, writable)) = socket {
                    watch.follow(socket, if writable { Wanted::BytesOrSpace } else { Wanted::Bytes })?;
                }
                due = Some(due.map_or(at, |due| due.min(at)));
            }
            Connection::Down(_) => {}
        }
        watch.due(due)?;
        Ok(true)
    }

    /// After a wait beside a foreign loop: what came that was not asked for is that loop's to hear of.
    pub(super) fn leave_watched(&mut self) -> Result<(), Error> {
        if self.watch.is_none() || self.settle()? && !self.session.is_ready() {
            return Ok(());
        }
        match &mut self.watch {
            Some(watch) => Ok(watch.due(Some(Instant::now()))?),
            None => Ok(()),
        }
    }

    /// Goes on connecting.
    fn dial(&mut self) -> usize {
        let Connection::Dialing(dialer) = &mut self.connection else { return 0 };
        if let (Some(watch), (Some((socket, _)), _)) = (&mut self.watch, dialer.watched()) {
            watch.leave(socket);
        }
        match dialer.advance() {
            Ok(None) => 0,
            Ok(Some(dialed)) => {
                self.connection = Connection::Up(dialed.link);
                self.session.welcome(dialed.credit);
                self.write_out();
                1
            }
            Err(error) => {
                self.connection = Connection::Down(error.clone());
                self.session.disconnect(0, |_| error.clone());
                1
            }
        }
    }

    /// Reads what a dying connection still brought, then loses it. A peer may go on writing without an end,
    /// so that is bounded; and from one that broke the rules nothing more is taken.
    pub(super) fn drain_and_lose(&mut self, error: Error) {
        if let Connection::Up(link) = &mut self.connection
            && error.fault != Fault::BrokenPeer
        {
            let mut left_bytes = LEFT_BYTES_MAX;
            while left_bytes > 0
                && let Ok(ReadOutcome::Bytes(count)) = link.read(self.session.room())
            {
                left_bytes = left_bytes.saturating_sub(count);
            }
        }
        self.lose(error);
    }

    /// The connection is over.
    pub(super) fn lose(&mut self, error: Error) {
        if let (Connection::Up(link), Some(watch)) = (&self.connection, &mut self.watch) {
            watch.leave(link.duplex());
        }
        let turned_away = self.session.turned_away().and_then(|welcome| Fault::of(welcome.fault));
        let error = match turned_away {
            Some(Fault::PermissionDenied) => Error::new(Fault::PermissionDenied, NOBODY_ELSE),
            Some(fault) => Error::new(fault, "the server said so in its welcome"),
            None => error,
        };
        let mut detail = self.endpoint.as_ref().map_or_else(String::new, ToString::to_string);
        if !detail.is_empty() && !error.detail.is_empty() {
            detail.push_str(": ");
        }
        let error = Error { detail: detail + &error.detail, ..error };
        let unread_bytes = match &self.connection {
            Connection::Up(link) => link.unread_bytes(),
            _ => 0,
        };
        self.session.disconnect(unread_bytes, |left| {
            let fault = match error.fault {
                fault if turned_away.is_some() => fault,
                _ if !left => Fault::NotSent,
                Fault::BadFrame | Fault::FrameTooLarge | Fault::BrokenPeer => error.fault,
                _ => Fault::Disconnected,
            };
            Error { fault, ..error.clone() }
        });
        self.connection = Connection::Down(error);
    }

    /// Loses a connection whose bytes are beyond understanding.
    pub(super) fn lose_broken(&mut self) -> bool {
        let broken = self.session.take_broken();
        broken.map(|error| self.lose(error)).is_some()
    }
}

/// Writes what is queued, as far as it can be now.
fn write_out(link: &mut Link, session: &mut Session) -> Result<(), Error> {
    while session.has_unsent() {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let (mut offered, mut count) = (0, 0);
        for (slot, piece) in pieces.iter_mut().zip(session.unsent()) {
            *slot = IoSlice::new(piece);
            offered += piece.len();
            count += 1;
        }
        match link.write(&pieces[..count])? {
            WriteOutcome::Bytes(count) => {
                session.sent(count);
                if count < offered {
                    break;
                }
            }
            WriteOutcome::WouldBlock => break,
        }
    }
    Ok(())
}

/// Writes, waits and reads once.
fn exchange(
    link: &mut Link,
    session: &mut Session,
    settled: bool,
    read: impl FnOnce(&mut Link, &mut Vec<u8>, Wanted) -> Result<ReadOutcome, Error>,
) -> Result<usize, Error> {
    if settled {
        link.stir()?;
    }
    write_out(link, session)?;
    let wanted = Wanted::beside_unsent(session.has_unsent());
    count(read(link, session.room(), wanted)?)
}

/// Writes and reads what can be now.
fn glance(link: &mut Link, session: &mut Session, settled: bool) -> Result<usize, Error> {
    if settled {
        link.stir()?;
    }
    write_out(link, session)?;
    if session.is_full() {
        return Ok(1);
    }
    count(link.read(session.room())?)
}

fn count(read: ReadOutcome) -> Result<usize, Error> {
    match read {
        ReadOutcome::Bytes(_) => Ok(1),
        ReadOutcome::WouldBlock => Ok(0),
        ReadOutcome::End => Err(Error::new(Fault::Disconnected, "the server closed the connection")),
    }
}
