//! What everything that waits in one gateway takes together, against what it may take.
//!
//! *Invariant*: the sum of what is held. Each owner of held bytes says when they grow, shrink or are freed;
//! what is only passed through is not counted.

/// Bytes that are held, and how many may be.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: usize,
    bytes_max: usize,
}

impl Budget {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max }
    }

    /// Whether there is no room for so many more.
    #[inline]
    pub(crate) fn lacks(&self, more: usize) -> bool {
        self.bytes.saturating_add(more) > self.bytes_max
    }

    /// What took `was` takes `is` from now on.
    pub(crate) fn replace(&mut self, was: usize, is: usize) {
        debug_assert!(was <= self.bytes, "more is let go of than is held");
        self.bytes = self.bytes.saturating_sub(was).saturating_add(is);
    }
}
