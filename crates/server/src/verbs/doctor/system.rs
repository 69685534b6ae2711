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
    let found = format!("this process may open {most}, which leaves room for {room} connections");
    let too_few = asked.is_none_or(|asked| u64::from(asked) > room);
    if too_few && room < CONNECTIONS_BAD {
        return bad(
            "descriptors",
            found,
            "a server may fail to start, or serves next to nobody: raise the hard limit (ulimit -Hn, or LimitNOFILE= of systemd)",
        );
    }
    if let Some(asked) = asked.filter(|_| too_few) {
        let found = format!("{found}, fewer than connections_max, {asked}");
        return poor(
            "descriptors",
            found,
            "raise the hard limit (ulimit -Hn, or LimitNOFILE= of systemd), or lower connections_max",
        );
    }
    if too_few && most < DESCRIPTORS_FEW {
        return poor(
            "descriptors",
            found,
            "each connection takes one: for more, raise the hard limit (ulimit -Hn, or LimitNOFILE= of systemd)",
        );
    }
    good("descriptors", found)
}

/// The sums of all bounds, against what the program may use.
fn memory(limits: &Limits, available: Option<u64>) -> Finding {
    let (idle, busy) = (limits.idle_bytes(), limits.busy_bytes());
    let sums = format!(
        "a server takes up to {} with every limit reached at once, and {} with all connections and streams idle",
        Bytes(busy),
        Bytes(idle)
    );
    let Some(available) = available else {
        return good("memory", format!("{sums}; the system does not tell how much this program may use"));
    };
    let found = format!("this program may use {}; {sums}", Bytes(available));
    if available < idle {
        return bad(
            "memory",
            found,
            "idle connections and streams alone would take more, and the kernel would end the server: lower connections_max or streams_max, or give it more \
             memory (MemoryMax= of systemd, the container's limit)",
        );
    }
    if available < busy {
        return poor(
            "memory",
            found,
            "under full load the kernel might end it: lower connections_max, streams_max, bodies_max_bytes, unsent_max_bytes, \
             rpc_answers_max_bytes or state_sessions_max_bytes, or give it more memory (MemoryMax= of systemd, the container's \
             limit)",
        );
    }
    good("memory", found)
}

fn processors() -> Finding {
    let count = process::parallelism();
    let found = format!("this process may use {count} (by its affinity and its quota)");
    if count == 1 {
        return poor(
            "processors",
            found,
            "a server works with one, but slower, since connections and writes to the disk share it: allow it two or more",
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
    let found = format!("{source}; reading the clock takes {each_ns} ns");
    if each_ns <= CLOCK_SLOW_NS {
        return good("clock source", found);
    }
    let advice = if QUICK_SOURCES.contains(&source) {
        "that is slow for this source, so the machine is busy or emulates it: run doctor again when nothing else runs"
    } else {
        "each reading is a system call, and the server reads it all the time: have the kernel use tsc, kvm-clock or \
         arch_sys_counter (clocksource= on its command line)"
    };
    poor("clock source", found, advice)
}

/// What a ring comes to that is tried if it is wanted; `locked` is how much memory may be locked.
fn io_uring(wanted: bool, ring: impl FnOnce() -> io::Result<()>, locked: Option<u64>) -> Finding {
    if !wanted {
        return good(
            "io_uring",
            "off, as configured: each connection is sent to in a system call of its own",
        );
    }
    let Err(error) = ring() else {
        return good("io_uring", "available: many connections are sent to in one system call");
    };
    let found = format!("not available, so each connection is sent to in a system call of its own: {error}");
    let advice = match error.kind() {
        io::ErrorKind::OutOfMemory if locked.is_some_and(|most| most < RING_BYTES) => {
            "kernels before 5.12 count it as locked memory: raise that limit (ulimit -l, or LimitMEMLOCK= of systemd)"
        }
        io::ErrorKind::PermissionDenied => {
            "allow it (sysctl kernel.io_uring_disabled=0, and the container's seccomp policy), or say --io-uring off"
        }
        _ => "use Linux 5.6 or newer, and a container's seccomp policy that allows it, or say --io-uring off",
    };
    poor("io_uring", found, advice)
}

fn shared_memory(made: io::Result<()>) -> Finding {
    match made {
        Ok(()) => good("shared memory", "memfd is available (it does not depend on the size of /dev/shm)"),
        Err(error) => poor(
            "shared memory",
            format!("memfd is not available: {error}"),
            "clients cannot reach services by their .shm address: allow memfd_create in the sandbox, or use their .sock address",
        ),
    }
}

fn children(watched: io::Result<()>) -> Finding {
    match watched {
        Ok(()) => {
            good("children", "pidfd is available: a service's client can start its server and watch it")
        }
        Err(error) => poor(
            "children",
            format!("pidfd is not available: {error}"),
            "a service's client cannot start its server: use Linux 5.3 or newer, and allow pidfd_open in the sandbox",
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
            call.to_string().contains("have the kernel use tsc")
                && busy.to_string().contains("run doctor again")
        );
        assert!(clock_source_found().found.contains("reading the clock takes"));
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
