"use strict"

// What readers share in one isolate: the store's words, and the list of its segments as of a version of it.

const { ThalwegError, native } = require("./error.js")
const { Segment } = require("./segment.js")
const { WORD_DURABLE, WORD_LATENESS, WORD_SEGMENTS } = require("./format.js")

const VERSION = 2 * WORD_SEGMENTS
const CLOSED = 0
const FAILED = 2
const FINISHED = 4

class View {
  constructor(opening) {
    this.opening = opening
    this.control = new Int32Array(native(() => opening.control()))
    this.flags = new Int32Array(native(() => opening.flags()))
    this.segments = []
    this.latest = []
    this.versionLow = -1
    this.versionHigh = -1
    // High half of the visible word when it was last read.
    this.visibleSegment = -1
    // Counts the lists there were, for callers that keep something that depends on one.
    this.generation = 0
    // This isolate closed its opening, though others may not have.
    this.left = false
    this.refresh()
  }

  get hasFailed() {
    return Atomics.load(this.flags, FAILED) !== 0
  }

  /** Nothing moves any more. */
  get isFinished() {
    return Atomics.load(this.flags, FINISHED) !== 0
  }

  /** It was closed here, or for every opening. */
  get isClosed() {
    return this.left || this.flags[CLOSED] !== 0
  }

  check() {
    if (this.isClosed) throw new ThalwegError("CLOSED")
  }

  /** Takes notice of segments that came and went: two loads when none did. To be called after a limit was read. */
  refresh() {
    const low = this.control[VERSION]
    const high = this.control[VERSION + 1]
    if (low !== this.versionLow || high !== this.versionHigh) this.list(low, high)
  }

  list(low, high) {
    this.check()
    const known = new Map(this.segments.map((segment) => [segment.number, segment]))
    const rows = native(() => this.opening.segments())
    this.segments = rows.map((row) => {
      const same = known.get(row.number)
      // One that was written anew has a file of its own.
      return same !== undefined && same.heldBytes === row.heldBytes ? same : new Segment(this.opening, row)
    })
    this.latest = this.segments.map((segment) => segment.latest)
    this.versionLow = low
    this.versionHigh = high
    this.generation++
  }

  /** Place in the list of a segment, or of the next one there is. */
  place(number) {
    const segments = this.segments
    if (segments.length === 0) return 0
    // Numbers follow each other unless something was removed in between.
    const guess = number - segments[0].number
    if (guess >= 0 && guess < segments.length && segments[guess].number === number) return guess
    let [low, high] = [0, segments.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if (segments[middle].number < number) low = middle + 1
      else high = middle
    }
    return low
  }

  /** Place of the last segment that may hold the first entry at or after a time. */
  placeOfTime(time) {
    const latest = this.latest
    let low = 0
    let high = latest.length
    if (high > 0 && latest[high - 1] < time) return high - 1
    while (low < high) {
      const middle = (low + high) >>> 1
      if (latest[middle] < time) low = middle + 1
      else high = middle
    }
    return low > 0 ? low - 1 : 0
  }

  /** How far an entry's time may lie behind an earlier one's. */
  lateness() {
    const low = Atomics.load(this.control, 2 * WORD_LATENESS)
    // A half that is zero afterwards was zero before.
    return this.control[2 * WORD_LATENESS + 1] === 0 ? low >>> 0 : this.number(WORD_LATENESS)
  }

  /** Position up to which everything lasts. */
  durable() {
    return this.number(WORD_DURABLE)
  }

  /** A word that only grows, as a number. */
  number(word) {
    const control = this.control
    let high, low
    do {
      high = Atomics.load(control, 2 * word + 1)
      low = Atomics.load(control, 2 * word)
    } while (high !== Atomics.load(control, 2 * word + 1))
    return (high >>> 0) * 0x100000000 + (low >>> 0)
  }
}

module.exports = { View }
