//! What is measured, in this process and between two.

use crate::PACE;
use crate::far::Far;
use crate::floor::{Floor, SOCKET};
use crate::near::{Near, count_until, key};
use crate::served::{connect, endpoint, options};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use thalweg_bench::Failure;
use thalweg_bench::measure::{Measured, Until, clients};
use thalweg_log::now;
use thalweg_service::{CallId, CallOptions, Client, EventKind, Wait};
use thalweg_state::generated::types::{
    StateCount, StateDiff, StateDrop, StateFork, StateOpen, StatePut, StateRollback, StateSnapshot, commands,
};
use thalweg_state::{Change, View};
use thalweg_wire::messagepack::request_frame;
use thalweg_wire::service::{Command, answer};

/// Cycles of a session that are under way at once.
const DEEP: usize = 16;
/// Reads that are under way at once where clients do not wait for each.
const READS_DEEP: usize = 4;
/// Between two writes of the writer beside the readers.
const WRITE_EVERY: Duration = Duration::from_millis(1);
/// Keys by which a fork differs.
const DIFFERENCES: u64 = 10;

/// One line of the report.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) sides: &'static [&'static str],
    clients: usize,
    /// Reads, or cycles of a session, that each client has under way at once.
    depth: usize,
    /// Each client reads a fork of its own.
    apart: bool,
    measure: fn(&Work, &str, Until, &Near, &mut Far) -> Result<Measured, Failure>,
}

const READS: &[&str] = &["process", "memory", "socket", "floor"];
const SERVED: &[&str] = &["process", "memory", "socket"];

const ONE: Work = Work { name: "", sides: READS, clients: 1, depth: 1, apart: false, measure: reads };

/// Everything that is measured.
pub(crate) const WORKS: &[Work] = &[
    Work { name: "session", depth: DEEP, measure: session, ..ONE },
    Work { name: "session-alone", measure: session, ..ONE },
    Work { name: "reads-1", ..ONE },
    Work { name: "reads-2", clients: 2, ..ONE },
    Work { name: "reads-4", clients: 4, ..ONE },
    Work { name: "reads-7", clients: 7, ..ONE },
    Work { name: "reads-7-forks", sides: SERVED, clients: 7, apart: true, ..ONE },
    Work { name: "reads-7-deep", sides: SERVED, clients: 7, depth: READS_DEEP, ..ONE },
    Work { name: "reads-written", sides: &["quiet", "written"], clients: 7, measure: percentile, ..ONE },
    Work { name: "fork", sides: &["process", "memory"], measure: fork, ..ONE },
    Work { name: "diff", sides: &["process", "memory"], measure: diff, ..ONE },
];

/// Measures, the far end's processor time included.
///
/// # Errors
/// Something did not start, or an answer was wrong.
pub(crate) fn measure(
    work: &Work,
    side: &str,
    until: Until,
    near: &Near,
    far: &mut Far,
) -> Result<Measured, Failure> {
    let before_ns = far.processor_ns()?;
    let mut measured = (work.measure)(work, side, until, near, far)?;
    if side != "process" {
        measured.processor_ns += far.processor_ns()? - before_ns;
    }
    Ok(measured)
}

fn way(side: &str, far: &Far) -> std::path::PathBuf {
    far.path(if side == "socket" { "state.sock" } else { "state.shm" })
}

/// Snapshot, write, rollback.
fn session(work: &Work, side: &str, until: Until, near: &Near, far: &mut Far) -> Result<Measured, Failure> {
    let middle = key(near.keys / 2);
    if side == "process" {
        let connect = || Ok(near.state.session(near.main)?);
        return clients(work.clients, PACE, until, connect, |session| {
            for _ in 0..work.depth {
                session.snapshot(now())?;
                let change = Change::Put(middle.as_str().into(), b"other"[..].into());
                session.write([change].into_iter().collect(), now())?;
                session.rollback()?;
            }
            Ok(work.depth as u64)
        });
    }
    let path = way(side, far);
    let begin = || {
        let open = StateOpen { fork: "main".into(), lease_ms: None };
        let token = connect(&path)?.open(&open)?.session.into_owned();
        Ok((Client::connect(&endpoint(&path)?, options(true))?, token))
    };
    clients(work.clients, PACE, until, begin, |(client, token)| {
        let mut calls = VecDeque::with_capacity(3 * work.depth);
        for _ in 0..work.depth {
            calls.push_back(call::<commands::Snapshot>(
                client,
                &StateSnapshot { session: (&**token).into() },
            )?);
            take_if_alone(work, client, &mut calls)?;
            let put =
                StatePut { place: (&**token).into(), key: (&*middle).into(), value: b"other"[..].into() };
            calls.push_back(call::<commands::Put>(client, &put)?);
            take_if_alone(work, client, &mut calls)?;
            calls.push_back(call::<commands::Rollback>(
                client,
                &StateRollback { session: (&**token).into() },
            )?);
        }
        take(client, &mut calls)?;
        Ok(work.depth as u64)
    })
}

