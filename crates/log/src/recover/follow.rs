//! Going on where recovery ended: for a process that follows the store of another.

use super::Recovery;
use crate::format::SEGMENT_HEADER_BYTES;
use crate::log::Log;
use crate::scan::{Scan, Step};
use crate::view::View;
use crate::{Position, byte_of, segment_of};
use std::sync::Arc;

impl Recovery {
    /// Shows what became of a log, in a process that follows another.
    pub(super) fn show(&self, log: &Arc<Log>) {
        let deleted = {
            let mut inner = log.lock();
            inner.show();
            inner.deleting
        };
        if deleted {
            self.catalogue.remove(log);
        } else {
            self.catalogue.place(log.name()).put(log.clone());
        }
    }

    /// Applies what was committed since, up to a position.
    pub(crate) fn follow(&mut self, view: &View, from: Position, to: Position) {
        let first = view.place(segment_of(from));
        for segment in &view.all()[first.min(view.all().len())..] {
            let number = segment.header.number;
            if number > segment_of(to) {
                return;
            }
            let mut at = if number == segment_of(from) { byte_of(from) } else { SEGMENT_HEADER_BYTES };
            let end = segment.end(to);
            loop {
                let bytes = segment.region().bytes(0..end);
                let mut scan = Scan::new(bytes, at, None);
                let stop = loop {
                    match scan.step() {
                        Step::Batch(batch) => self.apply(number, &batch),
                        Step::Stop(stop) => break stop,
                    }
                };
                let Some(resumes) = stop.resumes_at.filter(|_| !stop.blank) else { break };
                self.damaged(number, stop);
                at = resumes;
            }
        }
    }
}
