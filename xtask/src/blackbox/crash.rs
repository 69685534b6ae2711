//! `kill -9` under load, again and again over one data directory. Writers with idempotent producers append
//! batches of records that describe themselves (writer, batch, place in the batch, checksum); after each kill
//! the restarted server is read whole and held to what it acknowledged:
//!
//! - every acknowledged batch is there, none twice, none torn, each writer's in order;
//! - a batch that was sent and not acknowledged is there whole or not at all, and its retry is told which
//!   (204 a duplicate, 200 new), so producer state and data came back together;
//! - acknowledged creates, closes and deletes hold.

use crate::harness::client::{Connection, Reply};
use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch, Server, nanoseconds};
use crate::{Outcome, Tally};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

const STREAMS: usize = 8;
const WRITERS: usize = 32;
/// Batches a writer has under way at once.
const WINDOW: u64 = 4;

/// A small generator of what need only look random: xorshift64.
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// One writer between kills.
#[derive(Clone, Debug)]
struct Writer {
    number: usize,
    /// Batches 0..acknowledged were acknowledged.
    acknowledged: u64,
    /// Batches 0..sent were sent.
    sent: u64,
    /// Batches 0..found are in the stream, as the last verification saw it.
    found: u64,
    /// Replies that contradicted what was found.
    wrong: Vec<String>,
}

impl Writer {
    fn stream(&self) -> usize {
        self.number % STREAMS
    }

    /// Writes until the connection breaks.
    fn write(&mut self, address: SocketAddr) {
        let Ok(mut connection) = Connection::open(address) else { return };
        loop {
            let first = self.acknowledged;
            for batch in first..first + WINDOW {
                self.sent = self.sent.max(batch + 1);
                if self.send(&mut connection, batch).is_err() {
                    return;
                }
            }
            for batch in first..first + WINDOW {
                let Ok(reply) = connection.read_reply() else { return };
                // What the restart brought back is a duplicate, everything else is new.
                let wanted = if batch < self.found { 204 } else { 200 };
                if reply.status != wanted {
                    let number = self.number;
                    self.wrong.push(format!(
                        "writer {number}, batch {batch}: {} instead of {wanted}",
                        reply.status
                    ));
                    return;
                }
                self.acknowledged = batch + 1;
            }
        }
    }

    fn send(&self, connection: &mut Connection, batch: u64) -> Result<(), String> {
        let target = format!("/v1/stream/crash-{}", self.stream());
        let fields = [
            ("Content-Type", "text/plain"),
            ("Producer-Id", &*format!("writer-{}", self.number)),
            ("Producer-Epoch", "0"),
            ("Producer-Seq", &*batch.to_string()),
        ];
        connection.send("POST", &target, &fields, &payload(self.number, batch))
    }
}

/// A batch's bytes: one to six records of one line each.
fn payload(writer: usize, batch: u64) -> Vec<u8> {
    let mut random = Random((writer as u64 + 1) << 40 | (batch + 1));
    let (_, count) = (random.next(), random.below(6) + 1);
    let mut bytes = Vec::new();
    for place in 0..count {
        let filler = "x".repeat(usize::try_from(random.below(300)).unwrap_or(0));
        let content = format!("{writer} {batch} {place} {count} {filler}");
        bytes.extend_from_slice(format!("{:016x} {content}\n", fnv(content.as_bytes())).as_bytes());
    }
    bytes
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Batches per writer in a stream's bytes.
///
/// # Errors
/// A torn, foreign, doubled or misplaced record.
fn count_batches(bytes: &[u8]) -> Result<BTreeMap<usize, u64>, String> {
    let mut found = BTreeMap::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let end =
            rest.iter().position(|b| *b == b'\n').ok_or_else(|| format!("at {at}: a torn last record"))?;
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| format!("at {at}: not a record"))?;
        let (sum, content) = line.split_once(' ').ok_or_else(|| format!("at {at}: not a record"))?;
        if u64::from_str_radix(sum, 16) != Ok(fnv(content.as_bytes())) {
            return Err(format!("at {at}: the checksum does not hold"));
        }
        let mut words = content.split(' ');
        let mut number = || words.next().and_then(|w| w.parse::<u64>().ok());
        let (Some(writer), Some(batch)) = (number(), number()) else {
            return Err(format!("at {at}: not a record"));
        };
        let writer = usize::try_from(writer).map_err(|e| e.to_string())?;
        let expected = found.entry(writer).or_insert(0);
        if batch != *expected {
            return Err(format!("at {at}: writer {writer}: batch {batch} where {expected} belongs"));
        }
        let whole = payload(writer, batch);
        // A batch is one commit: its records stand together, all of them.
        rest = rest
            .strip_prefix(&*whole)
            .ok_or_else(|| format!("at {at}: batch {batch} of {writer} is torn"))?;
        *expected += 1;
    }
    Ok(found)
}

/// What became of a short-lived stream, as far as the server acknowledged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Created,
    Closed,
    Deleted,
}

