"use strict"

// Memory that views of several owners lie in: whoever was handed one of them cannot take it away from the others.

const { markAsUntransferable } = require("node:worker_threads")

// Not there before Node.js 21.
const TRANSFERS = ["transfer", "transferToFixedLength"].filter((name) => name in ArrayBuffer.prototype)
const REFUSED = {
  value() {
    throw new TypeError("other views lie in this buffer: give a copy of the view away")
  },
}

/** Keeps a buffer from being detached by mistake: who lists it to be transferred is refused, or sends a copy, and its own `transfer`
 * throws. The prototype's, called on it, does not, and a byte stream takes the buffer of what is enqueued to it: nothing can keep them
 * from that. */
function keepAttached(buffer) {
  markAsUntransferable(buffer)
  for (const name of TRANSFERS) Object.defineProperty(buffer, name, REFUSED)
}

module.exports = { keepAttached }
