//! Matching an entity tag against `If-None-Match` (RFC 9110, 13.1.2): lists, `*`, weak comparison.

/// Whether the field value `list` names `etag` (with its quotes). A malformed list matches nothing from
/// the malformed member on.
pub fn matches(list: &[u8], etag: &[u8]) -> bool {
    let mut rest = list.trim_ascii();
    if rest == b"*" {
        return true;
    }
    while let Some((tag, tail)) = member(rest) {
        if tag == etag {
            return true;
        }
        rest = tail;
    }
    false
}

/// The next opaque tag, quotes kept and weakness dropped, and what follows it.
fn member(list: &[u8]) -> Option<(&[u8], &[u8])> {
    let skipped = list.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b',')).count();
    let list = &list[skipped..];
    let list = list.strip_prefix(b"W/").unwrap_or(list);
    if list.first() != Some(&b'"') {
        return None;
    }
    let end = memchr::memchr(b'"', &list[1..])? + 2;
    let (tag, tail) = list.split_at(end);
    let tail = tail.trim_ascii_start();
    matches!(tail.first(), None | Some(b',')).then_some((tag, tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
