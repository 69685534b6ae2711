//! Programs that are started, with real children: this very test program, which serves when a variable tells
//! it to, and the shell where a program has to misbehave.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod peer;

use peer::{Way, echo, options, serve_at};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use thalweg_service::{CallOptions, Client, Exit, ProgramEvent, Respawn, SpawnOptions, Spawned, Wait};
use thalweg_transport::Endpoint;
use thalweg_wire::fault::{Fault, Retry};

/// Tells a child what to do.
const ROLE: &str = "THALWEG_TEST_ROLE";
const PATH: &str = "THALWEG_TEST_PATH";

/// What a child does; nothing in the test program itself.
#[test]
fn a_child_plays_its_role() {
    let (Ok(role), Some(path)) = (std::env::var(ROLE), std::env::var_os(PATH)) else { return };
    let endpoint = Endpoint::Socket(path.into());
    match &*role {
        "asks" => {
            let mut client = Client::connect(&Endpoint::Stdio, options(Way::Plain)).unwrap();
            let answer = ask(&mut client, b"question");
            std::process::exit(i32::from(answer.as_deref() != Ok(b"answer")));
        }
        "slow" => std::thread::sleep(Duration::from_millis(100)),
        "mute" => {
            let _listener = UnixListener::bind(endpoint.path().unwrap()).unwrap();
            std::thread::sleep(Duration::from_secs(1_000));
            return;
        }
        "unreaped" => {
            let spawn = SpawnOptions {
                arguments: ["-c", "echo wedged; exec sleep 1000"].map(OsString::from).to_vec(),
                ready_within: Duration::from_secs(5),
                ..acting("", &std::env::var_os(PATH).unwrap())
            };
            eprintln!("{}", Spawned::start("sh", endpoint, spawn).unwrap_err());
            return;
        }
        "unreaped at once" => {
            let spawn = SpawnOptions {
                arguments: ["-c", "echo no configuration; exit 3"].map(OsString::from).to_vec(),
                ..acting("", &std::env::var_os(PATH).unwrap())
            };
            let error = Spawned::start("sh", endpoint, spawn).unwrap_err();
            eprintln!("{:?}: {error}", error.fault);
            return;
        }
        "restarts unreaped" => {
            let mut service = Spawned::start("cat", Endpoint::Stdio, SpawnOptions::default()).unwrap();
            let before = service.process();
            service.restart().unwrap();
            assert!(service.process().is_some() && service.process() != before);
            assert_eq!((service.exit(), service.tend().unwrap()), (None, ProgramEvent::Running));
            eprintln!("restarted; {:?}", service.stop().unwrap());
            return;
        }
        "tends unreaped" => {
            let respawn = Respawn::Limited { most: 1, within: Duration::from_secs(3_600) };
            let options = SpawnOptions { respawn, ..SpawnOptions::default() };
            let mut service = Spawned::start("cat", Endpoint::Stdio, options).unwrap();
            let mut kill = || {
                let process = service.process().unwrap().to_string();
                // Nobody learns how this one ended, either.
                let _ = std::process::Command::new("sh").args(["-c", &format!("kill -9 {process}")]).status();
                thalweg_sys::epoll::wait_readable(service.descriptor().unwrap(), 60_000).unwrap();
                service.tend()
            };
            eprintln!("{:?}", kill().unwrap());
            eprintln!("{}", kill().unwrap_err());
            return;
        }
        "parent" => {
            let _service =
                Spawned::start(this(), endpoint, acting("serve", &std::env::var_os(PATH).unwrap()));
            std::thread::sleep(Duration::from_secs(1_000));
            return;
        }
        _ => {}
    }
    let way = if role == "plain" { Way::Plain } else { Way::Multiplexed };
    let _ = std::fs::remove_file(endpoint.path().unwrap());
    serve_at(&endpoint, 1_000, way, move |peer| {
        let request = peer.request();
        if request.payload == b"die" {
            eprintln!("told to die");
            std::process::exit(9);
        }
        peer.end(&request.header, &request.payload);
        echo(peer);
    })
    .join();
}

fn this() -> OsString {
    std::env::current_exe().unwrap().into()
}

fn acting(role: &str, path: &OsString) -> SpawnOptions {
    SpawnOptions {
        arguments: ["--exact", "a_child_plays_its_role", "--nocapture"].map(OsString::from).to_vec(),
        environment: vec![(ROLE.into(), role.into()), (PATH.into(), path.clone())],
        ready_within: Duration::from_secs(60),
        log: Some(Path::new(path).with_extension("log")),
        ..SpawnOptions::default()
    }
}

