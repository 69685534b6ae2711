"use strict"

// A bit flips where the log lies on disk: nothing wrong is served, the place is named, and what follows is reachable.

const assert = require("node:assert/strict")
const { readFileSync, rmSync, writeFileSync } = require("node:fs")
const { join } = require("node:path")
const test = require("node:test")
const { drain, folder, open, store } = require("./helpers.js")

/** A closed store of one log over several segments, with a bit flipped in the payload of one entry. */
async function damaged(context) {
  const path = folder(context)
  const options = { durability: "os", segmentBytesMin: 4096, segmentBytesMax: 8192 }
  const opened = open(path, options)
  const log = opened.log("a")
  for (let n = 0; n < 200; n++) log.appendSync(`entry ${n}`.padEnd(100), { time: n })
  await opened.close()
  const file = join(path, "segment-0000000003")
  const bytes = readFileSync(file)
  const at = bytes.indexOf("entry ", 2000)
  const hit = Number.parseInt(bytes.subarray(at + 6, at + 12).toString(), 10)
  bytes[at + 50] ^= 4
  writeFileSync(file, bytes)
  return { path, options, hit }
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
  assert.ok(caught.to > caught.from)
  assert.deepEqual(before, Array.from({ length: hit }, (_, n) => n))
  assert.equal(cursor.ended, "damaged")
  assert.equal(cursor.next(), false, "it does not go on by itself")
  cursor.resume()
  assert.deepEqual(drain(cursor).map(([time]) => time), Array.from({ length: 199 - hit }, (_, n) => hit + 1 + n))
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
