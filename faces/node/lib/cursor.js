"use strict"

// A place in a log that moves forward: the walk over mapped bytes, and everything that reads is made of it.
//
// Invariants: no byte at or behind `end` is looked at, and `end` comes from the store's words or from the native
// side; a walk never passes its limit, a position at which a batch ends; an entry that is missing is noticed where
// bytes were left out, because each must begin where the last one ended. Byte positions are kept in units of 4, the
// words of an Int32Array, so that nothing in the loop is anything but a small integer. Nothing here allocates.

const { ThalwegError, native } = require("./error.js")
const check = require("./arguments.js")
const format = require("./format.js")

const { BATCH_MAGIC, FLAG_LAST, KIND_CLOSE, KIND_DATA, KIND_DELETE } = format
const BATCH_WORDS = format.BATCH_HEADER_BYTES / 4
const TOUCHED_WORDS = format.TOUCHED_BYTES / 4
const FRAME_WORDS = format.FRAME_HEADER_BYTES / 4
const FRAME_BYTES = format.FRAME_HEADER_BYTES
const FIRST_WORD = format.SEGMENT_HEADER_BYTES / 4
const VISIBLE = 2 * format.WORD_VISIBLE
const WRITTEN = 2 * format.WORD_WRITTEN
const LAST = FLAG_LAST << 8
const HIGH = 0x100000000
// After so many words of other logs it pays to ask where this one goes on.
const FOREIGN_WORDS_MAX = 64 << 10
const EMPTY = new Int32Array(0)
const FIRST = Object.freeze({})

// What an entry is to a query, and what a walk came to.
const TAKEN = -1
const PASSED = -2
const END = 0
const BLANK = 1
const OVER = 2
const CUT = 3
const FOREIGN = 4
const CLOSED = 5
const DELETED = 6

class Cursor {
  constructor(log, query, follows) {
    this.log = log
    this.view = log.view
    // Goes on with what is committed after it came to the end.
    this.follows = follows
    this.words = EMPTY
    // The entry at hand, the next header, and the end of the run: words.
    this.at = 0
    this.ahead = 0
    this.end = 0
    // What a byte of the run lacks of its place in the segment.
    this.shift = 0
    this.idLow = 0
    this.idHigh = 0
    // Entries need a closer look than at their time: at their offset, or for one of an exact time.
    this.guarded = false
    this.exact = false
    // What holds the offset that was sought was not met yet.
    this.seeks = false
    // These begin as what can only be a float: a field that became one later would split the shapes of cursors, and every
    // loop that met both would be slower for good.
    this.since = -0
    this.until = Infinity
    this.stop = Infinity
    this.from = -0
    this.cut = Infinity
    this.expected = NaN
    // Payload bytes of the entry at hand that are left out in front and behind.
    this.skip = 0
    this.drop = 0
    this.segment = null
    this.limitSegment = 0
    this.limitByte = 0
    this.word = VISIBLE
    this.stretch = 0
    this.generation = 0
    this.passed = 0
    this.skipped = 0
    this.ended = null
    // Something may lie in front of it that it did not come by, since it last asked whether the log is over.
    this.leapt = true
    this.seek(query)
  }

