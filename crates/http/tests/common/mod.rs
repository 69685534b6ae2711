//! A small service with known rules, a server around it on a thread, and a plain client.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not in a test function")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_http::tls::Identity;
use thalweg_http::{Config, ConnectionCounts, Http, ListenerSettings, Message, Meters};
use thalweg_reactor::{Handle, Pool, Reactor, Wait};
use thalweg_transport::Listener;
use thalweg_wire::exchange::{
    Advance, Announced, Answer, Live, Method, Mode, Now, Refusal, Request, Response, Service, Weight, Work,
};
use thalweg_wire::http1::{BodyLength, ChunkedDecoder, parse_response};
use thalweg_wire::piece::Piece;

/// How long what is about to happen may take, on however slow a machine, before it is taken to happen never.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What the service and the test both see.
#[derive(Debug, Default)]
pub struct Shared {
    /// The one topic's bytes.
    pub log: Vec<u8>,
    /// The topic takes no more.
    pub closed: bool,
    pub calls: usize,
    /// The paths of all calls, in order.
    pub paths: Vec<String>,
    /// How often a position was encoded.
    pub advances: usize,
    pub watched: usize,
    pub unwatched: usize,
    pub acknowledged: usize,
    /// A request for `/stay` is told of here, and goes on once nobody holds this.
    pub gate: Arc<Mutex<()>>,
    pub stays: bool,
    /// The bytes are not in memory; the thread that brings them there waits for this.
    pub cold: Option<Arc<Mutex<()>>>,
    /// How often bytes were asked for that are not in memory.
    pub cold_asks: usize,
    /// What `/lent` is answered.
    pub lent: Piece,
    /// Names of the answers that may be brought, and how many bytes each has behind its name.
    pub ripe: Vec<u64>,
    pub later_bytes: usize,
    /// Names of the answers nobody waits for any more.
    pub gone: Vec<u64>,
    /// How often the service was asked to look, and after how long it wants to be asked again.
    pub looks: usize,
    pub patience_ms: Option<u32>,
    /// Whether something is written each time anybody asks, and how often it was.
    pub writes_come: bool,
    pub writes: u64,
    /// Bytes of the largest event.
    pub event_bytes_max: usize,
    /// What the topic grows by right before it is watched the next time, so that nobody is told.
    pub grows_unwatched: String,
}

/// `/echo` answers with what it was sent; `/after/N` when ticket N is complete; `/later/N` when that name is
/// ripe; `/big/N` with N bytes; `/stay` once the gate is open; `/held/N` with N that a file holds, which says
/// `f` where memory says `m`, between two small pieces, `/unheld/N` with the same of a file that cannot be
/// sent from; `/slow/N` after N ms, with everything waiting; `/poll/OFFSET` and `/sse/OFFSET` follow the
/// topic; `/lent` with what the test lends it; `/sse` from behind its end is refused once it is looked at.
pub struct TestService {
    pub shared: Arc<Mutex<Shared>>,
}

fn respond(status: u16, body: impl Into<Piece>) -> Response {
    let mut response = Response { status, ..Response::default() };
    response.body.push(body.into());
    response
}

/// A file of so many bytes behind ten others.
fn file(bytes: usize) -> OwnedFd {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[b"0123456789", &vec![b'f'; bytes][..]].concat()).unwrap();
    file.into()
}

fn held(bytes: usize, file: OwnedFd) -> Response {
    let mut response = respond(200, "begin ");
    response.body.push(Piece::held(vec![b'm'; bytes].into(), Arc::new(file), 10));
    response.body.push(b" end"[..].into());
    response
}

impl TestService {
    /// What has to be done before the bytes can be sent, if they are cold.
    fn cold(&self) -> Option<Work> {
        let gate = {
            let mut shared = self.shared.lock().unwrap();
            shared.cold_asks += usize::from(shared.cold.is_some());
            shared.cold.clone()?
        };
        let shared = Arc::clone(&self.shared);
        Some(Work(Box::new(move || {
            let _opened = gate.lock().unwrap();
            shared.lock().unwrap().cold = None;
        })))
    }
}

impl Service for TestService {
    type Topic = u64;

    fn weight(&self, head: &Request<'_>) -> Weight {
        if head.path.starts_with("/small") { Weight::Small } else { Weight::of(head.method) }
    }

    fn appends(&self, head: &Request<'_>) -> bool {
        head.method == Method::Post && head.path != "/small"
    }

