//! The program's own code and constants in memory.
//!
//! The kernel maps code and constants as they are used, and what lies around them with them, so a program
//! that has read its command line goes on holding the pages of the parser and its texts. They are clean
//! copies of a file: letting go of them costs a page fault where they are needed again, and nothing where
//! they are not.

use rustix::mm::{Advice, madvise};
use std::ffi::{c_int, c_void};

/// Lets go of the code and constants that are mapped, of the program and of its libraries: what is still used
/// comes back by itself. For programs that go on for long with a part of what they began with. One system
/// call per segment. Breakpoints that a debugger wrote into the code go with it.
pub fn release() {
    // SAFETY: the callback has the signature that is asked for, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(release_object), std::ptr::null_mut()) };
}

/// Lets go of what one object never writes to.
///
/// # Safety
/// `info` describes a loaded object.
unsafe extern "C" fn release_object(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the loader hands out a description that is valid for the length of the call.
    let info = unsafe { &*info };
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: below the number of headers that there are.
        let header = unsafe { &*info.dlpi_phdr.add(index) };
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0 {
            let (start, length) = pages(info.dlpi_addr + header.p_vaddr, header.p_memsz);
            // SAFETY: whole pages of a segment that is mapped from a file and never writable: no relocation
            // was written to them, so dropping the mapped copies loses nothing, and the next use brings them
            // back from the file.
            let _ = unsafe { madvise(start as *mut c_void, length, Advice::LinuxDontNeed) };
        }
    }
    0
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
