//! A measured figure with its unit, as people say it: 12 ms and not 12,000 µs. The units are those of the
//! rows.

/// What a figure of a unit is called, and the figure with the unit that fits its size.
pub(crate) fn spoken(unit: &str, value: Option<f64>) -> (String, String) {
    let (label, shown): (&str, fn(f64) -> String) = match unit {
        "1/s" => ("rate", |v| scaled(v, &[(1e6, " M/s"), (1e3, " k/s"), (1.0, "/s")])),
        "bytes/s" => ("throughput", |v| scaled(v, &[(1e9, " GB/s"), (1e6, " MB/s"), (1.0, " B/s")])),
        "bytes each" => ("memory each", |v| scaled(v, &[(1e6, " MB"), (1e3, " kB"), (1.0, " B")])),
        "processor µs each" => ("processor time each", microseconds),
        "processor s/GiB" => ("processor time per GiB", |v| microseconds(v * 1e6)),
        "p50, µs" => ("p50", microseconds),
        "p99, µs" => ("p99", microseconds),
        // One more than are missing, in the rows.
        "1 + missing" => ("records missing", |v| format!("{:.0}", v - 1.0)),
        other => (other, |v| scaled(v, &[(1e6, " M"), (1e3, " k"), (1.0, "")])),
    };
    (label.to_owned(), value.map_or_else(|| "–".to_owned(), shown))
}

fn microseconds(value: f64) -> String {
    scaled(value, &[(1e6, " s"), (1e3, " ms"), (1.0, " µs")])
}

/// In three digits, of the first unit that is no larger, or of the last.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let fits = |(size, _): &&(f64, &str)| value >= *size;
    let Some((size, unit)) = units.iter().find(fits).or(units.last()) else { return value.to_string() };
    let value = value / size;
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::spoken;

    #[test]
    fn each_unit_is_said_in_its_size() {
        let said = |unit, value| spoken(unit, Some(value)).1;
        assert_eq!(said("1/s", 34_123.0), "34.1 k/s");
        assert_eq!(said("1/s", 613.4), "613/s");
        assert_eq!(said("p99, µs", 1_900_000.0), "1.90 s");
        assert_eq!(said("p99, µs", 12_000.0), "12.0 ms");
        assert_eq!(said("processor µs each", 0.25), "0.25 µs");
        assert_eq!(said("processor s/GiB", 0.31), "310 ms");
        assert_eq!(said("bytes/s", 3.946e9), "3.95 GB/s");
        assert_eq!(said("bytes each", 71.35), "71.3 B");
        assert_eq!(said("1 + missing", 1.0), "0");
        assert_eq!(spoken("times", None), ("times".to_owned(), "–".to_owned()));
    }
}
