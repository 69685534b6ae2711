"use strict"

// When the reactor of a native client or server is asked for what came: for a bounded time in one turn of the event loop, so that
// timers and everything else in the process go on however much comes. What is left is heard in the next turn of the loop.

const { Inbox } = require("./area.js")

const STRETCH_MS = 4

/** Takes turns for a hearer, which has `turn(bytes, at)`, `waitingBytes()`, `hear(what, slot, first, second)`, `robbed(error)`, called
 * when there is something that it can never hear, and `heard()`, called after each stretch. */
class Turns {
  constructor(hearer) {
    this.hearer = hearer
    this.inbox = new Inbox()
    this.until = 0
    this.isTaking = false
    this.isMissed = false
    this.isLater = false
    this.continue = () => {
      this.isLater = false
      this.begin()
    }
  }

  /** Begins a stretch. To be called by the event loop, once in a turn of it. */
  begin() {
    this.until = performance.now() + STRETCH_MS
    this.take()
  }

  /** Hears what is known to be there: now while the stretch lasts, and else in the next turn of the loop. */
  goOn() {
    if (performance.now() < this.until) this.take()
    else this.later()
  }

  /** Hears what there is until the stretch is over. */
  take() {
    if (this.isTaking) {
      // A hearer that says much at once flushes in the middle of a batch.
      this.isMissed = true
      return
    }
    const { hearer, inbox, until } = this
    this.isTaking = true
    this.isMissed = false
    try {
      const isAll = inbox.receive(hearer, until)
      if (!isAll || this.isMissed) this.later()
    } finally {
      this.isTaking = false
    }
    hearer.heard()
  }

  later() {
    if (this.isLater) return
    this.isLater = true
    setImmediate(this.continue)
  }

  /** The payload of the record being heard. */
  payload() {
    return this.inbox.payload()
  }

  /** The same, where it is text. */
  text() {
    return this.inbox.text()
  }
}

module.exports = { Turns }
