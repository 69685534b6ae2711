//! The other end of a connection, spelled out: a thread with a blocking socket that speaks frames by hand,
//! and over shared memory where it is asked to. It shares no line with the server.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test asks for a part of it")]

use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use thalweg_service::ClientOptions;
use thalweg_transport::{
    Endpoint, PeerWait, ReadOutcome, SharedEnd, WaitOutcome, Wanted, WriteOutcome, ring_bell,
    send_with_descriptor,
};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{
    FrameKind, HELLO_BYTES, Header, Hello, LENGTH_MAX, Opening, VERSION, Welcome, opening,
};
use thalweg_wire::service::error_frame;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Plain,
    Multiplexed,
    Shared,
}

/// Options that make a client go this way.
pub fn options(way: Way) -> ClientOptions {
    ClientOptions {
        plain: way == Way::Plain,
        schema: [7; 32],
        ring_bytes: 16_384,
        ..ClientOptions::default()
    }
}

/// A thread that serves, and the directory its socket lies in.
pub struct Serving {
    thread: Option<JoinHandle<()>>,
    _directory: Option<tempfile::TempDir>,
}

impl Serving {
    /// Waits until it is through; what it asserted counts.
    pub fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Serving {
    /// One that waits for more clients may go on; what one that is through asserted counts.
    fn drop(&mut self) {
        let finished = self.thread.take_if(|thread| thread.is_finished());
        if let Some(thread) = finished
            && !std::thread::panicking()
        {
            thread.join().unwrap();
        }
    }
}

/// Serves one connection.
pub fn serve(way: Way, script: impl Fn(&mut Peer) + Send + 'static) -> (Endpoint, Serving) {
    serve_times(1, way, script)
}

/// Serves `times` connections, one after the other.
pub fn serve_times(
    times: usize,
    way: Way,
    script: impl Fn(&mut Peer) + Send + 'static,
) -> (Endpoint, Serving) {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = match way {
        Way::Shared => Endpoint::Shared(directory.path().join("peer.shm")),
        _ => Endpoint::Socket(directory.path().join("peer.sock")),
    };
    let mut serving = serve_at(&endpoint, times, way, script);
    serving._directory = Some(directory);
    (endpoint, serving)
}

pub fn serve_at(
    endpoint: &Endpoint,
    times: usize,
    way: Way,
    script: impl Fn(&mut Peer) + Send + 'static,
) -> Serving {
    let listener = UnixListener::bind(endpoint.path().unwrap()).unwrap();
    let thread = std::thread::spawn(move || {
        for _ in 0..times {
            let (socket, _) = listener.accept().unwrap();
            script(&mut Peer::over(socket, way));
        }
    });
    Serving { thread: Some(thread), _directory: None }
}

/// Answers the hello with a fault.
pub fn refuse(fault: Fault) -> (Endpoint, Serving) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("refusing.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; HELLO_BYTES]).unwrap();
        let welcome =
            Welcome { version: VERSION, fault: fault as u16, ring_bytes: 0, credit: 0, schema: [0; 32] };
        socket.write_all(&welcome.encode()).unwrap();
    });
    (Endpoint::Socket(path), Serving { thread: Some(thread), _directory: Some(directory) })
}

/// Answers every request with its own payload until the client goes.
pub fn echo(peer: &mut Peer) {
    loop {
        let request = peer.request();
        match request.header.kind {
            FrameKind::Request => peer.end(&request.header, &request.payload),
            FrameKind::Goodbye => return,
            _ => {}
        }
    }
}

/// One end of a connection.
pub struct Peer {
    pub way: Way,
    socket: UnixStream,
    shared: Option<SharedEnd>,
    received: Vec<u8>,
    /// What could not be written yet: a peer that only wrote would wait for a client that only writes.
    unsent: Vec<u8>,
}

#[derive(Debug)]
pub struct Request {
    /// Of a plain frame: a request without a number. At the end of the connection a goodbye.
    pub header: Header,
    pub payload: Vec<u8>,
}

