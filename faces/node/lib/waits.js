"use strict"

// What waits for the store to move: appends for the disk, tails for entries. One bell for all of them.
//
// Whoever finds nothing arms the bell and looks once more, so nothing that comes in between is missed. The bell keeps
// the process alive exactly while somebody waits.

const { ThalwegError, native } = require("./error.js")

class Waits {
  constructor(view) {
    this.view = view
    this.bell = null
    this.isHeld = false
    // In order of their tickets: { ticket, settle(error) }.
    this.tickets = []
    this.sleepers = new Set()
  }

  /** Calls `settle` once everything up to a ticket lasts, or with the error that keeps it from it. */
  persisted(ticket, settle) {
    const { tickets } = this
    let place = tickets.length
    // Nearly always the last: whoever waits for what was appended a while ago comes in between.
    while (place > 0 && tickets[place - 1].ticket > ticket) place--
    tickets.splice(place, 0, { ticket, settle })
    this.look()
  }

  /** Calls `wake` when there may be more to read. */
  sleep(sleeper) {
    this.sleepers.add(sleeper)
    this.look()
  }

  forget(sleeper) {
    if (this.sleepers.delete(sleeper)) this.hold()
  }

  /** Settles what can be, and has the bell ring for the rest. */
  look() {
    if (this.settle()) return
    if (this.bell === null) this.bell = native(() => this.view.opening.bell(() => this.look()))
    try {
      this.bell.arm()
    } catch {
      // Closed in between: the second look says so to everybody.
    }
    this.settle()
  }

  /** Whether nobody waits any more. */
  settle() {
    const { view, tickets } = this
    const durable = view.durable()
    let settled = 0
    while (settled < tickets.length && tickets[settled].ticket <= durable) settled++
    for (const { settle } of tickets.splice(0, settled)) settle(null)
    if (tickets.length > 0 && (view.hasFailed || view.isFinished)) {
      const error = new ThalwegError(view.hasFailed ? "FAILED" : "CLOSED", undefined, { outcome: "unknown" })
      for (const { settle } of tickets.splice(0)) settle(error)
    }
    for (const sleeper of this.sleepers) if (sleeper.wake()) this.sleepers.delete(sleeper)
    return this.hold()
  }

  hold() {
    const isNeeded = this.tickets.length > 0 || this.sleepers.size > 0
    if (isNeeded !== this.isHeld && (this.bell !== null || !isNeeded)) {
      this.isHeld = isNeeded
      this.bell?.hold(isNeeded)
    }
    return !isNeeded
  }
}

module.exports = { Waits }
