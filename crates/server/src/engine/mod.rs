//! The engine behind the server: the only file that names the store and how the rules reach it.

mod offline;

use crate::command_line::Durability;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_http::Message;
use thalweg_log as log;
use thalweg_reactor::{Full, Handle};
use thalweg_state::{ImageNews, LogObserver, Options as StateOptions, Service as State, ServiceOptions};
use thalweg_streams::embedded::Embedded;
use thalweg_streams::store::Store as _;
use thalweg_streams::subscriptions::{Driver, Subscriptions};
use thalweg_streams::{Loopback, Options, Sharing, Streams};
use thalweg_sys::disk::Disk;
use thalweg_sys::process::random_bytes;
use thalweg_sys::{clock, code};

pub(crate) use offline::{Refusal, backup, is_store, parse, restore, verify};
pub(crate) use thalweg_streams::store::Stats as Totals;

/// The name of the state that is served.
const STATE: &str = "state";

/// What each reactor serves.
pub(crate) type Service = Streams<Embedded>;

/// An open store. Clones share it.
#[derive(Clone)]
pub(crate) struct Engine {
    store: log::Store,
    subscriptions: Arc<Subscriptions<Embedded>>,
    state: State,
    sharing: Sharing,
    webhooks_loopback: Loopback,
    streams_max: u64,
}

/// How much of the whole store is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retain {
    pub(crate) seconds: Option<u64>,
    pub(crate) bytes: Option<u64>,
}

impl Engine {
    /// Opens the store in `directory`, or one in memory.
    ///
    /// # Errors
    /// Why it cannot be served, and what to do.
    pub(crate) fn open(
        directory: &Path,
        durability: Durability,
        retain: Retain,
        state: StateOptions,
    ) -> Result<Self, String> {
        let options = log::Options {
            durability: match durability {
                Durability::Sync => log::Durability::Sync,
                Durability::Os => log::Durability::Os,
                Durability::Memory => log::Durability::Memory,
            },
            opened_at: clock::wall_us(),
            retain_us: retain.seconds.map(|seconds| seconds.saturating_mul(1_000_000)),
            retain_bytes: retain.bytes,
            // The server's own begin with NUL.
            retain_except: State::logs(STATE).into_iter().map(String::into_bytes).chain([vec![0]]).collect(),
            ..log::Options::default()
        };
        if durability == Durability::Memory {
            let store = log::Store::memory(options).map_err(|error| error.to_string())?;
            return Ok(Self::over(store, state));
        }
        let (store, found) =
            log::Store::open(&Disk::Real, directory, options).map_err(|error| unopened(&error))?;
        // What opens it is not what tells of it, or opens the state; see `start::step`.
        code::release();
        for damage in &found.damage {
            let streams = store.names_touched(damage);
            tracing::error!(%damage, streams, "the streams it touches are not served, the others are; `thalweg verify` names all there is");
        }
        if found.discarded_bytes > 0 {
            tracing::warn!(
                bytes = found.discarded_bytes,
                "the last run ended in the middle of a write; what was never acknowledged is discarded"
            );
        }
        if found == log::Recovered::default() {
            tracing::info!(directory = %directory.display(), "opened an empty store");
        } else {
            tracing::info!(
                directory = %directory.display(),
                streams = found.logs,
                batches_replayed = found.batches,
                clean = found.clean,
                "store opened"
            );
        }
        code::release();
        Ok(Self::over(store, state))
    }

