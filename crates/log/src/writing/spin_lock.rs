//! Locks that are held for a tenth of a microsecond: a thread that finds one taken spins.
//!
//! To sleep and be woken, or to yield to other waiting threads, costs more than looking until such a lock
//! is free. But each look takes the lock's cache line from the holder, which has to fetch it back to
//! unlock. So the distance between looks grows: the holder goes on at full speed for a while, and threads
//! take the lock in runs instead of one by one. After some tens of microseconds a thread sleeps, because
//! the holder may have lost the processor.

use parking_lot::{Mutex, MutexGuard};

/// Looks at a lock that is held before a thread sleeps: some tens of microseconds.
const LOOKS: u32 = 14;
/// The longest distance between two looks: some microseconds.
const PAUSES_MAX: u32 = 256;

/// Locks a mutex that is going to be free within a microsecond.
#[inline]
pub(crate) fn lock_spinning<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.try_lock().unwrap_or_else(|| look(mutex))
}

#[cold]
fn look<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut pauses = 1;
    for _ in 0..LOOKS {
        (0..pauses).for_each(|_| std::hint::spin_loop());
        pauses = PAUSES_MAX.min(pauses * 2);
        if !mutex.is_locked()
            && let Some(guard) = mutex.try_lock()
        {
            return guard;
        }
    }
    mutex.lock()
}
