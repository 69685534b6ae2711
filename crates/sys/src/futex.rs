//! Sleeping on a word of a map until another thread, or another process, says that it moved.
//!
//! The kernel compares the word with what the sleeper last saw and puts it to sleep in one step, so a wake
//! that follows a change of the word is never lost: who has not slept yet finds the word changed. Words of a
//! file belong to the file, in every process that maps it. Words of anonymous memory belong to this process,
//! and so do those of the simulated twin, which only ever lives in one.
//!
//! Words are moved by `sync`, which knows their orderings; here they are places in a map.

use crate::disk::Map;
use std::time::Duration;

/// Why a sleep ended, or did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepOutcome {
    /// Somebody woke us, or a signal did.
    Woken,
    /// The word was not what the caller expected: no sleep.
    Differed,
    /// The time was over.
    TimedOut,
}

/// Sleeps until somebody wakes the sleepers of the word at byte `position`, if it holds `expected`. The
/// timeout runs on the monotonic clock; `None` is for ever.
///
/// # Panics
/// When the word lies outside the map or is not aligned.
pub fn wait(map: &Map, position: usize, expected: u32, timeout: Option<Duration>) -> SleepOutcome {
    let word = address(map, position);
    let limit = timeout.map(timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word is four aligned bytes of a map that outlives the call, and the kernel reads it as an
    // atomic; the limit, if any, lives until the call returns.
    let answer =
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT | scope(map), expected, limit) };
    if answer == 0 {
        return SleepOutcome::Woken;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => SleepOutcome::Differed,
        Some(libc::ETIMEDOUT) => SleepOutcome::TimedOut,
        // A signal, or a fault that no valid map raises: the sleeper looks at the word again in any case.
        _ => SleepOutcome::Woken,
    }
}

/// Wakes everybody who sleeps on the word at byte `position`; how many slept.
///
/// # Panics
/// When the word lies outside the map or is not aligned.
pub fn wake_all(map: &Map, position: usize) -> usize {
    let word = address(map, position);
    // SAFETY: the word is four aligned bytes of a map that outlives the call; the kernel takes its address.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | scope(map), i32::MAX) };
    usize::try_from(woken).unwrap_or(0)
}

fn address(map: &Map, position: usize) -> *const u32 {
    assert!(position.is_multiple_of(4), "a word that is not aligned");
    assert!(position < map.length() && map.length() - position >= 4, "a word outside its map");
    // SAFETY: in bounds by the check.
    unsafe { map.start().as_ptr().add(position).cast_const().cast() }
}

/// Nobody else can know a word of memory that no file backs, and then the kernel has less to look up.
fn scope(map: &Map) -> i32 {
    if map.is_shared() { 0 } else { libc::FUTEX_PRIVATE_FLAG }
}

fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic_ns;
    use crate::disk::{Allocation, Disk};

    fn file_maps() -> (tempfile::TempDir, [Map; 2]) {
        let directory = tempfile::tempdir().unwrap();
        let file = Disk::Real.create(&directory.path().join("f")).unwrap();
        file.allocate(4096, Allocation::ZeroFilled).unwrap();
        let maps = [file.map(4096, true).unwrap(), file.map(4096, true).unwrap()];
        (directory, maps)
    }

    fn put(map: &Map, position: usize, value: u32) {
        // SAFETY: no other thread has begun to look at the word, or it is asleep.
        unsafe { map.write(position, &value.to_ne_bytes()) };
    }

    #[test]
    fn a_word_that_differs_puts_nobody_to_sleep() {
        let map = Map::anonymous(4096).unwrap();
        put(&map, 64, 7);
        assert_eq!(wait(&map, 64, 6, None), SleepOutcome::Differed);
    }

    #[test]
    fn a_sleep_ends_when_its_time_is_over_and_not_before() {
        let (_directory, [file, _]) = file_maps();
        for map in [&file, &Map::anonymous(4096).unwrap()] {
            let began_ns = monotonic_ns();
            assert_eq!(wait(map, 4, 0, Some(Duration::from_millis(15))), SleepOutcome::TimedOut);
            assert!(monotonic_ns() - began_ns >= 15_000_000);
            assert_eq!(wait(map, 4, 0, Some(Duration::ZERO)), SleepOutcome::TimedOut);
        }
    }

    /// The word never changes, so only a wake ends the sleep. Two maps of one file are as two processes.
    #[test]
    fn all_sleepers_of_a_file_are_woken_through_any_map_of_it() {
        let (_directory, [ours, theirs]) = file_maps();
        std::thread::scope(|scope| {
            let sleepers: Vec<_> = (0..2).map(|_| scope.spawn(|| wait(&theirs, 128, 0, None))).collect();
            let mut woken = 0;
            while woken < 2 {
                woken += wake_all(&ours, 128);
                std::thread::yield_now();
            }
            sleepers.into_iter().for_each(|sleeper| assert_eq!(sleeper.join().unwrap(), SleepOutcome::Woken));
        });
        assert_eq!(wake_all(&ours, 128), 0);
    }

    #[test]
    fn the_longest_timeout_is_a_sleep_like_any_other() {
        let map = Map::anonymous(4096).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait(&map, 0, 0, Some(Duration::MAX)));
            while wake_all(&map, 0) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(sleeper.join().unwrap(), SleepOutcome::Woken);
        });
    }

    #[test]
    fn a_word_outside_its_map_or_across_its_words_is_refused() {
        for position in [4096, 4094, usize::MAX - 3] {
            let map = Map::anonymous(4096).unwrap();
            assert!(std::panic::catch_unwind(move || wake_all(&map, position)).is_err(), "{position}");
        }
    }
}
