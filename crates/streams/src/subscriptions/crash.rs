//! The crash simulation of subscriptions and leases: the service and the driver over the real log on the
//! simulated disk, seeded, against an oracle.
//!
//! The oracle is what answers told, per subscription: that it is there, its explicit links, cursors,
//! generation and lease. What an answer told holds once the answer has left, or once a crash kept the commits
//! it waited for; every later answer must agree with it, before a crash and after. Beside that a journal has
//! each commit's subscription in order: what is reopened must be exactly where the journal stood at the end
//! of what the log kept. `THALWEG_SEEDS=5000` runs more seeds, `THALWEG_SEED_FIRST=5000` others, and
//! `THALWEG_SEED=n` one.

mod journal;

use self::journal::{Announce, Entry, Fault, Journaled};
use super::subscription::Link;
use super::{Driver, Subscriptions, encoding};
use crate::embedded::Embedded;
use crate::store::Store;
use crate::{Options, Streams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use thalweg_log as log;
use thalweg_log::Disk;
use thalweg_log::sim::{Random, SimDisk};
use thalweg_wire::exchange::{Answer, Method, Now, Request, Service};
use thalweg_wire::field::{Field, Name};
use thalweg_wire::token::Token;

const SPACE: u64 = 8 << 20;
const START_US: u64 = 1_767_225_600_000_000;
const LIVES: u64 = 5;

/// Who was told to hold a subscription until when.
#[derive(Clone, Debug)]
struct Lease {
    worker: String,
    token: String,
    generation: u64,
    wake_id: Value,
    streams: Value,
    until_us: u64,
}

/// What answers told of one subscription that is there.
#[derive(Clone, Debug, Default)]
struct Told {
    generation: u64,
    /// The latest lease; `ended` by its holder.
    lease: Option<Lease>,
    ended: bool,
    explicit: BTreeSet<String>,
    cursors: BTreeMap<String, Token>,
}

impl Told {
    fn holder(&self, now_us: u64) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| !self.ended && lease.until_us > now_us)
    }
}

/// One opening of the store.
struct Life {
    log: log::Store,
    store: Journaled,
    streams: Streams<Journaled>,
    shared: Arc<Subscriptions<Journaled>>,
    driver: Driver<Journaled>,
}

struct Reply {
    status: u16,
    body: Value,
    ticket: u64,
}

impl Reply {
    fn code(&self) -> (u16, &str) {
        (self.status, self.body["error"]["code"].as_str().unwrap_or_default())
    }
}

/// What was done in all, so that a simulation that does too little shows.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    crashes: u64,
    claims: u64,
    acks: u64,
    fenced: u64,
    lost: u64,
    survived: u64,
}

struct Simulation {
    random: Random,
    disk: SimDisk,
    fault: Fault,
    now: Now,
    /// What was told, answers that have not left included.
    staged: BTreeMap<String, Told>,
    /// What was told by answers that left, or survived.
    settled: BTreeMap<String, Told>,
    /// What became of a subscription, and the ticket after which that is told.
    waiting: Vec<(u64, String, Option<Told>)>,
    /// The latest ticket whose answer left.
    left: u64,
    journal: Arc<Mutex<Vec<Entry>>>,
    counts: Counts,
}

impl Simulation {
    fn new(seed: u64, fault: Fault) -> Simulation {
        Simulation {
            random: Random::new(seed ^ 0x5ca1e),
            disk: SimDisk::new(seed, SPACE),
            fault,
            now: Now { time_us: START_US, entropy: 0 },
            staged: BTreeMap::new(),
            settled: BTreeMap::new(),
            waiting: Vec::new(),
            left: 0,
            journal: Arc::default(),
            counts: Counts::default(),
        }
    }

