//! The server's configuration as operators meet it: file, environment, reload, supervisor.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PATIENCE, PROGRAM, Server, fails, says};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn file(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("thalweg.toml");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_flag_the_environment_and_the_file_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let text = "durability = \"os\"\nlog_level = \"warn\"\nlog_format = \"json\"\nreactors = 2\n";
    let path = file(directory.path(), text);
    let output = Command::new(PROGRAM)
        .args(["serve", "--print-config", "--log-level", "debug"])
        .env("THALWEG_CONFIG", &path)
        .env("THALWEG_LOG_FORMAT", "text")
        .env("THALWEG_LISTEN", "127.0.0.1:1,unix:/s")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for wanted in [
        "log_level = \"debug\" # flag\n",
        "log_format = \"text\" # environment THALWEG_LOG_FORMAT\n",
        "listen = [\"127.0.0.1:1\", \"unix:/s\"] # environment THALWEG_LISTEN\n",
        &format!("durability = \"os\" # {}:1\n", path.display()),
        &format!("reactors = 2 # {}:4\n", path.display()),
        "drain_grace_ms = 10000 # default\n",
    ] {
        assert!(printed.contains(wanted), "{wanted}: {printed}");
    }
}

#[test]
fn a_mistyped_variable_is_told_and_keeps_no_server_from_starting() {
    let directory = tempfile::tempdir().unwrap();
    let said = directory.path().join("said");
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--durability", "memory", "--listen", "127.0.0.1:0"]);
    // Set to nothing it is as if it was not there.
    command.env("THALWEG_REACTROS", "1").env("THALWEG_SPINN", "").env("THALWEG_SPIN", "on");
    command.stderr(std::fs::File::create(&said).unwrap());
    Server::started(command).end();
    let said = std::fs::read_to_string(&said).unwrap();
    assert!(said.contains("THALWEG_REACTROS (the nearest is THALWEG_REACTORS)"), "{said}");
    assert!(!said.contains("THALWEG_SPIN"), "{said}");
}

#[test]
fn a_wrong_configuration_ends_it_before_anything_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for (text, wanted) in [
        (
            "reactors = 1\nlog_levle = \"info\"\n",
            ":2: there is no key `log_levle`; the nearest one is `log_level`",
        ),
        ("reactors = \"1\"\n", ":1: `reactors` is of type string; it takes a decimal integer"),
        ("durability = \"fast\"\n", ":1: invalid value 'fast' for `durability`"),
        ("a = = 1\n", ":1: "),
    ] {
        let path = file(directory.path(), text);
        let flags = ["serve", "--config", path.to_str().unwrap(), "--data", data.to_str().unwrap()];
        let (code, complaint) = fails("", &flags);
        assert!(code == 2 && complaint.contains(wanted), "{complaint}");
    }
    let (code, complaint) = fails("", &["serve", "--config", "/nowhere.toml"]);
    assert!(code == 2 && complaint.contains("/nowhere.toml"), "{complaint}");
    assert!(!data.exists());
}

/// The status of a request that says how large its body is going to be.
fn announced(address: &str, bytes: u32) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let fields = format!("Host: localhost\r\nExpect: 100-continue\r\nContent-Length: {bytes}\r\n");
    stream.write_all(format!("POST /v1/stream/none HTTP/1.1\r\n{fields}\r\n").as_bytes()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// What a client that may send a body is told.
const GO_ON: &str = "HTTP/1.1 100";

#[test]
fn a_hang_up_reloads_what_can_be_and_keeps_what_a_bad_file_would_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "body_max_bytes = 100\nlog_level = \"info\"\n");
    let log = directory.path().join("log");
    let mut command = Command::new(PROGRAM);
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--durability",
        "memory",
        "--reactors",
        "2",
        "--config",
    ]);
    command.arg(&path).stderr(std::fs::File::create(&log).unwrap());
    let server = Server::started(command);
    assert_eq!(announced(server.address(), 101), "HTTP/1.1 413");
    assert_eq!(announced(server.address(), 100), GO_ON);
    let said = |wanted: &str| {
        let start = Instant::now();
        while !std::fs::read_to_string(&log).unwrap().contains(wanted) {
            assert!(start.elapsed() < PATIENCE, "{}", std::fs::read_to_string(&log).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    file(directory.path(), "body_max_bytes = 1000\nlog_level = \"info\"\nspin = \"off\"\n");
    server.signal("HUP");
    said("waits for a restart");
    said("configuration read again");
    let start = Instant::now();
    // Both reactors hear of it in their own time.
    while announced(server.address(), 101) != GO_ON || announced(server.address(), 1_000) != GO_ON {
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(announced(server.address(), 1_001), "HTTP/1.1 413");
    file(directory.path(), "body_max_bytes = \"many\"\n");
    server.signal("HUP");
    said("the configuration is not reloaded");
    assert_eq!(announced(server.address(), 1_001), "HTTP/1.1 413");
    file(directory.path(), "body_max_bytes = 1000\nlog_level = \"debug\"\n");
    server.signal("HUP");
    let start = Instant::now();
    while !std::fs::read_to_string(&log).unwrap().contains("log_level") {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    server.end();
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("DEBUG"), "the level was raised: {log}");
}

#[test]
fn without_an_http_address_it_serves_its_neighbours_and_says_so_or_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "listen = []\nreactors = 1\n");
    let log = directory.path().join("log");
    let data = directory.path().join("data");
    let serve = ["serve", "--config", path.to_str().unwrap(), "--data", data.to_str().unwrap()];
    for nowhere in [["--services", "off"], ["--durability", "memory"]] {
        let (code, complaint) = fails("", &[&serve[..], &nowhere].concat());
        assert!(code == 2 && complaint.contains("listen is empty"), "{complaint}");
    }
    assert!(!data.exists());
    let mut command = Command::new(PROGRAM);
    command.args(serve).stderr(std::fs::File::create(&log).unwrap());
    let server = Server::started(command);
    assert!(server.url.is_empty() && server.greeting.contains("thalweg.sock"), "{}", server.greeting);
    server.end();
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("WARN") && log.contains("listen is empty"), "{log}");
    // JSON-RPC has a listener of its own, and so is somewhere.
    let mut command = Command::new(PROGRAM);
    command.args(serve).args(["--services", "off", "--rpc", "on", "--rpc-listen", "127.0.0.1:0"]);
    command.args(["--log-level", "error"]);
    Server::started(command).end();
}

