//! Reading a store that another process writes.
//!
//! Purpose: the same readers in another process. An attached store maps the files read-only, and learns what
//! is there from the words of the control file. It asks nothing of the writer, and changes nothing but the
//! words of the signal file on which sleepers announce themselves. Nothing can fault: mapped files never
//! shrink, and a removed one stays for as long as it is mapped.
//!
//! The directory is held open. So what is read is always of the store that was found there, whatever is put
//! in its place between two looks. That it was moved is told all the same ([`presence`]): who opens it by its
//! path from then on has another.
//!
//! Which logs there are and where each one lies is found by the recovery that opens a store, bounded by what
//! was visible. It is kept up to date by replaying what was committed since, whenever a log is asked for by
//! name. Readers need none of that: they walk the segments up to the visible end. This process verifies every
//! checksum itself, once; what the writer's process verified does not count here.

mod follower;
mod presence;

use crate::control::{self, Control};
use crate::error::{Damage, OpenError, ReadError, Touched};
use crate::format::SEGMENT_HEADER_BYTES;
use crate::log::Log;
use crate::open::absolute;
use crate::reader::Reader;
use crate::recover::{Recovery, is_missing, missing_segment};
use crate::segment::{self, Segment};
use crate::source::{ReadContext, StoreAccess, unlisted};
use crate::view::{Segments, View};
use crate::{LogId, Position, Time, position, segment_of, signal};
use follower::Follower;
use parking_lot::{Mutex, MutexGuard};
use presence::Presence;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thalweg_sync::gate::Gate;
use thalweg_sync::region::Published;
use thalweg_sys::disk::Disk;

/// Times that opening begins again because files came and went meanwhile.
const ATTEMPTS: u32 = 5;

/// A store that another process has open, or had: for reading. Clones share it.
#[derive(Clone, Debug)]
pub struct Attached {
    neighbour: Arc<Neighbour>,
    pub(crate) context: ReadContext,
}

/// What this process knows of the other's store.
#[derive(Debug)]
struct Neighbour {
    /// Holds the directory.
    disk: Disk,
    directory: PathBuf,
    control: Arc<Control>,
    segments: Arc<Segments>,
    /// Version of the segment list that was last read from the directory, modulo 2^32.
    seen: Published,
    catalogue: Mutex<Followed>,
    /// The opening that its logs carry; it stays when the catalogue is made anew.
    opening: u32,
    damage: Vec<Damage>,
    presence: Arc<Presence>,
    follower: Follower,
}

/// The catalogue as of a position.
struct Followed {
    recovery: Recovery,
    up_to: Position,
}

impl std::fmt::Debug for Followed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Followed").field("up_to", &self.up_to).finish_non_exhaustive()
    }
}

