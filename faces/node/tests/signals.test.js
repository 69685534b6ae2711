"use strict"

// One signal for many waits: Node.js warns of more than ten listeners, and looks through them for each that leaves.

const assert = require("node:assert/strict")
const { getEventListeners } = require("node:events")
const test = require("node:test")
const { store } = require("./helpers.js")
const { Client, after, bytes, connect, echo, endpoint, serve } = require("./service-helpers.js")
const { rpc: { RpcClient } } = require("./served.js")

const MANY = 50

/** What begins to wait for something that does not come, by what it is. */
async function waits(context) {
  const path = endpoint(context)
  await serve(context, path, () => new Promise(() => {}), { drainGraceMs: 0 })
  const client = await connect(context, path, { inFlightMax: MANY / 2 })
  const opened = store(context)
  const log = opened.log("a")
  const rpc = new RpcClient("http://127.0.0.1:9/rpc/none", { deadlineMs: 60_000, inFlightMax: MANY })
  after(context, () => rpc.close())
  return {
    // Half of them wait in this process.
    calls: (signal) => client.call(bytes("x"), { signal }),
    streams: (signal) => client.stream(bytes("x"), { signal }).next(),
    tails: (signal) => log.tail(undefined, { signal }).next(),
    "tails that wait for names": (signal) => opened.newLogs({ signal }).next(),
    "calls by JSON-RPC": (signal) => rpc.call("None", [], { signal }),
  }
}

test("a signal is listened to once, and ends all that wait by it", async (context) => {
  for (const [what, wait] of Object.entries(await waits(context))) {
    const controller = new AbortController()
    const { signal } = controller
    const given = Array.from({ length: MANY }, () => wait(signal))
    assert.equal(getEventListeners(signal, "abort").length, 1, what)
    const reason = new Error(what)
    controller.abort(reason)
    for (const outcome of await Promise.allSettled(given)) assert.equal(outcome.reason, reason, what)
    assert.equal(getEventListeners(signal, "abort").length, 0, what)
  }
})

test("a signal that nothing waits by any more is listened to no more", async (context) => {
  const path = endpoint(context)
  await serve(context, path, echo)
  const client = await connect(context, path)
  const { signal } = new AbortController()
  const calls = Array.from({ length: MANY }, () => client.call(bytes("x"), { signal }))
  const tails = Array.from({ length: MANY }, () => store(context).log("a").tail(undefined, { signal }))
  await Promise.all(calls)
  assert.equal(getEventListeners(signal, "abort").length, 1)
  await Promise.all(tails.map((tail) => tail.return()))
  assert.equal(getEventListeners(signal, "abort").length, 0)
})

test("who begins to wait while a signal says so is told at once, and whoever left is not told", async (context) => {
  const path = endpoint(context)
  await serve(context, path, () => new Promise(() => {}), { drainGraceMs: 0 })
  const client = await connect(context, path)
  const log = store(context).log("a")
  const controller = new AbortController()
  const { signal } = controller
  const [left, stays] = [log.tail(undefined, { signal }), log.tail(undefined, { signal })]
  await left.return()
  const later = new Promise((tell) => signal.addEventListener("abort", () => tell(client.call(bytes("x"), { signal }))))
  const told = assert.rejects(later, (reason) => reason === "enough")
  controller.abort("enough")
  await told
  assert.deepEqual(await left.next(), { value: undefined, done: true })
  await assert.rejects(stays.next(), (reason) => reason === "enough")
})

test("a signal gives up connecting, and means nothing to a client that is connected", async (context) => {
  const [path, nobody] = [endpoint(context), endpoint(context)]
  await serve(context, path, echo)
  const controller = new AbortController()
  const { signal } = controller
  const client = await connect(context, path, { signal })
  assert.equal(getEventListeners(signal, "abort").length, 0)
  const given = Client.connect(nobody, { signal, connectWithinMs: 600_000 })
  setImmediate(() => controller.abort(new Error("enough")))
  await assert.rejects(given, { message: "enough" })
  assert.equal(getEventListeners(signal, "abort").length, 0)
  assert.equal((await client.call(bytes("x"))).length, 1)
  await assert.rejects(Client.connect(path, { signal }), { message: "enough" })
  await assert.rejects(Client.connect(path, { signal: {} }), { code: "BAD_ARGUMENT" })
  assert.equal((await connect(context, path, { signal: null })).isShared, false)
})
