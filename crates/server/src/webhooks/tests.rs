use super::*;
use crate::command_line::Durability;
use crate::engine::{Retain, Service};
use crate::run::{Housekeeper, Threads};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use thalweg_state::{Change, Options as StateOptions};
use thalweg_streams::Loopback;
use thalweg_sys::clock;
use thalweg_wire::exchange::{Answer, Method, Request, Service as _};
use thalweg_wire::field::{Field, Name};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn what_an_answer_means() {
    let of = |status, body: &str| outcome(&Reply { status, body: body.as_bytes().to_vec() });
    assert_eq!(of(200, r#"{"done":true}"#), Outcome::Done);
    assert_eq!(of(202, r#"{"done":false}"#), Outcome::Accepted);
    assert_eq!(of(200, r#"{"done":"true"}"#), Outcome::Accepted);
    assert_eq!(of(204, ""), Outcome::Accepted);
    assert_eq!(of(302, r#"{"done":true}"#), Outcome::Failed);
    assert_eq!(of(500, r#"{"done":true}"#), Outcome::Failed);
}

#[test]
fn localhost_is_asked_of_nobody_and_a_name_that_leads_inside_is_refused() {
    let near = Target::parse("http://localhost:9/", true).unwrap();
    let addresses = known_addresses(&near).unwrap();
    assert_eq!(addresses, ["127.0.0.1:9".parse().unwrap(), "[::1]:9".parse().unwrap()]);
    let public = Target::parse("https://rebound.example:8443/", true).unwrap();
    assert_eq!(known_addresses(&public), None);
    let [inside, outside]: [IpAddr; 2] = ["127.0.0.1", "93.184.216.34"].map(|text| text.parse().unwrap());
    let why = permitted(&public, &[inside]).unwrap_err();
    assert_eq!(why.kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(permitted(&public, &[inside, outside]).unwrap(), [SocketAddr::new(outside, 8443)]);
}

#[test]
fn whoever_watches_a_servers_threads_sees_the_end_of_this_one() {
    let state = StateOptions::default();
    let engine = Engine::open(Path::new(""), Durability::Memory, Retain::default(), state).unwrap();
    let (webhooks, housekeeper) =
        (WebhookThread::start(&engine).unwrap(), Housekeeper::start(&engine).unwrap());
    let threads = Threads { reactors: Vec::new(), neighbours: None, webhooks, housekeeper };
    assert!(!threads.has_ended());
    threads.webhooks.handle.stop();
    let start = Instant::now();
    while !threads.has_ended() {
        assert!(start.elapsed() < PATIENCE, "nobody sees that subscriptions are not driven any more");
        std::thread::sleep(Duration::from_millis(5));
    }
    threads.end(&engine, 0, || false).unwrap();
}

/// A watcher that ignores what becomes durable: in memory everything is durable at once.
struct Deaf;

impl thalweg_log::Watch for Deaf {
    fn complete(&self, _up_to: thalweg_log::Position) {}

    fn failed(&self) {}

    fn advanced(&self, _log: thalweg_log::LogId) {}
}

/// Subscriptions over a store in memory, and a resolver: names that begin with `inside` lead to this machine,
/// others nowhere. It says so of names that begin with `hangs` only when the test ends. Of names that begin
/// with `slow` it says, once the test lets it, that they have no addresses.
struct World {
    engine: Engine,
    service: Service,
    running: WebhookThread,
    /// The names that were asked for, but those that hang.
    asked: Receiver<String>,
    /// A message for each time the system's certificates were read.
    trusted: Receiver<()>,
    /// Look-ups of slow names come to their end once this is gone.
    slow: Option<Sender<()>>,
    end: Sender<()>,
}

impl World {
    fn new(wait_ms_max: u64) -> World {
        let state = StateOptions::default();
        let engine = Engine::open(Path::new(""), Durability::Memory, Retain::default(), state).unwrap();
        let engine = engine.with_webhooks_loopback(Loopback::OfPrograms);
        let (end, ended) = channel();
        let (told, asked) = channel();
        let (slow, let_go) = channel();
        let (ended, told, let_go) = (Mutex::new(ended), Mutex::new(told), Mutex::new(let_go));
        let ask = move |host: &str| {
            if host.starts_with("hangs") {
                let _: Result<(), _> = ended.lock().unwrap().recv();
            } else {
                let _ = told.lock().unwrap().send(host.to_owned());
            }
            if host.starts_with("slow") {
                let _: Result<(), _> = let_go.lock().unwrap().recv();
                return Ok(Vec::new());
            }
            if host.starts_with("inside") {
                return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
            }
            Err(io::ErrorKind::NotFound.into())
        };
        let (read, trusted) = channel();
        let read = Mutex::new(read);
        let read_trust = move || {
            let _ = read.lock().unwrap().send(());
            let made = rcgen::generate_simple_self_signed([]).unwrap();
            let text = STANDARD.encode(made.cert.der());
            let file = tempfile::NamedTempFile::new().unwrap();
            let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
            std::fs::write(file.path(), pem).unwrap();
            Trust::in_file(file.path())
        };
        let resolver = Resolver { ask: Arc::new(ask), wait_ms_max, read_trust: Arc::new(read_trust) };
        let running = WebhookThread::start_with(&engine, resolver).unwrap();
        let service = engine.service_for(Arc::new(Deaf)).unwrap();
        World { engine, service, running, asked, trusted, slow: Some(slow), end }
    }

    fn call(&mut self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let path = format!("/v1/stream/{path}");
        let fields = [Field { name: Name::ContentType, value: b"application/json" }];
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let body = text.as_bytes();
        let request = Request { method, path: &path, query: None, fields: &fields, body, secure: false };
        let now = Now { time_us: clock::wall_us(), entropy: 0 };
        match self.service.call(&request, now) {
            Answer::Respond(response) | Answer::After(_, response) => {
                let body = serde_json::from_slice(&response.body.concat());
                (response.status, body.unwrap_or(Value::Null))
            }
            other => panic!("{path}: {other:?}"),
        }
    }

    fn subscribe(&mut self, id: &str, url: &str) {
        self.subscribe_to(id, "events/*", url);
    }

    fn subscribe_to(&mut self, id: &str, pattern: &str, url: &str) {
        self.subscribe_as(id, json!({ "type": "webhook", "pattern": pattern, "webhook": { "url": url } }));
    }

    fn subscribe_as(&mut self, id: &str, body: Value) {
        let (status, body) = self.call(Method::Put, &format!("__ds/subscriptions/{id}"), &body);
        assert_eq!(status, 201, "{body}");
    }

    /// So many subscriptions whose names hang; their ids sort in front of all others.
    fn hang(&mut self, count: usize) {
        (0..count).for_each(|number| self.subscribe(&format!("a{number}"), &hanging(number)));
    }

    fn wake(&mut self) {
        self.create("events/a");
    }

    fn create(&mut self, stream: &str) {
        assert_eq!(self.call(Method::Put, stream, &json!([{ "event": 1 }])).0, 201);
    }

    fn until_failed(&mut self, id: &str) {
        let (start, path) = (Instant::now(), format!("__ds/subscriptions/{id}"));
        while self.call(Method::Get, &path, &Value::Null).1["status"] != "failed" {
            assert!(start.elapsed() < PATIENCE, "{id} never failed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self) {
        drop((self.slow, self.end));
        self.running.end();
    }
}

/// The next call to a webhook.
fn called(hook: &TcpListener) -> String {
    let (mut request, mut caller) = (String::new(), hook.accept().unwrap().0);
    // What it says last.
    while !request.contains(r#""wake_id":"#) {
        let mut part = [0; 4096];
        let count = caller.read(&mut part).unwrap();
        assert_ne!(count, 0, "it ended within its body");
        request.push_str(std::str::from_utf8(&part[..count]).unwrap());
    }
    request
}

fn url(hook: &TcpListener) -> String {
    format!("http://{}/hook", hook.local_addr().unwrap())
}

fn hanging(number: usize) -> String {
    format!("https://hangs-{number}.example/hook")
}

#[test]
fn names_whose_servers_are_silent_hold_back_only_themselves() {
    let mut world = World::new(LOOK_UP_MS_MAX);
    world.hang(20);
    world.subscribe("z", "https://known.example/hook");
    world.wake();
    assert_eq!(world.asked.recv_timeout(PATIENCE).unwrap(), "known.example");
    world.until_failed("z");
    world.end();
}

#[test]
fn a_name_that_is_not_known_in_time_fails_the_call() {
    let mut world = World::new(20);
    world.hang(1);
    world.wake();
    world.until_failed("a0");
    world.end();
}

#[test]
fn the_systems_certificates_are_read_again_after_a_reload_and_not_for_each_call() {
    let mut world = World::new(LOOK_UP_MS_MAX);
    let call = |world: &mut World, name: &str| {
        world.subscribe_to(name, &format!("{name}/*"), "https://inside.example/hook");
        world.create(&format!("{name}/a"));
        world.until_failed(name);
    };
    call(&mut world, "first");
    assert_eq!(world.trusted.try_iter().count(), 1);
    call(&mut world, "second");
    assert_eq!(world.trusted.try_iter().count(), 0, "they are good for an hour");
    world.running.reload();
    call(&mut world, "third");
    assert!(world.trusted.try_iter().count() > 0, "nobody read them again");
    world.end();
}

#[test]
fn a_call_whose_look_up_began_before_a_reload_trusts_what_is_read_after_it() {
    let mut world = World::new(LOOK_UP_MS_MAX);
    world.subscribe_to("first", "first/*", "https://inside.example/hook");
    world.create("first/a");
    world.until_failed("first");
    assert_eq!(world.asked.recv_timeout(PATIENCE).unwrap(), "inside.example");
    assert_eq!(world.trusted.try_iter().count(), 1);
    world.subscribe("s", "https://slow.example/hook");
    world.wake();
    assert_eq!(world.asked.recv_timeout(PATIENCE).unwrap(), "slow.example");
    world.running.reload();
    world.slow = None;
    world.until_failed("s");
    assert!(world.trusted.try_iter().count() > 0, "it was made with the old ones");
    world.end();
}

#[test]
fn a_call_that_waited_for_its_turn_during_a_reload_trusts_what_is_read_after_it() {
    let mut world = World::new(LOOK_UP_MS_MAX);
    let silent = [(); 16].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    (0..CALLS_MAX).for_each(|number| world.subscribe(&format!("a{number}"), &url(&silent[number % 16])));
    world.subscribe("z", "https://slow.example/hook");
    world.wake();
    assert_eq!(world.asked.recv_timeout(PATIENCE).unwrap(), "slow.example");
    world.slow = None;
    world.trusted.recv_timeout(PATIENCE).unwrap();
    world.running.reload();
    drop(silent);
    world.until_failed("z");
    assert!(world.trusted.try_iter().count() > 0, "it was made with the old ones");
    world.end();
}

#[test]
fn names_that_are_looked_up_are_no_calls() {
    let mut world = World::new(LOOK_UP_MS_MAX);
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    world.hang(CALLS_MAX + 10);
    world.subscribe("z", &format!("http://{}/hook", hook.local_addr().unwrap()));
    world.wake();
    let (told, called) = channel();
    std::thread::spawn(move || {
        let mut begin = [0; 4];
        hook.accept().unwrap().0.read_exact(&mut begin).unwrap();
        told.send(begin).unwrap();
    });
    assert_eq!(&called.recv_timeout(PATIENCE).unwrap(), b"POST");
    world.end();
}

#[test]
fn a_call_that_waits_for_its_turn_is_not_made_for_a_subscription_that_is_gone() {
    let mut world = World::new(LOOK_UP_MS_MAX);
    let hook = &TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = [(); 16].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    (0..CALLS_MAX - 16).for_each(|number| world.subscribe(&format!("a{number}"), &url(&silent[number % 16])));
    (0..16).for_each(|number| world.subscribe(&format!("b{number}"), &url(hook)));
    ["y", "z"].iter().for_each(|id| world.subscribe(id, &url(hook)));
    world.wake();
    // All places are taken then, and what is left waits for one.
    let begun = [(); 16].map(|()| hook.accept().unwrap());
    assert_eq!(world.call(Method::Delete, "__ds/subscriptions/y", &Value::Null).0, 204);
    drop(silent);
    let request = called(hook);
    assert!(request.contains(r#""subscription_id":"z""#), "{request}");
    drop(begun);
    world.end();
}

#[test]
fn a_webhook_that_hangs_holds_back_no_other() {
    let mut world = World::new(LOOK_UP_MS_MAX);
    let [silent, hook] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    (0..CALLS_MAX).for_each(|number| world.subscribe(&format!("a{number}"), &url(&silent)));
    world.subscribe("z", &url(&hook));
    world.wake();
    assert!(called(&hook).contains(r#""subscription_id":"z""#));
    for number in 0..CALLS_MAX {
        let path = format!("__ds/subscriptions/a{number}");
        assert_eq!(
            world.call(Method::Get, &path, &Value::Null).1["status"],
            "active",
            "none was given up for it"
        );
    }
    world.end();
}

#[test]
fn a_fork_of_the_state_wakes_who_subscribed_to_forks() {
    let mut world = World::new(LOOK_UP_MS_MAX);
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    world.subscribe_to("s", "state/forks/*", &format!("http://{}/hook", hook.local_addr().unwrap()));
    let state = world.engine.state().state().unwrap();
    let (fork, _) = state.fork(state.main(), clock::wall_us()).unwrap();
    let changes = [Change::Put("key".into(), b"value"[..].into())].into_iter().collect();
    state.write(fork, &changes, clock::wall_us()).unwrap();
    let (told, calls) = channel();
    std::thread::spawn(move || told.send(called(&hook)).unwrap());
    let request = calls.recv_timeout(PATIENCE).unwrap();
    assert!(request.contains(r#""path":"state/forks/0""#), "{request}");
    world.end();
}

/// A port where one address of `localhost` takes no connection, and says nothing of it, and the other does.
fn half_silent() -> (TcpListener, Vec<TcpStream>, TcpListener) {
    for _ in 0..100 {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let Ok(hook) = TcpListener::bind((Ipv6Addr::LOCALHOST, address.port())) else { continue };
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            queued.push(stream);
        }
        return (silent, queued, hook);
    }
    panic!("no port is free at both addresses");
}

#[test]
fn an_address_that_is_silent_leaves_time_for_the_next() {
    let mut world = World::new(LOOK_UP_MS_MAX);
    let (silent, queued, hook) = half_silent();
    let url = format!("http://localhost:{}/hook", hook.local_addr().unwrap().port());
    // The first call has all of its time, and is not the first of many.
    world.subscribe_as(
        "s",
        json!({ "type": "webhook", "pattern": "events/*", "webhook": { "url": url }, "lease_ttl_ms": 8_000 }),
    );
    world.wake();
    let (told, calls) = channel();
    std::thread::spawn(move || told.send(called(&hook)).unwrap());
    let request = calls.recv_timeout(PATIENCE).unwrap();
    assert!(request.contains(r#""generation":1,"#), "{request}");
    drop((silent, queued));
    world.end();
}
