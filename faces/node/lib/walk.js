"use strict"

// The walk over mapped bytes, from one entry of a query to the next: through runs, segments and the logs that hold what a
// fork inherited.
//
// Invariants: no byte at or behind `end` is looked at, and `end` comes from the limit or from the native side; an entry that is
// missing is noticed where bytes were left out, because each must begin where the last one ended. Nothing here allocates.

const { ThalwegError, native } = require("./error.js")
const format = require("./format.js")
const { BATCH_WORDS, FRAME_WORDS, HIGH, NOWHERE, Reader, TOUCHED_WORDS } = require("./reader.js")

const { BATCH_MAGIC, KIND_CLOSE, KIND_DATA, KIND_DELETE } = format
const FRAME_BYTES = format.FRAME_HEADER_BYTES
// After so many words of other logs it pays to ask where this one goes on.
const FOREIGN_WORDS_MAX = 64 << 10

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

class Walk extends Reader {
  constructor(log, follows) {
    super(log)
    // Goes on with what is committed after it came to the end.
    this.follows = follows
    this.idLow = 0
    this.idHigh = 0
    this.exact = false
    // What holds the offset that was sought was not met yet.
    this.seeks = false
    // Floats from the beginning, as `expected` is.
    this.since = -0
    this.until = Infinity
    this.stop = Infinity
    this.from = -0
    this.cut = Infinity
    // Payload bytes of the entry at hand that are left out in front and behind.
    this.skip = 0
    this.drop = 0
    this.stretch = 0
    this.generation = 0
    this.passed = 0
    this.skippedBytes = 0
    this.ended = null
    // Something may lie in front of it that it did not come by, since it last asked whether the log is over.
    this.leapt = true
    // It came to an entry behind which there is none that the query takes.
    this.isOver = false
  }

  /** The same for whatever stands here. */
  walk() {
    // Until it comes to the next one it stands nowhere, however the walk ends.
    if (this.at !== 0) {
      this.met = this.at
      this.at = 0
      this.shown = NOWHERE
      this.skip = 0
      this.drop = 0
    }
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
          // A reader that is refused here goes on with a walk: it says what is shown.
          this.guarded = true
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
        const time = (words[at + 7] >>> 0) * HIGH + (words[at + 6] >>> 0)
        if (this.guarded) {
          const verdict = this.judge(at, length, time)
          if (verdict === PASSED) continue
          if (verdict !== TAKEN) {
            step = verdict
            ahead = at
            break
          }
        } else if (time < this.since || time >= this.until) {
          this.met = at
          if (time < this.stop) continue
          step = OVER
          ahead = at
          break
        }
        this.at = at
        this.shown = words
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
    this.met = at
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

  /** The first entry of those that were sought by their offset: a search for it again, or for one near it, begins here. */
  learn(offset, at) {
    this.seeks = false
    const position = this.positionOf(at)
    this.log.places.note(Math.max(this.from, offset), offset, position, this.generation)
  }

  /** Entries are missing in front of this one: purged, gone with their log, or damaged. */
  missing(from, to) {
    this.expected = -1
    const { handle } = this.log
    if (native(() => handle.isPurged(to))) {
      this.skippedBytes += to - from
      return
    }
    // Of a log that was deleted segments go that others do not need, and what is left is no damage.
    if (native(() => handle.isDeleted())) this.deleted()
    this.damaged(this.ahead, `entries are missing between offsets ${from} and ${to}`)
  }

  deleted() {
    this.ended = "deleted"
    // Nothing of the run at hand is taken any more.
    this.end = 0
    throw new ThalwegError("DELETED")
  }

  /** An entry reaches behind what may be read: the visible end that was given lies within a batch. */
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
    throw new ThalwegError("DAMAGED", message, { from: position, resumes: null })
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
        return this.follows && this.goesOnBehind()
      case CLOSED:
        this.ended = "closed"
        return false
      case DELETED:
        this.deleted()
    }
    return this.run() || this.catchUp()
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

  /** Stands at a position, whichever log's entries are behind it. */
  enterAt(position) {
    if (position > this.limit) position = this.limit
    if (this.log.lineage.length > 1) this.enter(this.log.stretchAt(position))
    this.standAt(position)
  }

  /** Whatever ends a log that this one was forked from ends what is inherited from it. */
  inherited(step) {
    if (step === CLOSED || step === DELETED) return CUT
    if (step === OVER || step === CUT || this.met === 0) return step
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
      const bound = newest ? segment.boundOf(this.limitByte) : this.words.length * 4
      const from = this.ahead * 4
      // What is left of a sealed segment may be too short for anything.
      if (from + FRAME_BYTES <= bound) {
        let end = this.verified(segment, from, bound, newest)
        if (segment.runs !== null && end > from) {
          // Bytes are left out in front of every run.
          this.leave()
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
        // Stands behind it: `resume` goes on there.
        this.ended = "damaged"
        this.leave()
        this.expected = -1
        const beyond = error.resumes ?? (segment.number + 1) * HIGH
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
    if (this.met !== 0 && this.cut === Infinity) {
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

  /**
   * Nothing more that the query takes is there; whether times go further back by now. What ends the log lies further on than it
   * walks, so the log itself is asked, up to where there was nothing late either. A reader that looks once does not pay for that.
   */
  goesOnBehind() {
    const { limitSegment, limitByte } = this
    this.readLimit()
    const { limit } = this
    this.limitSegment = limitSegment
    this.limitByte = limitByte
    if (this.isLate()) return true
    if (this.isOver && this.ended === null) {
      const ended = this.log.endedBy(limit, limit)
      if (ended !== "unsure") this.ended = ended
      if (ended === "deleted") throw new ThalwegError("DELETED")
    }
    this.isOver = true
    return false
  }

  leap(position) {
    if (position <= this.position()) return
    this.leave()
    this.standAt(position)
  }

  /** Entries may lie further back in time than was known. */
  relax() {
    const sought = this.exact && this.since < this.until ? this.since + 1 : this.until
    const stop = sought === Infinity ? Infinity : sought + this.view.lateness()
    // Where numbers are not exact an entry is never too late.
    this.stop = stop > Number.MAX_SAFE_INTEGER ? Infinity : stop
  }

  /** Whether times go further back by now than they did when the query was found to be over. */
  isLate() {
    const { stop } = this
    this.relax()
    return this.stop > stop
  }
}

module.exports = { Walk }
