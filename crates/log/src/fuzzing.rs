//! What the fuzz targets (`fuzz/`) reach of this crate beside what everybody does. Built with `--cfg fuzzing`
//! alone.

use crate::checkpoint;
use crate::format::{
    self, BATCH_HEADER_BYTES, BatchHeader, Link, SEGMENT_HEADER_BYTES, Seal, SealedAt, SegmentHeader,
    decode_create, decode_notes, decode_producer, decode_trim, encode_create, encode_note, encode_producer,
    word32,
};
use crate::places::Places;
use crate::runs::{self, Runs};
use crate::scan::{Scan, Step};
use crate::settled::{self, forged::leads_nowhere_that_harms};

/// What headers and payloads say is the same once it was written again; the first byte says which is looked
/// at.
pub fn formats(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    match which % 8 {
        0 => segment(data),
        1 => batch(data),
        2 => frames(data),
        3 => {
            let Some(created) = decode_create(data) else { return };
            let mut written = Vec::new();
            encode_create(created.name, &created.config, created.branch.as_ref(), &mut written)
                .expect("it was as long");
            assert_eq!(decode_create(&written), Some(created));
        }
        4 => {
            let Some(notes) = decode_notes(data) else { return };
            let mut written = Vec::new();
            for (key, value) in &notes {
                encode_note(key, value, &mut written).expect("it was as long");
            }
            assert_eq!(written, data);
        }
        5 => {
            let Some((id, producer)) = decode_producer(data) else { return };
            let mut written = Vec::new();
            encode_producer(id, producer, &mut written);
            assert_eq!(written, data);
        }
        6 if which & 8 != 0 => settled(data),
        6 => runs(data),
        _ => {
            let _ = decode_trim(data);
            let Some(places) = Places::decode(data) else { return };
            let extents: Vec<_> = places.iter().collect();
            assert_eq!((extents.len(), extents[0].offset), (places.count(), places.first()));
            if extents.iter().all(Places::can_list) {
                let mut written = Vec::new();
                Places::encode(&extents, &mut written);
                assert_eq!(written, data);
            }
        }
    }
}

fn segment(data: &[u8]) {
    let mut bytes = data.to_vec();
    seal_segment(&mut bytes);
    let Ok(header) = SegmentHeader::decode(&bytes) else { return };
    assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
}

/// The table of a segment that was written anew, of which what is looked up lies in front of it.
fn runs(data: &[u8]) {
    let mut bytes = vec![0; SEGMENT_HEADER_BYTES as usize + 256];
    let at = bytes.len();
    bytes.extend_from_slice(data);
    let entries = data.len() as u32 / runs::ENTRY_BYTES;
    bytes.truncate(at + (entries * runs::ENTRY_BYTES) as usize);
    seal_runs(&mut bytes[at..]);
    let (held, runs) = (bytes.len() as u32, entries.saturating_sub(1));
    let header = SegmentHeader { held, runs, capacity: held, ..SegmentHeader::default() };
    let (batches, table) = Runs::split(&header, &bytes);
    if table.is_empty() {
        return;
    }
    let _ = (table.end(), table.is_sound());
    for run in table.iter() {
        assert!(run.end() as usize <= batches.len());
        for place in [run.place, run.end_place() - 1, run.end_place(), run.place.wrapping_sub(1)] {
            assert!(table.byte_of(place) as usize <= batches.len());
            let found = table.bytes_of(place..place.saturating_add(64));
            assert!(found.is_none_or(|found| found.end as usize <= batches.len()));
        }
        let _ = (table.place_of(run.byte), table.around(run.end()));
    }
    let mut scan = Scan::through(&header, (batches, table), SEGMENT_HEADER_BYTES, None);
    while let Step::Batch(_) = scan.step() {}
}

/// What is settled, of which the first two bytes say how much it tells.
fn settled(data: &[u8]) {
    let Some(([ranges, bounds], told)) = data.split_first_chunk() else { return };
    leads_nowhere_that_harms((ranges % 6).into(), (bounds % 16).into(), told, &[(0, 0), (1, 5)]);
}

