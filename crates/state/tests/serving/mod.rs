//! A state that is served on a thread, and clients of it.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "this is tests' code, and not every test uses all of it"
)]

use std::path::Path;
use std::thread::JoinHandle;
use thalweg_log::{Disk, Durability, Options, Store};
use thalweg_service::{ClientOptions, Endpoint, Server, ServerOptions, Stopper, SyncClient};
use thalweg_state::generated::client::StateClient;
use thalweg_state::generated::types::*;
use thalweg_state::{ERROR_TAG, SCHEMA_HASH, Service, ServiceOptions};

pub type Client = StateClient<SyncClient>;

/// Both ways in.
pub const WAYS: [&str; 2] = ["state.sock", "state.shm"];

pub struct Served {
    pub service: Service,
    pub store: Store,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

pub fn store(directory: &Path, durability: Durability) -> Store {
    let options = Options { durability, ..Options::default() };
    Store::open(&Disk::Real, &directory.join("data"), options).unwrap().0
}

impl Served {
    pub fn start(directory: &Path, store: Store, options: ServiceOptions) -> Self {
        let endpoints = WAYS.map(|way| endpoint(directory, way));
        let server = ServerOptions { schema: SCHEMA_HASH, error_tag: ERROR_TAG.into(), ..Default::default() };
        let mut server = Server::bind(&endpoints, server).unwrap();
        let stopper = server.stopper();
        let service = Service::new(&store, "state", options);
        let handler = service.clone();
        let thread = std::thread::spawn(move || server.serve(handler).unwrap());
        Self { service, store, stopper, thread: Some(thread) }
    }

    /// Ends it in good order.
    pub fn end(mut self) -> Store {
        self.stop();
        self.store.clone()
    }

    fn stop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn endpoint(directory: &Path, way: &str) -> Endpoint {
    directory.join(way).to_str().unwrap().parse().unwrap()
}

pub fn connect(directory: &Path, way: &str) -> Client {
    let options = ClientOptions { schema: SCHEMA_HASH, ..ClientOptions::default() };
    StateClient::new(SyncClient::connect(&endpoint(directory, way), options).unwrap())
}

/// Shorter words for what is asked most.
pub trait Words {
    fn value(&mut self, place: &str, key: &str) -> Result<Option<Vec<u8>>, String>;
    fn set(&mut self, place: &str, key: &str, value: &str) -> Result<u64, String>;
    fn session(&mut self, fork: &str) -> String;
    fn begin(&mut self, session: &str) -> Result<u64, String>;
    fn keep(&mut self, session: &str) -> Result<u64, String>;
    fn undo(&mut self, session: &str) -> Result<(), String>;
    fn digest(&mut self, place: &str) -> Result<[u8; 32], String>;
    fn all(&mut self, place: &str) -> Result<Vec<(String, Vec<u8>)>, String>;
}

impl Words for Client {
    fn value(&mut self, place: &str, key: &str) -> Result<Option<Vec<u8>>, String> {
        let answer = self.get(&StateGet { place: place.into(), key: key.into(), view: None });
        answer.map(|answer| answer.value.map(|value| value.into_owned())).map_err(|error| error.to_string())
    }

    fn set(&mut self, place: &str, key: &str, value: &str) -> Result<u64, String> {
        let value = value.as_bytes().into();
        let answer = self.put(&StatePut { place: place.into(), key: key.into(), value });
        answer.map(|answer| answer.offset).map_err(|error| error.to_string())
    }

    fn session(&mut self, fork: &str) -> String {
        let open = StateOpen { fork: fork.into(), lease_ms: None };
        self.open(&open).unwrap().session.into_owned()
    }

    fn begin(&mut self, session: &str) -> Result<u64, String> {
        let answer = self.snapshot(&StateSnapshot { session: session.into() });
        answer.map(|answer| answer.offset).map_err(|error| error.to_string())
    }

    fn keep(&mut self, session: &str) -> Result<u64, String> {
        let answer = self.commit(&StateCommit { session: session.into() });
        answer.map(|answer| answer.offset).map_err(|error| error.to_string())
    }

    fn undo(&mut self, session: &str) -> Result<(), String> {
        let answer = self.rollback(&StateRollback { session: session.into() });
        answer.map(drop).map_err(|error| error.to_string())
    }

    fn digest(&mut self, place: &str) -> Result<[u8; 32], String> {
        let answer = self.root(&StateRoot { place: place.into(), view: None });
        answer.map(|answer| answer.root).map_err(|error| error.to_string())
    }

    fn all(&mut self, place: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
        let (mut entries, mut start) = (Vec::new(), None::<String>);
        loop {
            let scan = StateScan {
                place: place.into(),
                start: start.as_deref().map(Into::into),
                limit: Some(3),
                view: None,
            };
            let answer = self.scan(&scan).map_err(|error| error.to_string())?;
            entries.extend(answer.entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_vec())));
            match &answer.next {
                Some(next) => start = Some(next.to_string()),
                None => return Ok(entries),
            }
        }
    }
}
