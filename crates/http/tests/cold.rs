//! Bytes that are not in memory hold back the client that asked for them, and no other.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not in a test function")]

mod common;

use bytes::Bytes;
use common::{Client, Server};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use thalweg_http::{Config, Message};
use thalweg_reactor::{Crew, Job, Pool};
use thalweg_sync::region::Region;
use thalweg_sys::disk::{Disk, bring_in, is_present};
use thalweg_wire::piece::Piece;

fn config() -> Config {
    Config { connections_max: 100, ..Config::default() }
}

/// A server whose bytes are cold until the gate's lock is let go.
fn cold(config: Config) -> (Server, Arc<Mutex<()>>) {
    let server = Server::start(config);
    let gate = Arc::new(Mutex::new(()));
    server.shared.lock().unwrap().cold = Some(Arc::clone(&gate));
    (server, gate)
}

#[test]
fn a_reactor_goes_on_while_a_read_waits_for_the_disk() {
    let (server, gate) = cold(config());
    let closed = gate.lock().unwrap();
    let (mut waits, mut passes) = (server.connect(), server.connect());
    waits.send("GET /big/9000 HTTP/1.1\r\nHost: t\r\n\r\nGET /echo/behind HTTP/1.1\r\nHost: t\r\n\r\n");
    for _ in 0..10 {
        passes.get("/echo");
        assert_eq!(passes.answer().text(), "Get /echo -");
    }
    assert_eq!(server.counts().quiet, 1, "the one that waits keeps its request");
    drop(closed);
    assert_eq!(waits.answer().body.len(), 9000);
    assert_eq!(waits.answer().text(), "Get /echo/behind -", "in the order of the requests");
    server.until("quiet", |counts| counts.quiet == 2);
}

#[test]
fn a_request_that_waits_keeps_its_body_however_it_came() {
    for framing in [
        "Content-Length: 11\r\n\r\nhello world",
        "Transfer-Encoding: chunked\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n",
    ] {
        let (server, gate) = cold(config());
        let closed = gate.lock().unwrap();
        let (mut waits, mut passes) = (server.connect(), server.connect());
        waits.send(&format!(
            "PUT /echo/cold HTTP/1.1\r\nHost: t\r\n{framing}GET /echo/behind HTTP/1.1\r\nHost: t\r\n\r\n"
        ));
        passes.get("/echo");
        assert_eq!(passes.answer().text(), "Get /echo -");
        drop(closed);
        assert_eq!(waits.answer().text(), "Put /echo/cold -hello world", "{framing}");
        assert_eq!(waits.answer().text(), "Get /echo/behind -", "{framing}");
    }
}

#[test]
fn a_subscriber_whose_history_is_cold_gets_all_of_it() {
    let (server, gate) = cold(config());
    let closed = gate.lock().unwrap();
    server.write("history ");
    let mut client = server.connect();
    client.get("/poll/0");
    server.until("subscribed", |counts| counts.subscribed == 1 && counts.quiet == 0);
    server.append("and news");
    let mut passes = server.connect();
    passes.get("/echo");
    assert_eq!(passes.answer().text(), "Get /echo -");
    drop(closed);
    assert_eq!(client.answer().text(), "history and news");
}

#[test]
fn a_subscriber_that_finds_as_many_waiting_as_may_waits_for_one_of_them() {
    let (server, gate) = cold(Config { cold_reads_max: 1, ..config() });
    let closed = gate.lock().unwrap();
    server.write("history");
    let mut waiting: Vec<_> = (0..5).map(|_| server.connect()).collect();
    waiting.iter_mut().for_each(|client| client.get("/poll/0"));
    let mut gone = server.connect();
    gone.get("/poll/0");
    let mut follows = server.connect();
    follows.get("/sse/0");
    server.until("subscribed", |counts| counts.subscribed == 7);
    drop(gone);
    server.until("one has left", |counts| counts.subscribed == 6);
    drop(closed);
    for client in &mut waiting {
        assert_eq!(client.answer().text(), "history");
    }
    follows.head(false);
    let events = follows.chunks(|events| events.ends_with(b"data: 7\n\n"));
    assert!(events.starts_with(b"data: history\n"), "{}", String::from_utf8_lossy(&events));
}

