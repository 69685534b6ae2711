//! The state as `thalweg serve` serves it: through its socket and shared memory, and as a stream that a
//! browser follows.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Server, fails, says};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use thalweg_service::{ClientOptions, Endpoint, SyncClient};
use thalweg_state::SCHEMA_HASH;
use thalweg_state::generated::client::StateClient;
use thalweg_state::generated::types::*;

fn connect(data: &Path, name: &str) -> StateClient<SyncClient> {
    let endpoint: Endpoint = data.join(name).to_str().unwrap().parse().unwrap();
    let options = ClientOptions { schema: SCHEMA_HASH, ..ClientOptions::default() };
    StateClient::new(SyncClient::connect(&endpoint, options).unwrap())
}

fn put(client: &mut StateClient<SyncClient>, key: &str, value: &str) {
    let put = StatePut { place: "main".into(), key: key.into(), value: value.as_bytes().into() };
    client.put(&put).unwrap();
}

/// The messages of a stream, as server-sent events bring them.
fn follow(server: &Server, stream: &str) -> impl Iterator<Item = serde_json::Value> + use<> {
    let mut connection = TcpStream::connect(server.address()).unwrap();
    let head = format!("GET /v1/stream/{stream}?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    connection.write_all(head.as_bytes()).unwrap();
    let lines = BufReader::new(connection).lines().map(Result::unwrap);
    let data = lines.filter_map(|line| Some(line.strip_prefix("data:")?.trim().to_owned()));
    let arrays = data.filter(|data| data.starts_with('['));
    arrays.flat_map(|array| serde_json::from_str::<Vec<serde_json::Value>>(&array).unwrap())
}

#[test]
fn a_browser_follows_what_clients_commit() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, "127.0.0.1:0", &[]);
    assert!(server.greeting.contains("state.shm"), "{}", server.greeting);
    assert_eq!(fails(&server.url, &["head", "state/main"]).0, 4, "nobody asked for it, so it is not there");
    let mut client = connect(&data, "state.shm");
    put(&mut client, "greeting", r#"{"text":"hello"}"#);
    let mut messages = follow(&server, "state/main");
    let first = messages.next().unwrap();
    assert_eq!(first["key"], "greeting");
    assert_eq!(first["value"]["text"], "hello");
    assert_eq!(first["headers"]["operation"], "insert");
    let session = connect(&data, "state.sock");
    let mut session = session;
    let open = StateOpen { fork: "main".into(), lease_ms: None };
    let token = session.open(&open).unwrap().session.into_owned();
    session.snapshot(&StateSnapshot { session: (&*token).into() }).unwrap();
    for (key, value) in [("a", Some("1")), ("greeting", None), ("bytes", Some("\u{1}"))] {
        let change = Change { key: key.into(), value: value.map(|value| value.as_bytes().into()) };
        let batch =
            StateBatch { place: (&*token).into(), changes: vec![change], if_offset: None, if_root: None };
        session.batch(&batch).unwrap();
    }
    session.commit(&StateCommit { session: (&*token).into() }).unwrap();
    let commit: Vec<_> = messages.by_ref().take(3).collect();
    let of =
        |n: usize| (commit[n]["key"].as_str().unwrap(), commit[n]["headers"]["operation"].as_str().unwrap());
    assert_eq!([of(0), of(1), of(2)], [("a", "insert"), ("bytes", "insert"), ("greeting", "delete")]);
    assert_eq!(commit[1]["headers"]["encoding"], "base64");
    assert!(commit.iter().all(|message| message["headers"]["txid"] == commit[0]["headers"]["txid"]));
    put(&mut client, "a", "2");
    let last = messages.next().unwrap();
    assert_eq!((&last["value"], &last["headers"]["operation"]), (&2.into(), &"update".into()));
    server.end();
}

#[test]
fn forks_count_as_streams_do() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, "127.0.0.1:0", &["--streams-max", "4"]);
    let mut client = connect(&data, "state.sock");
    let fork = StateFork { parent: "main".into(), offset: None };
    let made: Vec<_> =
        (0..4).map_while(|_| client.fork(&fork).ok().map(|made| made.fork.to_string())).collect();
    assert!((1..4).contains(&made.len()), "{made:?}");
    let refused = client.fork(&fork).unwrap_err().to_string();
    assert!(refused.contains("too_many_forks: the store has 4 streams"), "{refused}");
    put(&mut client, "a", "1");
    client.drop(&StateDrop { fork: (&*made[0]).into() }).unwrap();
    client.fork(&fork).unwrap();
    server.end();
}

#[test]
fn nobody_but_the_state_writes_its_streams_and_it_is_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, "127.0.0.1:0", &[]);
    let url = server.url.clone();
    let mut client = connect(&data, "state.sock");
    put(&mut client, "a", "1");
    let fork = client.fork(&StateFork { parent: "main".into(), offset: None }).unwrap().fork.into_owned();
    let forks = client.forks(&StateForks {}).unwrap();
    let stream = forks.forks.iter().find(|line| line.fork == fork).unwrap().stream.to_string();
    for name in ["state/main", &stream] {
        for verb in [&["append", name, "{}"][..], &["rm", name], &["create", name]] {
            let (code, words) = fails(&url, verb);
            assert_eq!(code, 1, "{verb:?}: {words}");
            assert!(words.contains("written by a service"), "{verb:?}: {words}");
        }
        assert!(says(&url, &["read", name]).contains(r#""key":"a""#));
    }
    put(&mut client, "b", "2");
    let root = client.root(&StateRoot { place: "main".into(), view: None }).unwrap();
    drop(client);
    server.end();
    let server = Server::start(&data, "127.0.0.1:0", &[]);
    let mut client = connect(&data, "state.shm");
    assert_eq!(client.root(&StateRoot { place: "main".into(), view: None }).unwrap(), root);
    let get = StateGet { place: fork.into(), key: "a".into(), view: None };
    assert_eq!(client.get(&get).unwrap().value.as_deref(), Some(&b"1"[..]));
    server.end();
}
