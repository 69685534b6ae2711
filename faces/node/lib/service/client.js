"use strict"

// A client on the event loop: any number of calls under way over one connection, none waiting for another.
//
// What is said in one turn of the event loop leaves together at its end; what a turn of the reactor brought is heard
// together. Nothing here waits: connecting, and connecting anew, happen in the same turns.
//
// While no call and no reader waits, and items of streams that were not taken hold BACKLOG_BYTES or more, nothing is read, so that
// the server's streams wait too. While one waits reading goes on, because its answer may come behind items of other streams: these
// are bounded by their credit alone. A call in the queue waits too: for the end of another one, which may come behind such items.

const binding = require("../binding.js")
const { FAULTS } = require("../faults.js")
const { leave, listen } = require("../signals.js")
const { Outbox } = require("./area.js")
const { ServiceError, badArgument, faulty, native, ofNumber } = require("./error.js")
const { callOptions, checkedCredit, connectOptions, isLeftOut, milliseconds } = require("./options.js")
const { Queue } = require("./queue.js")
const { Turns } = require("./turns.js")
const { Call, Items, Reader } = require("./waiter.js")

const CALL = 1
const CANCEL = 2
const GRANT = 3
const STREAM = 4
const LEAVE = 5

const ITEM = 1
const END = 2
const FAILED = 3

const FRAME_BYTES_MAX = 16 << 20
const IN_FLIGHT_MAX = 1024
const UNSENT_BYTES_MAX = 64 << 20
// A turn's requests go over before they are this many bytes.
const SAID_BYTES_MAX = 1 << 20

// One executor for every promise: what it was handed is taken from here at once.
let resolveMade, rejectMade
function capture(resolve, reject) {
  resolveMade = resolve
  rejectMade = reject
}

class Client {
  /** Connects to a server's endpoint; resolves once the server said welcome. */
  static async connect(endpoint, options) {
    const client = new Client(endpoint, options)
    await client.joined(options?.signal)
    return client
  }

  constructor(endpoint, options) {
    if (typeof endpoint !== "string") throw badArgument("an endpoint is a path, as ./run/echo.sock")
    const { signal, ...settings } = connectOptions(options)
    if (signal?.aborted) throw signal.reason
    this.endpoint = endpoint
    this.frameBytesMax = settings.frameBytesMax ?? FRAME_BYTES_MAX
    this.inFlightMax = settings.inFlightMax ?? IN_FLIGHT_MAX
    this.turns = new Turns(this)
    this.outbox = new Outbox()
    this.isClosed = false
    this.isReferenced = true
    this.isHeld = false
    this.isFlushing = false
    // The waiters, by slot.
    this.waiters = []
    this.free = []
    this.inFlight = 0
    // Bytes of items that were not taken, of streams that have not ended; and how many wait: calls of one answer, and streams
    // whose reader waits for an item.
    this.keptBytes = 0
    this.awaited = 0
    this.isHeldBack = false
    // Calls beyond the bound.
    this.queue = new Queue(settings.unsentBytesMax ?? UNSENT_BYTES_MAX)
    // Callers that wait for the connection.
    this.joiners = []
    this.flushNow = () => this.flush()
    this.flushLast = () => process.nextTick(this.flushNow)
    // What a call that says nothing else has.
    this.deadline = milliseconds(settings.deadlineMs, "deadlineMs")
    this.native = native(() => binding.connectService(endpoint, settings))
    native(() => this.native.watch(() => this.turns.begin()))
  }

  /** Sends a request; resolves to the frame that answers it. */
  call(request, options) {
    const promise = new Promise(capture)
    this.ask(new Call(resolveMade, rejectMade), CALL, request, options, 0)
    return promise
  }

  /** Sends a request that a stream answers, once it is iterated; yields its frames. */
  stream(request, options) {
    const credit = checkedCredit(callOptions(options))
    return new Reader(new Items(credit, (items) => this.ask(items, STREAM, request, options, credit)))
  }

  /** Whether frames go through shared memory. */
  get isShared() {
    return this.native.isShared()
  }

  /** Lets the process end although calls are under way. */
  unref() {
    this.isReferenced = false
    this.hold()
    return this
  }

  /** Keeps the process alive while calls are under way, as it does unless told otherwise. */
  ref() {
    this.isReferenced = true
    this.hold()
    return this
  }

  /** Hangs up. Calls under way fail with `CLOSED`. */
  close() {
    this.end(new ServiceError("CLOSED", "this client was closed"))
  }

  /** Ends everything that is under way with an error. */
  end(error) {
    if (this.isClosed) return
    this.isClosed = true
    this.native.close()
    this.outbox.clear()
    const { waiters, queue, joiners } = this
    this.waiters = []
    this.joiners = []
    for (const waiter of waiters) waiter?.fail(error)
    queue.fail(error)
    for (const { reject } of joiners) reject(error)
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.close()
  }

  /** Begins a call, whose end is told to `waiter`. */
  ask(waiter, what, request, options, credit) {
    if (this.isClosed) return waiter.fail(new ServiceError("CLOSED", "this client was closed"))
    if (!(request instanceof Uint8Array)) return waiter.fail(badArgument("a request is a Uint8Array"))
    // Before it is copied, for which there may be no room.
    if (request.length > this.frameBytesMax) return waiter.fail(tooLong(request.length, this.frameBytesMax))
    let { deadline } = this
    if (options !== undefined) {
      try {
        deadline = milliseconds(callOptions(options).deadlineMs, "deadlineMs") || deadline
      } catch (error) {
        return waiter.fail(error)
      }
      if (!waiter.obey(options.signal)) return
    }
    if (this.inFlight < this.inFlightMax) return this.put(waiter, what, request, deadline, credit)
    this.queue.put(waiter, { what, request, deadline, credit })
    this.readOn()
  }

