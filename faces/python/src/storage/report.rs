//! What is told of a store: counts, and what verification found.

use pyo3::prelude::*;

/// A count of what a store holds.
#[pyclass(module = "thalweg", frozen, get_all, eq)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Logs there are.
    logs: u64,
    /// Segments they lie in.
    segments: u64,
    /// Bytes allocated for segments.
    segment_bytes: u64,
    /// Bytes of files that say again what segments hold, each log's bytes together.
    settled_bytes: u64,
    /// Bytes of this process's address space that segments are mapped at.
    mapped_bytes: u64,
    /// Position behind the last batch written.
    staged_end: u64,
    /// Position behind the last entry known to last.
    durable: u64,
    /// Bytes of memory that the time indexes of segments may take.
    index_bytes: u64,
    /// Batches written since the store was opened: commits and transactions, each once.
    batches: u64,
    /// Bytes of segments that they took.
    batch_bytes: u64,
    /// Entries written since the store was opened.
    entries: u64,
    /// Segments begun since then.
    rotations: u64,
    /// Calls of `Store.purge` that were carried out since then.
    purges: u64,
    /// Payload bytes let go since then.
    purged_bytes: u64,
    /// Payload bytes that some log still needs, as they are let go of: up to 256 KiB of a log at a time.
    live_bytes: u64,
    /// Bytes of segments removed since the store was opened.
    freed_bytes: u64,
    /// Batches that the disk had no room for since then.
    failures: u64,
    /// Transactions under way, counted once per log.
    transactions: u64,
    /// Whether a write or a sync failed: the store takes no writes until it is opened again.
    failed: bool,
}

impl From<thalweg_log::Stats> for Stats {
    fn from(stats: thalweg_log::Stats) -> Stats {
        let thalweg_log::Stats { logs, segments, segment_bytes, staged_end, durable, .. } = stats;
        let thalweg_log::Stats { entries, rotations, purged_bytes, failures, transactions, .. } = stats;
        let thalweg_log::Stats { live_bytes, freed_bytes, index_bytes, batches, batch_bytes, .. } = stats;
        let thalweg_log::Stats { settled_bytes, mapped_bytes, purges, failed, .. } = stats;
        Stats {
            logs,
            segments,
            segment_bytes,
            settled_bytes,
            mapped_bytes,
            staged_end,
            durable,
            index_bytes,
            batches,
            batch_bytes,
            entries,
            rotations,
            purges,
            purged_bytes,
            live_bytes,
            freed_bytes,
            failures,
            transactions,
            failed,
        }
    }
}

/// A span of a store that does not read back as it was written.
#[pyclass(module = "thalweg", frozen, get_all, eq)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// File name within the store's directory.
    file: String,
    /// First damaged position.
    begin: u64,
    /// Position where reading resumes behind it; `None` when nothing behind it stands.
    resumes: Option<u64>,
    /// Numbers of the logs the span is known to touch; `None` when that is not known.
    logs: Option<Vec<u64>>,
    /// The same in words.
    message: String,
}

impl From<&thalweg_log::Damage> for Damage {
    fn from(damage: &thalweg_log::Damage) -> Damage {
        Damage {
            file: damage.file.clone(),
            begin: damage.from,
            resumes: damage.resumes,
            logs: damage.logs.known().map(<[_]>::to_vec),
            message: damage.to_string(),
        }
    }
}

/// What opening a store found.
#[pyclass(module = "thalweg", frozen, get_all, eq)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// Logs that exist.
    logs: u64,
    /// Position of the checkpoint that it began with; `None` when there was none.
    checkpoint: Option<u64>,
    /// Batches replayed behind that.
    batches: u64,
    /// Whether the store had been closed.
    clean: bool,
    /// Bytes of unacknowledged batches at the end that were not whole and were discarded.
    discarded_bytes: u64,
    /// Spans that should be whole and are not.
    damage: Vec<Damage>,
    /// One of them that may have held the creation of logs whose names are lost: while it is there no log is
    /// created.
    unnamed: Option<Damage>,
}

impl From<&thalweg_log::Recovered> for Recovery {
    fn from(found: &thalweg_log::Recovered) -> Recovery {
        Recovery {
            logs: found.logs,
            checkpoint: found.checkpoint,
            batches: found.batches,
            clean: found.clean,
            discarded_bytes: found.discarded_bytes,
            damage: found.damage.iter().map(Damage::from).collect(),
            unnamed: found.unnamed.as_ref().map(Damage::from),
        }
    }
}

#[pymethods]
impl Recovery {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

/// What was purged of a log.
#[pyclass(module = "thalweg", frozen, get_all, eq)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purged {
    /// The log's name.
    name: String,
    /// The first offset that is left; its end when nothing is.
    first: u64,
    /// Payload bytes that went.
    bytes: u64,
    /// Entries that went, if they were counted.
    entries: Option<u64>,
    /// Whether the log itself is gone.
    destroyed: bool,
}

impl From<thalweg_log::Purged> for Purged {
    fn from(purged: thalweg_log::Purged) -> Purged {
        let thalweg_log::Purged { name, first, bytes, entries, destroyed, .. } = purged;
        Purged { name: String::from_utf8_lossy(&name).into_owned(), first, bytes, entries, destroyed }
    }
}

/// What verification found.
#[pyclass(module = "thalweg", frozen, get_all)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Segments looked at.
    segments: u64,
    /// Batches whose checksums hold.
    batches: u64,
    /// Logs that are neither deleted nor lost, as the newest checkpoint and what came behind it say.
    logs: u64,
    /// Bytes of batches.
    bytes: u64,
    /// Checkpoints that are whole.
    checkpoints: u64,
    /// Position behind the last batch.
    end: u64,
    /// Unacknowledged bytes at the end that the next open discards.
    torn_bytes: u64,
    /// Spans that should be whole and are not.
    damage: Vec<Damage>,
}

impl From<thalweg_log::Report> for Report {
    fn from(report: thalweg_log::Report) -> Report {
        let damage = report.damage.iter().map(Damage::from).collect();
        let thalweg_log::Report { segments, batches, logs, bytes, checkpoints, end, torn_bytes, .. } = report;
        Report { segments, batches, logs, bytes, checkpoints, end, torn_bytes, damage }
    }
}

#[pymethods]
impl Stats {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

#[pymethods]
impl Purged {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

#[pymethods]
impl Damage {
    fn __repr__(&self) -> String {
        format!("<thalweg.Damage {}>", self.message)
    }
}

#[pymethods]
impl Report {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}