fn seal_runs(table: &mut [u8]) {
    for entry in table.chunks_exact_mut(runs::ENTRY_BYTES as usize) {
        if let Some((words, sum)) = entry.split_last_chunk_mut() {
            *sum = crc32c::crc32c(words).to_le_bytes();
        }
    }
}

fn batch(data: &[u8]) {
    let mut bytes = data.to_vec();
    let here = Seal::default().at(8);
    seal_batch(&mut bytes, Link::default(), here);
    let _ = BatchHeader::claims(&bytes, here);
    let Some(header) = BatchHeader::decode(&bytes, here) else { return };
    let touched: Vec<_> = format::touched(&header, &bytes).collect();
    let mut written = Vec::new();
    header.encode(&touched, here, &mut written);
    assert_eq!(BatchHeader::decode(&written, here), Some(header));
    if let Some(body) = header.verified_body(&bytes) {
        let _ = header.link_behind(body);
        frames(body);
    }
}

fn frames(body: &[u8]) {
    for frame in format::frames(body) {
        let at = frame.payload_at as usize;
        assert_eq!(&body[at..at + frame.payload.len()], frame.payload);
    }
}

/// Makes a segment, what is settled of one, or a checkpoint whose bytes were changed add up again:
/// checksums, and the chain of batches. A control file that adds up is believed, so that is left to its
/// checksum.
pub fn reseal(name: &str, bytes: &mut [u8]) {
    if name.starts_with("segment-") {
        reseal_segment(bytes);
    } else if settled::number_of(name).is_some() {
        settled::forged::reseal(bytes);
    } else if checkpoint::start_of(name).is_some()
        && let Some((whole, sum)) = bytes.split_last_chunk_mut()
    {
        *sum = crc32c::crc32c(whole).to_le_bytes();
    }
}

fn reseal_segment(bytes: &mut [u8]) {
    let table = SegmentHeader::decode(bytes).ok().and_then(|header| header.table_at());
    if let Some(table) = table.and_then(|at| bytes.get_mut(at as usize..)) {
        seal_runs(table);
    }
    let Some(mut previous) = seal_segment(bytes) else { return };
    let header = SegmentHeader::decode(bytes).unwrap_or_default();
    let runs: Vec<_> = Runs::split(&header, bytes).1.iter().collect();
    let place_of = |byte: u32| {
        let run = runs.iter().find(|run| (run.byte..run.end()).contains(&byte));
        byte.wrapping_add(run.map_or(0, |run| run.shift()))
    };
    let mut at = SEGMENT_HEADER_BYTES;
    while let Some(rest) = bytes.get_mut(at as usize..)
        && let Some((length, link)) = seal_batch(rest, previous, header.seal().at(place_of(at)))
    {
        (at, previous) = (at + length, link);
    }
}

/// The link to what lies before the segment.
fn seal_segment(bytes: &mut [u8]) -> Option<Link> {
    let header = bytes.get_mut(..SEGMENT_HEADER_BYTES as usize)?;
    let (covered, sum) = header.split_at_mut(SEGMENT_HEADER_BYTES as usize - 4);
    sum.copy_from_slice(&crc32c::crc32c(covered).to_le_bytes());
    Some(Link { length: word32(header, 24), checksum: word32(header, 28) })
}

/// The batch's length, and the link that the next one carries; `None` where there is none.
fn seal_batch(bytes: &mut [u8], previous: Link, here: SealedAt) -> Option<(u32, Link)> {
    let header = BatchHeader::claimed(bytes)?;
    let body = bytes.get(header.body_start() as usize..header.length as usize)?;
    let body_checksum = crc32c::crc32c(body);
    let touched: Vec<_> = format::touched(&header, bytes).collect();
    let header = BatchHeader { body_checksum, previous, ..header };
    let mut written = Vec::new();
    header.encode(&touched, here, &mut written);
    bytes[..written.len()].copy_from_slice(&written);
    let header = BatchHeader::decode(bytes, here)?;
    assert!(written.len() >= BATCH_HEADER_BYTES as usize);
    let body = &bytes[header.body_start() as usize..header.length as usize];
    Some((header.length, header.link_behind(body)))
}
