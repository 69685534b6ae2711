//! How a connection comes about: a socket, a hello, a welcome, perhaps shared memory; again and again while
//! that may help and the time lasts.
//!
//! One machine for everybody: [`Dialer::advance`] never waits and says what to wait for. What a further
//! attempt cannot cure (no permission, another schema) ends it at once.

use super::duplex::Duplex;
use super::link::{Link, sleep_until};
use super::options::{ClientOptions, Reconnect};
use crate::error::Error;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use thalweg_sys::{process, socket};
use thalweg_transport::{Endpoint, ReadOutcome, SharedEnd, Wanted, WriteOutcome, receive_with_descriptor};
use thalweg_wire::fault::{Fault, Retry};
use thalweg_wire::frame::{HELLO_BYTES, Hello, SchemaHash, VERSION, Welcome};
use thalweg_wire::hex::Hex;

const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MOST: Duration = Duration::from_millis(50);
/// Any longer time is taken for this one, some 34 years, which the clock can express.
const FAR: Duration = Duration::from_secs(1 << 30);
/// How long an attempt that began when the time was over may wait for its welcome.
const GREETING: Duration = Duration::from_secs(1);
/// What a client of another user is told.
pub(super) const NOBODY_ELSE: &str = "takes nobody but the user who runs its server";

/// Why nothing is sent to a server of another user.
const ANOTHER_USER: &str =
    "another user runs its server, so nothing was sent: say same_user_only = false if that is meant";

/// A connection being made.
#[derive(Debug)]
pub(crate) struct Dialer {
    endpoint: Endpoint,
    hello: Option<Hello>,
    same_user_only: bool,
    spin: bool,
    until: Instant,
    pause: Duration,
    pause_most: Duration,
    /// There is one socket and no way to another.
    once: bool,
    attempt: Attempt,
}

#[derive(Debug)]
enum Attempt {
    /// Not before then.
    At(Instant),
    Greeting(Greeting),
}

impl Attempt {
    /// Until `until`, or for [`GREETING`] if that is over: a single attempt also has time to be greeted.
    fn greeting(duplex: Duplex, until: Instant) -> Self {
        let (now, received) = (Instant::now(), Vec::with_capacity(HELLO_BYTES));
        let until = if now < until { until } else { now + GREETING };
        Self::Greeting(Greeting { duplex, until, sent: 0, received, memory: None })
    }
}

/// A hello on its way, and the welcome that answers it.
#[derive(Debug)]
struct Greeting {
    duplex: Duplex,
    until: Instant,
    sent: usize,
    received: Vec<u8>,
    memory: Option<OwnedFd>,
}

impl Greeting {
    fn receive(&mut self) -> io::Result<ReadOutcome> {
        let Some(socket) = self.duplex.as_socket() else { return self.duplex.read(&mut self.received) };
        let (read, memory) = receive_with_descriptor(socket, &mut self.received)?;
        self.memory = memory.or(self.memory.take());
        Ok(read)
    }
}

/// A connection that is up.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(crate) link: Link,
    /// Items that each new stream may send; 0 where streams know no credit.
    pub(crate) credit: u32,
}

impl Dialer {
    /// Begins now.
    ///
    /// # Errors
    /// Plain frames through shared memory.
    pub(crate) fn new(endpoint: &Endpoint, options: &ClientOptions) -> Result<Self, Error> {
        let only_shared = matches!(endpoint, Endpoint::Shared(_));
        if options.plain && only_shared {
            let detail = format!("{endpoint}: plain frames do not travel through shared memory");
            return Err(Error::new(Fault::BadArgument, detail));
        }
        let hello = (!options.plain).then_some(Hello {
            version: VERSION,
            shared: only_shared || options.shared,
            ring_bytes: options.ring_bytes,
            schema: options.schema,
        });
        let (pause, pause_most) = match options.reconnect {
            Reconnect::Never => (PAUSE_FIRST, PAUSE_MOST),
            Reconnect::Backoff { first, most } => {
                let first = first.clamp(PAUSE_FIRST, FAR);
                (first, most.clamp(first, FAR))
            }
        };
        let now = Instant::now();
        let until = now + options.connect_within.min(FAR);
        Ok(Self {
            endpoint: endpoint.clone(),
            hello,
            same_user_only: options.same_user_only,
            spin: options.spin,
            until,
            pause,
            pause_most,
            once: matches!(endpoint, Endpoint::Stdio),
            attempt: Attempt::At(now),
        })
    }

