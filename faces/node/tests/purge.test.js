"use strict"

const assert = require("node:assert/strict")
const { readdirSync, statSync } = require("node:fs")
const { join } = require("node:path")
const test = require("node:test")
const { drain, folder, store, text, writeAnew } = require("./helpers.js")

const times = (log, query) => [...log.query(query)].map((entry) => entry.time)
const from = (first, end) => Array.from({ length: end - first }, (_, n) => first + n)

for (const durability of ["memory", "os", "sync"]) {
  test(`${durability}: what is purged is gone for who comes later, however they ask`, async (context) => {
    const opened = store(context, { durability })
    const log = opened.log("a")
    const early = log.query()
    await Promise.all(from(0, 1_000).map((time) => log.append(Buffer.alloc(50, time % 251), { time })))
    const [purged] = await opened.purge({ log: "a", before: 700, countEntries: true })
    assert.deepEqual(purged, { name: "a", first: 35_000, bytes: 35_000, entries: 700, destroyed: false })
    assert.deepEqual([...early], [])
    for (const query of [{}, { start: 0 }, { start: 650 }, { after: 5 }, { offset: 0 }, { offset: 34_999 }]) {
      assert.deepEqual(times(log, query), from(700, 1_000), JSON.stringify(query))
    }
    assert.deepEqual(times(log, { start: 800, end: 810 }), from(800, 810))
  })
}

test("a purge lets go of what was appended before it, whether or not that is durable yet", async (context) => {
  const opened = store(context, { durability: "sync" })
  const log = opened.log("a")
  const appended = log.append("goes")
  await opened.purge()
  await appended
  assert.deepEqual([...log.query()], [])
  opened.log("new")
  const [purged] = await opened.purge({ log: "new", destroy: true })
  assert.deepEqual([purged.name, purged.destroyed], ["new", true])
})

test("a cursor that stood in what was purged keeps its entry and goes on, and tells what it missed", async (context) => {
  const opened = store(context, { durability: "os" })
  const [log, other] = [opened.log("a"), opened.log("b")]
  const append = (first, end) => {
    for (let n = first; n < end; n++) log.appendSync(Buffer.alloc(100, n % 251), { time: n })
  }
  append(0, 1_000)
  const cursor = log.cursor()
  for (let n = 0; n < 10; n++) assert.ok(cursor.next())
  const { data } = cursor
  await opened.purge({ log: "a" })
  append(1_000, 1_010)
  other.appendSync("x")
  assert.equal(data[0], 9)
  const rest = drain(cursor).map(([time]) => time)
  assert.deepEqual(rest.slice(-10), from(1_000, 1_010))
  // Segments that it has mapped are still there for it; what it misses is a run, and it says how long.
  const missed = 1_010 - 10 - rest.length
  assert.equal(cursor.skippedBytes, missed * 100)
})

for (const count of [15, 28]) {
  test(`a query that stands in segment ${count} comes by all behind it, whichever reader notices that others went`, async (context) => {
    const opened = store(context, { durability: "os" })
    const log = opened.log("a")
    for (let n = 0; n < 30; n++) {
      log.appendSync("x", { time: n })
      opened.rotate()
    }
    const entries = log.query()
    for (let n = 0; n < count; n++) assert.equal(entries.next().value.time, n)
    const before = opened.stats().segments
    await opened.purge({ before: 9 })
    assert.equal(opened.stats().segments, before - 9)
    assert.deepEqual(times(log), from(9, 30))
    assert.deepEqual([...entries].map((entry) => entry.time), from(count, 30))
  })
}

test("an entry read before its segment was written anew stays what it was, and who comes later reads the new one", async (context) => {
  const path = folder(context)
  const opened = store(context, { path, durability: "os" })
  const [goes, stays] = [opened.log("goes"), opened.log("stays")]
  const append = (first, end) => {
    for (let n = first; n < end; n++) goes.appendSync(Buffer.alloc(1_000, 7), { time: n })
  }
  append(0, 200)
  stays.appendSync("kept", { time: 200 })
  append(200, 1_000)
  const held = [...goes.query({ lazy: true })]
  const files = () => readdirSync(path).filter((name) => name.startsWith("segment-"))
  const inodes = () => new Map(files().map((name) => [name, statSync(join(path, name)).ino]))
  const before = inodes()
  opened.rotate()
  await opened.purge({ log: "goes", before: 1_000 })
  assert.equal(await opened.maintain(), false, "nothing is left to do")
  const anew = [...inodes()].filter(([name, inode]) => (before.get(name) ?? inode) !== inode)
  assert.equal(anew.length, 1, "the one with what stays")
  for (const entry of held) {
    assert.equal(entry.byte(0), 7)
    assert.ok(entry.data.every((byte) => byte === 7))
  }
  assert.deepEqual([...stays.query({ start: 100 })].map((entry) => text(entry.data)), ["kept"])
})

