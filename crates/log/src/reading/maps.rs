//! The store's maps by address, for readers in languages of their own.
//!
//! Purpose: a reader that is not written in Rust walks the same bytes by the same rules (see `format`, `walk`
//! and [`LAYOUT`](crate::LAYOUT)). It asks here for what only this side can do: which segments there are, how
//! far their bytes are verified, the time index, where a log begins or goes on, and to be woken.
//!
//! Invariants for readers through a [`Mapped`]: nothing is stored to; no byte is believed at or behind the
//! end that [`Maps::readable`] names or, in what this process wrote itself, the word `visible` or `file_end`;
//! words are loaded whole, or their high half again after their low. The map stays where it is for as long as
//! the `Mapped` lives, whatever becomes of the store. Checked by the tests below and by those of the faces.

use crate::attach::Attached;
use crate::error::{Damage, ReadError};
use crate::fork::{LineagePart, lineage_parts};
use crate::log::Log;
use crate::places::Unfolder;
use crate::progress::{Ended, NotKnownYet};
use crate::reader::Reader;
use crate::segment::{Readable, Segment};
use crate::source::{ReadContext, unlisted};
use crate::store::Store;
use crate::view::View;
use crate::{LogId, Offset, Position, Time, segment_of};
use std::any::Any;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Bytes that stay mapped for as long as this lives.
#[derive(Clone, Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    length: usize,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl Mapped {
    /// Bytes that stay where they are for as long as `owner` lives.
    pub fn new(start: NonNull<u8>, length: usize, owner: Arc<dyn Any + Send + Sync>) -> Mapped {
        Mapped { start, length, _owner: owner }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// A segment by address.
#[derive(Clone, Debug)]
pub struct MappedSegment {
    /// Its number.
    pub number: u32,
    /// The largest time of any entry in an earlier segment.
    pub latest: Time,
    /// From this byte on its batches were written or replayed by this process and need no second look.
    pub trusted_from: u32,
    /// Bytes of its file: fewer each time that the segment is compacted. As long as this is the same, so is
    /// the file.
    pub held_bytes: u64,
    /// All of it, from its header on.
    pub bytes: Mapped,
    /// The segment as of the call; another may have its number by now.
    segment: Arc<Segment>,
}

/// Offsets of a log that lie in its own frames, or in those of a log that it was forked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The log whose frames hold them.
    pub log: LogId,
    /// First offset there is.
    pub from: Offset,
    /// Offset behind the last; [`Offset::MAX`] for the log's own.
    pub cut: Offset,
}

/// A store's maps. Clones share it; it may outlive the store.
#[derive(Clone, Debug)]
pub struct Maps {
    context: ReadContext,
}

impl Store {
    /// The store's maps, for a reader in another language.
    pub fn maps(&self) -> Maps {
        Maps { context: self.context() }
    }
}

impl Attached {
    /// The store's maps, for a reader in another language.
    pub fn maps(&self) -> Maps {
        Maps { context: self.context.clone() }
    }
}

impl Reader {
    /// The segment in which a position lies, for a caller that lends out what was read of it; `None` if this
    /// reader's list does not name it.
    pub fn mapped(&self, position: Position) -> Option<Mapped> {
        let segment = self.source.view().find(segment_of(position))?;
        let region = segment.region();
        Some(Mapped::new(region.start(), region.capacity() as usize, segment.clone()))
    }
}

impl MappedSegment {
    fn of(segment: &Arc<Segment>) -> MappedSegment {
        let region = segment.region();
        MappedSegment {
            number: segment.header.number,
            latest: segment.header.latest,
            trusted_from: segment.trusted_from(),
            held_bytes: segment.header.held_bytes(),
            bytes: Mapped::new(region.start(), region.capacity() as usize, segment.clone()),
            segment: segment.clone(),
        }
    }

    /// The runs of batches that are left of it, if it was compacted: place, byte and bytes of each, in order.
    /// Positions are made of places, which are the bytes of the segment as it was first written; `None` where
    /// places still are bytes. Within a run, place and byte differ by one number. Of a damaged table the runs
    /// that stand. Complexity: a copy of them all.
    ///
    /// ```
    /// use thalweg_log::{Options, Store};
    /// let store = Store::memory(Options::default())?;
    /// assert_eq!(store.maps().segment(1).and_then(|segment| segment.runs()), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn runs(&self) -> Option<Vec<[u32; 3]>> {
        let runs = self.segment.runs();
        (!runs.is_empty()).then(|| runs.iter().map(|run| [run.place, run.byte, run.bytes]).collect())
    }

    /// Another map of its bytes, for a caller that cannot be kept from storing to them: what is stored stays
    /// in this map and reaches neither the file nor any other map. A page that was stored to does not show
    /// what is written later, so only pages that are filled up to their end may be lent out. `None`: the
    /// segment is in memory only.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn apart(&self) -> io::Result<Option<Mapped>> {
        let map = self.segment.map_apart()?;
        Ok(map.map(|map| Mapped::new(map.start(), map.length(), Arc::new(map))))
    }
}

