//! Work on files that takes its time, for a caller that may want it to end before.
//!
//! Between two pieces it asks whether to go on. What is answered otherwise is passed on as the error that it
//! is, and what was written is undone as after any error. A piece is a file, or a few mebibytes of one;
//! a file that was written is synced as a whole.
//! *Checked by* the tests of verification and of backups, which end each at every question it asks.

use std::io;

/// Asked between two pieces of such work: whether to go on. An error is best of the kind
/// [`Interrupted`](io::ErrorKind::Interrupted); one of `NotFound` passes for a file that went away.
pub type GoOn<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// Bytes between two questions, at least.
pub(crate) const PIECE_BYTES: u32 = 4 << 20;

/// The answer of a caller that never wants it to end.
pub(crate) fn always() -> io::Result<()> {
    Ok(())
}
