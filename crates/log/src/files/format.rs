//! The bytes of a segment. All integers little-endian, everything aligned to 8.
//!
//! ```text
//! segment  header (64)  batch  batch  …  zeros
//!   header   magic 8 | format version 4 | segment number 4 | store id 8 | previous length 4 |
//!            previous checksum 4 | capacity 4 | after damage 1 | runs 3 | latest time 8 | held 4 | gone by 8 | checksum 4
//! batch    header (48)  touched table  frames
//!   header   magic 4 | length 4 | header checksum 4 | body checksum 4 | previous length 4 |
//!            previous checksum 4 | durable position 8 | time 8 | frames 4 | touched 2 | brief checksum 2
//!   touched  log 8 | end 8                              once per log the batch touches
//! frame    header (32)  payload  zeros to a multiple of 8
//!   header   payload length 4 | kind 1 | flags 1 | reserved 2 | log 8 | offset 8 | time 8
//! ```
//!
//! The header checksum covers the header (without its two checksums) and the touched table; the body checksum
//! covers the frames. Each batch repeats the length and header checksum of the one before, across segments
//! too. A header that stands proves which logs a damaged body touched and where they ended. Checksums are
//! CRC-32C (Castagnoli; RFC 3720 appendix B.4). Those of a batch's header begin with its [`Seal`], so that a
//! header stands only where it was written; the brief checksum rejects most bytes that are no header at once.
//! The format's version is in the segment header: a reader refuses a newer one.
//!
//! A segment can be walked flat, without knowing where batches end: the first word tells a batch header (the
//! magic) from a frame (a payload length), because a segment, and so a payload, is smaller than the magic
//! read as a number. Bytes behind the last batch are zero. Behind the batches of a compacted segment stands
//! the table of its runs ([`runs`]).

mod payload;
mod seal;

pub(crate) use payload::{
    Created, NoteList, decode_create, decode_notes, decode_producer, decode_trim, encode_create, encode_note,
    encode_producer,
};

pub(crate) use seal::{Seal, SealedAt};

use crate::checksum;
use crate::runs;
use crate::{LogId, Offset, Position, Time};
use seal::{BRIEF_AT, Fixed};
use std::sync::Arc;

pub(crate) const FORMAT_VERSION: u32 = 5;
pub(crate) const SEGMENT_HEADER_BYTES: u32 = 64;
pub(crate) const BATCH_HEADER_BYTES: u32 = 48;
pub(crate) const TOUCHED_BYTES: u32 = 16;
pub(crate) const FRAME_HEADER_BYTES: u32 = 32;
const SEGMENT_MAGIC: [u8; 8] = *b"THALWEG\x01";
pub(crate) const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"TwBt");
/// Largest segment: below the magic, so that no payload length looks like it.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 1 << 30;
const _: () = assert!(SEGMENT_BYTES_MAX < BATCH_MAGIC);
/// Frame flag: the last entry of its transaction in its log.
pub(crate) const FLAG_LAST: u8 = 1;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An entry.
    Data = 1,
    /// The log begins: its name, its configuration, and where a fork branches off.
    Create = 2,
    /// The log takes no more entries.
    Close = 3,
    /// The log ends.
    Delete = 4,
    /// A producer's new place.
    Producer = 5,
    /// The new writer sequence.
    WriterSeq = 6,
    /// Small facts kept beside the payload.
    Note = 7,
    /// Payload below an offset is purged.
    Trim = 8,
    /// Touches no log and changes nothing: it is written so that the store's end moves and another checkpoint
    /// can begin there (`reclaim`). Its payload is the link of the batch in front.
    Gone = 9,
    /// Where earlier entries of the log lie (`places`).
    Places = 10,
}

impl Kind {
    /// Its name, the same in every tool and language.
    ///
    /// ```
    /// assert_eq!(thalweg_log::Kind::WriterSeq.name(), "writerSeq");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Data => "data",
            Kind::Create => "create",
            Kind::Close => "close",
            Kind::Delete => "delete",
            Kind::Producer => "producer",
            Kind::WriterSeq => "writerSeq",
            Kind::Note => "note",
            Kind::Trim => "trim",
            Kind::Gone => "gone",
            Kind::Places => "places",
        }
    }

    fn of(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Data,
            2 => Kind::Create,
            3 => Kind::Close,
            4 => Kind::Delete,
            5 => Kind::Producer,
            6 => Kind::WriterSeq,
            7 => Kind::Note,
            8 => Kind::Trim,
            9 => Kind::Gone,
            10 => Kind::Places,
            _ => return None,
        })
    }
}

