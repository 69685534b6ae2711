//! `cargo xtask bench streams`: the stream server over HTTP beside its peers and the floor, in turn, under
//! the program's own load (`thalweg bench`). A tiny run shows that every work runs to its end, by counts, and
//! judges no time.

mod readme;
mod rows;
mod runs;
mod side;
mod works;

use super::report::Report;
use super::results::About;
use super::row::Row;
use crate::harness::load::Load;
use crate::harness::options::Options;
use crate::harness::server::root;
use crate::{Outcome, Tally};
use rows::Measured;
use runs::{Size, perform};
use serde_json::Value;
use side::Side;
use works::{Against, Bar, LINES, Line, WORKS, Work, group};

const PREFACE: &str = "\
One server at a time, started over an empty directory, and the load on the same processors: `thalweg bench`, one thread. Records \
of 256 bytes; durable means that every append was synced before it was answered. The floor answers 204 to everything. A ratio \
says how many times as good ours is, so where less is better it is the other's figure by ours, and its bar likewise. Processor \
time is the server's.";

/// `cargo xtask bench streams`; with `--readme` only the table of the newest results is written anew.
///
/// # Errors
/// Something does not build or start, or an operation fails.
pub(crate) fn run(options: &Options) -> Outcome {
    if options.flag("readme") {
        return readme::write(&root()).map(|()| Tally::default());
    }
    let size = Size::new(options)?;
    let pairs = super::pairs(options)?;
    let peers = !size.tiny && !options.flag("without-peer");
    let works = chosen(options)?;
    let check = options.flag("check");
    let load = Load::new()?;
    let about = About { name: "streams", title: "The stream server beside its peers", preface: PREFACE };
    let mut report = Report::new(about, options);
    let mut measured = Measured::default();
    for pair in 0..pairs {
        for work in &works {
            let asked = |side: &Side| (peers || !side.is_peer()) && (!check || is_judged(work, *side));
            for side in work.sides.iter().copied().filter(asked) {
                // A peer that breaks off gets another chance: what the others did is not thrown away for
                // it.
                let said = perform(work, side, &load, &size).or_else(|problem| {
                    if !side.is_peer() {
                        return Err(problem);
                    }
                    println!("{}: {problem}; once more", work.name);
                    perform(work, side, &load, &size)
                })?;
                say(pair, work, side, &said);
                report.tally.check(whole(&said, side), || format!("{}: {said}", work.name));
                measured.add(work.name, side, said);
            }
        }
    }
    let counts = |line: &&Line| !check || line.bar != Bar::None;
    let lines = LINES.iter().filter(counts).filter(|line| complete(line, &works, peers));
    let rows: Vec<Row> = lines.map(|line| rows::row(line, &measured)).collect();
    rows.iter().for_each(|row| report.tell(row));
    for line in LINES.iter().filter(counts).filter(|line| check && !complete(line, &works, peers)) {
        println!("not judged, since not all of it was measured: {}", line.text);
    }
    if size.tiny {
        report.keep(&rows)?;
        let says = || "README.md: its table is not the one of the newest results".to_owned();
        report.tally.check(readme::is_current(&root())?, says);
    } else if !check {
        // What was measured in part only does not take the place of what was measured as a whole.
        let whole = |row: &Row| {
            LINES.iter().all(|line| group(line.work) != row.face || complete(line, &works, peers))
        };
        let rows: Vec<Row> = rows.into_iter().filter(whole).collect();
        if !rows.is_empty() {
            report.keep(&rows)?;
            readme::write(&root())?;
        }
    }
    Ok(report.tally)
}

/// The works that were asked for: all, or those whose names begin with one of `--only`.
fn chosen(options: &Options) -> Result<Vec<&'static Work>, String> {
    let only = options.text("only", "");
    let wanted = |work: &&Work| only.is_empty() || only.split(',').any(|name| work.name.starts_with(name));
    let works: Vec<&Work> = WORKS.iter().filter(wanted).collect();
    if works.is_empty() {
        let names: Vec<&str> = WORKS.iter().map(|work| work.name).collect();
        return Err(format!("no work {only}: there are {}", names.join(", ")));
    }
    Ok(works)
}

