//! Subscriptions' outgoing side: one thread that drives them and calls webhooks.
//!
//! The thread is a reactor of its own: pending work, leases and retries reach it as messages and timers, and
//! every call in flight is a non-blocking socket with a deadline. So a webhook that is slow, or hangs, holds
//! back only itself; [`CALLS_MAX`] are in flight at once and the others queue. What cannot be done without
//! blocking, asking a resolver and reading the system's certificates, is done by two threads that are started
//! when a webhook first needs them.
//!
//! PROTOCOL 12.8: a call connects only to addresses that were resolved for it and passed
//! [`Target::permits`]; the name is not resolved again, so it cannot lead elsewhere in between.

use crate::engine::Engine;
use crate::serve::Failure;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use thalweg_http::client::{Exchange, Progress, Reply, Trust, post};
use thalweg_reactor::{Config, Core, Handle, Handler, Interest, Key, Pool, Reactor, Readiness};
use thalweg_streams::embedded::Embedded;
use thalweg_streams::subscriptions::target::Target;
use thalweg_streams::subscriptions::{Attempt, Driver, Outcome, Subscriptions};
use thalweg_sys::{event::EventFd, socket};
use thalweg_wire::exchange::Now;

/// Webhooks called at once.
const CALLS_MAX: usize = 256;
/// Threads that resolve names.
const RESOLVERS: usize = 2;
const MAILBOX_MAX: usize = 4_096;
const STACK_BYTES: usize = 512 * 1024;
/// Longest time without a look at what is due: wall clocks are set, timers are not.
const LOOK_MS_MAX: u64 = 60_000;

/// What other threads tell.
pub(crate) enum Message {
    /// Something waits in the subscriptions' inbox.
    Bell,
    /// A host was resolved, or was not.
    Resolved(u64, io::Result<Resolved>),
}

/// Where a call may go, and whom it trusts if it is encrypted.
pub(crate) struct Resolved {
    addresses: VecDeque<SocketAddr>,
    trust: Option<Trust>,
}

/// A webhook being called.
struct Call {
    attempt: Attempt,
    trust: Option<Trust>,
    /// Addresses left to try.
    addresses: VecDeque<SocketAddr>,
    exchange: Exchange,
    connected: bool,
    deadline_ms: u64,
}

/// The driver and its calls.
struct Webhooks {
    driver: Driver<Embedded>,
    /// Carries the timer of what is due next.
    control: Key,
    pool: Option<Pool>,
    trust: Option<Trust>,
    resolving: HashMap<u64, Attempt>,
    asked: u64,
    calls: usize,
    queue: VecDeque<Attempt>,
    /// There is something to take up.
    rung: bool,
}

/// The thread that drives subscriptions.
pub(crate) struct Running {
    handle: Handle<Message>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Starts it.
    ///
    /// # Errors
    /// The system gives no thread or no descriptors, or the store has too many watchers.
    pub(crate) fn start(engine: &Engine) -> Result<Running, Failure> {
        let (sender, receiver) = channel();
        let engine = engine.clone();
        let run = move || {
            let config = Config {
                entries_max: u32::try_from(CALLS_MAX).unwrap_or(u32::MAX) + 8,
                mailbox_max: MAILBOX_MAX,
                spin: false,
                ..Config::default()
            };
            let outcome = Reactor::new(config, |core| Webhooks::new(core, &engine)).and_then(
                |mut reactor: Reactor<Webhooks>| {
                    // Whoever started this thread waits for the handle.
                    let _ = sender.send(Ok(reactor.handle()));
                    reactor.run()
                },
            );
            if let Err(error) = outcome {
                tracing::error!(%error, "subscriptions are not driven any more");
                let _ = sender.send(Err(error));
            }
        };
        let builder = std::thread::Builder::new().name("subscriptions".into()).stack_size(STACK_BYTES);
        let thread = builder.spawn(run).map_err(|error| Failure::System("start a thread", error))?;
        let handle = receiver.recv().map_err(|_| Failure::Reactor)?;
        let handle = handle.map_err(|error: io::Error| Failure::System("drive subscriptions", error))?;
        Ok(Running { handle, thread })
    }

    /// Ends it. Calls in flight are cut; their wakes are kept, and handed over again after the next start.
    pub(crate) fn end(self) {
        self.handle.stop();
        // A panic there was reported there.
        let _ = self.thread.join();
    }
}

impl Webhooks {
    fn new(core: &mut Core<Self>, engine: &Engine) -> io::Result<Self> {
        let control = socket::duplicate(EventFd::new()?.as_fd())?;
        let control = core.insert(control, None, Interest::NONE).map_err(|_| io::Error::other("no room"))?;
        let handle = core.handle();
        let shared: &Arc<Subscriptions<Embedded>> = engine.subscriptions();
        // A full mailbox holds a bell already, or will be read to its end before this reactor sleeps.
        shared.hang(Box::new(move || drop(handle.post(Message::Bell))));
        let driver = engine.driver()?;
        core.ready_later(Message::Bell);
        Ok(Self {
            driver,
            control,
            pool: None,
            trust: None,
            resolving: HashMap::new(),
            asked: 0,
            calls: 0,
            queue: VecDeque::new(),
            rung: false,
        })
    }

