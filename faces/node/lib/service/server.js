"use strict"

// A server on the event loop. Handlers may be asynchronous; any number of calls is under way at once.
//
// What a turn of the reactor brought is heard together, what was answered in one turn of the event loop leaves
// together at its end. A server that closes takes nothing new and ends when what is under way was answered.

const binding = require("../binding.js")
const { FAULTS } = require("../faults.js")
const { Outbox } = require("./area.js")
const { badArgument, faulty, native, options: checked, wordsOf } = require("./error.js")
const { LISTEN, listenOptions, said, timerMs } = require("./options.js")
const { Reply } = require("./reply.js")
const { Turns } = require("./turns.js")

const ITEM = 1
const END = 2
const FAIL = 3
const WATCH = 4

const REQUEST = 1
const CHANGED = 2

const SAID_BYTES_MAX = 1 << 20
const DRAIN_GRACE_MS = 5_000
const NO_BYTES = new Uint8Array(0)

class Server {
  /** Listens at an endpoint, or at several. A service is what the generated `service(handler)` makes, or a function
   * `(frame, reply)`. */
  static async listen(endpoint, service, options) {
    return new Server(endpoint, service, options)
  }

  constructor(endpoint, service, options) {
    const endpoints = Array.isArray(endpoint) ? endpoint : [endpoint]
    if (endpoints.length === 0 || endpoints.some((path) => typeof path !== "string")) {
      throw badArgument("an endpoint is a path, as ./run/echo.sock")
    }
    const isBare = typeof service === "function"
    if (!isBare && typeof service?.dispatch !== "function") throw badArgument("a service has a function dispatch")
    this.dispatch = isBare ? service : (frame, reply) => service.dispatch(frame, reply)
    const known = isBare ? {} : { schema: service.schema, errorTag: service.errorTag }
    // What is left out stays as the service has it.
    const settings = listenOptions({ ...known, ...said(checked(options, LISTEN, "listen")) })
    this.drainGraceMs = settings.drainGraceMs ??= DRAIN_GRACE_MS
    this.turns = new Turns(this)
    this.outbox = new Outbox()
    // By slot: what was not answered.
    this.replies = []
    // Items that go over with the next flush: replies and where in the area.
    this.items = []
    this.isFlushing = false
    this.closing = null
    this.grace = undefined
    this.isOver = false
    this.flushNow = () => this.flush()
    this.flushLast = () => process.nextTick(this.flushNow)
    this.native = native(() => binding.listenService(endpoints, settings))
    native(() => this.native.watch(() => this.turns.begin()))
    this.native.hold(true)
    this.turns.begin()
  }

  /** Takes nothing new, lets what is under way be answered, and ends; clients that do not take their answers within
   * `drainGraceMs` are hung up on. */
  close() {
    if (this.closing === null) {
      this.closing = new Promise((resolve, reject) => (this.ended = { resolve, reject }))
      this.native.stop()
      // Nothing that a descriptor tells happens when the grace is over.
      this.grace = setTimeout(() => this.turns.begin(), timerMs(this.drainGraceMs + 1))
      this.turns.goOn()
    }
    return this.closing
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close()
  }

  /** Counters since the server began, and what is under way now. */
  stats() {
    return native(() => this.native.stats())
  }

  /** Lets the process end although the server listens. */
  unref() {
    return this.reference(false)
  }

  /** Keeps the process alive while the server listens, as it does unless told otherwise. */
  ref() {
    return this.reference(true)
  }

  reference(isReferenced) {
    this.native.hold(isReferenced)
    return this
  }

  /** A turn of the reactor: up to which byte the area is filled. */
  turn(bytes, at) {
    if (this.isOver) return at
    try {
      return this.native.turn(bytes, at)
    } catch (error) {
      this.over(faulty(error))
      return at
    }
  }

  waitingBytes() {
    return this.native.waitingBytes()
  }

  /** What came was heard. */
  heard() {
    if (this.isOver || this.closing === null) return
    if (this.native.isOver()) this.over()
  }

