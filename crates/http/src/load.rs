//! What one reactor carries, and what it does when it carries enough: refuses before anything is done, puts large reads off
//! to the next turn so that others come between, and parts with the slowest readers.
//!
//! Invariants: `unsent_bytes` is the sum of what every connection's output keeps, `subscribers` the number of entries that
//! follow a topic, `cold_reads` the jobs that the pool has not reported. *Checked by* the tests in `tests/overload.rs`.

use crate::connection::{Active, Manner, Role};
use crate::live::Pumped;
use crate::reactor::{Gone, Http, HttpCore, Message};
use thalweg_reactor::Key;
use thalweg_wire::exchange::{Method, Refusal, Service};

/// Bytes of reads that are sent in one turn, and once more by what was put off, before others have theirs.
const TURN_BYTES_MAX: usize = 1 << 19;

/// What one reactor carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Connections that follow a topic.
    pub(crate) subscribers: usize,
    /// Bytes that connections keep because their peers do not take them.
    pub(crate) unsent_bytes: u64,
    /// Reads that wait for the disk.
    pub(crate) cold_reads: usize,
    /// Sent in this turn because of events, and because of what was put off.
    turn_bytes: [usize; 2],
    /// What was put off has its turn.
    resuming: bool,
}

impl Load {
    /// So many bytes went out, or were to.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.turn_bytes[usize::from(self.resuming)] += bytes;
    }

    /// So much was sent in this turn that what reads has to wait for the next.
    pub(crate) fn is_spent(&self) -> bool {
        self.turn_bytes[usize::from(self.resuming)] >= TURN_BYTES_MAX
    }
}

impl<S: Service> Http<S> {
    /// Why a request is refused for want of room, before anything is done about it.
    pub(crate) fn overload(&self, method: Method) -> Option<&'static Refusal> {
        let full = match method {
            Method::Get | Method::Head => {
                (self.load.unsent_bytes >= self.config.unsent_bytes_max).then_some(&UNSENT)
            }
            Method::Options => None,
            Method::Put | Method::Post | Method::Delete | Method::Other => {
                (self.waiting.len() >= self.config.writes_max).then_some(&WRITES)
            }
        };
        full.inspect(|_| self.meters.overload())
    }

    /// Answers a live request that there is no room for; its connection goes on.
    pub(crate) fn refuse_subscriber(
        &mut self,
        core: &mut HttpCore<S>,
        key: Key,
        active: &mut Active<S::Topic>,
        manner: Manner,
    ) -> Result<Pumped, Gone> {
        self.meters.overload();
        let response = self.service.refuse(&SUBSCRIBERS, Self::now(core));
        self.date.refresh(core.wall_us());
        self.stage_response(&response, manner);
        self.send_staged(core, key, active)?;
        Ok(Pumped::Ended)
    }

    /// Leaves a request that reads where it lies until the next turn.
    pub(crate) fn put_off(&self, core: &mut HttpCore<S>, key: Key, active: &mut Active<S::Topic>) {
        active.put_off = true;
        core.ready_later(Message::Resume { key });
    }

    /// Goes on with what was put off, in the order it was.
    pub(crate) fn resume(&mut self, core: &mut HttpCore<S>, key: Key) {
        let put_off = core.entry(key).and_then(|entry| entry.active.as_ref()).is_some_and(|a| a.put_off);
        if !put_off && core.topic_of(key).is_none() {
            return;
        }
        self.load.resuming = true;
        if self.load.is_spent() {
            core.ready_later(Message::Resume { key });
        } else {
            self.with_active(core, key, |http, core, key, active| {
                active.put_off = false;
                http.drive(core, key, active)
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

    /// Begins the next turn's account; parts with the slowest readers if more is unsent than may be.
    pub(crate) fn account(&mut self, core: &mut HttpCore<S>) {
        self.load.turn_bytes = [0; 2];
        self.meters.carry(self.load.unsent_bytes, self.bodies.held());
        // Reads are refused at the bound itself; what goes beyond it is sent to those who follow.
        let most = self.config.unsent_bytes_max;
        if self.load.unsent_bytes > most.saturating_add(most / 4) {
            self.part_with_slowest(core, most);
        }
    }

    /// Cuts those who have taken nothing for longest, until there is room again. What they miss they get from where
    /// they stood: the last event they took says where that is.
    fn part_with_slowest(&mut self, core: &mut HttpCore<S>, most: u64) {
        let now_ms = crate::drive::now_ms(core);
        let keys: Vec<Key> = core.keys().collect();
        let mut slow: Vec<(u32, Key)> = Vec::new();
        for key in keys {
            let Some(active) = core.entry(key).and_then(|entry| entry.active.as_ref()) else { continue };
            if !active.output.is_empty() {
                slow.push((now_ms.wrapping_sub(active.progressed_ms), key));
            }
        }
        slow.sort_unstable_by_key(|(waited_ms, _)| std::cmp::Reverse(*waited_ms));
        let mut cut = 0u64;
        for (_, key) in slow {
            if self.load.unsent_bytes <= most {
                break;
            }
            self.meters.overload();
            self.remove(core, key);
            cut += 1;
        }
        tracing::warn!(cut, unsent_bytes_max = most, "the slowest readers are cut: too much is unsent");
    }
}

/// Whether a role is one that follows a topic.
pub(crate) fn follows(role: Role) -> bool {
    matches!(role, Role::LongPoll | Role::Sse)
}

const UNSENT: Refusal = Refusal {
    status: 503,
    code: "too-much-unsent",
    field: "request",
    detail: "Readers leave more unread than the server keeps for them; try again in a moment.",
};

const WRITES: Refusal = Refusal {
    status: 503,
    code: "too-many-writes",
    field: "request",
    detail: "As many writes wait for the disk as the server takes; nothing was done, send it again in a moment.",
};

const SUBSCRIBERS: Refusal = Refusal {
    status: 503,
    code: "too-many-subscribers",
    field: "live",
    detail: "The server has as many subscribers as it takes; read without `live`, or try again in a moment.",
};
