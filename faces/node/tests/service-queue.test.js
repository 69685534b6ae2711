"use strict"

// Calls that wait for others to end: in their order, each until its deadline, and as cheaply when very many wait.

const assert = require("node:assert/strict")
const { join } = require("node:path")
const test = require("node:test")
const { random } = require("./helpers.js")
const { HOME } = require("./service-helpers.js")
const { Queue } = require(join(HOME, "../queue.js"))

const MANY = 400_000

/** What waits for a call, as a client's does: it leaves the queue when it fails. */
class Waiter {
  constructor(name) {
    this.name = name
    this.queue = null
    this.waiting = null
    this.code = null
  }

  fail(error) {
    this.code = error.code
    this.queue?.drop(this)
  }
}

/** A clock that a test moves. */
function clock(context) {
  const { now } = performance
  const time = { ms: 1000 }
  performance.now = () => time.ms
  context.after(() => (performance.now = now))
  return time
}

// What looks at all that wait for each of them computes for minutes. It is processor time that counts: a busy machine takes
// longer for anything.
const COMPUTED_US_MAX = 20e6
const MANY_AT_ONCE = 1000
/** Does something for each of very many, within that time. */
function each(act) {
  const begun = process.cpuUsage()
  for (let n = 0; n < MANY; n++) {
    act(n)
    if (n % MANY_AT_ONCE !== 0) continue
    const { user } = process.cpuUsage(begun)
    assert.ok(user < COMPUTED_US_MAX, `${n} of ${MANY} took ${user} us`)
  }
}

const call = (deadline) => ({ what: 1, request: Uint8Array.of(1, 2, 3), deadline, credit: 0 })

test("calls are taken in their order whichever leave in between, and end when their time is over", (context) => {
  const time = clock(context)
  const chance = random(7)
  const queue = new Queue(1 << 30)
  let model = []
  for (let step = 0; step < 20_000; step++) {
    const waiter = new Waiter(step)
    switch (chance(8)) {
      case 0: {
        // Out of the middle, as a signal has it.
        const [left] = model.splice(chance(model.length), 1)
        left?.waiter.fail(new Error())
        break
      }
      case 1: {
        const over = model.findIndex(({ due }) => due > time.ms)
        const late = model.splice(0, over < 0 ? model.length : over)
        const next = model.shift()
        const taken = queue.take()
        for (const { waiter } of late) assert.equal(waiter.code, "NOT_SENT")
        assert.equal(taken?.waiter, next?.waiter)
        if (taken !== undefined) assert.equal(taken.deadline, next.due === Infinity ? 0 : next.due - time.ms)
        break
      }
      case 2: {
        time.ms += chance(20)
        queue.expire()
        const over = model.filter(({ due }) => due <= time.ms)
        for (const { waiter } of over) assert.equal(waiter.code, "NOT_SENT")
        model = model.filter(({ due }) => due > time.ms)
        for (const { waiter } of model) assert.equal(waiter.code, null)
        break
      }
      default: {
        const deadline = chance(3) === 0 ? 0 : 1 + chance(200)
        queue.put(waiter, call(deadline))
        model.push({ waiter, due: deadline === 0 ? Infinity : time.ms + deadline })
      }
    }
    assert.equal(queue.isEmpty, model.length === 0)
  }
  queue.fail(Object.assign(new Error(), { code: "CLOSED" }))
  for (const { waiter } of model) assert.equal(waiter.code, "CLOSED")
  assert.deepEqual([queue.count, queue.bytes, queue.due], [0, 0, Infinity])
})

// One that has grown old in memory keeps whatever it refers to.
test("a call that left refers to no other", () => {
  const queue = new Queue(1 << 30)
  const waiters = Array.from({ length: 5 }, (_, n) => new Waiter(n))
  for (const waiter of waiters) queue.put(waiter, call(0))
  const calls = waiters.map(({ waiting }) => waiting)
  waiters[2].fail(new Error())
  assert.equal(queue.take(), calls[0])
  assert.equal(calls[1].newer, calls[3])
  queue.fail(new Error())
  for (const { older, newer } of calls) assert.deepEqual([older, newer], [null, null])
})

test("very many that wait are taken one by one", () => {
  const queue = new Queue(1 << 30)
  for (let n = 0; n < MANY; n++) queue.put(new Waiter(n), call(0))
  each((n) => assert.equal(queue.take().waiter.name, n))
  assert.equal(queue.isEmpty, true)
})

test("very many that wait end each at its own time", (context) => {
  const time = clock(context)
  const queue = new Queue(1 << 30)
  const waiters = Array.from({ length: MANY }, (_, n) => new Waiter(n))
  for (const waiter of waiters) queue.put(waiter, call(1 + waiter.name))
  each((n) => {
    time.ms += 1
    queue.expire()
    assert.equal(waiters[n].code, "NOT_SENT")
  })
  assert.equal(queue.isEmpty, true)
})