  put(waiter, what, request, deadline, credit) {
    const slot = this.free.length > 0 ? this.free.pop() : this.waiters.length
    this.waiters[slot] = waiter
    waiter.slot = slot
    waiter.client = this
    this.inFlight++
    if (waiter.isAwaited) this.awaited++
    this.outbox.put(what, slot, deadline, credit, request)
    if (this.outbox.used > SAID_BYTES_MAX) this.flush()
    else this.flushLater()
  }

  cancel(waiter) {
    this.outbox.put(CANCEL, waiter.slot, 0, 0, null)
    this.flushLater()
  }

  grant(waiter, items) {
    this.outbox.put(GRANT, waiter.slot, items, 0, null)
    this.flushLater()
  }

  /** Tells the server that nobody takes the frame that ended a call: what it names may be given back. */
  leaveUnread(low, high) {
    if (this.isClosed) return
    this.outbox.put(LEAVE, 0, low, high, null)
    this.flushLater()
  }

  /** Items that a stream may send before it is granted more, as the server says. */
  window() {
    return this.native.credit()
  }

  /** Flushes when everything that runs now has run, promises included. */
  flushLater() {
    if (this.isFlushing) return
    this.isFlushing = true
    queueMicrotask(this.flushLast)
  }

  flush() {
    this.isFlushing = false
    if (this.isClosed) return
    const { outbox } = this
    if (outbox.used === 0) return
    let hasMore
    try {
      hasMore = this.native.flush(outbox.bytes, outbox.used, this.holdsBack())
    } catch (error) {
      return this.end(faulty(error))
    }
    outbox.clear()
    this.hold()
    if (hasMore) this.turns.goOn()
  }

  /** A turn of the reactor: up to which byte the area is filled. */
  turn(bytes, at) {
    if (this.isClosed) return at
    try {
      return this.native.turn(bytes, at, this.holdsBack())
    } catch (error) {
      this.end(faulty(error))
      return at
    }
  }

  /** Whether nothing more is read until items are taken, or a call or a reader waits. */
  holdsBack() {
    this.isHeldBack = this.keepsEnough()
    return this.isHeldBack
  }

  keepsEnough() {
    return this.keptBytes >= binding.BACKLOG_BYTES && this.awaited === 0 && this.queue.isEmpty
  }

  /** Counts bytes that are kept, and calls and readers that wait; a negative number takes them off. */
  keeps(bytes, awaited) {
    this.keptBytes += bytes
    this.awaited += awaited
    this.readOn()
  }

  /** Goes on reading, if that was held back and need not be any more. */
  readOn() {
    if (!this.isHeldBack || this.keepsEnough()) return
    this.isHeldBack = false
    this.turns.later()
  }

  waitingBytes() {
    return this.native.waitingBytes()
  }

  /** What came was heard. */
  heard() {
    if (this.isClosed) return
    if (this.joiners.length > 0) this.join()
    while (this.inFlight < this.inFlightMax) {
      const next = this.queue.take()
      if (next === undefined) break
      this.put(next.waiter, next.what, next.request, next.deadline, next.credit)
    }
    this.hold()
  }

  /** Answers are lost: nobody can say of which calls. */
  robbed(error) {
    this.end(error)
  }

  hear(what, slot, first, second) {
    const waiter = this.waiters[slot]
    if (waiter === undefined) return
    if (what === ITEM) return waiter.item(this.turns.payload())
    this.waiters[slot] = undefined
    this.free.push(slot)
    this.inFlight--
    this.keeps(-waiter.keptBytes, waiter.isAwaited ? -1 : 0)
    waiter.client = null
    if (what === END) waiter.end(this.turns.payload(), this, first, second)
    else if (what === FAILED) waiter.fail(ofNumber(first, this.turns.text()))
  }

  /** Resolves once there is a connection; a signal that gives that up closes the client. */
  joined(signal = undefined) {
    return new Promise((resolve, reject) => {
      if (this.isClosed) return reject(new ServiceError("CLOSED", "this client was closed"))
      const over = (settle) => (value) => {
        if (!isLeftOut(signal)) leave(signal, joiner)
        settle(value)
      }
      const joiner = { resolve: over(resolve), reject: over(reject), abort: (reason) => this.end(reason) }
      if (!isLeftOut(signal)) listen(signal, joiner)
      this.joiners.push(joiner)
      this.turns.begin()
    })
  }

  join() {
    try {
      if (!this.native.isConnected()) return
      for (const { resolve } of this.joiners.splice(0)) resolve()
    } catch (error) {
      const joiners = this.joiners.splice(0)
      this.close()
      for (const { reject } of joiners) reject(faulty(error))
    }
  }

  hold() {
    const isNeeded = this.isReferenced && (this.inFlight > 0 || this.joiners.length > 0)
    if (isNeeded === this.isHeld || this.isClosed) return
    this.isHeld = isNeeded
    this.native.hold(isNeeded)
  }
}

function tooLong(length, allowed) {
  const { says } = FAULTS.FRAME_TOO_LARGE
  return new ServiceError("FRAME_TOO_LARGE", `${says}: a request of ${length} bytes, ${allowed} are allowed`)
}

module.exports = { Client }
