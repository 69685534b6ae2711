//! A mapped stretch of memory: a file's, shared with every process that maps it, or nobody's.
//!
//! Ownership: the map owns its pages until drop; it hands out raw access only, and `sync` builds the safe
//! views (one writer, readers below a published mark). Writes go through [`Map::write`], which is where
//! the simulated twin learns which sectors are dirty.

use super::residency::Residency;
use rustix::mm;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// Mapped memory. Its bytes may be shared with other processes.
#[derive(Debug)]
pub struct Map {
    start: NonNull<u8>,
    length: usize,
    owner: Owner,
    writable: bool,
}

#[derive(Debug)]
enum Owner {
    /// A file's pages: what is let go is still there to be read again.
    File,
    /// Nobody else's: what is let go is gone.
    Memory,
    #[cfg(feature = "sim")]
    Sim(super::sim::SimFile),
}

// SAFETY: a map is an address range that stays valid until drop; all access to its bytes is by unsafe
// methods whose callers promise the absence of data races.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Private zeroed memory, not backed by any file; pages cost nothing until touched.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn anonymous(length: usize) -> io::Result<Map> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choosing aliases nothing.
        let start = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                mm::ProtFlags::READ | mm::ProtFlags::WRITE,
                mm::MapFlags::PRIVATE | mm::MapFlags::NORESERVE,
            )?
        };
        Map::of_kernel(start, length, Owner::Memory, true)
    }

    /// Maps `length` bytes of a file from its beginning.
    pub(crate) fn of_file(file: impl std::os::fd::AsFd, length: usize, writable: bool) -> io::Result<Map> {
        let access = if writable { mm::ProtFlags::READ | mm::ProtFlags::WRITE } else { mm::ProtFlags::READ };
        // SAFETY: a fresh shared mapping at an address of the kernel's choosing; the caller has checked
        // that the file has that many bytes, and no file of ours is ever truncated.
        let start = unsafe { mm::mmap(std::ptr::null_mut(), length, access, mm::MapFlags::SHARED, file, 0)? };
        Map::of_kernel(start, length, Owner::File, writable)
    }

    /// Maps `length` bytes of a file from its beginning so that what is stored stays in this map: the first
    /// store to a page makes a copy of it. Pages without one show what the file holds.
    pub(crate) fn apart_from_file(file: impl std::os::fd::AsFd, length: usize) -> io::Result<Map> {
        let access = mm::ProtFlags::READ | mm::ProtFlags::WRITE;
        let flags = mm::MapFlags::PRIVATE | mm::MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choosing; the caller has checked that the
        // file has that many bytes, and no file of ours is ever truncated.
        let start = unsafe { mm::mmap(std::ptr::null_mut(), length, access, flags, file, 0)? };
        Map::of_kernel(start, length, Owner::Memory, true)
    }

    fn of_kernel(
        start: *mut std::ffi::c_void,
        length: usize,
        owner: Owner,
        writable: bool,
    ) -> io::Result<Map> {
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Map { start, length, owner, writable })
    }

    /// A view of a simulated file's visible bytes.
    #[cfg(feature = "sim")]
    pub(super) fn of_sim(start: NonNull<u8>, length: usize, file: super::sim::SimFile) -> Map {
        Map { start, length, owner: Owner::Sim(file), writable: true }
    }

    /// Length in bytes.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Address of the first byte.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Whether its bytes may be stored to; else that ends the process.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether another process may map the same bytes.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.owner, Owner::File)
    }

    /// Which of the pages below byte `end` are in memory.
    pub fn residency(&self, end: usize) -> Residency<'_> {
        Residency::new(self, end)
    }

    /// Whether it only looks like the kernel's.
    pub(super) fn is_simulated(&self) -> bool {
        !matches!(self.owner, Owner::File | Owner::Memory)
    }

    /// Lets go of a file's pages, which stay in the kernel's cache and come back when they are read: this
    /// process's memory no longer counts them. Does nothing for memory that no file backs.
    pub fn release(&self) {
        if matches!(self.owner, Owner::File) {
            // SAFETY: the range is this map's, and pages of a shared file mapping keep their content.
            let outcome =
                unsafe { mm::madvise(self.start.as_ptr().cast(), self.length, mm::Advice::LinuxDontNeed) };
            // Advice: refused, everything stays as it was.
            let _ = outcome;
        }
    }

    /// Brings the pages that hold some bytes into memory, waiting for the disk. Those that it does not give
    /// are zeros from then on: an access would end the process by a signal (`SIGBUS`). `false`: there were
    /// some. A page that was brought in may leave memory and fail when it is read again; that is not checked
    /// here. A kernel before 5.14 cannot say, so nothing is done there.
    ///
    /// # Safety
    /// No thread stores to these pages any more, and none that has read them relies on what was there.
    pub unsafe fn bring_in(&self, range: Range<usize>) -> bool {
        let (page, end) = (rustix::param::page_size(), range.end.min(self.length));
        if !matches!(self.owner, Owner::File) || range.start >= end {
            return true;
        }
        let pages = range.start / page..end.div_ceil(page);
        // SAFETY: the caller promises both for these pages.
        self.is_given(pages.clone()) || unsafe { self.blank_what_is_not_given(pages) }
    }

    /// Whether the disk gives all of some pages, which are in memory then.
    fn is_given(&self, pages: Range<usize>) -> bool {
        let page = rustix::param::page_size();
        let length = (pages.end - pages.start) * page;
        loop {
            // SAFETY: the pages are this map's; they are only read.
            let outcome = unsafe {
                let start = self.start.as_ptr().add(pages.start * page);
                mm::madvise(start.cast(), length, mm::Advice::LinuxPopulateRead)
            };
            match outcome {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(rustix::io::Errno::FAULT | rustix::io::Errno::HWPOISON) => return false,
                // Whatever else is wrong says nothing of the disk.
                _ => return true,
            }
        }
    }

    /// Puts zeros in place of those of some pages that the disk does not give, which are looked for by
    /// halves. Answers `false`.
    ///
    /// # Safety
    /// As for [`Map::bring_in`].
    #[cold]
    unsafe fn blank_what_is_not_given(&self, pages: Range<usize>) -> bool {
        if pages.end - pages.start > 1 {
            let middle = pages.start + (pages.end - pages.start) / 2;
            for half in [pages.start..middle, middle..pages.end] {
                if !self.is_given(half.clone()) {
                    // SAFETY: as the caller promises.
                    unsafe { self.blank_what_is_not_given(half) };
                }
            }
            return false;
        }
        let page = rustix::param::page_size();
        // SAFETY: the page is this map's and goes with it, no thread stores to it, and a reader finds from
        // now on what it would find in a file with a hole there.
        let outcome = unsafe {
            let start = self.start.as_ptr().add(pages.start * page);
            let flags = mm::MapFlags::PRIVATE | mm::MapFlags::FIXED;
            mm::mmap_anonymous(start.cast(), page, mm::ProtFlags::READ, flags)
        };
        // Without memory for it all stays as it was.
        let _ = outcome;
        false
    }

    /// Tells the twin that bytes in this range were stored by other means than [`Map::write`].
    #[inline]
    pub fn mark(&self, position: usize, length: usize) {
        match &self.owner {
            Owner::File | Owner::Memory => {}
            #[cfg(feature = "sim")]
            Owner::Sim(file) => file.mark(position, length),
        }
        let _ = (position, length);
    }

    /// Stores `bytes` at `position`.
    ///
    /// # Safety
    /// The map is writable, nobody else writes this range, and nobody reads it until the caller has
    /// published it.
    ///
    /// # Panics
    /// When the range lies outside the map.
    #[inline]
    pub unsafe fn write(&self, position: usize, bytes: &[u8]) {
        assert!(position <= self.length && bytes.len() <= self.length - position, "a store outside its map");
        // SAFETY: the range was just checked, and the caller promises exclusive access to it.
        unsafe {
            self.start.as_ptr().add(position).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.mark(position, bytes.len());
    }

    /// Borrows a range.
    ///
    /// # Safety
    /// Nobody writes the range while the slice lives.
    ///
    /// # Panics
    /// When the range lies outside the map.
    pub unsafe fn bytes(&self, position: usize, length: usize) -> &[u8] {
        assert!(position <= self.length && length <= self.length - position, "a read outside its map");
        // SAFETY: the range was just checked, and the caller promises that it does not change.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(position), length) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        match &self.owner {
            // SAFETY: this range was mapped by us and every borrow of it has ended with the map.
            Owner::File | Owner::Memory => unsafe {
                let _ = mm::munmap(self.start.as_ptr().cast(), self.length);
            },
            #[cfg(feature = "sim")]
            Owner::Sim(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_backs_survives_being_let_go_and_so_does_what_nobody_backs() {
        let directory = tempfile::tempdir().unwrap();
        let file = crate::disk::Disk::Real.create(&directory.path().join("f")).unwrap();
        file.allocate(1 << 20, crate::disk::Allocation::Reserved).unwrap();
        for map in [file.map(1 << 20, true).unwrap(), Map::anonymous(1 << 20).unwrap()] {
            // SAFETY: nobody else knows the map.
            unsafe { map.write(5000, b"kept") };
            map.release();
            // SAFETY: nobody writes any more.
            assert_eq!(unsafe { map.bytes(5000, 4) }, b"kept");
        }
    }

    #[test]
    fn pages_that_the_disk_does_not_give_are_zeros_and_all_others_what_they_were() {
        let page = rustix::param::page_size();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, vec![7; 20 * page]).unwrap();
        let map = crate::disk::Disk::Real.open_read_only(&path).unwrap().map(20 * page, false).unwrap();
        // What was cut off is not there, as what lies in a bad sector is not.
        std::fs::File::options().write(true).open(&path).unwrap().set_len(13 * page as u64 - 5).unwrap();
        // SAFETY: nobody stores to it, and nobody has looked at it.
        let given = unsafe { [map.bring_in(0..12 * page), map.bring_in(11 * page + 1..17 * page - 1)] };
        assert_eq!(given, [true, false]);
        // SAFETY: nobody writes it.
        let bytes = unsafe { map.bytes(0, 17 * page) };
        let (there, gone) = bytes.split_at(13 * page - 5);
        assert!(there.iter().all(|byte| *byte == 7) && gone.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_is_stored_in_a_map_apart_reaches_neither_the_file_nor_another_map() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, vec![7; 8192]).unwrap();
        // A process that may only read the file may store to a private map of it.
        let file = crate::disk::Disk::Real.open_read_only(&path).unwrap();
        let (shared, apart) = (file.map(8192, false).unwrap(), file.map_apart(8192).unwrap());
        // SAFETY: nobody else knows the map.
        unsafe { apart.write(100, &[9; 50]) };
        crate::disk::Disk::Real.open(&path).unwrap().write_at(&[8; 10], 5000).unwrap();
        // SAFETY: nobody writes any more.
        let (seen, kept) = unsafe { (shared.bytes(0, 8192), apart.bytes(0, 8192)) };
        assert_eq!(std::fs::read(&path).unwrap(), seen);
        assert_eq!((&seen[100..150], &kept[100..150]), (&[7; 50][..], &[9; 50][..]));
        assert_eq!((&seen[5000..5010], &kept[5000..5010]), (&[8; 10][..], &[8; 10][..]), "another page");
        assert!(file.map_apart(8193).is_err());
    }
}