/// How long a log lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Until it is deleted.
    Unlimited,
    /// Until it has not been accessed for `ttl_s` seconds.
    Sliding {
        /// Window in seconds.
        ttl_s: u64,
    },
    /// Until an instant.
    Until {
        /// Microseconds since the Unix epoch.
        expires_us: Time,
    },
}

/// What a log is created with and never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Media type of the payload, opaque to the log. At most 65,535 bytes.
    pub content_type: Arc<str>,
    /// How long the log lives.
    pub lifetime: Lifetime,
}

/// A producer's place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Highest epoch seen.
    pub epoch: u64,
    /// Highest sequence accepted in that epoch.
    pub seq: u64,
}

/// The link that each batch carries to the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) length: u32,
    pub(crate) checksum: u32,
}

impl Link {
    pub(crate) fn encode(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u32,
    pub(crate) store_id: u64,
    pub(crate) previous: Link,
    pub(crate) capacity: u32,
    /// Begun by a recovery that found damage: what `previous` names is the last batch it could read.
    pub(crate) after_damage: bool,
    /// The largest time of any entry in an earlier segment.
    pub(crate) latest: Time,
    /// Bytes of its file if it was compacted, else 0.
    pub(crate) held: u32,
    /// Runs of batches in it if it was compacted: fewer than two to the power of 24.
    pub(crate) runs: u32,
    /// If it was compacted: at this position of the store, all that it lacks was gone.
    pub(crate) gone_by: Position,
}

/// Why a segment header is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    Damaged,
    Newer(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        bytes[0..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.store_id.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.previous.length.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.previous.checksum.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[36] = u8::from(self.after_damage);
        bytes[37..40].copy_from_slice(&self.runs.to_le_bytes()[..3]);
        bytes[40..48].copy_from_slice(&self.latest.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.held.to_le_bytes());
        bytes[52..60].copy_from_slice(&self.gone_by.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, BadHeader> {
        let bytes = bytes.get(..SEGMENT_HEADER_BYTES as usize).ok_or(BadHeader::Damaged)?;
        if bytes[..8] != SEGMENT_MAGIC || crc32c::crc32c(&bytes[..60]) != word32(bytes, 60) {
            return Err(BadHeader::Damaged);
        }
        let version = word32(bytes, 8);
        if version > FORMAT_VERSION {
            return Err(BadHeader::Newer(version));
        }
        let header = SegmentHeader {
            number: word32(bytes, 12),
            store_id: word64(bytes, 16),
            previous: Link { length: word32(bytes, 24), checksum: word32(bytes, 28) },
            capacity: word32(bytes, 32),
            after_damage: bytes[36] != 0,
            latest: word64(bytes, 40),
            held: word32(bytes, 48),
            runs: word32(bytes, 36) >> 8,
            gone_by: word64(bytes, 52),
        };
        let compacted = header.held > 0 || header.runs > 0;
        if compacted && header.table_at().is_none() { Err(BadHeader::Damaged) } else { Ok(header) }
    }
}

impl SegmentHeader {
    /// The seal of its batches' headers.
    pub(crate) fn seal(&self) -> Seal {
        Seal::of(self.store_id, self.number)
    }

    /// Whether it was compacted: batches that no log needed any more are missing from it.
    pub(crate) fn is_compacted(&self) -> bool {
        self.held > 0
    }

    /// Bytes of the file.
    pub(crate) fn file_bytes(&self) -> u32 {
        if self.is_compacted() { self.held } else { self.capacity }
    }

    /// The same as a number to be added up.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.file_bytes().into()
    }

    /// The byte at which its table of runs begins, if it was compacted.
    pub(crate) fn table_at(&self) -> Option<u32> {
        let bytes = self.runs.checked_add(1)?.checked_mul(runs::ENTRY_BYTES)?;
        let at = self.held.checked_sub(bytes).filter(|at| *at >= SEGMENT_HEADER_BYTES);
        at.filter(|_| self.runs > 0 && self.held <= self.capacity)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) length: u32,
    pub(crate) header_checksum: u32,
    pub(crate) body_checksum: u32,
    pub(crate) previous: Link,
    pub(crate) durable: Position,
    pub(crate) time: Time,
    pub(crate) frames: u32,
    pub(crate) touched: u16,
}

impl BatchHeader {
    /// Header and touched table for a place, with the checksums filled in; answers that of the header.
    #[inline]
    pub(crate) fn encode(&self, touched: &[(LogId, Offset)], here: SealedAt, into: &mut Vec<u8>) -> u32 {
        let mut fixed: Fixed = [0; BATCH_HEADER_BYTES as usize];
        fixed[0..4].copy_from_slice(&BATCH_MAGIC.to_le_bytes());
        fixed[4..8].copy_from_slice(&self.length.to_le_bytes());
        fixed[12..16].copy_from_slice(&self.body_checksum.to_le_bytes());
        fixed[16..20].copy_from_slice(&self.previous.length.to_le_bytes());
        fixed[20..24].copy_from_slice(&self.previous.checksum.to_le_bytes());
        fixed[24..32].copy_from_slice(&self.durable.to_le_bytes());
        fixed[32..40].copy_from_slice(&self.time.to_le_bytes());
        fixed[40..44].copy_from_slice(&self.frames.to_le_bytes());
        fixed[44..46].copy_from_slice(&self.touched.to_le_bytes());
        let (brief, sum) = seal::brief(&fixed, here);
        fixed[BRIEF_AT..].copy_from_slice(&brief.to_le_bytes());
        into.clear();
        into.extend_from_slice(&fixed);
        for (log, end) in touched {
            into.extend_from_slice(&log.to_le_bytes());
            into.extend_from_slice(&end.to_le_bytes());
        }
        let header_checksum = checksum::crc32c_append(sum, &into[BATCH_HEADER_BYTES as usize..]);
        into[8..12].copy_from_slice(&header_checksum.to_le_bytes());
        header_checksum
    }

    /// The header at the start of `bytes`, if its checksums hold for the place `here`; the body is not looked
    /// at. Complexity: of its touched table, and constant unless a header was written there.
    pub(crate) fn decode(bytes: &[u8], here: SealedAt) -> Option<BatchHeader> {
        let header = BatchHeader::claimed(bytes)?;
        let whole = bytes.get(..header.body_start() as usize)?;
        let (brief, sum) = seal::brief(&seal::bare(whole)?, here);
        let stands = brief == word16(whole, BRIEF_AT)
            && checksum::crc32c_append(sum, &whole[BATCH_HEADER_BYTES as usize..]) == header.header_checksum;
        stands.then_some(header)
    }

    /// What the bytes say if a header begins there: for bytes that were verified, or will be before the
    /// header is believed.
    pub(crate) fn claimed(bytes: &[u8]) -> Option<BatchHeader> {
        let fixed = bytes.get(..BATCH_HEADER_BYTES as usize)?;
        if word32(fixed, 0) != BATCH_MAGIC {
            return None;
        }
        let header = BatchHeader {
            length: word32(fixed, 4),
            header_checksum: word32(fixed, 8),
            body_checksum: word32(fixed, 12),
            previous: Link { length: word32(fixed, 16), checksum: word32(fixed, 20) },
            durable: word64(fixed, 24),
            time: word64(fixed, 32),
            frames: word32(fixed, 40),
            touched: word16(fixed, 44),
        };
        (header.length.is_multiple_of(8) && header.length >= header.body_start()).then_some(header)
    }

    /// The checksums that a header which does not stand may have had: the one it carries, and the one it adds
    /// up to.
    pub(crate) fn claims(bytes: &[u8], here: SealedAt) -> [Option<u32>; 2] {
        let fixed = bytes.get(..BATCH_HEADER_BYTES as usize);
        let carried = fixed.map(|fixed| word32(fixed, 8));
        let whole = fixed.and_then(|fixed| {
            bytes.get(..BATCH_HEADER_BYTES as usize + usize::from(word16(fixed, 44)) * TOUCHED_BYTES as usize)
        });
        let sum = whole.and_then(|whole| {
            let (_, sum) = seal::brief(&seal::bare(whole)?, here);
            Some(checksum::crc32c_append(sum, &whole[BATCH_HEADER_BYTES as usize..]))
        });
        [carried, sum]
    }

    /// Gives bytes that should be a header the checksums of one.
    #[cfg(test)]
    pub(crate) fn forge(bytes: &mut [u8], here: SealedAt) {
        let Some(bare) = seal::bare(bytes) else { return };
        let (brief, _) = seal::brief(&bare, here);
        bytes[BRIEF_AT..BRIEF_AT + 2].copy_from_slice(&brief.to_le_bytes());
        if let [_, Some(sum)] = BatchHeader::claims(bytes, here) {
            bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        }
    }

    pub(crate) fn body_start(&self) -> u32 {
        BATCH_HEADER_BYTES + u32::from(self.touched) * TOUCHED_BYTES
    }

    pub(crate) fn link(&self) -> Link {
        Link { length: self.length, checksum: self.header_checksum }
    }

    /// The link that the next batch carries: of this one, or the one that it carries on.
    pub(crate) fn link_behind(&self, body: &[u8]) -> Link {
        match body.get(FRAME_HEADER_BYTES as usize..FRAME_HEADER_BYTES as usize + 8) {
            Some(carried) if self.touched == 0 && body[4] == Kind::Gone as u8 => {
                Link { length: word32(carried, 0), checksum: word32(carried, 4) }
            }
            _ => self.link(),
        }
    }

    /// The body of the batch at the start of `bytes`, if its checksum holds, too, and it is made of as many
    /// frames as the header says.
    pub(crate) fn verified_body<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let body = bytes.get(self.body_start() as usize..self.length as usize)?;
        (checksum::crc32c(body) == self.body_checksum && self.counts(body)).then_some(body)
    }

    /// Whether a body is made of whole frames, as many as the header says.
    fn counts(&self, body: &[u8]) -> bool {
        let mut frames = frames(body);
        let count = frames.by_ref().count();
        !frames.malformed && count == self.frames as usize
    }
}

/// The touched table of a batch whose header stands.
pub(crate) fn touched<'a>(
    header: &BatchHeader,
    bytes: &'a [u8],
) -> impl Iterator<Item = (LogId, Offset)> + 'a {
    let table = &bytes[BATCH_HEADER_BYTES as usize..header.body_start() as usize];
    table.chunks_exact(TOUCHED_BYTES as usize).map(|row| (word64(row, 0), word64(row, 8)))
}

