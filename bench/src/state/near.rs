//! The state in this process.

use crate::Failure;
use std::ops::Bound;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg_log::{Disk, Durability, Options, Store, now};
use thalweg_state::{Change, Changes, ForkId, State, View};

/// Keys of one commit while it is filled.
const FILL: u64 = 10_000;
/// What one long read takes.
const READ: Duration = Duration::from_micros(100);

/// A state with keys.
pub(crate) struct Near {
    pub(crate) state: State,
    pub(crate) main: ForkId,
    pub(crate) keys: u64,
    /// The first key that a read which begins with the first does not see.
    pub(crate) until: String,
    directory: PathBuf,
}

/// The name of a key.
pub(crate) fn key(number: u64) -> String {
    format!("key-{number:08}")
}

/// Fills a state of that many keys.
///
/// # Errors
/// What the log says.
pub(crate) fn fill(state: &State, keys: u64) -> Result<(), Failure> {
    let mut number = 0;
    while number < keys {
        let next = keys.min(number + FILL);
        let change = |number| Change::Put(key(number).into(), format!("{number:016}").as_bytes().into());
        let changes: Changes = (number..next).map(change).collect();
        state.write(state.main(), &changes, now())?;
        number = next;
    }
    Ok(())
}

/// A store of its own in a directory that does not last.
///
/// # Errors
/// What the store says.
pub(crate) fn store(purpose: &str) -> Result<(Store, PathBuf), Failure> {
    let directory = std::env::temp_dir().join(format!("thalweg-state-{purpose}-{}", std::process::id()));
    let options = Options { durability: Durability::Os, ..Options::default() };
    Ok((Store::open(&Disk::Real, &directory, options)?.0, directory))
}

impl Near {
    /// A state of that many keys, and how many of them a read of 100 µs sees.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn new(keys: u64) -> Result<Self, Failure> {
        let (store, directory) = store("near")?;
        let state = State::open(&store, "state", thalweg_state::Options::default())?;
        fill(&state, keys)?;
        let main = state.main();
        let mut near = Self { state, main, keys, until: key(keys), directory };
        let mut span = 64;
        while span < keys {
            near.until = key(span);
            // The best of a few is what it takes without anybody else.
            let took = (0..5).map(|_| {
                let begun = Instant::now();
                near.read().map(|_| begun.elapsed())
            });
            let took = took.collect::<Result<Vec<_>, _>>()?.into_iter().min().unwrap_or_default();
            if took >= READ {
                break;
            }
            span += (span / 8).max(1);
        }
        Ok(near)
    }

    /// One long read.
    ///
    /// # Errors
    /// The fork is gone.
    pub(crate) fn read(&self) -> Result<u64, Failure> {
        count_until(&self.state, self.main, &self.until)
    }
}

/// How many keys there are up to one.
///
/// # Errors
/// The fork is gone.
pub(crate) fn count_until(state: &State, fork: ForkId, until: &str) -> Result<u64, Failure> {
    let read_view = state.read_view(fork, View::Committed)?;
    Ok(read_view.range(Bound::Unbounded, Bound::Excluded(until)).count() as u64)
}

impl Drop for Near {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
