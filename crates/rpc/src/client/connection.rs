//! One connection: at most one exchange at a time goes over it.

use super::answer::{self, Answers};
use super::dialing::{Dialing, Line};
use super::exchange::{Exchange, never_sent};
use super::target::SiteId;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thalweg_service::Error as Failure;
use thalweg_sys::epoll::Watch;
use thalweg_sys::socket;
use thalweg_wire::fault::Fault;
use thalweg_wire::http1::{Arrival, ArrivalError, CompleteResponse};
use thalweg_wire::problem;

/// Room for one read.
const READ_BYTES: usize = 16 * 1024;
/// Of a refusal that is no problem document.
const REFUSAL_CHARACTERS_MAX: usize = 200;
/// A buffer that one exchange made larger is freed.
pub(crate) const KEPT_BYTES: usize = 256 * 1024;

#[cfg(test)]
thread_local! {
    /// How often this thread asked the kernel whether a connection has something.
    pub(crate) static READS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[derive(Debug)]
pub(crate) struct Connection {
    line: Line,
    /// The host at the other end.
    pub(crate) site: SiteId,
    /// Set until the connection is established.
    dialing: Option<Dialing>,
    pub(crate) carries: Option<Exchange>,
    /// Bytes of its request that the kernel took.
    written: usize,
    input: Vec<u8>,
    /// How far the answer in it has come.
    arrival: Arrival,
    /// Exchanges that it served.
    pub(crate) served: u64,
    /// Since when nothing goes over it.
    pub(crate) idle_since: Instant,
    /// How long a read waits, as the kernel was told.
    patience: Option<Duration>,
    /// What it is watched for, if it is.
    pub(crate) watched: Option<Watch>,
}

/// What became of the exchange that a connection carries.
#[derive(Debug)]
pub(crate) enum Step {
    /// It goes on once the socket can be read, or written to.
    Waits,
    /// The answer is there. `keeps`: the connection can be used again.
    Answered { outcome: Result<Answers, Failure>, keeps: bool },
    /// The connection ended. `untouched`: before a byte of the request had left.
    Ended { failure: Failure, untouched: bool },
}

impl Connection {
    /// Begins to connect, to the first of these addresses that accepts.
    pub(crate) fn dial(
        site: SiteId,
        addresses: VecDeque<SocketAddr>,
        exchange: Exchange,
    ) -> Result<Self, (Failure, Exchange)> {
        match Dialing::begin(addresses, exchange.until) {
            Ok((dialing, line)) => Ok(Self {
                line,
                site,
                dialing: Some(dialing),
                carries: Some(exchange),
                written: 0,
                input: Vec::new(),
                arrival: Arrival::default(),
                served: 0,
                idle_since: Instant::now(),
                patience: None,
                watched: None,
            }),
            Err(failure) => Err((failure, exchange)),
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.line.socket.as_fd()
    }

    /// The address that it has come to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.line.address
    }

    /// When to let it go on though nothing happened.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        self.dialing.as_ref().and_then(Dialing::wakes_at)
    }

    /// Why what it carries, whose time is over, has no answer.
    pub(crate) fn overdue(&mut self) -> Failure {
        let is_untouched = self.is_untouched();
        match &mut self.dialing {
            Some(dialing) => dialing.overdue(self.line.address),
            None if is_untouched => never_sent("nothing could be sent in time"),
            None => Failure::new(Fault::DeadlineExceeded, ""),
        }
    }

    /// Takes an exchange on.
    pub(crate) fn carry(&mut self, exchange: Exchange) {
        self.written = 0;
        self.arrival.begin();
        self.carries = Some(exchange);
    }

    /// Whether no byte of what it carries has left.
    pub(crate) fn is_untouched(&self) -> bool {
        self.written == 0
    }

    /// Whether it waits to write; else to read.
    pub(crate) fn waits_to_write(&self) -> bool {
        self.dialing.is_some()
            || self.carries.as_ref().is_some_and(|exchange| self.written < exchange.text.len())
    }

    /// What it waits for.
    pub(crate) fn wanted(&self) -> Watch {
        if self.waits_to_write() { Watch::BOTH } else { Watch::READ }
    }

    /// Whether it may go on though the kernel tells nothing of it: what it waits for is new, or the time has
    /// come at which it tries something else.
    pub(crate) fn may_go_on(&self) -> bool {
        self.watched != Some(self.wanted()) || self.wakes_at().is_some_and(|at| at <= Instant::now())
    }

    /// Whether nothing came while nothing was asked: a server that closed has said so, and one that sends
    /// unasked is none.
    pub(crate) fn is_silent(&mut self) -> bool {
        #[cfg(test)]
        READS.with(|reads| reads.set(reads.get() + 1));
        self.input.clear();
        self.input.reserve(1);
        matches!(socket::receive(self.line.socket.as_fd(), &mut self.input, 1), Ok(None))
    }

    /// Whether no byte of an answer to what it carries has come.
    pub(crate) fn has_heard_nothing(&self) -> bool {
        self.input.is_empty()
    }

    /// Goes on as far as it can without waiting. A server may answer before it has taken the whole request,
    /// and take no more of it then.
    pub(crate) fn advance(&mut self, now: Instant, answer_bytes_max: usize) -> Step {
        match self.send(now, answer_bytes_max) {
            Some(Step::Waits) if self.is_untouched() => Step::Waits,
            Some(Step::Waits) | None => self.read(answer_bytes_max),
            Some(step) => step,
        }
    }

    /// Goes on until the whole request has left; then `None`. `now` says whether its time is over before it
    /// is begun.
    pub(crate) fn send(&mut self, now: Instant, answer_bytes_max: usize) -> Option<Step> {
        if let Some(dialing) = &mut self.dialing {
            let before = self.line.address;
            let heard = dialing.look(&mut self.line);
            if self.line.address != before {
                self.watched = None;
            }
            match heard {
                Ok(true) => self.dialing = None,
                Ok(false) => return Some(Step::Waits),
                Err(failure) => return Some(self.ended(failure)),
            }
        }
        // A call whose deadline has passed is not begun.
        if self.is_untouched() && self.carries.as_ref().is_some_and(|exchange| exchange.is_overdue(now)) {
            return Some(Step::Waits);
        }
        match self.write() {
            Ok(true) => None,
            Ok(false) => Some(Step::Waits),
            Err(error) => Some(self.cut_off(error, answer_bytes_max)),
        }
    }

    /// The server takes no more of the request. It may have said why.
    fn cut_off(&mut self, error: io::Error, answer_bytes_max: usize) -> Step {
        if !self.is_untouched()
            && let answered @ Step::Answered { .. } = self.read(answer_bytes_max)
        {
            return answered;
        }
        self.ended(gone(error))
    }

    /// Writes what can be written now; whether that was all.
    fn write(&mut self) -> io::Result<bool> {
        let Some(exchange) = &self.carries else { return Ok(true) };
        while let Some(rest) = exchange.text.get(self.written..).filter(|rest| !rest.is_empty()) {
            match socket::send(self.line.socket.as_fd(), rest)? {
                Some(count) => self.written += count,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Reads what is there.
    pub(crate) fn read(&mut self, answer_bytes_max: usize) -> Step {
        loop {
            #[cfg(test)]
            READS.with(|reads| reads.set(reads.get() + 1));
            self.make_room();
            let room = self.input.capacity() - self.input.len();
            match socket::receive(self.line.socket.as_fd(), &mut self.input, usize::MAX) {
                Ok(None) => return Step::Waits,
                Ok(Some(count)) => match self.take(count, answer_bytes_max) {
                    // A read that left room took all there was.
                    Step::Waits if count < room => return Step::Waits,
                    Step::Waits => {}
                    step => return step,
                },
                Err(error) => return self.ended(gone(error)),
            }
        }
    }

    /// Waits for something to read, and reads it, by one call of the kernel. For a thread that has nothing
    /// else to do.
    pub(crate) fn read_waiting(&mut self, left: Option<Duration>, answer_bytes_max: usize) -> Step {
        if self.patience != left {
            // Without a limit it would wait for longer, never for less.
            if socket::set_receive_patience(self.line.socket.as_fd(), left).is_err() {
                return Step::Waits;
            }
            self.patience = left;
        }
        self.make_room();
        match socket::receive_waiting(self.line.socket.as_fd(), &mut self.input) {
            Ok(None) => Step::Waits,
            Ok(Some(count)) => self.take(count, answer_bytes_max),
            Err(error) => self.ended(gone(error)),
        }
    }

    fn make_room(&mut self) {
        if self.input.capacity() - self.input.len() < READ_BYTES / 4 {
            self.input.reserve(READ_BYTES);
        }
    }

    /// Looks at what was read.
    fn take(&mut self, count: usize, answer_bytes_max: usize) -> Step {
        if count == 0 {
            return self.ended(Failure::new(Fault::Disconnected, "the server closed the connection"));
        }
        let CompleteResponse { status, body, keep_alive } =
            match self.arrival.look(&mut self.input, answer_bytes_max) {
                Ok(Some(whole)) => whole,
                // A server of ours says where its answer ends; another's may have been cut off anywhere.
                Ok(None) if self.arrival.needs_end() => {
                    return self.unreadable(bad("the answer does not say where it ends"));
                }
                Ok(None) => return Step::Waits,
                Err(error) => return self.unreadable(unread(error)),
            };
        if self.input.len() > body.end {
            return self.unreadable(bad("the answer goes on behind its end"));
        }
        let Some(exchange) = &self.carries else {
            return self.unreadable(bad("an answer that nobody asked for"));
        };
        self.served += 1;
        let input = std::mem::take(&mut self.input);
        let outcome = match (status, exchange.calls) {
            (200, 1..) => answer::read(exchange, input, body),
            (200 | 202 | 204, 0) => answer::read_none(input, body),
            _ => Err(refusal(status, input.get(body).unwrap_or_default())),
        };
        // Of a request that was answered early the server may still await the rest.
        let is_written = self.written == exchange.text.len();
        let keeps = keep_alive
            && is_written
            && !matches!(&outcome, Err(failure) if failure.fault == Fault::BadAnswer);
        Step::Answered { outcome, keeps }
    }

    /// Memory for what comes.
    pub(crate) fn give_room(&mut self, mut room: Vec<u8>) {
        room.clear();
        if room.capacity() > self.input.capacity() && room.capacity() <= KEPT_BYTES {
            self.input = room;
        }
    }

    /// The connection ended. What left may have been carried out, whatever the kernel says of it; nothing
    /// else can.
    fn ended(&mut self, failure: Failure) -> Step {
        let untouched = self.written == 0;
        let fault =
            if untouched && failure.fault == Fault::Disconnected { Fault::NotSent } else { failure.fault };
        Step::Ended { failure: Failure { fault, ..failure }, untouched }
    }

    /// The connection cannot be used any more, and the answer is lost.
    fn unreadable(&mut self, failure: Failure) -> Step {
        Step::Answered { outcome: Err(failure), keeps: false }
    }
}

/// A status that is no answer, with what the server says about it.
fn refusal(status: u16, body: &[u8]) -> Failure {
    let fault = match status {
        401 | 403 | 421 => Fault::PermissionDenied,
        404 | 405 | 415 => Fault::BadArgument,
        413 => Fault::FrameTooLarge,
        408 | 429 | 503 => Fault::Overloaded,
        _ => Fault::BadAnswer,
    };
    let says = problem::told(body)
        .unwrap_or_else(|| String::from_utf8_lossy(body).chars().take(REFUSAL_CHARACTERS_MAX).collect());
    Failure::new(fault, format!("HTTP status {status}: {says}"))
}

fn unread(error: ArrivalError) -> Failure {
    let fault = match error {
        ArrivalError::TooLong(_) => Fault::FrameTooLarge,
        ArrivalError::Head(_) | ArrivalError::Chunks | ArrivalError::Between => Fault::BadAnswer,
    };
    Failure::new(fault, error.to_string())
}

fn bad(what: &str) -> Failure {
    Failure::new(Fault::BadAnswer, what)
}

fn gone(error: io::Error) -> Failure {
    Failure::system(Fault::Disconnected, "", error)
}

#[cfg(test)]
mod tests {
    use super::super::options::Ask;
    use super::super::target::ResolvedUrl;
    use super::*;
    use thalweg_service::CallId;

    #[test]
    fn a_refusal_is_told_by_its_detail() {
        let says = |body: &str| refusal(404, body.as_bytes()).detail;
        assert_eq!(
            says(r#"{"status":404,"detail":"no service is here"}"#),
            "HTTP status 404: no service is here"
        );
        assert_eq!(says(&"a page ".repeat(100)).len(), "HTTP status 404: ".len() + REFUSAL_CHARACTERS_MAX);
    }

    /// A request is one write, whose last bytes must not wait for what the peer says of the first.
    #[test]
    fn what_is_written_leaves_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let resolved =
            ResolvedUrl::of(&format!("http://{}/x", listener.local_addr().unwrap()), None).unwrap();
        let exchange =
            Exchange::new(CallId::from_number(1), 1, &resolved, &Ask::one("m", ""), None, Vec::new())
                .unwrap();
        let connection = Connection::dial(SiteId(0), resolved.addresses.into(), exchange).unwrap();
        assert!(socket::no_delay(connection.socket()).unwrap());
    }
}
