//! Connections that are sealed: what a reactor keeps for them, and how their bytes come and go.
//!
//! What was sealed has its place in the order of records, so it is never dropped and nothing is sealed ahead
//! of it: what the socket does not take of one write waits in the connection's output, before what is not
//! sealed yet.
//!
//! Invariants: `handshakes` is the number of sessions in a handshake. A peer that has not sent a whole record
//! is in `silent`, the oldest first; keys there may also be of other or ended sessions. *Checked by* the
//! tests in `tests/tls.rs`.

use super::Identity;
use super::session::Session;
use crate::at::At;
use crate::connection::Output;
use crate::meters::Meters;
use crate::reactor::{ConnectionEnd, Http};
use crate::send::taken;
use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use thalweg_reactor::Key;
use thalweg_transport::{ReadOutcome, Unsent, read, write};
use thalweg_wire::exchange::{Refusal, Service};

/// Steps of handshakes in one turn, each up to a signature: a storm of them does not keep the others waiting.
const HANDSHAKE_STEPS_MAX: usize = 16;
/// Memory that what is sealed may keep when nothing is.
const KEPT_BYTES_MAX: usize = 96 * 1024;

/// How many bytes one write sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentBytes {
    /// Bytes that are done with.
    pub(crate) plain: usize,
    /// Bytes that the socket took.
    pub(crate) wire: usize,
}

impl SentBytes {
    /// The socket took this many bytes, unsealed.
    pub(crate) fn unsealed(bytes: usize) -> Self {
        Self { plain: bytes, wire: bytes }
    }
}

/// What one read of a connection found.
pub(crate) enum ReceiveOutcome {
    /// Nothing for now.
    Nothing,
    /// Something; `drained`: nothing more is there.
    Some { drained: bool },
    /// The peer sends nothing more.
    End,
}

/// The sealed connections of one reactor.
#[derive(Default)]
pub(crate) struct Secure {
    sessions: HashMap<Key, Box<Session>>,
    /// Bytes on their way out, of whichever connection it is about.
    sealed: Vec<u8>,
    /// Sessions whose handshake is not over.
    handshakes: usize,
    /// Those of them whose peers have said nothing yet.
    silent: VecDeque<Key>,
    /// Steps of handshakes in this turn.
    steps: usize,
}

impl std::fmt::Debug for Secure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Secure").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

