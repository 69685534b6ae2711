//! The reactor's handler: moves bytes between sockets and roles. Everything of a load happens on this one
//! thread.

use crate::counts::Counts;
use crate::error::Error;
use crate::line::Line;
use crate::roles::{Next, Role};
use crate::target::Target;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use thalweg_reactor::{Core, Handler, Interest, Key, Readiness, Rejected};
use thalweg_sys::clock::monotonic_ns;
use thalweg_sys::socket;
use thalweg_wire::http1::ResponseHead;

/// After this many connections that came about and broke none is opened again: the server drops whatever it
/// takes.
pub(crate) const BROKEN_MAX: u64 = 1_000;
/// How long a connection that never came about waits until it is tried again: a server that starts anew is
/// given the time.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Where this many tries in a row were in vain, ten seconds of them, the server is gone: as long for one
/// connection as for thousands.
pub(crate) const TRIES_MAX: u32 = 20;
/// Bytes that one receive may bring.
const RECEIVE_BYTES: usize = 256 * 1024;

/// What one follower has of its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follower {
    pub(crate) stream: u64,
    /// Different records, each counted when it came in its order.
    pub(crate) records: u64,
    /// The number behind the highest of them.
    pub(crate) next: u64,
}

impl Follower {
    /// How many of the `published` records of its stream it lacks. A record beyond them is one whose answer
    /// was lost with its connection; it makes up for none of the others.
    fn missing(&self, published: u64) -> u64 {
        let beyond = self.next.saturating_sub(published);
        published.saturating_sub(self.records.saturating_sub(beyond))
    }
}

/// What roles have in common.
pub(crate) struct Shared {
    pub(crate) target: Target,
    pub(crate) counts: Counts,
    /// Operations handed out, and how many there may be.
    pub(crate) issued: u64,
    pub(crate) limit: u64,
    /// Roles that came to rest, or are attached to what they follow.
    pub(crate) attached: u64,
    /// Roles that ended.
    pub(crate) over: u64,
    /// The number of the next record, by stream.
    pub(crate) published: Vec<u64>,
    /// Records that were delivered to followers, whenever.
    pub(crate) delivered: u64,
    /// What each follower has, in the order in which they began.
    pub(crate) followers: Vec<Follower>,
    /// Which follower lacked something when it was last looked whether all has arrived.
    lacking: Cell<usize>,
    /// Writers are to end.
    pub(crate) writing_ends: bool,
    /// Why the load has to end.
    pub(crate) refusal: Option<Error>,
}

impl Shared {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            counts: Counts::new(),
            issued: 0,
            limit: u64::MAX,
            attached: 0,
            over: 0,
            published: Vec::new(),
            delivered: 0,
            followers: Vec::new(),
            lacking: Cell::new(0),
            writing_ends: false,
            refusal: None,
        }
    }

    /// Records that the server accepted and that a follower of their stream does not have, over all
    /// followers.
    pub(crate) fn missing(&self) -> u64 {
        self.followers.iter().map(|of| self.missing_of(of)).sum()
    }

    fn missing_of(&self, follower: &Follower) -> u64 {
        let published = usize::try_from(follower.stream).ok().and_then(|at| self.published.get(at));
        follower.missing(published.copied().unwrap_or(0))
    }

    /// Whether nothing is missing. It looks first at the follower that lacked something the last time, and
    /// goes on from there: asked again and again, it seldom looks at all of them.
    pub(crate) fn has_all_arrived(&self) -> bool {
        let at = self.lacking.get();
        let (before, from) = self.followers.split_at(at);
        let lacking = from.iter().chain(before).position(|of| self.missing_of(of) > 0);
        if let Some(further) = lacking {
            self.lacking.set((at + further) % self.followers.len());
        }
        lacking.is_none()
    }

    /// A role's request about a stream was refused: a failure, which ends the load if the same request would
    /// be refused again.
    pub(crate) fn refused(&mut self, role: &str, stream: u64, head: &ResponseHead<'_>) {
        let status = head.status;
        let what = || format!("{role} {}", self.target.name(stream));
        if is_for_good(status) && self.refusal.is_none() {
            let by_token = head.field("WWW-Authenticate").is_some();
            self.refusal = Some(Error::Refused { what: what(), status, by_token });
        }
        self.counts.fail(|| format!("{}: status {status}", what()));
    }
}

/// Whether the same request will be refused again. What came too late, too early or too often may be taken
/// the next time.
fn is_for_good(status: u16) -> bool {
    (400..500).contains(&status) && ![408, 425, 429].contains(&status)
}

/// The handler.
pub(crate) struct Driver {
    pub(crate) shared: Shared,
    scratch: Vec<u8>,
    opened: Vec<u8>,
    /// Connections that came about and broke.
    broken: u64,
    /// Roles that wait until they are given another connection, the first due first.
    parked: VecDeque<Parked>,
}

