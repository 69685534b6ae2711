"use strict"

// What an entry's data is: a view where it can be one, and nobody's way into the store.

const assert = require("node:assert/strict")
const { readFileSync, readdirSync } = require("node:fs")
const { join } = require("node:path")
const test = require("node:test")
const { Worker, isMainThread, parentPort, workerData } = require("node:worker_threads")
const { folder, handOn, open, store } = require("./helpers.js")

const ENTRIES = 2_000
const filler = (n) => Buffer.alloc(60 + (n % 50), n % 251)

function fill(log, first = 0, end = ENTRIES) {
  for (let n = first; n < end; n++) log.appendSync(filler(n), { time: n })
}

/** Everything in a log is as it was appended. */
function check(log, end = ENTRIES) {
  let n = 0
  for (const { time, data } of log.query()) {
    assert.equal(time, n)
    assert.deepEqual(Buffer.from(data), filler(n))
    n++
  }
  assert.equal(n, end)
}

/** Writes over every entry, in each of the ways to have one. */
function scribble(log) {
  let count = 0
  for (const { data } of log.query()) {
    data.fill(255)
    count++
  }
  for (const { data } of log.query({ lazy: true })) data.fill(254)
  const cursor = log.cursor()
  while (cursor.next()) cursor.data.fill(253)
  // And over whatever else can be reached from one.
  for (const { data } of log.query()) new Uint8Array(data.buffer).fill(252)
  assert.ok(count > 0)
}

/** The segments' bytes. Behind them another may appear at any time: the next one is prepared ahead. */
const bytes = (path) =>
  readdirSync(path).filter((name) => name.startsWith("segment-")).sort().map((name) => readFileSync(join(path, name)))

if (!isMainThread) {
  check(open(workerData.path, workerData.options).log("a"))
  parentPort.postMessage("right")
} else {
  for (const durability of ["os", "sync"]) {
    test(`${durability}: a caller that writes to data writes to a copy of its own`, async (context) => {
      const path = folder(context)
      const options = { durability, segmentBytesMin: 16 << 10, segmentBytesMax: 64 << 10 }
      const opened = store(context, { path, ...options })
      const log = opened.log("a")
      if (durability === "os") fill(log)
      else await Promise.all(Array.from({ length: ENTRIES }, (_, n) => log.append(filler(n), { time: n })))
      const before = bytes(path)
      assert.ok(before.length > 3)
      scribble(log)
      assert.deepEqual(bytes(path).slice(0, before.length), before, "the files")
      const neighbour = store(context, { path, readOnly: true })
      check(neighbour.log("a"))
      scribble(neighbour.log("a"))
      assert.deepEqual(bytes(path).slice(0, before.length), before, "the files")
      const worker = new Worker(__filename, { workerData: { path, options } })
      const [answer] = await new Promise((resolve, reject) => worker.on("message", (...said) => resolve(said)).on("error", reject))
      assert.equal(answer, "right", "another thread")
      await worker.terminate()
      // Whatever comes later, in the same page too, is what it is to those who wrote.
      for (const log of [opened.log("a"), neighbour.log("a")]) {
        const cursor = log.cursor({ tail: true })
        for (let n = 0; n < 50; n++) {
          opened.log("a").appendSync(`later ${n}`, { time: ENTRIES })
          assert.ok(cursor.next())
          assert.equal(Buffer.from(cursor.data).toString(), `later ${n}`)
          cursor.data.fill(7)
          assert.equal(cursor.next(), false)
        }
      }
      assert.deepEqual((await opened.verify()).damage, [])
    })
  }

  test("memory: data is a copy, and the store stays as it is", (context) => {
    const log = store(context).log("a")
    fill(log)
    scribble(log)
    check(log)
  })

  test("data is a view of the map where nothing is written any more, and a copy in the page that is written to", (context) => {
    const log = store(context, { durability: "os", segmentBytesMin: 64 << 10 }).log("a")
    fill(log, 0, 100)
    const entries = [...log.query()]
    const [{ data: first }, { data: second }] = entries
    assert.equal(first.buffer, second.buffer, "one buffer per segment")
    assert.equal([...log.query({ lazy: true })][0].data.buffer, first.buffer)
    const last = entries.at(-1).data
    assert.notEqual(last.buffer, first.buffer)
    assert.equal(last.buffer.byteLength, last.length)
    fill(log, 100, 200)
    assert.equal([...log.query({ start: 99 })][0].data.buffer, first.buffer, "its page is full now")
  })

  test("a view that is handed on is copied, and whatever is done to its buffer, the next one is there", (context) => {
    const log = store(context, { durability: "os", segmentBytesMin: 64 << 10 }).log("a")
    fill(log, 0, 100)
    const [{ data }, { data: second }] = log.query()
    assert.deepEqual(Buffer.from(structuredClone(data)), filler(0))
    handOn(data)
    assert.deepEqual(Buffer.from(second), filler(1))
    check(log, 100)
  })

  test("what was read is lent also when the store is closed", async (context) => {
    const opened = store(context, { durability: "os", segmentBytesMin: 64 << 10 })
    const log = opened.log("a")
    fill(log, 0, 100)
    const [first, second] = log.query({ lazy: true })
    assert.deepEqual(Buffer.from(first.data), filler(0))
    await opened.close()
    assert.deepEqual(Buffer.from(second.data), filler(1))
  })

  test("what was not asked for before the store was closed is a copy then", async (context) => {
    const opened = store(context, { durability: "os", segmentBytesMin: 64 << 10 })
    const log = opened.log("a")
    fill(log, 0, 100)
    const [first] = log.query({ lazy: true })
    await opened.close()
    assert.deepEqual(Buffer.from(first.data), filler(0))
    assert.equal(first.data.buffer.byteLength, first.length)
  })
}
