//! The seam between the rules and an engine: single-stream conditional commits.
//!
//! The rules read a stream's [`State`], decide, and commit against the version they read; a commit that
//! finds another version changes nothing and the rule is asked again. Commits to one stream apply in the
//! order of submission. A commit answers with a [`Receipt`] at once; the change is durable, and its
//! answer may leave, when the store reports the receipt's ticket complete. Tickets grow per store.
//!
//! Two views of a stream exist: *staged* (every accepted commit, what the next commit is judged by) and
//! *visible* (durable commits only, what readers see). They coincide where nothing waits for a disk.

use std::sync::Arc;
use thalweg_wire::exchange::Pieces;
use thalweg_wire::exchange::Work;

/// How long a stream lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Until it is deleted.
    Unlimited,
    /// Until it has not been read or written for this many seconds.
    Sliding {
        /// The window in seconds.
        ttl_s: u64,
    },
    /// Until an instant, microseconds since the epoch.
    Until {
        /// The instant in microseconds since the epoch.
        expires_us: u64,
    },
}

/// What a stream is created with and never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The content type as the creator sent it.
    pub content_type: Arc<str>,
    /// How long it lives.
    pub lifetime: Lifetime,
}

/// Key of the note by which an engine bounds what it keeps of a stream: microseconds that a record may be old
/// and bytes that there may be, 8 bytes each, little-endian, 0 for no bound.
pub const RETAIN_NOTE: &[u8] = b"\0retain";

/// Where a stream branches off from another, and what its creator asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork<T> {
    /// The stream whose bytes below `base` are inherited.
    pub source: T,
    /// Where the fork's own bytes begin.
    pub base: u64,
    /// The offset asked for, 0 for the beginning of what was left; `None` when it was left to the source's
    /// tail.
    pub anchor: Option<u64>,
    /// How far behind the anchor, in bytes or messages, as it was asked for.
    pub sub_offset: u64,
}

/// A stream as the rules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Grows by one with each commit to the stream.
    pub version: u64,
    /// Where its own bytes begin; 0 unless it is a fork.
    pub base: u64,
    /// What lies below it was let go of; nothing, while it is 0.
    pub first: u64,
    /// Offset after the last byte.
    pub tail: u64,
    /// No more appends.
    pub closed: bool,
    /// The producer request that closed it, if a producer did.
    pub closed_by: Option<ProducerMark>,
    /// The highest writer sequence (`Stream-Seq`) accepted.
    pub writer_seq: Option<Arc<[u8]>>,
}

/// One producer's place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// The highest epoch seen.
    pub epoch: u64,
    /// The highest sequence accepted in that epoch.
    pub seq: u64,
}

/// A producer's name and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerMark {
    /// The producer's identifier.
    pub id: Arc<[u8]>,
    /// Epoch and sequence.
    pub state: ProducerState,
}

/// One atomic change to one stream. Everything in it is durable together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Commit<'a> {
    /// Payload to append; empty appends nothing.
    pub payload: &'a [u8],
    /// A second piece placed right behind `payload` (a separator, say); counts as payload.
    pub suffix: &'a [u8],
    /// The producer's new place.
    pub producer: Option<(&'a [u8], ProducerState)>,
    /// The new writer sequence.
    pub writer_seq: Option<&'a [u8]>,
    /// Small facts to keep beside the payload, by key: of one key the last one wins, an empty value removes
    /// it.
    pub notes: &'a [(&'a [u8], &'a [u8])],
    /// Close the stream after the payload.
    pub close: bool,
    /// Microseconds since the epoch, recorded with the frames.
    pub time_us: u64,
}

/// A commit the store took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The answer may leave when the store reports this ticket complete; 0 = at once.
    pub ticket: u64,
    /// Offset of the first byte appended.
    pub first: u64,
    /// Offset after the last byte.
    pub next: u64,
}

/// Why a store did not take a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another commit came first: read the state and decide again. Nothing was applied.
    #[error("the stream moved on since its state was read")]
    Conflict,
    /// A stream of that name exists. Nothing was applied.
    #[error("a stream of that name exists")]
    Exists,
    /// The stream is deleted or expired. Nothing was applied.
    #[error("the stream is gone")]
    Gone,
    /// The stream to be forked is deleted. Nothing was applied.
    #[error("the stream to be forked is gone")]
    SourceGone,
    /// The disk is full. Nothing was applied; reads go on; writes go on when space returns.
    #[error("no space left for the store: {0}")]
    Full(String),
    /// The operating system refuses the store what it needs. Nothing was applied; reads go on; writes go on
    /// when it refuses no more.
    #[error("the store cannot write now: {0}")]
    Io(String),
    /// One commit is larger than the store takes. Nothing was applied.
    #[error("the write has {size} bytes and the store takes at most {limit} at once: send it in several")]
    TooLarge {
        /// Bytes asked for.
        size: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The store failed earlier (a failed fsync) and takes no more writes until it is reopened.
    #[error("the store stopped taking writes: {0}")]
    Poisoned(String),
    /// The bytes asked for lie in a damaged span.
    #[error("{0}; inspect it with `thalweg verify`")]
    Damaged(String),
    /// What stood at the offset was let go of.
    #[error("the records there are no longer kept")]
    Purged,
    /// The offset lies past the end: the visible one of a read, the staged one of a fork.
    #[error("the offset lies past the end of the stream")]
    PastEnd,
}

