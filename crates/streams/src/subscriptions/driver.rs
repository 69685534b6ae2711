//! What notices pending work and due times, and hands wakes over: one value per store, on one thread.
//!
//! Sans-io: it is told what moved ([`Subscriptions`]' inbox), asked once per turn, and answers with the calls
//! to make. The caller that makes them says when one begins, and is then told what to send
//! ([`Driver::begin`]), and reports back with [`Driver::finished`]. It watches linked streams through the
//! store as a reactor watches followed ones, so it hears of them only once they are durable, and once per
//! burst. Pull-wake events it appends itself.
//!
//! What the store does not take (a full disk) is tried again a few seconds later.

use super::keys::Use;
use super::routes::told;
use super::subscription::{BACK_US_MIN, Change, Delivery, Link, Outcome, Phase, StreamPosition};
use super::target::Target;
use super::{Slot, SubscriptionEntry, Subscriptions, see};
use crate::store::{Store, StoreError};
use crate::{Options, Streams};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use thalweg_queue::Deadlines;
use thalweg_wire::exchange::Now;

/// Until something the store refused is tried again.
const AGAIN_US: u64 = 5_000_000;
/// Longest time that a webhook's answer is waited for.
const ANSWER_MS_MAX: u64 = 30_000;

/// A webhook to be called. What it is told is made by [`Driver::begin`] when the call is.
#[derive(Debug)]
pub struct WebhookCall {
    /// Where.
    pub target: Target,
    /// The body; empty before that.
    pub body: Vec<u8>,
    /// The value of `Webhook-Signature`; empty before that.
    pub signature: String,
    /// How long to wait for the answer, milliseconds.
    pub timeout_ms: u64,
    id: Arc<str>,
    incarnation: u64,
    generation: u64,
    begun_us: u64,
    snapshot: Vec<(Arc<str>, Link)>,
}

impl WebhookCall {
    /// The subscription's identifier.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Drives all subscriptions of a store.
pub struct Driver<S: Store> {
    store: S,
    /// The rules over it.
    streams: Streams<S>,
    shared: Arc<Subscriptions<S>>,
    /// The subscriptions that link a stream, by its name.
    followers: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The incarnation of each subscription that `followers` reflects.
    synced: HashMap<Arc<str>, u64>,
    /// When to look at a subscription again.
    timers: Deadlines<Arc<str>>,
    /// Subscriptions whose wake is not durable yet.
    parked: BTreeSet<Arc<str>>,
    /// Webhooks under way: incarnation and generation of each subscription's latest.
    in_flight: HashMap<Arc<str>, (u64, u64)>,
    /// Streams whose links the store refused to keep, and when to look again.
    again: Deadlines<Arc<str>>,
    /// The time of the last turn.
    turned_us: u64,
}

impl<S: Store> Driver<S> {
    /// Drives `shared` over the same store, seen by a watcher of the driver's own, by the rules of the
    /// service.
    pub fn new(store: S, shared: Arc<Subscriptions<S>>, options: Options) -> Self {
        // PROTOCOL 6.2: what appeared since a subscription was last at work is linked at its beginning.
        let mut names: Vec<Arc<str>> = Vec::new();
        let slots = shared.slots();
        if !slots.is_empty() {
            store.visit(&mut |name, _| {
                if let Ok(name) = std::str::from_utf8(name)
                    && !name.starts_with('\0')
                    && slots.iter().any(|slot| slot.pattern.as_ref().is_some_and(|p| p.matches(name)))
                {
                    names.push(name.into());
                }
            });
        }
        shared.tell(|inbox| inbox.doubtful.append(&mut names));
        Self {
            streams: Streams::new(store.clone(), options),
            store,
            shared,
            followers: HashMap::new(),
            synced: HashMap::new(),
            timers: Deadlines::default(),
            parked: BTreeSet::new(),
            in_flight: HashMap::new(),
            again: Deadlines::default(),
            turned_us: 0,
        }
    }

