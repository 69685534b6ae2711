//! Bytes out: responses put together in a scratch buffer and sent with one gathered write.
//!
//! Nothing is allocated for what the kernel takes at once. What it does not take is kept: large pieces by
//! reference, the rest copied out of the scratch. A large piece that a file holds as well the kernel takes
//! from there, by a call of its own.

use crate::at::At;
use crate::connection::{Active, Flags, Manner, Output, Reply};
use crate::meters::Meters;
use crate::reactor::{ConnectionEnd, Http, HttpCore};
use crate::tls::{Secure, SentBytes};
use bytes::Bytes;
use smallvec::SmallVec;
use std::io::{self, IoSlice};
use std::ops::Range;
use thalweg_reactor::Key;
use thalweg_transport::{Unsent, WriteOutcome, is_local, set_send_buffer, write, write_gathered, write_held};
use thalweg_wire::exchange::{Response, Service};
use thalweg_wire::http1::{CONTINUE, Framing, HeadPlan, encode_head, status_has_body};
use thalweg_wire::piece::Piece;

/// Body pieces up to this size are copied beside their heads: cheaper than one more piece in the write.
const COPIED_BYTES_MAX: usize = 2 * 1024;

/// The least size of a piece that the kernel is asked to take from its file: smaller pieces go together in
/// one write. A service that lends only smaller ones need not say where they lie.
const HELD_BYTES_MIN: usize = 64 * 1024;

/// What the kernel holds for a peer on this machine that reads much, as it is told (it doubles the number).
/// Nothing is under way for long there, and what does not wait is still in the processor's cache when it is
/// read: see `bench/README.md`.
const LOCAL_BUFFER_BYTES: usize = 128 * 1024;

/// Pieces of one write of kept output.
const PIECES_MAX: usize = 64;

/// Part of the write being put together.
#[derive(Clone, Debug)]
pub(crate) enum Segment {
    /// A range of the scratch buffer.
    Scratch(Range<usize>),
    /// Bytes that lie elsewhere.
    Piece(Piece),
}

impl Segment {
    fn is_held(&self) -> bool {
        matches!(self, Self::Piece(piece) if is_held(piece))
    }

    fn len(&self) -> usize {
        match self {
            Self::Scratch(range) => range.len(),
            Self::Piece(piece) => piece.len(),
        }
    }
}

/// The write being put together, of the connection that is being served.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// Response heads and small bodies.
    pub(crate) scratch: Vec<u8>,
    /// All of it, in order.
    pub(crate) segments: Vec<Segment>,
    /// The status of a stream of events whose head is among them.
    opening: Option<u16>,
}

impl<S: Service> Http<S> {
    /// Sends every response whose turn has come, in one write.
    pub(crate) fn send_replies(&mut self, at: &mut At<'_, S>) -> Result<(), ConnectionEnd> {
        if !at.active.output.is_empty() {
            return Ok(());
        }
        if at.active.stashed_bytes > 0 && at.active.replies.is_ready() && !self.is_kept_warm(at) {
            return Ok(());
        }
        self.date.refresh(at.core.wall_us());
        while let Some(Reply { response, manner }) = at.active.replies.first() {
            let mut manner = *manner;
            if self.draining && at.active.replies.pending() == 1 && at.active.starting.is_none() {
                // Said with the last response only: whatever followed it would be ignored.
                manner.close = true;
                at.active.closing = true;
            }
            self.stage_response(response, manner);
            at.active.forget_reply();
        }
        if at.active.continue_owed && !at.active.closing && at.active.replies.pending() == 0 {
            at.active.continue_owed = false;
            self.meters.response(100);
            self.stage_bytes(CONTINUE);
        }
        self.send_staged(at)
    }

    /// Adds a whole response to the write.
    pub(crate) fn stage_response(&mut self, response: &Response, manner: Manner) {
        self.meters.response(response.status);
        let length = response.body_bytes();
        let has_body = status_has_body(response.status);
        let framing = match (has_body, manner.head_only && length == 0) {
            (true, false) => Framing::Length(length as u64),
            _ => Framing::Absent,
        };
        self.stage_head(response, framing, manner);
        if has_body && !manner.head_only {
            for piece in &response.body {
                self.stage_piece(piece);
            }
        }
    }

    /// Adds the head of a stream of events to the write. It counts as a response once it leaves.
    pub(crate) fn stage_opening(&mut self, head: &Response, framing: Framing, manner: Manner) {
        self.staged.opening = Some(head.status);
        self.stage_head(head, framing, manner);
    }

