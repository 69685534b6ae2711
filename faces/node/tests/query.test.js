"use strict"

// Queries against a plain list.

const assert = require("node:assert/strict")
const test = require("node:test")
const { drain, random, row, store, text } = require("./helpers.js")

/** What a query of a list of entries answers, straight from what it says. */
function plain(entries, { start, after, exact, offset, end = Infinity }) {
  let rest = entries
  if (start !== undefined) rest = rest.filter(([time]) => time >= start)
  if (after !== undefined) rest = rest.filter(([time]) => time > after)
  if (exact !== undefined) {
    const first = rest.findIndex(([time]) => time === exact)
    rest = first < 0 ? [] : rest.slice(first)
  }
  if (offset !== undefined) {
    rest = rest.filter(([, from, , data]) => from + data.length > offset)
    rest = rest.map(([time, from, last, data]) => {
      const skip = Math.max(offset - from, 0)
      return [time, from + skip, last, data.slice(skip)]
    })
  }
  return rest.filter(([time]) => time < end)
}

async function filled(context, seed, { steps = 1500, late = 400 } = {}) {
  const next = random(seed)
  const opened = store(context)
  const [log, beside] = [opened.log("a"), opened.log("b")]
  const entries = []
  let [clock, offset] = [1_700_000_000_000_000, 0]
  for (let step = 0; step < steps; step++) {
    clock += next(4) === 0 ? 0 : next(3_000)
    const time = late > 0 && next(5) === 0 ? clock - next(late) : clock
    const transaction = opened.transaction({ time })
    const count = 1 + next(3)
    for (let n = 0; n < count; n++) {
      const data = "abcdefghijklmnopqrstuvwxyz".repeat(4).slice(0, 1 + next(100))
      transaction.append(log, data)
      if (next(3) === 0) transaction.append(beside, "beside")
      entries.push([time, offset, n === count - 1, data])
      offset += data.length
    }
    await transaction.commit()
    for (let n = next(4); n > 0; n--) beside.appendSync("by itself", { time: clock })
  }
  return { opened, log, entries, next, first: entries[0][0], span: clock - entries[0][0], bytes: offset }
}

for (const [name, late] of [["in order", 0], ["that go back", 20_000]]) {
  test(`queries over times ${name}, over many segments`, async (context) => {
    const { opened, log, entries, next, first, span, bytes } = await filled(context, 7 + late, { late })
    assert.ok(opened.stats().segments > 5)
    const cursor = log.cursor()
    let found = 0
    for (let n = 0; n < 400; n++) {
      const some = entries[next(entries.length)][0]
      const at = [first + next(span), some, some + 1, 0][next(4)]
      const query = [{}, { start: at }, { after: at }, { exact: at }, { offset: next(bytes + 10) }][next(5)]
      if (next(2) === 0) query.end = [at + next(span / 10), some, first + next(span)][next(3)]
      const expected = plain(entries, query)
      const says = JSON.stringify(query)
      assert.deepEqual([...log.query(query)].map(row), expected, says)
      cursor.seek(query)
      assert.deepEqual(drain(cursor), expected, says)
      const lazy = [...log.query({ ...query, lazy: true })]
      assert.deepEqual(lazy.map(row), expected, says)
      assert.deepEqual(lazy.map((entry) => entry.length), expected.map(([, , , data]) => data.length), says)
      found += expected.length
    }
    assert.ok(found > 10_000, "most queries find something")
  })
}

test("a log that is rare among others is found without missing any of it", async (context) => {
  const opened = store(context, { segmentBytesMax: 1 << 20 })
  const [rare, common] = [opened.log("rare"), opened.log("common")]
  for (let n = 0; n < 12; n++) {
    rare.appendSync(`rare ${n}`, { time: n })
    for (let m = 0; m < 60; m++) common.appendSync(Buffer.alloc(9_000), { time: n })
  }
  assert.deepEqual(drain(rare.cursor()).map(([, , , data]) => data), Array.from({ length: 12 }, (_, n) => `rare ${n}`))
  assert.deepEqual(drain(rare.cursor({ start: 7, end: 9 })).map(([time]) => time), [7, 8])
})

test("a cursor that stands at no entry says nothing of one: before the first, behind the last, and where it was moved", async (context) => {
  const opened = store(context, { durability: "os" })
  const [log, other] = [opened.log("a"), opened.log("b")]
  const nowhere = (cursor, where) => {
    const { time, offset, length, last } = cursor
    assert.deepEqual([time, offset, length, last, cursor.byte(0)], [0, 0, 0, false, undefined], where)
    assert.throws(() => cursor.data, { code: "BAD_ARGUMENT", message: "the cursor stands at no entry" }, where)
  }
  nowhere(log.cursor(), "of an empty log")
  for (let n = 0; n < 100; n++) log.appendSync(`${n}`.padEnd(700), { time: n })
  opened.rotate()
  for (const query of [undefined, { start: 0 }, { offset: 3 }, { end: 40 }, { exact: 7, end: 40 }, { start: 99 }, { tail: true }]) {
    const cursor = log.cursor(query)
    nowhere(cursor, "before the first")
    drain(cursor)
    nowhere(cursor, "behind the last")
    assert.equal(cursor.next(), false)
    nowhere(cursor, "behind the last, asked again")
    cursor.seek({ start: 50 })
    nowhere(cursor, "after a seek")
    assert.ok(cursor.next())
    assert.deepEqual([cursor.time, cursor.length, cursor.last], [50, 700, true])
  }
  const cursor = log.cursor({ start: 99 })
  assert.ok(cursor.next())
  other.appendSync("x")
  assert.equal(cursor.next(), false)
  nowhere(cursor, "behind what is another's")
  log.appendSync("more", { time: 100 })
  assert.ok(cursor.next())
  assert.deepEqual([cursor.time, cursor.offset, text(cursor.data)], [100, 70_000, "more"])
  await opened.close()
  assert.throws(() => cursor.next(), { code: "CLOSED" })
  nowhere(cursor, "of a closed store")
})

