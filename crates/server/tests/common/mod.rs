//! A server as a process, and the verbs to use it.

#![allow(dead_code, reason = "not every test program uses all of it")]
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "this is a test's code, though not in test functions"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg");

/// A running server; killed when dropped.
pub struct Server {
    pub child: Child,
    pub url: String,
    pub greeting: String,
}

/// How long what is about to happen may take, on however slow a machine, before it is taken to happen never.
pub const PATIENCE: Duration = Duration::from_secs(60);

impl Server {
    pub fn start(data: &Path, listen: &str, more: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", listen, "--log-level", "error", "--data"]).arg(data).args(more);
        Self::started(command)
    }

    /// A server that logs all it does, as JSON, for the test to read from the child's standard error.
    pub fn start_logging(data: &Path) -> Self {
        let mut command = Command::new(PROGRAM);
        let logging = ["--log-level", "debug", "--log-format", "json"];
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(logging);
        command.stderr(Stdio::piped());
        Self::started(command)
    }

    /// A server from a command line of the test's own.
    pub fn started(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains(" of memory while ") {
            assert!(out.read_line(&mut greeting).unwrap() > 0, "the server ended: {greeting}");
        }
        let url = greeting.split_whitespace().find(|word| word.starts_with("http://")).unwrap_or_default();
        let url = url.to_owned();
        // The rest of what it says is read for it, or it could not say it.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        Self { child, url, greeting }
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Asks it to end and waits until it did.
    pub fn end(mut self) {
        self.signal("TERM");
        assert!(self.ended().success());
    }

    /// Waits until it has ended.
    pub fn ended(&mut self) -> ExitStatus {
        until("the end", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }

    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn run(url: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env("THALWEG_URL", url);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// What a verb prints; it must succeed.
pub fn says(url: &str, arguments: &[&str]) -> String {
    let output = run(url, arguments, "");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The exit code and the complaint of a verb that must fail.
pub fn fails(url: &str, arguments: &[&str]) -> (i32, String) {
    let output = run(url, arguments, "");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Asks until it is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The answer to one request on a connection of its own.
pub fn ask(server: &Server, head: &str) -> String {
    let mut peer = TcpStream::connect(server.address()).unwrap();
    peer.write_all(format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
