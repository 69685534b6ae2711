//! The housekeeping thread: expiry and retention, checkpoints, compaction.
//!
//! It rests for several times as long as it worked, however slow the disk, so no other work is done on it. A
//! round does a bounded part of what is due; while more is due the next round follows at once, so that work
//! that falls due all the time does not pile up. Owns its thread. Told to end, it stops resting and ends
//! after the step that it is in. Checked by the tests of draining, and by the log's own.

use crate::engine::Engine;
use crate::start::ServerError;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two rounds, when there is nothing left to do.
const PERIOD: Duration = Duration::from_secs(5);
const STACK_BYTES: usize = 256 * 1024;

pub(crate) struct Housekeeper {
    engine: Engine,
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Housekeeper {
    /// Starts it. The first round comes after a while.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(engine: &Engine) -> Result<Housekeeper, ServerError> {
        let (end, ending) = channel();
        let keeper = engine.clone();
        let run = move || {
            let mut wait = PERIOD;
            while ending.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = if keeper.keep_house() { Duration::ZERO } else { PERIOD };
            }
        };
        let builder = std::thread::Builder::new().name("housekeeper".into()).stack_size(STACK_BYTES);
        let thread = builder.spawn(run).map_err(ServerError::no_thread)?;
        Ok(Housekeeper { engine: engine.clone(), end, thread })
    }

    /// Whether it ended by itself, which it does not do in good order.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it. Whether that was in good order.
    pub(crate) fn end(self) -> bool {
        self.engine.hurry();
        drop(self.end);
        self.thread.join().is_ok()
    }
}
