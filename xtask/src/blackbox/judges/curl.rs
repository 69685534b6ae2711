//! curl as a judge: what a user with a shell does, over TCP and over a Unix socket at once. Each leg has
//! streams of its own on the one server. What curl adds to our own client is its independence: its parser,
//! its idea of `Expect`, of chunks, of HTTP/1.0 and of when a connection may be used again.

use super::write;
use crate::harness::server::{Launch, Scratch};
use crate::{Outcome, Tally};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

const TEXT: &str = "Content-Type: text/plain";
const BYTES: &str = "Content-Type: application/octet-stream";
const CLOSED: &str = "Stream-Closed: true";
/// Larger than any socket's buffers, and than one answer.
const LARGE_BYTES: usize = 2 << 20;
/// Long enough for a follower to be there before the append it waits for; if it is not, it still sees it.
const BEFORE_APPEND: Duration = Duration::from_millis(200);
/// Polls that may end before the news comes, which is late by as long as the machine stalls.
const POLLS_MAX: usize = 30;

/// Judges a server it starts.
pub(super) fn run(launch: Launch, scratch: &Scratch, ours: bool) -> Outcome {
    let socket = scratch.path().join("socket");
    let mut launch = launch.sse_lifetime_ms(60_000);
    if ours {
        launch = launch.with("--listen", format!("unix:{}", socket.display()));
    }
    let server = launch.start(&scratch.path().join("data"))?;
    let mut legs = vec![Leg::new("tcp", server.url(), None, scratch)?];
    if ours {
        legs.push(Leg::new("unix", "http://localhost".to_owned(), Some(socket), scratch)?);
    }
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let running: Vec<_> = legs.into_iter().map(|leg| scope.spawn(move || leg.judge())).collect();
        let panicked = Tally { passed: 0, failed: 1 };
        running.into_iter().map(|leg| leg.join().unwrap_or(panicked)).collect()
    });
    let mut total = Tally::default();
    for tally in tallies {
        total.passed += tally.passed;
        total.failed += tally.failed;
    }
    if total.failed > 0 {
        println!("the server said: {}", server.last_words());
    }
    Ok(total)
}

/// One way to reach the server.
struct Leg {
    name: &'static str,
    base: String,
    socket: Option<PathBuf>,
    directory: PathBuf,
}

/// What curl made of one request.
#[derive(Debug)]
struct Said {
    code: u16,
    /// Every head that came, interim ones included.
    head: String,
    body: Vec<u8>,
}

impl Said {
    /// A field of the last head.
    fn field(&self, name: &str) -> &str {
        let last = self.head.trim_end().rsplit("\r\n\r\n").next().unwrap_or("");
        let found =
            last.lines().filter_map(|line| line.split_once(':')).find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value.trim())
    }

    fn must_be(
        self,
        what: &str,
        code: u16,
        fields: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Result<Self, String> {
        if self.code != code {
            return Err(format!("{what}: expected {code}, got {}:\n{}", self.code, self.head));
        }
        for (name, value) in fields {
            if self.field(name) != *value {
                return Err(format!("{what}: expected {name}: {value:?}, got:\n{}", self.head));
            }
        }
        match body {
            Some(body) if body != self.body => {
                let shown =
                    |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
                let (ours, theirs) = (shown(body), shown(&self.body));
                Err(format!(
                    "{what}: expected a body of {} bytes {ours:?}, got {} bytes {theirs:?}",
                    body.len(),
                    self.body.len()
                ))
            }
            _ => Ok(self),
        }
    }

    /// The offset behind what this answer tells of.
    fn next_offset(&self) -> Result<String, String> {
        let offset = self.field("Stream-Next-Offset");
        if offset.is_empty() {
            Err(format!("no Stream-Next-Offset:\n{}", self.head))
        } else {
            Ok(offset.to_owned())
        }
    }
}

type Check = fn(&Leg) -> Result<(), String>;

const CHECKS: [(&str, Check); 11] = [
    ("create, append, read, HEAD, delete", Leg::lifecycle),
    ("ETag saved and compared", Leg::etags),
    ("long-poll sees an append", Leg::long_poll),
    ("long-poll with nothing new", Leg::long_poll_ends),
    ("SSE to the end of the stream", Leg::sse),
    ("close", Leg::close),
    ("Expect: 100-continue with 2 MiB", Leg::expect_continue),
    ("chunks from standard input", Leg::chunked),
    ("HTTP/1.0", Leg::http_1_0),
    ("one connection for many requests", Leg::reuse),
    ("idempotent producer", Leg::producer),
];