    /// Opens the store, and compares what it kept with what was told.
    fn open(&mut self) -> Life {
        let options = log::Options {
            durability: log::Durability::Sync,
            segment_bytes_min: 8 << 10,
            segment_bytes_max: 32 << 10,
            committer_thread: false,
            ..log::Options::default()
        };
        let disk = Disk::Sim(self.disk.clone());
        let (log, recovered) = log::Store::open(&disk, Path::new("/store"), options).unwrap();
        assert_eq!(recovered.damage, [], "nothing was damaged");
        let kept = log.stats().staged_end;
        assert!(kept >= self.left, "an answer left before what it told was durable");
        self.counts.lost += self.waiting.iter().filter(|(ticket, ..)| *ticket > kept).count() as u64;
        self.settle(kept);
        self.waiting.clear();
        self.staged = self.settled.clone();
        self.journal.lock().retain(|(end, ..)| *end <= kept);

        let announce = Arc::new(Announce::default());
        let watcher = log.watcher(announce.clone());
        let view = |watcher| Journaled {
            inner: Embedded::new(log.clone(), watcher),
            journal: self.journal.clone(),
            fault: self.fault,
        };
        let store = view(None);
        let shared = Subscriptions::open(&store, || Some([5; 32]));
        announce.0.set(Arc::downgrade(&shared)).unwrap();
        let streams = Streams::new(store.clone(), Options::default()).with_subscriptions(shared.clone());
        self.compare_with_journal(&shared);
        let driver = Driver::new(view(watcher), shared.clone(), Options::default());
        let mut life = Life { log, store, streams, shared, driver };
        for wake in ["wake/0", "wake/1"] {
            self.call(&mut life, Method::Put, wake, "", &Value::Null);
        }
        if self.random.once_in(2) {
            self.turn(&mut life);
        }
        for id in 0..3 {
            let id = format!("s{id}");
            self.look(&mut life, &id);
            if self.staged.get(&id).is_some_and(|told| told.lease.is_some()) {
                self.counts.survived += 1;
                if self.random.once_in(2) {
                    self.claim(&mut life, &id, "another");
                }
                self.work(&mut life, &id, "ack", false);
                self.claim(&mut life, &id, "another");
            }
        }
        self.check_events(&mut life);
        life
    }

    /// What was found is, field by field, where the journal stood at the end of what was kept.
    fn compare_with_journal(&self, shared: &Subscriptions<Journaled>) {
        let mut expected = BTreeMap::new();
        for (_, id, state) in &*self.journal.lock() {
            expected.insert(id.clone(), state.clone());
        }
        expected.retain(|_, state| state.is_some());
        let mut found = BTreeMap::new();
        for slot in shared.slots() {
            let held = slot.held.lock();
            found.insert(slot.id.to_string(), held.as_ref().map(|held| held.subscription.clone()));
        }
        assert_eq!(found, expected, "what was reopened is no prefix of what was staged");
    }

    /// Everything told up to a ticket holds.
    fn settle(&mut self, up_to: u64) {
        for (_, id, told) in self.waiting.extract_if(.., |(ticket, ..)| *ticket <= up_to) {
            match told {
                Some(told) => self.settled.insert(id, told),
                None => self.settled.remove(&id),
            };
        }
    }

    /// Lets the answers leave that may.
    fn leave(&mut self, log: &log::Store) {
        let durable = log.durable();
        let leaving = self.waiting.iter().map(|(ticket, ..)| *ticket).filter(|ticket| *ticket <= durable);
        self.left = leaving.max().unwrap_or(0).max(self.left);
        self.settle(durable);
    }

    /// An answer told what now is staged of a subscription.
    fn told(&mut self, id: &str, ticket: u64) {
        self.waiting.push((ticket, id.to_owned(), self.staged.get(id).cloned()));
    }

