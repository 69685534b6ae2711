"use strict"

// Logs as they come, for a tail of them.

const { native } = require("./error.js")

class Births {
  constructor(store, existing) {
    this.view = store.view
    this.births = native(() => store.opening.births(existing))
    this.name = null
    this.ended = null
  }

  /** Whether there is another: its name is here then. */
  next() {
    this.view.check()
    this.name = native(() => this.births.next())
    return this.name !== null
  }

  /** Listens no longer. */
  unlisten() {
    this.births.end()
  }
}

module.exports = { Births }