/// A frame in a verified body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: Kind,
    pub(crate) log: LogId,
    pub(crate) offset: Offset,
    pub(crate) time: Time,
    pub(crate) payload: &'a [u8],
    /// Where the payload begins, counted from the start of the body.
    pub(crate) payload_at: u32,
}

/// Log, offset and time of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) log: LogId,
    pub(crate) offset: Offset,
    pub(crate) time: Time,
}

/// A frame's header.
pub(crate) fn frame_header(
    kind: Kind,
    flags: u8,
    Stamp { log, offset, time }: Stamp,
    length: u32,
) -> [u8; FRAME_HEADER_BYTES as usize] {
    let mut bytes = [0; FRAME_HEADER_BYTES as usize];
    bytes[0..4].copy_from_slice(&length.to_le_bytes());
    bytes[4] = kind as u8;
    bytes[5] = flags;
    bytes[8..16].copy_from_slice(&log.to_le_bytes());
    bytes[16..24].copy_from_slice(&offset.to_le_bytes());
    bytes[24..32].copy_from_slice(&time.to_le_bytes());
    bytes
}

/// Bytes of a frame with a payload of this length.
pub(crate) const fn frame_bytes(payload: u64) -> u64 {
    (FRAME_HEADER_BYTES as u64 + payload).next_multiple_of(8)
}

