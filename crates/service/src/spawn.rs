//! A service's program, started, waited for, watched and ended.
//!
//! Ready means that its endpoint answers: a connection is made and greeted, while its end is watched for at
//! the same time. So nothing sleeps in the hope that enough time has passed, and a program that dies says so
//! at once, with its exit and the end of its log.
//!
//! Ownership: a [`Spawned`] owns the child and ends it when it is dropped. The kernel kills the child when
//! the thread that started it ends: start services from a thread that outlives them, such as the main thread.
//! There is no thread here: a caller that wants a dead program restarted calls [`Spawned::tend`] when
//! [`Spawned::descriptor`] is readable, or before it uses the program.

use crate::client::{Client, ClientOptions, Duplex};
use crate::error::Error;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg_reactor::Wait;
use thalweg_sys::child::{Child, Program, log_bytes, log_tail};
use thalweg_sys::socket::{self, SLEEP_MAX};
use thalweg_transport::Endpoint;
use thalweg_wire::fault::Fault;

pub use thalweg_sys::child::Exit;

/// How much of a log an error quotes.
const TAIL_BYTES: u64 = 2_048;

/// Why an end is not known.
const UNKNOWN: &str = "this process ignores SIGCHLD, or waits elsewhere for all its children";

/// How a program is started, and what happens when it does not do as it should.
#[derive(Clone, Debug)]
pub struct SpawnOptions {
    /// What it is told.
    pub arguments: Vec<OsString>,
    /// Variables it gets beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; else where this process does.
    pub directory: Option<PathBuf>,
    /// Where its output and its errors are appended, to be quoted when it fails; else they go where those of
    /// this process go.
    pub log: Option<PathBuf>,
    /// How long it may take until its endpoint answers.
    pub ready_within: Duration,
    /// It speaks plain frames only: a connection is all the answer there is.
    pub plain: bool,
    /// What speaks over its standard input and output gets two pipes, and not a socket.
    pub pipes: bool,
    /// How long it may take to end when it is asked to, before it is killed.
    pub end_within: Duration,
    /// What to do when it ends unasked.
    pub respawn: Respawn,
}

impl Default for SpawnOptions {
    fn default() -> Self {
        Self {
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            log: None,
            ready_within: Duration::from_secs(10),
            plain: false,
            pipes: false,
            end_within: Duration::from_secs(5),
            respawn: Respawn::Never,
        }
    }
}

/// What [`Spawned::tend`] does when the program ended unasked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Respawn {
    /// It stays ended.
    #[default]
    Never,
    /// It is started anew, unless that happened `most` times `within` this long.
    Limited {
        /// The most restarts.
        most: u32,
        /// In any period of this length.
        within: Duration,
    },
}

/// What [`Spawned::tend`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEvent {
    /// It runs.
    Running,
    /// It had ended so, and a new one answers.
    Respawned(Exit),
}

/// A program that serves an endpoint.
///
/// ```no_run
/// use thalweg_service::{ClientOptions, SpawnOptions, Spawned};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = SpawnOptions { log: Some("run/echo.log".into()), ..SpawnOptions::default() };
/// let mut echo = Spawned::start("echo-server", "run/echo.sock".parse()?, options)?;
/// let client = echo.connect(ClientOptions::default())?;
/// drop(client);
/// echo.stop()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Spawned {
    program: OsString,
    endpoint: Endpoint,
    options: SpawnOptions,
    child: Option<Child>,
    /// To a program that speaks over its standard input and output, until it is connected.
    duplex: Option<Duplex>,
    /// How long the log was when the program was started.
    log_from: u64,
    /// When it was started anew.
    respawns: VecDeque<Instant>,
    exit: Option<Exit>,
    /// It was told to end, and is not to be started anew.
    stopped: bool,
}

impl Spawned {
    /// Starts a program and waits until its endpoint answers. With [`Endpoint::Stdio`] it gets a socket as
    /// its standard input and output, or a pipe each, over which [`Spawned::connect`] speaks once.
    ///
    /// # Errors
    /// [`Fault::BadArgument`] where there is no such program, [`Fault::PermissionDenied`] where it may not be
    /// run, [`Fault::AddressInUse`] where another server answers already, [`Fault::NoServer`] when it ended
    /// before it answered, [`Fault::ConnectTimeout`] when it did not answer in time and was ended. Each with
    /// how it ended and the end of its log.
    pub fn start(
        program: impl Into<OsString>,
        endpoint: Endpoint,
        options: SpawnOptions,
    ) -> Result<Self, Error> {
        Self::start_interruptible(program, endpoint, options, &mut || false)
    }

