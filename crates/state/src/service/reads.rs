//! Calls that read. Each takes a sight of its place in its turn; looking takes as long as it takes, without the turn, and a
//! session that it looks from is in use for as long.

use super::Core;
use super::answer::Answer;
use super::calls::{Place, reading};
use super::order::{Budget, ENDLESS, Held, Key, LONG, Outcome};
use super::refusal::Refusal;
use super::sessions::Live;
use crate::fork::View;
use crate::generated::types::{
    Change, StateCount, StateDiff, StateDiffResponse, StateGet, StateHistory, StateRoot, StateRootResponse,
    StateScan, View as Wanted,
};
use crate::map::{Key as Name, Map, Value};
use crate::sight::Sight;
use parking_lot::Mutex;
use std::ops::{Bound, Deref};
use std::sync::Arc;
use thalweg_log::{Offset, Position};

/// Entries of one answer, unless something else is asked for, and at most.
const LIMIT: u32 = 1_000;
const LIMIT_MAX: u32 = 10_000;
/// Bytes of keys and values in one answer, from which on it is ended; one entry is always given.
const ANSWER_BYTES: usize = 1 << 20;
/// An entry of an answer takes as long as so many keys that are only passed.
const ENTRY_COST: usize = 8;

type Tried = Result<Outcome, Refusal>;

/// What is seen from a place, for whoever looks: until this goes, no lease of the session that looks ends.
struct Seen {
    sight: Sight,
    _beside: Option<Live>,
}

impl Deref for Seen {
    type Target = Sight;

    fn deref(&self) -> &Sight {
        &self.sight
    }
}

impl Core {
    /// Calls `look` with what is seen from a place.
    fn look(
        self: &Arc<Self>,
        place: &str,
        view: Option<Wanted>,
        budget: Budget,
        look: impl FnOnce(Seen, Budget) -> Outcome + Send + 'static,
    ) -> Tried {
        match self.place(place)? {
            Place::Fork(fork) => match reading(fork, view) {
                None => {
                    let sight = self.open()?.sight(fork, View::Committed)?;
                    Ok(look(Seen { sight, _beside: None }, budget))
                }
                Some(key) => Ok(self.look_pending(key, fork, None, budget, look)),
            },
            Place::Session(_) if view.is_some() => Err(Refusal::View),
            Place::Session(token) => {
                let key = Key::Session(token.name);
                let live = self.sessions.find(token)?;
                match self.turn(key, false) {
                    Some(held) => self.look_in(live, held, budget, look),
                    None => Ok(Outcome::in_turn(key, false, move |core, held, budget| {
                        core.look_in(live, held, budget, look).into()
                    })),
                }
            }
        }
    }

    /// `held` is the session's turn.
    fn look_in(
        self: &Arc<Self>,
        live: Live,
        held: Held,
        budget: Budget,
        look: impl FnOnce(Seen, Budget) -> Outcome + Send + 'static,
    ) -> Tried {
        let session = live.lock()?;
        if !session.is_pending() {
            let fork = session.fork();
            drop(session);
            return Ok(self.look_pending(Key::Fork(fork), fork, Some((held, live)), budget, look));
        }
        let sight = session.sight();
        drop(session);
        drop(held);
        Ok(look(Seen { sight: sight?, _beside: Some(live) }, budget))
    }

    /// `beside` is the session that reads, if one does, and its turn: what it writes later comes behind this in the fork's line,
    /// too.
    fn look_pending(
        self: &Arc<Self>,
        key: Key,
        fork: u64,
        beside: Option<(Held, Live)>,
        budget: Budget,
        look: impl FnOnce(Seen, Budget) -> Outcome + Send + 'static,
    ) -> Outcome {
        let see = move |core: &Arc<Self>, held: Held, budget: Budget| {
            let sight = core.open().and_then(|state| Ok(state.sight(fork, View::Pending)?));
            let (turn, beside) = beside.unzip();
            drop((held, turn));
            sight.map(|sight| look(Seen { sight, _beside: beside }, budget)).into()
        };
        match self.turn(key, false) {
            Some(held) => see(self, held, budget),
            None => Outcome::in_turn(key, false, see),
        }
    }

    pub(super) fn get(self: &Arc<Self>, get: &StateGet<'_>, budget: Budget) -> Tried {
        // Most look here and now, without making the key their own.
        if let Place::Fork(fork) = self.place(&get.place)?
            && reading(fork, get.view).is_none()
        {
            let sight = self.open()?.sight(fork, View::Committed)?;
            return Ok(Outcome::done(Answer::Value(sight.get(&get.key).cloned())));
        }
        let key = Name::from(&*get.key);
        self.look(&get.place, get.view, budget, move |sight, _| {
            Outcome::done(Answer::Value(sight.get(&key).cloned()))
        })
    }

    pub(super) fn scan(self: &Arc<Self>, scan: &StateScan<'_>, budget: Budget) -> Tried {
        let (start, limit) = (scan.start.as_deref().map(Name::from), limit(scan.limit));
        self.look(&scan.place, scan.view, budget, move |sight, budget| {
            let entries = move || page(sight.scan(from(start.as_deref())), limit, false);
            if limit.saturating_mul(ENTRY_COST) <= budget {
                return Outcome::done(entries());
            }
            Outcome::elsewhere(move |_| Outcome::done(entries()))
        })
    }