    fn call(&mut self, life: &mut Life, method: Method, target: &str, token: &str, body: &Value) -> Reply {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let bearer = format!("Bearer {token}");
        let fields =
            [(Name::Host, "h:1"), (Name::ContentType, "application/json"), (Name::Authorization, &bearer)];
        let fields = fields.map(|(name, value)| Field { name, value: value.as_bytes() });
        let (path, query) = (format!("/v1/stream/{target}"), None);
        let body = text.as_bytes();
        let request = Request { method, path: &path, query, fields: &fields, body, secure: false };
        self.now.time_us += 1_000;
        self.now.entropy = self.random.word();
        let (ticket, response) = loop {
            match life.streams.call(&request, self.now) {
                Answer::Respond(response) => break (0, response),
                Answer::After(ticket, response) => break (ticket, response),
                Answer::Cold(work) => work.0(),
                other => panic!("{target}: {other:?}"),
            }
        };
        assert!(response.status < 500, "{method:?} {target}: {}", response.status);
        let body = serde_json::from_slice(&response.body.concat()).unwrap_or(Value::Null);
        Reply { status: response.status, body, ticket }
    }

    fn turn(&mut self, life: &mut Life) {
        self.now.time_us += 1_000;
        self.now.entropy = self.random.word();
        assert!(life.driver.turn(self.now).is_empty(), "no webhooks here");
    }

    /// PROTOCOL 6.3: what GET tells is what was told before, or further on.
    fn look(&mut self, life: &mut Life, id: &str) {
        let path = format!("__ds/subscriptions/{id}");
        let reply = self.call(life, Method::Get, &path, "", &Value::Null);
        let Some(mut told) = self.staged.get(id).cloned() else {
            assert_eq!(reply.status, 404, "{id} is not there");
            return;
        };
        assert_eq!(reply.status, 200, "{id} is there");
        let (mut explicit, mut cursors) = (BTreeSet::new(), BTreeMap::new());
        for link in reply.body["streams"].as_array().unwrap() {
            let path = link["path"].as_str().unwrap().to_owned();
            if link["link_type"] == "explicit" {
                explicit.insert(path.clone());
            }
            let cursor = Token::parse(link["acked_offset"].as_str().unwrap().as_bytes());
            // A cursor in a stream that is being deleted is about to go.
            let stream = life.store.find(path.as_bytes()).filter(|stream| stream.staged().is_some());
            if let Some(cursor) = cursor.filter(|c| stream.is_some_and(|s| s.id() == c.incarnation)) {
                cursors.insert(path, cursor);
            }
        }
        assert_eq!(explicit, told.explicit, "{id}: explicit links");
        // Links at the beginning are made anew by the driver's first turn.
        for (path, known) in told.cursors.iter().filter(|(_, cursor)| cursor.offset > 0) {
            let there = cursors.get(path).filter(|cursor| cursor.incarnation == known.incarnation);
            let there = there.unwrap_or_else(|| panic!("{id}: the cursor in {path} is gone"));
            assert!(there.offset >= known.offset, "{id}: the cursor in {path} moved back");
        }
        told.cursors = cursors;
        self.staged.insert(id.to_owned(), told);
        self.told(id, reply.ticket);
        if self.fault == Fault::None {
            self.check_memory(life, id);
        }
    }

    /// A subscription changes in memory exactly when its notes were committed.
    fn check_memory(&self, life: &Life, id: &str) {
        let slot = life.shared.slot(id).unwrap();
        let held = slot.held.lock();
        let held = held.as_ref().unwrap();
        let mut hard = held.subscription.clone();
        let kept = hard.links.iter().filter(|(_, link)| link.explicit || link.acked > link.base);
        let unseen = |link: &Link| Link { base: 0, tail: link.acked, tail_owner: link.acked_owner, ..*link };
        hard.links = kept.map(|(path, link)| (path.clone(), unseen(link))).collect();
        let kept = encoding::decode(id, &life.store.notes(&held.log)).expect("it is understood");
        assert_eq!(kept.map(|kept| kept.subscription), Some(hard));
    }

