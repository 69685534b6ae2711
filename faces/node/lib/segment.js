"use strict"

// One segment as this isolate sees it: its bytes, how far they may be read, and its time index.
//
// Nothing here is asked of the native side twice: the maps are borrowed once, what this process wrote itself needs no
// verification, and the index is extended only when it fell far behind.

const format = require("./format.js")
const { native } = require("./error.js")

const { INDEX_BLOCK_BYTES, INDEX_ENTRIES, INDEX_NONE, SEGMENT_HEADER_BYTES } = format
// Bytes that may be walked rather than indexed first.
const UNINDEXED_BYTES_MAX = 16 << 10
// Index entries looked at around a guess.
const NEAR = 8
const FIRST = 2 * INDEX_ENTRIES
const EMPTY = new Int32Array(0)

class Segment {
  constructor(opening, row) {
    this.opening = opening
    this.number = row.number
    this.latest = row.latest
    this.trustedFrom = row.trustedFrom
    this.buffer = null
    this.words = EMPTY
    // Readable up to here, from the beginning on.
    this.clean = SEGMENT_HEADER_BYTES
    // Where it ends, once it is known to grow no more.
    this.final = 0x7fffffff
    this.index = EMPTY
    this.complete = false
  }

  /** Borrows the bytes; false when the segment is gone. */
  map() {
    if (this.buffer === null) {
      const buffer = native(() => this.opening.bytes(this.number))
      if (buffer === null || buffer === undefined) return false
      this.buffer = buffer
      this.words = new Int32Array(buffer)
    }
    return true
  }

  /** How far it may be read from a byte on; the bound lies in it when it is the newest. Throws before damage. */
  readable(from, bound, newest) {
    if (newest && from >= this.trustedFrom) return bound
    if (from < this.clean) return bound < this.clean ? bound : this.clean
    if (from >= this.final) return from
    const end = native(() => this.opening.readable(this.number, from, bound))
    if (end <= from) {
      if (!newest) this.final = from
      return from
    }
    if (from <= this.clean && end > this.clean) this.clean = end
    return end
  }

  /** Byte from which to look for the first entry at or after a time: before it every entry is older. */
  seek(time, bound, newest) {
    if (!this.isIndexed(bound, newest)) return SEGMENT_HEADER_BYTES
    const index = this.index
    const blocks = this.complete ? index[1] : Atomics.load(index, 1)
    if (blocks === 0) return SEGMENT_HEADER_BYTES
    const last = blocks - 1
    // The first key speaks of earlier segments, of which there may be none.
    const first = last > 0 ? 1 : 0
    const lowest = key(index, first)
    if (lowest >= time) return SEGMENT_HEADER_BYTES
    let low = last
    const highest = key(index, last)
    if (highest >= time) {
      low = search(index, last, time, first + ((((time - lowest) / (highest - lowest)) * (last - first)) | 0))
    }
    return start(index, low, time)
  }

  isIndexed(bound, newest) {
    if (this.complete) return true
    if (this.index === EMPTY) {
      const index = native(() => this.opening.index(this.number))
      if (index === null || index === undefined) return false
      this.index = new Int32Array(index)
      this.complete = !newest
    } else if (!newest || bound - Atomics.load(this.index, 0) > UNINDEXED_BYTES_MAX) {
      native(() => this.opening.extend(this.number))
      this.complete = !newest
    }
    return true
  }
}

/** The largest time before the first start in a block. */
function key(index, block) {
  const at = FIRST + 2 * block
  return (index[at + 1] >>> 0) * 0x1000000 + (index[at] >>> 8)
}

/** The last block with a key below the time; the first one's is, the last one's is not. */
function search(index, last, time, guess) {
  const count = last + 1 < NEAR ? last + 1 : NEAR
  let base = guess - (NEAR >> 1)
  if (base > last + 1 - count) base = last + 1 - count
  if (base < 0) base = 0
  let below = 0
  for (let block = base; block < base + count; block++) if (key(index, block) < time) below++
  if (below > 0 && below < count && key(index, base + below - 1) < time) return base + below - 1
  let low = below === count ? base + count - 1 : 0
  let high = below === 0 ? base : last
  while (high - low > 1) {
    const middle = (low + high) >>> 1
    if (key(index, middle) < time) low = middle
    else high = middle
  }
  return low
}

/** Where a block's first header stands, read whole: somebody may be storing the same entry again. */
function start(index, block, time) {
  const at = FIRST + 2 * block
  let high, low
  do {
    high = index[at + 1]
    low = Atomics.load(index, at)
  } while (high !== index[at + 1])
  const begins = low & 0xff
  if (begins === INDEX_NONE || (high >>> 0) * 0x1000000 + (low >>> 8) >= time) return SEGMENT_HEADER_BYTES
  return block * INDEX_BLOCK_BYTES + begins * 8
}

module.exports = { Segment }
