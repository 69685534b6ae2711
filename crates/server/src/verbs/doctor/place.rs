//! What concerns the directory of a store: who may look at it, what it lies on, how fast that is, whether its
//! files are of this time, and whether services can listen there.

use super::{Finding, bad, good, poor};
use crate::command_line::{Durability, ServeOptions};
use crate::quantity::Bytes;
use crate::quoting::quoted;
use crate::start::{ServerError, check_services};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};
use thalweg_sys::clock;
use thalweg_sys::machine::{Backing, clock_is_kept, file_system};

/// Room for a few segments.
const FREE_BYTES_BAD: u64 = 64 << 20;
const FREE_BYTES_FEW: u64 = 1 << 30;
/// How often a write is made to last.
const SYNCS: usize = 20;
const SYNC_SLOW: Duration = Duration::from_millis(20);
/// No disk and no battery-backed cache is that fast.
const SYNC_UNLIKELY: Duration = Duration::from_micros(15);
/// 2020-01-01: clocks before it were never set.
const EARLIEST_S: u64 = 1_577_836_800;
/// How far a file's time may be ahead of the clock, since two clocks may have set them.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// What is to be said of where a store would be: a directory, there or not, or nowhere.
pub(super) fn findings(options: &ServeOptions) -> Vec<Finding> {
    let data = &options.data;
    let mut findings = vec![wall_clock(data)];
    if options.durability == Durability::Memory {
        findings.push(good("directory", "none: --durability memory keeps the store in memory"));
    } else {
        findings.extend(directory(data, &existing(data)));
    }
    findings.push(services(options));
    findings
}

/// Whether the services can listen where they would.
fn services(options: &ServeOptions) -> Finding {
    match check_services(options) {
        Ok(()) => good("services", "no path that they would listen at is too long for a socket"),
        Err(ServerError::ServicePath(path, error)) => {
            let found = format!("cannot listen at {}: {error}", path.display());
            bad("services", found, "a server would not start: choose a shorter --data, or --services off")
        }
        Err(error) => bad("services", error.to_string(), "a server would not start"),
    }
}