    /// The same, unless it is `interrupted`: that is asked before every sleep, none of which outlasts a
    /// signal or a second. Once it says so, the program is killed.
    ///
    /// # Errors
    /// As [`Spawned::start`]; [`Fault::Cancelled`]: it was interrupted.
    pub fn start_interruptible(
        program: impl Into<OsString>,
        endpoint: Endpoint,
        options: SpawnOptions,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Self, Error> {
        let mut spawned = Self {
            program: program.into(),
            endpoint,
            options,
            child: None,
            duplex: None,
            log_from: 0,
            respawns: VecDeque::new(),
            exit: None,
            stopped: false,
        };
        spawned.launch(&mut Patience::new(interrupted))?;
        Ok(spawned)
    }

    /// Where it serves.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its process, while there is one.
    pub fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How it ended, once it did.
    pub fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// Readable when the program ended. Another one after it was started anew.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.child.as_ref().map(AsFd::as_fd)
    }

    /// Looks whether it still runs, and starts it anew if it does not and may be.
    ///
    /// # Errors
    /// [`Fault::NoServer`]: it ended, and stays so; [`Fault::Closed`]: it was stopped; as [`Spawned::start`]
    /// when a new one did not come up.
    pub fn tend(&mut self) -> Result<ProgramEvent, Error> {
        self.tend_interruptible(&mut || false)
    }