    pub(super) fn count(self: &Arc<Self>, count: &StateCount<'_>, budget: Budget) -> Tried {
        let (start, until) = (count.start.as_deref().map(Name::from), count.until.as_deref().map(Name::from));
        self.look(&count.place, count.view, budget, move |sight, budget| {
            match counted(&sight, start.as_deref(), until.as_deref(), budget) {
                (count, None) => Outcome::done(Answer::Count(count)),
                // It goes on elsewhere from where the budget ended.
                (count, Some(next)) => {
                    Outcome::elsewhere(move |_| match counted(&sight, Some(&next), until.as_deref(), LONG) {
                        (more, None) => Outcome::done(Answer::Count(count + more)),
                        (more, Some(next)) => Outcome::apart(move |_| {
                            let (rest, _) = counted(&sight, Some(&next), until.as_deref(), ENDLESS);
                            Outcome::done(Answer::Count(count + more + rest))
                        }),
                    })
                }
            }
        })
    }

    pub(super) fn root(self: &Arc<Self>, root: &StateRoot<'_>, budget: Budget) -> Tried {
        self.look(&root.place, root.view, budget, |sight, _| {
            // Nobody knows how much changed since the last one.
            Outcome::apart(move |_| {
                let keys = sight.map().len() as u64;
                let (root, offset) = (sight.root(), sight.offset());
                Outcome::done(Answer::of(&StateRootResponse { root, offset, keys }))
            })
        })
    }

    pub(super) fn diff(self: &Arc<Self>, diff: StateDiff<'static>) -> Tried {
        let StateDiff { before, now, start, limit: wanted, view } = diff;
        let is_session = |place: &str| self.place(place).map(|place| matches!(place, Place::Session(_)));
        let (of_before, of_now) = match (is_session(&before)?, is_session(&now)?) {
            (true, true) => (view, view),
            // The view is the fork's.
            (before, now) => (view.filter(|_| !before), view.filter(|_| !now)),
        };
        // Both are looked at from when the call came in, and neither waits for the other.
        let first = Arc::new(Mutex::new(None::<Seen>));
        let half = |is_now: bool| {
            let (first, start) = (Arc::clone(&first), start.clone());
            move |seen: Seen, _: Budget| {
                let mut first = first.lock();
                let Some(other) = first.take() else {
                    *first = Some(seen);
                    return Outcome::Left;
                };
                let (before, now) = if is_now { (other, seen) } else { (seen, other) };
                Outcome::apart(move |core| {
                    Outcome::done(core.differences(before, now, start.as_deref(), limit(wanted)))
                })
            }
        };
        let now = self.look(&now, of_now, 0, half(true))?;
        let before = self.look(&before, of_before, 0, half(false))?;
        Ok(Outcome::Both(Box::new(now), Box::new(before)))
    }

    pub(super) fn history(self: &Arc<Self>, history: StateHistory<'static>) -> Tried {
        let fork = self.fork(&history.fork)?;
        Ok(Outcome::apart(move |core| {
            let found = core.recalled(fork, history.offset);
            let answer = |(map, ticket): (Map, Position)| {
                let page = page(map.scan(from(history.start.as_deref())), limit(history.limit), true);
                if page.goes_on() {
                    core.kept.keep_recalled(fork, history.offset, map);
                }
                Outcome::Done(ticket, page)
            };
            found.map(answer).into()
        }))
    }

    /// The state of a fork at an offset, and when all of it is durable.
    fn recalled(&self, fork: u64, offset: Offset) -> Result<(Map, Position), Refusal> {
        let state = self.open()?;
        if let Some(map) = self.kept.recall(fork, offset) {
            // It may have been dropped, or let go of, since.
            return Ok((map, state.ticket_at(fork, offset)?));
        }
        Ok(state.at(fork, offset)?)
    }

    fn differences(&self, before: Seen, now: Seen, start: Option<&str>, limit: usize) -> Answer {
        let window = self.kept.compare(&before, &now, start, limit);
        let (mut changes, mut bytes, mut next) = (Vec::new(), 0, window.next().cloned());
        for (key, value) in window.scan(from(start)) {
            if changes.len() >= limit || bytes >= ANSWER_BYTES {
                next = Some(key.clone());
                break;
            }
            bytes += key.len() + value.map_or(0, |value| value.len());
            changes.push(Change { key: key.as_str().into(), value: value.map(|value| (&**value).into()) });
        }
        let next_key = next.as_deref().map(Into::into);
        let answer = Answer::of(&StateDiffResponse { changes, next: next_key });
        if start.is_some() && next.is_some() {
            self.kept.keep_compared(before.sight, now.sight, window);
        }
        answer
    }
}

fn limit(wanted: Option<u32>) -> usize {
    // One at least, or whoever goes on at `next` would never come to an end.
    wanted.unwrap_or(LIMIT).clamp(1, LIMIT_MAX) as usize
}

fn from(start: Option<&str>) -> Bound<&str> {
    start.map_or(Bound::Unbounded, Bound::Included)
}

/// As many entries as one answer carries.
fn page<'s>(entries: impl Iterator<Item = (&'s Name, &'s Value)>, limit: usize, history: bool) -> Answer {
    let (mut given, mut bytes) = (Vec::new(), 0);
    for (key, value) in entries {
        if given.len() >= limit || bytes >= ANSWER_BYTES {
            return Answer::Entries { history, entries: given, next: Some(key.clone()) };
        }
        bytes += key.len() + value.len();
        given.push((key.clone(), value.clone()));
    }
    Answer::Entries { history, entries: given, next: None }
}

/// How many keys there are, and where to go on if the budget did not last.
fn counted(sight: &Sight, start: Option<&str>, until: Option<&str>, budget: Budget) -> (u64, Option<Name>) {
    let mut count = 0;
    for (at, (key, _)) in sight.scan(from(start)).enumerate() {
        if until.is_some_and(|until| key.as_str() >= until) {
            break;
        }
        if at >= budget {
            return (count, Some(key.clone()));
        }
        count += 1;
    }
    (count, None)
}
