//! Readers of one log: in the process that writes it, or in one that is attached.
//!
//! Purpose: entries by time, offset or place, forwards and backwards, at the speed of memory. A reader owns
//! nothing that others use: it holds the log, its own copy of the segment list, and shares the store's words.
//!
//! What a query does in the steady state is load the word that says how far the log may be read and the
//! version of the segment list, search an index, and walk mapped bytes: no lock, no system call, on the
//! segment that is being written as on sealed ones. Locks are taken when the list of segments changed, when
//! bytes are read that this process has not verified, and to find where a log begins or goes on among others.

use crate::Offset;
use crate::error::ReadError;
use crate::log::Log;
use crate::progress::{Ended, Next, Progress};
use crate::query::{Entry, Query};
use crate::source::{ReadContext, Source};
use std::sync::Arc;

/// Reads one log. Cheap to clone; each thread has its own.
///
/// ```
/// use thalweg_log::{Options, Query, Store};
/// let store = Store::memory(Options::default())?;
/// let log = store.log(b"steps")?;
/// for time in [10, 20, 30] {
///     store.append(&log, b"step", time)?;
/// }
/// let mut reader = store.reader(&log);
/// let times: Result<Vec<_>, _> = reader.entries(&Query::between(10, 30)).map(|entry| Ok(entry?.time)).collect();
/// assert_eq!(times, Ok::<_, thalweg_log::ReadError>(vec![10, 20]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    pub(crate) source: Source,
    pub(crate) progress: Progress,
}

impl Reader {
    pub(crate) fn new(context: ReadContext, log: Arc<Log>) -> Reader {
        Reader { source: Source::new(context, log), progress: Progress::default() }
    }

    /// The log it reads.
    pub fn log(&self) -> &Arc<Log> {
        self.source.log()
    }

    /// Entries in the order of the log, up to what is visible now. Complexity: a search of the time index, or
    /// of the log's extents for a start by offset; then a few nanoseconds per entry. [`Iterator::for_each`]
    /// and [`Iterator::fold`] are the fastest way to take all of them.
    ///
    /// # Errors
    /// Each entry is a `Result`: after [`ReadError::Damaged`] there is nothing more until
    /// [`Entries::resume`]. In a process that is attached there is one [`ReadError::Io`] and nothing else if
    /// it cannot be found out what there is.
    #[inline]
    pub fn entries(&mut self, query: &Query) -> Entries<'_> {
        let refused = self.progress.begin(&mut self.source, query).err().map(Box::new);
        let bytes = self.progress.walk.bytes(self.source.view());
        Entries { bytes, source: &self.source, progress: &mut self.progress, refused, done: false }
    }
}

/// Entries of a query, oldest first.
#[derive(Debug)]
pub struct Entries<'r> {
    bytes: &'r [u8],
    source: &'r Source,
    progress: &'r mut Progress,
    /// Why it could not begin, until that is said.
    refused: Option<Box<ReadError>>,
    done: bool,
}

impl<'r> Entries<'r> {
    /// Goes on behind damage. An iteration that met damage has ended until this is called, so that a
    /// transaction is not taken for whole because its missing half was passed over in silence.
    pub fn resume(&mut self) {
        if self.progress.ended == Some(Ended::Damaged) {
            self.progress.resume();
            self.done = false;
        }
    }

    /// Why nothing more comes, when that is for good.
    pub fn ended(&self) -> Option<Ended> {
        self.progress.ended
    }

    /// Payload bytes that had been purged before this iteration came to them.
    pub fn skipped_bytes(&self) -> u64 {
        self.progress.skipped
    }

    /// Why there is no entry at an offset in front of the entry just read; `None`: it was purged.
    pub(crate) fn missing(&self, offset: Offset) -> Option<ReadError> {
        (!self.source.is_purged(offset + 1)).then(|| self.progress.gap())
    }

    /// The next entry, wherever it is: for an iteration that has come to anything but a plain entry.
    #[inline(never)]
    fn step(&mut self) -> Option<Result<Entry<'r>, ReadError>> {
        if self.done {
            return None;
        }
        if let Some(error) = self.refused.take() {
            self.done = true;
            return Some(Err(*error));
        }
        let next = self.progress.step(self.source);
        let walk = &self.progress.walk;
        self.bytes = walk.bytes(self.source.view());
        match next {
            Ok(Next::Found(found)) => return Some(Ok(found.entry(walk.position_of(found.at), self.bytes))),
            Ok(Next::Nothing | Next::Over) => self.done = true,
            Err(error) => {
                self.done = true;
                return Some(Err(error));
            }
        }
        None
    }
}

impl<'r> Iterator for Entries<'r> {
    type Item = Result<Entry<'r>, ReadError>;

    // Inlined, the entry stays in registers: a call would hand it over in memory.
    #[inline(always)]
    fn next(&mut self) -> Option<Result<Entry<'r>, ReadError>> {
        let Progress { filter, walk, .. } = &mut *self.progress;
        if let Some(found) = filter.plain(self.bytes, &mut walk.at) {
            return Some(Ok(found.entry(walk.position_of(found.at), self.bytes)));
        }
        if filter.is_over() {
            return None;
        }
        self.step()
    }
    /// All that are left, in one loop: taking them one by one stores after each how far the iteration has
    /// come.
    #[inline]
    fn fold<A, F: FnMut(A, Self::Item) -> A>(mut self, initial: A, mut each: F) -> A {
        let mut folded = initial;
        while let Some(entry) = self.next() {
            folded = each(folded, entry);
            let (bytes, Progress { filter, walk, .. }) = (self.bytes, &mut *self.progress);
            let run = *walk;
            folded =
                filter.plain_run(bytes, &mut walk.at, std::iter::repeat(()), folded, |folded, (), found| {
                    each(folded, Ok(found.entry(run.position_of(found.at), bytes)))
                });
        }
        folded
    }
}
