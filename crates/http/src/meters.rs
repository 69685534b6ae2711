//! What one reactor's connections come to, for others to read while it goes on.

use crate::limit::Limit;
use thalweg_sync::meter::{Distribution, Histogram, Meter};

const READS: usize = 0;
const WRITES: usize = 1;
const INTERESTS: usize = 2;
const OPENED: usize = 3;
const CLOSED: usize = 4;
const DELIVERIES: usize = 5;
const UNSENT: usize = 6;
const BODIES: usize = 7;
const HANDSHAKES: usize = 8;
const HANDSHAKES_FAILED: usize = 9;
const RESTS: usize = 10;
const RECEIVED: usize = 11;
const SENT: usize = 12;
const SUBSCRIBERS: usize = 13;
const SEALED: usize = 14;
/// How often any limit was reached: see `overloads_seen`.
const OVERLOADS: usize = 15;
/// From here on responses by the first digit of their status.
const RESPONSES: usize = 16;
const CLASSES: usize = 5;
/// From here on how often each limit was reached, by its number.
const LIMITS: usize = RESPONSES + CLASSES;
/// RFC 6585 4: the status of what is refused because there is too much of it.
const TOO_MANY: u16 = 429;

/// System calls made for connections since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Reads.
    pub reads: u64,
    /// Writes, gathered or not.
    pub writes: u64,
    /// Changes of what the kernel is to report.
    pub interests: u64,
}

/// What connections brought and got since the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// System calls.
    pub calls: Calls,
    /// Connections accepted.
    pub opened: u64,
    /// Connections that have ended.
    pub closed: u64,
    /// Connections that follow a topic now.
    pub subscribers: u64,
    /// Connections that speak TLS now, or are about to.
    pub sealed: u64,
    /// Bytes that came over connections, TLS included.
    pub received_bytes: u64,
    /// Bytes that the kernel took for connections, TLS included.
    pub sent_bytes: u64,
    /// Responses by class of their status: 1xx, 2xx, 3xx, 4xx, 5xx. The head of an event stream counts as
    /// one.
    pub responses: [u64; CLASSES],
    /// Requests refused, and connections cut, because a limit was reached: by its place in [`Limit::ALL`].
    pub overloads: [u64; Limit::COUNT],
    /// How often large reads had to rest because writes came.
    pub rests: u64,
    /// Bytes that peers have not taken, or that wait for an answer before them.
    pub unsent_bytes: u64,
    /// Bytes reserved for bodies that are arriving.
    pub bodies_bytes: u64,
    /// TLS handshakes that came to their end.
    pub handshakes: u64,
    /// TLS handshakes that did not: of peers that speak something else, or do not trust this server.
    pub handshakes_failed: u64,
    /// Subscribers served because their topic moved.
    pub deliveries: u64,
    /// How long each request took that succeeded and [appends](thalweg_wire::exchange::Service::appends),
    /// from the turn that read it whole to the moment its answer might leave, microseconds: as fine as turns
    /// are. Not those that the service answered [later](thalweg_wire::exchange::Answer::Later).
    pub append_us: Distribution,
    /// How long each walk over the subscribers of a topic that moved took, or each part of a long one,
    /// microseconds.
    pub fan_out_us: Distribution,
}

impl Traffic {
    /// Connections there are. The two counts are not of one moment, and no order holds between them
    /// everywhere.
    pub fn connections(&self) -> u64 {
        self.opened.saturating_sub(self.closed)
    }

    /// Requests refused, and connections cut, because whatever limit was reached.
    pub fn overloads_in_all(&self) -> u64 {
        self.overloads.iter().sum()
    }
}

/// Counters of one reactor; see [`Traffic`]. Written by it alone.
#[derive(Debug, Default)]
pub struct Meters {
    counts: Meter<{ LIMITS + Limit::COUNT }>,
    append_us: Histogram,
    fan_out_us: Histogram,
}

