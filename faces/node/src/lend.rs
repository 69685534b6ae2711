//! Maps lent to JavaScript: an `ArrayBuffer` over a map's own bytes, which stay mapped until it is collected.
//!
//! Invariant: nothing in `lib/` stores through such a buffer, and none of them but maps apart
//! (`MappedSegment::apart`) are handed to users, whom nothing can keep from storing to a `Uint8Array`: that
//! stays in the map, which is the isolate's own. Each isolate makes its own buffer of a map, once. What users
//! get is lent as `loan.rs` does it.

use crate::error::{Result, failure};
use napi::bindgen_prelude::{Env, Unknown};
use napi::sys;
use std::ffi::c_void;
use std::ptr::null_mut;
use thalweg_log::Mapped;

/// An `ArrayBuffer` over the map.
pub(crate) fn lend(env: &Env, map: Mapped) -> Result<Unknown<'_>> {
    let (start, length) = (map.start().as_ptr().cast::<c_void>(), map.length());
    let keeper = Box::into_raw(Box::new(map));
    // SAFETY: the bytes stay mapped until `give_back` drops the keeper.
    let buffer = unsafe { external(env, start, length, give_back, keeper.cast()) };
    if buffer.is_err() {
        // SAFETY: the engine did not take it.
        drop(unsafe { Box::from_raw(keeper) });
    }
    // SAFETY: a value that the engine has just made in this environment.
    buffer.map(|buffer| unsafe { Unknown::from_raw_unchecked(env.raw(), buffer) })
}

/// # Safety
/// For the engine to call once, on the environment's thread, with the keeper that `external` was given.
pub(crate) type GiveBack = unsafe extern "C" fn(sys::napi_env, *mut c_void, *mut c_void);

/// An `ArrayBuffer` over bytes that are not the engine's.
///
/// # Safety
/// The bytes have to stay until `give_back` is called, which happens once unless this fails: when nobody has
/// them any more, or when the environment ends.
pub(crate) unsafe fn external(
    env: &Env,
    start: *mut c_void,
    length: usize,
    give_back: GiveBack,
    keeper: *mut c_void,
) -> Result<sys::napi_value> {
    let mut buffer = null_mut();
    // SAFETY: as the caller promises.
    let status = unsafe {
        sys::napi_create_external_arraybuffer(env.raw(), start, length, Some(give_back), keeper, &mut buffer)
    };
    if status != sys::Status::napi_ok {
        return Err(failure(
            "UNSUPPORTED",
            "this JavaScript engine cannot look at memory outside its own heap",
        ));
    }
    Ok(buffer)
}

/// # Safety
/// `keeper` is what `lend` made, and this is the only call with it.
unsafe extern "C" fn give_back(_env: sys::napi_env, _bytes: *mut c_void, keeper: *mut c_void) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(keeper.cast::<Mapped>()) });
}
