//! The state as `thalweg serve` serves it: through its socket and shared memory, and as a stream that a
//! browser follows.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{Server, ask, fails, says, until};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use thalweg_service::{ClientOptions, Endpoint, SyncClient};
use thalweg_state::generated::client::StateClient;
use thalweg_state::generated::types::*;
use thalweg_state::{Change as Step, Changes, Digest, Map, SCHEMA_HASH};

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
    let forks = client.forks(&StateForks { start: None, limit: None }).unwrap();
    let stream = forks.forks.iter().find(|info| info.fork == fork).unwrap().stream.to_string();
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

/// Somebody who follows the main line from another program, by the recipe of docs/state.md.
struct Follower<'s> {
    server: &'s Server,
    /// Where to read the stream on.
    next: String,
    /// Where what it began with ends, until something was read that came after it.
    begun: Option<u64>,
    map: BTreeMap<String, Vec<u8>>,
}

impl<'s> Follower<'s> {
    /// One that begins where the line is; none, if what is needed for that was trimmed meanwhile.
    fn begin(server: &'s Server, client: &mut StateClient<SyncClient>) -> Option<Self> {
        client.remove(&StateRemove { place: "main".into(), key: "between".into() }).unwrap();
        let next = field(&ask(server, "HEAD /v1/stream/state/main HTTP/1.1"), "stream-next-offset").unwrap();
        // What comes before the page of history and behind the stream's end, and is not to be taken twice.
        put(client, "between", "1");
        let begun = root(client).offset;
        let mut history = StateHistory { fork: "main".into(), offset: begun, start: None, limit: Some(100) };
        let mut map = BTreeMap::new();
        loop {
            let page = match client.history(&history) {
                Ok(page) => page,
                Err(error) => {
                    assert!(error.to_string().contains("no_state: "), "{error}");
                    return None;
                }
            };
            map.extend(page.entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_vec())));
            match page.next {
                Some(next) => history.start = Some(next.into_owned().into()),
                None => return Some(Self { server, next, begun: Some(begun), map }),
            }
        }
    }

    /// Follows to where the line ended at this offset; `false`, if what led there was trimmed.
    fn reach(&mut self, end: u64) -> bool {
        loop {
            let head = format!("GET /v1/stream/state/main?offset={} HTTP/1.1", self.next);
            let answer = ask(self.server, &head);
            if !answer.starts_with("HTTP/1.1 200 ") {
                assert!(answer.starts_with("HTTP/1.1 410 "), "{answer}");
                return false;
            }
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            for message in serde_json::from_str::<Vec<serde_json::Value>>(body).unwrap() {
                let at: u64 = message["headers"]["txid"].as_str().unwrap().parse().unwrap();
                if at >= end {
                    return true;
                }
                if self.begun.is_some_and(|begun| at < begun) {
                    continue;
                }
                if self.begun.take().is_some_and(|begun| at != begun) {
                    return false;
                }
                self.take(&message);
            }
            self.next = field(&answer, "stream-next-offset").unwrap();
            if field(&answer, "stream-up-to-date").is_some() {
                return true;
            }
        }
    }

    fn take(&mut self, message: &serde_json::Value) {
        let key = message["key"].as_str().unwrap().to_owned();
        let (value, headers) = (&message["value"], &message["headers"]);
        let is_there = self.map.contains_key(&key);
        match headers["operation"].as_str().unwrap() {
            "delete" => drop(self.map.remove(&key).unwrap()),
            operation => {
                assert_eq!(operation == "update", is_there, "{message}");
                let value = match headers["encoding"].as_str() {
                    Some(_) => STANDARD.decode(value.as_str().unwrap()).unwrap(),
                    None => value.to_string().into_bytes(),
                };
                self.map.insert(key, value);
            }
        }
    }

    fn root(&self) -> [u8; 32] {
        let put = |(key, value): (&String, &Vec<u8>)| Step::Put(key.as_str().into(), value.as_slice().into());
        let mut map = Map::default();
        map.apply(&self.map.iter().map(put).collect::<Changes>());
        Digest::of(&map).root()
    }
}

fn root(client: &mut StateClient<SyncClient>) -> StateRootResponse {
    client.root(&StateRoot { place: "main".into(), view: None }).unwrap()
}

/// A field of an answer's head.
fn field(answer: &str, name: &str) -> Option<String> {
    let (head, _) = answer.split_once("\r\n\r\n")?;
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
}

/// Writes until it is told to stop: values that are JSON and such as are not, over each other, and none.
fn write_on(mut client: StateClient<SyncClient>, stop: &Receiver<()>) {
    for number in 0_usize.. {
        let change = |of: usize| {
            let value = match (number + of) % 4 {
                0 => None,
                1 => Some(vec![0xFF; 500 + number % 100]),
                _ => Some(format!("\"{number:0900}\"").into_bytes()),
            };
            Change { key: format!("k{}", number * 7 % 300 + of).into(), value: value.map(Into::into) }
        };
        let changes = (0..4).map(change).collect();
        client.batch(&StateBatch { place: "main".into(), changes, if_offset: None, if_root: None }).unwrap();
        if stop.recv_timeout(Duration::from_millis(1)).is_ok() {
            return;
        }
    }
}

/// The recipe of docs/state.md, where the log is trimmed behind an image every few commits.
#[test]
fn who_begins_with_a_page_of_history_and_follows_the_stream_has_the_state() {
    const FOLLOWERS: usize = 10;
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let more = ["--state-history", "trimmed", "--state-image-bytes", "65536"];
    let server = Server::start(&data, "127.0.0.1:0", &more);
    let mut client = connect(&data, "state.sock");
    put(&mut client, "first", "1");
    let (stop, told) = channel();
    let writer = connect(&data, "state.shm");
    let writer = std::thread::spawn(move || write_on(writer, &told));
    let follow = |client: &mut StateClient<SyncClient>| {
        let mut follower = Follower::begin(&server, client)?;
        std::thread::sleep(Duration::from_millis(10));
        let then = root(client);
        follower.reach(then.offset).then(|| assert_eq!(follower.root(), then.root))
    };
    let mut followed = 0;
    until("followers", || {
        followed += usize::from(follow(&mut client).is_some());
        followed >= FOLLOWERS
    });
    until("what is trimmed", || {
        let oldest = ask(&server, "GET /v1/stream/state/main?offset=-1 HTTP/1.1");
        let (_, body) = oldest.split_once("\r\n\r\n").unwrap();
        let messages: Vec<serde_json::Value> = serde_json::from_str(body).unwrap();
        messages.first().is_some_and(|message| message["headers"]["txid"] != "0")
    });
    stop.send(()).unwrap();
    writer.join().unwrap();
    // Nobody writes any more, so nothing is trimmed in between.
    until("the last of them", || follow(&mut client).is_some());
    server.end();
}
