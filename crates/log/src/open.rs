//! Opening a store: the lock, what recovery found, and what a store is made of then.

use crate::Position;
use crate::catalogue::Catalogue;
use crate::control::Control;
use crate::error::{Damage, OpenError};
use crate::final_end::LOCK_NAME;
use crate::format::{Link, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::guard::Guard;
use crate::options::{Durability, Options};
use crate::reclaim::Reclaim;
use crate::recover::{self, Recovery};
use crate::segment::{self, Segment};
use crate::signal;
use crate::store::{Shared, Store};
use crate::times::Times;
use crate::view::Segments;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_sync::gate::Gate;
use thalweg_sync::region::RegionWriter;
use thalweg_sys::disk::{Allocation, Disk, Lock, Map};

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Logs that exist.
    pub logs: u64,
    /// Where the checkpoint began that replay started from, if there was one.
    pub checkpoint: Option<Position>,
    /// Batches replayed.
    pub batches: u64,
    /// The last close was clean.
    pub clean: bool,
    /// Bytes of unacknowledged batches at the end that were not whole and were discarded.
    pub discarded_bytes: u64,
    /// Spans that should be whole and are not.
    pub damage: Vec<Damage>,
    /// The first of them that may have held the creation of logs whose names are lost: while it is there no
    /// log is created, since its name might be taken.
    pub unnamed: Option<Damage>,
}

impl Store {
    /// A store without files. `options.durability` is taken as [`Durability::Memory`].
    ///
    /// # Errors
    /// [`OpenError::BadOption`]; [`OpenError::Io`] when there is no memory for the first segment.
    pub fn memory(options: Options) -> Result<Store, OpenError> {
        let options = Options { durability: Durability::Memory, ..options };
        options.check()?;
        let failed = |source| OpenError::Io { action: "map", file: "memory".into(), source };
        let control = Arc::new(Control::in_memory(1).map_err(failed)?);
        let capacity = options.segment_bytes_first();
        let header = SegmentHeader { number: 1, store_id: 1, capacity, ..SegmentHeader::default() };
        let (segment, region) = Segment::in_memory(header).map_err(failed)?;
        let contents = Contents {
            catalogue: Catalogue::new(),
            segments: Segments::default(),
            tail: Tail { active: Arc::new(segment), region, link: Link::default(), times: Times::default() },
            next_log: options.opened_at.max(1),
        };
        let gate = Gate::new(Map::anonymous(signal::BYTES).map_err(failed)?);
        let parts = Parts {
            disk: Disk::Real,
            directory: None,
            lock: None,
            options,
            control,
            gate,
            checkpoints: Vec::new(),
            report: Recovered::default(),
        };
        parts.into_store(contents)
    }