impl Leg {
    fn new(
        name: &'static str,
        base: String,
        socket: Option<PathBuf>,
        scratch: &Scratch,
    ) -> Result<Self, String> {
        let directory = scratch.path().join(name);
        std::fs::create_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        Ok(Self { name, base, socket, directory })
    }

    fn judge(&self) -> Tally {
        let mut tally = Tally::default();
        for (what, check) in CHECKS {
            let result = check(self);
            tally.check(result.is_ok(), || {
                format!("{}: {what}: {}", self.name, result.err().unwrap_or_default())
            });
        }
        tally
    }

    fn url(&self, name: &str) -> String {
        format!("{}/v1/stream/{}-{name}", self.base, self.name)
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "30"]).args(self.reach()).args(arguments);
        command
    }

    fn reach(&self) -> Vec<String> {
        self.socket.iter().flat_map(|s| ["--unix-socket".to_owned(), s.display().to_string()]).collect()
    }

    /// Runs curl to its end; anything but success of curl itself is an error. `name` keeps apart what runs at
    /// once.
    fn curl_as(&self, name: &str, arguments: &[&str]) -> Result<Said, String> {
        let (head, body) = (self.file(&format!("{name}.head")), self.file(&format!("{name}.body")));
        write(Path::new(&body), b"")?;
        let mut command =
            self.command(&["--dump-header", &head, "--output", &body, "--write-out", "%{http_code}"]);
        let output = command.args(arguments).output().map_err(|e| format!("curl: {e}"))?;
        let code = succeeded(&output)?;
        let read = |path: &str| std::fs::read(path).map_err(|e| format!("{path}: {e}"));
        let head = String::from_utf8_lossy(&read(&head)?).into_owned();
        let code = code.parse().map_err(|_| format!("curl says {code:?}"))?;
        Ok(Said { code, head, body: read(&body)? })
    }

    fn curl(&self, arguments: &[&str]) -> Result<Said, String> {
        self.curl_as("curl", arguments)
    }

    fn create(&self, url: &str, content_type: &str) -> Result<Said, String> {
        self.curl(&["-X", "PUT", "-H", content_type, url])?.must_be("create", 201, &[], Some(b""))
    }

    fn append(&self, url: &str, text: &str) -> Result<Said, String> {
        self.curl(&["-H", TEXT, "--data-binary", text, url])?.must_be("append", 204, &[], Some(b""))
    }

    /// Reads a stream from its start, answer by answer, until one says that this was all.
    fn read_all(&self, url: &str) -> Result<Vec<u8>, String> {
        let (mut bytes, mut offset) = (Vec::new(), "-1".to_owned());
        loop {
            let said = self.curl(&[&format!("{url}?offset={offset}")])?.must_be("read", 200, &[], None)?;
            offset = said.next_offset()?;
            bytes.extend_from_slice(&said.body);
            if said.field("Stream-Up-To-Date") == "true" {
                return Ok(bytes);
            }
            if said.body.is_empty() {
                return Err(format!("neither bytes nor the end, at {offset}:\n{}", said.head));
            }
        }
    }

    fn lifecycle(&self) -> Result<(), String> {
        let url = &self.url("lifecycle");
        let created = self.create(url, TEXT)?;
        if !created.field("Location").ends_with("-lifecycle") {
            return Err(format!("create: no Location:\n{}", created.head));
        }
        self.curl(&["-X", "PUT", "-H", TEXT, url])?.must_be("create again", 200, &[], None)?;
        self.curl(&["-X", "PUT", "-H", BYTES, url])?.must_be("create otherwise", 409, &[], None)?;
        let first = self.append(url, "one ")?.next_offset()?;
        let second = self.append(url, "two")?.next_offset()?;
        if !(created.next_offset()? < first && first < second) {
            return Err(format!("offsets do not grow: {first}, {second}"));
        }
        let tail = [("Stream-Next-Offset", second.as_str()), ("Content-Type", "text/plain")];
        let all = self.curl(&[url])?.must_be("read", 200, &tail, Some(b"one two"))?;
        all.must_be("read", 200, &[("Stream-Up-To-Date", "true")], None)?;
        self.curl(&[&format!("{url}?offset={first}")])?.must_be("read on", 200, &tail, Some(b"two"))?;
        self.curl(&["--head", url])?.must_be("HEAD", 200, &tail, None)?;
        self.curl(&["-X", "DELETE", url])?.must_be("delete", 204, &[], Some(b""))?;
        self.curl(&[url])?.must_be("read what is gone", 404, &[], None)?;
        self.curl(&["-X", "DELETE", url])?.must_be("delete what is gone", 404, &[], None).map(drop)
    }

    fn etags(&self) -> Result<(), String> {
        let (url, tag) = (&self.url("etag"), &self.file("etag"));
        self.create(url, TEXT)?;
        self.append(url, "one")?;
        self.curl(&["--etag-save", tag, url])?.must_be("first read", 200, &[], Some(b"one"))?;
        self.curl(&["--etag-compare", tag, url])?.must_be("unchanged", 304, &[], Some(b""))?;
        self.append(url, " two")?;
        self.curl(&["--etag-compare", tag, "--etag-save", tag, url])?.must_be(
            "changed",
            200,
            &[],
            Some(b"one two"),
        )?;
        self.curl(&["-X", "POST", "-H", CLOSED, url])?.must_be("close", 204, &[], None)?;
        let closed = [(CLOSED.split_once(": ").map_or("", |(name, _)| name), "true")];
        self.curl(&["--etag-compare", tag, url])?
            .must_be("closed since", 200, &closed, Some(b"one two"))
            .map(drop)
    }

    fn long_poll(&self) -> Result<(), String> {
        let url = &self.url("long-poll");
        let offset = self.create(url, TEXT)?.next_offset()?;
        let poll = format!("{url}?offset={offset}&live=long-poll");
        // One that was over before the news came is followed by another, as clients do it.
        let poll = || {
            let polls = std::iter::repeat_with(|| self.curl_as("poll", &[&poll])).take(POLLS_MAX);
            let mut ended = polls.skip_while(|polled| polled.as_ref().is_ok_and(|said| said.code == 204));
            ended.next().unwrap_or_else(|| Err(format!("{POLLS_MAX} polls ended with nothing")))
        };
        let polled = std::thread::scope(|scope| {
            let polling = scope.spawn(poll);
            sleep(BEFORE_APPEND);
            let appended = self.append(url, "news");
            let polled = polling.join().map_err(|_| "the poll panicked".to_owned())?;
            appended.and(polled)
        })?;
        let polled = polled.must_be("poll", 200, &[("Stream-Up-To-Date", "true")], Some(b"news"))?;
        if polled.field("Stream-Cursor").is_empty() || polled.next_offset()? <= offset {
            return Err(format!("poll: no cursor, or no further offset:\n{}", polled.head));
        }
        Ok(())
    }

    fn long_poll_ends(&self) -> Result<(), String> {
        let url = &self.url("long-poll-ends");
        let offset = self.create(url, TEXT)?.next_offset()?;
        let fields = [("Stream-Next-Offset", offset.as_str()), ("Stream-Up-To-Date", "true")];
        let said = self.curl(&[&format!("{url}?offset={offset}&live=long-poll")])?;
        said.must_be("poll", 204, &fields, Some(b"")).map(drop)
    }

    fn sse(&self) -> Result<(), String> {
        let url = &self.url("sse");
        self.create(url, TEXT)?;
        self.append(url, "before")?;
        let mut follower =
            Follower::start(self.command(&["--no-buffer", &format!("{url}?offset=-1&live=sse")]))?;
        follower.await_line("data:before")?;
        follower.await_line("\"upToDate\":true")?;
        self.append(url, "after")?;
        follower.await_line("data:after")?;
        self.curl(&["-X", "POST", "-H", CLOSED, url])?.must_be("close", 204, &[], None)?;
        follower.await_line("\"streamClosed\":true")?;
        follower.end()
    }

    fn close(&self) -> Result<(), String> {
        let url = &self.url("close");
        self.create(url, TEXT)?;
        let closed = ("Stream-Closed", "true");
        let last = ["-H", TEXT, "-H", CLOSED, "--data-binary", "last", url];
        let end = self.curl(&last)?.must_be("append and close", 204, &[closed], None)?.next_offset()?;
        let end = ("Stream-Next-Offset", end.as_str());
        self.curl(&["-X", "POST", "-H", CLOSED, url])?.must_be("close again", 204, &[closed, end], None)?;
        let late = ["-H", TEXT, "--data-binary", "late", url];
        self.curl(&late)?.must_be("append after the end", 409, &[closed, end], None)?;
        let past = format!("{url}?offset={}", end.1);
        self.curl(&[&past])?.must_be("read at the end", 200, &[closed, end], Some(b""))?;
        let poll = format!("{past}&live=long-poll");
        self.curl(&[&poll])?.must_be("poll at the end", 204, &[closed, end], Some(b""))?;
        self.curl(&["--head", url])?.must_be("HEAD", 200, &[closed, end], None).map(drop)
    }

    fn expect_continue(&self) -> Result<(), String> {
        let (url, file) = (&self.url("expect"), &self.file("large"));
        let bytes = noise();
        write(Path::new(file), &bytes)?;
        self.create(url, BYTES)?;
        // curl would wait for longer than it may take in all, so without the interim answer this fails.
        let expect = ["-H", "Expect: 100-continue", "--expect100-timeout", "60", "-H", BYTES];
        let said = self.command_with(&expect, &["--data-binary", &format!("@{file}"), url])?;
        let said = said.must_be("append", 204, &[], None)?;
        if !said.head.starts_with("HTTP/1.1 100 ") {
            return Err(format!("no interim answer:\n{}", said.head));
        }
        if self.read_all(url)? != bytes {
            return Err("what was read is not what was sent".to_owned());
        }
        let nowhere =
            self.command_with(&expect, &["--data-binary", &format!("@{file}"), &self.url("nowhere")])?;
        nowhere.must_be("append to nothing", 404, &[], None).map(drop)
    }

    fn command_with(&self, options: &[&str], arguments: &[&str]) -> Result<Said, String> {
        self.curl(&[options, arguments].concat())
    }

    fn chunked(&self) -> Result<(), String> {
        let url = &self.url("chunked");
        let bytes = noise();
        self.create(url, BYTES)?;
        let upload = ["-X", "POST", "-H", BYTES, "--write-out", "%{http_code}", "--upload-file", "-", url];
        let mut command = self.command(&upload);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("curl: {e}"))?;
        let mut stdin = child.stdin.take().ok_or("no standard input")?;
        // In pieces of a size that fits no buffer, and the input's end before the answer is asked for.
        let sent = bytes.chunks(77_777).try_for_each(|piece| stdin.write_all(piece));
        drop(stdin);
        let output = child.wait_with_output().map_err(|e| format!("curl: {e}"))?;
        let code = succeeded(&output)?;
        sent.map_err(|e| format!("curl does not read: {e}"))?;
        if code != "204" {
            return Err(format!("expected 204, got {code}"));
        }
        let read = self.read_all(url)?;
        if read == bytes { Ok(()) } else { Err(format!("{} bytes of {} came back", read.len(), bytes.len())) }
    }

    fn http_1_0(&self) -> Result<(), String> {
        let url = &self.url("http10");
        let old = |arguments: &[&str]| {
            let said = self.command_with(&["--http1.0"], arguments)?;
            match said.field("Transfer-Encoding") {
                "" => Ok(said),
                coding => Err(format!("HTTP/1.0 knows no {coding}:\n{}", said.head)),
            }
        };
        old(&["-X", "PUT", "-H", TEXT, url])?.must_be("create", 201, &[], None)?;
        old(&["-H", TEXT, "--data-binary", "old", url])?.must_be("append", 204, &[], None)?;
        old(&[url])?.must_be("read", 200, &[("Connection", "close")], Some(b"old"))?;
        old(&["-X", "POST", "-H", CLOSED, url])?.must_be("close", 204, &[], None)?;
        let live = old(&[&format!("{url}?offset=-1&live=sse")])?.must_be("SSE", 200, &[], None)?;
        let text = String::from_utf8_lossy(&live.body);
        if text.contains("data:old") && text.contains("\"streamClosed\":true") {
            Ok(())
        } else {
            Err(format!("SSE: it ends with {text:?}"))
        }
    }

    fn reuse(&self) -> Result<(), String> {
        let url = &self.url("reuse");
        let missing = &self.url("missing");
        let requests: [&[&str]; 7] = [
            &["-X", "PUT", "-H", TEXT, url],
            &["-H", TEXT, "--data-binary", "text", url],
            &[missing],
            &[url],
            &["--head", url],
            &["-H", TEXT, "--data-binary", "", url],
            &["-X", "DELETE", url],
        ];
        let mut command = self.command(&[]);
        for (n, request) in requests.iter().enumerate() {
            if n > 0 {
                command.arg("--next").args(["--silent", "--max-time", "30"]).args(self.reach());
            }
            command
                .args(["--output", "/dev/null", "--write-out", "%{http_code}/%{num_connects} "])
                .args(*request);
        }
        let said = succeeded(&command.output().map_err(|e| format!("curl: {e}"))?)?;
        let expected = "201/1 204/0 404/0 200/0 200/0 400/0 204/0";
        if said.trim() == expected {
            Ok(())
        } else {
            Err(format!("status/new connections: expected {expected}, got {said}"))
        }
    }

    fn producer(&self) -> Result<(), String> {
        let url = &self.url("producer");
        self.create(url, TEXT)?;
        let send = |epoch: u32, seq: u32, text: &str| {
            let (epoch, seq) = (format!("Producer-Epoch: {epoch}"), format!("Producer-Seq: {seq}"));
            let fields = ["-H", "Producer-Id: shell", "-H", &epoch, "-H", &seq];
            self.command_with(&fields, &["-H", TEXT, "--data-binary", text, url])
        };
        send(0, 0, "a")?.must_be("first", 200, &[("Producer-Seq", "0")], None)?;
        send(0, 0, "a")?.must_be("again", 204, &[("Producer-Seq", "0")], None)?;
        let gap = [("Producer-Expected-Seq", "1"), ("Producer-Received-Seq", "3")];
        send(0, 3, "d")?.must_be("gap", 409, &gap, None)?;
        send(1, 0, "b")?.must_be("next epoch", 200, &[("Producer-Epoch", "1")], None)?;
        send(0, 1, "z")?.must_be("stale epoch", 403, &[("Producer-Epoch", "1")], None)?;
        self.curl(&[url])?.must_be("read", 200, &[], Some(b"ab")).map(drop)
    }
}

