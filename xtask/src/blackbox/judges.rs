//! Other people's clients as judges: curl, the official Python and npm clients, and a browser. Each gets a
//! server of its own and uses it as its documentation says. The scripts are in `conformance/judges`, whose
//! README tells the lines of JSON they speak; this module starts them, kills and starts their server when
//! they ask, counts what they checked, and ends them when they take too long. A script that stops early, or
//! checks less than it used to, fails.

mod curl;

use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch, Server, cache, root};
use crate::{Outcome, Tally};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const NAMES: [&str; 4] = ["curl", "python", "browser", "client"];
/// After which a judge that is not done has failed.
const LIMIT: Duration = Duration::from_secs(600);
/// Long enough that nothing arrives only because a long-poll ended, short enough to see one end.
const LONG_POLL_MS: u64 = 2_000;
/// Short, so that every follower sees SSE responses end and goes on in the next one.
const SSE_LIFETIME_MS: u64 = 1_500;
/// Ports that the kernel never gives to outgoing connections, so that a server can come back on its own.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A judge that is a script: what runs it, and how many checks it has at least.
struct Script {
    program: PathBuf,
    name: &'static str,
    checks_min: u64,
}

/// `cargo xtask judges`.
///
/// # Errors
/// An unknown judge, one that is not installed, or a server that does not start.
pub(crate) fn run(options: &Options) -> Outcome {
    let only: Vec<&str> = options.text("only", "").split(',').filter(|w| !w.is_empty()).collect();
    if let Some(unknown) = only.iter().find(|name| !NAMES.contains(name)) {
        return Err(format!("no judge {unknown}: there are {}", NAMES.join(", ")));
    }
    let launch = Launch::new(Program::of(options), options.text("durability", "sync"))?
        .long_poll_ms(LONG_POLL_MS)
        .sse_lifetime_ms(SSE_LIFETIME_MS);
    let ours = !options.flag("peer");
    let mut total = Tally::default();
    for name in NAMES.into_iter().filter(|name| only.is_empty() || only.contains(name)) {
        let started = Instant::now();
        let tally = judge(name, launch.clone(), ours)?;
        let seconds = started.elapsed().as_secs_f64();
        println!("judge {name}: {} passed, {} failed ({seconds:.1} s)", tally.passed, tally.failed);
        total.passed += tally.passed;
        total.failed += tally.failed;
    }
    Ok(total)
}

fn judge(name: &'static str, launch: Launch, ours: bool) -> Outcome {
    let scratch = Scratch::new(name)?;
    if name == "curl" {
        return curl::run(launch, &scratch, ours);
    }
    let script = script(name)?;
    let (launch, address) = if ours {
        let address = format!("127.0.0.1:{}", fixed_port()?);
        (launch.with("--listen", &address), Some(address))
    } else {
        (launch, None)
    };
    let data = scratch.path().join("data");
    let mut bench = Bench { server: None, launch: Box::new(move || launch.start(&data)), address };
    bench.start()?;
    hear(&script, &mut bench)
}

/// Where a script's interpreter is, and what must be installed for it.
fn script(name: &'static str) -> Result<Script, String> {
    let modules = root().join("conformance/node_modules");
    let (program, file, needs, checks_min) = match name {
        "python" => {
            let python = cache().join("judge-python/bin/python");
            (python.clone(), "python_client.py", python, 27)
        }
        "browser" => ("node".into(), "browser.js", modules.join("playwright-core"), 16),
        _ => ("node".into(), "client.js", modules.join("@durable-streams/client"), 25),
    };
    if !needs.exists() {
        return Err(format!("{name} is not installed ({} is missing): `make tools`", needs.display()));
    }
    Ok(Script { program, name: file, checks_min })
}

/// A port that was free a moment ago and that no outgoing connection will take.
fn fixed_port() -> Result<u16, String> {
    let span = u128::from(PORTS.end - PORTS.start);
    let first = u16::try_from(crate::harness::server::nanoseconds() / 1_000 % span).unwrap_or(0);
    (0..500_u16)
        .map(|n| PORTS.start + (first + n * 23) % (PORTS.end - PORTS.start))
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .ok_or_else(|| format!("no free port in {PORTS:?}"))
}

/// A judge's server: one data directory, and (ours) one address, however often it is killed.
struct Bench {
    server: Option<Server>,
    launch: Box<dyn Fn() -> Result<Server, String>>,
    address: Option<String>,
}

impl Bench {
    fn start(&mut self) -> Result<String, String> {
        let server = (self.launch)()?;
        self.server = Some(server);
        Ok(self.url())
    }

    fn kill(&mut self) -> Result<String, String> {
        self.server.take().map_or(Ok(()), Server::kill).map(|()| String::new())
    }

    fn url(&self) -> String {
        let listens = || self.server.as_ref().map_or_else(String::new, Server::url);
        self.address.as_ref().map_or_else(listens, |address| format!("http://{address}"))
    }

    fn last_words(&self) -> String {
        self.server.as_ref().map_or_else(|| "nothing: it was killed".to_owned(), Server::last_words)
    }
}