    fn call(&mut self, request: &Request<'_>, _now: Now) -> Answer<u64> {
        let waits = request.path.starts_with("/big") || request.path == "/echo/cold";
        if let Some(work) = self.cold().filter(|_| waits) {
            return Answer::Cold(work);
        }
        let mut shared = self.shared.lock().unwrap();
        shared.calls += 1;
        shared.paths.push(request.path.to_owned());
        let mut parts = request.path.trim_start_matches('/').split('/');
        let verb = parts.next().unwrap_or_default();
        let number = parts.next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        match verb {
            "echo" => {
                let name = format!("{:?} {} {}", request.method, request.path, request.query.unwrap_or("-"));
                let mut response = respond(200, name);
                response.body.push(request.body.to_vec().into());
                Answer::Respond(response)
            }
            "small" if number > 0 => Answer::Respond(respond(200, vec![b'x'; number as usize])),
            "small" => Answer::Respond(respond(200, "small")),
            "slow" => {
                std::thread::sleep(std::time::Duration::from_millis(number));
                Answer::Respond(respond(200, "slow"))
            }
            "stay" => {
                shared.stays = true;
                let gate = Arc::clone(&shared.gate);
                drop(shared);
                let _opened = gate.lock().unwrap();
                Answer::Respond(respond(200, "stayed"))
            }
            "after" => Answer::After(number, respond(200, format!("after {number}"))),
            "later" => Answer::Later(number),
            "lent" => Answer::Respond(respond(200, shared.lent.clone())),
            "big" => Answer::Respond(respond(200, vec![b'x'; number as usize])),
            "held" => Answer::Respond(held(number as usize, file(number as usize))),
            "unheld" => {
                let (nobody_sends_from, _) = std::os::unix::net::UnixStream::pair().unwrap();
                Answer::Respond(held(number as usize, nobody_sends_from.into()))
            }
            "empty" => Answer::Respond(Response { status: number as u16, ..Response::default() }),
            "poll" | "sse" => {
                let mode = if verb == "sse" { Mode::Sse } else { Mode::LongPoll };
                let live = Live { mode, flavour: 7, opened: false, offset: number, cursor: 0 };
                let head = Response {
                    status: 200,
                    fields: b"Content-Type: text/event-stream\r\n"[..].into(),
                    ..Response::default()
                };
                let lasts_ms = parts.next().and_then(|n| n.parse().ok());
                Answer::Live { topic_id: 1, topic: 1, live, head, lasts_ms }
            }
            _ => Answer::Respond(respond(404, "no such path")),
        }
    }

    fn admit(&mut self, head: &Request<'_>, _now: Now) -> Option<Response> {
        (head.path == "/denied").then(|| respond(403, "denied"))
    }

    fn look(&mut self, _now: Now, each: &mut dyn FnMut(u64, Response)) -> Option<u32> {
        let mut shared = self.shared.lock().unwrap();
        shared.looks += 1;
        let behind = vec![b'.'; shared.later_bytes];
        shared.ripe.drain(..).for_each(|name| {
            let mut response = respond(200, format!("later {name}"));
            response.body.push(behind.clone().into());
            each(name, response);
        });
        shared.patience_ms
    }

    fn writes(&self) -> u64 {
        let mut shared = self.shared.lock().unwrap();
        shared.writes += u64::from(shared.writes_come);
        shared.writes
    }

    fn gone(&mut self, later: u64) {
        self.shared.lock().unwrap().gone.push(later);
    }

    fn failed(&mut self, _now: Now) -> Response {
        respond(500, "failed")
    }

    fn watch(&mut self, _topic: &u64) {
        let mut shared = self.shared.lock().unwrap();
        let grown = std::mem::take(&mut shared.grows_unwatched);
        shared.log.extend_from_slice(grown.as_bytes());
        shared.watched += 1;
    }

    fn unwatch(&mut self, _topic: &u64) {
        self.shared.lock().unwrap().unwatched += 1;
    }

    fn acknowledge(&mut self, _topic: &u64) {
        self.shared.lock().unwrap().acknowledged += 1;
    }

    fn advance(&mut self, _topic: &u64, live: &Live, _now: Now) -> Advance {
        assert_eq!(live.flavour, 7);
        if let Some(work) = self.cold() {
            return Advance::Cold(work);
        }
        let mut shared = self.shared.lock().unwrap();
        shared.advances += 1;
        let from = (live.offset as usize).min(shared.log.len());
        let to = shared.log.len().min(from + shared.event_bytes_max.max(1));
        let end = shared.closed && to == shared.log.len();
        match live.mode {
            Mode::LongPoll if from == to && !end => Advance::Wait,
            Mode::LongPoll => Advance::Respond(respond(200, shared.log[from..to].to_vec())),
            Mode::Sse if !live.opened && live.offset > shared.log.len() as u64 => {
                Advance::Respond(respond(410, "gone"))
            }
            Mode::Sse if from == to && live.opened && !end => Advance::Wait,
            Mode::Sse => {
                let text = String::from_utf8_lossy(&shared.log[from..to]);
                let bytes = bytes::Bytes::from(format!("data: {text}\n\nevent: control\ndata: {to}\n\n"));
                Advance::Events { bytes, next: to as u64, end }
            }
        }
    }

