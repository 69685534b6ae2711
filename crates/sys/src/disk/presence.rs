//! Bytes that somebody borrowed, of a map or not: whether they are in memory, and how they get there.
//!
//! A hint, as of a map as a whole ([`super::Residency`]): the kernel may change its mind at any moment.

use rustix::mm;
use std::ops::Range;

/// Pages that the kernel is asked about at a time.
const PAGES_MAX: usize = 512;

/// Whether all of these bytes are in memory, so that reading them does not wait for a disk.
pub fn is_present(bytes: &[u8]) -> bool {
    let page = rustix::param::page_size();
    let range = pages(bytes);
    let mut present = [0; PAGES_MAX];
    range.clone().step_by(PAGES_MAX * page).all(|start| {
        let length = (range.end - start).min(PAGES_MAX * page);
        // SAFETY: the pages hold the borrowed bytes and are only asked about, the first begins at `start`,
        // and `present` has a byte for each.
        let answer =
            unsafe { libc::mincore(std::ptr::without_provenance_mut(start), length, present.as_mut_ptr()) };
        // Where nobody knows, nothing is.
        answer == 0 && present[..length / page].iter().all(|page| page & 1 == 1)
    })
}

/// Brings these bytes into memory, waiting for the disk. What the disk does not give stays away, and no
/// signal tells of it. A kernel before 5.14 brings nothing.
pub fn bring_in(bytes: &[u8]) {
    let range = pages(bytes);
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: the pages hold the borrowed bytes, and are only read.
    let again = || unsafe { mm::madvise(start, range.len(), mm::Advice::LinuxPopulateRead) };
    while matches!(again(), Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN)) {}
}

/// The addresses of the pages that hold some bytes.
fn pages(bytes: &[u8]) -> Range<usize> {
    let (page, addresses) = (rustix::param::page_size(), bytes.as_ptr_range());
    let start = addresses.start.addr() / page * page;
    if bytes.is_empty() { start..start } else { start..addresses.end.addr().next_multiple_of(page) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Map;

    #[test]
    fn bytes_are_present_once_they_were_brought_in() {
        const PAGE: usize = 4096;
        // More than one call asks about.
        let map = Map::anonymous((PAGES_MAX + 9) * PAGE).unwrap();
        // SAFETY: nobody writes it.
        let bytes = unsafe { map.bytes(0, map.length()) };
        assert!(is_present(&[]) && is_present(&bytes[..0]));
        assert!(!is_present(bytes) && !is_present(&bytes[5..6]));
        bring_in(&bytes[PAGE + 5..(PAGES_MAX + 7) * PAGE - 5]);
        assert!(is_present(&bytes[PAGE..(PAGES_MAX + 7) * PAGE]));
        assert!(!is_present(&bytes[PAGE - 1..PAGE + 1]), "the page before");
        assert!(!is_present(&bytes[PAGE..(PAGES_MAX + 7) * PAGE + 1]), "the page behind");
        bring_in(&[]);
    }
}