test("small entries among others that are gone take what they need, and are read on from wherever one stood", async (context) => {
  const path = folder(context)
  const size = 1 << 20
  const opened = store(context, { path, durability: "os", segmentBytesMin: size, segmentBytesMax: size })
  const [stays, ...others] = ["a", "b", "c", "d", "e", "f"].map((name) => opened.log(name))
  // What goes whole has checkpoints written for it.
  for (let n = 0; n < 30; n++) others[0].appendSync(Buffer.alloc(100_000), { time: 0 })
  for (let time = 0; time < 4_000; time++) {
    stays.appendSync(Buffer.alloc(20 + (time % 60), time % 251), { time })
    // Runs of several sizes are left.
    for (const other of others) if (time % 7 !== 0) other.appendSync(Buffer.alloc(300), { time })
  }
  opened.rotate()
  const [cursor, early] = [stays.cursor(), stays.query({ start: 1_000 })]
  for (let n = 0; n < 500; n++) assert.ok(cursor.next())
  assert.equal(early.next().value.time, 1_000)
  const before = opened.stats().segments
  for (const name of ["f", "e", "d", "c", "b"]) await opened.purge({ log: name, destroy: true })
  await opened.maintain()
  const sizes = readdirSync(path).filter((name) => name.startsWith("segment-")).map((name) => statSync(join(path, name)).size)
  const anew = sizes.filter((bytes) => bytes < size)
  assert.ok(anew.length >= 6, `${anew.length} of ${before} were written anew`)
  assert.ok(anew.reduce((sum, bytes) => sum + bytes, 0) < 4_000 * 200)
  const expected = (first) => from(first, 4_000).map((time) => [time, 20 + (time % 60), time % 251])
  const rows = (entries) => [...entries].map(({ time, data }) => [time, data.length, data[data.length - 1]])
  assert.deepEqual(rows(stays.query()), expected(0))
  assert.deepEqual(rows(early), expected(1_001))
  assert.deepEqual(drain(cursor).map(([time]) => time), from(500, 4_000))
  for (const time of [0, 1, 699, 700, 2_345, 3_999]) {
    assert.deepEqual(rows(stays.query({ start: time })), expected(time))
    assert.deepEqual(times(stays, { exact: time, end: time + 5 }), from(time, Math.min(time + 5, 4_000)))
    const offset = from(0, time).reduce((sum, n) => sum + 20 + (n % 60), 0)
    assert.deepEqual(rows(stays.query({ offset })), expected(time))
  }
  await opened.close()
  const again = store(context, { path, durability: "os", readOnly: true }).log("a")
  assert.deepEqual(rows(again.query()), expected(0))
  assert.deepEqual(rows(again.query({ start: 2_222 })), expected(2_222))
})

test("who comes late to a segment that was the newest and is written anew reads up to where it ended then, and no damage", async (context) => {
  const size = 1 << 20
  const opened = store(context, { durability: "os", segmentBytesMin: size, segmentBytesMax: size })
  const [stays, goes] = [opened.log("a"), opened.log("b")]
  const append = (first, end) => {
    for (let time = first; time < end; time++) {
      stays.appendSync(Buffer.alloc(20 + ((time * 7) % 300), time % 251), { time })
      goes.appendSync(Buffer.alloc(800 + ((time * 31) % 500)), { time })
    }
  }
  append(0, 2_000)
  const newest = opened.stats().segments
  const [query, ranged] = [stays.query(), stays.query({ start: 5, end: 1e6 })]
  const [cursor, tail] = [stays.cursor(), stays.tail({ start: 0 })]
  assert.deepEqual([query.next().value.time, ranged.next().value.time], [0, 5])
  assert.ok(cursor.next() && cursor.segment.number < newest)
  assert.equal((await tail.next()).value.time, 0)
  append(2_000, 2_060)
  assert.equal(opened.stats().segments, newest, "the newest is still the newest")
  opened.rotate()
  await opened.purge({ log: "b", destroy: true })
  const isAnew = () => {
    // Everybody takes notice of the new list.
    assert.deepEqual(times(stays), from(0, 2_060))
    const segment = opened.view.segments.find(({ number }) => number === newest)
    return segment.map() && segment.runs !== null
  }
  for (let n = 0; !isAnew(); n++) {
    assert.ok(n < 10, "it is not written anew")
    // What goes whole has checkpoints written for it.
    opened.log("c").appendSync(Buffer.alloc(100_000))
    opened.rotate()
    await opened.purge({ log: "c" })
    await opened.maintain()
  }
  assert.deepEqual([...query].map(({ time }) => time), from(1, 2_000))
  assert.deepEqual([...ranged].map(({ time }) => time), from(6, 2_000))
  assert.deepEqual(drain(cursor).map(([time]) => time), from(1, 2_060))
  for (let time = 1; time < 2_060; time++) assert.equal((await tail.next()).value.time, time)
  await tail.return()
})

