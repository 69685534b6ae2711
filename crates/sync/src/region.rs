//! A mapped stretch of memory that one writer fills and any number of readers read.
//!
//! Purpose: the log's segments. The bytes below the *published* mark are immutable for as long as the
//! region lives; the bytes at and above it belong to the one [`RegionWriter`]. Publishing moves the mark.
//!
//! | word | written by | with | read by | with |
//! |---|---|---|---|---|
//! | `published` | the writer, after its stores; or a process that follows another's writer | `Release` | readers, before their loads | `Acquire` |
//!
//! Invariants: the mark only grows and never passes the end of the map; a writer stores only at or above
//! the mark; there is one writer per region. From these, a slice below the mark can be borrowed safely.
//!
//! Another process that maps the same file *follows*: it reads how far the writer came from a word of the
//! writer's (`Words`, `Acquire`) and moves a mark of its own up to it, from any of its threads, which may
//! race. The mark is a [word](crate::words), with the orderings of one. Checked by the tests below and by
//! loom models of words and of the mark.
//!
//! No type says what other processes do to a file. So whatever makes a region of a map, or calls bytes final
//! that another process wrote, is `unsafe`: its caller vouches for these invariants. Memory that only this
//! process has needs nobody who vouches ([`Region::in_memory`]).

use crate::primitives::atomic::{AtomicU32, Ordering};
use crate::words::{Strong, Told};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use thalweg_sys::disk::{Map, Residency};
use thalweg_sys::hint::prefetch_to_write;

/// Bytes behind the mark that are fetched to be written: those of the next small batch.
const PREFETCH_BYTES: usize = 256;

/// How many leading bytes of something are immutable and may be read.
#[derive(Debug)]
pub struct Published(AtomicU32);

impl Published {
    /// A mark at `bytes`.
    pub fn new(bytes: u32) -> Published {
        Published(AtomicU32::new(bytes))
    }

    /// Moves the mark up. Release: pairs with the Acquire in [`Published::bytes`], so a reader that
    /// sees the mark sees every store made before it.
    #[inline]
    pub fn publish(&self, bytes: u32) {
        Told::store::<Strong>(&self.0, bytes);
    }

    /// Moves the mark up, never down, for any number of racing threads. Release, as in
    /// [`Published::publish`]; a mark that is there already is not written.
    pub fn advance(&self, bytes: u32) {
        if self.0.load(Ordering::Relaxed) < bytes {
            Told::advance::<Strong>(&self.0, bytes);
        }
    }

    /// The mark. Acquire: pairs with the Release in [`Published::publish`] and [`Published::advance`].
    #[inline]
    pub fn bytes(&self) -> u32 {
        Told::load::<Strong>(&self.0)
    }
}

/// The readers' side of a region. At most 4 GiB - 1 bytes.
#[derive(Debug)]
pub struct Region {
    map: Map,
    published: Published,
    /// The writer is another process's.
    followed: bool,
}

/// A map that nobody writes any more, of any length.
#[derive(Debug)]
pub struct Final(Map);

impl Final {
    /// All of a map. What the disk does not give of it is zeros.
    ///
    /// # Safety
    /// Nobody, in this process or another, stores to the map's bytes for as long as the value lives.
    pub unsafe fn new(map: Map) -> Final {
        // SAFETY: the caller promises that nobody stores to it, and nobody has looked at it yet.
        unsafe { map.bring_in(0..map.length()) };
        Final(map)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: nobody stores to it, as was promised to `new`, and it is as long as it says.
        unsafe { self.0.bytes(0, self.0.length()) }
    }
}

/// The one writer of a region.
#[derive(Debug)]
pub struct RegionWriter {
    region: Arc<Region>,
    filled: u32,
}

