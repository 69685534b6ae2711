//! A process's memory as the kernel counts it, read from /proc.

use std::fs;

/// Memory of a process at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Pages that only this process holds and has written.
    pub(crate) private_dirty: u64,
    /// All resident pages.
    pub(crate) resident: u64,
    /// Pages that belong to no file: what the program allocated.
    pub(crate) anonymous: u64,
}

/// Memory right now, from `smaps_rollup`.
///
/// # Errors
/// The process is gone.
pub(crate) fn now(process: u32) -> Result<Memory, String> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    Ok(Memory {
        private_dirty: kilobytes(&text, "Private_Dirty:")?,
        resident: kilobytes(&text, "Rss:")?,
        anonymous: kilobytes(&text, "Anonymous:")?,
    })
}

/// The most that was ever resident, from `status`.
///
/// # Errors
/// The process is gone.
pub(crate) fn resident_peak(process: u32) -> Result<u64, String> {
    let path = format!("/proc/{process}/status");
    kilobytes(&fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?, "VmHWM:")
}

/// How many descriptors are open.
///
/// # Errors
/// The process is gone.
pub(crate) fn descriptors(process: u32) -> Result<usize, String> {
    let path = format!("/proc/{process}/fd");
    fs::read_dir(&path).map(Iterator::count).map_err(|e| format!("{path}: {e}"))
}

fn kilobytes(text: &str, name: &str) -> Result<u64, String> {
    let line = text.lines().find(|l| l.starts_with(name)).ok_or_else(|| format!("no {name}"))?;
    let number = line[name.len()..].split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    number.map(|n| n * 1024).ok_or_else(|| format!("no number: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let own = std::process::id();
        let memory = now(own).unwrap();
        assert!(memory.resident >= memory.private_dirty && memory.private_dirty > 0);
        assert!(resident_peak(own).unwrap() >= 100_000);
        assert!(descriptors(own).unwrap() >= 3);
        assert_eq!(kilobytes("Rss:   12 kB\n", "Rss:"), Ok(12 * 1024));
        assert!(kilobytes("Rss: x\n", "Rss:").is_err());
    }
}