    /// The same, unless it is interrupted while a new one comes up: see [`Spawned::start_interruptible`].
    ///
    /// # Errors
    /// As [`Spawned::tend`]; [`Fault::Cancelled`]: it was interrupted.
    pub fn tend_interruptible(
        &mut self,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<ProgramEvent, Error> {
        if self.stopped {
            return Err(Error::new(Fault::Closed, "the program was stopped"));
        }
        let exit = match (&mut self.child, self.exit) {
            (Some(child), _) => match child.wait(Some(Duration::ZERO)) {
                Ok(None) => return Ok(ProgramEvent::Running),
                Ok(Some(exit)) => exit,
                Err(error) => return Err(error.into()),
            },
            (None, Some(exit)) => exit,
            (None, None) => return Err(Error::new(Fault::NoServer, "it never ran")),
        };
        self.child = None;
        self.exit = Some(exit);
        let Respawn::Limited { most, within } = self.options.respawn else {
            return Err(self.ended(exit, ""));
        };
        let now = Instant::now();
        self.respawns.retain(|at| now.saturating_duration_since(*at) < within);
        if self.respawns.len() >= most as usize {
            return Err(self.ended(exit, &format!(", {most} times within {} s", within.as_secs_f64())));
        }
        self.respawns.push_back(now);
        self.launch(&mut Patience::new(interrupted))?;
        Ok(ProgramEvent::Respawned(exit))
    }

    /// Tends the program, then connects to it.
    ///
    /// # Errors
    /// As [`Spawned::tend`] and [`Client::connect`].
    pub fn connect(&mut self, options: ClientOptions) -> Result<Client, Error> {
        self.tend()?;
        if self.endpoint != Endpoint::Stdio {
            return Client::connect(&self.endpoint, options);
        }
        Client::over_duplex(self.take_duplex()?, options)
    }

    /// Begins to connect to the program, as [`Client::begin`] does, and does not tend it. Over its standard
    /// input and output, once.
    ///
    /// # Errors
    /// [`Fault::BadArgument`]. Over its standard input and output: [`Fault::Closed`] where it was stopped,
    /// [`Fault::NoServer`] where it does not run, or they are connected already.
    pub fn begin_connecting(&mut self, options: ClientOptions) -> Result<Client, Error> {
        if self.endpoint != Endpoint::Stdio {
            return Client::begin(&self.endpoint, options);
        }
        Client::begin_over(self.take_duplex()?, options)
    }

    fn take_duplex(&mut self) -> Result<Duplex, Error> {
        if self.stopped {
            return Err(Error::new(Fault::Closed, "the program was stopped"));
        }
        if self.child.is_none() {
            return Err(Error::new(Fault::NoServer, "it does not run"));
        }
        let spoken = || Error::new(Fault::NoServer, "its standard input and output are connected already");
        self.duplex.take().ok_or_else(spoken)
    }

    /// Ends one that does not do as it should and starts it anew: asks it to end, kills it when it does not.
    ///
    /// # Errors
    /// As [`Spawned::start`].
    pub fn restart(&mut self) -> Result<(), Error> {
        self.restart_interruptible(&mut || false)
    }

    /// The same, unless it is interrupted: see [`Spawned::start_interruptible`]. None runs then.
    ///
    /// # Errors
    /// As [`Spawned::start_interruptible`].
    pub fn restart_interruptible(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        let mut patience = Patience::new(interrupted);
        self.end(&mut patience)?;
        self.stopped = false;
        self.launch(&mut patience)
    }

    /// Asks the program to end, and kills it when it has not within [`SpawnOptions::end_within`]; how it
    /// ended. It is started anew by [`Spawned::restart`] only.
    ///
    /// # Errors
    /// The operating system failed.
    pub fn stop(&mut self) -> Result<Option<Exit>, Error> {
        self.stop_interruptible(&mut || false)
    }

    /// The same. Once it is interrupted, the program has no more time and is killed: see
    /// [`Spawned::start_interruptible`].
    ///
    /// # Errors
    /// As [`Spawned::stop`].
    pub fn stop_interruptible(
        &mut self,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Exit>, Error> {
        Ok(self.end(&mut Patience::new(interrupted))?)
    }

    fn end(&mut self, patience: &mut Patience<'_>) -> io::Result<Option<Exit>> {
        self.duplex = None;
        self.stopped = true;
        if let Some(mut child) = self.child.take() {
            self.exit = end(&mut child, self.options.end_within, patience)?;
        }
        Ok(self.exit)
    }

    fn launch(&mut self, patience: &mut Patience<'_>) -> Result<(), Error> {
        if patience.is_over() {
            return Err(interrupted());
        }
        if is_taken(&self.endpoint) {
            return Err(Error::new(Fault::AddressInUse, format!("{}: end that one first", self.endpoint)));
        }
        let options = &self.options;
        self.log_from = options.log.as_deref().map_or(0, log_bytes);
        let (mut duplex, mut standard) = (None, None);
        if self.endpoint == Endpoint::Stdio {
            let (ours, theirs) = if options.pipes { piped()? } else { connected()? };
            (duplex, standard) = (Some(ours), Some(theirs));
        }
        let program = Program {
            name: self.program.clone(),
            arguments: options.arguments.clone(),
            environment: options.environment.clone(),
            directory: options.directory.clone(),
            log: options.log.clone(),
            standard,
        };
        let mut child = Child::start(program).map_err(|error| self.not_started(error))?;
        if let Err(mut unready) = self.await_ready(&mut child, patience) {
            match end(&mut child, self.options.end_within, patience) {
                Ok(exit) => self.exit = exit,
                Err(error) => {
                    let _ = write!(unready.detail, "\nwhat became of it cannot be learned: {error}");
                }
            }
            return Err(unready);
        }
        self.exit = None;
        self.child = Some(child);
        self.duplex = duplex;
        Ok(())
    }

    /// Waits until the endpoint answers or the child ended.
    fn await_ready(&self, child: &mut Child, patience: &mut Patience<'_>) -> Result<(), Error> {
        if self.endpoint == Endpoint::Stdio {
            return Ok(());
        }
        // A moment that no clock reaches is none.
        let until = Instant::now().checked_add(self.options.ready_within);
        let options = ClientOptions {
            connect_within: self.options.ready_within,
            plain: self.options.plain,
            ..ClientOptions::default()
        };
        let mut client = Client::begin(&self.endpoint, options)?;
        loop {
            client.turn(Wait::Poll)?;
            match child.wait(Some(Duration::ZERO)) {
                Ok(None) => {}
                Ok(Some(exit)) => return Err(self.ended(exit, " before it answered")),
                Err(error) => return Err(error.into()),
            }
            if client.is_connected() {
                return Ok(());
            }
            if let Some(error) = client.failure() {
                let source = error.source.as_ref().map_or_else(String::new, |source| format!(": {source}"));
                // The program runs: it is late, whatever there is where it should be.
                let late = error.fault == Fault::NoServer;
                let fault = if late { Fault::ConnectTimeout } else { error.fault };
                return Err(Error::new(fault, format!("{}{source}{}", error.detail, self.tail())));
            }
            if patience.is_over() {
                return Err(interrupted());
            }
            socket::wait_either(client.descriptor()?, child.as_fd(), Some(sleep_until(until)))?;
        }
    }

    fn not_started(&self, error: io::Error) -> Error {
        let program = self.program.to_string_lossy();
        // An error of the directory or the log was made by `Child::start`, and names the file; one of the
        // program is the kernel's own, with its code.
        let is_about_another = error.raw_os_error().is_none();
        let (fault, words) = match error.kind() {
            io::ErrorKind::NotFound => (Fault::BadArgument, ": there is no such program"),
            io::ErrorKind::PermissionDenied => (Fault::PermissionDenied, " may not be run"),
            _ => (Fault::System, " could not be started"),
        };
        let words = if is_about_another { " could not be started" } else { words };
        Error::system(fault, format!("{program}{words}"), error)
    }

    fn ended(&self, exit: Exit, when: &str) -> Error {
        let program = self.program.to_string_lossy();
        let ended = match exit {
            Exit::Code(code) => format!("{program} ended with code {code}{when}"),
            Exit::Signal(signal) => format!("{program} ended with signal {signal}{when}"),
            Exit::Unknown => format!("{program} ended{when}, and nobody knows how: {UNKNOWN}"),
        };
        Error::new(Fault::NoServer, ended + &self.tail())
    }

    /// The end of what it wrote to its log, from the beginning of a line.
    fn tail(&self) -> String {
        let Some(log) = &self.options.log else { return String::new() };
        let mut text = format!("; its log {}", log.display());
        match log_tail(log, self.log_from, TAIL_BYTES) {
            Ok(tail) if tail.is_empty() => text.push_str(" says nothing"),
            Ok(tail) => drop(write!(text, " ends:\n{tail}")),
            Err(error) => drop(write!(text, " cannot be read: {error}")),
        }
        text
    }
}

/// Whether a server answers at an endpoint already: it would be taken for one that is started to serve there.
///
/// ```
/// use thalweg_service::{Endpoint, is_taken};
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("greeter.sock");
/// let endpoint = Endpoint::try_from(path.clone())?;
/// assert!(!is_taken(&endpoint));
/// let _server = std::os::unix::net::UnixListener::bind(path)?;
/// assert!(is_taken(&endpoint));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn is_taken(endpoint: &Endpoint) -> bool {
    endpoint.path().is_some_and(|path| match socket::connect_unix(path) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    })
}

