//! `cargo xtask bench log`: the embedded log beside LMDB, through Rust, Node and Python, pattern by pattern.
//! Each language has a program that measures both sides in one process; this module starts it, makes rows of
//! its samples, and judges those with a bar. A tiny run asserts that every row is there and that both sides
//! read and wrote the same, and no time.

mod faces;
mod rows;
mod works;

use super::report::Report;
use super::results::About;
use super::row::Row;
use super::samples::Samples;
use crate::Outcome;
use crate::harness::options::Options;
use crate::harness::server::Scratch;
pub(super) use faces::package;
use faces::{FACES, Face};

use works::INDEPENDENT;

const PREFACE: &str = "\
The embedded log beside LMDB in the same process, in turn: 100-byte entries, one log. Rows say `warm, verified` where \
everything was read and, ours, verified before the clock started (what is appended is read back and verified behind it), and `cold` where \
each turn opens the store, maps and verifies all it reads, and closes it; the file cache is warm then. Each of our entries is a transaction with a time of its own; LMDB's keys are the times, as native integers, \
put in order (`MDB_APPEND`). LMDB is opened with `MDB_NOSYNC`, without `MDB_WRITEMAP`, which its bindings leave off by \
default; rows say where it is on. The floor is a mapped file of bare frames that are walked without \
checksums, publication or search, or a copy into one; durable, one `write` and one `fdatasync`. What every side read is \
summed and compared with what there was.";

