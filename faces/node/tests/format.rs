//! What JavaScript knows of the format is generated here: its constants, and bytes with what the reader of
//! the log finds in them. A difference fails; `cargo xtask faces-format` writes the files anew.

#![allow(clippy::unwrap_used, reason = "a test says by it what must hold")]

use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use thalweg_log::{
    Commit, Config, Cursor, Entry, Fork, LAYOUT, Lifetime, Log, Maps, Options, Query, Start, Store,
};

fn is_as_generated(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("THALWEG_FACES_FORMAT").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{} is not as generated: run `cargo xtask faces-format`", path.display());
}

#[test]
fn constants() {
    let mut text = String::from("\"use strict\"\n\n");
    text.push_str(
        "// Generated from crates/log/src/files/layout.rs by `cargo xtask faces-format`. Do not edit.\n\n",
    );
    for (name, value) in LAYOUT {
        writeln!(text, "exports.{name} = {value}").unwrap();
    }
    is_as_generated("lib/format.js", &text);
}

fn create(store: &Store, name: &[u8], fork: Option<&Fork>) -> Arc<Log> {
    let config = Config { content_type: "a/b".into(), lifetime: Lifetime::Unlimited };
    store.create(name, &config, fork, &Commit { time: 5, ..Commit::default() }, None).unwrap().0
}

/// Times begin here: above 32 bits, as they are in life.
const BASE: u64 = 1_700_000_000_000_000;

/// A log, and tails of it.
type Tailed = (Arc<Log>, Vec<Cursor>);

