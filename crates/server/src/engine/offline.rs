//! What is done to a store's files without serving them: verify, parse, back up, restore.

use crate::client::Output;
use crate::quantity::Count;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fmt;
use std::io;
use std::path::Path;
use thalweg_log::{self as log, BackupError, Damage, Disk, OpenError, Piece};

/// Bytes of a payload that are shown to people.
const SHOWN_BYTES: usize = 64;
/// What the names of segments begin with.
const SEGMENT: &str = "segment-";
/// The file that every store has.
const CONTROL: &str = "control";

/// Why it was not done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The source does not read back as it was written.
    Damaged(String),
    /// Something is in the way.
    Conflict(String),
    Failed(String),
    /// There is nothing of that name.
    Missing(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Damaged(why) | Self::Conflict(why) | Self::Failed(why) | Self::Missing(why)) = self;
        out.write_str(why)
    }
}

/// Why what stands in a directory was not written to another.
fn unwritten(from: &Path, error: &BackupError) -> Refusal {
    match error {
        BackupError::Damaged(_) => Refusal::Damaged(error.to_string()),
        BackupError::Occupied { .. } | BackupError::NotClosed { .. } => Refusal::Conflict(error.to_string()),
        BackupError::Source(error) => unread(from, error),
        _ => failed(error),
    }
}

fn failed(error: impl fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}

/// Why a place does not read as a store, in the words of every verb. Where there are segments it is a store,
/// and damaged.
fn unread(place: &Path, error: &OpenError) -> Refusal {
    let listed = Disk::Real.names(place);
    let shown = place.display();
    let names = match listed {
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return Refusal::Failed(format!("{shown} does not exist"));
        }
        Err(source) if source.kind() == io::ErrorKind::NotADirectory => {
            return match error {
                OpenError::Io { source, .. } if source.kind() == io::ErrorKind::NotADirectory => {
                    Refusal::Failed(format!("{shown} is a file, and a store is a directory"))
                }
                _ => failed(error),
            };
        }
        listed => listed.unwrap_or_default(),
    };
    if !matches!(error, OpenError::NotAStore { .. }) {
        return failed(error);
    }
    let has_segments = names.iter().any(|name| name.starts_with(SEGMENT));
    match (has_segments, names.iter().any(|name| name == CONTROL)) {
        (true, false) => Refusal::Damaged(OpenError::ControlLost { directory: place.to_owned() }.to_string()),
        (true, true) => Refusal::Damaged(format!(
            "{error}; there are segments beside it, so this is a store, and it is damaged"
        )),
        (false, true) => failed(error),
        (false, false) => Refusal::Failed(format!("{shown} holds no store")),
    }
}

/// Whether there is a store in a directory, damaged or not.
pub(crate) fn is_store(directory: &Path) -> bool {
    directory.join(CONTROL).exists()
}

/// Checks a store, at rest or in use, and prints what is found. Whether it is whole.
///
/// # Errors
/// It cannot be read as a store at all, though it may be one that is damaged.
pub(crate) fn verify(directory: &Path, output: Output) -> Result<bool, Refusal> {
    let report = log::verify(&Disk::Real, directory).map_err(|error| unread(directory, &error))?;
    let whole = report.damage.is_empty();
    let names = if whole { Names::default() } else { Names::of_store(directory) };
    let mut text = format!(
        "{}: {}, {}, {}, {}, {}\n",
        directory.display(),
        Count(report.segments, "segment"),
        Count(report.batches, "batch"),
        Count(report.logs, "stream"),
        Count(report.bytes, "byte"),
        Count(report.checkpoints, "checkpoint")
    );
    if report.torn_bytes > 0 {
        text += &format!(
            "{} at the end, never acknowledged: the next start discards what is there\n",
            Count(report.torn_bytes, "byte")
        );
    }
    report.damage.iter().for_each(|damage| text += &format!("{damage}{}\n", names.listed(damage)));
    text += if whole { "no damage\n" } else { "DAMAGED\n" };
    let json = json!({
        "directory": directory.display().to_string(),
        "segments": report.segments,
        "batches": report.batches,
        "streams": report.logs,
        "bytes": report.bytes,
        "checkpoints": report.checkpoints,
        "tornBytes": report.torn_bytes,
        "damage": report.damage.iter().map(|damage| names.object(damage)).collect::<Vec<_>>(),
    });
    output.say(text, json).map_err(failed)?;
    Ok(whole)
}

