//! A subscription as a value, and its rules as plain functions: each reads the value, is handed the time, and
//! answers with the [`Change`] to keep. Nothing changes before that is kept.
//!
//! A subscription is in one of four phases (PROTOCOL 7, 7.3):
//!
//! | phase | ends by | and becomes |
//! |---|---|---|
//! | `Idle` | pending work: a wake of a new generation | `Waking` |
//! | | a claim of pending work, of a new generation | `Held` |
//! | `Waking` | the event's append to the wake stream | `Woken` |
//! | | a webhook that accepts or calls back, or a claim | `Held` |
//! | | a webhook that answers or calls back that it is done | `Idle` |
//! | | an attempt that fails, after a backoff | `Waking` |
//! | `Woken` | a claim | `Held` |
//! | | no claim in time: the same wake once more | `Waking` |
//! | `Held` | the end of the work or of the lease, or a release | `Idle` |
//!
//! Invariants: a generation grows by one with each wake and never otherwise; a cursor never moves back within
//! an incarnation of its stream, and never past the end that was seen; a request with a stale generation or
//! wake changes nothing. Checked against a plain model in `tests/rules.rs`.

use super::links::Links;
use super::pattern::Pattern;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::token::Token;

const BACKOFF_MIN_MS: u64 = 1_000;
const BACKOFF_MAX_MS: u64 = 60_000;
/// With jitter.
const RETRY_MS_MAX: u64 = BACKOFF_MAX_MS / 5 * 6;
/// A clock that goes back by no more than this did not: threads read it at different moments.
pub(crate) const BACK_US_MIN: u64 = 1_000_000;
/// Longest time between two events of a wake.
const CLAIM_MS_MAX: u64 = 600_000;
/// Links that a wake's snapshot carries at most, those with pending work first.
const SNAPSHOT_MAX: usize = 512;

/// How a subscription wakes its workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Delivery {
    /// A request to a URL.
    Webhook {
        /// The URL.
        url: String,
    },
    /// An event in a stream.
    PullWake {
        /// The stream's name.
        wake_stream: String,
    },
}

/// What a subscription was asked to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) delivery: Delivery,
    pub(crate) pattern: Option<Pattern>,
    /// The streams named at creation, ordered. Membership may have changed since; this is what is compared.
    pub(crate) streams: BTreeSet<Arc<str>>,
    pub(crate) lease_ttl_ms: u64,
    pub(crate) description: Option<String>,
}

/// Where a subscription stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// No worker is at work, and no wake is under way.
    Idle,
    /// A wake was issued and is to be handed over.
    Waking {
        /// Attempts that failed.
        attempts: u32,
        /// When to try (again), microseconds since the epoch.
        next_attempt_us: u64,
    },
    /// The wake's event lies in the wake stream.
    Woken,
    /// A worker is at work.
    Held {
        /// Who.
        holder: String,
        /// When the lease is over, microseconds since the epoch.
        until_us: u64,
    },
}

/// A stream that a subscription follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// Matched by the pattern.
    pub(crate) glob: bool,
    /// Asked for by name.
    pub(crate) explicit: bool,
    /// The incarnation of the stream that the cursor is in; 0 when there is none yet.
    pub(crate) incarnation: u64,
    /// Offset up to which everything was processed.
    pub(crate) acked: u64,
    /// The incarnation that the token of `acked` names: in a fork, the stream those bytes are inherited from.
    pub(crate) acked_owner: u64,
    /// Where the stream's own bytes begin. Soft, as what follows: seen anew at start, never kept.
    pub(crate) base: u64,
    /// The stream's visible end as last seen.
    pub(crate) tail: u64,
    /// The incarnation that the token of `tail` names.
    pub(crate) tail_owner: u64,
}

/// Where a stream visibly stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamPosition {
    pub(crate) incarnation: u64,
    pub(crate) base: u64,
    pub(crate) base_owner: u64,
    pub(crate) tail: u64,
    pub(crate) tail_owner: u64,
}

