//! The control file: the store's words, mapped, for this process and for others.
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | 0 | magic | creation |
//! | 1 | format version | creation |
//! | 2 | store id | creation |
//! | 3 | version of the segment list, 0 before the first opening | the thread that adds or removes a segment |
//! | 4 | clean end: position of a clean close, 0 while open | open and close |
//! | 5 | next log id: no id at or above it was ever given out | the thread that creates a log |
//! | 6 | checksum of all words but itself, 0 while open | open and close |
//! | 7 | run of the machine in which `visible` moved last, 0 when closed | open and close |
//! | 8 | `file_end`: end of the last batch that is in its file | the writer, under its lock |
//! | 16 | `durable`: end of what is known to last | the committer, after a sync succeeded |
//! | 24 | `visible`: end of what readers may see | the writer or, in `sync` mode, the committer |
//! | 32 | `lateness`: by how much an entry's time ever lay behind an earlier entry's | the writer |
//!
//! The words that move with every commit have a cache line each, so that polling one does not slow down the
//! others. `durable` on disk may lag behind the truth and never runs ahead of it: it is stored only after the
//! sync that it speaks of. That makes it evidence in recovery. So is `visible` as long as the machine runs
//! on: what a killed process had stored is in the kernel's hands. A closed store's words are checksummed, and
//! unused words are zero, so a flipped bit is noticed.

use crate::error::OpenError;
use crate::format::FORMAT_VERSION;
use crate::segment;
use crate::working;
use crate::{Position, Time, segment_of};
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use thalweg_sync::words::{Word, Words};
use thalweg_sys::disk::{Disk, File, Map};

pub(crate) const FILE_NAME: &str = "control";
/// Most segments that may be missing behind the last that is there: words that claim more are not believed.
const MISSING_MAX: u32 = 1 << 16;
const BYTES: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"THALWEGc");
const MAGIC_WORD: usize = 0;
const VERSION: usize = 1;
const STORE_ID: usize = 2;
pub(crate) const SEGMENTS: usize = 3;
const CLEAN_END: usize = 4;
const NEXT_LOG: usize = 5;
const CHECKSUM: usize = 6;
pub(crate) const BOOT: usize = 7;
pub(crate) const FILE_END: usize = 8;
pub(crate) const DURABLE: usize = 16;
pub(crate) const VISIBLE: usize = 24;
pub(crate) const LATENESS: usize = 32;
const WORDS: usize = BYTES / 8;

#[derive(Debug)]
pub(crate) struct Control {
    words: Words,
    file: Option<File>,
    pub(crate) store_id: u64,
    /// Number of this run of the machine, 0 if it is unknown.
    boot: u64,
    /// End of the last batch, in its file or staged: it moves with every commit. It belongs to the writing
    /// process alone, so it is no word of the file.
    staged_end: Word,
    /// Held while the store is closed, and while a word is changed that must not change after that.
    changing: Mutex<()>,
}

impl Control {
    /// Words that live as long as the process.
    pub(crate) fn in_memory(store_id: u64) -> io::Result<Control> {
        Ok(Control::of(Words::new(Map::anonymous(BYTES)?), None, store_id, 0))
    }

    /// Creates the file of a new store and makes it durable.
    pub(crate) fn create(disk: &Disk, directory: &Path, store_id: u64) -> io::Result<Control> {
        let words = [(MAGIC_WORD, MAGIC), (VERSION, u64::from(FORMAT_VERSION)), (STORE_ID, store_id)];
        let bytes = encode(&words);
        working::replace(disk, directory, FILE_NAME, &bytes)?;
        let file = disk.open(&directory.join(FILE_NAME))?;
        Ok(Control::of(Words::new(file.map(BYTES, true)?), Some(file), store_id, disk.boot()))
    }

    /// Writes the file of a store that is closed, and makes it durable.
    pub(crate) fn create_closed(disk: &Disk, directory: &Path, closed: &Closed) -> io::Result<()> {
        let mut words = vec![
            (MAGIC_WORD, MAGIC),
            (VERSION, u64::from(FORMAT_VERSION)),
            (STORE_ID, closed.store_id),
            (NEXT_LOG, closed.next_log),
            (LATENESS, closed.lateness),
        ];
        words.extend([CLEAN_END, FILE_END, DURABLE, VISIBLE].map(|word| (word, closed.end)));
        let sum =
            checksum(|index| words.iter().find(|(word, _)| *word == index).map_or(0, |(_, value)| *value));
        words.push((CHECKSUM, sum));
        working::replace(disk, directory, FILE_NAME, &encode(&words))
    }

    /// Opens the file of an existing store; `None` when there is none.
    pub(crate) fn open(disk: &Disk, directory: &Path) -> Result<Option<Control>, OpenError> {
        Control::map(disk, directory, true)
    }

