//! Bytes in: from the socket into the connection's buffer.

use crate::connection::{Active, Body, Connection, Role};
use crate::drive::role;
use crate::reactor::{Gone, Http, HttpCore};
use crate::tls::Filled;
use std::io;
use thalweg_reactor::{Interest, Key};
use thalweg_transport::{Read, read};
use thalweg_wire::exchange::Service;

/// Reads of one connection per turn: one that sends without end does not keep the others waiting.
const ROUNDS_MAX: usize = 16;
/// Room made at once for a body that is still to come. A peer that only announces one costs no more.
const ROOM_BYTES: usize = 256 * 1024;

impl<S: Service> Http<S> {
    /// Reads what is there and goes on.
    pub(crate) fn receive(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
    ) -> Result<(), Gone> {
        let filled = self.fill_any(core, key, active)?;
        self.hear(core, key, active, filled)
    }

    /// Reads what a connection at rest has, if it has anything, and goes on; whether it had. Else it stays as it is.
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
        let Some(got) = got.filter(|got| !matches!(got, Ok(Read::WouldBlock))) else {
            core.give_buffer(input);
            return false;
        };
        self.with_active(core, key, |http, core, key, active| {
            active.input = input;
            let filled = http.filled(got, room)?;
            http.hear(core, key, active, filled)
        });
        true
    }

    /// Goes on with what was read, and reads on. A read that leaves room in the buffer has emptied the
    /// socket, so it is not asked again: a request in one piece costs one call.
    pub(crate) fn hear(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
        mut filled: Filled,
    ) -> Result<(), Gone> {
        let mut rounds = 1..ROUNDS_MAX;
        loop {
            match filled {
                Filled::Nothing => return Ok(()),
                Filled::End => active.ended = true,
                Filled::Some { .. } => {}
            }
            self.drive(core, key, active)?;
            let is_all = active.ended || matches!(filled, Filled::Some { drained: true });
            if is_all || !self.reads_on(core, key, active)? || rounds.next().is_none() {
                return Ok(());
            }
            filled = self.fill_any(core, key, active)?;
        }
    }

    /// Whether what came was all used, so that more may be read for the same turn.
    fn reads_on(&self, core: &mut HttpCore<S>, key: Key, active: &Active<S::Topic>) -> Result<bool, Gone> {
        let waits = active.closing || active.put_off || !active.is_answered();
        Ok(!waits && role(core, key)? == Role::Request)
    }

    /// Reads what is there, sealed or not.
    pub(crate) fn fill_any(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
    ) -> Result<Filled, Gone> {
        if core.entry(key).is_some_and(|entry| entry.secure) {
            self.fill_sealed(core, key, active)
        } else {
            self.fill(core, key, active)
        }
    }

    /// Reads what is there.
    fn fill(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
    ) -> Result<Filled, Gone> {
        make_room(core, active);
        let room = active.input.capacity() - active.input.len();
        let descriptor = core.descriptor(key).ok_or(Gone::Close)?;
        self.meters.read();
        let got = read(descriptor, &mut active.input);
        self.filled(got, room)
    }

    /// What a read came to that had so much room.
    fn filled(&self, got: io::Result<Read>, room: usize) -> Result<Filled, Gone> {
        match got {
            Ok(Read::WouldBlock) => Ok(Filled::Nothing),
            Ok(Read::End) => Ok(Filled::End),
            Ok(Read::Bytes(bytes)) => {
                self.meters.received(bytes);
                Ok(Filled::Some { drained: bytes < room })
            }
            Err(_) => Err(Gone::Close),
        }
    }
}

/// A request is done with: if it took more than a buffer, what came behind it goes on in one that is no larger than it needs.
/// Whoever sends a byte more would keep the large one otherwise, and nothing counts that.
pub(crate) fn let_room_go<S: Service>(core: &mut HttpCore<S>, active: &mut Active<S::Topic>) {
    let room = active.input.capacity();
    // What is copied is a part of what is let go, so that many requests in one buffer are not copied for each of them.
    if room > core.buffer_bytes() && active.unread().len() <= room / 4 {
        let mut kept = core.take_buffer();
        kept.extend_from_slice(active.unread());
        (active.input, active.start) = (kept, 0);
    }
}

/// Makes room for at least one more byte: in a pooled buffer, by moving the unread bytes to the front, or,
/// for a message larger than the buffer, by growing towards its size.
fn make_room<S: Service>(core: &mut HttpCore<S>, active: &mut Active<S::Topic>) {
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
