//! Connections, what goes over them, and what waits for one.

mod waiting;

use super::answer::{Answers, Completion};
use super::connection::{Connection, KEPT_BYTES, Step};
use super::exchange::{Exchange, never_sent};
use super::left;
use super::options::{Ask, Options, Statistics};
use super::target::{SiteId, Target};
use super::targets::Targets;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};
use thalweg_service::{CallId, Error as Failure};
use thalweg_sync::patience::{ALONE_NS, Pace, Patience, QUICK_NS};
use thalweg_sys::nested::{Nested, Ready};
use thalweg_sys::socket::SLEEP_MAX;
use thalweg_wire::fault::Fault;
use waiting::Waiting;

/// A connection that was silent for longer than this is checked before it is used again. For a caller that
/// makes one call after the other a check would cost one more system call each; after a pause that does not
/// matter. If a server closes connections without notice, every connection to it is checked.
const FRESH: Duration = Duration::from_micros(100);
/// An answer may be waited for by so much longer than was said.
const BARELY: Duration = Duration::from_millis(1);
/// A request up to that leaves in as good as no time: what is left of its time is not asked anew behind it.
const AT_ONCE_BYTES: usize = 16 << 10;

pub(crate) struct Pool {
    options: Options,
    targets: Targets,
    connections: Vec<Connection>,
    /// What waits for a connection to be free.
    waiting: Waiting,
    done: VecDeque<Completion>,
    /// What a foreign loop watches, once it or a wait of ours needed it.
    nested: Option<Nested>,
    /// A foreign loop has its descriptor.
    is_watched: bool,
    /// Of connections that have something, in the order of their numbers.
    ready: Vec<Ready>,
    /// How long waits for answers took.
    pace: Pace,
    last_call: u64,
    last_id: u64,
    /// Memory of the last request, to be used again.
    room: Vec<u8>,
    statistics: Statistics,
}

