//! Opening a store: options, the lock, and what recovery found.

use crate::catalogue::Catalogue;
use crate::control::Control;
use crate::error::{Damage, OpenError};
use crate::format::{Link, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::groups::GroupMeters;
use crate::harm::Harm;
use crate::pace::Leisure;
use crate::reclaim::Reclaim;
use crate::recover::{self, Recovery};
use crate::reserve::Reserve;
use crate::segment::{self, Segment};
use crate::signal;
use crate::store::{Guard, Hold, Shared, Store};
use crate::times::Times;
use crate::tip::Tip;
use crate::view::Segments;
use crate::writer::{Tally, Writer};
use crate::{Position, Time};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_sync::gate::Gate;
use thalweg_sync::region::RegionWriter;
use thalweg_sys::disk::{Allocation, Disk, Lock, Map};

/// What an acknowledged commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A power cut: acknowledged after a sync that covers it.
    #[default]
    Sync,
    /// The death of the process: acknowledged when it is in the operating system's memory.
    Os,
    /// Nothing: the store lives as long as the process and has no files.
    Memory,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// What an acknowledged commit survives.
    pub durability: Durability,
    /// Size of the first segment in bytes; each next one is twice as large, up to a sixteenth of `retain_bytes` if that is given
    /// (1 MiB at least). A multiple of 4,096, at most `segment_bytes_max`.
    pub segment_bytes_min: u32,
    /// Largest segment in bytes: a multiple of 4,096, at least two of them and at most 1 GiB. One commit holds a little less.
    pub segment_bytes_max: u32,
    /// Start a committer thread in `sync` mode. Without one, [`Store::flush`] commits.
    pub committer_thread: bool,
    /// A checkpoint is due after so many bytes of log.
    pub checkpoint_bytes: u64,
    /// Entries older than this many microseconds are purged by [`Store::maintain`]: all of them once the newest one is, before that
    /// whole segments at a time, which are sealed for it after a quarter of that age, or an hour where that is more.
    pub retain_us: Option<u64>,
    /// The oldest entries are purged, whole segments at a time, when segments take more bytes than this.
    pub retain_bytes: Option<u64>,
    /// Logs whose names begin so are left alone by both.
    pub retain_except: Vec<Vec<u8>>,
    /// Whether sealed segments of which little is needed are written anew without the rest.
    pub compacts: bool,
    /// Whether the payload of sealed segments, out of which much is read in small records, is kept once more with each log's bytes
    /// together: at most as many bytes again as they have, none that `retain_bytes` has no room for, and the first to go on a full disk.
    pub settles: bool,
    /// Throttle of background writes: after each MiB, [`Store::maintain`] and the preallocation of the next
    /// segment's file sleep this many times as long as writing it took; the preallocation 50 ms at most. 0:
    /// they never sleep. Neither sleeps while a caller waits for it ([`Store::hurry`]).
    pub rest_parts: u32,
    /// A segment is sealed when its first entry is older than this many microseconds, idle or not.
    pub rotate_after_us: Option<u64>,
    /// The time of opening, microseconds since the Unix epoch, which counts as an access of every log; 0 for none. A store that is new,
    /// was not closed or is a backup that was never opened counts the ids of its logs on from there, so that none is given out twice:
    /// logs of which nothing was found may have been told of.
    pub opened_at: Time,
    /// A mistake for the simulation to catch.
    #[cfg(test)]
    pub(crate) fault: crate::store::Fault,
    /// What happens between two shards that a checkpoint visits.
    #[cfg(test)]
    pub(crate) interleave: crate::store::Interleave,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Sync,
            segment_bytes_min: 4 << 20,
            segment_bytes_max: 64 << 20,
            committer_thread: true,
            checkpoint_bytes: 256 << 20,
            retain_us: None,
            retain_bytes: None,
            retain_except: Vec::new(),
            compacts: true,
            settles: true,
            rest_parts: 3,
            rotate_after_us: None,
            opened_at: 0,
            #[cfg(test)]
            fault: crate::store::Fault::None,
            #[cfg(test)]
            interleave: Default::default(),
        }
    }
}

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
    /// The first of them that may have held the creation of logs nobody can name: while it is there no log
    /// is created, since its name might be taken.
    pub unnamed: Option<Damage>,
}

/// Segments are made of whole pages.
pub(crate) const PAGE_BYTES: u32 = 4096;

