//! Backups: a store as of one position, taken while it is being written, and put back.
//!
//! Purpose: a directory that opens as a store which was closed at that moment. The writer is not asked and
//! does not notice: what is visible is final, so it is taken from the files, in the writing process or any
//! other.
//!
//! - Sealed segments are linked, which costs a name each, as long as whatever follows them is durable in
//!   the source: then no crash makes the source write to them again. Others, and all where the file system
//!   knows no links, are copied.
//! - The newest one is copied up to the end and is zero behind it. What is copied is verified on the way;
//!   what is linked is not looked at, so that a backup takes as long as its newest segment is large.
//! - Checkpoints are taken as they are. They were found before the end was read, so they speak of nothing
//!   behind it.
//! - The control file comes last, closed cleanly at the end: without it a directory is not a store, so a
//!   backup that was cut short is none.
//!
//! Files may come and go meanwhile. When the backup would lack a segment that its own newest checkpoint
//! needs, one that was compacted behind its end, or one compacted that replay from there comes to, all of it
//! is begun anew; unless the checkpoint that is the newest by then says that it is needed still, and so
//! damaged. Everything is durable before it is reported. Checked by the tests, with a writer that rotates,
//! deletes and checkpoints at once, and on the simulated disk with the power cut at any moment.

use crate::attach::Attached;
use crate::checkpoint::{self, Checkpoint};
use crate::control::{self, Closed, Control};
use crate::error::{Damage, OpenError, Touched};
use crate::final_end::FinalEnd;
use crate::format::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::going_on::{self, GoOn, PIECE_BYTES};
use crate::needed_segments::{self, Needs};
use crate::segment_file::SegmentFile;
use crate::store::Store;
use crate::verify::verify_while;
use crate::{Position, place_of, position, segment, segment_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use thalweg_sys::disk::{Allocation, Disk, parent_of};

/// Times that a backup is begun anew because files that it needs went away meanwhile.
const ATTEMPTS: u32 = 16;

/// A backup that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backup {
    /// What it holds: everything in front of this position.
    pub end: Position,
    /// Segments that share their bytes with the source.
    pub linked: u64,
    /// Segments that were copied.
    pub copied: u64,
    /// Bytes of batches in those.
    pub copied_bytes: u64,
    /// Checkpoints in it.
    pub checkpoints: u64,
    /// Times it was begun.
    pub attempts: u32,
}

/// Why there is no backup, or nothing was restored. Whatever had been written of it is gone again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Something is in the way.
    #[error("{directory} is not empty; choose a directory that is, or that is not there yet")]
    Occupied {
        /// Where the store was to be written.
        directory: PathBuf,
    },
    /// The source does not read back as it was written.
    #[error("{}", named(.0))]
    Damaged(Vec<Damage>),
    /// What is to be restored was opened and never closed.
    #[error("{directory} is in use, or was not closed: open and close it, or choose another backup")]
    NotClosed {
        /// What was to be restored.
        directory: PathBuf,
    },
    /// Files of the source went away, however often it was tried.
    #[error("{file} was gone in each of {attempts} attempts; `thalweg verify` tells whether it is missing")]
    Gone {
        /// The last file that was missed.
        file: PathBuf,
        /// Times it was tried.
        attempts: u32,
    },
    /// A store in memory has no files.
    #[error("a store in memory cannot be backed up")]
    Memory,
    /// The source cannot be read as a store at all.
    #[error(transparent)]
    Source(#[from] OpenError),
    /// The operating system refused.
    #[error("cannot {action} {file}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn named(damage: &[Damage]) -> String {
    damage.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Writes a backup of the store in `from` to the directory `to`, which must be empty or not there. A process
/// may have the store open meanwhile. The backup holds everything that was durable before the call, in `os`
/// mode everything that was committed.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// use thalweg_log::{Disk, Options, Store, backup, now};
/// let (from, to) = (directory.path().join("store"), directory.path().join("backup"));
/// let (store, _) = Store::open(&Disk::Real, &from, Options::default())?;
/// let receipt = store.append(&store.log(b"orders")?, b"one espresso", now())?;
/// store.persist(receipt.ticket)?;
/// backup(&Disk::Real, &from, &to)?;
/// let (copy, found) = Store::open(&Disk::Real, &to, Options::default())?;
/// assert!(found.clean && copy.find(b"orders").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`BackupError`]; nothing is left in `to` then, nor `to` itself where it was made.
pub fn backup(disk: &Disk, from: &Path, to: &Path) -> Result<Backup, BackupError> {
    backup_while(disk, from, to, &mut going_on::always)
}

/// The same, for as long as the caller wants it to go on.
///
/// # Errors
/// As [`backup()`]; [`BackupError::Io`] with what `go_on` said otherwise.
pub fn backup_while(disk: &Disk, from: &Path, to: &Path, go_on: GoOn<'_>) -> Result<Backup, BackupError> {
    backup_beside(disk, from, to, &mut || {}, go_on)
}

/// With something that happens in the source between two steps of each attempt.
pub(crate) fn backup_beside(
    disk: &Disk,
    from: &Path,
    to: &Path,
    meanwhile: &mut dyn FnMut(),
    go_on: GoOn<'_>,
) -> Result<Backup, BackupError> {
    // Where the source's own directory is held, the target is still found by its path.
    let target = &disk.unheld();
    claimed(target, to, || {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let done = Backup { attempts, ..Backup::default() };
            let mut copy = Transfer { disk, from, target, to, made: Vec::new(), done, go_on: &mut *go_on };
            let trouble = match copy.run(meanwhile) {
                Ok(()) => return Ok(copy.done),
                Err(trouble) => trouble,
            };
            copy.undo();
            match trouble {
                Trouble::Gone(_) if attempts < ATTEMPTS => {}
                Trouble::Gone(file) => return Err(BackupError::Gone { file, attempts }),
                Trouble::Final(error) => return Err(exactly(disk, from, *error, go_on)),
            }
        }
    })
}