impl Maps {
    /// The words of the control file.
    pub fn control(&self) -> Mapped {
        let control = &self.context.control;
        let (start, length) = control.place();
        Mapped::new(start, length, control.clone())
    }

    /// The segments there are now, in order of their numbers.
    ///
    /// # Errors
    /// In a process that is attached: they cannot be listed. The caller may ask again.
    pub fn segments(&self) -> io::Result<Vec<MappedSegment>> {
        self.context.access.list()?;
        Ok(self.context.segments.latest().all().iter().map(MappedSegment::of).collect())
    }

    /// The segment that has a number now; `None` when it is gone.
    pub fn segment(&self, number: u32) -> Option<MappedSegment> {
        self.context.segments.find(number).as_ref().map(MappedSegment::of)
    }

    /// How far a segment may be read from `from`, where a batch begins, towards `to`. Bytes that this process
    /// has not seen before are verified on the way, up to a MiB at a time.
    ///
    /// # Errors
    /// The damage at `from`, up to its end.
    pub fn readable(&self, segment: &MappedSegment, from: u32, to: u32) -> Result<u32, Box<Damage>> {
        let segment = &segment.segment;
        let to = to.min(segment.end(self.newest()));
        if from >= to {
            return Ok(from);
        }
        match segment.readable(from, to) {
            Readable::To(end) => Ok(end.max(from)),
            Readable::Damaged(damage, _) => {
                self.context.access.came_upon(&damage);
                Err(damage)
            }
        }
    }