/// One step of a short life: method, header fields, body, and what the stream is once it was acknowledged.
type Life<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [u8], Fate);

/// What was acknowledged of short-lived streams, and replies that acknowledge nothing.
#[derive(Debug, Default)]
struct Lives {
    fates: Vec<(String, Fate)>,
    wrong: Vec<String>,
}

/// Creates, closes and deletes streams until the connection breaks.
fn live_and_die(address: SocketAddr, round: u64) -> Lives {
    let mut lives = Lives::default();
    let Ok(mut connection) = Connection::open(address) else { return lives };
    for n in 0.. {
        let name = format!("short-{round}-{n}");
        let target = format!("/v1/stream/{name}");
        let text = [("Content-Type", "text/plain")];
        let steps: [Life<'_>; 3] = [
            ("PUT", &text, b"once", Fate::Created),
            ("POST", &[("Stream-Closed", "true")], b"", Fate::Closed),
            ("DELETE", &[], b"", Fate::Deleted),
        ];
        let last = usize::try_from(n % 3).unwrap_or(0);
        let mut fate = None;
        for (method, fields, body, next) in &steps[..=last] {
            match connection.request(method, &target, fields, body) {
                Ok(reply) if matches!(reply.status, 200 | 201 | 204) => fate = Some(*next),
                Ok(reply) => {
                    lives.wrong.push(format!("{method} {target} was answered {}", reply.status));
                    return lives;
                }
                // The step under way is in doubt, so nothing is claimed for this stream.
                Err(_) => return lives,
            }
        }
        lives.fates.extend(fate.map(|f| (name, f)));
    }
    lives
}

/// `cargo xtask crash`.
///
/// # Errors
/// The server cannot be started, which after a kill is a failure of its own.
pub(crate) fn run(options: &Options) -> Outcome {
    let rounds: u64 = options.value("rounds", 20)?;
    let seed: u64 = options.value("seed", u64::try_from(nanoseconds() & 0xffff_ffff).unwrap_or(1))?;
    let launch = Launch::new(Program::of(options), options.text("durability", "sync"))?;
    let scratch = Scratch::new("crash")?;
    let data = scratch.path().join("data");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut tally = Tally::default();
    let mut writers: Vec<Writer> = (0..WRITERS).map(fresh).collect();
    let mut fates = Vec::new();
    let mut server = launch.start(&data)?;
    crate::harness::hold::create(&server, (0..STREAMS).map(|n| format!("crash-{n}")))?;
    for round in 0..rounds {
        let wait = Duration::from_millis(30 + random.below(400));
        let died;
        (writers, died) = under_load(server, writers, round, wait)?;
        tally.check(died.wrong.is_empty(), || format!("round {round}: {:?}", died.wrong));
        fates.extend(died.fates);
        server = launch.start(&data).map_err(|e| format!("round {round}, seed {seed}: no restart: {e}"))?;
        let last = round + 1 == rounds;
        let failed_before = tally.failed;
        verify(&server, &mut writers, &mut tally)?;
        let recent = if last { 0 } else { fates.len().saturating_sub(200) };
        verify_fates(&server, &fates[recent..], &mut tally)?;
        if tally.failed > failed_before {
            println!("round {round}, seed {seed}, killed after {wait:?}");
        }
    }
    let acknowledged: u64 = writers.iter().map(|w| w.acknowledged).sum();
    let short = fates.len();
    println!(
        "{}: {rounds} kills, {acknowledged} acknowledged batches, {short} short-lived streams",
        launch.name()
    );
    // Kills of an idle server would prove nothing.
    tally.check(acknowledged > rounds * 10, || format!("only {acknowledged} batches: no load"));
    of_each_kind(&fates, &mut tally);
    Ok(tally)
}

/// What is said of creates, closes and deletes is said of some.
fn of_each_kind(fates: &[(String, Fate)], tally: &mut Tally) {
    for kind in [Fate::Created, Fate::Closed, Fate::Deleted] {
        let some = fates.iter().any(|(_, fate)| *fate == kind);
        tally.check(some, || format!("no stream was acknowledged {kind:?}, so nothing is known of that"));
    }
}

fn fresh(number: usize) -> Writer {
    Writer { number, acknowledged: 0, sent: 0, found: 0, wrong: Vec::new() }
}

type Survivors = (Vec<Writer>, Lives);

/// Lets every client write, and kills the server after `wait`.
fn under_load(server: Server, writers: Vec<Writer>, round: u64, wait: Duration) -> Result<Survivors, String> {
    let address = server.address;
    let threads: Vec<_> = writers
        .into_iter()
        .map(|mut writer| {
            std::thread::spawn(move || {
                writer.write(address);
                writer
            })
        })
        .collect();
    let living = std::thread::spawn(move || live_and_die(address, round));
    std::thread::sleep(wait);
    server.kill()?;
    let writers: Result<Vec<Writer>, _> = threads.into_iter().map(std::thread::JoinHandle::join).collect();
    let lives = living.join().map_err(|_| "a writer panicked")?;
    Ok((writers.map_err(|_| "a writer panicked")?, lives))
}

