//! Glob patterns over stream names, and what may be a name (PROTOCOL 6.2).
//!
//! Two rules: `*` as a whole segment matches one segment, `**` as a whole segment matches any number of
//! them, none included. A `*` inside a segment matches any run of characters of that segment.
//!
//! A pattern is compiled to an automaton with one state for each of its steps, all in a line, and a name is
//! run through it once, with all live states advanced together as bits of words. So a match costs one pass
//! over the name, times [`Pattern::words`], whatever the pattern: 1 for patterns of fewer than 64 steps,
//! [`WORDS_MAX`] for the longest. *Checked by* a comparison with the definition below.

use std::sync::Arc;
use thalweg_wire::path::RESERVED;

/// Longest pattern and longest name, bytes.
const BYTES_MAX: usize = 1024;
/// Words of states that the longest pattern has: a state before each of its bytes, one before the slash that
/// is put behind it, and the last one.
const WORDS_MAX: usize = (BYTES_MAX + 2).div_ceil(WORD_BITS);
const WORD_BITS: usize = u64::BITS as usize;

/// A checked glob pattern.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: Arc<str>,
    automaton: Arc<Automaton>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Pattern {
    /// The pattern in `text`; `None` unless its segments could match those of a stream's name.
    pub(crate) fn parse(text: &str) -> Option<Pattern> {
        is_name(text).then(|| Pattern { text: text.into(), automaton: Arc::new(Automaton::compile(text)) })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What a match costs for each byte of the name, in steps of a few instructions: 1 to 17.
    pub(crate) fn words(&self) -> usize {
        self.automaton.star.len()
    }

    /// Whether the pattern matches the whole of `name`.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.automaton.accepts(name)
    }
}

/// What takes the automaton from one state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// This byte.
    Byte(u8),
    /// Any run of bytes without a slash, an empty one included.
    Star,
    /// Any number of whole segments with the slash behind each, none included.
    Segments,
}

/// The steps of a pattern, each a bit in sets of states: bit `i` of a set is the state before step `i`, and
/// the bit behind the last step is the state that accepts. A name is read with a slash behind it, so that
/// each of its segments ends in one.
#[derive(Debug)]
struct Automaton {
    /// The states before a [`Step::Star`].
    star: Box<[u64]>,
    /// The states before a [`Step::Segments`].
    segments: Box<[u64]>,
    /// Of each byte that steps name, the states before those steps.
    bytes: Box<[Box<[u64]>]>,
    /// For each byte, its place in `bytes`; `bytes.len()` where no step names it.
    places: Box<[u8; 256]>,
    /// The state that accepts.
    last: usize,
}

impl Automaton {
    fn compile(text: &str) -> Automaton {
        let steps = steps(text);
        let words = (steps.len() + 1).div_ceil(WORD_BITS);
        let states_before = |wanted: Step| {
            let mut set = vec![0; words].into_boxed_slice();
            let indices =
                steps.iter().enumerate().filter(|(_, step)| **step == wanted).map(|(index, _)| index);
            indices.for_each(|index| set[index / WORD_BITS] |= 1 << (index % WORD_BITS));
            set
        };
        let mut named: Vec<u8> = steps
            .iter()
            .filter_map(|step| if let Step::Byte(byte) = step { Some(*byte) } else { None })
            .collect();
        named.sort_unstable();
        named.dedup();
        // Names are UTF-8 without control characters, so that fewer than 255 bytes are named.
        let mut places = Box::new([named.len() as u8; 256]);
        named.iter().enumerate().for_each(|(place, byte)| places[usize::from(*byte)] = place as u8);
        Automaton {
            star: states_before(Step::Star),
            segments: states_before(Step::Segments),
            bytes: named.into_iter().map(|byte| states_before(Step::Byte(byte))).collect(),
            places,
            last: steps.len(),
        }
    }

    fn accepts(&self, name: &str) -> bool {
        let mut room = [0; WORDS_MAX];
        let live = &mut room[..self.star.len()];
        live[0] = 1;
        self.skip(live);
        for byte in name.bytes().chain([b'/']) {
            if !self.advance(live, byte) {
                return false;
            }
        }
        live[self.last / WORD_BITS] >> (self.last % WORD_BITS) & 1 != 0
    }

    /// From the first state on: steps that match nothing are passed.
    fn skip(&self, live: &mut [u64]) {
        let mut carry = 0;
        for (word, live) in live.iter_mut().enumerate() {
            *live = self.passed(word, *live, 0, &mut carry);
        }
    }

