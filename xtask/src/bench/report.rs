//! What becomes of rows, whatever was measured: a line is printed of each, those with a bar are judged where
//! that is asked (`--check`), and where it is not, they are kept under `bench/results/`. A tiny run's are
//! written, too, into a directory that is removed.

use super::results::{self, About};
use super::row::Row;
use super::statistics::Spread;
use crate::harness::options::Options;
use crate::harness::server::Scratch;
use crate::{Outcome, Tally};

/// How rows are printed: how wide what was done is, and whether the floor's figure stands beside the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    pub(super) work: usize,
    pub(super) floor: bool,
}

/// The report of one run.
pub(super) struct Report<'a> {
    about: About<'a>,
    columns: Columns,
    is_judged: bool,
    is_tiny: bool,
    /// What was checked so far.
    pub(super) tally: Tally,
}

impl<'a> Report<'a> {
    /// Nothing was checked yet.
    pub(super) fn new(about: About<'a>, options: &Options) -> Self {
        Self {
            about,
            columns: Columns { work: 50, floor: true },
            is_judged: options.flag("check"),
            is_tiny: options.flag("tiny"),
            tally: Tally::default(),
        }
    }

    /// The same, printed otherwise.
    pub(super) fn columns(self, columns: Columns) -> Self {
        Self { columns, ..self }
    }

    /// Tells and keeps the rows, with which the run is over.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn conclude(mut self, rows: &[Row]) -> Outcome {
        rows.iter().for_each(|row| self.tell(row));
        self.keep(rows)?;
        Ok(self.tally)
    }

    /// Prints a row and judges it.
    pub(super) fn tell(&mut self, row: &Row) {
        println!("{}", self.line(row));
        self.judge(row);
    }

    /// Where that is asked, checks that a row reaches its bar, if it has one.
    pub(super) fn judge(&mut self, row: &Row) {
        let Some(bar) = row.bar.filter(|_| self.is_judged) else { return };
        let name = named(row);
        self.tally.check(row.met() == Some(true), || match row.ratio {
            None => format!("{name}: not measured, bar {bar}"),
            Some(Spread { median, least, most, .. }) => {
                format!("{name}: {median:.2} ({least:.2}–{most:.2}) of {}, bar {bar}", row.peer_name)
            }
        });
    }

    /// Checks a row that is a check of its own: that it reaches its bar, where that is asked, or else that it
    /// was measured at all.
    pub(super) fn check(&mut self, row: &Row) {
        if self.is_judged && row.bar.is_some() {
            return self.judge(row);
        }
        self.tally.check(row.ours.or(row.floor).is_some(), || format!("{}: not measured", named(row)));
    }

    /// Writes the rows, unless they were judged.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn keep(&self, rows: &[Row]) -> Result<(), String> {
        if self.is_tiny {
            let scratch = Scratch::new(&format!("bench-{}-results", self.about.name))?;
            return results::write(scratch.path(), &self.about, rows);
        }
        if self.is_judged { Ok(()) } else { results::write(&results::directory(), &self.about, rows) }
    }

    fn line(&self, row: &Row) -> String {
        let ratio = row.ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.median));
        let verdict = match (row.bar, row.met()) {
            (Some(_), Some(true)) => "reached",
            (Some(_), _) => "short",
            (None, _) => "",
        };
        let width = self.columns.work;
        let (ours, peer) = (rounded(row.ours), rounded(row.peer));
        let floor = if self.columns.floor { format!("{:>11}", rounded(row.floor)) } else { String::new() };
        format!("{:<width$}{ours:>11}{peer:>11}{floor}{ratio:>8}  {verdict}", row.work)
    }
}

/// A figure in whole numbers, as it is printed.
pub(super) fn rounded(figure: Option<f64>) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.0}"))
}

/// A row among all others.
fn named(row: &Row) -> String {
    let parts = [row.face, &row.work, row.unit];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::sample;
    use super::*;

    fn report(words: &[&str]) -> Report<'static> {
        let options = Options::parse(words.iter().map(|word| (*word).to_owned())).unwrap();
        Report::new(About { name: "n", title: "t", preface: "p" }, &options)
    }

    #[test]
    fn a_bar_that_was_not_measured_is_not_reached() {
        let rows = [
            sample(),
            Row { bar: None, ..sample() },
            Row { ratio: None, ..sample() },
            Row { bar: Some(3.5), ..sample() },
        ];
        let judged = |words: &[&str]| {
            let mut report = report(words);
            rows.iter().for_each(|row| report.judge(row));
            report.tally
        };
        assert_eq!(judged(&["--check"]), Tally { passed: 1, failed: 2 });
        assert_eq!(judged(&[]), Tally::default(), "nobody asked");
    }

    #[test]
    fn a_row_without_a_bar_is_checked_for_its_being_there() {
        let rows =
            [Row { bar: Some(3.5), ..sample() }, Row { bar: None, ours: None, floor: None, ..sample() }];
        let checked = |words: &[&str]| {
            let mut report = report(words);
            rows.iter().for_each(|row| report.check(row));
            report.tally
        };
        assert_eq!(checked(&[]), Tally { passed: 1, failed: 1 });
        assert_eq!(checked(&["--check"]), Tally { passed: 0, failed: 2 });
    }

    #[test]
    fn a_row_is_printed_in_columns() {
        let columns = Columns { work: 8, floor: false };
        assert_eq!(
            report(&[]).columns(columns).line(&sample()),
            "a scan           30         10    3.00  reached"
        );
        let columns = Columns { work: 8, floor: true };
        let unknown = Row { floor: None, ratio: None, ..sample() };
        assert_eq!(
            report(&[]).columns(columns).line(&unknown),
            "a scan           30         10          -       -  short"
        );
    }
}