#[test]
fn reads_that_the_pool_has_no_room_for_are_refused_and_not_counted() {
    let pool = Pool::crew(Crew { name: "cold", threads: 1, stack_bytes: None, queue_max: 1 }).0;
    let server = Server::start_over(config(), pool);
    let gate = Arc::new(Mutex::new(()));
    server.shared.lock().unwrap().cold = Some(Arc::clone(&gate));
    let closed = gate.lock().unwrap();
    let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.get("/big/9000"));
    let has_room_for = 2;
    common::until("refused", || server.meters.traffic().overloads_in_all() >= 5 - has_room_for as u64);
    drop(closed);
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.answer().status).collect();
    let refused = statuses.iter().filter(|status| **status == 503).count();
    assert!((5 - has_room_for..5).contains(&refused), "{statuses:?}");
    for _ in 0..5 {
        let mut client = server.connect();
        client.get("/big/10");
        assert_eq!(client.answer().status, 200, "nothing is taken for being under way that is not");
    }
}

/// One reactor's pool is every reactor's, so that others may fill it.
#[test]
fn a_subscriber_whose_pool_others_fill_asks_now_and_then_and_not_in_each_turn() {
    const PERIOD_MS: u128 = 10;
    let pool = Pool::crew(Crew { name: "cold", threads: 1, stack_bytes: None, queue_max: 1 }).0;
    let others = Arc::new(Mutex::new(()));
    let full = others.lock().unwrap();
    // One that the thread has, once it took it, and one that waits.
    for _ in 0..2 {
        let others = Arc::clone(&others);
        let mut job: Job = Box::new(move || drop(others.lock().unwrap()));
        common::until("taken", || {
            let given = std::mem::replace(&mut job, Box::new(|| ()));
            pool.submit(given).map_err(|back| job = back).is_ok()
        });
    }
    let server = Server::start_over(config(), pool);
    server.shared.lock().unwrap().cold = Some(Arc::default());
    server.write("history");
    let mut waits: Vec<_> = (0..2).map(|_| server.connect()).collect();
    let begun = Instant::now();
    waits.iter_mut().for_each(|client| client.get("/poll/0"));
    let asks = || server.shared.lock().unwrap().cold_asks;
    common::until("asked again", || asks() >= 8);
    let (asks, elapsed_ms) = (asks() as u128, begun.elapsed().as_millis());
    assert!(asks <= 2 * (2 + elapsed_ms / PERIOD_MS), "{asks} times in {elapsed_ms} ms");
    drop(full);
    for client in &mut waits {
        assert_eq!(client.answer().text(), "history");
    }
}

#[test]
fn who_is_late_because_its_bytes_are_brought_in_gets_them_and_nobody_reads_them_before() {
    let (server, gate) = cold(Config { long_poll_timeout_ms: 20, ..config() });
    let closed = gate.lock().unwrap();
    server.write("history");
    let mut waits = server.connect();
    waits.get("/poll/0");
    server.until("subscribed", |counts| counts.subscribed == 1);
    let mut passes = server.connect();
    // Its time is over by then.
    for path in ["/slow/40", "/echo"] {
        passes.get(path);
        assert_eq!(passes.answer().status, 200);
    }
    drop(closed);
    let answer = waits.answer();
    assert_eq!((answer.status, answer.text().as_str()), (200, "history"));
}

#[test]
fn a_peer_that_leaves_while_its_bytes_are_brought_in_is_forgotten() {
    let (server, gate) = cold(config());
    let closed = gate.lock().unwrap();
    let mut client = server.connect();
    client.get("/big/10");
    server.until("waiting", |counts| counts.connections == 1 && counts.quiet == 0);
    drop(client);
    drop(closed);
    server.until("gone", |counts| counts.connections == 0);
    let mut next = server.connect();
    next.get("/big/10");
    assert_eq!(next.answer().body.len(), 10);
}

