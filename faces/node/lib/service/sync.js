"use strict"

// A client that waits: for scripts and for worker threads. It blocks its thread until the answer is there, so a server
// that runs on the same thread can never answer it. It waits in stretches: a thread that is to end, ends between two of them.

const binding = require("../binding.js")
const { slab } = require("./area.js")
const { badArgument, faulty, native } = require("./error.js")
const { checkedCredit, milliseconds, syncCallOptions, syncConnectOptions } = require("./options.js")

const { WAITS } = binding
const SLAB_BYTES = 64 << 10
const SLAB_BYTES_LEFT = 4 << 10

class SyncClient {
  /** Connects to a server's endpoint. */
  static connect(endpoint, options) {
    return new SyncClient(endpoint, options)
  }

  constructor(endpoint, options) {
    if (typeof endpoint !== "string") throw badArgument("an endpoint is a path, as ./run/echo.sock")
    const settings = syncConnectOptions(options)
    this.native = native(() => binding.connectBlocking(endpoint, settings))
    while (!native(() => this.native.connected()));
    this.allocate(SLAB_BYTES)
  }

  allocate(bytes) {
    this.slab = slab(bytes)
    this.at = 0
  }

  /** The frame that was written into the slab; what is in there is never written over. */
  delivered(length) {
    if (length < 0) {
      length = ~length
      this.allocate(Math.max(SLAB_BYTES, length))
      this.native.takeKept(this.slab)
    }
    const frame = new Uint8Array(this.slab.buffer, this.at, length)
    this.at += length
    if (this.slab.length - this.at < SLAB_BYTES_LEFT) this.allocate(SLAB_BYTES)
    return frame
  }

  /** Sends a request and returns the frame that answers it. */
  call(request, options) {
    check(request)
    const deadline = milliseconds(syncCallOptions(options).deadlineMs, "deadlineMs")
    try {
      let length = this.native.call(request, deadline, this.slab, this.at)
      while (length === WAITS) length = this.native.goOn(this.slab, this.at)
      return this.delivered(length)
    } catch (error) {
      throw faulty(error)
    }
  }

  /** Sends a request that a stream answers, once it is iterated; yields its frames. */
  stream(request, options) {
    check(request)
    const credit = checkedCredit(syncCallOptions(options))
    return this.frames(request, milliseconds(options?.deadlineMs, "deadlineMs"), credit)
  }

  *frames(request, deadline, credit) {
    const call = native(() => this.native.begin(request, deadline, credit))
    let taken = 0
    try {
      for (;;) {
        const frame = native(() => this.next(call))
        const isOver = !this.native.knows(call)
        // The client may have connected anew for this very call.
        if (credit === 0) credit = this.native.credit()
        if (!isOver && ++taken * 2 >= credit && credit > 0) {
          native(() => this.native.grant(call, taken))
          taken = 0
        }
        yield frame
        if (isOver) return
      }
    } finally {
      this.forget(call)
    }
  }

  next(call) {
    let length
    do length = this.native.next(call, this.slab, this.at)
    while (length === WAITS)
    return this.delivered(length)
  }

  /** An iteration that stops early wants no more; nothing can come of a client that was closed. */
  forget(call) {
    if (!this.native.knows(call)) return
    try {
      native(() => this.native.forget(call))
    } catch (error) {
      if (error.code !== "CLOSED") throw error
    }
  }

  /** Whether frames go through shared memory. */
  get isShared() {
    return this.native.isShared()
  }

  /** Hangs up. */
  close() {
    this.native.close()
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.close()
  }
}

function check(request) {
  if (!(request instanceof Uint8Array)) throw badArgument("a request is a Uint8Array")
}

module.exports = { SyncClient }
