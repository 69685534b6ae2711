//! Mixed load for as long as it takes: writers, followers by SSE and long-poll, clients that come and go, and
//! followers that are stopped (`kill -STOP`) and never read again. The server's memory must not grow, and no
//! client may see an error that none of them caused. What is written is let go once it is as much as
//! `--retain-bytes`, which tells what leaks from what the index of records takes for as long as they are
//! there.

use crate::bench::endurance::{self, Asked, Found};
use crate::harness::load::{Beside, Load};
use crate::harness::memory;
use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch, Server};
use crate::{Outcome, Tally};
use serde_json::Value;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How much more memory the last part of a run may take than the one after the first quarter.
const GROWTH_BAR: f64 = 1.05;
/// Memory is looked at as often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks from one process of followers that is stopped to the next: longer than the server bears with them.
const LOOKS_EACH: usize = 60;
/// The looks among them at which it is started, and stopped.
const STARTED_AT: usize = 5;
const STOPPED_AT: usize = 12;
const SECONDS_MIN: u64 = 20;
/// What the store keeps: a segment, which is full before the second quarter of half an hour begins.
const RETAINED_BYTES: u64 = 64 << 20;
/// Counts of the load that have to stay 0.
const WRONG: [&str; 3] = ["failed", "missing", "outOfOrder"];
/// The stream that they follow, and who fills their buffers through it.
const FILLED: [&str; 2] = ["--prefix", "stopped-"];
const WRITER: &str = "append --connections 1 --streams 1 --rate 20 --bytes 20000 --seconds 86400";
const FOLLOWERS: &str = "idle --kind sse --created --sizes 25 --seconds 86400";

/// `cargo xtask soak`.
///
/// # Errors
/// The server or the load cannot be started.
pub(crate) fn run(options: &Options) -> Outcome {
    let minutes: f64 = options.value("minutes", 30.0)?;
    let seconds =
        Duration::try_from_secs_f64(minutes * 60.0).map_err(|e| format!("--minutes: {e}"))?.as_secs();
    let seconds = seconds.max(SECONDS_MIN);
    let load = Load::new()?;
    let mut launch = Launch::new(Program::of(options), options.text("durability", "sync"))?
        .long_poll_ms(5_000)
        .with("--connections-max", 12_000);
    let retained: u64 = options.value("retain-bytes", RETAINED_BYTES)?;
    if retained > 0 {
        launch = launch.with("--retain-bytes", retained);
    }
    let scratch = Scratch::new("soak")?;
    let server = launch.start(&scratch.path().join("data"))?;
    let (told, looks) = std::thread::scope(|scope| {
        let (sender, ended) = channel();
        let (load, server) = (&load, &server);
        scope.spawn(move || {
            let seconds = seconds.to_string();
            let followers = options.text("subscribers", "5000");
            let words = ["mixed", "--seconds", &seconds, "--warm-up-ms", "0", "--sse", followers];
            // The receiver is gone only when looking failed.
            let _ = sender.send(load.try_run(server, &words));
        });
        look(server, load, &ended)
    })?;
    let mut tally = Tally::default();
    judge(&told, &mut tally);
    let growth = flat(&looks, &mut tally);
    let answers =
        server.connect().and_then(|mut c| c.request("GET", "/healthz", &[], b"")).map(|reply| reply.status);
    tally.check(answers == Ok(200), || format!("afterwards it says {answers:?}"));
    endurance::record(options, "soak", &found(&told, growth, seconds))?;
    Ok(tally)
}

/// Looks at the server's memory until the load ends, and stops other clients meanwhile.
fn look(
    server: &Server,
    load: &Load,
    ended: &Receiver<Result<Value, String>>,
) -> Result<(Value, Vec<u64>), String> {
    let beside = |words: &str| load.beside(server, &words.split(' ').chain(FILLED).collect::<Vec<_>>());
    let _writer = beside(WRITER)?;
    let mut looks = Vec::new();
    let mut followers: Option<Beside> = None;
    loop {
        match ended.recv_timeout(LOOK_EVERY) {
            Ok(told) => return Ok((told?, looks)),
            Err(RecvTimeoutError::Disconnected) => return Err("the load ended without a word".to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        looks.push(memory::now(server.process())?.anonymous);
        match looks.len() % LOOKS_EACH {
            STARTED_AT => {
                // Those of before are killed where they stand.
                drop(followers.take());
                followers = Some(beside(FOLLOWERS)?);
            }
            STOPPED_AT => followers.as_ref().map_or(Ok(()), stop)?,
            _ => {}
        }
    }
}

fn stop(followers: &Beside) -> Result<(), String> {
    let command = format!("kill -STOP {}", followers.process());
    let status = Command::new("sh").args(["-c", &command]).status().map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err("STOP could not be sent".to_owned()) }
}

/// Errors have one added, so that none can be compared with.
fn found(told: &Value, growth: f64, seconds: u64) -> [Found; 2] {
    let wrong: u64 = WRONG.iter().filter_map(|name| told[name].as_u64()).sum();
    let work = format!("mixed load for {} minutes, {} deliveries", seconds / 60, told["delivered"]);
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let wrong = 1.0 + wrong as f64;
    [
        Found {
            work: work.clone(),
            unit: "times the memory",
            figure: growth,
            asked: Asked::AtMost(GROWTH_BAR),
        },
        Found { work, unit: "1 + failed, missing, out of order", figure: wrong, asked: Asked::AtMost(1.0) },
    ]
}

/// Nothing failed, and everything arrived once and in order.
fn judge(told: &Value, tally: &mut Tally) {
    println!("load: {told}");
    for name in WRONG {
        tally.check(told[name].as_u64() == Some(0), || {
            format!("{name}: {}, {}", told[name], told["complaints"])
        });
    }
    tally.check(told["delivered"].as_u64().is_some_and(|count| count > 0), || {
        "nothing was delivered".to_owned()
    });
}

/// The last quarter takes no more memory than the second. Returns how many times as much it takes.
fn flat(looks: &[u64], tally: &mut Tally) -> f64 {
    let quarter = looks.len() / 4;
    let middle = |part: &[u64]| {
        let mut sorted = part.to_vec();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    };
    let (early, late) = (middle(&looks[quarter..2 * quarter]), middle(&looks[3 * quarter..]));
    println!("memory: {} KiB in the second quarter, {} KiB in the last", early / 1024, late / 1024);
    #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
    let growth = late as f64 / early as f64;
    tally.check(growth <= GROWTH_BAR, || format!("memory grew {growth:.3} times, {GROWTH_BAR} are allowed"));
    growth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_flat_or_not() {
        let failed = |looks: &[u64]| {
            let mut tally = Tally::default();
            flat(looks, &mut tally);
            tally.failed
        };
        assert_eq!(failed(&[10, 20, 100, 100, 104, 104, 104, 104]), 0);
        assert_eq!(failed(&[10, 20, 100, 100, 104, 104, 110, 110]), 1);
        assert_eq!(failed(&[]), 1, "who did not look saw nothing");
    }

    #[test]
    fn an_error_is_one() {
        let failed = |failed: u64, missing: u64| {
            let mut tally = Tally::default();
            let told =
                serde_json::json!({ "failed": failed, "missing": missing, "outOfOrder": 0, "delivered": 9 });
            judge(&told, &mut tally);
            tally.failed
        };
        assert_eq!((failed(0, 0), failed(1, 0), failed(0, 2)), (0, 1, 1));
    }
}
