"use strict"

const assert = require("node:assert/strict")
const test = require("node:test")
const { setImmediate: turn } = require("node:timers/promises")
const { ThalwegError, drain, folder, open, row, store, text } = require("./helpers.js")

const modes = ["memory", "os", "sync"]

for (const durability of modes) {
  test(`${durability}: what is appended in one turn keeps its order and knows its offsets`, async (context) => {
    const log = store(context, { durability }).log("a")
    const offsets = await Promise.all(["one", "two", "three"].map((data) => log.append(data)))
    assert.deepEqual(offsets, [0, 3, 6])
    assert.equal(await log.append(Buffer.from("four")), 11)
    assert.equal(log.appendSync("five"), 15)
    assert.deepEqual([...log.query()].map((entry) => text(entry.data)), ["one", "two", "three", "four", "five"])
  })
}

test("an entry has the time it was given, or that of its turn", async (context) => {
  const log = store(context).log("a")
  const before = Date.now() * 1000
  await Promise.all([10, 10, 20, 5, undefined].map((time) => log.append("x", { time })))
  const times = [...log.query()].map((entry) => entry.time)
  assert.deepEqual(times.slice(0, 4), [10, 10, 20, 5])
  assert.ok(times[4] >= before - 1000 && times[4] <= Date.now() * 1000 + 1000)
  assert.deepEqual([...log.query()].map((entry) => entry.last), [true, true, true, true, true])
})

test("text, buffers and other views are taken for the bytes they are", async (context) => {
  const log = store(context).log("a")
  const backing = Uint8Array.of(0, 1, 2, 3, 4, 5, 6, 7).buffer
  await log.append("déjà 🌊")
  await log.append(Buffer.from([1, 2, 3]))
  await log.append(new Uint8Array(backing, 2, 3))
  await log.append(new Uint16Array(backing, 2, 2))
  await log.append(new DataView(backing, 6, 1))
  const data = [...log.query()].map((entry) => [...entry.data])
  assert.deepEqual(data, [[...Buffer.from("déjà 🌊")], [1, 2, 3], [2, 3, 4], [2, 3, 4, 5], [6]])
})

test("a staged entry is a copy: what becomes of the buffer afterwards is no matter", async (context) => {
  const log = store(context).log("a")
  const buffer = Buffer.from("before")
  const appended = log.append(buffer)
  buffer.fill("x")
  await appended
  assert.equal(text([...log.query()][0].data), "before")
})

test("entries of every size come back whole, over as many segments as it takes", async (context) => {
  const log = store(context, { segmentBytesMax: 1 << 20 }).log("a")
  const sizes = [1, 7, 8, 9, 4095, 16 << 10, 100_000, 700_000, 3, 400_000]
  await Promise.all(sizes.map((size) => log.append(Buffer.alloc(size, size % 251))))
  const found = [...log.query()].map((entry) => entry.data)
  assert.deepEqual(found.map((data) => data.length), sizes)
  assert.ok(found.every((data, n) => data.every((byte) => byte === sizes[n] % 251)))
})

test("a refusal rejects its promise and those behind it, and what came before stays", async (context) => {
  const log = store(context).log("a")
  await log.append("before")
  const outcomes = await Promise.allSettled([log.append("fits"), log.append(Buffer.alloc(200_000)), log.append("too")])
  assert.deepEqual(outcomes.map((outcome) => outcome.reason?.code), [undefined, "TOO_LARGE", "TOO_LARGE"])
  const [, { reason: refused }, { reason: behind }] = outcomes
  assert.ok(refused instanceof ThalwegError && behind instanceof ThalwegError)
  // What stands behind is small enough itself, and says so.
  assert.match(refused.message, /^the commit needs 200\d\d\d bytes/)
  assert.equal(behind.message, `an append in front of it in its turn was refused: ${refused.message}`)
  assert.equal(behind.cause, refused)
  assert.equal(await log.append("after"), 10)
  assert.deepEqual([...log.query()].map((entry) => text(entry.data)), ["before", "fits", "after"])
})

test("a turn may hold more than one commit does", async (context) => {
  const log = store(context).log("a")
  const offsets = await Promise.all(Array.from({ length: 3_000 }, () => log.append(Buffer.alloc(100))))
  assert.deepEqual(offsets, Array.from({ length: 3_000 }, (_, n) => n * 100))
})

