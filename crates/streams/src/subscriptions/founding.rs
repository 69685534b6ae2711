//! How a subscription comes to be (PROTOCOL 6.2): it is linked with what exists, kept, and only then found by
//! requests.
//!
//! A pattern is compared with the name of every stream there is. Where there are many, that is work for a
//! thread that is no reactor: the PUT waits for it and asks again. Another PUT of the same subscription
//! meanwhile waits for the same work; once begun it is done to its end, whether or not a client still
//! waits. Where no thread takes it, the founding is off as soon as no other thread has it to do: the PUT
//! was refused, and what it asked for is not there for the next.
//!
//! Invariants:
//! - Every founding is about to be carried out by a thread, or is done, or came to nothing; of the last, few
//!   are remembered.
//! - Until it is founded a subscription is not there for any request; afterwards the first PUT that asks
//!   again is told that it was created, every other that it exists.
//! - A stream is not missed: one that is created from the beginning of the founding on, or is not durable
//!   when it is come by, is told to the driver once the subscription is there.
//! - Locks: a founding's step is the outermost; the streams it is yet to tell of come behind the index.
//!
//! Checked by `tests/founding.rs`, at once and elsewhere, and by `crash.rs`.

use super::links::Links;
use super::pattern::Pattern;
use super::refusal::Refusal;
use super::routes::{described, listed};
use super::subscription::{Change, Config, Link, Phase, Subscription};
use super::{
    COMMIT_BYTES_MAX, Keys, Slot, SubscriptionEntry, Subscriptions, commit, discard, encoding, explicit,
    log_config, request, see,
};
use crate::Streams;
use crate::store::{Commit, Store};
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_wire::exchange::{Now, Request, Response, Work};

/// Streams whose names are compared at once with a pattern of one word, in about a millisecond; with a
/// longer one, as many fewer as it has [words](Pattern::words).
const AT_ONCE_MAX: u64 = 4_096;
/// Beyond this many foundings, those are forgotten that failed and that no client has asked for again. A
/// client that does begins anew.
const REMEMBERED_MAX: usize = 64;

/// What became of a request that may take long.
pub(super) enum Served {
    /// The ticket after which the answer may leave, and the answer.
    Answered(u64, Response),
    /// Once this is done on a thread that may take long, the request is to be asked again.
    Elsewhere(Work),
}

/// A subscription that is being made.
pub(super) struct Founding {
    id: Arc<str>,
    pattern: Option<Pattern>,
    step: Mutex<Step>,
    /// How many have it to do elsewhere.
    tasks: Mutex<usize>,
    /// Streams for the driver to look at once the subscription is there; `None` once it will not be.
    doubtful: Mutex<Option<Vec<Arc<str>>>>,
}

enum Step {
    /// What was asked for, by the first who asked, and when.
    Asked(Box<(Config, String, Now)>),
    /// It is done: the subscription is there.
    Done,
    /// It failed. The next request is told so, and the one after it begins anew.
    Refused(Refusal),
    /// No thread took it. The next request begins anew.
    Off,
}

/// A founding that a thread has to carry out: once none has it to do any more, and none did it, it is off.
struct Task<S: Store> {
    shared: Arc<Subscriptions<S>>,
    founding: Arc<Founding>,
}

impl<S: Store> Drop for Task<S> {
    fn drop(&mut self) {
        self.shared.let_go(&self.founding);
    }
}

/// What there is of an identifier that is asked for.
enum Present<S: Store> {
    Slot(Arc<Slot<S>>),
    Founding(Arc<Founding>),
}

impl Founding {
    /// Whether a new stream is one of those that may be missed.
    pub(super) fn concerns(&self, name: &str) -> bool {
        self.pattern.as_ref().is_some_and(|pattern| pattern.matches(name))
    }

    /// Has the driver told of a stream, once there is a subscription to link it.
    pub(super) fn doubt(&self, name: &str) {
        if let Some(doubtful) = &mut *self.doubtful.lock() {
            doubtful.push(name.into());
        }
    }

    /// How many streams the driver would be told of.
    #[cfg(test)]
    pub(super) fn doubts(&self) -> usize {
        self.doubtful.lock().as_ref().map_or(0, Vec::len)
    }

    /// It came to nothing, and no thread has anything to do for it any more.
    fn is_over(&self) -> bool {
        self.step.try_lock().is_some_and(|step| matches!(*step, Step::Refused(_) | Step::Off))
    }
}

