"use strict"

const assert = require("node:assert/strict")
const { once } = require("node:events")
const test = require("node:test")
const { Worker } = require("node:worker_threads")
const { folder, open, store } = require("./helpers.js")

async function take(newLogs, count) {
  const names = []
  for await (const name of newLogs) {
    names.push(name)
    if (names.length === count) break
  }
  return names
}

for (const durability of ["memory", "os", "sync"]) {
  test(`${durability}: every new log is heard of once, in the order of their creation`, async (context) => {
    const opened = store(context, { durability })
    await opened.log("first").append("x")
    const [fresh, all] = [take(opened.newLogs(), 20), take(opened.newLogs({ existing: true }), 21)]
    const made = Array.from({ length: 20 }, (_, n) => `log ${n}`)
    for (const name of made) {
      opened.log(name)
      opened.log(name).append("y")
      if (name.endsWith("3")) await new Promise(setImmediate)
    }
    assert.deepEqual(await fresh, made)
    assert.deepEqual(await all, ["first", ...made])
  })
}

test("logs that another thread makes are heard of, and one that takes an old name", async (context) => {
  const opened = store(context, { durability: "os" })
  const newLogs = opened.newLogs()
  opened.log("a")
  assert.deepEqual(await newLogs.next(), { value: "a", done: false })
  await opened.purge({ log: "a", destroy: true })
  opened.log("a")
  assert.deepEqual(await newLogs.next(), { value: "a", done: false })
  const third = newLogs.next()
  const program = `const { open } = require(${JSON.stringify(process.env.THALWEG_PACKAGE ?? require.resolve(".."))})
    const { workerData: path } = require("node:worker_threads")
    const store = open(path, { durability: "os" })
    store.log("by a worker")
    store.close()`
  await once(new Worker(program, { eval: true, workerData: opened.path }), "exit")
  assert.deepEqual(await third, { value: "by a worker", done: false })
  await newLogs.return()
})

test("a neighbour that only reads hears of what the writer makes", async (context) => {
  const path = folder(context)
  const writer = store(context, { path, durability: "os" })
  writer.log("a")
  const reader = open(path, { readOnly: true })
  context.after(() => reader.close())
  const [fresh, all] = [take(reader.newLogs(), 2), take(reader.newLogs({ existing: true }), 3)]
  writer.log("b")
  await new Promise(setImmediate)
  writer.log("c")
  assert.deepEqual([await fresh, await all], [["b", "c"], ["a", "b", "c"]])
})

test("who listens is told of the end of the store, and return() ends it at once", async (context) => {
  const opened = store(context)
  const left = opened.newLogs()
  const asleep = left.next()
  await left.return()
  assert.deepEqual(await asleep, { value: undefined, done: true })
  const abort = new AbortController()
  const aborted = assert.rejects(take(opened.newLogs({ signal: abort.signal }), 1), { message: "enough" })
  abort.abort(new Error("enough"))
  await aborted
  // One that is over before it begins listens no longer either.
  const { newLogs: listen } = opened.opening
  let ended = 0
  opened.opening.newLogs = (existing) => {
    const newLogs = listen.call(opened.opening, existing)
    return { next: () => newLogs.next(), end: () => (ended++, newLogs.end()) }
  }
  await assert.rejects(opened.newLogs({ signal: abort.signal }).next(), { message: "enough" })
  delete opened.opening.newLogs
  assert.equal(ended, 1)
  const refused = assert.rejects(take(opened.newLogs(), 1), { code: "CLOSED" })
  await opened.close()
  await refused
  assert.throws(() => opened.newLogs(), { code: "CLOSED" })
})