impl Region {
    /// Zeros that only this process has, and their writer. Nothing of them is published.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn in_memory(length: usize) -> io::Result<RegionWriter> {
        let map = Map::anonymous(length)?;
        // SAFETY: the map was just made, so nobody else knows it.
        Ok(unsafe { Region::writable(map, 0) })
    }

    /// A region whose first `published` bytes are final, and the writer of the rest.
    ///
    /// # Safety
    /// For as long as the region lives, nobody in this process or another stores to the first `published`
    /// bytes of the map, and nobody but the writer, or its owner in its place, stores to the rest.
    ///
    /// # Panics
    /// When the map may only be read.
    pub unsafe fn writable(map: Map, published: u32) -> RegionWriter {
        assert!(map.is_writable(), "a region to be written lies in a map that may be written");
        RegionWriter { region: Arc::new(Region::of(map, published, false)), filled: published }
    }

    /// The first `published` bytes of a map. The mark stays there.
    ///
    /// # Safety
    /// For as long as the region lives, nobody in this process or another stores to the first `published`
    /// bytes of the map.
    pub unsafe fn sealed(map: Map, published: u32) -> Region {
        Region::of(map, published, false)
    }

    /// A region that another process writes, whose first `published` bytes are final. [`Region::advance`]
    /// says how many more are.
    ///
    /// # Safety
    /// As for [`Region::sealed`].
    pub unsafe fn follow(map: Map, published: u32) -> Region {
        Region::of(map, published, true)
    }

    fn of(map: Map, published: u32, followed: bool) -> Region {
        assert!(published as usize <= map.length(), "published past the end of the map");
        Region { map, published: Published::new(published), followed }
    }

    /// Takes note that the other process has made bytes up to `to` final. The mark stays where it is when it
    /// is there already, and at the end of the map when it would pass it: `to` is what another process says.
    ///
    /// # Safety
    /// What was stored to the first `to` bytes of the map happened before this call, by an `Acquire` load of
    /// what the writer said or by a lock; and nobody stores to them again while the region lives.
    ///
    /// # Panics
    /// When the region has a writer of this process or none: its mark is theirs.
    pub unsafe fn advance(&self, to: u32) {
        assert!(self.followed, "the mark of a region that nobody follows");
        self.published.advance(to.min(length(&self.map)));
    }

    /// Where the map begins: for readers in other languages, who know how far they may read.
    pub fn start(&self) -> NonNull<u8> {
        self.map.start()
    }

    /// Bytes that the map has.
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.map.length()).unwrap_or(u32::MAX)
    }

    /// Bytes that may be read.
    #[inline]
    pub fn published(&self) -> u32 {
        self.published.bytes()
    }

    /// Borrows published bytes.
    ///
    /// # Panics
    /// When the range is not wholly published.
    #[inline]
    pub fn bytes(&self, range: Range<u32>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.published(), "read of unpublished bytes");
        // SAFETY: bytes below the mark are never stored to again, and the Acquire in `published` ordered
        // this read after the stores that filled them.
        unsafe { self.map.bytes(range.start as usize, (range.end - range.start) as usize) }
    }
}

impl Region {
    /// Lets go of the pages, if a file backs them: they are read again when somebody asks.
    pub fn release(&self) {
        self.map.release();
    }

    /// Brings the pages that hold some published bytes into memory, waiting for the disk: those that it does
    /// not give are zeros from then on. `false`: there were some. The page that a writer may still store to
    /// is left alone.
    ///
    /// # Safety
    /// Nobody reads the published bytes of these pages through the map while this runs, and nobody who has
    /// read them before relies on what was there. (A page that was read can become zeros only if the kernel
    /// let go of it and the disk lost it since.)
    pub unsafe fn bring_in(&self, range: Range<u32>) -> bool {
        let page = thalweg_sys::machine::page_bytes();
        let published = self.published() as usize;
        let is_written = (self.map.is_writable() || self.followed) && published < self.map.length();
        let final_bytes = if is_written { published / page * page } else { published };
        let end = (range.end as usize).min(final_bytes);
        // SAFETY: nobody stores to what is published, and these pages hold nothing else. The caller promises
        // that nobody relies on what was there.
        unsafe { self.map.bring_in(range.start as usize..end) }
    }

    /// Brings published bytes into memory, waiting for the disk. What is not published is left alone.
    pub fn touch(&self, range: Range<u32>) {
        let bytes = self.bytes(0..self.published());
        let touched = one_of_each_page(range.start..range.end.min(self.published()));
        std::hint::black_box(touched.fold(0u8, |sum, at| sum.wrapping_add(bytes[at as usize])));
    }

