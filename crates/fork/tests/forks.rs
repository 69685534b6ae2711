//! Processes that fork, with the traps that such servers have: this program is the supervisor's test, and,
//! started again by it, the server that forks.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::cell::Cell;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use thalweg_fork::generated::client::ForksClient;
use thalweg_fork::generated::types::*;
use thalweg_fork::{Cleanup, ERROR_TAG, First, Options, Order, Program, Session, SessionError, Supervisor};
use thalweg_rpc::{Client, ClientOptions, Mount, ServerOptions};
use thalweg_service::{
    CallOptions, ClientOptions as ControlOptions, Endpoint, Error, Reply, Request, Server, Stopper,
    SyncClient,
};
use thalweg_sys::epoll::wait_readable;
use thalweg_sys::fork::{End, await_any_child, release};
use thalweg_sys::{handover, socket};
use thalweg_wire::fault::Fault;
use thalweg_wire::messagepack::{Reader, write};
use thalweg_wire::service::Call;

const SCHEMA: &str = r#"{
    "service": "Sum",
    "error": { "message": "string" },
    "commands": { "Add": { "request": { "n": "u64" }, "response": { "sum": "u64", "process": "u64" } } },
}"#;

/// What is answered only together with what is added next, wherever that is.
const HELD: u64 = u64::MAX;

/// The server: a sum, which a fork copies. While there is a gate, adding takes until there is none.
fn sum(gate: &Path) {
    let schema = thalweg_schema::parse("sum.jsonc", SCHEMA).unwrap();
    let sum = Rc::new(Cell::new(0_u64));
    let held: Rc<Cell<Option<Reply>>> = Rc::default();
    let mount = || {
        let (sum, held, gate) = (sum.clone(), held.clone(), gate.to_owned());
        let handler = move |request: Request<'_>, reply: Reply| {
            let mut reader = Reader::new(request.frame);
            reader.request().unwrap();
            assert_eq!(reader.fields("SumAdd").unwrap(), 1);
            reader.key().unwrap();
            let number = reader.u64().unwrap();
            if number == HELD {
                std::fs::write(reached(&gate), "").unwrap();
                return drop(held.replace(Some(reply)));
            }
            if gate.exists() {
                std::fs::write(reached(&gate), "").unwrap();
                until("open", || !gate.exists());
            }
            sum.set(sum.get() + number);
            let answer = |reply: Reply| {
                reply.end_with(|out| {
                    out.push(0x92);
                    write::string(out, "SumAddResponse");
                    out.push(0x82);
                    write::string(out, "sum");
                    write::u64(out, &sum.get());
                    write::string(out, "process");
                    write::u64(out, &std::process::id().into());
                })
            };
            held.take().into_iter().chain([reply]).for_each(answer);
        };
        ("sum", Mount::here(&schema, handler))
    };
    thalweg_fork::serve(&ServerOptions::default(), &mount).unwrap();
}

/// What is there once somebody waits at a gate.
fn reached(gate: &Path) -> PathBuf {
    gate.with_extension("reached")
}

/// There once the one that was copied has said so.
fn forked(gate: &Path) -> PathBuf {
    gate.with_extension("forked")
}

/// A server that does nothing it is told: it only stays.
fn wedged() {
    std::io::stdin().lock().read_to_end(&mut Vec::new()).ok();
    loop {
        std::thread::park();
    }
}

/// A server that does nothing but what it is told. While there is a gate, a copy of it waits before it is
/// told where to listen.
fn hesitant(gate: &Path) {
    let mut program = Program::inherited().unwrap();
    loop {
        match program.order().unwrap() {
            None => drop(wait_readable(program.as_fd(), 60_000).unwrap()),
            Some(Order::Listen(_)) => program.done().unwrap(),
            Some(Order::Fork(branch)) => {
                let is_copy = program.fork(branch).unwrap();
                if gate.exists() {
                    std::fs::write(if is_copy { reached(gate) } else { forked(gate) }, "").unwrap();
                }
                while is_copy && gate.exists() {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            Some(Order::End) => return program.done().unwrap(),
        }
    }
}

/// A server that once it listens has no room for another descriptor, or for so many.
fn crowded(room: usize) {
    let (mut program, mut full) = (Program::inherited().unwrap(), Vec::<OwnedFd>::new());
    loop {
        match program.order().unwrap() {
            None => drop(wait_readable(program.as_fd(), 60_000).unwrap()),
            Some(Order::Listen(listener)) => {
                full.push(listener);
                full.extend(std::iter::from_fn(|| Some(std::fs::File::open("/dev/null").ok()?.into())));
                full.truncate(full.len() - room);
                program.done().unwrap();
            }
            Some(Order::Fork(branch)) => {
                assert!(!program.fork(branch).unwrap(), "there is no room for a copy")
            }
            Some(Order::End) => return program.done().unwrap(),
        }
    }
}

/// A server that does as it is told, and when it was to end lets go of what it is told by, and goes on.
fn lingering() {
    let mut program = Program::inherited().unwrap();
    loop {
        match program.order().unwrap() {
            None => drop(wait_readable(program.as_fd(), 60_000).unwrap()),
            Some(Order::Listen(_)) => program.done().unwrap(),
            Some(Order::Fork(branch)) => drop(program.fork(branch).unwrap()),
            Some(Order::End) => {
                program.done().unwrap();
                break;
            }
        }
    }
    let mut other = std::process::Command::new("sleep");
    let failed = other.arg("60").stdin(std::process::Stdio::null()).exec();
    panic!("{failed}");
}

/// A server that speaks for a copy that it never makes, by its own number.
fn pretender() {
    let line = socket::standard_input().unwrap();
    let (mut words, mut copies) = (Vec::with_capacity(64), Vec::new());
    let say = |line: BorrowedFd<'_>, words: &str| {
        assert_eq!(socket::send(line, words.as_bytes()).unwrap(), Some(words.len()));
    };
    loop {
        wait_readable(line.as_fd(), 60_000).unwrap();
        words.clear();
        let (count, beside) = handover::receive(line.as_fd(), &mut words).unwrap();
        match (&words[..], beside) {
            (b"listen\n", _) => {}
            (b"fork\n", Some(copy)) => {
                say(copy.as_fd(), &format!("ok {}\n", std::process::id()));
                copies.push(copy);
            }
            _ if count.is_none() => continue,
            _ => return,
        }
        say(line.as_fd(), "ok\n");
    }
}

/// Goes on twice with a word that it has not written yet.
fn talker() {
    let (_ours, theirs) = socket::pair().unwrap();
    print!("once");
    thalweg_sys::fork::branch(theirs.as_fd()).unwrap();
}

fn anywhere() -> First {
    First::At("127.0.0.1:0".parse().unwrap())
}

type Forks = ForksClient<SyncClient>;

/// Carries calls as a client does, but for what orders to fork or to end are answered: that is lost, or
/// waited for only a moment.
struct Lossy<'a> {
    call: SyncClient,
    mood: &'a Cell<Mood>,
    /// Of the call under way.
    now: Mood,
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
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
struct Mute(thalweg_service::Client);

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
fn ask(endpoint: &Path) {
    let endpoint = Endpoint::Socket(endpoint.to_owned());
    let client = thalweg_service::Client::connect(&endpoint, ControlOptions::default()).unwrap();
    ForksClient::new(Mute(client)).fork(&ForksFork { server: "1".into(), address: None }).unwrap();
}

/// A supervisor on its control endpoint.
struct Control {
    supervisor: Supervisor,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
    endpoint: Endpoint,
    gate: PathBuf,
    _directory: tempfile::TempDir,
}

/// Opened by being let go of.
struct Gate<'a>(&'a Path);

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(reached(self.0));
        let _ = std::fs::remove_file(forked(self.0));
        let _ = std::fs::remove_file(self.0);
    }
}

