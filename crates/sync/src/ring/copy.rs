//! Bytes into shared words and out of them.
//!
//! A ring's bytes are only ever touched as aligned 64-bit words, loaded and stored `Relaxed`: also at the edges
//! of a message, where the writer puts its bytes into a word beside those that are there, and the reader takes
//! its own out. So there is no access of another width, and none that is not atomic: a peer that writes what it
//! has no right to write while we copy makes us copy garbage, and that is all it can do. (Copying plain bytes
//! under such a peer would be a data race, of which the language promises nothing.)
//!
//! Only the ring's writer stores, so putting bytes into a word beside others loses nothing: nobody else changes
//! them meanwhile, as long as there is one writer.

use crate::primitives::atomic::{AtomicU64, Ordering};
use std::mem::MaybeUninit;

/// Bytes in a word.
pub(super) const WORD: usize = size_of::<u64>();

/// Stores `bytes` at byte `at`. The caller has split what would pass the end.
#[inline]
pub(super) fn store(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let (mut index, skipped) = (at / WORD, at % WORD);
    let mut rest = bytes;
    if skipped > 0 {
        let (edge, behind) = bytes.split_at(bytes.len().min(WORD - skipped));
        merge(&words[index], skipped, edge);
        (index, rest) = (index + 1, behind);
    }
    let (whole, edge) = rest.as_chunks::<WORD>();
    for (word, bytes) in words[index..][..whole.len()].iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if !edge.is_empty() {
        merge(&words[index + whole.len()], 0, edge);
    }
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

/// Puts fewer bytes than a word has into one, behind its first `skipped`.
#[inline]
fn merge(word: &AtomicU64, skipped: usize, edge: &[u8]) {
    let mask = !(u64::MAX << (8 * edge.len())) << (8 * skipped);
    let before = word.load(Ordering::Relaxed).to_le();
    let after = before & !mask | gather(edge) << (8 * skipped);
    word.store(u64::from_le(after), Ordering::Relaxed);
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
