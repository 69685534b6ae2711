//! Words that live in a mapped file, where other processes read them.
//!
//! Purpose: the store's control words (how far the log is written, how far it is durable, the version of
//! its segment list). One process writes them; it and others read them. Each word is an aligned u64 at a
//! fixed offset. Stores are `Release` and loads `Acquire`, the same pairing as `Published`: whoever reads
//! a position also sees the bytes below it. Readers treat a value from a file as a hint to be checked.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_sys::disk::Map;

/// A map read and written as u64 words.
#[derive(Debug)]
pub struct Words {
    map: Map,
}

impl Words {
    /// Takes a map whose length is a multiple of 8.
    pub fn new(map: Map) -> Words {
        assert!(map.length().is_multiple_of(8), "a map of whole words");
        Words { map }
    }

    /// Where the words are mapped, and how many bytes: for readers in other languages.
    pub fn place(&self) -> (NonNull<u8>, usize) {
        (self.map.start(), self.map.length())
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.map.length() / 8, "a word outside its map");
        // SAFETY: in bounds by the check, aligned because maps are page-aligned (and simulated ones
        // 8-aligned), and only ever accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.map.start().as_ptr().cast::<u64>().add(index)) }
    }

    /// Reads a word.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    /// Reads words that follow each other.
    #[inline]
    pub fn run<const N: usize>(&self, index: usize) -> [u64; N] {
        assert!(
            N > 0 && index < self.map.length() / 8 && N <= self.map.length() / 8 - index,
            "words outside their map"
        );
        // SAFETY: in bounds by the check, aligned and accessed as in `word`.
        let word = |at: usize| unsafe {
            AtomicU64::from_ptr(self.map.start().as_ptr().cast::<u64>().add(index + at))
                .load(Ordering::Acquire)
        };
        std::array::from_fn(word)
    }

    /// Writes a word.
    pub fn store(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
        self.map.mark(index * 8, 8);
    }

    /// Moves a word up, never down: of all who race for it, the largest value stays. Release, as in
    /// [`Words::store`].
    pub fn advance(&self, index: usize, value: u64) {
        self.word(index).fetch_max(value, Ordering::Release);
        self.map.mark(index * 8, 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_only_grows_ends_at_the_largest_value_of_all_who_race() {
        let words = Words::new(Map::anonymous(4096).unwrap());
        std::thread::scope(|scope| {
            for rival in 0..2 {
                let words = &words;
                scope.spawn(move || {
                    let mut before = 0;
                    for value in 0..10_000 {
                        words.advance(9, value * 2 + rival);
                        let now = words.load(9);
                        assert!(now >= value * 2 + rival && now >= before);
                        before = now;
                    }
                });
            }
        });
        assert_eq!(words.load(9), 19_999);
        words.advance(9, 3);
        assert_eq!(words.load(9), 19_999);
    }

    #[test]
    fn words_keep_what_was_stored() {
        let words = Words::new(Map::anonymous(4096).unwrap());
        words.store(3, u64::MAX);
        assert_eq!((words.load(3), words.load(4)), (u64::MAX, 0));
        assert!(std::panic::catch_unwind(|| words.load(512)).is_err());
    }
}
