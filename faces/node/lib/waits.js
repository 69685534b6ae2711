"use strict"

// What waits for the store to move: appends for the disk, tails for entries. One bell for all of them.
//
// A caller that finds nothing arms the bell and looks once more, so nothing that comes in between is missed. The bell keeps
// the process alive, and the store from being collected, exactly while one waits. Where there can be no bell none waits: all
// are told why.

const { ThalwegError, native } = require("./error.js")

/** What a bell calls. The native side holds it for good, so it holds the waiters only while there are any. */
class Listener {
  constructor(waits) {
    this.weak = new WeakRef(waits)
    this.held = null
    this.ring = () => this.weak.deref()?.look()
  }
}

class Waits {
  constructor(view) {
    this.view = view
    this.bell = null
    this.listener = new Listener(this)
    this.isHeld = false
    // In order of their tickets: { ticket, settle(error) }.
    this.tickets = []
    this.sleepers = new Set()
  }

  /** Calls `settle` once everything up to a ticket lasts, or with the error that keeps it from it. */
  persisted(ticket, settle) {
    const { tickets } = this
    let place = tickets.length
    // Nearly always the last: a wait for what was appended a while ago comes in between.
    while (place > 0 && tickets[place - 1].ticket > ticket) place--
    tickets.splice(place, 0, { ticket, settle })
    this.look()
  }

  /** Calls `wake` when there may be more to read, or `fail`, which forgets the sleeper, when that is not known. */
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
    try {
      if (this.bell === null) this.bell = native(() => this.view.opening.bell(this.listener.ring))
      native(() => this.bell.arm())
    } catch (error) {
      // Closed in between: the second look tells every waiter.
      if (error.code !== "CLOSED") return this.fail(error)
    }
    this.settle()
  }

  /** Whether none waits any more. */
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

  /** None can be woken. What was to last is written already, so it is not refused: whether it lasts is not known. */
  fail(error) {
    const unknown = new ThalwegError(error.code, error.message, { outcome: "unknown" })
    for (const { settle } of this.tickets.splice(0)) settle(unknown)
    for (const sleeper of this.sleepers) sleeper.fail(error)
    this.hold()
  }

  hold() {
    const isNeeded = this.tickets.length > 0 || this.sleepers.size > 0
    if (isNeeded !== this.isHeld && (this.bell !== null || !isNeeded)) {
      this.isHeld = isNeeded
      this.listener.held = isNeeded ? this : null
      this.bell?.hold(isNeeded)
    }
    // What the bell holds of the native side goes with a store that was closed.
    if (!isNeeded && this.view.isClosed) this.bell = null
    return !isNeeded
  }
}

module.exports = { Waits }
