//! The streams that a subscription links, and which of them have pending work: what a claim, an ack or a wake
//! asks of them costs what is pending, however many are linked.
//!
//! Invariant: `pending` has the paths of exactly those links that have pending work. Links are read as the
//! map that they are and change through this type alone, which keeps it. *Checked by* `tests/rules.rs`,
//! against a plain model.

use super::subscription::Link;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Deref};
use std::sync::Arc;

/// Links by the paths of their streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Links {
    all: BTreeMap<Arc<str>, Link>,
    pending: BTreeSet<Arc<str>>,
}

impl Deref for Links {
    type Target = BTreeMap<Arc<str>, Link>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Links {
    /// A link comes or changes.
    pub(crate) fn insert(&mut self, path: Arc<str>, link: Link) {
        if link.is_pending() {
            self.pending.insert(path.clone());
        } else {
            self.pending.remove(&path);
        }
        self.all.insert(path, link);
    }

    /// A link goes, if it is there.
    pub(crate) fn remove(&mut self, path: &str) {
        self.pending.remove(path);
        self.all.remove(path);
    }

    /// The paths of those with pending work.
    pub(crate) fn pending(&self) -> &BTreeSet<Arc<str>> {
        &self.pending
    }

    /// All of them, those with pending work first, both from behind a path on and then up to it.
    pub(crate) fn round(&self, behind: &str) -> impl Iterator<Item = (&Arc<str>, &Link)> {
        let parts =
            [(Bound::Excluded(behind), Bound::Unbounded), (Bound::Unbounded, Bound::Included(behind))];
        let pending = parts.into_iter().flat_map(|part| self.pending.range::<str, _>(part));
        let others = parts.into_iter().flat_map(|part| self.all.range::<str, _>(part));
        pending
            .filter_map(|path| self.all.get_key_value(path))
            .chain(others.filter(|(_, link)| !link.is_pending()))
    }
}

impl Extend<(Arc<str>, Link)> for Links {
    fn extend<T: IntoIterator<Item = (Arc<str>, Link)>>(&mut self, links: T) {
        links.into_iter().for_each(|(path, link)| self.insert(path, link));
    }
}

impl FromIterator<(Arc<str>, Link)> for Links {
    fn from_iter<T: IntoIterator<Item = (Arc<str>, Link)>>(links: T) -> Self {
        let mut all = Self::default();
        all.extend(links);
        all
    }
}