/// The directory, or the nearest one above it that is there.
fn existing(data: &Path) -> PathBuf {
    let absolute = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    absolute.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn wall_clock(data: &Path) -> Finding {
    let now_us = clock::wall_us();
    if now_us / 1_000_000 < EARLIEST_S {
        return bad(
            "clock",
            "it shows a time before 2020",
            "set the clock before a server starts: records are stamped, and streams expire, by it",
        );
    }
    let newest = fs::read_dir(data).into_iter().flatten().flatten().filter_map(|entry| {
        let modified = entry.metadata().ok()?.modified().ok()?;
        modified.duration_since(UNIX_EPOCH).ok()
    });
    let ahead = newest.max().and_then(|newest| newest.checked_sub(Duration::from_micros(now_us)));
    if let Some(ahead) = ahead.filter(|ahead| *ahead > AHEAD_MAX) {
        let found = format!(
            "it is {} s behind the newest file in {}, so it was set back or is wrong",
            ahead.as_secs(),
            data.display()
        );
        let advice = "set it right before a server starts: otherwise streams expire late, and reads by time miss records";
        return poor("clock", found, advice);
    }
    match clock_is_kept() {
        Ok(true) => good("clock", "synchronised"),
        Ok(false) => poor(
            "clock",
            "not synchronised",
            "run chrony, systemd-timesyncd or another NTP client, so that it stays right",
        ),
        Err(error) => good("clock", format!("the system does not tell whether it is synchronised: {error}")),
    }
}

/// What concerns the directory: who may look at it, what it lies on, how fast that is.
fn directory(data: &Path, place: &Path) -> Vec<Finding> {
    let mut findings = vec![access(data, place)];
    match file_system(place) {
        Ok(found) => {
            let free = format!(
                "{} free of {}, at {}",
                Bytes(found.free_bytes),
                Bytes(found.total_bytes),
                place.display()
            );
            findings.push(match found.free_bytes {
                ..FREE_BYTES_BAD => {
                    bad("space", free, "the store has no room for its next segment, so appends would be answered 507: free some space, or give another --data")
                }
                FREE_BYTES_BAD..FREE_BYTES_FEW => {
                    poor("space", free, "a busy server soon fills that, and then answers 507: free some space, or bound the store with --retain-bytes")
                }
                _ => good("space", free),
            });
            findings.push(match found.backing {
                Backing::Disk => good("kept by", "a disk, as far as the system tells"),
                Backing::Memory => bad(
                    "kept by",
                    "memory (tmpfs or the like)",
                    "everything is lost when the machine stops: give a --data on a disk, or say --durability memory if that is meant",
                ),
                Backing::Network => poor(
                    "kept by",
                    "a network or user-space file system (NFS, SMB, FUSE)",
                    "it may confirm a sync before the data is safe, and may let a second server open the store: give a --data on \
                     a local disk",
                ),
                Backing::Container => poor(
                    "kept by",
                    "the container's own file system",
                    "everything is lost when the container is removed: mount a volume, and give it as --data",
                ),
            });
        }
        Err(error) => findings.push(bad(
            "space",
            format!("{}: {error}", place.display()),
            "give another --data, or let this user read that directory",
        )),
    }
    findings.push(syncs(place));
    findings
}

fn access(data: &Path, place: &Path) -> Finding {
    let Ok(metadata) = fs::metadata(data) else {
        return good(
            "directory",
            format!(
                "{} does not exist yet; a server would create it below {}",
                data.display(),
                place.display()
            ),
        );
    };
    let found = format!("{}, mode {:03o}", data.display(), metadata.mode() & 0o777);
    if metadata.mode() & 0o022 != 0 {
        let quoted = quoted(data);
        let advice = format!("other users may write there, and so change the store: chmod go-w -- {quoted}");
        return bad("directory", found, advice);
    }
    if metadata.mode() & 0o055 != 0 {
        let quoted = quoted(data);
        let advice = format!("other users may look into it: unless that is meant, chmod go-rwx -- {quoted}");
        return poor("directory", found, advice);
    }
    good("directory", found)
}

/// How long it takes to make a small write last.
fn syncs(place: &Path) -> Finding {
    match measure(place) {
        Ok(mut times) => {
            times.sort_unstable();
            let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
            let found = format!(
                "a small write and its sync take {:.2} ms (median of {SYNCS}; the slowest took {:.2} ms)",
                millis(median),
                millis(worst)
            );
            if median < SYNC_UNLIKELY {
                return poor(
                    "sync",
                    found,
                    "no disk is that fast, so the write may be in a cache that a power cut empties: check the disk's write cache, and that \
                     the hypervisor passes syncs on",
                );
            }
            if median > SYNC_SLOW {
                return poor(
                    "sync",
                    found,
                    "with --durability sync every append waits for at least one (appends at the same time share it): use a faster disk, or \
                     --durability os, which survives a crash of the program only",
                );
            }
            good("sync", found)
        }
        Err(error) => bad(
            "sync",
            format!("cannot write in {}: {error}", place.display()),
            "give another --data, or let this user write to that directory",
        ),
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn measure(place: &Path) -> io::Result<Vec<Duration>> {
    let path = place.join(format!(".thalweg-doctor-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let measured = (0..SYNCS).map(|_| {
        let begun = Instant::now();
        file.write_all(&[0; 512])?;
        file.sync_data()?;
        Ok(begun.elapsed())
    });
    let measured = measured.collect();
    fs::remove_file(&path)?;
    measured
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn verdict(findings: &[Finding], check: &str) -> Verdict {
        findings.iter().find(|finding| finding.check == check).unwrap().verdict
    }

    #[test]
    fn who_may_reach_a_directory_is_judged_by_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, expected) in
            [(0o700, Verdict::Good), (0o750, Verdict::Poor), (0o755, Verdict::Poor), (0o770, Verdict::Bad)]
        {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            let findings = super::directory(directory.path(), directory.path());
            assert_eq!(verdict(&findings, "directory"), expected, "{mode:o}");
        }
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let findings = super::directory(directory.path(), directory.path());
        assert_ne!(verdict(&findings, "sync"), Verdict::Bad);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
    }

    /// What a shell makes of the command that is advised is the mode that is asked for, of that directory.
    #[test]
    fn the_command_that_is_advised_means_the_directory_whatever_it_is_called() {
        let parent = tempfile::tempdir().unwrap();
        for (name, mode, left) in [("a $(touch b) 'c' \"d\" `e`;f", 0o770, 0o750), ("it's", 0o750, 0o700)] {
            let directory = parent.path().join(name);
            fs::create_dir(&directory).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
            let advice = access(&directory, &directory).advice;
            let command = &advice[advice.find("chmod").unwrap()..];
            assert!(command.contains(" -- '"), "a path may begin with a dash: {command}");
            let run = std::process::Command::new("sh").arg("-c").arg(command).current_dir(&parent).output();
            assert!(run.unwrap().status.success(), "{command}");
            assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, left, "{command}");
        }
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 2, "something else was run");
    }

    #[test]
    fn a_place_that_is_not_there_yet_is_judged_by_what_is_above_it() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("a/b");
        assert_eq!(existing(&deep), directory.path());
        let findings = super::directory(&deep, &existing(&deep));
        assert_eq!(verdict(&findings, "directory"), Verdict::Good);
        assert!(!deep.exists());
    }

    #[test]
    fn memory_is_no_place_for_what_is_to_last() {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            assert_eq!(verdict(&super::directory(memory, memory), "kept by"), Verdict::Bad);
        }
    }

    #[test]
    fn a_clock_that_went_back_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let file = fs::File::create(directory.path().join("segment")).unwrap();
        assert_ne!(wall_clock(directory.path()).verdict, Verdict::Bad);
        let later = std::time::SystemTime::now() + Duration::from_secs(3_600);
        file.set_modified(later).unwrap();
        assert_eq!(wall_clock(directory.path()).verdict, Verdict::Poor);
    }
}
