//! Which process this is. A child after a fork has a copy of everything and shares with its parent what the
//! kernel keeps for both: lists of descriptors, connections, paths. So what belongs to the parent is neither
//! used nor let go of there.
//!
//! Forks that Python makes count themselves (`os.register_at_fork`), so that to ask costs no call of the
//! kernel where it is asked often. Where it matters most, at the end of a thing, the kernel is asked.

use parking_lot::Mutex;

/// Number of forks between the first process and this one. It is locked only under the interpreter's lock,
/// which a thread that forks holds too: no child finds it locked.
static FORKS: Mutex<u64> = Mutex::new(0);

/// A process, told apart from those that it was forked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    forks: u64,
    number: u32,
}

impl Process {
    /// The one that this runs in.
    pub(crate) fn this() -> Self {
        Self { forks: *FORKS.lock(), number: std::process::id() }
    }

    /// Whether this runs in it, as far as Python knows. What a handler of the fork made before the fork was
    /// counted is this process's, too.
    #[inline]
    pub(crate) fn is_this(self) -> bool {
        self.forks == *FORKS.lock() || self.is_surely_this()
    }

    /// Whether this runs in that process, even if C code forked. Asks the kernel.
    pub(crate) fn is_surely_this(self) -> bool {
        self.number == std::process::id()
    }
}

/// This is a child, right after the fork.
pub(crate) fn note() {
    *FORKS.lock() += 1;
}
