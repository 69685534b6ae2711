//! Shared memory between two processes that a Unix socket connects.
//!
//! # How it is handed over
//!
//! The server makes sealed memory with a ring each way ([`SharedEnd::create`]) and sends its descriptor
//! beside the bytes that welcome the client ([`send_with_descriptor`]); the client checks what it got
//! ([`SharedEnd::adopt`]). From then on bytes go through the rings, and on the socket nothing goes but
//! *bells*: one byte wakes the peer ([`ring_bell`], [`drain_bell`]). So memory has no name that could go
//! stale, a side costs one descriptor, and a peer that dies is noticed as on any socket.
//!
//! # A turn
//!
//! ```text
//! read, handle, write …                       no system call while both are up
//! bell_wanted()     -> ring_bell(socket)      the peer sleeps and is owed a wake
//! prepare_to_sleep() -> wait for the socket, drain_bell(), wake_up()
//! ```
//!
//! Ownership: a [`SharedEnd`] owns its map of the memory and belongs to one thread at a time; the socket is
//! borrowed. The orderings, the invariants and what a hostile peer can and cannot do are said in
//! [`thalweg_sync::ring`].

use crate::stream::{ReadOutcome, WriteOutcome};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thalweg_sync::patience::{Pace, QUICK_NS};
use thalweg_sync::ring::{Broken, End, Shared, Wanted, map_bytes};
use thalweg_sys::{bell, handover, memory, process};

pub use thalweg_sys::bell::DrainOutcome;

/// Bytes of each ring unless another size is asked for.
pub const RING_BYTES_DEFAULT: u32 = 4 << 20;

/// One side's end of a pair of rings.
#[derive(Debug)]
pub struct SharedEnd {
    end: End<Shared>,
    /// How long this side's waits for the other took.
    pub(crate) pace: Pace,
    /// The peer ran on another processor when that was last asked.
    pub(crate) is_apart: bool,
}

impl SharedEnd {
    /// Server: a pair of rings of `ring_bytes` each, a power of two, and the descriptor to hand over. It may
    /// be closed once it is sent.
    ///
    /// # Errors
    /// As [`SharedEnd::create_beside`].
    pub fn create(ring_bytes: u32) -> io::Result<(SharedEnd, OwnedFd)> {
        SharedEnd::create_beside(ring_bytes, 0)
    }