    /// PROTOCOL 7.2: no event tells of a wake that a crash took back.
    fn check_events(&mut self, life: &mut Life) {
        for wake in ["wake/0", "wake/1"] {
            let reply = self.call(life, Method::Get, wake, "", &Value::Null);
            for event in reply.body.as_array().into_iter().flatten() {
                let Some(slot) = life.shared.slot(event["subscription_id"].as_str().unwrap()) else {
                    continue;
                };
                let held = slot.held.lock();
                let subscription = &held.as_ref().unwrap().subscription;
                let ours = event["ts"].as_u64().unwrap() >= subscription.created_us / 1_000;
                let generation = event["generation"].as_u64().unwrap();
                assert!(!ours || generation <= subscription.generation, "{event} was taken back");
            }
        }
    }

    fn subscribe(&mut self, life: &mut Life, id: &str) {
        let wake_stream = format!("wake/{}", self.random.below(2));
        let lease_ttl_ms = 1_000 + self.random.below(3) * 1_000;
        let mut body =
            json!({ "type": "pull-wake", "wake_stream": wake_stream, "lease_ttl_ms": lease_ttl_ms });
        let mut told = Told::default();
        if !self.random.once_in(4) {
            body["pattern"] = json!("events/*");
        }
        if body["pattern"].is_null() || self.random.once_in(3) {
            told.explicit.insert("events/0".to_owned());
            body["streams"] = json!(["events/0"]);
        }
        let reply = self.call(life, Method::Put, &format!("__ds/subscriptions/{id}"), "", &body);
        if self.staged.contains_key(id) {
            assert!(matches!(reply.status, 200 | 409), "{id} is there: {}", reply.status);
            return;
        }
        assert_eq!(reply.status, 201, "{id} is not there");
        self.staged.insert(id.to_owned(), told);
        self.told(id, reply.ticket);
    }

    fn unsubscribe(&mut self, life: &mut Life, id: &str) {
        let reply = self.call(life, Method::Delete, &format!("__ds/subscriptions/{id}"), "", &Value::Null);
        if self.staged.remove(id).is_none() {
            assert_eq!(reply.status, 404);
            return;
        }
        assert_eq!(reply.status, 204);
        self.told(id, reply.ticket);
    }

    fn relink(&mut self, life: &mut Life, id: &str, path: &str, links: bool) {
        let Some(mut told) = self.staged.get(id).cloned() else { return };
        let base = format!("__ds/subscriptions/{id}/streams");
        let reply = if links {
            told.explicit.insert(path.to_owned());
            self.call(life, Method::Post, &base, "", &json!({ "streams": [path] }))
        } else {
            told.explicit.remove(path);
            // The link may go with it.
            told.cursors.remove(path);
            self.call(life, Method::Delete, &format!("{base}/{path}"), "", &Value::Null)
        };
        assert_eq!(reply.status, 204);
        self.staged.insert(id.to_owned(), told);
        self.told(id, reply.ticket);
    }

    /// PROTOCOL 7.2: who holds the lease fences others, and each wake is claimed in a later generation.
    fn claim(&mut self, life: &mut Life, id: &str, worker: &str) {
        let path = format!("__ds/subscriptions/{id}/claim");
        let reply = self.call(life, Method::Post, &path, "", &json!({ "worker": worker }));
        let Some(mut told) = self.staged.get(id).cloned() else {
            assert_eq!(reply.status, 404);
            return;
        };
        if let Some(lease) = told.holder(self.now.time_us) {
            assert_eq!(reply.code(), (409, "ALREADY_CLAIMED"), "{id} is held: {lease:?}");
            assert_eq!(reply.body["error"]["current_holder"], json!(lease.worker));
            assert_eq!(reply.body["error"]["generation"], json!(lease.generation));
            self.counts.fenced += 1;
            return;
        }
        if reply.status != 200 {
            assert_eq!(reply.code(), (409, "NO_PENDING_WORK"), "{id} is free");
            return;
        }
        let generation = reply.body["generation"].as_u64().unwrap();
        assert!(generation > told.generation, "{id}: generation {generation} after {}", told.generation);
        told.generation = generation;
        told.ended = false;
        told.lease = Some(Lease {
            worker: worker.to_owned(),
            token: reply.body["token"].as_str().unwrap().to_owned(),
            generation,
            wake_id: reply.body["wake_id"].clone(),
            streams: reply.body["streams"].clone(),
            until_us: self.now.time_us + reply.body["lease_ttl_ms"].as_u64().unwrap() * 1_000,
        });
        self.counts.claims += 1;
        self.staged.insert(id.to_owned(), told);
        self.told(id, reply.ticket);
    }