    fn deadline(&mut self, _topic: &u64, _live: &Live, _now: Now) -> Response {
        Response { status: 204, ..Response::default() }
    }

    fn refuse(&mut self, refusal: &Refusal, _announced: Announced<'_>, _now: Now) -> Response {
        respond(refusal.status, format!("{} {}", refusal.code, refusal.field))
    }
}

fn shared() -> Arc<Mutex<Shared>> {
    Arc::new(Mutex::new(Shared { event_bytes_max: 1 << 20, ..Shared::default() }))
}

fn listening(descriptor: OwnedFd) -> ListenerSettings {
    ListenerSettings {
        descriptor,
        shared: false,
        handed_over: false,
        identity: None,
        same_user_only: false,
        known_hosts_only: false,
    }
}

/// A server without a thread: it does something when the test has it turn, and nothing in between. Its
/// clients come by a Unix socket, where what one end does is there for the other at once.
pub struct TurnedServer {
    pub shared: Arc<Mutex<Shared>>,
    pub reactor: Reactor<Http<TestService>>,
    directory: tempfile::TempDir,
}

impl TurnedServer {
    pub fn new(config: Config) -> Self {
        let (shared, directory) = (shared(), tempfile::tempdir().unwrap());
        let listener = Listener::unix(&directory.path().join("s")).unwrap();
        // Its path goes with the directory.
        let (descriptor, path) = listener.into_parts();
        std::mem::forget(path);
        let service = TestService { shared: Arc::clone(&shared) };
        let reactor = Reactor::new(thalweg_reactor::Config::default(), |core| {
            Http::new(core, service, config, vec![listening(descriptor)])
        });
        Self { shared, reactor: reactor.unwrap(), directory }
    }

