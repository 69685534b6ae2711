//! A plain model of a store for tests: vectors and maps behind one lock, durability moved by hand.

use crate::store::{
    Commit, Config, Fork, Note, Page, ProducerMark, ProducerState, Read, Receipt, State, Stats, Store,
    StoreError, TimeSearch,
};
use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use thalweg_wire::exchange::Work;
use thalweg_wire::media;

#[derive(Clone, Default)]
pub(crate) struct Model(Arc<Mutex<Inner>>);

/// The name of a stream, and what happens before it is looked for.
type Meanwhile = (Vec<u8>, Box<dyn FnOnce() + Send>);

#[derive(Default)]
struct Inner {
    streams: Vec<Entry>,
    names: HashMap<Vec<u8>, usize>,
    ticket: u64,
    durable: u64,
    lagging: bool,
    rivals: u32,
    renewal_us: Option<u64>,
    trim: Option<u64>,
    fault: Option<StoreError>,
    damage: Option<StoreError>,
    writes: u64,
    finds: u64,
    meanwhile: Option<Meanwhile>,
    announced: Vec<(usize, &'static str)>,
    cold: Arc<Mutex<bool>>,
}

struct Entry {
    config: Config,
    fork: Option<Fork<usize>>,
    data: Vec<u8>,
    /// Where each record ends, and its time.
    records: Vec<(usize, u64)>,
    /// Each view with the ticket that makes it visible.
    views: Vec<(u64, Option<State>)>,
    producers: HashMap<Vec<u8>, ProducerState>,
    notes: BTreeMap<Box<[u8]>, Arc<[u8]>>,
    accessed_us: u64,
}

impl Entry {
    /// Whether an offset lies inside a record.
    fn splits(&self, offset: u64) -> bool {
        let mut ends = self.records.iter().map(|(end, _)| *end as u64);
        offset > 0 && offset < self.data.len() as u64 && ends.all(|end| end != offset)
    }
}

impl Model {
    /// From now on commits wait for [`Model::settle`].
    pub(crate) fn lag(&self) {
        self.0.lock().lagging = true;
    }

    /// Makes everything staged durable; the ticket that is complete now.
    pub(crate) fn settle(&self) -> u64 {
        let mut inner = self.0.lock();
        inner.durable = inner.ticket;
        inner.durable
    }

    /// The next `count` commits find that somebody else appended `R` first.
    pub(crate) fn rivals(&self, count: u32) {
        self.0.lock().rivals = count;
    }

    /// Behind the next look at when a stream was accessed somebody appends `R`, at that time.
    pub(crate) fn renew_behind(&self, time_us: u64) {
        self.0.lock().renewal_us = Some(time_us);
    }

    /// Before the next read, or look at what a fork begins with, retention takes of that stream what lies
    /// below an offset.
    pub(crate) fn trim_behind(&self, first: u64) {
        self.0.lock().trim = Some(first);
    }

    /// Every write fails from now on.
    pub(crate) fn fail(&self, fault: Option<StoreError>) {
        self.0.lock().fault = fault;
    }

    /// Every read by offset fails from now on.
    pub(crate) fn damage(&self, damage: StoreError) {
        self.0.lock().damage = Some(damage);
    }

    /// Nothing is in memory until the work that a cold read names is done.
    pub(crate) fn cool(&self) {
        *self.0.lock().cold.lock() = true;
    }

    /// Creates a stream of the server's own, whose name no request can say.
    pub(crate) fn own(&self, name: &str) {
        let config = Config { content_type: "x/y".into(), lifetime: crate::store::Lifetime::Unlimited };
        self.create(name.as_bytes(), &config, None, &Commit::default()).unwrap();
    }

    /// Creates, commits and deletes so far.
    pub(crate) fn writes(&self) -> u64 {
        self.0.lock().writes
    }

    /// Streams looked for by name so far.
    pub(crate) fn finds(&self) -> u64 {
        self.0.lock().finds
    }

    /// Before a stream of that name is looked for the next time something else happens.
    pub(crate) fn meanwhile(&self, name: &str, happens: impl FnOnce() + Send + 'static) {
        self.0.lock().meanwhile = Some((name.into(), Box::new(happens)));
    }

    pub(crate) fn announced(&self) -> Vec<(usize, &'static str)> {
        self.0.lock().announced.clone()
    }

    /// The bytes a stream holds, as stored.
    pub(crate) fn stored(&self, name: &str) -> Vec<u8> {
        let inner = self.0.lock();
        inner.streams[inner.names[name.as_bytes()]].data.clone()
    }
}

impl Inner {
    fn view(&self, stream: usize, upto: u64) -> Option<&State> {
        let views = &self.streams[stream].views;
        views.iter().rev().find(|(ticket, _)| *ticket <= upto).and_then(|(_, state)| state.as_ref())
    }

