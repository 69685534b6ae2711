//! The table in README.md: generated from the results, between two comments, and held to them by the tiny run.

use super::super::quantity::spoken;
use super::super::results::all_whens;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- bench streams -->\n";
const END: &str = "<!-- /bench streams -->\n";

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
    Ok(format!("{before}{BEGIN}{}{END}{after}", table(&rows)))
}

fn table(rows: &[Value]) -> String {
    let mut out = "| work | figure | Thalweg | beside | | times as good | bar |\n".to_owned();
    out.push_str("|---|---|---:|---:|---|---:|---:|\n");
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or("").to_owned();
    let mut before = String::new();
    for row in rows {
        let bar = row["bar"].as_f64().map_or_else(String::new, |bar| {
            let mark = if row["met"] == true { "✓" } else { "✗" };
            format!("{bar:.2} {mark}")
        });
        let ratio = row["ratio"].as_f64().map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
        let work = text(row, "work");
        let (figure, ours) = spoken(&text(row, "unit"), row["ours"].as_f64());
        let (_, other) = spoken(&text(row, "unit"), row["peer"].as_f64());
        let shown = if work == before { "" } else { &work };
        let peer = text(row, "peer_name");
        let _ = writeln!(out, "| {shown} | {figure} | {ours} | {other} | {peer} | {ratio} | {bar} |");
        before = work;
    }
    let pairs = || rows.iter().filter_map(|row| row["pairs"].as_u64()).filter(|pairs| *pairs > 0);
    let pairs = match (pairs().min(), pairs().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (_, most) => most.unwrap_or(0).to_string(),
    };
    let processors = rows.iter().filter_map(|row| row["processors"].as_u64()).max().unwrap_or(0);
    let _ = write!(
        out,
        "\nMeasured by `cargo xtask bench streams` ({}), {processors} shared processors, medians of {pairs} runs in turn. A \
         bar is what the project asks of itself. Each figure is the median of its own runs, and *times as good* the median of the \
         pairs' ratios, which need not be that of the two figures; where less is better it is the other's figure by ours. What was \
         endured rather than measured is in [bench/results/endurance.md](bench/results/endurance.md).\n",
        all_whens(rows).join("; "),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Scratch;
    use serde_json::json;

    #[test]
    fn the_table_is_of_the_results_and_everything_around_it_stays() {
        let scratch = Scratch::new("readme").unwrap();
        let results = scratch.path().join("bench/results");
        fs::create_dir_all(&results).unwrap();
        let row = json!({
            "work": "append", "unit": "1/s", "ours": 30.0, "peer": 10.0, "peer_name": "them", "ratio": 3.0, "bar": 2.0,
            "met": true, "pairs": 5, "date": "2030-01-02", "commit": "abc", "processors": 2,
        });
        fs::write(results.join("streams.json"), json!([row]).to_string()).unwrap();
        let readme = scratch.path().join("README.md");
        fs::write(&readme, format!("before\n{BEGIN}old\n{END}after\n")).unwrap();
        assert_eq!(is_current(scratch.path()), Ok(false));
        write(scratch.path()).unwrap();
        assert_eq!(is_current(scratch.path()), Ok(true));
        let text = read(&readme).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("after\n"));
        assert!(text.contains("| append | rate | 30.0/s | 10.0/s | them | 3.00 | 2.00 ✓ |"));
        assert!(text.contains("(2030-01-02, abc)"));
        fs::write(&readme, "no place").unwrap();
        assert!(write(scratch.path()).is_err());
    }
}