/// The error that names all that is damaged, and how far, where an attempt ended at the first it came upon.
fn exactly(disk: &Disk, from: &Path, error: BackupError, go_on: GoOn<'_>) -> BackupError {
    if !matches!(error, BackupError::Damaged(_)) {
        return error;
    }
    match verify_while(disk, from, go_on) {
        Ok(report) if !report.damage.is_empty() => BackupError::Damaged(report.damage),
        Err(OpenError::Io { action, file, source }) if source.kind() == io::ErrorKind::Interrupted => {
            BackupError::Io { action, file, source }
        }
        _ => error,
    }
}

/// Puts a backup back, to the directory `to`, which must be empty or not there: verifies all of it first,
/// copies what a store goes on writing to and links the rest. The backup stays as it is.
///
/// # Errors
/// [`BackupError::Damaged`] names everything that is; nothing is left in `to` then, nor `to` itself where it
/// was made.
pub fn restore(disk: &Disk, backup: &Path, to: &Path) -> Result<Backup, BackupError> {
    restore_while(disk, backup, to, &mut going_on::always)
}

/// The same, for as long as the caller wants it to go on.
///
/// # Errors
/// As [`restore()`]; [`BackupError::Io`], or [`BackupError::Source`], with what `go_on` said otherwise.
pub fn restore_while(disk: &Disk, backup: &Path, to: &Path, go_on: GoOn<'_>) -> Result<Backup, BackupError> {
    claimed(disk, to, || {
        let report = verify_while(disk, backup, go_on)?;
        if !report.damage.is_empty() {
            return Err(BackupError::Damaged(report.damage));
        }
        let closed = Control::attach(disk, backup)?.is_some_and(|control| control.clean_end() == report.end);
        if !closed {
            return Err(BackupError::NotClosed { directory: backup.to_owned() });
        }
        backup_while(disk, backup, to, go_on)
    })
}

impl Store {
    /// Writes a backup of this store; see [`backup()`]. What was committed before the call is in it.
    ///
    /// # Errors
    /// [`BackupError`]; nothing is left in `to` then, nor `to` itself where it was made.
    pub fn backup(&self, to: &Path) -> Result<Backup, BackupError> {
        let (disk, directory) = self.flushed_files()?;
        backup(&disk, &directory, to)
    }

    /// Where its files are, with all of it that was committed before in them.
    pub(crate) fn flushed_files(&self) -> Result<(Disk, PathBuf), BackupError> {
        let (disk, directory) = self.files().ok_or(BackupError::Memory)?;
        // More of it can be linked then.
        let flushed = self.flush();
        flushed.map_err(|source| BackupError::Io { action: "flush", file: directory.clone(), source })?;
        Ok((disk, directory))
    }
}

