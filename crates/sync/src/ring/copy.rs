//! Bytes into shared words and out of them.
//!
//! A ring's bytes are only ever touched as aligned 64-bit words, loaded and stored `Relaxed`: also at the
//! edges of a message, where the writer stores a word that it began before anew, and the reader takes its own
//! bytes out. So there is no access of another width, and none that is not atomic: a peer that writes what it
//! has no right to write while we copy makes us copy garbage, and that is all it can do. (Copying plain bytes
//! under such a peer would be a data race, of which the language promises nothing.)
//!
//! Only the ring's writer stores, so it knows what a word holds that it began ([`store`]'s `edge`), and where
//! nothing behind its bytes is wanted any more it stores zeros there. It looks at a word before it stores
//! only where the ring is as good as full: a line that the reader has, or nobody has any more, takes as long
//! to come as the message does to go.

use crate::primitives::atomic::{AtomicU64, Ordering};
use std::mem::MaybeUninit;

/// Bytes in a word.
pub(super) const WORD: usize = size_of::<u64>();

/// Stores `bytes` at byte `at`. The caller has split what would pass the end. `edge` is the word that `at`
/// lies in as far as it was stored, with zeros behind, and becomes that of the place behind the bytes. `pads`
/// says that nobody wants what is behind them in the last word.
#[inline]
pub(super) fn store(words: &[AtomicU64], at: usize, bytes: &[u8], edge: &mut u64, pads: bool) {
    let (mut index, skipped) = (at / WORD, at % WORD);
    let mut rest = bytes;
    if skipped > 0 {
        let (now, behind) = bytes.split_at(bytes.len().min(WORD - skipped));
        *edge |= gather(now) << (8 * skipped);
        let filled = skipped + now.len();
        finish(&words[index], *edge, filled, pads);
        if filled < WORD {
            return;
        }
        (index, rest) = (index + 1, behind);
    }
    let (whole, last) = rest.as_chunks::<WORD>();
    for (word, bytes) in words[index..][..whole.len()].iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    *edge = gather(last);
    if !last.is_empty() {
        finish(&words[index + whole.len()], *edge, last.len(), pads);
    }
}

/// A short message's lines: that of `at` and the one behind it. There is a power of two of words.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
fn lines(words: &[AtomicU64], at: usize) -> [*const AtomicU64; 2] {
    [0, 64].map(|bytes| &raw const words[((at + bytes) / WORD) & (words.len() - 1)])
}

/// Has a short message's lines belong to this processor by the time they are stored to.
#[inline]
pub(super) fn claim(words: &[AtomicU64], at: usize) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    for word in lines(words, at) {
        // SAFETY: a hint that reads and writes nothing, of a word that is there; processors without it do
        // nothing.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) word, options(nostack, preserves_flags, readonly))
        };
    }
    let _ = (words, at);
}

/// Has a short message's lines on their way here when somebody has stored to them.
#[inline]
pub(super) fn anticipate(words: &[AtomicU64], at: usize) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    for word in lines(words, at) {
        // SAFETY: a hint that reads and writes nothing, of a word that is there.
        unsafe {
            std::arch::asm!("prefetcht0 [{}]", in(reg) word, options(nostack, preserves_flags, readonly))
        };
    }
    let _ = (words, at);
}

/// Loads bytes from byte `at` until `into` is full. The caller has split what would pass the end.
#[inline]
pub(super) fn load(words: &[AtomicU64], at: usize, into: &mut [MaybeUninit<u8>]) {
    let (mut index, skipped) = (at / WORD, at % WORD);
    let mut rest = into;
    if skipped > 0 {
        let edge_bytes = rest.len().min(WORD - skipped);
        let (edge, behind) = rest.split_at_mut(edge_bytes);
        take(edge, words[index].load(Ordering::Relaxed).to_le() >> (8 * skipped));
        (index, rest) = (index + 1, behind);
    }
    let (whole, edge) = rest.as_chunks_mut::<WORD>();
    for (word, bytes) in words[index..][..whole.len()].iter().zip(whole.iter_mut()) {
        bytes.write_copy_of_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    if !edge.is_empty() {
        take(edge, words[index + whole.len()].load(Ordering::Relaxed).to_le());
    }
}

/// Stores a word of which the first `filled` bytes are known.
#[inline]
fn finish(word: &AtomicU64, edge: u64, filled: usize, pads: bool) {
    let kept = match filled {
        WORD => 0,
        _ if pads => 0,
        _ => word.load(Ordering::Relaxed).to_le() & u64::MAX << (8 * filled),
    };
    word.store(u64::from_le(edge | kept), Ordering::Relaxed);
}

/// At most seven bytes as the low end of a number.
#[inline]
fn gather(edge: &[u8]) -> u64 {
    let (mut number, mut shift, mut rest) = (0, 0, edge);
    for step in [4, 2, 1] {
        if rest.len() & step != 0 {
            let (now, later) = rest.split_at(step);
            let mut bytes = [0; WORD];
            bytes[..step].copy_from_slice(now);
            number |= u64::from_le_bytes(bytes) << shift;
            (shift, rest) = (shift + 8 * step, later);
        }
    }
    number
}

/// The low end of a number as at most seven bytes.
#[inline]
fn take(edge: &mut [MaybeUninit<u8>], number: u64) {
    let (mut number, mut rest) = (number, edge);
    for step in [4, 2, 1] {
        if rest.len() & step != 0 {
            let (now, later) = rest.split_at_mut(step);
            now.write_copy_of_slice(&number.to_le_bytes()[..step]);
            (number, rest) = (number >> (8 * step), later);
        }
    }
}
