//! Subscriptions' outgoing side: one thread that drives them and calls webhooks.
//!
//! The thread is a reactor of its own: pending work, leases and retries reach it as messages and timers, and
//! every call in flight is a non-blocking socket with a deadline. [`CALLS_MAX`] are in flight at once and the
//! others wait; so that a webhook that is slow, or hangs, holds back only itself, `fairness.rs` says whose
//! turn it is. What cannot be done without blocking, asking a resolver and reading the system's certificates,
//! is done by a thread for each name that is looked up: how many there are, and how long one is waited for,
//! `names.rs` says.
//!
//! PROTOCOL 12.8: a call connects only to addresses that were resolved for it and passed
//! [`Target::permits`]; the name is not resolved again, so it cannot lead elsewhere in between.

mod certificates;
mod fairness;
mod names;
#[cfg(test)]
mod tests;

use self::certificates::Certificates;
use self::fairness::{CALLS_MAX, Calls, Peer};
use self::names::Names;
use crate::engine::Engine;
use crate::start::ServerError;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use thalweg_http::RateLimitedWarning;
use thalweg_http::client::{Exchange, Progress, Reply, Trust, post};
use thalweg_reactor::{Config, Core, Handle, Handler, Interest, Key, Reactor, Readiness};
use thalweg_streams::embedded::Embedded;
use thalweg_streams::subscriptions::target::Target;
use thalweg_streams::subscriptions::{Driver, Outcome, Subscriptions, WebhookCall};
use thalweg_sys::socket;
use thalweg_wire::exchange::Now;

/// Longest time that a name's addresses are waited for.
const LOOK_UP_MS_MAX: u64 = 10_000;
const MAILBOX_MAX: usize = 4_096;
const STACK_BYTES: usize = 512 * 1024;
/// Of a thread that looks a name up.
const LOOK_UP_STACK_BYTES: usize = 256 * 1024;
/// Longest time without a look at what is due: wall clocks are set, timers are not.
const LOOK_MS_MAX: u64 = 60_000;

/// What other threads tell.
pub(crate) enum Message {
    /// Something waits in the subscriptions' inbox.
    Wake,
    /// A name was looked up.
    Resolved(Arc<str>, io::Result<Resolved>),
    /// The system's certificates may have changed.
    Reload,
}

/// A name's addresses, and the authorities that a call over TLS trusts.
pub(crate) struct Resolved {
    addresses: Vec<IpAddr>,
    /// The system's certificates and when reading them began, where those read before counted no longer.
    trust: Option<(u64, Trust)>,
}

/// Finds a name's addresses. May block.
type Ask = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Reads the system's certificates. Waits for the disk.
type ReadTrust = dyn Fn() -> io::Result<Trust> + Send + Sync;

/// How names become addresses, and where trust comes from.
#[derive(Clone)]
struct Resolver {
    ask: Arc<Ask>,
    /// For how long that is waited for.
    wait_ms_max: u64,
    read_trust: Arc<ReadTrust>,
}

/// A webhook being called.
struct Call {
    webhook: WebhookCall,
    peer: Peer,
    trust: Option<Trust>,
    /// Addresses left to try.
    addresses: VecDeque<SocketAddr>,
    exchange: Exchange,
    connected: bool,
    deadline_ms: u64,
}

impl Call {
    /// Milliseconds until its deadline, as a timer takes them.
    fn left_ms(&self, now_ms: u64) -> u32 {
        u32::try_from(self.deadline_ms.saturating_sub(now_ms)).unwrap_or(u32::MAX).max(1)
    }
}

/// The driver and its calls.
struct Webhooks {
    driver: Driver<Embedded>,
    /// Carries the timer of what is due next.
    control: Key,
    resolver: Resolver,
    names: Names<WebhookCall>,
    /// Read when a name is looked up.
    trust: Certificates<Trust>,
    /// Each with where it may go.
    calls: Calls<(WebhookCall, VecDeque<SocketAddr>)>,
    /// Calls that failed or were refused: as many as subscriptions ask for, for as long as they are there.
    failures: RateLimitedWarning,
    /// There is something to take up.
    wake_pending: bool,
}