impl<S: Store> Subscriptions<S> {
    /// What is there under an identifier: if nothing is, a founding that was begun right now.
    fn present(&self, id: &str, asked: impl FnOnce() -> (Config, String, Now)) -> Present<S> {
        let mut index = self.index.write();
        if let Some(slot) = index.slots.get(id) {
            return Present::Slot(slot.clone());
        }
        if let Some(founding) = index.foundings.get(id) {
            return Present::Founding(founding.clone());
        }
        if index.foundings.len() >= REMEMBERED_MAX {
            index.foundings.retain(|_, founding| !founding.is_over());
        }
        let asked = Box::new(asked());
        let founding = Arc::new(Founding {
            id: id.into(),
            pattern: asked.0.pattern.clone(),
            step: Mutex::new(Step::Asked(asked)),
            tasks: Mutex::new(0),
            doubtful: Mutex::new(Some(Vec::new())),
        });
        index.foundings.insert(founding.id.clone(), founding.clone());
        Present::Founding(founding)
    }

    /// Lets everybody find what was founded.
    fn founded(&self, founding: &Founding, held: SubscriptionEntry<S>) {
        let named: Vec<Arc<str>> = explicit(&held.subscription).cloned().collect();
        let (id, pattern) = (founding.id.clone(), founding.pattern.clone());
        let slot = Arc::new(Slot { id: id.clone(), pattern, held: Mutex::new(Some(held)) });
        let mut doubtful = {
            let mut index = self.index.write();
            index.foundings.remove(&id);
            index.slots.insert(id.clone(), slot);
            founding.doubtful.lock().take().unwrap_or_default()
        };
        self.count_named(&named, &[]);
        self.tell(|inbox| {
            inbox.doubtful.append(&mut doubtful);
            inbox.touched.insert(id);
        });
    }

    /// What a founding came to that failed, told once.
    fn refused(&self, founding: &Arc<Founding>) -> Option<Refusal> {
        // While it is under way its thread holds this, and it has not failed.
        let step = founding.step.try_lock()?;
        let Step::Refused(refusal) = &*step else { return None };
        self.forget(founding).then(|| refusal.clone())
    }

    /// Whether it was there to be forgotten.
    fn forget(&self, founding: &Arc<Founding>) -> bool {
        let mut index = self.index.write();
        let is_present =
            index.foundings.get(&founding.id).is_some_and(|present| Arc::ptr_eq(present, founding));
        if is_present {
            index.foundings.remove(&founding.id);
        }
        is_present
    }

    /// Has a founding carried out on another thread.
    fn task(self: &Arc<Self>, founding: Arc<Founding>) -> Task<S> {
        *founding.tasks.lock() += 1;
        Task { shared: self.clone(), founding }
    }

    /// One of those who had a founding to carry out has it no more.
    fn let_go(&self, founding: &Arc<Founding>) {
        let mut tasks = founding.tasks.lock();
        *tasks -= 1;
        if *tasks > 0 {
            return;
        }
        drop(tasks);
        // Who carries it out at this moment holds this.
        let Some(mut step) = founding.step.try_lock() else { return };
        if matches!(*step, Step::Asked(_)) {
            *step = Step::Off;
            self.forget(founding);
        }
    }
}

impl<S: Store> Streams<S> {
    /// PROTOCOL 6.2: 201 for a new subscription, 200 for one that is as asked, 409 for one that is not.
    pub(super) fn subscribe(
        &self,
        shared: &Arc<Subscriptions<S>>,
        id: &str,
        request: &Request<'_>,
        now: Now,
    ) -> Result<Served, Refusal> {
        let config = request::config(request, &self.options)?;
        let origin = request::origin(request);
        let keys = self.keys(shared, now)?;
        loop {
            let founding = match shared.present(id, || (config.clone(), origin.clone(), now)) {
                Present::Founding(founding) => founding,
                Present::Slot(slot) => {
                    return self.reconfirm(shared, &slot, &config, origin, &keys, now);
                }
            };
            if let Some(refusal) = shared.refused(&founding) {
                return Err(refusal);
            }
            let words = founding.pattern.as_ref().map_or(0, Pattern::words) as u64;
            if self.store.streams().saturating_mul(words) > AT_ONCE_MAX {
                let apart = Streams { store: self.store.apart(), ..self.clone() };
                let task = shared.task(founding);
                let work = move || apart.complete(&task.shared, &task.founding);
                return Ok(Served::Elsewhere(Work(Box::new(work))));
            }
            self.complete(shared, &founding);
        }
    }

