//! What the command line asks a benchmark to measure:
//! `[--pairs N] [--first-pair N] [--milliseconds N | --turns N] [--only WORK,WORK] [--sides SIDE,SIDE]`.

use crate::measure::Until;
use crate::{Failure, option};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The numbers of the pairs.
    pub pairs: Range<usize>,
    /// How long each measurement takes.
    pub until: Until,
    only: Vec<String>,
    sides: Vec<String>,
}

impl Plan {
    /// What the command line says.
    ///
    /// # Errors
    /// A value that is none.
    pub fn asked() -> Result<Self, Failure> {
        let turns: u64 = option("--turns", 0)?;
        let time = Duration::from_millis(option("--milliseconds", 400)?);
        let (pairs, first): (usize, usize) = (option("--pairs", 5)?, option("--first-pair", 0)?);
        Ok(Self {
            pairs: first..first + pairs,
            until: if turns > 0 { Until::Turns(turns) } else { Until::Elapsed(time) },
            only: list("--only")?,
            sides: list("--sides")?,
        })
    }

    /// Whether a work is among those to be measured.
    pub fn wants(&self, work: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == work)
    }

    /// Whether a side is.
    pub fn wants_side(&self, side: &str) -> bool {
        self.sides.is_empty() || self.sides.iter().any(|name| name == side)
    }

    /// Whether the amount of work is fixed, and not its time.
    pub const fn is_fixed(&self) -> bool {
        matches!(self.until, Until::Turns(_))
    }
}

/// The names behind an option, between commas.
fn list(name: &str) -> Result<Vec<String>, Failure> {
    let names = option(name, String::new())?;
    Ok(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// How a program ends.
pub fn ended(program: &str, outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{program}: {problem}");
            ExitCode::FAILURE
        }
    }
}
