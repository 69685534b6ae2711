//! First lines that say a minor version above ours.
//!
//! RFC 9110 2.5: a message whose major version is known is read by the highest minor version that is, here
//! HTTP/1.1. `httparse` takes 1.1 and 1.0 alone, so of such a message a copy of the first line is read that
//! says 1.1, and the fields from where they lie.
//!
//! Invariant: a message comes to what it would if it said HTTP/1.1. *Checked by* the tests of request and of
//! response heads.

use memchr::memchr;

/// A message's first line that says HTTP/1.2 to HTTP/1.9, as far as it came.
pub(super) struct NewerLine {
    /// The same line, as if it said HTTP/1.1.
    pub(super) as_ours: Vec<u8>,
    /// It has come whole, its end included.
    pub(super) whole: bool,
}

impl NewerLine {
    /// The first line of `message`, whose version stands at `version_at`; `None` where it says another.
    pub(super) fn of(message: &[u8], version_at: usize) -> Option<Self> {
        let end = memchr(b'\n', message);
        let line = end.map_or(message, |end| &message[..=end]);
        let digit = line.get(version_at..)?.strip_prefix(b"HTTP/1.")?.first()?;
        if !(b'2'..=b'9').contains(digit) {
            return None;
        }
        let mut as_ours = line.to_vec();
        as_ours[version_at + "HTTP/1.".len()] = b'1';
        Some(Self { as_ours, whole: end.is_some() })
    }
}
