//! Variables of the environment that are meant for this program, by their names, and that nothing reads: what
//! a mistyped one was to say does not hold, and nothing else would tell.
//!
//! Each is warned of and none is refused: a wrapper may have its own. Those that Kubernetes sets for a
//! service that is called `thalweg`, or `thalweg-` and more, are not meant for this program.

use super::{KEYS, variable};
use std::ffi::OsString;

/// What the variables of this program begin with.
const PREFIX: &str = "THALWEG_";
/// Those that other verbs read.
const OTHERS: [&str; 4] = ["THALWEG_URL", "THALWEG_TOKEN", "THALWEG_TLS_CA", "THALWEG_TO_TOKEN"];

/// What the name of a service is followed by in a variable that Kubernetes sets for each.
const SERVICE_HOST: &str = "_SERVICE_HOST";

/// Warns of them, if there are any, in one line.
pub(crate) fn warn_of_unread_variables() {
    let variables = unread_variables();
    if !variables.is_empty() {
        tracing::warn!(%variables, "no verb of this program reads these environment variables");
    }
}

/// The names of those that are set to something, each with the one that it is most like; empty if there are
/// none.
pub(crate) fn unread_variables() -> String {
    unread(std::env::vars_os().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name))
}

/// The names that are none of ours and look like it, each with the one that it is most like.
fn unread(set: impl Iterator<Item = OsString>) -> String {
    let ours = || KEYS.iter().map(|key| variable(*key)).chain(OTHERS.map(str::to_owned));
    let names = set.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with(PREFIX));
    let names: Vec<String> = names.collect();
    let services: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(SERVICE_HOST)).collect();
    let is_of_kubernetes =
        |name: &str| services.iter().any(|service| name.strip_prefix(service).is_some_and(is_of_service));
    let is_unread = |name: &&String| !is_of_kubernetes(name) && ours().all(|known| known != **name);
    let mut unread: Vec<&String> = names.iter().filter(is_unread).collect();
    unread.sort_unstable();
    let told = unread.iter().map(|name| {
        let nearest = ours().min_by_key(|known| strsim::damerau_levenshtein(known, name));
        format!("{name} (the nearest is {})", nearest.unwrap_or_default())
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Whether that is what follows a service's name in the variables that Kubernetes sets for it: `_PORT` and
/// `_PORT_4437_TCP_ADDR`, `_SERVICE_PORT` and `_SERVICE_PORT_HTTP`.
fn is_of_service(rest: &str) -> bool {
    let is_port = |rest: &str| rest.is_empty() || rest.starts_with('_');
    let port = rest.strip_prefix("_SERVICE_PORT").or_else(|| rest.strip_prefix("_PORT"));
    rest == SERVICE_HOST || port.is_some_and(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Arguments;
    use clap::{Command, CommandFactory};
    use std::collections::BTreeSet;

    fn read(command: &Command, into: &mut BTreeSet<String>) {
        let variables = command.get_arguments().filter_map(|arg| arg.get_env());
        into.extend(variables.map(|name| name.to_str().unwrap().to_owned()));
        command.get_subcommands().for_each(|verb| read(verb, into));
    }

    #[test]
    fn what_some_verb_reads_is_ours_and_nothing_else_is() {
        let mut all = BTreeSet::new();
        read(&Arguments::command(), &mut all);
        let ours = KEYS.iter().map(|key| variable(*key)).chain(OTHERS.map(str::to_owned));
        assert_eq!(all, ours.collect());
        assert_eq!(unread(all.iter().map(OsString::from)), "");
    }

    #[test]
    fn what_kubernetes_sets_for_a_service_is_not_told() {
        let of = |service: &str| {
            let rests = [
                "SERVICE_HOST",
                "SERVICE_PORT",
                "SERVICE_PORT_HTTP",
                "PORT",
                "PORT_4437_TCP",
                "PORT_4437_TCP_ADDR",
            ];
            rests.map(|rest| format!("{service}_{rest}"))
        };
        let set = || ["THALWEG", "THALWEG_MAIN"].into_iter().flat_map(of).map(OsString::from);
        assert_eq!(unread(set()), "");
        // Nothing but that, and not where there is no such service.
        let others = ["THALWEG_PORTS", "THALWEG_SERVICE", "THALWEG_MAINPORT"].map(OsString::from);
        let told = unread(set().chain(others));
        assert_eq!(told.matches(" (the nearest is ").count(), 3, "{told}");
        assert!(
            unread([OsString::from("THALWEG_PORT")].into_iter()).starts_with("THALWEG_PORT (the nearest is ")
        );
    }

    #[test]
    fn a_mistyped_variable_is_told_with_the_one_that_was_meant() {
        let set =
            ["THALWEG_LISTNE", "PATH", "THALWEG_DATA", "THALWEG_LOGLEVEL", "THALWEGS", "XTHALWEG_LISTEN"];
        let told = unread(set.iter().map(OsString::from));
        assert_eq!(
            told,
            "THALWEG_LISTNE (the nearest is THALWEG_LISTEN), THALWEG_LOGLEVEL (the nearest is THALWEG_LOG_LEVEL)"
        );
    }
}
