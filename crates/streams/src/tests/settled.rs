//! When what is staged is durable, as the embedded log says it.

use crate::embedded::Embedded;
use crate::store::{Commit, Config, Lifetime, Store as _, StoreError};
use crate::{Options, Streams};
use std::path::Path;
use std::sync::Arc;
use thalweg_log as log;
use thalweg_log::Disk;
use thalweg_log::sim::SimDisk;
use thalweg_wire::exchange::{Answer, Response};

/// A store that makes nothing durable by itself.
fn store() -> log::Store {
    let options = log::Options {
        durability: log::Durability::Sync,
        committer_thread: false,
        ..log::Options::default()
    };
    let disk = Disk::Sim(SimDisk::new(1, 1 << 30));
    log::Store::open(&disk, Path::new("/store"), options).unwrap().0
}

fn create(store: &Embedded, name: &[u8]) -> Arc<log::Log> {
    let config = Config { content_type: "text/plain".into(), lifetime: Lifetime::Unlimited };
    store.create(name, &config, None, &Commit { payload: b"text", ..Commit::default() }).unwrap().0
}

#[test]
fn what_never_becomes_durable_is_refused_and_not_waited_for() {
    let ours = Embedded::new(store(), None);
    let stream = create(&ours, b"s");
    assert!(ours.ticket(&stream).unwrap() > 0, "it is staged and not durable");
    // Nothing of another store reaches as far.
    let other = Embedded::new(store(), None);
    let refused = other.ticket(&stream).unwrap_err();
    assert!(matches!(&refused, StoreError::Poisoned(why) if why.contains("ticket")), "{refused}");
    let streams = Streams::new(other, Options::default());
    match streams.answer_settled(&stream, Response { status: 200, ..Response::default() }) {
        Answer::Respond(response) => assert_eq!(response.status, 503),
        answer => panic!("{answer:?}"),
    }
}
