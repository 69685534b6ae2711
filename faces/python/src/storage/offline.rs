//! What is done to the files of a store that need not be open: verifying, backing up, restoring, taking
//! apart.

use super::arguments::PathArgument;
use super::report::{Damage, Report};
use crate::error;
use crate::hearing;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::Path;
use thalweg_log::{Disk, Piece};

/// Verifies every bit of every file of the store in the directory `path`, and changes nothing. Signals are
/// handled meanwhile: what a handler raises ends it.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, path: PathArgument) -> PyResult<Report> {
    verify_files(py, &Disk::Real, &path.0)
}

pub(crate) fn verify_files(py: Python<'_>, disk: &Disk, directory: &Path) -> PyResult<Report> {
    hearing::work(py, |go_on| {
        let verified = thalweg_log::verify_while(disk, directory, go_on);
        verified.map(Report::from).map_err(|error| error::open(&error))
    })
}

/// Writes a backup of the store in the directory `source`, which may be open, to the directory `to`, which
/// is empty or not there: a store as of one moment, that was closed then. Sealed segments are hard links
/// where the file system knows them. It holds everything that was durable before the call, in "os" mode
/// everything that was appended. Signals are handled meanwhile: what a handler raises ends it, and nothing
/// of the backup is left then.
#[pyfunction]
pub(crate) fn backup(py: Python<'_>, source: PathArgument, to: PathArgument) -> PyResult<Backup> {
    back_up_files(py, &Disk::Real, &source.0, &to.0)
}

pub(crate) fn back_up_files(py: Python<'_>, disk: &Disk, directory: &Path, to: &Path) -> PyResult<Backup> {
    hearing::work(py, |go_on| {
        let done = thalweg_log::backup_while(disk, directory, to, go_on);
        done.map(Backup::from).map_err(|error| error::backup(&error))
    })
}

/// Puts a backup back, to the directory `to`, which is empty or not there. All of it is verified first;
/// `Damaged` names what is. The backup stays as it is. Signals are handled as by `backup`.
#[pyfunction]
pub(crate) fn restore(py: Python<'_>, backup: PathArgument, to: PathArgument) -> PyResult<Backup> {
    hearing::work(py, |go_on| {
        let done = thalweg_log::restore_while(&Disk::Real, &backup.0, &to.0, go_on);
        done.map(Backup::from).map_err(|error| error::backup(&error))
    })
}

/// What stands in a segment file, or in all those of a store, piece by piece, whole or not. Nobody should
/// have the store open: what is being written may look torn. A file that cannot be read raises once; `next`
/// goes on with the next file.
#[pyfunction]
pub(crate) fn parse(py: Python<'_>, path: PathArgument) -> PyResult<Parse> {
    let parse = py.detach(move || thalweg_log::parse(&Disk::Real, &path.0));
    Ok(Parse { parse: Mutex::new(parse.map_err(|error| error::open(&error))?) })
}

/// A backup that was taken, or put back.
#[pyclass(module = "thalweg", frozen, get_all, eq)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backup {
    /// Position in front of which it holds everything.
    end: u64,
    /// Segments that share their bytes with the source.
    linked: u64,
    /// Segments that were copied.
    copied: u64,
    /// Bytes of batches in those.
    copied_bytes: u64,
    /// Checkpoints in it.
    checkpoints: u64,
    /// Times it was begun: anew when files went away meanwhile.
    attempts: u32,
}

impl From<thalweg_log::Backup> for Backup {
    fn from(done: thalweg_log::Backup) -> Backup {
        let thalweg_log::Backup { end, linked, copied, copied_bytes, checkpoints, attempts } = done;
        Backup { end, linked, copied, copied_bytes, checkpoints, attempts }
    }
}

/// The pieces of a store or of a segment file, in the order of its bytes: every byte lies in one batch, one
/// damaged span, the segment's header, or behind its end. Made by `parse`.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Parse {
    parse: Mutex<thalweg_log::Parse>,
}

/// A segment begins.
#[pyclass(module = "thalweg", frozen, get_all, eq)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentPiece {
    /// The file's name.
    file: String,
    /// The segment's number.
    number: u32,
    /// The store it belongs to.
    store_id: u64,
    /// Bytes it has.
    capacity: u32,
    /// It was begun by a recovery that had found damage.
    after_damage: bool,
    /// The largest time of any entry in an earlier segment.
    latest: u64,
}

