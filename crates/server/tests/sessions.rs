//! Sessions as clients hold them, against `thalweg serve`: the same over a Unix socket, shared memory and
//! JSON-RPC.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PATIENCE, Server, ask, until};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use thalweg_rpc::{Carrier, Client, ClientOptions, Translator};
use thalweg_service::{ClientOptions as ServiceOptions, Error, SyncClient};
use thalweg_state::client::Session;
use thalweg_state::generated::client::StateClient;
use thalweg_state::generated::types::StateForks;
use thalweg_state::{RefusalCode, SCHEMA_HASH};
use thalweg_wire::service::Call;

const SCHEMA: &str = include_str!("../../../schemas/state.jsonc");

/// A session, whatever carries its calls.
type Any = Session<Box<dyn Call<Error = Error>>>;

/// What the client that is killed is told by.
const CLIENT_WAY: &str = "THALWEG_TEST_CLIENT_WAY";
const CLIENT_AT: &str = "THALWEG_TEST_CLIENT_AT";
const LEASE: Duration = Duration::from_secs(5);
const HELD_BYTES: usize = 1 << 20;
/// A call must not take what a lease lasts, however slow the machine.
const PART_BYTES: usize = 64 << 10;

const WAYS: [&str; 3] = ["state.sock", "state.shm", "rpc"];

fn serve(data: &Path) -> Server {
    Server::start(data, "127.0.0.1:0", &["--rpc", "on"])
}

fn carrier(address: &str, data: &Path, way: &str) -> Box<dyn Call<Error = Error>> {
    if way == "rpc" {
        let translator = Translator::new(&thalweg_schema::parse("state.jsonc", SCHEMA).unwrap());
        let url = format!("http://{address}/rpc/state");
        return Box::new(Carrier::new(Client::new(&url, ClientOptions::default()).unwrap(), translator));
    }
    let endpoint = data.join(way).to_str().unwrap().parse().unwrap();
    let options = ServiceOptions { schema: SCHEMA_HASH, ..ServiceOptions::default() };
    Box::new(SyncClient::connect(&endpoint, options).unwrap())
}

fn value(session: &mut Any, key: &str) -> Option<Vec<u8>> {
    session.get(key).unwrap().map(std::borrow::Cow::into_owned)
}

#[test]
fn what_was_not_committed_is_taken_back_whatever_carries_the_session() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = serve(&data);
    for way in WAYS {
        let mut session: Any = Session::open(carrier(server.address(), &data, way), "main", None).unwrap();
        let mut other: Any =
            Session::open(carrier(server.address(), &data, "state.sock"), "main", None).unwrap();
        assert_eq!((session.fork(), session.lease()), ("main", Duration::from_secs(30)));
        assert_eq!(session.rollback().unwrap_err().code(), Some(RefusalCode::NoSnapshot));
        session.put(way, b"before").unwrap();
        let root = session.root().unwrap();
        let at = session.snapshot().unwrap();
        session.put(way, b"\xff\x00").unwrap();
        session.write([("b", Some(&b"1"[..])), ("c", None)]).unwrap();
        assert_eq!(value(&mut session, way).as_deref(), Some(&b"\xff\x00"[..]));
        assert_eq!(value(&mut other, way).as_deref(), Some(&b"before"[..]));
        session.rollback().unwrap();
        assert_eq!(session.root().unwrap(), root);
        // A snapshot while one is pending commits that one.
        assert_eq!(session.snapshot().unwrap(), at);
        session.put(way, b"kept").unwrap();
        assert!(session.snapshot().unwrap() > at);
        assert_eq!(value(&mut other, way).as_deref(), Some(&b"kept"[..]));
        session.remove(way).unwrap();
        let (page, next) = session.scan(None, Some(10)).unwrap();
        assert!(next.is_none() && page.iter().all(|entry| entry.key != way));
        let end = session.commit().unwrap();
        assert_eq!(session.commit().unwrap(), end, "the second time it says what the first said");
        assert_eq!(value(&mut other, way), None);
        session.snapshot().unwrap();
        other.put("beside", way.as_bytes()).unwrap();
        session.put("beside", b"mine").unwrap();
        assert_eq!(session.commit().unwrap_err().code(), Some(RefusalCode::Conflict));
        session.rollback().unwrap();
        session.close().unwrap();
        other.close().unwrap();
    }
    server.end();
}

/// No test of its own: the client that is killed in one, this program again. It uses its session for as long
/// as it lives.
#[test]
fn the_client() {
    let (Ok(way), Ok(at)) = (std::env::var(CLIENT_WAY), std::env::var(CLIENT_AT)) else { return };
    let (address, data) = at.split_once(' ').unwrap();
    let call = carrier(address, Path::new(data), &way);
    let mut session: Any = Session::open(call, "main", Some(LEASE)).unwrap();
    session.snapshot().unwrap();
    for part in 0..HELD_BYTES / PART_BYTES {
        session.put(&format!("held/{part}"), &vec![b'x'; PART_BYTES]).unwrap();
    }
    println!("token {}", session.token());
    loop {
        session.get("a").unwrap();
        std::thread::sleep(LEASE / 10);
    }
}

