//! The ranges of the numbers that flags take, for help and manual pages.
//!
//! A number's range stands once, in its parser. So the range is read from the error that the parser gives
//! for a number beyond every range. That takes a parse for each flag, and is done only where help is shown.

use crate::command_line::Arguments;
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory};

/// A number beyond every range.
const BEYOND: &str = "9223372036854775807";
/// What stands in front of the range in a parser's error.
const SAID: &str = " is not in ";

/// The command line with the range of each number in its help.
pub(crate) fn command() -> Command {
    with_ranges(Arguments::command(), &[])
}

fn with_ranges(mut command: Command, path: &[&str]) -> Command {
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for verb in &verbs {
        let path: Vec<&str> = path.iter().copied().chain([verb.as_str()]).collect();
        command = command.mut_subcommand(verb, |verb| with_ranges(verb, &path));
    }
    command.mut_args(|arg| match arg.get_long().and_then(|flag| range(path, flag)) {
        Some(range) => told(arg, &range),
        None => arg,
    })
}

/// The range of a verb's flag, if it takes a number that has one.
fn range(path: &[&str], flag: &str) -> Option<String> {
    let (program, flag) = (["thalweg"], format!("--{flag}"));
    let line = program.iter().chain(path).copied().chain([flag.as_str(), BEYOND]);
    let error = Arguments::command().try_get_matches_from(line).err()?;
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let text = error.to_string();
    let range = text.split_once(SAID)?.1.split_whitespace().next()?;
    let (from, to) = range.split_once("..=")?;
    Some(format!("[{from} to {to}]"))
}

fn told(arg: Arg, range: &str) -> Arg {
    let with = |help: Option<&clap::builder::StyledStr>| help.map(|help| format!("{help} {range}"));
    let (short, long) = (with(arg.get_help()), with(arg.get_long_help()));
    let arg = match short {
        Some(help) => arg.help(help),
        None => arg,
    };
    match long {
        Some(help) => arg.long_help(help),
        None => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_says_what_it_may_be_and_nothing_else_does() {
        assert_eq!(range(&["serve"], "reactors").as_deref(), Some("[1 to 29]"));
        assert_eq!(range(&["watch"], "interval-ms").as_deref(), Some("[10 to 3600000]"), "hidden or not");
        assert_eq!(range(&["bench", "append"], "name-bytes").as_deref(), Some("[0 to 1024]"));
        for (verb, flag) in
            [("append", "retry"), ("serve", "data"), ("serve", "durability"), ("append", "json")]
        {
            assert_eq!(range(&[verb], flag), None, "{verb} {flag}");
        }
    }

    #[test]
    fn help_has_them() {
        let help = |line: &[&str]| command().try_get_matches_from(line).unwrap_err().to_string();
        let said = help(&["thalweg", "append", "--help"]);
        assert!(said.contains("[1 to 1073741824]"), "{said}");
        let said = help(&["thalweg", "fork-server", "--help"]);
        assert!(said.contains("[1 to 65536]") && said.contains("[1 to 4294967295]"), "{said}");
    }
}