    /// A segment's time index, extended over everything that may be read by now.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn index(&self, segment: &MappedSegment) -> io::Result<Mapped> {
        let segment = &segment.segment;
        let (start, length) = segment.index(segment.end(self.newest()))?.place();
        Ok(Mapped::new(start, length, segment.clone()))
    }

    fn unfolder<'v>(&self, view: &'v View) -> Unfolder<'v> {
        Unfolder { view, limit: self.file_end() }
    }

    /// Position of the first entry that holds an offset or a later one. A lower bound: it may be that of an
    /// earlier entry.
    pub fn position_of(&self, log: &Log, offset: Offset) -> Position {
        let known = self.context.access.known();
        let first = log.lock().extents.covering(offset, Offset::MAX).first().copied();
        first.map_or(known, |extent| {
            let view = self.context.segments.latest();
            self.unfolder(&view).holding(log.id(), &extent, offset)
        })
    }

    /// Position at or behind `position` at which the log goes on. A lower bound.
    pub fn position_behind(&self, log: &Log, position: Position) -> Position {
        let known = self.context.access.known();
        let next = log.lock().extents.behind(position).copied();
        next.map_or(known.max(position), |extent| {
            let view = self.context.segments.latest();
            self.unfolder(&view).behind(log.id(), &extent, position)
        })
    }

    /// How a log ended, for a reader that did not meet every entry in front of `position`.
    ///
    /// # Errors
    /// It cannot be said yet: the log has batches behind `position`, or what lies there cannot be read.
    pub fn ended(&self, log: &Log, position: Position) -> Result<Option<Ended>, NotKnownYet> {
        self.context.learn(position).map_err(|error| {
            tracing::warn!(%error, "cannot say whether a log is over; trying again when asked again");
            NotKnownYet
        })?;
        self.context.ended(log, position)
    }

    /// Whether anything of what `log` holds lies at or behind a position.
    pub fn holds_behind(&self, log: &Log, held: &Held, position: Position) -> bool {
        let last = log.lock().extents.covering(held.from, held.cut).last().copied();
        last.is_some_and(|extent| {
            let view = self.context.segments.latest();
            self.unfolder(&view).end_below(log.id(), &extent, held.cut) > position
        })
    }

    /// The logs that hold this one's offsets, oldest first; the last one is the log itself.
    pub fn lineage(&self, log: &Arc<Log>) -> Vec<(Arc<Log>, Held)> {
        let held = |part: LineagePart| {
            let LineagePart { log, from, cut } = part;
            let held = Held { log: log.id(), from, cut };
            (log, held)
        };
        lineage_parts(log, 0).into_iter().map(held).collect()
    }

    /// Whether everything below an offset was purged.
    pub fn is_purged(&self, log: &Log, below: Offset) -> bool {
        log.lock().first_visible >= below
    }

    /// Where the newest checkpoint begins.
    ///
    /// # Errors
    /// [`ReadError::Io`]: in a process that is attached, the directory cannot be listed.
    pub fn checkpoint(&self) -> Result<Position, ReadError> {
        self.context.access.checkpoint().map_err(unlisted)
    }

    /// End of what readers may see.
    pub fn visible(&self) -> Position {
        self.context.control.visible()
    }

    /// End of what is in the file, durable or not. In `sync` mode what is staged is not in it yet.
    pub fn file_end(&self) -> Position {
        self.context.control.file_end()
    }

    /// End of what is known to last.
    pub fn durable(&self) -> Position {
        self.context.control.durable()
    }

    /// Has a task woken when any of these words moves next, in any process. `true`: `is_ready` answered true,
    /// and there is nothing to wait for. Once the store is [gone](Maps::check_presence) nothing moves any
    /// more and no task is woken, so a caller that looks at the words alone asks for that after this call.
    ///
    /// # Errors
    /// In a process that is attached: no thread could be started to wake it. The next call tries again.
    pub fn register(&self, waker: &Waker, is_ready: impl FnOnce() -> bool) -> io::Result<bool> {
        self.context.access.task_waits()?;
        Ok(self.context.gate.register(waker, is_ready))
    }

    /// Makes sure that the store is where it was found, as of the last look: while a caller waits there is
    /// one each second, and the one that finds it gone wakes all who wait. Complexity: one load, while it is
    /// there.
    ///
    /// ```
    /// # use std::task::Waker;
    /// use thalweg_log::{Attached, Disk, Options, Store};
    /// # let directory = tempfile::tempdir()?;
    /// # let _store = Store::open(&Disk::Real, directory.path(), Options::default())?;
    /// let attached = Attached::open(&Disk::Real, directory.path())?;
    /// let (maps, seen) = (attached.maps(), attached.visible());
    /// if !maps.register(Waker::noop(), || maps.visible() > seen)? {
    ///     maps.check_presence()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReadError::Io`] in a process that is attached: it was moved, removed or replaced by another.
    pub fn check_presence(&self) -> Result<(), ReadError> {
        match self.context.access.is_gone() {
            true => self.context.access.learn().map_err(unlisted),
            false => Ok(()),
        }
    }

    /// Takes back the registration of a task, by the very waker it was made with, so that a dropped task is
    /// not kept.
    pub fn forget(&self, waker: &Waker) {
        self.context.gate.forget(waker);
    }

    /// Blocks until `is_ready` answers true or the time is over, in any process.
    pub fn wait(&self, timeout: Option<Duration>, is_ready: impl FnMut() -> bool) -> bool {
        self.context.wait(timeout, is_ready)
    }

    /// Wakes all sleepers to look again.
    pub fn wake_all(&self) {
        self.context.gate.wake_all();
    }

    /// An upper bound of what may be read.
    fn newest(&self) -> Position {
        self.visible().max(self.file_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, place_of};

    #[test]
    fn the_maps_are_those_of_the_store_and_stay_when_it_goes() {
        let store = Store::memory(Options::default()).unwrap();
        let log = store.log(b"a").unwrap();
        store.append(&log, b"payload", 7).unwrap();
        let maps = store.maps();
        let [segment] = &maps.segments().unwrap()[..] else { panic!("one segment") };
        assert_eq!(segment.bytes.length(), 4 << 20);
        assert_eq!((segment.number, segment.latest, segment.trusted_from), (1, 0, 64));
        let visible = maps.visible();
        assert_eq!(segment_of(visible), 1);
        assert_eq!(maps.readable(segment, 64, u32::MAX).unwrap(), place_of(visible));
        assert!(maps.segment(2).is_none());
        assert!(maps.index(segment).unwrap().length() > 8 * (4 << 10));
        assert_eq!(maps.position_of(&log, 0), maps.position_behind(&log, 0));
        assert_eq!(maps.position_behind(&log, visible), visible);
        let own = Held { log: log.id(), from: 0, cut: Offset::MAX };
        assert_eq!(maps.lineage(&log)[0].1, own);
        let kept = segment.clone();
        drop((store, log));
        assert_eq!(maps.segments().unwrap()[0].bytes.start(), kept.bytes.start());
    }

    #[test]
    fn a_reader_lends_the_segment_of_what_it_read() {
        let store = Store::memory(Options::default()).unwrap();
        let log = store.log(b"a").unwrap();
        store.append(&log, b"payload", 7).unwrap();
        let mut reader = store.reader(&log);
        let (position, data) = {
            let entry = reader.entries(&crate::Query::default()).next().unwrap().unwrap();
            (entry.position, entry.data.as_ptr_range())
        };
        let mapped = reader.mapped(position).unwrap();
        let start = mapped.start().as_ptr().cast_const();
        assert!(start < data.start && data.end <= start.wrapping_add(mapped.length()));
        assert!(reader.mapped(position + (1 << 32)).is_none());
    }

    #[test]
    fn whoever_waits_is_woken() {
        let store = Store::memory(Options::default()).unwrap();
        let log = store.log(b"a").unwrap();
        let maps = store.maps();
        let seen = maps.visible();
        assert!(!maps.wait(Some(Duration::ZERO), || maps.visible() > seen));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| maps.wait(None, || maps.visible() > seen));
            store.append(&log, b"x", 1).unwrap();
            assert!(waits.join().unwrap());
        });
    }
}
