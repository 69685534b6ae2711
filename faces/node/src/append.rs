//! The staging area: how a turn's entries come over in one call.
//!
//! ```text
//! area    ticket 8 | 0 8 | entry …
//! entry   payload length 4 | log 4 | time, then offset 8 | payload | zeros to a multiple of 8
//! ```
//!
//! `log` counts the logs of a transaction, and is 0 elsewhere. A time is a float; a negative one means now.
//! Where the time stood the offset is written when the entry was appended. The ticket is written last: the
//! position that has to be durable for all of it to be, or 0.

use crate::error::{Result, commit, failure};
use std::sync::Arc;
use thalweg_log::{CommitError, Log, Receipt, Store, Time, now};

const AREA_HEADER_BYTES: usize = 16;
const ENTRY_HEADER_BYTES: usize = 16;

struct StagedEntry<'a> {
    log: u32,
    time: f64,
    payload: &'a [u8],
}

/// What an entry takes in the area.
fn staged_bytes(length: usize) -> usize {
    ENTRY_HEADER_BYTES + length.next_multiple_of(8)
}

fn entries(area: &[u8]) -> impl Iterator<Item = StagedEntry<'_>> {
    let mut at = AREA_HEADER_BYTES;
    std::iter::from_fn(move || {
        let (header, rest) = area.get(at..)?.split_first_chunk::<ENTRY_HEADER_BYTES>()?;
        let [a, b, c, d, e, f, g, h, time @ ..] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let payload = rest.get(..length)?;
        let staged =
            StagedEntry { log: u32::from_le_bytes([e, f, g, h]), time: f64::from_le_bytes(time), payload };
        at += staged_bytes(length);
        Some(staged)
    })
}

fn time_of(time: f64, now: Time) -> Time {
    if time >= 0.0 { time as Time } else { now }
}

fn note(area: &mut [u8], at: usize, value: f64) {
    if let Some(place) = area.get_mut(at..at + 8) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// Appends each entry as a transaction of its own: run by run.
pub(crate) fn each(store: &Store, log: &Arc<Log>, area: &mut [u8], bytes: usize) -> Result<u32> {
    let now = now();
    let (mut ticket, mut outcome) = (0, Ok(()));
    // Where each entry is told its offset, of those that were appended.
    let mut offsets: Vec<(usize, f64)> = Vec::new();
    let staged = area.get(..bytes).ok_or_else(|| failure("BAD_ARGUMENT", "more is staged than there is"))?;
    let timed = entries(staged).map(|entry| (time_of(entry.time, now), entry.payload));
    let mut at = AREA_HEADER_BYTES;
    for run in store.runs(timed, |(_, payload)| payload.len()) {
        match store.append_timed(log, &run) {
            Ok(receipt) => {
                let mut offset = receipt.first;
                for (_, payload) in run {
                    offsets.push((at + 8, offset as f64));
                    offset += payload.len() as u64;
                    at += staged_bytes(payload.len());
                }
                ticket = receipt.ticket;
            }
            Err(error) => {
                outcome = Err(commit(&error));
                break;
            }
        }
    }
    for (at, offset) in &offsets {
        note(area, *at, *offset);
    }
    note(area, 0, ticket as f64);
    match outcome {
        Err(error) if offsets.is_empty() => Err(error),
        // The caller asks again with what is left, and is told why then.
        _ => Ok(offsets.len() as u32),
    }
}

/// Writes all of it as one transaction.
pub(crate) fn together(
    store: &Store,
    logs: &[Arc<Log>],
    area: &mut [u8],
    bytes: usize,
    time: f64,
) -> std::result::Result<Receipt, CommitError> {
    let mut transaction = store.transaction(time_of(time, now()));
    for entry in entries(area.get(..bytes).unwrap_or(&[])) {
        if let Some(log) = logs.get(entry.log as usize) {
            transaction.append(log, entry.payload)?;
        }
    }
    let receipt = transaction.submit()?;
    note(area, 0, receipt.ticket as f64);
    Ok(receipt)
}
