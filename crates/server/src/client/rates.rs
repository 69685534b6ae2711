//! What happened on a server between two looks at `/v1/stats`, as one line.
//!
//! Counts there begin at 0 with each start: one that is smaller than before is of a server that was started
//! anew, and all of it is new. What cannot be said of an interval, as how long a sync took where there was
//! none, is a dash, in JSON `null`.

use crate::quantity::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg_wire::rfc3339;

/// What is read of `/v1/stats`; what an older server does not say is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Sample {
    streams: u64,
    records: u64,
    syncs: u64,
    synced_commits: u64,
    sync_us: u64,
    connections: u64,
    subscribers: u64,
    appends: u64,
    append_us: u64,
    delivered: u64,
    refusals: u64,
    received_bytes: u64,
    sent_bytes: u64,
    memory_bytes: u64,
}

/// An interval.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rates {
    /// When it ended.
    at: String,
    seconds: f64,
    appends_per_second: f64,
    received_bytes_per_second: f64,
    sent_bytes_per_second: f64,
    delivered_per_second: f64,
    connections: u64,
    subscribers: u64,
    /// Commits that one sync made durable, and how long one took, on average.
    group_commits: Option<f64>,
    sync_ms: Option<f64>,
    /// What an append took in the server, on average.
    append_ms: Option<f64>,
    streams: u64,
    memory_bytes: u64,
    /// During the interval.
    refusals: u64,
}

/// Columns and their widths.
const COLUMNS: [(&str, usize); 13] = [
    ("time", 8),
    ("appends/s", 9),
    ("in/s", 9),
    ("out/s", 9),
    ("deliv/s", 9),
    ("conns", 7),
    ("subs", 7),
    ("group", 6),
    ("sync ms", 7),
    ("append ms", 9),
    ("streams", 8),
    ("memory", 9),
    ("refused", 7),
];

impl Rates {
    /// What came between two looks, so long apart; the second one at `at_us` since the epoch.
    pub(super) fn between(before: &Sample, now: &Sample, apart: Duration, at_us: u64) -> Self {
        let anew = now.records < before.records || now.received_bytes < before.received_bytes;
        let nothing = Sample::default();
        let before = if anew { &nothing } else { before };
        let seconds = apart.as_secs_f64().max(1e-6);
        let grown = |count: fn(&Sample) -> u64| count(now).saturating_sub(count(before));
        let rate = |count| round(grown(count) as f64 / seconds);
        let mean = |sum, count, unit: f64| {
            let many = grown(count);
            (many > 0).then(|| round(grown(sum) as f64 * unit / many as f64))
        };
        Self {
            at: rfc3339::format(at_us / 1_000_000 * 1_000_000).unwrap_or_default(),
            seconds: round(seconds),
            appends_per_second: rate(|look| look.records),
            received_bytes_per_second: rate(|look| look.received_bytes),
            sent_bytes_per_second: rate(|look| look.sent_bytes),
            delivered_per_second: rate(|look| look.delivered),
            connections: now.connections,
            subscribers: now.subscribers,
            group_commits: mean(|look| look.synced_commits, |look| look.syncs, 1.0),
            sync_ms: mean(|look| look.sync_us, |look| look.syncs, 1e-3),
            append_ms: mean(|look| look.append_us, |look| look.appends, 1e-3),
            streams: now.streams,
            memory_bytes: now.memory_bytes,
            refusals: grown(|look| look.refusals),
        }
    }

    /// What stands above the lines.
    pub(super) fn header() -> String {
        line(COLUMNS.map(|(name, _)| name.to_owned()))
    }

    pub(super) fn text(&self) -> String {
        let whole = |rate: f64| format!("{rate:.0}");
        let part = |mean: Option<f64>| mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.2}"));
        line([
            self.at.get(11..19).unwrap_or_default().to_owned(),
            whole(self.appends_per_second),
            bytes(self.received_bytes_per_second),
            bytes(self.sent_bytes_per_second),
            whole(self.delivered_per_second),
            self.connections.to_string(),
            self.subscribers.to_string(),
            self.group_commits.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.1}")),
            part(self.sync_ms),
            part(self.append_ms),
            self.streams.to_string(),
            bytes(self.memory_bytes as f64),
            self.refusals.to_string(),
        ])
    }
}

fn line(cells: [String; COLUMNS.len()]) -> String {
    let padded = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:>width$}"));
    padded.collect::<Vec<_>>().join(" ")
}

/// Without a space, so that a line is split where its columns are.
fn bytes(count: f64) -> String {
    Bytes(count as u64).to_string().replace(' ', "")
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(count: u64) -> Sample {
        Sample {
            streams: 3,
            records: 1_000 * count,
            syncs: 10 * count,
            synced_commits: 40 * count,
            sync_us: 2_500 * count,
            connections: 7,
            subscribers: 5,
            appends: 100 * count,
            append_us: 125_000 * count,
            delivered: 50 * count,
            refusals: count,
            received_bytes: 4_096 * count,
            sent_bytes: 1_536 * count,
            memory_bytes: 5 << 20,
        }
    }

    #[test]
    fn an_interval_is_what_counts_grew_by_in_its_time() {
        let rates = Rates::between(&look(10), &look(14), Duration::from_secs(2), 1_893_456_000_250_000);
        assert_eq!((rates.at.as_str(), rates.seconds), ("2030-01-01T00:00:00Z", 2.0));
        assert_eq!((rates.appends_per_second, rates.delivered_per_second), (2_000.0, 100.0));
        assert_eq!((rates.received_bytes_per_second, rates.sent_bytes_per_second), (8_192.0, 3_072.0));
        assert_eq!(
            (rates.group_commits, rates.sync_ms, rates.append_ms),
            (Some(4.0), Some(0.25), Some(1.25))
        );
        assert_eq!((rates.connections, rates.subscribers, rates.refusals), (7, 5, 4));
        let cells = rates.text();
        let cells: Vec<&str> = cells.split_whitespace().collect();
        let wanted =
            ["00:00:00", "2000", "8KiB", "3KiB", "100", "7", "5", "4.0", "0.25", "1.25", "3", "5MiB", "4"];
        assert_eq!(cells, wanted);
    }

    #[test]
    fn lines_stand_under_their_header_and_an_interval_without_a_sync_has_none() {
        let rates = Rates::between(&look(1), &look(1), Duration::from_secs(1), 0);
        assert_eq!((rates.group_commits, rates.sync_ms, rates.append_ms), (None, None, None));
        assert_eq!(rates.text().len(), Rates::header().len());
        assert_eq!(rates.text().split_whitespace().filter(|cell| *cell == "-").count(), 3);
        let json = serde_json::to_value(&rates).unwrap();
        assert!(json["syncMs"].is_null() && json["appendsPerSecond"] == 0.0, "{json}");
    }

    #[test]
    fn counts_of_a_server_that_was_started_anew_are_all_new() {
        let rates = Rates::between(&look(10), &look(2), Duration::from_secs(1), 0);
        assert_eq!((rates.appends_per_second, rates.refusals), (2_000.0, 2));
    }

    #[test]
    fn what_an_older_server_does_not_say_is_nothing() {
        let old = r#"{"durability":"sync","streams":2,"storedBytes":5,"segments":1,"damagedSpans":0}"#;
        let look: Sample = serde_json::from_str(old).unwrap();
        assert_eq!(look, Sample { streams: 2, ..Sample::default() });
    }
}