/// The names of a store's logs.
#[derive(Default)]
struct Names(Option<log::Parse>);

impl Names {
    /// As far as they can still be read.
    fn of_store(directory: &Path) -> Self {
        let mut parse = log::parse(&Disk::Real, directory).ok();
        parse.iter_mut().flatten().for_each(drop);
        Self(parse)
    }

    /// Those that a span touches; `None` where they are unknown.
    fn touched(&self, damage: &Damage) -> Option<Vec<String>> {
        let name = |id: &log::LogId| match self.0.as_ref().and_then(|parse| parse.name(*id)) {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => format!("#{id}"),
        };
        damage.logs.known().map(|logs| logs.iter().map(name).collect())
    }

    /// For people, behind what the span says of itself.
    fn listed(&self, damage: &Damage) -> String {
        let names = self.touched(damage).unwrap_or_default();
        if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
    }

    fn object(&self, damage: &Damage) -> Value {
        let mut object = span(damage);
        object["streams"] = self.touched(damage).into();
        object
    }
}

/// A damaged span, for programs.
fn span(damage: &Damage) -> Value {
    let (segment, from) = place(damage.from);
    let mut object = json!({
        "what": damage.to_string(), "file": damage.file, "segment": segment, "byte": from, "ids": damage.logs.known(),
    });
    if let Some((until_segment, until)) = damage.resumes.map(place) {
        object["resumes"] = json!({ "segment": until_segment, "byte": until });
    }
    object
}

/// Prints what stands in a segment or a store, of one stream if it is named. Whether all of it is whole.
///
/// # Errors
/// Nothing can be parsed, or standard output cannot be written.
pub(crate) fn parse(path: &Path, stream: Option<&str>, output: Output) -> Result<bool, Refusal> {
    let (mut whole, mut found) = (true, stream.is_none());
    let mut pieces = log::parse(&Disk::Real, path).map_err(|error| unread(path, &error))?.peekable();
    let begins = matches!(pieces.peek(), Some(Ok(Piece::Segment(_)) | Err(_)));
    if !begins && !may_be_segment(path) {
        return Err(Refusal::Failed(format!("{} is no segment of a store", path.display())));
    }
    for piece in pieces {
        let piece = piece.map_err(failed)?;
        whole &= !matches!(piece, Piece::Damage(_));
        found |= matches!(&piece, Piece::Frame(_)) && stream.is_some_and(|stream| concerns(&piece, stream));
        if stream.is_none_or(|stream| concerns(&piece, stream))
            && output.line(said(&piece, stream.is_some()), object(&piece)).map_err(failed)?.is_none()
        {
            break;
        }
    }
    match stream {
        // What cannot be read may have been it.
        Some(stream) if whole && !found => Err(Refusal::Missing(format!("nothing of {stream} is there"))),
        _ => Ok(whole),
    }
}

/// Whether a path is that of a segment, by its name, or of a directory.
fn may_be_segment(path: &Path) -> bool {
    path.is_dir() || path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SEGMENT))
}

fn concerns(piece: &Piece, stream: &str) -> bool {
    match piece {
        Piece::Frame(frame) => frame.name.as_deref() == Some(stream.as_bytes()),
        Piece::Damage(_) => true,
        Piece::Segment(_) | Piece::Batch(_) | Piece::End(_) => false,
    }
}

/// Segment and byte of a position.
fn place(position: log::Position) -> (u64, u64) {
    (position >> 32, position & u64::from(u32::MAX))
}

/// For people. Where only one stream's pieces are shown no segment is said before them, so that each says its
/// own.
fn said(piece: &Piece, alone: bool) -> String {
    match piece {
        Piece::Frame(frame) if alone => format!("segment {}{}", place(frame.position).0, text(piece)),
        _ => text(piece),
    }
}