struct Place {
    _directory: tempfile::TempDir,
    path: OsString,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("child.sock").into();
        Self { _directory: directory, path }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Socket(self.path.clone().into())
    }

    fn shell(&self, script: &str) -> SpawnOptions {
        SpawnOptions { arguments: vec!["-c".into(), script.into()], ..acting("", &self.path) }
    }
}

fn ask(client: &mut Client, request: &[u8]) -> Result<Vec<u8>, Fault> {
    let call = client.call(request, CallOptions::default()).map_err(|error| error.fault)?;
    client.wait(call).map(<[u8]>::to_vec).map_err(|error| error.fault)
}

#[test]
fn a_program_is_ready_when_start_returns_and_ends_when_told() {
    for role in ["serve", "slow", "plain"] {
        let place = Place::new();
        let plain = role == "plain";
        let spawn = SpawnOptions { plain, ..acting(role, &place.path) };
        let mut service = Spawned::start(this(), place.endpoint(), spawn).unwrap();
        let way = if plain { Way::Plain } else { Way::Multiplexed };
        let mut client = service.connect(options(way)).unwrap();
        assert_eq!(ask(&mut client, b"hello").unwrap(), b"hello");
        assert!(service.process().is_some() && service.exit().is_none());
        assert_eq!(service.stop().unwrap(), Some(Exit::Signal(15)));
        assert_eq!(ask(&mut client, b"hello"), Err(Fault::NotSent));
        assert_eq!((service.process(), service.exit()), (None, Some(Exit::Signal(15))));
        assert_eq!(service.tend().unwrap_err().fault, Fault::Closed);
    }
}

#[test]
fn one_that_dies_at_once_says_with_what_and_why() {
    let place = Place::new();
    let log = Path::new(&place.path).with_extension("log");
    std::fs::write(&log, "of an earlier life\n").unwrap();
    let spawn = place.shell("echo 'cannot read the configuration' >&2; exit 3");
    let error = Spawned::start("sh", place.endpoint(), spawn).unwrap_err();
    assert_eq!((error.fault, error.retry()), (Fault::NoServer, Retry::Safe));
    let text = error.to_string();
    assert!(text.contains("code 3") && text.contains("cannot read the configuration"), "{text}");
    assert!(!text.contains("earlier life"), "{text}");
}

#[test]
fn one_that_is_not_there_says_so() {
    let place = Place::new();
    let error = Spawned::start("/nonexistent/program", place.endpoint(), place.shell("")).unwrap_err();
    assert_eq!((error.fault, error.retry()), (Fault::BadArgument, Retry::Never));
    assert!(error.to_string().contains("/nonexistent/program"), "{error}");
}

#[test]
fn one_whose_directory_or_log_is_not_there_is_not_blamed() {
    let place = Place::new();
    let nowhere = Some("/nonexistent/place".into());
    let options = || place.shell("exit 0");
    let each = [
        SpawnOptions { directory: nowhere.clone(), ..options() },
        SpawnOptions { log: nowhere, ..options() },
    ];
    for options in each {
        let error = Spawned::start("sh", place.endpoint(), options).unwrap_err();
        assert_eq!((error.fault, error.retry()), (Fault::BadArgument, Retry::Never));
        let said = error.to_string();
        assert!(said.contains("sh could not be started: /nonexistent/place: "), "{said}");
    }
}

#[test]
fn one_that_neither_answers_nor_ends_is_killed() {
    let place = Place::new();
    let spawn = SpawnOptions {
        ready_within: Duration::from_secs(5),
        end_within: Duration::from_millis(50),
        ..place.shell("trap '' TERM; echo wedged; while :; do sleep 0.05; done")
    };
    let error = Spawned::start("sh", place.endpoint(), spawn).unwrap_err();
    assert_eq!(error.fault, Fault::ConnectTimeout);
    assert!(error.to_string().ends_with("wedged"), "{error}");

    let place = Place::new();
    let spawn = SpawnOptions { ready_within: Duration::from_millis(500), ..acting("mute", &place.path) };
    let error = Spawned::start(this(), place.endpoint(), spawn).unwrap_err();
    assert_eq!(error.fault, Fault::ConnectTimeout);
}

