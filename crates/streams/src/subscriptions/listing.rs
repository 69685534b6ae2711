//! The links of a subscription as a description lists them (PROTOCOL 6.3), encoded in parts. There may be as
//! many links as there are streams, and the protocol has them all in one answer: so that no reactor encodes
//! more than a few parts at once, a thread beside the reactors encodes them first, and they are kept. Beyond
//! [`KEPT_BYTES_MAX`] those that were described longest ago are let go of, and encoded anew when they are
//! asked for again.
//!
//! Invariants:
//! - Parts do not overlap, and there is no gap before the first that may be missing; a part that is there
//!   says what a description has to say of its links, for whoever changes one forgets its part
//!   ([`Listing::forget`]).
//! - Whoever encoded something has it counted next ([`Kept::keep`]). Then there are of all subscriptions
//!   together at most [`KEPT_BYTES_MAX`], but for the one described last, however large it is, and those that
//!   a thread encodes at this moment, which are not let go of midway. Parts that one lost since it was
//!   described count until it is again; one that was deleted does not count. Nor do texts that were let go of
//!   while an answer that has them is being sent.
//!
//! Checked by the tests below and by `tests/links.rs`.

use super::subscription::Link;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{Arc, Weak};

/// Links of one part.
const PART_LINKS_MAX: usize = 512;
/// Bytes that are kept of the subscriptions described last, together.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Parts that are encoded at once, in two or three milliseconds.
const AT_ONCE_MAX: usize = 16;

/// What is encoded of the links.
pub(super) struct Listing {
    /// The parts that are there, each by the path from which on it lists.
    parts: BTreeMap<Arc<str>, Part>,
    /// Where the first part begins that may be missing; `None`: none is.
    missing: Option<Arc<str>>,
    /// Threads that encode all of them, step by step.
    pub(super) at_work: usize,
}

/// Links that follow each other.
struct Part {
    /// Joined by commas.
    text: Bytes,
    /// Where the next part begins, if there is one.
    end: Option<Arc<str>>,
}

impl Default for Listing {
    fn default() -> Self {
        Self { parts: BTreeMap::new(), missing: Some(Arc::default()), at_work: 0 }
    }
}

impl Listing {
    /// A link comes, goes or changes.
    pub(super) fn forget(&mut self, path: &str) {
        let before = self.parts.range::<str, _>((Unbounded, Included(path))).next_back();
        let within = before.filter(|(_, part)| part.end.as_deref().is_none_or(|end| path < end));
        if let Some(from) = within.map(|(from, _)| from.clone()) {
            self.parts.remove(&from);
            if self.missing.as_ref().is_none_or(|missing| from < *missing) {
                self.missing = Some(from);
            }
        }
    }

    /// All links, in texts that commas are to join; `None` if that takes more than is done at once, and then
    /// some of it is done, from where it was left the last time.
    pub(super) fn encode(&mut self, links: &BTreeMap<Arc<str>, Link>) -> Option<Vec<Bytes>> {
        let mut encoded = 0;
        while let Some(from) = self.missing.clone() {
            if let Some(part) = self.parts.get(&from) {
                self.missing.clone_from(&part.end);
                continue;
            }
            if encoded == AT_ONCE_MAX {
                return None;
            }
            encoded += 1;
            let mut part = self.part(links, &from);
            // One that lost all its links takes over what is behind it.
            while part.text.is_empty()
                && let Some(behind) = part.end.as_ref().and_then(|end| self.parts.remove(end))
            {
                part = behind;
            }
            self.missing.clone_from(&part.end);
            self.parts.insert(from, part);
        }
        let texts = self.parts.values().map(|part| part.text.clone());
        let texts = texts.filter(|text| !text.is_empty()).collect();
        // What is encoded at once is not worth its room.
        if links.len() <= AT_ONCE_MAX * PART_LINKS_MAX {
            self.clear();
        }
        Some(texts)
    }

    /// Lets go of all parts.
    fn clear(&mut self) {
        *self = Self { at_work: self.at_work, ..Self::default() };
    }

    /// Bytes of the texts that are there.
    pub(super) fn bytes(&self) -> usize {
        self.parts.values().map(|part| part.text.len()).sum()
    }

    /// How many times a list of so many links is encoded further before it is asked for again: twice as often
    /// as it takes while nothing changes.
    pub(super) const fn rounds_max(links: usize) -> usize {
        2 + 2 * (links / (AT_ONCE_MAX * PART_LINKS_MAX))
    }

