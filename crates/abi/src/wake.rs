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

// SAFETY: the caller promised that the function may be called with this context from any thread.
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
/// Both may be called with `context` from any thread, `wake` as long as the waker or a clone of it lives,
/// `release` then.
pub(crate) unsafe fn waker(wake: Call, context: *mut c_void, release: Option<Call>) -> Waker {
    Waker::from(Arc::new(Callback { wake, context, release }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static WOKEN: AtomicU32 = AtomicU32::new(0);
    static RELEASED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn wake(context: *mut c_void) {
        WOKEN.fetch_add(context.addr() as u32, Ordering::SeqCst);
    }

    extern "C" fn release(context: *mut c_void) {
        RELEASED.fetch_add(context.addr() as u32, Ordering::SeqCst);
    }

    #[test]
    fn a_context_is_released_once_and_after_the_last_wake() {
        // SAFETY: both functions only look at the address.
        let waker = unsafe { waker(wake, std::ptr::without_provenance_mut(7), Some(release)) };
        let other = waker.clone();
        other.wake();
        waker.wake_by_ref();
        assert_eq!((WOKEN.load(Ordering::SeqCst), RELEASED.load(Ordering::SeqCst)), (14, 0));
        drop(waker);
        assert_eq!((WOKEN.load(Ordering::SeqCst), RELEASED.load(Ordering::SeqCst)), (14, 7));
    }
}