    /// Founds a subscription, or waits until another thread has.
    fn complete(&self, shared: &Subscriptions<S>, founding: &Founding) {
        let mut step = founding.step.lock();
        // Should this thread not come to the end of it, that is what is known.
        let lost =
            Refusal::new(500, "OUTCOME_UNKNOWN", "path", "founding the subscription failed; try again");
        let asked = match std::mem::replace(&mut *step, Step::Refused(lost)) {
            Step::Asked(asked) => asked,
            done => return *step = done,
        };
        let (config, origin, now) = *asked;
        *step = match self.establish(founding, config, origin, now) {
            Ok(held) => {
                shared.founded(founding, held);
                Step::Done
            }
            Err(refusal) => {
                founding.doubtful.lock().take();
                Step::Refused(refusal)
            }
        };
    }

    /// Links what exists at its present end, and keeps it all.
    fn establish(
        &self,
        founding: &Founding,
        config: Config,
        origin: String,
        now: Now,
    ) -> Result<SubscriptionEntry<S>, Refusal> {
        if self.is_full() {
            return Err(Refusal::too_many());
        }
        let mut subscription = Subscription {
            id: founding.id.clone(),
            config,
            origin,
            created_us: now.time_us,
            generation: 0,
            phase: Phase::Idle,
            links: Links::default(),
        };
        // PROTOCOL 6.2: existing streams that match are linked at their current tail.
        let mut matching = Vec::new();
        if subscription.config.pattern.is_some() {
            self.store.visit(&mut |name, stream| {
                if let Ok(name) = std::str::from_utf8(name)
                    && !name.starts_with('\0')
                    && subscription.matches(name)
                {
                    matching.push((Arc::<str>::from(name), stream.clone()));
                }
            });
        }
        for (path, stream) in matching {
            match see(&self.store, &stream) {
                Some(seen) => {
                    subscription.links.insert(path, Link { glob: true, ..seen.linked_at_end() });
                }
                // Created before the founding was to be told of it, and not durable yet: linked when it is.
                None if self.store.staged(&stream).is_some() => founding.doubt(&path),
                None => {}
            }
        }
        let named: Vec<_> =
            subscription.config.streams.iter().map(|path| (path.clone(), self.fresh(path))).collect();
        let change = subscription.link(&named);
        subscription.apply(change);
        let log = self.write_whole(&subscription, now)?;
        let incarnation = self.store.incarnation(&log);
        Ok(SubscriptionEntry { untold: true, ..SubscriptionEntry::new(subscription, log, incarnation) })
    }

    fn write_whole(&self, subscription: &Subscription, now: Now) -> Result<S::Stream, Refusal> {
        let commits = encoding::whole(subscription, COMMIT_BYTES_MAX);
        let mut written: Option<S::Stream> = None;
        for notes in &commits {
            let result = match &written {
                Some(log) => commit(&self.store, log, notes, now.time_us).map(|_| log.clone()),
                None => {
                    let notes: Vec<(&[u8], &[u8])> = notes.iter().map(|(k, v)| (&k[..], &v[..])).collect();
                    let first = Commit { notes: &notes, time_us: now.time_us, ..Commit::default() };
                    let name = encoding::log_name(&subscription.id);
                    self.store.create(&name, &log_config(), None, &first).map(|(log, _)| log)
                }
            };
            match (result, &written) {
                (Ok(log), _) => written = Some(log),
                (Err(error), begun) => {
                    if let Some(log) = begun {
                        discard(&self.store, log);
                    }
                    return Err(Refusal::from(&error));
                }
            }
        }
        written.ok_or_else(Refusal::missing)
    }

    /// Answers by a subscription that is there.
    fn reconfirm(
        &self,
        shared: &Arc<Subscriptions<S>>,
        slot: &Arc<Slot<S>>,
        config: &Config,
        origin: String,
        keys: &Keys,
        now: Now,
    ) -> Result<Served, Refusal> {
        let mut held = slot.held.lock();
        // Deleted a moment ago: the next attempt finds the name free.
        let Some(held) = held.as_mut() else {
            let refusal = Refusal::new(503, "BUSY", "path", "the subscription is being deleted; try again");
            return Err(self.refused_once_gone(&slot.id, refusal));
        };
        if encoding::config_hash(config) != encoding::config_hash(&held.subscription.config) {
            let detail = "the subscription exists with another configuration; delete it first";
            let refusal = Refusal::new(409, "SUBSCRIPTION_EXISTS", "body", detail);
            return Err(self.refused_once_settled(&held.log, refusal));
        }
        let Some(links) = shared.encode(held) else { return Ok(Served::Elsewhere(listed(shared, slot))) };
        let mut change = Change::default();
        if origin != held.subscription.origin {
            change.origin = Some(origin);
        }
        let ticket = self.keep(shared, held, change, now)?;
        let status = if std::mem::take(&mut held.untold) { 201 } else { 200 };
        Ok(Served::Answered(ticket, described(status, &held.subscription, links, keys)))
    }
}
