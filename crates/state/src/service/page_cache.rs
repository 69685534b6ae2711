//! The states and differences from which one page of an answer was taken, kept for the next page.
//!
//! The differences of two states, and an old state, take as long to compute for one page as for all pages. So
//! what a page was taken from is kept, unless it was the last page, until no page was asked for during
//! [`KEPT_FOR`]. A client that reads on has each page in the time of a page.
//!
//! *Bound*: [`COMPARED_MAX`] pairs of states, with [`WINDOW`] keys of their differences, and [`RECALLED_MAX`]
//! of long ago; the longest unused goes first. A session that ends meanwhile leaves its changes with these
//! for that long.

use crate::changes::Changes;
use crate::map::{Key, Map, Value};
use crate::read_view::ReadView;
use crate::state::ForkId;
use parking_lot::Mutex;
use std::ops::Bound;
use std::time::{Duration, Instant};
use thalweg_log::Offset;

/// How long the source of a page is kept for the next page.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// The most pairs of states that are kept.
const COMPARED_MAX: usize = 2;
/// The most past states that are kept; each may share nothing with a current state.
const RECALLED_MAX: usize = 1;
/// The most differences that are computed and kept at once.
const WINDOW: usize = 65_536;

/// The sources of pages.
pub(super) struct PageCache {
    compared: Mutex<Shelf<(ReadView, ReadView), Window>>,
    recalled: Mutex<Shelf<(ForkId, Offset), Map>>,
}

impl Default for PageCache {
    fn default() -> Self {
        Self {
            compared: Mutex::new(Shelf { limit: COMPARED_MAX, items: Vec::new() }),
            recalled: Mutex::new(Shelf { limit: RECALLED_MAX, items: Vec::new() }),
        }
    }
}

impl PageCache {
    /// Differences of these two from `start` on: at least those asked for, as far as there are any, and more
    /// for a client that reads on.
    pub(super) fn compare(
        &self,
        before: &ReadView,
        now: &ReadView,
        start: Option<&str>,
        limit: usize,
    ) -> Window {
        let is_it = |(one, other): &(ReadView, ReadView)| one.is_same(before) && other.is_same(now);
        let kept = self.compared.lock().take(is_it);
        let most = if start.is_some() { WINDOW } else { limit };
        match kept {
            Some(window) if window.covers(start) => window,
            _ => Window::of(&before.map(), &now.map(), start, most),
        }
    }

    /// Keeps the source of a page that is not the last.
    pub(super) fn keep_compared(&self, before: ReadView, now: ReadView, window: Window) {
        let gone = self.compared.lock().put((before.alone(), now.alone()), window);
        drop(gone);
    }

    /// The state of a fork at an offset, if it is kept. The caller checks whether it may still be read.
    pub(super) fn recall(&self, fork: ForkId, offset: Offset) -> Option<Map> {
        self.recalled.lock().take(|known| *known == (fork, offset))
    }

    /// Keeps the source of a page that is not the last.
    pub(super) fn keep_recalled(&self, fork: ForkId, offset: Offset, map: Map) {
        let gone = self.recalled.lock().put((fork, offset), map);
        drop(gone);
    }

    /// How many of either there are.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.compared.lock().items.len(), self.recalled.lock().items.len())
    }

    /// Drops sources of which no page was asked for [`KEPT_FOR`].
    pub(super) fn sweep(&self, now: Instant) {
        let compared = self.compared.lock().sweep(now);
        let recalled = self.recalled.lock().sweep(now);
        drop((compared, recalled));
    }
}

/// Consecutive differences from a key on, and the key of the next one.
pub(super) struct Window {
    start: Option<Key>,
    changes: Changes,
    next: Option<Key>,
}

impl Window {
    fn of(before: &Map, now: &Map, start: Option<&str>, most: usize) -> Self {
        let mut differences =
            before.differences(now).skip_while(|(key, _)| start.is_some_and(|at| *key < at));
        let changes = differences.by_ref().take(most).collect();
        let next = differences.next().map(|(key, _)| key.clone());
        Self { start: start.map(Key::from), changes, next }
    }

    /// Whether the first difference from `start` on would be in this window.
    fn covers(&self, start: Option<&str>) -> bool {
        let is_behind = self.start.as_deref() <= start;
        is_behind && self.next.as_deref().is_none_or(|next| start.is_none_or(|start| start < next))
    }

    /// The differences from a key on.
    pub(super) fn scan(&self, from: Bound<&str>) -> impl Iterator<Item = (&Key, Option<&Value>)> {
        self.changes.scan(from)
    }

    /// The key of the next difference.
    pub(super) fn next(&self) -> Option<&Key> {
        self.next.as_ref()
    }
}

/// A few values by their keys, the last used at the end.
struct Shelf<K, V> {
    limit: usize,
    items: Vec<(K, V, Instant)>,
}

impl<K, V> Shelf<K, V> {
    /// Removes a value and returns it. A caller that goes on using it puts it back.
    fn take(&mut self, is_it: impl Fn(&K) -> bool) -> Option<V> {
        let place = self.items.iter().position(|(key, ..)| is_it(key))?;
        Some(self.items.remove(place).1)
    }

    /// Adds a value. Returns the one that had to make room, for the caller to drop without the lock.
    fn put(&mut self, key: K, value: V) -> Option<(K, V, Instant)> {
        let gone = (self.items.len() >= self.limit).then(|| self.items.remove(0));
        self.items.push((key, value, Instant::now()));
        gone
    }

    fn sweep(&mut self, now: Instant) -> Vec<(K, V, Instant)> {
        self.items.extract_if(.., |(.., used)| now.saturating_duration_since(*used) > KEPT_FOR).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(keys: std::ops::Range<usize>) -> Map {
        Map::of(keys.map(|key| (format!("{key:08}").into(), b"1"[..].into())).collect())
    }

    #[test]
    fn a_window_knows_what_begins_in_it() {
        let whole = Window::of(&Map::default(), &map(0..3), None, WINDOW);
        assert!(whole.covers(None) && whole.covers(Some("x")) && whole.next().is_none());
        let from = Window::of(&Map::default(), &map(0..3), Some("00000001"), WINDOW);
        assert!(!from.covers(None) && !from.covers(Some("0")) && from.covers(Some("00000001")));
        assert_eq!(from.scan(Bound::Unbounded).count(), 2);
        let part = Window::of(&Map::default(), &map(0..9), None, 8);
        let next = part.next().unwrap().clone();
        assert!(part.covers(None) && part.covers(Some("0")) && !part.covers(Some(&next)));
        assert_eq!((part.scan(Bound::Unbounded).count(), &*next), (8, "00000008"));
    }

    #[test]
    fn what_is_kept_is_bounded_and_let_go_of() {
        let kept = PageCache::default();
        kept.keep_recalled(1, 1, map(0..1));
        kept.keep_recalled(1, 2, map(0..2));
        assert!(kept.recall(1, 1).is_none(), "one is kept");
        assert_eq!(kept.recall(1, 2), Some(map(0..2)));
        assert!(kept.recall(1, 2).is_none(), "it belongs to the caller that took it");
        kept.keep_recalled(1, 2, map(0..2));
        kept.sweep(Instant::now());
        kept.sweep(Instant::now() + KEPT_FOR + Duration::from_secs(1));
        assert!(kept.recall(1, 2).is_none());
    }
}