    /// The subscriptions whose wakes the rules do not let out, and why. None is created so, but one may have
    /// been kept from when the rules were others: its wakes fail, and it can still be claimed from, changed
    /// and deleted.
    pub fn barred(&self) -> Vec<(Arc<str>, &'static str)> {
        let slots = self.shared.slots();
        let barred = slots.iter().filter_map(|slot| {
            let held = slot.held.lock();
            let why = match &held.as_ref()?.subscription.config.delivery {
                Delivery::Webhook { url } => Target::parse(url, self.streams.options.allows_loopback()).err(),
                Delivery::PullWake { wake_stream } => {
                    let why = "a service of the server writes its wake stream";
                    self.streams.options.is_read_only(wake_stream).then_some(why)
                }
            };
            why.map(|why| (slot.id.clone(), why))
        });
        barred.collect()
    }

    /// When there is something to do though nothing happens, microseconds since the epoch.
    pub fn next_due_us(&self) -> Option<u64> {
        self.timers.next().into_iter().chain(self.again.next()).min()
    }

    /// Takes up what happened and what is due. Answers the webhooks to call now.
    pub fn turn(&mut self, now: Now) -> Vec<WebhookCall> {
        let inbox = self.shared.inbox.lock().take();
        let mut look: BTreeSet<Arc<str>> = inbox.touched;
        for id in &look.clone() {
            self.sync(id, now);
        }
        // By a clock that went back, what is due soon may lie far ahead: everything is looked at once.
        let went_back = now.time_us + BACK_US_MIN < self.turned_us;
        let due_us = if went_back { u64::MAX } else { now.time_us };
        self.turned_us = now.time_us;
        let refused = std::iter::from_fn(|| self.again.due(due_us)).map(|(path, ())| path);
        let refused: Vec<Arc<str>> = refused.collect();
        for path in inbox.doubtful.into_iter().chain(refused) {
            self.again.clear(&path);
            look.append(&mut self.relinked(&path, now));
        }
        for incarnation in inbox.moved {
            look.append(&mut self.moved(incarnation, now));
        }
        if inbox.settled {
            look.append(&mut self.parked);
        }
        self.shared.inbox.lock().in_hand.clear();
        while let Some((id, ())) = self.timers.due(due_us) {
            look.insert(id);
        }
        look.iter().filter_map(|id| self.advance(id, now)).collect()
    }

    /// A call begins, which it may have waited for. `false`: its wake is over, and it is
    /// not to be made.
    pub fn begin(&mut self, call: &mut WebhookCall, now: Now) -> bool {
        let begun = self.request(call, now).is_some();
        if !begun {
            self.landed(call);
        }
        begun
    }

    /// A call ended. Answers the next one, if there is one to make at once.
    pub fn finished(&mut self, call: &WebhookCall, outcome: Outcome, now: Now) -> Option<WebhookCall> {
        self.landed(call);
        let slot = self.shared.slot(&call.id)?;
        {
            let mut held = slot.held.lock();
            // PROTOCOL 6.3: deleted meanwhile, or even created anew: nothing advances.
            let held = held.as_mut().filter(|held| held.incarnation == call.incarnation)?;
            let change = held.subscription.delivered(
                call.generation,
                outcome,
                &call.snapshot,
                call.begun_us,
                now.time_us,
                now.entropy,
            );
            if let Some(change) = change
                && self.shared.keep(&self.store, held, change, now.time_us).is_err()
            {
                self.timers.set(call.id.clone(), now.time_us + AGAIN_US);
                return None;
            }
        }
        self.advance(&call.id, now)
    }

    fn landed(&mut self, call: &WebhookCall) {
        let mark = (call.incarnation, call.generation);
        if self.in_flight.get(&call.id) == Some(&mark) {
            self.in_flight.remove(&call.id);
        }
    }

