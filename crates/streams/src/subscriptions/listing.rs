//! The links of a subscription as a description lists them (PROTOCOL 6.3), encoded in parts. There may be as
//! many links as there are streams, and the protocol has them all in one answer: so that no reactor encodes
//! more than a few parts at once, a thread beside the reactors encodes them first, and they are kept.
//!
//! Invariants: parts do not overlap; a part that is there says what a description has to say of its links,
//! for whoever changes one forgets its part ([`Listing::forget`]). Checked by the tests below and by
//! `tests/links.rs`.

use super::subscription::Link;
use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

/// Links of one part.
const PART_LINKS_MAX: usize = 512;
/// Parts that are encoded at once, in two or three milliseconds.
const AT_ONCE_MAX: usize = 16;

/// The parts that are there, each by the path from which on it lists.
#[derive(Default)]
pub(super) struct Listing(BTreeMap<Arc<str>, Part>);

/// Links that follow each other.
struct Part {
    /// Joined by commas.
    text: Bytes,
    /// Where the next part begins, if there is one.
    end: Option<Arc<str>>,
}

impl Listing {
    /// A link comes, goes or changes.
    pub(super) fn forget(&mut self, path: &str) {
        let before = self.0.range::<str, _>((Unbounded, Included(path))).next_back();
        let within = before.filter(|(_, part)| part.end.as_deref().is_none_or(|end| path < end));
        if let Some(from) = within.map(|(from, _)| from.clone()) {
            self.0.remove(&from);
        }
    }

    /// All links, in texts that commas are to join; `None` if that takes more than is done at once, and then
    /// some of it is done.
    pub(super) fn encode(&mut self, links: &BTreeMap<Arc<str>, Link>) -> Option<Vec<Bytes>> {
        let (mut texts, mut from, mut encoded) = (Vec::new(), Arc::<str>::from(""), 0);
        loop {
            if !self.0.contains_key(&from) {
                if encoded == AT_ONCE_MAX {
                    return None;
                }
                encoded += 1;
                let mut part = self.part(links, &from);
                // One that lost all its links takes over what is behind it.
                while part.text.is_empty()
                    && let Some(behind) = part.end.as_ref().and_then(|end| self.0.remove(end))
                {
                    part = behind;
                }
                self.0.insert(from.clone(), part);
            }
            let part = &self.0[&from];
            if !part.text.is_empty() {
                texts.push(part.text.clone());
            }
            match &part.end {
                Some(end) => from = end.clone(),
                None => break,
            }
        }
        // What is encoded at once is not worth its room.
        if links.len() <= AT_ONCE_MAX * PART_LINKS_MAX {
            self.0.clear();
        }
        Some(texts)
    }

    /// How many times a list of so many links is encoded further before it is asked for again: twice as often
    /// as it takes while nothing changes.
    pub(super) const fn rounds_max(links: usize) -> usize {
        2 + 2 * (links / (AT_ONCE_MAX * PART_LINKS_MAX))
    }

