//! Glob patterns over stream names, and what may be a name (PROTOCOL 6.2).
//!
//! Two rules: `*` as a whole segment matches one segment, `**` as a whole segment matches any number of
//! them, none included. A `*` inside a segment matches any run of characters of that segment. Matching
//! never backtracks more than once per star, so a hostile pattern costs at most length times length.

use std::sync::Arc;
use thalweg_wire::path::RESERVED;

/// Longest pattern and longest name, bytes.
const BYTES_MAX: usize = 1024;

/// A checked glob pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: Arc<str>,
}

impl Pattern {
    /// The pattern in `text`; `None` unless its segments could match those of a stream's name.
    pub(crate) fn parse(text: &str) -> Option<Pattern> {
        is_name(text).then(|| Pattern { text: text.into() })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches the whole of `name`.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let pattern: Vec<&str> = self.text.split('/').collect();
        let name: Vec<&str> = name.split('/').collect();
        wild(&pattern, &name, |segment| *segment == "**", |segment, part| segment_matches(segment, part))
    }
}

fn segment_matches(pattern: &str, part: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    wild(pattern.as_bytes(), part.as_bytes(), |byte| *byte == b'*', |byte, other| byte == other)
}

/// Whether a sequence with stars, each for any number of items, matches another. Greedy: of several stars
/// only the last one ever has to be tried again.
fn wild<P, T>(pattern: &[P], items: &[T], star: impl Fn(&P) -> bool, same: impl Fn(&P, &T) -> bool) -> bool {
    let (mut at, mut item) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while item < items.len() {
        match pattern.get(at) {
            Some(piece) if star(piece) => {
                at += 1;
                retry = Some((at, item));
            }
            Some(piece) if same(piece, &items[item]) => {
                at += 1;
                item += 1;
            }
            _ => match &mut retry {
                Some((after, from)) => {
                    *from += 1;
                    (at, item) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(star)
}

/// Whether `text` may name an application's stream: what a path may name, outside the reserved segment.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= BYTES_MAX
        && !text.chars().any(char::is_control)
        && text.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
        && text.split('/').next() != Some(RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_stand_for_segments() {
        for (pattern, yes, no) in [
            (
                "events/*",
                &["events/a", "events/b-c"][..],
                &["events", "events/a/b", "other/a", "xevents/a"][..],
            ),
            ("events/**", &["events", "events/a", "events/a/b/c"], &["event", "eventsx/a"]),
            ("**", &["a", "a/b/c"], &[]),
            ("**/log", &["log", "a/log", "a/b/log"], &["a/log/b", "alog"]),
            ("a/**/z", &["a/z", "a/b/z", "a/z/z"], &["a", "a/b", "a/z/b"]),
            ("a/*/z", &["a/b/z"], &["a/z", "a/b/c/z"]),
            ("a/b*d/z", &["a/bd/z", "a/bxxd/z"], &["a/b/z", "a/b/d/z", "a/bdx/z"]),
            ("exact", &["exact"], &["exactly", "exact/a"]),
        ] {
            let parsed = Pattern::parse(pattern).unwrap();
            yes.iter().for_each(|name| assert!(parsed.matches(name), "{pattern} matches {name}"));
            no.iter().for_each(|name| assert!(!parsed.matches(name), "{pattern} does not match {name}"));
        }
    }

    #[test]
    fn what_cannot_match_is_no_pattern() {
        for bad in ["", "/a", "a//b", "a/../b", "__ds/*", "a\n", &"x".repeat(1025)] {
            assert_eq!(Pattern::parse(bad), None, "{bad:?}");
        }
        assert!(!Pattern::parse("**").unwrap().text().is_empty());
    }

    /// The definition, without regard to cost.
    fn plain(pattern: &[&str], name: &[&str]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((&"**", rest)), _) => {
                plain(rest, name) || name.split_first().is_some_and(|(_, name)| plain(pattern, name))
            }
            (Some((piece, rest)), Some((part, name))) => {
                (*piece == "*" || piece == part) && plain(rest, name)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_is_as_defined(
            pattern in "(a|b|\\*|\\*\\*)(/(a|b|\\*|\\*\\*)){0,5}", name in "(a|b)(/(a|b)){0,6}",
        ) {
            let expected = plain(
                &pattern.split('/').collect::<Vec<_>>(), &name.split('/').collect::<Vec<_>>());
            prop_assert_eq!(Pattern::parse(&pattern).unwrap().matches(&name), expected);
        }
    }
}
