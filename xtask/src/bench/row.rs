//! A row of results: one work, how fast each side did it, and what the ratio must reach.

use super::statistics::Spread;
use serde_json::{Value, json};

/// One work and what was measured of it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What was done.
    pub(crate) work: String,
    /// Of the three figures that follow.
    pub(crate) unit: &'static str,
    pub(crate) ours: Option<f64>,
    pub(crate) peer: Option<f64>,
    pub(crate) peer_name: String,
    pub(crate) floor: Option<f64>,
    /// Ours to the peer's, pair by pair.
    pub(crate) ratio: Option<Spread>,
    /// What the median ratio must reach.
    pub(crate) bar: Option<f64>,
    /// Processor microseconds per operation: ours, the peer's, the floor's.
    pub(crate) costs_us: [Option<f64>; 3],
    /// Through which language; empty where there is only one.
    pub(crate) face: &'static str,
    pub(crate) note: &'static str,
}

impl Row {
    /// Whether the bar was reached; `None` without a bar or without a ratio.
    pub(crate) fn met(&self) -> Option<bool> {
        Some(self.ratio?.median >= self.bar?)
    }

    /// What the floor would have for a ratio: no reader or writer of such entries can be expected to pass it.
    pub(crate) fn floor_ratio(&self) -> Option<f64> {
        Some(self.floor? / self.peer?)
    }

    /// As it is written to a file.
    pub(crate) fn json(&self, commit: Option<&str>, date: &str) -> Value {
        let [ours_us, peer_us, floor_us] = self.costs_us;
        json!({
            "work": self.work,
            "face": self.face,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer,
            "peer_name": self.peer_name,
            "floor": self.floor,
            "ratio": self.ratio.map(|r| r.median),
            "ratio_min": self.ratio.map(|r| r.least),
            "ratio_max": self.ratio.map(|r| r.most),
            "pairs": self.ratio.map_or(0, |r| r.count),
            "bar": self.bar,
            "met": self.met(),
            "pinning": "none",
            "ours_cost_us": ours_us,
            "peer_cost_us": peer_us,
            "floor_cost_us": floor_us,
            "processors": std::thread::available_parallelism().map_or(0, usize::from),
            "commit": commit,
            "date": date,
            "note": self.note,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of ratio 3.
    pub(crate) fn sample() -> Row {
        Row {
            work: "a scan".into(),
            unit: "entries/s",
            ours: Some(30.0),
            peer: Some(10.0),
            peer_name: "them".into(),
            floor: Some(40.0),
            ratio: Spread::of(&[2.0, 3.0, 4.0]),
            bar: Some(3.0),
            costs_us: [Some(1.0), Some(3.0), None],
            face: "native",
            note: "",
        }
    }

    #[test]
    fn a_bar_is_met_by_the_median() {
        let row = sample();
        assert_eq!((row.met(), row.floor_ratio()), (Some(true), Some(4.0)));
        assert_eq!(Row { bar: Some(3.1), ..sample() }.met(), Some(false));
        assert_eq!(Row { bar: None, ..sample() }.met(), None);
        assert_eq!(Row { ratio: None, ..sample() }.met(), None);
        let json = row.json(Some("abc"), "2030-01-01");
        assert_eq!((json["ratio"].as_f64(), json["ratio_max"].as_f64()), (Some(3.0), Some(4.0)));
        assert_eq!((json["pairs"].as_u64(), json["met"].as_bool()), (Some(3), Some(true)));
    }
}