/// What a process says in a role while it ignores `SIGCHLD`: the kernel keeps no exit status of its children.
fn said_while_ignoring_sigchld(role: &str) -> String {
    let place = Place::new();
    let mut command = std::process::Command::new("env");
    command.arg("--ignore-signal=CHLD").arg(this());
    command.args(["--exact", "a_child_plays_its_role", "--nocapture"]);
    command.env(ROLE, role).env(PATH, &place.path).stdin(Stdio::null());
    String::from_utf8(command.output().unwrap().stderr).unwrap()
}

#[test]
fn one_whose_end_cannot_be_learned_says_why_it_was_not_ready() {
    let said = said_while_ignoring_sigchld("unreaped");
    let error = Fault::ConnectTimeout.says();
    assert!(said.contains(error) && said.contains("wedged"), "{said}");
}

#[test]
fn one_that_dies_at_once_says_why_where_nobody_knows_with_what() {
    let said = said_while_ignoring_sigchld("unreaped at once");
    assert!(
        said.contains("NoServer: ") && said.contains("sh ended before it answered, and nobody"),
        "{said}"
    );
    assert!(said.contains("ends:\nno configuration"), "{said}");
    assert_eq!(said.matches("ignores SIGCHLD").count(), 1, "{said}");
}

#[test]
fn one_whose_end_cannot_be_learned_is_restarted_all_the_same() {
    let said = said_while_ignoring_sigchld("restarts unreaped");
    assert!(said.contains("restarted; Some(Unknown)"), "{said}");
}

#[test]
fn one_whose_end_nobody_knows_is_started_anew_as_often_as_it_may_be() {
    let said = said_while_ignoring_sigchld("tends unreaped");
    assert!(said.contains("Respawned(Unknown)"), "{said}");
    assert!(said.contains("cat ended, 1 times within 3600 s, and nobody knows how: "), "{said}");
}

#[test]
fn one_whose_place_is_taken_is_not_started() {
    let place = Place::new();
    let _first = Spawned::start(this(), place.endpoint(), acting("serve", &place.path)).unwrap();
    let spawn = place.shell("echo started");
    let error = Spawned::start("sh", place.endpoint(), spawn.clone()).unwrap_err();
    assert_eq!(error.fault, Fault::AddressInUse);
    let log = std::fs::read_to_string(spawn.log.unwrap()).unwrap();
    assert!(!log.contains("started"), "{log}");
}

#[test]
fn one_that_dies_is_started_anew_as_often_as_it_may_be() {
    let place = Place::new();
    let respawn = Respawn::Limited { most: 2, within: Duration::from_secs(3_600) };
    let spawn = SpawnOptions { respawn, ..acting("serve", &place.path) };
    let mut service = Spawned::start(this(), place.endpoint(), spawn).unwrap();
    assert_eq!(service.tend().unwrap(), ProgramEvent::Running);
    for _ in 0..2 {
        let before = service.process();
        let mut client = service.connect(options(Way::Multiplexed)).unwrap();
        assert_eq!(ask(&mut client, b"die"), Err(Fault::Disconnected));
        thalweg_sys::epoll::wait_readable(service.descriptor().unwrap(), 60_000).unwrap();
        assert_eq!(service.tend().unwrap(), ProgramEvent::Respawned(Exit::Code(9)));
        assert_ne!(service.process(), before);
    }
    let mut client = service.connect(options(Way::Multiplexed)).unwrap();
    assert_eq!(ask(&mut client, b"die"), Err(Fault::Disconnected));
    thalweg_sys::epoll::wait_readable(service.descriptor().unwrap(), 60_000).unwrap();
    let error = service.tend().unwrap_err();
    assert_eq!(error.fault, Fault::NoServer);
    assert!(error.to_string().contains("code 9") && error.to_string().contains("told to die"), "{error}");
    assert!(service.connect(options(Way::Multiplexed)).is_err(), "and it stays ended");
}

#[test]
fn one_that_does_not_do_as_it_should_is_restarted() {
    let place = Place::new();
    let mut service = Spawned::start(this(), place.endpoint(), acting("serve", &place.path)).unwrap();
    let before = service.process();
    service.restart().unwrap();
    assert_ne!(service.process(), before);
    let mut client = service.connect(options(Way::Multiplexed)).unwrap();
    assert_eq!(ask(&mut client, b"hello").unwrap(), b"hello");
}

