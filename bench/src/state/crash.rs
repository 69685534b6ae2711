//! `kill -9` under load, again and again over one data directory; after each the server is held to what it
//! acknowledged.
//!
//! Each client has keys of its own on each fork, which it always writes together: as one batch, or in a
//! session that it commits. So what a client's keys hold is one number, a half batch is two, and a model of
//! the whole state is a number per client and fork, between the last that was acknowledged and the last that
//! was sent. The root of that model is the server's.

use crate::Failure;
use crate::served::{Client, Fate, connect, fate};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use thalweg_bench::option;
use thalweg_state::generated::types::{
    Change, StateBatch, StateClose, StateCommit, StateFork, StateForks, StateOpen, StateRollback, StateRoot,
    StateScan, StateSnapshot,
};
use thalweg_state::{Change as Written, Digest, Map};
use thalweg_wire::service::CallError;

const CLIENTS: u64 = 8;
const KEYS: u64 = 4;
/// Forks, `main` included, up to which each round makes one more.
const FORKS_MAX: usize = 4;

/// What one client did on one fork.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    sent: u64,
    acknowledged: u64,
}

type Counts = BTreeMap<(String, u64), Count>;

/// `thalweg-state-bench crash --program PATH [--rounds N] [--seed N]`
///
/// # Errors
/// The server does not start or answer; or what is there is not what was acknowledged.
pub(crate) fn run() -> Result<(), Failure> {
    let program = PathBuf::from(option("--program", String::new())?);
    let (rounds, seed): (u64, u64) = (option("--rounds", 5)?, option("--seed", 1)?);
    let directory = std::env::temp_dir().join(format!("thalweg-state-crash-{}", std::process::id()));
    let outcome = rounds_of(&program, &directory, rounds, seed);
    let _ = std::fs::remove_dir_all(&directory);
    outcome
}

fn rounds_of(program: &Path, directory: &Path, rounds: u64, seed: u64) -> Result<(), Failure> {
    let mut counts = Counts::new();
    let mut commits = 0;
    for round in 0..rounds {
        let server = Server::start(program, directory, history(round))?;
        let forks = check(directory, &mut counts).map_err(|problem| format!("round {round}: {problem}"))?;
        let patience = 100 + (seed.wrapping_add(round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54);
        let (begun, died) = (counts.clone(), Duration::from_millis(patience));
        let written = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (begun, forks) = (&begun, &forks);
                    scope.spawn(move || write(directory, client, forks, begun))
                })
                .collect();
            std::thread::sleep(died);
            drop(server);
            clients.into_iter().map(|client| client.join()).collect::<Vec<_>>()
        });
        for client in written {
            let counts_of = client.map_err(|_| "a client died")??;
            for (place, count) in counts_of {
                let before = counts.insert(place, count).unwrap_or_default();
                commits += count.acknowledged.saturating_sub(before.acknowledged);
            }
        }
    }
    let server = Server::start(program, directory, history(rounds))?;
    check(directory, &mut counts)?;
    drop(server);
    if commits == 0 {
        return Err("nothing was ever acknowledged".into());
    }
    println!("{rounds} kills, {commits} acknowledged commits");
    Ok(())
}

/// What becomes of changes that an image stands for, two rounds long: images are kept and trimmed over the
/// same directory.
fn history(round: u64) -> &'static str {
    if (round / 2).is_multiple_of(2) { "kept" } else { "trimmed" }
}

/// Writes until the server is gone.
fn write(directory: &Path, client: u64, forks: &[String], begun: &Counts) -> Result<Counts, Failure> {
    let way = if client.is_multiple_of(2) { "state.sock" } else { "state.shm" };
    let mut counts = Counts::new();
    let Ok(mut connection) = connect(&directory.join(way)) else { return Ok(counts) };
    for turn in 0_u64.. {
        let fork = &forks[usize::try_from(turn)? % forks.len()];
        let place = (fork.clone(), client);
        let mut count = counts.get(&place).or_else(|| begun.get(&place)).copied().unwrap_or_default();
        count.sent += 1;
        counts.insert(place.clone(), count);
        let written = if turn % 5 == 4 {
            in_session(&mut connection, fork, client, count.sent)
        } else {
            connection.batch(&batch(fork, client, count.sent)).map(drop)
        };
        match written.map_or_else(fate, |()| Ok(Fate::Acknowledged))? {
            Fate::Acknowledged => count.acknowledged = count.sent,
            // Nothing of it may be there.
            Fate::Conflict => count.sent -= 1,
            Fate::Unknown => return Ok(counts),
        }
        counts.insert(place, count);
    }
    Ok(counts)
}

fn in_session(
    connection: &mut Client,
    fork: &str,
    client: u64,
    number: u64,
) -> Result<(), CallError<thalweg_service::Error>> {
    let open = StateOpen { fork: fork.into(), lease_ms: None };
    let session = connection.open(&open)?.session.into_owned();
    let written = transact(connection, &session, client, number);
    // Whatever its outcome: the number of sessions is bounded. A connection that is gone fails the next call.
    let _ = connection.close(&StateClose { session: session.into() });
    written
}