/// A role without a connection.
struct Parked {
    due: Instant,
    role: Box<dyn Role>,
    /// How often in a row it was tried in vain.
    tries: u32,
}

impl Driver {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            shared: Shared::new(target),
            scratch: Vec::with_capacity(RECEIVE_BYTES),
            opened: Vec::new(),
            broken: 0,
            parked: VecDeque::new(),
        }
    }

    /// Connects for a role and lets it begin.
    ///
    /// # Errors
    /// No descriptor, or no server listens.
    pub(crate) fn open(&mut self, core: &mut Core<Self>, role: Box<dyn Role>) -> io::Result<()> {
        self.open_after(0, core, role)
    }

    /// The same, after this number of tries in a row that were in vain.
    fn open_after(&mut self, tries: u32, core: &mut Core<Self>, role: Box<dyn Role>) -> io::Result<()> {
        let descriptor = socket::connect_tcp(self.shared.target.address)?;
        socket::set_no_delay(std::os::fd::AsFd::as_fd(&descriptor))?;
        let mut line = Line::new(role);
        line.tries = tries;
        line.sealed = self.shared.target.seal()?.map(|peer| (peer, Vec::new()));
        let key = core.insert(descriptor, line, Interest::READ).map_err(refused)?;
        self.advance(core, key);
        Ok(())
    }

    /// Lets a role say what comes next, until something is under way.
    fn advance(&mut self, core: &mut Core<Self>, key: Key) {
        let Some(line) = core.entry(key) else { return };
        if line.last {
            return self.anew(core, key);
        }
        line.request.clear();
        line.sent = 0;
        match line.role.next(&mut self.shared, &mut line.request) {
            Next::Sent => self.flush(core, key),
            Next::SentUntil(ms) => {
                core.set_timer(key, ms);
                self.flush(core, key);
            }
            Next::Wait(ms) => core.set_timer(key, ms),
            Next::Rest => {}
            Next::Anew => self.anew(core, key),
            Next::Over => {
                self.shared.over += 1;
                core.remove(key);
            }
        }
    }

    /// Goes on with a role on a connection of its own.
    fn anew(&mut self, core: &mut Core<Self>, key: Key) {
        let Some(removed) = core.remove(key) else { return };
        self.reopen(0, core, removed.entry.role);
    }

    fn flush(&mut self, core: &mut Core<Self>, key: Key) {
        let Some((line, descriptor)) = core.entry_and_descriptor(key) else { return };
        line.owed = true;
        let outcome = line
            .send(descriptor)
            .and_then(|done| core.set_interest(key, if done { Interest::READ } else { Interest::BOTH }));
        if let Err(error) = outcome {
            self.lose(core, key, &error.to_string());
        }
    }

    fn receive(&mut self, core: &mut Core<Self>, key: Key) {
        let Some((line, descriptor)) = core.entry_and_descriptor(key) else { return };
        self.scratch.clear();
        let mut answered = Ok(true);
        let received = socket::receive(descriptor, &mut self.scratch, RECEIVE_BYTES);
        line.is_open |= received.is_ok();
        let outcome = match received {
            Ok(None) => return,
            Ok(Some(0)) => line.end(&mut self.shared),
            Ok(Some(_)) if line.sealed.is_none() => line.take(&self.scratch, &mut self.shared),
            Ok(Some(_)) => {
                answered = line.open(descriptor, &self.scratch, &mut self.opened);
                // A handshake says nothing to the role.
                if self.opened.is_empty() { Ok(false) } else { line.take(&self.opened, &mut self.shared) }
            }
            Err(error) => Err(format!("{}: {error}", line.role.name())),
        };
        match answered {
            Ok(true) => {}
            Ok(false) => drop(core.set_interest(key, Interest::BOTH)),
            Err(error) => return self.lose(core, key, &error.to_string()),
        }
        let Some((line, _)) = core.entry_and_descriptor(key) else { return };
        match outcome {
            Ok(true) => {
                core.clear_timer(key);
                self.advance(core, key);
            }
            // Between two requests a server may close what it likes.
            Ok(false) if line.last && !line.owed => self.anew(core, key),
            Ok(false) => {}
            Err(problem) => self.lose(core, key, &problem),
        }
    }

    /// Counts what is owed an answer as the span ends.
    pub(crate) fn count_unanswered(&mut self, core: &mut Core<Self>) {
        let now_ns = monotonic_ns();
        let keys: Vec<Key> = core.keys().collect();
        for key in keys {
            if let Some(line) = core.entry(key).filter(|line| line.owed) {
                line.role.unanswered(now_ns, &mut self.shared.counts);
            }
        }
        self.parked.iter().for_each(|parked| parked.role.unanswered(now_ns, &mut self.shared.counts));
    }

    /// A connection that a client wanted to keep is gone.
    fn lose(&mut self, core: &mut Core<Self>, key: Key, problem: &str) {
        let Some(mut removed) = core.remove(key) else { return };
        self.shared.counts.fail(|| problem.to_owned());
        let Line { is_open, tries, .. } = removed.entry;
        self.broken += u64::from(is_open);
        let tries = if is_open { 0 } else { tries + 1 };
        let goes_on = removed.entry.role.lost(&mut self.shared);
        if !goes_on || self.broken >= BROKEN_MAX || tries >= TRIES_MAX {
            self.shared.over += 1;
        } else if is_open {
            self.reopen(0, core, removed.entry.role);
        } else {
            let due = Instant::now() + RECONNECT_PAUSE;
            self.parked.push_back(Parked { due, role: removed.entry.role, tries });
        }
    }

    /// When the next role is due that waits for another connection.
    pub(crate) fn reconnect_at(&self) -> Option<Instant> {
        self.parked.front().map(|parked| parked.due)
    }

    /// Gives another connection to each role that is due for one.
    pub(crate) fn reconnect(&mut self, core: &mut Core<Self>, now: Instant) {
        while let Some(Parked { role, tries, .. }) = self.parked.pop_front_if(|parked| parked.due <= now) {
            self.reopen(tries, core, role);
        }
    }

    fn reopen(&mut self, tries: u32, core: &mut Core<Self>, role: Box<dyn Role>) {
        if let Err(error) = self.open_after(tries, core, role) {
            self.shared.over += 1;
            self.shared.counts.fail(|| format!("connecting again: {error}"));
        }
    }
}

