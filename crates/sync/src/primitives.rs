//! The one switch between real synchronisation and loom's.
//!
//! Everything in this crate that a model checks names its atomics, fences and locks through here. Under
//! `cfg(loom)` they are loom's, which explores the interleavings and the reorderings of a weak memory;
//! otherwise they are the standard library's and `parking_lot`'s.

/// Atomic words, orderings and fences.
pub mod atomic {
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    #[cfg(not(loom))]
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

/// A lock that is never poisoned: nothing panics while holding it but an allocation that failed.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    #[cfg(loom)]
    inner: loom::sync::Mutex<T>,
    #[cfg(not(loom))]
    inner: parking_lot::Mutex<T>,
}

/// Holds the lock until dropped.
#[cfg(loom)]
pub type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;
/// Holds the lock until dropped.
#[cfg(not(loom))]
pub type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// A free lock around a value.
    pub fn new(value: T) -> Self {
        #[cfg(loom)]
        return Self { inner: loom::sync::Mutex::new(value) };
        #[cfg(not(loom))]
        return Self { inner: parking_lot::Mutex::new(value) };
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(loom)]
        return self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        #[cfg(not(loom))]
        return self.inner.lock();
    }
}
