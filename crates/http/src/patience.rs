//! How long a connection is waited for: for its next request, its head, its body, and for taking what it is
//! sent.
//!
//! Invariant: a connection's `deadline_ms` is when patience with it ends, or its live response does. Its
//! timer is armed for that moment or an earlier one, and armed again when it was earlier; while a peer leaves
//! bytes untaken it is armed for the end of the patience with that. *Checked by* the tests in
//! `tests/patience.rs`.

use crate::at::At;
use crate::config::Config;
use crate::connection::{Body, Role};
use crate::drive::role;
use crate::limit::Limit;
use crate::reactor::{Http, HttpCore};
use crate::tls::ReceiveOutcome;
use thalweg_reactor::{Interest, Key};
use thalweg_transport::queued_bytes;
use thalweg_wire::exchange::Service;

/// The timeout of a body or an answer starts again after each stride: this many bytes, or this part of the
/// whole if that is more. A trickle of bytes does not extend it.
const STRIDE_BYTES: usize = 16 * 1024;
const STRIDE_PART: usize = 64;
/// A peer that takes longer over a stride than this part of the patience there is with it is slow. Where
/// there is no room, it makes room.
const SLOW_PART: u32 = 16;
/// Where slow peers did not make enough room, they are looked for again after this many milliseconds: the
/// search goes over all connections.
pub(crate) const LOOK_AGAIN_MS: u32 = 100;

/// Bytes of one stride of a body or an answer of `total_bytes`.
pub(crate) fn stride_bytes(total_bytes: usize) -> usize {
    STRIDE_BYTES.max(total_bytes / STRIDE_PART)
}

/// After how many milliseconds without a stride a peer is slow.
pub(crate) fn slow_ms(patience_ms: u32) -> u32 {
    patience_ms / SLOW_PART
}

/// Which patience is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// None but that for idle connections.
    Idle,
    /// A head dribbles in.
    Head,
    /// A body comes in.
    Body,
}

impl Phase {
    /// How long it may last.
    pub(crate) fn patience_ms(self, config: &Config) -> u32 {
        match self {
            Self::Idle => config.idle_timeout_ms,
            Self::Head => config.head_timeout_ms,
            Self::Body => config.body_timeout_ms,
        }
    }
}

impl<S: Service> Http<S> {
    /// Lets the right patience run. A later deadline is only noted: the timer that comes too early is set
    /// anew when it comes, so a whole request costs no timer at all. For an earlier one the timer is set.
    pub(crate) fn set_patience(&self, at: &mut At<'_, S>, reads: bool) {
        if self.secure.handshakes() > 0 && self.secure.is_handshaking(at.key) {
            // What was noted when it was accepted stays.
            return;
        }
        let before = at.active.phase;
        at.active.phase = match at.active.body {
            // What is not read cannot be late.
            _ if !reads => Phase::Idle,
            Body::Unknown if at.active.has_begun() => Phase::Head,
            Body::Unknown => Phase::Idle,
            Body::Fixed { .. } | Body::Chunked { .. } => Phase::Body,
        };
        if self.is_overflow(at.core, at.key) {
            // The same: whatever it is doing, it has so long for all of it.
            return;
        }
        match at.active.phase {
            // For the head as a whole, however its bytes trickle.
            Phase::Head if before == Phase::Head => return,
            Phase::Idle | Phase::Head => {}
            Phase::Body => {
                let bytes = at.active.body_bytes();
                let stride = stride_bytes(at.active.announced_bytes());
                if before == Phase::Body && bytes < at.active.body_mark + stride {
                    return;
                }
                at.active.body_mark = bytes;
            }
        }
        let patience_ms = at.active.phase.patience_ms(&self.config);
        let is_earlier = note_deadline(at.core, at.key, patience_ms);
        if is_earlier || at.active.phase != Phase::Idle && before != at.active.phase {
            at.core.set_timer(at.key, patience_ms);
        }
    }

    /// Bytes are kept until the peer takes some of those the kernel has: the patience with that begins.
    pub(crate) fn await_peer(&self, at: &mut At<'_, S>) {
        at.active.progressed_ms = now_ms(at.core);
        if at.active.stashed_bytes == 0 {
            at.active.present_ms = at.active.progressed_ms;
        }
        at.active.left_bytes = at.active.output.bytes() + queued(at.core, at.key);
        at.active.stride_bytes = stride_bytes(at.active.output.bytes() as usize) as u64;
        let patience_ms = self.config.stall_timeout_ms;
        let left_ms =
            if self.is_overflow(at.core, at.key) { deadline_left_ms(at.core, at.key) } else { patience_ms };
        at.core.set_timer(at.key, patience_ms.min(left_ms).max(1));
    }