#[test]
fn a_server_says_how_its_bounds_are_shared_out() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--reactors", "2", "--connections-max", "10", "--streams-max", "1"];
    let server = Server::start(directory.path(), "127.0.0.1:0", &flags);
    assert!(server.greeting.contains("limits: 10 connections, "), "{}", server.greeting);
    assert!(server.greeting.contains("; 1 stream\n"), "{}", server.greeting);
    assert!(
        server.greeting.contains("\n        all but connections and streams shared out over 2 reactors"),
        "{}",
        server.greeting
    );
    server.end();
}

/// The program, started as systemd starts it: descriptor 3 listens, and the environment says whose it is.
fn activated(listener: OwnedFd) -> Command {
    activated_as(listener, "LISTEN_PID=$$ LISTEN_FDS=1")
}

fn activated_as(listener: OwnedFd, variables: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("exec 3<&0 0</dev/null; {variables} exec \"$0\" \"$@\"");
    command.args(["-c", &script, PROGRAM, "serve", "--durability", "memory", "--log-level", "error"]);
    command.stdin(Stdio::from(listener));
    command
}

#[test]
fn a_listener_handed_over_is_used_and_the_supervisor_told() {
    let directory = tempfile::tempdir().unwrap();
    let notify = directory.path().join("notify");
    let supervisor = UnixDatagram::bind(&notify).unwrap();
    supervisor.set_read_timeout(Some(PATIENCE)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut command = activated(listener.try_clone().unwrap().into());
    command.args(["--reactors", "2"]).env("NOTIFY_SOCKET", &notify);
    let server = Server::started(command);
    assert_eq!(server.url, format!("http://{address}"), "{}", server.greeting);
    assert!(!server.greeting.contains(":4437"), "the default is not used beside it");
    let heard = || {
        let mut news = [0; 256];
        let count = supervisor.recv(&mut news).unwrap();
        String::from_utf8_lossy(&news[..count]).into_owned()
    };
    assert!(heard().starts_with("READY=1\n"));
    for index in 0..20 {
        says(&server.url, &["create", &format!("s{index}")]);
    }
    assert_eq!(says(&server.url, &["ls"]).lines().count(), 20);
    server.signal("TERM");
    assert!(heard().starts_with("STOPPING=1\n"));
    server.end();
    // The listener is the supervisor's: it still takes connections for the next server.
    assert!(TcpStream::connect(address).is_ok());
}

#[test]
fn nobody_is_answered_by_a_server_that_cannot_listen_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut waiting = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    waiting.write_all(b"PUT /v1/stream/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut command = activated(listener.try_clone().unwrap().into());
    command.args(["--rpc", "on", "--rpc-listen", &taken.local_addr().unwrap().to_string(), "--data"]);
    let output = command.arg(directory.path()).output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && complaint.contains("cannot listen at"), "{complaint}");
    waiting.set_nonblocking(true).unwrap();
    let heard = waiting.read(&mut [0; 256]);
    assert!(heard.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "{heard:?}");
}

#[test]
fn what_is_handed_over_is_judged() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let output = activated(listener.into()).output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(2) && complaint.contains("--insecure-listen-anywhere"),
        "{complaint}"
    );
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let output = activated(ours.into()).output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(1) && complaint.contains("descriptor 3 is not a listening"),
        "{complaint}"
    );
}

#[test]
fn what_is_said_of_listeners_that_were_handed_over_is_not_guessed_at() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let handed_over = || OwnedFd::from(listener.try_clone().unwrap());
    for (variables, wanted) in [
        ("LISTEN_PID=$$ LISTEN_FDS=abc", "LISTEN_FDS is \"abc\""),
        ("LISTEN_PID=$$ LISTEN_FDS=-1", "LISTEN_FDS is \"-1\""),
        ("LISTEN_PID=me LISTEN_FDS=1", "LISTEN_PID is \"me\""),
    ] {
        // Where nothing is taken of them it does not start either, but says something else.
        let output = activated_as(handed_over(), variables).args(["--listen", &address]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(wanted), "{variables}: {said}");
    }
    // What is meant for another process is none of ours, whatever it says.
    let mut command = activated_as(handed_over(), "LISTEN_PID=1 LISTEN_FDS=abc");
    command.args(["--listen", "127.0.0.1:0"]);
    let server = Server::started(command);
    assert_ne!(server.address(), address);
    server.end();
}

#[test]
fn an_address_that_is_handed_over_and_asked_for_is_named_with_both() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for flag in ["--listen", "--rpc-listen"] {
        let mut command = activated(listener.try_clone().unwrap().into());
        let output = command.args(["--rpc", "on", flag, &address]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let wanted = format!("a listener handed over is at http://{address}, and {flag} asks for");
        assert!(output.status.code() == Some(2) && said.contains(&wanted), "{said}");
    }
}
