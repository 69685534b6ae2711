//! Where results are kept: JSON for programs, a table and a plot for people, side by side under
//! `bench/results/`.
//!
//! Rows belong to groups (a language, a kind of work). A run takes the place of the groups that it measured
//! and leaves the others as they are, so each row says on which day it was measured and at which commit; one
//! that ends with `+` is that commit and what was not yet in any. What was measured before is in the history
//! of the file.

use super::plot;
use super::row::Row;
use crate::harness::server::{nanoseconds, root};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a file of results is about.
pub(crate) struct About<'a> {
    /// Name of the files, without their endings.
    pub(crate) name: &'a str,
    pub(crate) title: &'a str,
    /// What has to be known to read the table.
    pub(crate) preface: &'a str,
}

/// Where results are kept.
pub(crate) fn directory() -> PathBuf {
    root().join("bench/results")
}

/// Writes `NAME.json`, `NAME.md` and `NAME.svg` (one plot per face) into a directory.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(directory: &Path, about: &About<'_>, rows: &[Row]) -> Result<(), String> {
    keep(directory, about, rows, false)
}

/// The same for a part of a group, whose other rows stay; a plot shows a whole group, so there is none.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write_part(directory: &Path, about: &About<'_>, rows: &[Row]) -> Result<(), String> {
    keep(directory, about, rows, true)
}

fn keep(directory: &Path, about: &About<'_>, rows: &[Row], part: bool) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let path = |ending: &str| directory.join(format!("{}{ending}", about.name));
    let put = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    let (commit, date) = (commit(), today());
    let mut groups: Vec<&str> = rows.iter().map(|row| row.face).collect();
    groups.dedup();
    let new = rows.iter().map(|row| row.json(commit.as_deref(), &date)).collect();
    let all = merged(earlier(&path(".json")), new, part);
    put(&path(".json"), serde_json::to_string_pretty(&all).map_err(|e| e.to_string())? + "\n")?;
    put(&path(".md"), table(about, &all))?;
    for group in groups.into_iter().filter(|_| !part) {
        let of_group: Vec<&Row> = rows.iter().filter(|row| row.face == group).collect();
        let ending = if group.is_empty() { ".svg".to_owned() } else { format!("-{group}.svg") };
        let title =
            if group.is_empty() { about.title.to_owned() } else { format!("{}, {group}", about.title) };
        put(&path(&ending), plot::draw(&title, &of_group))?;
    }
    println!("written to {}", path(".{json,md,svg}").display());
    Ok(())
}

fn earlier(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).ok();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// The earlier rows, those of groups that were measured anew in place of theirs; of a part of a group, those
/// rows in place of theirs.
fn merged(earlier: Vec<Value>, new: Vec<Value>, part: bool) -> Vec<Value> {
    let mut groups: Vec<Value> = Vec::new();
    for row in earlier.iter().chain(&new) {
        if !groups.contains(&row["face"]) {
            groups.push(row["face"].clone());
        }
    }
    let rows_of = |rows: &[Value], group: &Value| -> Vec<Value> {
        rows.iter().filter(|row| row["face"] == *group).cloned().collect()
    };
    let of = |group: &Value| {
        let (mut earlier, mut new) = (rows_of(&earlier, group), rows_of(&new, group));
        if !part && !new.is_empty() {
            return new;
        }
        let same = |one: &Value, other: &Value| ["work", "unit"].iter().all(|key| one[key] == other[key]);
        for row in &mut earlier {
            if let Some(at) = new.iter().position(|new| same(new, row)) {
                *row = new.remove(at);
            }
        }
        earlier.into_iter().chain(new).collect()
    };
    groups.iter().flat_map(of).collect()
}

fn table(about: &About<'_>, rows: &[Value]) -> String {
    let mut out = format!("# {}\n\n{}\n", about.title, about.preface);
    let mut face = None;
    for row in rows {
        if face != Some(&row["face"]) {
            face = Some(&row["face"]);
            let name = row["face"].as_str().unwrap_or("");
            if !name.is_empty() {
                let _ = write!(out, "\n## {}{}\n", name[..1].to_uppercase(), &name[1..]);
            }
            out.push_str(
                "\n| work | unit | ours | beside | | floor | ratio | bar | ours, µs | beside, µs | measured |\n",
            );
            out.push_str("|---|---|---:|---:|---|---:|---:|---:|---:|---:|---|\n");
        }
        let ratio = match (row["ratio"].as_f64(), row["ratio_min"].as_f64(), row["ratio_max"].as_f64()) {
            (Some(ratio), Some(least), Some(most)) => format!("{ratio:.2} ({least:.2}–{most:.2})"),
            _ => "–".to_owned(),
        };
        let bar = match (row["bar"].as_f64(), row["met"].as_bool()) {
            (Some(bar), Some(true)) => format!("{bar:.2} ✓"),
            (Some(bar), _) => format!("{bar:.2} ✗"),
            (None, _) => "–".to_owned(),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {ratio} | {bar} | {} | {} | {} |",
            row["work"].as_str().unwrap_or(""),
            row["unit"].as_str().unwrap_or(""),
            figure(&row["ours"]),
            figure(&row["peer"]),
            row["peer_name"].as_str().unwrap_or(""),
            figure(&row["floor"]),
            cost(&row["ours_cost_us"]),
            cost(&row["peer_cost_us"]),
            when(row),
        );
    }
    let processors = rows.iter().filter_map(|row| row["processors"].as_u64()).max().unwrap_or(0);
    let _ = write!(
        out,
        "\nMeasured on {processors} shared processors. Ratios are medians over pairs measured in turn, with the least and the \
         most in brackets; µs are processor time per operation.\n"
    );
    out
}

