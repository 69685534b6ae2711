//! The thread that learns of the end of every child, and tells the supervisors of this process.

use super::Shared;
use parking_lot::Mutex;
use std::io;
use std::sync::{Arc, Weak};
use thalweg_sys::fork;

/// Starts a thread that reaps for a supervisor, and for every other.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    SUPERVISORS.lock().push(Arc::downgrade(shared));
    // If no thread starts, the supervisor is dropped, and its entry in the list is removed with the next end.
    std::thread::Builder::new().name("reaper".to_owned()).spawn(reap)?;
    Ok(())
}

/// The supervisors of this process. A wait for any child may return a child of another supervisor.
static SUPERVISORS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Reaps every child, whether or not a supervisor is left to be told.
fn reap() {
    while let Ok(Some((process, end))) = fork::await_any_child() {
        let mut supervisors = SUPERVISORS.lock();
        supervisors.retain(|shared| shared.strong_count() > 0);
        let living: Vec<_> = supervisors.iter().filter_map(Weak::upgrade).collect();
        drop(supervisors);
        let mut tables: Vec<_> = living.iter().map(|shared| shared.table.lock()).collect();
        tables.iter_mut().for_each(|table| table.ended(process, end));
        // From here on the kernel may reuse its process id, so the tables are locked and have lost it.
        fork::release(process);
        drop(tables);
        living.iter().for_each(|shared| shared.ring());
    }
}
