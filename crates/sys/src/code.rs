//! The program's own code and constants in memory.
//!
//! The kernel maps code and constants as they are used, and what lies around them with them, so a program
//! that has read its command line goes on holding the pages of the parser and its texts. They are clean
//! copies of a file: letting go of them costs a page fault where they are needed again, and nothing where
//! they are not.

use rustix::mm::{Advice, madvise};
use std::ffi::{c_int, c_void};
use std::ops::Range;

/// Tags and a flag of an object's dynamic section, as the ELF specification has them.
const DT_NULL: usize = 0;
const DT_TEXTREL: usize = 22;
const DT_FLAGS: usize = 30;
const DF_TEXTREL: usize = 4;

/// An entry of an object's dynamic section.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// Lets go of the code and constants that are mapped of the program, or of the library that this function is
/// in: what is still used comes back by itself. Other libraries are left alone, as their owners may have
/// changed them in memory. For programs that go on for long with a part of what they began with. One system
/// call per segment. Breakpoints that a debugger wrote into the code go with it.
pub fn release() {
    // SAFETY: the callback has the signature that is asked for, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(release_if_ours), std::ptr::null_mut()) };
}

/// Lets go of what an object never writes to, if it is the one that this code is in, and asks for no other
/// object then.
///
/// # Safety
/// `info` describes a loaded object.
unsafe extern "C" fn release_if_ours(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the loader hands out a description that is valid for the length of the call.
    let object = Object { info: unsafe { &*info } };
    if !object.holds(release as *const () as usize) {
        return 0;
    }
    if !object.dynamic().is_some_and(has_text_relocations) {
        object.release();
    }
    1
}

/// A loaded object.
struct Object<'a> {
    info: &'a libc::dl_phdr_info,
}

impl Object<'_> {
    fn headers(&self) -> &[libc::Elf64_Phdr] {
        // SAFETY: the loader says where its headers are and how many, for as long as the description lives.
        unsafe { std::slice::from_raw_parts(self.info.dlpi_phdr, self.info.dlpi_phnum.into()) }
    }

    /// Where a segment of it lies in memory.
    fn span(&self, header: &libc::Elf64_Phdr) -> Range<usize> {
        let start = (self.info.dlpi_addr + header.p_vaddr) as usize;
        start..start + header.p_memsz as usize
    }

    fn holds(&self, address: usize) -> bool {
        let mut loaded = self.headers().iter().filter(|header| header.p_type == libc::PT_LOAD);
        loaded.any(|header| self.span(header).contains(&address))
    }

    /// Its dynamic section: none of a program that is linked statically.
    fn dynamic(&self) -> Option<&[Dynamic]> {
        let header = self.headers().iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let span = self.span(header);
        // SAFETY: the loader has mapped the section, which holds whole entries and is written to no more once
        // the object is loaded.
        let entries = unsafe {
            let length = span.len() / size_of::<Dynamic>();
            std::slice::from_raw_parts(span.start as *const Dynamic, length)
        };
        Some(entries)
    }

    fn release(&self) {
        for header in self.headers() {
            if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0 {
                let span = self.span(header);
                let (start, length) = pages(span.start as u64, span.len() as u64);
                // SAFETY: whole pages of a segment mapped from a file and never writable, in an object
                // without text relocations: nothing was written to them, so dropping the mapped copies loses
                // nothing, and the next use brings them back from the file.
                let _ = unsafe { madvise(start as *mut c_void, length, Advice::LinuxDontNeed) };
            }
        }
    }
}

/// Whether the loader wrote to segments that are not writable: their pages are in no file.
fn has_text_relocations(dynamic: &[Dynamic]) -> bool {
    let mut entries = dynamic.iter().take_while(|entry| entry.tag != DT_NULL);
    entries.any(|entry| entry.tag == DT_TEXTREL || entry.tag == DT_FLAGS && entry.value & DF_TEXTREL != 0)
}

/// The pages that lie wholly inside a segment.
fn pages(start: u64, length: u64) -> (usize, usize) {
    let page = rustix::param::page_size();
    let (start, end) = (start as usize, (start + length) as usize);
    let first = start.next_multiple_of(page);
    (first, (end - end % page).saturating_sub(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_inside() {
        let page = rustix::param::page_size();
        assert_eq!(pages(page as u64, page as u64), (page, page));
        assert_eq!(pages(page as u64 + 1, page as u64), (2 * page, 0));
        assert_eq!(pages(page as u64 - 1, 2 * page as u64), (page, page));
    }

    #[test]
    fn an_object_whose_code_was_relocated_is_told() {
        let of = |entries: &[[usize; 2]]| {
            let entries: Vec<_> =
                entries.iter().map(|[tag, value]| Dynamic { tag: *tag, value: *value }).collect();
            has_text_relocations(&entries)
        };
        assert!(of(&[[1, 5], [DT_TEXTREL, 0], [DT_NULL, 0]]));
        assert!(of(&[[DT_FLAGS, DF_TEXTREL | 8], [DT_NULL, 0]]));
        assert!(!of(&[[1, 5], [DT_FLAGS, 8], [DT_NULL, 0], [DT_TEXTREL, 0]]));
    }

    #[test]
    fn of_the_loaded_objects_one_is_ours() {
        /// Counts the objects, and those that hold this code.
        ///
        /// # Safety
        /// `info` describes a loaded object, and `counts` is two numbers.
        unsafe extern "C" fn count(info: *mut libc::dl_phdr_info, _: usize, counts: *mut c_void) -> c_int {
            // SAFETY: as the caller promises.
            let (info, counts) = unsafe { (&*info, &mut *counts.cast::<[usize; 2]>()) };
            let object = Object { info };
            counts[0] += 1;
            counts[1] += usize::from(object.holds(release as *const () as usize));
            assert!(object.dynamic().is_none_or(|dynamic| !has_text_relocations(dynamic)));
            0
        }
        let mut counts = [0_usize; 2];
        // SAFETY: the callback is given what it asks for.
        unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut counts).cast()) };
        assert!(counts[0] > 1 && counts[1] == 1, "{counts:?}");
    }

    #[test]
    fn the_program_runs_on_without_its_code() {
        let sum = |n: u64| (0..n).map(|i| format!("{i}").len() as u64).sum::<u64>();
        let before = sum(1_000);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| (0..50).all(|_| sum(1_000) == before));
            for _ in 0..50 {
                release();
                assert_eq!(sum(1_000), before);
            }
            assert!(other.join().unwrap());
        });
    }
}