/// How large a run is.
struct Size {
    entries: u64,
    pairs: usize,
    /// An option of the measuring programs and its value.
    until: (&'static str, String),
    /// Only what has a bar.
    barred: bool,
}

/// `cargo xtask bench log`.
///
/// # Errors
/// An unknown face, or a program that does not build, start or end well.
pub(crate) fn run(options: &Options) -> Outcome {
    let wanted = options.text("face", "");
    if !wanted.is_empty() && FACES.iter().all(|face| face.name != wanted) {
        return Err(format!("no face {wanted}: there are {}", FACES.map(|face| face.name).join(", ")));
    }
    let tiny = options.flag("tiny");
    let milliseconds: u64 = options.value("milliseconds", 250)?;
    let size = |face: &Face| -> Result<Size, String> {
        Ok(Size {
            entries: options.value("records", if tiny { 10_000 } else { face.entries })?,
            pairs: super::pairs(options)?,
            until: if tiny {
                ("--turns", "2".to_owned())
            } else {
                ("--milliseconds", milliseconds.to_string())
            },
            barred: options.flag("check"),
        })
    };
    let about = About { name: "log", title: "The embedded log beside LMDB", preface: PREFACE };
    let (mut report, mut rows) = (Report::new(about, options), Vec::new());
    for face in FACES.iter().filter(|face| wanted.is_empty() || face.name == wanted) {
        rows.extend(measure(face, &size(face)?, &mut report)?);
    }
    report.keep(&rows)?;
    Ok(report.tally)
}

/// Runs one language's program, and makes and tells its rows.
fn measure(face: &Face, size: &Size, report: &mut Report<'_>) -> Result<Vec<Row>, String> {
    let scratch = Scratch::new("bench-log")?;
    let mut samples = Samples::default();
    (face.measure)(face, scratch.path(), size, &mut samples)?;
    let entries = grouped(size.entries);
    let mut rows = Vec::new();
    println!(
        "{:<62}{:>11}{:>11}{:>11}{:>9}",
        format!("{}, against {}", face.name, face.peer),
        "ours",
        "peer",
        "floor",
        "ratio"
    );
    for work in face.works_of(size) {
        for threads in work.threads {
            rows::check(&samples, work, *threads, size.pairs, &mut report.tally);
            rows.push(rows::row(&samples, work, *threads, &entries, face.name, face.peer));
        }
    }
    if face.name == "native" {
        let independence =
            |(group, text): &(&str, &str)| rows::independence(&samples, group, text, &entries, face.name);
        rows.extend(INDEPENDENT.iter().map(independence));
    }
    for row in &rows {
        print(row);
        report.judge(row);
    }
    Ok(rows)
}

fn print(row: &Row) {
    let rate = |rate: Option<f64>| match rate {
        None => "-".to_owned(),
        Some(rate) if rate < 1e3 => format!("{rate:.2}"),
        Some(rate) => format!("{:.3} M", rate / 1e6),
    };
    let ratio = row.ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.median));
    let verdict = match (row.bar, row.met()) {
        (Some(bar), Some(true)) => format!("reached {bar}"),
        (Some(bar), _) => format!("short of {bar}"),
        (None, _) => String::new(),
    };
    let (ours, peer, floor) = (rate(row.ours), rate(row.peer), rate(row.floor));
    println!("{:<62}{ours:>11}{peer:>11}{floor:>11}{ratio:>9}  {verdict}", row.work);
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::works::{NATIVE, Work};
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([1, 999, 1_000, 1_234_567].map(grouped), ["1", "999", "1,000", "1,234,567"]);
    }

    /// What is asked: of each face the group, our way, the bar, and with how many threads.
    const ASKED: &[(&str, &str, &str, f64, &[u32])] = &[
        ("native", "scan", "ours", 3.0, &[1, 2, 8]),
        ("native", "scan-writer", "ours", 3.5, &[1, 2, 8]),
        ("native", "ranges", "ours", 8.0, &[1, 2, 8]),
        ("native", "iterators", "ours", 4.0, &[1]),
        ("native", "workers", "ours", 20.0, &[10]),
        ("native", "polls", "ours", 4.0, &[1, 2, 8]),
        ("native", "delivered", "ours", 40.0, &[1, 2, 8]),
        ("native", "place", "ours", 8.0, &[1, 2, 8]),
        ("native", "append", "ours", 20.0, &[1]),
        ("native", "append-sync", "ours", 0.9, &[1]),
        ("native", "neighbour", "ours", 0.909, &[1]),
        ("node", "scan", "eager", 10.0, &[8]),
        ("node", "scan", "lazy", 40.0, &[8]),
        ("node", "scan", "cursor", 100.0, &[8]),
        ("node", "scan-writer", "lazy", 40.0, &[8]),
        ("node", "ranges", "fresh", 4.0, &[1, 2, 8]),
        ("node", "ranges", "cursor", 8.0, &[1, 2, 8]),
        ("node", "iterators", "ours", 40.0, &[1]),
        ("node", "workers", "ours", 10.0, &[10]),
        ("node", "polls", "ours", 3.0, &[1, 2, 8]),
        ("node", "delivered", "ours", 20.0, &[1, 2, 8]),
        ("node", "seek", "ours", 5.0, &[1, 2, 8]),
        ("node", "awaited", "ours", 20.0, &[1]),
        ("node", "flight", "ours", 2.0, &[1]),
        ("python", "scan", "batch", 50.0, &[1]),
        ("python", "scan", "iterator", 2.0, &[1]),
        ("python", "scan-writer", "batch", 40.0, &[1]),
        ("python", "ranges", "ours", 2.0, &[1]),
        ("python", "polls", "ours", 2.0, &[1]),
        ("python", "delivered", "ours", 2.0, &[1]),
        ("python", "seek", "ours", 2.0, &[1]),
        ("python", "append", "ours", 5.0, &[1]),
    ];

    #[test]
    fn everything_that_is_asked_is_judged_and_each_face_opens_a_cold_store() {
        for (face, group, ours, bar, threads) in ASKED {
            let face = FACES.iter().find(|known| known.name == *face).unwrap();
            let judged = face.works.iter().any(|work| {
                (work.group, work.ours, work.bar) == (group, ours, Some(*bar)) && work.threads == *threads
            });
            assert!(judged, "{}, {group}, {ours}", face.name);
        }
        for face in &FACES {
            assert_eq!(face.works.iter().filter(|work| work.cold).count(), 1, "{}", face.name);
        }
    }

    #[test]
    fn no_work_is_there_twice() {
        for face in &FACES {
            let mut names: Vec<_> =
                face.works.iter().map(|w: &Work| (w.group, w.ours, w.against, w.threads)).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{}", face.name);
        }
        assert!(NATIVE.iter().all(|work| work.bar != Some(0.0)), "a bar of nothing is no bar");
    }
}
