//! What is done to the files of a store that need not be open: verifying, backing up, restoring, taking
//! apart.

use crate::error::{Result, backup as backup_failure, closed, open as open_failure};
use crate::recovery::DamageRow;
use napi::bindgen_prelude::{AsyncTask, Either, Either5, Env, Null, Uint8Array};
use napi::{Error, Task};
use napi_derive::napi;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use thalweg_log::{
    AnyStore, Backup, BatchPiece, Damage, Disk, EndPiece, FramePiece, InUse, Parse, Piece, SegmentPiece,
};

/// Pieces that cross over together, and payload bytes of theirs behind which no more follow.
const CHUNK_PIECES: usize = 256;
const CHUNK_BYTES: usize = 1 << 20;

/// What verification found.
#[napi(object)]
pub struct ReportRow {
    pub segments: f64,
    pub batches: f64,
    pub logs: f64,
    pub bytes: f64,
    pub checkpoints: f64,
    pub end: f64,
    pub torn_bytes: f64,
    pub damage: Vec<DamageRow>,
}

/// Verifies the store at a path, without opening it.
#[napi]
pub fn verify(path: String) -> AsyncTask<VerifyTask> {
    AsyncTask::new(VerifyTask(VerifySubject::Path(path.into())))
}

/// What is verified.
pub(crate) enum VerifySubject {
    /// A store that this process has open, until it was verified.
    Open(Option<InUse<AnyStore>>),
    /// The store at a path, which another process may have open.
    Path(PathBuf),
}

pub struct VerifyTask(pub(crate) VerifySubject);

impl Task for VerifyTask {
    type Output = thalweg_log::Report;
    type JsValue = ReportRow;

    fn compute(&mut self) -> Result<thalweg_log::Report> {
        let verified = match &mut self.0 {
            VerifySubject::Open(in_use) => in_use.take().ok_or_else(closed)?.verify(),
            VerifySubject::Path(path) => thalweg_log::verify(&Disk::Real, path),
        };
        verified.map_err(|error| open_failure(&error))
    }

    fn resolve(&mut self, _env: Env, report: thalweg_log::Report) -> Result<ReportRow> {
        Ok(ReportRow {
            segments: report.segments as f64,
            batches: report.batches as f64,
            logs: report.logs as f64,
            bytes: report.bytes as f64,
            checkpoints: report.checkpoints as f64,
            end: report.end as f64,
            torn_bytes: report.torn_bytes as f64,
            damage: report.damage.iter().map(DamageRow::from).collect(),
        })
    }
}

/// A backup that was taken, or put back.
#[napi(object)]
pub struct BackupRow {
    pub end: f64,
    pub linked: f64,
    pub copied: f64,
    pub copied_bytes: f64,
    pub checkpoints: f64,
    pub attempts: u32,
}

/// Writes a backup of the store at a path, which may be open, to a directory.
#[napi]
pub fn backup(from: String, to: String) -> AsyncTask<CopyTask> {
    AsyncTask::new(CopyTask { source: Source::Store(from.into()), to: to.into() })
}

/// Puts a backup back, to a directory.
#[napi]
pub fn restore(backup: String, to: String) -> AsyncTask<CopyTask> {
    AsyncTask::new(CopyTask { source: Source::Backup(backup.into()), to: to.into() })
}

/// What is copied.
pub(crate) enum Source {
    /// A store that this process has open, until it was copied.
    Open(Option<InUse<AnyStore>>),
    /// A store, which another process may have open.
    Store(PathBuf),
    /// A backup that is put back.
    Backup(PathBuf),
}

pub struct CopyTask {
    pub(crate) source: Source,
    pub(crate) to: PathBuf,
}

impl Task for CopyTask {
    type Output = Backup;
    type JsValue = BackupRow;

    fn compute(&mut self) -> Result<Backup> {
        let done = match &mut self.source {
            Source::Open(in_use) => in_use.take().ok_or_else(closed)?.backup(&self.to),
            Source::Store(from) => thalweg_log::backup(&Disk::Real, from, &self.to),
            Source::Backup(from) => thalweg_log::restore(&Disk::Real, from, &self.to),
        };
        done.map_err(|error| backup_failure(&error))
    }

    fn resolve(&mut self, _env: Env, done: Backup) -> Result<BackupRow> {
        Ok(BackupRow {
            end: done.end as f64,
            linked: done.linked as f64,
            copied: done.copied as f64,
            copied_bytes: done.copied_bytes as f64,
            checkpoints: done.checkpoints as f64,
            attempts: done.attempts,
        })
    }
}

#[napi(object)]
pub struct SegmentPieceRow {
    pub piece: String,
    pub file: String,
    pub number: u32,
    pub store_id: String,
    pub capacity: u32,
    pub after_damage: bool,
    pub latest: f64,
}

#[napi(object)]
pub struct TouchedRow {
    pub log: f64,
    pub end: f64,
}

#[napi(object)]
pub struct BatchPieceRow {
    pub piece: String,
    pub position: f64,
    pub bytes: u32,
    pub time: f64,
    pub durable: f64,
    pub frames: u32,
    pub touched: Vec<TouchedRow>,
    pub linked: bool,
    pub whole: bool,
}

#[napi(object)]
pub struct FramePieceRow {
    pub piece: String,
    pub position: f64,
    pub kind: String,
    pub log: f64,
    pub name: Either<String, Null>,
    pub offset: f64,
    pub time: f64,
    pub last: bool,
    pub payload: Uint8Array,
}

