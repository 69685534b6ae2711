//! What the server may take in all, from what each connection may: said at the start, so that nobody finds
//! out under load.

use super::costs::{
    ACTIVE_BYTES, BUFFER_BYTES, HANDSHAKE_BYTES, IDLE_BYTES, KEYS_BYTES, RECORD_BYTES, STREAM_BYTES,
    WRITE_BYTES,
};
use crate::quantity::{Bytes, Count};
use thalweg_http::Config;

/// The default bound on streams, if there is memory for four times as many.
const STREAMS_DEFAULT: u64 = 10_000_000;
/// By default, streams may take the memory divided by this.
const STREAMS_PARTS: u64 = 4;

/// Bounds in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) connections: u64,
    /// TLS handshakes at once; none where no TLS is spoken.
    pub(crate) handshakes: Option<u64>,
    pub(crate) body_bytes: u64,
    /// Of all bodies together.
    pub(crate) bodies_bytes: u64,
    pub(crate) head_bytes: u64,
    pub(crate) subscribers: u64,
    pub(crate) writes: u64,
    pub(crate) cold_reads: u64,
    pub(crate) pipeline: u64,
    /// Of all connections together.
    pub(crate) unsent_bytes: u64,
    /// Of JSON-RPC answers that wait, in all.
    pub(crate) answers_bytes: u64,
    /// Clients of services on this machine.
    pub(crate) neighbours: u64,
    /// Of each of these.
    pub(crate) neighbour_bytes: u64,
    /// Of all sessions of the state together.
    pub(crate) sessions_bytes: u64,
    /// Of calls of the state that wait for their turn.
    pub(crate) calls_bytes: u64,
    pub(crate) streams: u64,
    /// How many reactors bounds on requests and bytes are shared out over, evenly.
    pub(crate) reactors: u64,
    /// The reactors among them that serve streams.
    pub(crate) streaming: u64,
}

/// As many streams as were asked for, or as a part of the memory that there is holds.
pub(crate) fn streams_max(asked: Option<u64>, available: Option<u64>) -> u64 {
    let held = available.map_or(u64::MAX, |bytes| bytes / STREAMS_PARTS / STREAM_BYTES);
    asked.unwrap_or_else(|| held.clamp(1, STREAMS_DEFAULT))
}

impl Limits {
    /// The bounds of `reactors` that each go by `config` and share the places of connections, `sealed` where
    /// these speak TLS.
    pub(crate) fn of(config: &Config, streaming: usize, reactors: usize, sealed: bool) -> Self {
        let (reactors, connections) = (reactors as u64, config.connections_max as u64);
        Self {
            connections,
            handshakes: sealed.then(|| (config.handshakes_max as u64 * reactors).min(connections)),
            body_bytes: config.body_bytes_max,
            bodies_bytes: config.bodies_bytes_max.saturating_mul(reactors),
            head_bytes: config.head_limits.head_bytes_max as u64,
            subscribers: (config.subscribers_max as u64 * streaming as u64).min(connections),
            writes: config.writes_max as u64 * reactors,
            cold_reads: config.cold_reads_max as u64 * reactors,
            pipeline: config.pipeline_max as u64,
            unsent_bytes: config.unsent_bytes_max.saturating_mul(reactors),
            answers_bytes: 0,
            neighbours: 0,
            neighbour_bytes: 0,
            sessions_bytes: 0,
            calls_bytes: 0,
            streams: 0,
            reactors,
            streaming: streaming as u64,
        }
    }

    /// With how many streams there may be.
    pub(crate) const fn with_streams(mut self, streams: u64) -> Self {
        self.streams = streams;
        self
    }

    /// With what answers by JSON-RPC may take that wait.
    pub(crate) const fn with_answers(mut self, bytes: u64) -> Self {
        self.answers_bytes = bytes;
        self
    }