test("what was purged between the runs of a segment that was written anew counts as skipped", async (context) => {
  const size = 65_536
  const opened = store(context, { path: folder(context), durability: "os", segmentBytesMin: size, segmentBytesMax: size })
  const attached = store(context, { path: opened.path, durability: "os", readOnly: true })
  const [log, other] = [opened.log("a"), opened.log("b")]
  const both = (data) => opened.transaction((work) => [log, other].forEach((to) => work.append(to, data)))
  log.appendSync("first", { time: 0 })
  const cursors = [log.cursor(), attached.log("a").cursor()]
  for (const cursor of cursors) assert.equal(drain(cursor).length, 1)
  opened.rotate()
  for (let n = 0; n < 3; n++) {
    await both("A")
    for (let k = 0; k < 4; k++) log.appendSync(Buffer.alloc(5_000))
  }
  await both("A")
  opened.rotate()
  await opened.purge({ log: "a" })
  await writeAnew(opened, "segment-0000000002")
  log.appendSync("last")
  for (const cursor of cursors) {
    const met = []
    while (cursor.next()) met.push([cursor.offset, cursor.skippedBytes])
    assert.deepEqual(met, [[5, 0], [20_006, 20_000], [40_007, 40_000], [60_008, 60_000], [60_009, 60_000]])
  }
})

test("a log that was destroyed in front of a reader is deleted and not damaged, though a part of it is still there", async (context) => {
  const opened = store(context, { path: folder(context), durability: "os", segmentBytesMax: 8192 })
  const attached = store(context, { path: opened.path, durability: "os", readOnly: true })
  const [log, other] = [opened.log("a"), opened.log("b")]
  const append = (count) => {
    for (let n = 0; n < count; n++) log.appendSync(Buffer.alloc(100))
  }
  append(5)
  const readers = [opened, attached].flatMap((store) => [store.log("a").cursor(), store.log("a").cursor({ uncommitted: true })])
  for (const cursor of readers) assert.equal(drain(cursor).length, 5)
  append(200)
  other.appendSync("kept in the newest segment, which stays")
  await opened.purge({ log: "a", destroy: true })
  // Its name is another log's by now.
  opened.log("a").appendSync("new")
  for (const cursor of readers) {
    assert.throws(() => cursor.next(), { code: "DELETED" })
    assert.equal(cursor.ended, "deleted")
    assert.equal(cursor.next(), false, "it does not go on")
    cursor.resume()
    assert.equal(cursor.next(), false, "there is nothing behind the end of a log")
  }
})

for (const durability of ["memory", "os", "sync"]) {
  test(`${durability}: housekeeping says that there is no more to do, once or again`, async (context) => {
    const opened = store(context, { durability })
    const log = opened.log("a")
    assert.equal(await opened.maintain(), false)
    await log.appendTimed(from(0, 1_000).map((time) => [time, Buffer.alloc(100)]))
    await opened.purge({ before: 900 })
    assert.deepEqual([await opened.maintain(), await opened.maintain()], [false, false])
    assert.deepEqual(times(log), from(900, 1_000))
  })
}

test("a log that was destroyed behind much of another ends its cursors", async (context) => {
  const opened = store(context, { durability: "os" })
  const [log, other] = [opened.log("a"), opened.log("b")]
  log.appendSync("old")
  const [early, tail] = [log.cursor(), log.tail({ start: 0 })]
  assert.equal(text((await tail.next()).value.data), "old")
  const fill = () => {
    for (let n = 0; n < 100; n++) other.appendSync(Buffer.alloc(10_000))
  }
  fill()
  await opened.purge({ log: "a", destroy: true })
  fill()
  assert.throws(() => drain(early), { code: "DELETED" })
  assert.equal(early.ended, "deleted")
  await assert.rejects(tail.next(), { code: "DELETED" })
})