impl Control {
    fn start() -> Self {
        Self::start_with(Duration::from_secs(60))
    }

    fn start_with(patience: Duration) -> Self {
        Self::start_program("sum", patience)
    }

    fn start_program(name: &str, patience: Duration) -> Self {
        Self::start_at(anywhere(), name, patience)
    }

    fn start_at(first: First, name: &str, patience: Duration) -> Self {
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

    fn call(&self) -> SyncClient {
        SyncClient::connect(&self.endpoint, ControlOptions::default()).unwrap()
    }

    fn forks(&self) -> Forks {
        ForksClient::new(self.call())
    }

    fn first(&self) -> String {
        self.supervisor.address("1").unwrap().to_string()
    }

    fn servers(&self) -> Vec<Process<'static>> {
        self.forks().servers(&ForksServers {}).unwrap().into_owned().servers
    }

    /// Has the server at an address do nothing else while something is done.
    fn while_busy<T>(&self, address: &str, meanwhile: impl FnOnce() -> T) -> T {
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
    fn while_it_comes(&self, meanwhile: impl FnOnce(Gate<'_>)) -> Result<String, String> {
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
    fn crash(&self, server: &str) {
        let process = self.servers().iter().find(|of| of.server == server).unwrap().process;
        thalweg_sys::fork::kill(process).unwrap();
        until("gone", || self.servers().iter().all(|of| of.server != server));
    }

    fn end(mut self) {
        self.supervisor.end();
        until("every process gone", || self.supervisor.is_over());
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn until(what: &str, wanted: impl Fn() -> bool) {
    let begun = Instant::now();
    while !wanted() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Adds, and says the sum and by which process.
fn add(address: &str, number: u64) -> (u64, u32) {
    let mut client = Client::new(&format!("http://{address}/rpc/sum"), ClientOptions::default()).unwrap();
    let answer = client.call("Add", &format!("[{number}]")).unwrap().to_owned();
    let numbers: Vec<u64> =
        answer.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    (numbers[0], u32::try_from(numbers[1]).unwrap())
}

fn fork(forks: &mut Forks, server: &str) -> (String, String, u32) {
    let forked = forks.fork(&ForksFork { server: server.into(), address: None }).unwrap();
    (forked.server.into_owned(), forked.address.into_owned(), forked.process)
}

fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie has ended.
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// How many processes have this one for their parent.
fn children() -> usize {
    let us = std::process::id().to_string();
    let is_ours = |entry: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(entry.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&*us)
    };
    std::fs::read_dir("/proc").unwrap().map(is_ours).filter(|is_ours| *is_ours).count()
}

fn descriptors(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

fn a_fork_is_a_copy_that_goes_its_own_way() {
    let control = Control::start();
    let mut forks = control.forks();
    let first = control.first();
    let (sum, process) = add(&first, 5);
    assert_eq!(sum, 5);
    let (server, address, copy) = fork(&mut forks, "1");
    assert_eq!(add(&address, 10), (15, copy));
    assert_eq!(add(&first, 1), (6, process));
    let (_, second, grandchild) = fork(&mut forks, &server);
    assert_eq!(add(&second, 100), (115, grandchild));
    forks.shutdown(&ForksShutdown { server: (&*server).into() }).unwrap();
    assert!(!runs(copy), "a shutdown answers when the process is gone");
    assert_eq!(add(&second, 0), (115, grandchild), "a copy outlives what it was forked from");
    let servers = forks.servers(&ForksServers {}).unwrap().into_owned().servers;
    let told: Vec<_> = servers.iter().map(|of| (&*of.server, of.process, of.parent.as_deref())).collect();
    assert_eq!(told, [("1", process, None), ("3", grandchild, Some("2"))]);
    control.end();
    assert!(!runs(process) && !runs(grandchild));
}

fn a_copy_holds_nothing_of_its_parents() {
    let control = Control::start();
    let mut forks = control.forks();
    let (sum, process) = add(&control.first(), 0);
    assert_eq!(sum, 0);
    let mut connected = TcpStream::connect(control.first()).unwrap();
    let (_, address, copy) = fork(&mut forks, "1");
    assert_eq!(add(&address, 1).0, 1);
    forks.shutdown(&ForksShutdown { server: "1".into() }).unwrap();
    assert!(!runs(process));
    connected.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Were it open in the copy, nobody would hear of its end.
    let heard = connected.read(&mut [0; 1]).map_err(|error| error.kind());
    assert!(matches!(heard, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)), "{heard:?}");
    assert!(TcpStream::connect(control.supervisor.address("2").unwrap()).is_ok());
    assert!(runs(copy));
    control.end();
}

fn what_goes_wrong_stays_in_the_parent() {
    let control = Control::start();
    let mut forks = control.forks();
    let word = |refused: String| refused.split(": ").nth(1).unwrap().to_owned();
    let taken = control.first();
    for (server, address, why) in
        [("1", &*taken, "bad_address"), ("1", "nowhere", "bad_address"), ("9", "127.0.0.1:0", "no_server")]
    {
        let asked = ForksFork { server: server.into(), address: Some(address.into()) };
        assert_eq!(word(forks.fork(&asked).unwrap_err().to_string()), why);
    }
    for _ in 0..3 {
        fork(&mut forks, "1");
    }
    let asked = ForksFork { server: "1".into(), address: None };
    assert_eq!(word(forks.fork(&asked).unwrap_err().to_string()), "servers_full");
    assert_eq!(add(&taken, 1).0, 1);
    control.end();
}

fn no_more_are_forked_at_once_than_there_are_places() {
    let control = Control::start();
    let gate = std::sync::Barrier::new(8);
    let outcomes: Vec<Result<u32, String>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut forks = control.forks();
                    gate.wait();
                    let asked = ForksFork { server: "1".into(), address: None };
                    let answer = forks.fork(&asked).map(|forked| forked.process);
                    answer.map_err(|refused| refused.to_string())
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let forked = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(forked, 3, "{outcomes:?}");
    for refused in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(refused.contains("servers_full"), "{refused}");
    }
    // The places of who was refused were given back, and one that is left is free again.
    let mut forks = control.forks();
    forks.shutdown(&ForksShutdown { server: "2".into() }).unwrap();
    fork(&mut forks, "1");
    control.end();
}

fn a_server_moves() {
    let handed_over = TcpListener::bind("127.0.0.1:0").unwrap();
    for first in [anywhere(), First::On(handed_over.into())] {
        let control = Control::start_at(first, "sum", Duration::from_secs(60));
        let mut forks = control.forks();
        let before = control.first();
        let (_, process) = add(&before, 7);
        let moved = forks.rebind(&ForksRebind { server: "1".into(), address: "127.0.0.1:0".into() }).unwrap();
        assert_eq!(add(&moved.address, 1), (8, process));
        assert_eq!(control.first(), moved.address);
        assert!(TcpStream::connect(&*before).is_err(), "it still listens where it did");
        // What it left is free for it to come back to.
        let back =
            forks.rebind(&ForksRebind { server: "1".into(), address: before.as_str().into() }).unwrap();
        assert_eq!(back.address, before);
        forks.shutdown(&ForksShutdown { server: "1".into() }).unwrap();
        assert!(TcpStream::connect(&*before).is_err(), "nobody is there");
        control.end();
    }
}

/// Where its parent is by then, which a late answer says, too.
fn a_copy_listens_beside_its_parent_wherever_that_moved() {
    let control = Control::start_with(SHORT);
    let mut forks = control.forks();
    let beside = |address: &str, parent: &str| {
        let (host, _) = parent.rsplit_once(':').unwrap();
        assert!(address.starts_with(&format!("{host}:")), "{address} is not beside {parent}");
    };
    let moved = rebind(&control, "127.0.0.2:0").unwrap();
    let (copy, address, _) = fork(&mut forks, "1");
    beside(&address, &moved);
    let (_, of_copy, _) = fork(&mut forks, &copy);
    beside(&of_copy, &address);
    control.while_busy(&moved, || {
        let late = rebind(&control, "127.0.0.3:0").unwrap_err();
        assert!(late.contains("not_yet: "), "{late}");
    });
    let (_, address, _) = fork(&mut forks, "1");
    beside(&address, "127.0.0.3:0");
    control.end();
}

/// Whether a process has a signal to look at that is blocked.
fn is_told(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    pending.is_some_and(|signals| signals.trim().bytes().any(|digit| digit != b'0'))
}

#[allow(clippy::zombie_processes, reason = "the supervisor waits for every child there is")]
fn a_server_that_is_signalled_answers_what_was_begun() {
    let control = Control::start();
    let copy = fork(&mut control.forks(), "1").1;
    for address in [control.first(), copy] {
        let (_, process) = add(&address, 7);
        std::fs::write(&control.gate, "").unwrap();
        std::thread::scope(|scope| {
            let begun = scope.spawn(|| add(&address, 1));
            let gate = Gate(&control.gate);
            until("busy", || reached(&control.gate).exists());
            std::process::Command::new("kill").args(["-s", "TERM", &process.to_string()]).spawn().unwrap();
            until("told", || is_told(process) || !runs(process));
            drop(gate);
            assert_eq!(begun.join().unwrap(), (8, process));
        });
        until("ended", || !runs(process));
    }
    until("over", || control.supervisor.is_over());
    control.end();
}

fn a_call_to_a_servers_former_address_is_answered() {
    let control = Control::start();
    let before = control.first();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| add(&before, HELD));
        until("held", || reached(&control.gate).exists());
        let moved = rebind(&control, "127.0.0.1:0").unwrap();
        assert!(TcpStream::connect(&*before).is_err(), "it still listens where it did");
        let (sum, process) = add(&moved, 7);
        assert_eq!((sum, held.join().unwrap()), (7, (7, process)));
        // Nothing is left of where it was.
        let count = descriptors(process);
        rebind(&control, "127.0.0.1:0").unwrap();
        until("as few descriptors as before", || descriptors(process) <= count);
    });
    control.end();
}

fn nothing_is_used_up_by_many_forks() {
    let control = Control::start();
    let mut forks = control.forks();
    let (_, process) = add(&control.first(), 1);
    let count = || (descriptors(std::process::id()), descriptors(process));
    let once = |forks: &mut Forks| {
        let (server, address, copy) = fork(forks, "1");
        assert_eq!(add(&address, 1), (2, copy));
        forks.shutdown(&ForksShutdown { server: server.into() }).unwrap();
        assert!(!runs(copy));
    };
    once(&mut forks);
    // The connections of clients that were closed here are noticed there a moment later.
    let calm = std::cell::Cell::new((0, 0));
    until("calm", || calm.replace(count()) == count());
    let before = calm.get();
    for _ in 0..40 {
        once(&mut forks);
    }
    until("as few descriptors as before", || count() <= before);
    assert_eq!(forks.servers(&ForksServers {}).unwrap().servers.len(), 1);
    control.end();
}

/// What a process takes: descriptors, kilobytes of stack, and of what else it writes to.
fn used(process: u32) -> (usize, u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_end_matches("kB").trim().parse().unwrap()
    };
    (descriptors(process), of("VmStk:"), of("VmData:"))
}