    /// Which bytes below `end` could be read without waiting for a disk.
    pub fn residency(&self, end: u32) -> Residency<'_> {
        self.map.residency(end as usize)
    }
}

impl RegionWriter {
    /// The readers' side.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Where the next write goes: bytes filled so far, published or not.
    #[inline]
    pub fn filled(&self) -> u32 {
        self.filled
    }

    /// Room that is left, in bytes.
    #[inline]
    pub fn remaining(&self) -> u32 {
        length(&self.region.map) - self.filled
    }

    /// Appends bytes, unseen by readers until [`RegionWriter::publish`].
    ///
    /// # Panics
    /// When there is not that much room.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.remaining() as usize, "write past the end of the region");
        // SAFETY: the range lies above the published mark, where only this writer stores and nobody
        // reads; the writer is not `Clone` and `&mut self` excludes a second store.
        unsafe { self.region.map.write(self.filled as usize, bytes) };
        self.filled += u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    }

    /// Takes bytes for written that came into the map by other means: by a write to the file it shows.
    ///
    /// # Panics
    /// When there is not that much room.
    pub fn pass(&mut self, bytes: u32) {
        assert!(bytes <= self.remaining(), "write past the end of the region");
        self.filled += bytes;
    }

    /// Makes everything written so far visible and immutable, and has the processor fetch what comes next: by
    /// a store to a line that lies elsewhere, whoever locks or unlocks behind it has to wait for the line.
    #[inline]
    pub fn publish(&mut self) {
        self.region.published.publish(self.filled);
        let next = self.region.map.start().as_ptr().wrapping_add(self.filled as usize);
        prefetch_to_write(next, PREFETCH_BYTES);
    }
}

#[inline]
fn length(map: &Map) -> u32 {
    u32::try_from(map.length()).unwrap_or(u32::MAX)
}

