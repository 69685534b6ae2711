//! A service whose rules are known, a server around it on a thread, and a client that is nothing but a
//! socket.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not in a test function")]

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg_rpc::{Mount, Server, ServerOptions, Stopper};
use thalweg_service::{Handler, Reply, Request};
use thalweg_wire::fault::Fault;
use thalweg_wire::http1::{BodyLength, parse_response};
use thalweg_wire::messagepack::{Reader, write};

/// How long what is about to happen may take, on however slow a machine, before it is taken to happen never.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const SCHEMA: &str = r#"{
    // A service for tests.
    "service": "Trial",
    "error": { "message": "string" },
    "commands": {
        // Answers with what it was given.
        "Same": { "request": { "number": "u64", "text": "string?" }, "response": { "number": "u64", "text": "string?" } },
        // Answers when the test says so.
        "Later": { "request": { "number": "u64" }, "response": { "number": "u64", "text": "string?" } },
        "Refuse": { "request": { "why": "string" }, "response": {} },
        "Panic": { "request": {}, "response": {} },
        "Lie": { "request": {}, "response": { "number": "u64" } },
        "Count": { "request": { "to": "u64" }, "stream": { "number": "u64" }, "response": { "sum": "u64" } },
        // Sends items when the test says so.
        "Trickle": { "request": { "number": "u64" }, "stream": { "number": "u64" }, "response": {} },
    },
}"#;

pub fn schema() -> thalweg_schema::Service {
    thalweg_schema::parse("test.jsonc", SCHEMA).unwrap()
}

/// What the handler and the test both see.
#[derive(Default)]
pub struct Shared {
    /// What was asked, in order.
    pub asked: Vec<String>,
    /// Calls of `Later`.
    pub later: Vec<(u64, Reply)>,
    /// Whether each call came alone.
    pub alone: Vec<bool>,
}

#[derive(Clone, Default)]
pub struct TestHandler(pub Arc<Mutex<Shared>>);

impl Handler for TestHandler {
    fn request(&mut self, request: Request<'_>, mut reply: Reply) {
        let mut reader = Reader::new(request.frame);
        let tag = String::from_utf8(reader.request().unwrap().to_vec()).unwrap();
        let (mut number, mut text) = (0, None);
        for _ in 0..reader.fields("request").unwrap() {
            match reader.key().unwrap() {
                b"number" | b"to" => number = reader.u64().unwrap(),
                _ if reader.nil() => {}
                _ => text = Some(reader.string().unwrap().into_owned()),
            }
        }
        reader.finish().unwrap();
        let mut shared = self.0.lock().unwrap();
        shared.asked.push(format!("{tag} {number}"));
        shared.alone.push(request.alone);
        match tag.as_str() {
            "TrialSame" => reply.end(&numbered("TrialSameResponse", number, text.as_deref())),
            "TrialLater" | "TrialTrickle" => shared.later.push((number, reply)),
            "TrialRefuse" => {
                reply.end(&thalweg_wire::service::error_frame("TrialErrorResponse", &text.unwrap()))
            }
            "TrialPanic" => {
                drop(shared);
                panic!("on purpose");
            }
            "TrialLie" => reply.end(&thalweg_wire::service::error_frame("TrialLieResponse", "no number")),
            "TrialCount" => {
                for number in 1..=number {
                    reply.item(&one("TrialCountItem", "number", number));
                }
                reply.end(&one("TrialCountResponse", "sum", number * (number + 1) / 2));
            }
            _ => reply.fail(Fault::UnknownCommand, "never"),
        }
    }
}

pub fn one(tag: &str, field: &str, number: u64) -> Vec<u8> {
    let mut frame = vec![0x92];
    write::string(&mut frame, tag);
    frame.push(0x81);
    write::string(&mut frame, field);
    write::u64(&mut frame, &number);
    frame
}

pub fn numbered(tag: &str, number: u64, text: Option<&str>) -> Vec<u8> {
    let mut frame = vec![0x92];
    write::string(&mut frame, tag);
    frame.push(0x82);
    write::string(&mut frame, "number");
    write::u64(&mut frame, &number);
    write::string(&mut frame, "text");
    write::optional(&mut frame, &text, |out, text| write::string(out, *text));
    frame
}

/// A server on a thread.
pub struct Running {
    pub address: SocketAddr,
    pub shared: Arc<Mutex<Shared>>,
    pub stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(options: ServerOptions) -> Self {
        let handler = TestHandler::default();
        let shared = Arc::clone(&handler.0);
        Self::with(options, shared, move || Mount::here(&schema(), handler))
    }

    pub fn with(
        options: ServerOptions,
        shared: Arc<Mutex<Shared>>,
        mount: impl FnOnce() -> Mount + Send + 'static,
    ) -> Self {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut server = Server::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
            server.mount("test", mount()).unwrap();
            sender.send((server.address(), server.stopper())).unwrap();
            server.run().unwrap();
        });
        let (address, stopper) = receiver.recv().unwrap();
        Self { address, shared, stopper, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}/rpc/test", self.address)
    }

    pub fn connect(&self) -> Raw {
        Raw::connect(self.address)
    }

    /// Calls of `Later` that wait, once there are so many.
    pub fn waiting(&self, count: usize) -> Vec<(u64, Reply)> {
        until("called", || self.shared.lock().unwrap().later.len() >= count);
        std::mem::take(&mut self.shared.lock().unwrap().later)
    }

    pub fn asked(&self) -> Vec<String> {
        self.shared.lock().unwrap().asked.clone()
    }

    pub fn join(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            assert!(outcome.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

/// Waits for what is about to happen.
pub fn until(what: &str, wanted: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !wanted() {
        assert!(begun.elapsed() < PATIENCE, "never {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What comes of it, begun anew with twice the time as long as a machine that was held up has left none to
/// send anything in.
pub fn in_time<T>(shortest: Duration, mut attempt: impl FnMut(Duration) -> Option<T>) -> T {
    let mut deadline = shortest;
    loop {
        if let Some(outcome) = attempt(deadline) {
            return outcome;
        }
        deadline *= 2;
        assert!(deadline < PATIENCE, "never sent");
    }
}

pub struct Raw {
    pub stream: TcpStream,
    received: Vec<u8>,
}

#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answered {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    pub fn send(&mut self, head: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let mut text = format!("{head}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        text.extend_from_slice(body);
        self.stream.write_all(&text).unwrap();
    }

    pub fn post(&mut self, body: impl AsRef<[u8]>) {
        self.send("POST /rpc/test HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json", body);
    }

    /// What a body is answered.
    pub fn ask(&mut self, body: impl AsRef<[u8]>) -> Value {
        self.post(body);
        let answered = self.answer();
        assert_eq!(answered.status, 200, "{answered:?}");
        answered.json()
    }

    pub fn answer(&mut self) -> Answered {
        loop {
            let head = parse_response(&self.received, false).unwrap();
            let whole = head.map(|head| {
                let Some(BodyLength::Known(length)) = head.body else { panic!("a body without a length") };
                (head.status, head.bytes, head.bytes + length as usize)
            });
            if let Some((status, start, end)) = whole.filter(|(_, _, end)| self.received.len() >= *end) {
                let received = String::from_utf8(self.received.drain(..end).collect()).unwrap();
                let (head, body) = received.split_at(start);
                return Answered { status, head: head.to_owned(), body: body.to_owned() };
            }
            let mut chunk = [0; 65_536];
            let count = self.stream.read(&mut chunk).unwrap();
            assert!(count > 0, "the connection ended: {:?}", String::from_utf8_lossy(&self.received));
            self.received.extend_from_slice(&chunk[..count]);
        }
    }
}
