//! Words that live in a mapped file, where other processes read them.
//!
//! Purpose: the store's control words (how far the log is written, how far it is durable, the version of
//! its segment list). One process writes them; it and others read them. Each word is an aligned u64 at a
//! fixed offset. Readers treat a value from a file as a hint to be checked.
//!
//! | word | written by | with | read by | with |
//! |---|---|---|---|---|
//! | any | its writer, after its stores; or threads that race to move it up | `Release` | any reader, before its loads | `Acquire` |
//!
//! So a reader of a position also sees the bytes below it, and where several raced to move it there, what
//! each of those did before that came to lower places. The marks of [regions](crate::region) are words too,
//! of four bytes. Where several race to *claim* a word that is 0, the first stays. Checked by the models
//! below, which refute each ordering when it is weakened, and by the tests.

use crate::primitives::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::ptr::NonNull;
#[cfg(not(loom))]
use thalweg_sys::disk::Map;

/// How words are stored and loaded. Production code uses [`Strong`]; the models use weaker tables to show
/// that each entry is needed.
pub(crate) trait Orderings {
    /// A writer's store or move up, behind what it tells of.
    const PUBLISHED: Ordering;
    /// A reader's load, before it looks at that.
    const SEEN: Ordering;
}

pub(crate) struct Strong;

impl Orderings for Strong {
    const PUBLISHED: Ordering = Ordering::Release;
    const SEEN: Ordering = Ordering::Acquire;
}

/// A word that is told and read by a table of orderings.
pub(crate) trait Told: Sized {
    type Value: Copy + Ord;
    fn load<O: Orderings>(&self) -> Self::Value;
    fn store<O: Orderings>(&self, value: Self::Value);
    /// Moves it up, never down.
    fn advance<O: Orderings>(&self, value: Self::Value);
    /// Stores it if it is 0.
    fn claim<O: Orderings>(&self, value: Self::Value);
}

macro_rules! told {
    ($($word:ty, $value:ty;)*) => {$(
        impl Told for $word {
            type Value = $value;

            #[inline]
            fn load<O: Orderings>(&self) -> $value {
                self.load(O::SEEN)
            }

            #[inline]
            fn store<O: Orderings>(&self, value: $value) {
                self.store(value, O::PUBLISHED);
            }

            #[inline]
            fn advance<O: Orderings>(&self, value: $value) {
                self.fetch_max(value, O::PUBLISHED);
            }

            #[inline]
            fn claim<O: Orderings>(&self, value: $value) {
                // Refused: another came first, and its value stays.
                let _ = self.compare_exchange(0, value, O::PUBLISHED, Ordering::Relaxed);
            }
        }
    )*};
}

told! {
    AtomicU32, u32;
    AtomicU64, u64;
}

/// A word of this process alone, told and read as those in a map are.
#[derive(Debug, Default)]
pub struct Word(AtomicU64);

impl Word {
    /// Reads it.
    #[inline]
    pub fn load(&self) -> u64 {
        Told::load::<Strong>(&self.0)
    }

    /// Writes it.
    #[inline]
    pub fn store(&self, value: u64) {
        Told::store::<Strong>(&self.0, value);
    }
}

/// A map read and written as u64 words.
// Loom's words cannot live in a map: its models have places of their own.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct Words {
    map: Map,
}

