//! The embedded log as an engine: the seam's words translated into the log's, nothing more.

use crate::store::{
    Commit, Config, Fork, Lifetime, Note, Page, ProducerMark, ProducerState, Read, Receipt, State, Stats,
    Store, StoreError, TimeSearch,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_log as log;
use thalweg_wire::exchange::{Pieces, Work};
use thalweg_wire::piece::Piece;

const _: () =
    assert!(matches!(log::RETAIN_NOTE, b"\0retain") && matches!(crate::store::RETAIN_NOTE, b"\0retain"));

/// What the log keeps in place of an anchor that was not asked for; no offset is that large.
const ANCHOR_OMITTED: u64 = u64::MAX;

/// Bytes that a reactor looks through for a time, behind what was searched elsewhere.
const NEAR_BYTES_MAX: usize = 64 << 10;

/// One reactor's view of a store: its commits complete, and its subscriptions are announced, to the
/// watcher it was made with.
#[derive(Clone)]
pub struct Embedded {
    store: log::Store,
    watcher: Option<log::WatcherId>,
    searches: Arc<Searches>,
}

impl Embedded {
    /// The store as the reactor `watcher` sees it, to which commits are announced; without one none are.
    pub fn new(store: log::Store, watcher: Option<log::WatcherId>) -> Embedded {
        Embedded { store, watcher, searches: Arc::default() }
    }

    /// Whether what came behind an offset is in memory, and little enough to be walked on the spot.
    fn is_near(&self, stream: &log::Log, from: u64, tail: u64) -> bool {
        let bytes = tail.checked_sub(from).and_then(|bytes| usize::try_from(bytes).ok());
        let few = bytes.filter(|bytes| *bytes <= NEAR_BYTES_MAX);
        few.is_some_and(|bytes| self.store.needs_disk(stream, from, bytes).is_none())
    }
}

/// Searches by time that were done elsewhere and are asked for again, the oldest first. Those that were not
/// asked for again yet are kept longest; one that is forgotten is done anew.
#[derive(Default)]
struct Searches(Mutex<VecDeque<Search>>);

/// One of them.
struct Search {
    question: Question,
    found: SearchResult,
    /// A reader was told of it.
    told: bool,
}

/// A log, and the time that is searched for.
type Question = (log::LogId, u64);

/// What a search came to.
#[derive(Clone)]
enum SearchResult {
    /// The first record of that time or a later one begins there.
    First(u64),
    /// Every record below is older.
    OlderBelow(u64),
    Failed(StoreError),
}

impl Searches {
    /// As many as reads of two reactors may wait for the disk: so many at once find what was found for them,
    /// and of more some search anew.
    const MAX: usize = 1_024;

    fn keep(&self, question: Question, found: SearchResult) {
        let mut done = self.0.lock();
        done.retain(|search| search.question != question);
        if done.len() == Self::MAX {
            let place = done.iter().position(|search| search.told).unwrap_or(0);
            done.remove(place);
        }
        done.push_back(Search { question, found, told: false });
    }

    /// What was found: a record that was the first of its time stays it, until it lies below `first` and is
    /// let go of. Anything else is told once.
    fn take(&self, question: Question, first: u64) -> Option<SearchResult> {
        let mut done = self.0.lock();
        done.retain(|search| {
            search.question.0 != question.0
                || !matches!(search.found, SearchResult::First(offset) if offset < first)
        });
        let place = done.iter().position(|search| search.question == question)?;
        let search = &mut done[place];
        if matches!(search.found, SearchResult::First(_)) {
            search.told = true;
            return Some(search.found.clone());
        }
        done.remove(place).map(|search| search.found)
    }
}

/// Searches a log, the part of it from an offset on if one is given.
fn search(store: &log::Store, stream: &Arc<log::Log>, from: Option<u64>, time_us: u64) -> SearchResult {
    // Before the search: what comes in its course it may have missed.
    let tail = stream.visible().map_or(0, |state| state.tail);
    let first = match from {
        Some(from) => store.since_behind(stream, from, time_us),
        None => store.since(stream, time_us),
    };
    match first {
        Ok(Some(offset)) => SearchResult::First(offset),
        Ok(None) => SearchResult::OlderBelow(tail),
        Err(error) => SearchResult::Failed(not_read(error)),
    }
}

fn version(version: u64) -> u32 {
    // The log counts in 32 bits and wraps; a version is only ever compared for equality.
    version as u32
}

fn producer(state: ProducerState) -> log::Producer {
    log::Producer { epoch: state.epoch, seq: state.seq }
}

fn producer_state(producer: log::Producer) -> ProducerState {
    ProducerState { epoch: producer.epoch, seq: producer.seq }
}

fn commit<'a>(commit: &Commit<'a>) -> log::Commit<'a> {
    log::Commit {
        payload: commit.payload,
        suffix: commit.suffix,
        producer: commit.producer.map(|(id, state)| (id, producer(state))),
        writer_seq: commit.writer_seq,
        notes: commit.notes,
        close: commit.close,
        trim: None,
        time: commit.time_us,
    }
}

