//! The table in README.md: a few rows of the results, between two comments, and held to them by the tiny run.
//! All rows are in `bench/results/streams.md`.

use super::super::quantity::spoken;
use super::super::results::all_whens;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- bench streams -->\n";
const END: &str = "<!-- /bench streams -->\n";

/// The rows of README.md: for each kind of work one figure or two beside the peer, those included in which
/// the peer is better.
const SHOWN: &[(&str, &str)] = &[
    ("idle SSE connection", "bytes each"),
    ("idle stream, 32-byte name, of 10,000", "bytes each"),
    ("SSE, 64 subscribers", "p99, µs"),
    ("SSE, 1,000 subscribers, 50/s", "p99, µs"),
    ("durable append, one connection", "p50, µs"),
    ("durable append, 256 connections, 100 streams", "1/s"),
    ("durable creates", "1/s"),
    ("catch-up, 16 MiB, 100 clients, at rest", "bytes/s"),
    ("catch-up, 1 MiB in 256 bytes each among 64 streams", "processor s/GiB"),
    ("long-poll, 1,000 clients, 50/s", "1/s"),
];

/// How the name of the peer begins that README.md compares with.
const PEER: &str = "durable-streams ";

/// Puts the table of the results into README.md.
///
/// # Errors
/// There are no results, or README.md has no place for them.
pub(super) fn write(root: &Path) -> Result<(), String> {
    let path = root.join("README.md");
    let text = with_table(&read(&path)?, root)?;
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Whether README.md is as it would be written.
///
/// # Errors
/// There are no results, or README.md has no place for them.
pub(super) fn is_current(root: &Path) -> Result<bool, String> {
    let text = read(&root.join("README.md"))?;
    Ok(with_table(&text, root)? == text)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn with_table(text: &str, root: &Path) -> Result<String, String> {
    let (before, rest) = text.split_once(BEGIN).ok_or("README.md has no place for the table of streams")?;
    let (_, after) = rest.split_once(END).ok_or("README.md's table of streams does not end")?;
    let results = root.join("bench/results/streams.json");
    let rows: Vec<Value> = serde_json::from_str(&read(&results)?).map_err(|e| e.to_string())?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", table(&shown(&rows)?)))
}

/// The rows of [`SHOWN`], in its order.
fn shown(rows: &[Value]) -> Result<Vec<Value>, String> {
    let find = |(work, unit): &(&str, &str)| {
        let is_it = |row: &&Value| {
            let peer = row["peer_name"].as_str().unwrap_or("");
            row["work"] == *work && row["unit"] == *unit && peer.starts_with(PEER)
        };
        let missing =
            || format!("README.md's table shows {work:?} in {unit:?}, which the results do not have");
        rows.iter().find(is_it).cloned().ok_or_else(missing)
    };
    SHOWN.iter().map(find).collect()
}

fn table(rows: &[Value]) -> String {
    let mut out = "| work | figure | Thalweg | durable-streams | times as good | bar |\n".to_owned();
    out.push_str("|---|---|---:|---:|---:|---:|\n");
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or("").to_owned();
    for row in rows {
        let bar = row["bar"].as_f64().map_or_else(String::new, |bar| {
            let mark = if row["met"] == true { "✓" } else { "✗" };
            format!("{bar:.2} {mark}")
        });
        let ratio = row["ratio"].as_f64().map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
        let work = text(row, "work");
        let (figure, ours) = spoken(&text(row, "unit"), row["ours"].as_f64());
        let (_, other) = spoken(&text(row, "unit"), row["peer"].as_f64());
        let _ = writeln!(out, "| {work} | {figure} | {ours} | {other} | {ratio} | {bar} |");
    }
    let pairs = || rows.iter().filter_map(|row| row["pairs"].as_u64()).filter(|pairs| *pairs > 0);
    let pairs = match (pairs().min(), pairs().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (_, most) => most.unwrap_or(0).to_string(),
    };
    let processors = rows.iter().filter_map(|row| row["processors"].as_u64()).max().unwrap_or(0);
    let peer = rows.first().map_or_else(String::new, |row| text(row, "peer_name"));
    let _ = write!(
        out,
        "\nMeasured by `cargo xtask bench streams` ({}) on {processors} shared processors, beside {peer}. Each figure is the \
         median of {pairs} runs, in which the two took turns. *Times as good* is the median of the pairs' ratios; it need not be the \
         ratio of the two medians. Where less is better, the peer's figure is divided by ours. A *bar* is the ratio that the \
         project asks of itself.\n",
        all_whens(rows).join("; "),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::server::Scratch;
    use serde_json::json;

    #[test]
    fn the_table_is_of_the_results_and_everything_around_it_stays() {
        let scratch = Scratch::new("readme").unwrap();
        let results = scratch.path().join("bench/results");
        fs::create_dir_all(&results).unwrap();
        let row = |(work, unit): &(&str, &str)| {
            json!({
                "work": work, "unit": unit, "ours": 30.0, "peer": 10.0, "peer_name": "durable-streams 9", "ratio": 3.0,
                "bar": 2.0, "met": true, "pairs": 5, "date": "2030-01-02", "commit": "abc", "processors": 2,
            })
        };
        let mut rows: Vec<Value> = SHOWN.iter().map(row).collect();
        rows.insert(0, row(&("append in memory", "1/s")));
        fs::write(results.join("streams.json"), json!(rows).to_string()).unwrap();
        let readme = scratch.path().join("README.md");
        fs::write(&readme, format!("before\n{BEGIN}old\n{END}after\n")).unwrap();
        assert_eq!(is_current(scratch.path()), Ok(false));
        write(scratch.path()).unwrap();
        assert_eq!(is_current(scratch.path()), Ok(true));
        let text = read(&readme).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("after\n"));
        assert!(text.contains("| durable creates | rate | 30.0/s | 10.0/s | 3.00 | 2.00 ✓ |"));
        assert!(!text.contains("append in memory"));
        assert!(text.contains("(2030-01-02, abc)"));
        fs::write(&readme, "no place").unwrap();
        assert!(write(scratch.path()).is_err());
        assert!(shown(&rows[..SHOWN.len()]).is_err(), "a row that is missing is told");
    }
}