#[test]
fn what_panics_while_it_is_brought_in_is_refused_and_nobody_else_is() {
    let server = Server::start(Config { cold_reads_max: 1, ..config() });
    let gate = Arc::new(Mutex::new(()));
    let poisoned = Arc::clone(&gate);
    let ended = std::thread::spawn(move || {
        let _held = poisoned.lock().unwrap();
        panic!("on purpose: the next to take this lock panics, too");
    });
    assert!(ended.join().is_err());
    server.shared.lock().unwrap().cold = Some(gate);
    let mut client = server.connect();
    client.get("/big/9000");
    let refused = client.answer();
    assert_eq!((refused.status, refused.text()), (503, "reads-overloaded request".into()));
    // The one thread there is goes on, and the one place for a cold read is free.
    server.shared.lock().unwrap().cold = Some(Arc::default());
    let mut client = server.connect();
    client.get("/big/9000");
    assert_eq!(client.answer().body.len(), 9000);
}

/// A map of a file, of which a piece is sent.
struct Lent(Region);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes(0..self.0.published())
    }
}

/// Has the kernel forget what it keeps of a file; whether it did, which no file system in memory does.
fn forgets(path: &Path, bytes: &[u8]) -> bool {
    let input = format!("if={}", path.display());
    let told = Command::new("dd").args([&*input, "iflag=nocache", "count=0", "status=none"]).status();
    assert!(told.unwrap().success());
    !is_present(&bytes[bytes.len() / 2..])
}

const LENT_BYTES: usize = 16 << 20;
const STALL_MS: u32 = 8_000;
/// Bytes that were in memory this long ago are taken to be there still.
const PRESENT_MS: u32 = STALL_MS / 16;

/// A server that answers `/lent` from the map of a file in `path`; the map's bytes; its pool of one thread.
fn lending(path: &Path) -> (Server, Bytes, Pool) {
    lending_bytes(path, LENT_BYTES, config())
}

/// The same of so many bytes.
fn lending_bytes(path: &Path, lent_bytes: usize, config: Config) -> (Server, Bytes, Pool) {
    let file = Disk::Real.create(path).unwrap();
    file.write_at(&vec![b'x'; lent_bytes], 0).unwrap();
    file.sync_data().unwrap();
    // SAFETY: nobody but the test has the file, and it was written above.
    let region = unsafe { Region::sealed(file.map(lent_bytes, false).unwrap(), lent_bytes as u32) };
    let lent = Bytes::from_owner(Lent(region));
    let (pool, _) = Pool::crew(Crew { name: "cold", threads: 1, stack_bytes: None, queue_max: 9 });
    let server = Server::start_over(Config { stall_timeout_ms: STALL_MS, ..config }, pool.clone());
    server.shared.lock().unwrap().lent = Piece::held(lent.clone(), file.descriptor().unwrap(), 0);
    (server, lent, pool)
}

/// Has the pool's one thread wait until what this returns is dropped.
fn hold_up(pool: &Pool) -> Sender<()> {
    let (held, released) = channel::<()>();
    assert!(pool.submit(Box::new(move || _ = released.recv())).is_ok());
    held
}

/// Reads on until the server asks the pool for bytes; it must not have sent all of them by then.
fn read_until_asked(server: &Server, reader: &mut Client) {
    reader.stream.set_nonblocking(true).unwrap();
    common::until("asked for", || {
        let mut chunk = [0; 65_536];
        while let Ok(count) = reader.stream.read(&mut chunk) {
            reader.buffer.extend_from_slice(&chunk[..count]);
            assert!(reader.buffer.len() < LENT_BYTES, "it is sent without being asked for");
        }
        server.counts().cold == 1
    });
    reader.stream.set_nonblocking(false).unwrap();
}