    /// PROTOCOL 7.2, 7.3: an ack or a release by the latest holder, who may be late.
    fn work(&mut self, life: &mut Life, id: &str, verb: &str, done: bool) {
        let Some(mut told) = self.staged.get(id).cloned() else { return };
        let Some(mut lease) = told.lease.clone() else { return };
        let mut body = json!({ "wake_id": lease.wake_id, "generation": lease.generation });
        let streams = lease.streams.as_array().unwrap();
        let streams = streams.iter().filter(|stream| stream["has_pending"] == true);
        if verb == "ack" && !self.random.once_in(3) {
            let acks = streams.map(|s| json!({ "stream": s["path"], "offset": s["tail_offset"] }));
            body["acks"] = json!(acks.collect::<Vec<_>>());
        }
        if verb == "ack" {
            body["done"] = json!(done);
        }
        let path = format!("__ds/subscriptions/{id}/{verb}");
        let reply = self.call(life, Method::Post, &path, &lease.token, &body);
        if told.holder(self.now.time_us).is_none() {
            assert_eq!(reply.code(), (409, "FENCED"), "{id}: {lease:?} is over");
            self.counts.fenced += 1;
            return;
        }
        assert!(matches!(reply.status, 200 | 204), "{id}: {verb} by the holder: {:?}", reply.code());
        if verb == "release" || done {
            told.ended = true;
        } else {
            lease.until_us = self.now.time_us + self.lease_us(life, id);
            told.lease = Some(lease);
        }
        for ack in body["acks"].as_array().into_iter().flatten() {
            let path = ack["stream"].as_str().unwrap();
            let acked = Token::parse(ack["offset"].as_str().unwrap().as_bytes()).unwrap();
            // Acks move nothing where the link went, or is in another incarnation by now.
            if let Some(cursor) = told.cursors.get_mut(path).filter(|c| c.incarnation == acked.incarnation) {
                cursor.offset = cursor.offset.max(acked.offset);
            }
        }
        self.counts.acks += 1;
        self.staged.insert(id.to_owned(), told);
        self.told(id, reply.ticket);
        self.look(life, id);
    }

    fn lease_us(&self, life: &Life, id: &str) -> u64 {
        let slot = life.shared.slot(id).unwrap();
        let held = slot.held.lock();
        held.as_ref().unwrap().subscription.config.lease_ttl_ms * 1_000
    }

    fn delete(&mut self, life: &mut Life, path: &str) {
        let reply = self.call(life, Method::Delete, path, "", &Value::Null);
        if reply.status != 204 {
            return;
        }
        let ids: Vec<String> = self.staged.keys().cloned().collect();
        for id in ids {
            if let Some(told) = self.staged.get_mut(&id) {
                told.cursors.remove(path);
            }
            self.told(&id, reply.ticket);
        }
    }

    /// Once nothing is under way, a subscription with a pattern links exactly what matches.
    fn check_quiet(&mut self, life: &mut Life) {
        for _ in 0..4 {
            life.log.flush().unwrap();
            self.leave(&life.log);
            self.turn(life);
        }
        for slot in life.shared.slots() {
            let held = slot.held.lock();
            let subscription = &held.as_ref().unwrap().subscription;
            let mut expected = self.staged[&*slot.id].explicit.clone();
            life.store.visit(&mut |name, stream| {
                let name = String::from_utf8_lossy(name);
                if stream.visible().is_some() && subscription.matches(&name) {
                    expected.insert(name.into_owned());
                }
            });
            let linked: BTreeSet<String> = subscription.links.keys().map(ToString::to_string).collect();
            assert_eq!(linked, expected, "{}: links", slot.id);
        }
    }

