//! Going on where recovery ended: for a process that follows the store of another.

use super::Recovery;
use crate::error::OpenError;
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
            inner.prune();
            inner.deleting
        };
        if deleted {
            self.catalogue.remove(log);
        } else {
            self.catalogue.place(log.name()).put(log.clone());
        }
    }

    /// Begins anew from the newest checkpoint, up to a position: segments went before this process came to read
    /// them. Logs that are known stay who they are, so that whoever reads them reads on.
    pub(crate) fn renew(&mut self, to: Position) -> Result<(), OpenError> {
        let mut fresh = Recovery::new(&self.disk, &self.directory, &self.control, Some(to));
        fresh.run()?;
        fresh.report(0);
        let mut known = std::mem::replace(self, fresh).logs;
        for (id, log) in &mut self.logs {
            if let Some(same) = known.remove(id) {
                std::mem::swap(&mut *same.lock(), &mut *log.lock());
                *log = same;
            }
        }
        for log in self.logs.values() {
            if let Some(lineage) = &mut log.lock().lineage {
                lineage.parent = self.logs.get(&lineage.branch.parent).cloned();
            }
            self.catalogue.place(log.name()).put(log.clone());
        }
        for gone in known.values() {
            let mut inner = gone.lock();
            inner.deleting = true;
            inner.show();
        }
        Ok(())
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
            // One that is missing has nothing to be followed.
            let end = segment.end(to).min(segment.region().published());
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
