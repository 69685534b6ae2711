//! Our rings without a service: each message behind its length, echoed as it comes.

use crate::clients;
use crate::far::{Far, ready};
use crate::work::{Side, Work};
use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use thalweg_bench::Failure;
use thalweg_bench::measure::{Measured, Until};
use thalweg_sys::epoll::wait_readable;
use thalweg_transport::{
    PeerWait, RING_BYTES_DEFAULT, ReadOutcome, SharedEnd, WaitOutcome, Wanted, WriteOutcome,
    receive_with_descriptor, send_with_descriptor,
};

const PATH: &str = "rings.sock";
const HELLO: &[u8] = b"r";
/// What one look takes off a ring.
const READ_BYTES: usize = 256 * 1024;
const HEAD_BYTES: usize = 4;

/// One end, and what it has read.
struct Link {
    end: SharedEnd,
    socket: UnixStream,
    read: Vec<u8>,
}

impl Link {
    fn new(end: SharedEnd, socket: UnixStream) -> Link {
        Link { end, socket, read: Vec::with_capacity(READ_BYTES) }
    }

    /// Sends bytes, whole frames of them, and waits for room as often as it takes.
    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match self.end.write_gathered(&[IoSlice::new(bytes)])? {
                WriteOutcome::Bytes(count) => bytes = &bytes[count..],
                WriteOutcome::WouldBlock => {
                    self.wait(Wanted::BytesOrSpace)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until there are whole frames, and hands them over with their heads. `false` once the peer is
    /// gone.
    fn receive(
        &mut self,
        mut frames: impl FnMut(&mut SharedEnd, &[u8]) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        loop {
            let whole = whole(&self.read);
            if whole > 0 {
                let outcome = frames(&mut self.end, &self.read[..whole]);
                if whole == self.read.len() {
                    self.read.clear();
                } else {
                    self.read.drain(..whole);
                }
                return outcome.map(|()| true);
            }
            if self.read.len() == self.read.capacity() {
                self.read.reserve(READ_BYTES);
            }
            if self.end.read(&mut self.read)? == ReadOutcome::WouldBlock
                && self.wait(Wanted::Bytes)? == WaitOutcome::Ended
            {
                return Ok(false);
            }
        }
    }

    fn wait(&mut self, wanted: Wanted) -> Result<WaitOutcome, Failure> {
        let (end, socket) = (&mut self.end, self.socket.as_fd());
        Ok(PeerWait { end, socket, wanted, deadline: None, spin: true }.wait()?)
    }
}

/// How many bytes are whole frames.
fn whole(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(head) = bytes[at..].first_chunk::<HEAD_BYTES>() {
        let end = at + HEAD_BYTES + u32::from_le_bytes(*head) as usize;
        if end > bytes.len() {
            break;
        }
        at = end;
    }
    at
}

/// Measures.
///
/// # Errors
/// Something did not start, or an answer differed.
pub(crate) fn measure(work: &Work, until: Until) -> Result<Measured, Failure> {
    let far = Far::start(Side::Rings, work)?;
    let path = far.path(PATH);
    let mut frame = (work.bytes as u32).to_le_bytes().to_vec();
    frame.resize(HEAD_BYTES + work.bytes, 7);
    let batch = frame.repeat(work.depth);
    let measured = clients(
        work,
        until,
        || connect(&path),
        |link| {
            link.send(&batch)?;
            let mut came = 0;
            while came < batch.len() {
                let alive = link.receive(|_, frames| {
                    came += frames.len();
                    if frames.last() == Some(&7) { Ok(()) } else { Err("another answer".into()) }
                })?;
                if !alive {
                    return Err("the far end is gone".into());
                }
            }
            Ok(work.depth as u64)
        },
    )?;
    Ok(measured.with_far(far.end()?))
}

fn connect(path: &Path) -> Result<Link, Failure> {
    let mut socket = UnixStream::connect(path)?;
    socket.write_all(HELLO)?;
    let mut bytes = Vec::with_capacity(HELLO.len());
    wait_readable(socket.as_fd(), 10_000)?;
    let (_, memory) = receive_with_descriptor(socket.as_fd(), &mut bytes)?;
    socket.set_nonblocking(true)?;
    Ok(Link::new(SharedEnd::adopt(memory.ok_or("no memory was handed over")?)?, socket))
}

/// The far end.
///
/// # Errors
/// It cannot be set up, or the near end broke off.
pub(crate) fn serve(directory: &Path) -> Result<(), Failure> {
    let listener = UnixListener::bind(directory.join(PATH))?;
    ready(|| {})?;
    let (mut socket, _) = listener.accept()?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut hello = [0; HELLO.len()];
    socket.read_exact(&mut hello)?;
    let (end, memory) = SharedEnd::create(RING_BYTES_DEFAULT)?;
    send_with_descriptor(socket.as_fd(), HELLO, memory.as_fd())?;
    socket.set_nonblocking(true)?;
    let mut link = Link::new(end, socket);
    // Both ends have as much under way as a ring holds at most, so an answer always finds room.
    while link.receive(|end, frames| match end.write_gathered(&[IoSlice::new(frames)])? {
        WriteOutcome::Bytes(count) if count == frames.len() => Ok(()),
        _ => Err("a ring was full".into()),
    })? {}
    Ok(())
}