    /// Opens the file of a store that another process may be writing, for reading only.
    pub(crate) fn attach(disk: &Disk, directory: &Path) -> Result<Option<Control>, OpenError> {
        Control::map(disk, directory, false)
    }

    /// The same, where there has to be one.
    ///
    /// # Errors
    /// [`OpenError::NotAStore`]: there is none.
    pub(crate) fn attach_existing(disk: &Disk, directory: &Path) -> Result<Control, OpenError> {
        Control::attach(disk, directory)?.ok_or_else(|| Control::missing(directory))
    }

    /// The error where there is none.
    pub(crate) fn missing(directory: &Path) -> OpenError {
        OpenError::NotAStore { file: directory.to_owned(), why: "there is no control file" }
    }

    fn map(disk: &Disk, directory: &Path, writable: bool) -> Result<Option<Control>, OpenError> {
        let path = directory.join(FILE_NAME);
        let failed = |source| OpenError::Io { action: "open", file: path.clone(), source };
        let opened = if writable { disk.open(&path) } else { disk.open_read_only(&path) };
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if file.length().map_err(failed)? < BYTES as u64 {
            return Err(OpenError::NotAStore { file: path, why: "the control file is too short" });
        }
        // An unreadable sector is an error here, and would be a signal through the map.
        file.read_at(&mut [0; BYTES], 0).map_err(failed)?;
        let words = Words::new(file.map(BYTES, writable).map_err(failed)?);
        if words.load(MAGIC_WORD) != MAGIC {
            return Err(OpenError::NotAStore { file: path, why: "the control file has another magic" });
        }
        let found = words.load(VERSION);
        if found > u64::from(FORMAT_VERSION) {
            return Err(OpenError::Newer { file: path, found, known: u64::from(FORMAT_VERSION) });
        }
        if found < u64::from(FORMAT_VERSION) {
            return Err(OpenError::NotAStore {
                file: path,
                why: "an unreleased version of this program wrote it",
            });
        }
        let store_id = words.load(STORE_ID);
        Ok(Some(Control::of(words, Some(file), store_id, disk.boot())))
    }

    fn of(words: Words, file: Option<File>, store_id: u64, boot: u64) -> Control {
        Control { words, file, store_id, boot, staged_end: Word::default(), changing: Mutex::default() }
    }

    /// Takes the store's id from its segments, if all that stand agree: their headers are checksummed, and
    /// these words failed their checksum.
    pub(crate) fn adopt_id(&mut self, disk: &Disk, directory: &Path) -> io::Result<()> {
        let mut ids = Vec::new();
        for name in disk.names(directory)?.iter().filter(|name| segment::number_of(name).is_some()) {
            if let Some(Ok(header)) = segment::read_header(disk, &directory.join(name))? {
                ids.push(header.store_id);
            }
        }
        ids.dedup();
        if let [id] = ids[..] {
            self.store_id = id;
        }
        Ok(())
    }

    /// Writes down the id that was adopted.
    pub(crate) fn keep_id(&self) {
        self.words.store(STORE_ID, self.store_id);
    }

    /// Address and length of the mapped words.
    pub(crate) fn place(&self) -> (NonNull<u8>, usize) {
        self.words.place()
    }

    /// End of the last batch, in its file or staged. Kept only in the process that writes the store.
    pub(crate) fn staged_end(&self) -> Position {
        self.staged_end.load()
    }

    pub(crate) fn set_staged_end(&self, position: Position) {
        self.staged_end.store(position);
    }

    pub(crate) fn set_file_end(&self, position: Position) {
        self.words.store(FILE_END, position);
    }

    /// End of the last batch that is in its file. In `sync` mode staged batches lie behind it.
    pub(crate) fn file_end(&self) -> Position {
        self.words.load(FILE_END)
    }

    pub(crate) fn durable(&self) -> Position {
        self.words.load(DURABLE)
    }

    pub(crate) fn set_durable(&self, position: Position) {
        self.words.store(DURABLE, position);
    }

    /// End of what readers may see.
    pub(crate) fn visible(&self) -> Position {
        self.words.load(VISIBLE)
    }

    pub(crate) fn set_visible(&self, position: Position) {
        self.words.store(VISIBLE, position);
    }

    /// How far an entry's time may lie behind that of an earlier one, in microseconds.
    pub(crate) fn lateness(&self) -> Time {
        self.words.load(LATENESS)
    }

    pub(crate) fn set_lateness(&self, lateness: Time) {
        self.words.store(LATENESS, lateness);
    }

    /// Version of the segment list.
    pub(crate) fn segments_version(&self) -> u64 {
        self.words.load(SEGMENTS)
    }