/// Takes the answer of each call before the next, where one cycle is under way at a time.
fn take_if_alone(work: &Work, client: &mut Client, calls: &mut VecDeque<Called>) -> Result<(), Failure> {
    if work.depth == 1 { take(client, calls) } else { Ok(()) }
}

/// A call that was made, and how its answer is looked at.
type Called = (CallId, fn(&[u8]) -> Result<(), Failure>);

fn call<'m, C: Command>(client: &mut Client, message: &C::Request<'m>) -> Result<Called, Failure> {
    let mut frame = Vec::with_capacity(128);
    request_frame(message, &mut frame);
    Ok((client.call(&frame, CallOptions::default())?, check::<C>))
}

/// Takes the answers of calls of one session or to one fork.
fn take(client: &mut Client, calls: &mut VecDeque<Called>) -> Result<(), Failure> {
    loop {
        take_what_came(client, calls)?;
        if calls.is_empty() {
            return Ok(());
        }
        client.turn(Wait::Block)?;
    }
}

/// Takes those of them that are there.
fn take_what_came(client: &mut Client, calls: &mut VecDeque<Called>) -> Result<(), Failure> {
    while !calls.is_empty()
        && let Some(event) = client.next()
    {
        let EventKind::End = event.kind else { return Err(format!("{:?}", event.kind).into()) };
        // Such calls are answered in their order.
        let (_, check) =
            calls.pop_front().filter(|(call, _)| *call == event.call).ok_or("another call's answer")?;
        check(event.frame)?;
    }
    Ok(())
}

fn check<C: Command>(frame: &[u8]) -> Result<(), Failure> {
    answer::<C, Infallible>(frame).map(drop).map_err(|error| error.to_string().into())
}

/// Committed reads of about 100 µs each.
fn reads(work: &Work, side: &str, until: Until, near: &Near, far: &mut Far) -> Result<Measured, Failure> {
    let wanted = near.read()?;
    if side == "process" {
        let begin = || Ok(if work.apart { near.state.fork(near.main, now())?.0 } else { near.main });
        return clients(work.clients, PACE, until, begin, |fork| {
            counts(count_until(&near.state, *fork, &near.until)?, wanted)
        });
    }
    if side == "floor" {
        let path = far.path(SOCKET);
        let connect = || Floor::connect(&path, &near.until);
        return clients(work.clients, PACE, until, connect, |floor| counts(floor.read()?, wanted));
    }
    readers(work, &way(side, far), until, near, wanted)
}

fn counts(count: u64, wanted: u64) -> Result<u64, Failure> {
    if count == wanted { Ok(1) } else { Err("another count".into()) }
}

fn readers(work: &Work, path: &Path, until: Until, near: &Near, wanted: u64) -> Result<Measured, Failure> {
    // No client polls for an answer that is 100 µs away.
    let begin = || {
        let fork = StateFork { parent: "main".into(), offset: None };
        let place =
            if work.apart { connect(path)?.fork(&fork)?.fork.into_owned() } else { "main".to_owned() };
        Ok((Client::connect(&endpoint(path)?, options(false))?, place))
    };
    clients(work.clients, PACE, until, begin, |(client, place)| {
        let until = Some((&*near.until).into());
        let ask = StateCount { place: (&**place).into(), start: None, until, view: None };
        (0..work.depth).try_for_each(|_| call::<commands::Count>(client, &ask).map(drop))?;
        let mut taken = 0;
        while taken < work.depth {
            let Some(event) = client.next() else {
                client.turn(Wait::Block)?;
                continue;
            };
            let EventKind::End = event.kind else { return Err(format!("{:?}", event.kind).into()) };
            let answer = answer::<commands::Count, Infallible>(event.frame);
            taken += counts(answer.map_err(|error| error.to_string())?.count, wanted)? as usize;
        }
        Ok(work.depth as u64)
    })
}

