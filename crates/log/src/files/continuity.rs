//! Whether each log's entries go on where those in front of them end, from batch to batch.
//!
//! A checksum proves that a batch is as it was written, and a link that it follows the one in front of it.
//! What it says of a log may still be what cannot be. The rule is recovery's (`keeping/recover/apply`), and
//! so whoever verifies a store hears of what opening it would find. Nothing is known of a log before its
//! creation or its first entry, and again behind a place where batches may be missing. *Checked by* the tests
//! of crafted files.

use crate::format::{self, Frame, Kind};
use crate::{LogId, Offset};
use std::collections::HashMap;

/// Where logs end, as the batches so far say.
#[derive(Debug, Default)]
pub(crate) struct Continuity {
    ends: HashMap<LogId, Offset>,
    /// The one whose frame was last looked at, and its end: frames of a log often follow each other.
    latest: Option<(LogId, Offset)>,
}

impl Continuity {
    /// Batches may be missing here.
    pub(crate) fn interrupt(&mut self) {
        *self = Continuity::default();
    }

    /// Takes the next frame, which is plausible; whether it goes on from those before.
    pub(crate) fn follow(&mut self, frame: &Frame<'_>) -> bool {
        let known = self.end_of(frame.log);
        match frame.kind {
            Kind::Create => {
                let branch = format::decode_create(frame.payload).and_then(|created| created.branch);
                self.latest = Some((frame.log, branch.map_or(0, |branch| branch.base)));
                true
            }
            Kind::Data => {
                self.latest = Some((frame.log, frame.offset + frame.payload.len() as u64));
                known.is_none_or(|end| end == frame.offset)
            }
            // One that was written beside damage may not have known all there is.
            Kind::Trim => known.is_none_or(|end| end >= frame.offset),
            Kind::Delete => {
                self.ends.remove(&frame.log);
                self.latest = None;
                true
            }
            _ => true,
        }
    }

    fn end_of(&mut self, log: LogId) -> Option<Offset> {
        if self.latest.is_none_or(|(latest, _)| latest != log) {
            self.ends.extend(self.latest.take());
            self.latest = self.ends.get(&log).map(|end| (log, *end));
        }
        self.latest.map(|(_, end)| end)
    }
}