#[test]
fn who_is_interrupted_waits_no_longer_and_leaves_no_program() {
    let long = Duration::from_secs(600);
    let place = Place::new();
    let mut asked = 0;
    // Once before it starts, and once while it waits.
    let started = Spawned::start_interruptible(
        this(),
        place.endpoint(),
        SpawnOptions { ready_within: long, end_within: long, ..acting("mute", &place.path) },
        &mut || {
            asked += 1;
            asked > 1
        },
    );
    assert_eq!((started.unwrap_err().fault, asked), (Fault::Cancelled, 2));

    let deaf = place.shell("trap '' TERM; while :; do sleep 0.01; done");
    let deaf = SpawnOptions { end_within: long, ..deaf };
    let mut service = Spawned::start("sh", Endpoint::Stdio, deaf).unwrap();
    assert_eq!(service.restart_interruptible(&mut || true).unwrap_err().fault, Fault::Cancelled);
    assert_eq!((service.process(), service.exit()), (None, Some(Exit::Signal(9))), "none was started anew");
    let error = service.begin_connecting(options(Way::Plain)).unwrap_err();
    assert!(error.fault == Fault::NoServer && error.to_string().contains("does not run"), "{error}");
    service.restart().unwrap();
    assert_eq!(service.stop_interruptible(&mut || true).unwrap(), Some(Exit::Signal(9)));
    assert_eq!(service.begin_connecting(options(Way::Plain)).unwrap_err().fault, Fault::Closed);
}

#[test]
fn one_that_speaks_over_its_standard_input_and_output_has_one_connection() {
    for pipes in [false, true] {
        speaks_over_standard_streams(pipes);
    }
}

fn speaks_over_standard_streams(pipes: bool) {
    let place = Place::new();
    // What `cat` makes of a request is a fine answer.
    let spawn = SpawnOptions { arguments: Vec::new(), pipes, ..acting("", &place.path) };
    let mut service = Spawned::start("cat", Endpoint::Stdio, spawn).unwrap();
    let mut client = service.connect(options(Way::Plain)).unwrap();
    assert_eq!(ask(&mut client, b"hello").unwrap(), b"hello");
    let large = vec![7; 1 << 20];
    // In a foreign loop, which is told of room to write as of what came.
    let call = client.call(&large, CallOptions::default()).unwrap();
    client.turn(Wait::Poll).unwrap();
    let answer = loop {
        if let Some(event) = client.next() {
            assert_eq!(event.call, call);
            break event.frame.to_vec();
        }
        assert!(thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), 60_000).unwrap());
        client.turn(Wait::Poll).unwrap();
    };
    assert_eq!(answer, large);
    assert_eq!(ask(&mut client, &large).unwrap(), large, "more than a pipe holds goes both ways at once");
    assert_eq!(service.connect(options(Way::Plain)).unwrap_err().fault, Fault::NoServer);
    drop(client);
    thalweg_sys::epoll::wait_readable(service.descriptor().unwrap(), 60_000).unwrap();
    assert!(service.tend().unwrap_err().to_string().contains("code 0"), "its input has ended");
}

#[test]
fn a_program_ends_with_the_process_that_started_it() {
    let place = Place::new();
    let spawn = SpawnOptions { ready_within: Duration::from_secs(60), ..acting("parent", &place.path) };
    // The parent's endpoint is its child's.
    let mut parent = Spawned::start(this(), place.endpoint(), spawn).unwrap();
    let mut client = parent.connect(options(Way::Multiplexed)).unwrap();
    assert_eq!(ask(&mut client, b"hello").unwrap(), b"hello");
    let socket = OwnedFd::from(UnixStream::connect(&place.path).unwrap());
    // Killed, it has no moment to end anybody.
    std::process::Command::new("kill").args(["-9", &parent.process().unwrap().to_string()]).status().unwrap();
    // Its child is killed a moment after it: until then it answers.
    assert!(thalweg_sys::epoll::wait_readable(std::os::fd::AsFd::as_fd(&socket), 60_000).unwrap());
    // Whether the bytes still left depends on how far the kernel has come with that.
    assert!(matches!(ask(&mut client, b"hello"), Err(Fault::Disconnected | Fault::NotSent)));
    assert_eq!(parent.stop().unwrap(), Some(Exit::Signal(9)));
}

/// By hand: its standard output is our input, and the other way round.
#[test]
fn a_client_speaks_over_pipes_that_it_was_started_with() {
    let mut command = std::process::Command::new(this());
    command.args(["--exact", "a_child_plays_its_role", "--nocapture", "--quiet"]);
    command.env(ROLE, "asks").env(PATH, "-").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut said, mut byte) = (Vec::new(), [0]);
    // Behind whatever the test program says on the very same pipe.
    while !said.ends_with(b"\x08\0\0\0question") {
        output.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    input.write_all(b"\x06\0\0\0answer").unwrap();
    assert!(child.wait().unwrap().success());
}