test("what cannot be an entry is refused by name", async (context) => {
  const log = store(context).log("a")
  await assert.rejects(log.append(""), { code: "EMPTY_ENTRY" })
  await assert.rejects(log.append(Buffer.alloc(0)), { code: "EMPTY_ENTRY" })
  // Views of what is elsewhere by now, or shorter.
  const gone = new ArrayBuffer(8)
  const short = new ArrayBuffer(8, { maxByteLength: 8 })
  const views = [gone, short].flatMap((buffer) => [new DataView(buffer, 4, 4), new Uint8Array(buffer, 4, 4), new Uint16Array(buffer, 4, 2)])
  structuredClone(gone, { transfer: [gone] })
  short.resize(4)
  for (const view of views) await assert.rejects(log.append(view), { name: "ThalwegError", code: "EMPTY_ENTRY" })
  for (const data of [undefined, null, 7, {}, []]) await assert.rejects(log.append(data), { code: "BAD_ARGUMENT" })
  for (const time of [-2, -1, NaN, "now", "7", 7n, 2 ** 60]) {
    await assert.rejects(log.append("x", { time }), { code: "BAD_ARGUMENT" })
    assert.throws(() => log.appendSync("x", { time }), { code: "BAD_ARGUMENT" })
    await assert.rejects(log.appendMany(["x"], { time }), { code: "BAD_ARGUMENT" })
    await assert.rejects(log.appendTimed([[time, "x"]]), { code: "BAD_ARGUMENT" })
    assert.throws(() => log.store.transaction({ time }), { code: "BAD_ARGUMENT" })
    await assert.rejects(log.store.purge({ before: time }), { code: "BAD_ARGUMENT" })
  }
  assert.deepEqual([...log.query()], [])
})

test("names that no log can have are refused", (context) => {
  const opened = store(context)
  for (const name of ["", ".", "..", "a/b", "a\\b", "a\nb", "x".repeat(70_000)]) {
    assert.throws(() => opened.log(name), { code: "BAD_NAME" }, JSON.stringify(name.slice(0, 9)))
  }
  assert.throws(() => opened.log(7), { code: "BAD_ARGUMENT" })
  assert.deepEqual(opened.logs(), [])
})

test("in sync mode a promise waits for the disk: when it resolves, readers see the entry", async (context) => {
  const path = folder(context)
  const opened = store(context, { durability: "sync", path })
  const [a, b] = [opened.log("a"), opened.log("b")]
  const cursor = a.cursor()
  for (let turn = 0; turn < 20; turn++) {
    await Promise.all([a.append(`a${turn}`), b.append(`b${turn}`)])
    assert.ok(cursor.next())
    assert.equal(text(cursor.data), `a${turn}`)
    const { stagedEnd, durable } = opened.stats()
    assert.equal(stagedEnd, durable)
  }
})

test("what was acknowledged is there when the store is opened again", async (context) => {
  const path = folder(context)
  for (const durability of ["sync", "os"]) {
    const first = open(path, { durability })
    for (let n = 0; n < 50; n++) first.log(durability).append(`entry ${n}`, { time: n })
    await first.close()
    const again = store(context, { path, durability })
    const rows = drain(again.log(durability).cursor())
    assert.deepEqual(rows.map(([time]) => time), Array.from({ length: 50 }, (_, n) => n))
    await again.close()
  }
})

test("code that gives a time may append as well, and each caller gets its own entry", async (context) => {
  const log = store(context).log("a")
  let inner
  const outer = log.appendSync("outer", {
    get time() {
      inner = log.append("inner")
      return 5
    },
  })
  const read = [...log.query()].map((entry) => [entry.offset, text(entry.data)])
  assert.deepEqual(read, [[await inner, "inner"], [outer, "outer"]])
})

test("logs that nobody holds cost the process next to nothing, however many there are", async (context) => {
  require("node:v8").setFlagsFromString("--expose-gc")
  const collect = require("node:vm").runInNewContext("gc")
  const opened = store(context, { segmentBytesMin: 1 << 20, segmentBytesMax: 1 << 24 })
  const before = process.memoryUsage().arrayBuffers
  for (let n = 0; n < 5_000; n++) opened.log(`log ${n}`).appendSync("x")
  assert.ok(process.memoryUsage().arrayBuffers - before < 20 << 20, "one area for all of them")
  const held = opened.log("log 7")
  while (opened.open.size > 1) {
    await turn()
    collect()
  }
  assert.equal(opened.log("log 7"), held, "one that is held is one")
})

test("logs that are appended to in one turn have an area each, which the next turn's have again", async (context) => {
  const opened = store(context)
  const logs = Array.from({ length: 100 }, (_, n) => opened.log(`log ${n}`))
  const append = () => Promise.all(logs.map((log) => log.append("x")))
  await append()
  const areas = new Set(opened.stages.idle)
  assert.equal(areas.size, 100)
  await append()
  assert.ok(opened.stages.idle.every((area) => areas.has(area)))
})
