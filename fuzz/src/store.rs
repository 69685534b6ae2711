//! A store whose files somebody changed: it is opened, refused or repaired, and never read past what it
//! holds.
//!
//! The input is a list of edits: which file, where, and what to write there; a last odd byte cuts a file
//! short.

use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;
use thalweg_log::fuzzing::reseal;
use thalweg_log::{Commit, Disk, Durability, Options, Purge, Query, Store, parse, verify};

fn options() -> Options {
    Options {
        durability: Durability::Os,
        segment_bytes_min: 4096,
        segment_bytes_max: 8192,
        ..Options::default()
    }
}

/// The files of a small store with everything in it, the larger ones first.
pub(crate) fn sample() -> &'static [(String, Vec<u8>)] {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(&Disk::Real, directory.path(), options()).unwrap();
        let logs: Vec<_> = ["a", "b", "c"].map(|name| store.log(name.as_bytes()).unwrap()).into();
        for round in 0..90u64 {
            let gone = store.log(b"gone").unwrap();
            store.append(&gone, &[7; 300], 1_000 + round).unwrap();
            let mut transaction = store.transaction(1_000 + round);
            for log in &logs {
                transaction.append(log, &vec![round as u8; 20 + round as usize]).unwrap();
            }
            transaction.commit().unwrap();
        }
        let state = logs[0].staged().unwrap();
        let close = Commit { close: true, time: 2_000, ..Commit::default() };
        store.commit(&logs[0], state.version, &close, None).unwrap();
        // What the others lay among goes, in some segments whole and in the rest between them.
        let gone = store.log(b"gone").unwrap();
        for time in 0..60 {
            store.append(&gone, &[7; 300], 3_000 + time).unwrap();
        }
        store.rotate().unwrap();
        let all = Purge { log: Some(b"gone"), destroy: true, ..Purge::default() };
        store.purge(&all).unwrap();
        store.maintain(4_000).unwrap();
        // What is left is read so much that it is settled.
        for log in (0..40).flat_map(|_| &logs) {
            store.read(log, 0, usize::MAX).unwrap();
        }
        while store.maintain(4_000).unwrap() {}
        assert!(store.stats().settled_bytes > 0, "nothing was settled");
        let segments = store.maps().segments().unwrap();
        assert!(segments.iter().any(|segment| segment.runs().is_some()), "nothing was written anew");
        store.close().unwrap();
        drop(store);
        let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(directory.path())
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
            .collect();
        // What can be done without comes last.
        files.sort_by_cached_key(|(name, _)| (name.starts_with("settled-"), name.clone()));
        files
    })
}

/// A directory with these files.
pub(crate) fn copied(files: &[(String, Vec<u8>)]) -> TempDir {
    // In memory where there is such a place: an input costs no disk.
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    for (name, bytes) in files {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    directory
}

/// Opens, verifies, prints and reads what the edits left.
pub fn opened(data: &[u8]) {
    judge(copied(&edited(data)).path(), true);
}

/// Opens, verifies and prints what edits left that no checksum tells of. What is read of that is another
/// question: checksums stand for what a writer of ours meant.
pub fn resealed(data: &[u8]) {
    let mut files = edited(data);
    files.iter_mut().for_each(|(name, bytes)| reseal(name, bytes));
    judge(copied(&files).path(), false);
}

fn edited(data: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut files = sample().to_vec();
    let (edits, cut) = data.split_at(data.len() - data.len() % 4);
    for edit in edits.chunks_exact(4) {
        let (_, bytes) = &mut files[named(edit[0])];
        let at = usize::from(u16::from_le_bytes([edit[1], edit[2]]));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = edit[3];
        }
    }
    if let [file, rest @ ..] = cut {
        let (_, bytes) = &mut files[named(*file)];
        let keep = rest.first().map_or(0, |part| bytes.len() * usize::from(*part) / 256);
        bytes.truncate(keep);
    }
    files
}

/// Which file a byte names: three of four name one that a store cannot do without.
fn named(byte: u8) -> usize {
    let needed = sample().partition_point(|(name, _)| !name.starts_with("settled-"));
    let rest = sample().len() - needed;
    if byte < 192 { usize::from(byte) % needed } else { needed + usize::from(byte) % rest }
}

fn judge(directory: &Path, reads: bool) {
    let _ = verify(&Disk::Real, directory);
    if let Ok(pieces) = parse(&Disk::Real, directory) {
        pieces.take(10_000).for_each(drop);
    }
    let Ok((store, _)) = Store::open(&Disk::Real, directory, options()) else { return };
    if reads {
        read(&store);
    }
    let _ = store.close();
}

fn read(store: &Store) {
    for log in store.logs() {
        let mut reader = store.reader(&log);
        let mut entries = reader.entries(&Query::default());
        let (mut last, mut damaged) = (0, 0);
        loop {
            match entries.next() {
                Some(Ok(entry)) => {
                    assert!(entry.offset >= last, "an entry comes before the one in front of it");
                    last = entry.offset + entry.data.len() as u64;
                }
                Some(Err(_)) if damaged < 100 => {
                    damaged += 1;
                    entries.resume();
                }
                _ => break,
            }
        }
        drop(entries);
        let mut back = store.reader(&log);
        back.entries_back(&Query::default()).take(1_000).for_each(drop);
        let _ = store.read(&log, 0, 1 << 20);
        let _ = store.append(&log, b"goes on", 3_000);
    }
}
