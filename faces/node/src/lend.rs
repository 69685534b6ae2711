//! Maps lent to JavaScript: an `ArrayBuffer` over a map's own bytes, which stay mapped until it is collected.
//!
//! Invariant: nothing in `lib/` stores through such a buffer, and none of them but maps apart
//! (`MappedSegment::apart`) are handed to users, whom nothing can keep from storing to a `Uint8Array`: that
//! stays in the map, which is the isolate's own. Each isolate makes its own buffer of a map, once.

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
    let mut buffer = null_mut();
    // SAFETY: the bytes stay mapped until `give_back` drops the keeper, which the engine calls once, when the
    // buffer is collected or its environment ends.
    let status = unsafe {
        sys::napi_create_external_arraybuffer(
            env.raw(),
            start,
            length,
            Some(give_back),
            keeper.cast(),
            &mut buffer,
        )
    };
    if status != sys::Status::napi_ok {
        // SAFETY: the engine did not take it.
        drop(unsafe { Box::from_raw(keeper) });
        return Err(failure(
            "UNSUPPORTED",
            "this JavaScript engine cannot look at memory outside its own heap",
        ));
    }
    // SAFETY: a value that the engine has just made in this environment.
    Ok(unsafe { Unknown::from_raw_unchecked(env.raw(), buffer) })
}

/// # Safety
/// `keeper` is what `lend` made, and this is the only call with it.
unsafe extern "C" fn give_back(_env: sys::napi_env, _bytes: *mut c_void, keeper: *mut c_void) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(keeper.cast::<Mapped>()) });
}
