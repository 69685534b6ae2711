//! The developers' entry point: `cargo xtask <task>`. Owns the checks that no compiler makes and the judges
//! that treat the server as a black box; never knows the server's insides (it is started as a program, spoken
//! to over HTTP, measured through /proc, and killed).
//!
//! | folder | tasks |
//! |---|---|
//! | [`tidy`] | the rules of CONTRIBUTING.md that no compiler checks |
//! | [`generated`] | codegen, golden, faults, header |
//! | [`faces`] | every language's package, and each calling each |
//! | [`blackbox`] | the server from outside: clients, refusals, crashes, damage, long runs |
//! | [`measures`] | memory with a bar |
//! | [`mod@bench`] | figures beside the peers |
//! | [`ci`] | all of it, as steps |
//! | [`harness`] | what tasks share |
#![forbid(unsafe_code)]

mod bench;
mod blackbox;
mod ci;
mod faces;
mod generated;
mod harness;
mod measures;
mod tidy;

use blackbox::{
    conformance, crash, damage, debian, drain, full, fuzz, judges, refusals, simulate, soak, state_crash,
};
use faces::{asyncio, cpp, erlang, guide, matrix, node, python, zig};
use generated::{codegen, faults, golden, header};
use harness::options::Options;
use harness::usage;
use measures::{empty, forks, million, slopes};
use std::process::ExitCode;

/// What a task ends with: how many checks passed and failed, or why it could not run.
pub(crate) type Outcome = Result<Tally, String>;

/// Checks that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Checks that held.
    pub(crate) passed: u64,
    /// Checks that did not.
    pub(crate) failed: u64,
}

impl Tally {
    /// Counts one check and says so when it failed.
    pub(crate) fn check(&mut self, holds: bool, says: impl FnOnce() -> String) {
        if holds {
            self.passed += 1;
        } else {
            self.failed += 1;
            eprintln!("  FAILED: {}", says());
        }
    }

    /// Counts what was judged elsewhere.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(task) = words.next() else {
        eprintln!("{}", usage::ALL);
        return ExitCode::from(2);
    };
    let words: Vec<String> = words.collect();
    if usage::is_asked(&task, &words) {
        println!("{}", usage::of(&task));
        return ExitCode::SUCCESS;
    }
    let outcome = Options::parse(words.into_iter()).and_then(|options| run(&task, &options));
    match outcome {
        Ok(tally) => {
            println!("{task}: {} passed, {} failed", tally.passed, tally.failed);
            if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(problem) => {
            eprintln!("{task}: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(task: &str, options: &Options) -> Outcome {
    match task {
        "tidy" => tidy::run(),
        "ci" => ci::run(options),
        "conformance" => conformance::run(options),
        "debian" => debian::run(options),
        "crash" => crash::run(options),
        "state-crash" => state_crash::run(options),
        "refusals" => refusals::run(options),
        "judges" => judges::run(options),
        "slopes" => slopes::run(options),
        "simulate" => simulate::run(options),
        "soak" => soak::run(options),
        "streams-million" => million::run(options),
        "drain" => drain::run(options),
        "empty" => empty::run(options),
        "forks" => forks::run(options),
        "full" => full::run(options),
        "node" => node::run(options),
        "faces-format" => node::write_format(),
        "damage" => damage::run(options),
        "python" => python::run(options),
        "asyncio" => asyncio::run(options),
        "bench" => bench::run(options),
        "codegen" => codegen::run(options),
        "golden" => golden::run(options),
        "header" => header::run(options),
        "cpp" => cpp::run(options),
        "zig" => zig::run(options),
        "erlang" => erlang::run(options),
        "fuzz" => fuzz::run(options),
        "faults" => faults::run(options),
        "guide" => guide::run(options),
        "matrix" => matrix::run(options),
        _ => Err(format!("no such task\n\n{}", usage::ALL)),
    }
}