impl Attached {
    /// Writes a backup of this store; see [`backup()`]. What was visible before the call is in it.
    ///
    /// # Errors
    /// [`BackupError`]; nothing is left in `to` then, nor `to` itself where it was made.
    pub fn backup(&self, to: &Path) -> Result<Backup, BackupError> {
        // Where it was another may be by now.
        let (disk, directory) = self.files()?;
        backup(&disk, &directory, to)
    }
}

/// Does something with a directory in which nothing is overwritten. One that it made goes again when that
/// fails.
fn claimed<T>(
    disk: &Disk,
    to: &Path,
    then: impl FnOnce() -> Result<T, BackupError>,
) -> Result<T, BackupError> {
    let failed = |action| move |source| BackupError::Io { action, file: to.to_owned(), source };
    let is_new = disk.names(to).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    disk.create_directory(to).map_err(failed("create"))?;
    if !disk.names(to).map_err(failed("list"))?.is_empty() {
        return Err(BackupError::Occupied { directory: to.to_owned() });
    }
    let done = then();
    if done.is_err() && is_new {
        // It stays if something was put in it.
        let _ = disk.remove_directory(to);
    }
    done
}

/// Why an attempt ended.
enum Trouble {
    /// A file is not there any more.
    Gone(PathBuf),
    Final(Box<BackupError>),
}

impl From<BackupError> for Trouble {
    fn from(error: BackupError) -> Trouble {
        Trouble::Final(Box::new(error))
    }
}

impl From<OpenError> for Trouble {
    fn from(error: OpenError) -> Trouble {
        match error {
            OpenError::Io { file, source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Trouble::Gone(file)
            }
            error => BackupError::Source(error).into(),
        }
    }
}

fn io_trouble(action: &'static str, file: &Path) -> impl FnOnce(io::Error) -> Trouble {
    let file = file.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::NotFound => Trouble::Gone(file),
        _ => BackupError::Io { action, file, source }.into(),
    }
}

/// One attempt.
struct Transfer<'a> {
    disk: &'a Disk,
    from: &'a Path,
    target: &'a Disk,
    to: &'a Path,
    made: Vec<PathBuf>,
    done: Backup,
    go_on: GoOn<'a>,
}