fn nothing_is_used_up_by_many_generations() {
    let control = Control::start();
    let mut session = Session::new(control.call(), "1", &control.first());
    let generations = |session: &mut Session<SyncClient>, count: u32| {
        for _ in 0..count {
            session.snapshot().unwrap();
            session.commit().unwrap();
        }
        let process = add(session.address(), 1).1;
        move || used(process)
    };
    // Copies of one that was called have what calls take, whether they need it yet or not.
    generations(&mut session, 1)();
    let before = generations(&mut session, 20)();
    let now = generations(&mut session, 300);
    // The connection that was closed here is noticed there a moment later.
    until("as little as before", || {
        let after = now();
        after.0 <= before.0 && after.1 <= before.1 && after.2 <= before.2
    });
    assert_eq!(add(session.address(), 0).0, 3);
    control.end();
}

fn what_was_not_written_is_not_written_twice() {
    let talker = std::process::Command::new(std::env::current_exe().unwrap()).arg("talker").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&talker.stdout), "once");
}

#[allow(clippy::zombie_processes, reason = "what is tested waits for it")]
fn a_number_is_its_process_until_it_is_released() {
    for (words, end) in [("exit 0", End::Code(0)), ("exit 3", End::Code(3)), ("kill -9 $$", End::Signal(9))] {
        let child = std::process::Command::new("sh").args(["-c", words]).spawn().unwrap();
        let is_there = || Path::new(&format!("/proc/{}", child.id())).exists();
        for _ in 0..2 {
            assert_eq!(await_any_child().unwrap(), Some((child.id(), end)));
            assert!(is_there());
        }
        release(child.id());
        assert!(!is_there());
        assert_eq!(await_any_child().unwrap(), None);
    }
}

