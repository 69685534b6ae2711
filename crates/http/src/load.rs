//! What one reactor carries, and what it does when it carries enough: refuses before anything is done, puts
//! large reads off to the next turn so that others come between, and parts with the slowest readers.
//!
//! While writes come, on whichever reactor, large reads also rest after each turn that was full of them, for
//! several times as long as it took: a herd that catches up would have all processors to itself otherwise,
//! its clients' beside ours, and each step of a write would wait for one to be free. A subscriber that has
//! everything is not a large read and never rests.
//!
//! Invariants: `unsent_bytes` is the sum of what every connection's output keeps, `stashed_bytes` that of the
//! answers which wait for others before them, as of each connection's last event, `subscribers` the number of
//! entries that follow a topic, `cold_reads` the jobs that the pool has not reported, and [`Load`] alone adds
//! to them and takes from them; a connection that is put off is in `resting`, in `cold` or in the reactor's
//! ready queue, where keys of some may be that are gone. *Checked by* the tests in `tests/overload.rs` and
//! `tests/later.rs`.

use crate::at::At;
use crate::connection::{Active, LiveRequest, Peer, Role};
use crate::limit::Limit;
use crate::live::LiveProgress;
use crate::overflow::CONNECTIONS;
use crate::patience::{LOOK_AGAIN_MS, now_ms, slow_ms};
use crate::reactor::{ConnectionEnd, Http, HttpCore, Message};
use crate::timer::Timer;
use thalweg_reactor::Key;
use thalweg_wire::exchange::{Announced, Refusal, Service, Weight};

/// Bytes of reads that are sent in one turn, and once more by what was put off, before others have theirs.
const TURN_BYTES_MAX: usize = 8 << 20;
/// The same while writes come, and how much has to be sent for a turn to ask whether they do.
const TURN_BYTES_BESIDE_WRITES: usize = 512 << 10;
/// Bytes of one write to a socket, which may take megabytes at once.
const WRITE_BYTES_MAX: usize = 4 << 20;
/// The same while writes come.
const WRITE_BYTES_BESIDE_WRITES: usize = 256 << 10;
/// Reads rest this many times as long as the turn took, within `REST_MS`.
const REST_PARTS: u32 = 3;
const REST_MS: std::ops::RangeInclusive<u32> = 1..=40;

/// What one reactor carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Connections that follow a topic.
    subscribers: usize,
    /// Bytes that connections keep because their peers do not take them.
    unsent_bytes: u64,
    /// Bytes of answers that wait for others before them.
    stashed_bytes: u64,
    /// Reads that wait for the disk.
    cold_reads: usize,
    /// Sent in this turn because of events, and because of what was put off.
    turn_bytes: [usize; 2],
    /// What was put off has its turn.
    resuming: bool,
    /// Writes came when last asked.
    writes_come: bool,
    /// Large reads rest, until the timer of [`Resting`].
    rests: bool,
    /// When the slow readers were last looked for and did not make enough room.
    looked_ms: u32,
    writes: Writes,
}

/// Connections that were put off since the rest began.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    keys: Vec<Key>,
    /// After which they go on.
    timer: Timer,
}

/// What was seen of the number that grows with writes.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    count: u64,
    looked_ms: u32,
    /// When it was last seen to have grown.
    grown_ms: Option<u32>,
}

impl Writes {
    /// Whether writes come that are no further apart. One look tells nothing when the last one is longer ago.
    fn come(&mut self, count: u64, now_ms: u32, apart_ms: u32) -> bool {
        let age_ms = now_ms.wrapping_sub(self.looked_ms);
        if age_ms > apart_ms {
            self.grown_ms = None;
        } else if count != self.count {
            self.grown_ms = Some(now_ms);
        }
        (self.count, self.looked_ms) = (count, now_ms);
        self.grown_ms.is_some_and(|grown_ms| now_ms.wrapping_sub(grown_ms) <= apart_ms)
    }
}