fn transact(
    connection: &mut Client,
    session: &str,
    client: u64,
    number: u64,
) -> Result<(), CallError<thalweg_service::Error>> {
    connection.snapshot(&StateSnapshot { session: session.into() })?;
    // Never committed, so never seen.
    connection.batch(&batch(session, client, u64::MAX))?;
    connection.rollback(&StateRollback { session: session.into() })?;
    connection.snapshot(&StateSnapshot { session: session.into() })?;
    connection.batch(&batch(session, client, number))?;
    connection.commit(&StateCommit { session: session.into() }).map(drop)
}

fn key(client: u64, key: u64) -> String {
    format!("client-{client}/{key}")
}

fn batch(place: &str, client: u64, number: u64) -> StateBatch<'_> {
    let change =
        |n| Change { key: key(client, n).into(), value: Some(format!("{number}").into_bytes().into()) };
    StateBatch {
        place: place.into(),
        changes: (0..KEYS).map(change).collect(),
        if_offset: None,
        if_root: None,
    }
}

/// Holds every fork to what is known, brings what is known up to what is there, and makes a fork more.
fn check(directory: &Path, counts: &mut Counts) -> Result<Vec<String>, Failure> {
    let mut connection = connect(&directory.join("state.sock"))?;
    let list = connection.forks(&StateForks { start: None, limit: None })?;
    let mut forks: Vec<String> = list.forks.iter().map(|info| info.fork.to_string()).collect();
    for fork in &forks {
        check_fork(&mut connection, fork, counts)?;
    }
    let known: Vec<&String> = counts.keys().map(|(fork, _)| fork).collect();
    if let Some(lost) = known.into_iter().find(|fork| !forks.contains(fork)) {
        return Err(format!("fork {lost} is lost").into());
    }
    if forks.is_empty() {
        // Nobody asked yet; to ask for it makes it.
        forks.push("main".into());
    }
    if forks.len() < FORKS_MAX {
        let parent = forks[forks.len() - 1].clone();
        let made = connection.fork(&StateFork { parent: (&*parent).into(), offset: None })?.fork.to_string();
        for client in 0..CLIENTS {
            let count = counts.get(&(parent.clone(), client)).copied().unwrap_or_default();
            counts.insert((made.clone(), client), count);
        }
        forks.push(made);
    }
    Ok(forks)
}

fn check_fork(connection: &mut Client, fork: &str, counts: &mut Counts) -> Result<(), Failure> {
    let scan = StateScan { place: fork.into(), start: None, limit: Some(10_000), view: None };
    let answer = connection.scan(&scan)?;
    let held: BTreeMap<String, String> = answer
        .entries
        .iter()
        .map(|entry| Ok((entry.key.to_string(), String::from_utf8(entry.value.to_vec())?)))
        .collect::<Result<_, Failure>>()?;
    let mut model = Map::default();
    for client in 0..CLIENTS {
        let place = (fork.to_owned(), client);
        let count = counts.get(&place).copied().unwrap_or_default();
        let values: Vec<Option<&String>> = (0..KEYS).map(|n| held.get(&key(client, n))).collect();
        if values.iter().any(|value| *value != values[0]) {
            return Err(format!("half a batch of client {client} on {fork}: {values:?}").into());
        }
        let found = values[0].map_or(Ok(0), |value| value.parse())?;
        if found < count.acknowledged || found > count.sent {
            return Err(format!("client {client} on {fork}: {found} is there, of {count:?}").into());
        }
        counts.insert(place, Count { sent: found, acknowledged: found });
        if found > 0 {
            let change = |n| Written::Put(key(client, n).into(), found.to_string().as_bytes().into());
            model.apply(&(0..KEYS).map(change).collect());
        }
    }
    let answer = connection.root(&StateRoot { place: fork.into(), view: None })?;
    let count = model.scan(Bound::Unbounded).count() as u64;
    if answer.keys != count || answer.root != Digest::of(&model).root() {
        return Err(format!("the root of {fork} is not the model's").into());
    }
    Ok(())
}

/// A server that is killed when it is dropped, as by `kill -9`.
struct Server(Child);

impl Server {
    fn start(program: &Path, directory: &Path, history: &str) -> Result<Self, Failure> {
        // Small images, so that many are under way when it is killed; where history is trimmed they are
        // needed.
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "warn"])
            .args(["--state-image-bytes", "20000", "--state-history", history, "--data"])
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut greeting = BufReader::new(child.stdout.take().ok_or("a child without output")?);
        let server = Self(child);
        let mut line = String::new();
        while !line.starts_with("limits") {
            line.clear();
            if greeting.read_line(&mut line)? == 0 {
                return Err("the server does not start".into());
            }
        }
        // What else it says is read for it, or it could not say it.
        std::thread::spawn(move || std::io::copy(&mut greeting, &mut std::io::sink()));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
