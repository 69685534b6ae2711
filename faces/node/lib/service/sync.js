"use strict"

// A client that waits: for scripts and for worker threads. It blocks its thread until the answer is there, so a server
// that runs on the same thread can never answer it.

const binding = require("../binding.js")
const { badArgument, native } = require("./error.js")
const { connectOptions, milliseconds } = require("./options.js")

const CREDIT = 64

class SyncClient {
  /** Connects to a server's endpoint. */
  static connect(endpoint, options = {}) {
    return new SyncClient(endpoint, options)
  }

  constructor(endpoint, options) {
    if (typeof endpoint !== "string") throw badArgument("an endpoint is a path, as ./run/echo.sock")
    const settings = connectOptions(options)
    this.native = native(() => binding.connectBlocking(endpoint, settings))
  }

  /** Sends a request and returns the frame that answers it. */
  call(request, options) {
    check(request)
    const deadline = milliseconds(options?.deadlineMs, "deadlineMs")
    return native(() => this.native.call(request, deadline))
  }

  /** Sends a request that a stream answers, once it is iterated; yields its frames. */
  *stream(request, options) {
    check(request)
    const credit = options?.credit ?? CREDIT
    const deadline = milliseconds(options?.deadlineMs, "deadlineMs")
    const call = native(() => this.native.begin(request, deadline, credit))
    let isOver = false
    let taken = 0
    try {
      for (;;) {
        const frame = native(() => this.native.next(call))
        isOver = !this.native.knows(call)
        if (!isOver && ++taken * 2 >= credit) {
          this.native.grant(call, taken)
          taken = 0
        }
        yield frame
        if (isOver) return
      }
    } catch (error) {
      isOver = true
      throw error
    } finally {
      // Whoever stops early wants no more.
      if (!isOver) this.native.forget(call)
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