fn refused(rejected: Rejected<Line>) -> io::Error {
    match rejected.reason {
        thalweg_reactor::RejectReason::Full => {
            io::Error::other("more connections than the load has room for")
        }
        thalweg_reactor::RejectReason::Kernel(error) => error,
    }
}

impl Handler for Driver {
    type Entry = Line;
    type Topic = ();
    type Message = ();

    fn ready(&mut self, core: &mut Core<Self>, key: Key, readiness: Readiness) {
        if readiness.writable() && core.interest(key) == Some(Interest::BOTH) {
            self.flush(core, key);
        }
        if readiness.readable() || readiness.hangup() || readiness.error() {
            self.receive(core, key);
        }
    }

    fn message(&mut self, _: &mut Core<Self>, (): ()) {}

    fn timer(&mut self, core: &mut Core<Self>, key: Key) {
        self.advance(core, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests::target;
    use thalweg_wire::http1::parse_response;

    #[test]
    fn what_one_follower_has_too_much_makes_up_for_nothing_that_another_lacks() {
        let mut shared = Shared::new(target());
        shared.published = vec![3, 5];
        let follower = |stream, records, next| Follower { stream, records, next };
        // One of a record whose answer was lost, one without its last two, one that missed one in between.
        shared.followers = vec![follower(0, 4, 4), follower(1, 3, 3), follower(1, 4, 5)];
        assert_eq!(shared.missing(), 3);
        shared.followers = vec![follower(0, 3, 3), follower(1, 5, 5)];
        assert_eq!(shared.missing(), 0);
    }

    #[test]
    fn all_has_arrived_when_nothing_is_missing_wherever_one_looked_last() {
        let mut shared = Shared::new(target());
        assert!(shared.has_all_arrived(), "nobody follows");
        shared.published = vec![2];
        shared.followers = vec![Follower { stream: 0, records: 0, next: 0 }; 3];
        for at in [1, 0, 2] {
            assert!(!shared.has_all_arrived());
            shared.followers[at] = Follower { stream: 0, records: 2, next: 2 };
        }
        assert_eq!((shared.has_all_arrived(), shared.missing()), (true, 0));
        // The last one looked at has all, and one before it does not.
        assert_eq!(shared.lacking.get(), 2);
        shared.followers[1].records = 1;
        assert_eq!((shared.has_all_arrived(), shared.lacking.get()), (false, 1));
    }

    fn refused(head: &str) -> Shared {
        let mut shared = Shared::new(target());
        let text = format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\n\r\n");
        shared.refused("read", 7, &parse_response(text.as_bytes(), false).unwrap().unwrap());
        shared
    }

    #[test]
    fn what_trying_again_does_not_change_ends_the_load_and_all_else_is_counted() {
        for status in
            ["404 Not Found", "410 Gone", "400 Bad Request", "401 Unauthorized\r\nWWW-Authenticate: Bearer"]
        {
            let shared = refused(status);
            let Some(Error::Refused { what, by_token, .. }) = &shared.refusal else { panic!("{status}") };
            assert_eq!((what.as_str(), *by_token), ("read s-7", status.starts_with("401")));
            assert_eq!(shared.counts.failed, 1);
        }
        for status in ["408 Late", "425 Early", "429 Often", "500 Broken", "503 Busy", "301 Elsewhere"] {
            let shared = refused(status);
            assert!(shared.refusal.is_none() && shared.counts.failed == 1, "{status}");
        }
    }
}
