//! The services that a client knows: its own, which stays, and others, of which the ones called last stay.
//! So a program that follows a service from port to port fills no memory with old addresses.

use super::bearer::Bearer;
use super::target::{ResolvedUrl, SiteId, Sites, Target};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use thalweg_service::Error as Failure;
use thalweg_wire::fault::Fault;

/// A URL that was named.
struct TargetEntry {
    url: String,
    resolved: ResolvedUrl,
    site: SiteId,
    /// When it was called or named last, by [`Targets::moment`].
    used: u64,
}

/// The URLs that were named, and the hosts that they are at.
#[derive(Default)]
pub(crate) struct Targets {
    by_number: BTreeMap<u32, TargetEntry>,
    by_url: HashMap<String, u32>,
    pub(crate) sites: Sites,
    /// The number that was given last: none is given again, not even that of a target that was dropped.
    last: Option<u32>,
    /// Counts calls and namings.
    moment: u64,
}

impl Targets {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// All of them, in no order.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &str> {
        self.by_url.keys().map(String::as_str)
    }

    /// The place at a URL, `others_max` beside the first at most; in favour of a new one goes the one that
    /// was not called for longest. None goes whose host is the only one of its name and among those that are
    /// `busy`.
    pub(crate) fn with(
        &mut self,
        url: &str,
        token: Option<&Bearer>,
        others_max: usize,
        busy: impl FnOnce() -> BTreeSet<SiteId>,
    ) -> Result<Target, Failure> {
        if let Some(&number) = self.by_url.get(url) {
            self.touch(number);
            return Ok(Target(number));
        }
        let resolved = ResolvedUrl::of(url, token)?;
        if self.len() > others_max {
            self.make_room(others_max, &busy());
        }
        Ok(self.add(url, resolved))
    }

    /// Adds a target under a number of its own.
    pub(crate) fn add(&mut self, url: &str, resolved: ResolvedUrl) -> Target {
        let mut number = self.last.map_or(0, |last| last.wrapping_add(1));
        while self.by_number.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        let site = self.sites.with(&resolved.addresses);
        self.by_number.insert(number, TargetEntry { url: url.to_owned(), resolved, site, used: 0 });
        self.by_url.insert(url.to_owned(), number);
        self.last = Some(number);
        self.touch(number);
        Target(number)
    }

    fn touch(&mut self, number: u32) {
        self.moment += 1;
        if let Some(named) = self.by_number.get_mut(&number) {
            named.used = self.moment;
        }
    }

    fn make_room(&mut self, others_max: usize, busy: &BTreeSet<SiteId>) {
        while self.len() > others_max {
            // The first is the client's own.
            let others = self.by_number.iter().filter(|(number, _)| **number != 0);
            let free = others.filter(|(_, of)| !busy.contains(&of.site) || self.sites.names(of.site) > 1);
            let Some(number) = free.min_by_key(|(_, named)| named.used).map(|(number, _)| *number) else {
                return;
            };
            if let Some(TargetEntry { url, site, .. }) = self.by_number.remove(&number) {
                self.by_url.remove(&url);
                self.sites.without(site);
            }
        }
    }

    /// Where a target is, which is called now.
    pub(crate) fn at(&mut self, Target(number): Target) -> Result<(&ResolvedUrl, SiteId), Failure> {
        self.moment += 1;
        let named = self.by_number.get_mut(&number).ok_or_else(|| {
            let what = format!(
                "{number} is no target of this client, or one that was dropped because others were called since: name its URL anew"
            );
            Failure::new(Fault::BadArgument, what)
        })?;
        named.used = self.moment;
        Ok((&named.resolved, named.site))
    }
}