impl Attached {
    /// Attaches to the store in `directory`. Readers that may write its `signal` file are woken by the
    /// writer; where that file cannot be written, on a read-only mount say, they look every 10 ms. Everything
    /// else is only read. The store is looked for where `directory` is now, wherever the process goes later.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::NotAStore`] when no store was ever opened there.
    pub fn open(disk: &Disk, directory: &Path) -> Result<Attached, OpenError> {
        let directory = &absolute(directory)?;
        let mut attempt = 0;
        loop {
            match Attached::try_open(disk, directory) {
                // A checkpoint or a segment was removed between listing and reading it.
                Err(OpenError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    fn try_open(disk: &Disk, directory: &Path) -> Result<Attached, OpenError> {
        let disk = &disk.hold(directory).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Control::missing(directory),
            _ => OpenError::Io { action: "open", file: directory.join(control::FILE_NAME), source },
        })?;
        let control = Arc::new(Control::attach_existing(disk, directory)?);
        if !control.is_intact() {
            let file = directory.join(control::FILE_NAME);
            let why = "its words do not add up, so nothing can be read by them; open the store to mend them";
            return Err(OpenError::NotAStore { file, why });
        }
        let failed = |action| move |source| OpenError::Io { action, file: directory.to_owned(), source };
        let gate = Arc::new(signal::attach(disk, directory).map_err(failed("map the signal file of"))?);
        // Before the list of segments: what is visible lies in segments that are there by then.
        let up_to = control.visible();
        let mut recovery = Recovery::new(disk, directory, &control, Some(up_to));
        recovery.run()?;
        let damage = recovery.report(0).damage;
        let opening = recovery.catalogue().opening();
        let segments = Arc::new(Segments::default());
        let presence = Arc::new(Presence::new(directory.join(control::FILE_NAME)));
        let neighbour = Arc::new(Neighbour {
            disk: disk.clone(),
            directory: directory.to_owned(),
            control: control.clone(),
            segments: segments.clone(),
            seen: Published::new(0),
            catalogue: Mutex::new(Followed { recovery, up_to }),
            opening,
            damage,
            presence: presence.clone(),
            follower: Follower::new(control.clone(), gate.clone(), presence),
        });
        neighbour.go_on(&mut neighbour.catalogue.lock()).map_err(failed("list"))?;
        let context = ReadContext { control, segments, gate, access: neighbour.clone() };
        Ok(Attached { neighbour, context })
    }

    /// The log of that name, as of now. Complexity: what was committed since the last call is replayed.
    ///
    /// # Errors
    /// [`ReadError::Io`]: it cannot be found out what was committed since.
    pub fn find(&self, name: &[u8]) -> Result<Option<Arc<Log>>, ReadError> {
        Ok(self.neighbour.catch_up().map_err(unlisted)?.recovery.catalogue().find(name))
    }

    /// Visits every log there is by now, in no order. The visitor must not call the store.
    ///
    /// # Errors
    /// [`ReadError::Io`]: it cannot be found out what was committed since; none was visited.
    pub fn visit(&self, visitor: impl FnMut(&Arc<Log>)) -> Result<(), ReadError> {
        self.neighbour.catch_up().map_err(unlisted)?.recovery.catalogue().visit(visitor);
        Ok(())
    }

    /// Visits the logs that were created since the last call, of which `seen` takes note, or all there are,
    /// and takes those that are gone out of `told`, as it grows. The visitor must not call the store.
    pub(crate) fn visit_created(
        &self,
        seen: &mut Option<u64>,
        told: &mut BTreeSet<LogId>,
        mut visitor: impl FnMut(&mut BTreeSet<LogId>, &Arc<Log>),
    ) -> Result<(), ReadError> {
        let followed = self.neighbour.catch_up().map_err(unlisted)?;
        followed.recovery.visit_arrived(seen, |log| visitor(told, log));
        followed.recovery.forget_gone(told);
        Ok(())
    }

    /// A reader of one of the logs that were found here; one of any other is refused when it is to read
    /// ([`ReadError::OtherStore`]).
    pub fn reader(&self, log: &Arc<Log>) -> Reader {
        Reader::new(self.context.clone(), log.clone())
    }

    /// Lets go of memory as [`Store::release`](crate::Store::release) does, and of segments that the writer
    /// has removed, so that their disk space is given back. Cursors and [`NewLogs`](crate::NewLogs) let go of
    /// those when they look for more, and are woken to do so; a [`Reader`] does when it begins a query.
    pub fn release(&self, keep: usize) {
        // What cannot be listed now is listed by the next reader, which reports why.
        let _ = self.neighbour.list();
        self.context.segments.release(keep);
    }

    /// Whether its store is where it was.
    pub(crate) fn check_place(&self) -> io::Result<()> {
        self.neighbour.check_place()
    }

    /// The disk and the directory it is in.
    pub(crate) fn disk_and_directory(&self) -> (&Disk, &Path) {
        (&self.neighbour.disk, &self.neighbour.directory)
    }

    /// Threads that fail to start for tasks that wait, for tests.
    #[cfg(test)]
    pub(crate) fn refuse_threads(&self) -> &Mutex<u32> {
        &self.neighbour.follower.refusals
    }

    /// End of what is visible.
    pub fn visible(&self) -> Position {
        self.context.control.visible()
    }

    /// Spans found damaged when it was attached.
    pub fn damage(&self) -> &[Damage] {
        &self.neighbour.damage
    }
}

impl Neighbour {
    /// Brings the catalogue up to what is visible now, and answers it.
    fn catch_up(&self) -> io::Result<MutexGuard<'_, Followed>> {
        let mut followed = self.catalogue.lock();
        self.check_place()?;
        let mut attempt = 1;
        loop {
            match self.go_on(&mut followed) {
                // A segment or a checkpoint was removed between listing and reading it.
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => attempt += 1,
                outcome => return outcome.map(|()| followed),
            }
        }
    }

    /// Brings the list of segments up to date, and the catalogue up to what is visible in them. If it fails,
    /// the list stays as it was, which is the only one that readers have; the catalogue may be ahead of it.
    fn go_on(&self, followed: &mut Followed) -> io::Result<()> {
        let version = self.control.segments_version();
        let known = self.segments.latest();
        // The control file of a backup that was never opened has version 0, as if nothing was listed yet.
        let moved = known.all().is_empty() || self.seen.bytes() != version as u32;
        let segments = if moved { Some(self.read_directory(&followed.recovery)?) } else { None };
        let view = match &segments {
            Some(segments) => Arc::new(View::of(segments.clone())),
            None => known,
        };
        // Read after the list: what removed a segment was visible before that. A segment that is not listed
        // yet waits for the version to move.
        let listed = view.all().last().map_or(0, |segment| segment.header.number);
        let limit = self.control.visible().min(position(listed + 1, SEGMENT_HEADER_BYTES));
        if followed.up_to < limit {
            let unseen = segment_of(followed.up_to)..=segment_of(limit);
            if unseen
                .clone()
                .all(|number| number > listed || view.find(number).is_some_and(|s| !s.header.is_compacted()))
            {
                followed.recovery.follow(&view, followed.up_to, limit);
            } else {
                followed.recovery.renew(limit).map_err(io_error)?;
            }
            followed.up_to = limit;
        }
        if let Some(mut segments) = segments {
            self.miss(&view, &mut followed.recovery)?;
            Segment::stand_in(&mut segments, followed.recovery.missing(), Time::MAX)?;
            // A reader that takes over the new list also looks where logs begin now.
            self.segments.set(segments);
            self.seen.publish(version as u32);
        }
        Ok(())
    }

    /// Reads from the directory which segments there are; those that are known stay mapped.
    fn read_directory(&self, recovery: &Recovery) -> io::Result<Vec<Arc<Segment>>> {
        // A later segment may be half made. Once it is made it is listed, even while nothing is in it: the
        // version need not move again before something is.
        let newest = segment_of(self.control.file_end());
        let known = self.segments.latest();
        let mut segments: Vec<Arc<Segment>> = Vec::new();
        let mut lost = recovery.missing().clone();
        let names = self.disk.names(&self.directory).map_err(|error| self.removed("its directory", error))?;
        for name in names {
            let Some(number) = segment::number_of(&name) else { continue };
            if let Some(segment) = known.find(number) {
                segments.push(segment.clone());
                continue;
            }
            let path = self.directory.join(&name);
            let opened = segment::read_header(&self.disk, &path)
                .and_then(|header| Ok((header, self.disk.open_read_only(&path)?)));
            match opened {
                Ok((Some(Ok(header)), file)) if header.number == number => {
                    segments.push(Arc::new(Segment::attach(header, file)?));
                }
                Ok((Some(_), _)) if number > newest => {}
                Ok((Some(_), _)) => {
                    lost.entry(number).or_insert_with(|| missing_segment(number, Touched::Nobody));
                }
                // Not begun.
                Ok((None, _)) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.is_still_there(&known, recovery.missing())?;
        Segment::stand_in(&mut segments, &lost, Time::MAX)?;
        Ok(segments)
    }

    /// Makes sure that what was listed is of this store, and whole. A list without files that were removed
    /// with the store, or with segments of another store made in its place, would pass over entries in
    /// silence. The newest segment is never removed as long as the store exists, so if it is missing the
    /// store is being removed. Recovery has just judged the first list: after a power cut the words may speak
    /// of a segment whose name was not on the disk yet.
    fn is_still_there(&self, known: &View, missing: &BTreeMap<u32, Damage>) -> io::Result<()> {
        let newest = segment_of(self.control.file_end());
        if !known.all().is_empty() && newest > 0 && !is_missing(missing, newest) {
            let name = segment::file_name(newest);
            let found = self.disk.open_read_only(&self.directory.join(&name));
            found.map_err(|error| self.removed(&name, error))?;
        }
        let id = control::id_in(&self.disk, &self.directory);
        if id.map_err(|error| self.removed(control::FILE_NAME, error))? == self.control.store_id {
            return Ok(());
        }
        Err(self.another())
    }

    /// An error where the control file is not at the path any more, or is another one.
    fn check_place(&self) -> io::Result<()> {
        if !self.presence.look(&self.control) {
            return Ok(());
        }
        let there = self.disk.unheld().open_read_only(&self.directory.join(control::FILE_NAME));
        Err(there.err().map_or_else(|| self.another(), |error| self.removed(control::FILE_NAME, error)))
    }

    fn another(&self) -> io::Error {
        let at = self.directory.display();
        let path = self.directory.join(control::FILE_NAME);
        io::Error::other(match self.control.is_at(&path) {
            Ok(true) => {
                format!("the store at {at} was moved away meanwhile: close this one, and open it again")
            }
            _ => format!("another store is at {at} by now: close this one, and open that"),
        })
    }

    /// Has segments stood in for that are gone although logs need something of them, as where a store is
    /// opened without them: a writer that removes one says so beforehand.
    fn miss(&self, view: &View, recovery: &mut Recovery) -> io::Result<()> {
        let known = self.segments.latest();
        // The first list is compared with what recovery found.
        let first = if known.all().is_empty() { Some(recovery.segments()) } else { None };
        let numbers =
            known.all().iter().map(|segment| segment.header.number).chain(first.into_iter().flatten());
        let gone: Vec<u32> = numbers.filter(|number| view.find(*number).is_none()).collect();
        let lost = recovery.needed_of(&gone);
        let listed = view.all().last().map_or(0, |segment| segment.header.number);
        if !lost.is_empty() && self.control.visible() > position(listed + 1, SEGMENT_HEADER_BYTES) {
            // The frame that lets go of them may stand in a segment that came while the directory was read:
            // try again once that is listed.
            return Err(io::ErrorKind::NotFound.into());
        }
        // Of all of them: what only forks need of a log counts for no log.
        for number in gone {
            if segment::is_there(&self.disk, &self.directory, number)? {
                return Err(io::ErrorKind::NotFound.into());
            }
        }
        if !lost.is_empty() {
            // It may be the first file to go of a store that is being removed.
            self.is_still_there(&known, recovery.missing())?;
            recovery.miss(&lost);
        }
        Ok(())
    }

    /// The error where a file is missing that every store has.
    fn removed(&self, what: &str, error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::NotFound {
            return error;
        }
        let at = self.directory.display();
        let why = format!("{what} is not at {at} any more: the store was moved or removed, so close it here");
        io::Error::new(io::ErrorKind::NotFound, why)
    }
}

fn io_error(error: OpenError) -> io::Error {
    match error {
        OpenError::Io { source, .. } => source,
        other => io::Error::other(other),
    }
}

impl StoreAccess for Neighbour {
    fn opening(&self) -> u32 {
        self.opening
    }

    fn wait(&self, gate: &Gate, timeout: Option<Duration>, is_ready: &mut dyn FnMut() -> bool) -> bool {
        self.presence.wait(&self.control, gate, timeout, is_ready)
    }

    fn is_gone(&self) -> bool {
        self.presence.is_gone()
    }

    fn task_waits(&self) -> io::Result<()> {
        self.follower.start()
    }

    fn follows(&self) -> bool {
        true
    }

    fn is_listed(&self) -> bool {
        self.seen.bytes() == self.control.segments_version() as u32
    }

    fn list(&self) -> io::Result<()> {
        // Once: the caller took its limit before, and a writer that trims with every commit is ahead again by
        // then.
        if self.is_listed() && !self.presence.is_gone() { Ok(()) } else { self.learn() }
    }

    fn learn(&self) -> io::Result<()> {
        self.catch_up().map(drop)
    }

    fn known(&self) -> Position {
        self.catalogue.lock().up_to
    }

    fn checkpoint(&self) -> io::Result<Position> {
        let names = self.disk.names(&self.directory)?;
        Ok(names.iter().filter_map(|name| crate::checkpoint::start_of(name)).max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