/// Part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Payload bytes, in order, borrowed from the store's maps where that is cheaper than a copy.
    pub pieces: Pieces,
    /// Offset after them.
    pub next: u64,
    /// Nothing visible lies beyond `next`.
    pub at_tail: bool,
    /// The stream is visibly closed.
    pub closed: bool,
    /// It begins inside a record, not where one does.
    pub inside: bool,
}

impl Read {
    /// Takes away its last bytes, as many of them as there are. Then there is more than it has.
    pub(crate) fn shorten(&mut self, bytes: u64) {
        let mut excess = bytes;
        self.at_tail &= bytes == 0;
        while let Some(last) = self.pieces.last_mut().filter(|_| excess > 0) {
            let taken = excess.min(last.len() as u64);
            // At most the piece's own length.
            last.truncate(last.len() - taken as usize);
            (excess, self.next) = (excess - taken, self.next - taken);
            if last.is_empty() {
                self.pieces.pop();
            }
        }
    }
}

/// What a search by time came to.
#[derive(Debug)]
pub enum TimeSearch {
    /// The first record of that time or a later one begins there; the visible tail as it is now if every
    /// record is older.
    At(u64),
    /// It takes a search that may wait for a disk: once this is done elsewhere, ask again.
    Cold(Work),
}

/// A note beside a stream's payload: its key and its value.
pub type Note = (Box<[u8]>, Arc<[u8]>);

/// Part of a listing.
#[derive(Debug)]
pub enum Page<T> {
    /// Streams with their names, in the order of the names as bytes.
    Streams(Vec<(Box<[u8]>, T)>),
    /// The order is not made yet: once this is done elsewhere, ask again.
    Cold(Work),
}

/// What a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// What an acknowledged commit survives: `sync`, `os` or `memory`.
    pub durability: &'static str,
    /// Streams in the catalogue, the server's own and those retained for forks included.
    pub streams: u64,
    /// Bytes taken for segments, preallocated ones included, and for what is settled of them.
    pub stored_bytes: u64,
    /// Bytes of records that some stream still needs; what was let go of counts for up to 256 KiB of a stream
    /// longer.
    pub kept_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Spans found damaged when the store was opened, and those that a read came upon since.
    pub damaged_spans: u64,
    /// Records appended since then.
    pub records: u64,
    /// Commits since then.
    pub commits: u64,
    /// Commits since then that the disk had no room for.
    pub refused_commits: u64,
    /// A write or a sync failed: nothing is written until the server is started again.
    pub failed: bool,
}

