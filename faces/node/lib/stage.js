"use strict"

// The staging area: a turn's entries, laid out for one native call (src/append.rs has the layout).

const { text } = require("./arguments.js")
const { ThalwegError, badArgument } = require("./error.js")

const AREA_HEADER_BYTES = 16
const ENTRY_HEADER_BYTES = 16
const AREA_BYTES_MIN = 16 << 10
// An area that one large entry made so big is not kept.
const AREA_BYTES_KEPT = 1 << 20
const AREA_BYTES_MAX = 1 << 30
const NOW = -1
const NO_BYTES = new Uint8Array(0)

/** The bytes that a view shows; none where its buffer does not hold them any more, as of a typed array. */
function bytesOf(view) {
  try {
    return new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
  } catch {
    return NO_BYTES
  }
}

/** A time that a caller gave. */
function given(time) {
  if (Number.isSafeInteger(time) && time >= 0) return time
  throw badArgument("a time is a whole number of microseconds since the epoch")
}

/** The same, or now, for which only the native side has a number. */
const orNow = (time) => (time === undefined || time === null ? NOW : given(time))

// Bytes of unused areas that are kept for later appends: as many as 256 logs need that append a little in one turn.
const IDLE_BYTES_MAX = 4 << 20

/** Areas of a store that are not in use: each is some log's for a turn. */
class Stages {
  constructor() {
    this.idle = []
    this.bytes = 0
  }

  take() {
    const stage = this.idle.pop()
    if (stage === undefined) return new Stage()
    this.bytes -= stage.bytes.length
    return stage
  }

  give(stage) {
    stage.clear()
    if (this.bytes + stage.bytes.length > IDLE_BYTES_MAX) return
    this.bytes += stage.bytes.length
    this.idle.push(stage)
  }
}

class Stage {
  /** One whose entries take no more than so many bytes. */
  constructor(bytesMax = AREA_BYTES_MAX) {
    this.bytesMax = bytesMax
    this.allocate(AREA_BYTES_MIN)
    this.clear()
  }

  allocate(bytes) {
    const area = new ArrayBuffer(bytes)
    const former = this.bytes
    this.bytes = Buffer.from(area)
    this.words = new Uint32Array(area)
    this.floats = new Float64Array(area)
    if (former !== undefined) this.bytes.set(former.subarray(0, this.used))
  }

  clear() {
    this.used = AREA_HEADER_BYTES
    this.count = 0
    if (this.bytes.length > AREA_BYTES_KEPT) {
      this.bytes = undefined
      this.allocate(AREA_BYTES_MIN)
    }
  }

  /** Copies an entry in, of now unless a time is given. `log` counts the logs of a transaction. */
  put(data, time, log) {
    const when = orNow(time)
    const isText = typeof data === "string"
    if (isText) text(data, "data")
    if (!isText && !(data instanceof Uint8Array)) {
      if (!ArrayBuffer.isView(data)) throw badArgument("data is a string, a Buffer, or another view of bytes")
      data = bytesOf(data)
    }
    // A character takes 3 bytes at most, for each of its halves; a text for which there is no such room is counted.
    let room = isText ? data.length * 3 : data.length
    const at = this.used
    if (isText && at + room > this.bytesMax / 2) room = Buffer.byteLength(data)
    if (room === 0) throw new ThalwegError("EMPTY_ENTRY")
    const start = at + ENTRY_HEADER_BYTES
    if (start + room + 8 > this.bytes.length) this.grow(start + room + 8)
    let length = room
    if (isText) length = this.bytes.utf8Write(data, start, room)
    else this.bytes.set(data, start)
    const word = at >>> 2
    this.words[word] = length
    this.words[word + 1] = log
    this.floats[(at >>> 3) + 1] = when
    this.used = start + ((length + 7) & ~7)
    this.count++
  }

  grow(bytes) {
    if (bytes > this.bytesMax) {
      throw new ThalwegError("TOO_LARGE", `${bytes} bytes fit into no commit, which takes less than ${this.bytesMax}`)
    }
    this.allocate(Math.max(Math.min(this.bytes.length * 2, this.bytesMax), Math.ceil(bytes / 4096) * 4096))
  }

  /** Leaves out the first entries, which are done. */
  skip(count) {
    if (count === this.count) return this.clear()
    let at = AREA_HEADER_BYTES
    for (let n = 0; n < count; n++) at = this.behind(at)
    this.bytes.copyWithin(AREA_HEADER_BYTES, at, this.used)
    this.used -= at - AREA_HEADER_BYTES
    this.count -= count
  }

  /** Where the entry behind the one at a byte begins. */
  behind(at) {
    return at + ENTRY_HEADER_BYTES + ((this.words[at >>> 2] + 7) & ~7)
  }

  /** What the native side wrote where an entry's time stood. */
  offset(at) {
    return this.floats[(at >>> 3) + 1]
  }

  /** Position that has to be durable for all that was appended to be. */
  get ticket() {
    return this.floats[0]
  }
}

module.exports = { AREA_HEADER_BYTES, Stage, Stages, given }
