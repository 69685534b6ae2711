//! What another process uses, as the kernel counts it: processor time and memory, read from /proc.

use std::fs;
use std::io;

/// Processor time used so far, user and system together, in microseconds (ten thousand are the kernel's
/// tick).
///
/// # Errors
/// There is no such process.
pub fn processor_us(process: u32) -> io::Result<u64> {
    const TICK_US: u64 = 10_000;
    let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The program's name may hold blanks; the fields are counted behind its closing bracket.
    let mut fields = text.rsplit(')').next().unwrap_or("").split_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<u64>().ok());
    match (ticks(), ticks()) {
        (Some(user), Some(system)) => Ok((user + system) * TICK_US),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's line about the process is short")),
    }
}

/// Bytes of memory: all resident pages, and those of them that belong to no file.
///
/// # Errors
/// There is no such process.
pub fn memory_bytes(process: u32) -> io::Result<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line[name.len()..].split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    match (of("Rss:"), of("Anonymous:")) {
        (Some(resident), Some(anonymous)) => Ok((resident, anonymous)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel says nothing of the memory")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_used_time() {
        let own = std::process::id();
        let before = processor_us(own).unwrap();
        let (resident, anonymous) = memory_bytes(own).unwrap();
        assert!(resident >= anonymous && anonymous > 0);
        assert!(processor_us(own).unwrap() >= before);
        assert!(processor_us(u32::MAX).is_err());
    }
}
