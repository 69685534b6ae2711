"use strict"

// A bit flips where the log lies on disk: nothing wrong is served, the place is named, and what follows is reachable.

const assert = require("node:assert/strict")
const { cpSync, readFileSync, rmSync, writeFileSync } = require("node:fs")
const { join } = require("node:path")
const test = require("node:test")
const { drain, folder, open, store, writeAnew } = require("./helpers.js")

const numbers = (first, end) => Array.from({ length: end - first }, (_, n) => first + n)

/** Flips a bit in the payload of the first entry behind a byte of a segment; answers which entry that was. */
function flip(file, from = 2000) {
  const bytes = readFileSync(file)
  const at = bytes.indexOf("entry ", from)
  const hit = Number.parseInt(bytes.subarray(at + 6, at + 12).toString(), 10)
  bytes[at + 50] ^= 4
  writeFileSync(file, bytes)
  return hit
}

/** A closed store of one log over several segments, with a bit flipped in the payload of one entry. */
async function damaged(context) {
  const path = folder(context)
  const options = { durability: "os", segmentBytesMin: 4096, segmentBytesMax: 8192 }
  const opened = open(path, options)
  const log = opened.log("a")
  for (let n = 0; n < 200; n++) log.appendSync(`entry ${n}`.padEnd(100), { time: n })
  await opened.close()
  return { path, options, hit: flip(join(path, "segment-0000000003")) }
}

test("a walk stops in front of damage, says where it is, and goes on behind it when told to", async (context) => {
  const { path, options, hit } = await damaged(context)
  const log = store(context, { path, ...options }).log("a")
  const cursor = log.cursor()
  const before = []
  const caught = (() => {
    try {
      while (cursor.next()) before.push(cursor.time)
    } catch (error) {
      return error
    }
  })()
  assert.equal(caught?.code, "DAMAGED")
  assert.equal(caught.file, "segment-0000000003")
  assert.ok(caught.resumes > caught.from)
  assert.deepEqual(before, numbers(0, hit))
  assert.equal(cursor.ended, "damaged")
  assert.equal(cursor.next(), false, "it does not go on by itself")
  cursor.resume()
  assert.deepEqual(drain(cursor).map(([time]) => time), numbers(hit + 1, 200))
})

test("iterators and tails throw it, and queries beside it know nothing of it", async (context) => {
  const { path, options, hit } = await damaged(context)
  const log = store(context, { path, ...options }).log("a")
  assert.throws(() => [...log.query()], { code: "DAMAGED" })
  assert.throws(() => [...log.query({ start: hit - 1, lazy: true })], { code: "DAMAGED" })
  await assert.rejects(
    async () => {
      for await (const entry of log.tail({ start: 0 })) assert.ok(entry.time < hit)
    },
    { code: "DAMAGED" },
  )
  assert.deepEqual([...log.query({ start: 190 })].map((entry) => entry.time), [190, 191, 192, 193, 194, 195, 196, 197, 198, 199])
  assert.equal([...log.query({ end: 5 })].length, 5)
})

test("a segment that is missing is a gap: it is told, not passed over", async (context) => {
  const path = folder(context)
  const options = { durability: "os", segmentBytesMin: 4096, segmentBytesMax: 8192 }
  const opened = open(path, options)
  for (let n = 0; n < 200; n++) opened.log("a").appendSync(`entry ${n}`.padEnd(100), { time: n })
  await opened.close()
  rmSync(join(path, "segment-0000000003"))
  const cursor = store(context, { path, ...options }).log("a").cursor()
  const seen = []
  assert.throws(() => {
    while (cursor.next()) seen.push(cursor.time)
  }, { code: "DAMAGED" })
  assert.deepEqual(seen, seen.map((_, n) => n))
  cursor.resume()
  const rest = drain(cursor).map(([time]) => time)
  assert.ok(seen.length > 20 && rest.length > 20 && rest[0] > seen.length)
  assert.deepEqual(rest, rest.map((_, n) => rest[0] + n))
  assert.equal(rest.at(-1), 199)
})