  /** Ends. The error is told to who closes the server, and thrown if nobody does yet: not from here, where the
   * handler would catch it whose answer was flushed at once. */
  over(error) {
    this.isOver = true
    clearTimeout(this.grace)
    this.native.close()
    if (error === undefined) this.ended.resolve()
    else if (this.closing !== null) this.ended.reject(error)
    else {
      this.closing = Promise.reject(error)
      this.closing.catch(() => {})
      process.nextTick(() => {
        throw error
      })
    }
    for (const reply of this.replies.splice(0)) {
      if (reply === undefined) continue
      reply.isOver = true
      reply.changed(true)
    }
  }

  /** Requests are lost, and would never be answered. */
  robbed(error) {
    if (!this.isOver) this.over(error)
  }

  hear(what, slot, first, second) {
    // What lay in the inbox when it ended: nobody could be told of an answer.
    if (this.isOver) return
    if (what === CHANGED) return this.replies[slot]?.changed(first === 1)
    if (what !== REQUEST) return
    const reply = new Reply(this, slot, first, second)
    this.replies[slot] = reply
    this.answer(this.turns.payload(), reply)
  }

  /** Has a request answered, whatever becomes of its handler. */
  answer(frame, reply) {
    let answering
    try {
      answering = this.dispatch(frame, reply)
    } catch (error) {
      return reply.fail("ABANDONED", wordsOf(error))
    }
    if (reply.isOver && answering === undefined) return
    // Also of one that answered at once and goes on: what it throws later is not the event loop's.
    Promise.resolve(answering).then(
      () => reply.fail("ABANDONED"),
      (error) => reply.fail("ABANDONED", wordsOf(error)),
    )
  }

  item(reply, frame) {
    this.items.push(reply, this.outbox.put(ITEM, reply.slot, 0, 0, frame))
    this.flushLater()
  }

  end(reply, frame) {
    this.say(END, reply, 0, frame)
  }

  fail(reply, code, message) {
    if (!Object.hasOwn(FAULTS, code)) throw badArgument(`there is no fault ${code}`)
    if (typeof message !== "string") throw badArgument("the words of a fault are a string")
    this.say(FAIL, reply, FAULTS[code].number, Buffer.from(message))
  }

  watch(reply) {
    this.outbox.put(WATCH, reply.slot, 0, 0, NO_BYTES)
    this.flushLater()
  }

  /** Says the last word about a call. */
  say(what, reply, first, payload) {
    // First: where there is no room for it something else may still be said.
    if (!this.isOver) this.outbox.put(what, reply.slot, first, 0, payload)
    // And this before a flush, which may run handlers.
    reply.isOver = true
    if (this.isOver) return
    this.replies[reply.slot] = undefined
    this.flushLater()
  }

  /** Flushes when everything that runs now has run, promises included. */
  flushLater() {
    if (this.outbox.used > SAID_BYTES_MAX) return this.flush()
    if (this.isFlushing) return
    this.isFlushing = true
    queueMicrotask(this.flushLast)
  }

  flush() {
    this.isFlushing = false
    const { outbox, items } = this
    if (this.isOver) return this.unsay()
    if (outbox.used === 0) return
    let hasMore
    try {
      hasMore = this.native.flush(outbox.bytes, outbox.used)
    } catch (error) {
      // What was said may have been heard. Said once more, it would be of calls that were given the same slots meanwhile.
      this.unsay()
      return this.over(faulty(error))
    }
    // A handler that is told what became of an item may send more at once: that needs an area that is empty by then.
    for (let n = 1; n < items.length; n += 2) items[n] = outbox.noted(items[n])
    if (items.length > 0) this.items = []
    outbox.clear()
    for (let n = 0; n < items.length; n += 2) items[n].noted(items[n + 1])
    if (hasMore || this.closing !== null) this.turns.goOn()
  }

  /** Drops what would go over with the next flush. */
  unsay() {
    this.outbox.clear()
    this.items = []
  }
}

module.exports = { Server }