fn receipt(receipt: log::Receipt) -> Receipt {
    Receipt { ticket: receipt.ticket, first: receipt.first, next: receipt.next }
}

fn state(state: log::State) -> State {
    State {
        version: state.version.into(),
        base: state.base,
        first: state.first,
        tail: state.tail,
        closed: state.closed,
        closed_by: state.closed_by.map(|by| ProducerMark { id: by.id, state: producer_state(by.producer) }),
        writer_seq: state.writer_seq,
    }
}

fn not_applied(error: log::CommitError) -> StoreError {
    match error {
        log::CommitError::Conflict { .. } | log::CommitError::LogClosed => StoreError::Conflict,
        log::CommitError::Exists => StoreError::Exists,
        log::CommitError::Deleted => StoreError::Gone,
        log::CommitError::ParentDeleted => StoreError::SourceGone,
        log::CommitError::PastEnd { .. } => StoreError::PastEnd,
        log::CommitError::Purged { .. } => StoreError::Purged,
        log::CommitError::Damaged(damage) => StoreError::Damaged(damage.to_string()),
        log::CommitError::TooLarge { size, limit } => StoreError::TooLarge { size, limit },
        log::CommitError::Full(why) => StoreError::Full(why),
        log::CommitError::Io(why) => StoreError::Io(why),
        // A store that failed or is closed, and errors that the rules never cause: their commits are by
        // version, may be empty and are to one log; they use the store's own tickets and logs and valid
        // names, purge nothing and destroy nothing with a transaction under way.
        error @ (log::CommitError::Failed(_)
        | log::CommitError::Closed
        | log::CommitError::EmptyEntry
        | log::CommitError::BadName { .. }
        | log::CommitError::NoTicket { .. }
        | log::CommitError::NoLog { .. }
        | log::CommitError::OtherStore
        | log::CommitError::BadPurge
        | log::CommitError::TooManyLogs { .. }
        | log::CommitError::Pending { .. }) => StoreError::Poisoned(error.to_string()),
    }
}

fn read(read: log::Read) -> Read {
    let piece = |piece: log::ReadPiece| match piece.file {
        Some((file, at)) => Piece::held(piece.bytes, file, at),
        None => Piece::from(piece.bytes),
    };
    let mut pieces = Pieces::new();
    if read.pieces.len() > 1 {
        // One allocation, with room for the brackets that come around messages.
        pieces.reserve_exact(read.pieces.len() + 2);
    }
    pieces.extend(read.pieces.into_iter().map(piece));
    Read { pieces, next: read.next, at_tail: read.at_tail, closed: read.closed, inside: read.inside }
}

fn not_read(error: log::ReadError) -> StoreError {
    match error {
        log::ReadError::Deleted => StoreError::Gone,
        log::ReadError::Purged { .. } => StoreError::Purged,
        log::ReadError::PastEnd { .. } => StoreError::PastEnd,
        error @ (log::ReadError::Damaged(_) | log::ReadError::Io { .. } | log::ReadError::OtherStore) => {
            StoreError::Damaged(error.to_string())
        }
    }
}

impl Store for Embedded {
    type Stream = Arc<log::Log>;

    fn apart(&self) -> Self {
        Self { watcher: None, ..self.clone() }
    }

