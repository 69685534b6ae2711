//! A C function as a waker.

use std::ffi::c_void;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Called from any thread, with the context it was given beside.
pub(crate) type Call = unsafe extern "C" fn(context: *mut c_void);

struct Callback {
    wake: Call,
    context: *mut c_void,
    release: Option<Call>,
}

// SAFETY: whoever gave them promised that the function may be called with this context from any thread.
unsafe impl Send for Callback {}
// SAFETY: as above; nothing here is written.
unsafe impl Sync for Callback {}

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // SAFETY: what was promised when they were given: see `waker`.
        unsafe { (self.wake)(self.context) }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: what was promised when it was given; nobody else has this callback any more.
            unsafe { release(self.context) }
        }
    }
}

/// A waker that calls a function, and another when it will not be called any more.
///
/// # Safety
/// Both may be called with `context` from any thread, `wake` as long as the waker or a clone of it lives, `release` then.
pub(crate) unsafe fn waker(wake: Call, context: *mut c_void, release: Option<Call>) -> Waker {
    Waker::from(Arc::new(Callback { wake, context, release }))
}
