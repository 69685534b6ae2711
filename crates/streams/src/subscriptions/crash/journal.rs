//! The real engine, with a journal of what it was told to keep, and mistakes that it makes on purpose; and
//! a relay of what it announces.

use crate::embedded::Embedded;
use crate::store::{
    Commit, Config, Fork, Note, Page, ProducerState, Read, Receipt, State, Stats, TimeSearch,
};
use crate::store::{Store, StoreError};
use crate::subscriptions::subscription::Subscription;
use crate::subscriptions::{Subscriptions, encoding};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock, Weak};
use thalweg_log as log;
use thalweg_wire::exchange::Work;

/// Mistakes that the simulation must catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// A change is said to be kept and is not.
    Forget,
    /// Answers leave before what they tell is durable.
    Early,
    /// A change of several notes is kept in several commits.
    Torn,
}

/// A subscription as a commit left it: the commit's end, the identifier, and what the notes tell.
pub(super) type Entry = (u64, String, Option<Subscription>);

/// The real engine, with a journal of what it was told to keep.
#[derive(Clone)]
pub(super) struct Journaled {
    pub(super) inner: Embedded,
    pub(super) journal: Arc<Mutex<Vec<Entry>>>,
    pub(super) fault: Fault,
}

impl Journaled {
    fn entered(&self, name: &[u8], stream: &Arc<log::Log>, mut receipt: Receipt) -> Receipt {
        if let Some(id) = encoding::id_of(name) {
            let alive = self.inner.staged(stream).is_some();
            let notes = self.inner.notes(stream);
            let kept =
                alive.then(|| encoding::decode(id, &notes).expect("what was written is not understood"));
            let state = kept.flatten().map(|kept| kept.subscription);
            self.journal.lock().push((receipt.ticket, id.to_owned(), state));
        }
        if self.fault == Fault::Early {
            receipt.ticket = 0;
        }
        receipt
    }
}

macro_rules! delegate {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        $(fn $name(&self, $($argument: $type),*) $(-> $answer)? { self.inner.$name($($argument),*) })*
    };
}

impl Store for Journaled {
    type Stream = Arc<log::Log>;

    fn create(
        &self,
        name: &[u8],
        config: &Config,
        fork: Option<&Fork<Self::Stream>>,
        first: &Commit<'_>,
    ) -> Result<(Self::Stream, Receipt), StoreError> {
        let (stream, receipt) = self.inner.create(name, config, fork, first)?;
        let receipt = self.entered(name, &stream, receipt);
        Ok((stream, receipt))
    }

    fn commit(
        &self,
        stream: &Self::Stream,
        expected: u64,
        commit: &Commit<'_>,
    ) -> Result<Receipt, StoreError> {
        let keeps = encoding::id_of(stream.name()).is_some();
        if self.fault == Fault::Forget && keeps && commit.time_us.is_multiple_of(3) {
            return Ok(Receipt { ticket: 0, first: 0, next: 0 });
        }
        let mut expected = expected;
        let mut commit = commit.clone();
        if self.fault == Fault::Torn && commit.notes.len() > 1 {
            let (first, rest) = commit.notes.split_at(1);
            self.inner.commit(stream, expected, &Commit { notes: first, ..commit.clone() })?;
            expected += 1;
            commit.notes = rest;
        }
        let receipt = self.inner.commit(stream, expected, &commit)?;
        Ok(self.entered(stream.name(), stream, receipt))
    }

    fn delete(&self, stream: &Self::Stream, expected: u64, time_us: u64) -> Result<Receipt, StoreError> {
        let receipt = self.inner.delete(stream, expected, time_us)?;
        Ok(self.entered(stream.name(), stream, receipt))
    }

    fn ticket(&self, stream: &Self::Stream) -> Result<u64, StoreError> {
        if self.fault == Fault::Early { Ok(0) } else { self.inner.ticket(stream) }
    }

    delegate! {
        fn find(name: &[u8]) -> Option<Self::Stream>;
        fn incarnation(stream: &Self::Stream) -> u64;
        fn owner(stream: &Self::Stream, offset: u64) -> u64;
        fn fork(stream: &Self::Stream) -> Option<Fork<Self::Stream>>;
        fn retained(stream: &Self::Stream) -> bool;
        fn record(stream: &Self::Stream, from: u64) -> Result<Read, StoreError>;
        fn config(stream: &Self::Stream) -> Config;
        fn staged(stream: &Self::Stream) -> Option<State>;
        fn visible(stream: &Self::Stream) -> Option<State>;
        fn producer(stream: &Self::Stream, id: &[u8]) -> Option<ProducerState>;
        fn is_damaged(stream: &Self::Stream) -> bool;
        fn notes(stream: &Self::Stream) -> Vec<Note>;
        fn visit(visitor: &mut dyn FnMut(&[u8], &Self::Stream));
        fn page(prefix: &[u8], after: &[u8], limit: usize) -> Page<Self::Stream>;
        fn stats() -> Stats;
        fn has_failed() -> bool;
        fn read(stream: &Self::Stream, from: u64, limit: usize) -> Result<Read, StoreError>;
        fn since(stream: &Self::Stream, time_us: u64) -> Result<TimeSearch, StoreError>;
        fn cold(stream: &Self::Stream, from: u64, limit: usize) -> Option<Work>;
        fn accessed(stream: &Self::Stream) -> u64;
        fn touch(stream: &Self::Stream, time_us: u64);
        fn watch(stream: &Self::Stream);
        fn unwatch(stream: &Self::Stream);
        fn acknowledge(stream: &Self::Stream);
    }
}

/// Tells subscriptions what the log announces to their driver.
#[derive(Default)]
pub(super) struct Announce(pub(super) OnceLock<Weak<Subscriptions<Journaled>>>);

impl Announce {
    fn tell(&self, say: impl FnOnce(&Subscriptions<Journaled>)) {
        if let Some(shared) = self.0.get().and_then(Weak::upgrade) {
            say(&shared);
        }
    }
}

impl log::Watch for Announce {
    fn complete(&self, _: log::Position) {
        self.tell(Subscriptions::settled);
    }

    fn failed(&self) {}

    fn advanced(&self, id: log::LogId) {
        self.tell(|shared| shared.moved(id));
    }
}