test("a cursor that could not ask where its log goes on says what it comes to next", (context) => {
  const opened = store(context, { segmentBytesMin: 1 << 20, segmentBytesMax: 1 << 20 })
  const [log, other] = [opened.log("a"), opened.log("b")]
  log.appendSync("first", { time: 5 })
  // So much of another log that it asks, right in front of its own.
  for (let n = 0; n < 3; n++) other.appendSync(Buffer.alloc(100_000), { time: 6 })
  log.appendSync("second", { time: 7 })
  log.appendSync("third", { time: 8 })
  const cursor = log.cursor({ start: 0 })
  assert.equal(cursor.next(), true)
  const { handle } = log
  log.handle = {
    positionBehind() {
      log.handle = handle
      throw new Error(JSON.stringify({ code: "IO", message: "refused" }))
    },
  }
  assert.throws(() => cursor.next(), { code: "IO" })
  assert.equal(log.handle, handle)
  assert.deepEqual(drain(cursor), [[7, 5, true, "second"], [8, 11, true, "third"]])
})

test("a cursor comes to the end and goes on, across segments", async (context) => {
  const log = store(context).log("a")
  const cursor = log.cursor()
  assert.equal(cursor.next(), false)
  for (let n = 0; n < 3_000; n++) {
    log.appendSync(`entry ${n}`, { time: n })
    if (n % 7 === 0) continue
    const rows = drain(cursor)
    assert.deepEqual(rows.at(-1), [n, rows.at(-1)[1], true, `entry ${n}`])
    assert.equal(rows.length, n % 7 === 1 ? 2 : 1)
    assert.equal(cursor.next(), false)
  }
})

for (const query of [{ start: 0, end: 100 }, { exact: 60, end: 100 }, { offset: 0, end: 100 }]) {
  test(`a cursor of ${JSON.stringify(query)} that was over takes an entry whose time goes back`, (context) => {
    const log = store(context).log("a")
    const cursor = log.cursor(query)
    log.appendSync("in time", { time: 60 })
    assert.ok(cursor.next())
    log.appendSync("too late", { time: 200 })
    assert.equal(cursor.next(), false)
    assert.equal(cursor.next(), false)
    log.appendSync("late", { time: 50 })
    assert.deepEqual(drain(cursor).map(([, , , data]) => data), ["late"])
    log.appendSync("later", { time: 40 })
    assert.deepEqual(drain(cursor).map(([, , , data]) => data), ["later"])
  })
}

test("a cursor that looks for a time finds it behind later ones", (context) => {
  const log = store(context).log("a")
  const cursor = log.cursor({ exact: 100 })
  log.appendSync("later", { time: 200 })
  assert.equal(cursor.next(), false)
  for (const time of [100, 300]) log.appendSync("x", { time })
  assert.deepEqual(drain(cursor).map(([time]) => time), [100, 300])
})

test("an iterator ends with what was visible when it began", async (context) => {
  const log = store(context).log("a")
  log.appendSync("first")
  const entries = log.query()
  log.appendSync("second")
  assert.deepEqual([...entries].map((entry) => text(entry.data)), ["first"])
  assert.equal(entries.next().done, true)
})

test("a query of the tail begins behind what there is", async (context) => {
  const log = store(context).log("a")
  log.appendSync("before")
  const cursor = log.cursor({ tail: true })
  assert.equal(cursor.next(), false)
  log.appendSync("after")
  assert.deepEqual(drain(cursor).map(([, , , data]) => data), ["after"])
})

test("an empty log and one whose creation is all there is have no entries", (context) => {
  const log = store(context).log("a")
  for (const query of [undefined, {}, { start: 0 }, { exact: 5 }, { offset: 0 }, { tail: true }, { checkpoint: true }]) {
    assert.deepEqual([...log.query(query)], [])
  }
})

test("entries of times that no number here says exactly are there, and as late as they are", (context) => {
  const opened = store(context, { durability: "os" })
  const log = opened.log("a")
  const append = (time) => {
    const stage = opened.stages.take()
    stage.put("x", 0, 0)
    // Other programs append what nobody may here.
    stage.floats[3] = time
    log.handle.append(stage.bytes, stage.used)
    opened.stages.give(stage)
  }
  const all = [5, 2 ** 62, 2 ** 63, 2 ** 63 + 2 ** 40, 7]
  for (const time of all) append(time)
  const read = (query) => [...log.query(query)].map(({ time }) => time)
  const lazily = (query) => [...log.query({ ...query, lazy: true })].map(({ time }) => time)
  for (const ask of [read, lazily, (query) => drain(log.cursor(query)).map(([time]) => time)]) {
    assert.deepEqual(ask({}), all)
    assert.deepEqual(ask({ offset: 0 }), all)
    assert.deepEqual(ask({ start: 6 }), all.slice(1))
    assert.deepEqual(ask({ start: 0, end: 100 }), [5, 7])
  }
})

test("an entry that is read lazily is the same in JSON as a plain one, whole or a part", (context) => {
  const log = store(context).log("a")
  for (const time of [1, 2]) log.appendSync("entry", { time })
  for (const query of [{}, { offset: 2 }]) {
    assert.equal(JSON.stringify([...log.query({ ...query, lazy: true })]), JSON.stringify([...log.query(query)]))
  }
})