    fn step(&mut self, life: &mut Life) {
        let id = format!("s{}", self.random.below(3));
        let stream = format!("events/{}", self.random.below(3));
        match self.random.below(40) {
            0..=2 => drop(self.call(life, Method::Put, &stream, "", &Value::Null)),
            3..=9 => drop(self.call(life, Method::Post, &stream, "", &json!({ "event": "x".repeat(200) }))),
            10 => self.delete(life, &stream),
            11..=12 => self.subscribe(life, &id),
            13 if self.random.once_in(3) => self.unsubscribe(life, &id),
            13 => self.relink(life, &id, &stream, true),
            14 => self.relink(life, &id, &stream, false),
            15..=19 => {
                let worker = format!("w{}", self.random.below(3));
                self.claim(life, &id, &worker);
            }
            20..=22 => self.work(life, &id, "ack", false),
            23..=24 => self.work(life, &id, "ack", true),
            25 => self.work(life, &id, "release", false),
            26..=30 => self.turn(life),
            31 => self.now.time_us += self.random.below(1_500_000),
            32 => {
                let due_us = life.driver.next_due_us().unwrap_or(0);
                self.now.time_us = self.now.time_us.max(due_us);
            }
            33..=35 => life.log.flush().unwrap(),
            36 => self.disk.write_back(),
            37 => life.log.checkpoint().unwrap(),
            38 => self.check_quiet(life),
            _ => self.look(life, &id),
        }
        self.leave(&life.log);
    }

    fn live(&mut self) {
        let mut life = self.open();
        for _ in 0..20 + self.random.below(80) {
            self.step(&mut life);
        }
        if self.random.once_in(4) {
            return;
        }
        self.disk = self.disk.crash();
        self.counts.crashes += 1;
    }
}

fn run(seed: u64, fault: Fault) -> Counts {
    let mut simulation = Simulation::new(seed, fault);
    for _ in 0..LIVES {
        simulation.live();
    }
    let mut life = simulation.open();
    simulation.check_quiet(&mut life);
    simulation.counts
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn what_was_told_survives_and_leases_fence_across_crashes() {
    if let Some(seed) = environment("THALWEG_SEED") {
        run(seed, Fault::None);
        return;
    }
    let seeds = environment("THALWEG_SEEDS").unwrap_or(100);
    let first = environment("THALWEG_SEED_FIRST").unwrap_or(0);
    let mut all = Counts::default();
    for seed in first..first + seeds {
        let counts = catch_unwind(AssertUnwindSafe(|| run(seed, Fault::None)));
        let counts = counts.unwrap_or_else(|_| panic!("seed {seed} failed: THALWEG_SEED={seed} repeats it"));
        all.crashes += counts.crashes;
        all.claims += counts.claims;
        all.acks += counts.acks;
        all.fenced += counts.fenced;
        all.lost += counts.lost;
        all.survived += counts.survived;
    }
    println!("subscriptions: {seeds} seeds from {first} clean, {all:?}");
    let least = [all.crashes, all.claims, all.acks, all.fenced, all.lost, all.survived];
    assert!(least.iter().all(|count| *count >= seeds), "the simulation did too little: {all:?}");
}

/// Seeds out of some that a store with a fault passes.
fn passing(fault: Fault, seeds: u64) -> usize {
    let passes = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed, fault))).is_ok();
    (0..seeds).filter(passes).count()
}

#[test]
fn changes_that_are_not_kept_are_caught() {
    assert!(passing(Fault::Forget, 40) < 10);
}

#[test]
fn answers_that_leave_early_are_caught() {
    assert!(passing(Fault::Early, 40) < 25);
}

#[test]
fn changes_that_are_kept_in_parts_are_caught() {
    // A crash has to come between two parts: about seven in a thousand seeds see to that.
    assert!(passing(Fault::Torn, 2_000) <= 2_000 - 3);
}
