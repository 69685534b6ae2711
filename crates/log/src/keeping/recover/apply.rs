//! What one batch does to the catalogue: the frames of each log gathered, and applied as a commit is.

use super::Recovery;
use super::follow::Shown;
use crate::extents::Extent;
use crate::fork::Lineage;
use crate::format::{self, Config, Created, Frame, Kind, Producer};
use crate::log::{Change, Inner, Log};
use crate::log_numbers::LogNumbers;
use crate::places::Places;
use crate::plausible::is_plausible;
use crate::scan::Batch;
use crate::segment;
use crate::{LogId, Offset, Position, Time, position};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a batch does to one log, gathered from its frames.
#[derive(Default)]
struct LogChanges<'a> {
    log: LogId,
    create: Option<Created<'a>>,
    first: Option<Offset>,
    bytes: u64,
    producer: Option<(&'a [u8], Producer)>,
    writer_seq: Option<&'a [u8]>,
    notes: format::NoteList<'a>,
    close: bool,
    trim: Option<Offset>,
    /// Where the log ended when it was trimmed.
    trimmed_at: Offset,
    places: Option<Places<'a>>,
    delete: bool,
}

impl Recovery {
    /// Does what a batch says, as far as that can be.
    pub(super) fn apply(&mut self, segment: u32, batch: &Batch<'_>) {
        self.report.batches += 1;
        let mut gathered: SmallVec<[LogChanges<'_>; 1]> = SmallVec::new();
        let mut numbers = LogNumbers::default();
        for frame in format::frames(batch.body) {
            if !is_plausible(&frame) {
                self.disbelieve(segment, batch, &frame);
                continue;
            }
            let number = numbers.find(frame.log).unwrap_or_else(|| {
                gathered.push(LogChanges { log: frame.log, ..LogChanges::default() });
                numbers.add(frame.log)
            });
            let one = &mut gathered[number];
            match frame.kind {
                // A log's entries follow each other.
                Kind::Data if one.first.is_some_and(|first| first + one.bytes != frame.offset) => {
                    self.disbelieve(segment, batch, &frame);
                }
                Kind::Data => {
                    self.times.note(frame.time);
                    one.first.get_or_insert(frame.offset);
                    one.bytes += frame.payload.len() as u64;
                }
                Kind::Create => one.create = format::decode_create(frame.payload),
                Kind::Producer => one.producer = format::decode_producer(frame.payload),
                Kind::WriterSeq => one.writer_seq = Some(frame.payload),
                Kind::Note => one.notes = format::decode_notes(frame.payload).unwrap_or_default(),
                Kind::Trim => {
                    (one.trim, one.trimmed_at) = (format::decode_trim(frame.payload), frame.offset);
                }
                // Only what replay never comes to is compacted; see `replay`. And what stands for nothing
                // says nothing.
                Kind::Gone => {}
                Kind::Places => one.places = Places::decode(frame.payload),
                Kind::Close => one.close = true,
                Kind::Delete => one.delete = true,
            }
        }
        let logs: SmallVec<[Option<Arc<Log>>; 1]> =
            gathered.iter_mut().map(|one| self.log_of(one, batch)).collect();
        // A log the checkpoint no longer had: its deletion follows.
        let known: SmallVec<[(&Arc<Log>, LogChanges<'_>); 1]> =
            logs.iter().zip(gathered).filter_map(|(log, one)| Some((log.as_ref()?, one))).collect();
        self.apply_to(segment, batch, known);
    }

    /// The log that a batch does something to, which may be to create it.
    fn log_of(&mut self, one: &mut LogChanges<'_>, batch: &Batch<'_>) -> Option<Arc<Log>> {
        self.next_log = self.next_log.max(one.log + 1);
        if let Some(created) = one.create.take() {
            self.create(one.log, created, batch.header.time);
        }
        self.logs.get(&one.log).cloned()
    }

    /// A frame says what cannot be: it is lost what was meant.
    fn disbelieve(&mut self, segment: u32, batch: &Batch<'_>, frame: &Frame<'_>) {
        let damage = batch.damage(segment::file_name(segment), segment, frame.log);
        match self.logs.get(&frame.log) {
            Some(log) => log.lock().note_damage(|| damage.clone()),
            // Perhaps created there: its name is lost.
            None => _ = self.report.unnamed.get_or_insert_with(|| damage.clone()),
        }
        self.report.damage.push(damage);
    }

    /// Does what a batch does to some logs, with all of them locked: who looks at them meanwhile, in a
    /// process that follows another, sees it in all of them or in none.
    fn apply_to(
        &mut self,
        segment: u32,
        batch: &Batch<'_>,
        known: SmallVec<[(&Arc<Log>, LogChanges<'_>); 1]>,
    ) {
        let mut locked = Log::lock_all(known.iter().map(|(log, _)| &***log));
        let mut done: SmallVec<[(&Arc<Log>, Shown, bool); 1]> = SmallVec::new();
        for ((log, one), inner) in known.into_iter().zip(&mut locked) {
            let delete = one.delete;
            self.stage(inner, segment, batch, one);
            let shown = if self.reported { Shown::of(inner) } else { Shown::default() };
            done.push((log, shown, delete));
        }
        drop(locked);
        for (log, shown, delete) in done {
            if self.reported {
                self.show(log, shown);
            }
            if delete {
                self.collect(log, position(segment, batch.end_place()));
            }
        }
    }

    fn create(&mut self, id: LogId, created: Created<'_>, time: Time) {
        if !self.logs.contains_key(&id) {
            let Created { name, config, branch } = created;
            let config = Config { content_type: self.catalogue.intern(&config.content_type), ..config };
            let lineage = branch.map(|branch| Lineage::of(branch, None));
            self.arrivals.add(id, self.logs.len());
            self.logs.insert(id, Arc::new(Log::new(id, name, config, time, lineage)));
        }
        if let Some(log) = self.logs.get(&id) {
            self.link(log);
        }
    }

    /// Makes all forks known to their parents, in the order in which they were made: most are made near the
    /// end of what their parent has by then, and so each comes behind those before it.
    pub(super) fn link_all(&self) {
        let mut forks: Vec<&Arc<Log>> =
            self.logs.values().filter(|log| log.lock().lineage.is_some()).collect();
        forks.sort_unstable_by_key(|log| log.id());
        forks.into_iter().for_each(|log| self.link(log));
    }

    /// Makes a fork known to its parent, if that is known and has not heard of it.
    pub(super) fn link(&self, log: &Arc<Log>) {
        let mut inner = log.lock();
        let Some(lineage) = inner.lineage.as_mut().filter(|lineage| lineage.parent.is_none()) else { return };
        if let Some(parent) = self.logs.get(&lineage.branch.parent) {
            parent.lock().add_fork(&lineage.need);
            lineage.parent = Some(parent.clone());
        }
    }

    /// Drops a log that is deleted, as of a place that replay has come to, and childless, and whichever of
    /// its ancestors were retained for it alone.
    pub(super) fn collect(&mut self, log: &Arc<Log>, passed: Position) {
        let mut gone = Some(log.clone());
        while let Some(log) = gone {
            let parent = {
                let mut inner = log.lock();
                if !inner.phase.is_deleting() || inner.children > 0 || inner.last > passed {
                    return;
                }
                inner.take_parent()
            };
            self.logs.remove(&log.id());
            gone = parent.map(|(parent, need)| {
                drop(parent.lock().remove_fork(&need));
                parent
            });
        }
    }

    fn stage(&mut self, inner: &mut Inner, segment: u32, batch: &Batch<'_>, one: LogChanges<'_>) {
        let end = position(segment, batch.end_place());
        if end <= inner.last {
            return;
        }
        let offset = one.first.unwrap_or(inner.tail.max(one.trimmed_at));
        if one.first == Some(inner.tail) {
            // Nothing of it is missing, and what takes payload was neither closed nor deleted.
            self.suspects.remove(&one.log);
        }
        if offset != inner.tail {
            // What lies in between is missing. Where nothing is known to be, or it was there, the batch says
            // what cannot be.
            let gap = self.report.damage.last().filter(|_| offset > inner.tail).cloned();
            let damage = gap.unwrap_or_else(|| {
                let damage = batch.damage(segment::file_name(segment), segment, one.log);
                self.report.damage.push(damage.clone());
                damage
            });
            inner.note_damage(|| damage);
        }
        // No offset is given out twice, and none is purged before it was.
        let (offset, bytes) = if offset < inner.tail { (inner.tail, 0) } else { (offset, one.bytes) };
        let trim = one.trim.map(|first| first.min(offset + bytes));
        inner.stage(&Change {
            extent: Extent {
                position: position(segment, batch.place),
                offset,
                length: u32::try_from(bytes).unwrap_or(u32::MAX),
                span: batch.header.length,
                places: 0,
            },
            places: one.places,
            producer: one.producer,
            writer_seq: one.writer_seq,
            notes: &one.notes,
            close: one.close,
            trim,
            end,
            time: batch.header.time,
        });
        if one.delete {
            inner.stage_delete();
        }
    }
}
