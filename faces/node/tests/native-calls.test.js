"use strict"

// What short queries ask of the native side: every call that crosses over is counted.

const assert = require("node:assert/strict")
const test = require("node:test")
const { drain, store } = require("./helpers.js")

const ENTRIES = 5_000

/** A handle whose calls are counted, by name. */
function counting(handle, calls) {
  return new Proxy(handle, {
    get(target, name) {
      const value = target[name]
      if (typeof value !== "function") return value
      return (...words) => {
        calls.push(name)
        return value.apply(target, words)
      }
    },
  })
}

/** A store with a log among another, and the calls that are made from now on by whatever is read of it. */
function counted(context, options) {
  const opened = store(context, { durability: "os", segmentBytesMin: 65536, segmentBytesMax: 65536, ...options })
  const [log, other] = [opened.log("a"), opened.log("b")]
  for (let n = 0; n < ENTRIES; n++) (n % 5 === 0 ? other : log).appendSync(Buffer.alloc(100, 7), { time: n })
  assert.ok(opened.stats().segments > 5)
  // Everything was read once: segments are mapped, verified and indexed.
  drain(log.cursor({ start: 0 }))
  for (let time = 0; time < ENTRIES; time += 50) drain(log.cursor({ start: time, end: time + 1 }))
  const calls = []
  log.handle = counting(log.handle, calls)
  opened.view.opening = counting(opened.view.opening, calls)
  for (const segment of opened.view.segments) segment.handle = counting(segment.handle, calls)
  return { opened, log, calls }
}

/** What is called while something is done. */
function during(calls, work) {
  calls.length = 0
  work()
  return [...calls]
}

test("queries by time make no native call, wherever they begin and end", (context) => {
  const { log, calls } = counted(context)
  const cursor = log.cursor()
  for (let time = 1; time < ENTRIES - 20; time += 97) {
    const queries = [{ start: time, end: time + 10 }, { after: time, end: time + 10 }, { exact: time - (time % 5) + 1, end: time + 20 }]
    for (const query of queries) {
      assert.deepEqual(during(calls, () => assert.ok([...log.query(query)].length > 0)), [])
      assert.deepEqual(during(calls, () => assert.ok(drain(log.cursor(query)).length > 0)), [])
    }
    cursor.seek({ start: time, end: time + 10 })
  }
})

test("queries at the committed end make none, and one who goes on there asks once whether the log is over", (context) => {
  const { log, calls } = counted(context)
  assert.deepEqual(during(calls, () => assert.deepEqual([...log.query({ tail: true })], [])), [])
  const cursor = log.cursor({ tail: true })
  assert.deepEqual(during(calls, () => assert.equal(cursor.next(), false)), ["ended"])
  for (let n = 0; n < 5; n++) {
    const again = () => {
      cursor.seek({ tail: true })
      assert.equal(cursor.next(), false)
    }
    assert.deepEqual(during(calls, again), [])
  }
  log.appendSync("x", { time: ENTRIES })
  assert.deepEqual(during(calls, () => assert.equal(drain(cursor).length, 1)), [])
})

test("queries from the beginning, and from an offset, ask where that is once, and never again while no segment comes or goes", (context) => {
  const { opened, log, calls } = counted(context)
  const first = (query) => assert.equal(log.query(query).next().value.offset, query?.offset ?? 0)
  assert.deepEqual(during(calls, () => first({})), ["positionOf"])
  assert.deepEqual(during(calls, () => first({})), [])
  assert.deepEqual(during(calls, () => first(undefined)), [])
  for (let offset = 5_000; offset < 300_000; offset += 33_333) {
    assert.deepEqual(during(calls, () => first({ offset })), ["positionOf"], `${offset}`)
    assert.deepEqual(during(calls, () => first({ offset })), [])
    const near = Math.floor(offset / 4096) * 4096 + 4095
    assert.deepEqual(during(calls, () => first({ offset: near })), [])
  }
  opened.rotate()
  log.appendSync("x", { time: ENTRIES })
  assert.deepEqual(during(calls, () => first({ offset: 5_000 })).filter((name) => name === "positionOf"), ["positionOf"])
})

test("queries from the newest checkpoint ask where that is, which no word says", (context) => {
  const { log, calls } = counted(context)
  for (let n = 0; n < 3; n++) assert.deepEqual(during(calls, () => log.query({ checkpoint: true }).next()), ["checkpoint"])
})

test("an offset that was found is found, whatever was purged, appended or read uncommitted since", async (context) => {
  const opened = store(context, { durability: "os", segmentBytesMax: 16384 })
  const log = opened.log("a")
  let [appended, first] = [0, 0]
  for (let round = 0; round < 40; round++) {
    for (let n = 0; n < 50; n++, appended++) log.appendSync(Buffer.alloc(10, appended % 251), { time: appended })
    if (round % 7 === 6) {
      const before = appended - 120
      await opened.purge({ log: "a", before })
      first = before * 10
    }
    for (let offset = round; offset < appended * 10; offset += 97) {
      for (const query of [{ offset }, { offset, uncommitted: true }]) {
        const { value } = log.query(query).next()
        assert.equal(value.offset, Math.max(offset, first))
        assert.equal(value.data[0], Math.floor(value.offset / 10) % 251)
      }
    }
  }
})
