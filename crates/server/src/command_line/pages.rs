//! What can be generated from the command line's definition: shell completions and manual pages.

use super::arguments::{Arguments, EXIT_CODES};
use super::flag_ranges;
use crate::client::{Failure, Output};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// Prints what makes a shell complete this command line.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut <Arguments as clap::CommandFactory>::command(),
        "thalweg",
        &mut script,
    );
    Output::Text.say(String::from_utf8_lossy(&script), ())
}

/// Prints the manual page of the program, or of one verb: `bench append` is one, of two words.
///
/// # Errors
/// There is no such verb; standard output cannot be written.
pub(crate) fn manual(verb: &[String]) -> Result<(), Failure> {
    let page = page(verb)?;
    Output::Text.say(String::from_utf8_lossy(&page), ())
}

fn page(verb: &[String]) -> Result<Vec<u8>, Failure> {
    let mut command = flag_ranges::command();
    command.build();
    let mut known = verbs(&command);
    for word in verb {
        let found = command.find_subcommand(word).cloned();
        command = found.ok_or_else(|| Failure::Verb { verb: verb.join(" "), known: known.clone() })?;
        if command.has_subcommands() {
            known = verbs(&command);
        }
    }
    if !verb.is_empty() {
        // A page is found as thalweg-bench-append(1), and speaks of `thalweg bench append`.
        command = command
            .name(format!("thalweg-{}", verb.join("-")))
            .bin_name(format!("thalweg {}", verb.join(" ")));
    }
    // As help has it: the page's own would say neither what may be repeated nor what stands behind `--`.
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let mut page = Vec::new();
    let sections = sections(&command, verb.is_empty());
    // What help ends with is a section of its own here.
    let manual = Man::new(command.after_help(None::<&'static str>)).manual("Thalweg").source("thalweg");
    manual.render(&mut page).map_err(Failure::Output)?;
    sections.to_writer(&mut page).map_err(Failure::Output)?;
    Ok(page)
}

fn verbs(command: &Command) -> String {
    let names = command.get_subcommands().map(Command::get_name).filter(|name| *name != "help");
    names.collect::<Vec<_>>().join(", ")
}

/// A variable for each flag that has one.
fn variables(command: &Command) -> Vec<String> {
    let named = |arg: &clap::Arg| {
        let (variable, flag) = (arg.get_env()?.to_string_lossy().into_owned(), arg.get_long()?);
        Some(format!("{variable}: as --{flag}, which comes before it."))
    };
    command.get_arguments().filter_map(named).collect()
}

/// What the command line's definition does not say, or a page of it would not.
fn sections(command: &Command, own: bool) -> Roff {
    let mut page = Roff::new();
    let mut section = |title: &str, text: &[&str]| {
        page.control("SH", [title]);
        for paragraph in text {
            page.control("PP", []);
            page.text([roman(*paragraph)]);
        }
    };
    section("EXIT STATUS", &[EXIT_CODES.trim_start_matches("Exit codes: ")]);
    if !own {
        let variables = variables(command);
        let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
        if !variables.is_empty() {
            section("ENVIRONMENT", &variables);
        }
        return page;
    }
    section(
        "ENVIRONMENT",
        &[
            "THALWEG_URL: the server that client verbs speak to, unless --url is given.",
            "THALWEG_CONFIG and a variable for each flag of serve (THALWEG_LISTEN, THALWEG_DATA, ...): see \
             thalweg-serve(1). A flag comes before its variable, that before the configuration file.",
            "NOTIFY_SOCKET, LISTEN_PID, LISTEN_FDS: as systemd sets them for a service of type notify and for \
             socket activation.",
        ],
    );
    section(
        "SIGNALS",
        &[
            "SIGTERM, SIGINT: finish what is in flight, then end; a second one ends at once.",
            "SIGHUP: read the configuration again and bring into force what can be without a restart.",
        ],
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// For some verb: which ones share a flag is the documents' to say. What `serve` is told are keys of the
    /// configuration, each with a row that `config` checks.
    #[test]
    fn the_name_of_every_flag_is_told_in_the_documents() {
        const DOCUMENTS: &str = concat!(
            include_str!("../../../../docs/client.md"),
            include_str!("../../../../docs/forks.md"),
            include_str!("../../../../docs/operations.md"),
            include_str!("../../../../docs/schema.md"),
            include_str!("../../../../SECURITY.md"),
        );
        let words: std::collections::HashSet<&str> =
            DOCUMENTS.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-')).collect();
        let command = Arguments::command();
        let verbs = command.get_subcommands().filter(|verb| verb.get_name() != "serve");
        for verb in verbs.flat_map(|verb| std::iter::once(verb).chain(verb.get_subcommands())) {
            for flag in verb.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(|of| of.get_long())
            {
                let is_told = words.contains(&*format!("--{flag}"));
                assert!(is_told, "--{flag} of {} is told nowhere", verb.get_name());
            }
        }
    }

    #[test]
    fn every_verb_has_a_page_and_the_programs_own_has_everything() {
        let own = String::from_utf8(page(&[]).unwrap()).unwrap();
        for wanted in [".TH thalweg 1", "EXIT STATUS", "THALWEG_URL", "SIGHUP", "thalweg\\-append(1)"] {
            assert!(own.contains(wanted), "{wanted}: {own}");
        }
        let command = Arguments::command();
        let named = |verb: &Command| verb.get_name().to_owned();
        for verb in command.get_subcommands() {
            let inner = verb.get_subcommands().map(|inner| vec![named(verb), named(inner)]);
            for words in std::iter::once(vec![named(verb)]).chain(inner) {
                let page = String::from_utf8(page(&words).unwrap()).unwrap();
                let name = words.join("-").replace('-', "\\-");
                assert!(page.contains(&format!("thalweg\\-{name}")), "{page}");
            }
        }
        let words = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let of = |verb: &str| String::from_utf8(page(&words(verb)).unwrap()).unwrap();
        assert!(!own.contains("EXTRA"), "{own}");
        for (verb, variable) in [("serve", "THALWEG_BODY_MAX_BYTES: as"), ("append", "THALWEG_URL: as")] {
            let page = of(verb);
            assert!(page.contains(variable) && page.contains("EXIT STATUS"), "{page}");
        }
        assert!(of("serve").contains("[1 to 29]"));
        for (verb, usage) in [
            ("append", r"thalweg append\fR [OPTIONS] <NAME> [DATA]..."),
            ("man", r"thalweg man\fR [OPTIONS] [VERB]..."),
            ("fork-server", r"thalweg fork\-server\fR [OPTIONS] \-\-control <ENDPOINT> \-\- <PROGRAM>..."),
        ] {
            let page = of(verb);
            assert!(page.contains(&format!(".SH SYNOPSIS\n\\fB{usage}\n")), "{page}");
        }
        let failure = page(&words("append x")).unwrap_err().to_string();
        assert!(failure.contains("append, read"), "{failure}");
        let failure = page(&["fly".to_owned()]).unwrap_err().to_string();
        assert!(failure.contains("append, read") && failure.contains("fly"), "{failure}");
    }
}
