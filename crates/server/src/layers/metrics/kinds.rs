//! What memory goes into, kind by kind.
//!
//! What is counted in bytes is shown as it is counted; what is counted by number is shown as so many times
//! what one costs at most by measurement ([`crate::bounds::costs`]). So a kind is no more than this, and all
//! of them together leave out what the program itself takes, buffers in use, and pages of the log.

use crate::bounds::costs::{IDLE_BYTES, KEYS_BYTES, STREAM_BYTES};
use crate::engine::Engine;
use std::fs;
use thalweg_http::Traffic;
use thalweg_log::Stats;

/// What the system says that this process has in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Resident {
    /// All of it.
    bytes: u64,
    /// Pages of files, which the system takes back when it needs them.
    files_bytes: u64,
}

impl Resident {
    /// Of `/proc/self/status`; nothing where the system does not say.
    fn of(status: &str) -> Self {
        let kib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0)
        };
        Self { bytes: kib("VmRSS") * 1_024, files_bytes: kib("RssFile") * 1_024 }
    }
}

fn resident() -> Resident {
    Resident::of(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// Resident memory of this process; 0 where the system does not say.
pub(crate) fn resident_bytes() -> u64 {
    resident().bytes
}

/// Every kind and its bytes.
pub(super) fn kinds<'r>(
    engine: &Engine,
    stats: &Stats,
    traffic: impl Iterator<Item = &'r Traffic> + Clone,
) -> [(&'static str, u64); 10] {
    let sum = |value: fn(&Traffic) -> u64| traffic.clone().map(value).sum::<u64>();
    let Resident { bytes, files_bytes } = resident();
    let subscribers = sum(|t| t.subscribers);
    // Each is read for itself, so one may be ahead of another.
    let connections = sum(Traffic::connections).saturating_sub(subscribers);
    [
        ("resident", bytes),
        ("files", files_bytes),
        ("streams", stats.logs * STREAM_BYTES),
        ("connections", connections * IDLE_BYTES),
        ("subscribers", subscribers * IDLE_BYTES),
        ("tls", sum(|t| t.sealed) * KEYS_BYTES),
        ("sessions", engine.state().sessions_bytes() as u64),
        ("time_indexes", stats.index_bytes),
        ("unsent", sum(|t| t.unsent_bytes)),
        ("bodies", sum(|t| t.bodies_bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read_and_what_it_does_not_say_is_nothing() {
        let status = "Name:\tthalweg\nVmRSS:\t   12000 kB\nRssAnon:\t    7000 kB\nRssFile:\t    5000 kB\n";
        assert_eq!(Resident::of(status), Resident { bytes: 12_000 << 10, files_bytes: 5_000 << 10 });
        assert_eq!(Resident::of("VmRSSX:\t1 kB\nVmRSS:\tmuch\n"), Resident::default());
        assert!(resident_bytes() > 1 << 20);
    }
}
