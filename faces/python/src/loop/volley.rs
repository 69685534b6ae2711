//! What the callbacks of one turn write to many connections, sent by one call.
//!
//! Where many descriptors are ready in a turn, what a connection with nothing to send is given is kept until
//! the turn's callbacks are done, enough came together, or the first of it has waited long enough; then all
//! of it goes through a ring of submissions ([`thalweg_sys::send_ring`]). Where few are, or where the kernel
//! does not let us, everything is sent as it is written.
//!
//! Invariants: a connection is in the list at most once, and while it is everything that is written to it
//! queues behind; between turns the list is empty; what is in it waits for [`WAIT_NS_MAX`] and the callback
//! that runs then. *Checked by* `tests/test_loop_volley.py`.

use super::core::Loop;
use super::gil_cells::{GilCell, GilRefCell};
use super::stream::StreamTransport;
use super::turn::report_raised;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::fd::BorrowedFd;
use thalweg_sys::clock;
use thalweg_sys::send_ring::SendRing;

/// So many descriptors that are ready make it worth while.
const READY_MIN: usize = 8;
/// At this number they are sent before the turn ends: the first does not wait for a thousand others.
const JOINED_MAX: usize = 64;
/// The first is sent after so long, behind the callback that runs then: it does not wait for every callback
/// of the turn.
const WAIT_NS_MAX: u64 = 100_000;
/// What is longer costs a call of its own little.
const BYTES_MAX: usize = 16 << 10;

const WHY: &str = "sending what was written in a turn failed";

/// The ring, once it was needed.
#[derive(Default)]
enum Ring {
    #[default]
    Unknown,
    Refused,
    Ready(Box<SendRing>),
}

/// What a turn's end sends.
pub(crate) struct WriteBatch {
    /// Whether this turn's writes wait for its end.
    open: GilCell<bool>,
    ring: GilRefCell<Ring>,
    joined: GilRefCell<Vec<Py<StreamTransport>>>,
    /// The clock when the first of `joined` came.
    first_ns: GilCell<u64>,
    /// Writes that shared a call with others, since the loop was made.
    pub(crate) sent: GilCell<u64>,
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self {
            open: GilCell::new(false),
            ring: GilRefCell::new(Ring::Unknown),
            joined: GilRefCell::new(Vec::new()),
            first_ns: GilCell::new(0),
            sent: GilCell::new(0),
        }
    }
}

impl WriteBatch {
    /// A turn begins in which so many descriptors are ready.
    pub(crate) fn begin(&self, py: Python<'_>, ready: usize) -> PyResult<()> {
        let open = ready >= READY_MIN
            && self.ring.with(py, |ring| {
                if matches!(ring, Ring::Unknown) {
                    *ring = SendRing::new().map_or(Ring::Refused, |ring| Ring::Ready(Box::new(ring)));
                }
                matches!(ring, Ring::Ready(_))
            })?;
        self.open.set(py, open);
        Ok(())
    }

    /// Whether what is written to a connection with nothing to send waits for the turn's end.
    pub(crate) fn is_open(&self, py: Python<'_>) -> bool {
        self.open.get(py)
    }

    /// Whether a write of `bytes` bytes waits for the turn's end: the caller, whose queue is empty, then has
    /// to queue it.
    #[inline]
    pub(crate) fn takes(&self, stream: &Bound<'_, StreamTransport>, bytes: usize) -> PyResult<bool> {
        let py = stream.py();
        if !self.open.get(py) || bytes > BYTES_MAX || stream.get().is_too_much(py, bytes) {
            return Ok(false);
        }
        let joined = self.joined.with(py, |joined| {
            joined.push(stream.clone().unbind());
            joined.len()
        })?;
        if joined == 1 {
            self.first_ns.set(py, clock::monotonic_ns());
        }
        Ok(true)
    }

    /// A callback is done: sends what was written, if that is much or has waited for long.
    #[inline]
    pub(crate) fn relieve(slf: &Bound<'_, Loop>) -> PyResult<()> {
        let (py, write_batch) = (slf.py(), &slf.get().write_batch);
        if !write_batch.open.get(py) || !write_batch.is_due(py)? {
            return Ok(());
        }
        let outcome = write_batch.send(slf);
        write_batch.open.set(py, true);
        outcome
    }

    /// Whether what was written leaves before the turn ends.
    fn is_due(&self, py: Python<'_>) -> PyResult<bool> {
        let joined = self.joined.with(py, |joined| joined.len())?;
        let waited_ns = || clock::monotonic_ns().saturating_sub(self.first_ns.get(py));
        Ok(joined >= JOINED_MAX || joined > 0 && waited_ns() >= WAIT_NS_MAX)
    }

    /// The callbacks are done: sends what they wrote.
    #[inline]
    pub(crate) fn end(slf: &Bound<'_, Loop>) -> PyResult<()> {
        let (py, write_batch) = (slf.py(), &slf.get().write_batch);
        if write_batch.open.get(py) { write_batch.send(slf) } else { Ok(()) }
    }

    fn send(&self, slf: &Bound<'_, Loop>) -> PyResult<()> {
        let py = slf.py();
        // What is written meanwhile is sent as it is written.
        self.open.set(py, false);
        let joined = self.joined.with(py, std::mem::take)?;
        if !slf.get().io.with(py, |io| io.is_ours())? {
            // A callback forked, and this is the child: its parent sends it, and the ring is its parent's.
            return self.close(py);
        }
        let (mut alone, mut pieces) = (Vec::new(), Vec::with_capacity(joined.len()));
        for stream in &joined {
            match stream.get().only_piece(py)? {
                Some(piece) => pieces.push((stream.bind(py), piece)),
                None => alone.push(stream.bind(py)),
            }
        }
        let taken = self.shoot(py, &pieces)?;
        let mut outcome = Ok(());
        // One that fails, fails alone.
        let mut note = |sent: PyResult<()>| {
            if let Err(raised) = sent.or_else(|raised| report_raised(slf, raised, WHY)) {
                outcome = Err(raised);
            }
        };
        for ((stream, _), taken) in pieces.iter().zip(taken) {
            note(stream.get().taken(stream, taken));
        }
        for stream in alone {
            note(stream.get().send_queue(stream));
        }
        outcome
    }

    /// How many bytes each took. Where the ring fails, none: then the socket says when.
    fn shoot(
        &self,
        py: Python<'_>,
        pieces: &[Piece<'_, '_>],
    ) -> PyResult<Vec<std::io::Result<Option<usize>>>> {
        let sends: Vec<(BorrowedFd<'_>, &[u8])> =
            pieces.iter().map(|(stream, piece)| (stream.get().borrowed(), piece.as_bytes(py))).collect();
        let mut taken = Vec::with_capacity(sends.len());
        self.ring.with(py, |ring| {
            let Ring::Ready(volley) = ring else { return };
            if volley.send(&sends, &mut taken).is_err() {
                *ring = Ring::Refused;
            }
        })?;
        taken.resize_with(sends.len(), || Ok(None));
        self.sent.set(py, self.sent.get(py) + sends.len() as u64);
        Ok(taken)
    }

    /// Shows the garbage collector the transports in the list.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.joined.traverse(|joined| joined.iter().try_for_each(|stream| visit.call(stream)))
    }

    /// From here on everything is sent as it is written. Gives back what the kernel holds.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.ring.with(py, |ring| *ring = Ring::Refused)
    }
}

/// A connection and all that it has to send.
type Piece<'s, 'py> = (&'s Bound<'py, StreamTransport>, Py<PyBytes>);