  /** Stands where another query begins. */
  seek(query = FIRST) {
    const view = this.view
    view.check()
    check.query(query)
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
    this.skipped = 0
    this.passed = 0
    this.ended = null
    this.leapt = true
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

  /** Stands at a position, whoever's entries are those behind it. */
  enterAt(position) {
    if (position > this.limit) position = this.limit
    if (this.log.lineage.length > 1) this.enter(this.log.stretchAt(position))
    this.standAt(position)
  }

  /** Takes the entries of one of the logs that hold what this one does. */
  enter(stretch) {
    const held = this.log.held(stretch)
    this.stretch = stretch
    this.idLow = held.idLow
    this.idHigh = held.idHigh
    this.cut = held.cut
    if (held.from > this.from) this.from = held.from
    if (held.cut !== Infinity || this.from > 0) this.guarded = true
  }

  /** Entries may lie further back in time than was known. */
  relax() {
    const sought = this.exact && this.since < this.until ? this.since + 1 : this.until
    this.stop = sought === Infinity ? Infinity : sought + this.view.lateness()
  }

  /** Whether times go further back by now than they did when the query was found to be over. */
  isLate() {
    const { stop } = this
    this.relax()
    return this.stop > stop
  }

  /** Moves to the next entry; false when there is none, for now. */
  next() {
    // Small enough to be inlined where it is called: an entry of this log, first in its batch or not.
    const words = this.words
    let at = this.ahead
    if (at < this.end && !this.guarded) {
      if (words[at] === BATCH_MAGIC && (words[at + 11] & 0xffff) === 1) at += BATCH_WORDS + TOUCHED_WORDS
      if ((words[at + 1] & 0xff) === KIND_DATA && words[at + 2] === this.idLow && words[at + 3] === this.idHigh) {
        const time = words[at + 7] * HIGH + (words[at + 6] >>> 0)
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

  /** The same for whatever stands here. */
  walk() {
    for (;;) {
      const { words, idLow, idHigh, end } = this
      let ahead = this.ahead
      let step = END
      while (ahead < end) {
        const at = ahead
        const length = words[at]
        if (length === BATCH_MAGIC) {
          const touched = words[at + 11] & 0xffff
          if (touched !== 1 || (words[at + BATCH_WORDS] === idLow && words[at + BATCH_WORDS + 1] === idHigh)) {
            ahead = at + BATCH_WORDS + touched * TOUCHED_WORDS
            continue
          }
          const foreign = words[at + 1] >>> 2
          ahead = at + foreign
          if ((this.passed += foreign) <= FOREIGN_WORDS_MAX) continue
          step = FOREIGN
          break
        }
        ahead = at + FRAME_WORDS + (((length + 7) >>> 3) << 1)
        if ((words[at + 1] & 0xff) !== KIND_DATA || words[at + 2] !== idLow || words[at + 3] !== idHigh) {
          if ((step = this.other(at)) === END) continue
          ahead = at
          break
        }
        this.passed = 0
        if (ahead > end) {
          // Not even its header is there, or a part of the rest.
          if (at + FRAME_WORDS <= end) this.torn(at)
          ahead = at
          break
        }
        const time = words[at + 7] * HIGH + (words[at + 6] >>> 0)
        if (this.guarded) {
          const verdict = this.judge(at, length, time)
          if (verdict === PASSED) continue
          if (verdict !== TAKEN) {
            step = verdict
            ahead = at
            break
          }
        } else if (time < this.since || time >= this.until) {
          this.at = at
          if (time < this.stop) continue
          step = OVER
          ahead = at
          break
        }
        this.at = at
        this.ahead = ahead
        return true
      }
      this.ahead = ahead
      if (this.ended !== null || !this.turn(step)) return false
    }
  }

  /** What is no entry of this log: what it means for the walk. */
  other(at) {
    const words = this.words
    if (words[at] === 0 && words[at + 1] === 0) return BLANK
    if (words[at + 2] !== this.idLow || words[at + 3] !== this.idHigh) return END
    const kind = words[at + 1] & 0xff
    return kind === KIND_DELETE ? DELETED : kind === KIND_CLOSE ? CLOSED : END
  }

  /** A closer look at an entry: TAKEN, PASSED, or what ends the walk. */
  judge(at, length, time) {
    const words = this.words
    const offset = words[at + 5] * HIGH + (words[at + 4] >>> 0)
    const end = offset + length
    if (this.expected >= 0 && offset > this.expected) this.missing(this.expected, offset)
    this.expected = -1
    if (offset >= this.cut) return CUT
    this.at = at
    if (this.exact && time === this.since && end > this.from) {
      // From here on entries of any time are taken.
      this.exact = false
      this.since = 0
      this.relax()
    }
    if (this.exact || time < this.since || time >= this.until || end <= this.from) {
      return time >= this.stop ? OVER : PASSED
    }
    if (this.seeks) this.learn(offset, at)
    this.skip = offset < this.from ? this.from - offset : 0
    this.drop = end > this.cut ? end - this.cut : 0
    // The one behind it is an entry like any other.
    if (this.skip === 0) this.from = 0
    this.guarded = this.from > 0 || this.cut !== Infinity
    return TAKEN
  }

  /** The first entry of those that were sought by their offset: whoever seeks it again, or one near it, begins here. */
  learn(offset, at) {
    this.seeks = false
    const position = this.positionOf(at)
    this.log.places.note(Math.max(this.from, offset), offset, position, this.generation)
  }

  /** Entries are missing in front of this one: purged, or damaged. */
  missing(from, to) {
    this.expected = -1
    if (native(() => this.log.handle.isPurged(to))) {
      this.skipped += to - from
      return
    }
    this.damaged(this.ahead, `entries are missing between offsets ${from} and ${to}`)
  }

  /** An entry reaches behind what may be read: whoever says how far that is says so of a place within a batch. */
  torn(at) {
    this.expected = -1
    this.ahead = at
    this.damaged(at, "an entry reaches behind the end of what may be read")
  }

  damaged(at, message) {
    this.ended = "damaged"
    // Nothing of the run at hand is taken any more.
    this.end = 0
    const position = this.positionOf(at)
    throw new ThalwegError("DAMAGED", message, { from: position, to: position })
  }

  /** The loop ran into something: finds more to walk, or says that there is none. */
  turn(step) {
    this.view.check()
    if (this.cut !== Infinity) step = this.inherited(step)
    switch (step) {
      case CUT:
        return this.nextStretch() && (this.run() || this.catchUp())
      case BLANK:
        if (this.segment !== null && this.segment.number < this.limitSegment && this.nextSegment()) break
        return this.catchUp()
      case FOREIGN:
        this.passed = 0
        this.leapt = true
        if (this.cut !== Infinity && this.settle()) break
        this.leap(native(() => this.log.handle.positionBehind(this.stretch, this.position())))
        break
      case OVER:
        // Later entries may still be wanted by another query, and by this one if times go further back by now.
        return this.follows && this.isLate()
      case CLOSED:
        this.ended = "closed"
        return false
      case DELETED:
        this.ended = "deleted"
        throw new ThalwegError("DELETED")
    }
    return this.run() || this.catchUp()
  }

  /** Whatever ends a log that this one was forked from ends what is inherited from it. */
  inherited(step) {
    if (step === CLOSED || step === DELETED) return CUT
    if (step === OVER || step === CUT || this.at === 0) return step
    return this.offsetEnd() >= this.cut ? CUT : step
  }

  nextStretch() {
    if (this.settle()) return true
    if (this.stretch + 1 >= this.log.lineage.length) return false
    this.goTo(this.stretch + 1, this.cut)
    return true
  }

  /**
   * Finds again the stretch that it is in, by whose it is, after what the lineage holds may have changed. One that is gone
   * was purged: then it goes on where the first begins that is left. Whether it did.
   */
  settle() {
    const { log, idLow, idHigh } = this
    log.lookBack()
    const place = log.lineage.findIndex((held) => held.idLow === idLow && held.idHigh === idHigh)
    if (place < 0) this.goTo(0, log.lineage[0].from)
    else this.stretch = place
    return place < 0
  }

  /** Goes on with another stretch. The walk may have passed it on its way to the place where the one before ends. */
  goTo(stretch, offset) {
    this.leave()
    if (this.expected > this.cut) this.expected = this.cut
    this.enter(stretch)
    this.standAt(this.log.positionOf(stretch, offset))
  }

  /** The next run of bytes in this segment or a later one; false at the limit. Throws in front of damage. */
  run() {
    for (;;) {
      const segment = this.segment
      if (segment === null || segment.number > this.limitSegment) return false
      const newest = segment.number === this.limitSegment
      const bound = newest ? this.limitByte : this.words.length * 4
      const from = this.ahead * 4
      // What is left of a sealed segment may be too short for anything.
      if (from + FRAME_BYTES <= bound) {
        let end = this.verified(segment, from, bound, newest)
        if (segment.runs !== null && end > from) {
          this.shift = segment.shiftAt(from)
          end = Math.min(end, segment.runEnd(from))
        }
        if (end > from) {
          this.end = end >>> 2
          segment.settle(bound, newest)
          return true
        }
      }
      if (newest || !this.nextSegment()) return false
    }
  }

  verified(segment, from, bound, newest) {
    try {
      return segment.readable(from, bound, newest)
    } catch (error) {
      if (error.code === "DAMAGED") {
        // Stands behind it: whoever resumes goes on there.
        this.ended = "damaged"
        this.leave()
        this.expected = -1
        this.at = 0
        const beyond = error.to > error.from ? error.to : (segment.number + 1) * HIGH
        this.standAt(beyond)
      }
      throw error
    }
  }

  /** Goes on behind damage. */
  resume() {
    if (this.ended === "damaged") this.ended = null
  }

  /** Moves the limit up to what was committed since; false when nothing was. */
  catchUp() {
    if (!this.follows) return false
    const { limitSegment, limitByte } = this
    this.readLimit()
    if (limitSegment === this.limitSegment && limitByte === this.limitByte) return this.makeSure()
    if (this.stop !== Infinity) this.relax()
    const view = this.view
    try {
      view.refresh()
    } catch (error) {
      // Nothing of what it has not seen may count as seen.
      this.limitSegment = limitSegment
      this.limitByte = limitByte
      throw error
    }
    if (this.generation !== view.generation) {
      this.generation = view.generation
      this.leapt = true
      if (this.cut !== Infinity && this.settle()) return this.run()
      const found = view.segments[this.segment === null ? 0 : view.place(this.segment.number)]
      if (this.segment === null || found === undefined || found !== this.segment) this.relocate(found)
    }
    return this.run()
  }

  /** Nothing more is there. What ends the log may have been passed over unseen: then the log itself is asked, once. */
  makeSure() {
    if (!this.leapt || this.ended !== null) return false
    if (this.at !== 0 && this.cut === Infinity) {
      // Behind its end a log has no entry, and one was met.
      this.leapt = false
      return false
    }
    const { limit } = this
    const at = this.segment === null ? limit : Math.min(this.position(), limit)
    const ended = this.log.endedBy(at, limit)
    if (ended === "unsure") return false
    this.leapt = false
    this.ended = ended
    if (ended === "deleted") throw new ThalwegError("DELETED")
    return false
  }

  /** The segment it stood in was removed, or there was none: goes on with the next there is. */
  relocate(found) {
    if (found === undefined || (this.segment !== null && found.number === this.segment.number)) return
    this.leave()
    this.open(found, 0)
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

  /** Goes on with the next there is, by its number: places in the list are others once anybody has taken notice of a new one. */
  nextSegment() {
    const segment = this.view.segments[this.view.place(this.segment.number + 1)]
    if (segment === undefined) return false
    this.leave()
    this.open(segment, 0)
    return true
  }

  /** Keeps in mind where the next entry must begin, before the bytes of the last one are let go of. */
  leave() {
    if (this.at === 0) return
    this.expected = this.offsetEnd()
    this.guarded = true
    this.at = 0
  }

  offsetEnd() {
    const { words, at } = this
    return words[at + 5] * HIGH + (words[at + 4] >>> 0) + words[at]
  }

  leap(position) {
    if (position <= this.position()) return
    this.leave()
    this.standAt(position)
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
      this.at = this.ahead = this.end = 0
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
    this.ahead = byte < FIRST_WORD * 4 ? FIRST_WORD : byte >>> 2
    this.end = 0
    this.shift = segment.shiftAt(this.ahead * 4)
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

  get time() {
    const { words, at } = this
    return words[at + 7] * HIGH + (words[at + 6] >>> 0)
  }

  get offset() {
    const { words, at } = this
    return words[at + 5] * HIGH + (words[at + 4] >>> 0) + this.skip
  }

  get length() {
    return this.words[this.at] - this.skip - this.drop
  }

  get last() {
    return (this.words[this.at + 1] & LAST) !== 0
  }

  byte(place) {
    return this.at === 0 ? undefined : this.segment.byte(this.start, this.length, place)
  }

  /** Where its payload begins. */
  get start() {
    return this.at * 4 + FRAME_BYTES + this.skip
  }

  get data() {
    if (this.at === 0) throw new ThalwegError("BAD_ARGUMENT", "the cursor stands at no entry")
    return this.segment.lend(this.start, this.length)
  }
}

module.exports = { Cursor }
