//! What concerns the machine and the process, wherever the store lies: descriptors, memory, processors, what
//! the clock costs, and what the kernel has or lets this process have.

use super::{Finding, bad, good, poor};
use crate::bounds::Limits;
use crate::bounds::memory;
use crate::command_line::{ServeOptions, Switch};
use crate::quantity::Bytes;
use std::io;
use thalweg_sys::clock::monotonic_ns;
use thalweg_sys::machine::clock_source;
use thalweg_sys::send_ring::SendRing;
use thalweg_sys::{memory as shared, process};

/// Connections that a server serves with what most systems allow at first.
const DESCRIPTORS_FEW: u64 = 4_096;
/// Fewer than this is no server.
const CONNECTIONS_BAD: u64 = 64;
/// Rounds in which the clock is read, reads of a round, and what one may take: a system call takes more.
const CLOCK_ROUNDS: u64 = 5;
const CLOCK_READS: u64 = 2_000;
const CLOCK_SLOW_NS: u64 = 250;
/// Sources that are read without a system call.
const QUICK_SOURCES: [&str; 3] = ["tsc", "kvm-clock", "arch_sys_counter"];
/// Locked memory that a ring takes, about, on kernels that count it as such.
const RING_BYTES: u64 = 64 << 10;

pub(super) fn findings(options: &ServeOptions, limits: &Limits) -> Vec<Finding> {
    let (_, descriptors_max) = process::descriptors_max();
    vec![
        descriptors(descriptors_max, limits.connections, options.connections_max),
        memory(limits, memory::available()),
        processors(),
        clock_source_found(),
        io_uring(options.io_uring == Switch::On, || SendRing::new().map(drop), process::locked_bytes_max()),
        shared_memory(shared::sealed("thalweg-doctor", 4_096, 0).map(drop)),
        children(process::can_watch()),
    ]
}

/// `most` that the process may have open, and the connections that they leave `room` for, against those that
/// are asked for.
fn descriptors(most: u64, room: u64, asked: Option<u32>) -> Finding {
    let found = format!("{most} at most: room for {room} connections");
    let too_few = asked.is_none_or(|asked| u64::from(asked) > room);
    if too_few && room < CONNECTIONS_BAD {
        return bad(
            "descriptors",
            found,
            "a server may not start, or serves next to nobody: raise the hard limit (ulimit -Hn, LimitNOFILE=)",
        );
    }
    if let Some(asked) = asked.filter(|_| too_few) {
        let found = format!("{found}, fewer than the {asked} of connections_max");
        return poor(
            "descriptors",
            found,
            "raise the hard limit (ulimit -Hn, LimitNOFILE=), or lower connections_max",
        );
    }
    if too_few && most < DESCRIPTORS_FEW {
        return poor(
            "descriptors",
            found,
            "a connection takes one: raise the hard limit (ulimit -Hn, LimitNOFILE=)",
        );
    }
    good("descriptors", found)
}

/// The sums of all bounds, against what the program may use.
fn memory(limits: &Limits, available: Option<u64>) -> Finding {
    let (idle, busy) = (limits.idle_bytes(), limits.busy_bytes());
    let sums = format!("{} if every bound were reached at once, {} while all idle", Bytes(busy), Bytes(idle));
    let Some(available) = available else {
        return good("memory", format!("{sums}; the system does not say how much there is"));
    };
    let found = format!("{} that this program may use; {sums}", Bytes(available));
    if available < idle {
        return bad(
            "memory",
            found,
            "idle connections and streams alone would have it killed: lower connections_max or streams_max, or give it more \
             (MemoryMax=)",
        );
    }
    if available < busy {
        return poor(
            "memory",
            found,
            "under full load it might be killed: lower connections_max, streams_max, bodies_max_bytes, unsent_max_bytes, \
             rpc_answers_max_bytes or state_sessions_max_bytes, or give it more (MemoryMax=)",
        );
    }
    good("memory", found)
}

fn processors() -> Finding {
    let count = process::parallelism();
    let found = format!("{count} that this process may use, by affinity and quota");
    if count == 1 {
        return poor(
            "processors",
            found,
            "reactors and the thread that syncs share one, which works and is slower: give it two or more",
        );
    }
    good("processors", found)
}

fn clock_source_found() -> Finding {
    // The least: whatever else runs on the machine only adds to it.
    let each_ns = (0..CLOCK_ROUNDS).map(|_| clock_read_ns()).min().unwrap_or(0);
    let source = clock_source().unwrap_or_else(|| "an unknown source".to_owned());
    clock_cost(each_ns, &source)
}

fn clock_read_ns() -> u64 {
    let begun_ns = monotonic_ns();
    let last_ns = (0..CLOCK_READS).fold(0, |_, _| std::hint::black_box(monotonic_ns()));
    last_ns.saturating_sub(begun_ns) / CLOCK_READS
}

fn clock_cost(each_ns: u64, source: &str) -> Finding {
    let found = format!("{source}, read in {each_ns} ns");
    if each_ns <= CLOCK_SLOW_NS {
        return good("clock source", found);
    }
    let advice = if QUICK_SOURCES.contains(&source) {
        "it is read without a system call, so the machine is busy, or emulates it: ask again when nothing else runs"
    } else {
        "reading it is a system call, and every turn of a reactor reads it: have the kernel use tsc, kvm-clock or \
         arch_sys_counter (clocksource=)"
    };
    poor("clock source", found, advice)
}

