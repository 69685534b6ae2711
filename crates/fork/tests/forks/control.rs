//! A supervisor on its control endpoint, its clients, and a look at the processes of this machine.

use crate::programs::{forked, reached};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thalweg_fork::generated::client::ForksClient;
use thalweg_fork::generated::types::*;
use thalweg_fork::{ERROR_TAG, First, Options, Supervisor};
use thalweg_rpc::{Client, ClientOptions};
use thalweg_service::{
    CallOptions, ClientOptions as ControlOptions, Endpoint, Error, Server, Stopper, SyncClient,
};
use thalweg_wire::fault::Fault;
use thalweg_wire::service::Call;

pub(crate) fn anywhere() -> First {
    First::At("127.0.0.1:0".parse().unwrap())
}

pub(crate) type Forks = ForksClient<SyncClient>;

/// Carries calls as a client does, but for what orders to fork or to end are answered: that is lost, or
/// waited for only a moment.
pub(crate) struct Lossy<'a> {
    pub(crate) call: SyncClient,
    pub(crate) mood: &'a Cell<Mood>,
    /// Of the call under way.
    pub(crate) now: Mood,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mood {
    Well,
    /// Hears no answer.
    Deaf,
    Impatient,
}

impl Call for Lossy<'_> {
    type Error = Error;

    fn send(&mut self, request: &[u8]) -> Result<(), Error> {
        let is = |word: &[u8]| request.windows(word.len()).any(|part| part == word);
        self.now = if is(b"ForksFork") || is(b"ForksShutdown") { self.mood.get() } else { Mood::Well };
        let deadline = (self.now == Mood::Impatient).then_some(Duration::from_secs(1));
        self.call.set_options(CallOptions { deadline, ..CallOptions::default() });
        self.call.send(request)
    }

    fn receive(&mut self) -> Result<&[u8], Error> {
        let answer = self.call.receive()?;
        if self.now == Mood::Deaf { Err(Error::new(Fault::Disconnected, "")) } else { Ok(answer) }
    }
}

/// Sends what it is given, and never reads.
pub(crate) struct Mute(thalweg_service::Client);

impl Call for Mute {
    type Error = Error;

    fn send(&mut self, request: &[u8]) -> Result<(), Error> {
        self.0.call(request, CallOptions::default())?;
        self.0.flush()
    }

    fn receive(&mut self) -> Result<&[u8], Error> {
        loop {
            std::thread::park();
        }
    }
}

/// Asks for a copy, and never hears of it.
pub(crate) fn ask(endpoint: &Path) {
    let endpoint = Endpoint::Socket(endpoint.to_owned());
    let client = thalweg_service::Client::connect(&endpoint, ControlOptions::default()).unwrap();
    ForksClient::new(Mute(client)).fork(&ForksFork { server: "1".into(), address: None }).unwrap();
}

/// A supervisor on its control endpoint.
pub(crate) struct Control {
    pub(crate) supervisor: Supervisor,
    pub(crate) stopper: Stopper,
    pub(crate) thread: Option<std::thread::JoinHandle<()>>,
    pub(crate) endpoint: Endpoint,
    pub(crate) gate: PathBuf,
    _directory: tempfile::TempDir,
}

/// Opened by being let go of.
pub(crate) struct Gate<'a>(pub(crate) &'a Path);

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(reached(self.0));
        let _ = std::fs::remove_file(forked(self.0));
        let _ = std::fs::remove_file(self.0);
    }
}

impl Control {
    pub(crate) fn start() -> Self {
        Self::start_with(Duration::from_secs(60))
    }

    pub(crate) fn start_with(patience: Duration) -> Self {
        Self::start_program("sum", patience)
    }

    pub(crate) fn start_program(name: &str, patience: Duration) -> Self {
        Self::start_at(anywhere(), name, patience)
    }

    pub(crate) fn start_at(first: First, name: &str, patience: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let gate = directory.path().join("gate");
        let program = vec![std::env::current_exe().unwrap().into(), name.into(), gate.clone().into()];
        let options = Options::new(program, first);
        let supervisor = Supervisor::start(Options { patience, servers_max: 4, ..options }).unwrap();
        let endpoint = Endpoint::Socket(directory.path().join("forks.sock"));
        let options = thalweg_service::ServerOptions { error_tag: ERROR_TAG.into(), ..Default::default() };
        let mut server = Server::bind(std::slice::from_ref(&endpoint), options).unwrap();
        let (stopper, control) = (server.stopper(), supervisor.control());
        let thread = std::thread::spawn(move || server.serve(control).unwrap());
        Self { supervisor, stopper, thread: Some(thread), endpoint, gate, _directory: directory }
    }

