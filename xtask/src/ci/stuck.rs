//! Steps that have nothing to say any more. A test that waits for ever would take the time of all that is
//! behind it, and end with nothing told of either.

use std::fs;
use std::time::Duration;

/// A step that said nothing for so long is stuck: no build takes as long on two processors.
pub(super) const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// Ends a process and all that it started.
pub(super) fn end(process: u32) {
    // A process whose parent has ended has lost its place in the tree, so these are looked for first.
    let children = children(process);
    // It may have ended meanwhile.
    let _ = thalweg_sys::fork::kill(process);
    children.into_iter().for_each(end);
}

/// The processes that it started; none if it has ended.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}