impl Options {
    /// Bytes of the largest batch that a segment has room for.
    pub(crate) fn batch_bytes_max(&self) -> u64 {
        u64::from(self.segment_bytes_max - crate::format::SEGMENT_HEADER_BYTES)
    }
}

impl Store {
    /// A store without files. `options.durability` is taken as [`Durability::Memory`].
    ///
    /// # Errors
    /// [`OpenError::BadOption`]; [`OpenError::Io`] when there is no memory for the first segment.
    pub fn memory(options: Options) -> Result<Store, OpenError> {
        let options = Options { durability: Durability::Memory, ..options };
        options.check_sizes()?;
        let failed = |source| OpenError::Io { action: "map", file: "memory".into(), source };
        let control = Arc::new(Control::in_memory(1).map_err(failed)?);
        let capacity = options.segment_bytes_first();
        let header = SegmentHeader { number: 1, store_id: 1, capacity, ..SegmentHeader::default() };
        let (segment, region) = Segment::in_memory(header).map_err(failed)?;
        let found = Found {
            catalogue: Catalogue::new(),
            segments: Segments::default(),
            active: Arc::new(segment),
            region,
            link: Link::default(),
            next_log: options.opened_at.max(1),
            times: Times::default(),
        };
        let gate = Gate::new(Map::anonymous(signal::BYTES).map_err(failed)?);
        Store::assemble(Disk::Real, None, options, (control, gate), found, Vec::new(), &Recovered::default())
    }

    /// Opens the store in `directory`, or creates one there. It stays where that is now, wherever the process goes later.
    ///
    /// # Errors
    /// [`OpenError`]; a store that is refused is left untouched.
    pub fn open(disk: &Disk, directory: &Path, options: Options) -> Result<(Store, Recovered), OpenError> {
        options.check_sizes()?;
        let directory = &whole(directory)?;
        let failed = |action: &'static str| {
            let file = directory.to_owned();
            move |source| OpenError::Io { action, file, source }
        };
        disk.create_directory(directory).map_err(failed("create"))?;
        let lock = hold(disk, directory)?;
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
                let control = begin(disk, directory).map_err(failed("create a store in"))?;
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
        let mut found = match end {
            Some(end) => recover::resume(disk, directory, recovery, end).map_err(failed("recover"))?,
            None => {
                let (segment, region, link) = first(disk, directory, &options, &control, &recovery)
                    .map_err(failed("begin a segment in"))?;
                recovery.into_found(segment, region, link).map_err(failed("recover"))?
            }
        };
        control.keep_id();
        control.set_clean_end(0).map_err(failed("mark as open"))?;
        if forgets_ids {
            found.next_log = found.next_log.max(options.opened_at);
            // Whoever closes it before a log is created leaves it said.
            control.set_next_log(found.next_log);
        }
        let gate = Gate::new(signal::open(disk, directory).map_err(failed("prepare the signal of"))?);
        let names = disk.directory(directory).map_err(failed("open"))?;
        let words = control.clone();
        let store = Store::assemble(
            disk.clone(),
            Some((directory, Hold { names, lock })),
            options,
            (control, gate),
            found,
            checkpoints,
            &report,
        )?;
        words.set_boot();
        Ok((store, report))
    }

    fn assemble(
        disk: Disk,
        place: Option<(&Path, Hold)>,
        options: Options,
        (control, gate): (Arc<Control>, Gate),
        found: Found,
        checkpoints: Vec<Position>,
        report: &Recovered,
    ) -> Result<Store, OpenError> {
        found.segments.add(found.active.clone());
        let Needed { live_bytes, gone_bytes, reclaim } = found.needed(&checkpoints);
        let (directory, hold) = place.map(|(path, hold)| (path.to_owned(), hold)).unzip();
        let work = Arc::<parking_lot::Condvar>::default();
        let writer = Writer {
            disk: disk.clone(),
            directory: directory.clone(),
            options: options.clone(),
            begun: found.active.first_time(),
            active: found.active,
            tip: Tip::new(found.region, &options),
            link: found.link,
            times: found.times,
            ahead: Default::default(),
            spare: None,
            reserve: Reserve::found(&disk, directory.as_deref()),
            spare_begun: 0,
            gathered: Default::default(),
            lead: Default::default(),
            failure: None,
            told: false,
            work: work.clone(),
            closed: false,
            emptied: false,
            tally: Tally::default(),
            live_bytes,
            gone_bytes,
            scratch: Vec::with_capacity(128),
        };
        announce(&control, &gate, writer.staged_end(), found.times.lateness);
        let shared = Arc::new(Shared {
            disk,
            directory,
            hold,
            options,
            control,
            segments: Arc::new(found.segments),
            gate: Arc::new(gate),
            harm: Harm::found(&report.damage, &found.catalogue),
            catalogue: found.catalogue,
            watchers: Default::default(),
            expiry: Default::default(),
            reclaim: reclaim.into(),
            retained: Default::default(),
            retention: Default::default(),
            writer: parking_lot::Mutex::new(writer),
            work,
            group: Default::default(),
            next_log: parking_lot::Mutex::new(found.next_log),
            transactions: Default::default(),
            turns: Default::default(),
            leisure: Leisure::default(),
            checkpoints: parking_lot::Mutex::new(checkpoints),
            unnamed: report.unnamed.clone(),
            group_meters: GroupMeters::default(),
            #[cfg(test)]
            steps: Default::default(),
        });
        shared.into_store()
    }
}