    /// Begins with a connection that there is already.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) fn over(duplex: Duplex, options: &ClientOptions) -> Result<Self, Error> {
        let dialer = Self::new(&Endpoint::Stdio, options)?;
        Ok(Self { attempt: Attempt::greeting(duplex, dialer.until), ..dialer })
    }

    /// Goes on as far as it can without waiting. `None`: wait first.
    ///
    /// # Errors
    /// Why there is no connection, after the last attempt.
    pub(crate) fn advance(&mut self) -> Result<Option<Dialed>, Error> {
        let outcome = match &mut self.attempt {
            Attempt::At(at) if *at > Instant::now() => return Ok(None),
            Attempt::At(_) => self.connect(),
            Attempt::Greeting(_) => Ok(()),
        };
        let outcome = outcome.and_then(|()| self.greet());
        match (outcome, &self.attempt) {
            (Ok(None), Attempt::Greeting(greeting)) if Instant::now() >= greeting.until => {
                let detail = format!("{}: it took the connection and said nothing", self.endpoint);
                Err(Error::new(Fault::ConnectTimeout, detail))
            }
            (Ok(dialed), _) => Ok(dialed),
            (Err(error), _) => self.again(error).map(|()| None),
        }
    }

    /// Waits for what the next step needs, at most until then.
    ///
    /// # Errors
    /// A broken descriptor.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Result<(), Error> {
        match &self.attempt {
            Attempt::At(at) => sleep_until(*at, until),
            Attempt::Greeting(greeting) => {
                let until = until.map_or(greeting.until, |until| until.min(greeting.until));
                let left = until.saturating_duration_since(Instant::now());
                let wanted = Wanted::beside_unsent(greeting.sent < HELLO_BYTES);
                greeting.duplex.wait(wanted, Some(left))?;
            }
        }
        Ok(())
    }

    /// What a foreign loop watches, for writing too if that is wanted, and when it comes back in any case.
    pub(crate) fn watched(&self) -> (Option<(&Duplex, bool)>, Instant) {
        match &self.attempt {
            Attempt::At(at) => (None, *at),
            Attempt::Greeting(greeting) => {
                (Some((&greeting.duplex, greeting.sent < HELLO_BYTES)), greeting.until)
            }
        }
    }

    fn connect(&mut self) -> Result<(), Error> {
        let duplex = match &self.endpoint {
            Endpoint::Socket(path) | Endpoint::Shared(path) => {
                let socket = socket::connect_unix(path).map_err(|error| refused(&self.endpoint, error))?;
                self.recognise(socket.as_fd())?;
                Duplex::socket(socket)
            }
            Endpoint::Stdio => Duplex::standard().map_err(|error| {
                let detail =
                    "standard input or output is closed: start this program with both, or give a path";
                Error::system(Fault::BadArgument, detail, error)
            })?,
        };
        self.attempt = Attempt::greeting(duplex, self.until);
        Ok(())
    }

    /// Refuses a server that another user runs, before anything is sent to it.
    fn recognise(&self, socket: BorrowedFd<'_>) -> Result<(), Error> {
        if !self.same_user_only || socket::same_user_or_root(socket).unwrap_or(false) {
            return Ok(());
        }
        let user = socket::peer(socket).map_or_else(|_| "nobody known".into(), |peer| peer.user.to_string());
        let detail = format!("{}: {ANOTHER_USER} ({user})", self.endpoint);
        Err(Error::new(Fault::PermissionDenied, detail))
    }

    fn greet(&mut self) -> Result<Option<Dialed>, Error> {
        let ended =
            || Error::new(Fault::NoServer, format!("{}: it ended before it said welcome", self.endpoint));
        let Attempt::Greeting(greeting) = &mut self.attempt else { return Ok(None) };
        if let Some(hello) = &self.hello {
            let hello = hello.encode();
            let rest = [IoSlice::new(&hello[greeting.sent..])];
            let written = greeting.duplex.write(&rest);
            if let Ok(WriteOutcome::Bytes(count)) = written {
                greeting.sent += count;
            }
            if greeting.received.len() < HELLO_BYTES
                && greeting.receive().map_err(|_| ended())? == ReadOutcome::End
            {
                return Err(ended());
            }
            // A server that turns a client away before its hello has written why before it closed.
            if written.is_err() && greeting.received.len() < HELLO_BYTES {
                return Err(ended());
            }
            let welcome = Welcome::decode(&greeting.received).map_err(|error| {
                Error::new(error.fault(), format!("{} answered with {error}", self.endpoint))
            })?;
            let Some(welcome) = welcome else { return Ok(None) };
            return self.welcomed(&welcome).map(Some);
        }
        self.up(0, false).map(Some)
    }

    fn welcomed(&mut self, welcome: &Welcome) -> Result<Dialed, Error> {
        if welcome.fault != 0 {
            return Err(self.unwelcome(welcome));
        }
        if welcome.version != VERSION {
            let detail = format!("{} speaks version {}, this is {VERSION}", self.endpoint, welcome.version);
            return Err(Error::new(Fault::VersionMismatch, detail));
        }
        if welcome.ring_bytes == 0 && matches!(self.endpoint, Endpoint::Shared(_)) {
            let detail = format!("{} offered none, and takes nothing else", self.endpoint);
            return Err(Error::new(Fault::NoSharedMemory, detail));
        }
        self.up(welcome.credit, welcome.ring_bytes > 0)
    }

    fn unwelcome(&self, welcome: &Welcome) -> Error {
        let fault = Fault::of(welcome.fault).unwrap_or(Fault::Refused);
        let detail = match (fault, &self.hello) {
            (Fault::SchemaMismatch, Some(hello)) => format!(
                "{}: its schema is {}, this client's {}: generate both from one",
                self.endpoint,
                begin_of(&welcome.schema),
                begin_of(&hello.schema)
            ),
            (Fault::VersionMismatch, _) => {
                format!("{} speaks version {}, this is {VERSION}", self.endpoint, welcome.version)
            }
            (Fault::PermissionDenied, _) => {
                format!("{}: {NOBODY_ELSE}", self.endpoint)
            }
            _ => format!("{} said so in its welcome", self.endpoint),
        };
        Error::new(fault, detail)
    }

    fn up(&mut self, credit: u32, shared: bool) -> Result<Dialed, Error> {
        let attempt = std::mem::replace(&mut self.attempt, Attempt::At(self.until));
        let Attempt::Greeting(greeting) = attempt else {
            return Err(Error::new(Fault::System, "a welcome without a connection"));
        };
        if !shared {
            return Ok(Dialed { link: Link::over(greeting.duplex, self.spin)?, credit });
        }
        let none = || Error::new(Fault::NoSharedMemory, format!("{} handed none over", self.endpoint));
        let end = SharedEnd::adopt(greeting.memory.ok_or_else(none)?).map_err(|error| {
            let detail = format!("{} handed something else over", self.endpoint);
            Error::system(Fault::BrokenPeer, detail, error)
        })?;
        Ok(Dialed { link: Link::shared(greeting.duplex, end, self.spin), credit })
    }

    /// Tries again after a pause, if that may help and there is time.
    fn again(&mut self, error: Error) -> Result<(), Error> {
        let now = Instant::now();
        if self.once || error.retry() != Retry::Safe || now >= self.until {
            return Err(error);
        }
        // Clients that lost one server must not all come back at the same moment.
        let jitter = process::random_u64().unwrap_or(0) % 256;
        let pause = self.pause.mul_f64(0.75 + jitter as f64 / 1_024.0);
        self.attempt = Attempt::At((now + pause).min(self.until));
        self.pause = (self.pause * 2).min(self.pause_most);
        Ok(())
    }
}

