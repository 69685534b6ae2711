"use strict"

// What callers hand over that means nothing is refused by name, before anything is done.

const assert = require("node:assert/strict")
const test = require("node:test")
const { backup, drain, folder, open, parse, restore, store, text, verify } = require("./helpers.js")

const BAD = { name: "ThalwegError", code: "BAD_ARGUMENT" }
const bad = (call, message) => assert.throws(call, message === undefined ? BAD : { ...BAD, message })
const rejects = (call) => assert.rejects(async () => call(), BAD)

/** A log with two entries, read in all ways. */
function filled(context) {
  const log = store(context).log("a")
  for (const time of [1, 2]) log.appendSync("x", { time })
  return { log, reads: [(query) => log.query(query), (query) => log.cursor(query), (query) => log.tail(query)] }
}

test("times and offsets that are no whole numbers are refused, and the cursor stays where it was", (context) => {
  const { log, reads } = filled(context)
  const cursor = log.cursor()
  assert.ok(cursor.next())
  for (const name of ["start", "after", "exact", "offset", "end"]) {
    for (const value of [NaN, 0.5, 1e-9, "1", 1n, null, new Date(), [1]]) {
      for (const read of reads) bad(() => read({ [name]: value }))
      bad(() => cursor.seek({ [name]: value }))
    }
  }
  for (const offset of [-1, Infinity, 2 ** 53]) for (const read of reads) bad(() => read({ offset }))
  assert.deepEqual(drain(cursor).map(([time]) => time), [2])
  assert.equal([...log.query({ start: -Infinity, end: Infinity })].length, 2)
  assert.equal([...log.query({ start: -5, end: Number.MAX_SAFE_INTEGER })].length, 2)
})

test("a query takes only words that it knows, and begins in one place", (context) => {
  const { log, reads } = filled(context)
  for (const read of reads) {
    bad(() => read({ begin: 1 }), /takes no begin: it takes start, after/)
    bad(() => read({ start: 1, until: 2 }), /takes no until/)
    for (const query of [{ start: 1, offset: 0 }, { start: 1, after: 1 }, { exact: 1, tail: true }, { offset: 0, checkpoint: true }]) {
      bad(() => read(query), /begins in one place/)
    }
    for (const query of [null, 7, "start", true]) bad(() => read(query), /a query is an object/)
    for (const name of ["tail", "checkpoint", "uncommitted", "lazy"]) bad(() => read({ [name]: 1 }), /booleans/)
  }
  assert.equal([...log.query({ start: 1, after: undefined, tail: false, checkpoint: false, uncommitted: true })].length, 2)
  assert.equal(drain(log.cursor({ offset: 1, end: undefined })).length, 1)
})

test("a word that is another way of reading's is refused", (context) => {
  const { log } = filled(context)
  bad(() => log.query({ signal: AbortSignal.abort() }), /takes no signal: it takes start, .*, uncommitted, lazy$/)
  bad(() => log.tail({ lazy: true }), /takes no lazy: it takes start, .*, uncommitted, signal$/)
  const cursor = log.cursor()
  for (const query of [{ lazy: false }, { signal: AbortSignal.abort() }]) {
    for (const read of [(query) => log.cursor(query), (query) => cursor.seek(query)]) bad(() => read(query), /, end, uncommitted$/)
  }
  assert.deepEqual(drain(cursor).map(([time]) => time), [1, 2])
})

