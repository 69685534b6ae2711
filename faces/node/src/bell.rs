//! How an event loop is woken: one bell per isolate and store, rung by each move of a word of the store.
//!
//! A bell is armed by a reader that has looked and found nothing, and looks once more afterwards (the
//! handshake of `sync::gate`). It rings once per arming, on the loop's own thread, and keeps the process
//! alive only while it is held. No thread of ours waits for it: the gate of the log wakes it.

use crate::error::{Result, failure, read};
use crate::shelf::Shelf;
use napi::bindgen_prelude::{Env, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Status, sys};
use napi_derive::napi;
use std::sync::Arc;
use std::task::{Wake, Waker};

type Callback = ThreadsafeFunction<(), (), (), Status, false, true>;

pub(crate) struct Ring {
    callback: Callback,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl Ring {
    pub(crate) fn ring(&self) {
        self.callback.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

#[napi]
pub struct Bell {
    shelf: Arc<Shelf>,
    ring: Arc<Ring>,
    waker: Waker,
}

impl Bell {
    pub(crate) fn new(shelf: Arc<Shelf>, callback: Function<'_, (), ()>) -> Result<Bell> {
        let callback = callback.build_threadsafe_function().weak::<true>().build()?;
        let ring = Arc::new(Ring { callback });
        shelf.remember(&ring);
        let waker = Waker::from(ring.clone());
        Ok(Bell { shelf, ring, waker })
    }
}

#[napi]
impl Bell {
    /// The next move of a word rings, and so does a look that finds the store moved or removed where another
    /// process writes it: arming the bell then fails. The caller looks once more after it has armed the bell.
    #[napi]
    pub fn arm(&self) -> Result<()> {
        self.shelf.maps(|maps| {
            let armed = maps.register(&self.waker, || false);
            armed.map_err(|error| failure("IO", format!("cannot start a thread: {error}")))?;
            // Where the store is gone no word moves any more, so that is said here and not rung for.
            maps.check_presence().map_err(|error| read(&error))
        })
    }

    /// Keeps the process alive, or no longer.
    #[napi]
    pub fn hold(&self, env: Env, held: bool) {
        let raw = self.ring.callback.raw();
        // SAFETY: on the thread of the environment that made the function, which lives as long as the bell.
        let _ = unsafe {
            if held {
                sys::napi_ref_threadsafe_function(env.raw(), raw)
            } else {
                sys::napi_unref_threadsafe_function(env.raw(), raw)
            }
        };
    }
}