/// The group that a terminal's signals reach a process with.
fn group(process: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(2).unwrap().parse().unwrap()
}

fn a_terminals_signals_are_the_supervisors_alone() {
    let control = Control::start();
    let (_, _, copy) = fork(&mut control.forks(), "1");
    let process = add(&control.first(), 0).1;
    let groups = [std::process::id(), process, copy].map(group);
    assert!(groups[0] != groups[1] && groups[1] == groups[2], "{groups:?}");
    control.end();
}

fn a_server_that_comes_is_waited_for() {
    let control = Control::start_program("hesitant", Duration::from_secs(60));
    let forked = control.while_it_comes(|_gate| {
        control.crash("1");
        assert!(!control.supervisor.is_over(), "a copy is there");
    });
    assert_eq!(forked.as_deref(), Ok("2"));
    assert!(!control.supervisor.is_over());
    control.end();
}

fn a_server_that_never_comes_is_given_up() {
    let control = Control::start_program("hesitant", SHORT);
    let forked = control.while_it_comes(|gate| {
        control.crash("1");
        // As a caller does that waits for its end: the descriptor tells it when to check again.
        while !control.supervisor.is_over() {
            assert!(wait_readable(control.supervisor.descriptor(), 60_000).unwrap(), "nobody rang");
            control.supervisor.heard();
        }
        until("no process", || children() == 0);
        drop(gate);
    });
    assert!(forked.as_ref().is_err_and(|why| why.contains("not_forked: ")), "{forked:?}");
    control.end();
}

fn a_server_that_comes_while_all_are_ended_is_none() {
    let control = Control::start_program("hesitant", Duration::from_secs(60));
    fork(&mut control.forks(), "1");
    std::thread::scope(|scope| {
        let forked = control.while_it_comes(|_gate| {
            scope.spawn(|| control.supervisor.end());
            // It was told to end together with the other servers.
            until("ended", || control.servers().iter().all(|of| of.server != "2"));
        });
        assert!(forked.as_ref().is_err_and(|why| why.contains("not_forked: ")), "{forked:?}");
    });
    until("no process", || children() == 0);
    control.end();
}

