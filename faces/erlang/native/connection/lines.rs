//! Lines of a worker's log on their way to Erlang's: at most [`WAITING_MAX`] that were not taken yet.
//!
//! A worker's credit is given back when what it said is delivered, or else its callbacks and messages would
//! wait for its log. So lines have a bound of their own: what is beyond it is left out, and how much that was
//! is told with what is taken next.

/// Lines that may wait to be taken. The reader acknowledges a part of these at a time, of which there is a
/// whole number.
const WAITING_MAX: u32 = 4096;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    waiting: u32,
    left_out_bytes: u64,
}

impl Lines {
    /// Whether a line of so many bytes may be delivered.
    pub(crate) fn admit(&mut self, bytes: usize) -> bool {
        let has_room = self.waiting < WAITING_MAX;
        if has_room {
            self.waiting += 1;
        } else {
            self.left_out_bytes += bytes as u64;
        }
        has_room
    }

    /// So many were taken. How many bytes were left out since this was said last.
    pub(crate) fn taken(&mut self, lines: u32) -> u64 {
        self.waiting = self.waiting.saturating_sub(lines);
        std::mem::take(&mut self.left_out_bytes)
    }
}
