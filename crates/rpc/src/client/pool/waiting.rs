//! What waits for a connection: the oldest of a host first, found by its name and by its end as well.
//!
//! *Invariant*: `by_site` has each exchange once, and `by_end` each that has an end. But for `sites`, no
//! method looks at more than it takes out or finds, however many wait. *Checked by* the tests here.

use super::super::exchange::Exchange;
use super::super::target::SiteId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use thalweg_service::CallId;

/// Exchanges that have no connection yet, each with the host that it goes to.
#[derive(Default)]
pub(super) struct Waiting {
    exchanges: BTreeMap<CallId, (SiteId, Exchange)>,
    /// Names are given in the order of the calls.
    by_site: BTreeSet<(SiteId, CallId)>,
    by_end: BTreeSet<(Instant, CallId)>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.exchanges.len()
    }

    /// Adds one behind those that were begun before it.
    pub(super) fn add(&mut self, site: SiteId, exchange: Exchange) {
        let name = exchange.name;
        self.by_site.insert((site, name));
        self.by_end.extend(exchange.until.map(|until| (until, name)));
        self.exchanges.insert(name, (site, exchange));
    }

    pub(super) fn contains(&self, name: CallId) -> bool {
        self.exchanges.contains_key(&name)
    }

    pub(super) fn remove(&mut self, name: CallId) -> Option<Exchange> {
        let (site, exchange) = self.exchanges.remove(&name)?;
        self.by_site.remove(&(site, name));
        if let Some(until) = exchange.until {
            self.by_end.remove(&(until, name));
        }
        Some(exchange)
    }

    /// Takes out what has waited longest for this host.
    pub(super) fn take_for(&mut self, site: SiteId) -> Option<Exchange> {
        let from = (site, CallId::from_number(0));
        let (_, name) = self.by_site.range(from..).next().filter(|(to, _)| *to == site)?;
        self.remove(*name)
    }

    /// Takes out what was to be over first, if that is by now.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Option<Exchange> {
        let (_, name) = self.by_end.first().filter(|(until, _)| *until <= now)?;
        self.remove(*name)
    }

    /// Takes out what has waited longest.
    pub(super) fn take_first(&mut self) -> Option<Exchange> {
        let (name, _) = self.exchanges.first_key_value()?;
        self.remove(*name)
    }

    /// When the next one is overdue.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.by_end.first().map(|(until, _)| *until)
    }

    /// The hosts that something waits for, each as often as something does.
    pub(super) fn sites(&self) -> impl Iterator<Item = SiteId> {
        self.by_site.iter().map(|(site, _)| *site)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::options::Ask;
    use super::super::super::target::ResolvedUrl;
    use super::*;
    use std::time::Duration;

    fn exchange(number: u64, until: Option<Instant>) -> Exchange {
        let resolved = ResolvedUrl::of("http://127.0.0.1:1/x", None).unwrap();
        let (name, ask) = (CallId::from_number(number), Ask::one("m", ""));
        Exchange::new(name, number, &resolved, &ask, until, Vec::new()).unwrap()
    }

    fn number(taken: Option<Exchange>) -> Option<u64> {
        taken.map(|exchange| exchange.name.number())
    }

    #[test]
    fn each_is_taken_out_once_by_host_by_name_or_by_its_end() {
        let now = Instant::now();
        let at = |seconds| Some(now + Duration::from_secs(seconds));
        let (one, other) = (SiteId(1), SiteId(2));
        let mut waiting = Waiting::default();
        // The last is older than the others.
        for (name, site, until) in [(2, one, at(5)), (3, other, at(1)), (4, one, None), (1, one, at(3))] {
            waiting.add(site, exchange(name, until));
        }
        assert_eq!((waiting.len(), waiting.next_end()), (4, at(1)));
        assert_eq!(waiting.sites().collect::<Vec<_>>(), [one, one, one, other]);
        assert_eq!(number(waiting.take_overdue(now)), None);
        assert_eq!(number(waiting.take_for(SiteId(0))), None);
        assert_eq!(number(waiting.take_for(one)), Some(1));
        assert_eq!(number(waiting.take_overdue(now + Duration::from_secs(9))), Some(3));
        assert_eq!(number(waiting.take_for(other)), None);
        assert!(waiting.contains(CallId::from_number(2)) && !waiting.contains(CallId::from_number(3)));
        assert_eq!(number(waiting.remove(CallId::from_number(2))), Some(2));
        assert_eq!(waiting.next_end(), None);
        assert_eq!((number(waiting.take_first()), number(waiting.take_first())), (Some(4), None));
        assert_eq!((waiting.len(), waiting.sites().count()), (0, 0));
    }
}
