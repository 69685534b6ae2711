//! What a connection is: a small entry in the reactor's slab, and, while bytes are in flight, an
//! [`Active`] beside it.
//!
//! Invariant: `active` is `None` exactly while nothing is partly read, awaited from the store, or unsent.
//! `drive::settle` restores it at the end of every turn; the tests look at [`Connection::is_quiet`].

use crate::patience::Phase;
use smallvec::SmallVec;
use std::collections::VecDeque;
use thalweg_reactor::{Buffer, Ordered, Sequence};
use thalweg_transport::Unsent;
use thalweg_wire::exchange::{Live, Mode, Response};
use thalweg_wire::http1::{ChunkedDecoder, HeadParser};
use thalweg_wire::piece::Piece;

/// What a slab entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// No socket: the timer that ends a drain.
    Control,
    /// A listener; `flavour` is its index.
    Listener,
    /// A connection between requests, or with requests being read or answered.
    Request,
    /// A subscribed connection that gets one answer.
    LongPoll,
    /// A subscribed connection that gets events.
    Sse,
    /// A connection that was answered its last; what still comes is thrown away.
    Lingering,
    /// No connection: a descriptor, or a timer, by which the service is told to look.
    Attached,
    /// No socket: the timer that ends a rest.
    RestTimer,
    /// No socket: the timer after which the pool is asked for room again.
    Cold,
}

impl Role {
    /// Whether it is a peer's connection.
    pub(crate) fn is_connection(self) -> bool {
        !matches!(self, Self::Control | Self::Listener | Self::Attached | Self::RestTimer | Self::Cold)
    }
}

/// The facts about a live request that outlast its `Active`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// SSE: an event was sent.
    pub(crate) const OPENED: u8 = 1;
    /// SSE: the body is chunked; else it ends with the connection.
    pub(crate) const CHUNKED: u8 = 2;
    /// The connection closes after this response.
    pub(crate) const CLOSE: u8 = 4;
    /// The peer speaks HTTP/1.0.
    pub(crate) const LEGACY: u8 = 8;
    /// What it is sent waits for others' deliveries. Not about a request, but about now: see `send_batch`.
    pub(crate) const JOINED: u8 = 16;
    /// It came when there was no room: see `overflow`. About the connection for good.
    pub(crate) const OVERFLOW: u8 = 32;
    /// How much the kernel holds of what it is sent was bounded, or need not be: see `send`. For good, too.
    pub(crate) const BOUNDED: u8 = 64;
    /// Its requests have to name this server. For good, too.
    pub(crate) const NAMING: u8 = 128;

    pub(crate) fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u8, on: bool) {
        self.0 = if on { self.0 | flag } else { self.0 & !flag };
    }

    /// Another live request begins.
    pub(crate) fn forget(&mut self) {
        self.0 &= Self::JOINED | Self::OVERFLOW | Self::BOUNDED | Self::NAMING;
    }
}

/// A slab entry. 24 bytes: the whole cost of an idle connection here.
#[derive(Debug)]
pub struct Connection<T> {
    pub(crate) active: Option<Box<Active<T>>>,
    /// Live: the cursor the client sent.
    pub(crate) cursor: u64,
    /// When patience ends (idle, head, body, long-poll, SSE lifetime), in the reactor's milliseconds: see
    /// `patience`.
    pub(crate) deadline_ms: u32,
    pub(crate) role: Role,
    /// Live: the service's flavour.
    pub(crate) flavour: u8,
    pub(crate) flags: Flags,
    /// What it says and hears is sealed; see `tls`.
    pub(crate) secure: bool,
}

impl<T> Connection<T> {
    pub(crate) fn new(role: Role) -> Self {
        Self {
            active: None,
            cursor: 0,
            deadline_ms: 0,
            role,
            flavour: 0,
            flags: Flags::default(),
            secure: false,
        }
    }

    /// Owns nothing but this entry and its socket.
    pub fn is_quiet(&self) -> bool {
        self.active.is_none()
    }

    pub(crate) fn peer(&self) -> Peer {
        let Self { secure, flags, .. } = *self;
        Peer { secure, overflow: flags.has(Flags::OVERFLOW), naming: flags.has(Flags::NAMING) }
    }

    pub(crate) fn live(&self, offset: u64) -> Live {
        let mode = if self.role == Role::Sse { Mode::Sse } else { Mode::LongPoll };
        let opened = self.flags.has(Flags::OPENED);
        Live { mode, flavour: self.flavour, opened, offset, cursor: self.cursor }
    }
}

/// What is known of the client, beside its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    /// What it says and hears is sealed.
    pub(crate) secure: bool,
    /// It came when there was no room: see `overflow`.
    pub(crate) overflow: bool,
    /// Its requests have to name this server.
    pub(crate) naming: bool,
}

/// How far the present request's body is.
#[derive(Debug)]
pub(crate) enum Body {
    /// The head is not whole yet.
    Unknown,
    /// How many bytes the head has, and head and body together.
    Fixed { head_bytes: usize, total_bytes: usize },
    /// Chunks are being taken out of the input behind the head.
    Chunked { head_bytes: usize, decoder: ChunkedDecoder, decoded: Vec<u8> },
}

