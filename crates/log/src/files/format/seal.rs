//! What ties a batch's header to its place: the number that its checksums begin with, and the brief checksum.

use super::BATCH_HEADER_BYTES;
use crate::checksum;

/// Where the brief checksum stands in a batch's header, at its end.
pub(super) const BRIEF_AT: usize = BATCH_HEADER_BYTES as usize - 2;

/// What the checksums of a segment's batch headers begin with. It is derived from the store's number, the
/// segment's and the batch's place. The store's number is drawn at random and not known to those who may only
/// append, so no payload can hold bytes that would be taken for a batch where a header is lost, be they made
/// for that or copied from a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seal {
    of_segment: u64,
}

impl Seal {
    /// Of a store's number, and a segment's.
    pub(crate) fn of(store_id: u64, number: u32) -> Seal {
        Seal { of_segment: mixed(store_id ^ mixed(number.into())) }
    }

    /// For a batch that begins at a place of the segment.
    #[inline]
    pub(crate) fn at(self, place: u32) -> SealedAt {
        SealedAt { seal: self, place }
    }
}

/// What the checksums of one batch's header begin with: its segment's seal, and the batch's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedAt {
    seal: Seal,
    place: u32,
}

impl SealedAt {
    #[inline]
    fn number(self) -> u64 {
        mixed(self.seal.of_segment ^ u64::from(self.place))
    }
}

/// All bits of a number in all bits of another: the last step of SplitMix64 (Steele, Lea and Flood 2014).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// A batch header's fixed part.
pub(super) type Fixed = [u8; BATCH_HEADER_BYTES as usize];

/// The fixed part at the start of some bytes, as it was before its checksums were filled in.
pub(super) fn bare(bytes: &[u8]) -> Option<Fixed> {
    let mut fixed: Fixed = *bytes.first_chunk()?;
    fixed[8..12].fill(0);
    fixed[BRIEF_AT..].fill(0);
    Some(fixed)
}

/// The brief checksum of a bare fixed part, and the sum from which the header's whole checksum is continued.
#[inline]
pub(super) fn brief(bare: &Fixed, here: SealedAt) -> (u16, u32) {
    let number = here.number();
    let sum = checksum::crc32c_append(number as u32, bare);
    let folded = sum ^ (number >> 32) as u32;
    ((folded ^ folded >> 16) as u16, sum)
}