    fn stage_head(&mut self, response: &Response, framing: Framing, manner: Manner) {
        let start = self.staged.scratch.len();
        let plan = HeadPlan { framing, close: manner.close, legacy: manner.legacy };
        encode_head(&mut self.staged.scratch, response.status, &response.fields, plan, &self.date);
        self.scratch_staged(start);
    }

    pub(crate) fn stage_bytes(&mut self, bytes: &[u8]) {
        let start = self.staged.scratch.len();
        self.staged.scratch.extend_from_slice(bytes);
        self.scratch_staged(start);
    }

    pub(crate) fn stage_piece(&mut self, piece: &Piece) {
        if piece.len() <= COPIED_BYTES_MAX {
            self.stage_bytes(piece);
        } else {
            self.staged.segments.push(Segment::Piece(piece.clone()));
        }
    }

    fn scratch_staged(&mut self, start: usize) {
        let end = self.staged.scratch.len();
        match self.staged.segments.last_mut() {
            Some(Segment::Scratch(range)) if range.end == start => range.end = end,
            _ => self.staged.segments.push(Segment::Scratch(start..end)),
        }
    }

    /// Sends what was staged; what the kernel does not take becomes the connection's output.
    pub(crate) fn send_staged(&mut self, at: &mut At<'_, S>) -> Result<(), ConnectionEnd> {
        if self.staged.segments.is_empty() {
            return Ok(());
        }
        if let Some(status) = self.staged.opening.take() {
            self.meters.response(status);
        }
        if !self.leave_batch(at.core, at.key) && self.join_staged(at) {
            return Ok(());
        }
        let before = at.active.output.bytes();
        let lends = lends(at.core, at.key);
        let (sent, whole) = {
            let first = self.staged.segments.iter().take_while(|segment| !(lends && segment.is_held()));
            let first = first.map(|segment| match segment {
                Segment::Scratch(range) => &self.staged.scratch[range.clone()],
                Segment::Piece(piece) => &piece[..],
            });
            let mut slices = Slices::new();
            one_write(&mut slices, self.load.write_bytes_max(), first);
            let bytes = slices.iter().map(|slice| slice.len()).sum();
            self.load.spend(bytes);
            let sent =
                send(at.core, at.key, &mut self.secure, &mut at.active.output.sealed, &slices, &self.meters);
            (sent, bytes)
        };
        if let Ok(sent) = sent {
            self.keep_unsent(sent.plain, at.active);
        }
        self.load.unsent(before, at.active.output.bytes());
        self.unstage();
        // What a file holds follows at once, if its turn has come.
        let held = lends && at.active.output.pieces.front().is_some_and(is_held);
        if sent?.plain == whole && held && !self.load.reads_wait() {
            let sent = self.send_kept(at)?;
            self.load.spend(sent.wire);
        }
        if !at.active.output.is_empty() {
            self.await_peer(at);
        }
        Ok(())
    }

    /// Sends of what was kept as much as the socket takes, and one write may.
    fn send_kept(&mut self, at: &mut At<'_, S>) -> Result<SentBytes, ConnectionEnd> {
        let (before, lends) = (at.active.output.bytes(), lends(at.core, at.key));
        let (mut all, mut room) = (SentBytes::default(), self.load.write_bytes_max());
        let last = loop {
            let Output { sealed, pieces, .. } = &mut at.active.output;
            let (offered, sent) = match pieces.front() {
                Some(piece) if lends && is_held(piece) => {
                    (piece.len().min(room), send_held(at.core, at.key, piece, room, &self.meters))
                }
                _ => {
                    let few = pieces.iter().take(PIECES_MAX).take_while(|piece| !(lends && is_held(piece)));
                    let mut slices = Slices::new();
                    one_write(&mut slices, room, few.map(|piece| &piece[..]));
                    let offered = slices.iter().map(|slice| slice.len()).sum();
                    (offered, send(at.core, at.key, &mut self.secure, sealed, &slices, &self.meters))
                }
            };
            let SentBytes { plain, wire } = sent.unwrap_or_default();
            at.active.output.advance(plain);
            (all.plain, all.wire, room) = (all.plain + plain, all.wire + wire, room - plain);
            // Where some come from files there may be more that the socket has room for.
            if sent.is_err() || !lends || plain < offered || room == 0 || at.active.output.is_empty() {
                break sent;
            }
        };
        self.load.unsent(before, at.active.output.bytes());
        last.map(|_| all)
    }