    /// Follows the streams that a subscription links by now.
    fn sync(&mut self, id: &Arc<str>, now: Now) {
        let Some(slot) = self.shared.slot(id) else { return self.forget(id) };
        let (incarnation, is_another, paths): (_, _, Vec<Arc<str>>) = {
            let held = slot.held.lock();
            let Some(held) = held.as_ref() else { return self.forget(id) };
            let is_another = self.synced.get(id).is_some_and(|synced| *synced != held.incarnation);
            // Of another one the last turn may have looked at some streams already, which are forgotten here.
            let paths = match is_another {
                true => held.subscription.links.keys().cloned().collect(),
                false => held.unseen.iter().cloned().collect(),
            };
            (held.incarnation, is_another, paths)
        };
        // Deleted and created anew: what the one before followed is not followed by this one.
        if is_another {
            self.forget(id);
        }
        self.synced.insert(id.clone(), incarnation);
        for path in paths {
            if self.followers.entry(path.clone()).or_default().insert(id.clone()) {
                self.look(&path, std::slice::from_ref(&slot), now);
            }
        }
    }

    /// A subscription is gone.
    fn forget(&mut self, id: &Arc<str>) {
        self.timers.clear(id);
        self.parked.remove(id);
        self.synced.remove(id);
        self.followers.values_mut().for_each(|ids| {
            ids.remove(id);
        });
        self.followers.retain(|_, ids| !ids.is_empty());
        let unwanted: Vec<_> = {
            let mut watched = self.shared.watched.lock();
            watched.extract_if(|_, (path, _)| !self.followers.contains_key(path)).collect()
        };
        unwanted.iter().for_each(|(_, (_, stream))| self.store.unwatch(stream));
    }

    /// A stream of that name was created, or a subscription no longer links it: the subscriptions that match
    /// it link it, and no other follows it.
    fn relinked(&mut self, path: &Arc<str>, now: Now) -> BTreeSet<Arc<str>> {
        let slots = self.shared.slots();
        self.look(path, &slots, now)
    }

    fn moved(&mut self, incarnation: u64, now: Now) -> BTreeSet<Arc<str>> {
        let watched = self.shared.watched.lock().get(&incarnation).cloned();
        let Some((path, stream)) = watched else { return BTreeSet::new() };
        // Before looking: what moves afterwards is announced again.
        self.store.acknowledge(&stream);
        if self.store.staged(&stream).is_none() && self.store.visible(&stream).is_none() {
            self.store.unwatch(&stream);
            self.shared.watched.lock().remove(&incarnation);
        }
        let ids = self.followers.get(&path).cloned().unwrap_or_default();
        let slots: Vec<_> = ids.iter().filter_map(|id| self.shared.slot(id)).collect();
        self.look(&path, &slots, now)
    }

    /// Sees where a stream stands, and lets each of `slots` know. Answers those that link it.
    fn look(&mut self, path: &Arc<str>, slots: &[Arc<Slot<S>>], now: Now) -> BTreeSet<Arc<str>> {
        let found = self.store.find(path.as_bytes());
        let mut seen = None;
        if let Some(stream) = &found {
            let incarnation = self.store.incarnation(stream);
            let fresh = !self.shared.watched.lock().contains_key(&incarnation);
            let there = self.store.staged(stream).is_some() || self.store.visible(stream).is_some();
            if fresh && there {
                // Before looking at it, for the same reason as above; a delete under way is to be heard of
                // too.
                self.store.watch(stream);
                self.shared.watched.lock().insert(incarnation, (path.clone(), stream.clone()));
            }
            seen = see(&self.store, stream);
            if seen.is_none() && self.store.staged(stream).is_some() {
                // Created and not durable yet: that will be announced, to the subscriptions that link it
                // then.
                self.announce_later(path, slots);
                return BTreeSet::new();
            }
        }
        let mut linking = BTreeSet::new();
        for slot in slots {
            let mut held = slot.held.lock();
            let Some(held) = held.as_mut() else { continue };
            let links = self.observe(held, path, seen, now);
            if links.is_ok() {
                held.unseen.remove(path);
            }
            match links {
                Ok(true) => {
                    self.followers.entry(path.clone()).or_default().insert(slot.id.clone());
                    linking.insert(slot.id.clone());
                }
                Ok(false) => {
                    if let Some(ids) = self.followers.get_mut(path) {
                        ids.remove(&slot.id);
                    }
                }
                Err(_) => {
                    self.again.set(path.clone(), now.time_us + AGAIN_US);
                }
            }
        }
        if self.followers.get(path).is_none_or(BTreeSet::is_empty) {
            self.followers.remove(path);
            if let Some(stream) = &found {
                let watched = self.shared.watched.lock().remove(&self.store.incarnation(stream));
                if watched.is_some() {
                    self.store.unwatch(stream);
                }
            }
        }
        linking
    }