/// The frames of a body, in order. Ends early, and says so, at a frame that does not fit.
pub(crate) struct Frames<'a> {
    body: &'a [u8],
    at: usize,
    malformed: bool,
}

pub(crate) fn frames(body: &[u8]) -> Frames<'_> {
    Frames { body, at: 0, malformed: false }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        if self.at == self.body.len() {
            return None;
        }
        let rest = &self.body[self.at..];
        let frame = (|| {
            let header = rest.get(..FRAME_HEADER_BYTES as usize)?;
            let length = word32(header, 0) as usize;
            let start = FRAME_HEADER_BYTES as usize;
            let payload = rest.get(start..start.checked_add(length)?)?;
            rest.get(..usize::try_from(frame_bytes(length as u64)).ok()?)?;
            Some(Frame {
                kind: Kind::of(header[4])?,
                log: word64(header, 8),
                offset: word64(header, 16),
                time: word64(header, 24),
                payload,
                payload_at: u32::try_from(self.at + start).ok()?,
            })
        })();
        match frame {
            Some(frame) => {
                let whole = frame_bytes(frame.payload.len() as u64);
                self.at += usize::try_from(whole).unwrap_or(usize::MAX);
            }
            None => {
                self.malformed = true;
                self.at = self.body.len();
            }
        }
        frame
    }
}