/// A byte of each page that a range has some of: pages are in memory whole or not at all.
fn one_of_each_page(range: Range<u32>) -> impl Iterator<Item = u32> {
    /// No page of any machine is smaller.
    const PAGE_BYTES: u32 = 4096;
    let later = (range.start / PAGE_BYTES + 1..).map(|page| page * PAGE_BYTES);
    (!range.is_empty()).then_some(range.start).into_iter().chain(later.take_while(move |at| *at < range.end))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use thalweg_sys::disk::{Allocation, Disk};

    #[test]
    fn no_page_of_a_range_is_left_out() {
        for start in [0, 1, 4095, 4096, 5000] {
            for length in [0, 1, 95, 4095, 4096, 4097, 9000, 12_289] {
                let range = start..start + length;
                let touched: Vec<u32> = one_of_each_page(range.clone()).map(|at| at / 4096).collect();
                let mut pages: Vec<u32> = range.clone().map(|at| at / 4096).collect();
                pages.dedup();
                assert_eq!(touched, pages, "{range:?}");
                assert!(one_of_each_page(range.clone()).all(|at| range.contains(&at)));
            }
        }
    }

    #[test]
    fn readers_see_what_was_published_and_no_more() {
        let mut writer = Region::in_memory(4096).unwrap();
        writer.write(b"abc");
        assert_eq!(writer.region().published(), 0);
        writer.publish();
        writer.write(b"def");
        assert_eq!(writer.region().bytes(0..3), b"abc");
        let region = writer.region().clone();
        assert!(std::panic::catch_unwind(move || region.bytes(0..4).len()).is_err());
    }

    #[test]
    fn a_follower_sees_what_the_writer_of_another_map_made_final() {
        let directory = tempfile::tempdir().unwrap();
        let file = Disk::Real.create(&directory.path().join("f")).unwrap();
        file.allocate(4096, Allocation::ZeroFilled).unwrap();
        // SAFETY: nobody else knows the file.
        let mut writer = unsafe { Region::writable(file.map(4096, true).unwrap(), 0) };
        writer.write(b"abcdef");
        writer.publish();
        // SAFETY: the writer published six bytes, and stores nothing more.
        let follower = unsafe { Region::follow(file.map(4096, false).unwrap(), 2) };
        assert_eq!(follower.bytes(0..2), b"ab");
        // SAFETY: as above.
        unsafe { (follower.advance(6), follower.advance(3)) };
        assert_eq!(follower.published(), 6, "a mark does not go back");
        assert_eq!(follower.bytes(0..6), b"abcdef");
        // SAFETY: as above.
        unsafe { follower.advance(u32::MAX) };
        assert_eq!(follower.published(), 4096, "nothing lies behind the end of the map");
    }

    #[test]
    fn nobody_moves_a_mark_that_is_somebody_elses() {
        let writer = Region::in_memory(8).unwrap();
        // SAFETY: nobody else knows the map.
        let sealed = unsafe { Region::sealed(Map::anonymous(8).unwrap(), 0) };
        for region in [writer.region().clone(), Arc::new(sealed)] {
            // SAFETY: nobody stores to either.
            assert!(std::panic::catch_unwind(move || unsafe { region.advance(1) }).is_err());
        }
    }

    #[test]
    fn a_full_region_refuses_more() {
        let mut writer = Region::in_memory(8).unwrap();
        writer.write(b"12345678");
        assert_eq!(writer.remaining(), 0);
        assert!(std::panic::catch_unwind(move || writer.write(b"9")).is_err());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;

    struct Shared {
        byte: UnsafeCell<u8>,
        published: Published,
    }
    // SAFETY: the cell is read only after the mark was seen, which is what the model checks.
    unsafe impl Sync for Shared {}

    #[test]
    fn a_reader_that_sees_the_mark_sees_the_bytes() {
        loom::model(|| {
            let shared =
                loom::sync::Arc::new(Shared { byte: UnsafeCell::new(0), published: Published::new(0) });
            let writer = shared.clone();
            let thread = loom::thread::spawn(move || {
                // SAFETY: the only store, made before the mark moves.
                writer.byte.with_mut(|byte| unsafe { *byte = 7 });
                writer.published.publish(1);
            });
            if shared.published.bytes() == 1 {
                // SAFETY: published bytes are no longer stored to.
                assert_eq!(shared.byte.with(|byte| unsafe { *byte }), 7);
            }
            thread.join().unwrap();
        });
    }

    /// The writer is another process and publishes by a word of its own, which two threads here follow.
    #[test]
    fn a_reader_that_sees_a_mark_that_another_follower_moved_sees_the_bytes() {
        loom::model(|| {
            let shared =
                loom::sync::Arc::new(Shared { byte: UnsafeCell::new(0), published: Published::new(0) });
            let theirs = loom::sync::Arc::new(AtomicU32::new(0));
            let writer = {
                let (shared, theirs) = (shared.clone(), theirs.clone());
                loom::thread::spawn(move || {
                    // SAFETY: the only store, made before the word moves.
                    shared.byte.with_mut(|byte| unsafe { *byte = 7 });
                    theirs.store(1, Ordering::Release);
                })
            };
            let follower = {
                let (shared, theirs) = (shared.clone(), theirs.clone());
                loom::thread::spawn(move || shared.published.advance(theirs.load(Ordering::Acquire)))
            };
            shared.published.advance(theirs.load(Ordering::Acquire));
            if shared.published.bytes() == 1 {
                // SAFETY: published bytes are no longer stored to.
                assert_eq!(shared.byte.with(|byte| unsafe { *byte }), 7);
            }
            writer.join().unwrap();
            follower.join().unwrap();
        });
    }

    #[test]
    fn a_mark_that_two_followers_race_for_only_grows() {
        loom::model(|| {
            let published = loom::sync::Arc::new(Published::new(0));
            let rivals = [1, 2].map(|to| {
                let published = published.clone();
                loom::thread::spawn(move || published.advance(to))
            });
            let before = published.bytes();
            assert!(published.bytes() >= before);
            rivals.into_iter().for_each(|rival| rival.join().unwrap());
            assert_eq!(published.bytes(), 2);
        });
    }
}
