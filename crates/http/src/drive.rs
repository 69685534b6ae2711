//! What moves a connection forward, in one order, whatever event came: take requests, send what is ready,
//! serve the live request, close; then put the entry back in shape.

use crate::connection::{Active, Body, Phase, Role};
use crate::live::Pumped;
use crate::reactor::{Gone, Http, HttpCore};
use crate::tls::Filled;
use thalweg_reactor::{Interest, Key};
use thalweg_transport::{Read, queued_bytes, read, shutdown_write};
use thalweg_wire::exchange::Service;

/// A body's patience begins anew with so many more of its bytes, or so large a part of it: a trickle does not keep it, nor what is
/// reserved for it.
const BODY_STRIDE_BYTES: usize = 16 * 1024;
const BODY_STRIDE_PART: usize = 64;
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

    /// Lets the right patience run. A later deadline is only noted: the timer that comes too early is set
    /// anew when it comes, so a whole request costs no timer at all. For an earlier one the timer is set.
    fn set_patience(&self, core: &mut HttpCore<S>, key: Key, active: &mut Active<S::Topic>, reads: bool) {
        if self.secure.handshakes() > 0 && self.secure.is_handshaking(key) {
            // What was noted when it was accepted stays.
            return;
        }
        let before = active.phase;
        active.phase = match active.body {
            // What is not read cannot be late.
            _ if !reads => Phase::Idle,
            Body::Unknown if active.has_begun() => Phase::Head,
            Body::Unknown => Phase::Idle,
            Body::Fixed { .. } | Body::Chunked { .. } => Phase::Body,
        };
        if self.is_guest(core, key) {
            // The same: whatever it is doing, it has so long for all of it.
            return;
        }
        match active.phase {
            // For the head as a whole, however its bytes trickle.
            Phase::Head if before == Phase::Head => return,
            Phase::Idle | Phase::Head => {}
            Phase::Body => {
                let bytes = active.body_bytes();
                let stride = BODY_STRIDE_BYTES.max(active.announced_bytes() / BODY_STRIDE_PART);
                if before == Phase::Body && bytes < active.body_mark + stride {
                    return;
                }
                active.body_mark = bytes;
            }
        }
        let patience_ms = active.phase.patience_ms(&self.config);
        let is_earlier = note_deadline(core, key, patience_ms);
        if is_earlier || active.phase != Phase::Idle && before != active.phase {
            core.set_timer(key, patience_ms);
        }
    }

    /// A connection's patience ended, or its timer came before the deadline that was noted since.
    pub(crate) fn request_timer(&mut self, core: &mut HttpCore<S>, key: Key) {
        if self.is_patient(core, key) || self.hears(core, key) && self.is_patient(core, key) {
            return;
        }
        match core.entry(key).map(|entry| entry.active.as_ref().map(|active| active.phase)) {
            None => {}
            Some(None) if self.is_guest(core, key) => self.dismiss(core, key),
            Some(None) => self.remove(core, key),
            _ if self.secure.is_handshaking(key) => self.remove(core, key),
            // Its answers are awaited from the store, which has its own patience.
            Some(Some(Phase::Idle)) => {
                note_deadline(core, key, self.config.idle_timeout_ms);
                core.set_timer(key, self.config.idle_timeout_ms);
            }
            Some(Some(Phase::Head | Phase::Body)) if self.is_guest(core, key) => self.dismiss(core, key),
            Some(Some(Phase::Head | Phase::Body)) => {
                self.with_active(core, key, |http, core, key, active| {
                    http.refuse(core, active, &crate::request::TOO_SLOW);
                    http.drive(core, key, active)
                })
            }
        }
    }

    /// Whether there is no end to patience yet: the timer is set for when there may be.
    fn is_patient(&mut self, core: &mut HttpCore<S>, key: Key) -> bool {
        if role(core, key) != Ok(Role::Request) || self.stalled(core, key) {
            return true;
        }
        let left_ms = deadline_left_ms(core, key);
        if left_ms > 0 {
            core.set_timer(key, left_ms);
        }
        left_ms > 0
    }

    /// Goes on with what came while the reactor was held up, whose event is still to come; whether anything did.
    fn hears(&mut self, core: &mut HttpCore<S>, key: Key) -> bool {
        let mut came = false;
        if core.interest(key).is_some_and(Interest::readable) {
            self.with_active(core, key, |http, core, key, active| {
                let filled = http.fill_any(core, key, active)?;
                came = !matches!(filled, Filled::Nothing);
                http.hear(core, key, active, filled)
            });
        }
        came
    }

    /// Bytes are kept until the peer takes some of those the kernel has: its patience for that begins.
    pub(crate) fn await_peer(&self, core: &mut HttpCore<S>, key: Key, active: &mut Active<S::Topic>) {
        active.progressed_ms = now_ms(core);
        active.queued_bytes = queued(core, key);
        let patience_ms = self.config.stall_timeout_ms;
        let left_ms = if self.is_guest(core, key) { deadline_left_ms(core, key) } else { patience_ms };
        core.set_timer(key, patience_ms.min(left_ms).max(1));
    }

    /// Whether a connection has bytes its peer does not take. One that took none for too long is cut.
    pub(crate) fn stalled(&mut self, core: &mut HttpCore<S>, key: Key) -> bool {
        let (now_ms, patience_ms) = (now_ms(core), self.config.stall_timeout_ms);
        // However much of its answer is left: others wait for a guest's place.
        let is_overdue = self.is_guest(core, key) && deadline_left_ms(core, key) == 0;
        let Some((entry, descriptor)) = core.entry_and_descriptor(key) else { return false };
        let Some(active) = entry.active.as_mut().filter(|active| !active.output.is_empty()) else {
            return false;
        };
        // Who is put off waits for its turn, not for its peer.
        if active.put_off {
            active.progressed_ms = now_ms;
        }
        if now_ms.wrapping_sub(active.progressed_ms) >= patience_ms {
            // The kernel tells of room only when there is much, which a slow reader takes long to make.
            let queued = queued_bytes(descriptor).unwrap_or(u32::MAX);
            if queued < active.queued_bytes {
                active.progressed_ms = now_ms;
            }
            active.queued_bytes = queued;
        }
        let waited_ms = now_ms.wrapping_sub(active.progressed_ms);
        if is_overdue || waited_ms >= patience_ms {
            self.meters.overload();
            self.remove(core, key);
        } else {
            core.set_timer(key, patience_ms - waited_ms);
        }
        true
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

/// Bytes that the kernel holds for a peer to take; none where it does not say.
fn queued<S: Service>(core: &HttpCore<S>, key: Key) -> u32 {
    core.descriptor(key).and_then(|descriptor| queued_bytes(descriptor).ok()).unwrap_or(0)
}

/// The reactor's milliseconds as deadlines keep them: modulo 2^32, compared by their distance.
pub(crate) fn now_ms<S: Service>(core: &HttpCore<S>) -> u32 {
    core.now_ms() as u32
}

/// Notes when patience ends; whether that is earlier than what was noted before, for which the timer may be set.
pub(crate) fn note_deadline<S: Service>(core: &mut HttpCore<S>, key: Key, after_ms: u32) -> bool {
    let deadline_ms = now_ms(core).wrapping_add(after_ms);
    let Some(entry) = core.entry(key) else { return false };
    let before_ms = std::mem::replace(&mut entry.deadline_ms, deadline_ms);
    // Deadlines lie less than half of all milliseconds apart.
    (before_ms.wrapping_sub(deadline_ms) as i32) > 0
}

/// Milliseconds to the noted deadline; 0 when it has passed.
pub(crate) fn deadline_left_ms<S: Service>(core: &mut HttpCore<S>, key: Key) -> u32 {
    let now_ms = now_ms(core);
    let left_ms = core.entry(key).map_or(0, |entry| entry.deadline_ms.wrapping_sub(now_ms));
    if left_ms > i32::MAX as u32 { 0 } else { left_ms }
}