    fn now(core: &mut Core<Self>) -> Now {
        Now { time_us: core.wall_us(), entropy: core.entropy() }
    }

    fn take_up(&mut self, core: &mut Core<Self>) {
        let now = Self::now(core);
        self.queue.extend(self.driver.turn(now));
        self.begin_queued(core);
        self.set_timer(core);
    }

    fn set_timer(&mut self, core: &mut Core<Self>) {
        let now_us = core.wall_us();
        match self.driver.next_due_us() {
            Some(due_us) => {
                let after_ms = due_us.saturating_sub(now_us).div_ceil(1_000).clamp(1, LOOK_MS_MAX);
                core.set_timer(self.control, u32::try_from(after_ms).unwrap_or(u32::MAX));
            }
            None => core.clear_timer(self.control),
        }
    }

    fn begin_queued(&mut self, core: &mut Core<Self>) {
        while self.calls < CALLS_MAX
            && let Some(attempt) = self.queue.pop_front()
        {
            self.calls += 1;
            self.begin(core, attempt);
        }
    }

    /// Finds out where the call goes, at once if that needs nobody else.
    fn begin(&mut self, core: &mut Core<Self>, attempt: Attempt) {
        let target = &attempt.target;
        if let Some(addresses) = known_addresses(target)
            && (!target.secure || self.trust.is_some())
        {
            let trust = self.trust.clone().filter(|_| target.secure);
            return self.connect(core, attempt, Resolved { addresses, trust });
        }
        match self.ask(core, target) {
            Ok(asked) => {
                self.resolving.insert(asked, attempt);
            }
            Err(error) => self.failed(core, &attempt, &error),
        }
    }

    /// Has the host resolved, and the certificates read, elsewhere.
    fn ask(&mut self, core: &Core<Self>, target: &Target) -> io::Result<u64> {
        let pool = match &self.pool {
            Some(pool) => pool.clone(),
            None => self.pool.insert(Pool::start(RESOLVERS)?).clone(),
        };
        let permit = core.handle().reserve().ok_or_else(|| io::Error::other("too much is under way"))?;
        self.asked += 1;
        let (asked, target, trust) = (self.asked, target.clone(), self.trust.clone());
        let job = Box::new(move || permit.post(Message::Resolved(asked, resolve(&target, trust))));
        pool.submit(job).map_err(|_| io::Error::other("too many names are being resolved"))?;
        Ok(asked)
    }

    fn connect(&mut self, core: &mut Core<Self>, attempt: Attempt, resolved: Resolved) {
        let deadline_ms = core.now_ms() + attempt.timeout_ms;
        let Resolved { addresses, trust } = resolved;
        match exchange(&attempt, trust.as_ref()) {
            Ok(exchange) => {
                let call = Call { attempt, trust, addresses, exchange, connected: false, deadline_ms };
                self.try_next(core, Box::new(call), &io::ErrorKind::AddrNotAvailable.into());
            }
            Err(error) => self.failed(core, &attempt, &error),
        }
    }