    /// Has those who match a stream that is not visible yet hear of it when it is.
    fn announce_later(&mut self, path: &Arc<str>, slots: &[Arc<Slot<S>>]) {
        let followers = self.followers.entry(path.clone()).or_default();
        followers.extend(slots.iter().map(|slot| slot.id.clone()));
    }

    /// Whether the subscription links the stream, which was seen as given, from now on.
    fn observe(
        &self,
        held: &mut SubscriptionEntry<S>,
        path: &Arc<str>,
        seen: Option<StreamPosition>,
        now: Now,
    ) -> Result<bool, StoreError> {
        let after = held.subscription.observe(path, seen);
        let before = held.subscription.links.get(path).copied();
        // Where a stream stands is soft: no commit for it alone.
        let hard = |link: Option<Link>| link.map(|link| Link { base: 0, tail: 0, tail_owner: 0, ..link });
        if hard(before) == hard(after) {
            if let Some(after) = after {
                held.subscription.links.insert(path.clone(), after);
            }
            return Ok(after.is_some());
        }
        let change = Change { links: BTreeMap::from([(path.clone(), after)]), ..Change::default() };
        self.shared.keep(&self.store, held, change, now.time_us)?;
        Ok(after.is_some())
    }

    /// Brings one subscription as far as it can go now.
    fn advance(&mut self, id: &Arc<str>, now: Now) -> Option<WebhookCall> {
        self.timers.clear(id);
        self.parked.remove(id);
        let slot = self.shared.slot(id)?;
        let mut held = slot.held.lock();
        let held = held.as_mut()?;
        let is_woken = held.subscription.phase == Phase::Woken;
        let event_due_us = if is_woken { held.event_due_us(now.time_us) } else { u64::MAX };
        // PROTOCOL 7.3: a lease that is over, then PROTOCOL 7: a wake for what is pending; or the one that
        // no worker claimed.
        for _ in 0..2 {
            let (subscription, now_us) = (&held.subscription, now.time_us);
            let change = subscription.rewound(now_us).or_else(|| subscription.expire(now_us));
            let change = change.or_else(|| subscription.wake(now_us));
            let Some(change) = change.or_else(|| subscription.unclaimed(event_due_us, now_us)) else {
                break;
            };
            if self.shared.keep(&self.store, held, change, now.time_us).is_err() {
                self.timers.set(id.clone(), now.time_us + AGAIN_US);
                return None;
            }
        }
        match held.subscription.phase {
            Phase::Idle => None,
            Phase::Woken => {
                if event_due_us > now.time_us {
                    self.timers.set(id.clone(), event_due_us);
                }
                None
            }
            Phase::Held { until_us, .. } => {
                self.timers.set(id.clone(), until_us);
                None
            }
            Phase::Waking { next_attempt_us, .. } => {
                let mark = (held.incarnation, held.subscription.generation);
                if self.in_flight.get(id) == Some(&mark) {
                    return None;
                }
                if next_attempt_us > now.time_us {
                    self.timers.set(id.clone(), next_attempt_us);
                    return None;
                }
                // A wake that a crash could take back is not handed over.
                if self.store.ticket(&held.log) != Ok(0) {
                    self.parked.insert(id.clone());
                    return None;
                }
                self.hand_over(held, now)
            }
        }
    }

