//! What a measuring program prints, a line of JSON for each measurement. Every program, in whatever language,
//! prints the same lines.

use super::statistics::median;
use serde_json::Value;
use std::collections::BTreeMap;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    pub(crate) cost_us: f64,
    /// Entries that were read or written and what they add up to, if a fixed number of turns decided it.
    pub(crate) counted: Option<(u64, u64)>,
}

/// Measurements in the order of the pairs, by work and side.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<(String, String), Vec<Sample>>);

impl Samples {
    /// Takes a line in. A line that is no measurement is an error: nothing that was measured is passed over.
    ///
    /// # Errors
    /// What the line lacks.
    pub(crate) fn take(&mut self, line: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(line).map_err(|e| format!("{line}: {e}"))?;
        let text = |name: &str| value[name].as_str().ok_or_else(|| format!("no {name}: {line}"));
        let number = |name: &str| value[name].as_f64().ok_or_else(|| format!("no {name}: {line}"));
        let count = |name: &str| value[name].as_u64().ok_or_else(|| format!("no {name}: {line}"));
        let fixed = value["fixed"].as_bool().ok_or_else(|| format!("no fixed: {line}"))?;
        let counted = if fixed { Some((count("entries")?, count("digest")?)) } else { None };
        let sample = Sample { per_second: number("per_second")?, cost_us: number("processor_us")?, counted };
        let samples = self.0.entry((text("work")?.to_owned(), text("side")?.to_owned())).or_default();
        if count("pair")? != samples.len() as u64 {
            return Err(format!("pair {} follows: {line}", samples.len()));
        }
        samples.push(sample);
        Ok(())
    }

    /// One measurement of each work and side.
    #[cfg(test)]
    pub(crate) fn of_rates(rates: &[(&str, &str, f64)]) -> Self {
        let mut samples = Self::default();
        for (work, side, rate) in rates {
            samples.take(&Self::line(work, side, 0, *rate)).unwrap();
        }
        samples
    }

    /// The line that a measuring program prints.
    #[cfg(test)]
    pub(crate) fn line(work: &str, side: &str, pair: usize, rate: f64) -> String {
        serde_json::json!({
            "work": work, "side": side, "pair": pair, "per_second": rate, "processor_us": 0.5,
            "operations": 9, "entries": 9, "digest": 0, "fixed": false,
        })
        .to_string()
    }

    /// The measurements of a work by a side.
    pub(crate) fn of(&self, work: &str, side: &str) -> &[Sample] {
        self.0.get(&(work.to_owned(), side.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Their rates.
    pub(crate) fn rates(&self, work: &str, side: &str) -> Vec<f64> {
        self.of(work, side).iter().map(|sample| sample.per_second).collect()
    }

    /// What an operation of theirs costs, as a rule.
    pub(crate) fn cost_us(&self, work: &str, side: &str) -> Option<f64> {
        median(&self.of(work, side).iter().map(|sample| sample.cost_us).collect::<Vec<_>>())
    }
}
