//! Mistakes of a command line, said in the form that was asked for: for people as clap lays them out, for
//! programs as any other complaint. Knows clap's errors and nothing of what a command line means.

use super::flag_ranges;
use crate::client::{Failure, Output, notice};
use crate::command_line::Arguments;
use crate::exit::{EXIT_CONFIGURATION, complain, report};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// What the parser of numbers says of text that is no number.
const NO_DIGIT: &str = "invalid digit found in string";
/// And what is to be done.
const NO_NUMBER: &str = "expected a whole number, without a unit";

/// How a command line that cannot be read wants to be answered, as far as can be told.
pub(crate) fn asked_for(line: &[OsString]) -> Output {
    let words = || line.iter().take_while(|word| *word != "--");
    let apart = words().zip(words().skip(1)).any(|(flag, value)| flag == "--output" && value == "json");
    if apart || words().any(|word| word == "--output=json") { Output::Json } else { Output::Text }
}

/// As [`misused`], for a whole line. Help is told with the bounds of what it takes.
pub(crate) fn misused_in(line: &[OsString], error: &Error) -> ExitCode {
    let is_help =
        matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    let with_ranges = if is_help { flag_ranges::command().try_get_matches_from(line).err() } else { None };
    misused(line, with_ranges.as_ref().unwrap_or(error), asked_for(line))
}

/// Says what is wrong with a command line, or with the environment beside it. That somebody asked for help or
/// the version is no mistake, and ends with 0.
pub(crate) fn misused(line: &[OsString], error: &Error, output: Output) -> ExitCode {
    let text = told(line, error);
    if output == Output::Text && text != error.to_string() {
        notice(text.trim_end());
        return ExitCode::from(EXIT_CONFIGURATION);
    }
    if output == Output::Text || !error.use_stderr() {
        return match error.print().and_then(|()| io::stdout().flush()) {
            // A reader that closed the pipe, as `head` does, has read enough.
            Err(failure) if !error.use_stderr() && failure.kind() != io::ErrorKind::BrokenPipe => {
                report(Err(Failure::Output(failure)), output)
            }
            _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_CONFIGURATION)),
        };
    }
    complain(&complaint(line, error), EXIT_CONFIGURATION, output)
}

/// What clap says, in words that name the variable where a value is the environment's.
fn told(line: &[OsString], error: &Error) -> String {
    let text = error.to_string().replace(NO_DIGIT, NO_NUMBER);
    let Some(ContextValue::String(named)) = error.get(ContextKind::InvalidArg) else { return text };
    let flag = named.split([' ', '[']).next().unwrap_or_default();
    match variable(&Arguments::command(), line, flag) {
        Some((key, variable)) => {
            text.replace(&format!("'{named}'"), &format!("`{key}` (environment, {variable})"))
        }
        None => text,
    }
}

/// The key of a flag that the line does not have, and the variable that has its value.
fn variable(command: &Command, line: &[OsString], flag: &str) -> Option<(String, String)> {
    let with_value = format!("{flag}=");
    let mut words = line.iter().take_while(|word| *word != "--").map(|word| word.to_string_lossy());
    if words.any(|word| word == flag || word.starts_with(&with_value)) {
        return None;
    }
    let all = command.get_subcommands().chain([command]).flat_map(Command::get_arguments);
    let mut named =
        all.filter(|arg| arg.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long)));
    named.find_map(|arg| {
        let variable = arg.get_env().filter(|name| std::env::var_os(name).is_some())?;
        Some((arg.get_id().to_string(), variable.to_string_lossy().into_owned()))
    })
}

/// What is wrong in a line, without what is laid out for people.
fn complaint(line: &[OsString], error: &Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a verb is missing: --help lists them".to_owned();
    }
    let text = told(line, error);
    let text = text.trim_start_matches("error: ");
    let ends = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|end| text.find(end));
    let said = &text[..ends.min().unwrap_or(text.len())];
    let part = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    said.split("\n\n").map(part).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn line(words: &[&str]) -> Vec<OsString> {
        ["thalweg"].iter().chain(words).map(OsString::from).collect()
    }

    #[test]
    fn the_form_is_found_in_a_line_that_cannot_be_read() {
        for json in [&["--output", "json", "serve", "--bogus"][..], &["serve", "--bogus", "--output=json"]] {
            assert_eq!(asked_for(&line(json)), Output::Json, "{json:?}");
        }
        for text in [&["--output", "text", "x"][..], &["--output"], &["append", "a", "--", "--output=json"]] {
            assert_eq!(asked_for(&line(text)), Output::Text, "{text:?}");
        }
    }

    #[test]
    fn a_complaint_is_one_line_with_what_is_wrong() {
        for (words, wanted) in [
            (&["serve", "--bogus"][..], "unexpected argument '--bogus' found"),
            (&["serve", "--reactors", "99"], "invalid value '99' for '--reactors <N>': 99 is not in 1..=29"),
            (
                &["serve", "--body-max-bytes", "16M"],
                "invalid value '16M' for '--body-max-bytes <BYTES>': expected a whole number, without a unit",
            ),
            (&["appendd"], "unrecognized subcommand 'appendd'; tip: "),
            (&["append"], "the following required arguments were not provided: <NAME>"),
            (&[], "a verb is missing: --help lists them"),
            (&["bench"], "a verb is missing: --help lists them"),
        ] {
            let said = complaint(&line(words), &Arguments::try_parse_from(line(words)).unwrap_err());
            assert!(said.starts_with(wanted) && !said.contains("Usage") && !said.contains('\n'), "{said}");
        }
    }
}
