//! Calls that read. Each takes a read view of its place in the place's turn; of two places, in the turns of
//! both. Reading the view needs no turn and may take long. Meanwhile the session of a view counts as in use.

use super::Core;
use super::answer::Answer;
use super::calls::Place;
use super::order::{Budget, ENDLESS, Key, LONG, NO_ROOM, Outcome, Places};
use super::page::{limit, paged};
use super::refusal::Refusal;
use super::session_calls::both;
use super::sessions::{LiveSession, Token};
use crate::fork::View;
use crate::generated::types::{
    Change, StateCount, StateDiff, StateDiffResponse, StateGet, StateHistory, StateRoot, StateRootResponse,
    StateScan, View as RequestedView,
};
use crate::map::{Key as Name, Map, Value};
use crate::read_view::ReadView;
use crate::state::ForkId;
use std::ops::{Bound, Deref};
use std::sync::Arc;
use thalweg_log::{Offset, Position};
use thalweg_service::Access;

/// The cost of an entry in an answer, as a number of keys that are only counted.
const ENTRY_COST: usize = 8;

type OutcomeResult = Result<Outcome, Refusal>;

/// A read view of a place. Until it is dropped, the lease of the session that is read does not end.
struct PlaceView {
    read_view: ReadView,
    _beside: Option<LiveSession>,
}

impl Deref for PlaceView {
    type Target = ReadView;

    fn deref(&self) -> &ReadView {
        &self.read_view
    }
}

/// A place to read.
enum Source {
    /// Looked up when the call came.
    View(PlaceView),
    /// In its turn.
    Fork(ForkId),
    /// In its turn, and its fork's.
    Session(Token, LiveSession),
}

impl Source {
    fn places(&self) -> Places {
        match self {
            Self::View(_) => Vec::new(),
            Self::Fork(fork) => vec![(Key::Fork(*fork), Access::Read)],
            Self::Session(token, live) => both(*token, live, Access::Read),
        }
    }
}

impl Core {
    fn source(&self, place: &str, view: Option<RequestedView>) -> Result<Source, Refusal> {
        match self.place(place)? {
            Place::Fork(fork) if is_pending(view) => Ok(Source::Fork(fork)),
            Place::Fork(fork) => {
                let read_view = self.open()?.read_view(fork, View::Committed)?;
                Ok(Source::View(PlaceView { read_view, _beside: None }))
            }
            Place::Session(_) if view.is_some() => Err(Refusal::View),
            Place::Session(token) => {
                let live = self.sessions.find(token)?;
                // A session with a snapshot does not need its fork's turn.
                if let Some(_held) = self.turn(Key::Session(token.name), Access::Read)
                    && live.lock()?.is_pending()
                {
                    return Ok(Source::View(see_in(live)?));
                }
                Ok(Source::Session(token, live))
            }
        }
    }

    /// The caller has the turns that the place needs.
    fn see(&self, source: Source) -> Result<PlaceView, Refusal> {
        match source {
            Source::View(seen) => Ok(seen),
            Source::Fork(fork) => {
                Ok(PlaceView { read_view: self.open()?.read_view(fork, View::Pending)?, _beside: None })
            }
            Source::Session(_, live) => see_in(live),
        }
    }

    /// Calls `look` with what is seen from a place.
    fn look(
        self: &Arc<Self>,
        place: &str,
        view: Option<RequestedView>,
        budget: Budget,
        look: impl FnOnce(PlaceView, Budget) -> Outcome + Send + 'static,
    ) -> OutcomeResult {
        match self.source(place, view)? {
            Source::View(seen) => Ok(look(seen, budget)),
            source => Ok(Outcome::in_turns(source.places(), move |core, held, budget| {
                let seen = core.see(source);
                drop(held);
                let look_at = |seen| match budget {
                    NO_ROOM => Outcome::elsewhere(0, move |_, budget| look(seen, budget)),
                    budget => look(seen, budget),
                };
                seen.map(look_at).into()
            })),
        }
    }