#[cfg(not(loom))]
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
        Told::load::<Strong>(self.word(index))
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
        };
        std::array::from_fn(|at| Told::load::<Strong>(word(at)))
    }

    /// Writes a word.
    ///
    /// # Panics
    /// When the map may only be read, as of [`Words::advance`].
    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        assert!(self.map.is_writable(), "words to be written lie in a map that may be written");
        Told::store::<Strong>(self.word(index), value);
        self.map.mark(index * 8, 8);
    }

    /// Moves a word up, never down: of all who race for it, the largest value stays.
    pub fn advance(&self, index: usize, value: u64) {
        assert!(self.map.is_writable(), "words to be written lie in a map that may be written");
        Told::advance::<Strong>(self.word(index), value);
        self.map.mark(index * 8, 8);
    }

    /// Stores a word that is 0: of all who race for it, the first one's value stays.
    pub fn claim(&self, index: usize, value: u64) {
        assert!(self.map.is_writable(), "words to be written lie in a map that may be written");
        Told::claim::<Strong>(self.word(index), value);
        self.map.mark(index * 8, 8);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use thalweg_sys::disk::{Allocation, Disk};

    #[test]
    #[should_panic(expected = "a map that may be written")]
    fn what_may_only_be_read_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let file = Disk::Real.create(&directory.path().join("words")).unwrap();
        file.allocate(4096, Allocation::Reserved).unwrap();
        Words::new(file.map(4096, false).unwrap()).store(0, 1);
    }

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
    fn a_word_that_is_claimed_stays_what_it_is() {
        let words = Words::new(Map::anonymous(4096).unwrap());
        [7, 9].into_iter().for_each(|value| words.claim(2, value));
        assert_eq!(words.load(2), 7);
    }

    #[test]
    fn words_keep_what_was_stored() {
        let word = Word::default();
        word.store(7);
        assert_eq!(word.load(), 7);
        let words = Words::new(Map::anonymous(4096).unwrap());
        words.store(3, u64::MAX);
        assert_eq!((words.load(3), words.load(4)), (u64::MAX, 0));
        assert!(std::panic::catch_unwind(|| words.load(512)).is_err());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use std::sync::Arc;

    /// A word, and the bytes that its values 1 and 2 tell of.
    struct Shared {
        word: AtomicU64,
        bytes: [UnsafeCell<u8>; 2],
    }
    // SAFETY: a cell is read only after a word was seen that tells of it, which is what the models check.
    unsafe impl Sync for Shared {}

    impl Shared {
        fn new() -> Arc<Shared> {
            let bytes = std::array::from_fn(|_| UnsafeCell::new(0));
            Arc::new(Shared { word: AtomicU64::new(0), bytes })
        }

        fn fill(&self, position: usize) {
            // SAFETY: the only store, made before any word tells of it.
            self.bytes[position].with_mut(|byte| unsafe { *byte = 7 });
        }

        fn look(&self, position: usize) {
            // SAFETY: published bytes are no longer stored to.
            assert_eq!(self.bytes[position].with(|byte| unsafe { *byte }), 7);
        }
    }

    /// One writer, who fills and tells twice.
    fn who_reads_a_word_sees_what_it_tells_of<O: Orderings>() {
        loom::model(|| {
            let shared = Shared::new();
            let writer = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    for position in 0..2 {
                        shared.fill(position);
                        Told::store::<O>(&shared.word, position as u64 + 1);
                    }
                })
            };
            (0..Told::load::<O>(&shared.word) as usize).for_each(|position| shared.look(position));
            writer.join().unwrap();
        });
    }

    /// Two who race fill a byte each. Who sees 2 sees the byte of 2; the byte of 1 it sees where 1 was there
    /// first.
    fn who_reads_a_word_that_was_raced_for_sees_what_it_tells_of<O: Orderings>() {
        loom::model(|| {
            let shared = Shared::new();
            let rivals = [0, 1].map(|position| {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.fill(position);
                    Told::advance::<O>(&shared.word, position as u64 + 1);
                    assert!(Told::load::<O>(&shared.word) > position as u64);
                })
            });
            let first = Told::load::<O>(&shared.word);
            let second = Told::load::<O>(&shared.word);
            assert!(first <= second, "a word that only grows");
            [first, second]
                .into_iter()
                .filter(|seen| *seen > 0)
                .for_each(|seen| shared.look(seen as usize - 1));
            rivals.into_iter().for_each(|rival| rival.join().unwrap());
            assert_eq!(Told::load::<O>(&shared.word), 2);
        });
    }

    /// Two who race claim a word, each behind a byte of its own. The one that came first stays. A reader
    /// that sees its value sees its byte.
    fn who_reads_a_word_that_was_claimed_sees_what_it_tells_of<O: Orderings>() {
        loom::model(|| {
            let shared = Shared::new();
            let rivals = [0, 1].map(|position| {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.fill(position);
                    Told::claim::<O>(&shared.word, position as u64 + 1);
                })
            });
            let seen = Told::load::<O>(&shared.word);
            if seen > 0 {
                shared.look(seen as usize - 1);
            }
            let again = Told::load::<O>(&shared.word);
            rivals.into_iter().for_each(|rival| rival.join().unwrap());
            let last = Told::load::<O>(&shared.word);
            assert!(last > 0 && (seen == 0 || seen == again) && (again == 0 || again == last));
        });
    }

    struct PublishedRelaxed;
    impl Orderings for PublishedRelaxed {
        const PUBLISHED: Ordering = Ordering::Relaxed;
        const SEEN: Ordering = Ordering::Acquire;
    }

    struct SeenRelaxed;
    impl Orderings for SeenRelaxed {
        const PUBLISHED: Ordering = Ordering::Release;
        const SEEN: Ordering = Ordering::Relaxed;
    }

    /// Whether loom found an access that nothing orders behind the one before it.
    fn races(model: fn()) -> bool {
        match std::thread::spawn(model).join() {
            Ok(()) => false,
            Err(panic) => panic.downcast_ref::<String>().is_some_and(|message| message.contains("Causality")),
        }
    }

    #[test]
    fn each_ordering_of_a_word_is_needed() {
        fn refuted<O: Orderings>() -> [bool; 3] {
            [
                races(who_reads_a_word_sees_what_it_tells_of::<O>),
                races(who_reads_a_word_that_was_raced_for_sees_what_it_tells_of::<O>),
                races(who_reads_a_word_that_was_claimed_sees_what_it_tells_of::<O>),
            ]
        }
        // Not only found to race: the strong ones run to their end.
        who_reads_a_word_sees_what_it_tells_of::<Strong>();
        who_reads_a_word_that_was_raced_for_sees_what_it_tells_of::<Strong>();
        who_reads_a_word_that_was_claimed_sees_what_it_tells_of::<Strong>();
        assert_eq!(refuted::<PublishedRelaxed>(), [true; 3]);
        assert_eq!(refuted::<SeenRelaxed>(), [true; 3]);
    }
}