/// Runs a script to its end, and counts.
fn hear(script: &Script, bench: &mut Bench) -> Outcome {
    let directory = root().join("conformance/judges");
    let mut child = Command::new(&script.program)
        .arg(directory.join(script.name))
        .arg(bench.url())
        .current_dir(&directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{}: {e}", script.program.display()))?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("a child without pipes".to_owned());
    };
    let mut hearing = Hearing { tally: Tally::default(), done: None, stdin };
    let ended = hearing.listen(&lines(stdout), bench).and_then(|()| end(&mut child));
    // Whatever happened, it does not outlive its judgement; already ended is as good.
    let _ = child.kill();
    let _ = child.wait();
    let (mut tally, done) = (hearing.tally, hearing.done);
    let checks = tally.passed + tally.failed;
    tally.check(ended.is_ok(), || ended.err().unwrap_or_default());
    tally.check(done == Some(checks), || {
        format!("{}: it told of {checks} checks, and of {done:?}", script.name)
    });
    tally.check(checks >= script.checks_min, || {
        format!("{}: {checks} checks, at least {} are expected", script.name, script.checks_min)
    });
    // A server that fell over after its last answer did not pass.
    let alive = bench.server.as_ref().map(|s| s.connect().and_then(|mut c| c.request("GET", "/", &[], b"")));
    tally.check(matches!(alive, Some(Ok(_))), || format!("the server is gone: {alive:?}"));
    if tally.failed > 0 {
        println!("the server said: {}", bench.last_words());
    }
    Ok(tally)
}

/// What has been heard from a script.
struct Hearing {
    tally: Tally,
    done: Option<u64>,
    stdin: ChildStdin,
}

impl Hearing {
    fn listen(&mut self, lines: &Receiver<String>, bench: &mut Bench) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.take(&line, bench)?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => return Err(format!("it was not done after {LIMIT:?}")),
            }
        }
    }

    fn take(&mut self, line: &str, bench: &mut Bench) -> Result<(), String> {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            println!("  {line}");
            return Ok(());
        };
        let text = |name: &str| message[name].as_str();
        if text("passed").is_some() {
            self.tally.passed += 1;
        } else if let Some(name) = text("failed") {
            self.tally.check(false, || format!("{name}: {}", text("why").unwrap_or("it does not say why")));
        } else if let Some(wish) = text("server") {
            let answer = match wish {
                "kill" => bench.kill()?,
                "start" => bench.start()?,
                _ => return Err(format!("it wants the server to {wish}")),
            };
            writeln!(self.stdin, "{answer}").map_err(|e| format!("it does not listen: {e}"))?;
        } else if let Some(checks) = message["done"].as_u64() {
            self.done = Some(checks);
        } else {
            println!("  {line}");
        }
        Ok(())
    }
}

/// A child's lines, as they come; the end of the channel is the end of its output.
fn lines(stdout: ChildStdout) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { return };
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}

fn end(child: &mut Child) -> Result<(), String> {
    let status = child.wait().map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) }
}

/// Writes a file of a judge's own.
fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hears a shell script as if it were a judge, over a server that is not there.
    fn heard(says: &str) -> Tally {
        let scratch = Scratch::new("hear").unwrap();
        let mut bench =
            Bench { server: None, launch: Box::new(|| Err("no server".to_owned())), address: None };
        let file = scratch.path().join("script");
        write(&file, says.as_bytes()).unwrap();
        let name = Box::leak(file.display().to_string().into_boxed_str());
        hear(&Script { program: "sh".into(), name, checks_min: 2 }, &mut bench).unwrap()
    }

    /// The server that is not there is the one failure of a script that does all else right.
    const GONE: u64 = 1;

    #[test]
    fn checks_are_counted() {
        let tally = heard(r#"echo '{"passed":"a"}'; echo noise; echo '{"passed":"b"}'; echo '{"done":2}'"#);
        assert_eq!(tally, Tally { passed: 5, failed: GONE });
        let tally = heard(r#"echo '{"passed":"a"}'; echo '{"failed":"b","why":"c"}'; echo '{"done":2}'"#);
        assert_eq!(tally, Tally { passed: 4, failed: GONE + 1 });
    }

    #[test]
    fn ending_early_is_a_failure() {
        let tally = heard(r#"echo '{"passed":"a"}'; echo '{"passed":"b"}'"#);
        assert_eq!(tally, Tally { passed: 4, failed: GONE + 1 });
        let tally = heard(r#"echo '{"passed":"a"}'; echo '{"passed":"b"}'; echo '{"done":2}'; exit 3"#);
        assert_eq!(tally, Tally { passed: 4, failed: GONE + 1 });
    }

    #[test]
    fn fewer_checks_than_expected_is_a_failure() {
        let tally = heard(r#"echo '{"passed":"a"}'; echo '{"done":1}'"#);
        assert_eq!(tally, Tally { passed: 3, failed: GONE + 1 });
    }

    #[test]
    fn a_wish_that_is_none_is_a_failure() {
        let tally = heard(r#"echo '{"server":"fly"}'; read answer; echo '{"done":0}'"#);
        assert!(tally.failed > GONE, "{tally:?}");
    }

    #[test]
    fn a_fixed_port_is_outside_of_what_the_kernel_gives_out() {
        assert!(PORTS.contains(&fixed_port().unwrap()));
    }
}