impl Peer {
    pub fn over(mut socket: UnixStream, way: Way) -> Self {
        let mut shared = None;
        if way != Way::Plain {
            let mut bytes = [0; HELLO_BYTES];
            if socket.read_exact(&mut bytes).is_ok() {
                let Ok(Some(Opening::Hello(Hello { shared: wanted, ring_bytes, .. }))) = opening(&bytes)
                else {
                    panic!("this is no hello: {bytes:?}");
                };
                assert_eq!(wanted, way == Way::Shared);
                let ring_bytes = if wanted { ring_bytes } else { 0 };
                let welcome =
                    Welcome { version: VERSION, fault: 0, ring_bytes, credit: 64, schema: [7; 32] }.encode();
                if wanted {
                    let (end, memory) = SharedEnd::create(ring_bytes).unwrap();
                    send_with_descriptor(socket.as_fd(), &welcome, memory.as_fd()).unwrap();
                    shared = Some(end);
                } else {
                    socket.write_all(&welcome).unwrap();
                }
            }
        }
        socket.set_nonblocking(true).unwrap();
        Self { way, socket, shared, received: Vec::new(), unsent: Vec::new() }
    }

    /// The next frame from the client; a goodbye when it is gone.
    pub fn request(&mut self) -> Request {
        loop {
            if let Some(request) = self.parse() {
                return request;
            }
            if !self.exchange() {
                return Request { header: Header::new(FrameKind::Goodbye, 0, 0), payload: Vec::new() };
            }
        }
    }

    fn parse(&mut self) -> Option<Request> {
        let (head, header) = if self.way == Way::Plain {
            let length = u32::from_le_bytes(*self.received.first_chunk()?);
            (4, Header::new(FrameKind::Request, 0, length))
        } else {
            (24, Header::decode(&self.received, LENGTH_MAX).unwrap()?)
        };
        let whole = head + header.length as usize;
        if self.received.len() < whole {
            return None;
        }
        let payload = self.received[head..whole].to_vec();
        self.received.drain(..whole);
        Some(Request { header, payload })
    }

    /// Writes what is unsent, waits, reads; `false` when the client is gone.
    fn exchange(&mut self) -> bool {
        self.push();
        let wanted = Wanted::beside_unsent(!self.unsent.is_empty());
        self.received.reserve(65_536);
        if let Some(end) = &mut self.shared {
            let socket = self.socket.as_fd();
            let wait = PeerWait { end: &mut *end, socket, wanted, deadline: None, spin: false };
            let waited = wait.wait().unwrap();
            let read = end.read(&mut self.received).unwrap();
            return waited != WaitOutcome::Ended || read != ReadOutcome::WouldBlock;
        }
        thalweg_sys::socket::wait(self.socket.as_fd(), wanted.space(), None).unwrap();
        !matches!(
            thalweg_transport::read(self.socket.as_fd(), &mut self.received),
            Ok(ReadOutcome::End) | Err(_)
        )
    }

    fn push(&mut self) {
        while !self.unsent.is_empty() {
            let pieces = [IoSlice::new(&self.unsent)];
            let written = match &mut self.shared {
                Some(end) => {
                    let written = end.write_gathered(&pieces).unwrap();
                    if end.bell_wanted() {
                        let _ = ring_bell(self.socket.as_fd());
                    }
                    written
                }
                None => match thalweg_transport::write_gathered(self.socket.as_fd(), &pieces) {
                    Ok(written) => written,
                    Err(_) => return self.unsent.clear(),
                },
            };
            match written {
                WriteOutcome::Bytes(count) => drop(self.unsent.drain(..count)),
                WriteOutcome::WouldBlock => return,
            }
        }
    }

    /// Sends a frame; its length is filled in.
    pub fn send(&mut self, header: Header, payload: &[u8]) {
        let length = payload.len() as u32;
        if self.way == Way::Plain {
            self.unsent.extend(length.to_le_bytes());
        } else {
            self.unsent.extend(Header { length, ..header }.encode());
        }
        self.unsent.extend(payload);
        self.push();
    }

    /// Answers a request.
    pub fn end(&mut self, request: &Header, payload: &[u8]) {
        self.send(Header::new(FrameKind::End, request.id, 0), payload);
    }

    /// Ends a request with a fault.
    pub fn fail(&mut self, request: &Header, fault: Fault, message: &str) {
        let frame = error_frame("EchoErrorResponse", message);
        self.send(Header { fault: fault as u16, ..Header::new(FrameKind::End, request.id, 0) }, &frame);
    }

    /// Sends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.unsent.extend(bytes);
        self.push();
    }
}
