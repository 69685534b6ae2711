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

/**
 * Keeps a buffer from being detached by mistake: its own `transfer` throws. The prototype's, called on it, does not, and a byte stream
 * takes the buffer of what is enqueued to it: nothing can keep them from that. A map that is lent is not transferred by who lists it
 * either, which the engine knows of memory that is not its own.
 */
function refuseTransfer(buffer) {
  for (const name of TRANSFERS) Object.defineProperty(buffer, name, REFUSED)
}

/**
 * The same for memory of the engine's own: who lists it to be transferred is refused, or sends a copy. Never for a map: Node.js 24 and
 * later can detach no more what was marked so, and abort when they let go of a map that they cannot detach, as each thread does at its
 * end.
 */
function keepAttached(buffer) {
  markAsUntransferable(buffer)
  refuseTransfer(buffer)
}

module.exports = { keepAttached, refuseTransfer }