/// Three logs over several small segments: one whose times go back, one that is closed, and a fork of the
/// first that begins inside an entry. Nothing in it depends on when or where it runs. Each comes with tails
/// that were begun at some moments.
fn store() -> (Store, Vec<Tailed>) {
    let options = Options { segment_bytes_min: 4096, segment_bytes_max: 8192, ..Options::default() };
    let store = Store::memory(options).unwrap();
    let (a, b) = (create(&store, b"a", None), create(&store, b"b", None));
    let mut logs = vec![(a.clone(), Vec::new()), (b.clone(), Vec::new())];
    let begin_tails = |logs: &mut [Tailed]| {
        for (log, tails) in logs {
            tails.push(store.reader(log).follow(&Query::from(Start::Tail)));
        }
    };
    for n in 0..60u64 {
        let payload = vec![n as u8 + 1; 1 + (n as usize * 37) % 200];
        let time = BASE + if n % 7 == 3 { n * 100 - 250 } else { n * 100 };
        let mut transaction = store.transaction(time);
        transaction.append(&a, &payload).unwrap();
        if n % 3 == 0 {
            transaction.append(&b, b"beside").unwrap();
            transaction.append(&a, b"again").unwrap();
        }
        transaction.commit().unwrap();
        store.append(&b, &payload[..1], time + 50).unwrap();
        if n % 16 == 7 {
            begin_tails(&mut logs);
        }
    }
    let fork = Fork { parent: a.clone(), at: 2003, asked: [2003, 0] };
    let c = create(&store, b"c", Some(&fork));
    logs.push((c.clone(), Vec::new()));
    begin_tails(&mut logs);
    store.append_all(&a, &[b"late", b"later"], BASE + 9_000).unwrap();
    begin_tails(&mut logs);
    store.append_all(&c, &[b"own", b"more"], BASE + 8_900).unwrap();
    let version = b.staged().unwrap().version;
    store.commit(&b, version, &Commit { close: true, ..Commit::default() }, None).unwrap();
    (store, logs)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn bytes(store: &Store, number: u32) -> Vec<u8> {
    // What is not there is zero, in the files and here.
    let maps = store.maps();
    let segment = maps.segment(number).unwrap();
    let end = maps.readable(&segment, 64, u32::MAX).unwrap();
    let start = segment.bytes.start().as_ptr();
    // SAFETY: mapped for as long as the store, and final below `end`.
    let mut bytes = unsafe { std::slice::from_raw_parts(start, end as usize) }.to_vec();
    bytes.resize(end as usize + 64, 0);
    bytes
}

fn brief(entry: &Entry<'_>) -> Value {
    json!([entry.time, entry.offset, entry.last, entry.data.len(), entry.data[0]])
}

fn expected(store: &Store, log: &Arc<Log>, query: &Query) -> Vec<Value> {
    store.reader(log).entries(query).map(|entry| brief(&entry.unwrap())).collect()
}

/// Where a tail was begun, and what came.
fn came(mut tail: Cursor) -> Value {
    let (begun, mut entries) = (tail.limit(), Vec::new());
    while let Some(entry) = tail.next().unwrap() {
        entries.push(brief(&entry));
    }
    json!([begun, entries])
}

fn queries() -> Vec<(Value, Query)> {
    let from = |name: &str, at: u64, start: Start, end: Option<u64>| {
        let query = Query { start, end, uncommitted: false };
        match end {
            Some(end) => (json!({ name: at, "end": end }), query),
            None => (json!({ name: at }), query),
        }
    };
    let mut queries = vec![(json!({}), Query::default())];
    for at in [0, 1000, 1050, 1150, 3001, 8_900, 9_999].map(|at| BASE + at) {
        queries.push(from("start", at, Start::Time(at), None));
        queries.push(from("start", at, Start::Time(at), Some(at + 450)));
        queries.push(from("after", at, Start::After(at), None));
        queries.push(from("exact", at, Start::Exact(at), None));
        queries.push(from("exact", at, Start::Exact(at), Some(at + 301)));
    }
    for at in [0, 1, 57, 2002, 2003, 2004, 4100] {
        queries.push(from("offset", at, Start::Offset(at), None));
        queries.push(from("offset", at, Start::Offset(at), Some(3000)));
    }
    queries
}

fn lineage(maps: &Maps, log: &Arc<Log>) -> Vec<Value> {
    let row = |(log, held): (Arc<Log>, thalweg_log::Held)| {
        let cut = (held.cut != u64::MAX).then_some(held.cut);
        let tail = log.staged().unwrap().tail;
        // Where each byte of it is found, as runs of [offset, position].
        let mut places: Vec<(u64, u64)> = Vec::new();
        for offset in 0..=tail {
            let position = maps.position_of(&log, offset);
            if places.last().is_none_or(|(_, last)| *last != position) {
                places.push((offset, position));
            }
        }
        let (low, high) = (held.log as u32, (held.log >> 32) as u32);
        json!({ "idLow": low, "idHigh": high, "from": held.from, "cut": cut, "places": places })
    };
    maps.lineage(log).into_iter().map(row).collect()
}

#[test]
fn vectors() {
    let (store, logs) = store();
    let maps = store.maps();
    let segments: Vec<Value> = maps
        .segments()
        .unwrap()
        .iter()
        .map(|s| json!({ "number": s.number, "latest": s.latest, "bytes": hex(&bytes(&store, s.number)) }))
        .collect();
    let logs: Vec<Value> = logs
        .into_iter()
        .map(|(log, tails)| {
            let queries: Vec<Value> = queries()
                .iter()
                .map(|(asked, query)| json!([asked, expected(&store, &log, query)]))
                .collect();
            let tails: Vec<Value> = tails.into_iter().map(came).collect();
            json!({ "lineage": lineage(&maps, &log), "queries": queries, "tails": tails })
        })
        .collect();
    let visible = maps.visible();
    let lateness = lateness(&maps);
    let vectors = json!({ "visible": visible, "lateness": lateness, "segments": segments, "logs": logs });
    is_as_generated("tests/vectors.json", &format!("{vectors}\n"));
}

fn lateness(maps: &Maps) -> u64 {
    let word = LAYOUT.iter().find(|(name, _)| *name == "WORD_LATENESS").unwrap().1 as usize;
    // SAFETY: a page that stays mapped with the store; nobody writes now.
    unsafe { *maps.control().start().as_ptr().cast::<u64>().add(word) }
}