fn servers_that_nobody_looks_after_any_more_end() {
    let mut control = Control::start();
    fork(&mut control.forks(), "1");
    assert_eq!(children(), 2);
    control.stopper.stop();
    control.thread.take().unwrap().join().unwrap();
    drop(control);
    until("no process", || children() == 0);
}

fn what_may_have_been_committed_is_not_taken_back() {
    let control = Control::start();
    let mood = Cell::new(Mood::Well);
    let begin = |server: &str, address: &str| {
        let mut session =
            Session::new(Lossy { call: control.call(), mood: &mood, now: Mood::Well }, server, address);
        session.snapshot().unwrap();
        let copy = (session.server().to_owned(), session.address().to_owned());
        (session, copy)
    };
    // Committed, though nobody heard of it.
    let (mut session, (copy, address)) = begin("1", &control.first());
    mood.set(Mood::Deaf);
    session.commit().unwrap_err();
    mood.set(Mood::Well);
    drop(session);
    assert_eq!(control.servers().iter().map(|of| &*of.server).collect::<Vec<_>>(), [&*copy]);
    // Not committed yet, and nobody knows when.
    let (mut session, (again, second)) = begin(&copy, &address);
    control.while_busy(&address, || {
        mood.set(Mood::Impatient);
        session.commit().unwrap_err();
        mood.set(Mood::Well);
        let refused = session.rollback();
        assert!(matches!(&refused, Err(SessionError::Ending(server)) if *server == copy), "{refused:?}");
    });
    session.commit().unwrap();
    assert_eq!((session.server(), add(&second, 3).0, control.servers().len()), (&*again, 3, 1));
    // The other way round.
    session.snapshot().unwrap();
    mood.set(Mood::Deaf);
    session.rollback().unwrap_err();
    mood.set(Mood::Well);
    let refused = session.commit();
    assert!(matches!(refused, Err(SessionError::Ending(_))), "{refused:?}");
    session.rollback().unwrap();
    assert_eq!((session.server(), add(&second, 0).0, control.servers().len()), (&*again, 3, 1));
    control.end();
}

fn a_copy_that_nobody_waits_for_is_none() {
    let control = Control::start();
    let (mood, first) = (Cell::new(Mood::Well), control.first());
    let call = Lossy { call: control.call(), mood: &mood, now: Mood::Well };
    let mut session = Session::new(call, "1", &first);
    control.while_busy(&first, || {
        mood.set(Mood::Impatient);
        session.snapshot().unwrap_err();
        mood.set(Mood::Well);
    });
    // Made after the one before, which came then.
    session.snapshot().unwrap();
    assert_eq!(control.servers().len(), 2);
    until("two processes", || children() == 2);
    session.rollback().unwrap();
    // One that came while somebody waited is the supervisor's, and nothing that the session would end.
    mood.set(Mood::Deaf);
    session.snapshot().unwrap_err();
    mood.set(Mood::Well);
    assert_eq!((session.server(), add(&first, 1).0, control.servers().len()), ("1", 1, 2));
    control.end();
}

#[allow(clippy::zombie_processes, reason = "the supervisor waits for every child")]
fn a_copy_that_nobody_heard_of_ends() {
    let control = Control::start();
    let is_there = |server: &str| control.supervisor.address(server).is_some();
    let endpoint = control.gate.with_file_name("forks.sock");
    for (server, lies_unread_for) in [("2", Duration::ZERO), ("3", Duration::from_millis(100))] {
        let this = std::env::current_exe().unwrap();
        let mut asker = std::process::Command::new(this).arg("ask").arg(&endpoint).spawn().unwrap();
        until("a copy", || is_there(server));
        std::thread::sleep(lies_unread_for);
        asker.kill().unwrap();
        until("gone", || !is_there(server));
    }
    until("one process", || children() == 1);
    // Who has read its answer may go.
    let (server, address, process) = fork(&mut control.forks(), "1");
    assert_eq!((&*server, control.servers().len(), add(&address, 1)), ("4", 2, (1, process)));
    control.end();
}

fn the_only_one_left_is_not_ended() {
    let control = Control::start();
    let mut session = Session::new(control.call(), "1", &control.first());
    session.snapshot().unwrap();
    let (copy, address) = (session.server().to_owned(), session.address().to_owned());
    add(&address, 5);
    control.crash("1");
    let refused = session.rollback();
    assert!(matches!(&refused, Err(SessionError::Gone(server)) if server == "1"), "{refused:?}");
    assert!(matches!(session.close(), Err(SessionError::Gone(_))));
    assert_eq!(add(&address, 0).0, 5);
    let mut session = Session::new(control.call(), &copy, &address);
    session.snapshot().unwrap();
    let second = session.server().to_owned();
    control.crash(&second);
    let refused = session.commit();
    assert!(matches!(&refused, Err(SessionError::Gone(server)) if *server == second), "{refused:?}");
    session.rollback().unwrap();
    assert_eq!((session.server(), add(&address, 0).0), (&*copy, 5));
    control.end();
}

