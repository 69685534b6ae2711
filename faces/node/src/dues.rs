//! When housekeeping that was not asked for is due: once for a store, however many have it open and append to
//! it.
//!
//! Invariant: there is one turn at a time, until it is dropped. *Checked by* the tests below.

use parking_lot::Mutex;
use std::sync::Arc;

/// It is due once in so many appended bytes.
const DUE_BYTES: u64 = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct Dues {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was appended since the last turn began.
    bytes: u64,
    /// A turn is under way.
    taken: bool,
}

/// The turn to do housekeeping. One call at a time: each takes a thread of the pool, and its time.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Dues>);

impl Dues {
    /// `bytes` bytes were appended: a turn, if housekeeping is due and no other turn is under way.
    pub(crate) fn grew(self: &Arc<Dues>, bytes: u64) -> Option<Turn> {
        let mut state = self.state.lock();
        state.bytes += bytes;
        if state.taken || state.bytes <= DUE_BYTES {
            return None;
        }
        *state = State { bytes: 0, taken: true };
        Some(Turn(self.clone()))
    }
}

impl Turn {
    /// Another turn, where more came due meanwhile, and where there was more to do, for as long as something
    /// is appended: a program that is done with appending is not kept from ending.
    pub(crate) fn again(self, more: bool) -> Option<Turn> {
        let mut state = self.0.state.lock();
        if state.bytes <= if more { 0 } else { DUE_BYTES } {
            return None;
        }
        state.bytes = 0;
        drop(state);
        Some(self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.state.lock().taken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_keeps_house_at_a_time_and_once_more_for_what_came_due_meanwhile() {
        let dues = Arc::new(Dues::default());
        assert!(dues.grew(DUE_BYTES).is_none(), "not yet");
        let turn = dues.grew(1).unwrap();
        for _ in 0..5 {
            assert!(dues.grew(DUE_BYTES + 1).is_none(), "a turn is under way");
        }
        let turn = turn.again(false).unwrap();
        // What is left to do is for the next append.
        assert!(turn.again(true).is_none());
        let turn = dues.grew(DUE_BYTES + 1).unwrap();
        assert!(dues.grew(1).is_none());
        let turn = turn.again(true).unwrap();
        assert!(dues.grew(1).is_none());
        assert!(turn.again(false).is_none());
        // One that fails, or whose thread ends, is followed by another when more comes due.
        drop(dues.grew(DUE_BYTES).unwrap());
        assert!(dues.grew(DUE_BYTES + 1).is_some());
    }
}