    fn staged(&self, stream: usize) -> Option<&State> {
        self.view(stream, u64::MAX)
    }

    /// Nothing of it is left: deleted as readers see it, and so is whatever inherits from it.
    fn is_gone(&self, stream: usize) -> bool {
        self.view(stream, self.durable).is_none() && self.staged(stream).is_none() && !self.retained(stream)
    }

    fn retained(&self, stream: usize) -> bool {
        let inherits = |entry: &Entry| entry.fork.as_ref().is_some_and(|fork| fork.source == stream);
        let mut forks = (0..self.streams.len()).filter(|other| inherits(&self.streams[*other]));
        self.staged(stream).is_none() && forks.any(|fork| !self.is_gone(fork))
    }

    /// What the log looks at last: what stands in the way of a commit by itself is said even where nothing
    /// can be written.
    fn admit(&self, commit: &Commit<'_>) -> Result<(), StoreError> {
        let size = commit.notes.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() as u64;
        let limit = thalweg_log::NOTES_BYTES_MAX as u64;
        if size > limit {
            return Err(StoreError::TooLarge { size, limit });
        }
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// Lets go of what retention takes behind somebody's back, and whether an offset is still there.
    fn reach(&mut self, stream: usize, from: u64) -> Result<(), StoreError> {
        if let Some(first) = self.trim.take() {
            let states = self.streams[stream].views.iter_mut().filter_map(|(_, state)| state.as_mut());
            states.for_each(|state| state.first = first);
        }
        let first = self.staged(stream).map_or(0, |state| state.first);
        if from < first { Err(StoreError::Purged) } else { Ok(()) }
    }

    fn stage(&mut self, stream: usize, state: Option<State>) -> u64 {
        self.ticket += 1;
        self.writes += 1;
        self.streams[stream].views.push((self.ticket, state));
        if self.lagging {
            return self.ticket;
        }
        self.durable = self.ticket;
        0
    }

    fn apply(&mut self, stream: usize, mut state: State, commit: &Commit<'_>) -> Receipt {
        let entry = &mut self.streams[stream];
        let first = state.tail;
        entry.data.extend_from_slice(commit.payload);
        entry.data.extend_from_slice(commit.suffix);
        state.tail = entry.data.len() as u64;
        if state.tail > first {
            entry.records.push((entry.data.len(), commit.time_us));
        }
        state.version += 1;
        if let Some((id, place)) = commit.producer {
            entry.producers.insert(id.to_vec(), place);
        }
        for (key, value) in commit.notes {
            match value {
                [] => entry.notes.remove(*key),
                value => entry.notes.insert((*key).into(), (*value).into()),
            };
        }
        if let Some(seq) = commit.writer_seq {
            state.writer_seq = Some(seq.into());
        }
        if commit.close {
            state.closed = true;
            state.closed_by = commit.producer.map(|(id, state)| ProducerMark { id: id.into(), state });
        }
        entry.accessed_us = commit.time_us;
        let next = state.tail;
        Receipt { ticket: self.stage(stream, Some(state)), first, next }
    }
}

impl Store for Model {
    type Stream = usize;

    fn find(&self, name: &[u8]) -> Option<usize> {
        let meanwhile = self.0.lock().meanwhile.take_if(|(awaited, _)| *awaited == name);
        if let Some((_, happens)) = meanwhile {
            happens();
        }
        let mut inner = self.0.lock();
        inner.finds += 1;
        inner.names.get(name).copied()
    }

    fn create(
        &self,
        name: &[u8],
        config: &Config,
        fork: Option<&Fork<usize>>,
        first: &Commit<'_>,
    ) -> Result<(usize, Receipt), StoreError> {
        let mut inner = self.0.lock();
        if let Some(stream) = inner.names.get(name)
            && (inner.staged(*stream).is_some() || inner.retained(*stream))
        {
            return Err(StoreError::Exists);
        }
        let (mut data, mut records, base) = (Vec::new(), Vec::new(), fork.map_or(0, |fork| fork.base));
        if let Some(fork) = fork {
            // A plain copy: what the real store must look like.
            inner.staged(fork.source).ok_or(StoreError::SourceGone)?;
            inner.reach(fork.source, base)?;
            let source = inner.staged(fork.source).ok_or(StoreError::SourceGone)?;
            if base > source.tail {
                return Err(StoreError::PastEnd);
            }
            let (source, base) = (&inner.streams[fork.source], base as usize);
            data.extend_from_slice(&source.data[..base]);
            records.extend(source.records.iter().copied().filter(|(end, _)| *end < base));
            let cut = source.records.iter().find(|(end, _)| *end >= base).filter(|_| base > 0);
            records.extend(cut.map(|(_, time_us)| (base, *time_us)));
        }
        inner.admit(first)?;
        let stream = inner.streams.len();
        inner.streams.push(Entry {
            config: config.clone(),
            fork: fork.cloned(),
            data,
            records,
            views: Vec::new(),
            producers: HashMap::new(),
            notes: BTreeMap::new(),
            accessed_us: first.time_us,
        });
        inner.names.insert(name.to_vec(), stream);
        let empty = State {
            version: 0,
            base,
            first: 0,
            tail: base,
            closed: false,
            closed_by: None,
            writer_seq: None,
        };
        let receipt = inner.apply(stream, empty, first);
        Ok((stream, receipt))
    }

