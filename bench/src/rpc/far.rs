//! The far end: this program started again as a server. It says where it listens, serves until its standard input ends,
//! and then says how much processor time it used.

use crate::{Failure, floor, ours};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use thalweg_bench::option;
use thalweg_sys::{clock, process};

/// The word that makes the program this process.
pub(crate) const WORD: &str = "far";

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FarEnd {
    /// Our server.
    Ours,
    /// The same answer to whatever comes, from one epoll.
    Raw,
    /// The same, over one connection, looking instead of waiting.
    Spinning,
}

/// The other process.
pub(crate) struct Far {
    child: Child,
    tell: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Far {
    /// Starts it on a processor and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or ends before it is ready.
    pub(crate) fn start(end: FarEnd, processor: usize, shares: bool) -> Result<Far, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([WORD, "--end", &format!("{end:?}"), "--processor", &processor.to_string()])
            .args(["--shares", &shares.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (tell, Some(hear)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        let mut hear = BufReader::new(hear);
        let mut line = String::new();
        hear.read_line(&mut line)?;
        let address = line.trim().parse().map_err(|_| format!("the far end said {line:?}"))?;
        Ok(Far { child, tell, hear, address })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it; the processor time it used.
    ///
    /// # Errors
    /// It ended otherwise than it should.
    pub(crate) fn end(mut self) -> Result<u64, Failure> {
        drop(self.tell.take());
        let mut text = String::new();
        self.hear.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if status.success() { Ok(text.trim().parse()?) } else { Err(format!("the far end: {status}").into()) }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // Ended already, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the other process does. With a processor of its own it is pinned only once it listens: a server that finds itself
/// with one processor never looks before it sleeps, which is right only where it shares that.
///
/// # Errors
/// No such end, or it fails.
pub(crate) fn serve() -> Result<(), Failure> {
    let processor = option("--processor", 0)?;
    if option("--shares", false)? {
        process::run_on(processor)?;
    }
    match option("--end", String::new())?.as_str() {
        "Ours" => ours::serve(|| Ok(process::run_on(processor)?))?,
        "Raw" => floor::serve(|| Ok(process::run_on(processor)?), false)?,
        "Spinning" => floor::serve(|| Ok(process::run_on(processor)?), true)?,
        other => return Err(format!("--end {other}: there is none").into()),
    }
    Ok(())
}

/// Says where it listens, and ends the process, with the processor time that it used, once nobody needs it any more.
pub(crate) fn ready(address: SocketAddr) -> Result<(), Failure> {
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        println!("{}", clock::process_processor_ns());
        std::process::exit(0);
    });
    println!("{address}");
    Ok(std::io::stdout().flush()?)
}