/// A response waiting for its turn, with what its request said about the connection.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) response: Response,
    pub(crate) manner: Manner,
}

/// What a request says about the shape of its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// The connection closes after the response.
    pub(crate) close: bool,
    /// The request was HEAD.
    pub(crate) head_only: bool,
    /// The peer speaks HTTP/1.0.
    pub(crate) legacy: bool,
    /// The request may change something.
    pub(crate) writes: bool,
    /// The service counts the request as one that appends.
    pub(crate) appends: bool,
}

/// A live request that waits for the responses before it.
#[derive(Debug)]
pub(crate) struct LiveRequest<T> {
    pub(crate) topic_id: u64,
    pub(crate) topic: T,
    pub(crate) live: Live,
    pub(crate) head: Response,
    pub(crate) lasts_ms: Option<u32>,
    pub(crate) manner: Manner,
}

/// What a connection owns while bytes are in flight.
#[derive(Debug)]
pub(crate) struct Active<T> {
    /// Bytes received; those before `start` are done with. Without capacity when none are kept.
    pub(crate) input: Buffer,
    pub(crate) start: usize,
    pub(crate) parser: HeadParser,
    pub(crate) body: Body,
    /// A part of a sealed record has come, whose bytes are not in the input yet.
    pub(crate) partial: bool,
    /// What the body has reserved; see `bodies`.
    pub(crate) reserved: u64,
    pub(crate) phase: Phase,
    /// Responses that have not left, in request order.
    pub(crate) replies: Ordered<Reply>,
    /// Body bytes among the replies, those that wait for others before them included.
    pub(crate) ready_bytes: usize,
    /// How many of them the load counts; see `load`.
    pub(crate) stashed_bytes: usize,
    pub(crate) starting: Option<Box<LiveRequest<T>>>,
    /// Bytes the kernel did not take.
    pub(crate) output: Output,
    /// When the peer had last taken a stride of them, in the reactor's milliseconds.
    pub(crate) progressed_ms: u32,
    /// How many the peer had not taken by then, those that the kernel holds included.
    pub(crate) left_bytes: u64,
    /// How many are a stride; see `patience`.
    pub(crate) stride_bytes: u64,
    /// When they, and the replies that wait for others, were last known to be in memory; see `cold`.
    pub(crate) present_ms: u32,
    /// Some of them are being brought there, and nothing is sent meanwhile.
    pub(crate) output_waits: bool,
    /// The peer waits for `100 Continue`.
    pub(crate) continue_owed: bool,
    /// No further request is read.
    pub(crate) closing: bool,
    /// What still arrives is thrown away before the socket closes.
    pub(crate) linger: bool,
    /// The peer will send nothing more.
    pub(crate) ended: bool,
    /// Answers to writes that wait for the store.
    pub(crate) awaited: u32,
    /// The names of answers that the service brings later.
    pub(crate) later: SmallVec<[u64; 2]>,
    /// The next request reads, and has to see what those before it wrote.
    pub(crate) held: bool,
    /// The next request reads, and this turn has sent enough.
    pub(crate) put_off: bool,
    /// Body bytes there were when its patience began anew.
    pub(crate) body_mark: usize,
    /// What it needs next is being brought into memory elsewhere.
    pub(crate) warming: bool,
    /// How often that happened for one thing.
    pub(crate) warmings: u8,
}

impl<T> Default for Active<T> {
    fn default() -> Self {
        Self {
            input: Buffer::new(),
            start: 0,
            parser: HeadParser::default(),
            body: Body::Unknown,
            partial: false,
            reserved: 0,
            phase: Phase::Idle,
            replies: Ordered::new(),
            ready_bytes: 0,
            stashed_bytes: 0,
            starting: None,
            output: Output::default(),
            progressed_ms: 0,
            left_bytes: 0,
            stride_bytes: 0,
            present_ms: 0,
            output_waits: false,
            continue_owed: false,
            closing: false,
            linger: false,
            ended: false,
            awaited: 0,
            later: SmallVec::new(),
            held: false,
            put_off: false,
            body_mark: 0,
            warming: false,
            warmings: 0,
        }
    }
}

