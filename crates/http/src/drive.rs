//! What moves a connection forward, in one order, whatever event came: take requests, send what is ready,
//! serve the live request, close; then put the entry back in shape.

use crate::at::At;
use crate::connection::Role;
use crate::live::LiveProgress;
use crate::patience::now_ms;
use crate::reactor::{ConnectionEnd, Http, HttpCore};
use thalweg_reactor::{Interest, Key};
use thalweg_transport::{ReadOutcome, read, shutdown_write};
use thalweg_wire::exchange::Service;

/// Pipelined bytes that are kept while a live request is being served; then its peer has to wait.
const INPUT_KEPT_WHILE_LIVE: usize = 16 * 1024;

impl<S: Service> Http<S> {
    /// Does `work` on the connection's active part, borrowed or made for it, and settles or ends the
    /// connection afterwards.
    pub(crate) fn with_active<W>(&mut self, core: &mut HttpCore<S>, key: Key, work: W)
    where
        W: FnOnce(&mut Self, &mut At<'_, S>) -> Result<(), ConnectionEnd>,
    {
        debug_assert!(self.staged.segments.is_empty(), "another connection's bytes would be sent here");
        self.settle_batch(core, key);
        let Some(entry) = core.entry(key) else { return };
        if entry.role == Role::Lingering {
            // It has its last answer; anything that still comes for it is dropped.
            return;
        }
        let mut active = entry.active.take().or_else(|| self.spare.pop()).unwrap_or_default();
        let at = &mut At { core, key, active: &mut active };
        self.batch.served += 1;
        let outcome = work(self, at).and_then(|()| self.settle(at));
        if outcome.is_err() {
            if self.leave_batch(at.core, key) {
                // Whatever ends it, what was said before is sent before.
                let _ = self.send_staged(at);
            }
            // What it was not sent is sent to no other connection.
            self.unstage();
        }
        self.batch.served -= 1;
        debug_assert!(
            self.staged.segments.is_empty(),
            "what was staged here would be sent to another connection"
        );
        match outcome {
            Ok(true) => self.keep_spare(core, active),
            Ok(false) => {
                if let Some(entry) = core.entry(key) {
                    entry.active = Some(active);
                }
            }
            Err(gone) => {
                if !active.output.is_empty() {
                    self.secure.spoil(key);
                }
                // Closing with bytes unread would reset the connection, and could take the answer with it.
                let answered = active.closing && !active.ended && active.output.is_empty();
                self.keep_spare(core, active);
                if gone == ConnectionEnd::Linger
                    || answered && matches!(discard(core, key), Some(ReadOutcome::Bytes(_)))
                {
                    self.begin_lingering(core, key);
                } else {
                    self.remove(core, key);
                }
            }
        }
    }

    /// Goes on until there is nothing to do but wait.
    pub(crate) fn drive(&mut self, at: &mut At<'_, S>) -> Result<(), ConnectionEnd> {
        loop {
            let mut starved = at.active.unread().is_empty();
            while !starved && self.may_take(at) {
                starved = !self.take_request(at) || at.active.unread().is_empty();
            }
            self.send_replies(at)?;
            if !at.active.output.is_empty() {
                return Ok(());
            }
            if at.active.replies.pending() > 0 {
                // Awaited from the store; but a burst that was cut short may go on being read.
                if starved || !self.may_take(at) {
                    return Ok(());
                }
                continue;
            }
            let pumped = if at.role()? != Role::Request {
                self.pump(at)?
            } else if let Some(starting) = at.active.starting.take() {
                self.begin_live(at, *starting)?
            } else if at.active.closing {
                return Err(if at.active.linger { ConnectionEnd::Linger } else { ConnectionEnd::Close });
            } else if starved || at.active.warming || at.active.put_off {
                return Ok(());
            } else {
                continue;
            };
            if pumped == LiveProgress::Parked {
                return Ok(());
            }
        }
    }

    /// Whether another request may be read now. One connection has a bounded number of requests, and of
    /// response bytes, in flight.
    fn may_take(&self, at: &mut At<'_, S>) -> bool {
        let waits = at.active.warming || at.active.put_off || at.active.held && at.active.awaited > 0;
        !(at.active.closing || waits)
            && at.active.starting.is_none()
            && at.active.output.is_empty()
            && at.active.replies.pending() < self.config.pipeline_max
            && at.active.ready_bytes < self.config.burst_bytes_max
            && at.role() == Ok(Role::Request)
    }

    /// Puts interest, patience and buffers in order after whatever was done. `true`: nothing is in
    /// flight, and the connection is better off without its active part.
    fn settle(&mut self, at: &mut At<'_, S>) -> Result<bool, ConnectionEnd> {
        if at.active.ended && self.leave_batch(at.core, at.key) {
            // What the socket does not take of it keeps the connection.
            self.send_staged(at)?;
        }
        if self.draining && at.active.is_quiet() && at.role()? == Role::Request {
            // There may be a request in its socket that no event told of yet.
            self.receive(at)?;
        }
        if at.active.stashed_bytes == 0 && at.active.output.is_empty() {
            // Whatever waits from now on was read a moment ago.
            at.active.present_ms = now_ms(at.core);
        }
        self.load.stash(at.active.ready_bytes, at.active);
        let live = at.role()? != Role::Request;
        // A peer that sends nothing more gets what it asked for; a subscriber that hung up gets nothing.
        if at.active.ended && if live { at.active.output.is_empty() } else { at.active.is_answered() } {
            return Err(ConnectionEnd::Close);
        }
        if self.draining && !live && at.active.is_quiet() {
            return Err(ConnectionEnd::Close);
        }
        let reads = !at.active.ended
            && if live { at.active.unread().len() < INPUT_KEPT_WHILE_LIVE } else { self.may_take(at) };
        let writes = !(at.active.makes_peer_wait() || at.active.output.is_empty());
        let interest = match (reads, writes) {
            (true, true) => Interest::BOTH,
            (true, false) => Interest::READ,
            (false, true) => Interest::WRITE,
            (false, false) => Interest::NONE,
        };
        if at.core.interest(at.key) != Some(interest) {
            self.meters.interest();
            at.core.set_interest(at.key, interest).map_err(|_| ConnectionEnd::Close)?;
        }
        if !live {
            self.set_patience(at, reads);
        }
        if at.active.unread().is_empty() && at.active.input.capacity() > 0 {
            at.active.start = 0;
            at.core.give_buffer(std::mem::take(&mut at.active.input));
        }
        Ok(at.active.is_quiet())
    }

    /// Ends a sealed connection so that its peer can tell the end from a cut.
    pub(crate) fn goodbye(&mut self, core: &mut HttpCore<S>, key: Key) {
        let Some((entry, descriptor)) = core.entry_and_descriptor(key) else { return };
        let unsent = entry.active.as_ref().is_some_and(|active| !active.output.is_empty());
        if entry.secure && !unsent {
            self.secure.goodbye(key, descriptor);
        }
    }

    fn begin_lingering(&mut self, core: &mut HttpCore<S>, key: Key) {
        self.goodbye(core, key);
        self.unsubscribe(core, key, Role::Lingering);
        let Some(descriptor) = core.descriptor(key) else { return };
        let told = shutdown_write(descriptor).and_then(|()| core.set_interest(key, Interest::READ));
        match told {
            Ok(()) => core.set_timer(key, self.config.linger_ms),
            Err(_) => self.remove(core, key),
        }
    }

    /// Throws away what a refused peer still sends: closing with it unread would reset the connection and
    /// could take the refusal with it.
    pub(crate) fn linger(&mut self, core: &mut HttpCore<S>, key: Key) {
        if matches!(discard(core, key), None | Some(ReadOutcome::End)) {
            self.remove(core, key);
        }
    }
}

/// The role of a connection; one that is gone says so.
pub(crate) fn role<S: Service>(core: &mut HttpCore<S>, key: Key) -> Result<Role, ConnectionEnd> {
    core.entry(key).map(|entry| entry.role).ok_or(ConnectionEnd::Close)
}

/// Reads and drops what a peer still sends. `None`: the connection is gone.
fn discard<S: Service>(core: &mut HttpCore<S>, key: Key) -> Option<ReadOutcome> {
    let mut waste = core.take_buffer();
    let got = core.descriptor(key).and_then(|descriptor| read(descriptor, &mut waste).ok());
    core.give_buffer(waste);
    got
}