/// Both ends of a connection to a program that speaks over its standard input and output.
type Ends = (Duplex, (OwnedFd, OwnedFd));

fn connected() -> io::Result<Ends> {
    let (ours, theirs) = socket::pair()?;
    // Most programs expect their standard input to wait.
    socket::block(theirs.as_fd())?;
    Ok((Duplex::socket(ours), (theirs.try_clone()?, theirs)))
}

fn piped() -> io::Result<Ends> {
    let ((input, their_output), (their_input, output)) = (io::pipe()?, io::pipe()?);
    let ours = Duplex::pipes(input.as_fd(), output.as_fd())?;
    Ok((ours, (their_input.into(), their_output.into())))
}

/// How long to sleep now until then: not so long that an interrupt which ended no sleep goes unnoticed.
fn sleep_until(then: Option<Instant>) -> Duration {
    then.map_or(SLEEP_MAX, |then| then.saturating_duration_since(Instant::now()).min(SLEEP_MAX))
}

/// Asks a child to end, then makes it: when it has not in time, or nobody waits that long.
fn end(child: &mut Child, within: Duration, patience: &mut Patience<'_>) -> io::Result<Option<Exit>> {
    if !patience.is_over() {
        child.terminate()?;
    }
    // A moment that no clock reaches is none.
    let until = Instant::now().checked_add(within);
    loop {
        if let Some(exit) = child.wait(Some(Duration::ZERO))? {
            return Ok(Some(exit));
        }
        let left = sleep_until(until);
        if left.is_zero() || patience.is_over() {
            break;
        }
        socket::wait(child.as_fd(), false, Some(left))?;
    }
    child.kill()?;
    child.wait(None)
}

/// Whether to go on waiting: who is interrupted is not asked again.
struct Patience<'a> {
    interrupted: &'a mut dyn FnMut() -> bool,
    is_over: bool,
}

impl<'a> Patience<'a> {
    fn new(interrupted: &'a mut dyn FnMut() -> bool) -> Self {
        Self { interrupted, is_over: false }
    }

    fn is_over(&mut self) -> bool {
        self.is_over = self.is_over || (self.interrupted)();
        self.is_over
    }
}

#[cold]
fn interrupted() -> Error {
    Error::new(Fault::Cancelled, "waiting for the program was interrupted")
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.stop();
    }
}