    /// The states live behind a byte; whether there are any.
    fn advance(&self, live: &mut [u64], byte: u8) -> bool {
        let named = self.bytes.get(usize::from(self.places[usize::from(byte)]));
        let is_slash = byte == b'/';
        let (mut taken_carry, mut carry, mut any) = (0, 0, 0);
        for (word, live) in live.iter_mut().enumerate() {
            let (star, segments) = (self.star[word], self.segments[word]);
            // The byte that a step names, and the slash at which a run of segments may end.
            let ends = if is_slash { *live & segments } else { 0 };
            let taken = *live & named.map_or(0, |states| states[word]) | ends;
            let entered = taken << 1 | taken_carry;
            taken_carry = taken >> (WORD_BITS - 1);
            let stays = *live & if is_slash { segments } else { segments | star };
            *live = self.passed(word, entered, stays, &mut carry);
            any |= *live;
        }
        any != 0
    }

    /// A word of the states that are live once steps that match nothing are passed: a run of segments where
    /// it is `entered`, and no later, or its end would lie inside a segment; a star wherever it is live.
    /// `carry` has what passes into the next word.
    fn passed(&self, word: usize, entered: u64, stays: u64, carry: &mut u64) -> u64 {
        let passes_segments = entered & self.segments[word];
        let live = entered | passes_segments << 1 | stays | *carry;
        let passes_stars = live & self.star[word];
        *carry = (passes_segments | passes_stars) >> (WORD_BITS - 1);
        live | passes_stars << 1
    }
}

/// The steps of a pattern and of the slash behind it. Neither two stars nor two runs of segments follow one
/// another: they match what one does.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::with_capacity(text.len() + 1);
    let mut push = |step| {
        if matches!(step, Step::Byte(_)) || steps.last() != Some(&step) {
            steps.push(step);
        }
    };
    for segment in text.split('/') {
        if segment == "**" {
            push(Step::Segments);
            continue;
        }
        for byte in segment.bytes() {
            push(if byte == b'*' { Step::Star } else { Step::Byte(byte) });
        }
        push(Step::Byte(b'/'));
    }
    steps
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
                plain_segment(piece.as_bytes(), part.as_bytes()) && plain(rest, name)
            }
            _ => false,
        }
    }

    fn plain_segment(pattern: &[u8], part: &[u8]) -> bool {
        match (pattern.split_first(), part.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                plain_segment(rest, part)
                    || part.split_first().is_some_and(|(_, part)| plain_segment(pattern, part))
            }
            (Some((byte, rest)), Some((other, part))) => byte == other && plain_segment(rest, part),
            _ => false,
        }
    }

    /// Whether a pattern matches a name, and whether it is to.
    fn both(pattern: &str, name: &str) -> (bool, bool) {
        let (pieces, parts) = (pattern.split('/').collect::<Vec<_>>(), name.split('/').collect::<Vec<_>>());
        (Pattern::parse(pattern).unwrap().matches(name), plain(&pieces, &parts))
    }

    /// What took as many steps as the pattern has bytes for each byte of the name.
    #[test]
    fn no_pattern_costs_more_than_a_few_words_for_each_byte_of_a_name() {
        let words = |pattern: &str| Pattern::parse(pattern).unwrap().words();
        assert_eq!((words("events/*"), words(&"x".repeat(62)), words(&"x".repeat(63))), (1, 1, 2));
        let (stars, segments) = ("*a".repeat(511), "**/*/".repeat(204));
        let name = "a".repeat(1_023);
        for (pattern, name, matches) in [
            (stars.clone() + "b", name.clone(), false),
            (stars.clone() + "b", name + "b", true),
            (segments.clone() + "b", "a/".repeat(511) + "c", false),
            (segments + "b", "a/".repeat(511) + "b", true),
        ] {
            assert!(words(&pattern) <= WORDS_MAX);
            (0..100).for_each(|_| assert_eq!(Pattern::parse(&pattern).unwrap().matches(&name), matches));
        }
        assert_eq!(words(&"x".repeat(1_024)), WORDS_MAX);
    }

    proptest! {
        #[test]
        fn matching_is_as_defined(
            pattern in "(a|b|\\*|\\*\\*|[ab*]{1,4})(/(a|b|\\*|\\*\\*|[ab*]{1,4})){0,5}",
            name in "[ab]{1,4}(/[ab]{1,2}){0,6}",
        ) {
            let (matches, expected) = both(&pattern, &name);
            prop_assert_eq!(matches, expected);
        }

        #[test]
        fn a_pattern_of_several_words_matches_as_defined(
            start in "[ab]{50,70}", pattern in "(/(a|\\*|\\*\\*|[ab*]{1,3})){1,4}", name in "(/[ab]{1,3}){0,5}",
        ) {
            let (matches, expected) = both(&(start.clone() + &pattern), &(start + &name));
            prop_assert_eq!(matches, expected);
        }
    }
}