/// A batch whose header stands: one commit.
#[pyclass(module = "thalweg", frozen, get_all, eq)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchPiece {
    /// Where it begins.
    position: u64,
    /// Bytes it takes.
    bytes: u32,
    /// When it was committed.
    time: u64,
    /// What was known to be durable then.
    durable: u64,
    /// Frames it says it has.
    frames: u32,
    /// The numbers of the logs it touches, and where each ends with it.
    touched: Vec<(u64, u64)>,
    /// It carries the link of the batch before it; what does not is not believed.
    linked: bool,
    /// Its body matches its checksum; of one that does not the frames are not shown.
    whole: bool,
}

/// One thing that the batch before it says; an entry is one of the kind "data".
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct FramePiece {
    piece: thalweg_log::FramePiece,
}

/// The batches of a segment end.
#[pyclass(module = "thalweg", frozen, get_all, eq)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndPiece {
    /// Where the last batch ends.
    position: u64,
    /// Bytes behind it.
    unused_bytes: u32,
    /// How many of these belong to commits that were never acknowledged.
    torn_bytes: u32,
}

#[pymethods]
impl Parse {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let piece =
            py.detach(|| self.parse.lock().next()).transpose().map_err(|error| error::open(&error))?;
        piece.map(|piece| shown(py, piece)).transpose()
    }
}

fn shown(py: Python<'_>, piece: Piece) -> PyResult<Bound<'_, PyAny>> {
    Ok(match piece {
        Piece::Segment(piece) => {
            let thalweg_log::SegmentPiece { file, number, store_id, capacity, after_damage, latest } = piece;
            let piece = SegmentPiece { file, number, store_id, capacity, after_damage, latest };
            Bound::new(py, piece)?.into_any()
        }
        Piece::Batch(piece) => {
            let thalweg_log::BatchPiece { position, bytes, time, durable, frames, .. } = piece;
            let thalweg_log::BatchPiece { touched, linked, whole, .. } = piece;
            let piece = BatchPiece { position, bytes, time, durable, frames, touched, linked, whole };
            Bound::new(py, piece)?.into_any()
        }
        Piece::Frame(piece) => Bound::new(py, FramePiece { piece })?.into_any(),
        Piece::Damage(damage) => Bound::new(py, Damage::from(&damage))?.into_any(),
        Piece::End(piece) => {
            let thalweg_log::EndPiece { position, unused_bytes, torn_bytes } = piece;
            Bound::new(py, EndPiece { position, unused_bytes, torn_bytes })?.into_any()
        }
    })
}

#[pymethods]
impl FramePiece {
    /// Where it begins.
    #[getter]
    fn position(&self) -> u64 {
        self.piece.position
    }

    /// What it says: "data", "create", "close", "delete", "producer", "writerSeq", "note", "trim", "gone" or
    /// "places".
    #[getter]
    fn kind(&self) -> &'static str {
        self.piece.kind.name()
    }

    /// Number of the log it is about.
    #[getter]
    fn log(&self) -> u64 {
        self.piece.log
    }

    /// That log's name; `None` when nothing says it.
    #[getter]
    fn name(&self) -> Option<String> {
        self.piece.name.as_deref().map(|name| String::from_utf8_lossy(name).into_owned())
    }

    /// Offset within the log.
    #[getter]
    fn offset(&self) -> u64 {
        self.piece.offset
    }

    /// When.
    #[getter]
    fn time(&self) -> u64 {
        self.piece.time
    }

    /// The last entry of its transaction in its log.
    #[getter]
    fn last(&self) -> bool {
        self.piece.last
    }

    /// What it carries: a copy.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.piece.payload)
    }

    fn __eq__(&self, other: &FramePiece) -> bool {
        self.piece == other.piece
    }

    fn __repr__(&self) -> String {
        let (kind, log, offset) = (self.kind(), self.piece.log, self.piece.offset);
        format!("<thalweg.FramePiece {kind} of log {log} at {offset}, {} bytes>", self.piece.payload.len())
    }
}

#[pymethods]
impl Backup {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

#[pymethods]
impl SegmentPiece {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

#[pymethods]
impl BatchPiece {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

#[pymethods]
impl EndPiece {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}
