//! `thalweg bench`: a server measured from outside, and how its figures are printed.

use crate::client::{Failure, Output};
use crate::exit::{self, EXIT_CONFIGURATION, EXIT_CONFLICT, EXIT_FAILED, EXIT_UNREACHABLE};
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;
use thalweg_load::{BenchVerb, Error};

/// Does what the verb says, and prints what was measured.
pub(crate) fn run(verb: &BenchVerb, output: Output) -> ExitCode {
    match thalweg_load::run(verb) {
        Ok(report) => match say(&report, output) {
            Ok(()) if is_in_vain(&report) => ExitCode::from(EXIT_FAILED),
            Ok(()) if has_measured_nothing(&report) => {
                let why =
                    "nothing was done while it was measured: it takes more --seconds, or less --warm-up-ms";
                exit::complain(&why, EXIT_FAILED, output)
            }
            Ok(()) if loses(&report) => {
                let why = "records did not arrive, or not in their order: see `missing` and `outOfOrder`";
                exit::complain(&why, EXIT_FAILED, output)
            }
            said => exit::report(said, output),
        },
        Err(error) => {
            let code = match error {
                Error::Asked(_) => EXIT_CONFIGURATION,
                Error::Unreachable { .. } => EXIT_UNREACHABLE,
                Error::Conflict(_) => EXIT_CONFLICT,
                Error::Refused { by_token: true, .. } => EXIT_FAILED,
                Error::Refused { status, .. } => exit::code_of_status(status),
                Error::Preparing(_) | Error::Descriptors { .. } | Error::System(_) => EXIT_FAILED,
            };
            exit::complain(&error, code, output)
        }
    }
}

/// Whether nothing was done of what was tried.
fn is_in_vain(report: &Value) -> bool {
    let count = |name: &str| report.get(name).and_then(Value::as_u64);
    count("failed").is_some_and(|failed| failed > 0) && count("operations") == Some(0)
}

/// Whether there is nothing that figures could be of.
fn has_measured_nothing(report: &Value) -> bool {
    report.get("operations").and_then(Value::as_u64) == Some(0)
}

/// Whether a follower has not had each record that was taken, or not in its order.
fn loses(report: &Value) -> bool {
    let counts = ["missing", "outOfOrder"].map(|name| report.get(name).and_then(Value::as_u64));
    counts.into_iter().flatten().any(|count| count > 0)
}

fn say(report: &Value, output: Output) -> Result<(), Failure> {
    output.say(text(report), report)
}

/// A figure a line.
fn text(report: &Value) -> String {
    let mut text = String::new();
    for (name, value) in report.as_object().into_iter().flatten() {
        let _ = match value {
            Value::Null => Ok(()),
            Value::Number(number) if number.is_f64() => {
                writeln!(text, "{name:<22}{:>16.2}", number.as_f64().unwrap_or(0.0))
            }
            Value::Array(all) => all.iter().try_for_each(|one| writeln!(text, "{name:<22}{one:>16}")),
            Value::String(word) => writeln!(text, "{name:<22}{word:>16}"),
            other => writeln!(text, "{name:<22}{other:>16}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_of_which_nothing_was_done_has_failed() {
        let report =
            |failed: u64, operations: u64| serde_json::json!({ "failed": failed, "operations": operations });
        assert!(has_measured_nothing(&report(0, 0)) && !has_measured_nothing(&report(0, 1)));
        assert!(is_in_vain(&report(1, 0)) && !is_in_vain(&report(0, 0)) && !is_in_vain(&report(3, 5)));
    }

    #[test]
    fn a_load_that_misses_a_record_or_has_one_out_of_order_has_lost_it() {
        let report = |missing: u64, late: u64| serde_json::json!({ "missing": missing, "outOfOrder": late });
        assert!(loses(&report(1, 0)) && loses(&report(0, 1)) && !loses(&report(0, 0)));
        assert!(!loses(&serde_json::json!({ "operations": 5 })), "nobody follows");
    }

    #[test]
    fn figures_are_lines() {
        let text =
            text(&serde_json::json!({ "verb": "append", "p50Us": 1.5, "operations": 7, "serverUs": null }));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["p50Us", "1.50"]) && lines.contains(&vec!["operations", "7"]));
        assert_eq!(lines.len(), 3);
    }
}
