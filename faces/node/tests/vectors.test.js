"use strict"

// The walk against what the reader of the log found in the same bytes, with nothing native in between.

const assert = require("node:assert/strict")
const test = require("node:test")
const { join } = require("node:path")
const vectors = require("./vectors.json")

const lib = join(process.env.THALWEG_PACKAGE ?? join(__dirname, ".."), "lib")
const { Cursor } = require(join(lib, "cursor.js"))
const { Entries, LazyEntries } = require(join(lib, "entries.js"))
const format = require(join(lib, "format.js"))
const { Log } = require(join(lib, "log.js"))
const { View } = require(join(lib, "view.js"))

const HIGH = 2 ** 32

/** What the native side would answer. */
class Opening {
  constructor() {
    this.segmentRows = vectors.segments.map(({ number, latest }) => ({ number, latest, trustedFrom: 64 }))
    this.verified = []
  }

  control() {
    const words = new BigUint64Array(512)
    words[format.WORD_VISIBLE] = words[format.WORD_FILE_END] = BigInt(vectors.visible)
    words[format.WORD_LATENESS] = BigInt(vectors.lateness)
    return words.buffer
  }

  flags() {
    return new ArrayBuffer(64)
  }

  segments() {
    return this.segmentRows
  }

  bytes(number) {
    const { bytes } = vectors.segments.find((segment) => segment.number === number)
    return Uint8Array.from(Buffer.from(bytes, "hex")).buffer
  }

  segment(number) {
    return {
      bytes: () => this.bytes(number),
      runs: () => null,
      readable: (from, to) => {
        this.verified.push(number)
        // A MiB at a time, says the other side; here half of what is left, where a batch ends.
        return Math.min(to, this.bytes(number).byteLength - 64)
      },
      // Without blocks: a search begins at the beginning.
      index: () => new ArrayBuffer(8),
      extend: () => {},
    }
  }
}

function handle(lineage) {
  const positionOf = (stretch, offset) => {
    const places = lineage[stretch].places.filter(([from]) => from <= offset)
    return places.at(-1)[1]
  }
  return {
    lineage: () => lineage.map((held) => ({ ...held, cut: held.cut ?? Infinity })),
    positionOf,
    positionBehind: (stretch, position) => position,
    holdsBehind: (stretch, position) => {
      const { cut, places } = lineage[stretch]
      return places.some(([offset], n) => offset < cut && (places[n + 1]?.[1] ?? Infinity) > position)
    },
    isPurged: () => false,
    ended: () => null,
  }
}

const brief = (entry) => [entry.time, entry.offset, entry.last, entry.data.length, entry.data[0]]

for (const [n, { lineage, queries }] of vectors.logs.entries()) {
  test(`log ${n} reads as the log's own reader reads it`, () => {
    const view = new View(new Opening())
    const log = new Log({ view, waits: null, staged: new Set() }, "log", handle(lineage))
    assert.ok(queries.length > 40)
    for (const [query, expected] of queries) {
      const says = JSON.stringify(query)
      assert.deepEqual([...new Entries(new Cursor(log, query, false))].map(brief), expected, says)
      assert.deepEqual([...new LazyEntries(new Cursor(log, query, false))].map(brief), expected, says)
    }
  })
}

const setVisible = (view, position) => {
  new BigUint64Array(view.control.buffer)[format.WORD_VISIBLE] = BigInt(position)
}

for (const [n, { lineage, tails }] of vectors.logs.entries()) {
  test(`a tail of log ${n}, and what its checkpoint does not cover, begin where they begin for the log's own reader`, () => {
    const opening = new Opening()
    const view = new View(opening)
    const log = new Log({ view, waits: null, staged: new Set() }, "log", handle(lineage))
    assert.ok(tails.length > 1)
    for (const [position, expected] of tails) {
      setVisible(view, position)
      const cursor = new Cursor(log, { tail: true }, true)
      assert.equal(cursor.next(), false)
      setVisible(view, vectors.visible)
      const found = []
      while (cursor.next()) found.push(brief(cursor))
      assert.deepEqual(found, expected, `behind ${position}`)
      opening.checkpoint = () => position
      assert.deepEqual([...new Entries(new Cursor(log, { checkpoint: true }, false))].map(brief), expected)
    }
  })
}

