//! How many bytes of each segment some log needs, and what follows from that.
//!
//! Counted by extents, as they are written and let go of, behind the writer's lock. A segment is *dead* once
//! no log needs anything of it, and *worn* once most of what it holds was let go. *Checked by* the tests of
//! purging and of reclaiming.

use crate::extents::Extent;
use crate::segment_of;
use crate::store::Shared;
use crate::writer::Writer;
use std::collections::BTreeMap;

/// Segments that may be sealed early before sealing another has to be worth more.
const SEALED_FEW: u64 = 16;

/// Whether there are segments that no log is going to need: any, the one that is written to, all of them.
pub(crate) struct Dead {
    pub(crate) any: bool,
    pub(crate) newest: bool,
    pub(crate) all: bool,
}

impl Shared {
    /// Lets go of extents: their segments have as many bytes less that a log needs.
    pub(crate) fn unload(&self, extents: impl IntoIterator<Item = Extent>) {
        let mut extents = extents.into_iter().peekable();
        if extents.peek().is_none() {
            return;
        }
        let mut writer = self.writer.lock();
        for extent in extents {
            writer.tally.purged_bytes += u64::from(extent.length);
            if segment_of(extent.position) == writer.active.header.number {
                writer.gone_bytes += u64::from(extent.length);
            }
            if let Some(live) = writer.live_bytes.get_mut(&segment_of(extent.position)) {
                *live = live.saturating_sub(u64::from(extent.length));
            }
        }
    }

    /// Whether there are segments that no log needs once `bytes` are gone of each. Where forks go, too, there
    /// may be more.
    pub(crate) fn dead_without(&self, bytes: &BTreeMap<u32, u64>) -> Dead {
        let writer = self.writer.lock();
        let active = writer.active.header.number;
        let dead = |number: &u32, live: u64| live <= bytes.get(number).copied().unwrap_or(0);
        let newest = bytes.contains_key(&active) && dead(&active, writer.needed_bytes(active));
        let mut others = writer.live_bytes.iter().filter(|(number, _)| **number != active);
        let all = newest && others.clone().all(|(number, live)| dead(number, *live));
        let any = newest || others.any(|(number, live)| dead(number, *live));
        Dead { any, newest, all }
    }
}

impl Writer {
    /// Payload of a segment that some log needs.
    pub(crate) fn needed_bytes(&self, segment: u32) -> u64 {
        self.live_bytes.get(&segment).copied().unwrap_or(0)
    }

    /// Segments that no log needs anything of, but the one that is written to.
    pub(crate) fn dead(&self) -> impl Iterator<Item = u32> {
        let active = self.active.header.number;
        let dead = self.live_bytes.iter().filter(move |(number, live)| **live == 0 && **number < active);
        dead.map(|(number, _)| *number)
    }

    /// What is given back if the active segment is sealed and a store's first follows: 0 unless most of what
    /// it holds was let go, and it is worth a segment more.
    pub(crate) fn worn_bytes(&self) -> u64 {
        let needed = self.needed_bytes(self.active.header.number);
        let gone = self.gone_bytes;
        if gone == 0 || gone < needed {
            return 0;
        }
        let stays = u64::from(self.segment_tail.end()) * needed / (needed + gone);
        let first = u64::from(self.options.segment_bytes_first());
        let given_back = u64::from(self.active.header.capacity).saturating_sub(stays + first);
        let worth = first * (self.live_bytes.len() as u64).max(SEALED_FEW) / SEALED_FEW;
        if given_back >= worth { given_back } else { 0 }
    }
}
