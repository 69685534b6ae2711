//! The two clocks: one that never goes back, and the one people read. And what a thread,
//! or the process, has used of a processor.
//!
//! Both clocks are answered by the vDSO without entering the kernel (tens of nanoseconds).

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on the monotonic clock (`CLOCK_MONOTONIC`): never goes back, its zero means nothing.
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// The same clock as it was at the kernel's last tick (`CLOCK_MONOTONIC_COARSE`), which comes every ten
/// milliseconds or more often while a processor is busy. It costs a quarter, for a caller that only asks
/// whether time has passed.
#[inline]
pub fn coarse_ns() -> u64 {
    nanoseconds(ClockId::MonotonicCoarse)
}

/// Microseconds since the Unix epoch on the wall clock (`CLOCK_REALTIME`): may jump either way.
pub fn wall_us() -> u64 {
    nanoseconds(ClockId::Realtime) / 1_000
}

/// Nanoseconds of processor time that the calling thread has used (`CLOCK_THREAD_CPUTIME_ID`). A system call.
pub fn thread_processor_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Nanoseconds of processor time that all threads of this process have used. A system call.
pub fn process_processor_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Before 1970 or before boot there is nothing to measure: such a clock reads as zero.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn monotonic_advances_with_sleep_and_never_goes_back() {
        let before = monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let after = monotonic_ns();
        assert!(after - before >= 2_000_000, "slept 2 ms but the clock moved {} ns", after - before);
    }

    #[test]
    fn processor_time_grows_with_work_and_not_with_sleep() {
        let before = thread_processor_ns();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let slept = thread_processor_ns() - before;
        assert!(slept < 20_000_000, "sleeping used {slept} ns");
        let mut word = 1_u64;
        while thread_processor_ns() == before + slept {
            word = std::hint::black_box(word.wrapping_mul(3));
        }
        assert!(process_processor_ns() >= thread_processor_ns());
    }

    #[test]
    fn wall_agrees_with_the_standard_library() {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        let ours = wall_us();
        let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        assert!(before <= ours && ours <= after, "{before} <= {ours} <= {after}");
    }
}