/** The same bytes with another number for a log, in every header of a frame and every list of what a batch touches. */
function renumbered(bytes, from, to) {
  const view = new DataView(bytes)
  const renumber = (at) => {
    if (view.getBigUint64(at, true) !== from) return 0
    view.setBigUint64(at, to, true)
    return 1
  }
  let [at, count] = [64, 0]
  while (at + 8 <= bytes.byteLength && view.getBigUint64(at, true) !== 0n) {
    if (view.getUint32(at, true) === format.BATCH_MAGIC) {
      const touched = view.getUint16(at + 44, true)
      at += format.BATCH_HEADER_BYTES
      for (let n = 0; n < touched; n += 1, at += format.TOUCHED_BYTES) count += renumber(at)
    } else {
      count += renumber(at + 8)
      at += format.FRAME_HEADER_BYTES + Math.ceil(view.getUint32(at, true) / 8) * 8
    }
  }
  return [bytes, count]
}

test("logs whose numbers differ only above 32 bits are not taken for each other", () => {
  let renumberings = 0
  class Renumbered extends Opening {
    bytes(number) {
      const [bytes, count] = renumbered(super.bytes(number), 2n, BigInt(HIGH) + 1n)
      renumberings += count
      return bytes
    }
  }
  const view = new View(new Renumbered())
  for (const [{ lineage, queries }, high] of [[vectors.logs[0], 0], [vectors.logs[1], 1]]) {
    const own = [{ ...lineage[0], idLow: 1, idHigh: high }]
    const log = new Log({ view, waits: null, staged: new Set() }, "log", handle(own))
    for (const [query, expected] of queries) {
      assert.deepEqual([...new Entries(new Cursor(log, query, false))].map(brief), expected, JSON.stringify(query))
    }
  }
  assert.ok(renumberings > 100)
})

test("the limit is where reading ends, wherever it lies", () => {
  const opening = new Opening()
  const view = new View(opening)
  const log = new Log({ view, waits: null, staged: new Set() }, "log", handle(vectors.logs[0].lineage))
  const all = vectors.logs[0].queries[0][1]
  const ends = new Set()
  for (const [offset, position] of vectors.logs[0].lineage[0].places) {
    setVisible(view, position)
    const seen = [...log.query()].map(brief)
    assert.deepEqual(seen, all.slice(0, seen.length))
    const end = seen.length === 0 ? 0 : seen.at(-1)[1] + seen.at(-1)[3]
    assert.equal(end, offset, "everything below the limit and nothing behind it")
    ends.add(end)
    assert.equal(view.visibleSegment, Math.floor(position / HIGH))
  }
  assert.ok(ends.size > 30)
})

for (const [name, lookedBack] of [["it looks back first", false], ["another looked back before it", true]]) {
  for (const follows of [false, true]) {
    test(`a ${follows ? "cursor" : "query"} in what a fork inherits goes on with the fork's own when that is trimmed and ${name}`, () => {
      const { lineage, queries } = vectors.logs[2]
      const view = new View(new Opening())
      const held = [...lineage]
      const double = { ...handle(held), lineage: () => handle(held).lineage(), isPurged: (below) => below <= 2003 }
      const log = new Log({ view, waits: null, staged: new Set() }, "log", double)
      const cursor = new Cursor(log, {}, follows)
      assert.ok(cursor.next())
      held.shift()
      new BigUint64Array(view.control.buffer)[format.WORD_SEGMENTS] += 1n
      view.refresh()
      if (lookedBack) log.held(0)
      const offsets = []
      let read = 1
      while (cursor.next()) {
        offsets.push(cursor.offset)
        if (cursor.offset < 2003) read += cursor.length
      }
      assert.deepEqual(offsets.slice(-2), queries[0][1].slice(-2).map(([, offset]) => offset))
      assert.equal(read + cursor.skippedBytes, 2003, "what it did not read, it says")
    })
  }
}
