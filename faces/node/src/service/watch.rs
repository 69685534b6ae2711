//! How libuv drives an embedded reactor: one `uv_poll` over its descriptor, which calls JavaScript on the
//! loop's own thread whenever a turn has something to do. No thread, no timer.
//!
//! Who owns what: the handle, the callback and its context live in an [`Inner`] that the [`Watch`] and libuv
//! share. Closing takes the descriptor out of the loop there and then, so its owner may drop it afterwards;
//! the rest is given back when libuv says that it has let go. Where an environment ends first, its hook
//! closes the handle and holds the end up until it is closed.
//!
//! *Checked by* `tests/service-loop.test.js`: workers that end in the middle of calls, closes inside the
//! callback.

use crate::error::{Result, failure};
use napi::bindgen_prelude::{Env, Function, JsValue as _};
use napi::sys;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{null, null_mut};
use std::rc::Rc;

const UV_POLL: c_int = 8;
const UV_READABLE: c_int = 1;

type Handle = *mut c_void;

/// # Safety
/// For libuv to call, with a handle that is not closed.
type Ready = unsafe extern "C" fn(Handle, c_int, c_int);

/// # Safety
/// For libuv to call, once, with a handle that it lets go of.
type Closed = unsafe extern "C" fn(Handle);

// libuv's own interface, as the program that loads us exports it.
//
// # Safety
// On the thread of the loop that a handle belongs to; a handle is `uv_handle_size` bytes that stay until
// `closed`.
unsafe extern "C" {
    fn uv_handle_size(kind: c_int) -> usize;
    fn uv_handle_set_data(handle: Handle, data: *mut c_void);
    fn uv_handle_get_data(handle: *const c_void) -> *mut c_void;
    fn uv_poll_init(event_loop: *mut sys::uv_loop_s, handle: Handle, descriptor: c_int) -> c_int;
    fn uv_poll_start(handle: Handle, events: c_int, ready: Ready) -> c_int;
    fn uv_close(handle: Handle, closed: Closed);
    fn uv_ref(handle: Handle);
    fn uv_unref(handle: Handle);
}

struct Inner {
    env: sys::napi_env,
    /// Room for a `uv_poll_t`, whose size only libuv knows; words, so that it is aligned.
    handle: Cell<Box<[u64]>>,
    callback: sys::napi_ref,
    context: sys::napi_async_context,
    hook: Cell<sys::napi_async_cleanup_hook_handle>,
    is_closing: Cell<bool>,
}

/// A descriptor that the event loop watches. Dropping it ends the watch.
pub(crate) struct Watch {
    inner: Rc<Inner>,
    handle: Handle,
}

impl fmt::Debug for Watch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// What a call into the engine said.
fn check(status: sys::napi_status, what: &str) -> Result<()> {
    if status == sys::Status::napi_ok {
        return Ok(());
    }
    Err(failure("SYSTEM", format!("{what}: the engine said {status}")))
}

impl Watch {
    /// Calls `ready` whenever the descriptor is readable, until the watch ends. The watch does not keep the
    /// process alive until it is [held](Self::hold).
    pub(crate) fn start(env: &Env, descriptor: BorrowedFd<'_>, ready: Function<'_, (), ()>) -> Result<Watch> {
        let raw = env.raw();
        let (mut event_loop, mut callback, mut name, mut context) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: on the environment's own thread, inside a call from JavaScript; every pointer is to a
        // local.
        unsafe {
            check(sys::napi_get_uv_event_loop(raw, &mut event_loop), "event loop")?;
            let text = b"thalweg";
            let made = sys::napi_create_string_utf8(
                raw,
                text.as_ptr().cast::<c_char>(),
                text.len() as isize,
                &mut name,
            );
            check(made, "name")?;
            check(sys::napi_async_init(raw, null_mut(), name, &mut context), "context")?;
            check(sys::napi_create_reference(raw, ready.raw(), 1, &mut callback), "callback")?;
        }
        // SAFETY: says how many bytes a handle has.
        let words = unsafe { uv_handle_size(UV_POLL) }.div_ceil(8);
        let mut room = vec![0_u64; words].into_boxed_slice();
        let handle: Handle = room.as_mut_ptr().cast();
        let inner = Rc::new(Inner {
            env: raw,
            handle: Cell::new(room),
            callback,
            context,
            hook: Cell::new(null_mut()),
            is_closing: Cell::new(false),
        });
        // SAFETY: the room is large and aligned enough, and outlives the handle: `closed` gives back the
        // count that the handle's data holds.
        unsafe {
            let begun = uv_poll_init(event_loop, handle, descriptor.as_raw_fd());
            if begun != 0 {
                release(&inner);
                return Err(failure("SYSTEM", format!("uv_poll_init: {begun}")));
            }
            uv_handle_set_data(handle, Rc::into_raw(inner.clone()).cast_mut().cast());
            uv_unref(handle);
        }
        let watch = Watch { inner, handle };
        // SAFETY: the handle was begun; the hook's argument is the handle, which `closed` outlives it by
        // removing it.
        unsafe {
            let mut hook = null_mut();
            check(sys::napi_add_async_cleanup_hook(raw, Some(ending), handle, &mut hook), "hook")?;
            watch.inner.hook.set(hook);
            let started = uv_poll_start(handle, UV_READABLE, on_ready);
            if started != 0 {
                return Err(failure("SYSTEM", format!("uv_poll_start: {started}")));
            }
        }
        Ok(watch)
    }

