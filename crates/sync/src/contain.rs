//! Callbacks, called so that a panic in one does not end the thread that calls it.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls something of somebody else's, whose panic ends nothing but itself: the panic hook has told of it,
/// and the caller goes on with what it owes to others.
///
/// ```
/// let mut told = 0;
/// for waker in [|| panic!("this one's own fault"), || ()] {
///     thalweg_sync::contain::contain(waker);
///     told += 1;
/// }
/// assert_eq!(told, 2);
/// ```
pub fn contain(act: impl FnOnce()) {
    // What it shared with others is theirs to leave whole, as in any thread that panics.
    let _ = catch_unwind(AssertUnwindSafe(act));
}