fn verify(server: &Server, writers: &mut [Writer], tally: &mut Tally) -> Result<(), String> {
    let mut connection = server.connect()?;
    for stream in 0..STREAMS {
        let found = read_whole(&mut connection, stream).and_then(|bytes| count_batches(&bytes));
        tally.check(found.is_ok(), || format!("stream crash-{stream}: {found:?}"));
        let found = found.unwrap_or_default();
        for writer in writers.iter_mut().filter(|w| w.stream() == stream) {
            writer.found = found.get(&writer.number).copied().unwrap_or(0);
            tally
                .check((writer.acknowledged..=writer.sent).contains(&writer.found), || format!("{writer:?}"));
            tally.check(writer.wrong.is_empty(), || format!("{:?}", writer.wrong));
            writer.wrong.clear();
        }
    }
    Ok(())
}

fn read_whole(connection: &mut Connection, stream: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut offset = "-1".to_owned();
    loop {
        let target = format!("/v1/stream/crash-{stream}?offset={offset}");
        let reply = connection.request("GET", &target, &[], b"")?;
        let next = reply.field("Stream-Next-Offset").map(str::to_owned);
        let at_tail = reply.field("Stream-Up-To-Date").is_some();
        if reply.status != 200 || (reply.body.is_empty() && !at_tail) {
            return Err(format!("GET {target}: status {}, {} bytes", reply.status, reply.body.len()));
        }
        bytes.extend_from_slice(&reply.body);
        if at_tail {
            return Ok(bytes);
        }
        offset = next.ok_or_else(|| format!("GET {target}: no Stream-Next-Offset"))?;
    }
}

fn verify_fates(server: &Server, fates: &[(String, Fate)], tally: &mut Tally) -> Result<(), String> {
    let mut connection = server.connect()?;
    for (name, fate) in fates {
        let reply = connection.request("HEAD", &format!("/v1/stream/{name}"), &[], b"")?;
        tally.check(holds(*fate, &reply), || format!("{name} was acknowledged {fate:?}: {reply:?}"));
    }
    Ok(())
}

fn holds(fate: Fate, reply: &Reply) -> bool {
    let closed = reply.field("Stream-Closed").is_some();
    match fate {
        Fate::Created => reply.status == 200 && !closed,
        Fate::Closed => reply.status == 200 && closed,
        Fate::Deleted => reply.status == 404,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(list: &[(usize, u64)]) -> Vec<u8> {
        list.iter().flat_map(|(writer, batch)| payload(*writer, *batch)).collect()
    }

    #[test]
    fn whole_ordered_batches_are_counted() {
        let found = count_batches(&batches(&[(0, 0), (9, 0), (0, 1), (9, 1), (9, 2)])).unwrap();
        assert_eq!(found, BTreeMap::from([(0, 2), (9, 3)]));
        assert!(count_batches(b"").unwrap().is_empty());
    }

    #[test]
    fn lost_doubled_torn_and_altered_batches_are_seen() {
        assert!(count_batches(&batches(&[(0, 0), (0, 2)])).unwrap_err().contains("where 1 belongs"));
        assert!(count_batches(&batches(&[(0, 0), (0, 0)])).unwrap_err().contains("where 1 belongs"));
        let whole = batches(&[(0, 0), (1, 0), (2, 0)]);
        for cut in 1..whole.len() {
            // Only between two batches is a cut no tear.
            let clean = [payload(0, 0).len(), payload(0, 0).len() + payload(1, 0).len()].contains(&cut);
            assert_eq!(count_batches(&whole[..cut]).is_ok(), clean, "cut at {cut}");
        }
        for at in [0, 20, whole.len() / 2, whole.len() - 2] {
            let mut altered = whole.clone();
            altered[at] ^= 1;
            assert!(count_batches(&altered).is_err(), "altered at {at}");
        }
    }

    #[test]
    fn fates_that_nobody_had_are_missed() {
        let fate = |fate| ("short".to_owned(), fate);
        let failed = |fates: &[(String, Fate)]| {
            let mut tally = Tally::default();
            of_each_kind(fates, &mut tally);
            tally.failed
        };
        assert_eq!(failed(&[]), 3);
        assert_eq!(failed(&[fate(Fate::Created), fate(Fate::Closed)]), 1);
        assert_eq!(failed(&[fate(Fate::Created), fate(Fate::Closed), fate(Fate::Deleted)]), 0);
    }

    #[test]
    fn acknowledged_fates_are_held_against_the_reply() {
        let reply = |status: u16| Reply::for_test(status, &[]);
        let closed = Reply::for_test(200, &[("stream-closed", "true")]);
        assert!(holds(Fate::Created, &reply(200)) && !holds(Fate::Created, &reply(404)));
        assert!(holds(Fate::Closed, &closed) && !holds(Fate::Closed, &reply(200)));
        assert!(holds(Fate::Deleted, &reply(404)) && !holds(Fate::Deleted, &closed));
    }
}