    /// Keeps the process alive, or no longer.
    pub(crate) fn hold(&self, held: bool) {
        if self.inner.is_closing.get() {
            return;
        }
        // SAFETY: on the loop's thread, and the handle is not closed.
        unsafe {
            if held {
                uv_ref(self.handle);
            } else {
                uv_unref(self.handle);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        close(&self.inner, self.handle);
    }
}

fn close(inner: &Inner, handle: Handle) {
    if !inner.is_closing.replace(true) {
        // SAFETY: on the loop's thread, and once.
        unsafe { uv_close(handle, closed) };
    }
}

/// Gives back what the engine keeps for a watch.
///
/// # Safety
/// On the environment's thread, once, before the environment has ended.
unsafe fn release(inner: &Inner) {
    let mut scope = null_mut();
    // SAFETY: as the caller promises; what was made in `start` is given back.
    unsafe {
        sys::napi_open_handle_scope(inner.env, &mut scope);
        sys::napi_delete_reference(inner.env, inner.callback);
        sys::napi_async_destroy(inner.env, inner.context);
        sys::napi_close_handle_scope(inner.env, scope);
        let hook = inner.hook.replace(null_mut());
        if !hook.is_null() {
            sys::napi_remove_async_cleanup_hook(hook);
        }
    }
}

/// # Safety
/// libuv calls it once, on the loop's thread, when it has let go of a handle of [`Watch::start`].
unsafe extern "C" fn closed(handle: Handle) {
    // SAFETY: the count that `start` put there.
    let inner = unsafe { Rc::from_raw(uv_handle_get_data(handle).cast::<Inner>()) };
    // SAFETY: the environment is held up by the hook that is removed here.
    unsafe { release(&inner) };
    drop(inner.handle.take());
}

/// The environment ends.
///
/// # Safety
/// The engine calls it on the environment's thread while the hook is there, so while the handle is.
unsafe extern "C" fn ending(_hook: sys::napi_async_cleanup_hook_handle, handle: *mut c_void) {
    // SAFETY: the handle's own count keeps it until `closed`, which comes after this.
    let inner = unsafe { &*uv_handle_get_data(handle).cast::<Inner>() };
    close(inner, handle);
}

/// # Safety
/// libuv calls it on the loop's thread, for a handle that is not closed.
unsafe extern "C" fn on_ready(handle: Handle, _status: c_int, _events: c_int) {
    // SAFETY: the handle's own count keeps it during the call, because `closed` runs in a later phase of the
    // loop.
    let inner = unsafe { &*uv_handle_get_data(handle).cast::<Inner>() };
    let env = inner.env;
    let (mut scope, mut global, mut callback, mut result) = (null_mut(), null_mut(), null_mut(), null_mut());
    // SAFETY: on the environment's thread; values live in the scope that is opened here.
    unsafe {
        if sys::napi_open_handle_scope(env, &mut scope) != sys::Status::napi_ok {
            return;
        }
        sys::napi_get_global(env, &mut global);
        sys::napi_get_reference_value(env, inner.callback, &mut callback);
        let called = sys::napi_make_callback(env, inner.context, global, callback, 0, null(), &mut result);
        if called == sys::Status::napi_pending_exception {
            // What the callback throws is not caught anywhere.
            let mut thrown = null_mut();
            if sys::napi_get_and_clear_last_exception(env, &mut thrown) == sys::Status::napi_ok {
                sys::napi_fatal_exception(env, thrown);
            }
        }
        sys::napi_close_handle_scope(env, scope);
    }
}
