//! Bytes in: from the socket into the connection's buffer.

use crate::at::At;
use crate::connection::{Body, Connection, Role};
use crate::reactor::{ConnectionEnd, Http, HttpCore};
use crate::tls::ReceiveOutcome;
use std::io;
use thalweg_reactor::{Interest, Key};
use thalweg_transport::{ReadOutcome, read};
use thalweg_wire::exchange::Service;

/// Reads of one connection per turn: one that sends without end does not keep the others waiting.
const ROUNDS_MAX: usize = 16;
/// Room made at once for a body that is still to come. A peer that only announces one costs no more.
const ROOM_BYTES: usize = 256 * 1024;

impl<S: Service> Http<S> {
    /// Reads what is there and goes on.
    pub(crate) fn receive(&mut self, at: &mut At<'_, S>) -> Result<(), ConnectionEnd> {
        let filled = self.fill_any(at)?;
        self.hear(at, filled)
    }

    /// Reads what a connection at rest has, if it has anything, and goes on; whether it had. Else it stays as
    /// it is.
    pub(crate) fn glance_at(&mut self, core: &mut HttpCore<S>, key: Key) -> bool {
        let rests = |entry: &mut Connection<S::Topic>| {
            entry.role == Role::Request && entry.is_quiet() && !entry.secure
        };
        if !core.entry(key).is_some_and(rests) || !core.interest(key).is_some_and(Interest::readable) {
            return false;
        }
        let mut input = core.take_buffer();
        let room = input.capacity();
        self.meters.read();
        let got = core.descriptor(key).map(|descriptor| read(descriptor, &mut input));
        let Some(got) = got.filter(|got| !matches!(got, Ok(ReadOutcome::WouldBlock))) else {
            core.give_buffer(input);
            return false;
        };
        self.with_active(core, key, |http, at| {
            at.active.input = input;
            let filled = http.filled(got, room)?;
            http.hear(at, filled)
        });
        true
    }

    /// Goes on with what was read, and reads on. A read that leaves room in the buffer has emptied the
    /// socket, so it is not asked again: a request in one piece costs one call.
    pub(crate) fn hear(
        &mut self,
        at: &mut At<'_, S>,
        mut filled: ReceiveOutcome,
    ) -> Result<(), ConnectionEnd> {
        let mut rounds = 1..ROUNDS_MAX;
        loop {
            match filled {
                ReceiveOutcome::Nothing => return Ok(()),
                ReceiveOutcome::End => at.active.ended = true,
                ReceiveOutcome::Some { .. } => {}
            }
            self.drive(at)?;
            let is_all = at.active.ended || matches!(filled, ReceiveOutcome::Some { drained: true });
            if is_all || !self.reads_on(at)? || rounds.next().is_none() {
                return Ok(());
            }
            filled = self.fill_any(at)?;
        }
    }

    /// Whether what came was all used, so that more may be read for the same turn.
    fn reads_on(&self, at: &mut At<'_, S>) -> Result<bool, ConnectionEnd> {
        let waits = at.active.closing || at.active.put_off || !at.active.is_answered();
        Ok(!waits && at.role()? == Role::Request)
    }

    /// Reads what is there, sealed or not.
    pub(crate) fn fill_any(&mut self, at: &mut At<'_, S>) -> Result<ReceiveOutcome, ConnectionEnd> {
        if at.entry()?.secure { self.fill_sealed(at) } else { self.fill(at) }
    }

    /// Reads what is there.
    fn fill(&mut self, at: &mut At<'_, S>) -> Result<ReceiveOutcome, ConnectionEnd> {
        make_room(at);
        let room = at.active.input.capacity() - at.active.input.len();
        let descriptor = at.core.descriptor(at.key).ok_or(ConnectionEnd::Close)?;
        self.meters.read();
        let got = read(descriptor, &mut at.active.input);
        self.filled(got, room)
    }

    /// What a read came to that had so much room.
    fn filled(&self, got: io::Result<ReadOutcome>, room: usize) -> Result<ReceiveOutcome, ConnectionEnd> {
        match got {
            Ok(ReadOutcome::WouldBlock) => Ok(ReceiveOutcome::Nothing),
            Ok(ReadOutcome::End) => Ok(ReceiveOutcome::End),
            Ok(ReadOutcome::Bytes(bytes)) => {
                self.meters.received(bytes);
                Ok(ReceiveOutcome::Some { drained: bytes < room })
            }
            Err(_) => Err(ConnectionEnd::Close),
        }
    }
}

/// A request is done with: if it took more than a buffer, what came behind it goes on in one that is no
/// larger than it needs. Otherwise a client that sends a byte more would keep the large one, and nothing
/// counts that.
pub(crate) fn let_room_go<S: Service>(At { core, active, .. }: &mut At<'_, S>) {
    let room = active.input.capacity();
    // What is copied is a part of what is let go, so that many requests in one buffer are not copied for each
    // of them.
    if room > core.buffer_bytes() && active.unread().len() <= room / 4 {
        let mut kept = core.take_buffer();
        kept.extend_from_slice(active.unread());
        (active.input, active.start) = (kept, 0);
    }
}

/// Makes room for at least one more byte: in a pooled buffer, by moving the unread bytes to the front, or,
/// for a message larger than the buffer, by growing towards its size.
fn make_room<S: Service>(At { core, active, .. }: &mut At<'_, S>) {
    if active.input.capacity() == 0 {
        active.input = core.take_buffer();
        return;
    }
    let wanted = match active.body {
        Body::Fixed { total_bytes, .. } => {
            total_bytes.saturating_sub(active.unread().len()).clamp(1, ROOM_BYTES)
        }
        Body::Unknown | Body::Chunked { .. } => 1,
    };
    if active.input.capacity() - active.input.len() >= wanted {
        return;
    }
    if active.start > 0 {
        active.input.drain(..active.start);
        active.start = 0;
    }
    if active.input.capacity() - active.input.len() < wanted {
        active.input.reserve(wanted);
    }
}
