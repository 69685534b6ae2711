//! How a service's bytes are cut into frames, and what stands in front of each.
//!
//! A connection is one of two kinds, told apart by its first four bytes, before any limit is applied to them:
//!
//! - **plain**: `[u32 length][payload]`, both ways. Answers come in the order of the requests.
//! - **multiplexed**: a [`Hello`] from the client, a [`Welcome`] from the server, which never speaks first;
//!   then frames with a [`Header`]. Answers come as they are ready, calls can be cancelled, streams carry
//!   credit.
//!
//! The hello begins with [`MAGIC`], which read as a length would be beyond [`LENGTH_MAX`], so no plain
//! connection begins with it. All numbers are little-endian.
//!
//! | bytes | hello (48) | welcome (48) |
//! |---|---|---|
//! | 0..4 | `TwSv` | `TwSv` |
//! | 4..6 | version | version |
//! | 6..8 | flags: 1 shared memory wanted | fault, 0 for welcome |
//! | 8..12 | ring bytes wanted, 0 for the server's choice | ring bytes, 0 for no shared memory |
//! | 12..16 | 0 | credit of each new stream, in items |
//! | 16..48 | SHA-256 of the schema, zeros for any | the server's |
//!
//! | bytes | header (24) |
//! |---|---|
//! | 0..4 | length of the payload |
//! | 4 | kind |
//! | 5 | 0 |
//! | 6..8 | fault of an end, else 0 |
//! | 8..16 | id of the call, chosen by the client, not reused while the call lasts |
//! | 16..20 | request: milliseconds until its deadline, 0 for none |
//! | 20..24 | credit: items more that may be sent; request: items that may be sent to begin with, 0 for what the welcome says |
//!
//! An id may be used again once its call has ended. A client of handlers that take back what the answer of a
//! given-up call names must not do so: a cancel says the id alone, and may mean an earlier call's answer.
//!
//! *Checked by* the tests here (any bytes, any split) and by `schemas/golden`, which holds a hello, a welcome
//! and a refusal byte for byte.

use crate::fault::Fault;
use thiserror::Error;

/// The longest payload there may be.
pub const LENGTH_MAX: u32 = 1 << 30;
/// The longest payload that a side takes which was told nothing else.
pub const LENGTH_DEFAULT: u32 = 16 << 20;
/// What a hello begins with.
pub const MAGIC: [u8; 4] = *b"TwSv";
/// The version of the multiplexed protocol.
pub const VERSION: u16 = 1;
/// Bytes of a hello, and of a welcome.
pub const HELLO_BYTES: usize = 48;
/// Bytes in front of a plain payload.
pub const LENGTH_BYTES: usize = 4;
/// Bytes in front of a multiplexed payload.
pub const HEADER_BYTES: usize = 24;

const SHARED_WANTED: u16 = 1;

/// SHA-256 of a schema's canonical form; zeros fit any.
pub type SchemaHash = [u8; 32];

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A payload longer than is allowed.
    #[error("a frame of {length} bytes, where {limit} are allowed")]
    TooLarge {
        /// What the frame says.
        length: u32,
        /// What is allowed.
        limit: u32,
    },
    /// A kind this version does not know.
    #[error("a frame of kind {0}, which there is not")]
    UnknownKind(u8),
    /// Bytes that have to be zero are not.
    #[error("a frame whose unused bytes are used")]
    Unused,
    /// A hello or welcome that does not begin as one.
    #[error("a connection that begins with neither a length nor a hello")]
    BadMagic,
}

impl FrameError {
    /// The fault that tells the peer.
    pub const fn fault(self) -> Fault {
        match self {
            Self::TooLarge { .. } => Fault::FrameTooLarge,
            Self::UnknownKind(_) | Self::Unused | Self::BadMagic => Fault::BadFrame,
        }
    }
}

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// With a plain frame; no byte was consumed.
    Plain,
    /// With a hello, of [`HELLO_BYTES`].
    Hello(Hello),
}

/// Tells what kind of connection this is; `None` until enough bytes are there.
///
/// # Errors
/// Neither kind.
///
/// ```
/// # use thalweg_wire::frame::{Hello, Opening, opening};
/// assert_eq!(opening(&[3, 0, 0, 0, b'a']), Ok(Some(Opening::Plain)));
/// let hello = Hello { version: 1, shared: true, ring_bytes: 65_536, schema: [0; 32] };
/// assert_eq!(opening(&hello.encode()), Ok(Some(Opening::Hello(hello))));
/// ```
pub fn opening(bytes: &[u8]) -> Result<Option<Opening>, FrameError> {
    let Some(first) = bytes.first_chunk::<4>() else { return Ok(None) };
    if *first != MAGIC {
        let length = u32::from_le_bytes(*first);
        return if length <= LENGTH_MAX { Ok(Some(Opening::Plain)) } else { Err(FrameError::BadMagic) };
    }
    let Some(hello) = bytes.first_chunk::<HELLO_BYTES>() else { return Ok(None) };
    Hello::decode(hello).map(|hello| Some(Opening::Hello(hello)))
}

