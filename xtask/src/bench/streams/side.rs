//! The servers that are compared, each started fresh for every run.

use crate::harness::server::{Launch, Program};

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Ours,
    /// The crate `durable-streams`.
    Rust,
    /// The npm package `@durable-streams/server`.
    Node,
    /// A server that answers 204 to everything.
    Floor,
}

impl Side {
    /// How it is started.
    ///
    /// # Errors
    /// It does not build.
    pub(super) fn launch(self, durability: &str, connections: u64) -> Result<Launch, String> {
        const HOUR_MS: u64 = 3_600_000;
        let program = match self {
            Self::Ours => Program::Ours,
            Self::Rust => Program::Peer,
            Self::Node => Program::Node,
            Self::Floor => Program::Floor,
        };
        let launch = Launch::new(program, durability)?.long_poll_ms(HOUR_MS).sse_lifetime_ms(HOUR_MS);
        Ok(launch.with("--connections-max", connections))
    }

    /// Whether it is another project's.
    pub(super) fn is_peer(self) -> bool {
        matches!(self, Self::Rust | Self::Node)
    }

    /// Its name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "thalweg",
            Self::Rust => "durable-streams 0.1.5",
            Self::Node => "@durable-streams/server 0.3.7",
            Self::Floor => "the floor",
        }
    }
}