/// The thread that drives subscriptions.
pub(crate) struct WebhookThread {
    handle: Handle<Message>,
    thread: JoinHandle<()>,
}

impl WebhookThread {
    /// Starts it.
    ///
    /// # Errors
    /// The system gives no thread or no descriptors, or the store has too many watchers.
    pub(crate) fn start(engine: &Engine) -> Result<WebhookThread, ServerError> {
        Self::start_with(engine, Resolver::of_system())
    }

    fn start_with(engine: &Engine, resolver: Resolver) -> Result<WebhookThread, ServerError> {
        let (sender, receiver) = channel();
        let engine = engine.clone();
        let run = move || {
            let config = Config {
                entries_max: u32::try_from(CALLS_MAX).unwrap_or(u32::MAX) + 8,
                mailbox_max: MAILBOX_MAX,
                spin: false,
                ..Config::default()
            };
            let outcome = Reactor::new(config, |core| Webhooks::new(core, &engine, resolver)).and_then(
                |mut reactor: Reactor<Webhooks>| {
                    // The thread that started this one waits for the handle.
                    let _ = sender.send(Ok(reactor.handle()));
                    reactor.run()
                },
            );
            if let Err(error) = outcome {
                tracing::error!(%error, "subscriptions are no longer driven");
                let _ = sender.send(Err(error));
            }
        };
        let builder = std::thread::Builder::new().name("subscriptions".into()).stack_size(STACK_BYTES);
        let thread = builder.spawn(run).map_err(ServerError::no_thread)?;
        let handle = receiver.recv().map_err(|_| ServerError::ThreadEnded)?;
        let handle = handle.map_err(|error: io::Error| ServerError::System("drive subscriptions", error))?;
        Ok(WebhookThread { handle, thread })
    }

    /// Has it read the system's certificates again before the next call over TLS.
    pub(crate) fn reload(&self) {
        if self.handle.post(Message::Reload).is_err() {
            tracing::error!("webhooks are too far behind to be told of new certificates: send SIGHUP again");
        }
    }

    /// Whether it ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it. Calls in flight are cut; their wakes are kept, and handed over again after the next start.
    pub(crate) fn end(self) {
        self.handle.stop();
        // A panic there was reported there.
        let _ = self.thread.join();
    }
}

impl Resolver {
    fn of_system() -> Self {
        let ask = |host: &str| Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect());
        Self { ask: Arc::new(ask), wait_ms_max: LOOK_UP_MS_MAX, read_trust: Arc::new(Trust::of_system) }
    }
}

impl Webhooks {
    fn new(core: &mut Core<Self>, engine: &Engine, resolver: Resolver) -> io::Result<Self> {
        let control = core.insert_timer(None)?;
        let handle = core.handle();
        let shared: &Arc<Subscriptions<Embedded>> = engine.subscriptions();
        // A full mailbox holds a wake already, or will be read to its end before this reactor sleeps.
        shared.set_waker(Box::new(move || drop(handle.post(Message::Wake))));
        let driver = engine.driver()?;
        for (subscription, why) in driver.barred() {
            tracing::warn!(%subscription, why, "a subscription's wakes are not handed over");
        }
        core.ready_later(Message::Wake);
        Ok(Self {
            driver,
            control,
            resolver,
            names: Names::new(),
            trust: Certificates::new(),
            calls: Calls::new(),
            failures: RateLimitedWarning::default(),
            wake_pending: false,
        })
    }

    fn now(core: &mut Core<Self>) -> Now {
        Now { time_us: core.wall_us(), entropy: core.entropy() }
    }

    fn take_up(&mut self, core: &mut Core<Self>) {
        let late = io::Error::new(io::ErrorKind::TimedOut, "the host was not resolved in time");
        for webhook in self.names.overdue(core.now_ms()) {
            self.failed(core, &webhook, &late);
        }
        let now = Self::now(core);
        for webhook in self.driver.turn(now) {
            self.begin(core, webhook);
        }
        self.connect_queued(core);
        self.look_up_queued(core);
        self.set_timer(core);
    }