impl StreamPosition {
    /// A link at the end of what was seen.
    pub(crate) fn linked_at_end(&self) -> Link {
        let at_end = Link { acked: self.tail, acked_owner: self.tail_owner, ..Link::default() };
        self.update(at_end)
    }

    /// A link before the first byte of the stream's own.
    fn linked_at_base(&self, link: Link) -> Link {
        self.update(Link { acked: self.base, acked_owner: self.base_owner, tail: 0, ..link })
    }

    fn update(&self, link: Link) -> Link {
        let moved = self.tail >= link.tail;
        let (tail, tail_owner) =
            if moved { (self.tail, self.tail_owner) } else { (link.tail, link.tail_owner) };
        Link { incarnation: self.incarnation, base: self.base, tail, tail_owner, ..link }
    }
}

impl Link {
    /// PROTOCOL 7: the tail lies past the cursor.
    pub(crate) fn is_pending(&self) -> bool {
        self.incarnation != 0 && self.tail > self.acked
    }

    /// PROTOCOL 6.1: explicit takes precedence.
    pub(crate) fn kind(&self) -> &'static str {
        if self.explicit { "explicit" } else { "glob" }
    }

    pub(crate) fn cursor(&self) -> String {
        token(self.acked_owner, self.acked)
    }

    pub(crate) fn end(&self) -> String {
        token(self.tail_owner, self.tail)
    }
}

/// An offset as it is written; the beginning of a stream that does not exist yet is the sentinel.
fn token(owner: u64, offset: u64) -> String {
    if owner == 0 {
        return "-1".to_owned();
    }
    Token { incarnation: owner, offset }.encode().iter().copied().map(char::from).collect()
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) id: Arc<str>,
    pub(crate) config: Config,
    /// Scheme and authority that callers reach this server by.
    pub(crate) origin: String,
    /// When it was created, microseconds since the epoch.
    pub(crate) created_us: u64,
    pub(crate) generation: u64,
    pub(crate) phase: Phase,
    pub(crate) links: Links,
}

/// What is to be kept. Applying it is the only way a subscription changes, soft tails excepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) phase: Option<Phase>,
    pub(crate) generation: Option<u64>,
    pub(crate) origin: Option<String>,
    /// Links as they will be; `None` removes.
    pub(crate) links: BTreeMap<Arc<str>, Option<Link>>,
}

impl Change {
    /// Whether more than links change.
    pub(crate) fn moves_head(&self) -> bool {
        self.phase.is_some() || self.generation.is_some() || self.origin.is_some()
    }
}

/// One position that was processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) stream: Arc<str>,
    pub(crate) position: Position,
}

/// An acked position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The beginning: nothing was processed.
    Beginning,
    /// Everything up to an offset of an incarnation of the stream.
    At {
        /// The incarnation; one that is past moves nothing.
        incarnation: u64,
        /// The offset.
        offset: u64,
        /// The incarnation that the offset's token names.
        owner: u64,
    },
}

/// Which wake a request says it speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    /// Generation of the bearer's token.
    pub(crate) token: u64,
    /// Generation in the request.
    pub(crate) generation: u64,
    /// The request names the wake of the present generation.
    pub(crate) same_wake: bool,
}

/// Why a rule refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// PROTOCOL 7.3: the wake is not the present one, or is over.
    Fenced,
    /// PROTOCOL 7.2: another worker holds the lease.
    AlreadyClaimed {
        /// Who.
        holder: String,
    },
    /// There is nothing to work on.
    NothingPending,
    /// An ack lies past the end of its stream.
    PastEnd {
        /// The stream.
        stream: Arc<str>,
    },
}

/// How an attempt to hand a wake over ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// PROTOCOL 7.1: the webhook answered `{"done": true}`.
    Done,
    /// The webhook took the wake and will call back; or the event lies in the wake stream.
    Accepted,
    /// Refused, unreachable, too slow.
    Failed,
}

impl Subscription {
    /// Whether any linked stream has something past its cursor.
    pub(crate) fn is_pending(&self) -> bool {
        !self.links.pending().is_empty()
    }

