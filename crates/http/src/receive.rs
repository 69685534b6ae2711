//! Bytes in: from the socket into the connection's buffer.

use crate::connection::{Active, Body};
use crate::reactor::{Gone, Http, HttpCore};
use crate::tls::Filled;
use thalweg_reactor::Key;
use thalweg_transport::{Read, read};
use thalweg_wire::exchange::Service;

/// Reads of one connection per turn: one that sends without end does not keep the others waiting.
const ROUNDS_MAX: usize = 16;
/// Room made at once for a body that is still to come. A peer that only announces one costs no more.
const ROOM_BYTES: usize = 256 * 1024;

impl<S: Service> Http<S> {
    /// Reads what is there and goes on. A read that leaves room in the buffer has emptied the socket, so
    /// it is not asked again: a request in one piece costs one call.
    pub(crate) fn receive(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
    ) -> Result<(), Gone> {
        for _ in 0..ROUNDS_MAX {
            let filled = if core.entry(key).is_some_and(|entry| entry.secure) {
                self.fill_sealed(core, key, active)?
            } else {
                self.fill(core, key, active)?
            };
            let drained = match filled {
                Filled::Nothing => return Ok(()),
                Filled::End => {
                    active.ended = true;
                    return self.drive(core, key, active);
                }
                Filled::Some { drained } => drained,
            };
            self.drive(core, key, active)?;
            if drained || active.closing || active.starting.is_some() || !active.output.is_empty() {
                return Ok(());
            }
            if active.put_off
                || active.replies.pending() > 0
                || crate::drive::role(core, key)? != crate::connection::Role::Request
            {
                return Ok(());
            }
        }
        Ok(())
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
        match read(descriptor, &mut active.input) {
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