fn a_session_keeps_or_takes_back() {
    let control = Control::start();
    let mut session = Session::new(control.call(), "1", &control.first());
    assert!(matches!(session.rollback(), Err(SessionError::NoSnapshot)));
    session.commit().unwrap();
    assert_eq!(add(session.address(), 1).0, 1);
    session.snapshot().unwrap();
    assert_eq!(add(session.address(), 10).0, 11);
    session.rollback().unwrap();
    assert_eq!((add(session.address(), 0).0, session.server()), (1, "1"));
    session.snapshot().unwrap();
    assert_eq!(add(session.address(), 100).0, 101);
    // One that is pending is committed first.
    session.snapshot().unwrap();
    assert_eq!(add(session.address(), 1000).0, 1101);
    session.rollback().unwrap();
    assert_eq!(add(session.address(), 0).0, 101);
    assert!(matches!(session.rollback(), Err(SessionError::NoSnapshot)));
    let servers = control.forks().servers(&ForksServers {}).unwrap().into_owned().servers;
    assert_eq!(servers.len(), 1, "{servers:?}");
    control.end();
}

fn a_session_that_is_let_go_of_leaves_what_its_cleanup_says() {
    let control = Control::start();
    let count = || control.servers().len();
    let begin = |cleanup| {
        let mut session = Session::new(control.call(), "1", &control.first()).with_cleanup(cleanup);
        session.snapshot().unwrap();
        add(session.address(), 5);
        session
    };
    // Taken back, however it is let go of, and told when it could not be.
    drop(begin(Cleanup::default()));
    assert_eq!((count(), add(&control.first(), 0).0), (1, 0));
    let died = std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let _session = begin(Cleanup::Rollback);
            // A panic that prints nothing, so that a report shows only the panics that were not meant.
            std::panic::resume_unwind(Box::new("its owner dies on purpose"));
        });
        owner.join().is_err()
    });
    assert_eq!((died, count(), add(&control.first(), 0).0), (true, 1, 0));
    begin(Cleanup::Rollback).close().unwrap();
    assert_eq!((count(), add(&control.first(), 0).0), (1, 0));
    // Nothing pending, nothing to be done.
    Session::new(control.call(), "1", &control.first()).close().unwrap();
    assert_eq!(count(), 1);
    // Left alone, and ended by another client.
    let session = begin(Cleanup::Nothing);
    let (copy, address) = (session.server().to_owned(), session.address().to_owned());
    drop(session);
    assert_eq!((count(), add(&address, 0).0, add(&control.first(), 0).0), (2, 5, 0));
    control.forks().shutdown(&ForksShutdown { server: copy.into() }).unwrap();
    // What was committed is what is left.
    let mut session = begin(Cleanup::Rollback);
    session.commit().unwrap();
    let (kept, address) = (session.server().to_owned(), session.address().to_owned());
    drop(session);
    assert_eq!((count(), add(&address, 0).0), (1, 5));
    // Both end: then there is nobody left.
    let mut session = Session::new(control.call(), &kept, &address).with_cleanup(Cleanup::Shutdown);
    session.snapshot().unwrap();
    let processes = [add(&address, 0).1, add(session.address(), 0).1];
    drop(session);
    until("both gone", || processes.iter().all(|process| !runs(*process)));
    control.end();
}

/// How long a server may take in tests where one takes longer.
const SHORT: Duration = Duration::from_secs(4);

fn rebind(control: &Control, address: &str) -> Result<String, String> {
    let asked = ForksRebind { server: "1".into(), address: address.into() };
    let mut forks = control.forks();
    let moved = forks.rebind(&asked).map(|moved| moved.address.into_owned());
    moved.map_err(|refused| refused.to_string())
}

fn an_answer_that_comes_late_is_the_answer_to_no_other_order() {
    let control = Control::start_with(SHORT);
    let first = control.first();
    control.while_busy(&first, || {
        let late = rebind(&control, "127.0.0.2:0").unwrap_err();
        assert!(late.contains("not_yet: "), "{late}");
        assert_eq!(control.first(), first, "it has not moved");
        let refused = rebind(&control, "127.0.0.3:0").unwrap_err();
        assert!(refused.contains("not_moved: "), "{refused}");
    });
    // Nobody asks, and yet it is known.
    until("moved", || control.first().starts_with("127.0.0.2:"));
    let moved = control.first();
    assert_eq!(add(&moved, 1).0, 1);
    assert!(TcpStream::connect(&*first).is_err(), "it still listens where it did");
    control.while_busy(&moved, || {
        let late = rebind(&control, "127.0.0.4:0");
        assert!(late.is_err(), "{late:?}: the answer to the first order");
    });
    // This one waits for the late answer, and then for its own.
    let moved = rebind(&control, "127.0.0.5:0").unwrap();
    assert_eq!((add(&moved, 1).0, control.first()), (2, moved));
    control.end();
}

fn a_copy_that_comes_late_is_none() {
    let control = Control::start_with(SHORT);
    let first = control.first();
    control.while_busy(&first, || {
        let asked = ForksFork { server: "1".into(), address: None };
        let refused = control.forks().fork(&asked).unwrap_err().to_string();
        assert!(refused.contains("not_forked: "), "{refused}");
    });
    let (_, address, copy) = fork(&mut control.forks(), "1");
    assert_eq!(add(&address, 1), (1, copy));
    assert_eq!(control.servers().len(), 2);
    // The first was made when the server came to it, with nobody at the other end of its line.
    until("two processes", || children() == 2);
    control.end();
}

/// Outlives its supervisor, and must not outlive a test that fails: who reads the tests' output would wait
/// for it.
struct Freed(u32);

impl Drop for Freed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = thalweg_sys::fork::kill(self.0);
        }
    }
}

