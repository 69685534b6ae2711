//! How a store is opened, and which sizes of segments follow from that.
//!
//! A store that is bounded as a whole has segments of up to a part of its bound, so that what goes at a time
//! is little of what is kept. What no segment can be made of is refused, and never made into something else
//! in silence. *Checked by* the tests here and those of [`sizes`](crate::sizes).

use crate::Time;
use crate::error::OpenError;
use crate::format::{SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES};
use crate::plausible::ID_END;
use std::str::FromStr;

/// Segments are made of whole pages.
pub(crate) const PAGE_BYTES: u32 = 4096;

/// A segment holds such a part of what a store may keep.
pub(crate) const BOUND_PARTS: u64 = 16;
/// Whatever the bound, unless the options say less.
const PART_BYTES_MIN: u32 = 1 << 20;
/// Upper bound of the time of opening, excluded: ids are counted on from there.
const OPENED_AT_END: Time = ID_END / 2;

/// What an acknowledged commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A power cut: acknowledged after a sync that covers it.
    #[default]
    Sync,
    /// The death of the process: acknowledged when it is in the operating system's memory.
    Os,
    /// Nothing: the store lives as long as the process and has no files.
    Memory,
}

impl Durability {
    /// What it is called in options and reports: `sync`, `os` or `memory`.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Os => "os",
            Durability::Memory => "memory",
        }
    }
}

/// The durability of a name.
///
/// ```
/// use thalweg_log::Durability;
/// for durability in [Durability::Sync, Durability::Os, Durability::Memory] {
///     assert_eq!(durability.name().parse(), Ok(durability));
/// }
/// assert_eq!("disk".parse::<Durability>(), Err("durability is sync, os or memory, and not \"disk\"".into()));
/// ```
impl FromStr for Durability {
    type Err = String;

    fn from_str(name: &str) -> Result<Durability, String> {
        let known = [Durability::Sync, Durability::Os, Durability::Memory];
        let found = known.into_iter().find(|durability| durability.name() == name);
        found.ok_or_else(|| format!("durability is sync, os or memory, and not {name:?}"))
    }
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// What an acknowledged commit survives.
    pub durability: Durability,
    /// Size of the first segment in bytes; each next one is twice as large, up to a sixteenth of
    /// `retain_bytes` if that is given (1 MiB at least). A multiple of 4,096, at most `segment_bytes_max`.
    pub segment_bytes_min: u32,
    /// Largest segment in bytes: a multiple of 4,096, at least two of them and at most 1 GiB. One commit
    /// holds a little less.
    pub segment_bytes_max: u32,
    /// Start a committer thread in `sync` mode. Without one, [`Store::flush`](crate::Store::flush) commits.
    pub committer_thread: bool,
    /// A checkpoint is due after this many bytes of batches.
    pub checkpoint_bytes: u64,
    /// Entries older than this many microseconds are purged by [`Store::maintain`](crate::Store::maintain):
    /// all of them once the newest one is, before that whole segments at a time, which are sealed for it
    /// after a quarter of that age, or an hour where that is more.
    pub retain_us: Option<u64>,
    /// The oldest entries are purged, whole segments at a time, when segments take more bytes than this.
    pub retain_bytes: Option<u64>,
    /// Logs whose names begin so are left alone by both.
    pub retain_except: Vec<Vec<u8>>,
    /// Whether sealed segments of which little is needed are written anew without the rest.
    pub compacts: bool,
    /// Whether the payload of sealed segments, out of which much is read in small records, is kept once more
    /// with each log's bytes together: at most as many bytes again as they have, none that `retain_bytes` has
    /// no room for, and the first to go on a full disk.
    pub settles: bool,
    /// Throttle of background writes, those of [`Store::maintain`](crate::Store::maintain) and of preparing
    /// the next segment: after each MiB they sleep this many times as long as writing it took. 0: never.
    /// Preparing a segment sleeps 50 ms at most, and no writer sleeps while a caller waits for it
    /// ([`Store::stop_throttling`](crate::Store::stop_throttling)).
    pub rest_parts: u32,
    /// A segment is sealed when its first entry is older than this many microseconds, idle or not.
    pub rotate_after_us: Option<u64>,
    /// The time of opening, microseconds since the Unix epoch, which counts as an access of every log; 0 for
    /// none, and less than 2 to the power of 62. A store that is new, was not closed or is a backup that was
    /// never opened counts the ids of its logs on from there, so that none is given out twice: logs of which
    /// nothing was found may have been told of.
    pub opened_at: Time,
    /// A mistake for the simulation to catch.
    #[cfg(test)]
    pub(crate) fault: crate::probes::Fault,
    /// What happens between two shards that a checkpoint visits.
    #[cfg(test)]
    pub(crate) interleave: crate::probes::Interleave,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Sync,
            segment_bytes_min: 4 << 20,
            segment_bytes_max: 64 << 20,
            committer_thread: true,
            checkpoint_bytes: 256 << 20,
            retain_us: None,
            retain_bytes: None,
            retain_except: Vec::new(),
            compacts: true,
            settles: true,
            rest_parts: 3,
            rotate_after_us: None,
            opened_at: 0,
            #[cfg(test)]
            fault: crate::probes::Fault::None,
            #[cfg(test)]
            interleave: Default::default(),
        }
    }
}

