//! What a measuring program prints, a line of JSON for each measurement, and the rows that follow from it. Every
//! language's program prints the same lines.

use super::super::row::Row;
use super::super::statistics::{Spread, median};
use super::works::{FLOOR, INDEPENDENT_BAR, PEER_KEYS, PEER_MAP, Work};
use crate::Tally;
use serde_json::Value;
use std::collections::BTreeMap;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    per_second: f64,
    cost_us: f64,
    /// Entries that were read or written and what they add up to, if a fixed number of turns decided it.
    counted: Option<(u64, u64)>,
}

/// Measurements in the order of the pairs, by work (`group/threads`) and side.
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

    fn of(&self, group: &str, threads: u32, side: &str) -> &[Sample] {
        let key = (format!("{group}/{threads}"), side.to_owned());
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }

    fn rates(&self, group: &str, threads: u32, side: &str) -> Vec<f64> {
        self.of(group, threads, side).iter().map(|sample| sample.per_second).collect()
    }

    /// The row of a work with so many threads.
    pub(crate) fn row(
        &self,
        work: &Work,
        threads: u32,
        entries: &str,
        face: &'static str,
        peer: &str,
    ) -> Row {
        let rates = |side| self.rates(work.group, threads, side);
        let cost = |side| {
            let samples = self.of(work.group, threads, side);
            median(&samples.iter().map(|sample| sample.cost_us).collect::<Vec<_>>())
        };
        let peer_name = match work.against {
            FLOOR => "the floor".to_owned(),
            _ if work.group == "neighbour" => "a reader in the same process".to_owned(),
            PEER_MAP => format!("{peer}, MDB_WRITEMAP"),
            PEER_KEYS => format!("{peer}, keys only"),
            _ => peer.to_owned(),
        };
        Row {
            work: name(work, threads, entries),
            unit: work.unit,
            ours: median(&rates(work.ours)),
            peer: median(&rates(work.against)),
            peer_name,
            floor: median(&rates(FLOOR)),
            ratio: Spread::of_ratios(&rates(work.ours), &rates(work.against)),
            bar: work.bar,
            costs_us: [cost(work.ours), cost(work.against), cost(FLOOR)],
            face,
            note: work.note,
        }
    }

    /// How eight readers fare to one, compared with how they fare on the floor.
    pub(crate) fn independence(&self, group: &str, text: &str, entries: &str, face: &'static str) -> Row {
        let gain = |side| {
            let (one, eight) = (self.rates(group, 1, side), self.rates(group, 8, side));
            eight.iter().zip(&one).map(|(eight, one)| eight / one).collect::<Vec<f64>>()
        };
        let (ours, floor) = (gain("ours"), gain(FLOOR));
        Row {
            work: text.replace("{n}", entries),
            unit: "times one reader",
            ours: median(&ours),
            peer: median(&floor),
            peer_name: "the floor".to_owned(),
            floor: median(&floor),
            ratio: Spread::of_ratios(&ours, &floor),
            bar: Some(INDEPENDENT_BAR),
            costs_us: [None; 3],
            face,
            note: "",
        }
    }

    /// Checks that a work was measured on both sides in every pair, and that both read or wrote the same.
    pub(crate) fn check(&self, work: &Work, threads: u32, pairs: usize, tally: &mut Tally) {
        let (ours, theirs) =
            (self.of(work.group, threads, work.ours), self.of(work.group, threads, work.against));
        tally.check(ours.len() == pairs && theirs.len() == pairs, || {
            format!("{}/{threads}: {} and {} samples of {pairs}", work.group, ours.len(), theirs.len())
        });
        let counts = |samples: &[Sample]| samples.iter().filter_map(|s| s.counted).collect::<Vec<_>>();
        if work.countable {
            tally.check(counts(ours) == counts(theirs), || {
                format!("{}/{threads}: {:?} here, {:?} there", work.group, counts(ours), counts(theirs))
            });
        }
    }
}

fn name(work: &Work, threads: u32, entries: &str) -> String {
    let text = work.text.replace("{n}", entries);
    match (work.thread, threads) {
        ("", _) => text,
        (thread, 1) => format!("{text}, 1 {thread}"),
        (thread, _) => format!("{text}, {threads} {thread}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::works::NATIVE;
    use super::*;

    fn line(work: &str, side: &str, pair: u64, rate: f64, entries: u64) -> String {
        serde_json::json!({
            "work": work, "side": side, "pair": pair, "per_second": rate, "processor_us": 0.5,
            "operations": entries, "entries": entries, "digest": entries * 100, "fixed": true,
        })
        .to_string()
    }

    fn scan() -> &'static Work {
        NATIVE.iter().find(|work| work.group == "scan").unwrap()
    }

    #[test]
    fn rows_follow_from_lines() {
        let mut samples = Samples::default();
        for (pair, (ours, peer)) in [(30.0, 10.0), (80.0, 20.0)].into_iter().enumerate() {
            samples.take(&line("scan/2", "ours", pair as u64, ours, 7)).unwrap();
            samples.take(&line("scan/2", "peer", pair as u64, peer, 7)).unwrap();
        }
        let row = samples.row(scan(), 2, "1,000", "native", "LMDB");
        assert_eq!((row.work.as_str(), row.peer_name.as_str()), ("scan of 1,000 entries, 2 readers", "LMDB"));
        assert_eq!((row.ours, row.peer, row.floor), (Some(55.0), Some(15.0), None));
        assert_eq!(row.ratio.unwrap().median, 3.5);
        let mut tally = Tally::default();
        samples.check(scan(), 2, 2, &mut tally);
        assert_eq!(tally, Tally { passed: 2, failed: 0 });
    }

    #[test]
    fn what_is_missing_or_differs_fails() {
        let mut samples = Samples::default();
        samples.take(&line("scan/1", "ours", 0, 30.0, 7)).unwrap();
        let mut tally = Tally::default();
        samples.check(scan(), 1, 1, &mut tally);
        assert_eq!(tally.failed, 2, "no peer: neither there nor equal");
        samples.take(&line("scan/1", "peer", 0, 30.0, 6)).unwrap();
        let mut tally = Tally::default();
        samples.check(scan(), 1, 1, &mut tally);
        assert_eq!(tally, Tally { passed: 1, failed: 1 });
        assert!(samples.take(&line("scan/1", "ours", 2, 1.0, 7)).unwrap_err().contains("pair 1 follows"));
        assert!(samples.take("building").is_err() && samples.take("{}").is_err());
    }

    #[test]
    fn independence_is_a_ratio_of_ratios() {
        let mut samples = Samples::default();
        for (side, one, eight) in [("ours", 10.0, 18.0), ("floor", 20.0, 40.0)] {
            samples.take(&line("scan/1", side, 0, one, 1)).unwrap();
            samples.take(&line("scan/8", side, 0, eight, 8)).unwrap();
        }
        let row = samples.independence("scan", "scan of {n}", "9", "native");
        assert_eq!(
            (row.ours, row.peer, row.ratio.unwrap().median, row.met()),
            (Some(1.8), Some(2.0), 0.9, Some(false))
        );
    }
}
