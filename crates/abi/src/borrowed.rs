//! What callers lend: handles, bytes and strings, each looked at before it is followed.

use std::ffi::{CStr, c_char};
use thalweg_service::Error;
use thalweg_wire::fault::Fault;

fn missing(what: &str) -> Error {
    Error::new(Fault::BadArgument, format!("{what} is null"))
}

/// What a pointer points to.
///
/// # Safety
/// It is null, or points to a value that nobody else uses meanwhile.
pub(crate) unsafe fn handle<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Error> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| missing(what))
}

/// A place to write an answer to, which need not hold a value yet.
pub(crate) fn place<T>(pointer: *mut T, what: &str) -> Result<*mut T, Error> {
    if pointer.is_null() { Err(missing(what)) } else { Ok(pointer) }
}

/// A value that may be left out.
///
/// # Safety
/// It is null, or points to a value that nobody changes meanwhile.
pub(crate) unsafe fn option<'a, T>(pointer: *const T) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }
}

/// `length` bytes; null is fine for none.
///
/// # Safety
/// `pointer` is null or points to `length` bytes that nobody changes meanwhile.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, length: usize) -> Result<&'a [u8], Error> {
    // SAFETY: the caller's promise.
    unsafe { list(pointer, length, "a pointer to bytes") }
}

/// `count` values, one behind the other; null is fine for none. A count that is more than memory can hold was
/// negative once, or never written.
///
/// # Safety
/// `pointer` is null or points to `count` values that nobody changes meanwhile.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, count: usize, what: &str) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(missing(what));
    }
    if count > isize::MAX as usize / size_of::<T>() {
        let size = size_of::<T>();
        let says = format!("{what}: {count} times {size} bytes are more than memory can hold");
        return Err(Error::new(Fault::BadArgument, says));
    }
    // SAFETY: the caller's promise, not null, and no longer than memory.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// A string that a NUL ends.
///
/// # Safety
/// `pointer` is null or points to a string that a NUL ends and nobody changes meanwhile.
pub(crate) unsafe fn string<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Error> {
    if pointer.is_null() {
        return Err(missing(what));
    }
    // SAFETY: the caller's promise, and not null.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Error::new(Fault::BadArgument, format!("{what} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of a length that was negative before it was a `size_t`.
    #[test]
    fn a_count_that_no_memory_holds_is_refused() {
        let place = [c"a".as_ptr(); 2];
        for count in [usize::MAX, usize::MAX / 8, isize::MAX as usize / 8 + 1] {
            // SAFETY: what is refused is not followed.
            let refused = unsafe { list(place.as_ptr(), count, "a list") }.unwrap_err();
            assert_eq!(refused.fault, Fault::BadArgument, "{count}");
            assert!(refused.detail.contains(&count.to_string()), "{refused}");
        }
        // SAFETY: as above.
        let refused = unsafe { bytes(c"a".as_ptr().cast(), usize::MAX) }.unwrap_err();
        assert_eq!(refused.fault, Fault::BadArgument);
        // SAFETY: as many as there are.
        assert_eq!(unsafe { list(place.as_ptr(), 2, "a list") }.unwrap(), place);
    }
}
