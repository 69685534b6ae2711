//! Locks that are held for a tenth of a microsecond.
//!
//! To sleep and be woken, or to make way for others that want it too, costs more than looking until such a
//! lock is free. But each look takes the line that it lies on away from its holder, who has to fetch it back
//! to let go. So looks come at growing distances: whoever has the lock goes on at full speed for a while, and
//! takes turns with others in runs instead of one by one. Not for ever: its holder may have lost the
//! processor.

use parking_lot::{Mutex, MutexGuard};

/// Looks at a lock that is held before a thread makes way: some tens of microseconds.
const LOOKS: u32 = 20;
/// The longest distance between two looks: some microseconds.
const PAUSES_MAX: u32 = 64;

/// Locks what will be free soon.
#[inline]
pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