    /// What an acknowledged commit survives, as the configuration calls it.
    pub(crate) fn durability(&self) -> &'static str {
        self.store.durability().name()
    }

    fn over(store: log::Store, state: StateOptions) -> Self {
        let subscriptions = Subscriptions::open(&Embedded::new(store.clone(), None), || random_bytes().ok());
        for id in subscriptions.foreign() {
            tracing::error!(
                id = &*id,
                "the subscription is not understood: it stays as it is, and wakes nobody"
            );
        }
        let linking = subscriptions.clone();
        let state =
            StateOptions { log_observer: LogObserver::new(move |name| linking.created(name)), ..state };
        let state = State::new(&store, STATE, ServiceOptions { state, ..ServiceOptions::default() });
        if State::exists(&store, STATE) {
            match state.state() {
                Ok(state) => state.damage().iter().for_each(|error| {
                    tracing::error!(%error, "the state was rebuilt without it");
                }),
                Err(error) => tracing::error!(%error, "the state is not served"),
            }
        }
        Self {
            store,
            subscriptions,
            state,
            sharing: Sharing::Public,
            webhooks_loopback: Loopback::Never,
            streams_max: u64::MAX,
        }
    }

    /// The state's service.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// With what caches between the server and its readers may keep.
    pub(crate) fn with_sharing(self, sharing: Sharing) -> Self {
        Self { sharing, ..self }
    }

    /// With whose webhooks may go to this very machine.
    pub(crate) fn with_webhooks_loopback(self, webhooks_loopback: Loopback) -> Self {
        Self { webhooks_loopback, ..self }
    }

    /// With how many streams there may be.
    pub(crate) fn with_streams_max(self, streams_max: u64) -> Self {
        Self { streams_max, ..self }
    }

    /// What the store holds and did.
    pub(crate) fn stats(&self) -> log::Stats {
        self.store.stats()
    }

    /// The same, as streams are counted.
    pub(crate) fn totals(&self) -> Totals {
        Embedded::new(self.store.clone(), None).stats()
    }

    /// Spans of the store that are known to be damaged.
    pub(crate) fn damaged_spans(&self) -> u64 {
        self.store.damage().len() as u64
    }

    /// The store's syncs.
    pub(crate) fn groups(&self) -> log::SyncStats {
        self.store.groups()
    }

    /// The subscriptions of the store.
    pub(crate) fn subscriptions(&self) -> &Arc<Subscriptions<Embedded>> {
        &self.subscriptions
    }

    /// What drives the subscriptions, which is told there what becomes durable.
    ///
    /// # Errors
    /// More watchers than a store announces to.
    pub(crate) fn driver(&self) -> io::Result<Driver<Embedded>> {
        let watcher = self.store.watcher(Arc::new(Ringer { subscriptions: self.subscriptions.clone() }));
        let watcher = watcher.ok_or_else(|| io::Error::other("the store announces to 32 at most"))?;
        let store = Embedded::new(self.store.clone(), Some(watcher));
        Ok(Driver::new(store, self.subscriptions.clone(), self.options()))
    }

    /// The rules over this store for one reactor, which is told there what becomes durable.
    ///
    /// # Errors
    /// More reactors than a store announces to.
    pub(crate) fn service(&self, handle: Handle<Message>) -> io::Result<Service> {
        let watcher = self.watcher(Arc::new(Announcer { handle }))?;
        Ok(self.service_as(watcher.commits_in_turns()))
    }

    /// The rules over this store, for a reactor that is told what becomes durable.
    ///
    /// # Errors
    /// More watchers than a store announces to.
    pub(crate) fn service_for(&self, watch: Arc<dyn log::Watch>) -> io::Result<Service> {
        Ok(self.service_as(self.watcher(watch)?))
    }

    fn watcher(&self, watch: Arc<dyn log::Watch>) -> io::Result<log::WatcherId> {
        let watcher = self.store.watcher(watch);
        watcher.ok_or_else(|| io::Error::other("the store announces to 32 reactors at most"))
    }

    fn service_as(&self, watcher: log::WatcherId) -> Service {
        let streams = Streams::new(Embedded::new(self.store.clone(), Some(watcher)), self.options());
        streams.with_subscriptions(self.subscriptions.clone())
    }

    fn options(&self) -> Options {
        Options {
            sharing: self.sharing,
            read_only: State::logs(STATE).into(),
            webhooks_loopback: self.webhooks_loopback,
            streams_max: self.streams_max,
            ..Options::default()
        }
    }

    /// Writes a checkpoint when one is due, and frees what nobody needs, a bounded part of it. Whether there
    /// is more to do. May wait for the disk.
    pub(crate) fn keep_house(&self) -> bool {
        let _span = tracing::debug_span!("keep_house").entered();
        let maintained = self.store.maintain(clock::wall_us());
        self.state.keep_house();
        match self.state.image_news() {
            Some(ImageNews::Refused(error)) => tracing::warn!(
                error,
                "an image of the state cannot be written: the next start takes longer; it is tried again within minutes"
            ),
            Some(ImageNews::Written) => tracing::info!("the images of the state that were due are written"),
            None => {}
        }
        maintained.unwrap_or_else(|error| {
            tracing::warn!(%error, "the store's housekeeping failed; nothing is lost by it");
            false
        })
    }

    /// Has housekeeping rest no more.
    pub(crate) fn hurry(&self) {
        self.store.stop_throttling();
    }

    /// Closes the store, so that the next start replays nothing.
    ///
    /// # Errors
    /// What the disk said. Everything acknowledged is safe regardless.
    pub(crate) fn close(&self) -> Result<(), String> {
        self.store.close().map_err(|error| {
            format!("the store did not close cleanly: {error}; nothing acknowledged is lost")
        })
    }
}

/// Why a store does not open, and what to do where the reason itself does not say.
fn unopened(error: &log::OpenError) -> String {
    let source = match error {
        log::OpenError::Io { source, .. } => source,
        log::OpenError::Held { directory, holder } => {
            return format!("{} is open in {holder}: stop it, or give another --data", directory.display());
        }
        _ => return error.to_string(),
    };
    let advice = match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; let this user write there, or choose another directory with --data"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room, or choose another directory with --data"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::NotFound => "; choose another directory with --data",
        _ => "",
    };
    format!("{error}{advice}")
}

/// Tells one reactor what became durable.
struct Announcer {
    handle: Handle<Message>,
}

impl Announcer {
    /// The mailbox has room for one announcement of every topic that can be followed and for thousands of
    /// completions, so it is full only if the reactor is far behind the thread that syncs groups. Then that
    /// thread waits.
    fn tell(&self, message: Message) {
        let mut message = message;
        while let Err(Full(returned)) = self.handle.post(message) {
            message = returned;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl log::Watch for Announcer {
    fn complete(&self, up_to: log::Position) {
        self.tell(Message::Complete { up_to });
    }

    fn failed(&self) {
        self.tell(Message::Failed);
    }

    fn advanced(&self, log: log::LogId) {
        self.tell(Message::Advanced { topic_id: log });
    }
}

/// Tells the subscriptions what became durable.
struct Ringer {
    subscriptions: Arc<Subscriptions<Embedded>>,
}

impl log::Watch for Ringer {
    fn complete(&self, _up_to: log::Position) {
        self.subscriptions.settled();
    }

    fn failed(&self) {}

    fn advanced(&self, log: log::LogId) {
        self.subscriptions.moved(log);
    }
}