    fn commit(&self, stream: &usize, expected: u64, commit: &Commit<'_>) -> Result<Receipt, StoreError> {
        let mut inner = self.0.lock();
        let Some(mut state) = inner.staged(*stream).cloned() else { return Err(StoreError::Gone) };
        if inner.rivals > 0 {
            inner.rivals -= 1;
            let time_us = commit.time_us;
            inner.apply(*stream, state, &Commit { payload: b"R", time_us, ..Commit::default() });
            inner.writes -= 1;
            state = inner.staged(*stream).cloned().unwrap();
        }
        if state.version != expected {
            return Err(StoreError::Conflict);
        }
        inner.admit(commit)?;
        Ok(inner.apply(*stream, state, commit))
    }

    fn delete(&self, stream: &usize, expected: u64, _time_us: u64) -> Result<Receipt, StoreError> {
        let mut inner = self.0.lock();
        match inner.staged(*stream) {
            None => Err(StoreError::Gone),
            Some(state) if state.version != expected => Err(StoreError::Conflict),
            Some(state) => {
                let tail = state.tail;
                inner.admit(&Commit::default())?;
                Ok(Receipt { ticket: inner.stage(*stream, None), first: tail, next: tail })
            }
        }
    }

    fn incarnation(&self, stream: &usize) -> u64 {
        *stream as u64 + 1
    }

    fn owner(&self, stream: &usize, offset: u64) -> u64 {
        let inner = self.0.lock();
        let mut owner = *stream;
        while let Some(fork) = inner.streams[owner].fork.as_ref().filter(|fork| offset <= fork.base) {
            owner = fork.source;
        }
        self.incarnation(&owner)
    }

    fn fork(&self, stream: &usize) -> Option<Fork<usize>> {
        self.0.lock().streams[*stream].fork.clone()
    }

    fn retained(&self, stream: &usize) -> bool {
        self.0.lock().retained(*stream)
    }

    fn record(&self, stream: &usize, from: u64) -> Result<Read, StoreError> {
        let mut inner = self.0.lock();
        inner.reach(*stream, from)?;
        let state = inner.staged(*stream).ok_or(StoreError::Gone)?;
        let entry = &inner.streams[*stream];
        let next = entry.records.iter().map(|(end, _)| *end).find(|end| *end > from as usize);
        let next = next.unwrap_or(from as usize);
        let piece = Bytes::copy_from_slice(&entry.data[from as usize..next]).into();
        let at_tail = next as u64 == state.tail;
        let (pieces, inside) = (SmallVec::from_iter([piece]), entry.splits(from));
        Ok(Read { pieces, next: next as u64, at_tail, closed: state.closed, inside })
    }

    fn config(&self, stream: &usize) -> Config {
        self.0.lock().streams[*stream].config.clone()
    }

    fn staged(&self, stream: &usize) -> Option<State> {
        self.0.lock().staged(*stream).cloned()
    }

    fn visible(&self, stream: &usize) -> Option<State> {
        let inner = self.0.lock();
        inner.view(*stream, inner.durable).cloned()
    }

    fn producer(&self, stream: &usize, id: &[u8]) -> Option<ProducerState> {
        self.0.lock().streams[*stream].producers.get(id).copied()
    }

    fn is_damaged(&self, _: &usize) -> bool {
        self.0.lock().damage.is_some()
    }