/// How long the slowest of a hundred reads takes, alone or with somebody who writes to the same fork.
fn percentile(
    work: &Work,
    side: &str,
    until: Until,
    near: &Near,
    far: &mut Far,
) -> Result<Measured, Failure> {
    let (path, wanted) = (way("memory", far), near.read()?);
    if side == "quiet" {
        return Ok(readers(work, &path, until, near, wanted)?.by_percentile());
    }
    let (stop, stopped) = channel::<()>();
    std::thread::scope(|scope| {
        let path = &path;
        let writer = scope.spawn(move || write_on_time(path, near, &stopped));
        let measured = readers(work, path, until, near, wanted);
        drop(stop);
        writer.join().map_err(|_| "the writer died")??;
        Ok(measured?.by_percentile())
    })
}

/// Writes at a fixed rate until it is told to stop: a write is due when it is due, whether or not those
/// before it were answered, so that reads which hold writes up have as many of them beside them.
fn write_on_time(path: &Path, near: &Near, stopped: &Receiver<()>) -> Result<(), Failure> {
    let mut client = Client::connect(&endpoint(path)?, options(true))?;
    let (began, mut calls) = (Instant::now(), VecDeque::new());
    for number in 0_u32.. {
        let due = began + WRITE_EVERY * number;
        let left = due.saturating_duration_since(Instant::now());
        if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            break;
        }
        let key = key(near.keys - 1 - u64::from(number) % (near.keys / 2));
        let value = number.to_string().into_bytes().into();
        calls.push_back(call::<commands::Put>(
            &mut client,
            &StatePut { place: "main".into(), key: key.into(), value },
        )?);
        client.turn(Wait::Poll)?;
        take_what_came(&mut client, &mut calls)?;
    }
    take(&mut client, &mut calls)
}

/// A fork made and dropped.
fn fork(work: &Work, side: &str, until: Until, near: &Near, far: &mut Far) -> Result<Measured, Failure> {
    if side == "process" {
        return clients(
            work.clients,
            PACE,
            until,
            || Ok(()),
            |()| {
                let (fork, _) = near.state.fork(near.main, now())?;
                near.state.drop_fork(fork, now())?;
                Ok(1)
            },
        );
    }
    let path = way(side, far);
    clients(
        work.clients,
        PACE,
        until,
        || connect(&path),
        |client| {
            let made = client.fork(&StateFork { parent: "main".into(), offset: None })?.fork.into_owned();
            client.drop(&StateDrop { fork: made.into() })?;
            Ok(1)
        },
    )
}

/// What a fork that differs by a few keys differs by.
fn diff(work: &Work, side: &str, until: Until, near: &Near, far: &mut Far) -> Result<Measured, Failure> {
    let numbers = (0..DIFFERENCES).map(|number| number * near.keys / DIFFERENCES);
    if side == "process" {
        let (fork, _) = near.state.fork(near.main, now())?;
        let change = |number| Change::Put(key(number).into(), b"other"[..].into());
        near.state.write(fork, &numbers.map(change).collect(), now())?;
        let measured = clients(
            work.clients,
            PACE,
            until,
            || Ok(()),
            |()| {
                let found = near.state.diff(near.main, fork, View::Committed)?.len() as u64;
                if found == DIFFERENCES { Ok(1) } else { Err(format!("{found} differ").into()) }
            },
        );
        near.state.drop_fork(fork, now())?;
        return measured;
    }
    let path = way(side, far);
    let mut client = connect(&path)?;
    let made = client.fork(&StateFork { parent: "main".into(), offset: None })?.fork.into_owned();
    for number in numbers {
        let key = key(number).into();
        client.put(&StatePut { place: (&*made).into(), key, value: b"other"[..].into() })?;
    }
    let ask = StateDiff { before: "main".into(), now: (&*made).into(), start: None, limit: None, view: None };
    let measured = clients(
        work.clients,
        PACE,
        until,
        || connect(&path),
        |client| {
            let found = client.diff(&ask)?.changes.len() as u64;
            if found == DIFFERENCES { Ok(1) } else { Err(format!("{found} differ").into()) }
        },
    );
    client.drop(&StateDrop { fork: made.into() })?;
    measured
}