test("a log that was destroyed is gone, and its name free", async (context) => {
  const opened = store(context, { durability: "os" })
  const log = opened.log("a")
  log.appendSync("old")
  const cursor = log.cursor()
  const [purged] = await opened.purge({ log: "a", destroy: true })
  assert.equal(purged.destroyed, true)
  assert.deepEqual(opened.logs(), [])
  await assert.rejects(log.append("x"), { code: "DELETED" })
  assert.throws(() => drain(cursor), { code: "DELETED" })
  assert.equal(cursor.ended, "deleted")
  const anew = opened.log("a")
  anew.appendSync("new")
  assert.deepEqual([...anew.query()].map((entry) => text(entry.data)), ["new"])
})

test("a new segment is begun on demand, and readers cross it", (context) => {
  const opened = store(context, { durability: "os" })
  const log = opened.log("a")
  const cursor = log.cursor()
  for (let n = 0; n < 5; n++) {
    const before = opened.stats().segments
    log.appendSync("x", { time: n })
    opened.rotate()
    assert.equal(opened.stats().segments, before + 1)
    assert.deepEqual(drain(cursor).map(([time]) => time), [n])
  }
  assert.deepEqual(times(log), from(0, 5))
})

test("a purge gives files back by the time it resolves, and stats say what is needed and what was freed", async (context) => {
  const path = folder(context)
  const opened = store(context, { path, durability: "os" })
  const [log, other] = [opened.log("a"), opened.log("b")]
  for (let n = 0; n < 1_000; n++) {
    log.appendSync(Buffer.alloc(100), { time: n })
    other.appendSync(Buffer.alloc(100), { time: n })
  }
  const before = opened.stats()
  const files = () => readdirSync(path).filter((name) => name.startsWith("segment-")).length
  await opened.purge({ before: 900 })
  const partly = opened.stats()
  assert.ok(partly.freedBytes > 0 && partly.segmentBytes < before.segmentBytes)
  assert.ok(partly.liveBytes > 0 && partly.liveBytes < before.liveBytes)
  assert.equal(files(), partly.segments)
  await opened.purge()
  assert.deepEqual([opened.stats().segments, opened.stats().liveBytes, files()], [1, 0, 1])
  log.appendSync("x", { time: 1_000 })
  assert.deepEqual(times(log), [1_000])
})

test("a purge with a word that nobody knows takes nothing", async (context) => {
  const opened = store(context, { durability: "os" })
  opened.log("a").appendSync("kept")
  const wrong = [{ name: "a", destroy: true }, { log: null }, { log: opened.log("a") }, { destroy: 1 }, null, "a", { befor: 1 }]
  for (const purge of wrong) {
    await assert.rejects(async () => opened.purge(purge), { code: "BAD_ARGUMENT" })
  }
  assert.equal([...opened.log("a").query()].length, 1)
})

test("a word of a purge that is undefined is refused: leaving it out would let go of more", async (context) => {
  const opened = store(context, { durability: "os" })
  const [log, other] = [opened.log("a"), opened.log("b")]
  for (const to of [log, other]) to.appendSync("kept", { time: 5 })
  const inherited = Object.create({ log: undefined })
  const wrong = [undefined, { log: undefined }, { log: undefined, destroy: true }, { log: "a", before: undefined }, inherited]
  for (const purge of [...wrong, { log: "a", destroy: undefined }, { log: "a", countEntries: undefined }]) {
    await assert.rejects(async () => opened.purge(purge), { code: "BAD_ARGUMENT" }, JSON.stringify(purge))
  }
  assert.deepEqual([opened.logs(), times(log), times(other)], [["a", "b"], [5], [5]])
  for (const purge of [{}, [], new Map()]) {
    await assert.rejects(async () => opened.purge(purge), { code: "BAD_ARGUMENT", message: /leave it out to purge all/ })
  }
  await assert.rejects(async () => opened.purge({ log: "a" }, { before: 1 }), { code: "BAD_ARGUMENT", message: /one object/ })
  assert.equal((await opened.purge()).length, 2, "who says nothing at all means everything")
  assert.deepEqual([times(log), times(other)], [[], []])
})

test("a purge that is to let go of what is old and to destroy the log is refused", async (context) => {
  const opened = store(context, { durability: "os" })
  const log = opened.log("a")
  for (const time of [1, 5]) log.appendSync("kept", { time })
  for (const purge of [{ log: "a", before: 2, destroy: true }, { before: 2, destroy: true }]) {
    await assert.rejects(async () => opened.purge(purge), { code: "BAD_ARGUMENT", message: /one of before, destroy/ })
  }
  assert.deepEqual([opened.logs(), times(log)], [["a"], [1, 5]])
  await opened.purge({ log: "a", before: 2, destroy: false })
  assert.deepEqual(times(log), [5])
})