impl Load {
    /// Counts bytes that were sent, or offered to a socket.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.turn_bytes[usize::from(self.resuming)] += bytes;
    }

    /// Counts anew a connection's unsent output: bytes `before` and `now`.
    pub(crate) fn unsent(&mut self, before: u64, now: u64) {
        self.unsent_bytes = self.unsent_bytes + now - before;
    }

    /// Connections that follow a topic.
    pub(crate) fn subscribers(&self) -> usize {
        self.subscribers
    }

    /// A connection follows a topic from now on.
    pub(crate) fn follow(&mut self) {
        self.subscribers += 1;
    }

    /// A connection that had this role has it no more.
    pub(crate) fn leave(&mut self, role: Role) {
        self.subscribers -= usize::from(follows(role));
    }

    /// Reads that wait for the disk.
    pub(crate) fn cold_reads(&self) -> usize {
        self.cold_reads
    }

    /// The pool has a read.
    pub(crate) fn begin_cold(&mut self) {
        self.cold_reads += 1;
    }

    /// The pool reported one.
    pub(crate) fn end_cold(&mut self) {
        self.cold_reads -= 1;
    }

    /// Counts anew what a connection keeps of answers that wait for others.
    pub(crate) fn stash<T>(&mut self, bytes: usize, active: &mut Active<T>) {
        if active.stashed_bytes != bytes {
            self.stashed_bytes = self.stashed_bytes + bytes as u64 - active.stashed_bytes as u64;
            active.stashed_bytes = bytes;
        }
    }

    /// Bytes that are kept because they cannot leave yet.
    fn kept_bytes(&self) -> u64 {
        self.unsent_bytes + self.stashed_bytes
    }

    /// Whether this turn has sent its share of read bytes, so that further reads wait for the next turn.
    pub(crate) fn is_spent(&self) -> bool {
        let most = if self.writes_come { TURN_BYTES_BESIDE_WRITES } else { TURN_BYTES_MAX };
        self.turn_bytes[usize::from(self.resuming)] >= most
    }

    /// How much one write may take.
    pub(crate) fn write_bytes_max(&self) -> usize {
        if self.writes_come { WRITE_BYTES_BESIDE_WRITES } else { WRITE_BYTES_MAX }
    }

    /// Whether readers that catch up have to wait: for the next turn, or until the rest is over.
    pub(crate) fn reads_wait(&self) -> bool {
        self.rests || self.is_spent()
    }
}

impl<S: Service> Http<S> {
    /// Why a request of that weight is refused for want of room, before anything is done about it. What is
    /// small never is: an operator can see the server however loaded it is.
    pub(crate) fn overload(
        &mut self,
        core: &mut HttpCore<S>,
        weight: Weight,
        peer: Peer,
    ) -> Option<&'static Refusal> {
        let full = match weight {
            Weight::Small => None,
            Weight::Read | Weight::Write if peer.overflow => Some((Limit::Connections, &CONNECTIONS)),
            Weight::Read => (!self.has_room(core)).then_some((Limit::Unsent, &UNSENT)),
            Weight::Write => {
                (self.waiting.len() >= self.config.writes_max).then_some((Limit::Writes, &WRITES))
            }
        };
        full.map(|(limit, refusal)| {
            self.meters.overload(limit);
            refusal
        })
    }

    /// Whether there is room for what one more reader may leave. At the bound, slow readers make it.
    fn has_room(&mut self, core: &mut HttpCore<S>) -> bool {
        let most = self.config.unsent_bytes_max;
        let has_room = |load: &Load| load.kept_bytes() < most;
        let now_ms = now_ms(core);
        if !has_room(&self.load) && now_ms.wrapping_sub(self.load.looked_ms) >= LOOK_AGAIN_MS {
            self.part_with_slowest(core, slow_ms(self.config.stall_timeout_ms), has_room);
            if !has_room(&self.load) {
                self.load.looked_ms = now_ms;
            }
        }
        has_room(&self.load)
    }

    /// Answers a live request that there is no room for; its connection goes on.
    pub(crate) fn refuse_subscriber(
        &mut self,
        at: &mut At<'_, S>,
        starting: &LiveRequest<S::Topic>,
    ) -> Result<LiveProgress, ConnectionEnd> {
        self.meters.overload(Limit::Subscribers);
        let announced = Announced { live: Some(starting.live), ..Announced::default() };
        let response = self.service.refuse(&SUBSCRIBERS, announced, Self::now(at.core));
        self.date.refresh(at.core.wall_us());
        self.stage_response(&response, starting.manner);
        self.send_staged(at)?;
        Ok(LiveProgress::Ended)
    }

    /// Leaves what reads as it is, until the next turn or until the rest is over.
    pub(crate) fn put_off(&mut self, at: &mut At<'_, S>) {
        if !std::mem::replace(&mut at.active.put_off, true) {
            self.queue(at.core, at.key);
        }
    }

    fn queue(&mut self, core: &mut HttpCore<S>, key: Key) {
        if self.load.rests {
            self.resting.keys.push(key);
        } else {
            core.ready_later(Message::Resume { key });
        }
    }

    /// Goes on with what was put off, in the order it was.
    pub(crate) fn resume(&mut self, core: &mut HttpCore<S>, key: Key) {
        let is_put_off = core.entry(key).and_then(|entry| entry.active.as_ref()).is_some_and(|a| a.put_off);
        if !is_put_off {
            return;
        }
        self.load.resuming = true;
        if self.load.reads_wait() {
            self.queue(core, key);
        } else {
            self.with_active(core, key, |http, at| {
                at.active.put_off = false;
                // Its peer could take nothing meanwhile.
                at.active.progressed_ms = now_ms(at.core);
                http.resume_output(at)
            });
        }
        self.load.resuming = false;
    }

    /// Goes on with a walk, as what was put off does.
    pub(crate) fn resume_walk(&mut self, core: &mut HttpCore<S>, topic_id: u64) {
        self.load.resuming = true;
        self.walk_on(core, topic_id);
        self.load.resuming = false;
    }

    /// Has reads rest for as long as a turn that was full of them asks for, if writes come.
    fn rest(&mut self, core: &mut HttpCore<S>) {
        let now_ms = now_ms(core);
        self.load.writes_come =
            self.load.writes.come(self.service.writes(), now_ms, self.config.writes_apart_ms);
        if self.load.rests || !self.load.writes_come {
            return;
        }
        let took_ms = (core.fresh_now_ms() as u32).wrapping_sub(now_ms);
        let rest_ms = took_ms.saturating_mul(REST_PARTS).clamp(*REST_MS.start(), *REST_MS.end());
        // Without a timer it would not end.
        self.load.rests = self.resting.timer.set(core, Role::RestTimer, rest_ms);
        if self.load.rests {
            self.meters.rest();
        }
    }

    /// Lets go on what rested, one turn's share of it after the other.
    pub(crate) fn end_rest(&mut self, core: &mut HttpCore<S>) {
        self.load.rests = false;
        self.resting.keys.drain(..).for_each(|key| core.ready_later(Message::Resume { key }));
    }

    /// Begins the next turn's account; parts with the slowest readers if more is unsent than may be.
    pub(crate) fn account(&mut self, core: &mut HttpCore<S>) {
        if self.load.turn_bytes.iter().any(|bytes| *bytes >= TURN_BYTES_BESIDE_WRITES) {
            self.rest(core);
        }
        self.load.turn_bytes = [0; 2];
        let sealed = self.secure.sessions();
        self.meters.carry(self.load.subscribers, sealed, self.load.kept_bytes(), self.bodies.held());
        // Reads are refused at the bound itself; what goes beyond it is sent to those who follow.
        let most = self.config.unsent_bytes_max;
        if self.load.unsent_bytes > most.saturating_add(most / 4) {
            self.part_with_slowest(core, 0, |load| load.unsent_bytes <= most);
        }
        self.warnings.reached(core.now_ms(), &self.meters);
    }

    /// Cuts readers until there is `enough` room: those that have taken no stride for longest first, and none
    /// that has taken one within `slow_ms`. What they miss they get from where they stood: the last event
    /// they took says where that is.
    fn part_with_slowest(&mut self, core: &mut HttpCore<S>, slow_ms: u32, enough: impl Fn(&Load) -> bool) {
        let now_ms = now_ms(core);
        let keys: Vec<Key> = core.keys().collect();
        let waits = |key: Key| {
            let active = core.entry(key)?.active.as_ref()?;
            Some((active.waits_for_peer_ms(now_ms)?, key))
        };
        let mut slow: Vec<(u32, Key)> = keys.into_iter().filter_map(waits).collect();
        slow.retain(|(waited_ms, _)| *waited_ms >= slow_ms);
        slow.sort_unstable_by_key(|(waited_ms, _)| std::cmp::Reverse(*waited_ms));
        for (_, key) in slow {
            if enough(&self.load) {
                break;
            }
            self.meters.overload(Limit::SlowestCut);
            self.remove(core, key);
        }
    }
}

