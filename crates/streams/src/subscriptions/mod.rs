//! Subscriptions under `__ds` (PROTOCOL 6, 7): durable cursors that wake workers, by webhook or pull-wake.
//!
//! `subscription.rs` has the rules as functions of a value, `links.rs` the streams it follows, and
//! `pattern.rs` says which those may be; `request.rs`, `refusal.rs` and `routes.rs` speak HTTP; `founding.rs`
//! is how a subscription comes to be; `listing.rs` is what a description lists; `encoding.rs` keeps the value
//! as notes of a log of its own; `keys.rs` signs; `target.rs` says where a webhook may go; `driver.rs`
//! notices what is pending and due. [`Subscriptions`] is what all reactors and the one driver share: each
//! subscription behind a lock of its own.
//!
//! Invariants:
//! - A subscription changes in memory exactly when its notes were committed, under its lock; so the log's
//!   order of commits is the order of changes, and a refused or failed change leaves nothing behind.
//! - An append costs nothing more: the driver watches linked streams as a reactor watches followed ones. A
//!   create costs one look at an index, and a comparison of its name with the pattern of each subscription.
//! - A wake is handed over only when both what is pending and the wake itself are durable.
//! - Locks: a subscription's or its founding's, then the index, the inbox, the watched streams or what is
//!   kept of descriptions (and then a description's), behind which the store is not called; never another way
//!   round, and never two subscriptions' or two descriptions'.
//!
//! *Checked by* `tests` (rules against a plain model, the service and the driver over the model store), by
//! `crash.rs` (crashes over the real log on a simulated disk), and by the official conformance suite.

#[cfg(test)]
mod crash;
mod driver;
mod encoding;
mod founding;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod keys;
mod links;
mod listing;
mod pattern;
mod refusal;
mod request;
mod routes;
mod subscription;
pub mod target;
#[cfg(test)]
mod tests;

pub use driver::{Driver, WebhookCall};
pub(crate) use routes::methods;
pub use subscription::Outcome;

use crate::store::{Commit, Config, Lifetime, Store, StoreError};
use bytes::Bytes;
use encoding::{Foreign, StoredSubscription};
use founding::Founding;
use keys::Keys;
use listing::{Kept, Listing};
use parking_lot::{Mutex, RwLock};
use pattern::Pattern;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{Arc, OnceLock};
use subscription::{Change, Link, StreamPosition, Subscription};

/// Bytes of notes in one commit.
const COMMIT_BYTES_MAX: usize = 64 << 10;
/// Streams that a claim looks at, of those that the driver has not looked at yet or not since they moved.
const LOOKS_MAX: usize = 1_024;

/// Wakes the driver. Called on any thread, under any lock of the store: it must not block or call back.
pub type Waker = Box<dyn Fn() + Send + Sync>;
/// Thirty-two unpredictable bytes; `None` if the system has none to give.
pub type Secret = fn() -> Option<[u8; 32]>;

/// Streams by their incarnations, with their paths.
type Watched<S> = HashMap<u64, (Arc<str>, <S as Store>::Stream)>;

/// All subscriptions of a store, shared by its reactors and its driver.
pub struct Subscriptions<S: Store> {
    index: RwLock<Index<S>>,
    inbox: Mutex<Inbox>,
    /// Streams whose movements are announced to the driver, by incarnation. The driver's; others look.
    watched: Mutex<Watched<S>>,
    /// What is kept encoded of all descriptions.
    listed: Mutex<Kept>,
    waker: OnceLock<Waker>,
    keys: Mutex<Option<(Arc<Keys>, S::Stream)>>,
    secret: Secret,
}

/// Which subscriptions there are, and which of them a new stream may concern.
struct Index<S: Store> {
    slots: HashMap<Arc<str>, Arc<Slot<S>>>,
    /// Those that are not there yet.
    foundings: HashMap<Arc<str>, Arc<Founding>>,
    /// Streams linked by name, with how many subscriptions do.
    named: HashMap<Arc<str>, usize>,
    /// Those that the store keeps and this program does not understand.
    foreign: BTreeSet<Arc<str>>,
}