test("times of appends, transactions and purges are whole numbers, and their options objects that are known", async (context) => {
  const opened = store(context)
  const log = opened.log("a")
  for (const time of [0.5, -1, NaN, Infinity, 2 ** 53, "1", 1n]) {
    await rejects(() => log.append("x", { time }))
    bad(() => log.appendSync("x", { time }))
    await rejects(() => log.appendMany(["x"], { time }))
    await rejects(() => log.appendTimed([[time, "x"]]))
    bad(() => opened.transaction({ time }))
    await rejects(() => opened.transaction(() => {}, { time }))
    await rejects(() => opened.purge({ before: time }))
  }
  for (const options of [null, 7, "time", { tiem: 5 }]) {
    await rejects(() => log.append("x", options))
    bad(() => log.appendSync("x", options))
    await rejects(() => log.appendMany(["x"], options))
    bad(() => opened.transaction(options))
    await rejects(() => opened.transaction(() => {}, options))
    bad(() => log.tail({}, options))
    bad(() => opened.newLogs(options))
  }
  for (const entries of [undefined, null, 7, {}]) {
    await rejects(() => log.appendMany(entries))
    await rejects(() => log.appendTimed(entries))
    await rejects(() => log.appendTimed([entries]))
  }
  bad(() => log.tail({}, { signal: {} }), /AbortSignal/)
  bad(() => opened.newLogs({ existing: 1 }))
  bad(() => opened.newLogs({ signal: "now" }))
  assert.deepEqual([...log.query()], [])
})

test("names and paths are text: no half of a character becomes another name", async (context) => {
  const path = folder(context)
  const opened = store(context, { durability: "os", path })
  for (const name of ["\ud800", "a\udc00b", undefined, null, 7, Buffer.from("a")]) {
    bad(() => opened.log(name))
    if (name === undefined) continue
    await rejects(() => opened.purge({ log: name }))
    bad(() => open(name))
    for (const call of [() => verify(name), () => backup(path, name), () => restore(name, path), () => opened.backup(name)]) await rejects(call)
    bad(() => parse(name))
  }
  // Nor does a path end in the middle.
  const cut = `${path}\0b`
  for (const call of [() => open(cut), () => open(cut, { readOnly: true }), () => parse(cut)]) bad(call, /^a path holds no NUL$/)
  for (const call of [() => verify(cut), () => backup(path, cut), () => restore(cut, path), () => opened.backup(cut)]) await rejects(call)
  bad(() => opened.log("\u{1f600}a\udc00b"), /^a name holds half of a character \(\\udc00, a surrogate without its other\) at index 3: give whole characters/)
  assert.equal(opened.log("\u{1f600}").name, "\u{1f600}")
  assert.deepEqual(opened.logs(), ["\u{1f600}"])
})

test("text of entries is whole characters: none becomes another", async (context) => {
  const opened = store(context)
  const log = opened.log("a")
  const half = { code: "BAD_ARGUMENT", message: /^data holds half of a character \(\\ud83d, .* at index 2: give whole characters/ }
  const transaction = opened.transaction()
  for (const append of [(text) => log.appendSync(text), (text) => transaction.append(log, text)]) assert.throws(() => append("ab\ud83d"), half)
  await assert.rejects(log.append("ab\ud83d"), half)
  await assert.rejects(log.appendMany(["ab\ud83d"]), half)
  await assert.rejects(log.appendTimed([[1, "ab\ud83d"]]), half)
  transaction.abort()
  log.appendSync("\u{1f600}")
  assert.deepEqual([...log.query()].map((entry) => text(entry.data)), ["\u{1f600}"])
})

test("options of open are known words, and sizes that no segment can have are refused with their bounds", (context) => {
  const path = folder(context)
  for (const options of [null, 7, "os"]) bad(() => open(path, options), /options of open are an object/)
  bad(() => open(path, { readonly: true }), /open takes no readonly: it takes durability, readOnly/)
  bad(() => open(path, { readOnly: 1 }), /readOnly of open is a boolean/)
  const at = (min, max) => () => open(path, { durability: "os", segmentBytesMin: min, segmentBytesMax: max })
  for (const bytes of [0, 8, 4097, 1 << 20]) bad(at(bytes, 65536), /^segmentBytesMin is \d+; it must be a multiple of 4096 from 4096 to 65536, which is segmentBytesMax$/)
  for (const bytes of [0, 4096, 1_000_001, 2 ** 30 + 4096, 2 ** 32 - 1]) bad(at(4096, bytes), /^segmentBytesMax is \d+; it must be a multiple of 4096 from 8192 to 1073741824$/)
  // The first is no larger than the largest, unless somebody says so.
  const opened = store(context, { path, durability: "os", segmentBytesMin: undefined, segmentBytesMax: 8192 })
  assert.equal(opened.stats().segmentBytes, 8192)
})
