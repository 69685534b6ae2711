//! What the fuzz targets (`fuzz/`) reach of subscriptions. Built with `--cfg fuzzing` alone.

use super::encoding;
use super::pattern::{Pattern, is_name};
use crate::store::Note;
use std::collections::BTreeMap;

/// The longest pattern and name that the slow matcher is asked about, bytes.
const NAME_BYTES_MAX: usize = 256;

/// Notes that tell of a subscription are kept as they were, in one commit or in many.
pub fn kept(data: &[u8]) {
    let Ok(Some(kept)) = encoding::decode("id", &notes(data)) else { return };
    let subscription = kept.subscription;
    for bytes_max in [usize::MAX, 1, 300] {
        let mut kept: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (key, value) in encoding::whole(&subscription, bytes_max).into_iter().flatten() {
            if value.is_empty() {
                kept.remove(&key)
            } else {
                kept.insert(key, value)
            };
        }
        let kept: Vec<Note> = kept.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        let again = encoding::decode("id", &kept).expect("what was written is not understood");
        let again = again.expect("what was written is not whole");
        assert!(again.named, "the named streams have no notes");
        let mut again = again.subscription;
        // A place at the beginning that a pattern found is not kept: it is found again.
        let unkept = subscription.links.iter().filter(|(_, link)| !link.explicit && link.acked == 0);
        again.links.extend(unkept.map(|(path, link)| (path.clone(), *link)));
        assert_eq!(subscription.links, again.links);
        assert_eq!(encoding::config_hash(&subscription.config), encoding::config_hash(&again.config));
        assert_eq!((&subscription.config, &subscription.phase), (&again.config, &again.phase));
        assert_eq!((&subscription.origin, subscription.created_us), (&again.origin, again.created_us));
        assert_eq!(subscription.generation, again.generation);
    }
}

/// Keys and values, each `length of the key 2 | length of the value 2 | key | value`, as far as they are
/// whole.
fn notes(mut data: &[u8]) -> Vec<Note> {
    let mut notes = Vec::new();
    while let Some(([key_low, key_high, value_low, value_high], rest)) = data.split_first_chunk() {
        let key = usize::from(u16::from_le_bytes([*key_low, *key_high]));
        let value = usize::from(u16::from_le_bytes([*value_low, *value_high]));
        let Some((key, rest)) = rest.split_at_checked(key) else { break };
        let Some((value, rest)) = rest.split_at_checked(value) else { break };
        notes.push((key.into(), value.into()));
        data = rest;
    }
    notes
}

/// A pattern and a name, with a zero between: they match if a table of all their beginnings says so.
pub fn patterns(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (text, name) = text.split_once('\0').unwrap_or((text, "a/b"));
    let Some(pattern) = Pattern::parse(text) else { return };
    assert_eq!(Pattern::parse(pattern.text()).as_ref(), Some(&pattern));
    if text.len() > NAME_BYTES_MAX || name.len() > NAME_BYTES_MAX || !is_name(name) {
        return;
    }
    let (segments, parts): (Vec<&str>, Vec<&str>) = (text.split('/').collect(), name.split('/').collect());
    let alike = |segment: &&str, part: &&str| {
        reaches(segment.as_bytes(), part.as_bytes(), |byte| *byte == b'*', |byte, other| byte == other)
    };
    let wanted = reaches(&segments, &parts, |segment| *segment == "**", alike);
    assert_eq!(pattern.matches(name), wanted);
}

/// Whether a sequence with stars matches another, by asking of every beginning of both.
fn reaches<P, T>(
    pattern: &[P],
    items: &[T],
    star: impl Fn(&P) -> bool,
    same: impl Fn(&P, &T) -> bool,
) -> bool {
    let mut rows = vec![vec![false; items.len() + 1]; pattern.len() + 1];
    rows[0][0] = true;
    for (at, piece) in pattern.iter().enumerate() {
        for end in 0..=items.len() {
            rows[at + 1][end] = match end.checked_sub(1) {
                _ if star(piece) => rows[at][end] || end > 0 && rows[at + 1][end - 1],
                Some(last) => rows[at][last] && same(piece, &items[last]),
                None => false,
            };
        }
    }
    rows[pattern.len()][items.len()]
}
