//! A client for tests that knows nothing of ours: frames over a blocking socket, as the wire's document says.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Wake;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_service::{Endpoint, Error, Handler, Reply, Request, Server, ServerOptions, Statistics, Stopper};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, HEADER_BYTES, HELLO_BYTES, Header, Hello, VERSION, Welcome};

/// How long what is about to happen may take, on however slow a machine, before it is taken to happen never.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a thread of its own, stopped when dropped.
pub struct Running {
    pub path: PathBuf,
    pub stopper: Stopper,
    thread: Option<JoinHandle<(Result<(), Error>, Statistics)>>,
    _directory: tempfile::TempDir,
}

pub fn options() -> ServerOptions {
    ServerOptions { error_tag: "TestErrorResponse".into(), ..ServerOptions::default() }
}

impl Running {
    pub fn new(handler: impl Handler + Send + 'static) -> Self {
        Self::with(options(), "test.sock", handler)
    }

    pub fn with(options: ServerOptions, name: &str, handler: impl Handler + Send + 'static) -> Self {
        Self::start(options, name, move |server| server.serve(handler))
    }

    pub fn start(
        options: ServerOptions,
        name: &str,
        run: impl FnOnce(&mut Server) -> Result<(), Error> + Send + 'static,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        let endpoint: Endpoint = path.to_str().unwrap().parse().unwrap();
        let mut server = Server::bind(&[endpoint], options).unwrap();
        let stopper = server.stopper();
        let thread = std::thread::spawn(move || (run(&mut server), server.statistics()));
        Self { path, stopper, thread: Some(thread), _directory: directory }
    }

    /// Stops it; what it had done when it ended.
    pub fn stop(mut self) -> Statistics {
        self.end().unwrap()
    }

    /// Has it ended, which must be in good order.
    fn end(&mut self) -> Option<Statistics> {
        self.stopper.stop();
        let (outcome, statistics) = self.thread.take()?.join().unwrap();
        outcome.unwrap();
        Some(statistics)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stopper.stop();
        } else {
            self.end();
        }
    }
}

/// A server that hands out its replies.
pub fn keeping(options: ServerOptions) -> (Running, Receiver<Reply>) {
    let (keeper, kept) = channel::<Reply>();
    let keep = move |request: Request<'_>, reply: Reply| match request.frame {
        b"echo" => reply.end(b"echo"),
        _ => keeper.send(reply).unwrap(),
    };
    (Running::with(options, "test.sock", keep), kept)
}

/// Wakes a thread that waits.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Bell {
    pub fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !std::mem::take(&mut *rung) {
            rung = self.changed.wait(rung).unwrap();
        }
    }
}

/// One connection.
pub struct Peer {
    pub stream: UnixStream,
}

/// One frame of a multiplexed connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    pub kind: FrameKind,
    pub id: u64,
    pub fault: Option<Fault>,
    pub payload: Vec<u8>,
}

impl Peer {
    pub fn plain(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        // A server that never answers fails a test instead of hanging it.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    pub fn multiplexed(path: &Path) -> Self {
        let (peer, welcome) = Self::greet(path, hello());
        assert_eq!(welcome.fault, 0);
        peer
    }

    pub fn greet(path: &Path, hello: Hello) -> (Self, Welcome) {
        let mut peer = Self::plain(path);
        peer.stream.write_all(&hello.encode()).unwrap();
        let mut bytes = [0; HELLO_BYTES];
        peer.stream.read_exact(&mut bytes).unwrap();
        let welcome = Welcome::decode(&bytes).unwrap().unwrap();
        (peer, welcome)
    }

    pub fn send_plain(&mut self, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).unwrap();
    }

    pub fn receive_plain(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut payload = vec![0; u32::from_le_bytes(length) as usize];
        self.stream.read_exact(&mut payload).unwrap();
        payload
    }

    pub fn send(&mut self, header: Header, payload: &[u8]) {
        let mut frame = Header { length: payload.len() as u32, ..header }.encode().to_vec();
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).unwrap();
    }

    pub fn call(&mut self, id: u64, payload: &[u8]) {
        self.send(Header::new(FrameKind::Request, id, 0), payload);
    }

    pub fn cancel(&mut self, id: u64) {
        self.send(Header::new(FrameKind::Cancel, id, 0), b"");
    }

    pub fn grant(&mut self, id: u64, credit: u32) {
        self.send(Header { credit, ..Header::new(FrameKind::Credit, id, 0) }, b"");
    }

    pub fn receive(&mut self) -> Received {
        let mut head = [0; HEADER_BYTES];
        self.stream.read_exact(&mut head).unwrap();
        let header = Header::decode(&head, u32::MAX).unwrap().unwrap();
        let mut payload = vec![0; header.length as usize];
        self.stream.read_exact(&mut payload).unwrap();
        Received { kind: header.kind, id: header.id, fault: Fault::of(header.fault), payload }
    }

    /// Everything up to the end of the connection; a reset counts as one.
    pub fn rest(&mut self) -> Vec<u8> {
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return bytes,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return bytes,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

pub fn hello() -> Hello {
    Hello { version: VERSION, shared: false, ring_bytes: 0, schema: [0; 32] }
}

pub fn end(id: u64, payload: &[u8]) -> Received {
    Received { kind: FrameKind::End, id, fault: None, payload: payload.to_vec() }
}

/// Waits until something holds: for what happens on another thread, without betting on when.
pub fn eventually(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "it never came true");
        std::thread::sleep(Duration::from_millis(2));
    }
}
