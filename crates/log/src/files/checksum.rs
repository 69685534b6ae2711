//! CRC-32C of what is written and read batch by batch.
//!
//! Most batches are short, and for these the library's preparations for a long piece cost more than the sum
//! itself: it takes 456 instructions for the three pieces of a batch of 100 bytes, and the processor's own
//! instruction, word by word, 197. A long piece is the library's, which sums three parts of it at once.

/// The library sums pieces below this word by word, too.
const PARTS_BYTES_MIN: usize = 768;

/// Continues a sum over some bytes.
#[inline]
pub(crate) fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    let by_instruction =
        if bytes.len() < PARTS_BYTES_MIN { thalweg_sys::checksum::crc32c(sum, bytes) } else { None };
    by_instruction.unwrap_or_else(|| crc32c::crc32c_append(sum, bytes))
}

/// The sum of some bytes.
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_those_of_the_library_wherever_a_piece_lies(
            bytes in proptest::collection::vec(any::<u8>(), 0..1_000), from in 0usize..16, sum: u32,
        ) {
            let piece = bytes.get(from..).unwrap_or_default();
            prop_assert_eq!(super::crc32c_append(sum, piece), crc32c::crc32c_append(sum, piece));
        }
    }
}