    /// Whether something would be pending after a change.
    pub(crate) fn is_pending_after(&self, change: &Change) -> bool {
        let mut kept = self.links.pending().iter().filter(|path| !change.links.contains_key(*path));
        kept.next().is_some() || change.links.values().flatten().any(Link::is_pending)
    }

    pub(crate) fn apply(&mut self, change: Change) {
        if let Some(phase) = change.phase {
            self.phase = phase;
        }
        if let Some(generation) = change.generation {
            self.generation = generation;
        }
        if let Some(origin) = change.origin {
            self.origin = origin;
        }
        for (path, link) in change.links {
            match link {
                Some(link) => self.links.insert(path, link),
                None => self.links.remove(&path),
            };
        }
    }

    /// Whether the pattern, if any, matches a stream. A subscription's own wake stream never matches: its
    /// wakes would wake it.
    pub(crate) fn matches(&self, path: &str) -> bool {
        self.config.pattern.as_ref().is_some_and(|pattern| pattern.matches(path)) && !self.wakes_by(path)
    }

    pub(crate) fn wakes_by(&self, path: &str) -> bool {
        matches!(&self.config.delivery, Delivery::PullWake { wake_stream } if wake_stream == path)
    }

    pub(crate) fn is_webhook(&self) -> bool {
        matches!(self.config.delivery, Delivery::Webhook { .. })
    }

    /// The links a wake tells of, those with pending work first, from behind the one that was `told` of last.
    /// Where not all of them have room each has its turn, however soon the first ones are pending again.
    pub(crate) fn snapshot(&self, told: Option<&str>) -> Vec<(Arc<str>, Link)> {
        let round = self.links.round(told.unwrap_or_default()).take(SNAPSHOT_MAX);
        round.map(|(path, link)| (path.clone(), *link)).collect()
    }

    /// The last one with pending work that a snapshot tells of, if there may be more than it has room for.
    pub(crate) fn told_last(snapshot: &[(Arc<str>, Link)]) -> Option<Arc<str>> {
        let last = snapshot.get(SNAPSHOT_MAX - 1).filter(|(_, link)| link.is_pending());
        last.map(|(path, _)| path.clone())
    }

    /// PROTOCOL 7: pending work of an idle subscription is a new wake.
    pub(crate) fn wake(&self, now_us: u64) -> Option<Change> {
        let due = self.phase == Phase::Idle && self.is_pending();
        due.then(|| Change {
            generation: Some(self.generation + 1),
            phase: Some(Phase::Waking { attempts: 0, next_attempt_us: now_us }),
            ..Change::default()
        })
    }

    /// An event that no worker claimed in time may never be read: its stream was deleted, or keeps less, or
    /// the worker that had read it died. It is handed over again, as the same wake.
    pub(crate) fn unclaimed(&self, due_us: u64, now_us: u64) -> Option<Change> {
        let is_over = self.phase == Phase::Woken && due_us <= now_us && self.is_pending();
        let phase = Phase::Waking { attempts: 0, next_attempt_us: now_us };
        is_over.then(|| Change { phase: Some(phase), ..Change::default() })
    }

    /// How long a claim is waited for behind an event, and the same behind the next of a wake that waited
    /// `waited_ms` for one: as long as a worker would have to work, then twice as long each time.
    pub(crate) fn claim_ms(&self, waited_ms: Option<u64>) -> u64 {
        let ttl_ms = self.config.lease_ttl_ms;
        waited_ms.map_or(ttl_ms, |waited_ms| (2 * waited_ms).min(CLAIM_MS_MAX).max(ttl_ms))
    }

    /// PROTOCOL 7.3: a lease that is over clears its holder.
    pub(crate) fn expire(&self, now_us: u64) -> Option<Change> {
        let over = matches!(self.phase, Phase::Held { until_us, .. } if until_us <= now_us);
        over.then(|| Change { phase: Some(Phase::Idle), ..Change::default() })
    }