    /// With the number of clients of services on this machine, and what each may leave unsent.
    pub(crate) const fn with_neighbours(mut self, clients: u64, bytes: u64) -> Self {
        (self.neighbours, self.neighbour_bytes) = (clients, bytes);
        self
    }

    /// With what sessions of the state may hold, and calls of it that wait.
    pub(crate) const fn with_state(mut self, sessions_bytes: u64, calls_bytes: u64) -> Self {
        (self.sessions_bytes, self.calls_bytes) = (sessions_bytes, calls_bytes);
        self
    }

    /// Bytes while every connection and every stream is there, and idle.
    pub(crate) fn idle_bytes(&self) -> u64 {
        let connections = self.connections * (IDLE_BYTES + self.handshakes.map_or(0, |_| KEYS_BYTES));
        connections.saturating_add(self.streams.saturating_mul(STREAM_BYTES))
    }

    /// Bytes if every bound were reached at once: each connection in the middle of a request, its head and
    /// what of a small body in chunks was taken out of them, and behind TLS of a record, as many handshakes
    /// as there may be, as much of bodies and of what is unsent as there is room for (a quarter more, until
    /// the slowest readers are cut), every write that may wait, all that JSON-RPC answers, sessions and calls
    /// of the state may take, and every stream. Not what this machine's own programs leave unsent
    /// ([`Limits::neighbours_bytes`]).
    pub(crate) fn busy_bytes(&self) -> u64 {
        let bodies = self.connections.saturating_mul(self.body_bytes).min(self.bodies_bytes);
        let unsent = self.unsent_bytes.saturating_add(self.unsent_bytes / 4);
        let record = self.handshakes.map_or(0, |_| RECORD_BYTES);
        // A body that is no larger than a head may be is counted with none of the others.
        let each = ACTIVE_BYTES + BUFFER_BYTES.max(self.head_bytes) + self.head_bytes + record;
        let connections = self.idle_bytes().saturating_add(self.connections.saturating_mul(each));
        let handshakes = self.handshakes.unwrap_or(0).saturating_mul(HANDSHAKE_BYTES);
        let writes = self.writes.saturating_mul(WRITE_BYTES);
        [bodies, unsent, handshakes, self.answers_bytes, self.sessions_bytes, self.calls_bytes, writes]
            .into_iter()
            .fold(connections, u64::saturating_add)
    }

    /// Bytes on top if there were as many clients of services on this machine as there may be, and none of
    /// them read. They are of the same user, who has the memory either way, and so many that memory is never
    /// made for all of them: said, and not held against what there is.
    pub(crate) fn neighbours_bytes(&self) -> u64 {
        self.neighbours.saturating_mul(self.neighbour_bytes)
    }
}