fn a_server_that_is_emancipated_late_is_not_ended() {
    let control = Control::start_with(SHORT);
    let mut forks = control.forks();
    let (one, first, process) = fork(&mut forks, "1");
    let _freed = Freed(process);
    let (other, second, process) = fork(&mut forks, "1");
    let _freed = Freed(process);
    let emancipate = |server: &str| {
        let refused = control.forks().emancipate(&ForksEmancipate { server: server.into() });
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("not_yet: "), "{refused}");
        let servers = control.servers();
        assert!(servers.iter().all(|server| !server.emancipated), "{servers:?}");
    };
    control.while_busy(&first, || emancipate(&one));
    until("known", || control.servers().iter().any(|server| *server.server == *one && server.emancipated));
    forks.shutdown(&ForksShutdown { server: one.into() }).unwrap();
    control.while_busy(&second, || {
        emancipate(&other);
        let again = control.forks().emancipate(&ForksEmancipate { server: (&*other).into() });
        let again = again.unwrap_err().to_string();
        assert!(again.contains("not_emancipated: "), "{again}");
        control.supervisor.end();
        until("the first gone", || control.servers().len() == 1);
        assert!(runs(process), "it was ended");
        assert!(!control.supervisor.is_over(), "it may be refused yet");
    });
    until("over", || control.supervisor.is_over());
    assert_eq!(add(&second, 7), (7, process));
    forks.shutdown(&ForksShutdown { server: other.into() }).unwrap();
    control.end();
}

/// Runs a supervisor in a process of its own, which this one kills.
fn supervise(directory: &Path) {
    let control = Control::start();
    let mut forks = control.forks();
    let mut processes = vec![add(&control.first(), 0).1, fork(&mut forks, "1").2];
    let (free, address, process) = fork(&mut forks, "1");
    forks.emancipate(&ForksEmancipate { server: free.into() }).unwrap();
    processes.push(process);
    let words: Vec<String> = processes.iter().map(ToString::to_string).collect();
    std::fs::write(directory.join("said.new"), format!("{} {address}", words.join(" "))).unwrap();
    std::fs::rename(directory.join("said.new"), directory.join("said")).unwrap();
    wedged();
}

fn nobody_is_left_behind_but_who_was_emancipated() {
    let directory = tempfile::tempdir().unwrap();
    let mut supervisor = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["supervise".as_ref(), directory.path().as_os_str()])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = directory.path().join("said");
    until("said", || said.exists());
    let said = std::fs::read_to_string(said).unwrap();
    let words: Vec<&str> = said.split(' ').collect();
    let processes: Vec<u32> = words[..3].iter().map(|word| word.parse().unwrap()).collect();
    assert!(processes.iter().all(|process| runs(*process)));
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    until("gone", || !runs(processes[0]) && !runs(processes[1]));
    assert_eq!(add(words[3], 3), (3, processes[2]));
    thalweg_sys::fork::kill(processes[2]).unwrap();
    until("gone, too", || !runs(processes[2]));
}

/// Nobody is taken for a copy of himself, and ended by force as one that does not answer.
fn who_speaks_for_a_copy_is_none() {
    let control = Control::start_program("pretender", Duration::from_secs(60));
    let process = control.servers()[0].process;
    for _ in 0..2 {
        let mut forks = control.forks();
        let refused = forks.fork(&ForksFork { server: "1".into(), address: None }).unwrap_err().to_string();
        assert!(refused.contains(&format!("not_forked: process {process} is a server already")), "{refused}");
    }
    assert!(runs(process) && control.servers().len() == 1);
    control.end();
}

fn a_server_that_is_to_end_and_goes_on_is_ended_by_force() {
    let control = Control::start_program("lingering", Duration::from_secs(2));
    let process = control.servers()[0].process;
    control.forks().shutdown(&ForksShutdown { server: "1".into() }).unwrap();
    assert!(!runs(process) && control.servers().is_empty());
    control.end();
}

/// It answers nothing, whatever it is told.
fn a_server_that_hangs_is_ended_in_the_time_of_one_order() {
    let control = Control::start_with(SHORT);
    let mut busy =
        Client::new(&format!("http://{}/rpc/sum", control.first()), ClientOptions::default()).unwrap();
    std::fs::write(&control.gate, "").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || busy.call("Add", "[0]").unwrap_err().to_string());
        let _gate = Gate(&control.gate);
        until("busy", || reached(&control.gate).exists());
        let begun = Instant::now();
        for _ in 0..8 {
            scope.spawn(|| rebind(&control, "127.0.0.2:0").unwrap_err());
        }
        control.forks().shutdown(&ForksShutdown { server: "1".into() }).unwrap();
        assert!(begun.elapsed() < SHORT * 3, "it waited for every order before it");
    });
    control.end();
}