/// Whether a line with a bar has a figure of a side's work in it.
fn is_judged(work: &Work, side: Side) -> bool {
    let has = |line: &Line| match line.against {
        Against::Side(other) => line.work == work.name && (side == Side::Ours || side == other),
        Against::Work(other) | Against::Times(_, other) => {
            side == Side::Ours && (line.work == work.name || other == work.name)
        }
        Against::Fixed(_) => side == Side::Ours && line.work == work.name,
    };
    LINES.iter().any(|line| line.bar != Bar::None && has(line))
}

/// Whether everything that a line compares was measured.
fn complete(line: &Line, works: &[&Work], peers: bool) -> bool {
    let has = |name: &str| works.iter().any(|work| work.name == name);
    has(line.work)
        && match line.against {
            Against::Side(side) => peers || !side.is_peer(),
            Against::Work(other) | Against::Times(_, other) => has(other),
            Against::Fixed(_) => true,
        }
}

/// Nothing failed and nothing is missing; of a peer that is not asked, and the floor knows no streams, so
/// that every follower gets all of them.
fn whole(report: &Value, side: Side) -> bool {
    let none = |name: &str| report[name].as_u64().is_none_or(|count| count == 0);
    let arrived = side == Side::Floor || none("missing") && none("outOfOrder");
    side.is_peer() || none("failed") && arrived && report["operations"] != 0
}

fn say(pair: usize, work: &Work, side: Side, report: &Value) {
    let figure = |name: &str| report[name].as_f64();
    let shown = |name: &str| figure(name).map_or("-".to_owned(), |figure| format!("{figure:.1}"));
    println!(
        "{pair} {:<20}{:<30} {:>10}/s p50 {:>8} p99 {:>9} us, {:>8} us each, missing {}, failed {}",
        work.name,
        side.name(),
        shown("perSecond"),
        shown("p50Us"),
        shown("p99Us"),
        shown("serverUsPerOperation"),
        report["missing"],
        report["failed"],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_are_chosen_by_the_beginnings_of_their_names() {
        let of = |only: &str| {
            let words = ["streams", "--only", only].map(str::to_owned);
            chosen(&Options::parse(words.into_iter()).unwrap()).map(|works| works.len())
        };
        assert_eq!(of("sse/"), Ok(4));
        assert_eq!(of("append/create,append/one"), Ok(2));
        assert!(of("nothing").is_err());
    }

    #[test]
    fn a_line_needs_both_of_what_it_compares() {
        let beside = LINES.iter().find(|line| line.work == "beside/readers").unwrap();
        let works =
            |names: &[&str]| WORKS.iter().filter(|work| names.contains(&work.name)).collect::<Vec<_>>();
        assert!(complete(beside, &works(&["beside/readers", "beside/alone"]), false));
        assert!(!complete(beside, &works(&["beside/readers"]), true));
        assert!(!complete(&LINES[0], &works(&["append/100"]), false), "its peer was not measured");
    }

    #[test]
    fn what_has_no_bar_is_not_measured_to_be_judged() {
        let work = |name: &str| WORKS.iter().find(|work| work.name == name).unwrap();
        assert!(is_judged(work("append/100"), Side::Ours) && is_judged(work("append/100"), Side::Floor));
        assert!(!is_judged(work("append/100"), Side::Node) && !is_judged(work("append/memory"), Side::Rust));
        assert!(is_judged(work("beside/alone"), Side::Ours), "another is held against it");
        assert!(!is_judged(work("catch-up/among"), Side::Ours));
    }

    #[test]
    fn ours_may_fail_nothing_and_a_peer_may() {
        let report = serde_json::json!({ "operations": 5, "failed": 0, "missing": 1 });
        assert!(!whole(&report, Side::Ours) && whole(&report, Side::Rust));
        assert!(whole(&serde_json::json!({ "failed": 0, "points": [] }), Side::Ours));
        assert!(!whole(&serde_json::json!({ "operations": 0, "failed": 0 }), Side::Floor));
    }
}
