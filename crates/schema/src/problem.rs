//! What is wrong with a schema, where, and what to do about it. Owns the wording's frame and the step from
//! byte offsets to lines and columns; never knows the rules.

use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, with the offending text.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

/// Everything that is wrong with one schema, in the order of the text. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The schema's file, as the caller named it.
    pub file: String,
    /// All of them.
    pub list: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.list.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            let Problem { line, column, what, hint } = problem;
            write!(f, "{}:{line}:{column}: {what}\n  hint: {hint}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A problem that still names its place by offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) at: usize,
    pub(crate) what: String,
    pub(crate) hint: String,
}

impl Finding {
    pub(crate) fn at(at: usize, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { at, what: what.into(), hint: hint.into() }
    }
}

/// Findings in the order of the text, as lines and columns.
pub(crate) fn report(file: &str, text: &str, mut findings: Vec<Finding>) -> Problems {
    findings.sort_by_key(|finding| finding.at);
    let (mut passed, mut line, mut column) = (0, 1, 1);
    let list = findings.into_iter().map(|finding| {
        let mut at = finding.at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        // In the order of the text, so that it is passed once.
        for character in text[passed..at].chars() {
            (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        passed = at;
        Problem { line, column, what: finding.what, hint: finding.hint }
    });
    Problems { file: file.to_owned(), list: list.collect() }
}

/// The longest name, in bytes, that is compared with another: the longest that anything may have.
const COMPARED_BYTES_MAX: usize = 64;

/// How many names are compared with names that nothing has, in the whole of a schema. Each such name is
/// compared with all that are declared, so without a bound many of both take a time that grows with its
/// square.
pub(crate) const COMPARISONS_MAX: usize = 1 << 16;

/// Hints that name what was probably meant, from lists that are as long as the schema. After
/// [`COMPARISONS_MAX`] comparisons they only say what there is.
#[derive(Default)]
pub(crate) struct Suggestions {
    comparisons: usize,
}

impl Suggestions {
    pub(crate) fn hint<'a>(
        &mut self,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
        otherwise: &str,
    ) -> String {
        if self.comparisons >= COMPARISONS_MAX {
            return otherwise.to_owned();
        }
        did_you_mean_or(word, known.into_iter().inspect(|_| self.comparisons += 1), otherwise)
    }
}

/// A hint that names what was probably meant, or else says what there is.
pub(crate) fn did_you_mean_or<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: impl Into<String>,
) -> String {
    did_you_mean(word, known).unwrap_or_else(|| otherwise.into())
}

/// A hint that names what was probably meant.
fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|name| format!("did you mean \"{name}\"?"))
}

/// What was probably meant: near enough for a hint, which may be wrong.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let may_be_compared = |name: &str| name.len() <= COMPARED_BYTES_MAX;
    if !may_be_compared(word) {
        return None;
    }
    let lower = word.to_lowercase();
    let score = |name: &str| strsim::jaro_winkler(&lower, &name.to_lowercase());
    let known = known.into_iter().filter(|name| may_be_compared(name));
    let best = known.map(|name| (score(name), name)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.75).then_some(best.1)
}

/// The most letters that are wrong in a name that was mistyped.
const MISTYPED_MAX: usize = 2;

/// Whether a word can only be a name mistyped: no more than two letters and a third of the name are missing,
/// added, changed or exchanged, whatever the casing. For what decides how the word is read.
pub(crate) fn is_typo(word: &str, name: &str) -> bool {
    let wrong = strsim::osa_distance(&word.to_lowercase(), &name.to_lowercase());
    wrong <= MISTYPED_MAX && 3 * wrong <= name.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_not_bytes() {
        let text = "a\nåä x";
        let problems = report("f.jsonc", text, vec![Finding::at(7, "wrong", "right")]);
        assert_eq!((problems.list[0].line, problems.list[0].column), (2, 4));
        let several = [9, 0, 7, 2].map(|at| Finding::at(at, "wrong", "right"));
        let places = report("f.jsonc", "a\nåä x\ny", several.into()).list;
        let places: Vec<_> = places.iter().map(|problem| (problem.line, problem.column)).collect();
        assert_eq!(places, [(1, 1), (2, 1), (2, 4), (3, 1)]);
        assert_eq!(problems.to_string(), "f.jsonc:2:4: wrong\n  hint: right");
    }

    #[test]
    fn only_near_words_are_suggested() {
        assert_eq!(did_you_mean("strin", ["string", "bytes"]).as_deref(), Some("did you mean \"string\"?"));
        assert_eq!(did_you_mean("zzz", ["string", "bytes"]), None);
    }

    #[test]
    fn a_name_mistyped_is_told_from_another_word() {
        let words =
            [("reqest", "request"), ("respones", "response"), ("commads", "commands"), ("FORKS", "fork")];
        assert!(words.iter().all(|(word, name)| is_typo(word, name)));
        let others =
            [("format", "fork"), ("forward", "fork"), ("streaming", "stream"), ("result", "request")];
        assert!(!others.iter().any(|(word, name)| is_typo(word, name)));
        assert!(
            others.iter().all(|(word, name)| nearest(word, [*name]).is_some()),
            "only a hint names these"
        );
    }
}