/// What a ring comes to that is tried if it is wanted; `locked` is how much memory may be locked.
fn io_uring(wanted: bool, ring: impl FnOnce() -> io::Result<()>, locked: Option<u64>) -> Finding {
    if !wanted {
        return good("io_uring", "off, as configured: each connection is sent to by itself");
    }
    let Err(error) = ring() else {
        return good("io_uring", "available: what many connections are sent goes in one call");
    };
    let found = format!("not available, so each connection is sent to by itself: {error}");
    let advice = match error.kind() {
        io::ErrorKind::OutOfMemory if locked.is_some_and(|most| most < RING_BYTES) => {
            "a kernel before 5.12 counts it as locked memory: raise that limit (ulimit -l, LimitMEMLOCK=)"
        }
        io::ErrorKind::PermissionDenied => {
            "allow it (kernel.io_uring_disabled=0, the container's policy), or say --io-uring off"
        }
        _ => "it takes Linux 5.6, and a container's policy that allows it; or say --io-uring off",
    };
    poor("io_uring", found, advice)
}

fn shared_memory(made: io::Result<()>) -> Finding {
    match made {
        Ok(()) => good("shared memory", "memfd, which /dev/shm does not bound, of whatever size that is"),
        Err(error) => poor(
            "shared memory",
            format!("memfd is not available: {error}"),
            "no client reaches services through .shm: use their .sock, or allow memfd_create",
        ),
    }
}

fn children(watched: io::Result<()>) -> Finding {
    match watched {
        Ok(()) => good("children", "pidfd: programs that are started can be watched"),
        Err(error) => poor(
            "children",
            format!("pidfd is not available: {error}"),
            "without it a service's client starts no program: use Linux 5.3 or newer, and a sandbox that allows pidfd_open",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use thalweg_http::Config;

    #[test]
    fn connections_that_are_asked_for_are_held_against_the_descriptors_there_may_be() {
        for (most, room, asked, expected) in [
            (1_048_576, 65_536, None, Verdict::Good),
            (1_048_576, 65_536, Some(65_536), Verdict::Good),
            (1_024, 700, None, Verdict::Poor),
            (1_024, 700, Some(500), Verdict::Good),
            (20_000, 19_488, Some(65_536), Verdict::Poor),
            (64, 2, None, Verdict::Bad),
            (64, 2, Some(2), Verdict::Good),
        ] {
            assert_eq!(descriptors(most, room, asked).verdict, expected, "{most} {room} {asked:?}");
        }
    }

    #[test]
    fn the_sum_of_all_bounds_is_held_against_the_memory_there_is() {
        let limits = Limits::of(&Config::default(), 2, 2, false);
        let (idle, busy) = (limits.idle_bytes(), limits.busy_bytes());
        for (available, expected) in [
            (None, Verdict::Good),
            (Some(busy), Verdict::Good),
            (Some(busy - 1), Verdict::Poor),
            (Some(idle), Verdict::Poor),
            (Some(idle - 1), Verdict::Bad),
        ] {
            let finding = memory(&limits, available);
            assert_eq!(finding.verdict, expected, "{available:?}");
            assert!(finding.found.contains(&Bytes(busy).to_string()), "{finding}");
        }
    }

    #[test]
    fn a_clock_that_takes_a_system_call_is_poor() {
        assert_eq!(clock_cost(25, "tsc").verdict, Verdict::Good);
        let (call, busy) = (clock_cost(1_500, "acpi_pm"), clock_cost(535, "tsc"));
        assert_eq!([call.verdict, busy.verdict], [Verdict::Poor, Verdict::Poor]);
        assert!(
            call.to_string().contains("have the kernel use tsc") && busy.to_string().contains("ask again")
        );
        assert!(clock_source_found().found.contains(" read in "));
    }

    #[test]
    fn a_ring_that_is_refused_says_what_would_allow_it() {
        let refused = |kind: io::ErrorKind, locked| io_uring(true, || Err(kind.into()), locked);
        assert_eq!(io_uring(true, || Ok(()), None).verdict, Verdict::Good);
        assert_eq!(io_uring(false, || panic!("it is off"), None).verdict, Verdict::Good);
        assert!(refused(io::ErrorKind::OutOfMemory, Some(1_024)).advice.contains("ulimit -l"));
        assert!(refused(io::ErrorKind::PermissionDenied, None).advice.contains("io_uring_disabled"));
        assert!(refused(io::ErrorKind::Unsupported, None).advice.contains("--io-uring off"));
    }

    #[test]
    fn what_the_kernel_does_not_have_is_poor_and_what_it_has_is_good() {
        let refused = || Err(io::ErrorKind::Unsupported.into());
        assert_eq!(shared_memory(refused()).verdict, Verdict::Poor);
        assert_eq!(children(refused()).verdict, Verdict::Poor);
        assert!(!children(refused()).advice.contains("fork-server"), "it waits for every child there is");
        assert_eq!((shared_memory(Ok(())).verdict, children(Ok(())).verdict), (Verdict::Good, Verdict::Good));
    }
}