    pub(super) fn get(self: &Arc<Self>, get: &StateGet<'_>, budget: Budget) -> OutcomeResult {
        // Most are done at once, without a copy of the key.
        if let Place::Fork(fork) = self.place(&get.place)?
            && !is_pending(get.view)
        {
            let read_view = self.open()?.read_view(fork, View::Committed)?;
            return Ok(Outcome::done(Answer::Value(read_view.get(&get.key).cloned())));
        }
        let key = Name::from(&*get.key);
        self.look(&get.place, get.view, budget, move |read_view, _| {
            Outcome::done(Answer::Value(read_view.get(&key).cloned()))
        })
    }

    pub(super) fn scan(self: &Arc<Self>, scan: &StateScan<'_>, budget: Budget) -> OutcomeResult {
        let (start, limit) = (scan.start.as_deref().map(Name::from), limit(scan.limit));
        self.look(&scan.place, scan.view, budget, move |read_view, budget| {
            let entries = move || page(read_view.scan(from(start.as_deref())), limit, false);
            let cost = limit.saturating_mul(ENTRY_COST);
            if cost <= budget {
                return Outcome::done(entries());
            }
            Outcome::elsewhere(cost, move |_, _| Outcome::done(entries()))
        })
    }

    pub(super) fn count(self: &Arc<Self>, count: &StateCount<'_>, budget: Budget) -> OutcomeResult {
        let (start, until) = (count.start.as_deref().map(Name::from), count.until.as_deref().map(Name::from));
        self.look(&count.place, count.view, budget, move |seen, budget| {
            Count { seen, until, so_far: 0 }.go_on(start.as_deref(), budget)
        })
    }

    pub(super) fn root(self: &Arc<Self>, root: &StateRoot<'_>, budget: Budget) -> OutcomeResult {
        self.look(&root.place, root.view, budget, |read_view, _| {
            // How much changed since the last root is unknown before the two are compared.
            Outcome::apart(move |_| {
                let keys = read_view.map().len() as u64;
                let (root, offset) = (read_view.root(), read_view.offset());
                Outcome::done(Answer::of(&StateRootResponse { root, offset, keys }))
            })
        })
    }

    pub(super) fn diff(self: &Arc<Self>, diff: StateDiff<'static>) -> OutcomeResult {
        let StateDiff { before, now, start, limit: wanted, view } = diff;
        let is_session = |place: &str| self.place(place).map(|place| matches!(place, Place::Session(_)));
        let (of_before, of_now) = match (is_session(&before)?, is_session(&now)?) {
            (true, true) => (view, view),
            // The view is the fork's.
            (before, now) => (view.filter(|_| !before), view.filter(|_| !now)),
        };
        let is_one = self.place(&before)? == self.place(&now)? && of_before == of_now;
        let source = self.source(&now, of_now)?;
        // If both are the same place, it is looked up once.
        let other = if is_one { None } else { Some(self.source(&before, of_before)?) };
        let mut places = source.places();
        for place in other.iter().flat_map(Source::places) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        // Turns are held until both places are looked up: neither changes before the other is.
        Ok(Outcome::in_turns(places, move |core, held, _| {
            let seen =
                core.see(source).and_then(|now| Ok((other.map(|source| core.see(source)).transpose()?, now)));
            drop(held);
            let compare = |(before, now): (Option<PlaceView>, PlaceView)| {
                Outcome::page(move |core| {
                    let before = before.as_ref().unwrap_or(&now);
                    Outcome::done(core.differences(before, &now, start.as_deref(), limit(wanted)))
                })
            };
            seen.map(compare).into()
        }))
    }

    pub(super) fn history(self: &Arc<Self>, history: StateHistory<'static>) -> OutcomeResult {
        let fork = self.fork(&history.fork)?;
        Ok(Outcome::page(move |core| {
            let found = core.recalled(fork, history.offset);
            let answer = |(map, ticket): (Map, Position)| {
                let page = page(map.scan(from(history.start.as_deref())), limit(history.limit), true);
                if page.goes_on() {
                    core.page_cache.keep_recalled(fork, history.offset, map);
                }
                Outcome::Done(ticket, page)
            };
            found.map(answer).into()
        }))
    }

