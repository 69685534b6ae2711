//! From what the load printed to rows. A ratio always says how many times as good ours is, so a figure of
//! which less is better has its ratio, and its bar, the other way round; the note says the bar in words.

use super::super::row::Row;
use super::super::statistics::{Spread, median};
use super::side::Side;
use super::works::{Against, Bar, Line, group};
use serde_json::Value;
use std::collections::BTreeMap;

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Rate,
    BytesRate,
    /// The server's processor time per operation.
    Cost,
    CostOfGib,
    P50,
    P99,
    /// Resident memory.
    BytesEach,
    /// Memory without pages of files, such as a log's.
    MemoryEach,
    /// Records that did not arrive.
    Missing,
}

impl Metric {
    pub(super) fn of(self, report: &Value) -> Option<f64> {
        let name = match self {
            Self::Rate => "perSecond",
            Self::BytesRate => "bytesPerSecond",
            Self::Cost => "serverUsPerOperation",
            Self::CostOfGib => "serverSecondsPerGib",
            Self::P50 => "p50Us",
            Self::P99 => "p99Us",
            Self::BytesEach => "residentBytesEach",
            Self::MemoryEach => "anonymousBytesEach",
            // One more than are missing, so that none can be compared with.
            Self::Missing => return report["missing"].as_f64().map(|missing| missing + 1.0),
        };
        report[name].as_f64()
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Rate => "1/s",
            Self::BytesRate => "bytes/s",
            Self::Cost => "processor µs each",
            Self::CostOfGib => "processor s/GiB",
            Self::P50 => "p50, µs",
            Self::P99 => "p99, µs",
            Self::BytesEach | Self::MemoryEach => "bytes each",
            Self::Missing => "1 + missing",
        }
    }

    fn more_is_better(self) -> bool {
        matches!(self, Self::Rate | Self::BytesRate)
    }
}

/// What was measured, in the order of the pairs, by work and side.
#[derive(Debug, Default)]
pub(super) struct Measured(BTreeMap<(&'static str, Side), Vec<Value>>);

impl Measured {
    pub(super) fn add(&mut self, work: &'static str, side: Side, report: Value) {
        self.0.entry((work, side)).or_default().push(report);
    }

    pub(super) fn of(&self, work: &'static str, side: Side) -> &[Value] {
        self.0.get(&(work, side)).map_or(&[], Vec::as_slice)
    }

    fn figures(&self, work: &'static str, side: Side, metric: Metric) -> Vec<f64> {
        self.of(work, side).iter().filter_map(|report| metric.of(report)).collect()
    }
}

/// The row of a line.
pub(super) fn row(line: &Line, measured: &Measured) -> Row {
    let figures = |work, side| measured.figures(work, side, line.metric);
    let ours = figures(line.work, Side::Ours);
    let (other, peer_name, side) = match line.against {
        Against::Side(side) => (figures(line.work, side), side.name().to_owned(), Some(side)),
        Against::Work(work) => (figures(work, Side::Ours), format!("ours, {work}"), None),
        Against::Times(times, work) => {
            let other = figures(work, Side::Ours).iter().map(|figure| figure * times).collect();
            (other, format!("{times} times ours, {work}"), None)
        }
        Against::Fixed(figure) => {
            let figure = if line.metric == Metric::Missing { figure + 1.0 } else { figure };
            (vec![figure; ours.len()], "what is asked".to_owned(), None)
        }
    };
    let ratio = if line.metric.more_is_better() {
        Spread::of_ratios(&ours, &other)
    } else {
        Spread::of_ratios(&other, &ours)
    };
    let cost = |side: Side| median(&measured.figures(line.work, side, Metric::Cost));
    Row {
        work: line.text.to_owned(),
        unit: line.metric.unit(),
        ours: median(&ours),
        peer: median(&other),
        peer_name,
        floor: median(&figures(line.work, Side::Floor)),
        ratio,
        bar: bar(line.bar),
        costs_us: [cost(Side::Ours), side.and_then(cost), cost(Side::Floor)],
        face: group(line.work),
        note: if line.metric.more_is_better() {
            ""
        } else {
            "less is better: the ratio is the other's to ours"
        },
    }
}

/// As a ratio of which more is better.
fn bar(bar: Bar) -> Option<f64> {
    match bar {
        Bar::AtLeast(times) => Some(times),
        Bar::AtMost(times) => Some(1.0 / times),
        Bar::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LINE: Line = Line {
        text: "t",
        work: "w",
        metric: Metric::Cost,
        against: Against::Side(Side::Rust),
        bar: Bar::AtMost(0.5),
    };

    fn measured(ours: &[f64], theirs: &[f64]) -> Measured {
        let mut measured = Measured::default();
        for (side, figures) in [(Side::Ours, ours), (Side::Rust, theirs)] {
            for figure in figures {
                measured.add(
                    "w",
                    side,
                    json!({ "serverUsPerOperation": figure, "perSecond": figure, "missing": 0 }),
                );
            }
        }
        measured
    }

    #[test]
    fn less_is_better_where_it_is_time() {
        let row_of = |ours: &[f64], theirs: &[f64]| row(&LINE, &measured(ours, theirs));
        let good = row_of(&[4.0, 5.0, 4.0], &[10.0, 10.0, 10.0]);
        assert_eq!((good.ratio.unwrap().median, good.met()), (2.5, Some(true)));
        assert_eq!(row_of(&[6.0], &[10.0]).met(), Some(false));
        assert_eq!((good.ours, good.peer, good.costs_us[1]), (Some(4.0), Some(10.0), Some(10.0)));
    }

    #[test]
    fn rates_and_fixed_figures() {
        let rate = Line { metric: Metric::Rate, bar: Bar::AtLeast(0.75), ..LINE };
        assert_eq!(row(&rate, &measured(&[8.0], &[10.0])).met(), Some(true));
        assert_eq!(row(&rate, &measured(&[7.0], &[10.0])).met(), Some(false));
        let missing =
            Line { metric: Metric::Missing, against: Against::Fixed(0.0), bar: Bar::AtMost(1.0), ..LINE };
        assert_eq!(row(&missing, &measured(&[1.0], &[])).met(), Some(true));
        assert_eq!(row(&LINE, &Measured::default()).met(), None);
    }
}