impl Meters {
    /// What they stand at. From any thread.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            calls: self.calls(),
            // Before those that were opened: each is opened before it is closed.
            closed: self.counts.read(CLOSED),
            opened: self.counts.read(OPENED),
            subscribers: self.counts.read(SUBSCRIBERS),
            sealed: self.counts.read(SEALED),
            received_bytes: self.counts.read(RECEIVED),
            sent_bytes: self.counts.read(SENT),
            responses: std::array::from_fn(|class| self.counts.read(RESPONSES + class)),
            overloads: self.overloads(),
            rests: self.rests(),
            unsent_bytes: self.counts.read(UNSENT),
            bodies_bytes: self.counts.read(BODIES),
            handshakes: self.counts.read(HANDSHAKES),
            handshakes_failed: self.counts.read(HANDSHAKES_FAILED),
            deliveries: self.counts.read(DELIVERIES),
            append_us: self.append_us.read(),
            fan_out_us: self.fan_out_us.read(),
        }
    }

    pub(crate) fn calls(&self) -> Calls {
        Calls {
            reads: self.counts.read(READS),
            writes: self.counts.read(WRITES),
            interests: self.counts.read(INTERESTS),
        }
    }

    pub(crate) fn overloads(&self) -> [u64; Limit::COUNT] {
        std::array::from_fn(|limit| self.counts.read(LIMITS + limit))
    }

    /// How often any limit was reached, counted beside the limits, so that a turn reads one number to see
    /// that none was. It may be behind their sum while another thread looks: what is shown is the sum,
    /// [`Traffic::overloads_in_all`].
    pub(crate) fn overloads_seen(&self) -> u64 {
        self.counts.read(OVERLOADS)
    }

    pub(crate) fn rests(&self) -> u64 {
        self.counts.read(RESTS)
    }

    pub(crate) fn read(&self) {
        self.counts.add(READS, 1);
    }

    pub(crate) fn write(&self) {
        self.counts.add(WRITES, 1);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.counts.add(RECEIVED, bytes as u64);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.counts.add(SENT, bytes as u64);
    }

    pub(crate) fn interest(&self) {
        self.counts.add(INTERESTS, 1);
    }

    pub(crate) fn open(&self) {
        self.counts.add(OPENED, 1);
    }

    pub(crate) fn close(&self) {
        self.counts.add(CLOSED, 1);
    }

    pub(crate) fn handshake(&self) {
        self.counts.add(HANDSHAKES, 1);
    }

    pub(crate) fn handshake_failed(&self) {
        self.counts.add(HANDSHAKES_FAILED, 1);
    }

    pub(crate) fn overload(&self, limit: Limit) {
        self.counts.add(LIMITS + limit as usize, 1);
        self.counts.add(OVERLOADS, 1);
    }

    pub(crate) fn rest(&self) {
        self.counts.add(RESTS, 1);
    }

    pub(crate) fn carry(&self, subscribers: usize, sealed: usize, unsent_bytes: u64, bodies_bytes: u64) {
        self.counts.set(SEALED, sealed as u64);
        self.counts.set(SUBSCRIBERS, subscribers as u64);
        self.counts.set(UNSENT, unsent_bytes);
        self.counts.set(BODIES, bodies_bytes);
    }

    pub(crate) fn response(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, CLASSES) - 1;
        self.counts.add(RESPONSES + class, 1);
        if status == TOO_MANY {
            self.overload(Limit::Service);
        }
    }

    pub(crate) fn appends(&self, count: u64, took_us: u64) {
        self.append_us.note_times(took_us, count);
    }

    pub(crate) fn fan_out(&self, deliveries: usize, took_us: u64) {
        self.counts.add(DELIVERIES, deliveries as u64);
        self.fan_out_us.note(took_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_connections_are_closed_than_were_opened() {
        const EACH: u64 = 1_000_000;
        let meters = Meters::default();
        std::thread::scope(|scope| {
            let counting = scope.spawn(|| {
                for _ in 0..EACH {
                    meters.open();
                    meters.close();
                }
            });
            while !counting.is_finished() {
                let connections = meters.traffic().connections();
                assert!(connections <= EACH, "{connections}");
            }
        });
        assert_eq!(Traffic { opened: 1, closed: 2, ..meters.traffic() }.connections(), 0);
    }
}
