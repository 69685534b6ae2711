"use strict"

// A place in a log that moves forward, as its user has it: where a query begins, the next entry, and what that entry is.
// Everything that reads is made of it.

const { badArgument, native } = require("./error.js")
const check = require("./arguments.js")
const format = require("./format.js")
const { BATCH_WORDS, FRAME_WORDS, HIGH, TOUCHED_WORDS, VISIBLE, WRITTEN } = require("./reader.js")
const { Walk } = require("./walk.js")

const { BATCH_MAGIC, FLAG_LAST, KIND_DATA } = format
const FRAME_BYTES = format.FRAME_HEADER_BYTES
const LAST = FLAG_LAST << 8
const FIRST = Object.freeze({})

class Cursor extends Walk {
  constructor(log, query, follows, beside) {
    super(log, follows)
    this.begin(query, beside)
  }

  /** Stands where another query begins. */
  seek(query) {
    this.begin(query, undefined)
  }

  /** The same for one that may have one more word, which is its reader's. */
  begin(query = FIRST, beside) {
    const view = this.view
    view.check()
    check.query(query, beside)
    const { word, limitSegment, limitByte } = this
    this.word = query.uncommitted === true ? WRITTEN : VISIBLE
    this.readLimit()
    try {
      view.refresh()
    } catch (error) {
      // It stays where it was, and nothing of what it has not seen may count as seen.
      this.word = word
      this.limitSegment = limitSegment
      this.limitByte = limitByte
      throw error
    }
    this.generation = view.generation
    const { start, end } = query
    this.exact = false
    this.seeks = false
    this.since = 0
    this.until = end === undefined ? Infinity : end
    this.stop = Infinity
    this.guarded = false
    this.from = 0
    this.expected = -1
    this.skip = 0
    this.drop = 0
    this.skippedBytes = 0
    this.passed = 0
    this.ended = null
    this.leapt = true
    this.isOver = false
    this.enter(0)
    if (start !== undefined) this.seekTime(start)
    else this.seekElsewhere(query)
    if (end !== undefined || this.exact) this.relax()
  }

  seekElsewhere(query) {
    if (query.after !== undefined) return this.seekTime(query.after + 1)
    if (query.exact !== undefined) {
      this.exact = true
      this.guarded = true
      return this.seekTime(query.exact)
    }
    if (query.tail === true) return this.enterAt(this.limit)
    if (query.offset !== undefined) return this.seekOffset(query.offset)
    if (query.checkpoint === true) return this.enterAt(native(() => this.view.opening.checkpoint()))
    this.expectFirst()
    this.standAt(this.log.positionOf(0, this.log.lineage[0].from))
  }

  seekOffset(offset) {
    this.from = offset
    this.guarded = true
    const place = this.log.stretchOf(offset)
    this.enter(place)
    this.expectFirst()
    this.standAt(this.log.positionOf(place, offset))
  }

  /** Nothing may be missing in front of the first entry: it begins at the first offset taken, or before it. */
  expectFirst() {
    this.expected = this.from
    this.guarded = true
    this.seeks = this.log.isAlone
  }

  seekTime(time) {
    this.since = time
    const view = this.view
    const segment = view.segments[view.placeOfTime(time)]
    if (segment === undefined || segment.number > this.limitSegment) return this.enterAt(this.limit)
    const newest = segment.number === this.limitSegment
    const byte = segment.seek(time, newest ? this.limitByte : 0x7fffffff, newest)
    this.openAt(segment, byte)
    if (this.log.lineage.length > 1) this.enter(this.log.stretchAt(this.position()))
  }

  /** Moves to the next entry; false when there is none, for now. */
  next() {
    // Small enough to be inlined where it is called: an entry of this log, first in its batch or not.
    const words = this.words
    let at = this.ahead
    if (at < this.end && !this.guarded) {
      if (words[at] === BATCH_MAGIC && (words[at + 11] & 0xffff) === 1) at += BATCH_WORDS + TOUCHED_WORDS
      if ((words[at + 1] & 0xff) === KIND_DATA && words[at + 2] === this.idLow && words[at + 3] === this.idHigh) {
        const time = (words[at + 7] >>> 0) * HIGH + (words[at + 6] >>> 0)
        const ahead = at + FRAME_WORDS + (((words[at] + 7) >>> 3) << 1)
        if (time >= this.since && time < this.until && ahead <= this.end) {
          this.at = at
          this.ahead = ahead
          return true
        }
      }
    }
    return this.walk()
  }

  get time() {
    const { shown, at } = this
    return (shown[at + 7] >>> 0) * HIGH + (shown[at + 6] >>> 0)
  }

  get offset() {
    const { shown, at } = this
    return shown[at + 5] * HIGH + (shown[at + 4] >>> 0) + this.skip
  }

  get length() {
    return this.shown[this.at] - this.skip - this.drop
  }

  get last() {
    return (this.shown[this.at + 1] & LAST) !== 0
  }

  byte(place) {
    return this.at === 0 ? undefined : this.segment.byte(this.start, this.length, place)
  }

  /** Where its payload begins. */
  get start() {
    return this.at * 4 + FRAME_BYTES + this.skip
  }

  get data() {
    if (this.at === 0) throw badArgument("the cursor stands at no entry")
    return this.segment.lend(this.start, this.length)
  }
}

module.exports = { Cursor }
