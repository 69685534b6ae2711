//! What the fuzz targets (`fuzz/`) reach of this crate beside what everybody does. Built with `--cfg fuzzing`
//! alone.

use crate::changes::Changes;
use crate::digest::Digest;
use crate::fork::View;
use crate::image;
use crate::journal;
use crate::map::Map;
use crate::state::{History, Options, State, image_prefix};
use std::ops::Bound;
use std::sync::Arc;
use thalweg_log::{Commit, Config, Fork, Lifetime, Log, Options as StoreOptions, Store};

const NAME: &str = "kv";

/// An entry of a fork's log says the same once it was written again.
pub fn journal(data: &[u8]) {
    let Ok(changes) = journal::decode(data) else { return };
    // Only what is there can be deleted.
    let there = changes.iter().filter(|(_, value)| value.is_none());
    let before = Map::of(there.map(|(key, _)| (key.clone(), b"\0"[..].into())).collect());
    let mut written = Vec::new();
    journal::encode("entry", &before, &changes, 7, &mut written);
    assert_eq!(written.is_empty(), changes.is_empty());
    if !changes.is_empty() {
        written.push(b',');
        assert_eq!(
            journal::decode(&written).as_ref(),
            Ok(&changes),
            "what was written reads as something else"
        );
    }
}

/// Logs of a state with anything in them: it opens or is refused, and opens again as the same.
///
/// The input is a list of pieces, `what 1 | length 2 | bytes`: an entry of the log that is written to, a run
/// of the image that is, a new image where that log ends, the end of the image, and a fork that is written to
/// from here on.
pub fn opened(mut data: &[u8]) {
    let options = StoreOptions { segment_bytes_min: 64 << 10, ..StoreOptions::default() };
    let store = Store::memory(options).expect("memory");
    let mut logs =
        Logs { log: create(&store, &format!("{NAME}/main")), store: &store, image: None, forks: 0 };
    while let Some(([what, low, high], rest)) = data.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (bytes, rest) = rest.split_at(length);
        logs.put(*what, bytes);
        data = rest;
    }
    let Ok(state) = State::open(&store, NAME, Options::default()) else { return };
    let before: Vec<_> = state.forks().into_iter().map(|fork| held(&state, fork)).collect();
    let more: Changes = [crate::Change::Put("more".into(), b"1"[..].into())].into_iter().collect();
    for fork in state.forks() {
        state.write(fork, &more, 2).expect("what opened cannot be written to");
        state.checkpoint(fork, 3).expect("what opened has no image");
    }
    drop(state);
    let trimmed = Options { history: History::Trimmed, image_bytes: 1, ..Options::default() };
    let state = State::open(&store, NAME, trimmed).expect("what opened does not open again");
    for (fork, mut map) in state.forks().into_iter().zip(before) {
        map.apply(&more);
        let now = state.map(fork, View::Committed).expect("a fork");
        assert!(map.scan(Bound::Unbounded).eq(now.scan(Bound::Unbounded)), "it opened as something else");
        assert_eq!(state.root(fork, View::Committed).expect("a fork"), Digest::of(&now).root());
    }
    state.maintain(4).expect("what opened cannot be kept small");
}

fn held(state: &State, fork: crate::ForkId) -> Map {
    state.map(fork, View::Committed).expect("a fork that is listed is none")
}

/// A state's logs as somebody writes them who need not be us.
struct Logs<'a> {
    store: &'a Store,
    log: Arc<Log>,
    /// The image that is written, and its entries where they are some.
    image: Option<(Arc<Log>, Vec<(crate::Key, crate::Value)>)>,
    forks: u64,
}

impl Logs<'_> {
    fn put(&mut self, what: u8, bytes: &[u8]) {
        let tail = self.log.staged().map_or(0, |state| state.tail);
        match what % 5 {
            0 => append(self.store, &self.log, bytes, false),
            1 => {
                let Some((log, entries)) = &mut self.image else { return };
                append(self.store, log, bytes, false);
                let mut run = bytes;
                while let Some(entry) = image::take(&mut run) {
                    entries.push(entry);
                }
            }
            2 => {
                let name = format!("{}{}-{tail}", image_prefix(NAME), self.log.id());
                if self.store.find(name.as_bytes()).is_none() {
                    self.image = Some((create(self.store, &name), Vec::new()));
                }
            }
            3 => {
                let Some((log, entries)) = self.image.take() else { return };
                let map = Map::of(entries);
                let name = String::from_utf8_lossy(log.name()).into_owned();
                let offset = name.rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or(0);
                let end = image::end(self.log.id(), offset, map.len() as u64, &Digest::of(&map).root());
                append(self.store, &log, if bytes.is_empty() { &end } else { bytes }, true);
            }
            _ => {
                let name = format!("{NAME}/forks/{}", self.forks);
                let fork = Fork { parent: self.log.clone(), at: tail, asked: [0; 2] };
                let created =
                    self.store.create(name.as_bytes(), &config(), Some(&fork), &Commit::default(), None);
                if let Ok((log, _)) = created {
                    (self.log, self.forks) = (log, self.forks + 1);
                }
            }
        }
    }
}

fn config() -> Config {
    Config { content_type: journal::CONTENT_TYPE.into(), lifetime: Lifetime::Unlimited }
}

fn create(store: &Store, name: &str) -> Arc<Log> {
    store.create(name.as_bytes(), &config(), None, &Commit::default(), None).expect("a new log").0
}

fn append(store: &Store, log: &Arc<Log>, payload: &[u8], close: bool) {
    let Some(state) = log.staged().filter(|state| !state.closed) else { return };
    let commit = Commit { payload, close, time: 1, ..Commit::default() };
    store.commit(log, state.version, &commit, None).expect("room in memory");
}