impl Transfer<'_> {
    fn run(&mut self, meanwhile: &mut dyn FnMut()) -> Result<(), Trouble> {
        let control = Control::attach_existing(self.disk, self.from)?;
        if !control.is_intact() {
            let damage = Damage::at(control::FILE_NAME, 0).touching(Touched::Nobody);
            return Err(BackupError::Damaged(vec![damage]).into());
        }
        // In this order: a checkpoint that is there speaks of nothing that is not visible, and what is
        // visible lies in segments that are there.
        let checkpoints = self.checkpoints(&control)?;
        meanwhile();
        let end = control.visible();
        let linkable = control.durable().min(end);
        self.done.end = end;
        meanwhile();
        let present = self.segments(&control, segment_of(linkable), end)?;
        let unfit = unfit(&Needs::of(checkpoints.last()), &present, end);
        if let Some(first) = unfit.first() {
            let gone = self.from.join(segment::file_name(*first));
            return Err(self.lasting(&control, &unfit, &present, end)?.unwrap_or(Trouble::Gone(gone)));
        }
        let synced = self.target.sync_directory(self.to);
        synced.map_err(io_trouble("sync", self.to))?;
        let words = Closed {
            store_id: control.store_id,
            end,
            next_log: control.next_log(),
            lateness: control.lateness(),
        };
        self.made.push(self.to.join(control::FILE_NAME));
        Control::create_closed(self.target, self.to, &words)
            .map_err(io_trouble("write the control file of", self.to))?;
        let parent = parent_of(self.to);
        self.target.sync_directory(parent).map_err(io_trouble("sync", parent))
    }

    /// What is wrong with the source, if what a backup lacks, or has compacted that it replays, did not just
    /// go away meanwhile, or take another's place while the directory was listed.
    fn lasting(
        &mut self,
        control: &Control,
        unfit: &BTreeSet<u32>,
        present: &BTreeMap<u32, SegmentHeader>,
        end: Position,
    ) -> Result<Option<Trouble>, Trouble> {
        let mut there = present.clone();
        for number in unfit {
            let path = self.from.join(segment::file_name(*number));
            let found = match segment::read_header(self.disk, &path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                header => header.map_err(io_trouble("read", &path))?.and_then(Result::ok),
            };
            match found {
                Some(header) => there.insert(*number, header),
                None => there.remove(number),
            };
        }
        // Looked for behind that: whatever may go is needed by none that there is then.
        let newest = needed_segments::newest(self.disk, self.from, control.store_id);
        let needs = Needs::of(newest.map_err(io_trouble("read a checkpoint of", self.from))?.as_ref());
        let lost = unfit & &self::unfit(&needs, &there, end);
        let Some(first) = lost.first() else { return Ok(None) };
        let headers: Vec<SegmentHeader> = present.values().copied().collect();
        let known = control.evidence(headers.last().map_or(0, |header| header.number));
        let torn = needed_segments::torn_from(
            self.disk,
            self.from,
            &headers,
            needs.replays_from,
            known,
            FinalEnd::at(end),
            &mut *self.go_on,
        );
        if torn.map_err(io_trouble("read", self.from))? <= *first {
            return Ok(Some(BackupError::NotClosed { directory: self.from.to_owned() }.into()));
        }
        let missing = |number: &u32| Damage::segments(&(*number..*number + 1));
        Ok(Some(BackupError::Damaged(lost.iter().map(missing).collect()).into()))
    }

    fn names(&self) -> Result<Vec<String>, Trouble> {
        self.disk.names(self.from).map_err(io_trouble("list", self.from))
    }

    /// Takes the checkpoints along that are whole; one that is not costs replay and nothing else.
    fn checkpoints(&mut self, control: &Control) -> Result<Vec<Checkpoint>, Trouble> {
        let mut taken = Vec::new();
        for name in self.names()? {
            let Some(start) = checkpoint::start_of(&name) else { continue };
            self.asked(&name)?;
            let path = self.from.join(&name);
            let read = checkpoint::read(self.disk, self.from, start, control.store_id, &mut |config| config);
            let Some(whole) = read.map_err(io_trouble("read", &path))? else { continue };
            if !self.link(&name)? {
                let file = self.disk.open_read_only(&path).map_err(io_trouble("open", &path))?;
                let length = file.length().map_err(io_trouble("read", &path))?;
                let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
                file.read_at(&mut bytes, 0).map_err(io_trouble("read", &path))?;
                self.write(&name, length, &bytes)?;
            }
            self.done.checkpoints += 1;
            taken.push(whole);
        }
        Ok(taken)
    }

    /// Takes the segments up to the end, and answers the headers of those there are.
    fn segments(
        &mut self,
        control: &Control,
        linkable: u32,
        end: Position,
    ) -> Result<BTreeMap<u32, SegmentHeader>, Trouble> {
        let mut present = BTreeMap::new();
        for name in self.names()? {
            let Some(number) = segment::number_of(&name).filter(|number| *number <= segment_of(end)) else {
                continue;
            };
            self.asked(&name)?;
            let path = self.from.join(&name);
            let header = segment::read_header(self.disk, &path).map_err(io_trouble("read", &path))?;
            let header = header.and_then(Result::ok).filter(|header| header.store_id == control.store_id);
            let Some(header) = header.filter(|header| header.number == number) else {
                return Err(damaged(&name, position(number, 0)));
            };
            let taken = if number < linkable && self.link(&name)? {
                self.done.linked += 1;
                // Another file may have that name by now.
                let linked = self.to.join(&name);
                let again =
                    segment::read_header(self.target, &linked).map_err(io_trouble("read", &linked))?;
                again.and_then(Result::ok).unwrap_or(header)
            } else {
                self.copy(&name, &header, end)?
            };
            still_whole(&taken, end, &path)?;
            present.insert(number, taken);
        }
        Ok(present)
    }

    /// Copies a segment up to its end, which is where its batches end unless the store ends before.
    /// Answers the header that is in the copy.
    fn copy(&mut self, name: &str, header: &SegmentHeader, end: Position) -> Result<SegmentHeader, Trouble> {
        let path = self.from.join(name);
        let file = self.disk.open_read_only(&path).map_err(io_trouble("open", &path))?;
        let length = file.length().map_err(io_trouble("read", &path))?;
        let mut first = [0; SEGMENT_HEADER_BYTES as usize];
        file.read_at(&mut first, 0).map_err(io_trouble("read", &path))?;
        // Another file may have that name since its header was read.
        let header = &SegmentHeader::decode(&first).unwrap_or(*header);
        still_whole(header, end, &path)?;
        let end = (header.number == segment_of(end)).then(|| place_of(end));
        let whole = header.file_bytes();
        if length < u64::from(whole) || end.is_some_and(|end| end > whole) {
            return Err(damaged(name, position(header.number, u32::try_from(length).unwrap_or(u32::MAX))));
        }
        // What lies behind the end is being written and none of our business.
        let bound = FinalEnd::at(position(header.number, end.unwrap_or(whole)));
        let file = SegmentFile::map(&file, header, whole, bound).map_err(io_trouble("map", &path))?;
        let scan = file.scan(SEGMENT_HEADER_BYTES, Some(header.previous));
        let stop = scan.each_while(&mut *self.go_on, |_| {}).map_err(io_trouble("read", &path))?;
        if !stop.blank || end.is_some_and(|end| end != stop.at) {
            return Err(damaged(name, position(header.number, stop.place)));
        }
        // Behind the batches of one that was compacted stands where they stood.
        let used = if header.is_compacted() { whole } else { stop.at };
        self.done.copied += 1;
        self.done.copied_bytes += u64::from(used - SEGMENT_HEADER_BYTES);
        self.write(name, whole.into(), &file.bytes()[..used as usize])?;
        Ok(*header)
    }

    /// Gives a file of the source a name in the target; `false` where it has to be copied.
    fn link(&mut self, name: &str) -> Result<bool, Trouble> {
        let (old, new) = (self.from.join(name), self.to.join(name));
        match self.disk.link(&old, self.target, &new) {
            Ok(()) => {
                self.made.push(new);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Trouble::Gone(old)),
            // Another file system, one without links, or a file with too many.
            Err(_) => Ok(false),
        }
    }

    fn write(&mut self, name: &str, length: u64, bytes: &[u8]) -> Result<(), Trouble> {
        let path = self.to.join(name);
        let file = self.target.create(&path).map_err(io_trouble("create", &path))?;
        self.made.push(path.clone());
        let mut write = || {
            file.allocate(length, Allocation::Reserved)?;
            let pieces = bytes.chunks(PIECE_BYTES as usize).zip((0..).step_by(PIECE_BYTES as usize));
            for (piece, at) in pieces {
                (self.go_on)()?;
                file.write_at(piece, at)?;
            }
            (self.go_on)()?;
            file.sync_data()
        };
        write().map_err(io_trouble("write", &path))
    }

    /// Asks whether to go on, with a file of the source.
    fn asked(&mut self, name: &str) -> Result<(), Trouble> {
        (self.go_on)().map_err(io_trouble("copy", &self.from.join(name)))
    }

    fn undo(&self) {
        for path in &self.made {
            let _ = self.target.unlink(path);
        }
    }
}

/// Most missing segments that an error names.
const NAMED_MAX: usize = 64;

/// Segments that a backup up to a position needs and does not have as it needs them: not at all, or compacted
/// where it replays them. The first of them, where they are many.
fn unfit(needs: &Needs, present: &BTreeMap<u32, SegmentHeader>, end: Position) -> BTreeSet<u32> {
    let is_unfit = |number: &u32| match present.get(number) {
        Some(header) => *number >= needs.replays_from && header.is_compacted(),
        None => true,
    };
    needs.up_to(segment_of(end)).filter(is_unfit).take(NAMED_MAX).collect()
}

/// Refuses a segment that was compacted behind a position: it lacks what was there, and where the position
/// lies in it, no batch need end there any more.
fn still_whole(header: &SegmentHeader, end: Position, file: &Path) -> Result<(), Trouble> {
    if header.gone_by > end { Err(Trouble::Gone(file.to_owned())) } else { Ok(()) }
}

fn damaged(file: &str, at: Position) -> Trouble {
    BackupError::Damaged(vec![Damage::at(file, at)]).into()
}