    /// Connects to the next address; with none left, `last` is why the call failed.
    fn try_next(&mut self, core: &mut Core<Self>, mut call: Box<Call>, last: &io::Error) {
        let mut why = io::Error::from(last.kind());
        while let Some(address) = call.addresses.pop_front() {
            let left_ms = call.deadline_ms.saturating_sub(core.now_ms()).max(1);
            match socket::connect_tcp(address) {
                Ok(descriptor) => match core.insert(descriptor, Some(call), Interest::BOTH) {
                    Ok(key) => {
                        core.set_timer(key, u32::try_from(left_ms).unwrap_or(u32::MAX));
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
        self.failed(core, &call.attempt, &why);
    }

    fn failed(&mut self, core: &mut Core<Self>, attempt: &Attempt, why: &io::Error) {
        tracing::info!(subscription = attempt.id(), host = %attempt.target.host, %why, "a webhook call failed");
        self.finish(core, attempt, Outcome::Failed);
    }

    fn finish(&mut self, core: &mut Core<Self>, attempt: &Attempt, outcome: Outcome) {
        self.calls -= 1;
        let now = Self::now(core);
        self.queue.extend(self.driver.finished(attempt, outcome, now));
        // What comes next is begun from the top, not from within a call that ended.
        if !std::mem::replace(&mut self.rung, true) {
            core.ready_later(Message::Bell);
        }
    }

    fn drive(&mut self, core: &mut Core<Self>, key: Key) {
        let Some((Some(call), descriptor)) = core.entry_and_descriptor(key) else { return };
        if !call.connected {
            if let Err(error) = socket::take_error(descriptor) {
                return self.retry_elsewhere(core, key, &error);
            }
            call.connected = true;
        }
        match call.exchange.drive(descriptor) {
            Ok(Progress::Wait(interest)) => {
                if let Err(error) = core.set_interest(key, interest) {
                    self.give_up(core, key, &error);
                }
            }
            Ok(Progress::Done(reply)) => {
                let Some(call) = core.remove(key).and_then(|removed| removed.entry) else { return };
                let outcome = outcome(&reply);
                if outcome == Outcome::Failed {
                    tracing::info!(
                        subscription = call.attempt.id(),
                        host = %call.attempt.target.host,
                        status = reply.status,
                        "a webhook refused"
                    );
                }
                self.finish(core, &call.attempt, outcome);
            }
            Err(error) => self.give_up(core, key, &error),
        }
    }

    /// An address did not answer: another may.
    fn retry_elsewhere(&mut self, core: &mut Core<Self>, key: Key, error: &io::Error) {
        let Some(mut call) = core.remove(key).and_then(|removed| removed.entry) else { return };
        match exchange(&call.attempt, call.trust.as_ref()) {
            Ok(fresh) => {
                call.exchange = fresh;
                self.try_next(core, call, error);
            }
            Err(error) => self.failed(core, &call.attempt, &error),
        }
    }

    fn give_up(&mut self, core: &mut Core<Self>, key: Key, error: &io::Error) {
        if let Some(call) = core.remove(key).and_then(|removed| removed.entry) {
            self.failed(core, &call.attempt, error);
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
            Message::Bell => {
                self.rung = false;
                self.take_up(core);
            }
            Message::Resolved(asked, result) => {
                let Some(attempt) = self.resolving.remove(&asked) else { return };
                match result {
                    Ok(resolved) => {
                        self.trust = resolved.trust.clone().or(self.trust.take());
                        self.connect(core, attempt, resolved);
                    }
                    Err(error) => self.failed(core, &attempt, &error),
                }
            }
        }
    }

    fn timer(&mut self, core: &mut Core<Self>, key: Key) {
        if key == self.control {
            self.take_up(core);
        } else {
            self.give_up(core, key, &io::ErrorKind::TimedOut.into());
        }
    }
}

/// The addresses of a target that nobody has to be asked about.
fn known_addresses(target: &Target) -> Option<VecDeque<SocketAddr>> {
    let addresses: Vec<IpAddr> = match target.address() {
        Some(address) => vec![address],
        // RFC 6761 6.3: localhost is this machine, whatever a resolver says.
        None if target.is_development() => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        None => return None,
    };
    Some(addresses.into_iter().map(|address| SocketAddr::new(address, target.port)).collect())
}

/// May block. PROTOCOL 12.8: of what a name resolves to, only permitted addresses are kept.
fn resolve(target: &Target, trust: Option<Trust>) -> io::Result<Resolved> {
    let trust = match trust {
        None if target.secure => Some(Trust::of_system()?),
        trust => trust,
    };
    let addresses = match known_addresses(target) {
        Some(addresses) => addresses,
        None => (target.host.as_str(), target.port).to_socket_addrs()?.collect(),
    };
    let found = addresses.len();
    let permitted: VecDeque<_> = addresses.into_iter().filter(|at| target.permits(at.ip())).collect();
    if permitted.is_empty() && found > 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the host leads to no public address"));
    }
    Ok(Resolved { addresses: permitted, trust })
}

fn exchange(attempt: &Attempt, trust: Option<&Trust>) -> io::Result<Exchange> {
    let target = &attempt.target;
    let fields = [
        ("Content-Type", "application/json"),
        ("User-Agent", "thalweg"),
        ("Webhook-Signature", attempt.signature.as_str()),
    ];
    let request = post(&target.path, &target.authority, &fields, &attempt.body);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_means() {
        let of = |status, body: &str| outcome(&Reply { status, body: body.as_bytes().to_vec() });
        assert_eq!(of(200, r#"{"done":true}"#), Outcome::Done);
        assert_eq!(of(202, r#"{"done":false}"#), Outcome::Accepted);
        assert_eq!(of(200, r#"{"done":"true"}"#), Outcome::Accepted);
        assert_eq!(of(204, ""), Outcome::Accepted);
        assert_eq!(of(302, r#"{"done":true}"#), Outcome::Failed);
        assert_eq!(of(500, r#"{"done":true}"#), Outcome::Failed);
    }

    #[test]
    fn localhost_is_asked_of_nobody_and_a_name_that_leads_inside_is_refused() {
        let near = Target::parse("http://localhost:9/").unwrap();
        let addresses = resolve(&near, None).unwrap().addresses;
        assert_eq!(addresses, ["127.0.0.1:9".parse().unwrap(), "[::1]:9".parse().unwrap()]);
        // As if a public name resolved to this machine.
        let rebound = Target { secure: false, host: "localhost.".into(), ..near };
        assert!(!rebound.is_development());
        assert!(resolve(&rebound, None).is_err());
    }
}
