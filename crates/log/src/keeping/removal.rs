//! Segments that no log needs are removed.
//!
//! Invariants: a segment goes only behind the older of the checkpoints that are kept, so that no replay
//! starts in front of it; and only once what emptied it is durable, because a crash would bring that back. Of
//! a store that is known to be damaged nothing goes: what is there may be all that is left. *Checked by* the
//! crash simulation and the tests of purging and trimming.

use crate::checkpoint::KEPT;
use crate::options::Durability;
use crate::segment_of;
use crate::store::Shared;

impl Shared {
    /// Removes segments whose payload no log needs by now, of a store without checkpoints.
    pub(crate) fn drop_dead_segments(&self) {
        let dead: Vec<u32> = self.writer.lock().dead().collect();
        self.drop_segments(dead);
    }

    /// Removes those of some segments that no replay starts before.
    pub(crate) fn drop_segments(&self, mut dead: Vec<u32>) {
        let kept = self.checkpoints.lock().len();
        if self.is_damaged() || self.directory.is_some() && kept < KEPT {
            return;
        }
        if self.options.durability != Durability::Memory {
            let oldest = self.checkpoints.lock().first().map_or(0, |start| segment_of(*start));
            dead.retain(|number| *number < oldest);
        }
        // What emptied them may be known before it is durable: a crash would bring it back, and its segments
        // not.
        if dead.is_empty() || self.options.durability == Durability::Os && self.commit_group().is_err() {
            return;
        }
        for number in &dead {
            let bytes = self.segments.find(*number).map_or(0, |segment| segment.header.held_bytes());
            {
                let mut writer = self.writer.lock();
                if writer.live_bytes.remove(number).is_none() {
                    // Another thread was faster.
                    continue;
                }
                writer.tally.freed_bytes += bytes;
            }
            self.segments.remove(*number);
            if let Some(directory) = &self.directory {
                let _ = self.disk.unlink(&directory.join(crate::segment::file_name(*number)));
                self.remove_settled(directory, *number);
            }
        }
        self.announce_removal();
    }

    /// Tells readers in every process that files were removed, or replaced by compacted ones. A reader that
    /// sleeps at the end of its log is woken, since a file that it has mapped keeps its disk space. Only the
    /// readers of this process let go of a file that was replaced. Those of an attached process keep it, and
    /// are woken in vain: all processes sleep on the same word.
    pub(crate) fn announce_removal(&self) {
        self.control.bump_segments();
        self.gate.wake_all();
    }
}
