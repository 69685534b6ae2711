"use strict"

// Calls that wait until fewer are under way, oldest first. Each has a copy of its request, since its caller may use the
// buffer again, and the time until which its answer is wanted, which passes here as it does at the server.
//
// The calls are a list linked both ways: one that is given up in the middle leaves, and the oldest is taken, at the same cost however
// many wait. Invariant: a call is in the list exactly while its waiter's `waiting` is that call, and among the deadlines as long if
// it has one.

const { Deadlines } = require("./deadlines.js")
const { ServiceError } = require("./error.js")
const { timerMs } = require("./options.js")

// What a call that waits takes beside its request.
const CALL_BYTES = 256

class Queue {
  constructor(bytesMax) {
    this.bytesMax = bytesMax
    this.bytes = 0
    this.count = 0
    this.oldest = null
    this.newest = null
    this.deadlines = new Deadlines()
    // The timer that ends calls whose deadline has passed, and when it is due.
    this.timer = null
    this.due = Infinity
  }

  get isEmpty() {
    return this.count === 0
  }

  /** Takes a call, unless too much waits; the first one is always taken. */
  put(waiter, { what, request, deadline, credit }) {
    const bytes = CALL_BYTES + request.length
    if (this.bytes > 0 && this.bytes + bytes > this.bytesMax) {
      const words = `${this.bytes} bytes of ${this.count} calls wait already, ${this.bytesMax} are allowed`
      return waiter.fail(new ServiceError("OVERLOADED", words))
    }
    const due = deadline > 0 ? performance.now() + deadline : Infinity
    const copy = new Uint8Array(request)
    const call = { waiter, what, request: copy, credit, bytes, due, deadline: 0, older: this.newest, newer: null, place: -1 }
    if (this.newest === null) this.oldest = call
    else this.newest.newer = call
    this.newest = call
    this.count++
    this.bytes += bytes
    waiter.queue = this
    waiter.waiting = call
    if (due === Infinity) return
    this.deadlines.add(call)
    if (due < this.due) this.look()
  }

  /** Forgets the call of a waiter. */
  drop(waiter) {
    const call = waiter.waiting
    waiter.queue = null
    waiter.waiting = null
    const { older, newer } = call
    if (older === null) this.oldest = newer
    else older.newer = newer
    if (newer === null) this.newest = older
    else newer.older = older
    this.count--
    this.bytes -= call.bytes
    if (call.due !== Infinity) this.deadlines.remove(call)
    if (this.count === 0) this.look()
    // A call that has grown old in memory would keep each later one that left, one by the other.
    call.older = call.newer = null
  }

  /** The oldest call, with what is left of its time, and its waiter; undefined when there is none. */
  take() {
    const now = performance.now()
    for (let call = this.oldest; call !== null; call = this.oldest) {
      this.drop(call.waiter)
      if (call.due > now) {
        if (call.due !== Infinity) call.deadline = Math.ceil(call.due - now)
        return call
      }
      call.waiter.fail(overdue())
    }
    return undefined
  }

  fail(error) {
    while (this.oldest !== null) this.end(this.oldest, error)
  }

  /** Sets the timer for the earliest deadline. */
  look() {
    clearTimeout(this.timer)
    const { due } = this.deadlines
    this.due = due
    if (due === Infinity) return
    // Whether the process stays for them is decided where calls are under way.
    this.timer = setTimeout(() => this.expire(), timerMs(Math.max(due - performance.now(), 1))).unref()
  }

  expire() {
    const now = performance.now()
    while (this.deadlines.due <= now) this.end(this.deadlines.first, overdue())
    this.look()
  }

  end({ waiter }, error) {
    this.drop(waiter)
    waiter.fail(error)
  }
}

/** What becomes of a call whose time is over: it never left, so that it may be made again. */
const overdue = () => new ServiceError("NOT_SENT", "the request was not sent: its deadline passed before")

module.exports = { Queue }
