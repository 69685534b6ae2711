//! The far end: a server. It says where it listens, serves until its standard input ends, and then says how
//! much processor time it used.

use crate::{floor, ours};
use std::net::SocketAddr;
use std::path::Path;
use thalweg_bench::{Failure, far, option};
use thalweg_sys::{clock, process};

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FarEnd {
    /// Our server.
    Ours,
    /// The same answer to whatever comes, from one epoll.
    Raw,
    /// The same, over one connection, looking instead of waiting.
    Spinning,
    /// hyper, which answers what was put together before.
    Hyper,
    /// The server of jsonrpsee.
    Jsonrpsee,
}

impl FarEnd {
    /// Whether it is other people's, in the program of `--peers`.
    pub(crate) const fn is_peer(self) -> bool {
        matches!(self, Self::Hyper | Self::Jsonrpsee)
    }
}

/// The other process.
pub(crate) struct Far {
    process: far::Far,
    address: SocketAddr,
}

impl Far {
    /// Starts it on a processor and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or ends before it is ready.
    pub(crate) fn start(end: FarEnd, peers: &Path, processor: usize, shares: bool) -> Result<Far, Failure> {
        let (name, processor, shares) = (format!("{end:?}"), processor.to_string(), shares.to_string());
        let words = ["--end", &name, "--processor", &processor, "--shares", &shares];
        let mut process =
            if end.is_peer() { far::Far::start_program(peers, words)? } else { far::Far::start(words)? };
        let line = process.hears()?;
        let address = line.parse().map_err(|_| format!("the far end said {line:?}"))?;
        Ok(Far { process, address })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it; the processor time it used.
    ///
    /// # Errors
    /// It ended otherwise than it should.
    pub(crate) fn end(self) -> Result<u64, Failure> {
        Ok(self.process.end()?.parse()?)
    }
}

/// What the other process does. With a processor of its own it is pinned only once it listens: a server that
/// finds itself with one processor never looks before it sleeps, which is right only where it shares that.
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

/// Says where it listens, and ends the process, with the processor time that it used, once nobody needs it
/// any more.
pub(crate) fn ready(address: SocketAddr) -> Result<(), Failure> {
    far::ready(address, || {
        println!("{}", clock::process_processor_ns());
        std::process::exit(0);
    })
}