/// The first bytes of a hash, enough to tell two apart.
fn begin_of(hash: &SchemaHash) -> String {
    format!("{}…", Hex(&hash[..4]))
}

/// What a refused connection means.
fn refused(endpoint: &Endpoint, error: io::Error) -> Error {
    let (fault, what) = match error.kind() {
        io::ErrorKind::NotFound => (Fault::NoServer, "there is no such path: start its server"),
        io::ErrorKind::ConnectionRefused => (Fault::NoServer, "its server is gone: start it"),
        io::ErrorKind::WouldBlock => (Fault::ConnectTimeout, "too many wait to be taken"),
        io::ErrorKind::PermissionDenied => (Fault::PermissionDenied, "run as the user who runs its server"),
        io::ErrorKind::InvalidInput => (Fault::BadArgument, "a path has no zero byte"),
        io::ErrorKind::InvalidFilename => (Fault::BadArgument, "a socket's path has at most 107 bytes"),
        _ => (Fault::System, "it could not be connected to"),
    };
    Error::system(fault, format!("{endpoint}: {what}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_told_with_the_path_and_what_to_do() {
        let endpoint: Endpoint = "run/echo.sock".parse().unwrap();
        for (kind, fault, retry) in [
            (io::ErrorKind::NotFound, Fault::NoServer, Retry::Safe),
            (io::ErrorKind::ConnectionRefused, Fault::NoServer, Retry::Safe),
            (io::ErrorKind::WouldBlock, Fault::ConnectTimeout, Retry::Safe),
            (io::ErrorKind::PermissionDenied, Fault::PermissionDenied, Retry::Never),
            (io::ErrorKind::InvalidFilename, Fault::BadArgument, Retry::Never),
            (io::ErrorKind::OutOfMemory, Fault::System, Retry::Unknown),
        ] {
            let error = refused(&endpoint, kind.into());
            assert_eq!((error.fault, error.retry()), (fault, retry));
            assert!(error.to_string().contains("run/echo.sock: "), "{error}");
        }
    }

    #[test]
    fn the_longest_pauses_that_can_be_asked_for_are_no_longer_than_the_time_there_is() {
        for first in [Duration::MAX, Duration::MAX / 2, Duration::from_secs(u64::MAX / 3)] {
            let options = ClientOptions {
                reconnect: Reconnect::Backoff { first, most: Duration::MAX },
                connect_within: Duration::MAX,
                ..ClientOptions::default()
            };
            let mut dialer = Dialer::new(&"nothing.sock".parse().unwrap(), &options).unwrap();
            for _ in 0..3 {
                dialer.again(Error::new(Fault::NoServer, "")).unwrap();
                assert!(matches!(dialer.attempt, Attempt::At(at) if at <= dialer.until), "{first:?}");
            }
        }
    }

    #[test]
    fn pauses_grow_to_their_bound_and_the_last_attempt_is_at_the_end() {
        let reconnect =
            Reconnect::Backoff { first: Duration::from_millis(2), most: Duration::from_millis(8) };
        let options = ClientOptions {
            reconnect,
            connect_within: Duration::from_secs(3_600),
            ..ClientOptions::default()
        };
        let mut dialer = Dialer::new(&"nothing.sock".parse().unwrap(), &options).unwrap();
        let safe = || Error::new(Fault::NoServer, "");
        for most in [2, 4, 8, 8] {
            dialer.again(safe()).unwrap();
            let Attempt::At(at) = dialer.attempt else { panic!("it does not pause") };
            assert!(at <= Instant::now() + Duration::from_millis(most));
        }
        dialer.until = Instant::now();
        assert_eq!(dialer.again(safe()).unwrap_err().fault, Fault::NoServer);
        dialer.until = Instant::now() + Duration::from_secs(3_600);
        let never = Error::new(Fault::SchemaMismatch, "");
        assert_eq!(dialer.again(never).unwrap_err().fault, Fault::SchemaMismatch, "trying cannot help");
    }
}
