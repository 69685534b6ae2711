//! The receiver of what a worker says by itself, and when that leaves while a function runs.
//!
//! What is said is queued and leaves with a turn of the server, and no turn comes by itself before the
//! function has returned. So the caller that says something takes a turn. In a burst it takes none for each
//! message: a later message or the end of the function does. That bounds the cost of a burst and its backlog.

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::time::{Duration, Instant};
use thalweg_service::Reply;
use thalweg_wire::service::Flow;

/// So many turns are taken
const TURNS_MAX: u32 = 4;
/// within so long,
const BURST: Duration = Duration::from_millis(1);
/// and one more whenever so much was said since the last.
const BYTES_MAX: usize = 64 * 1024;

/// The attendant, if there is one.
#[derive(Default)]
pub(super) struct Attending(Mutex<Option<Attendant>>);

struct Attendant {
    reply: Reply,
    /// When the burst began, and the turns that were due in it.
    since: Instant,
    turns: u32,
    /// Said since the last turn.
    bytes: usize,
}

/// What became of something that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It leaves with the next turn.
    Queued,
    /// A turn is due.
    Due,
    /// It was not taken: too much is unread.
    Refused,
}

impl Attending {
    pub(super) fn begin(&self, reply: Reply) {
        *self.0.lock() = Some(Attendant { reply, since: Instant::now(), turns: 0, bytes: 0 });
    }

    pub(super) fn say(&self, frame: &[u8]) -> PyResult<Said> {
        match &mut *self.0.lock() {
            Some(attendant) => Ok(attendant.hear(frame)),
            None => Err(PyRuntimeError::new_err("no process in Erlang attends")),
        }
    }

    /// What was said has left.
    pub(super) fn sent(&self) {
        if let Some(attendant) = &mut *self.0.lock() {
            attendant.bytes = 0;
        }
    }
}

impl Attendant {
    fn hear(&mut self, frame: &[u8]) -> Said {
        if self.reply.flow() != Flow::Go {
            return Said::Refused;
        }
        self.reply.item(frame);
        self.bytes += frame.len();
        if self.since.elapsed() >= BURST {
            (self.since, self.turns) = (Instant::now(), 0);
        }
        if self.turns >= TURNS_MAX && self.bytes < BYTES_MAX {
            return Said::Queued;
        }
        self.turns += 1;
        Said::Due
    }
}
