//! What is counted in the measured span, and the report of it.

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

/// Latencies are kept in three digits.
const DIGITS: u8 = 3;

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Whether the span has begun and not ended.
    pub(crate) measuring: bool,
    /// Operations: answers, or records that were delivered.
    pub(crate) operations: u64,
    /// Requests that were under way, or due behind one that was, when the span ended.
    pub(crate) unanswered: u64,
    /// Bytes of bodies that were received.
    pub(crate) body_bytes: u64,
    /// Records that were appended and answered, measured or not.
    pub(crate) appended: u64,
    /// Streams that were created, forks among them, measured or not.
    pub(crate) created: u64,
    /// Answers that were a refusal, ends in the middle of something, and what else no client wants to see.
    /// Counted from the first moment on.
    pub(crate) failed: u64,
    /// Records that a follower missed, or received twice.
    pub(crate) out_of_order: u64,
    /// Streams that were to be created and were there already, as asked for or otherwise.
    pub(crate) existed: u64,
    /// The first few failures, in words.
    pub(crate) complaints: Vec<String>,
    latencies: Histogram<u64>,
}

impl Counts {
    const COMPLAINTS_MAX: usize = 8;

    pub(crate) fn new() -> Self {
        let mut latencies = Histogram::new(DIGITS).unwrap_or_else(|_| unreachable!("between one and five"));
        latencies.auto(true);
        Self {
            measuring: false,
            operations: 0,
            unanswered: 0,
            body_bytes: 0,
            appended: 0,
            created: 0,
            failed: 0,
            existed: 0,
            out_of_order: 0,
            complaints: Vec::new(),
            latencies,
        }
    }

    /// One operation, and its latency.
    pub(crate) fn done(&mut self, latency_ns: u64) {
        if self.measuring {
            self.operations += 1;
            // It grows as far as it has to.
            let _ = self.latencies.record(latency_ns);
        }
    }

    /// Requests of one age that the span's end found without an answer. They took longer than that.
    pub(crate) fn unanswered(&mut self, age_ns: u64, count: u64) {
        if self.measuring {
            self.unanswered += count;
            // It grows as far as it has to.
            let _ = self.latencies.record_n(age_ns, count);
        }
    }

    /// Bytes of a body came.
    pub(crate) fn came(&mut self, bytes: usize) {
        if self.measuring {
            self.body_bytes += bytes as u64;
        }
    }

    /// Something went wrong.
    pub(crate) fn fail(&mut self, says: impl FnOnce() -> String) {
        self.failed += 1;
        if self.complaints.len() < Self::COMPLAINTS_MAX {
            self.complaints.push(says());
        }
    }

    /// The figures of a span.
    pub(crate) fn report(&self, span_us: u64, server_us: Option<u64>) -> Map<String, Value> {
        let quantile = |share: f64| self.latencies.value_at_quantile(share) as f64 / 1e3;
        let seconds = span_us.max(1) as f64 / 1e6;
        let per = |us: u64, count: u64| (count > 0).then(|| us as f64 / count as f64);
        let mut report = Map::new();
        let mut put = |name: &str, value: Value| report.insert(name.to_owned(), value);
        put("operations", self.operations.into());
        put("unanswered", self.unanswered.into());
        put("failed", self.failed.into());
        put("outOfOrder", self.out_of_order.into());
        put("complaints", json!(self.complaints));
        put("bodyBytes", self.body_bytes.into());
        put("spanUs", span_us.into());
        put("perSecond", json!(self.operations as f64 / seconds));
        put("bytesPerSecond", json!(self.body_bytes as f64 / seconds));
        put("p50Us", json!(quantile(0.5)));
        put("p90Us", json!(quantile(0.9)));
        put("p99Us", json!(quantile(0.99)));
        put("p999Us", json!(quantile(0.999)));
        put("maxUs", json!(self.latencies.max() as f64 / 1e3));
        put("serverUs", json!(server_us));
        put("serverUsPerOperation", json!(server_us.and_then(|us| per(us, self.operations))));
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_measured_span_counts_but_every_failure_does() {
        let mut counts = Counts::new();
        counts.done(5);
        counts.fail(|| "early".to_owned());
        counts.measuring = true;
        (1..=1000).for_each(|us| counts.done(us * 1000));
        counts.came(10);
        let report = counts.report(2_000_000, Some(4_000));
        assert_eq!((&report["operations"], &report["failed"]), (&json!(1000), &json!(1)));
        assert_eq!((&report["perSecond"], &report["serverUsPerOperation"]), (&json!(500.0), &json!(4.0)));
        let (p50, p99) = (report["p50Us"].as_f64().unwrap(), report["p99Us"].as_f64().unwrap());
        assert!((p50 - 500.0).abs() <= 1.0 && (p99 - 990.0).abs() <= 1.0, "{p50} {p99}");
        assert_eq!(report["complaints"], json!(["early"]));
    }

    #[test]
    fn complaints_are_bounded() {
        let mut counts = Counts::new();
        (0..100).for_each(|n| counts.fail(|| n.to_string()));
        assert_eq!((counts.failed, counts.complaints.len()), (100, Counts::COMPLAINTS_MAX));
    }
}
