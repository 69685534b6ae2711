"use strict"

// How frames come over: many in one native call, laid out in memory that JavaScript owns (src/service/area.rs has the
// layout). An Outbox gathers what this isolate says during a turn of the event loop; an Inbox is what it hears.
//
// What is heard is never written over: payloads are views of a slab that is left to them once it is full. Nor is a slab taken
// away from the other payloads in it by handing one of them to another thread, or by its own `transfer()`, which throws; the
// prototype's, called on it, does take it away, and so does a byte stream. What was not heard of it by then is lost, and said to be.

const { keepAttached } = require("../attached.js")
const { ServiceError } = require("./error.js")

const HEADER_BYTES = 20
const OUTBOX_BYTES_MIN = 16 << 10
// An area that one large frame made so big is not kept.
const OUTBOX_BYTES_KEPT = 1 << 20
const SLAB_BYTES = 64 << 10
// With less room than this left the next batch begins a new slab.
const SLAB_BYTES_LEFT = 4 << 10
// Records that are heard between two looks at the clock.
const HEARD_AT_ONCE = 8
const ROBBED = "a frame was given to a byte stream, or its buffer transferred, and frames that were not heard went with it: give copies"

/** Memory for payloads of several calls, none of which owns it. */
function slab(bytes) {
  const made = Buffer.allocUnsafeSlow(bytes)
  keepAttached(made.buffer)
  return made
}

/** Records on their way to the native side. */
class Outbox {
  constructor() {
    this.allocate(OUTBOX_BYTES_MIN)
    this.clear()
  }

  allocate(bytes) {
    const area = new ArrayBuffer(bytes)
    const former = this.bytes
    this.bytes = new Uint8Array(area)
    this.words = new Uint32Array(area)
    if (former !== undefined) this.bytes.set(former.subarray(0, this.used))
  }

  clear() {
    this.used = 0
    if (this.bytes.length > OUTBOX_BYTES_KEPT) {
      this.bytes = undefined
      this.allocate(OUTBOX_BYTES_MIN)
    }
  }

  /** Appends a record and returns where it begins. */
  put(what, slot, first, second, payload) {
    const at = this.used
    const length = payload === null ? 0 : payload.length
    const end = at + HEADER_BYTES + ((length + 3) & ~3)
    if (end > this.bytes.length) this.allocate(Math.max(this.bytes.length * 2, Math.ceil(end / 4096) * 4096))
    const word = at >>> 2
    const { words } = this
    words[word] = length
    words[word + 1] = what
    words[word + 2] = slot
    words[word + 3] = first
    words[word + 4] = second
    if (length > 0) this.bytes.set(payload, at + HEADER_BYTES)
    this.used = end
    return at
  }

  /** What the native side wrote over a record's first word. */
  noted(at) {
    return this.words[(at >>> 2) + 3]
  }
}

/** Records as they came from the native side. */
class Inbox {
  constructor() {
    this.isBehind = false
    this.allocate(SLAB_BYTES)
  }

  allocate(bytes) {
    this.bytes = slab(bytes)
    this.words = new Uint32Array(this.bytes.buffer)
    // Heard up to here, of what lies in front of the end.
    this.at = 0
    this.end = 0
  }

  /** Takes turns until nothing more comes, or a time is over, and tells `hearer` of each record, which may ask for the payload. Whether
   * that was all. */
  receive(hearer, until) {
    do {
      if (!this.walk(hearer, until)) return false
      if (this.isBehind) this.allocate(Math.max(SLAB_BYTES, hearer.waitingBytes()))
      else if (this.bytes.length - this.at < SLAB_BYTES_LEFT) this.allocate(SLAB_BYTES)
      const end = hearer.turn(this.bytes, this.at)
      this.isBehind = end < 0
      this.end = this.isBehind ? ~end : end
      if (!this.walk(hearer, until)) return false
      if (!this.isBehind) return true
    } while (performance.now() < until)
    return false
  }

  /** Tells of the records at hand; whether of all of them. */
  walk(hearer, until) {
    // A hearer that closes its client or server meanwhile hears the rest, and drops it.
    for (let heard = 1; this.at < this.end; heard++) {
      const word = this.at >>> 2
      const { words } = this
      if (words.length === 0) {
        this.at = this.end
        hearer.robbed(new ServiceError("SYSTEM", ROBBED))
        break
      }
      const length = words[word]
      this.start = this.at + HEADER_BYTES
      this.length = length
      this.at = this.start + ((length + 3) & ~3)
      hearer.hear(words[word + 1], words[word + 2], words[word + 3], words[word + 4])
      if (heard % HEARD_AT_ONCE === 0 && performance.now() >= until) break
    }
    return this.at >= this.end
  }

  /** The payload of the record being heard. */
  payload() {
    return new Uint8Array(this.bytes.buffer, this.start, this.length)
  }

  /** The same, where it is text. */
  text() {
    return this.bytes.utf8Slice(this.start, this.start + this.length)
  }
}

module.exports = { Inbox, Outbox, slab }
