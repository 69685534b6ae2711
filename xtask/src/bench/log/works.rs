//! The works of `bench log`, through each language, and what ratio to the peer each must reach. A work is a
//! line in the report; which samples it is made of is said by the group and the sides that the measuring
//! programs print.

/// One line of the report, for each number of threads it is measured with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// The samples' group.
    pub(crate) group: &'static str,
    /// Readers or writers at once.
    pub(crate) threads: &'static [u32],
    /// Which of our sides: one language may have several ways to read.
    pub(crate) ours: &'static str,
    /// Which side it is compared with.
    pub(crate) against: &'static str,
    /// What the median ratio must reach.
    pub(crate) bar: Option<f64>,
    /// What is done; `{n}` stands for the entries of the large store.
    pub(crate) text: &'static str,
    /// What a thread is, if their number is worth a word.
    pub(crate) thread: &'static str,
    pub(crate) unit: &'static str,
    /// With a fixed number of turns every side does exactly the same.
    pub(crate) countable: bool,
    /// Opened anew in every turn: nothing of it is mapped or verified.
    pub(crate) cold: bool,
    pub(crate) note: &'static str,
}

/// What the peer's side is called in samples.
pub(crate) const PEER: &str = "peer";
/// The peer, storing into its map.
pub(crate) const PEER_MAP: &str = "peer-map";
/// The peer, reading keys without values.
pub(crate) const PEER_KEYS: &str = "peer-keys";
/// The peer, reading keys and the lengths of values.
pub(crate) const PEER_PLAIN: &str = "peer-plain";
pub(crate) const FLOOR: &str = "floor";

const READERS: &[u32] = &[1, 2, 8];

/// A work of readers, compared with the peer.
const fn reading(group: &'static str, bar: f64, text: &'static str, unit: &'static str) -> Work {
    Work {
        group,
        threads: READERS,
        ours: "ours",
        against: PEER,
        bar: Some(bar),
        text,
        thread: "reader",
        unit,
        countable: true,
        cold: false,
        note: "",
    }
}

const fn beside_a_writer(group: &'static str, bar: f64, text: &'static str, unit: &'static str) -> Work {
    Work { countable: false, ..reading(group, bar, text, unit) }
}

const fn single(group: &'static str, bar: f64, text: &'static str, unit: &'static str) -> Work {
    Work { threads: &[1], thread: "", ..reading(group, bar, text, unit) }
}

/// Opening, reading everything and closing, over and over.
const fn opening(text: &'static str) -> Work {
    Work { bar: None, cold: true, note: OPENED, ..single("cold", 0.0, text, ENTRIES) }
}

const ENTRIES: &str = "entries/s";
const QUERIES: &str = "queries/s";
const READS: &str = "reads/s";
const POLLS: &str = "polls/s";

/// One of the ways to read through Node.js, by worker threads.
const fn way(
    group: &'static str,
    ours: &'static str,
    bar: f64,
    text: &'static str,
    unit: &'static str,
) -> Work {
    Work { ours, thread: "worker", ..reading(group, bar, text, unit) }
}

/// The same by so many that a bar speaks of.
const fn crowd(
    group: &'static str,
    ours: &'static str,
    bar: f64,
    text: &'static str,
    unit: &'static str,
) -> Work {
    Work { threads: &[8], ..way(group, ours, bar, text, unit) }
}

/// The same by fewer, of whom no bar speaks.
const fn few(group: &'static str, ours: &'static str, text: &'static str, unit: &'static str) -> Work {
    Work { threads: &[1, 2], bar: None, ..way(group, ours, 0.0, text, unit) }
}

/// A pause of the writer's of a millisecond after each 50 entries.
const PACED: &str = "the writer adds 50 entries each millisecond";
const FULL_SPEED: &str = "the writer adds 50 entries per transaction and never pauses";
const EACH: &str = "each entry is a transaction of its own; ours takes 50 in a call, the peer commits each";
const LAZY: &str = "ours takes each entry's time, offset and length, and makes nothing of its data";
const MOVED: &str =
    "ours takes each entry's time, offset and length from one object, and makes nothing of its data";