    fn find(&self, name: &[u8]) -> Option<Self::Stream> {
        self.store.find(name)
    }

    fn create(
        &self,
        name: &[u8],
        config: &Config,
        fork: Option<&Fork<Self::Stream>>,
        first: &Commit<'_>,
    ) -> Result<(Self::Stream, Receipt), StoreError> {
        let lifetime = match config.lifetime {
            Lifetime::Unlimited => log::Lifetime::Unlimited,
            Lifetime::Sliding { ttl_s } => log::Lifetime::Sliding { ttl_s },
            Lifetime::Until { expires_us } => log::Lifetime::Until { expires_us },
        };
        let config = log::Config { content_type: config.content_type.clone(), lifetime };
        let fork = fork.map(|fork| log::Fork {
            parent: fork.source.clone(),
            at: fork.base,
            asked: [fork.anchor.unwrap_or(ANCHOR_OMITTED), fork.sub_offset],
        });
        let created = self.store.create(name, &config, fork.as_ref(), &commit(first), self.watcher);
        created.map(|(stream, taken)| (stream, receipt(taken))).map_err(not_applied)
    }

    fn commit(
        &self,
        stream: &Self::Stream,
        expected: u64,
        change: &Commit<'_>,
    ) -> Result<Receipt, StoreError> {
        self.store
            .commit(stream, version(expected), &commit(change), self.watcher)
            .map(receipt)
            .map_err(not_applied)
    }

    fn delete(&self, stream: &Self::Stream, expected: u64, time_us: u64) -> Result<Receipt, StoreError> {
        self.store.delete(stream, version(expected), time_us, self.watcher).map(receipt).map_err(not_applied)
    }

    fn incarnation(&self, stream: &Self::Stream) -> u64 {
        stream.id()
    }

    fn owner(&self, stream: &Self::Stream, offset: u64) -> u64 {
        stream.owner(offset)
    }

    fn fork(&self, stream: &Self::Stream) -> Option<Fork<Self::Stream>> {
        let log::Fork { parent, at, asked: [anchor, sub_offset] } = stream.fork()?;
        let anchor = (anchor != ANCHOR_OMITTED).then_some(anchor);
        Some(Fork { source: parent, base: at, anchor, sub_offset })
    }

    fn retained(&self, stream: &Self::Stream) -> bool {
        stream.is_tombstone()
    }

    fn record(&self, stream: &Self::Stream, from: u64) -> Result<Read, StoreError> {
        self.store.record(stream, from).map(read).map_err(not_read)
    }

    fn config(&self, stream: &Self::Stream) -> Config {
        let config = stream.config();
        let lifetime = match config.lifetime {
            log::Lifetime::Unlimited => Lifetime::Unlimited,
            log::Lifetime::Sliding { ttl_s } => Lifetime::Sliding { ttl_s },
            log::Lifetime::Until { expires_us } => Lifetime::Until { expires_us },
        };
        Config { content_type: config.content_type.clone(), lifetime }
    }

    fn staged(&self, stream: &Self::Stream) -> Option<State> {
        stream.staged().map(state)
    }

    fn visible(&self, stream: &Self::Stream) -> Option<State> {
        stream.visible().map(state)
    }

    fn producer(&self, stream: &Self::Stream, id: &[u8]) -> Option<ProducerState> {
        stream.producer(id).map(producer_state)
    }

    fn is_damaged(&self, stream: &Self::Stream) -> bool {
        stream.is_damaged()
    }

    fn notes(&self, stream: &Self::Stream) -> Vec<Note> {
        stream.notes()
    }

    fn visit(&self, visitor: &mut dyn FnMut(&[u8], &Self::Stream)) {
        self.store.visit(|log| visitor(log.name(), log));
    }

    fn page(&self, prefix: &[u8], after: &[u8], limit: usize) -> Page<Self::Stream> {
        match self.store.page(prefix, after, limit) {
            Some(logs) => Page::Streams(logs.into_iter().map(|log| (log.name().into(), log)).collect()),
            None => {
                let store = self.store.clone();
                Page::Cold(Work(Box::new(move || store.order())))
            }
        }
    }