    fn set_timer(&mut self, core: &mut Core<Self>) {
        let (now_us, now_ms) = (core.wall_us(), core.now_ms());
        let driver_ms = self.driver.next_due_us().map(|due_us| due_us.saturating_sub(now_us).div_ceil(1_000));
        let names_ms = self.names.next_due_ms().map(|due_ms| due_ms.saturating_sub(now_ms));
        match driver_ms.into_iter().chain(names_ms).min() {
            Some(after_ms) => {
                let after_ms = after_ms.clamp(1, LOOK_MS_MAX);
                core.set_timer(self.control, u32::try_from(after_ms).unwrap_or(u32::MAX));
            }
            None => core.clear_timer(self.control),
        }
    }

    /// Finds out where the call goes, at once if that takes no look-up.
    fn begin(&mut self, core: &Core<Self>, webhook: WebhookCall) {
        let target = &webhook.target;
        match known_addresses(target) {
            Some(addresses) if !target.secure || self.trust.good(core.now_ms()).is_some() => {
                self.calls.wait(&peer(target), (webhook, addresses));
            }
            _ => self.wait_for_look_up(core, webhook),
        }
    }

    fn wait_for_look_up(&mut self, core: &Core<Self>, webhook: WebhookCall) {
        let deadline_ms = core.now_ms() + webhook.timeout_ms.min(self.resolver.wait_ms_max);
        let host = webhook.target.host.clone();
        self.names.wait(&host, webhook, deadline_ms);
    }

    fn look_up_queued(&mut self, core: &mut Core<Self>) {
        while let Some(host) = self.names.begin() {
            if let Err(error) = self.look_up(core, host.clone()) {
                self.resolved(core, &host, Err(error));
            }
        }
    }

    /// Has a name looked up, and the certificates read, elsewhere.
    fn look_up(&self, core: &Core<Self>, host: Arc<str>) -> io::Result<()> {
        let permit = core.handle().reserve().ok_or_else(|| io::Error::other("too much is under way"))?;
        let (resolver, began_ms) = (self.resolver.clone(), core.now_ms());
        let is_trust_good = self.trust.good(began_ms).is_some();
        let run = move || {
            let resolved = resolve(&host, &resolver, began_ms, is_trust_good);
            permit.post(Message::Resolved(host, resolved));
        };
        let builder = std::thread::Builder::new().name("look-up".into()).stack_size(LOOK_UP_STACK_BYTES);
        builder.spawn(run).map(drop)
    }

    /// A look-up came to its end. Those who waited for it can be called, or not.
    fn resolved(&mut self, core: &mut Core<Self>, host: &Arc<str>, outcome: io::Result<Resolved>) {
        let waiting = self.names.answered(host);
        let outcome = outcome.map(|Resolved { addresses, trust }| {
            if let Some((began_ms, trust)) = trust {
                self.trust.read(began_ms, trust);
            }
            addresses
        });
        for webhook in waiting {
            match &outcome {
                Ok(addresses) => match permitted(&webhook.target, addresses) {
                    Ok(addresses) => self.calls.wait(&peer(&webhook.target), (webhook, addresses)),
                    Err(error) => self.failed(core, &webhook, &error),
                },
                Err(error) => self.failed(core, &webhook, error),
            }
        }
        // There is room for another look-up now.
        self.wake_later(core);
    }

    fn connect_queued(&mut self, core: &mut Core<Self>) {
        while let Some((peer, (mut webhook, addresses))) = self.calls.begin() {
            let is_secure = webhook.target.secure;
            let trust = self.trust.good(core.now_ms()).filter(|_| is_secure).cloned();
            if is_secure && trust.is_none() {
                // The certificates were outdated while it waited for its look-up or for its turn.
                self.calls.ended(&peer);
                self.wait_for_look_up(core, webhook);
                continue;
            }
            let now = Self::now(core);
            if self.driver.begin(&mut webhook, now) {
                self.connect(core, webhook, peer, addresses, trust);
            } else {
                self.calls.ended(&peer);
            }
        }
    }

    fn connect(
        &mut self,
        core: &mut Core<Self>,
        webhook: WebhookCall,
        peer: Peer,
        addresses: VecDeque<SocketAddr>,
        trust: Option<Trust>,
    ) {
        let deadline_ms = core.now_ms() + webhook.timeout_ms;
        match exchange(&webhook, trust.as_ref()) {
            Ok(exchange) => {
                let call = Call { webhook, peer, trust, addresses, exchange, connected: false, deadline_ms };
                self.try_next(core, Box::new(call), &io::ErrorKind::AddrNotAvailable.into());
            }
            Err(error) => self.call_failed(core, &webhook, &peer, &error),
        }
    }

