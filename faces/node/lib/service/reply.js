"use strict"

// Where the frames that answer one request go.
//
// Items of a stream are taken ahead of what the reader said it has room for, a few at a time, so that they leave
// together; then the producer waits until the reader took some.

const { badArgument } = require("./error.js")

// The longest frame that there can be: that of the protocol.
const FRAME_BYTES_MAX = 1 << 30

const GO = 0
const WAIT = 1

// The native side holds back twice as many before it ends a call whose producer does not wait.
const AHEAD_ITEMS_MAX = 8
const AHEAD_BYTES_MAX = 256 << 10

const GOES_ON = Promise.resolve(true)
const IS_OVER = Promise.resolve(false)

class Reply {
  constructor(server, slot, low, high) {
    this.server = server
    this.slot = slot
    this.low = low
    this.high = high
    // The last word about it was said, which the server notes.
    this.isOver = false
    this.isGone = false
    this.isWaiting = false
    this.aheadItems = 0
    this.aheadBytes = 0
    // Callers that wait until another item may be made.
    this.producers = []
    this.controller = null
  }

  /** The client that asked, by a number that no other client of this server has. */
  get client() {
    return (BigInt(this.high) << 32n) | BigInt(this.low)
  }

  /** Sends one item; resolves when another may be made, to `false` when the client wants no more. */
  item(frame) {
    if (!(frame instanceof Uint8Array)) throw badArgument("a frame is a Uint8Array")
    if (this.isOver || this.isGone) return IS_OVER
    if (this.isTooLong(frame)) return IS_OVER
    // Counted first: a server that flushes at once says already what became of it.
    this.aheadItems++
    this.aheadBytes += frame.length
    this.server.item(this, frame)
    if (this.isGone) return IS_OVER
    if (!this.isWaiting && this.aheadItems < AHEAD_ITEMS_MAX && this.aheadBytes < AHEAD_BYTES_MAX) return GOES_ON
    return new Promise((resolve) => this.producers.push(resolve))
  }

  /** Ends the call. */
  end(frame) {
    if (this.isOver) return
    if (!(frame instanceof Uint8Array)) throw badArgument("a frame is a Uint8Array")
    if (this.isTooLong(frame)) return
    this.server.end(this, frame)
    this.settle(false)
  }

  /** Ends the call with a fault, by its name in `FAULTS`, in words for people. */
  fail(code, message = "") {
    if (this.isOver) return
    this.server.fail(this, code, message)
    this.settle(false)
  }

  /** Whether a frame is longer than any can be, of which its client is told. */
  isTooLong(frame) {
    if (frame.length <= FRAME_BYTES_MAX) return false
    this.fail("FRAME_TOO_LARGE", "the answer is longer than a frame can be")
    return true
  }

  /** Aborted once the answer is not awaited any more: the call was cancelled, its deadline passed, its client is gone. */
  get signal() {
    if (this.controller === null) {
      this.controller = new AbortController()
      if (this.isGone) this.abort()
      else if (!this.isOver) this.server.watch(this)
    }
    return this.controller.signal
  }

  /** What became of an item that was handed over. */
  noted(flow) {
    this.aheadItems = 0
    this.aheadBytes = 0
    if (flow === WAIT) this.isWaiting = true
    else this.changed(flow !== GO)
  }

  /** There is room again, or the answer is not awaited any more. */
  changed(isGone) {
    this.isWaiting = false
    if (isGone) {
      this.isGone = true
      if (this.controller !== null) this.abort()
    }
    this.settle(!isGone)
  }

  abort() {
    this.controller.abort(new DOMException("the answer is not awaited any more", "AbortError"))
  }

  settle(goesOn) {
    const { producers } = this
    for (const resolve of producers) resolve(goesOn)
    producers.length = 0
  }
}

module.exports = { Reply }
