//! Bounds and patience of an HTTP listener.

use thalweg_wire::http1::Limits;

/// Overflow connections that a reactor has room for, whatever is configured.
pub const OVERFLOW_CONNECTIONS_MAX: usize = 64;

/// Bounds and patience, per reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bounds of a request head.
    pub head_limits: Limits,
    /// Bytes of a request body; more is refused with 413 before it is read.
    pub body_bytes_max: u64,
    /// Bytes of all bodies that are still arriving, each with the next stride of it (16 KiB, or a 64th of a
    /// larger body). At the bound bodies that were slow for a 16th of `body_timeout_ms` are answered 408;
    /// where none was, the body that needs more is refused with 503.
    pub bodies_bytes_max: u64,
    /// Answers to writes that may wait for the store; one more is refused with 503 before anything is done.
    pub writes_max: usize,
    /// Connections that may follow a topic; one more is answered 503.
    pub subscribers_max: usize,
    /// Bytes of all connections that the kernel has not taken, those that lie in the store's files included,
    /// and of answers that wait for one before them. What the kernel has taken does not count: on this
    /// machine that is about 256 KiB for a peer that is sent from files, else what its socket may grow to
    /// (`tcp_wmem`). At the bound readers are cut that took no stride for a 16th of `stall_timeout_ms`; where
    /// there is none, reads are refused with 503. Where those who follow a topic bring it a quarter beyond,
    /// the slowest are cut, however slow they are.
    pub unsent_bytes_max: u64,
    /// Reads that may wait for the disk; one more is refused with 503, and who follows a topic already waits
    /// for one of them.
    pub cold_reads_max: usize,
    /// Requests of one connection that may await their answers; then its reading pauses.
    pub pipeline_max: usize,
    /// Response bytes of one connection that are collected into one write before it happens; where they wait
    /// for an answer before them, its reading pauses.
    pub burst_bytes_max: usize,
    /// Connections at once, of all reactors that [share places](crate::Http::with_places); one more is an
    /// overflow connection.
    pub connections_max: usize,
    /// Overflow connections at once, 64 at most. Each may send one small request; any other is answered 503.
    /// One connection more is answered 503 at once.
    pub overflow_connections_max: usize,
    /// TLS handshakes under way at once. For a connection more the oldest is closed that has sent no record
    /// yet; where there is none, the new connection is.
    pub handshakes_max: usize,
    /// From the first byte of a request to the end of its head, else 408.
    pub head_timeout_ms: u32,
    /// From a connection's beginning to the end of its TLS handshake; then it is closed.
    pub handshake_timeout_ms: u32,
    /// For each further 16 KiB of a body, 64th part of a larger one, or what is left of it, else 408.
    pub body_timeout_ms: u32,
    /// Between two requests.
    pub idle_timeout_ms: u32,
    /// For each further 16 KiB of what the peer is sent, 64th part of more than 1 MiB, or what is left of it;
    /// then the connection is cut. What it took is looked at as often, so it may have twice as long.
    pub stall_timeout_ms: u32,
    /// How long a refused peer's bytes are still read, so that the refusal reaches it; and how long an
    /// overflow connection has to send its request.
    pub linger_ms: u32,
    /// After which a long-poll with nothing to say is answered.
    pub long_poll_timeout_ms: u32,
    /// Around which an SSE response ends, give or take an eighth so that reconnects come spread out.
    pub sse_lifetime_ms: u32,
    /// Between two SSE comments that keep proxies from giving up.
    pub sse_keep_alive_ms: u32,
    /// Writes come while the last one is no longer ago: then large reads make way for them.
    pub writes_apart_ms: u32,
    /// What many connections are sent together is handed to the kernel in one call (io_uring), where it
    /// allows that.
    pub batched_sends: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            head_limits: Limits::default(),
            body_bytes_max: 16 * 1024 * 1024,
            bodies_bytes_max: 256 * 1024 * 1024,
            writes_max: 65_536,
            subscribers_max: 65_536,
            unsent_bytes_max: 512 * 1024 * 1024,
            cold_reads_max: 512,
            pipeline_max: 64,
            burst_bytes_max: 256 * 1024,
            connections_max: 65_536,
            overflow_connections_max: OVERFLOW_CONNECTIONS_MAX,
            handshakes_max: 1_024,
            head_timeout_ms: 30_000,
            handshake_timeout_ms: 10_000,
            body_timeout_ms: 30_000,
            idle_timeout_ms: 75_000,
            stall_timeout_ms: 30_000,
            linger_ms: 2_000,
            long_poll_timeout_ms: 30_000,
            sse_lifetime_ms: 60_000,
            sse_keep_alive_ms: 15_000,
            writes_apart_ms: 100,
            batched_sends: true,
        }
    }
}

impl Config {
    /// An SSE lifetime, spread by `entropy` over the quarter around the configured one.
    pub(crate) fn sse_lifetime_ms(&self, entropy: u64) -> u32 {
        let spread = u64::from(self.sse_lifetime_ms / 4) + 1;
        // Below `spread`, which came from a u32: the cast loses nothing.
        self.sse_lifetime_ms - self.sse_lifetime_ms / 8 + (entropy % spread) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_spread_around_the_configured_one() {
        let config = Config::default();
        assert_eq!(config.sse_lifetime_ms(0), 52_500);
        assert_eq!(config.sse_lifetime_ms(15_000), 67_500);
        assert!((0..1000).all(|e| (52_500..=67_500).contains(&config.sse_lifetime_ms(e << 50 | e))));
        assert_eq!(Config { sse_lifetime_ms: 3, ..config }.sse_lifetime_ms(u64::MAX), 3);
    }
}