    pub(crate) fn call(&self) -> SyncClient {
        SyncClient::connect(&self.endpoint, ControlOptions::default()).unwrap()
    }

    pub(crate) fn forks(&self) -> Forks {
        ForksClient::new(self.call())
    }

    pub(crate) fn first(&self) -> String {
        self.supervisor.address("1").unwrap().to_string()
    }

    pub(crate) fn servers(&self) -> Vec<Process<'static>> {
        self.forks().servers(&ForksServers {}).unwrap().into_owned().servers
    }

    /// Has the server at an address do nothing else while something is done.
    pub(crate) fn while_busy<T>(&self, address: &str, meanwhile: impl FnOnce() -> T) -> T {
        std::fs::write(&self.gate, "").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| add(address, 0));
            let _gate = Gate(&self.gate);
            until("busy", || reached(&self.gate).exists());
            meanwhile()
        })
    }

    /// Has the first server, which hesitates, be forked while something is done once the copy waits; what
    /// came of the fork.
    pub(crate) fn while_it_comes(&self, meanwhile: impl FnOnce(Gate<'_>)) -> Result<String, String> {
        std::fs::write(&self.gate, "").unwrap();
        std::thread::scope(|scope| {
            let forked = scope.spawn(|| {
                let forked = self
                    .forks()
                    .fork(&ForksFork { server: "1".into(), address: None })
                    .map(|it| it.server.into_owned());
                forked.map_err(|refused| refused.to_string())
            });
            let gate = Gate(&self.gate);
            until("there", || reached(&self.gate).exists() && self::forked(&self.gate).exists());
            meanwhile(gate);
            forked.join().unwrap()
        })
    }

    /// Ends a server as a crash does.
    pub(crate) fn crash(&self, server: &str) {
        let process = self.servers().iter().find(|of| of.server == server).unwrap().process;
        thalweg_sys::fork::kill(process).unwrap();
        until("gone", || self.servers().iter().all(|of| of.server != server));
    }

    pub(crate) fn end(mut self) {
        self.supervisor.end();
        until("every process gone", || self.supervisor.is_over());
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(crate) fn until(what: &str, wanted: impl Fn() -> bool) {
    let begun = Instant::now();
    while !wanted() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Adds, and says the sum and by which process.
pub(crate) fn add(address: &str, number: u64) -> (u64, u32) {
    let mut client = Client::new(&format!("http://{address}/rpc/sum"), ClientOptions::default()).unwrap();
    let answer = client.call("Add", &format!("[{number}]")).unwrap().to_owned();
    let numbers: Vec<u64> =
        answer.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    (numbers[0], u32::try_from(numbers[1]).unwrap())
}

pub(crate) fn fork<C: Call>(forks: &mut ForksClient<C>, server: &str) -> (String, String, u32)
where
    C::Error: std::fmt::Debug,
{
    let forked = forks.fork(&ForksFork { server: server.into(), address: None }).unwrap();
    (forked.server.into_owned(), forked.address.into_owned(), forked.process)
}

pub(crate) fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie has ended.
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// How many processes have this one for their parent.
pub(crate) fn children() -> usize {
    let us = std::process::id().to_string();
    let is_ours = |entry: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(entry.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&*us)
    };
    std::fs::read_dir("/proc").unwrap().map(is_ours).filter(|is_ours| *is_ours).count()
}

pub(crate) fn descriptors(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// How long a server may take in tests where one takes longer.
pub(crate) const SHORT: Duration = Duration::from_secs(4);

pub(crate) fn rebind(control: &Control, address: &str) -> Result<String, String> {
    let asked = ForksRebind { server: "1".into(), address: address.into() };
    let mut forks = control.forks();
    let moved = forks.rebind(&asked).map(|moved| moved.address.into_owned());
    moved.map_err(|refused| refused.to_string())
}
