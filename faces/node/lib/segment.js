"use strict"

// One segment as this isolate sees it: its bytes, how far they may be read, and its time index.
//
// Its bytes are mapped twice. The walk reads `words`, the store's own map, which no user ever holds. What users get are
// views of a map apart: JavaScript cannot keep code from writing to a Uint8Array, and what is written there stays
// there. The page that was written to is a copy from then on and shows nothing that the store appends to it later, so
// views are made only of pages that are full; what lies in the last one is copied.
//
// What is asked of the native side is asked of the file that the bytes are of, whatever has taken its place since; and
// nothing is asked twice: the maps are borrowed once, what this process wrote itself needs no verification, and the
// index is extended only when it fell far behind.
//
// Positions are made of places: the bytes of the segment as it was first written. Those are the bytes of its map, unless
// it was written anew: then `runs` says where what is left of it lies.

const { refuseTransfer } = require("./attached.js")
const { pageBytes } = require("./binding.js")
const format = require("./format.js")
const { badArgument, native } = require("./error.js")

const { INDEX_BLOCK_BYTES, INDEX_ENTRIES, INDEX_NONE, SEGMENT_HEADER_BYTES } = format
// Bytes that may be walked rather than indexed first.
const UNINDEXED_BYTES_MAX = 16 << 10
// Index entries looked at around a guess.
const NEAR = 8
const FIRST = 2 * INDEX_ENTRIES
const EMPTY = new Int32Array(0)
const NO_BYTES = new ArrayBuffer(0)
const PAGE_BYTES = pageBytes()

class Segment {
  constructor(opening, row) {
    this.opening = opening
    this.number = row.number
    this.latest = row.latest
    this.trustedFrom = row.trustedFrom
    this.heldBytes = row.heldBytes
    this.handle = null
    this.words = EMPTY
    this.isMapped = false
    // Place, byte and bytes of each run of batches that is left of it, in order; null where places are bytes.
    this.runs = null
    // Behind this byte the store may still write: a multiple of a page, or the end of it all.
    this.settled = 0
    // The map apart, and how much of it may be lent.
    this.hasFile = true
    this.apart = NO_BYTES
    this.lendable = 0
    // Readable up to here, from the beginning on.
    this.clean = SEGMENT_HEADER_BYTES
    // Where it ends, once it is known to grow no more.
    this.final = 0x7fffffff
    this.index = EMPTY
    this.complete = false
  }

  /** Has a hold on its file; false when the segment is gone. */
  isHeld() {
    if (this.handle === null) this.handle = native(() => this.opening.segment(this.number)) ?? null
    return this.handle !== null
  }

  /** Borrows the bytes; false when the segment is gone. */
  map() {
    if (!this.isMapped) {
      if (!this.isHeld()) return false
      const bytes = native(() => this.handle.bytes())
      // A file that was cut short may end anywhere.
      this.words = new Int32Array(bytes, 0, bytes.byteLength >>> 2)
      this.runs = native(() => this.handle.runs()) ?? null
      this.isMapped = true
    }
    return true
  }

  /** The byte of what stood at a place, or of what came next if that is gone. */
  byteOf(place) {
    const { runs } = this
    if (runs === null) return place
    const run = behind(runs, place, 0)
    if (run === runs.length) return this.batchesEnd()
    return runs[run + 1] + (place > runs[run] ? place - runs[run] : 0)
  }

  /** How far it may be read that is read up to a place: what another thread says may still end within one that was written anew. */
  boundOf(place) {
    return this.runs === null ? place : Math.min(this.byteOf(place), this.batchesEnd())
  }

  /** What a byte of the run around it, or of the next one, lacks of its place. */
  shiftAt(byte) {
    const { runs } = this
    if (runs === null || runs.length === 0) return 0
    const run = Math.min(behind(runs, byte, 1), runs.length - 3)
    return runs[run] - runs[run + 1]
  }

  /** Where the run around a byte ends. */
  runEnd(byte) {
    const { runs } = this
    const run = behind(runs, byte, 1)
    return run === runs.length || runs[run + 1] > byte ? byte : runs[run + 1] + runs[run + 2]
  }

  batchesEnd() {
    const { runs } = this
    const last = runs.length - 3
    return last < 0 ? SEGMENT_HEADER_BYTES : runs[last + 1] + runs[last + 2]
  }

  /** Takes notice of how far it is written for good: in the newest segment, up to the page that a byte lies in. */
  settle(bound, newest) {
    const settled = newest ? bound - (bound % PAGE_BYTES) : this.words.length * 4
    if (settled > this.settled) this.settled = settled
  }

  /** One byte of a payload, read where it lies; counted from its end when the place is negative, undefined where there is none. */
  byte(start, length, place) {
    if (!Number.isInteger(place)) throw badArgument("a place in an entry is a whole number")
    const from = place < 0 ? place + length : place
    if (!(from >= 0 && from < length)) return undefined
    const at = start + from
    return (this.words[at >>> 2] >>> ((at & 3) << 3)) & 0xff
  }

  /** Bytes of a payload, for a user. */
  lend(byte, length) {
    if (byte + length <= this.lendable || this.lendMore(byte + length)) {
      try {
        return new Uint8Array(this.apart, byte, length)
      } catch {
        // Its buffer was detached by the caller that it was lent to.
        this.lendable = 0
        return this.lend(byte, length)
      }
    }
    return new Uint8Array(this.words.buffer, byte, length).slice()
  }

  lendMore(end) {
    if (end > this.settled || !this.hasFile) return false
    if (this.lendable === 0 && !this.mapApart()) return false
    this.lendable = this.settled
    return true
  }

  /** False when there is no file to map, or no store any more to do it: what is lent are copies then. */
  mapApart() {
    try {
      const apart = this.handle.apart()
      this.hasFile = apart !== null && apart !== undefined
      if (this.hasFile) {
        refuseTransfer(apart)
        this.apart = apart
      }
    } catch {
      this.hasFile = false
    }
    return this.hasFile
  }

  /** How far it may be read from a byte on; the bound lies in it when it is the newest. Throws before damage. */
  readable(from, bound, newest) {
    if (newest && from >= this.trustedFrom) return bound
    if (from < this.clean) return bound < this.clean ? bound : this.clean
    if (from >= this.final) return from
    const end = this.isHeld() ? native(() => this.handle.readable(from, bound)) : from
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
      if (!this.isHeld()) return false
      this.index = new Int32Array(native(() => this.handle.index()))
      this.complete = !newest
    } else if (!newest || bound - Atomics.load(this.index, 0) > UNINDEXED_BYTES_MAX) {
      native(() => this.handle.extend())
      this.complete = !newest
    }
    return true
  }
}

/** The first run that ends behind a place or a byte, whichever its column is; the number of all words if none does. */
function behind(runs, at, column) {
  let low = 0
  let high = runs.length / 3
  while (low < high) {
    const middle = (low + high) >>> 1
    if (runs[3 * middle + column] + runs[3 * middle + 2] > at) high = middle
    else low = middle + 1
  }
  return 3 * low
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

/** Where a block's first header stands, read whole: another thread may be storing the same entry again. */
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
