"use strict"

// Entries of one or several logs that are written together, or not at all.

const { ThalwegError, badArgument, native } = require("./error.js")
const { NOW, Stage } = require("./stage.js")

class Transaction {
  constructor(store, time) {
    this.store = store
    this.time = time === undefined ? NOW : time
    this.stage = new Stage()
    this.logs = []
    this.isOver = false
  }

  /** Adds an entry; it is written by `commit`. */
  append(log, data) {
    this.check()
    if (log?.store !== this.store) throw badArgument("the log belongs to another store")
    let place = this.logs.indexOf(log)
    if (place < 0) place = this.logs.push(log) - 1
    this.stage.put(data, NOW, place)
  }

  get count() {
    return this.stage.count
  }

  /** Writes all of it; resolves when it lasts as long as the store promises. */
  async commit() {
    this.check()
    this.store.view.check()
    this.isOver = true
    const { store, logs, stage } = this
    if (stage.count === 0) return
    // What was appended before comes before.
    for (const log of logs) log.flush()
    native(() => store.view.opening.commit(logs.map((log) => log.handle), stage.bytes, stage.used, this.time))
    store.grew(stage.used)
    const { ticket } = stage
    if (ticket === 0) return
    await new Promise((resolve, reject) => {
      store.waits.persisted(ticket, (error) => (error === null ? resolve() : reject(error)))
    })
  }

  /** Drops it all. */
  abort() {
    this.isOver = true
    this.stage.clear()
  }

  check() {
    if (this.isOver) throw new ThalwegError("TRANSACTION_OVER")
  }
}

module.exports = { Transaction }
