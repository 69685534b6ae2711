"use strict"

// Calls that wait until fewer are under way, oldest first. Each has a copy of its request, since its caller may use the
// buffer again, and the time until which its answer is wanted, which passes here as it does at the server.

const { ServiceError } = require("./error.js")

// What a call that waits takes beside its request.
const CALL_BYTES = 256
// The longest that a timer of the event loop can be told to wait.
const TIMER_MS_MAX = 0x7fff_ffff

class Queue {
  constructor(bytesMax) {
    this.bytesMax = bytesMax
    this.bytes = 0
    // By their waiters.
    this.calls = new Map()
    // The timer that ends calls whose deadline has passed, and when it is due.
    this.timer = null
    this.due = Infinity
  }

  get isEmpty() {
    return this.calls.size === 0
  }

  /** Takes a call, unless too much waits; the first one is always taken. */
  put(waiter, call) {
    const bytes = CALL_BYTES + call.request.length
    if (this.bytes > 0 && this.bytes + bytes > this.bytesMax) {
      const words = `${this.bytes} bytes of ${this.calls.size} calls wait already, ${this.bytesMax} are allowed`
      return waiter.fail(new ServiceError("OVERLOADED", words))
    }
    const due = call.deadline > 0 ? performance.now() + call.deadline : Infinity
    this.bytes += bytes
    this.calls.set(waiter, { ...call, request: new Uint8Array(call.request), bytes, due })
    waiter.queue = this
    if (due < this.due) this.look(due)
  }

  /** Forgets a call. */
  drop(waiter) {
    const call = this.calls.get(waiter)
    this.calls.delete(waiter)
    waiter.queue = null
    this.bytes -= call.bytes
    if (this.calls.size === 0) this.look(Infinity)
    return call
  }

  /** The oldest call, with what is left of its time, and its waiter; undefined when there is none. */
  take() {
    const now = performance.now()
    for (const waiter of this.calls.keys()) {
      const call = this.drop(waiter)
      if (call.due <= now) waiter.fail(overdue())
      else return { ...call, waiter, deadline: call.due === Infinity ? 0 : Math.ceil(call.due - now) }
    }
    return undefined
  }

  fail(error) {
    for (const waiter of [...this.calls.keys()]) waiter.fail(error)
  }

  look(due) {
    clearTimeout(this.timer)
    this.due = due
    if (due === Infinity) return
    const wait = Math.min(Math.max(due - performance.now(), 1), TIMER_MS_MAX)
    // Whether the process stays for them is decided where calls are under way.
    this.timer = setTimeout(() => this.expire(), wait).unref()
  }

  expire() {
    const now = performance.now()
    let next = Infinity
    for (const [waiter, { due }] of [...this.calls]) {
      if (due <= now) waiter.fail(overdue())
      else if (due < next) next = due
    }
    this.look(next)
  }
}

/** What becomes of a call whose time is over: it never left, so that it may be made again. */
const overdue = () => new ServiceError("NOT_SENT", "the request was not sent: its deadline passed before")

module.exports = { Queue }