impl Secure {
    /// Sealed connections, those in their handshakes included.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Handshakes under way.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes
    }

    /// A connection begins. `false`: the library has no random bytes.
    pub(crate) fn begin(&mut self, key: Key, identity: &Identity) -> bool {
        let Ok(session) = Session::new(identity) else { return false };
        self.sessions.insert(key, Box::new(session));
        self.handshakes += 1;
        // Of keys that mean nothing any more there are never more than of handshakes.
        if self.silent.len() >= 2 * self.handshakes {
            let sessions = &self.sessions;
            self.silent.retain(|key| is_silent(sessions, *key));
        }
        self.silent.push_back(key);
        true
    }

    /// Whose handshake began first of those that have said nothing yet.
    pub(crate) fn oldest_silent(&mut self) -> Option<Key> {
        while let Some(key) = self.silent.pop_front() {
            if is_silent(&self.sessions, key) {
                return Some(key);
            }
        }
        None
    }

    /// Whether the connection is still to prove itself.
    pub(crate) fn is_handshaking(&self, key: Key) -> bool {
        self.sessions.get(&key).is_some_and(|session| session.is_handshaking())
    }

    /// The turn is over.
    pub(crate) fn turn_ended(&mut self) {
        self.steps = 0;
        if self.sealed.capacity() > KEPT_BYTES_MAX || self.sessions.is_empty() {
            self.sealed = Vec::new();
        }
    }

    /// What the connection still had to send is lost: nothing that follows would make sense.
    pub(crate) fn spoil(&mut self, key: Key) {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.spoil();
        }
    }

    /// Says that nothing follows, if the socket takes that at once.
    pub(crate) fn goodbye(&mut self, key: Key, descriptor: BorrowedFd<'_>) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        self.sealed.clear();
        session.goodbye(&mut self.sealed);
        // A peer that has gone needs no close_notify.
        let _ = write(descriptor, &self.sealed);
    }

    /// Forgets a connection; whether that ends its handshake.
    #[must_use]
    pub(crate) fn forget(&mut self, key: Key) -> bool {
        let is_in_handshake = self.sessions.remove(&key).is_some_and(|session| session.is_handshaking());
        self.handshakes -= usize::from(is_in_handshake);
        is_in_handshake
    }

    /// Seals and sends, a piece of work at a time, until the socket takes no more. What is sealed already
    /// goes first.
    ///
    /// # Errors
    /// The peer is gone, or nothing can be sealed.
    pub(crate) fn send(
        &mut self,
        (key, descriptor): (Key, BorrowedFd<'_>),
        kept: &mut Unsent,
        pieces: &[IoSlice<'_>],
        meters: &Meters,
    ) -> Result<SentBytes, ConnectionEnd> {
        let mut sent = SentBytes { plain: 0, wire: flush(descriptor, kept, meters)? };
        if !kept.is_empty() {
            return Ok(sent);
        }
        let session = self.sessions.get_mut(&key).ok_or(ConnectionEnd::Close)?;
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        while sent.plain < total {
            self.sealed.clear();
            let sealed = session.seal(pieces, sent.plain, &mut self.sealed);
            sent.plain += sealed.map_err(|_| ConnectionEnd::Close)?;
            let taken = write_sealed(descriptor, &self.sealed, meters)?;
            sent.wire += taken;
            if taken < self.sealed.len() {
                kept.buffer().extend_from_slice(&self.sealed[taken..]);
                break;
            }
        }
        Ok(sent)
    }
}

/// Whether a connection is there and has said nothing yet.
fn is_silent(sessions: &HashMap<Key, Box<Session>>, key: Key) -> bool {
    sessions.get(&key).is_some_and(|session| session.is_silent())
}

/// Sends what was sealed before.
fn flush(descriptor: BorrowedFd<'_>, kept: &mut Unsent, meters: &Meters) -> Result<usize, ConnectionEnd> {
    if kept.is_empty() {
        return Ok(0);
    }
    let taken = write_sealed(descriptor, kept.as_slice(), meters)?;
    kept.sent(taken);
    if kept.is_empty() {
        *kept = Unsent::default();
    }
    Ok(taken)
}

/// Sends what is sealed.
fn write_sealed(descriptor: BorrowedFd<'_>, bytes: &[u8], meters: &Meters) -> Result<usize, ConnectionEnd> {
    meters.write();
    taken(write(descriptor, bytes), meters)
}

impl<S: Service> Http<S> {
    /// Reads and opens what is there.
    pub(crate) fn fill_sealed(&mut self, at: &mut At<'_, S>) -> Result<ReceiveOutcome, ConnectionEnd> {
        let session = self.secure.sessions.get(&at.key).ok_or(ConnectionEnd::Close)?;
        let (shakes, begins) = (session.is_handshaking(), !session.has_begun());
        if shakes && self.secure.steps >= HANDSHAKE_STEPS_MAX {
            // The kernel says again next turn that there is something.
            return Ok(ReceiveOutcome::Nothing);
        }
        self.secure.steps += usize::from(shakes);
        let mut received = at.core.take_buffer();
        let room = received.capacity();
        self.meters.read();
        let got = at.core.descriptor(at.key).map(|descriptor| read(descriptor, &mut received));
        self.meters.received(received.len());
        let filled = match got {
            Some(Ok(ReadOutcome::Bytes(_))) if begins && is_plain(&received) => {
                self.refuse_plain(at);
                Ok(ReceiveOutcome::Some { drained: true })
            }
            Some(Ok(ReadOutcome::Bytes(count))) => self.open(at, &mut received).map(|ended| match ended {
                true => ReceiveOutcome::End,
                false => ReceiveOutcome::Some { drained: count < room },
            }),
            Some(Ok(ReadOutcome::WouldBlock)) => Ok(ReceiveOutcome::Nothing),
            Some(Ok(ReadOutcome::End)) => Ok(ReceiveOutcome::End),
            Some(Err(_)) | None => Err(ConnectionEnd::Close),
        };
        at.core.give_buffer(received);
        filled
    }

    /// Opens what came, and sends what the protocol answers. Whether the peer said that nothing follows.
    fn open(&mut self, at: &mut At<'_, S>, received: &mut Vec<u8>) -> Result<bool, ConnectionEnd> {
        let session = self.secure.sessions.get_mut(&at.key).ok_or(ConnectionEnd::Close)?;
        let shook = session.is_handshaking();
        if at.active.input.capacity() == 0 && !shook {
            at.active.input = at.core.take_buffer();
        } else if at.active.start > 0 {
            at.active.input.drain(..at.active.start);
            at.active.start = 0;
        }
        self.secure.sealed.clear();
        let outcome = session.take(received, &mut at.active.input, &mut self.secure.sealed);
        let shakes = session.is_handshaking();
        // A handshake has its own patience, and nothing is lost with it.
        at.active.partial = !shakes && session.is_partial();
        self.secure.handshakes -= usize::from(shook && !shakes);
        if shook && !shakes {
            self.meters.handshake();
        }
        self.answer(at)?;
        outcome.map_err(|error| {
            tracing::debug!(%error, "a sealed connection is refused");
            // So that the alert reaches the peer.
            ConnectionEnd::Linger
        })
    }

    /// Sends what the protocol itself has to say.
    fn answer(&mut self, at: &mut At<'_, S>) -> Result<(), ConnectionEnd> {
        if self.secure.sealed.is_empty() {
            return Ok(());
        }
        let Output { sealed: kept, .. } = &mut at.active.output;
        let before = kept.len() as u64;
        kept.buffer().extend_from_slice(&self.secure.sealed);
        let outcome = flush(at.core.descriptor(at.key).ok_or(ConnectionEnd::Close)?, kept, &self.meters);
        self.load.unsent(before, kept.len() as u64);
        if !kept.is_empty() {
            self.await_peer(at);
        }
        outcome.map(drop)
    }

    /// Forgets what is sealed of a connection. A handshake that did not come to its end by then failed.
    pub(crate) fn forget_secure(&mut self, key: Key) {
        if self.secure.forget(key) {
            self.meters.handshake_failed();
        }
    }

    /// Tells who speaks HTTP where TLS is spoken so, in words that it understands.
    fn refuse_plain(&mut self, at: &mut At<'_, S>) {
        self.forget_secure(at.key);
        if let Ok(entry) = at.entry() {
            entry.secure = false;
        }
        self.refuse(at, &PLAIN);
    }
}

/// Whether bytes begin as a request does; a TLS record begins with a number below 32.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(u8::is_ascii_uppercase)
}

const PLAIN: Refusal = Refusal {
    status: 400,
    code: "tls-expected",
    field: "connection",
    detail: "This address speaks TLS: use https:// instead of http://.",
};