impl Options {
    /// Whether retention of the whole store comes to a log of that name.
    pub(crate) fn retains(&self, name: &[u8]) -> bool {
        !self.retain_except.iter().any(|beginning| name.starts_with(beginning))
    }

    /// Bytes of the largest batch that a segment has room for.
    pub(crate) fn batch_bytes_max(&self) -> u64 {
        u64::from(self.segment_bytes_max - SEGMENT_HEADER_BYTES)
    }

    /// # Errors
    /// [`OpenError::BadOption`].
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let (min, max) = (self.segment_bytes_min, self.segment_bytes_max);
        let check = |option, bytes: u32, least, most: u32, or: &str| {
            if bytes.is_multiple_of(PAGE_BYTES) && (least..=most).contains(&bytes) {
                return Ok(());
            }
            let must = format!("a multiple of {PAGE_BYTES} from {least} to {most}{or}");
            Err(OpenError::BadOption { option, value: bytes.into(), must })
        };
        check("segment_bytes_max", max, 2 * PAGE_BYTES, SEGMENT_BYTES_MAX, "")?;
        check("segment_bytes_min", min, PAGE_BYTES, max, ", which is segment_bytes_max")?;
        if self.opened_at >= OPENED_AT_END {
            let must = format!("less than {OPENED_AT_END}");
            return Err(OpenError::BadOption { option: "opened_at", value: self.opened_at, must });
        }
        Ok(())
    }

    /// The largest segment that is begun unless a batch needs a larger one.
    pub(crate) fn segment_bytes_due(&self) -> u32 {
        let most = self.segment_bytes_max;
        let part = self.retain_bytes.map_or(most, |bound| {
            u32::try_from(bound / BOUND_PARTS).unwrap_or(most).clamp(PART_BYTES_MIN.min(most), most)
        });
        part / PAGE_BYTES * PAGE_BYTES
    }

    /// The first segment of a store.
    pub(crate) fn segment_bytes_first(&self) -> u32 {
        self.segment_bytes_min.min(self.segment_bytes_due())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    fn bounded(retain_bytes: u64) -> Options {
        Options { retain_bytes: Some(retain_bytes), ..Options::default() }
    }

    #[test]
    fn segments_are_a_part_of_the_bound_between_the_least_and_the_largest() {
        assert_eq!(Options::default().segment_bytes_due(), 64 << 20);
        for (bound, due) in [(0, 1 << 20), (16 << 20, 1 << 20), (160 << 20, 10 << 20), (1 << 40, 64 << 20)] {
            assert_eq!(bounded(bound).segment_bytes_due(), due, "{bound}");
        }
        let odd = bounded(20_000_000);
        assert_eq!((odd.segment_bytes_due() % PAGE_BYTES, odd.segment_bytes_due() / PAGE_BYTES), (0, 305));
        assert_eq!(odd.segment_bytes_first(), odd.segment_bytes_due());
        assert_eq!(bounded(1 << 40).segment_bytes_first(), 4 << 20);
        let small = Options { segment_bytes_min: 4096, segment_bytes_max: 8192, ..bounded(1 << 30) };
        assert_eq!((small.segment_bytes_due(), small.segment_bytes_first()), (8192, 4096));
    }

    #[test]
    fn a_time_of_opening_that_leaves_no_ids_is_refused() {
        let opened = |opened_at| Store::memory(Options { opened_at, ..Options::default() });
        let last = opened(OPENED_AT_END - 1).unwrap();
        assert!(last.log(b"a").unwrap().id() < last.log(b"b").unwrap().id());
        for opened_at in [OPENED_AT_END, Time::MAX] {
            let refused = opened(opened_at).unwrap_err().to_string();
            assert_eq!(
                refused,
                format!("opened_at is {opened_at}; it must be less than 4611686018427387904")
            );
        }
    }

    #[test]
    fn sizes_that_no_segment_can_have_are_refused_by_name() {
        let sized =
            |min, max| Options { segment_bytes_min: min, segment_bytes_max: max, ..Options::default() };
        for (min, max) in [(4096, 8192), (8192, 8192), (4096, SEGMENT_BYTES_MAX), (1 << 20, 3 << 20)] {
            sized(min, max).check().unwrap();
        }
        let min = "segment_bytes_min is {}; it must be a multiple of 4096 from 4096 to 65536, which is segment_bytes_max";
        for bytes in [0, 8, 4095, 4100, 65_536 + 4096, u32::MAX] {
            let refused = Store::memory(sized(bytes, 65_536)).unwrap_err().to_string();
            assert_eq!(refused, min.replace("{}", &bytes.to_string()));
        }
        let max = "segment_bytes_max is {}; it must be a multiple of 4096 from 8192 to 1073741824";
        for bytes in [0, 8, 4096, 1_000_000, SEGMENT_BYTES_MAX + 4096, u32::MAX] {
            let refused = Store::memory(sized(4096, bytes)).unwrap_err().to_string();
            assert_eq!(refused, max.replace("{}", &bytes.to_string()));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let refused = Store::open(&crate::Disk::Real, &path, sized(8192, 4096));
        assert!(matches!(
            refused,
            Err(OpenError::BadOption { option: "segment_bytes_max", value: 4096, .. })
        ));
        assert!(!path.exists(), "nothing was made");
    }
}