    fn hand_over(&mut self, held: &mut SubscriptionEntry<S>, now: Now) -> Option<WebhookCall> {
        let outcome = match held.subscription.config.delivery.clone() {
            Delivery::Webhook { url } => match self.call(held, &url, now) {
                Some(call) => {
                    let mark = (call.incarnation, call.generation);
                    self.in_flight.insert(call.id.clone(), mark);
                    return Some(call);
                }
                None => Outcome::Failed,
            },
            Delivery::PullWake { wake_stream } => match self.append_event(held, &wake_stream, now) {
                true => Outcome::Accepted,
                false => Outcome::Failed,
            },
        };
        let id = held.subscription.id.clone();
        let generation = held.subscription.generation;
        let change =
            held.subscription.delivered(generation, outcome, &[], now.time_us, now.time_us, now.entropy)?;
        let kept = self.shared.keep(&self.store, held, change, now.time_us).is_ok();
        match held.subscription.phase {
            Phase::Waking { next_attempt_us, .. } if kept => self.timers.set(id.clone(), next_attempt_us),
            Phase::Woken if kept => self.timers.set(id.clone(), held.event_written(now.time_us)),
            _ if !kept => self.timers.set(id.clone(), now.time_us + AGAIN_US),
            _ => {}
        }
        None
    }

    fn call(&self, held: &SubscriptionEntry<S>, url: &str, now: Now) -> Option<WebhookCall> {
        let subscription = &held.subscription;
        // Without them nothing could be said in it; they stay once they are known.
        self.shared.keys(&self.store, now.time_us).ok()?;
        Some(WebhookCall {
            target: Target::parse(url, self.streams.options.allows_loopback()).ok()?,
            body: Vec::new(),
            signature: String::new(),
            timeout_ms: subscription.config.lease_ttl_ms.min(ANSWER_MS_MAX),
            id: subscription.id.clone(),
            incarnation: held.incarnation,
            generation: subscription.generation,
            begun_us: now.time_us,
            snapshot: subscription.snapshot(held.told.as_deref()),
        })
    }

    /// PROTOCOL 7.1: the request that tells a webhook, as things stand now. `None`: its wake is over.
    fn request(&self, call: &mut WebhookCall, now: Now) -> Option<()> {
        let slot = self.shared.slot(&call.id)?;
        let mut held = slot.held.lock();
        let held = held.as_mut().filter(|held| held.incarnation == call.incarnation)?;
        let (subscription, generation) = (&held.subscription, call.generation);
        if subscription.generation != generation || !matches!(subscription.phase, Phase::Waking { .. }) {
            return None;
        }
        let (keys, _) = self.shared.keys(&self.store, now.time_us).ok()?;
        // Links that a crash could take back are not told.
        if self.store.ticket(&held.log) == Ok(0) {
            call.snapshot = held.tell();
        }
        let subscription = &held.subscription;
        let (id, path) = (&call.id, thalweg_wire::path::encode(&call.id));
        let body = json!({
            "subscription_id": id,
            "wake_id": keys.wake_id(call.incarnation, generation),
            "generation": generation,
            "streams": told(&call.snapshot),
            "callback_url": format!("{}/v1/stream/__ds/subscriptions/{path}/callback", subscription.origin),
            "callback_token": keys.token(id, call.incarnation, generation, Use::Callback, now.time_us),
        });
        call.body = body.to_string().into_bytes();
        call.signature = keys.sign(now.time_us / 1_000_000, &call.body);
        call.begun_us = now.time_us;
        Some(())
    }

    /// PROTOCOL 7.2: the event, an ordinary append. Whether the wake stream took it.
    fn append_event(&self, held: &SubscriptionEntry<S>, wake_stream: &str, now: Now) -> bool {
        let subscription = &held.subscription;
        let event = json!({
            "type": "wake",
            "subscription_id": subscription.id,
            "stream": subscription.links.pending().first(),
            "generation": subscription.generation,
            "ts": now.time_us / 1_000,
        });
        self.streams.append_record(wake_stream, event.to_string().as_bytes(), "application/json", now)
    }
}