fn a_server_that_is_out_of_descriptors_refuses_and_goes_on() {
    for (program, has_room) in [("crowded", false), ("crowded but for one", true)] {
        let control = Control::start_program(program, Duration::from_secs(60));
        let process = control.servers()[0].process;
        let why = if has_room { "not_forked: fork: " } else { "not_forked: fork: out of descriptors" };
        for _ in 0..2 {
            let mut forks = control.forks();
            let refused =
                forks.fork(&ForksFork { server: "1".into(), address: None }).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        if !has_room {
            let refused = rebind(&control, "127.0.0.2:0").unwrap_err();
            assert!(refused.contains("not_moved: listen: out of descriptors"), "{refused}");
        }
        assert!(runs(process) && control.servers().len() == 1);
        control.end();
    }
}

/// A program that never answers is given up, and ended by force.
fn a_wedged_program_is_no_server() {
    let this = || std::env::current_exe().unwrap().into();
    let options = Options::new(vec![this(), "wedged".into()], anywhere());
    let options = Options { patience: Duration::from_millis(200), ..options };
    let failed = Supervisor::start(options).unwrap_err().to_string();
    assert!(failed.contains("says nothing"), "{failed}");
    assert_eq!(children(), 0);
    let refused = Options::new(vec![this(), "hesitant".into(), "nowhere".into()], anywhere());
    let refused = Supervisor::start(Options { servers_max: 0, ..refused }).unwrap_err().to_string();
    assert!(refused.contains("servers_full: "), "{refused}");
    assert_eq!(children(), 0, "one is left that nobody waits for");
    // What it has started ends with it.
    let family = ["sh", "-c", "sleep 120 >/dev/null & wait"].map(Into::into).to_vec();
    let options = Options { patience: Duration::from_millis(200), ..Options::new(family, anywhere()) };
    assert!(Supervisor::start(options).is_err());
    until("no process", || children() == 0);
    let missing = Options::new(vec!["/nowhere/at/all".into()], anywhere());
    assert!(Supervisor::start(missing).is_err());
}

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_fork_is_a_copy_that_goes_its_own_way", a_fork_is_a_copy_that_goes_its_own_way),
    ("a_copy_holds_nothing_of_its_parents", a_copy_holds_nothing_of_its_parents),
    ("what_goes_wrong_stays_in_the_parent", what_goes_wrong_stays_in_the_parent),
    ("no_more_are_forked_at_once_than_there_are_places", no_more_are_forked_at_once_than_there_are_places),
    ("a_server_moves", a_server_moves),
    (
        "a_copy_listens_beside_its_parent_wherever_that_moved",
        a_copy_listens_beside_its_parent_wherever_that_moved,
    ),
    ("a_server_that_is_signalled_answers_what_was_begun", a_server_that_is_signalled_answers_what_was_begun),
    ("a_call_to_a_servers_former_address_is_answered", a_call_to_a_servers_former_address_is_answered),
    ("nothing_is_used_up_by_many_forks", nothing_is_used_up_by_many_forks),
    ("nothing_is_used_up_by_many_generations", nothing_is_used_up_by_many_generations),
    ("what_was_not_written_is_not_written_twice", what_was_not_written_is_not_written_twice),
    ("a_number_is_its_process_until_it_is_released", a_number_is_its_process_until_it_is_released),
    ("a_server_that_comes_is_waited_for", a_server_that_comes_is_waited_for),
    ("a_server_that_never_comes_is_given_up", a_server_that_never_comes_is_given_up),
    ("a_server_that_comes_while_all_are_ended_is_none", a_server_that_comes_while_all_are_ended_is_none),
    ("servers_that_nobody_looks_after_any_more_end", servers_that_nobody_looks_after_any_more_end),
    ("what_may_have_been_committed_is_not_taken_back", what_may_have_been_committed_is_not_taken_back),
    ("a_copy_that_nobody_waits_for_is_none", a_copy_that_nobody_waits_for_is_none),
    ("a_copy_that_nobody_heard_of_ends", a_copy_that_nobody_heard_of_ends),
    ("the_only_one_left_is_not_ended", the_only_one_left_is_not_ended),
    ("a_terminals_signals_are_the_supervisors_alone", a_terminals_signals_are_the_supervisors_alone),
    ("a_session_keeps_or_takes_back", a_session_keeps_or_takes_back),
    (
        "a_session_that_is_let_go_of_leaves_what_its_cleanup_says",
        a_session_that_is_let_go_of_leaves_what_its_cleanup_says,
    ),
    (
        "an_answer_that_comes_late_is_the_answer_to_no_other_order",
        an_answer_that_comes_late_is_the_answer_to_no_other_order,
    ),
    ("a_copy_that_comes_late_is_none", a_copy_that_comes_late_is_none),
    ("a_server_that_is_emancipated_late_is_not_ended", a_server_that_is_emancipated_late_is_not_ended),
    ("nobody_is_left_behind_but_who_was_emancipated", nobody_is_left_behind_but_who_was_emancipated),
    ("who_speaks_for_a_copy_is_none", who_speaks_for_a_copy_is_none),
    (
        "a_server_that_is_to_end_and_goes_on_is_ended_by_force",
        a_server_that_is_to_end_and_goes_on_is_ended_by_force,
    ),
    (
        "a_server_that_hangs_is_ended_in_the_time_of_one_order",
        a_server_that_hangs_is_ended_in_the_time_of_one_order,
    ),
    (
        "a_server_that_is_out_of_descriptors_refuses_and_goes_on",
        a_server_that_is_out_of_descriptors_refuses_and_goes_on,
    ),
    ("a_wedged_program_is_no_server", a_wedged_program_is_no_server),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["sum", gate] => return sum(Path::new(gate)),
        ["hesitant", gate] => return hesitant(Path::new(gate)),
        ["crowded", _] => return crowded(0),
        ["crowded but for one", _] => return crowded(1),
        ["lingering", _] => return lingering(),
        ["pretender", _] => return pretender(),
        ["talker"] => return talker(),
        ["ask", endpoint] => return ask(Path::new(endpoint)),
        ["wedged"] => return wedged(),
        ["supervise", directory] => return supervise(Path::new(directory)),
        _ => {}
    }
    let wanted = words.iter().find(|word| !word.starts_with('-'));
    let chosen: Vec<&Test> =
        TESTS.iter().filter(|(name, _)| wanted.is_none_or(|w| name.contains(w))).collect();
    if words.contains(&"--list") {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    // Each in a process of its own: a supervisor waits for every child there is.
    if let ["--one", name] = words[..] {
        let (_, test) = TESTS.iter().find(|(known, _)| *known == name).unwrap();
        return test();
    }
    let mut failed = 0;
    for (name, _) in &chosen {
        let run = std::process::Command::new(std::env::current_exe().unwrap()).args(["--one", name]).status();
        let passed = run.is_ok_and(|status| status.success());
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    println!("test result: {} passed; {failed} failed", chosen.len() - failed);
    assert_eq!(failed, 0);
}
