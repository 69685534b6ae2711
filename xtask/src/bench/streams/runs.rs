//! A work done once on one side: a server of its own, started fresh over an empty directory.

use super::side::Side;
use super::works::{Scene, Work};
use crate::harness::load::Load;
use crate::harness::options::Options;
use crate::harness::server::{Launch, Scratch, Server};
use crate::measures::million;
use serde_json::Value;
use std::time::Duration;

/// Connections that any work needs at most.
const CONNECTIONS_MAX: u64 = 11_000;
/// A server that takes longer to end has failed.
const ENDING_MAX: Duration = Duration::from_secs(30);

/// What names streams that one verb fills and another reads: by itself each verb has names of its own.
const AMONG: [&str; 2] = ["--prefix", "among-"];

/// How large runs are.
#[derive(Clone, Debug)]
pub(super) struct Size {
    /// Just enough to show that everything runs, by counts and not by time.
    pub(super) tiny: bool,
    seconds: String,
}

impl Size {
    /// # Errors
    /// `--seconds` is no number.
    pub(super) fn new(options: &Options) -> Result<Self, String> {
        let tiny = options.flag("tiny");
        // A tiny run ends by its counts; its time is only there so that it ends at all.
        let seconds: u64 = options.value("seconds", if tiny { 120 } else { 5 })?;
        Ok(Self { tiny, seconds: seconds.to_string() })
    }

    fn text(&self, work: &Work) -> &'static str {
        if self.tiny { work.tiny } else { work.words }
    }

    fn words(&self, work: &Work) -> Vec<&str> {
        let mut words: Vec<&str> = self.text(work).split(' ').collect();
        if words.first() != Some(&"idle") {
            words.extend(["--seconds", &self.seconds]);
            if self.tiny {
                words.extend(["--warm-up-ms", "0"]);
            }
        }
        words
    }
}

/// What a work came to on a side.
///
/// # Errors
/// The server does not start, or an operation fails on ours or on the floor.
pub(super) fn perform(work: &Work, side: Side, load: &Load, size: &Size) -> Result<Value, String> {
    let launch = side.launch(work.durability, CONNECTIONS_MAX)?;
    let scratch = Scratch::new("bench")?;
    let data = scratch.path().join("data");
    let mut server = launch.start(&data)?;
    let mut words = size.words(work);
    let run = |server: &Server, words: &[&str]| {
        // A peer that refuses some of it is measured by what it did.
        if side.is_peer() { load.try_run(server, words) } else { load.run(server, words) }
    };
    match work.scene {
        Scene::Load => run(&server, &words),
        Scene::Beside => {
            let stream_bytes = if size.tiny { "1048576" } else { "16777216" };
            let fill = ["catch-up", "--prefix", "read-", "--stream-bytes", stream_bytes];
            load.run(&server, &[&fill[..], &["--only-fill"]].concat())?;
            let readers = ["--created", "--seconds", "3600"];
            let mut readers = load.beside(&server, &[&fill[..], &readers].concat())?;
            let report = run(&server, &words)?;
            if !readers.is_running() {
                return Err("those who catch up ended before the writers".to_owned());
            }
            Ok(report)
        }
        Scene::AtRest => {
            load.run(&server, &[&words[..], &["--only-fill"]].concat())?;
            server.ask_to_end()?;
            server.await_end(ENDING_MAX)?;
            let server = launch.start(&data)?;
            words.push("--created");
            run(&server, &words)
        }
        Scene::Among | Scene::Settled => {
            let [streams, appends] = if size.tiny { ["2", "8192"] } else { ["64", "262144"] };
            let among = ["append", "--streams", streams, "--connections", streams, "--operations", appends];
            let whole = ["--seconds", "120", "--warm-up-ms", "0"];
            load.run(&server, &[&among[..], &AMONG, &whole].concat())?;
            words.extend(AMONG);
            words.push("--created");
            if work.scene == Scene::Settled {
                read_before(&server, load, work, size, &run)?;
            }
            run(&server, &words)
        }
        Scene::Streams => streams(&launch, load, work, size),
    }
}

/// Has what was written among others' be history, and read for so long that a server which learns from that
/// has learned.
fn read_before(
    server: &Server,
    load: &Load,
    work: &Work,
    size: &Size,
    run: &impl Fn(&Server, &[&str]) -> Result<Value, String>,
) -> Result<(), String> {
    let (later, seconds) = if size.tiny { ("1048576", "1") } else { ("73400320", "10") };
    let behind = ["catch-up", "--prefix", "later-", "--streams", "1", "--stream-bytes", later, "--only-fill"];
    load.run(server, &behind)?;
    let words = size.text(work).split(' ').chain(AMONG).chain(["--created", "--seconds", seconds]);
    run(server, &words.collect::<Vec<_>>()).map(drop)
}

fn streams(launch: &Launch, load: &Load, work: &Work, size: &Size) -> Result<Value, String> {
    let count = size.text(work);
    let count = count.parse().map_err(|_| format!("{count}: no number of streams"))?;
    let scratch = Scratch::new("bench")?;
    let server = launch.start(&scratch.path().join("data"))?;
    let grown = million::grow(&server, load, count)?;
    Ok(serde_json::json!({
        "anonymousBytesEach": grown.anonymous_bytes_each,
        "residentBytesEach": grown.resident_bytes_each,
        "failed": 0,
    }))
}