impl Shared {
    /// Has logs looked at when it is time, sets room aside for a store that is whole, and starts its thread.
    fn into_store(self: Arc<Shared>) -> Result<Store, OpenError> {
        self.catalogue.visit(|log| self.enter(log));
        self.set_room_aside();
        let guard = Guard::start(&self).map_err(|source| OpenError::Io {
            action: "start a thread for",
            file: self.directory.clone().unwrap_or_else(|| "memory".into()),
            source,
        })?;
        Ok(Store { shared: self, guard: Arc::new(guard) })
    }

    /// Has a log looked at when its time, or that of its entries, may be over.
    fn enter(&self, log: &Arc<crate::log::Log>) {
        self.expiry.enter(log);
        self.retention.note(log, &log.lock(), 0);
    }
}

/// Tells readers, some of whom may have been waiting since before the last writer died, where the store stands.
fn announce(control: &Control, gate: &Gate, written: Position, lateness: Time) {
    control.set_lateness(lateness);
    control.bump_segments();
    control.set_staged_end(written);
    control.set_file_end(written);
    control.set_durable(written);
    control.set_visible(written);
    gate.wake_all();
}

/// A store's contents, ready to be served.
pub(crate) struct Found {
    pub(crate) catalogue: Catalogue,
    pub(crate) segments: Segments,
    pub(crate) active: Arc<Segment>,
    pub(crate) region: RegionWriter,
    pub(crate) link: Link,
    pub(crate) next_log: u64,
    pub(crate) times: Times,
}

/// What is needed of each segment.
struct Needed {
    /// Payload bytes.
    live_bytes: BTreeMap<u32, u64>,
    /// Bytes of the segment that is written to which are not.
    gone_bytes: u64,
    reclaim: Reclaim,
}

impl Found {
    fn needed(&self, checkpoints: &[Position]) -> Needed {
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
        let filled = u64::from(self.region.filled() - SEGMENT_HEADER_BYTES);
        let active = spans.get(&self.active.header.number).copied().unwrap_or(0);
        let reclaim = Reclaim::opened(self, checkpoints, &spans);
        Needed { live_bytes, gone_bytes: filled.saturating_sub(active), reclaim }
    }
}

/// The path from the root on: one that depends on where the process is leads elsewhere after it went there.
pub(crate) fn whole(directory: &Path) -> Result<PathBuf, OpenError> {
    let failed = |source| OpenError::Io { action: "find", file: directory.to_owned(), source };
    std::path::absolute(directory).map_err(failed)
}

fn hold(disk: &Disk, directory: &Path) -> Result<Lock, OpenError> {
    let path = directory.join("lock");
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
fn begin(disk: &Disk, directory: &Path) -> io::Result<Control> {
    Control::create(disk, directory, thalweg_sys::process::random_u64()? | 1)
}

/// A fresh segment behind whatever recovery found, durable before it is used.
fn first(
    disk: &Disk,
    directory: &Path,
    options: &Options,
    control: &Control,
    recovery: &Recovery,
) -> io::Result<(Segment, RegionWriter, Link)> {
    let (number, link) = recovery.next_segment();
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