    /// Opens the store in `directory`, or creates one there. It stays in that directory wherever the process
    /// goes later, wherever the directory is moved, and whatever takes its place.
    ///
    /// # Errors
    /// [`OpenError`]; a store that is refused is left untouched.
    pub fn open(disk: &Disk, directory: &Path, options: Options) -> Result<(Store, Recovered), OpenError> {
        options.check()?;
        let directory = &absolute(directory)?;
        let failed = |action: &'static str| {
            let file = directory.to_owned();
            move |source| OpenError::Io { action, file, source }
        };
        disk.create_directory(directory).map_err(failed("create"))?;
        let disk = &disk.hold(directory).map_err(failed("open"))?;
        let lock = lock_directory(disk, directory)?;
        let control = match Control::open(disk, directory)? {
            Some(control) if control.is_intact() => control,
            Some(mut control) => {
                control.adopt_id(disk, directory).map_err(failed("identify"))?;
                control
            }
            None => {
                let has_segments = lists_segments(disk, directory).map_err(failed("list"))?;
                if has_segments {
                    return Err(OpenError::ControlLost { directory: directory.to_owned() });
                }
                let control = create_control(disk, directory).map_err(failed("create a store in"))?;
                // Ids of an earlier store in the same place are not given out again.
                control.set_next_log(options.opened_at);
                control
            }
        };
        let control = Arc::new(control);
        let mut recovery = Recovery::new(disk, directory, &control, None);
        let (checkpoints, end) = recovery.run()?;
        let report = recovery.report(options.opened_at);
        // What was given out behind what was found, a power cut or the time since a backup took.
        let forgets_ids = !report.clean || control.was_put_back();
        let mut contents = match end {
            Some(end) => recover::resume(disk, directory, recovery, end).map_err(failed("recover"))?,
            None => {
                let (segment, region, link) =
                    begin_first_segment(disk, directory, &options, &control, &recovery)
                        .map_err(failed("begin a segment in"))?;
                recovery.into_contents(segment, region, link).map_err(failed("recover"))?
            }
        };
        control.keep_id();
        control.set_clean_end(0).map_err(failed("mark as open"))?;
        if forgets_ids {
            contents.next_log = contents.next_log.max(options.opened_at);
            // Stored already, in case the store is closed before a log is created.
            control.set_next_log(contents.next_log);
        }
        let gate = Gate::new(signal::open(disk, directory).map_err(failed("prepare the signal of"))?);
        let words = control.clone();
        let parts = Parts {
            disk: disk.clone(),
            directory: Some(directory.clone()),
            lock: Some(lock),
            options,
            control,
            gate,
            checkpoints,
            report: report.clone(),
        };
        let store = parts.into_store(contents)?;
        words.set_boot();
        Ok((store, report))
    }
}

/// What a store is made of, beside what it holds.
pub(crate) struct Parts {
    pub(crate) disk: Disk,
    /// `None` without files, as `lock`.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) lock: Option<Lock>,
    pub(crate) options: Options,
    pub(crate) control: Arc<Control>,
    pub(crate) gate: Gate,
    /// Starting positions of the checkpoints on disk, oldest first.
    pub(crate) checkpoints: Vec<Position>,
    pub(crate) report: Recovered,
}

impl Parts {
    fn into_store(self, contents: Contents) -> Result<Store, OpenError> {
        contents.segments.add(contents.tail.active.clone());
        Arc::new(Shared::new(self, contents)).into_store()
    }
}

impl Shared {
    /// Says where the store stands, has logs looked at when it is time, sets room aside for a store that is
    /// whole, and starts its thread.
    fn into_store(self: Arc<Shared>) -> Result<Store, OpenError> {
        self.announce();
        self.catalogue.visit(|log| self.enter(log));
        self.set_room_aside();
        let guard = Guard::start(&self).map_err(|source| OpenError::Io {
            action: "start a thread for",
            file: self.directory.clone().unwrap_or_else(|| "memory".into()),
            source,
        })?;
        Ok(Store { shared: self, guard: Arc::new(guard) })
    }

    /// Tells readers where the store stands: some of them may have been waiting since before the last writer
    /// died.
    fn announce(&self) {
        let (written, lateness) = {
            let writer = self.writer.lock();
            (writer.staged_end(), writer.times.lateness)
        };
        self.control.set_lateness(lateness);
        self.control.bump_segments();
        self.control.set_staged_end(written);
        self.control.set_file_end(written);
        self.control.set_durable(written);
        self.control.set_visible(written);
        self.gate.wake_all();
    }

    /// Has a log looked at when its time, or that of its entries, may be over.
    fn enter(&self, log: &Arc<crate::log::Log>) {
        self.expiry.enter(log);
        self.log_retention.note(log, &log.lock(), 0);
    }
}

/// A store's contents, ready to be served.
pub(crate) struct Contents {
    pub(crate) catalogue: Catalogue,
    pub(crate) segments: Segments,
    pub(crate) tail: Tail,
    pub(crate) next_log: u64,
}

/// Where a store goes on: the segment that is written to, its last batch, and the times of all entries.
pub(crate) struct Tail {
    pub(crate) active: Arc<Segment>,
    pub(crate) region: RegionWriter,
    pub(crate) link: Link,
    pub(crate) times: Times,
}