    /// What was set by a clock that has gone back since lies further ahead than it can: a lease then lasts as
    /// long as one that begins now, and a retry is due.
    pub(crate) fn rewound(&self, now_us: u64) -> Option<Change> {
        let is_beyond = |at_us: u64, most_ms: u64| at_us > now_us + most_ms * 1_000 + BACK_US_MIN;
        match &self.phase {
            Phase::Held { holder, until_us } if is_beyond(*until_us, self.config.lease_ttl_ms) => {
                Some(self.held(holder, now_us))
            }
            Phase::Waking { attempts, next_attempt_us } if is_beyond(*next_attempt_us, RETRY_MS_MAX) => {
                let phase = Phase::Waking { attempts: *attempts, next_attempt_us: now_us };
                Some(Change { phase: Some(phase), ..Change::default() })
            }
            _ => None,
        }
    }

    /// How an attempt for `generation`, begun at `begun_us`, changes things. `snapshot` is what it told of.
    pub(crate) fn delivered(
        &self,
        generation: u64,
        outcome: Outcome,
        snapshot: &[(Arc<str>, Link)],
        begun_us: u64,
        now_us: u64,
        entropy: u64,
    ) -> Option<Change> {
        let (waking, held) =
            (matches!(self.phase, Phase::Waking { .. }), matches!(self.phase, Phase::Held { .. }));
        if generation != self.generation || !(waking || held) {
            return None;
        }
        match (outcome, &self.phase) {
            (Outcome::Done, _) => {
                let mut change = Change { phase: Some(Phase::Idle), ..Change::default() };
                for (path, seen) in snapshot {
                    // PROTOCOL 7.1: the tails in the snapshot are acked, and no more than those.
                    self.advance(&mut change, path, seen.incarnation, seen.tail, seen.tail_owner);
                }
                Some(change)
            }
            (Outcome::Accepted, Phase::Waking { .. }) if self.is_webhook() => {
                // PROTOCOL 7.3: the lease starts when the wake is issued.
                Some(self.held("webhook", begun_us))
            }
            (Outcome::Accepted, Phase::Waking { .. }) => {
                Some(Change { phase: Some(Phase::Woken), ..Change::default() })
            }
            (Outcome::Failed, Phase::Waking { attempts, .. }) => {
                let next_attempt_us = now_us + backoff_ms(*attempts, entropy) * 1_000;
                let phase = Phase::Waking { attempts: attempts.saturating_add(1), next_attempt_us };
                Some(Change { phase: Some(phase), ..Change::default() })
            }
            // A callback came before the answer did.
            (Outcome::Accepted | Outcome::Failed, _) => None,
        }
    }

    /// PROTOCOL 7.2: a worker claims. The wake of an idle subscription with pending work is issued and
    /// claimed at once.
    pub(crate) fn claim(&self, worker: &str, now_us: u64) -> Result<Change, Refused> {
        match &self.phase {
            Phase::Held { holder, until_us } if *until_us > now_us => {
                Err(Refused::AlreadyClaimed { holder: holder.clone() })
            }
            Phase::Idle | Phase::Held { .. } if self.is_pending() => {
                let generation = Some(self.generation + 1);
                Ok(Change { generation, ..self.held(worker, now_us) })
            }
            Phase::Idle | Phase::Held { .. } => Err(Refused::NothingPending),
            Phase::Waking { .. } | Phase::Woken => Ok(self.held(worker, now_us)),
        }
    }

    /// PROTOCOL 7.1, 7.2: acks, and either the end of the work or a longer lease.
    pub(crate) fn ack(&self, fence: Fence, acks: &[Ack], done: bool, now_us: u64) -> Result<Change, Refused> {
        let holder = self.fenced(fence, now_us)?;
        let mut change = if done {
            Change { phase: Some(Phase::Idle), ..Change::default() }
        } else {
            self.held(&holder, now_us)
        };
        for ack in acks {
            let Position::At { incarnation, offset, owner } = ack.position else { continue };
            let Some(link) = self.links.get(&ack.stream) else { continue };
            if incarnation == link.incarnation && offset > link.tail {
                return Err(Refused::PastEnd { stream: ack.stream.clone() });
            }
            self.advance(&mut change, &ack.stream, incarnation, offset, owner);
        }
        Ok(change)
    }

