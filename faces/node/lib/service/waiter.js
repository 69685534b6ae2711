"use strict"

// What waits for a call: told once how it ended, or that a signal gave it up.

const { leave, listen } = require("../signals.js")

class Waiter {
  constructor() {
    this.client = null
    // While it waits for its turn: where, and as which of the calls there.
    this.queue = null
    this.waiting = null
    this.slot = -1
    this.isOver = false
    this.signal = null
    // What its client counts while the call is under way: whether its answer or next item is waited for, and the bytes that came
    // and were not taken.
    this.isAwaited = true
    this.keptBytes = 0
  }

  /** Whether what comes next is waited for. */
  waits() {
    return true
  }

  /** Counts bytes that are kept, and whether what comes next is waited for now. */
  note(bytes) {
    const was = this.isAwaited
    this.isAwaited = !this.isOver && this.waits()
    this.keptBytes += bytes
    this.client?.keeps(bytes, this.isAwaited - was)
  }

  /** Gives the call up when the signal says so; `false` when it says so already. */
  obey(signal) {
    if (signal === undefined || signal === null) return true
    if (signal.aborted) {
      this.fail(signal.reason)
      return false
    }
    this.signal = signal
    listen(signal, this)
    return true
  }

  /** The signal says so. The server is told; what it still answers is dropped. */
  abort(reason) {
    try {
      this.client?.cancel(this)
    } finally {
      this.fail(reason)
    }
  }

  /** Whether this is the end of it. */
  over() {
    if (this.isOver) return false
    this.isOver = true
    this.note(0)
    this.queue?.drop(this)
    this.heedNoMore()
    return true
  }

  /** Whether something is left, after the end too, that a signal drops. */
  keepsFrames() {
    return false
  }

  /** Listens to the signal no longer, once it has nothing to say. */
  heedNoMore() {
    if (this.signal === null || !this.isOver || this.keepsFrames()) return
    leave(this.signal, this)
    this.signal = null
  }
}

/** A call whose answer is one frame. */
class Call extends Waiter {
  constructor(resolve, reject) {
    super()
    this.resolve = resolve
    this.reject = reject
  }

  item() {
    // None comes: the native side fails a call that says it is none of a stream.
  }

  end(frame) {
    if (this.over()) this.resolve(frame)
  }

  fail(error) {
    if (this.over()) this.reject(error)
  }
}

/** Streams whose reader was collected: nobody can take anything of them any more. */
const unread = new FinalizationRegistry((items) => items.return())

/**
 * The frames of a stream, as their user has them. What is under way keeps the stream, and not this, unless a call of `next()` waits: so one
 * that is dropped without `return()` is noticed.
 */
class Reader {
  constructor(items) {
    this.items = items
    unread.register(this, items)
  }

  [Symbol.asyncIterator]() {
    return this
  }

  next() {
    return this.items.next(this)
  }

  return(value) {
    return this.items.return(value)
  }

  throw(error) {
    return this.items.throw(error)
  }
}

/** A stream: asked for when it is iterated, and no faster than its frames are taken. */
class Items extends Waiter {
  constructor(credit, begin) {
    super()
    this.credit = credit
    this.begin = begin
    // Frames that were not taken, oldest first.
    this.frames = []
    this.hasFailed = false
    // Anything may be the reason of a signal, nothing among it.
    this.error = undefined
    this.taken = 0
    // Calls of next() that have not been answered, oldest first, each with its reader.
    this.calls = []
    this.isAwaited = false
    // Tells the server that the frame that ended it is not taken, as long as it is here.
    this.leaveUnread = null
  }

  next(reader) {
    this.start()
    if (this.frames.length > 0) return Promise.resolve({ value: this.take(), done: false })
    if (this.hasFailed) {
      this.hasFailed = false
      return Promise.reject(this.error)
    }
    if (this.isOver) return Promise.resolve({ value: undefined, done: true })
    return new Promise((resolve, reject) => {
      this.calls.push({ resolve, reject, reader })
      this.note(0)
    })
  }

  waits() {
    return this.calls.length > 0
  }

  /** The reader wants no more. */
  return(value) {
    this.begin = null
    if (!this.isOver) {
      this.client?.cancel(this)
      this.finish()
    }
    this.drop()
    this.hasFailed = false
    return Promise.resolve({ value, done: true })
  }

  /** The signal says so: what was not taken is dropped as well, and the end with it if that was heard. */
  abort(reason) {
    try {
      if (this.isOver) this.tell(reason)
      else super.abort(reason)
    } finally {
      this.drop()
    }
  }

  drop() {
    this.frames = []
    this.heedNoMore()
    this.leaveUnread?.()
    this.leaveUnread = null
    this.note(-this.keptBytes)
  }

  keepsFrames() {
    return this.frames.length > 0
  }

  throw(error) {
    this.return()
    return Promise.reject(error)
  }

  start() {
    const { begin } = this
    this.begin = null
    begin?.(this)
  }

  take() {
    this.granted()
    const frame = this.frames.shift()
    if (this.frames.length === 0) this.leaveUnread = null
    this.note(-frame.length)
    this.heedNoMore()
    return frame
  }

  /** One was taken: the server may send as many as were, half the credit at a time. */
  granted() {
    this.taken++
    if (this.client === null || this.isOver) return
    // A call may be made before there is a connection, whose server then says what a stream begins with.
    if (this.credit === 0) this.credit = this.client.window()
    if (this.credit === 0 || this.taken * 2 < this.credit) return
    this.client.grant(this, this.taken)
    this.taken = 0
  }

  item(frame) {
    if (this.isOver) return
    const call = this.calls.shift()
    if (call === undefined) {
      this.frames.push(frame)
      this.note(frame.length)
      return
    }
    this.granted()
    this.note(0)
    call.resolve({ value: frame, done: false })
  }

  /** The frame that ends a stream is its last. What has no number is a refusal, which nobody need be told of. */
  end(frame, client, low, high) {
    this.item(frame)
    if (this.frames.length > 0 && (low | high) !== 0) this.leaveUnread = () => client.leaveUnread(low, high)
    this.finish()
  }

  finish() {
    if (!this.over()) return
    for (const { resolve } of this.calls.splice(0)) resolve({ value: undefined, done: true })
  }

  fail(error) {
    if (!this.over()) return
    const call = this.calls.shift()
    if (call === undefined) this.tell(error)
    else call.reject(error)
    for (const { resolve } of this.calls.splice(0)) resolve({ value: undefined, done: true })
  }

  /** Whoever asks next is told. */
  tell(error) {
    this.hasFailed = true
    this.error = error
  }
}

module.exports = { Call, Items, Reader }
