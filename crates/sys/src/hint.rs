//! Hints to the processor: they change when something is done, never what.

use std::ops::Range;

const LINE_BYTES: usize = 64;

/// Has the processor fetch the line that holds byte `at` of a slice which is going to be read soon, without
/// waiting for it. Nothing where `at` lies outside, or where the processor knows no such thing.
///
/// ```
/// let bytes = vec![7; 4096];
/// thalweg_sys::hint::prefetch(&bytes, 4000);
/// thalweg_sys::hint::prefetch(&bytes, usize::MAX);
/// ```
#[inline(always)]
pub fn prefetch(bytes: &[u8], at: usize) {
    let address = bytes.as_ptr().wrapping_add(at);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and is allowed at whatever address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch reads nothing and is allowed at whatever address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// The same for a run of bytes, or as much of its beginning as `bytes_max`.
///
/// ```
/// let bytes = vec![7; 4096];
/// thalweg_sys::hint::prefetch_run(&bytes, 4000..9000, 512);
/// ```
#[inline(always)]
pub fn prefetch_run(bytes: &[u8], run: Range<usize>, bytes_max: usize) {
    let end = run.end.min(bytes.len()).min(run.start.saturating_add(bytes_max));
    for at in (run.start..end).step_by(LINE_BYTES) {
        prefetch(bytes, at);
    }
}

/// Has the processor fetch at most `bytes` from an address on for itself alone, because they are going to be
/// stored to soon. Nothing is read or written, so they may lie anywhere.
///
/// ```
/// let bytes = vec![7; 4096];
/// thalweg_sys::hint::prefetch_to_write(bytes.as_ptr(), 256);
/// thalweg_sys::hint::prefetch_to_write(std::ptr::null(), 256);
/// assert_eq!(bytes, [7; 4096]);
/// ```
#[inline(always)]
pub fn prefetch_to_write(start: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(LINE_BYTES) {
        let address = start.wrapping_add(at);
        // Where the compiler is not told that there is this instruction, the intrinsic fetches to read. A
        // processor that has none passes over it.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch stores nothing and is allowed at whatever address.
        unsafe {
            std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: a prefetch stores nothing and is allowed at whatever address.
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = address;
    }
}