    /// The part from a path on: as many links as there may be, up to the next one that is there.
    fn part(&self, links: &BTreeMap<Arc<str>, Link>, from: &str) -> Part {
        let mut end =
            self.parts.range::<str, _>((Excluded(from), Unbounded)).next().map(|(next, _)| next.clone());
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

/// The listings of which parts are kept, those described longest ago first, each with its bytes by then.
pub(super) struct Kept {
    listings: VecDeque<(Weak<Mutex<Listing>>, usize)>,
    pub(super) bytes_max: usize,
}

impl Default for Kept {
    fn default() -> Self {
        Self { listings: VecDeque::new(), bytes_max: KEPT_BYTES_MAX }
    }
}

impl Kept {
    /// Something of one was encoded, or all of it let go of. Others give way to it.
    pub(super) fn keep(&mut self, one: &Arc<Mutex<Listing>>) {
        let is_other =
            |other: &Weak<Mutex<Listing>>| other.strong_count() > 0 && other.as_ptr() != Arc::as_ptr(one);
        self.listings.retain(|(other, _)| is_other(other));
        let bytes = one.lock().bytes();
        let mut sum = bytes + self.listings.iter().map(|(_, bytes)| bytes).sum::<usize>();
        self.listings.retain(|(other, bytes)| {
            let Some(other) = other.upgrade().filter(|_| sum > self.bytes_max) else { return true };
            let mut other = other.lock();
            if other.at_work == 0 {
                other.clear();
                sum -= bytes;
            }
            other.at_work > 0
        });
        if bytes > 0 {
            self.listings.push_back((Arc::downgrade(one), bytes));
        }
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
        let parts = listing.parts.len();
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
        assert!(listing.parts.len() <= 2 * parts, "{} of {parts}", listing.parts.len());
    }

    #[test]
    fn what_was_encoded_is_not_walked_again() {
        let mut listing = Listing::default();
        let many = AT_ONCE_MAX * PART_LINKS_MAX * 3;
        let links: BTreeMap<Arc<str>, Link> =
            (0..many).map(|n| (format!("{n:09}").into(), Link::default())).collect();
        assert!(listing.encode(&links).is_none());
        let left = listing.missing.clone().unwrap();
        assert_eq!(*left, *format!("{:09}", AT_ONCE_MAX * PART_LINKS_MAX));
        // A link changes behind that, and then one before it.
        listing.forget(&format!("{:09}", many - 1));
        assert_eq!(listing.missing.as_deref(), Some(&*left));
        listing.forget("000000700");
        assert_eq!(listing.missing.as_deref(), Some("000000512"));
        assert_eq!(listed(&mut listing, &links), (3, links.keys().map(ToString::to_string).collect()));
        assert_eq!(listing.missing, None);
        assert!(listing.bytes() > many * 9);
    }

    #[test]
    fn no_more_is_kept_than_has_room() {
        let of = |bytes: usize| {
            let part = Part { text: vec![b'x'; bytes].into(), end: None };
            Arc::new(Mutex::new(Listing {
                parts: BTreeMap::from([("".into(), part)]),
                missing: None,
                at_work: 0,
            }))
        };
        let there = |listings: &[&Arc<Mutex<Listing>>]| -> Vec<usize> {
            listings.iter().map(|listing| listing.lock().bytes()).collect()
        };
        let [a, b, c] = [50, 50, 1].map(of);
        let mut kept = Kept { bytes_max: 100, ..Kept::default() };
        [&a, &b, &a].into_iter().for_each(|one| kept.keep(one));
        assert_eq!(there(&[&a, &b]), [50, 50], "it is counted once, and is the younger now");
        kept.keep(&c);
        assert_eq!(there(&[&a, &b, &c]), [50, 0, 1]);
        // One is kept however large, and one that is being encoded is not let go of.
        a.lock().at_work = 1;
        let d = of(200);
        kept.keep(&d);
        assert_eq!(there(&[&a, &c, &d]), [50, 0, 200]);
        // What has nothing any more, or is gone, takes nothing from others.
        a.lock().at_work = 0;
        d.lock().clear();
        kept.keep(&d);
        let e = of(50);
        kept.keep(&e);
        drop(e);
        kept.keep(&of(50));
        assert_eq!(there(&[&a]), [50]);
    }

    #[test]
    fn few_links_are_encoded_at_once_and_not_kept() {
        let mut listing = Listing::default();
        assert_eq!(listed(&mut listing, &BTreeMap::new()), (1, vec![]));
        let links = BTreeMap::from([("a".into(), Link::default()), ("b".into(), Link::default())]);
        assert_eq!(listed(&mut listing, &links), (1, vec!["a".to_owned(), "b".to_owned()]));
        assert!(listing.parts.is_empty());
    }
}
