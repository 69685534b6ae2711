//! A server that breaks the rules, written out by hand: it shares no line with ours. It serves one connection
//! from a thread and ends with it.

use super::frames;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, HEADER_BYTES, HELLO_BYTES, Header, LENGTH_MAX, VERSION, Welcome};

/// How long a client that is waited for may take: one that never comes fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is done with a connection.
pub(super) type Script = fn(&mut Visit) -> std::io::Result<()>;

/// Serves one connection.
///
/// # Errors
/// The path cannot be bound.
pub(super) fn serve(path: &Path, script: Script) -> Result<(), String> {
    let listener = UnixListener::bind(path).map_err(|e| format!("{}: {e}", path.display()))?;
    std::thread::spawn(move || {
        let (socket, _) = listener.accept()?;
        socket.set_read_timeout(Some(PATIENCE))?;
        // What went wrong shows in what the client says.
        script(&mut Visit { socket })
    });
    Ok(())
}

/// A client that came.
pub(super) struct Visit {
    socket: UnixStream,
}

impl Visit {
    /// Takes the hello, and says that it is welcome or why it is not.
    pub(super) fn greet(&mut self, fault: u16) -> std::io::Result<()> {
        self.socket.read_exact(&mut [0; HELLO_BYTES])?;
        let welcome = Welcome { version: VERSION, fault, ring_bytes: 0, credit: 64, schema: [0; 32] };
        self.socket.write_all(&welcome.encode())
    }

    /// The next frame, without what it carries.
    pub(super) fn next(&mut self) -> std::io::Result<Header> {
        let mut head = [0; HEADER_BYTES];
        self.socket.read_exact(&mut head)?;
        let header = Header::decode(&head, LENGTH_MAX).ok().flatten();
        let header = header.ok_or_else(|| std::io::Error::other("a frame that is none"))?;
        self.socket.read_exact(&mut vec![0; header.length as usize])?;
        Ok(header)
    }

    /// The next request; what else comes meanwhile is passed over.
    pub(super) fn request(&mut self) -> std::io::Result<u64> {
        loop {
            let header = self.next()?;
            if header.kind == FrameKind::Request {
                return Ok(header.id);
            }
        }
    }

    /// Ends a call.
    pub(super) fn end(&mut self, id: u64, fault: u16, payload: &[u8]) -> std::io::Result<()> {
        let header = Header { fault, ..Header::new(FrameKind::End, id, payload.len() as u32) };
        self.raw(&[&header.encode()[..], payload].concat())
    }

    /// Sends what is an item by its kind, whatever it carries.
    fn item(&mut self, id: u64, payload: &[u8]) -> std::io::Result<()> {
        let header = Header::new(FrameKind::Item, id, payload.len() as u32);
        self.raw(&[&header.encode()[..], payload].concat())
    }

    /// Answers a call as it should be.
    pub(super) fn answer(&mut self, id: u64) -> std::io::Result<()> {
        self.end(id, 0, &frames::response())
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Answers whatever else is asked, as it should be.
    pub(super) fn behave(&mut self) -> std::io::Result<()> {
        loop {
            let id = self.request()?;
            self.answer(id)?;
        }
    }
}

/// Answers that do not fit the schema, one after the other.
pub(super) fn bad_responses(visit: &mut Visit) -> std::io::Result<()> {
    visit.greet(0)?;
    for (_, payload) in frames::bad_responses() {
        let id = visit.request()?;
        visit.end(id, 0, &payload)?;
    }
    visit.behave()
}

/// A stream where one frame is to answer, and then a response that comes as an item and an item that comes as
/// the end. What is sent of the calls after that belongs to none.
pub(super) fn misplaced_items(visit: &mut Visit) -> std::io::Result<()> {
    visit.greet(0)?;
    let streamed = visit.request()?;
    visit.item(streamed, &frames::item())?;
    let itemised = visit.request()?;
    visit.item(streamed, &frames::item())?;
    visit.answer(streamed)?;
    visit.item(itemised, &frames::response())?;
    let ended = visit.request()?;
    visit.answer(itemised)?;
    visit.end(ended, 0, &frames::item())?;
    visit.behave()
}

/// A number that stands for no fault yet.
pub(super) const UNKNOWN_FAULT: u16 = 999;

/// Ends with each fault there is, and with one that there is not.
pub(super) fn every_fault(visit: &mut Visit) -> std::io::Result<()> {
    visit.greet(0)?;
    for fault in Fault::ALL.iter().map(|fault| *fault as u16).chain([UNKNOWN_FAULT]) {
        let id = visit.request()?;
        visit.end(id, fault, &frames::error())?;
    }
    visit.behave()
}

/// An answer longer than any client takes unless it says so.
pub(super) fn too_long(visit: &mut Visit) -> std::io::Result<()> {
    visit.greet(0)?;
    let id = visit.request()?;
    visit.end(id, 0, &vec![0; (16 << 20) + 1])?;
    visit.behave()
}

/// The first call's answer comes when the client asks again, and the second's once it was given up.
pub(super) fn late(visit: &mut Visit) -> std::io::Result<()> {
    visit.greet(0)?;
    let overdue = visit.request()?;
    let given_up = visit.request()?;
    visit.answer(overdue)?;
    loop {
        let header = visit.next()?;
        if header.kind == FrameKind::Cancel && header.id == given_up {
            break;
        }
    }
    visit.answer(given_up)?;
    visit.behave()
}

/// Everything is answered twice, and so is what was not asked.
pub(super) fn twice(visit: &mut Visit) -> std::io::Result<()> {
    visit.greet(0)?;
    loop {
        let id = visit.request()?;
        visit.answer(id)?;
        visit.answer(id)?;
        visit.end(id + 1_000_000, 0, b"nobody's")?;
    }
}

/// Hangs up in the middle of an answer.
pub(super) fn half(visit: &mut Visit) -> std::io::Result<()> {
    visit.greet(0)?;
    let id = visit.request()?;
    let payload = frames::response();
    let header = Header::new(FrameKind::End, id, payload.len() as u32);
    visit.raw(&header.encode())?;
    visit.raw(&payload[..payload.len() / 2])
}

/// Answers with bytes that are no frames.
pub(super) fn no_frames(visit: &mut Visit) -> std::io::Result<()> {
    visit.greet(0)?;
    visit.request()?;
    visit.raw(&[0xff; HEADER_BYTES])?;
    // Until the client hangs up.
    visit.request().map(drop)
}

/// Speaks another protocol.
pub(super) fn another_protocol(visit: &mut Visit) -> std::io::Result<()> {
    visit.socket.read_exact(&mut [0; HELLO_BYTES])?;
    visit.raw(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
    visit.request().map(drop)
}