impl Limits {
    /// What is said of them, by what it is about.
    pub(crate) fn lines(&self) -> Vec<String> {
        let handshakes = self.handshakes.map(|count| format!(", {count} in TLS handshakes"));
        let connections = format!(
            "{}, {} of them subscribers{}; {}",
            Count(self.connections, "connection"),
            self.subscribers,
            handshakes.unwrap_or_default(),
            Count(self.streams, "stream")
        );
        let requests = format!(
            "{} a head, {} a body, {} all bodies that arrive; {} ahead each",
            Bytes(self.head_bytes),
            Bytes(self.body_bytes),
            Bytes(self.bodies_bytes),
            Count(self.pipeline, "request")
        );
        let waiting = format!(
            "{} waiting, {} waiting for the disk, {} unsent in all",
            Count(self.writes, "write"),
            Count(self.cold_reads, "read"),
            Bytes(self.unsent_bytes)
        );
        let services = format!(
            "{} in JSON-RPC answers, {} in sessions, {} in calls of the state",
            Bytes(self.answers_bytes),
            Bytes(self.sessions_bytes),
            Bytes(self.calls_bytes)
        );
        let mut lines = vec![connections, requests, waiting, services];
        if self.reactors > 1 {
            lines.push(format!(
                "all but connections and streams shared out over {} reactors, so that one may refuse before the whole is reached",
                self.reactors
            ));
        }
        let mut memory = format!(
            "{} of memory while all are idle, {} if all used everything at once",
            Bytes(self.idle_bytes()),
            Bytes(self.busy_bytes())
        );
        if self.neighbours > 0 {
            let (clients, bytes) = (Count(self.neighbours, "client"), Bytes(self.neighbours_bytes()));
            memory += &format!(", and {bytes} more if {clients} of services on this machine read nothing");
        }
        lines.push(memory);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_summed() {
        let config = Config {
            connections_max: 400,
            body_bytes_max: 1 << 20,
            bodies_bytes_max: 1 << 24,
            unsent_bytes_max: 1 << 22,
            writes_max: 1 << 10,
            subscribers_max: 50,
            cold_reads_max: 8,
            ..Config::default()
        };
        let limits = Limits::of(&config, 4, 4, false).with_answers(3 << 20).with_state(1 << 21, 1 << 20);
        assert_eq!(limits.idle_bytes(), 400 * 128);
        assert_eq!(limits.busy_bytes(), 400 * (128 + 512 + (32 << 10)) + (4 << 24) + (5 << 22) + (10 << 20));
        assert_eq!(
            limits.lines(),
            [
                "400 connections, 200 of them subscribers; 0 streams",
                "16 KiB a head, 1 MiB a body, 64 MiB all bodies that arrive; 64 requests ahead each",
                "4096 writes waiting, 32 reads waiting for the disk, 16 MiB unsent in all",
                "3 MiB in JSON-RPC answers, 2 MiB in sessions, 1 MiB in calls of the state",
                "all but connections and streams shared out over 4 reactors, so that one may refuse before the whole is reached",
                "50 KiB of memory while all are idle, 106.7 MiB if all used everything at once",
            ]
        );
        let with = limits.with_neighbours(200, 4 << 20);
        assert_eq!((with.busy_bytes(), with.neighbours_bytes()), (limits.busy_bytes(), 800 << 20));
        let more = ", and 800 MiB more if 200 clients of services on this machine read nothing";
        assert!(with.lines().last().unwrap().ends_with(more));

        let sealed = Limits::of(&config, 4, 4, true).with_answers(3 << 20).with_state(1 << 21, 1 << 20);
        assert_eq!(sealed.idle_bytes(), limits.idle_bytes() + 400 * (4 << 10));
        // No more handshakes than connections.
        let handshakes = 400 * (16 << 10);
        assert_eq!(sealed.busy_bytes(), limits.busy_bytes() + 400 * ((4 << 10) + (20 << 10)) + handshakes);
        assert!(sealed.lines()[0].contains(" 200 of them subscribers, 400 in TLS handshakes; "));
    }

    #[test]
    fn streams_are_summed_and_without_a_number_a_part_of_memory_says_how_many_there_may_be() {
        let limits = Limits::of(&Config { connections_max: 1, ..Config::default() }, 1, 1, false);
        let with = limits.with_streams(1_000);
        assert_eq!(with.idle_bytes(), limits.idle_bytes() + 400_000);
        assert_eq!(with.busy_bytes(), limits.busy_bytes() + 400_000);
        assert!(with.lines()[0].ends_with("; 1000 streams"));
        assert_eq!(with.lines().len(), 5, "one reactor shares nothing");
        let one = &limits.with_streams(1).lines()[0];
        assert!(one.starts_with("1 connection, ") && one.ends_with("; 1 stream"), "{one}");
        assert_eq!(with.with_streams(u64::MAX).busy_bytes(), u64::MAX);

        assert_eq!(streams_max(Some(7), Some(1)), 7);
        assert_eq!(streams_max(None, Some(1 << 30)), (1 << 28) / 400);
        assert_eq!(streams_max(None, Some(1 << 40)), 10_000_000);
        assert_eq!(streams_max(None, None), 10_000_000);
        assert_eq!(streams_max(None, Some(0)), 1);
    }
}