const PLACE: &str = "ours is handed what it said of the entry before, the peer its key";
const OPENED: &str = "each turn opens the store to read it, reads and (ours) verifies everything, and closes it; only the system's cache of files is warm";
const MAP: &str = "the peer stores into its map (MDB_WRITEMAP), which its users leave off";

/// Through Rust.
pub(crate) const NATIVE: &[Work] = &[
    opening("open and scan {n} entries"),
    reading("scan", 3.0, "scan of {n} entries", ENTRIES),
    reading("scan-hot", 3.0, "scan of 10,000 entries", ENTRIES),
    Work {
        note: PACED,
        ..beside_a_writer("scan-writer", 3.5, "scan of {n} entries beside a writer", ENTRIES)
    },
    reading("ranges", 8.0, "1,000 short ranges of {n}", QUERIES),
    reading("ranges-hot", 8.0, "1,000 short ranges of 10,000", QUERIES),
    Work { note: PACED, ..single("iterators", 4.0, "100 open iterators beside a writer", ENTRIES) },
    Work { threads: &[10], ..single("workers", 20.0, "append one by one, 10 threads, os", ENTRIES) },
    Work {
        threads: &[10],
        against: PEER_MAP,
        bar: None,
        note: MAP,
        ..single("workers", 0.0, "append one by one, 10 threads, os; peer in its map", ENTRIES)
    },
    Work { note: PACED, ..beside_a_writer("polls", 4.0, "cursor behind a writer: polls", POLLS) },
    Work { note: EACH, ..beside_a_writer("delivered", 40.0, "cursor behind a writer: delivered", ENTRIES) },
    Work {
        against: PEER_MAP,
        bar: None,
        note: MAP,
        ..beside_a_writer("delivered", 0.0, "cursor behind a writer: delivered; peer in its map", ENTRIES)
    },
    Work {
        bar: None,
        note: FULL_SPEED,
        ..beside_a_writer(
            "delivered-together",
            0.0,
            "cursor behind a writer: delivered, 50 per transaction",
            ENTRIES,
        )
    },
    Work { note: PLACE, ..reading("place", 8.0, "random position read of {n}", READS) },
    Work { note: PLACE, ..reading("place-small", 8.0, "random position read of 1,000", READS) },
    Work { bar: None, ..reading("seek", 0.0, "first entry after a random time, of {n}", READS) },
    Work { bar: None, ..reading("seek-small", 0.0, "first entry after a random time, of 1,000", READS) },
    single("append", 20.0, "append one by one, os", ENTRIES),
    Work {
        against: PEER_MAP,
        bar: None,
        note: MAP,
        ..single("append", 0.0, "append one by one, os; peer in its map", ENTRIES)
    },
    Work {
        against: FLOOR,
        note: "compared with one write and one fdatasync of as many bytes",
        ..single("append-sync", 0.9, "append 100 per transaction, sync, to the floor", ENTRIES)
    },
    Work {
        bar: None,
        ..single("append-sync", 0.0, "append 100 per transaction, sync, to the peer", ENTRIES)
    },
    Work {
        note: "compared with a reader in the writer's process",
        ..single("neighbour", 0.909, "scan of {n} entries in another process", ENTRIES)
    },
];