    /// Moves the version, so that other processes list the segments again. A closed store's words stay as
    /// they are.
    pub(crate) fn bump_segments(&self) {
        let _changing = self.changing.lock();
        if self.clean_end() != 0 {
            return;
        }
        self.words.store(SEGMENTS, self.words.load(SEGMENTS) + 1);
    }

    /// Whether the file at a path is still this one.
    pub(crate) fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.as_ref().map_or(Ok(true), |file| file.is_at(path))
    }

    /// Whether the store is a backup that was never opened: then no segment list has a version.
    pub(crate) fn was_put_back(&self) -> bool {
        self.segments_version() == 0
    }

    pub(crate) fn next_log(&self) -> u64 {
        self.words.load(NEXT_LOG)
    }

    /// Sets the next id. In a closed store nothing is created, so there the word stays as it is.
    pub(crate) fn set_next_log(&self, next: u64) {
        let _changing = self.changing.lock();
        if self.clean_end() == 0 {
            self.words.store(NEXT_LOG, next);
        }
    }

    pub(crate) fn clean_end(&self) -> Position {
        self.words.load(CLEAN_END)
    }

    /// Records a clean close, or with 0 that the store is in use, durably.
    pub(crate) fn set_clean_end(&self, position: Position) -> io::Result<()> {
        let _changing = self.changing.lock();
        // In this order: a process that sees a clean end also sees its checksum.
        if position == 0 {
            self.words.store(CLEAN_END, 0);
            self.words.store(CHECKSUM, 0);
        } else {
            self.words.store(BOOT, 0);
            self.words.store(CHECKSUM, self.checksum(position));
            self.words.store(CLEAN_END, position);
        }
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }

    /// The checksum of the words in a store that is closed at a position.
    fn checksum(&self, clean_end: Position) -> u64 {
        checksum(|index| if index == CLEAN_END { clean_end } else { self.words.load(index) })
    }

    /// The highest position that the words prove durable, given the number of the last segment there is; 0 if
    /// they prove nothing.
    pub(crate) fn evidence(&self, last: u32) -> Position {
        if self.is_intact() && self.is_plausible(last) { self.claimed() } else { 0 }
    }

    /// Whether the words claim no more than is possible. While a store is open, or was killed, no checksum
    /// covers them.
    pub(crate) fn is_plausible(&self, last: u32) -> bool {
        segment_of(self.claimed()) <= last.saturating_add(MISSING_MAX)
    }

    fn claimed(&self) -> Position {
        let kept = if self.boot != 0 && self.words.load(BOOT) == self.boot { self.visible() } else { 0 };
        self.durable().max(self.clean_end()).max(kept)
    }

    /// End of what is neither stored to nor taken back, by a writer or by one that opens the store.
    pub(crate) fn final_end(&self) -> Position {
        let is_of_this_run = self.boot != 0 && self.words.load(BOOT) == self.boot;
        let written = if is_of_this_run { self.file_end() } else { 0 };
        if self.is_intact() { self.claimed().max(written) } else { 0 }
    }

    /// Marks `visible` as stored in this run of the machine.
    pub(crate) fn set_boot(&self) {
        self.words.store(BOOT, self.boot);
    }

    /// Whether the words are as the last clean close left them; an open or crashed store's always pass.
    pub(crate) fn is_intact(&self) -> bool {
        loop {
            let (end, sum) = (self.clean_end(), self.words.load(CHECKSUM));
            if end == 0 || sum == self.checksum(end) {
                return true;
            }
            // A mismatch counts only if no other process opened or closed the store during the look.
            if (end, sum) == (self.clean_end(), self.words.load(CHECKSUM)) {
                return false;
            }
        }
    }
}

/// The id of the store that is in a directory now.
pub(crate) fn id_in(disk: &Disk, directory: &Path) -> io::Result<u64> {
    let mut word = [0; 8];
    disk.open_read_only(&directory.join(FILE_NAME))?.read_at(&mut word, STORE_ID as u64 * 8)?;
    Ok(u64::from_le_bytes(word))
}

/// What the words of a closed store say.
pub(crate) struct Closed {
    pub(crate) store_id: u64,
    pub(crate) end: Position,
    pub(crate) next_log: u64,
    pub(crate) lateness: Time,
}

fn encode(words: &[(usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    for (index, word) in words {
        bytes[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// What all words but the checksum add up to; never 0, which says that the store is open.
fn checksum(word: impl Fn(usize) -> u64) -> u64 {
    let words = (0..WORDS).filter(|index| *index != CHECKSUM);
    let sum = words.fold(0, |sum, index| crc32c::crc32c_append(sum, &word(index).to_le_bytes()));
    u64::from(sum) | 3 << 32
}
