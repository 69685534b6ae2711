//! What the server withstands: tasks that last (`soak`, `streams-million`, `fuzz`, `simulate`) put what they
//! found beside what is asked of it into results of their own, when run with `--record`. Each task is a group
//! of rows.

use super::results::{self, About};
use super::row::Row;
use super::statistics::Spread;
use crate::harness::options::Options;

const PREFACE: &str = "\
Tasks that run for long: `cargo xtask soak`, `streams-million`, `fuzz --seconds 600`, `simulate --seeds 20000`, with \
`--record`. A ratio says how many times as good as asked, so where less is better it is what is asked by what was found.";

/// Options that name a part.
const PARTS: [&str; 2] = ["only", "target"];

/// What a task found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) work: String,
    pub(crate) unit: &'static str,
    pub(crate) figure: f64,
    pub(crate) asked: Asked,
}

/// What is asked of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    AtLeast(f64),
    AtMost(f64),
}

/// Records what a task found, if it was run with `--record`. One that was told to do a part of what it does
/// keeps what is known of the rest.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn record(options: &Options, task: &'static str, found: &[Found]) -> Result<(), String> {
    if !options.flag("record") {
        return Ok(());
    }
    let rows: Vec<Row> = found.iter().map(|found| row(task, found)).collect();
    let about = About { name: "endurance", title: "What the server withstands", preface: PREFACE };
    let part = PARTS.iter().any(|option| !options.text(option, "").is_empty());
    let write = if part { results::write_part } else { results::write };
    write(&results::directory(), &about, &rows)
}

fn row(task: &'static str, found: &Found) -> Row {
    let (asked, ratio) = match found.asked {
        Asked::AtLeast(asked) => (asked, found.figure / asked),
        Asked::AtMost(asked) => (asked, asked / found.figure),
    };
    Row {
        work: found.work.clone(),
        unit: found.unit,
        ours: Some(found.figure),
        peer: Some(asked),
        peer_name: "what is asked".to_owned(),
        floor: None,
        ratio: Spread::of(&[ratio]),
        bar: Some(1.0),
        costs_us: [None; 3],
        face: task,
        note: "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_held_to_what_was_asked() {
        let of = |figure, asked| row("soak", &Found { work: "w".to_owned(), unit: "s", figure, asked });
        assert_eq!(of(2.0, Asked::AtMost(5.0)).ratio.map(|r| r.median), Some(2.5));
        assert_eq!(of(6.0, Asked::AtMost(5.0)).met(), Some(false));
        assert_eq!(of(20_000.0, Asked::AtLeast(20_000.0)).met(), Some(true));
        assert_eq!(of(19_999.0, Asked::AtLeast(20_000.0)).met(), Some(false));
    }
}
