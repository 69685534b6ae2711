//! Bytes that came on a connection and were not dealt with.
//!
//! *Bound*: a buffer grows with what came, never with what a client announced.

/// Room for one read.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// Bytes that came and were not dealt with.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// Bytes that were dealt with.
    start: usize,
    /// Bytes of the rest that were scanned ahead.
    ahead: usize,
    /// Where the frame that was scanned last begins.
    last_ahead: usize,
    /// Length of the first frame, as its header announces it, in bytes.
    announced: usize,
    /// Bytes to discard on arrival: the rest of a frame that is too long.
    skip: usize,
    /// Bytes that were not dealt with when the connection began to wait, and when that was, in the reactor's
    /// milliseconds.
    waited: usize,
    waits_since_ms: u64,
}

impl Input {
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len() && self.skip == 0
    }

    /// What was not dealt with.
    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        self.ahead = self.ahead.saturating_sub(count);
        self.last_ahead = self.last_ahead.saturating_sub(count);
        self.waited = self.waited.saturating_sub(count);
    }

    /// Notes that the bytes received so far wait from `now_ms` on, unless some of them wait already.
    pub(crate) fn wait(&mut self, now_ms: u64) {
        if self.waited == 0 {
            (self.waited, self.waits_since_ms) = (self.unread().len(), now_ms);
        }
    }

    /// Since when the next `count` bytes have waited, or `now_ms` where that was not noted.
    pub(crate) fn since_ms(&self, count: usize, now_ms: u64) -> u64 {
        if count <= self.waited { self.waits_since_ms } else { now_ms }
    }

    /// The bytes that were not scanned yet.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.bytes[self.start + self.ahead..]
    }

    /// Where the last scanned frame begins.
    pub(crate) fn last_ahead(&self) -> usize {
        self.last_ahead
    }

    /// Marks the next frame, of `count` bytes, as scanned.
    pub(crate) fn pass_ahead(&mut self, count: usize) {
        self.last_ahead = self.ahead;
        self.ahead += count;
    }

    /// Overwrites the next bytes to be scanned.
    pub(crate) fn rewrite_ahead(&mut self, bytes: &[u8]) {
        let start = self.start + self.ahead;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Passes over bytes, come or still to come.
    pub(crate) fn skip(&mut self, count: usize) {
        self.ahead = self.ahead.saturating_sub(count);
        self.last_ahead = self.last_ahead.saturating_sub(count);
        self.skip += count;
        self.pass_over();
    }

    /// Forgets what was dealt with, if that is all there is.
    #[inline]
    pub(crate) fn dealt_with(&mut self) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    fn pass_over(&mut self) {
        let now = self.skip.min(self.bytes.len() - self.start);
        self.start += now;
        self.skip -= now;
        self.waited = self.waited.saturating_sub(now);
    }

    /// Notes that the input begins with a frame of `first_bytes` bytes.
    pub(crate) fn announce(&mut self, first_bytes: usize) {
        self.announced = first_bytes;
    }

    /// Room to read into. Bytes that were dealt with are dropped. The room for a long frame grows as its
    /// bytes arrive, up to five times the bytes received, and never by its announced length alone.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        if self.start == self.bytes.len() {
            // (What is skipped is still to come.)
            self.bytes.clear();
        } else if self.start > 0 {
            self.bytes.drain(..self.start);
        }
        self.start = 0;
        let spare = self.bytes.capacity() - self.bytes.len();
        if spare < READ_BYTES / 2 {
            let came = self.bytes.len();
            let missing = self.announced.saturating_sub(came).min(4 * came);
            self.bytes.reserve(READ_BYTES.max(missing));
        }
        &mut self.bytes
    }

    /// After bytes were appended.
    pub(crate) fn grown(&mut self) {
        if self.skip > 0 {
            self.pass_over();
        }
    }

    /// Its buffer, which is empty while it has none of its own.
    pub(super) const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.start, self.ahead, self.last_ahead, self.announced, self.skip) = (0, 0, 0, 0, 0);
        self.waited = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(input: &mut Input, bytes: &[u8]) {
        input.room().extend_from_slice(bytes);
        input.grown();
    }

    #[test]
    fn what_is_skipped_never_shows_however_it_comes() {
        let mut input = Input::default();
        arrive(&mut input, b"ab12");
        input.consume(2);
        input.skip(5);
        assert!(input.unread().is_empty() && !input.is_empty());
        arrive(&mut input, b"34");
        assert!(input.unread().is_empty());
        arrive(&mut input, b"5cd");
        assert_eq!(input.unread(), b"cd");
        input.consume(2);
        assert!(input.is_empty());
    }

    #[test]
    fn what_was_there_when_a_wait_began_has_waited_since_and_what_came_later_has_not() {
        let mut input = Input::default();
        arrive(&mut input, b"abcd");
        assert_eq!(input.since_ms(4, 7), 7, "nothing waits");
        input.wait(10);
        arrive(&mut input, b"ef");
        input.wait(20);
        assert_eq!([input.since_ms(4, 30), input.since_ms(5, 30)], [10, 30]);
        input.consume(3);
        assert_eq!([input.since_ms(1, 30), input.since_ms(2, 30)], [10, 30]);
        input.consume(1);
        input.wait(40);
        assert_eq!(input.since_ms(2, 50), 40, "another wait");
        input.skip(3);
        arrive(&mut input, b"ghi");
        assert_eq!(input.since_ms(2, 60), 60, "what waited was passed over");
    }

    #[test]
    fn room_grows_with_what_came_and_not_with_what_was_said() {
        let mut input = Input::default();
        input.room();
        input.announce(1 << 30);
        assert!(input.room().capacity() <= 2 * READ_BYTES, "nothing came yet");
        let (mut total, mut growths) = (0, 0);
        while total < 16 << 20 {
            let before = input.bytes.capacity();
            let room = input.room();
            growths += usize::from(room.capacity() > before);
            assert!(room.capacity() <= (6 * total).max(2 * READ_BYTES));
            let spare = room.capacity() - room.len();
            room.resize(room.len() + spare, 0);
            total += spare;
        }
        assert!(growths < 8, "{growths} times for sixteen mebibytes");
    }
}