/// How a client opens a multiplexed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version it speaks.
    pub version: u16,
    /// It asks for shared memory.
    pub shared: bool,
    /// Bytes of each ring it would like; 0 leaves that to the server.
    pub ring_bytes: u32,
    /// The schema it was made from; zeros fit any.
    pub schema: SchemaHash,
}

impl Hello {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let flags = if self.shared { SHARED_WANTED } else { 0 };
        greeting(self.version, flags, self.ring_bytes, 0, &self.schema)
    }

    fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, FrameError> {
        let flags = u16_at(bytes, 6);
        // Only this version's own flags can be judged; what a newer one means is refused by its version.
        if u16_at(bytes, 4) == VERSION && (flags & !SHARED_WANTED != 0 || u32_at(bytes, 12) != 0) {
            return Err(FrameError::Unused);
        }
        Ok(Self {
            version: u16_at(bytes, 4),
            shared: flags & SHARED_WANTED != 0,
            ring_bytes: u32_at(bytes, 8),
            schema: schema_at(bytes),
        })
    }
}

/// How a server answers a hello. With a fault the connection ends behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version it speaks.
    pub version: u16,
    /// Why the client is not welcome: a code of [`Fault`], 0 when it is.
    pub fault: u16,
    /// Bytes of each ring handed over with this; 0 when the connection stays on its socket.
    pub ring_bytes: u32,
    /// Items that each new stream may send before more credit comes.
    pub credit: u32,
    /// The schema it was made from; zeros fit any.
    pub schema: SchemaHash,
}

impl Welcome {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        greeting(self.version, self.fault, self.ring_bytes, self.credit, &self.schema)
    }

    /// Reads it; `None` until it is there.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        let present = bytes.len().min(MAGIC.len());
        if bytes[..present] != MAGIC[..present] {
            return Err(FrameError::BadMagic);
        }
        let Some(bytes) = bytes.first_chunk::<HELLO_BYTES>() else { return Ok(None) };
        Ok(Some(Self {
            version: u16_at(bytes, 4),
            fault: u16_at(bytes, 6),
            ring_bytes: u32_at(bytes, 8),
            credit: u32_at(bytes, 12),
            schema: schema_at(bytes),
        }))
    }
}

fn greeting(version: u16, word: u16, ring_bytes: u32, credit: u32, schema: &SchemaHash) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&version.to_le_bytes());
    bytes[6..8].copy_from_slice(&word.to_le_bytes());
    bytes[8..12].copy_from_slice(&ring_bytes.to_le_bytes());
    bytes[12..16].copy_from_slice(&credit.to_le_bytes());
    bytes[16..].copy_from_slice(schema);
    bytes
}

/// What a multiplexed frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Client: begins a call.
    Request = 1,
    /// Server: one item of a call's stream. Costs one credit.
    Item = 2,
    /// Server: ends a call, with its response or a fault.
    End = 3,
    /// Client: gives the call up. The server still ends it. One that has ended it already takes this to mean
    /// that the answer may not have been read: the two may pass each other on their way.
    Cancel = 4,
    /// Client: the call's stream may send this many items more.
    Credit = 5,
    /// Server: it takes no new calls; those that began are answered.
    Goodbye = 6,
}

impl FrameKind {
    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Request,
            2 => Self::Item,
            3 => Self::End,
            4 => Self::Cancel,
            5 => Self::Credit,
            6 => Self::Goodbye,
            _ => return None,
        })
    }
}

/// What stands in front of a multiplexed payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: FrameKind,
    /// Bytes of payload behind it.
    pub length: u32,
    /// The call.
    pub id: u64,
    /// Of an end: the code of its [`Fault`]. Else 0, and not looked at; so are the two below in frames that
    /// they say nothing of.
    pub fault: u16,
    /// Of a request: milliseconds until its deadline; 0 for none.
    pub deadline_ms: u32,
    /// Of a credit: items more. Of a request: items to begin with instead of what the welcome says; 0 for
    /// that.
    pub credit: u32,
}

impl Header {
    /// A header with neither fault, deadline nor credit.
    pub const fn new(kind: FrameKind, id: u64, length: u32) -> Self {
        Self { kind, length, id, fault: 0, deadline_ms: 0, credit: 0 }
    }