    /// Connects to the next address, and waits for it no longer than is left for each of those that are left;
    /// with none, `last` is why the call failed.
    fn try_next(&mut self, core: &mut Core<Self>, mut call: Box<Call>, last: &io::Error) {
        let mut why = io::Error::from(last.kind());
        while let Some(address) = call.addresses.pop_front() {
            let left_ms = call.left_ms(core.now_ms());
            let share_ms = (left_ms / (call.addresses.len() as u32 + 1)).max(1);
            match socket::connect_tcp(address) {
                Ok(descriptor) => match core.insert(descriptor, Some(call), Interest::BOTH) {
                    Ok(key) => {
                        core.set_timer(key, share_ms);
                        return;
                    }
                    Err(rejected) => {
                        let Some(back) = rejected.entry else { return };
                        call = back;
                        why = io::Error::other("no room for another socket");
                        break;
                    }
                },
                Err(error) => why = error,
            }
        }
        self.call_failed(core, &call.webhook, &call.peer, &why);
    }

    fn call_ended(&mut self, peer: &Peer, was_late: bool) {
        self.calls.ended(peer);
        self.calls.timed(peer, was_late);
    }

    fn call_failed(&mut self, core: &mut Core<Self>, webhook: &WebhookCall, peer: &Peer, why: &io::Error) {
        self.call_ended(peer, why.kind() == io::ErrorKind::TimedOut);
        self.failed(core, webhook, why);
    }

    fn failed(&mut self, core: &mut Core<Self>, webhook: &WebhookCall, why: &io::Error) {
        if let Some(times) = self.failures.note(core.now_ms(), 1) {
            let (subscription, host) = (webhook.id(), &webhook.target.host);
            tracing::info!(times, subscription, %host, %why, "webhook calls failed; this is the last");
        }
        self.finish(core, webhook, Outcome::Failed);
    }

    fn finish(&mut self, core: &mut Core<Self>, webhook: &WebhookCall, outcome: Outcome) {
        let now = Self::now(core);
        if let Some(next) = self.driver.finished(webhook, outcome, now) {
            self.begin(core, next);
        }
        self.wake_later(core);
    }

    /// What comes next is begun from the top, not from within what ended.
    fn wake_later(&mut self, core: &mut Core<Self>) {
        if !std::mem::replace(&mut self.wake_pending, true) {
            core.ready_later(Message::Wake);
        }
    }

    fn drive(&mut self, core: &mut Core<Self>, key: Key) {
        let now_ms = core.now_ms();
        let Some((Some(call), descriptor)) = core.entry_and_descriptor(key) else { return };
        let connects = !std::mem::replace(&mut call.connected, true);
        if connects && let Err(error) = socket::take_error(descriptor) {
            return self.retry_elsewhere(core, key, &error);
        }
        let left_ms = call.left_ms(now_ms);
        match call.exchange.drive(descriptor) {
            Ok(Progress::Wait(interest)) => {
                if connects {
                    core.set_timer(key, left_ms);
                }
                if let Err(error) = core.set_interest(key, interest) {
                    self.give_up(core, key, &error);
                }
            }
            Ok(Progress::Done(reply)) => {
                let Some(call) = core.remove(key).and_then(|removed| removed.entry) else { return };
                let outcome = outcome(&reply);
                if outcome == Outcome::Failed {
                    let why = io::Error::other(format!("it answered with status {}", reply.status));
                    return self.call_failed(core, &call.webhook, &call.peer, &why);
                }
                self.call_ended(&call.peer, false);
                self.finish(core, &call.webhook, outcome);
            }
            Err(error) => self.give_up(core, key, &error),
        }
    }

    /// An address did not answer: another may.
    fn retry_elsewhere(&mut self, core: &mut Core<Self>, key: Key, error: &io::Error) {
        let Some(mut call) = core.remove(key).and_then(|removed| removed.entry) else { return };
        match exchange(&call.webhook, call.trust.as_ref()) {
            Ok(fresh) => {
                (call.exchange, call.connected) = (fresh, false);
                self.try_next(core, call, error);
            }
            Err(error) => self.call_failed(core, &call.webhook, &call.peer, &error),
        }
    }

