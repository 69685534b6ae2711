//! `thalweg fork-server` and programs that are no servers of its kind; `crates/fork` has the tests with one
//! that is.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::PROGRAM;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use thalweg_fork::{Order, Program};
use thalweg_sys::epoll::wait_readable;

const IS_PROGRAM: &str = "THALWEG_TEST_IS_PROGRAM";
/// Set where it crashes with the first connection.
const CRASHES: &str = "THALWEG_TEST_CRASHES";

fn run(control: &Path, program: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["fork-server", "--patience-ms", "200", "--control"]).arg(control).arg("--").args(program);
    command.output().unwrap()
}

/// No test of its own: what `thalweg fork-server` starts in one that is, this program again. It serves where
/// it is told.
#[test]
fn the_program() {
    if std::env::var_os(IS_PROGRAM).is_none() {
        return;
    }
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
        assert!(std::env::var_os(name).is_none(), "what was handed over was not for this process: {name}");
    }
    let mut program = Program::inherited().unwrap();
    loop {
        match program.order().unwrap() {
            None => drop(wait_readable(program.as_fd(), 60_000).unwrap()),
            Some(Order::Listen(listener)) => {
                let listener = TcpListener::from(listener);
                listener.set_nonblocking(false).unwrap();
                std::thread::spawn(move || {
                    for stream in listener.incoming() {
                        if std::env::var_os(CRASHES).is_some() {
                            std::process::abort();
                        }
                        stream.unwrap().write_all(b"here").unwrap();
                    }
                });
                program.done().unwrap();
            }
            Some(Order::Fork(_)) => program.failed("not this one").unwrap(),
            Some(Order::End) => return program.done().unwrap(),
        }
    }
}

/// `thalweg fork-server` with that program, started as systemd starts it: descriptors from 3 on listen, as
/// many as are said.
fn activated(control: &Path, listener: &dyn AsFd, count: u32, more: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!(
        "exec 3<&0 4<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES=here exec \"$0\" fork-server \"$@\""
    );
    command.args(["-c", &script, PROGRAM]).args(more).arg("--control").arg(control).arg("--");
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "the_program"]).env(IS_PROGRAM, "1");
    command.stdin(listener.as_fd().try_clone_to_owned().unwrap());
    command
}

#[test]
fn the_first_server_listens_at_a_socket_that_was_handed_over() {
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("forks.sock");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut child = activated(&control, &listener, 1, &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let says = lines.find(|line| line.as_ref().unwrap().contains("server 1 at")).unwrap().unwrap();
    assert!(says.contains(&address.to_string()), "{says}");
    // Nobody but the program accepts.
    let mut heard = String::new();
    TcpStream::connect(address).unwrap().read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "here");
    let ended = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
    assert!(ended.success() && child.wait().unwrap().success());
    // The listener stays its maker's: it takes connections for the next server.
    assert!(TcpStream::connect(address).is_ok());
}

/// Whether a process runs; a zombie has ended.
fn runs(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// As a service manager stops a service whose program takes long to start.
#[test]
fn a_signal_while_the_program_starts_ends_it_and_what_it_has_started() {
    let directory = tempfile::tempdir().unwrap();
    let (control, told) = (directory.path().join("forks.sock"), directory.path().join("processes"));
    // It reads nothing of what it is told, and has the signals blocked.
    let script = "sleep 120 >&2 & echo $$ $! > \"$0.new\"; mv \"$0.new\" \"$0\"; wait";
    let mut command = Command::new(PROGRAM);
    command.args(["fork-server", "--patience-ms", "600000", "--control"]).arg(&control);
    command.args(["--", "sh", "-c", script]).arg(&told);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !told.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let processes = std::fs::read_to_string(&told).unwrap();
    assert!(processes.split_whitespace().all(runs), "{processes}");
    let ended = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
    assert!(ended.success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "it ended as if the program had failed to start");
    let begun = Instant::now();
    while processes.split_whitespace().any(runs) {
        assert!(begun.elapsed() < Duration::from_secs(60), "one of {processes} is left");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!control.exists());
}

/// `thalweg fork-server` with a program that starts another, listens, and does nothing it is told from then
/// on; and the processes of both.
fn stubborn(control: &Path, patience_ms: &str) -> (Child, String) {
    let told = control.with_extension("processes");
    let script =
        "read order; echo ok >&0; sleep 120 >&2 & echo $$ $! > \"$0.new\"; mv \"$0.new\" \"$0\"; wait";
    let mut command = Command::new(PROGRAM);
    command.args(["fork-server", "--patience-ms", patience_ms, "--control"]).arg(control);
    command.args(["--", "sh", "-c", script]).arg(&told).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut says = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut says).unwrap();
    assert!(says.contains("server 1 at"), "{says}");
    within_a_minute("the program does not start", || told.exists());
    (child, std::fs::read_to_string(&told).unwrap())
}