    /// As [`SharedEnd::create`], beside rings that may still come to need `promised_bytes`: memory is there
    /// once it is written to.
    ///
    /// # Errors
    /// `InvalidInput` for a size that is not in [`thalweg_sync::ring::RING_BYTES`] or no power of two;
    /// `OutOfMemory` when there is not as much memory; out of descriptors.
    pub fn create_beside(ring_bytes: u32, promised_bytes: u64) -> io::Result<(SharedEnd, OwnedFd)> {
        let bytes = map_bytes(ring_bytes).ok_or_else(|| {
            let message =
                format!("a ring of {ring_bytes} bytes: a power of two from 4 KiB to 1 GiB is allowed");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let memory = memory::sealed("thalweg-rings", bytes, promised_bytes)?;
        let shared = Shared::found(memory::map(memory.as_fd())?, ring_bytes);
        let end = End::founder(shared.map_err(io::Error::other)?);
        Ok((SharedEnd::up(end), memory))
    }

    /// Client: joins the rings in memory that a server handed over.
    ///
    /// # Errors
    /// `InvalidInput` for a descriptor of anything else than sealed memory; `InvalidData` for memory without
    /// a pair of rings that we understand.
    pub fn adopt(memory: OwnedFd) -> io::Result<SharedEnd> {
        let shared = Shared::join(memory::map(memory.as_fd())?);
        let end = shared.map_err(|foreign| io::Error::new(io::ErrorKind::InvalidData, foreign))?;
        Ok(SharedEnd::up(End::joiner(end)))
    }

    fn up(mut end: End<Shared>) -> SharedEnd {
        end.runs_on(here());
        SharedEnd { end, pace: Pace::new(QUICK_NS), is_apart: false }
    }

    /// Reads into a vector's spare room, which it never grows. [`ReadOutcome::WouldBlock`] when nothing is
    /// there; as with a socket, fewer bytes than there was room for means that no more is there now. Never
    /// [`ReadOutcome::End`]: the socket tells that.
    ///
    /// # Errors
    /// The peer does not follow the rules: close the connection.
    #[inline]
    pub fn read(&mut self, into: &mut Vec<u8>) -> Result<ReadOutcome, Broken> {
        let room = into.capacity() - into.len();
        Ok(match self.end.read(into)? {
            0 if room > 0 => ReadOutcome::WouldBlock,
            count => ReadOutcome::Bytes(count),
        })
    }

    /// Writes pieces one after the other, as much as fits, and publishes them together.
    ///
    /// # Errors
    /// The peer does not follow the rules: close the connection.
    #[inline]
    pub fn write_gathered(&mut self, pieces: &[IoSlice<'_>]) -> Result<WriteOutcome, Broken> {
        Ok(match self.end.write(pieces)? {
            0 if pieces.iter().any(|piece| !piece.is_empty()) => WriteOutcome::WouldBlock,
            count => WriteOutcome::Bytes(count),
        })
    }

    /// After reads and writes: whether the peer declared itself asleep for what was done since the last such
    /// question, and this side took on to wake it. A caller that is told `true` rings the bell.
    #[inline]
    pub fn bell_wanted(&mut self) -> bool {
        self.end.bell_wanted()
    }

    /// Whether there is something to read. One load.
    #[inline]
    pub fn pending(&self) -> bool {
        self.end.pending()
    }

    /// For a reader that spins: has the bytes that come next travel together with the news of them.
    #[inline]
    pub fn anticipate(&self) {
        self.end.anticipate();
    }

    /// Whether half of the ring is free, which is when a side that waits for room is woken.
    #[inline]
    pub fn has_space(&self) -> bool {
        self.end.has_space()
    }

    /// Whether there is what is wanted.
    #[inline]
    pub fn has(&self, wanted: Wanted) -> bool {
        self.end.has(wanted)
    }

    /// Bytes that were written and the peer has not read. One load.
    #[inline]
    pub fn unread_bytes(&self) -> u64 {
        self.end.unread_bytes()
    }

    /// Declares that this side is about to sleep until there is what is wanted, and looks once more. `true`:
    /// sleep until the socket is readable. `false`: there is work, go on.
    #[inline]
    pub fn prepare_to_sleep(&mut self, wanted: Wanted) -> bool {
        self.end.prepare_to_sleep(wanted, here())
    }

    /// Is up again: the peer rings no bell from here on.
    #[inline]
    pub fn wake_up(&mut self) {
        self.end.wake_up();
        self.runs_here();
    }

    /// Whether the peer last said that it runs on the processor that this thread is on: then it cannot run
    /// while this thread spins.
    #[inline]
    pub fn shares_cpu(&self) -> bool {
        self.end.peer_cpu() == here()
    }

    /// Whether a wait for the other side looks for a moment before it sleeps, where it may, or makes way.
    pub fn looks(&self, may: bool) -> bool {
        may && self.pace.is_quick() || self.shares_cpu()
    }

    /// Says which processor this side runs on, as going to sleep and waking do, too: for a side that spins
    /// for long.
    #[inline]
    pub fn runs_here(&mut self) {
        self.end.runs_on(here());
    }

    /// Bytes that both rings come to need once every part of them was written to.
    pub fn promised_bytes(&self) -> u64 {
        2 * u64::from(self.ring_bytes())
    }

    /// Bytes that each of the two rings holds.
    pub fn ring_bytes(&self) -> u32 {
        u32::try_from(self.end.ring_bytes()).unwrap_or(u32::MAX)
    }
}

#[inline]
fn here() -> u32 {
    u32::try_from(process::current_cpu()).unwrap_or(u32::MAX)
}

/// Wakes the peer of shared memory: one byte. Never waits; a full socket is full of bells that nobody has
/// heard.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`: the peer is gone.
pub fn ring_bell(socket: BorrowedFd<'_>) -> io::Result<()> {
    bell::ring(socket)
}

/// Takes away the bells that were rung, so that the socket is readable only when there are new ones. An end
/// behind bells is told by the next call.
///
/// # Errors
/// What the kernel says of a broken descriptor; a connection that was reset is an end.
pub fn drain_bell(socket: BorrowedFd<'_>) -> io::Result<DrainOutcome> {
    bell::drain(socket)
}

/// Writes bytes with a descriptor beside them. Unless it would block the descriptor is sent, however many of
/// the bytes were taken.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`; `InvalidInput` without a byte.
pub fn send_with_descriptor(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
) -> io::Result<WriteOutcome> {
    handover::send(socket, bytes, descriptor).map(WriteOutcome::from)
}

/// Reads into a vector's spare room, which it never grows, and takes a descriptor that came beside the bytes;
/// more than one are closed. What follows bytes with a descriptor is left for the next read.
///
/// # Errors
/// `ConnectionReset` and the like; `InvalidInput` when there is no spare room.
pub fn receive_with_descriptor(
    socket: BorrowedFd<'_>,
    into: &mut Vec<u8>,
) -> io::Result<(ReadOutcome, Option<OwnedFd>)> {
    let (count, descriptor) = handover::receive(socket, into)?;
    let read = match count {
        None => ReadOutcome::WouldBlock,
        Some(0) => ReadOutcome::End,
        Some(count) => ReadOutcome::Bytes(count),
    };
    Ok((read, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_sync::words::Words;

    #[test]
    fn an_end_reads_and_writes_like_a_socket() {
        let (mut ours, memory) = SharedEnd::create(4096).unwrap();
        let mut theirs = SharedEnd::adopt(memory).unwrap();
        assert_eq!((ours.ring_bytes(), theirs.ring_bytes()), (4096, 4096));
        let mut into = Vec::with_capacity(8);
        assert_eq!(theirs.read(&mut into), Ok(ReadOutcome::WouldBlock));
        let pieces = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two three")];
        assert_eq!(ours.write_gathered(&pieces), Ok(WriteOutcome::Bytes(13)));
        assert_eq!(ours.write_gathered(&[IoSlice::new(b"")]), Ok(WriteOutcome::Bytes(0)));
        assert_eq!(theirs.read(&mut into), Ok(ReadOutcome::Bytes(8)));
        assert_eq!((&into[..], into.capacity()), (&b"one two "[..], 8));
        assert_eq!(theirs.read(&mut into), Ok(ReadOutcome::Bytes(0)), "no room is not silence");
        assert_eq!(ours.write_gathered(&[IoSlice::new(&[7; 5000])]), Ok(WriteOutcome::Bytes(4091)));
        assert_eq!(ours.write_gathered(&[IoSlice::new(b"x")]), Ok(WriteOutcome::WouldBlock));
        assert!(theirs.pending() && !ours.pending() && !ours.has_space() && theirs.has_space());
    }

    /// The kernel may move a thread between two looks, so the other side is told where it would be seen.
    #[test]
    fn a_side_knows_whether_the_other_runs_where_it_does() {
        let (ours, memory) = SharedEnd::create(4096).unwrap();
        let mut theirs = SharedEnd::adopt(memory).unwrap();
        theirs.end.runs_on(u32::MAX);
        assert!(!ours.shares_cpu());
        let shares = std::thread::spawn(move || {
            process::run_on(process::current_cpu())?;
            theirs.runs_here();
            io::Result::Ok(ours.shares_cpu())
        });
        assert!(shares.join().unwrap().unwrap());
    }

    #[test]
    fn a_size_that_no_ring_has_is_refused() {
        for size in [0, 1, 2048, 4097, 3 << 20, (1 << 30) + 1, 1 << 31, u32::MAX] {
            assert_eq!(SharedEnd::create(size).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{size}");
        }
    }

    #[test]
    fn what_holds_no_rings_is_refused() {
        let refusal = |memory| SharedEnd::adopt(memory).unwrap_err();
        let (_, memory) = SharedEnd::create(4096).unwrap();
        Words::new(memory::map(memory.as_fd()).unwrap()).store(0, 7);
        let refused = refusal(memory);
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert!(refused.to_string().contains("first word"), "{refused}");
        assert_eq!(refusal(memory::sealed("test", 12288, 0).unwrap()).kind(), io::ErrorKind::InvalidData);
        assert_eq!(refusal(memory::sealed("test", 8, 0).unwrap()).kind(), io::ErrorKind::InvalidData);
        let unsealed = thalweg_sys::socket::pair().unwrap().0;
        assert_eq!(refusal(unsealed).kind(), io::ErrorKind::InvalidInput);
    }
}