/// Whether a role is one that follows a topic.
fn follows(role: Role) -> bool {
    matches!(role, Role::LongPoll | Role::Sse)
}

const UNSENT: Refusal = Refusal {
    status: 503,
    code: Limit::Unsent.name(),
    field: "request",
    detail: "Answers that readers have not received yet take all the memory there is for them; try again in a moment.",
};

const WRITES: Refusal = Refusal {
    status: 503,
    code: Limit::Writes.name(),
    field: "request",
    detail: "As many writes wait for the disk as the server allows; nothing was done, send it again in a moment.",
};

const SUBSCRIBERS: Refusal = Refusal {
    status: 503,
    code: Limit::Subscribers.name(),
    field: "live",
    detail: "The server has as many live readers as it allows; read without `live`, or try again in a moment.",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_come_while_looks_close_together_see_the_number_grow() {
        const APART_MS: u32 = 100;
        let mut writes = Writes::default();
        let mut come = |count, now_ms| writes.come(count, now_ms, APART_MS);
        // How many there had been, and when, is unknown.
        assert!(!come(7, 5_000));
        assert!(!come(7, 5_001));
        assert!(come(8, 5_002));
        assert!(come(8, 5_002 + APART_MS), "not long ago");
        assert!(!come(8, 5_003 + APART_MS));
        // Nor is a write of an hour ago one that comes.
        assert!(!come(9, 3_605_000));
        assert!(come(10, 3_605_100));
        // Milliseconds are counted modulo 2^32.
        assert!(!come(11, u32::MAX));
        assert!(come(12, 3));
    }
}