fn within_a_minute(otherwise: &str, mut is_there: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{otherwise}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// As an operator who presses Ctrl-C again.
#[test]
fn a_second_signal_ends_at_once_a_server_that_does_not_end_and_what_it_has_started() {
    for (patience_ms, signals) in [("120000", &["TERM", "INT"][..]), ("300", &["TERM"])] {
        let directory = tempfile::tempdir().unwrap();
        let control = directory.path().join("forks.sock");
        let (mut child, processes) = stubborn(&control, patience_ms);
        assert!(processes.split_whitespace().all(runs), "{processes}");
        for signal in signals {
            let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
            assert!(sent.success());
        }
        let mut ended = None;
        within_a_minute("it waits for a server that does not end", || {
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.and_then(|status| status.code()), Some(0));
        within_a_minute("a process is left", || !processes.split_whitespace().any(runs));
        assert!(!control.exists());
    }
}

#[test]
fn whoever_waits_for_it_is_told_that_the_last_server_crashed() {
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("forks.sock");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = activated(&control, &listener, 1, &[]);
    command.env(CRASHES, "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("server 1 at")));
    let _stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(
        complaint.contains("server 1, process ") && complaint.contains(", was ended by signal 6"),
        "{complaint}"
    );
}

#[test]
fn what_is_handed_over_is_one_tcp_socket_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("forks.sock");
    let refused = |listener: &dyn AsFd, count, more: &[&str]| {
        let output = activated(&control, &listener, count, more).output().unwrap();
        assert!(!output.status.success() && !control.exists());
        String::from_utf8(output.stderr).unwrap()
    };
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(directory.path().join("x.sock")).unwrap();
    for (complaint, says) in [
        (refused(&tcp, 2, &[]), "more than one socket"),
        (refused(&tcp, 1, &["--address", "127.0.0.1:0"]), "leave --address out"),
        (refused(&unix, 1, &[]), "not one that listens at TCP"),
    ] {
        assert!(complaint.contains(says), "{complaint}");
    }
}

#[test]
fn what_is_no_program_or_does_not_answer_is_refused_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("forks.sock");
    for (program, says) in [
        (&["/nowhere/at/all"][..], "cannot start /nowhere/at/all: "),
        // It reads what it is told, and says nothing.
        (&["cat"], "the process says nothing"),
        (&["true"], "true does not take orders"),
    ] {
        let output = run(&control, program);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.contains(says), "{program:?}: {complaint}");
        assert!(!complaint.contains("operating system"), "{complaint}");
        assert!(!control.exists(), "{program:?} left the endpoint behind");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = Command::new(PROGRAM);
    command.args(["fork-server", "--address", &address, "--control"]).arg(&control).args(["--", "cat"]);
    let complaint = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(complaint.contains(&format!("cannot listen at {address}: ")), "{complaint}");
    let output = run(Path::new("nowhere"), &["cat"]);
    assert_eq!(output.status.code(), Some(2), "an endpoint ends in .sock or .shm");
    // Nobody makes a socket there, and nobody was to be reached.
    let output = run(Path::new("/sys/thalweg.sock"), &["cat"]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && complaint.contains("/sys/thalweg.sock"), "{complaint}");
}
