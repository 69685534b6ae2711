//! What the process may have and where it runs: descriptors, processors, entropy.

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, getrlimit, pidfd_open, pidfd_send_signal, setrlimit,
};
use rustix::rand::{GetRandomFlags, getrandom};
use std::cell::Cell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// For so long a thread goes by what it found of its processors.
const PROCESSORS_KNOWN_NS: u64 = 1_000_000;

/// From here on the calling thread makes no system call but `read`, `write` and its own end: any other kills
/// it, and the process when it has no other thread. For tests of what makes none.
///
/// # Errors
/// The kernel cannot do that.
#[cfg(feature = "sim")]
pub fn forbid_calls() -> io::Result<()> {
    Ok(rustix::thread::set_secure_computing_mode(rustix::thread::SecureComputingMode::Strict)?)
}

/// How many descriptors the process may have open now, and the most it may raise that to.
pub fn descriptors_max() -> (u64, u64) {
    let limit = getrlimit(Resource::Nofile);
    (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX))
}

/// Bytes of memory that the process may lock now; `None` for no bound.
pub fn locked_bytes_max() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Whether the kernel gives descriptors of processes (`pidfd_open`), which is how children are watched.
///
/// # Errors
/// Why it does not.
pub fn can_watch() -> io::Result<()> {
    Ok(pidfd_open(getpid(), PidfdFlags::empty()).map(drop)?)
}

/// A descriptor of a process: readable once it has ended, and never another's, even if its number is reused.
///
/// # Errors
/// `NotFound` where there is none of that number, or none that this process may see.
pub fn open(id: u32) -> io::Result<OwnedFd> {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    match pidfd_open(id, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => Err(io::ErrorKind::NotFound.into()),
        opened => Ok(opened?),
    }
}

/// Ends the process of a descriptor; one that has ended is no error.
///
/// # Errors
/// `PermissionDenied` for a process of somebody else's.
pub fn kill(process: BorrowedFd<'_>) -> io::Result<()> {
    match pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Raises the limit of open descriptors to `wanted`, or as far as the hard limit lets it; what it is
/// afterwards. Never lowers it.
///
/// # Errors
/// None in practice: raising up to the hard limit is always allowed.
pub fn raise_descriptors_max(wanted: u64) -> io::Result<u64> {
    let (current, maximum) = descriptors_max();
    let target = wanted.min(maximum);
    if target <= current {
        return Ok(current);
    }
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum: limit.maximum })?;
    Ok(target)
}

/// How many threads can run at once; honours affinity and cgroup quotas. At least one.
pub fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// How many processors this thread may run on, quotas aside. One system call.
pub fn processors() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |allowed| allowed.count() as usize)
}

/// The same for a caller that asks with each wait: an answer may be a millisecond older than `now_ns`, and
/// then costs nothing.
#[inline]
pub fn processors_lately(now_ns: u64) -> usize {
    thread_local! {
        static LATELY: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
    }
    LATELY.with(|lately| {
        let (asked_ns, found) = lately.get();
        if found > 0 && now_ns.saturating_sub(asked_ns) < PROCESSORS_KNOWN_NS {
            return found;
        }
        let found = processors();
        lately.set((now_ns, found));
        found
    })
}

/// The processor this thread runs on at the moment of the call.
pub fn current_cpu() -> usize {
    rustix::thread::sched_getcpu()
}

/// Keeps this thread, and threads it starts from here on, on one processor: for measurements.
///
/// # Errors
/// `InvalidInput` for a processor that this process may not use.
pub fn run_on(cpu: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Lets another thread that is ready to run have this processor.
pub fn yield_now() {
    rustix::thread::sched_yield();
}

/// A random word from the kernel: for seeds and jitter.
///
/// # Errors
/// Only where the kernel has no entropy source.
pub fn random_u64() -> io::Result<u64> {
    random_bytes().map(u64::from_ne_bytes)
}

/// Random bytes from the kernel: for secrets.
///
/// # Errors
/// Only where the kernel has no entropy source.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0_u8; N];
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_limit_only_rises() {
        let (before, maximum) = descriptors_max();
        assert_eq!(raise_descriptors_max(1).unwrap(), before);
        assert_eq!(raise_descriptors_max(u64::MAX).unwrap(), maximum);
        assert_eq!(descriptors_max(), (maximum, maximum));
    }

    #[test]
    fn random_words_differ() {
        let words: std::collections::HashSet<u64> = (0..16).map(|_| random_u64().unwrap()).collect();
        assert_eq!(words.len(), 16);
    }

    #[test]
    fn there_is_a_processor() {
        assert!(parallelism() >= 1);
        assert!(current_cpu() < 65_536);
    }

    #[test]
    fn what_a_thread_may_run_on_is_known_soon_after_it_changed() {
        std::thread::spawn(|| {
            let before = processors();
            assert_eq!(processors_lately(5), before);
            run_on(current_cpu()).unwrap();
            assert_eq!(processors_lately(4 + PROCESSORS_KNOWN_NS), before);
            assert_eq!(processors_lately(5 + PROCESSORS_KNOWN_NS), 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let here = current_cpu();
        std::thread::spawn(move || {
            run_on(here).unwrap();
            (0..100).for_each(|_| assert_eq!(current_cpu(), here));
            assert_eq!(run_on(usize::MAX).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        })
        .join()
        .unwrap();
    }
}
