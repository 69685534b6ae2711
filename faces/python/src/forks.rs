//! Which process this is. A child after a fork has a copy of everything and shares with its parent what the kernel keeps for both:
//! lists of descriptors, connections, paths. So what belongs to the parent is neither used nor let go of there.
//!
//! Forks that Python makes count themselves (`os.register_at_fork`), so that to ask costs no call of the kernel.

use parking_lot::Mutex;

/// Forks between the first process and this one. Whoever holds it has the interpreter's lock, and so has whoever forks: no child
/// finds it locked.
static FORKS: Mutex<u64> = Mutex::new(0);

/// A process, told apart from those that it was forked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u64);

impl Process {
    /// The one that this runs in.
    pub(crate) fn this() -> Self {
        Self(*FORKS.lock())
    }

    /// Whether this runs in it.
    #[inline]
    pub(crate) fn is_this(self) -> bool {
        self == Self::this()
    }
}

/// This is a child, right after the fork.
pub(crate) fn note() {
    *FORKS.lock() += 1;
}