pub(crate) fn word16(bytes: &[u8], at: usize) -> u16 {
    let mut word = [0; 2];
    word.copy_from_slice(&bytes[at..at + 2]);
    u16::from_le_bytes(word)
}

pub(crate) fn word32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(crate) fn word64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_batch_header_reads_back_and_any_flipped_bit_is_seen(
            length in 0u32..1000, body in any::<u32>(), durable in any::<u64>(),
            logs in proptest::collection::vec(any::<(u64, u64)>(), 0..5), flip in any::<prop::sample::Index>(),
            (store_id, number, place, other) in any::<(u64, u32, u32, u32)>(),
        ) {
            let of = |number| SegmentHeader { store_id, number, ..SegmentHeader::default() }.seal();
            let here = of(number).at(place);
            let touched_count = u16::try_from(logs.len()).unwrap();
            let header = BatchHeader {
                length: (length + 160) * 8, header_checksum: 0, body_checksum: body,
                previous: Link { length: 8, checksum: 9 }, durable, time: 1, frames: 2, touched: touched_count,
            };
            let mut bytes = Vec::new();
            let header_checksum = header.encode(&logs, here, &mut bytes);
            let read = BatchHeader::decode(&bytes, here).unwrap();
            prop_assert_eq!(read, BatchHeader { header_checksum, ..header });
            prop_assert_eq!(touched(&read, &bytes).collect::<Vec<_>>(), logs);
            prop_assert_eq!(BatchHeader::claims(&bytes, here), [Some(header_checksum); 2]);
            for elsewhere in [of(number).at(other), of(other).at(place), Seal::default().at(place)] {
                let stands = BatchHeader::decode(&bytes, elsewhere).is_some();
                prop_assert!(!stands || elsewhere == here);
            }
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(BatchHeader::decode(&bytes, here), None);
        }

        #[test]
        fn frames_never_panic_on_garbage(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut frames = frames(&body);
            let count = frames.by_ref().count();
            prop_assert!(frames.malformed || body.is_empty() || count > 0);
        }
    }

    #[test]
    fn a_newer_segment_is_told_from_a_damaged_one() {
        let header = SegmentHeader {
            number: 1,
            store_id: 2,
            previous: Link::default(),
            capacity: 4096,
            after_damage: false,
            latest: 7,
            held: 1024,
            runs: 30,
            gone_by: 9,
        };
        assert_eq!(header.table_at(), Some(1024 - 31 * 16));
        // A table that its file has no room for is none.
        assert_eq!(
            SegmentHeader::decode(&SegmentHeader { held: 8, ..header }.encode()),
            Err(BadHeader::Damaged)
        );
        assert_eq!(
            SegmentHeader::decode(&SegmentHeader { runs: 0, ..header }.encode()),
            Err(BadHeader::Damaged)
        );
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        bytes[8] = 9;
        assert_eq!(SegmentHeader::decode(&bytes), Err(BadHeader::Damaged));
        let checksum = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(BadHeader::Newer(9)));
    }
}
