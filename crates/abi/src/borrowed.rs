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
    match (pointer.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(missing("a pointer to bytes")),
        // SAFETY: the caller's promise, and not null.
        (false, length) => Ok(unsafe { std::slice::from_raw_parts(pointer, length) }),
    }
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