/// A subscription's place. Empty once it is deleted.
struct Slot<S: Store> {
    id: Arc<str>,
    pattern: Option<Pattern>,
    held: Mutex<Option<SubscriptionEntry<S>>>,
}

/// A subscription and the log that keeps it.
struct SubscriptionEntry<S: Store> {
    subscription: Subscription,
    log: S::Stream,
    incarnation: u64,
    /// Of the links, those to streams that the driver has not looked at since they came; at a start, all.
    unseen: BTreeSet<Arc<str>>,
    /// No client was answered that it was created.
    untold: bool,
    /// The streams that were named at creation have notes of their own.
    named: bool,
    /// Behind which stream the next wake begins to tell of some. Soft, as what follows: a start begins anew.
    told: Option<Arc<str>>,
    /// Behind which stream the next claim looks, where there are more than one looks at.
    looked: Option<Arc<str>>,
    /// The latest event of a pull-wake.
    event: Option<Event>,
    /// What was encoded of the links to describe it.
    listing: Arc<Mutex<Listing>>,
}

/// An event in a wake stream, and how long a claim is waited for.
struct Event {
    generation: u64,
    waits_ms: u64,
    due_us: u64,
}

impl<S: Store> SubscriptionEntry<S> {
    fn new(subscription: Subscription, log: S::Stream, incarnation: u64) -> SubscriptionEntry<S> {
        SubscriptionEntry {
            unseen: subscription.links.keys().cloned().collect(),
            subscription,
            log,
            incarnation,
            untold: false,
            named: true,
            told: None,
            looked: None,
            event: None,
            listing: Arc::default(),
        }
    }

    /// What a wake tells of; the next one goes on behind it.
    fn tell(&mut self) -> Vec<(Arc<str>, Link)> {
        let snapshot = self.subscription.snapshot(self.told.as_deref());
        self.told = Subscription::told_last(&snapshot);
        snapshot
    }

    /// When the event of the present wake is due to be written again, which is there, if it was not known
    /// before, since now.
    fn event_due_us(&mut self, now_us: u64) -> u64 {
        let present = self.subscription.generation;
        match &mut self.event {
            Some(event) if event.generation == present => {
                // Further ahead than that it lies only because the clock went back.
                event.due_us = event.due_us.min(now_us + event.waits_ms * 1_000);
                event.due_us
            }
            _ => self.event_written(now_us),
        }
    }

    /// The event of the present wake was written, once more if it was before. When that is due again.
    fn event_written(&mut self, now_us: u64) -> u64 {
        let generation = self.subscription.generation;
        let before = self.event.as_ref().filter(|event| event.generation == generation);
        let waits_ms = self.subscription.claim_ms(before.map(|event| event.waits_ms));
        let due_us = now_us + waits_ms * 1_000;
        self.event = Some(Event { generation, waits_ms, due_us });
        due_us
    }
}

/// What the driver has not looked at yet.
#[derive(Default)]
struct Inbox {
    /// Streams that others may link than before: that were created and may match, or are not linked any more.
    doubtful: Vec<Arc<str>>,
    /// Incarnations of watched streams that moved.
    moved: Vec<u64>,
    /// Those of them that the driver took and may not have looked at yet.
    in_hand: Vec<u64>,
    /// Subscriptions that a request changed.
    touched: BTreeSet<Arc<str>>,
    /// Something became durable.
    settled: bool,
    woken: bool,
}

impl Inbox {
    /// What there is for the driver, which has it in hand from now on.
    fn take(&mut self) -> Inbox {
        let in_hand = self.moved.clone();
        std::mem::replace(self, Inbox { in_hand, ..Inbox::default() })
    }
}

