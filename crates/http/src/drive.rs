//! What moves a connection forward, in one order, whatever event came: take requests, send what is ready,
//! serve the live request, close; then put the entry back in shape.

use crate::connection::{Active, Role};
use crate::live::Pumped;
use crate::reactor::{Gone, Http, HttpCore};
use thalweg_reactor::{Interest, Key};
use thalweg_transport::{Read, read, shutdown_write};
use thalweg_wire::exchange::Service;

/// Pipelined bytes that are kept while a live request is being served; then its peer has to wait.
const INPUT_KEPT_WHILE_LIVE: usize = 16 * 1024;

impl<S: Service> Http<S> {
    /// Does `work` on the connection's active part, borrowed or made for it, and settles or ends the
    /// connection afterwards.
    pub(crate) fn with_active<W>(&mut self, core: &mut HttpCore<S>, key: Key, work: W)
    where
        W: FnOnce(&mut Self, &mut HttpCore<S>, Key, &mut Active<S::Topic>) -> Result<(), Gone>,
    {
        self.settle_volley(core, key);
        let Some(entry) = core.entry(key) else { return };
        if entry.role == Role::Lingering {
            // It was answered its last, whoever still has something for it.
            return;
        }
        let mut active = entry.active.take().or_else(|| self.spare.pop()).unwrap_or_default();
        let outcome = work(self, core, key, &mut active).and_then(|()| self.settle(core, key, &mut active));
        if outcome.is_err() && self.leave_volley(core, key) {
            // Whatever ends it, what was said before is sent before.
            let _ = self.send_staged(core, key, &mut active);
        }
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
                if gone == Gone::Linger || answered && matches!(discard(core, key), Some(Read::Bytes(_))) {
                    self.begin_lingering(core, key);
                } else {
                    self.remove(core, key);
                }
            }
        }
    }

    /// Goes on until there is nothing to do but wait.
    pub(crate) fn drive(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
    ) -> Result<(), Gone> {
        loop {
            let mut starved = false;
            while !starved && self.may_take(core, key, active) {
                starved = !self.take_request(core, key, active);
            }
            self.send_replies(core, key, active)?;
            if !active.output.is_empty() {
                return Ok(());
            }
            if active.replies.pending() > 0 {
                // Awaited from the store; but a burst that was cut short may go on being read.
                if starved || !self.may_take(core, key, active) {
                    return Ok(());
                }
                continue;
            }
            let pumped = if role(core, key)? != Role::Request {
                self.pump(core, key, active)?
            } else if let Some(starting) = active.starting.take() {
                self.begin_live(core, key, active, *starting)?
            } else if active.closing {
                return Err(if active.linger { Gone::Linger } else { Gone::Close });
            } else if starved || active.warming || active.put_off {
                return Ok(());
            } else {
                continue;
            };
            if pumped == Pumped::Parked {
                return Ok(());
            }
        }
    }

    /// Whether another request may be read now. One connection has a bounded number of requests, and of
    /// response bytes, in flight.
    fn may_take(&self, core: &mut HttpCore<S>, key: Key, active: &Active<S::Topic>) -> bool {
        let waits = active.warming || active.put_off || active.held && active.awaited > 0;
        !(active.closing || waits)
            && active.starting.is_none()
            && active.output.is_empty()
            && active.replies.pending() < self.config.pipeline_max
            && active.ready_bytes < self.config.burst_bytes_max
            && role(core, key) == Ok(Role::Request)
    }

    /// Puts interest, patience and buffers in order after whatever was done. `true`: nothing is in
    /// flight, and the connection is better off without its active part.
    fn settle(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
    ) -> Result<bool, Gone> {
        if active.ended && self.leave_volley(core, key) {
            // What the socket does not take of it keeps the connection.
            self.send_staged(core, key, active)?;
        }
        if self.draining && active.is_quiet() && role(core, key)? == Role::Request {
            // There may be a request in its socket that no event told of yet.
            self.receive(core, key, active)?;
        }
        self.load.stash(active.ready_bytes, active);
        let live = role(core, key)? != Role::Request;
        // A peer that sends nothing more gets what it asked for; a subscriber that hung up gets nothing.
        if active.ended && if live { active.output.is_empty() } else { active.is_answered() } {
            return Err(Gone::Close);
        }
        if self.draining && !live && active.is_quiet() {
            return Err(Gone::Close);
        }
        let reads = !active.ended
            && if live {
                active.unread().len() < INPUT_KEPT_WHILE_LIVE
            } else {
                self.may_take(core, key, active)
            };
        let writes = !(active.put_off || active.output.is_empty());
        let interest = match (reads, writes) {
            (true, true) => Interest::BOTH,
            (true, false) => Interest::READ,
            (false, true) => Interest::WRITE,
            (false, false) => Interest::NONE,
        };
        if core.interest(key) != Some(interest) {
            self.meters.interest();
            core.set_interest(key, interest).map_err(|_| Gone::Close)?;
        }
        if !live {
            self.set_patience(core, key, active, reads);
        }
        if active.unread().is_empty() && active.input.capacity() > 0 {
            active.start = 0;
            core.give_buffer(std::mem::take(&mut active.input));
        }
        Ok(active.is_quiet())
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
        if matches!(discard(core, key), None | Some(Read::End)) {
            self.remove(core, key);
        }
    }
}

/// The role of a connection; one that is gone says so.
pub(crate) fn role<S: Service>(core: &mut HttpCore<S>, key: Key) -> Result<Role, Gone> {
    core.entry(key).map(|entry| entry.role).ok_or(Gone::Close)
}

/// Reads what a peer still sends, for nobody. `None`: it is gone.
fn discard<S: Service>(core: &mut HttpCore<S>, key: Key) -> Option<Read> {
    let mut waste = core.take_buffer();
    let got = core.descriptor(key).and_then(|descriptor| read(descriptor, &mut waste).ok());
    core.give_buffer(waste);
    got
}
