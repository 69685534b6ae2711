//! CRC-32C by the processor's own instruction, where it has one.

/// Continues a CRC-32C (Castagnoli; RFC 3720 appendix B.4) over some bytes, eight at a time, each step behind
/// the one before. `None` where this processor has no instruction for that. For short pieces: over a long one
/// a sum of several parts that are then combined is faster.
///
/// ```
/// let sum = thalweg_sys::checksum::crc32c(0, b"123456789");
/// assert!(sum.is_none_or(|sum| sum == 0xe306_9283));
/// ```
#[inline]
pub fn crc32c(sum: u32, bytes: &[u8]) -> Option<u32> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction that the function is compiled to.
        return Some(unsafe { by_instruction(sum, bytes) });
    }
    let _ = (sum, bytes);
    None
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
fn by_instruction(sum: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let step = |sum, word: &[u8; 8]| _mm_crc32_u64(sum, u64::from_le_bytes(*word));
    let sum = words.iter().fold(u64::from(!sum), step);
    !rest.iter().fold(sum as u32, |sum, byte| _mm_crc32_u8(sum, *byte))
}
