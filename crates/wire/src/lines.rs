//! Header lines of a response, in a buffer that the next response gets.
//!
//! Purpose: an answer that waits for the store outlives what is allocated for the stream that it is about, so
//! a buffer that is allocated and let go for each leaves a hole among what stays. So each thread keeps those
//! that are let go on it, as many as were needed at once up to a bound, and hands them out again, the latest
//! first. Lines that are dropped on another thread than the one that wrote them are only kept there instead.
//!
//! Invariant: what is handed out is empty and has room for [`BYTES`]. *Checked by* the tests below.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Deref;

/// Room for the lines of most responses, so that writing one allocates at most once.
pub const BYTES: usize = 480;
/// Buffers that a thread keeps.
const SPARES_MAX: usize = 1024;
/// A buffer that grew beyond this is not kept.
const KEPT_BYTES_MAX: usize = 2 * BYTES;

thread_local! {
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Header lines, each `Name: value\r\n`, already encoded.
///
/// ```
/// use thalweg_wire::lines::Lines;
/// let mut lines = Lines::new();
/// lines.push(b"ETag: \"1\"\r\n");
/// assert_eq!(*lines, b"ETag: \"1\"\r\n"[..]);
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lines(Cow<'static, [u8]>);

impl Lines {
    /// No lines yet, and room for [`BYTES`].
    pub fn new() -> Self {
        let spare = SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten();
        Self(Cow::Owned(spare.unwrap_or_else(|| Vec::with_capacity(BYTES))))
    }

    /// Lines that are always the same, which take no buffer while nothing is added to them.
    pub const fn constant(lines: &'static [u8]) -> Self {
        Self(Cow::Borrowed(lines))
    }

    /// Appends whole lines, or a part of one.
    pub fn push(&mut self, bytes: &[u8]) {
        if let Cow::Borrowed(lines) = self.0 {
            *self = Self::from(lines);
        }
        self.0.to_mut().extend_from_slice(bytes);
    }

    /// Bytes there are before it allocates again.
    pub fn capacity(&self) -> usize {
        match &self.0 {
            Cow::Borrowed(_) => 0,
            Cow::Owned(lines) => lines.capacity(),
        }
    }
}

impl Deref for Lines {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Lines {
    fn from(bytes: &[u8]) -> Self {
        let mut lines = Self::new();
        lines.0.to_mut().extend_from_slice(bytes);
        lines
    }
}

impl Clone for Lines {
    fn clone(&self) -> Self {
        match &self.0 {
            Cow::Borrowed(lines) => Self::constant(lines),
            Cow::Owned(lines) => Self::from(&lines[..]),
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let Cow::Owned(lines) = &mut self.0 else { return };
        let mut spare = std::mem::take(lines);
        if (BYTES..=KEPT_BYTES_MAX).contains(&spare.capacity()) {
            spare.clear();
            // A thread that ends has no spares any more.
            let _ = SPARES.try_with(|spares| {
                let mut spares = spares.borrow_mut();
                if spares.len() < SPARES_MAX {
                    spares.push(spare);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spares() -> usize {
        SPARES.with_borrow(Vec::len)
    }

    #[test]
    fn the_next_lines_get_the_buffer_of_those_that_went_empty() {
        let mut first = Lines::new();
        first.push(b"A: b\r\n");
        let buffer = first.as_ptr();
        drop(first);
        let second = Lines::new();
        assert_eq!((second.as_ptr(), second.len(), second.capacity()), (buffer, 0, BYTES));
        assert_eq!(spares(), 0);
    }

    #[test]
    fn no_more_are_kept_than_the_bound_and_none_that_grew_large_or_never_had_room() {
        let many: Vec<Lines> = (0..SPARES_MAX + 10).map(|_| Lines::new()).collect();
        drop(many);
        assert_eq!(spares(), SPARES_MAX);
        let mut large = Lines::new();
        large.push(&[b'x'; 2 * KEPT_BYTES_MAX]);
        drop(large);
        drop(Lines::default());
        assert_eq!(spares(), SPARES_MAX - 1);
    }

    #[test]
    fn constant_lines_take_a_buffer_when_others_follow() {
        const FIRST: &[u8] = b"A: b\r\n";
        let mut lines = Lines::constant(FIRST);
        let same = lines.clone();
        assert_eq!((same.as_ptr(), same.capacity()), (FIRST.as_ptr(), 0));
        lines.push(b"C: d\r\n");
        assert_eq!((&*lines, &*same), (&b"A: b\r\nC: d\r\n"[..], FIRST));
        drop((lines, same));
        assert_eq!(spares(), 1);
    }

    #[test]
    fn a_copy_has_lines_of_its_own() {
        let first = Lines::from(&b"A: b\r\n"[..]);
        let second = first.clone();
        assert_eq!(first, second);
        assert_ne!(first.as_ptr(), second.as_ptr());
    }
}