/// An engine that keeps streams. Cheap to clone; every call returns without waiting for a disk.
pub trait Store: Clone + Send + 'static {
    /// A handle on one stream, valid after deletion too (its calls then say [`StoreError::Gone`]).
    type Stream: Clone + Send;

    /// The same store for a thread that is no reactor: what is committed there becomes durable by itself, and
    /// no reactor is told of that.
    fn apart(&self) -> Self {
        self.clone()
    }

    /// Whether a write or a sync failed, so that it takes no writes any more.
    fn has_failed(&self) -> bool;

    /// The stream of that name, staged or visible.
    fn find(&self, name: &[u8]) -> Option<Self::Stream>;

    /// Creates a stream, with first content and possibly closed at once; as a fork, the content comes behind
    /// what is inherited, and nothing is copied.
    ///
    /// # Errors
    /// [`StoreError::Exists`] unless the name is free in the staged view; [`StoreError::SourceGone`] and
    /// [`StoreError::PastEnd`] when the source cannot be forked there, [`StoreError::Purged`] when it can no
    /// longer.
    fn create(
        &self,
        name: &[u8],
        config: &Config,
        fork: Option<&Fork<Self::Stream>>,
        first: &Commit<'_>,
    ) -> Result<(Self::Stream, Receipt), StoreError>;

    /// Applies one commit if the stream's staged version is still `expected`.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it is not.
    fn commit(
        &self,
        stream: &Self::Stream,
        expected: u64,
        commit: &Commit<'_>,
    ) -> Result<Receipt, StoreError>;

    /// Deletes the stream if its staged version is still `expected`. While others inherit from it, it is
    /// [retained](Store::retained).
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it is not.
    fn delete(&self, stream: &Self::Stream, expected: u64, time_us: u64) -> Result<Receipt, StoreError>;

    /// Identity of this incarnation of the name, never reused. Grows.
    fn incarnation(&self, stream: &Self::Stream) -> u64;

    /// The incarnation that an offset's token names: the stream's own above its base, and below that
    /// the one that the source names there. Grows with the offset.
    fn owner(&self, stream: &Self::Stream, offset: u64) -> u64;

    /// Where the stream branches off; `None` unless it is a fork.
    fn fork(&self, stream: &Self::Stream) -> Option<Fork<Self::Stream>>;

    /// Deleted, and kept under its name because others inherit from it.
    fn retained(&self, stream: &Self::Stream) -> bool;

    /// What is left of one record from `from` on, in the staged view; nothing at the staged end.
    ///
    /// # Errors
    /// As [`Store::read`].
    fn record(&self, stream: &Self::Stream, from: u64) -> Result<Read, StoreError>;

    /// What the stream was created with.
    fn config(&self, stream: &Self::Stream) -> Config;

    /// The staged view; `None` once a delete is staged.
    fn staged(&self, stream: &Self::Stream) -> Option<State>;

    /// The visible view; `None` before the create or after the delete became durable.
    fn visible(&self, stream: &Self::Stream) -> Option<State>;

    /// A producer's staged place in the stream.
    fn producer(&self, stream: &Self::Stream, id: &[u8]) -> Option<ProducerState>;

    /// Some of it is known not to read as it was written, so that reads and writes of it are refused.
    fn is_damaged(&self, stream: &Self::Stream) -> bool;

    /// The staged notes, ordered by key.
    fn notes(&self, stream: &Self::Stream) -> Vec<Note>;

    /// Visits every stream with its name, in no order. The visitor must not call the store.
    fn visit(&self, visitor: &mut dyn FnMut(&[u8], &Self::Stream));

    /// At most `limit` streams whose names begin with `prefix` and sort behind `after`, those that are not
    /// visible included.
    fn page(&self, prefix: &[u8], after: &[u8], limit: usize) -> Page<Self::Stream>;

    /// What the store holds, without visiting a stream.
    fn stats(&self) -> Stats;

    /// Streams in the catalogue, as [`Store::stats`] counts them: cheap enough to ask before each create.
    fn streams(&self) -> u64 {
        self.stats().streams
    }

    /// The ticket after which everything staged so far on this stream is durable; 0 if it is already. In a
    /// store that failed it never completes, and whoever waits is told of that as of every other ticket.
    ///
    /// # Errors
    /// The store cannot say when that will be.
    fn ticket(&self, stream: &Self::Stream) -> Result<u64, StoreError>;

    /// Visible payload from `from`, at most about `limit` bytes but at least one record if there is one.
    /// Ends on a record boundary unless a single record exceeds the limit in a byte stream.
    ///
    /// # Errors
    /// [`StoreError::Gone`], [`StoreError::Purged`], [`StoreError::PastEnd`], [`StoreError::Damaged`].
    fn read(&self, stream: &Self::Stream, from: u64, limit: usize) -> Result<Read, StoreError>;

    /// Where the first visible record of a time or a later one begins, microseconds since the epoch.
    ///
    /// # Errors
    /// [`StoreError::Gone`], [`StoreError::Damaged`].
    fn since(&self, stream: &Self::Stream, time_us: u64) -> Result<TimeSearch, StoreError>;

    /// What a read of these bytes would have to wait for, as work for another thread; `None` when it would
    /// not wait.
    fn cold(&self, stream: &Self::Stream, from: u64, limit: usize) -> Option<Work>;

    /// Microseconds since the epoch of the last access, which a sliding lifetime counts from.
    fn accessed(&self, stream: &Self::Stream) -> u64;

    /// Counts as an access now: renews a sliding lifetime. Soft state, never a write.
    fn touch(&self, stream: &Self::Stream, time_us: u64);

    /// Announce movements of the stream (commit, close, delete becoming visible) to this caller's reactor.
    fn watch(&self, stream: &Self::Stream);

    /// Stop announcing.
    fn unwatch(&self, stream: &Self::Stream);

    /// An announcement was taken up; the next movement announces again.
    fn acknowledge(&self, stream: &Self::Stream);

    /// A number that grows with every commit of any writer.
    fn writes(&self) -> u64 {
        0
    }

    /// The caller's turn is over: what it committed is to become durable without its doing anything more.
    fn turn_ended(&self) {}
}
