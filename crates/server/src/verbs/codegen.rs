//! `thalweg codegen`: a schema to source, or, with `--check`, whether what is there is what would be written.

use crate::client::{Failure, Output};
use crate::exit;
use serde_json::json;
use std::process::ExitCode;
use thalweg_codegen::{Arguments, Difference, Error, Report};

/// Writes, or compares.
pub(crate) fn run(arguments: &Arguments, check: bool, output: Output) -> ExitCode {
    if check {
        return match thalweg_codegen::check(arguments) {
            Ok(differences) => compared(arguments, &differences, output),
            Err(error) => failed(&error, output),
        };
    }
    match thalweg_codegen::run(arguments) {
        Ok(report) => exit::report(written(arguments, &report, output), output),
        Err(error) => failed(&error, output),
    }
}

fn written(arguments: &Arguments, report: &Report, output: Output) -> Result<(), Failure> {
    let out = arguments.out.display();
    let mut text = format!(
        "{out}: {} written, {} unchanged, {} removed",
        report.written.len(),
        report.unchanged.len(),
        report.removed.len()
    );
    for removed in &report.removed {
        text += &format!("\nremoved {out}/{removed}");
    }
    for kept in &report.kept {
        text += &format!("\n{out}/{kept} is no longer generated but was changed by hand: remove it yourself");
    }
    let json = json!({
        "written": report.written, "unchanged": report.unchanged, "removed": report.removed, "kept": report.kept,
    });
    output.say(text, json)
}

fn compared(arguments: &Arguments, differences: &[Difference], output: Output) -> ExitCode {
    let out = arguments.out.display();
    if differences.is_empty() {
        let json = json!({ "differences": [] });
        return exit::report(output.say(format!("{out}: as it would be generated"), json), output);
    }
    let (words, json): (Vec<String>, Vec<_>) = differences
        .iter()
        .map(|difference| {
            let (kind, path) = match difference {
                Difference::Missing(path) => ("missing", path),
                Difference::Changed(path) => ("changed", path),
                Difference::Stale(path) => ("stale", path),
            };
            (format!("{kind} {out}/{path}"), json!({ "kind": kind, "path": path }))
        })
        .unzip();
    let said = output.say(words.join("\n"), json!({ "differences": json }));
    if said.is_err() {
        return exit::report(said, output);
    }
    let advice = format!("{out} is not what would be generated: run the same without --check");
    exit::complain(&advice, exit::EXIT_CONFLICT, output)
}

fn failed(error: &Error, output: Output) -> ExitCode {
    let code = match error {
        Error::Schema(_) | Error::Options(_) => exit::EXIT_CONFIGURATION,
        Error::Foreign(_) | Error::Occupied { .. } => exit::EXIT_CONFLICT,
        Error::File { .. } | Error::NoLayout(_) | Error::Layout(_) => exit::EXIT_FAILED,
    };
    exit::complain(error, code, output)
}