    /// PROTOCOL 7.2: a worker gives up.
    pub(crate) fn release(&self, fence: Fence, now_us: u64) -> Result<Change, Refused> {
        self.fenced(fence, now_us)?;
        Ok(Change { phase: Some(Phase::Idle), ..Change::default() })
    }

    /// PROTOCOL 6.4: explicit links; those there already stay as they are.
    pub(crate) fn link(&self, paths: &[(Arc<str>, Link)]) -> Change {
        let mut change = Change::default();
        for (path, fresh) in paths {
            let link = match self.links.get(path) {
                Some(known) if known.explicit => continue,
                Some(known) => Link { explicit: true, ..*known },
                None => Link { explicit: true, glob: self.matches(path), ..*fresh },
            };
            change.links.insert(path.clone(), Some(link));
        }
        change
    }

    /// PROTOCOL 6.1, 6.4: the explicit link goes, a glob link stays.
    pub(crate) fn unlink(&self, path: &str) -> Change {
        let mut change = Change::default();
        if let Some((path, link)) = self.links.get_key_value(path).filter(|(_, link)| link.explicit) {
            change.links.insert(path.clone(), link.glob.then_some(Link { explicit: false, ..*link }));
        }
        change
    }

    /// What becomes of the link to a stream that was seen as given, or is gone; `None`: there is none to it.
    /// PROTOCOL 6.2: a stream that appears is linked before its first append.
    pub(crate) fn observe(&self, path: &Arc<str>, seen: Option<StreamPosition>) -> Option<Link> {
        match (self.links.get(path), seen) {
            (Some(link), Some(seen)) if link.incarnation == seen.incarnation => Some(seen.update(*link)),
            (Some(link), Some(seen)) => Some(seen.linked_at_base(*link)),
            (None, Some(seen)) if self.matches(path) => {
                Some(seen.linked_at_base(Link { glob: true, ..Link::default() }))
            }
            (Some(link), None) if link.explicit => {
                Some(Link { tail: link.acked, tail_owner: link.acked_owner, ..*link })
            }
            (_, None) | (None, Some(_)) => None,
        }
    }

    fn held(&self, holder: &str, from_us: u64) -> Change {
        let until_us = from_us + self.config.lease_ttl_ms * 1_000;
        Change { phase: Some(Phase::Held { holder: holder.to_owned(), until_us }), ..Change::default() }
    }

    /// PROTOCOL 7.3: token, generation and wake are the present ones, and the wake is not over. Answers who
    /// holds the lease.
    fn fenced(&self, fence: Fence, now_us: u64) -> Result<String, Refused> {
        let present =
            fence.token == self.generation && fence.generation == self.generation && fence.same_wake;
        match &self.phase {
            Phase::Held { holder, until_us } if present && *until_us > now_us => Ok(holder.clone()),
            // A webhook may call back before its answer to the delivery arrived, or after that was lost.
            Phase::Waking { .. } if present && self.is_webhook() => Ok("webhook".to_owned()),
            _ => Err(Refused::Fenced),
        }
    }

    /// Moves a cursor forward, never back, in the incarnation it is in.
    fn advance(&self, change: &mut Change, path: &Arc<str>, incarnation: u64, offset: u64, owner: u64) {
        let Some(link) = self.links.get(path) else { return };
        let link = change.links.get(path).copied().flatten().unwrap_or(*link);
        if link.incarnation == incarnation && offset > link.acked {
            change.links.insert(path.clone(), Some(Link { acked: offset, acked_owner: owner, ..link }));
        }
    }
}

/// PROTOCOL 7.1: exponential from 1 second up to 60 seconds, with 20% jitter.
pub(crate) fn backoff_ms(attempts: u32, entropy: u64) -> u64 {
    let plain = (BACKOFF_MIN_MS << attempts.min(6)).min(BACKOFF_MAX_MS);
    plain - plain / 5 + entropy % (plain / 5 * 2 + 1)
}