    /// Its bytes.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[6..8].copy_from_slice(&self.fault.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.deadline_ms.to_le_bytes());
        bytes[20..].copy_from_slice(&self.credit.to_le_bytes());
        bytes
    }

    /// Reads the header that `bytes` begin with; `None` until it is whole. The payload may not be there yet.
    ///
    /// # Errors
    /// A payload over `limit`, an unknown kind, unused bytes that are used.
    ///
    /// ```
    /// # use thalweg_wire::frame::{FrameKind, Header};
    /// let header = Header { deadline_ms: 250, ..Header::new(FrameKind::Request, 7, 3) };
    /// let mut bytes = header.encode().to_vec();
    /// bytes.extend_from_slice(b"abc");
    /// assert_eq!(Header::decode(&bytes, 1_024), Ok(Some(header)));
    /// assert_eq!(Header::decode(&bytes[..23], 1_024), Ok(None));
    /// ```
    #[inline]
    pub fn decode(bytes: &[u8], limit: u32) -> Result<Option<Self>, FrameError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let kind = FrameKind::of(bytes[4]).ok_or(FrameError::UnknownKind(bytes[4]))?;
        if bytes[5] != 0 {
            return Err(FrameError::Unused);
        }
        Ok(Some(Self {
            kind,
            length: within(u32_at(bytes, 0), limit)?,
            id: u64::from_le_bytes(part(bytes, 8)),
            fault: u16_at(bytes, 6),
            deadline_ms: u32_at(bytes, 16),
            credit: u32_at(bytes, 20),
        }))
    }
}

/// Reads the length that a plain frame begins with; `None` until it is there.
///
/// # Errors
/// Over `limit`.
#[inline]
pub fn plain_length(bytes: &[u8], limit: u32) -> Result<Option<u32>, FrameError> {
    bytes.first_chunk().map(|length| within(u32::from_le_bytes(*length), limit)).transpose()
}

fn within(length: u32, limit: u32) -> Result<u32, FrameError> {
    if length > limit { Err(FrameError::TooLarge { length, limit }) } else { Ok(length) }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(part(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(part(bytes, at))
}

fn schema_at(bytes: &[u8; HELLO_BYTES]) -> SchemaHash {
    part(bytes, 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_plain_connection_begins_with_the_magic() {
        assert!(u32::from_le_bytes(MAGIC) > LENGTH_MAX);
        assert_eq!(opening(&LENGTH_MAX.to_le_bytes()), Ok(Some(Opening::Plain)));
        assert_eq!(opening(&(LENGTH_MAX + 1).to_le_bytes()), Err(FrameError::BadMagic));
        assert_eq!(opening(&[0xff; 4]), Err(FrameError::BadMagic));
        assert_eq!(opening(&MAGIC[..3]), Ok(None));
    }

    #[test]
    fn a_newer_hello_is_read_as_far_as_its_version() {
        let mut bytes = Hello { version: VERSION, shared: false, ring_bytes: 0, schema: [9; 32] }.encode();
        bytes[6] = 0xff;
        assert_eq!(opening(&bytes), Err(FrameError::Unused));
        bytes[4] = 2;
        assert!(matches!(opening(&bytes), Ok(Some(Opening::Hello(Hello { version: 2, .. })))));
    }

    #[test]
    fn a_welcome_is_told_from_anything_else_at_its_first_byte() {
        let welcome = Welcome { version: 1, fault: 7, ring_bytes: 4_096, credit: 64, schema: [3; 32] };
        let bytes = welcome.encode();
        for end in 0..HELLO_BYTES {
            assert_eq!(Welcome::decode(&bytes[..end]), Ok(None));
        }
        assert_eq!(Welcome::decode(&bytes), Ok(Some(welcome)));
        assert_eq!(Welcome::decode(b"H"), Err(FrameError::BadMagic));
    }

    proptest! {
        #[test]
        fn headers_survive_and_every_prefix_waits(
            kind in 1_u8..=6, length in 0..=LENGTH_MAX, id: u64, fault: u16, deadline_ms: u32, credit: u32,
        ) {
            let kind = FrameKind::of(kind).unwrap();
            let header = Header { kind, length, id, fault, deadline_ms, credit };
            let bytes = header.encode();
            prop_assert_eq!(Header::decode(&bytes, LENGTH_MAX), Ok(Some(header)));
            for end in 0..HEADER_BYTES {
                prop_assert_eq!(Header::decode(&bytes[..end], LENGTH_MAX), Ok(None));
            }
            if length > 0 {
                prop_assert_eq!(
                    Header::decode(&bytes, length - 1),
                    Err(FrameError::TooLarge { length, limit: length - 1 })
                );
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = opening(&bytes);
            let _ = Welcome::decode(&bytes);
            let _ = plain_length(&bytes, 100);
            if let Ok(Some(header)) = Header::decode(&bytes, 1_000) {
                prop_assert!(header.length <= 1_000);
                prop_assert_eq!(&header.encode()[..], &bytes[..HEADER_BYTES]);
            }
        }
    }
}