impl<S: Store> Subscriptions<S> {
    /// The subscriptions that `store` keeps. What was never finished is deleted; what is not understood stays
    /// as it is, and can only be deleted by a request for that ([`Subscriptions::foreign`]).
    pub fn open(store: &S, secret: Secret) -> Arc<Self> {
        let mut found = Vec::new();
        store.visit(&mut |name, stream| {
            if let Some(id) = encoding::id_of(name) {
                found.push((id.to_owned(), stream.clone()));
            }
        });
        let this = Self {
            index: RwLock::new(Index {
                slots: HashMap::new(),
                foundings: HashMap::new(),
                named: HashMap::new(),
                foreign: BTreeSet::new(),
            }),
            inbox: Mutex::default(),
            watched: Mutex::default(),
            listed: Mutex::default(),
            waker: OnceLock::new(),
            keys: Mutex::new(None),
            secret,
        };
        for (id, log) in found {
            match encoding::decode(&id, &store.notes(&log)) {
                Ok(Some(kept)) => this.adopt(store, kept, log),
                Ok(None) => discard(store, &log),
                Err(Foreign) => drop(this.index.write().foreign.insert(id.into())),
            }
        }
        Arc::new(this)
    }

    /// The identifiers of what the store keeps of subscriptions and this program does not understand: a later
    /// version wrote it, or it is damaged. They wake no worker.
    pub fn foreign(&self) -> Vec<Arc<str>> {
        self.index.read().foreign.iter().cloned().collect()
    }

    fn is_foreign(&self, id: &str) -> bool {
        self.index.read().foreign.contains(id)
    }

    fn adopt(&self, store: &S, kept: StoredSubscription, log: S::Stream) {
        let StoredSubscription { subscription, named: are_named } = kept;
        let (id, pattern) = (subscription.id.clone(), subscription.config.pattern.clone());
        let named: Vec<Arc<str>> = explicit(&subscription).cloned().collect();
        let incarnation = store.incarnation(&log);
        let held =
            SubscriptionEntry { named: are_named, ..SubscriptionEntry::new(subscription, log, incarnation) };
        let slot = Slot { id: id.clone(), pattern, held: Mutex::new(Some(held)) };
        self.index.write().slots.insert(id.clone(), Arc::new(slot));
        self.count_named(&named, &[]);
        self.inbox.lock().touched.insert(id);
    }

    /// Has the driver woken from now on.
    pub fn set_waker(&self, waker: Waker) {
        // Set once, by the thread that runs the one driver.
        let _ = self.waker.set(waker);
    }

    /// A stream was created, by these rules or by others over the same store.
    pub fn created(&self, name: &str) {
        let index = self.index.read();
        let concerns = !index.slots.is_empty()
            && (index.named.contains_key(name)
                || index.slots.values().any(|slot| slot.pattern.as_ref().is_some_and(|p| p.matches(name))));
        index.foundings.values().filter(|f| f.concerns(name)).for_each(|founding| founding.doubt(name));
        drop(index);
        if concerns {
            self.tell(|inbox| inbox.doubtful.push(name.into()));
        }
    }

    /// A stream that the driver watches moved: more bytes, closed or deleted.
    pub fn moved(&self, incarnation: u64) {
        self.tell(|inbox| inbox.moved.push(incarnation));
    }

    /// A request took a link to a stream away.
    fn unlinked(&self, path: &str) {
        self.tell(|inbox| inbox.doubtful.push(path.into()));
    }

    /// Commits that the driver waits for became durable.
    pub fn settled(&self) {
        self.tell(|inbox| inbox.settled = true);
    }

    /// A request changed a subscription.
    fn touched(&self, id: &Arc<str>) {
        self.tell(|inbox| {
            inbox.touched.insert(id.clone());
        });
    }

    fn tell(&self, put: impl FnOnce(&mut Inbox)) {
        let mut inbox = self.inbox.lock();
        put(&mut inbox);
        if !std::mem::replace(&mut inbox.woken, true) {
            drop(inbox);
            if let Some(wake) = self.waker.get() {
                wake();
            }
        }
    }