/// What curl printed, if it succeeded.
fn succeeded(output: &Output) -> Result<String, String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("curl ended with {}: {}", output.status, said.trim()))
}

/// Bytes that no compression and no repetition makes look right by accident.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..LARGE_BYTES / 8).flat_map(|_| next()).collect()
}

/// A curl that follows a stream.
struct Follower {
    child: Child,
    lines: BufReader<Box<dyn Read>>,
}

impl Follower {
    fn start(mut command: Command) -> Result<Self, String> {
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("curl: {e}"))?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        Ok(Self { child, lines: BufReader::new(Box::new(stdout)) })
    }

    /// Reads until a line has `part` in it. curl's own time limit bounds the wait.
    fn await_line(&mut self, part: &str) -> Result<(), String> {
        let mut seen = String::new();
        loop {
            let start = seen.len();
            let read = self.lines.read_line(&mut seen).map_err(|e| format!("curl: {e}"))?;
            if read == 0 {
                return Err(format!("it ended before {part:?}: {seen}"));
            }
            if seen[start..].contains(part) {
                return Ok(());
            }
        }
    }

    /// The server ends the response, and curl finds it complete.
    fn end(mut self) -> Result<(), String> {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).map_err(|e| format!("curl: {e}"))?;
        if rest.contains("event:") {
            return Err(format!("events after the last: {rest}"));
        }
        let status = self.child.wait().map_err(|e| format!("curl: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("curl ended with {status}")) }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: u16, head: &str, body: &[u8]) -> Said {
        Said { code, head: head.to_owned(), body: body.to_owned() }
    }

    #[test]
    fn fields_are_those_of_the_last_head() {
        let two =
            said(204, "HTTP/1.1 100 Continue\r\nA: 1\r\n\r\nHTTP/1.1 204 No Content\r\na: 2\r\n\r\n", b"");
        assert_eq!((two.field("A"), two.field("B")), ("2", ""));
        assert!(two.next_offset().is_err());
    }

    #[test]
    fn what_is_not_as_expected_is_said() {
        let answer = || said(200, "HTTP/1.1 200 OK\r\nA: 1\r\n\r\n", b"body");
        assert!(answer().must_be("read", 200, &[("A", "1")], Some(b"body")).is_ok());
        assert!(answer().must_be("read", 201, &[], None).unwrap_err().contains("expected 201, got 200"));
        assert!(answer().must_be("read", 200, &[("A", "2")], None).is_err());
        assert!(answer().must_be("read", 200, &[], Some(b"bod")).is_err());
    }

    #[test]
    fn a_follower_says_what_it_missed() {
        let mut echo = Command::new("echo");
        echo.arg("data:one");
        let mut follower = Follower::start(echo).unwrap();
        follower.await_line("data:one").unwrap();
        assert!(follower.await_line("data:two").unwrap_err().contains("ended before"));
    }
}
