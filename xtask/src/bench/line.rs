//! Benchmarks whose programs print samples by work and side: what they print is heard, and each line of the
//! report makes a row of it.

use super::row::Row;
use super::samples::Samples;
use super::statistics::{Spread, median};
use crate::Tally;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// What a row is held to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bar {
    /// Operations a second.
    Rate(f64),
    /// Part of another side's rate.
    Part(f64, &'static str),
    /// Nothing: for the record, beside another side.
    Beside(&'static str),
    /// Nothing: for the record, beside the floor.
    None,
}

/// A line of the report: the work, whose figure it is, the side that does nothing else, what it is held to,
/// and what it says.
pub(super) struct Line {
    pub(super) work: &'static str,
    pub(super) ours: &'static str,
    floor: &'static str,
    bar: Bar,
    text: &'static str,
}

pub(super) const fn line(
    work: &'static str,
    ours: &'static str,
    floor: &'static str,
    bar: Bar,
    text: &'static str,
) -> Line {
    Line { work, ours, floor, bar, text }
}

/// Runs a measuring program to its end and takes in what it prints.
///
/// # Errors
/// It does not start or end well, or prints something else than samples.
pub(super) fn hear(command: &mut Command, samples: &mut Samples) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("{name}: {e}"))?;
    let heard = child.stdout.take().map_or(Ok(()), |output| {
        BufReader::new(output).lines().try_for_each(|line| samples.take(&line.map_err(|e| e.to_string())?))
    });
    let status = child.wait().map_err(|e| format!("{name}: {e}"))?;
    heard.map_err(|problem| format!("{name}: {problem}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

/// Checks that what each line tells of was measured in every pair.
pub(super) fn check(lines: &[Line], samples: &Samples, pairs: usize, tally: &mut Tally) {
    for Line { work, ours, .. } in lines {
        let count = samples.of(work, ours).len();
        tally.check(count == pairs, || format!("{work}, {ours}: {count} samples of {pairs}"));
    }
}

/// The row of a line.
pub(super) fn row(line: &Line, samples: &Samples) -> Row {
    let rates = |side: &str| samples.rates(line.work, side);
    let ours = rates(line.ours);
    let (peer, peer_name, bar, note) = match line.bar {
        Bar::Rate(rate) => (vec![rate; ours.len()], "the bar", Some(1.0), "the bar is a rate"),
        Bar::Part(part, side) => (rates(side), side, Some(part), ""),
        Bar::Beside(side) => (rates(side), side, None, ""),
        Bar::None => (rates(line.floor), line.floor, None, ""),
    };
    Row {
        work: line.text.to_owned(),
        unit: "calls/s",
        ours: median(&ours),
        peer: median(&peer),
        peer_name: peer_name.to_owned(),
        floor: median(&rates(line.floor)),
        ratio: Spread::of_ratios(&ours, &peer),
        bar,
        costs_us: [samples.cost_us(line.work, line.ours), None, samples.cost_us(line.work, line.floor)],
        face: "",
        note,
    }
}

/// A side of ours beside another's, in the words that its work has among those lines.
pub(super) fn beside(lines: &[Line], work: &str, [side, peer]: [&str; 2], samples: &Samples) -> Row {
    let (ours, theirs) = (samples.rates(work, side), samples.rates(work, peer));
    let mut of_work = lines.iter().filter(|line| line.work == work);
    let line = of_work.clone().find(|line| line.ours == side).or_else(|| of_work.next());
    let text = line.map_or(work, |line| line.text);
    Row {
        work: text.trim_end_matches(", rings alone").to_owned(),
        unit: "calls/s",
        ours: median(&ours),
        peer: median(&theirs),
        peer_name: peer.to_owned(),
        floor: None,
        ratio: Spread::of_ratios(&ours, &theirs),
        bar: None,
        costs_us: [samples.cost_us(work, side), samples.cost_us(work, peer), None],
        face: "",
        note: "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Samples {
        Samples::of_rates(&[("w", "ours", 30.0), ("w", "other", 10.0), ("w", "floor", 60.0)])
    }

    #[test]
    fn a_row_is_held_to_what_its_bar_says() {
        let row_of = |bar| row(&line("w", "ours", "floor", bar, "text"), &measured());
        let ratio = |bar| row_of(bar).ratio.unwrap().median;
        assert_eq!((ratio(Bar::Rate(20.0)), row_of(Bar::Rate(20.0)).met()), (1.5, Some(true)));
        assert_eq!(
            (ratio(Bar::Part(4.0, "other")), row_of(Bar::Part(4.0, "other")).met()),
            (3.0, Some(false))
        );
        assert_eq!((ratio(Bar::Beside("other")), row_of(Bar::Beside("other")).met()), (3.0, None));
        assert_eq!((ratio(Bar::None), row_of(Bar::None).met()), (0.5, None));
    }

    #[test]
    fn what_a_line_tells_of_is_counted() {
        let lines = [line("w", "ours", "", Bar::None, "text"), line("w", "nobody", "", Bar::None, "text")];
        let mut tally = Tally::default();
        check(&lines, &measured(), 1, &mut tally);
        assert_eq!(tally, Tally { passed: 1, failed: 1 });
    }

    #[test]
    fn what_a_program_prints_is_heard_to_its_end_and_must_be_samples() {
        let said = |script: &str| {
            let mut samples = Samples::default();
            hear(Command::new("sh").args(["-c", script]), &mut samples).map(|()| samples.rates("w", "ours"))
        };
        let printed = format!("echo '{}'", Samples::line("w", "ours", 0, 30.0));
        assert_eq!(said(&printed), Ok(vec![30.0]));
        assert_eq!(said(&format!("{printed}; exit 3")), Err("sh: exit status: 3".to_owned()));
        assert!(said("echo building").unwrap_err().starts_with("sh: building: "));
    }
}