    /// A client that the server has accepted.
    pub fn connect(&mut self) -> Client {
        let stream = UnixStream::connect(self.directory.path().join("s")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.settle();
        // What is read and written is the same.
        Client { stream: OwnedFd::from(stream).into(), buffer: Vec::new() }
    }

    /// One turn, without waiting for anything.
    pub fn turn(&mut self) -> usize {
        self.reactor.turn(256, Wait::Poll).unwrap()
    }

    /// Turns until there is nothing to do.
    pub fn settle(&mut self) {
        while self.turn() > 0 {}
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub shared: Arc<Mutex<Shared>>,
    pub handle: Handle<Message>,
    /// What it counts.
    pub meters: Arc<Meters>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(config: Config) -> Self {
        Self::start_as(config, None)
    }

    /// One where TLS is spoken, if it has an identity.
    pub fn start_as(config: Config, identity: Option<Identity>) -> Self {
        Self::start_with(config, identity, false, Pool::start(1).unwrap())
    }

    /// One that looks again before it sleeps while work comes fast, wherever it runs.
    pub fn start_spinning(config: Config) -> Self {
        Self::start_with(config, None, true, Pool::start(1).unwrap())
    }

    /// One whose pool is the caller's.
    pub fn start_over(config: Config, pool: Pool) -> Self {
        Self::start_with(config, None, false, pool)
    }

    fn start_with(config: Config, identity: Option<Identity>, spin: bool, pool: Pool) -> Self {
        let _ = thalweg_sys::process::raise_descriptors_max(20_000);
        let shared = shared();
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
        let address = listener.local_address().unwrap();
        let service = TestService { shared: Arc::clone(&shared) };
        let (sender, receiver) = channel();
        let meters = Arc::<Meters>::default();
        let counted = meters.clone();
        let thread = std::thread::spawn(move || {
            let entries = config.connections_max + Http::<TestService>::entries_beside(1);
            let reactor_config = thalweg_reactor::Config {
                entries_max: entries as u32,
                spin,
                spin_on_one: spin,
                ..Default::default()
            };
            let listening = ListenerSettings { identity, ..listening(listener.into_parts().0) };
            let mut reactor = Reactor::new(reactor_config, |core| {
                let http = Http::new(core, service, config, vec![listening])?;
                Ok::<_, std::io::Error>(http.with_pool(pool).with_meters(counted))
            })
            .unwrap();
            sender.send(reactor.handle()).unwrap();
            reactor.run().unwrap();
        });
        Self { address, shared, handle: receiver.recv().unwrap(), meters, thread: Some(thread) }
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, buffer: Vec::new() }
    }

    pub fn post(&self, message: Message) {
        self.handle.post(message).unwrap();
    }

    /// The service has something to look at.
    pub fn nudge(&self) {
        self.handle.nudge();
    }

    /// Appends to the topic, which nobody watches yet.
    pub fn write(&self, text: &str) {
        self.shared.lock().unwrap().log.extend_from_slice(text.as_bytes());
    }

    /// Appends to the topic and announces it.
    pub fn append(&self, text: &str) {
        self.write(text);
        self.post(Message::Advanced { topic_id: 1 });
    }

    /// Appends to the topic and closes it, at once: a look between the two would find it closed without the
    /// text.
    pub fn append_last(&self, text: &str) {
        let mut shared = self.shared.lock().unwrap();
        shared.log.extend_from_slice(text.as_bytes());
        shared.closed = true;
        drop(shared);
        self.post(Message::Advanced { topic_id: 1 });
    }

    pub fn counts(&self) -> ConnectionCounts {
        let (sender, receiver) = channel();
        self.post(Message::Count(sender));
        receiver.recv().unwrap()
    }

    /// Waits until the counts is as wanted.
    pub fn until(&self, what: &str, wanted: impl Fn(&ConnectionCounts) -> bool) -> ConnectionCounts {
        let start = Instant::now();
        loop {
            let counts = self.counts();
            if wanted(&counts) {
                return counts;
            }
            assert!(start.elapsed() < PATIENCE, "never {what}: {counts:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the service is inside of a call for `/stay`, and the reactor with it.
    pub fn until_it_stays(&self) {
        until("inside of the call", || self.shared.lock().unwrap().stays);
    }

    /// Waits for the reactor to end by itself.
    pub fn join(&mut self) {
        let thread = self.thread.take().unwrap();
        until("over", || thread.is_finished());
        thread.join().unwrap();
    }
}

/// Waits for what is about to happen.
pub fn until(what: &str, mut wanted: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !wanted() {
        assert!(begun.elapsed() < PATIENCE, "never {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            assert!(outcome.is_ok() || std::thread::panicking(), "the reactor panicked");
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Answered {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub keep_alive: bool,
}

impl Answered {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub struct Client {
    pub stream: TcpStream,
    pub buffer: Vec<u8>,
}

impl Client {
    pub fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    pub fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
    }

    /// Reads more; `false` at the end of the stream.
    pub fn fill(&mut self) -> bool {
        let mut chunk = [0; 65_536];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                true
            }
            Err(error) => panic!("reading: {error}; so far {:?}", String::from_utf8_lossy(&self.buffer)),
        }
    }

    pub fn answer(&mut self) -> Answered {
        self.answer_to(false)
    }

    /// Reads a response head; what follows stays in the buffer.
    pub fn head(&mut self, to_head: bool) -> (Answered, Option<BodyLength>) {
        loop {
            let received = std::mem::take(&mut self.buffer);
            if let Some(head) = parse_response(&received, to_head).unwrap() {
                let fields = head.fields.iter();
                let fields =
                    fields.map(|f| (f.name.to_owned(), String::from_utf8_lossy(f.value).into_owned()));
                let answered = Answered {
                    status: head.status,
                    fields: fields.collect(),
                    body: Vec::new(),
                    keep_alive: head.keep_alive,
                };
                self.buffer = received[head.bytes..].to_vec();
                return (answered, head.body);
            }
            self.buffer = received;
            assert!(self.fill(), "the connection ended in a response head");
        }
    }

    pub fn answer_to(&mut self, to_head: bool) -> Answered {
        let (mut answered, body) = self.head(to_head);
        match body {
            Some(BodyLength::Known(length)) => {
                while self.buffer.len() < length as usize {
                    assert!(self.fill(), "the connection ended in a body");
                }
                answered.body = self.buffer.drain(..length as usize).collect();
            }
            Some(BodyLength::Chunked) => answered.body = self.chunks(|_| false),
            None => {
                while self.fill() {}
                answered.body = std::mem::take(&mut self.buffer);
            }
        }
        answered
    }

    /// Reads a chunked body until its end or until `enough`.
    pub fn chunks(&mut self, enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut decoder = ChunkedDecoder::default();
        let mut body = Vec::new();
        loop {
            let chunk = decoder.decode(&self.buffer).unwrap();
            body.extend_from_slice(chunk.data);
            let (consumed, done) = (chunk.consumed, chunk.done);
            self.buffer.drain(..consumed);
            if done || (enough(&body) && self.buffer.is_empty()) {
                return body;
            }
            if consumed == 0 || self.buffer.is_empty() {
                assert!(
                    self.fill(),
                    "the connection ended in a chunked body: {:?}",
                    String::from_utf8_lossy(&body)
                );
            }
        }
    }

    /// Says that nothing more comes.
    pub fn finish(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// The peer closed, in good order.
    pub fn at_end(&mut self) -> bool {
        !self.fill() && self.buffer.is_empty()
    }
}
