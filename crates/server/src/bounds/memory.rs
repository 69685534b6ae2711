//! How much memory this program may use: what its control group grants, or one above it, or what the machine
//! has.
//!
//! Reads what the system says of itself and nothing else; the caller compares. Where a container hides the
//! groups above its own, what its own root says counts. Swap is no memory here: a server that swaps stalls.

use std::fs;
use std::path::Path;

/// Bytes that this program may use: the least of what the machine has and of what each control group that it
/// is in may use, of either version. `None` where the system does not say.
pub(crate) fn available() -> Option<u64> {
    within(Path::new("/"))
}

/// The same of a system whose files lie under `root`.
fn within(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let granted = groups.lines().filter_map(|line| granted(root, line)).min();
    machine(root).into_iter().chain(granted).min()
}

/// Bytes that the machine has.
fn machine(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"))?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// What one line of `/proc/self/cgroup` comes to: `hierarchy:controllers:path`, without controllers for
/// version 2.
fn granted(root: &Path, line: &str) -> Option<u64> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let mount = root.join(mount);
    // A group may use no more than any above it; "max" is no number, and no bound.
    let groups = Path::new(path.trim_start_matches('/')).ancestors();
    groups
        .filter_map(|group| fs::read_to_string(mount.join(group).join(file)).ok()?.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MACHINE: (&str, &str) =
        ("proc/meminfo", "MemTotal:       24684084 kB\nMemFree:        21983888 kB\n");
    const MACHINE_BYTES: u64 = 24_684_084 << 10;

    #[test]
    fn without_a_group_it_is_what_the_machine_has() {
        assert_eq!(within(system(&[MACHINE]).path()), Some(MACHINE_BYTES));
        let unbounded = [MACHINE, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")];
        assert_eq!(within(system(&unbounded).path()), Some(MACHINE_BYTES));
    }

    #[test]
    fn of_groups_within_each_other_the_narrowest_counts() {
        let groups = [
            MACHINE,
            ("proc/self/cgroup", "1:name=systemd:/x\n0::/a/b/c\n"),
            ("sys/fs/cgroup/a/memory.max", "2000000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "3000000\n"),
            ("sys/fs/cgroup/a/b/c/memory.max", "max\n"),
            ("sys/fs/cgroup/x/memory.max", "1\n"),
        ];
        assert_eq!(within(system(&groups).path()), Some(2_000_000));
    }

    #[test]
    fn groups_of_the_first_version_count_too_and_their_no_bound_is_none() {
        let groups = [
            MACHINE,
            ("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/a/b\n0::/\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(within(system(&groups).path()), Some(512 << 20));
        assert_eq!(within(system(&[MACHINE, groups[1], groups[3]]).path()), Some(MACHINE_BYTES));
    }

    #[test]
    fn a_container_that_sees_only_its_own_root_goes_by_that() {
        let files = [
            MACHINE,
            ("proc/self/cgroup", "0::/../outside/of/it\n"),
            ("sys/fs/cgroup/memory.max", "268435456\n"),
        ];
        assert_eq!(within(system(&files).path()), Some(256 << 20));
    }

    #[test]
    fn where_the_system_does_not_say_nobody_guesses() {
        assert_eq!(within(system(&[]).path()), None);
        assert!(available().is_some_and(|bytes| bytes > 1 << 20), "of this machine");
    }
}
