// The groups of measurements: which pattern, with how many threads, on which side and by which of its ways. The names
// of groups and sides are those of the report (`xtask/src/bench/log/works.rs`).

/** Everything a reader may take up of an entry. */
const ALL = ["times", "lengths", "firsts"]
/** The same where a writer runs beside: an entry's time may be that of a later moment. */
const PLAIN = ["lengths", "firsts"]

/** What our ways take up that make nothing of an entry's data. */
const LENGTHS = ["times", "lengths"]

/** Worker threads that read at once. */
const READERS = [1, 2, 8]

/** The peer as a side, by one of its ways. */
const peer = (way, takes = ALL) => ({ side: "peer", store: "peer", way, takes })
/** Ours as a side. */
const ours = (side, way, takes = ALL) => ({ side, store: "ours", way, takes })

export const GROUPS = [
  {
    group: "cold",
    pattern: "cold",
    threads: [1],
    closed: true,
    sides: [ours("ours", "eager"), peer("scan")],
  },
  {
    group: "scan",
    pattern: "scan",
    threads: READERS,
    sides: [
      ours("eager", "eager"),
      ours("lazy", "lazy", LENGTHS),
      ours("cursor", "moved", LENGTHS),
      ours("floor", "bare", LENGTHS),
      peer("scan"),
      { ...peer("keys", ["times"]), side: "peer-keys" },
    ],
  },
  {
    group: "scan-writer",
    pattern: "scan",
    threads: READERS,
    writer: "paced",
    sides: [ours("lazy", "lazy", ["lengths"]), peer("scan", PLAIN)],
  },
  {
    group: "ranges",
    pattern: "ranges",
    threads: READERS,
    sides: [ours("fresh", "fresh"), ours("cursor", "reused"), peer("ranges")],
  },
  {
    group: "iterators",
    pattern: "iterators",
    threads: [1],
    writer: "paced",
    sides: [ours("ours", "iterate"), peer("iterate")],
  },
  { group: "seek", pattern: "seeks", threads: READERS, sides: [ours("ours", "seeks"), peer("seeks")] },
  {
    group: "polls",
    pattern: "polls",
    threads: READERS,
    writer: "paced",
    sides: [ours("ours", "poll", PLAIN), peer("poll", PLAIN)],
  },
  {
    group: "delivered",
    pattern: "delivered",
    threads: READERS,
    writer: "full speed",
    fresh: true,
    sides: [ours("ours", "poll", PLAIN), peer("poll", PLAIN)],
  },
  { group: "workers", pattern: "awaited", threads: [10], fresh: true, sides: [ours("ours", "append"), peer("append")] },
  { group: "awaited", pattern: "awaited", threads: [1], fresh: true, sides: [ours("ours", "append"), peer("append")] },
  { group: "flight", pattern: "flight", threads: [1], fresh: true, sides: [ours("ours", "append"), peer("append")] },
]
