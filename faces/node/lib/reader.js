"use strict"

// A reader of a log: where it stands, in the map of a segment, at a word of it, and how far it may look.
//
// Invariants: the limit comes from the store's words, a position at which a batch ends; a reader that leaves a segment keeps in mind
// where the next entry must begin. Byte positions are kept in units of 4, the words of an Int32Array, so that nothing in a
// loop is anything but a small integer. Nothing here allocates.

const format = require("./format.js")

// Lengths in words.
const FIRST_WORD = format.SEGMENT_HEADER_BYTES / 4
const BATCH_WORDS = format.BATCH_HEADER_BYTES / 4
const TOUCHED_WORDS = format.TOUCHED_BYTES / 4
const FRAME_WORDS = format.FRAME_HEADER_BYTES / 4

const VISIBLE = 2 * format.WORD_VISIBLE
const WRITTEN = 2 * format.WORD_FILE_END
const HIGH = 0x100000000
const EMPTY = new Int32Array(0)
const NOWHERE = new Int32Array(FRAME_WORDS)

class Reader {
  constructor(log) {
    this.log = log
    this.view = log.view
    this.words = EMPTY
    // The entry at hand, the next header, and the end of the run: words. At the first word there is no entry: it stands nowhere.
    this.at = 0
    // Where that entry is read: nowhere, a header of zeros, so that no reader of one has to ask whether there is one.
    this.shown = NOWHERE
    this.ahead = 0
    this.end = 0
    // The last entry that the walk came by in this map, taken or passed over; nothing once it left.
    this.met = 0
    // What a byte of the run lacks of its place in the segment.
    this.shift = 0
    this.segment = null
    this.limitSegment = 0
    this.limitByte = 0
    this.word = VISIBLE
    // Entries need a closer look than at their time: at their offset, or for one of an exact time.
    this.guarded = false
    // Where the next entry begins, where that is known: else less than nothing. It begins as what can only be a float: a field
    // that became one later would split the shapes of cursors, and every loop that met both would be slower for good.
    this.expected = NaN
  }

  readLimit() {
    const { view, word } = this
    const { control } = view
    let low = Atomics.load(control, word)
    let high = control[word + 1]
    if (word !== VISIBLE || high !== view.visibleSegment) {
      do {
        high = Atomics.load(control, word + 1)
        low = Atomics.load(control, word)
      } while (high !== Atomics.load(control, word + 1))
      if (word === VISIBLE) view.visibleSegment = high
    }
    // Otherwise the half that only grows was the same before and after.
    this.limitSegment = high
    this.limitByte = low
  }

  /** How far it may look, as a position. */
  get limit() {
    return this.limitSegment * HIGH + this.limitByte
  }

  position() {
    return this.segment === null ? 0 : this.positionOf(this.ahead)
  }

  /** The position of a word of the run at hand. */
  positionOf(at) {
    return this.segment.number * HIGH + at * 4 + this.shift
  }

  /** Whether everything was seen and nothing was committed since. */
  get isDrained() {
    const { limitSegment, limitByte } = this
    this.readLimit()
    const same = limitSegment === this.limitSegment && limitByte === this.limitByte
    this.limitSegment = limitSegment
    this.limitByte = limitByte
    return same
  }

  standAt(position) {
    const segment = Math.floor(position / HIGH)
    this.stand(segment, position - segment * HIGH)
  }

  /** Stands at a place, or at the first one behind it that there is. */
  stand(number, byte) {
    if (number > this.limitSegment || (number === this.limitSegment && byte > this.limitByte)) {
      number = this.limitSegment
      byte = this.limitByte
    }
    const segment = this.view.segments[this.view.place(number)]
    if (segment === undefined) {
      this.segment = null
      this.words = EMPTY
      this.shown = NOWHERE
      this.at = this.ahead = this.end = this.met = 0
      return
    }
    this.open(segment, segment.number === number ? byte : 0)
  }

  /** Stands at a place of a segment. */
  open(segment, place) {
    this.openAt(segment, segment.map() ? segment.byteOf(place) : place)
  }

  /** Stands at a byte of a segment's map. */
  openAt(segment, byte) {
    this.segment = segment
    this.words = segment.map() ? segment.words : EMPTY
    this.at = 0
    this.shown = NOWHERE
    this.met = 0
    this.ahead = byte < FIRST_WORD * 4 ? FIRST_WORD : byte >>> 2
    this.end = 0
    this.shift = segment.shiftAt(this.ahead * 4)
  }

  /** Goes on with the next there is, by its number: places in the list are others once any reader has noticed a new one. */
  nextSegment() {
    const segment = this.view.segments[this.view.place(this.segment.number + 1)]
    if (segment === undefined) return false
    this.leave()
    this.open(segment, 0)
    return true
  }

  /** The segment it stood in was removed, or there was none: goes on with the next there is. */
  relocate(found) {
    if (found === undefined || (this.segment !== null && found.number === this.segment.number)) return
    this.leave()
    this.open(found, 0)
  }

  /** Keeps in mind where the next entry must begin, before the bytes of the last one are let go of. */
  leave() {
    if (this.met === 0) return
    this.expected = this.offsetEnd()
    this.guarded = true
    this.met = 0
  }

  offsetEnd() {
    const { words, met } = this
    return words[met + 5] * HIGH + (words[met + 4] >>> 0) + words[met]
  }
}

module.exports = { BATCH_WORDS, FRAME_WORDS, HIGH, NOWHERE, Reader, TOUCHED_WORDS, VISIBLE, WRITTEN }