/// What is needed of each segment.
pub(crate) struct Needed {
    /// Payload bytes.
    pub(crate) live_bytes: BTreeMap<u32, u64>,
    /// Bytes of the segment that is written to which are not.
    pub(crate) gone_bytes: u64,
    pub(crate) reclaim: Reclaim,
}

impl Contents {
    pub(crate) fn needed(&self, checkpoints: &[Position]) -> Needed {
        let mut live_bytes: BTreeMap<u32, u64> =
            self.segments.numbers().into_iter().map(|number| (number, 0)).collect();
        // Of the batches that hold it, or more where these lie among others.
        let mut spans = live_bytes.clone();
        self.catalogue.visit(|log| {
            for extent in log.lock().extents.all() {
                let segment = crate::segment_of(extent.position);
                *live_bytes.entry(segment).or_default() += u64::from(extent.length);
                *spans.entry(segment).or_default() += u64::from(extent.span);
            }
        });
        let filled = u64::from(self.tail.region.filled() - SEGMENT_HEADER_BYTES);
        let active = spans.get(&self.tail.active.header.number).copied().unwrap_or(0);
        let reclaim = Reclaim::opened(self, checkpoints, &spans);
        Needed { live_bytes, gone_bytes: filled.saturating_sub(active), reclaim }
    }
}

/// The path from the root on: one that depends on where the process is leads elsewhere after it went there.
pub(crate) fn absolute(directory: &Path) -> Result<PathBuf, OpenError> {
    let failed = |source| OpenError::Io { action: "find", file: directory.to_owned(), source };
    std::path::absolute(directory).map_err(failed)
}

fn lock_directory(disk: &Disk, directory: &Path) -> Result<Lock, OpenError> {
    let path = directory.join(LOCK_NAME);
    let holder = format!("process {}", std::process::id());
    disk.lock(&path, &holder).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => {
            let holder = match source.to_string() {
                said if said.is_empty() => "another process".to_owned(),
                said if said == holder => "this process".to_owned(),
                said => said,
            };
            OpenError::Held { directory: directory.to_owned(), holder }
        }
        _ => OpenError::Io { action: "lock", file: path, source },
    })
}

fn lists_segments(disk: &Disk, directory: &Path) -> io::Result<bool> {
    Ok(disk.names(directory)?.iter().any(|name| segment::number_of(name).is_some()))
}

/// The first file of a new store. Its id need only differ from those of stores it might be mixed with.
fn create_control(disk: &Disk, directory: &Path) -> io::Result<Control> {
    Control::create(disk, directory, thalweg_sys::process::random_u64()? | 1)
}

/// A fresh segment behind whatever recovery found, durable before it is used.
fn begin_first_segment(
    disk: &Disk,
    directory: &Path,
    options: &Options,
    control: &Control,
    recovery: &Recovery,
) -> io::Result<(Segment, RegionWriter, Link)> {
    let (number, link) = recovery.next_segment()?;
    let capacity = options.segment_bytes_first();
    let path = directory.join(segment::file_name(number));
    let _ = disk.unlink(&path);
    let file = disk.create(&path)?;
    let how = match options.durability {
        Durability::Sync => Allocation::ZeroFilled,
        Durability::Os | Durability::Memory => Allocation::Reserved,
    };
    if let Err(error) = file.allocate(u64::from(capacity), how) {
        let _ = disk.unlink(&path);
        return Err(error);
    }
    let after_damage = recovery.found_damage();
    let latest = recovery.times().latest;
    let (store_id, previous) = (control.store_id, link);
    let whole = SegmentHeader::default();
    let header = SegmentHeader { number, store_id, previous, capacity, after_damage, latest, ..whole };
    let (segment, region) = Segment::activate(header, file)?;
    segment.sync()?;
    disk.sync_directory(directory)?;
    debug_assert_eq!(region.filled(), SEGMENT_HEADER_BYTES);
    Ok((segment, region, link))
}
