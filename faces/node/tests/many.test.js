"use strict"

// Many entries in one call, and one byte of each.

const assert = require("node:assert/strict")
const test = require("node:test")
const { folder, open, store, text } = require("./helpers.js")

const modes = ["memory", "os", "sync"]
const rows = (log) => [...log.query()].map(({ time, offset, last, data }) => [time, offset, last, text(data)])

for (const durability of modes) {
  test(`${durability}: what an iterable yields is appended in its order, each entry for itself`, async (context) => {
    const log = store(context, { durability }).log("a")
    const earlier = log.append("before", { time: 1 })
    assert.equal(await log.appendMany(["one", Buffer.from("two"), new Uint16Array([3])], { time: 5 }), 3)
    assert.equal(await log.appendTimed(new Map([[7, "seven"], [6, "six"]])), 2)
    assert.equal(await earlier, 0)
    assert.deepEqual(rows(log), [
      [1, 0, true, "before"],
      [5, 6, true, "one"],
      [5, 9, true, "two"],
      [5, 12, true, "\u0003\u0000"],
      [7, 14, true, "seven"],
      [6, 19, true, "six"],
    ])
  })
}

test("nothing yields nothing, and without a time it is now", async (context) => {
  const log = store(context).log("a")
  assert.equal(await log.appendMany([]), 0)
  assert.equal(await log.appendTimed([]), 0)
  const before = Date.now() * 1000 - 1000
  await log.appendMany(["x"])
  await log.appendTimed([[undefined, "y"]])
  assert.ok([...log.query()].every(({ time }) => time >= before && time <= Date.now() * 1000 + 1000))
})

test("more than an area holds goes over in groups, and is all there when it is acknowledged", async (context) => {
  const path = folder(context)
  const first = open(path, { durability: "sync" })
  const log = first.log("a")
  function* numbered() {
    for (let n = 0; n < 9_000; n++) yield [n, Buffer.alloc(1_000, n % 251)]
  }
  assert.equal(await log.appendTimed(numbered()), 9_000)
  assert.equal(first.stats().stagedEnd, first.stats().durable)
  await first.close()
  const again = store(context, { path, durability: "sync" }).log("a")
  let n = 0
  for (const entry of again.query({ lazy: true })) {
    assert.deepEqual([entry.time, entry.byte(0), entry.byte(-1)], [n, n % 251, n % 251])
    n++
  }
  assert.equal(n, 9_000)
})

test("what cannot be an entry is refused by name, and it is said how many before it are appended", async (context) => {
  const opened = store(context)
  const log = opened.log("a")
  await assert.rejects(log.appendMany(["fits", ""]), { code: "EMPTY_ENTRY", appended: 0 })
  await assert.rejects(log.appendMany(["fits", 7]), { code: "BAD_ARGUMENT" })
  await assert.rejects(log.appendMany(["fits"], { time: -2 }), { code: "BAD_ARGUMENT" })
  await assert.rejects(log.appendTimed([[NaN, "x"]]), { code: "BAD_ARGUMENT" })
  await assert.rejects(log.appendMany(7), { code: "BAD_ARGUMENT" })
  assert.deepEqual(rows(log), [])
  function* broken() {
    for (let n = 0; n < 6; n++) yield Buffer.alloc(1 << 20, n)
    throw new Error("no more")
  }
  const large = store(context, { segmentBytesMax: 64 << 20 }).log("b")
  await assert.rejects(large.appendMany(broken()), { message: "no more" })
  const kept = [...large.query()].map(({ data }) => data[0])
  assert.ok(kept.length > 0 && kept.length < 6, `${kept.length}`)
  assert.deepEqual(kept, Array.from(kept, (_, n) => n))
  const small = store(context, { segmentBytesMax: 64 << 10 }).log("c")
  await assert.rejects(small.appendMany([Buffer.alloc(100), Buffer.alloc(70_000)]), { code: "TOO_LARGE", appended: 1 })
  assert.deepEqual([...small.query()].map(({ data }) => data.length), [100])
  assert.equal(await small.appendMany(["on", "and on"]), 2)
  await opened.close()
  await assert.rejects(log.appendMany(["late"]), { code: "CLOSED" })
})

test("an iterable that yields entries may append others meanwhile", async (context) => {
  const log = store(context).log("a")
  const inner = []
  function* busy() {
    inner.push(log.append("turn"))
    yield "one"
    inner.push(log.appendMany(["nested"]))
    yield "two"
  }
  assert.equal(await log.appendMany(busy()), 2)
  await Promise.all(inner)
  assert.deepEqual(rows(log).map(([, , , data]) => data), ["turn", "nested", "one", "two"])
})

test("one byte of an entry is read where it lies, from either end, and none where there is none", async (context) => {
  const log = store(context).log("a")
  await log.appendMany([Buffer.from([1, 2, 3, 4, 5]), Buffer.from([255])])
  const check = (entry) => {
    const data = [...entry.data]
    const places = [-data.length, -1, 0, data.length - 1]
    assert.deepEqual(places.map((place) => entry.byte(place)), places.map((place) => data.at(place)))
    for (const place of [-data.length - 1, data.length, Number.MAX_SAFE_INTEGER]) assert.equal(entry.byte(place), undefined, `${place}`)
    for (const place of [undefined, null, NaN, Infinity, 0.5, 1n, "0", "x", true, {}, Symbol("0")]) {
      assert.throws(() => entry.byte(place), { code: "BAD_ARGUMENT", message: "a place in an entry is a whole number" }, String(place))
    }
  }
  for (const entry of log.query({ lazy: true })) check(entry)
  // A part of an entry, too.
  for (const entry of log.query({ offset: 3, lazy: true })) check(entry)
  const cursor = log.cursor({ offset: 3 })
  assert.equal(cursor.byte(0), undefined)
  assert.ok(cursor.next())
  assert.deepEqual([cursor.byte(0), cursor.byte(1), cursor.byte(2), cursor.byte(-2)], [4, 5, undefined, 4])
  assert.ok(cursor.next())
  assert.equal(cursor.byte(0), 255)
})

test("an append that waits for what lasts already does not wait for what came behind it", async (context) => {
  const log = store(context, { durability: "sync", segmentBytesMax: 64 << 20 }).log("a")
  let nested
  function* large() {
    yield Buffer.alloc(5 << 20)
    nested = log.appendMany(["x"])
  }
  assert.equal(await log.appendMany(large()), 1)
  assert.equal(await nested, 1)
  const { tickets } = log.store.waits
  tickets.length = 0
  const order = []
  for (const ticket of [Infinity, 9e15, 1]) log.store.waits.persisted(ticket, () => order.push(ticket))
  assert.deepEqual([order, tickets.map(({ ticket }) => ticket)], [[1], [9e15, Infinity]])
  tickets.length = 0
})
