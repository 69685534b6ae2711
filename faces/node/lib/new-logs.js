"use strict"

// Logs as they come, for a tail of them.

const { native } = require("./error.js")

class NewLogs {
  constructor(store, existing) {
    this.view = store.view
    this.newLogs = native(() => store.opening.newLogs(existing))
    this.name = null
    this.ended = null
  }

  /** Whether there is another: its name is here then. */
  next() {
    this.view.check()
    this.name = native(() => this.newLogs.next())
    return this.name !== null
  }

  /** Listens no longer. */
  unlisten() {
    this.newLogs.end()
  }
}

module.exports = { NewLogs }