    fn give_up(&mut self, core: &mut Core<Self>, key: Key, error: &io::Error) {
        if let Some(call) = core.remove(key).and_then(|removed| removed.entry) {
            self.call_failed(core, &call.webhook, &call.peer, error);
        }
    }
}

impl Handler for Webhooks {
    type Entry = Option<Box<Call>>;
    type Topic = ();
    type Message = Message;

    fn ready(&mut self, core: &mut Core<Self>, key: Key, _readiness: Readiness) {
        self.drive(core, key);
    }

    fn message(&mut self, core: &mut Core<Self>, message: Message) {
        match message {
            Message::Wake => {
                self.wake_pending = false;
                self.take_up(core);
            }
            Message::Resolved(host, outcome) => self.resolved(core, &host, outcome),
            Message::Reload => self.trust.outdate(core.now_ms()),
        }
    }

    fn timer(&mut self, core: &mut Core<Self>, key: Key) {
        if key == self.control {
            self.take_up(core);
            return;
        }
        let Some((Some(call), _)) = core.entry_and_descriptor(key) else { return };
        let (connected, late) = (call.connected, io::ErrorKind::TimedOut.into());
        if connected {
            self.give_up(core, key, &late);
        } else {
            self.retry_elsewhere(core, key, &late);
        }
    }
}

fn peer(target: &Target) -> Peer {
    (target.host.as_str().into(), target.port)
}

/// The addresses of a target whose host is an address.
fn known_addresses(target: &Target) -> Option<VecDeque<SocketAddr>> {
    let addresses: Vec<IpAddr> = match target.address() {
        Some(address) => vec![address],
        // RFC 6761 6.3: localhost is this machine, whatever a resolver says.
        None if target.is_development() => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        None => return None,
    };
    Some(addresses.into_iter().map(|address| SocketAddr::new(address, target.port)).collect())
}

/// Looks a host up, and reads the certificates unless those that were read before still count. May block.
fn resolve(host: &str, resolver: &Resolver, began_ms: u64, is_trust_good: bool) -> io::Result<Resolved> {
    let addresses = host.parse().map_or_else(|_| (resolver.ask)(host), |address| Ok(vec![address]))?;
    let trust = if is_trust_good { None } else { Some((began_ms, (resolver.read_trust)()?)) };
    Ok(Resolved { addresses, trust })
}

/// PROTOCOL 12.8: of what a name resolves to, only permitted addresses are kept.
fn permitted(target: &Target, addresses: &[IpAddr]) -> io::Result<VecDeque<SocketAddr>> {
    let permitted = addresses.iter().filter(|address| target.permits(**address));
    let permitted: VecDeque<_> = permitted.map(|address| SocketAddr::new(*address, target.port)).collect();
    if permitted.is_empty() && !addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the host leads to no public address"));
    }
    Ok(permitted)
}

fn exchange(webhook: &WebhookCall, trust: Option<&Trust>) -> io::Result<Exchange> {
    let target = &webhook.target;
    let fields = [
        ("Content-Type", "application/json"),
        ("User-Agent", "thalweg"),
        ("Webhook-Signature", webhook.signature.as_str()),
    ];
    let request = post(&target.path, &target.authority, &fields, &webhook.body);
    match trust {
        Some(trust) if target.secure => Exchange::tls(request, &target.host, trust),
        _ if target.secure => Err(io::Error::other("no certificates to trust")),
        _ => Ok(Exchange::plain(request)),
    }
}

/// PROTOCOL 7.1: a 2xx took the wake; one that says done has finished it.
fn outcome(reply: &Reply) -> Outcome {
    if !(200..300).contains(&reply.status) {
        return Outcome::Failed;
    }
    let body: Option<serde_json::Value> = serde_json::from_slice(&reply.body).ok();
    let done = body.is_some_and(|body| body.get("done").and_then(serde_json::Value::as_bool) == Some(true));
    if done { Outcome::Done } else { Outcome::Accepted }
}