fn text(piece: &Piece) -> String {
    match piece {
        Piece::Segment(segment) => format!(
            "{}: {}, store {:016x}{}",
            segment.file,
            Count(segment.capacity.into(), "byte"),
            segment.store_id,
            if segment.after_damage { ", begun after damage" } else { "" }
        ),
        Piece::Batch(batch) => format!(
            "{:>12}  batch of {}, {}, {}{}{}",
            place(batch.position).1,
            Count(batch.bytes.into(), "byte"),
            Count(batch.frames.into(), "frame"),
            Count(batch.touched.len() as u64, "stream"),
            if batch.linked { "" } else { ", DOES NOT FOLLOW the one before" },
            if batch.whole { "" } else { ", BODY DAMAGED" }
        ),
        Piece::Frame(frame) => {
            let name = frame.name.as_deref().map(|name| String::from_utf8_lossy(name).into_owned());
            let shown = frame.payload.get(..SHOWN_BYTES).unwrap_or(&frame.payload);
            format!(
                "{:>12}    {} {} offset {} time {}{}: {} {:?}{}",
                place(frame.position).1,
                frame.kind.name(),
                name.unwrap_or_else(|| format!("#{}", frame.log)),
                frame.offset,
                frame.time,
                if frame.last { ", last" } else { "" },
                Count(frame.payload.len() as u64, "byte"),
                String::from_utf8_lossy(shown),
                if shown.len() < frame.payload.len() { "..." } else { "" }
            )
        }
        Piece::Damage(damage) => format!("DAMAGED: {damage}"),
        Piece::End(end) => format!(
            "{:>12}  end, {} unused{}",
            place(end.position).1,
            Count(end.unused_bytes.into(), "byte"),
            if end.torn_bytes > 0 { ", with the torn end of what was never acknowledged" } else { "" }
        ),
    }
}

fn object(piece: &Piece) -> Value {
    match piece {
        Piece::Segment(segment) => json!({
            "piece": "segment", "file": segment.file, "segment": segment.number, "bytes": segment.capacity,
            "storeId": format!("{:016x}", segment.store_id), "afterDamage": segment.after_damage,
        }),
        Piece::Batch(batch) => {
            let (segment, byte) = place(batch.position);
            let touched = batch.touched.iter().map(|(log, end)| json!({ "id": log, "end": end }));
            json!({
                "piece": "batch", "segment": segment, "byte": byte, "bytes": batch.bytes, "timeUs": batch.time,
                "frames": batch.frames, "streams": touched.collect::<Vec<_>>(),
                "follows": batch.linked, "whole": batch.whole,
            })
        }
        Piece::Frame(frame) => {
            let (segment, byte) = place(frame.position);
            let name = frame.name.as_deref().map(String::from_utf8_lossy);
            let mut object = json!({
                "piece": "frame", "segment": segment, "byte": byte, "kind": frame.kind.name(), "id": frame.log,
                "name": name, "offset": frame.offset, "timeUs": frame.time, "last": frame.last,
            });
            match std::str::from_utf8(&frame.payload) {
                Ok(text) => object["text"] = text.into(),
                Err(_) => object["base64"] = STANDARD.encode(&frame.payload).into(),
            }
            object
        }
        Piece::Damage(damage) => {
            let mut object = span(damage);
            object["piece"] = "damage".into();
            object
        }
        Piece::End(end) => {
            let (segment, byte) = place(end.position);
            json!({
                "piece": "end", "segment": segment, "byte": byte,
                "unusedBytes": end.unused_bytes, "tornBytes": end.torn_bytes,
            })
        }
    }
}

/// Backs a store up, whether a server has it open or not.
///
/// # Errors
/// Why there is no backup.
pub(crate) fn backup(from: &Path, to: &Path, output: Output) -> Result<(), Refusal> {
    let backup = log::backup(&Disk::Real, from, to).map_err(|error| unwritten(from, &error))?;
    done("backed up", backup, to, output)
}

/// Puts a backup back.
///
/// # Errors
/// Why nothing was restored.
pub(crate) fn restore(from: &Path, to: &Path, output: Output) -> Result<(), Refusal> {
    let restored = log::restore(&Disk::Real, from, to).map_err(|error| unwritten(from, &error))?;
    done("restored", restored, to, output)
}

fn done(what: &str, done: log::Backup, to: &Path, output: Output) -> Result<(), Refusal> {
    let (segment, byte) = place(done.end);
    let text = format!(
        "{}: {what} up to byte {byte} of segment {segment}; {} linked, {} copied ({}), {}",
        to.display(),
        Count(done.linked, "segment"),
        done.copied,
        Count(done.copied_bytes, "byte"),
        Count(done.checkpoints, "checkpoint")
    );
    let json = json!({
        "directory": to.display().to_string(),
        "end": { "segment": segment, "byte": byte },
        "linkedSegments": done.linked,
        "copiedSegments": done.copied,
        "copiedBytes": done.copied_bytes,
        "checkpoints": done.checkpoints,
    });
    output.say(text, json).map_err(failed)
}