    /// The state of a fork at an offset, and when all of it is durable.
    fn recalled(&self, fork: u64, offset: Offset) -> Result<(Map, Position), Refusal> {
        let state = self.open()?;
        if let Some(map) = self.page_cache.recall(fork, offset) {
            // The fork may have been dropped since. If what led there was trimmed, the pages go on.
            return Ok((map, state.ticket_at(fork, offset)?));
        }
        Ok(state.at(fork, offset)?)
    }

    fn differences(&self, before: &PlaceView, now: &PlaceView, start: Option<&str>, limit: usize) -> Answer {
        let window = self.page_cache.compare(before, now, start, limit);
        let (changes, next) = paged(window.scan(from(start)), limit, |(key, value)| {
            key.len() + value.map_or(0, |value| value.len())
        });
        let next = next.map(|(key, _)| key).or(window.next()).cloned();
        let changes = changes.into_iter().map(change).collect();
        let next_key = next.as_deref().map(Into::into);
        let answer = Answer::of(&StateDiffResponse { changes, next: next_key });
        if start.is_some() && next.is_some() {
            self.page_cache.keep_compared(before.read_view.clone(), now.read_view.clone(), window);
        }
        answer
    }
}

/// A read view of a session. The caller has the session's turn.
fn see_in(live: LiveSession) -> Result<PlaceView, Refusal> {
    let read_view = live.lock()?.read_view()?;
    Ok(PlaceView { read_view, _beside: Some(live) })
}

fn is_pending(view: Option<RequestedView>) -> bool {
    view == Some(RequestedView::Pending)
}

fn from(start: Option<&str>) -> Bound<&str> {
    start.map_or(Bound::Unbounded, Bound::Included)
}

fn change<'s>((key, value): (&'s Name, Option<&'s Value>)) -> Change<'s> {
    Change { key: key.as_str().into(), value: value.map(|value| (&**value).into()) }
}

/// The entries that fit into one answer.
fn page<'s>(entries: impl Iterator<Item = (&'s Name, &'s Value)>, limit: usize, history: bool) -> Answer {
    let (entries, next) = paged(entries, limit, |(key, value)| key.len() + value.len());
    let entries = entries.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    Answer::Entries { history, entries, next: next.map(|(key, _)| key.clone()) }
}

/// A count in progress.
struct Count {
    seen: PlaceView,
    until: Option<Name>,
    so_far: usize,
}

impl Count {
    /// Counts from a key on within the budget, and has the rest counted elsewhere: after [`LONG`] keys on the
    /// thread for work in proportion to the state.
    fn go_on(mut self, start: Option<&str>, budget: Budget) -> Outcome {
        let left = if budget == ENDLESS { ENDLESS } else { budget.min(LONG - self.so_far) };
        let (count, next) = counted(&self.seen, start, self.until.as_deref(), left);
        self.so_far += count;
        match next {
            None => Outcome::done(Answer::Count(self.so_far as u64)),
            Some(next) if self.so_far < LONG => {
                Outcome::elsewhere(0, move |_, budget| self.go_on(Some(&next), budget))
            }
            Some(next) => Outcome::apart(move |_| self.go_on(Some(&next), ENDLESS)),
        }
    }
}

/// How many keys there are, and where to continue if the budget was too small.
fn counted(
    read_view: &ReadView,
    start: Option<&str>,
    until: Option<&str>,
    budget: Budget,
) -> (usize, Option<Name>) {
    let until = until.map_or(Bound::Unbounded, Bound::Excluded);
    let mut keys = read_view.range(from(start), until).map(|(key, _)| key);
    let count = keys.by_ref().take(budget).count();
    (count, keys.next().cloned())
}
