"use strict"

// Entries of one or several logs that are written together, or not at all.

const binding = require("./binding.js")
const { ThalwegError, badArgument, native } = require("./error.js")
const { Stage, given } = require("./stage.js")

class Transaction {
  constructor(store, time) {
    this.store = store
    this.time = time === undefined || time === null ? binding.now() : given(time)
    // No larger than what the store commits: entries have shorter headers here.
    this.stage = new Stage(store.segmentBytesMax)
    // The place of each log among them, in that order.
    this.places = new Map()
    // One per log: as long as there is one, the log is not destroyed.
    this.holds = []
    this.isOver = false
  }

  /** Adds an entry; it is written by `commit`. */
  append(log, data) {
    this.check()
    this.store.view.check()
    if (log?.store !== this.store) throw badArgument("the log belongs to another store")
    const place = this.places.get(log)
    this.stage.put(data, undefined, place ?? this.places.size)
    if (place === undefined) this.hold(log)
  }

  hold(log) {
    try {
      this.holds.push(native(() => log.handle.hold()))
      this.places.set(log, this.places.size)
    } catch (error) {
      this.abort()
      throw error
    }
  }

  get count() {
    return this.stage.count
  }

  /** Writes all of it; resolves when it lasts as long as the store promises. */
  async commit() {
    this.check()
    this.isOver = true
    const { store, stage } = this
    try {
      store.view.check()
      if (stage.count === 0) return
      const logs = [...this.places.keys()]
      // What was appended before comes before, to whichever log.
      store.flush()
      native(() => store.view.opening.commit(logs.map((log) => log.handle), stage.bytes, stage.used, this.time))
    } finally {
      this.release()
    }
    const { ticket } = stage
    if (ticket === 0) return
    await store.lasts(ticket)
  }

  /** Drops it all. */
  abort() {
    this.isOver = true
    this.release()
    this.stage.clear()
  }

  release() {
    for (const hold of this.holds) hold.release()
    this.holds = []
  }

  check() {
    if (this.isOver) throw new ThalwegError("TRANSACTION_OVER")
  }
}

module.exports = { Transaction }
