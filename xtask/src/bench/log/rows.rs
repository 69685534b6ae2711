//! The rows that follow from what the measuring programs print.

use super::super::row::Row;
use super::super::samples::{Sample, Samples};
use super::super::statistics::{Spread, median};
use super::works::{FLOOR, INDEPENDENT_BAR, PEER_KEYS, PEER_MAP, Work};
use crate::Tally;

/// How each row says in what state the store is.
const COLD: &str = "cold";
const WARM: &str = "warm, verified";

/// What a group's samples with so many threads are called.
fn key(group: &str, threads: u32) -> String {
    format!("{group}/{threads}")
}

/// The row of a work with so many threads.
pub(crate) fn row(
    samples: &Samples,
    work: &Work,
    threads: u32,
    entries: &str,
    face: &'static str,
    peer: &str,
) -> Row {
    let rates = |side| samples.rates(&key(work.group, threads), side);
    let cost = |side| samples.cost_us(&key(work.group, threads), side);
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
pub(crate) fn independence(
    samples: &Samples,
    group: &str,
    text: &str,
    entries: &str,
    face: &'static str,
) -> Row {
    let gain = |side| {
        let (one, eight) = (samples.rates(&key(group, 1), side), samples.rates(&key(group, 8), side));
        eight.iter().zip(&one).map(|(eight, one)| eight / one).collect::<Vec<f64>>()
    };
    let (ours, floor) = (gain("ours"), gain(FLOOR));
    Row {
        work: format!("{}; {WARM}", text.replace("{n}", entries)),
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
pub(crate) fn check(samples: &Samples, work: &Work, threads: u32, pairs: usize, tally: &mut Tally) {
    let key = key(work.group, threads);
    let (ours, theirs) = (samples.of(&key, work.ours), samples.of(&key, work.against));
    tally.check(ours.len() == pairs && theirs.len() == pairs, || {
        format!("{key}: {} and {} samples of {pairs}", ours.len(), theirs.len())
    });
    let counts = |samples: &[Sample]| samples.iter().filter_map(|s| s.counted).collect::<Vec<_>>();
    if work.countable {
        tally.check(counts(ours) == counts(theirs), || {
            format!("{key}: {:?} here, {:?} there", counts(ours), counts(theirs))
        });
    }
}

fn name(work: &Work, threads: u32, entries: &str) -> String {
    let text = work.text.replace("{n}", entries);
    let state = if work.cold { COLD } else { WARM };
    match (work.thread, threads) {
        ("", _) => format!("{text}; {state}"),
        (thread, 1) => format!("{text}, 1 {thread}; {state}"),
        (thread, _) => format!("{text}, {threads} {thread}s; {state}"),
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
        let row = row(&samples, scan(), 2, "1,000", "native", "LMDB");
        assert_eq!(
            (row.work.as_str(), row.peer_name.as_str()),
            ("scan of 1,000 entries, 2 readers; warm, verified", "LMDB")
        );
        assert_eq!((row.ours, row.peer, row.floor), (Some(55.0), Some(15.0), None));
        assert_eq!(row.ratio.unwrap().median, 3.5);
        let mut tally = Tally::default();
        check(&samples, scan(), 2, 2, &mut tally);
        assert_eq!(tally, Tally { passed: 2, failed: 0 });
    }

    #[test]
    fn what_is_missing_or_differs_fails() {
        let mut samples = Samples::default();
        samples.take(&line("scan/1", "ours", 0, 30.0, 7)).unwrap();
        let mut tally = Tally::default();
        check(&samples, scan(), 1, 1, &mut tally);
        assert_eq!(tally.failed, 2, "no peer: neither there nor equal");
        samples.take(&line("scan/1", "peer", 0, 30.0, 6)).unwrap();
        let mut tally = Tally::default();
        check(&samples, scan(), 1, 1, &mut tally);
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
        let row = independence(&samples, "scan", "scan of {n}", "9", "native");
        assert_eq!(
            (row.ours, row.peer, row.ratio.unwrap().median, row.met()),
            (Some(1.8), Some(2.0), 0.9, Some(false))
        );
    }
}