/// Sessions that are open, and the bytes that they hold.
fn held(server: &Server) -> (u64, u64) {
    let page = ask(server, "GET /metrics HTTP/1.1");
    let value = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (value("thalweg_state_sessions "), value("thalweg_memory_bytes{kind=\"sessions\"} "))
}

/// What is counted, once connections that ended are gone: the same ten times in a row.
fn settled(count: impl Fn() -> usize) -> usize {
    let (mut last, mut same) = (count(), 0);
    until("nothing is opened and closed", || {
        let now = count();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same == 10
    });
    last
}

#[test]
fn a_client_that_is_killed_leaves_nothing_behind_its_lease() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    // One reactor, so that what the first use of a way leaves for the next is there before it is counted.
    let server = Server::start(&data, "127.0.0.1:0", &["--rpc", "on", "--reactors", "1"]);
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count();
    let forks = || {
        let mut state = StateClient::new(carrier(server.address(), &data, "rpc"));
        state.forks(&StateForks { start: None, limit: None }).unwrap().forks.len()
    };
    let before = forks();
    for way in WAYS {
        let mut session: Any = Session::open(carrier(server.address(), &data, way), "main", None).unwrap();
        session.snapshot().unwrap();
        session.put("held/0", &vec![b'x'; PART_BYTES]).unwrap();
        session.close().unwrap();
        let open = settled(descriptors);
        let mut client = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_client", "--nocapture"])
            .envs([(CLIENT_WAY, way), (CLIENT_AT, &format!("{} {}", server.address(), data.display()))])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
        let token =
            lines.find_map(|line| line.rsplit_once("token ").map(|(_, token)| token.to_owned())).unwrap();
        // As long as it lives its lease does not end.
        std::thread::sleep(LEASE + LEASE / 5);
        let (sessions, bytes) = held(&server);
        assert!(sessions == 1 && bytes > HELD_BYTES as u64, "{way}: {sessions} {bytes}");
        client.kill().unwrap();
        client.wait().unwrap();
        // Without anybody's call.
        let killed = Instant::now();
        while held(&server) != (0, 0) || descriptors() > open {
            let left = (held(&server), descriptors());
            assert!(killed.elapsed() < PATIENCE, "{way}: {left:?} of {open}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let gone = Session::rejoin(carrier(server.address(), &data, way), &token).map(drop).unwrap_err();
        assert_eq!(gone.code(), Some(RefusalCode::SessionExpired), "{way}");
        let mut session: Any = Session::open(carrier(server.address(), &data, way), "main", None).unwrap();
        assert_eq!((value(&mut session, "held/0"), forks()), (None, before), "{way}");
        session.close().unwrap();
    }
    server.end();
}

#[test]
fn a_token_is_good_on_every_way_in_until_the_lease_or_the_server_ends() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = serve(&data);
    let mut held = Vec::new();
    for (way, again) in WAYS.into_iter().zip(WAYS.into_iter().cycle().skip(1)) {
        let mut session: Any = Session::open(carrier(server.address(), &data, way), "main", None).unwrap();
        session.snapshot().unwrap();
        session.put("volatile", way.as_bytes()).unwrap();
        let token = session.token().to_owned();
        drop(session);
        let (mut session, pending): (Any, bool) =
            Session::rejoin(carrier(server.address(), &data, again), &token).unwrap();
        assert!(pending);
        assert_eq!(value(&mut session, "volatile").as_deref(), Some(way.as_bytes()));
        held.push(token);
    }
    let brief = Some(Duration::from_millis(1));
    let mut session: Any =
        Session::open(carrier(server.address(), &data, "state.sock"), "main", brief).unwrap();
    let begun = Instant::now();
    // Each use begins its lease anew, so it has to be left alone for longer than that.
    while session.get("a").err().map(|error| error.code()) != Some(Some(RefusalCode::SessionExpired)) {
        assert!(begun.elapsed() < PATIENCE, "it never expires");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.end();
    let server = serve(&data);
    for (way, token) in WAYS.into_iter().zip(held) {
        let lost = Session::rejoin(carrier(server.address(), &data, way), &token).map(drop).unwrap_err();
        assert_eq!(lost.code(), Some(RefusalCode::SessionLost), "{lost}");
        let mut session: Any = Session::open(carrier(server.address(), &data, way), "main", None).unwrap();
        assert_eq!(value(&mut session, "volatile"), None, "it was never committed");
    }
    server.end();
}