impl Pool {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            targets: Targets::default(),
            connections: Vec::new(),
            waiting: Waiting::default(),
            done: VecDeque::new(),
            nested: None,
            is_watched: false,
            ready: Vec::new(),
            pace: Pace::new(QUICK_NS),
            last_call: 0,
            last_id: 0,
            room: Vec::new(),
            statistics: Statistics::default(),
        }
    }

    pub(crate) fn target(&mut self, url: &str) -> Result<Target, Failure> {
        let (connections, waiting) = (&self.connections, &self.waiting);
        let busy = || connections.iter().map(|of| of.site).chain(waiting.sites()).collect();
        self.targets.with(url, self.options.token.as_ref(), self.options.targets_max, busy)
    }

    /// Begins an exchange. It goes out at once if there is a connection for it, or may be one.
    pub(crate) fn begin(&mut self, target: Target, ask: &Ask<'_>) -> Result<CallId, Failure> {
        if self.in_flight() >= self.options.in_flight_max {
            return Err(Failure::new(Fault::Overloaded, format!("{} in flight", self.options.in_flight_max)));
        }
        let (resolved, site) = self.targets.at(ask.target.unwrap_or(target))?;
        let deadline = ask.deadline.or(self.options.deadline);
        let now = Instant::now();
        let until = deadline.and_then(|deadline| now.checked_add(deadline));
        let (name, first_id) = (CallId::from_number(self.last_call + 1), self.last_id + 1);
        let exchange = Exchange::new(name, first_id, resolved, ask, until, std::mem::take(&mut self.room))?;
        self.last_call += 1;
        self.last_id += exchange.calls;
        self.start(site, exchange, now);
        Ok(name)
    }

    /// Gives an exchange a connection, or a place among those that wait, at this moment. `false`: it could
    /// have neither, and has ended.
    fn start(&mut self, site: SiteId, exchange: Exchange, now: Instant) -> bool {
        while let Some(index) =
            self.connections.iter().rposition(|known| known.site == site && known.carries.is_none())
        {
            let connection = &mut self.connections[index];
            let idle_for = now.saturating_duration_since(connection.idle_since);
            if idle_for >= self.options.idle_for {
                self.drop_connection(index);
                continue;
            }
            let is_trusted = idle_for <= FRESH && !self.targets.sites.is_wary(site);
            if !is_trusted && !connection.is_silent() {
                self.drop_closed(index);
                continue;
            }
            connection.carry(exchange);
            self.statistics.reused += 1;
            return true;
        }
        if self.connections.iter().filter(|known| known.site == site).count() >= self.options.connections_max
        {
            self.statistics.waits += 1;
            self.waiting.add(site, exchange);
            return true;
        }
        match Connection::dial(site, self.targets.sites.addresses(site), exchange) {
            Ok(connection) => {
                self.statistics.opened += 1;
                self.connections.push(connection);
                true
            }
            Err((failure, exchange)) => {
                self.finish(exchange, Err(failure));
                false
            }
        }
    }

    fn finish(&mut self, exchange: Exchange, outcome: Result<Answers, Failure>) {
        let outcome = outcome.map_err(|failure| exchange.unanswered(failure));
        self.done.push_back(Completion { call: exchange.name, outcome });
        if exchange.text.capacity() <= KEPT_BYTES {
            self.room = exchange.text;
        }
    }

    /// Lets one connection go on, and deals with what comes of it; when anything did.
    fn advance(&mut self, index: usize, now: Instant) -> Option<Instant> {
        let step = self.connections[index].advance(now, self.options.answer_bytes_max);
        self.follow_up(index, step)
    }

    fn follow_up(&mut self, index: usize, step: Step) -> Option<Instant> {
        let connection = &mut self.connections[index];
        match step {
            Step::Waits => None,
            Step::Answered { outcome, keeps } => {
                let (site, address) = (connection.site, connection.address());
                let exchange = connection.carries.take()?;
                let now = Instant::now();
                connection.idle_since = now;
                if !keeps {
                    self.drop_connection(index);
                }
                self.targets.sites.answered(site, address);
                self.finish(exchange, outcome);
                self.free(site);
                Some(now)
            }
            Step::Ended { failure, untouched } => {
                let now = Instant::now();
                let (site, served) = (connection.site, connection.served);
                let exchange = if served > 0 && connection.has_heard_nothing() {
                    self.drop_closed(index)
                } else {
                    self.drop_connection(index)
                };
                let Some(mut exchange) = exchange else { return Some(now) };
                // A connection that had served before may have been closed for its age; a new one has no such
                // excuse.
                let may_repeat = served > 0 && !exchange.is_again && (untouched || exchange.is_idempotent);
                if may_repeat {
                    self.statistics.retried += 1;
                    (exchange.is_again, exchange.has_left) = (true, !untouched);
                    if self.start(site, exchange, now) {
                        return Some(now);
                    }
                } else {
                    self.finish(exchange, Err(failure));
                }
                self.free(site);
                Some(now)
            }
        }
    }

    /// A connection to this host may be free: what waits for one gets it, and what is idle beyond its bound
    /// goes.
    fn free(&mut self, site: SiteId) {
        // Where one cannot even begin to connect, the next is tried: nothing else would come back to it.
        while let Some(exchange) = self.waiting.take_for(site) {
            let waited = self.statistics.waits;
            let is_under_way = self.start(site, exchange, Instant::now());
            // One that goes on waiting is counted once.
            self.statistics.waits = waited;
            if is_under_way {
                return;
            }
        }
        let is_idle = |known: &Connection| known.carries.is_none();
        while self.connections.iter().filter(|known| is_idle(known)).count() > self.options.idle_max {
            let idle = self.connections.iter().enumerate().filter(|(_, known)| is_idle(known));
            let Some((longest, _)) = idle.min_by_key(|(_, known)| known.idle_since) else { return };
            self.drop_connection(longest);
        }
    }

    /// Drops a kept connection that the server turned out to have closed. It said nothing of it, so those
    /// that are kept from now on are looked at first.
    fn drop_closed(&mut self, index: usize) -> Option<Exchange> {
        self.targets.sites.beware(self.connections[index].site);
        self.drop_connection(index)
    }

    /// Drops a connection. What it carried is the caller's.
    fn drop_connection(&mut self, index: usize) -> Option<Exchange> {
        let connection = self.connections.remove(index);
        self.statistics.closed += 1;
        if connection.carries.is_some() && connection.served > 0 && connection.is_untouched() {
            // It was to be used again, and was not.
            self.statistics.reused -= 1;
        }
        connection.carries
    }

    /// Whether an exchange is under way, or what came of it is still to be taken.
    pub(crate) fn knows(&self, name: CallId) -> bool {
        self.done.iter().any(|done| done.call == name)
            || self.waiting.contains(name)
            || self.connections.iter().any(|known| known.carries.as_ref().is_some_and(|e| e.name == name))
    }

    /// What came of one exchange; nothing, once something else has happened.
    pub(crate) fn listen(&mut self, name: CallId) -> Option<Result<Answers, Failure>> {
        let taken = |pool: &mut Self| {
            let index = pool.done.iter().position(|done| done.call == name)?;
            pool.done.remove(index).map(|done| done.outcome)
        };
        if let Some(outcome) = taken(self) {
            return Some(outcome);
        }
        let waited = match &self.connections[..] {
            // The only one there is: nothing else is to be heard.
            [only] if only.carries.as_ref().is_some_and(|exchange| exchange.name == name) => {
                self.wait_alone()
            }
            _ => self.turn(None),
        };
        match waited {
            Ok(()) => taken(self),
            Err(failure) => {
                // The caller will not ask again.
                self.cancel(name);
                Some(Err(failure))
            }
        }
    }

    /// Waits for the one connection there is.
    fn wait_alone(&mut self) -> Result<(), Failure> {
        let mut began = Instant::now();
        let Some(connection) = self.connections.first_mut() else { return Ok(()) };
        let is_long = connection.carries.as_ref().is_some_and(|exchange| exchange.text.len() > AT_ONCE_BYTES);
        match connection.send(began, self.options.answer_bytes_max) {
            Some(Step::Waits) => {}
            Some(step) => {
                self.follow_up(0, step);
                return Ok(());
            }
            None => {}
        }
        if is_long {
            began = Instant::now();
        }
        let looks = self.options.spin && self.pace.is_quick();
        let over = if looks { self.look() } else { None };
        let over = match over {
            Some(_) => over,
            None if looks => self.sleep(Instant::now())?,
            None => self.sleep(began)?,
        };
        if self.options.spin {
            let over = over.unwrap_or_else(Instant::now);
            let waited = over.saturating_duration_since(began);
            self.pace.record(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    /// Sleeps, from now on; when anything came of it.
    fn sleep(&mut self, now: Instant) -> Result<Option<Instant>, Failure> {
        let Some(connection) = self.connections.first_mut() else { return Ok(None) };
        let until = connection.carries.as_ref().and_then(|exchange| exchange.until);
        let left = until.map(|until| until.saturating_duration_since(now));
        if left == Some(Duration::ZERO) {
            self.expire();
            return Ok(None);
        }
        if connection.waits_to_write() {
            let left = super::left(until.into_iter().chain(connection.wakes_at()).min());
            thalweg_sys::socket::wait(connection.socket(), true, left)?;
            return Ok(self.advance(0, Instant::now()));
        }
        // Told once for calls that are given equally long: by the time they have, as long as next to nothing
        // of it is gone.
        let whole = self
            .options
            .deadline
            .filter(|whole| left.is_some_and(|left| left <= *whole && left + BARELY >= *whole));
        let step = connection.read_waiting(whole.or(left), self.options.answer_bytes_max);
        Ok(self.follow_up(0, step))
    }

    /// Looks for a moment whether an answer comes; when one did.
    fn look(&mut self) -> Option<Instant> {
        // The server is at work meanwhile, so that these clocks cost nothing.
        let mut patience = Patience::for_peer(ALONE_NS);
        while !self.connections.is_empty() {
            let over = self.advance(0, Instant::now());
            if over.is_some() || !patience.lasts() {
                return over;
            }
        }
        None
    }

    /// One turn, which waits until then at most for something to come of an exchange, beside what came
    /// already. Only connections that the kernel tells of are read.
    pub(crate) fn turn(&mut self, until: Option<Instant>) -> Result<(), Failure> {
        self.nest()?;
        let before = self.done.len();
        loop {
            self.send_begun();
            self.expire();
            let wakes = self.wakes_at();
            // Where something came, or nothing is to come, what is there is read and nothing waited for.
            let waits = self.done.len() == before && self.in_flight() > 0;
            let left = left(until.into_iter().chain(wakes).min()).unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
            let left = if waits { left } else { Duration::ZERO };
            if !self.hear(wakes, left)? {
                // The end of the wait, or a signal, which the caller may have to handle.
                self.expire();
                break;
            }
            if left == Duration::ZERO || self.done.len() > before {
                break;
            }
        }
        self.tell_loop()
    }

    /// Has what was begun leave, and goes on connecting.
    fn send_begun(&mut self) {
        // From the last to the first, because one that ends is taken out.
        for index in (0..self.connections.len()).rev() {
            let Some(connection) = self.connections.get_mut(index).filter(|known| known.may_go_on()) else {
                continue;
            };
            // Sending what was long may have taken a while.
            if let Some(step) = connection.send(Instant::now(), self.options.answer_bytes_max) {
                self.follow_up(index, step);
            }
        }
    }

    /// Waits so long at most for connections that have something, and lets them go on. `false`: there was
    /// nothing.
    fn hear(&mut self, wakes: Option<Instant>, left: Duration) -> Result<bool, Failure> {
        self.watch_sockets()?;
        let Some(nested) = &mut self.nested else { return Ok(false) };
        self.ready.clear();
        let is_something = nested.wait(wakes, Some(left), &mut self.ready)?;
        self.ready.sort_unstable_by_key(|ready| ready.number);
        let now = Instant::now();
        for index in (0..self.connections.len()).rev() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            let number = connection.socket().as_raw_fd();
            let Ok(at) = self.ready.binary_search_by_key(&number, |ready| ready.number) else { continue };
            if connection.carries.is_none() {
                if !connection.is_silent() {
                    self.drop_closed(index);
                }
            } else if self.ready[at].readable {
                self.advance(index, now);
            } else if let Some(step) = connection.send(now, self.options.answer_bytes_max) {
                self.follow_up(index, step);
            }
        }
        Ok(is_something)
    }

    /// Has the foreign loop, if there is one, look when a turn has something to do.
    fn tell_loop(&mut self) -> Result<(), Failure> {
        if !self.is_watched {
            return Ok(());
        }
        self.watch_sockets()?;
        let wakes = if self.done.is_empty() { self.wakes_at() } else { Some(Instant::now()) };
        if let Some(nested) = &mut self.nested {
            nested.due(wakes)?;
        }
        Ok(())
    }

    /// Ends what was waited for long enough, and what was idle for long enough. An answer that is there is
    /// taken all the same: its caller may be late itself, and the server has done what was asked.
    fn expire(&mut self) {
        let now = Instant::now();
        // What waits goes first: what others leave behind is not for what is over.
        while let Some(exchange) = self.waiting.take_overdue(now) {
            self.finish(exchange, Err(never_sent("no connection was free in time")));
        }
        // From the last to the first: of those that are left none is passed over where others are taken out.
        for index in (0..self.connections.len()).rev() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            let is_over = match &connection.carries {
                Some(exchange) => exchange.until.is_some_and(|until| until <= now),
                None => now.saturating_duration_since(connection.idle_since) >= self.options.idle_for,
            };
            if !is_over {
                continue;
            }
            if connection.carries.is_some()
                && !connection.is_untouched()
                && let answered @ Step::Answered { .. } = connection.read(self.options.answer_bytes_max)
            {
                self.follow_up(index, answered);
                continue;
            }
            let (site, failure) = (connection.site, connection.overdue());
            // Its answer would have no receiver.
            if let Some(exchange) = self.drop_connection(index) {
                self.finish(exchange, Err(failure));
                self.free(site);
            }
        }
    }

    /// When something is overdue next.
    fn wakes_at(&self) -> Option<Instant> {
        let carried = self.connections.iter().filter_map(|known| match &known.carries {
            Some(exchange) => exchange.until.into_iter().chain(known.wakes_at()).min(),
            None => known.idle_since.checked_add(self.options.idle_for),
        });
        carried.chain(self.waiting.next_end()).min()
    }

    fn nest(&mut self) -> Result<(), Failure> {
        if self.nested.is_none() {
            self.nested = Some(Nested::new()?);
        }
        Ok(())
    }

    fn watch_sockets(&mut self) -> Result<(), Failure> {
        let Some(nested) = &self.nested else { return Ok(()) };
        for connection in &mut self.connections {
            let wanted = Some(connection.wanted());
            nested.watch(connection.socket(), connection.watched, wanted)?;
            connection.watched = wanted;
        }
        Ok(())
    }

    pub(crate) fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Failure> {
        self.nest()?;
        self.is_watched = true;
        self.tell_loop()?;
        match &self.nested {
            Some(nested) => Ok(nested.as_fd()),
            None => Err(Failure::new(Fault::System, "no descriptor to watch")),
        }
    }

    pub(crate) fn next(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    /// How many outcomes are there to be taken.
    pub(crate) fn outcomes(&self) -> usize {
        self.done.len()
    }

    pub(crate) fn cancel(&mut self, name: CallId) {
        let carries =
            |known: &Connection| known.carries.as_ref().is_some_and(|exchange| exchange.name == name);
        if let Some(index) = self.connections.iter().position(carries) {
            let site = self.connections[index].site;
            self.drop_connection(index);
            self.free(site);
        }
        self.waiting.remove(name);
        self.done.retain(|done| done.call != name);
    }

    pub(crate) fn close(&mut self, failure: &Failure) {
        while let Some(last) = self.connections.len().checked_sub(1) {
            if let Some(exchange) = self.drop_connection(last) {
                self.finish(exchange, Err(failure.clone()));
            }
        }
        while let Some(exchange) = self.waiting.take_first() {
            self.finish(exchange, Err(failure.clone()));
        }
    }

    /// Memory for the next answer.
    pub(crate) fn give_room(&mut self, room: Vec<u8>) {
        if let Some(idle) = self.connections.iter_mut().rfind(|known| known.carries.is_none()) {
            idle.give_room(room);
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.waiting.len() + self.connections.iter().filter(|known| known.carries.is_some()).count()
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let idle = self.connections.iter().filter(|known| known.carries.is_none()).count();
        Statistics { idle, connections: self.connections.len(), ..self.statistics }
    }
}

/// Without what is sent, and the memory of it: a token is in there.
impl fmt::Debug for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<_> = self.targets.urls().collect();
        out.debug_struct("Pool")
            .field("options", &self.options)
            .field("targets", &urls)
            .field("in_flight", &self.in_flight())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
