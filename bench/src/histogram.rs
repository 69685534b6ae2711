//! Latencies in microseconds, kept so that quantiles cost nothing while measuring.

const LIMIT_US: usize = 2_000_000;

/// Counts per microsecond, the last one for everything above two seconds.
#[derive(Debug)]
pub struct Histogram {
    counts: Vec<u32>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; LIMIT_US + 1], total: 0 }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&mut self, latency_us: u64) {
        let at = usize::try_from(latency_us).unwrap_or(LIMIT_US).min(LIMIT_US);
        self.counts[at] = self.counts[at].saturating_add(1);
        self.total += 1;
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The latency that `per_mille` of a thousand operations did not exceed, in microseconds.
    pub fn quantile(&self, per_mille: u64) -> u64 {
        let wanted = (self.total * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (latency_us, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted && seen > 0 {
                return latency_us as u64;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_the_microsecond() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(500), 0);
        (1..=1000).for_each(|us| histogram.record(us));
        histogram.record(u64::MAX);
        assert_eq!(histogram.total(), 1001);
        assert_eq!(histogram.quantile(500), 501);
        assert_eq!(histogram.quantile(990), 991);
        assert_eq!(histogram.quantile(1000), 2_000_000);
    }
}
