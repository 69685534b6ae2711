"use strict"

// Iterators over a query: of plain objects, or of small ones that read a field when it is asked for.

const format = require("./format.js")

const FRAME_BYTES = format.FRAME_HEADER_BYTES
const LAST = format.FLAG_LAST << 8
const HIGH = 0x100000000

/** An entry with everything about it. */
function entry(cursor) {
  const { words, at, skip, segment } = cursor
  return {
    time: (words[at + 7] >>> 0) * HIGH + (words[at + 6] >>> 0),
    offset: words[at + 5] * HIGH + (words[at + 4] >>> 0) + skip,
    last: (words[at + 1] & LAST) !== 0,
    data: segment.lend(at * 4 + FRAME_BYTES + skip, words[at] - skip - cursor.drop),
  }
}

class Entries {
  constructor(cursor) {
    this.cursor = cursor
  }

  next() {
    const { cursor } = this
    return cursor.next() ? { value: entry(cursor), done: false } : { value: undefined, done: true }
  }

  [Symbol.iterator]() {
    return this
  }
}

/** Remembers where it lies, and reads the map when it is asked. */
class LazyEntry {
  constructor(segment, at) {
    this.segment = segment
    this.at = at
  }

  get time() {
    const { words } = this.segment
    return (words[this.at + 7] >>> 0) * HIGH + (words[this.at + 6] >>> 0)
  }

  get offset() {
    const { words } = this.segment
    return words[this.at + 5] * HIGH + (words[this.at + 4] >>> 0)
  }

  get last() {
    return (this.segment.words[this.at + 1] & LAST) !== 0
  }

  get length() {
    return this.segment.words[this.at]
  }

  get data() {
    return this.segment.lend(this.start, this.length)
  }

  /** Where its payload begins. */
  get start() {
    return this.at * 4 + FRAME_BYTES
  }

  byte(place) {
    return this.segment.byte(this.start, this.length, place)
  }

  /** What a plain one says: else it would be all of its segment. */
  toJSON() {
    const { time, offset, last, data } = this
    return { time, offset, last, data }
  }
}

/** A part of an entry: the query begins inside it, or a fork branches off there. */
class LazyPart extends LazyEntry {
  constructor(cursor) {
    super(cursor.segment, cursor.at)
    this.skip = cursor.skip
    this.drop = cursor.drop
  }

  get offset() {
    return super.offset + this.skip
  }

  get length() {
    return super.length - this.skip - this.drop
  }

  get start() {
    return super.start + this.skip
  }
}

class LazyEntries {
  constructor(cursor) {
    this.cursor = cursor
  }

  next() {
    const { cursor } = this
    if (!cursor.next()) return { value: undefined, done: true }
    const isWhole = (cursor.skip | cursor.drop) === 0
    return { value: isWhole ? new LazyEntry(cursor.segment, cursor.at) : new LazyPart(cursor), done: false }
  }

  [Symbol.iterator]() {
    return this
  }
}

module.exports = { Entries, LazyEntries, entry }