#[napi(object)]
pub struct DamagePieceRow {
    pub piece: String,
    pub message: String,
    pub file: String,
    pub from: f64,
    pub resumes: Either<f64, Null>,
    pub logs: Either<Vec<f64>, Null>,
}

#[napi(object)]
pub struct EndPieceRow {
    pub piece: String,
    pub position: f64,
    pub unused_bytes: u32,
    pub torn_bytes: u32,
}

type PieceRow = Either5<SegmentPieceRow, BatchPieceRow, FramePieceRow, DamagePieceRow, EndPieceRow>;

/// Pieces of a store, of which the last may be followed by why a file was passed over.
#[napi(object, object_from_js = false)]
pub struct PiecesRow {
    pub pieces: Vec<PieceRow>,
    /// As the message of an error.
    pub failure: Option<String>,
}

/// How far a store has been taken apart.
enum Progress {
    /// Nothing of it was looked at.
    At(PathBuf),
    Open(Box<Parse>),
    Over,
}

/// A store that is taken apart, piece by piece.
#[napi]
pub struct NativeParse {
    progress: Arc<Mutex<Progress>>,
}

#[napi]
impl NativeParse {
    #[napi(constructor)]
    pub fn new(path: String) -> NativeParse {
        NativeParse { progress: Arc::new(Mutex::new(Progress::At(path.into()))) }
    }

    /// The next pieces; none when that was all.
    #[napi]
    pub fn next(&self) -> AsyncTask<ParseTask> {
        AsyncTask::new(ParseTask { progress: self.progress.clone() })
    }
}

pub struct ParseTask {
    progress: Arc<Mutex<Progress>>,
}

impl Task for ParseTask {
    type Output = (Vec<Piece>, Option<Error>);
    type JsValue = PiecesRow;

    fn compute(&mut self) -> Result<(Vec<Piece>, Option<Error>)> {
        let mut progress = self.progress.lock();
        if let Progress::At(path) = &*progress {
            let parsed = thalweg_log::parse(&Disk::Real, path);
            *progress = Progress::Over;
            *progress = Progress::Open(Box::new(parsed.map_err(|error| open_failure(&error))?));
        }
        let Progress::Open(parse) = &mut *progress else { return Ok((Vec::new(), None)) };
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        while pieces.len() < CHUNK_PIECES && bytes < CHUNK_BYTES {
            match parse.next() {
                Some(Ok(piece)) => {
                    bytes += if let Piece::Frame(frame) = &piece { frame.payload.len() } else { 0 };
                    pieces.push(piece);
                }
                Some(Err(error)) => return Ok((pieces, Some(open_failure(&error)))),
                None => {
                    *progress = Progress::Over;
                    break;
                }
            }
        }
        Ok((pieces, None))
    }

    fn resolve(&mut self, _env: Env, (pieces, failed): (Vec<Piece>, Option<Error>)) -> Result<PiecesRow> {
        let failure = failed.map(|error| error.reason.to_string());
        Ok(PiecesRow { pieces: pieces.into_iter().map(row).collect(), failure })
    }
}

fn row(piece: Piece) -> PieceRow {
    match piece {
        Piece::Segment(segment) => PieceRow::A(segment_row(segment)),
        Piece::Batch(batch) => PieceRow::B(batch_row(&batch)),
        Piece::Frame(frame) => PieceRow::C(frame_row(&frame)),
        Piece::Damage(damage) => PieceRow::D(damage_row(damage)),
        Piece::End(end) => PieceRow::E(end_row(end)),
    }
}

fn segment_row(segment: SegmentPiece) -> SegmentPieceRow {
    SegmentPieceRow {
        piece: "segment".into(),
        file: segment.file,
        number: segment.number,
        store_id: format!("{:016x}", segment.store_id),
        capacity: segment.capacity,
        after_damage: segment.after_damage,
        latest: segment.latest as f64,
    }
}

fn batch_row(batch: &BatchPiece) -> BatchPieceRow {
    let touched = |(log, end): &(u64, u64)| TouchedRow { log: *log as f64, end: *end as f64 };
    BatchPieceRow {
        piece: "batch".into(),
        position: batch.position as f64,
        bytes: batch.bytes,
        time: batch.time as f64,
        durable: batch.durable as f64,
        frames: batch.frames,
        touched: batch.touched.iter().map(touched).collect(),
        linked: batch.linked,
        whole: batch.whole,
    }
}

fn frame_row(frame: &FramePiece) -> FramePieceRow {
    let name = frame.name.as_deref().map(|name| String::from_utf8_lossy(name).into_owned());
    FramePieceRow {
        piece: "frame".into(),
        position: frame.position as f64,
        kind: frame.kind.name().into(),
        log: frame.log as f64,
        name: name.map_or(Either::B(Null), Either::A),
        offset: frame.offset as f64,
        time: frame.time as f64,
        last: frame.last,
        payload: Uint8Array::new(frame.payload.to_vec()),
    }
}

fn damage_row(damage: Damage) -> DamagePieceRow {
    let logs = damage.logs.known().map(|logs| logs.iter().map(|log| *log as f64).collect());
    DamagePieceRow {
        piece: "damage".into(),
        message: damage.to_string(),
        from: damage.from as f64,
        resumes: damage.resumes.map_or(Either::B(Null), |position| Either::A(position as f64)),
        logs: logs.map_or(Either::B(Null), Either::A),
        file: damage.file,
    }
}

fn end_row(end: EndPiece) -> EndPieceRow {
    EndPieceRow {
        piece: "end".into(),
        position: end.position as f64,
        unused_bytes: end.unused_bytes,
        torn_bytes: end.torn_bytes,
    }
}
