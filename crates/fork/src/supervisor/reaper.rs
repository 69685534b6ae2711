//! The thread that learns of the end of every child, and tells the supervisors of this process.
//!
//! *Invariants*: there is one such thread, whatever the number of supervisors, as long as there are children
//! of one that has started; so each end is told once. A supervisor is known here before its program can end,
//! so no end of a server is told to others alone. A child's number is released with `REAPER` and every table
//! locked, when the tables have lost it: whoever holds one of these locks, and finds the child, may signal it
//! by its number. Two kinds of children are released without, because they are in no table: a program whose
//! start fails, by its [`ChildGuard`](super::child_guard::ChildGuard), and what is left of its group, by the
//! thread that this guard starts.

use super::Shared;
use parking_lot::Mutex;
use std::io;
use std::sync::{Arc, Weak};
use thalweg_sys::fork::{self, ExitStatus};

static REAPER: Mutex<Reaper> = Mutex::new(Reaper { supervisors: Vec::new(), begun: 0, is_running: false });

struct Reaper {
    /// A wait for any child may return a child of any of them.
    supervisors: Vec<Weak<Shared>>,
    /// How many supervisors have begun.
    begun: u64,
    is_running: bool,
}

/// Starts a supervisor's program, and has the ends of all children told to the supervisor from then on. No
/// end is told meanwhile.
pub(super) fn watch<T>(shared: &Arc<Shared>, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut reaper = REAPER.lock();
    let started = start()?;
    reaper.begun += 1;
    reaper.supervisors.retain(|shared| shared.strong_count() > 0);
    reaper.supervisors.push(Arc::downgrade(shared));
    Ok(started)
}

/// Has children reaped from now on, whether or not they were before: until a program has come to listen, its
/// supervisor ends it and what it has started by its number.
pub(super) fn run() -> io::Result<()> {
    let mut reaper = REAPER.lock();
    if !reaper.is_running {
        std::thread::Builder::new().name("reaper".to_owned()).spawn(reap)?;
        reaper.is_running = true;
    }
    Ok(())
}

/// Does something while no child's number is released, but for those that are in no table.
pub(super) fn with_numbers_kept(act: impl FnOnce()) {
    let _reaper = REAPER.lock();
    act();
}

/// Reaps every child, whether or not a supervisor is left to be told, until there is none.
fn reap() {
    loop {
        let begun = REAPER.lock().begun;
        while let Ok(Some((process, end))) = fork::await_any_child() {
            tell(process, end);
        }
        let mut reaper = REAPER.lock();
        // A supervisor that has begun meanwhile has a child that this has not waited for.
        if reaper.begun == begun {
            reaper.is_running = false;
            return;
        }
    }
}

fn tell(process: u32, end: ExitStatus) {
    let mut reaper = REAPER.lock();
    reaper.supervisors.retain(|shared| shared.strong_count() > 0);
    let living: Vec<_> = reaper.supervisors.iter().filter_map(Weak::upgrade).collect();
    let mut tables: Vec<_> = living.iter().map(|shared| shared.table.lock()).collect();
    tables.iter_mut().for_each(|table| table.ended(process, end));
    // From here on the kernel may reuse its number.
    fork::release(process);
    drop(tables);
    drop(reaper);
    living.iter().for_each(|shared| shared.ring());
}
