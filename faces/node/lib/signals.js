"use strict"

// Who waits until a signal says to give up. A signal has one listener of ours, however many wait by it: among more of them Node.js
// takes some for forgotten, and warns, and to find one takes longer the more there are.
//
// Invariant: a signal is listened to exactly while somebody waits, or keeps something that is dropped when it says so.

const listeners = new WeakMap()

class Listener {
  constructor(signal) {
    this.signal = signal
    this.waiters = new Set()
    signal.addEventListener("abort", this)
  }

  /** Each waiter leaves once it is told, or when it has ended. All are told, whichever of them throw; the first error is thrown. */
  handleEvent() {
    const errors = []
    for (const waiter of this.waiters) {
      try {
        waiter.abort(this.signal.reason)
      } catch (error) {
        errors.push(error)
      }
    }
    if (errors.length > 0) throw errors[0]
  }
}

/** Has a waiter's `abort` called with the reason, unless it leaves before. The signal has not said so yet. */
function listen(signal, waiter) {
  let listener = listeners.get(signal)
  if (listener === undefined) {
    listener = new Listener(signal)
    listeners.set(signal, listener)
  }
  listener.waiters.add(waiter)
}

/** The waiter is told no more. */
function leave(signal, waiter) {
  const listener = listeners.get(signal)
  if (listener === undefined || !listener.waiters.delete(waiter) || listener.waiters.size > 0) return
  listeners.delete(signal)
  signal.removeEventListener("abort", listener)
}

module.exports = { leave, listen }