/// The day and the commit that a row was measured at.
fn when(row: &Value) -> String {
    let text = |name: &str| row[name].as_str().unwrap_or("?");
    format!("{}, {}", text("date"), text("commit"))
}

/// The days and commits of all rows, each once, in their order.
pub(crate) fn all_whens(rows: &[Value]) -> Vec<String> {
    let mut whens: Vec<String> = Vec::new();
    for row in rows {
        let when = when(row);
        if !whens.contains(&when) {
            whens.push(when);
        }
    }
    whens
}

/// A rate in three or four digits.
pub(crate) fn figure(value: &Value) -> String {
    match value.as_f64() {
        None => "–".to_owned(),
        Some(v) if v >= 1e7 => format!("{:.0} M", v / 1e6),
        Some(v) if v >= 1e6 => format!("{:.2} M", v / 1e6),
        Some(v) if v >= 1e4 => format!("{:.0} k", v / 1e3),
        Some(v) if v >= 1e3 => format!("{:.2} k", v / 1e3),
        Some(v) => format!("{v:.2}"),
    }
}

fn cost(value: &Value) -> String {
    match value.as_f64() {
        None => "–".to_owned(),
        Some(us) if us >= 10.0 => format!("{us:.1}"),
        Some(us) if us >= 0.1 => format!("{us:.3}"),
        Some(us) => format!("{us:.4}"),
    }
}

fn commit() -> Option<String> {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).current_dir(root()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    // What results are written to says nothing about what was measured.
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results", ":!README.md"])?;
    Some(if changed.is_empty() { commit } else { commit + "+" })
}

/// Today in UTC.
fn today() -> String {
    date(i64::try_from(nanoseconds() / 86_400_000_000_000).unwrap_or(0))
}

/// The date that lies so many days after 1970-01-01, not before it.
fn date(days: i64) -> String {
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let (mut year, mut rest) = (1970, days);
    while rest >= 365 + i64::from(leap(year)) {
        rest -= 365 + i64::from(leap(year));
        year += 1;
    }
    let february = 28 + i64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", rest + 1)
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::sample;
    use super::*;
    use crate::harness::server::Scratch;

    #[test]
    fn days_are_counted_as_calendars_do() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (789, "1972-02-29"),
            (11_016, "2000-02-29"),
            (19_722, "2023-12-31"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn a_run_of_one_group_takes_the_place_of_its_rows_and_keeps_the_others() {
        let scratch = Scratch::new("results").unwrap();
        let about = About { name: "log-x", title: "The log", preface: "Read this." };
        let old = |face| Row { work: "old".into(), face, ..sample() };
        write(scratch.path(), &about, &[old("node"), sample()]).unwrap();
        write(
            scratch.path(),
            &about,
            &[Row { work: "new".into(), face: "node", bar: Some(9.0), ..sample() }],
        )
        .unwrap();
        let read =
            |ending: &str| std::fs::read_to_string(scratch.path().join(format!("log-x{ending}"))).unwrap();
        let rows: Vec<Value> = serde_json::from_str(&read(".json")).unwrap();
        let works: Vec<&str> = rows.iter().filter_map(|row| row["work"].as_str()).collect();
        assert_eq!(works, ["new", "a scan"], "in the place where the group stood");
        let table = read(".md");
        assert!(
            table.contains("## Native")
                && table.contains("## Node")
                && table.contains("3.00 (2.00–4.00) | 9.00 ✗")
        );
        assert!(table.contains(&format!(" | {}, ", today())), "{table}");
        assert!(read("-node.svg").contains(">new<"));
    }

    #[test]
    fn a_run_of_a_part_of_a_group_takes_the_place_of_that_part() {
        let row = |work: &str, ours: u32| serde_json::json!({ "face": "fuzz", "work": work, "unit": "s", "ours": ours });
        let (old, new) = (vec![row("a", 1), row("b", 1), row("c", 1)], vec![row("b", 2), row("d", 2)]);
        let part = merged(old.clone(), new.clone(), true);
        assert_eq!(part, [row("a", 1), row("b", 2), row("c", 1), row("d", 2)]);
        assert_eq!(merged(old, new.clone(), false), new);
    }

    #[test]
    fn days_and_commits_are_named_once() {
        let row = |commit: &str| serde_json::json!({ "date": "2030-01-02", "commit": commit });
        let rows = [row("abc"), row("def+"), row("abc")];
        assert_eq!(all_whens(&rows), ["2030-01-02, abc", "2030-01-02, def+"]);
    }

    #[test]
    fn figures_keep_three_digits() {
        let shown = [398e6, 1.28e6, 168_000.0, 4_900.0, 0.85].map(|v| figure(&v.into()));
        assert_eq!(shown, ["398 M", "1.28 M", "168 k", "4.90 k", "0.85"]);
        assert_eq!(cost(&0.0028.into()), "0.0028");
    }
}
