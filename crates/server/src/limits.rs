//! What the server may take in all, from what each connection may: said at the start, so that nobody finds out
//! under load.

use std::fmt;
use thalweg_http::Config;

/// Bytes of memory an idle connection costs at most; `cargo xtask slopes` measures it.
const IDLE_BYTES: u64 = 128;
/// Bytes of a reactor's buffer, which a connection borrows while bytes are in flight.
const BUFFER_BYTES: u64 = 16 << 10;

/// Bounds in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) connections: u64,
    pub(crate) body_bytes: u64,
    /// Of all bodies together.
    pub(crate) bodies_bytes: u64,
    pub(crate) pipeline: u64,
    pub(crate) unsent_bytes: u64,
}

impl Limits {
    /// The bounds of `reactors` that each go by `config`.
    pub(crate) fn of(config: &Config, reactors: usize) -> Self {
        let (reactors, connections) = (reactors as u64, config.connections_max as u64);
        Self {
            connections: connections * reactors,
            body_bytes: config.body_bytes_max,
            bodies_bytes: config.bodies_bytes_max.saturating_mul(reactors),
            pipeline: config.pipeline_max as u64,
            unsent_bytes: config.burst_bytes_max as u64,
        }
    }

    /// Bytes while every connection is idle.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.connections * IDLE_BYTES
    }

    /// Bytes if every connection had as much of a body half sent as there is room for, and a whole burst unread.
    pub(crate) fn busy_bytes(&self) -> u64 {
        let bodies = self.connections.saturating_mul(self.body_bytes).min(self.bodies_bytes);
        self.connections.saturating_mul(IDLE_BYTES + BUFFER_BYTES + self.unsent_bytes).saturating_add(bodies)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} connections, {} a body and {} all that arrive, {} requests ahead and {} unsent each; {} while all are idle, {} if all used \
             everything at once",
            self.connections,
            Bytes(self.body_bytes),
            Bytes(self.bodies_bytes),
            self.pipeline,
            Bytes(self.unsent_bytes),
            Bytes(self.idle_bytes()),
            Bytes(self.busy_bytes())
        )
    }
}

/// A number of bytes, for people.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let power = (self.0.max(1).ilog2() / 10).min(5);
        let whole = self.0 >> (10 * power);
        let tenths = ((self.0 - (whole << (10 * power))) * 10) >> (10 * power);
        let unit = units[power as usize];
        if tenths == 0 { write!(out, "{whole} {unit}") } else { write!(out, "{whole}.{tenths} {unit}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_summed() {
        let config = Config {
            connections_max: 100,
            body_bytes_max: 1 << 20,
            bodies_bytes_max: 1 << 24,
            burst_bytes_max: 1 << 18,
            ..Config::default()
        };
        let limits = Limits::of(&config, 4);
        assert_eq!(limits.idle_bytes(), 400 * 128);
        assert_eq!(limits.busy_bytes(), 400 * (128 + (16 << 10) + (1 << 18)) + (4 << 24));
        let text = limits.to_string();
        assert!(
            text.starts_with("400 connections, 1 MiB a body and 64 MiB all that arrive, 64 requests ahead and 256 KiB unsent"),
            "{text}"
        );
        assert!(text.contains("50 KiB while all are idle, 170.2 MiB if all"), "{text}");
    }

    #[test]
    fn bytes_for_people() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), (u64::MAX, "16383.9 PiB")]
        {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