impl<T> Active<T> {
    /// Nothing is partly read, awaited or unsent.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_begun() && matches!(self.body, Body::Unknown) && self.is_answered()
    }

    /// Nothing is awaited or unsent.
    pub(crate) fn is_answered(&self) -> bool {
        let waits = self.warming || self.put_off || self.replies.pending() > 0 || self.starting.is_some();
        !waits && self.output.is_empty()
    }

    /// Bytes of the present body that have come.
    pub(crate) fn body_bytes(&self) -> usize {
        match &self.body {
            Body::Unknown => 0,
            Body::Fixed { .. } => self.unread().len(),
            Body::Chunked { decoded, .. } => decoded.len(),
        }
    }

    /// Bytes that the present body will have, as far as that is known.
    pub(crate) fn announced_bytes(&self) -> usize {
        match &self.body {
            Body::Unknown => 0,
            Body::Fixed { head_bytes, total_bytes } => total_bytes - head_bytes,
            Body::Chunked { decoded, .. } => decoded.len(),
        }
    }

    /// Something of a request, or of the next one, has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.partial || !self.unread().is_empty()
    }

    pub(crate) fn unread(&self) -> &[u8] {
        &self.input[self.start..]
    }

    /// Takes a reply whose time has come.
    #[inline]
    pub(crate) fn ready(&mut self, sequence: Sequence, reply: Reply) {
        self.ready_bytes += reply.response.body_bytes();
        let awaited = self.replies.complete(sequence, reply);
        debug_assert!(awaited, "each request is answered once");
    }

    /// The first reply leaves: it is not kept any longer.
    pub(crate) fn forget_reply(&mut self) {
        self.ready_bytes -= self.replies.first().map_or(0, |reply| reply.response.body_bytes());
        self.replies.drop_first();
    }

    /// What lies here for the peer: unsent bytes, and the bodies of replies that have not left.
    pub(crate) fn kept_pieces(&self) -> impl Iterator<Item = &Piece> {
        let replies = self.replies.answers().flat_map(|reply| &reply.response.body);
        self.output.pieces.iter().chain(replies)
    }

    /// The kernel holds `queued_bytes` of what the peer was sent: the patience with it begins anew if it has
    /// taken a stride since that last happened.
    pub(crate) fn note_left(&mut self, queued_bytes: u64, now_ms: u32) {
        let left_bytes = self.output.bytes() + queued_bytes;
        if left_bytes + self.stride_bytes <= self.left_bytes {
            (self.left_bytes, self.progressed_ms) = (left_bytes, now_ms);
        }
    }

    /// How long the peer has taken no stride of what it was sent, in milliseconds. `None`: nothing waits for
    /// the peer.
    pub(crate) fn waits_for_peer_ms(&self, now_ms: u32) -> Option<u32> {
        let waits = !(self.output.is_empty() || self.makes_peer_wait());
        waits.then(|| now_ms.wrapping_sub(self.progressed_ms))
    }

    /// Whether what is kept for the peer is not sent although its socket may take it: the reactor put the
    /// connection off, or the bytes have left memory.
    pub(crate) fn makes_peer_wait(&self) -> bool {
        self.put_off || self.output_waits
    }

    /// Makes it as new; the input's buffer is for the caller to keep.
    pub(crate) fn reset(&mut self) -> Buffer {
        let input = std::mem::take(&mut self.input);
        *self = Self::default();
        input
    }
}

/// Bytes the kernel did not take, in order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// What is sealed already, as it goes on the wire, before everything else. Without capacity when there is
    /// none.
    pub(crate) sealed: Unsent,
    pub(crate) pieces: VecDeque<Piece>,
    bytes: usize,
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.sealed.is_empty()
    }

    pub(crate) fn push(&mut self, piece: Piece) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// How many they are.
    pub(crate) fn bytes(&self) -> u64 {
        (self.bytes + self.sealed.len()) as u64
    }

    /// Drops the first `sent` bytes.
    pub(crate) fn advance(&mut self, mut sent: usize) {
        self.bytes -= sent;
        while let Some(front) = self.pieces.front_mut() {
            if sent < front.len() {
                front.advance(sent);
                return;
            }
            sent -= front.len();
            self.pieces.pop_front();
        }
        // All sent: gives the queue's memory back.
        self.pieces = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_24_bytes() {
        assert_eq!(std::mem::size_of::<Connection<Vec<u8>>>(), 24);
    }

    #[test]
    fn a_peer_has_progressed_when_it_has_taken_a_stride() {
        let mut active = Active::<()> { stride_bytes: 100, ..Active::default() };
        assert_eq!(active.waits_for_peer_ms(50), None, "there is nothing to take");
        active.output.push(vec![b'x'; 1_000].into());
        active.left_bytes = 1_500;
        // What moves from here to the kernel is not taken by anybody.
        active.output.advance(400);
        active.note_left(801, 7);
        assert_eq!(active.waits_for_peer_ms(50), Some(50));
        active.note_left(800, 8);
        assert_eq!((active.left_bytes, active.waits_for_peer_ms(50)), (1_400, Some(42)));
        active.note_left(701, 9);
        assert_eq!(active.waits_for_peer_ms(50), Some(42), "less than a stride");
        active.put_off = true;
        assert_eq!(active.waits_for_peer_ms(50), None, "it is the reactor that it waits for");
        (active.put_off, active.output_waits) = (false, true);
        assert_eq!(active.waits_for_peer_ms(50), None, "it is the disk that it waits for");
    }

    #[test]
    fn output_advances_through_its_pieces() {
        let mut output = Output::default();
        for piece in ["abc", "", "de", "f"] {
            output.push(piece.into());
        }
        output.advance(4);
        assert_eq!(output.pieces.iter().map(|p| p.as_ref()).collect::<Vec<_>>(), [&b"e"[..], b"f"]);
        output.advance(1);
        assert!(!output.is_empty());
        output.advance(1);
        assert!(output.is_empty() && output.pieces.is_empty());
    }
}
