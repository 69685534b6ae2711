//! The drain: TERM while thousands of subscribers are attached and more keep arriving. The server must end
//! successfully, long before its grace would cut anybody, and every subscriber must see its response end
//! properly.

use crate::harness::client::Connection;
use crate::harness::hold::{self, Kind};
use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch};
use crate::{Outcome, Tally};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// However slow the machine: far from the hour that its grace is.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
const HOUR_MS: u64 = 3_600_000;
const STREAM: &str = "drained";

/// `cargo xtask drain`.
///
/// # Errors
/// The server cannot be started or refuses a subscriber.
pub(crate) fn run(options: &Options) -> Outcome {
    let subscribers: usize = options.value("subscribers", 10_000)?;
    let launch = Launch::new(Program::of(options), options.text("durability", "memory"))?
        .long_poll_ms(HOUR_MS)
        .sse_lifetime_ms(HOUR_MS)
        .with("--drain-grace-ms", HOUR_MS)
        .with("--connections-max", subscribers + 1_000);
    let scratch = Scratch::new("drain")?;
    let mut server = launch.start(&scratch.path().join("data"))?;
    hold::create(&server, std::iter::once(STREAM.to_owned()))?;
    let kind = |n: usize| if n.is_multiple_of(2) { Kind::Sse } else { Kind::LongPoll };
    let held: Result<Vec<TcpStream>, String> =
        (0..subscribers).map(|n| hold::open(&server, kind(n), STREAM)).collect();
    let held = held?;

    let (stop, stopped) = channel::<()>();
    let address = server.address;
    let arriving = std::thread::spawn(move || keep_arriving(address, &stopped));
    // Some of them are mid-registration when the signal comes.
    std::thread::sleep(Duration::from_millis(20));
    let asked = Instant::now();
    server.ask_to_end()?;
    let ended = server.await_end(ENDS_WITHIN);
    let took = asked.elapsed();
    drop(stop);
    let arrived = arriving.join().map_err(|_| "the arriving subscribers panicked")?;

    let mut tally = Tally::default();
    println!("{}: {subscribers} subscribers, {arrived} more arriving, ended after {took:?}", launch.name());
    tally.check(ended.as_ref().is_ok_and(|s| s.success()), || format!("{ended:?}: {}", server.last_words()));
    tally.check(took <= ENDS_WITHIN, || format!("{took:?}, though everybody could be answered at once"));
    let cut = held.into_iter().enumerate().filter(|(n, s)| !ended_well(kind(*n), s)).count();
    tally.check(cut == 0, || format!("{cut} of {subscribers} subscribers were cut instead of answered"));
    Ok(tally)
}

/// Connects and subscribes without pause until told to stop; refusals are what a draining server owes.
fn keep_arriving(address: SocketAddr, stopped: &Receiver<()>) -> usize {
    let mut arrived = Vec::new();
    while stopped.try_recv() == Err(TryRecvError::Empty) {
        let Ok(mut connection) = Connection::open(address) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let target = format!("/v1/stream/{STREAM}?offset=now&live=sse");
        if connection.send("GET", &target, &[], b"").is_ok() && arrived.len() < 500 {
            arrived.push(connection);
        }
    }
    arrived.len()
}

/// Whether a subscriber's response came to its proper end: the last chunk of SSE, a status for a long-poll.
fn ended_well(kind: Kind, socket: &TcpStream) -> bool {
    let mut rest = Vec::new();
    let mut socket = socket;
    if socket.set_read_timeout(Some(Duration::from_secs(60))).is_err()
        || socket.read_to_end(&mut rest).is_err()
    {
        return false;
    }
    match kind {
        Kind::Sse => rest.ends_with(b"0\r\n\r\n"),
        _ => rest.starts_with(b"HTTP/1.1 204"),
    }
}