/// Through Node.js, by worker threads. For scans the bars speak of eight.
pub(crate) const NODE: &[Work] = &[
    opening("open and scan {n} entries, eager"),
    few("scan", "eager", "scan of {n} entries, eager", ENTRIES),
    crowd("scan", "eager", 10.0, "scan of {n} entries, eager", ENTRIES),
    Work { note: LAZY, ..few("scan", "lazy", "scan of {n} entries, lazy", ENTRIES) },
    Work { note: LAZY, ..crowd("scan", "lazy", 40.0, "scan of {n} entries, lazy", ENTRIES) },
    Work {
        against: PEER_KEYS,
        bar: None,
        note: "the peer reads its keys and no values",
        ..crowd("scan", "lazy", 0.0, "scan of {n} entries, lazy; peer's keys only", ENTRIES)
    },
    Work { note: MOVED, ..few("scan", "cursor", "scan of {n} entries, cursor", ENTRIES) },
    Work { note: MOVED, ..crowd("scan", "cursor", 100.0, "scan of {n} entries, cursor", ENTRIES) },
    Work {
        note: PACED,
        countable: false,
        ..few("scan-writer", "lazy", "scan of {n} entries beside a writer, lazy", ENTRIES)
    },
    Work {
        note: PACED,
        countable: false,
        ..crowd("scan-writer", "lazy", 40.0, "scan of {n} entries beside a writer, lazy", ENTRIES)
    },
    way("ranges", "fresh", 4.0, "1,000 short ranges of {n}, fresh lazy iterators, a byte of each", QUERIES),
    way("ranges", "cursor", 8.0, "1,000 short ranges of {n}, one cursor, a byte of each", QUERIES),
    Work {
        note: PACED,
        ..single("iterators", 40.0, "100 open lazy iterators beside a writer, a byte of each", ENTRIES)
    },
    Work { threads: &[10], ..single("workers", 10.0, "append one by one, awaited, 10 threads, os", ENTRIES) },
    Work {
        countable: false,
        note: PACED,
        ..way("polls", "ours", 3.0, "cursor behind a writer: polls, a byte of each", POLLS)
    },
    Work {
        countable: false,
        note: FULL_SPEED,
        ..way("delivered", "ours", 20.0, "cursor behind a writer: delivered, a byte of each", ENTRIES)
    },
    way("seek", "ours", 5.0, "random position read of {n}, a byte of each", READS),
    single("awaited", 20.0, "append one by one, awaited, os", ENTRIES),
    single("flight", 2.0, "append, 100 in flight, os", ENTRIES),
];

/// Through Python: one thread, as one at a time runs anyway.
pub(crate) const PYTHON: &[Work] = &[
    opening("open and scan {n} entries, iterator"),
    Work {
        ours: "batch",
        against: PEER_PLAIN,
        note: "times and lengths; ours sums arrays, with numpy",
        ..single("scan", 50.0, "scan of {n} entries, batches", ENTRIES)
    },
    Work {
        ours: "payloads",
        bar: None,
        note: "times, lengths and first bytes; ours sums arrays, with numpy",
        ..single("scan", 0.0, "scan of {n} entries, batches and a byte of each payload", ENTRIES)
    },
    Work { ours: "iterator", ..single("scan", 2.0, "scan of {n} entries, iterator", ENTRIES) },
    Work {
        ours: "batch",
        against: PEER_PLAIN,
        countable: false,
        note: PACED,
        ..single("scan-writer", 40.0, "scan of {n} entries beside a writer, batches", ENTRIES)
    },
    single("ranges", 2.0, "1,000 short ranges of {n}", QUERIES),
    Work { countable: false, note: PACED, ..single("polls", 2.0, "cursor behind a writer: polls", POLLS) },
    Work {
        countable: false,
        note: EACH,
        ..single("delivered", 2.0, "cursor behind a writer: delivered", ENTRIES)
    },
    Work {
        countable: false,
        bar: None,
        note: FULL_SPEED,
        ..single("delivered-together", 0.0, "cursor behind a writer: delivered, 50 per transaction", ENTRIES)
    },
    single("seek", 2.0, "random position read of {n}", READS),
    single("append", 5.0, "append one by one, os", ENTRIES),
];

/// Groups in which eight readers must not cost each other more than they do on the floor.
pub(crate) const INDEPENDENT: &[(&str, &str)] = &[
    ("scan", "scan of {n} entries: 8 readers to 1, beside the floor"),
    ("ranges", "1,000 short ranges of {n}: 8 readers to 1, beside the floor"),
];
/// What the ratio of ratios must reach.
pub(crate) const INDEPENDENT_BAR: f64 = 0.95;
