//! Bytes a peer does not take yet.
//!
//! What Python cannot change is kept as it is, without a copy. Invariant: `bytes` is the sum of what is left
//! of all pieces. What is sent is given back to be dropped outside, because a finalizer may write.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use thalweg_sys::socket;

/// Pieces that one system call takes.
const PIECES_MAX: usize = 64;

struct Piece {
    data: Py<PyBytes>,
    sent: usize,
}

/// What waits to be sent on one connection.
#[derive(Default)]
pub(crate) struct Outgoing {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

impl Outgoing {
    /// How many bytes wait.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts a piece behind the others, without its first `sent` bytes.
    pub(crate) fn push(&mut self, data: &Bound<'_, PyBytes>, sent: usize) {
        let left = data.as_bytes().len().saturating_sub(sent);
        if left > 0 {
            self.bytes += left;
            self.pieces.push_back(Piece { data: data.clone().unbind(), sent });
        }
    }

    /// Sends as much as the peer takes in one call; the pieces that are gone.
    ///
    /// # Errors
    /// What the socket says.
    pub(crate) fn send(&mut self, py: Python<'_>, to: BorrowedFd<'_>) -> std::io::Result<Vec<Py<PyBytes>>> {
        if self.pieces.is_empty() {
            // Not even nothing may be sent where writing has ended.
            return Ok(Vec::new());
        }
        let slices: Vec<IoSlice<'_>> = self
            .pieces
            .iter()
            .take(PIECES_MAX)
            .map(|piece| IoSlice::new(piece.data.as_bytes(py).get(piece.sent..).unwrap_or_default()))
            .collect();
        let taken = socket::send_gathered(to, &slices)?.unwrap_or(0);
        drop(slices);
        Ok(self.took(py, taken))
    }

    /// The one piece that waits, if it is only one and nothing of it is sent.
    pub(crate) fn only(&self, py: Python<'_>) -> Option<Py<PyBytes>> {
        let piece = self.pieces.front().filter(|piece| self.pieces.len() == 1 && piece.sent == 0)?;
        Some(piece.data.clone_ref(py))
    }

    /// The peer took so many bytes; the pieces that are gone.
    pub(crate) fn took(&mut self, py: Python<'_>, mut taken: usize) -> Vec<Py<PyBytes>> {
        self.bytes -= taken;
        let mut gone = Vec::new();
        while let Some(piece) = self.pieces.front_mut() {
            let left = piece.data.as_bytes(py).len() - piece.sent;
            if taken < left {
                piece.sent += taken;
                break;
            }
            taken -= left;
            gone.extend(self.pieces.pop_front().map(|piece| piece.data));
        }
        gone
    }

    /// Shows the garbage collector what waits.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.pieces.iter().try_for_each(|piece| visit.call(&piece.data))
    }

    /// Forgets everything; what it was.
    pub(crate) fn clear(&mut self) -> Vec<Py<PyBytes>> {
        self.bytes = 0;
        std::mem::take(&mut self.pieces).into_iter().map(|piece| piece.data).collect()
    }
}