    fn notes(&self, stream: &usize) -> Vec<Note> {
        let inner = self.0.lock();
        inner.streams[*stream].notes.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn visit(&self, visitor: &mut dyn FnMut(&[u8], &usize)) {
        let mut names: Vec<_> = self.0.lock().names.iter().map(|(k, v)| (k.clone(), *v)).collect();
        names.sort_unstable();
        names.iter().for_each(|(name, stream)| visitor(name, stream));
    }

    fn page(&self, prefix: &[u8], after: &[u8], limit: usize) -> Page<usize> {
        if let Some(work) = self.cold(&0, 0, 0) {
            return Page::Cold(work);
        }
        let inner = self.0.lock();
        let mut names: Vec<(Box<[u8]>, usize)> =
            inner.names.iter().map(|(k, v)| (k[..].into(), *v)).collect();
        names.retain(|(name, _)| name.starts_with(prefix) && **name > *after);
        names.sort_unstable();
        names.truncate(limit);
        Page::Streams(names)
    }

    fn streams(&self) -> u64 {
        let inner = self.0.lock();
        inner.names.values().filter(|stream| !inner.is_gone(**stream)).count() as u64
    }

    fn stats(&self) -> Stats {
        let inner = self.0.lock();
        let stored_bytes = inner.streams.iter().map(|entry| entry.data.len() as u64).sum();
        let streams = inner.names.len() as u64;
        Stats {
            durability: "memory",
            streams,
            stored_bytes,
            kept_bytes: stored_bytes,
            segments: 1,
            damaged_spans: 0,
            records: 0,
            commits: 0,
            refused_commits: 0,
            failed: false,
        }
    }

    fn has_failed(&self) -> bool {
        matches!(self.0.lock().fault, Some(StoreError::Poisoned(_)))
    }

    fn ticket(&self, stream: &usize) -> Result<u64, StoreError> {
        let inner = self.0.lock();
        let last = inner.streams[*stream].views.last().map_or(0, |(ticket, _)| *ticket);
        Ok(if last > inner.durable { last } else { 0 })
    }

    fn read(&self, stream: &usize, from: u64, limit: usize) -> Result<Read, StoreError> {
        let mut inner = self.0.lock();
        inner.view(*stream, inner.durable).ok_or(StoreError::Gone)?;
        inner.reach(*stream, from)?;
        let state = inner.view(*stream, inner.durable).ok_or(StoreError::Gone)?;
        inner.damage.clone().map_or(Ok(()), Err)?;
        if from > state.tail {
            return Err(StoreError::PastEnd);
        }
        let entry = &inner.streams[*stream];
        let whole_records = media::kind(&entry.config.content_type) == media::Kind::Json;
        let mut pieces = SmallVec::new();
        let start = from as usize;
        let mut at = start;
        let ends = entry.records.iter().map(|(end, _)| *end);
        for end in ends.filter(|end| *end > start && *end <= state.tail as usize) {
            if at > start && end - start > limit {
                break;
            }
            let end = if whole_records { end } else { end.min(start + limit) };
            pieces.push(Bytes::copy_from_slice(&entry.data[at..end]).into());
            at = end;
        }
        let (next, inside) = (at as u64, entry.splits(from));
        Ok(Read { pieces, next, at_tail: next == state.tail, closed: state.closed, inside })
    }

    fn since(&self, stream: &usize, time_us: u64) -> Result<TimeSearch, StoreError> {
        if let Some(work) = self.cold(stream, 0, 0) {
            return Ok(TimeSearch::Cold(work));
        }
        let inner = self.0.lock();
        let State { first, tail, .. } = *inner.view(*stream, inner.durable).ok_or(StoreError::Gone)?;
        let entry = &inner.streams[*stream];
        let older = entry.records.iter().take_while(|(_, time)| *time < time_us);
        Ok(TimeSearch::At(older.last().map_or(0, |(end, _)| *end as u64).max(first).min(tail)))
    }

    fn cold(&self, _: &usize, _: u64, _: usize) -> Option<Work> {
        let cold = self.0.lock().cold.clone();
        let is_cold = *cold.lock();
        is_cold.then(|| Work(Box::new(move || *cold.lock() = false)))
    }

    fn accessed(&self, stream: &usize) -> u64 {
        let mut inner = self.0.lock();
        let accessed_us = inner.streams[*stream].accessed_us;
        if let Some(time_us) = inner.renewal_us.take() {
            let state = inner.staged(*stream).cloned().unwrap();
            inner.apply(*stream, state, &Commit { payload: b"R", time_us, ..Commit::default() });
        }
        accessed_us
    }

    fn touch(&self, stream: &usize, time_us: u64) {
        self.0.lock().streams[*stream].accessed_us = time_us;
    }

    fn watch(&self, stream: &usize) {
        self.0.lock().announced.push((*stream, "watch"));
    }

    fn unwatch(&self, stream: &usize) {
        self.0.lock().announced.push((*stream, "unwatch"));
    }

    fn acknowledge(&self, stream: &usize) {
        self.0.lock().announced.push((*stream, "acknowledge"));
    }
}
