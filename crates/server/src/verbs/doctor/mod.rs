//! `thalweg doctor`: whether this machine is one that a server does well on. Looks, measures for a moment,
//! changes nothing.
//!
//! Judges by the configuration that a server would start with here: the same file, the same environment. Each
//! check is one finding: what was looked at, what was found, and what to do where it is not good. A finding
//! is bad when a server would not start, would not get far, or could lose what it acknowledged.

mod place;
mod system;

use crate::bounds::Limits;
use crate::client::{Failure, Output};
use crate::command_line::ServeOptions;
use crate::config;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    Poor,
    Bad,
}

/// What a check came to.
#[derive(Debug, Serialize)]
struct Finding {
    verdict: Verdict,
    check: &'static str,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "str::is_empty")]
    advice: Cow<'static, str>,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.verdict {
            Verdict::Good => "good",
            Verdict::Poor => "poor",
            Verdict::Bad => "BAD ",
        };
        write!(out, "{word}  {:<14}{}", self.check, self.found)?;
        if self.advice.is_empty() { Ok(()) } else { write!(out, "\n      {:<14}{}", "", self.advice) }
    }
}

fn good(check: &'static str, found: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Good, check, found: found.into(), advice: "".into() }
}

fn poor(check: &'static str, found: impl Into<String>, advice: impl Into<Cow<'static, str>>) -> Finding {
    Finding { verdict: Verdict::Poor, check, found: found.into(), advice: advice.into() }
}

fn bad(check: &'static str, found: impl Into<String>, advice: impl Into<Cow<'static, str>>) -> Finding {
    Finding { verdict: Verdict::Bad, check, found: found.into(), advice: advice.into() }
}

/// Variables that are meant for this program by their names, and that nothing reads.
fn environment(unread: &str) -> Finding {
    if unread.is_empty() {
        return good("environment", "no variable that is set looks meant for this program and goes unread");
    }
    let found = format!("no verb of this program reads {unread}");
    poor("environment", found, "they have no effect: correct the spelling, or unset them")
}

/// Checks, and prints what was found; whether none of it is bad. `limits` are those of a server with these
/// options.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn examine(options: &ServeOptions, limits: &Limits, output: Output) -> Result<bool, Failure> {
    let mut findings = system::findings(options, limits);
    findings.push(environment(&config::unread_variables()));
    findings.extend(place::findings(options));
    let fine = findings.iter().all(|finding| finding.verdict != Verdict::Bad);
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    output.say(text.join("\n"), serde_json::json!({ "findings": findings, "fine": fine }))?;
    Ok(fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_good_says_what_to_do() {
        let finding = poor("space", "1 GiB free of 2 GiB", "make room");
        assert_eq!(
            finding.to_string(),
            "poor  space         1 GiB free of 2 GiB\n                    make room"
        );
        assert_eq!(good("clock", "right").to_string(), "good  clock         right");
    }
}
