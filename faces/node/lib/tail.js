"use strict"

// What comes, as it comes: an asynchronous iterator that sleeps while there is nothing. What it iterates over is asked by
// `next()` whether there is more, and by `take` for that; a cursor's entries, unless told otherwise.

const { entry } = require("./entries.js")
const { leave, listen } = require("./signals.js")

class Tail {
  constructor(cursor, waits, signal, take = entry) {
    this.cursor = cursor
    this.waits = waits
    this.signal = signal
    this.take = take
    this.isOver = false
    // Why it ended, while no call of next() has been told: anything may be the reason of a signal, nothing among it.
    this.refusal = null
    // Calls of next() that have not been answered, oldest first.
    this.calls = []
    if (signal?.aborted) this.abort(signal.reason)
    else if (signal !== undefined) listen(signal, this)
  }

  next() {
    if (this.isOver) return this.finished()
    if (this.calls.length === 0) {
      const result = this.look()
      if (result !== null) return result
    }
    return new Promise((resolve, reject) => {
      this.calls.push({ resolve, reject })
      if (this.calls.length === 1) this.waits.sleep(this)
    })
  }

  /** What a call is told that comes after the end. */
  finished() {
    const { refusal } = this
    this.refusal = null
    return refusal === null ? Promise.resolve({ value: undefined, done: true }) : Promise.reject(refusal.reason)
  }

  /** The next entry, the end, or an error, as a promise; null when there is nothing yet. */
  look() {
    try {
      if (this.cursor.next()) return Promise.resolve({ value: this.take(this.cursor), done: false })
    } catch (error) {
      this.end()
      return Promise.reject(error)
    }
    if (this.cursor.ended === null) return null
    this.end()
    return Promise.resolve({ value: undefined, done: true })
  }

  /** Something moved; whether none waits here any more. */
  wake() {
    while (this.calls.length > 0 && !this.isOver) {
      const result = this.look()
      if (result === null) return false
      const { resolve } = this.calls.shift()
      resolve(result)
      if (this.isOver) this.finish()
    }
    return true
  }

  /** Ends it; calls under way are answered. */
  return(value) {
    this.end()
    this.finish()
    return Promise.resolve({ value, done: true })
  }

  throw(error) {
    this.end()
    this.finish()
    return Promise.reject(error)
  }

  /** The signal says so. */
  abort(reason) {
    this.fail(reason)
  }

  fail(error) {
    this.end()
    if (this.calls.length === 0) this.refusal = { reason: error }
    for (const { reject } of this.calls.splice(0)) reject(error)
  }

  finish() {
    this.refusal = null
    for (const { resolve } of this.calls.splice(0)) resolve({ value: undefined, done: true })
  }

  end() {
    this.isOver = true
    this.waits.forget(this)
    this.cursor.unlisten?.()
    if (this.signal !== undefined) leave(this.signal, this)
  }

  [Symbol.asyncIterator]() {
    return this
  }
}

module.exports = { Tail }
