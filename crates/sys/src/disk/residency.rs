//! Which pages of a map are in memory, for a caller that asks about many places in it.
//!
//! The kernel is asked for a stretch of pages at a time. Stretches grow while what is wanted lies densely, so
//! that places near each other share a system call and those far apart do not pay for what lies between. A
//! hint: the kernel may change its mind at any moment.

use super::map::Map;
use std::ops::Range;

/// Pages of a stretch: of the first one, and of those that follow closely.
const STRETCH_MIN: usize = 16;
const STRETCH_MAX: usize = 512;

/// What was heard of a map's pages so far. Places are best asked for in their order.
#[derive(Debug)]
pub struct Residency<'m> {
    map: &'m Map,
    page_bytes: usize,
    /// Nothing from this page on will be asked for.
    end: usize,
    /// The pages that were asked for last, and what the kernel said of each.
    known: Range<usize>,
    present: [u8; STRETCH_MAX],
    stretch: usize,
}

impl<'m> Residency<'m> {
    /// Nothing is known of the map, of which nothing behind byte `end` will be asked for.
    pub(super) fn new(map: &'m Map, end: usize) -> Self {
        let page_bytes = rustix::param::page_size();
        let end = end.min(map.length()).div_ceil(page_bytes);
        Self { map, page_bytes, end, known: 0..0, present: [0; STRETCH_MAX], stretch: STRETCH_MIN }
    }

    /// Whether all of a range is in memory, so that reading it does not wait for a disk.
    ///
    /// # Panics
    /// When the range lies outside the map or behind the end that was given.
    pub fn has(&mut self, range: Range<usize>) -> bool {
        assert!(range.start <= range.end && range.end <= self.map.length(), "a probe outside its map");
        if range.is_empty() || self.map.is_simulated() {
            return true;
        }
        let (first, behind) = (range.start / self.page_bytes, range.end.div_ceil(self.page_bytes));
        assert!(behind <= self.end, "a probe behind the end that was given");
        (first..behind).all(|page| {
            if !self.known.contains(&page) {
                self.ask(page);
            }
            self.present[page - self.known.start] & 1 == 1
        })
    }

    /// Asks for a stretch that begins with a page.
    fn ask(&mut self, page: usize) {
        let follows = (self.known.end..self.known.end + self.stretch).contains(&page);
        let grown = if follows && !self.known.is_empty() { self.stretch * 2 } else { STRETCH_MIN };
        self.stretch = grown.min(STRETCH_MAX);
        self.known = page..(page + self.stretch).min(self.end);
        let (start, pages) = (page * self.page_bytes, self.known.len());
        let length = (pages * self.page_bytes).min(self.map.length() - start);
        // SAFETY: the stretch is inside this map, its start is page-aligned, and there is a byte per page.
        let answer = unsafe {
            let start = self.map.start().as_ptr().add(start).cast();
            libc::mincore(start, length, self.present.as_mut_ptr())
        };
        if answer != 0 {
            // Nobody knows, so nothing is.
            self.present[..pages].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// Memory in small pages: where the kernel makes large ones unasked, what lies beside a page that is
    /// written to is resident as well.
    fn small_pages(length: usize) -> Map {
        let map = Map::anonymous(length).unwrap();
        // SAFETY: an advice about this map alone, which changes no byte. A kernel without large pages refuses
        // it, and needs none.
        unsafe { libc::madvise(map.start().as_ptr().cast(), length, libc::MADV_NOHUGEPAGE) };
        map
    }

    #[test]
    fn what_was_written_is_resident_and_what_was_never_touched_is_not() {
        let map = small_pages(1 << 20);
        // SAFETY: nobody else knows this map.
        unsafe { map.write(5000, &[7; 7000]) };
        assert!(map.residency(1 << 20).has(5000..12_000));
        assert!(!map.residency(1 << 20).has(0..1 << 20));
        assert!(map.residency(0).has(0..0));
        for outside in [1 << 20..(1 << 20) + 1, 8192..8193] {
            let probe = || map.residency(8192).has(outside.clone());
            assert!(std::panic::catch_unwind(probe).is_err(), "{outside:?}");
        }
    }

    /// Every place gets the answer that it would get alone, however the places before it lay.
    #[test]
    fn places_asked_for_together_are_answered_as_alone() {
        let map = small_pages(4096 * PAGE);
        let is_written = |page: usize| page.is_multiple_of(7) || (600..1500).contains(&page);
        for page in (0..4096).filter(|page| is_written(*page)) {
            // SAFETY: as above.
            unsafe { map.write(page * PAGE + 17, b"here") };
        }
        for step in [1, 2, 15, 16, 17, 100, 513, 1000] {
            let mut together = map.residency(map.length());
            for page in (0..4096).step_by(step).chain((0..4096).rev().step_by(step)) {
                let range = page * PAGE + 5..(page + 1) * PAGE;
                assert_eq!(together.has(range.clone()), is_written(page), "page {page}, every {step}");
                let alone = map.residency(range.end).has(range);
                assert_eq!(alone, is_written(page), "page {page} alone");
            }
        }
    }
}