#[test]
fn what_a_peer_was_slow_to_take_is_brought_back_before_it_is_sent() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("lent");
    let (server, lent, pool) = lending(&path);
    let (mut slow, mut passes) = (server.connect(), server.connect());
    slow.get("/lent");
    let (head, _) = slow.head(false);
    assert_eq!(head.status, 200);
    if !forgets(&path, &lent) {
        return;
    }
    // For so long a peer is not slow yet.
    passes.get(&format!("/slow/{PRESENT_MS}"));
    assert_eq!(passes.answer().text(), "slow");
    let held = hold_up(&pool);
    read_until_asked(&server, &mut slow);
    passes.get("/echo");
    assert_eq!(passes.answer().text(), "Get /echo -");
    drop(held);
    while slow.buffer.len() < LENT_BYTES {
        assert!(slow.fill(), "the connection ended in a body");
    }
    assert!(slow.buffer.iter().all(|byte| *byte == b'x'));
}

#[test]
fn what_waited_behind_another_answer_is_brought_back_before_it_is_sent() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("lent");
    let (server, lent, pool) = lending(&path);
    let (mut waits, mut passes) = (server.connect(), server.connect());
    waits.send("GET /after/1 HTTP/1.1\r\nHost: t\r\n\r\nGET /lent HTTP/1.1\r\nHost: t\r\n\r\n");
    common::until("read", || server.shared.lock().unwrap().calls == 2);
    if !forgets(&path, &lent) {
        return;
    }
    passes.get(&format!("/slow/{PRESENT_MS}"));
    assert_eq!(passes.answer().text(), "slow");
    let held = hold_up(&pool);
    // What comes in the turn that was slow is still as early as that turn began.
    server.counts();
    server.post(Message::Complete { up_to: 1 });
    read_until_asked(&server, &mut waits);
    assert!(waits.buffer.is_empty(), "nothing is sent meanwhile");
    passes.get("/echo");
    assert_eq!(passes.answer().text(), "Get /echo -");
    drop(held);
    assert_eq!(waits.answer().text(), "after 1");
    let answer = waits.answer();
    assert_eq!((answer.status, answer.body.len()), (200, LENT_BYTES));
    assert!(answer.body.iter().all(|byte| *byte == b'x'));
    server.until("quiet", |counts| counts.quiet == 2 && counts.cold == 0);
}

/// Its answers came back to memory by other means while it waited for room in the pool, and what begins
/// behind them has nothing to send but its head.
#[test]
fn the_head_of_what_begins_while_its_connection_is_put_off_goes_to_who_asked() {
    // Few enough for a socket to take at once.
    const FEW_BYTES: usize = 32 << 10;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("lent");
    let (server, lent, _pool) = lending_bytes(&path, FEW_BYTES, Config { cold_reads_max: 0, ..config() });
    let (mut waits, mut passes, mut stays) = (server.connect(), server.connect(), server.connect());
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
    waits.send(&["/after/1", "/lent", "/after/2", "/sse/0"].map(get).concat());
    common::until("read", || server.shared.lock().unwrap().calls == 4);
    passes.get("/after/3");
    common::until("read", || server.shared.lock().unwrap().calls == 5);
    if !forgets(&path, &lent) {
        return;
    }
    stays.get(&format!("/slow/{PRESENT_MS}"));
    assert_eq!(stays.answer().text(), "slow");
    server.counts();
    server.post(Message::Complete { up_to: 1 });
    server.until("put off", |counts| counts.waiting == 2);
    let gate = Arc::clone(&server.shared.lock().unwrap().gate);
    let closed = gate.lock().unwrap();
    stays.get("/stay");
    server.until_it_stays();
    bring_in(&lent);
    // Before it is let go on: what is posted is heard before what is due.
    (2..=3).for_each(|up_to| server.post(Message::Complete { up_to }));
    drop(closed);
    assert_eq!(stays.answer().text(), "stayed");
    assert_eq!(passes.answer().text(), "after 3");
    assert_eq!(waits.answer().text(), "after 1");
    assert_eq!(waits.answer().body.len(), FEW_BYTES);
    assert_eq!(waits.answer().text(), "after 2");
    assert_eq!(waits.head(false).0.status, 200);
    server.append("news");
    waits.chunks(|events| events.ends_with(b"data: 4\n\n"));
}
