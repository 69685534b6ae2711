//! Matching entity tags against `If-Match` and `If-None-Match` (RFC 9110, 13.1.1, 13.1.2): lists, `*`, strong
//! and weak comparison.

/// How tags are compared (RFC 9110, 8.8.3.2). Tags of our own are strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// A weak tag matches none.
    Strong,
    /// Weakness does not matter.
    Weak,
}

/// Whether the field value `list` is `*`, or has a member (with its quotes) that is `current`. A malformed
/// list matches nothing from the malformed member on.
pub fn matches(list: &[u8], comparison: Comparison, current: impl Fn(&[u8]) -> bool) -> bool {
    let mut rest = list.trim_ascii();
    if rest == b"*" {
        return true;
    }
    while let Some(Member { tag, is_weak, tail }) = member(rest) {
        if !(is_weak && comparison == Comparison::Strong) && current(tag) {
            return true;
        }
        rest = tail;
    }
    false
}

/// One member of a list.
struct Member<'a> {
    /// The opaque tag with its quotes.
    tag: &'a [u8],
    is_weak: bool,
    /// What follows it.
    tail: &'a [u8],
}

/// The first member of a list.
fn member(list: &[u8]) -> Option<Member<'_>> {
    let skipped = list.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b',')).count();
    let list = &list[skipped..];
    let opaque = list.strip_prefix(b"W/");
    let (list, is_weak) = (opaque.unwrap_or(list), opaque.is_some());
    if list.first() != Some(&b'"') {
        return None;
    }
    let end = memchr::memchr(b'"', &list[1..])? + 2;
    let (tag, tail) = list.split_at(end);
    let tail = tail.trim_ascii_start();
    matches!(tail.first(), None | Some(b',')).then_some(Member { tag, is_weak, tail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(list: &[u8], etag: &[u8]) -> bool {
        super::matches(list, Comparison::Weak, |tag| tag == etag)
    }

    #[test]
    fn a_weak_tag_is_none_by_strong_comparison() {
        let strongly =
            |list: &str| super::matches(list.as_bytes(), Comparison::Strong, |tag| tag == b"\"a\"");
        for list in ["\"a\"", "*", "W/\"a\", \"a\""] {
            assert!(strongly(list), "{list}");
        }
        for list in ["W/\"a\"", "\"b\"", "", "W/*"] {
            assert!(!strongly(list), "{list}");
        }
    }

    #[test]
    fn lists_weak_tags_and_the_star_match() {
        for list in ["\"a\"", " \"a\" ", "W/\"a\"", "\"b\", \"a\"", "\"b\",W/\"a\"", ",, \"a\" ,", "*", " * "]
        {
            assert!(matches(list.as_bytes(), b"\"a\""), "{list}");
        }
    }

    #[test]
    fn others_and_malformed_lists_do_not() {
        for list in
            ["", "\"b\"", "a", "\"a", "\"aa\"", "w/\"a\"", "\"b\" \"a\"", "*, \"b\"", "b, \"a\"", "W/a"]
        {
            assert!(!matches(list.as_bytes(), b"\"a\""), "{list}");
        }
        assert!(matches(b"\"x,y\", \"a\"", b"\"a\""));
    }

    proptest! {
        #[test]
        fn any_list_is_survived_and_a_listed_tag_found(noise in proptest::collection::vec("[a-z]{0,4}", 0..5),
                                                       junk in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut list: Vec<u8> = noise.iter().flat_map(|tag| format!("\"{tag}\", ").into_bytes()).collect();
            list.extend_from_slice(b"\"needle\"");
            prop_assert!(matches(&list, b"\"needle\""));
            prop_assert!(!matches(&junk, b"\"needle\"") || junk.windows(8).any(|w| w == b"\"needle\"")
                || junk.trim_ascii() == b"*");
        }
    }
}