    /// Forgets what was staged.
    pub(crate) fn unstage(&mut self) {
        self.staged.segments.clear();
        self.staged.scratch.clear();
        self.staged.opening = None;
    }

    fn keep_unsent(&self, mut sent: usize, active: &mut Active<S::Topic>) {
        for segment in &self.staged.segments {
            let length = segment.len();
            if sent >= length {
                sent -= length;
                continue;
            }
            active.output.push(match segment {
                Segment::Scratch(range) => {
                    Bytes::copy_from_slice(&self.staged.scratch[range.start + sent..range.end]).into()
                }
                Segment::Piece(piece) => piece.behind(sent),
            });
            sent = 0;
        }
    }

    /// The socket takes bytes again: sends those that were kept, then goes on.
    pub(crate) fn resume_output(&mut self, at: &mut At<'_, S>) -> Result<(), ConnectionEnd> {
        if !at.active.output.is_empty() {
            if self.load.reads_wait() {
                self.put_off(at);
                return Ok(());
            }
            if !self.is_kept_warm(at) {
                return Ok(());
            }
            let SentBytes { wire, .. } = self.send_kept(at)?;
            self.load.spend(wire);
            if !at.active.output.is_empty() {
                if wire > 0 {
                    self.note_taken(at);
                }
                return Ok(());
            }
            self.reader_caught_up(at.core, at.key, at.active.phase);
        }
        self.drive(at)
    }
}

/// Whether a connection's bytes may come from files: what is sealed has to be seen.
fn lends<S: Service>(core: &mut HttpCore<S>, key: Key) -> bool {
    core.entry(key).is_some_and(|entry| !entry.secure)
}

fn is_held(piece: &Piece) -> bool {
    piece.len() >= HELD_BYTES_MIN && piece.file().is_some()
}

/// Has the kernel take a piece from its file.
fn send_held<S: Service>(
    core: &mut HttpCore<S>,
    key: Key,
    piece: &Piece,
    most: usize,
    meters: &Meters,
) -> Result<SentBytes, ConnectionEnd> {
    let (entry, descriptor) = core.entry_and_descriptor(key).ok_or(ConnectionEnd::Close)?;
    if !entry.flags.has(Flags::BOUNDED) {
        entry.flags.set(Flags::BOUNDED, true);
        if is_local(descriptor) {
            // Without it, it is slower.
            let _ = set_send_buffer(descriptor, LOCAL_BUFFER_BYTES);
        }
    }
    let bytes = &piece[..piece.len().min(most)];
    meters.write();
    let written = match piece.file() {
        Some(file) => write_held(descriptor, bytes, file),
        None => write(descriptor, bytes),
    };
    taken(written, meters).map(SentBytes::unsealed)
}

/// What one write takes, where it lies.
type Slices<'a> = SmallVec<[IoSlice<'a>; 16]>;

/// As much as one write may take.
fn one_write<'a>(slices: &mut Slices<'a>, most: usize, pieces: impl Iterator<Item = &'a [u8]>) {
    let mut room = most;
    for piece in pieces {
        if room == 0 {
            break;
        }
        let part = &piece[..piece.len().min(room)];
        room -= part.len();
        slices.push(IoSlice::new(part));
    }
}

/// How much left; a peer that is gone is gone.
fn send<S: Service>(
    core: &mut HttpCore<S>,
    key: Key,
    secure: &mut Secure,
    sealed: &mut Unsent,
    slices: &[IoSlice<'_>],
    meters: &Meters,
) -> Result<SentBytes, ConnectionEnd> {
    let (entry, descriptor) = core.entry_and_descriptor(key).ok_or(ConnectionEnd::Close)?;
    if entry.secure {
        return secure.send((key, descriptor), sealed, slices, meters);
    }
    meters.write();
    taken(write_gathered(descriptor, slices), meters).map(SentBytes::unsealed)
}

/// What the socket took of a write; a peer that is gone is gone.
pub(crate) fn taken(written: io::Result<WriteOutcome>, meters: &Meters) -> Result<usize, ConnectionEnd> {
    match written {
        Ok(WriteOutcome::Bytes(bytes)) => {
            meters.sent(bytes);
            Ok(bytes)
        }
        Ok(WriteOutcome::WouldBlock) => Ok(0),
        Err(_) => Err(ConnectionEnd::Close),
    }
}