    /// The part from a path on: as many links as there may be, up to the next one that is there.
    fn part(&self, links: &BTreeMap<Arc<str>, Link>, from: &str) -> Part {
        let mut end =
            self.0.range::<str, _>((Excluded(from), Unbounded)).next().map(|(next, _)| next.clone());
        let mut text = String::new();
        for (count, (path, link)) in links.range::<str, _>((Included(from), Unbounded)).enumerate() {
            if end.as_ref().is_some_and(|end| path >= end) {
                break;
            }
            if count == PART_LINKS_MAX {
                end = Some(path.clone());
                break;
            }
            let separator = if count == 0 { "" } else { "," };
            let (path, kind, cursor) = (Value::from(&**path), link.kind(), link.cursor());
            // Of these only a path may have what JSON escapes. Writing to a string cannot fail.
            let _ = write!(
                text,
                r#"{separator}{{"path":{path},"link_type":"{kind}","acked_offset":"{cursor}"}}"#
            );
        }
        // It is kept, without the room that it had to grow.
        Part { text: text.into_boxed_str().into_boxed_bytes().into(), end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(listing: &mut Listing, links: &BTreeMap<Arc<str>, Link>) -> (usize, Vec<String>) {
        let mut rounds = 0;
        let texts = loop {
            rounds += 1;
            if let Some(texts) = listing.encode(links) {
                break texts;
            }
        };
        let all: Vec<serde_json::Value> = serde_json::from_str(&format!("[{}]", {
            let texts: Vec<&str> = texts.iter().map(|text| std::str::from_utf8(text).unwrap()).collect();
            texts.join(",")
        }))
        .unwrap();
        (rounds, all.iter().map(|link| link["path"].as_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn many_links_are_encoded_in_steps_and_a_change_encodes_its_part_alone() {
        let many = AT_ONCE_MAX * PART_LINKS_MAX * 3;
        let link = |explicit| Link { explicit, ..Link::default() };
        let mut links: BTreeMap<Arc<str>, Link> =
            (0..many).map(|n| (format!("s/{n:06}").into(), link(false))).collect();
        let paths =
            |links: &BTreeMap<Arc<str>, Link>| links.keys().map(|p| p.to_string()).collect::<Vec<_>>();
        let mut listing = Listing::default();
        assert!(listed(&mut listing, &links) == (3, paths(&links)));
        // Before all, within, behind all; as many as a part has, so that one becomes two; and a part that
        // loses all it has.
        let within = (0..PART_LINKS_MAX).map(|n| format!("s/001000/{n}"));
        for path in ["a".to_owned(), "t".to_owned()].into_iter().chain(within) {
            listing.forget(&path);
            links.insert(path.into(), link(true));
        }
        for n in 2_000..4_000 {
            let path = format!("s/{n:06}");
            listing.forget(&path);
            links.remove(&*path);
        }
        assert!(listed(&mut listing, &links) == (1, paths(&links)));
        listing.forget("t");
        links.insert("t".into(), link(false));
        let texts = listing.encode(&links).unwrap();
        assert!(texts.last().unwrap().ends_with(br#""acked_offset":"-1"}"#));
        let said: Vec<serde_json::Value> =
            serde_json::from_str(&format!("[{}]", std::str::from_utf8(texts.last().unwrap()).unwrap()))
                .unwrap();
        assert_eq!(said.last().unwrap()["link_type"], "glob");
    }

    #[test]
    fn parts_that_lost_all_their_links_do_not_stay() {
        let many = AT_ONCE_MAX * PART_LINKS_MAX + PART_LINKS_MAX;
        let mut links: BTreeMap<Arc<str>, Link> =
            (0..many).map(|n| (format!("{n:09}").into(), Link::default())).collect();
        let mut listing = Listing::default();
        listed(&mut listing, &links);
        let parts = listing.0.len();
        for n in many..3 * many {
            let (comes, goes) = (format!("{n:09}"), format!("{:09}", n - many));
            listing.forget(&comes);
            links.insert(comes.into(), Link::default());
            listing.forget(&goes);
            links.remove(&*goes);
            if n % 100 == 0 {
                listed(&mut listing, &links);
            }
        }
        let (_, paths) = listed(&mut listing, &links);
        assert!(paths.iter().map(String::as_str).eq(links.keys().map(|path| &**path)));
        assert!(listing.0.len() <= 2 * parts, "{} of {parts}", listing.0.len());
    }

    #[test]
    fn few_links_are_encoded_at_once_and_not_kept() {
        let mut listing = Listing::default();
        assert_eq!(listed(&mut listing, &BTreeMap::new()), (1, vec![]));
        let links = BTreeMap::from([("a".into(), Link::default()), ("b".into(), Link::default())]);
        assert_eq!(listed(&mut listing, &links), (1, vec!["a".to_owned(), "b".to_owned()]));
        assert!(listing.0.is_empty());
    }
}