    /// A peer took what was kept for it: its time is told in comments, or by its deadline, and no more in
    /// patience. Meanwhile nothing was read of what it asks for next, so that time begins anew; an
    /// overflow connection's does not.
    pub(crate) fn reader_caught_up(&self, core: &mut HttpCore<S>, key: Key, phase: Phase) {
        let left_ms = deadline_left_ms(core, key);
        match role(core, key) {
            Ok(Role::Sse) => core.set_timer(key, left_ms.min(self.config.sse_keep_alive_ms).max(1)),
            Ok(Role::Request) if !self.is_overflow(core, key) => {
                let patience_ms = phase.patience_ms(&self.config);
                note_deadline(core, key, patience_ms);
                core.set_timer(key, patience_ms);
            }
            Ok(Role::LongPoll | Role::Request) => core.set_timer(key, left_ms.max(1)),
            _ => {}
        }
    }

    /// Some of what was kept is the kernel's now, which may have room because the peer took something.
    pub(crate) fn note_taken(&self, at: &mut At<'_, S>) {
        let (queued, now_ms) = (queued(at.core, at.key), now_ms(at.core));
        at.active.note_left(queued, now_ms);
    }

    /// Whether a connection has bytes that its peer does not take. A peer that took less than a stride for
    /// too long is cut.
    pub(crate) fn stalled(&mut self, core: &mut HttpCore<S>, key: Key) -> bool {
        let (now_ms, patience_ms) = (now_ms(core), self.config.stall_timeout_ms);
        // However much of its answer is left: other clients wait for the place of an overflow connection.
        let is_overdue = self.is_overflow(core, key) && deadline_left_ms(core, key) == 0;
        let Some((entry, descriptor)) = core.entry_and_descriptor(key) else { return false };
        let Some(active) = entry.active.as_mut().filter(|active| !active.output.is_empty()) else {
            return false;
        };
        // A connection that is put off waits for its turn, or for the disk, and not for its peer.
        if active.makes_peer_wait() {
            active.progressed_ms = now_ms;
        }
        if now_ms.wrapping_sub(active.progressed_ms) >= patience_ms {
            // The kernel tells of room only when there is much, which a slow reader takes long to make.
            active.note_left(queued_bytes(descriptor).unwrap_or(0).into(), now_ms);
        }
        let waited_ms = now_ms.wrapping_sub(active.progressed_ms);
        if is_overdue || waited_ms >= patience_ms {
            self.meters.overload(Limit::Stalled);
            self.remove(core, key);
        } else {
            core.set_timer(key, patience_ms - waited_ms);
        }
        true
    }

    /// A connection's patience ended, or its timer came before the deadline that was noted since.
    pub(crate) fn request_timer(&mut self, core: &mut HttpCore<S>, key: Key) {
        if self.is_patient(core, key) || self.hears(core, key) && self.is_patient(core, key) {
            return;
        }
        match core.entry(key).map(|entry| entry.active.as_ref().map(|active| active.phase)) {
            None => {}
            Some(None) if self.is_overflow(core, key) => self.dismiss(core, key),
            Some(None) => self.remove(core, key),
            _ if self.secure.is_handshaking(key) => self.remove(core, key),
            // Its answers are awaited from the store, which has its own patience.
            Some(Some(Phase::Idle)) => {
                note_deadline(core, key, self.config.idle_timeout_ms);
                core.set_timer(key, self.config.idle_timeout_ms);
            }
            Some(Some(Phase::Head | Phase::Body)) if self.is_overflow(core, key) => self.dismiss(core, key),
            Some(Some(Phase::Head | Phase::Body)) => self.with_active(core, key, |http, at| {
                http.refuse(at, &crate::request::TOO_SLOW);
                http.drive(at)
            }),
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

    /// Goes on with what came while the reactor was held up, whose event is still to come; whether anything
    /// did.
    fn hears(&mut self, core: &mut HttpCore<S>, key: Key) -> bool {
        let mut came = false;
        if core.interest(key).is_some_and(Interest::readable) {
            self.with_active(core, key, |http, at| {
                let filled = http.fill_any(at)?;
                came = !matches!(filled, ReceiveOutcome::Nothing);
                http.hear(at, filled)
            });
        }
        came
    }
}

/// The reactor's milliseconds as deadlines keep them: modulo 2^32, compared by their distance.
pub(crate) fn now_ms<S: Service>(core: &HttpCore<S>) -> u32 {
    core.now_ms() as u32
}

/// Notes when patience ends, as late as a timer that is set here: it begins now, and not with the turn, in
/// which what is waited for may have come after much else. Whether that is earlier than what was noted
/// before, for which the timer may be set.
pub(crate) fn note_deadline<S: Service>(core: &mut HttpCore<S>, key: Key, after_ms: u32) -> bool {
    // One more, because a part of this millisecond has passed.
    let deadline_ms = (core.fresh_now_ms() as u32).wrapping_add(after_ms).wrapping_add(1);
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

/// Bytes that the kernel holds for a peer to take; none where it does not say.
fn queued<S: Service>(core: &HttpCore<S>, key: Key) -> u64 {
    core.descriptor(key).and_then(|descriptor| queued_bytes(descriptor).ok()).unwrap_or(0).into()
}