test("entries that are missing between the runs of a segment that was written anew are told, not passed over", async (context) => {
  const path = folder(context)
  const options = { durability: "os", segmentBytesMin: 65_536, segmentBytesMax: 65_536 }
  const opened = open(path, options)
  const logs = ["a", "b"].map((name) => opened.log(name))
  logs[0].appendSync("first", { time: 0 })
  opened.rotate()
  for (let time = 1; time < 4; time++) {
    await opened.transaction((work) => logs.forEach((log) => work.append(log, "kept")), { time })
    if (time < 3) logs[0].appendSync(Buffer.alloc(20_000), { time })
  }
  opened.rotate()
  await opened.close()
  // A store that purged them has a file in which they are missing, and this one did not purge them.
  const purged = folder(context)
  cpSync(path, purged, { recursive: true })
  const twin = open(purged, options)
  await twin.purge({ log: "a" })
  await writeAnew(twin, "segment-0000000002")
  await twin.close()
  cpSync(join(purged, "segment-0000000002"), join(path, "segment-0000000002"))
  for (const readOnly of [true, false]) {
    const reader = store(context, { path, ...options, readOnly })
    const cursor = reader.log("a").cursor()
    const met = []
    const read = () => {
      while (cursor.next()) met.push(cursor.time)
    }
    for (const times of [[0, 1], [0, 1, 2]]) {
      assert.throws(read, { code: "DAMAGED", message: /entries are missing/ })
      assert.deepEqual(met, times)
      cursor.resume()
    }
    read()
    assert.deepEqual([met, cursor.skippedBytes], [[0, 1, 2, 3], 0])
    await reader.close()
  }
})

test("what a read comes upon is among the damage of the store from then on, and of a closed one nothing is told", async (context) => {
  const { path, options } = await damaged(context)
  const opened = store(context, { path, ...options })
  assert.deepEqual(opened.damage(), [])
  const log = opened.log("a")
  assert.throws(() => [...log.query()], { code: "DAMAGED", logs: [log.id] })
  assert.deepEqual(opened.damage().map(({ file, logs }) => [file, logs]), [["segment-0000000003", [log.id]]])
  await opened.close()
  assert.throws(() => opened.damage(), { code: "CLOSED" })
})

/** A store as a crash leaves it: durable, and no checkpoint knows where the 40 entries of its log lie. */
async function crashed(context) {
  const path = folder(context)
  // One segment, of which less than half is filled: nothing is prepared beside it while it is copied.
  const options = { durability: "sync", segmentBytesMin: 1 << 20, segmentBytesMax: 1 << 20 }
  const opened = open(path, options)
  const log = opened.log("a")
  for (let n = 0; n < 40; n++) log.appendSync(`entry ${n}`.padEnd(100), { time: n })
  const copy = folder(context)
  cpSync(path, copy, { recursive: true })
  await opened.close()
  return { path: copy, options, file: join(copy, "segment-0000000001") }
}

test("who begins inside what is lost is told so, and not led behind it", async (context) => {
  const { path, options, file } = await crashed(context)
  const hit = flip(file)
  assert.ok(hit > 5 && hit < 30)
  const log = store(context, { path, ...options }).log("a")
  const behind = numbers(hit + 1, 40)
  for (const offset of [hit * 100, hit * 100 + 30]) {
    const cursor = log.cursor({ offset })
    assert.throws(() => cursor.next(), { code: "DAMAGED" }, `${offset}`)
    assert.equal(cursor.ended, "damaged")
    assert.equal(cursor.next(), false, "it does not go on by itself")
    cursor.resume()
    assert.deepEqual(drain(cursor).map(([time]) => time), behind)
    for (const lazy of [false, true]) {
      assert.throws(() => [...log.query({ offset, lazy })], { code: "DAMAGED" }, `${offset}`)
    }
  }
  assert.deepEqual(drain(log.cursor({ offset: (hit + 1) * 100 })).map(([time]) => time), behind)
})

test("a reader that begins at the beginning is told that the first entries are lost", async (context) => {
  const { path, options, file } = await crashed(context)
  assert.equal(flip(file, 0), 0)
  const log = store(context, { path, ...options }).log("a")
  const cursor = log.cursor()
  assert.throws(() => cursor.next(), { code: "DAMAGED" })
  assert.equal(cursor.next(), false, "it does not go on by itself")
  cursor.resume()
  assert.deepEqual(drain(cursor).map(([time]) => time), numbers(1, 40))
  assert.throws(() => [...log.query()], { code: "DAMAGED" })
})