    /// Encodes the links of a subscription that are many, on a thread that may take long. Whoever else needs
    /// the subscription does not wait for all of them, and links that change all the time do not keep the
    /// thread.
    fn list(&self, slot: &Slot<S>) {
        let asked =
            slot.held.lock().as_ref().map(|held| (held.subscription.links.len(), held.listing.clone()));
        let Some((links, listing)) = asked else { return };
        listing.lock().at_work += 1;
        let is_done = |_| slot.held.lock().as_ref().is_none_or(|held| self.encode(held).is_some());
        let _ = (0..Listing::rounds_max(links)).any(is_done);
        listing.lock().at_work -= 1;
        self.listed.lock().keep(&listing);
    }

    /// The links as a description lists them, in texts that commas are to join; `None` if encoding them takes
    /// long, and then some are.
    fn encode(&self, held: &SubscriptionEntry<S>) -> Option<Vec<Bytes>> {
        let texts = held.listing.lock().encode(&held.subscription.links);
        self.listed.lock().keep(&held.listing);
        texts
    }

    /// Of the streams that a subscription links, those that may go further than the driver has told: it did
    /// not look at them yet, or not since they moved. Of very many, some, and the next time those behind.
    fn unseen(&self, held: &mut SubscriptionEntry<S>) -> Vec<Arc<str>> {
        let moved: Vec<u64> = {
            let inbox = self.inbox.lock();
            inbox.in_hand.iter().chain(&inbox.moved).copied().collect()
        };
        let moved: BTreeSet<Arc<str>> = {
            let watched = self.watched.lock();
            let paths = moved.iter().filter_map(|incarnation| watched.get(incarnation)).map(|(path, _)| path);
            paths.filter(|path| held.subscription.links.contains_key(*path)).cloned().collect()
        };
        let behind = held.looked.take().unwrap_or_default();
        let mut looks = Vec::new();
        for part in [(Excluded(&*behind), Unbounded), (Unbounded, Included(&*behind))] {
            let some = |paths: &BTreeSet<Arc<str>>| -> BTreeSet<Arc<str>> {
                paths.range::<str, _>(part).take(LOOKS_MAX).cloned().collect()
            };
            let both = some(&held.unseen).into_iter().chain(some(&moved)).collect::<BTreeSet<_>>();
            looks.extend(both.into_iter().take(LOOKS_MAX - looks.len()));
        }
        held.looked = looks.get(LOOKS_MAX - 1).cloned();
        looks
    }

    fn slot(&self, id: &str) -> Option<Arc<Slot<S>>> {
        self.index.read().slots.get(id).cloned()
    }

    fn slots(&self) -> Vec<Arc<Slot<S>>> {
        self.index.read().slots.values().cloned().collect()
    }

    /// Takes a slot out, if it is still the one of its id.
    fn remove(&self, slot: &Arc<Slot<S>>) {
        let mut index = self.index.write();
        if index.slots.get(&slot.id).is_some_and(|present| Arc::ptr_eq(present, slot)) {
            index.slots.remove(&slot.id);
        }
    }

    fn count_named(&self, more: &[Arc<str>], fewer: &[Arc<str>]) {
        if more.is_empty() && fewer.is_empty() {
            return;
        }
        let mut index = self.index.write();
        for path in more {
            *index.named.entry(path.clone()).or_default() += 1;
        }
        for path in fewer {
            if let Some(count) = index.named.get_mut(path) {
                *count -= 1;
                if *count == 0 {
                    index.named.remove(path);
                }
            }
        }
    }