    fn stats(&self) -> Stats {
        let stats = self.store.stats();
        Stats {
            durability: self.store.durability().name(),
            streams: stats.logs,
            stored_bytes: stats.segment_bytes + stats.settled_bytes,
            kept_bytes: stats.live_bytes,
            segments: stats.segments,
            damaged_spans: self.store.damage().len() as u64,
            records: stats.entries,
            commits: stats.batches,
            refused_commits: stats.failures,
            failed: stats.failed,
        }
    }

    fn has_failed(&self) -> bool {
        self.store.has_failed()
    }

    fn streams(&self) -> u64 {
        self.store.logs_count()
    }

    fn ticket(&self, stream: &Self::Stream) -> Result<u64, StoreError> {
        let ticket = stream.last();
        match self.store.wait_for(ticket, self.watcher) {
            // It never gets there, which its watcher knows.
            Err(log::CommitError::Failed(_)) => Ok(ticket),
            waits => waits.map_err(not_applied),
        }
    }

    fn read(&self, stream: &Self::Stream, from: u64, limit: usize) -> Result<Read, StoreError> {
        self.store.read(stream, from, limit).map(read).map_err(not_read)
    }

    fn since(&self, stream: &Self::Stream, time_us: u64) -> Result<TimeSearch, StoreError> {
        let (first, tail) = stream.visible().map_or((0, 0), |state| (state.first, state.tail));
        let question = (stream.id(), time_us);
        let mut found = self.searches.take(question, first);
        if let Some(SearchResult::OlderBelow(searched)) = found
            && self.is_near(stream, searched, tail)
        {
            // At once, so that a stream that grows all the time is not searched for ever.
            let again = search(&self.store, stream, Some(searched), time_us);
            self.searches.keep(question, again.clone());
            found = Some(again);
        }
        match found {
            Some(SearchResult::First(offset)) => Ok(TimeSearch::At(offset)),
            Some(SearchResult::OlderBelow(searched)) if searched >= tail => Ok(TimeSearch::At(searched)),
            Some(SearchResult::Failed(error)) => Err(error),
            Some(SearchResult::OlderBelow(_)) | None => {
                let (store, stream, searches) = (self.store.clone(), stream.clone(), self.searches.clone());
                Ok(TimeSearch::Cold(Work(Box::new(move || {
                    searches.keep(question, search(&store, &stream, None, time_us));
                }))))
            }
        }
    }

    fn cold(&self, stream: &Self::Stream, from: u64, limit: usize) -> Option<Work> {
        let prefetch = self.store.needs_disk(stream, from, limit)?;
        Some(Work(Box::new(move || prefetch.run())))
    }

    fn accessed(&self, stream: &Self::Stream) -> u64 {
        stream.accessed()
    }

    fn touch(&self, stream: &Self::Stream, time_us: u64) {
        stream.touch(time_us);
    }

    fn watch(&self, stream: &Self::Stream) {
        if let Some(watcher) = self.watcher {
            stream.watch(watcher);
        }
    }

    fn unwatch(&self, stream: &Self::Stream) {
        if let Some(watcher) = self.watcher {
            stream.unwatch(watcher);
        }
    }

    fn acknowledge(&self, stream: &Self::Stream) {
        if let Some(watcher) = self.watcher {
            stream.acknowledge(watcher);
        }
    }

    fn writes(&self) -> u64 {
        self.store.staged_end()
    }

    fn turn_ended(&self) {
        if let Some(watcher) = self.watcher {
            self.store.end_turn(watcher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::body;
    use thalweg_wire::media::Kind;

    #[test]
    fn there_is_room_from_the_start_for_the_brackets_around_pieces() {
        for count in 2..10 {
            let piece = log::ReadPiece { bytes: (&b"1,"[..]).into(), file: None };
            let pieces = std::iter::repeat_n(piece, count).collect();
            let read = read(log::Read {
                pieces,
                next: log::Offset::default(),
                at_tail: true,
                closed: false,
                inside: false,
            });
            assert_eq!(read.pieces.capacity(), count + 2);
            assert_eq!(body(Kind::Json, read.pieces).len(), count + 2);
        }
    }
}