    /// Commits a change, then makes it. Answers the ticket after which it is durable.
    ///
    /// # Errors
    /// The store did not take it; nothing changed.
    fn keep(
        &self,
        store: &S,
        held: &mut SubscriptionEntry<S>,
        change: Change,
        time_us: u64,
    ) -> Result<u64, StoreError> {
        if change.moves_head() && !held.named {
            for notes in encoding::named(&held.subscription, COMMIT_BYTES_MAX) {
                commit(store, &held.log, &notes, time_us)?;
            }
            held.named = true;
        }
        let notes = encoding::notes(&held.subscription, &change);
        let ticket = commit(store, &held.log, &notes, time_us)?;
        let is_named = |path: &Arc<str>| held.subscription.links.get(path).is_some_and(|link| link.explicit);
        let becomes = |path: &Arc<str>| change.links[path].is_some_and(|link| link.explicit);
        let more: Vec<_> = change.links.keys().filter(|p| !is_named(p) && becomes(p)).cloned().collect();
        let fewer: Vec<_> = change.links.keys().filter(|p| is_named(p) && !becomes(p)).cloned().collect();
        let mut listing = held.listing.lock();
        for (path, link) in &change.links {
            listing.forget(path);
            if link.is_none() {
                held.unseen.remove(path);
            } else if !held.subscription.links.contains_key(path) {
                held.unseen.insert(path.clone());
            }
        }
        drop(listing);
        held.subscription.apply(change);
        self.count_named(&more, &fewer);
        Ok(ticket)
    }

    /// The server's keys, made and kept if there are none yet, and the log that keeps them.
    ///
    /// # Errors
    /// The store did not take them, or there is no randomness to be had.
    fn keys(&self, store: &S, time_us: u64) -> Result<(Arc<Keys>, S::Stream), StoreError> {
        let mut known = self.keys.lock();
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let unusable = || StoreError::Poisoned("the server's secret cannot be made or read".to_owned());
        let log = match store.find(encoding::SECRET_LOG) {
            Some(log) => log,
            None => {
                let secret = (self.secret)().ok_or_else(unusable)?;
                let notes: [(&[u8], &[u8]); 1] = [(encoding::SECRET_KEY, &secret)];
                let first = Commit { notes: &notes, time_us, ..Commit::default() };
                store.create(encoding::SECRET_LOG, &log_config(), None, &first)?.0
            }
        };
        let notes = store.notes(&log);
        let secret = notes.iter().find(|(key, _)| **key == *encoding::SECRET_KEY);
        let secret: Option<&[u8; 32]> = secret.and_then(|(_, value)| (&**value).try_into().ok());
        let keys = Arc::new(secret.and_then(Keys::of).ok_or_else(unusable)?);
        *known = Some((keys.clone(), log.clone()));
        Ok((keys, log))
    }
}

/// Where a stream visibly stands; `None` if nothing of it is visible.
fn see<S: Store>(store: &S, stream: &S::Stream) -> Option<StreamPosition> {
    let state = store.visible(stream)?;
    let (base_owner, tail_owner) = (store.owner(stream, state.base), store.owner(stream, state.tail));
    let incarnation = store.incarnation(stream);
    Some(StreamPosition { incarnation, base: state.base, base_owner, tail: state.tail, tail_owner })
}

/// What logs of subscriptions are created with.
fn log_config() -> Config {
    Config { content_type: "application/octet-stream".into(), lifetime: Lifetime::Unlimited }
}

fn explicit(subscription: &Subscription) -> impl Iterator<Item = &Arc<str>> {
    subscription.links.iter().filter(|(_, link)| link.explicit).map(|(path, _)| path)
}

/// Commits notes to a log that only the caller writes to. Answers the ticket, 0 when there is nothing to
/// note.
fn commit<S: Store>(
    store: &S,
    log: &S::Stream,
    notes: &encoding::Notes,
    time_us: u64,
) -> Result<u64, StoreError> {
    if notes.is_empty() {
        return store.ticket(log);
    }
    let notes: Vec<(&[u8], &[u8])> = notes.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    let version = store.staged(log).ok_or(StoreError::Gone)?.version;
    let commit = Commit { notes: &notes, time_us, ..Commit::default() };
    store.commit(log, version, &commit).map(|receipt| receipt.ticket)
}

/// Deletes the log of a subscription that never became whole. Should that fail, the next start tries again.
fn discard<S: Store>(store: &S, log: &S::Stream) {
    if let Some(state) = store.staged(log) {
        let _ = store.delete(log, state.version, 0);
    }
}
